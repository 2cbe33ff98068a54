package postgres_test

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/storagetest"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(holderEnv); url != "" {
		fmt.Fprintln(os.Stderr, holdSession(url))
		os.Exit(1)
	}
	leaks.Main(pgtest.Tests{M: m})
}

func TestStorage(t *testing.T) {
	suite(t, func(t testing.TB) place { return place{pgtest.URL(t), nil} })
}

func TestStorageNoListen(t *testing.T) {
	url, n := pgtest.URL(t), 0
	suite(t, func(testing.TB) place { // schemas are made more quickly than databases
		n++
		return place{url, &postgres.Options{NoListen: true, Schema: fmt.Sprint("store", n)}}
	})
}

// A place is where a store has its tables.
type place struct {
	url     string
	options *postgres.Options
}

func suite(t *testing.T, empty func(testing.TB) place) {
	places := map[storage.Storage]place{}
	at := func(t testing.TB, p place) storage.Storage {
		s := open(t, p.url, p.options)
		places[s] = p
		return s
	}
	storagetest.Run(t, storagetest.Adapter{
		Open:   func(t testing.TB) storage.Storage { return at(t, empty(t)) },
		Reopen: func(t testing.TB, s storage.Storage) storage.Storage { return at(t, places[s]) },
		Want: &storage.Capabilities{
			ConditionalBatch: true,
			AtomicBatch:      true,
			ReadAfterWrite:   true,
			ScanConsistency:  storage.Snapshot,
			Durable:          true,
			Shared:           true,
			MaxBatch:         storage.Size{Ops: 10_000, Bytes: 64 << 20},
		},
	})
}

func open(t testing.TB, url string, o *postgres.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// A commit tells how many shared its transaction.
func TestCommitTellsItsGroup(t *testing.T) {
	s := open(t, pgtest.URL(t), &postgres.Options{NoListen: true, FsyncOff: true})
	sizes := make([]int, 200)
	for round := range 50 {
		var wg sync.WaitGroup
		for i := range sizes {
			sizes[i] = 0
			wg.Go(func() {
				b := storage.Batch{Ops: []storage.Op{storage.Put(fmt.Append(nil, i), nil)}, Group: &sizes[i]}
				if err := s.Commit(t.Context(), b); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := slices.Min(sizes); n < 1 {
			t.Fatalf("a commit of round %d was in a group of %d", round, n)
		}
		if slices.Max(sizes) > 1 {
			return
		}
	}
	t.Error("no commit of 50 times 200 at once was in a group with another")
}
