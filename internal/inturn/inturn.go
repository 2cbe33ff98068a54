// Package inturn makes several openings of one store, like those of several processes, testable
// as one store.
package inturn

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/weft-go/weft/storage"
)

// Stores are openings that share no memory. Successive calls go to different openings, in turn.
type Stores struct {
	Name string // for opening more
	all  []storage.Storage
	turn atomic.Int64
}

// New returns Stores for openings of the store with this name.
func New(name string, all ...storage.Storage) *Stores { return &Stores{Name: name, all: all} }

func (s *Stores) next() storage.Storage { return s.all[int(s.turn.Add(1))%len(s.all)] }

func (s *Stores) Get(ctx context.Context, key []byte) ([]byte, error) { return s.next().Get(ctx, key) }

func (s *Stores) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	return s.next().Scan(ctx, r)
}

func (s *Stores) Commit(ctx context.Context, b storage.Batch) error { return s.next().Commit(ctx, b) }

func (s *Stores) Capabilities() storage.Capabilities { return s.all[0].Capabilities() }

// Close closes all of them.
func (s *Stores) Close() error {
	var errs []error
	for _, one := range s.all {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}
