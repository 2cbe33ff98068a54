package postgres_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/storagetest"
)

// two are stores as two processes have them, whose memory has nothing in common.
// Calls go to one and the other in turn.
type two struct {
	url    string
	stores [2]*postgres.Store
	turn   atomic.Int64
}

func openTwo(t testing.TB, url string) storage.Storage {
	return &two{url: url, stores: [2]*postgres.Store{open(t, url, nil), open(t, url, nil)}}
}

func (s *two) next() *postgres.Store { return s.stores[s.turn.Add(1)%2] }

func (s *two) Get(ctx context.Context, key []byte) ([]byte, error) { return s.next().Get(ctx, key) }

func (s *two) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	return s.next().Scan(ctx, r)
}

func (s *two) Commit(ctx context.Context, b storage.Batch) error { return s.next().Commit(ctx, b) }

func (s *two) Capabilities() storage.Capabilities { return s.stores[0].Capabilities() }

func (s *two) Close() error { return errors.Join(s.stores[0].Close(), s.stores[1].Close()) }

// The suite with two processes.
func TestStorageOfTwo(t *testing.T) {
	storagetest.Run(t, storagetest.Adapter{
		Open:   func(t testing.TB) storage.Storage { return openTwo(t, pgtest.URL(t)) },
		Reopen: func(t testing.TB, s storage.Storage) storage.Storage { return openTwo(t, s.(*two).url) },
	})
}
