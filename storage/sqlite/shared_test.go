package sqlite_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/inturn"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/storage/storagetest"
)

var shared = &sqlite.Options{Shared: true}

func openTwo(t testing.TB, path string) storage.Storage {
	return inturn.New(path, open(t, path, shared), open(t, path, shared))
}

// The suite on two openings of one database, with the capabilities that they claim.
func TestSharedStorage(t *testing.T) {
	storagetest.Run(t, storagetest.Adapter{
		Open:   func(t testing.TB) storage.Storage { return openTwo(t, newPath(t)) },
		Reopen: func(t testing.TB, s storage.Storage) storage.Storage { return openTwo(t, s.(*inturn.Stores).Name) },
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

// Interleaving 36: an exclusive opener is refused while sharing openers are alive, and
// the other way round. Otherwise an engine could be declared dead while it is alive.
func TestExclusiveAndSharingOpenersKeepEachOtherOut(t *testing.T) {
	path := newPath(t)
	a := open(t, path, shared)
	b := open(t, path, shared)
	if a.Opening() != "" || b.Opening() != "" {
		t.Errorf("openings %q and %q, want none: a sharing opener knows of nobody's death", a.Opening(), b.Opening())
	}
	refused(t, path, nil, locked)
	a.Close()
	refused(t, path, nil, locked)
	put(t, b, "a", "1")
	b.Close()
	x := open(t, path, nil)
	if x.Opening() == "" {
		t.Error("an exclusive opener has no opening")
	}
	refused(t, path, shared, locked, "each must set Options.Shared")
	got(t, x, "a", "1")
	x.Close()
	got(t, open(t, path, shared), "a", "1")
}

// Engines on two openings share the work, and one takes over the other's runs.
func TestEnginesOnASharedStore(t *testing.T) {
	path := newPath(t)
	nap := &engine.Workflow[int, int]{Name: "nap", Func: func(run *engine.Run, n int) (int, error) {
		for range 3 {
			if err := run.Sleep(20 * time.Millisecond); err != nil {
				return 0, err
			}
		}
		return n, nil
	}}
	var engines [2]*engine.Engine
	var stops [2]context.CancelFunc
	var running sync.WaitGroup
	defer running.Wait()
	for i := range engines {
		e, err := engine.New(engine.Config{
			Storage:      open(t, path, shared),
			Workflows:    []engine.Definition{nap},
			Name:         fmt.Sprint("engine", i),
			PollInterval: 50 * time.Millisecond,
			Logger:       slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		var ctx context.Context
		ctx, stops[i] = context.WithCancel(context.Background())
		defer stops[i]()
		engines[i] = e
		running.Go(func() {
			if err := e.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	const each = 20
	for n := range each * 2 {
		if _, err := nap.Start(t.Context(), engines[n%2], fmt.Sprint(n), n); err != nil {
			t.Fatal(err)
		}
	}
	stops[0]() // hands its runs over
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for n := range each * 2 {
		if got, err := nap.Handle(engines[1], fmt.Sprint(n)).Result(ctx); got != n || err != nil {
			t.Errorf("workflow %d: %d, %v", n, got, err)
		}
	}
}
