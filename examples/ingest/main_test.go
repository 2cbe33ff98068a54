package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage/memory"
)

func TestIngest(t *testing.T) {
	if err := run(t.Context(), filepath.Join(t.TempDir(), "search.db")); err != nil {
		t.Fatal(err)
	}
}

func opened(t *testing.T) *search {
	t.Helper()
	s, err := open(new(memory.Store))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.ledger.Close() })
	return s
}

// FEN-50, FEN-51: the same content has the ids of its first ingestion; another content is ingested.
func TestOneIngestionPerContent(t *testing.T) {
	s := opened(t)
	ids := func(d Document) []string {
		r, err := s.ingest.Do(t.Context(), s.ledger, idempotency.Key{SourceType: "doc", SourceID: d.ID, Revision: hash(d.Text)}, d)
		if err != nil {
			t.Fatal(err)
		}
		return r.Result
	}
	once, again, changed := ids(silk), ids(silk), ids(silk2)
	if !slices.Equal(once, again) || slices.Equal(once, changed) || s.ingested.Load() != 2 {
		t.Errorf("%v, again %v, changed %v, ingested %d times", once, again, changed, s.ingested.Load())
	}
}

// FEN-52: 64 callers of one hash make one build. All of them wait for it, and all get it.
func TestOneBuildPerHash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, finish := opened(t), make(chan bool)
		build := *s.build
		build.Run = func(ctx context.Context, hash string) (int, error) {
			<-finish
			return s.build.Run(ctx, hash)
		}
		results := make(chan idempotency.Receipt[int], 64)
		for range cap(results) {
			go func() {
				r, err := build.Do(t.Context(), s.ledger, indexKey("h"), "h")
				if err != nil {
					t.Error(err)
				}
				results <- r
			}()
		}
		synctest.Wait() // all of them have asked
		if len(results) != 0 {
			t.Errorf("%d callers did not wait", len(results))
		}
		close(finish)
		synctest.Wait()
		ids, decided := map[string]int{}, map[idempotency.Decision]int{}
		for len(results) > 0 {
			r := <-results
			ids[r.EffectID]++
			decided[r.Decision]++
		}
		if n := s.built.Load(); n != 1 || len(ids) != 1 || decided["new"] != 1 || decided["duplicate"] != 63 {
			t.Errorf("%d builds, effects %v, decisions %v; want 1, 1, and 1 new with 63 duplicates", n, ids, decided)
		}
		s.ledger.Close()
	})
}

// FEN-53: there is no swap to an index that is not sealed, also while it is being built. A swap goes back
// to an earlier index as a generation of its own.
func TestSwapOnlyToWhatIsSealed(t *testing.T) {
	s := opened(t)
	running, finish := make(chan bool), make(chan bool)
	build := *s.build
	build.Run = func(context.Context, string) (int, error) {
		running <- true
		<-finish
		return 1, nil
	}
	if err := s.swap(t.Context(), "1", "h"); !errors.Is(err, errNotBuilt) {
		t.Errorf("before the build: %v", err)
	}
	var builder sync.WaitGroup
	builder.Go(func() {
		if _, err := build.Do(t.Context(), s.ledger, indexKey("h"), "h"); err != nil {
			t.Error(err)
		}
	})
	<-running
	if err := s.swap(t.Context(), "1", "h"); !errors.Is(err, errNotBuilt) {
		t.Errorf("during the build: %v", err)
	}
	finish <- true
	builder.Wait()
	if err := s.buildByMany(t.Context(), "g", 1); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		generation, hash string
		swaps            int64
	}{{"1", "h", 1}, {"2", "g", 2}, {"2", "g", 2}, {"3", "h", 3}} {
		if err := s.swap(t.Context(), c.generation, c.hash); err != nil || s.swapped.Load() != c.swaps {
			t.Errorf("generation %s: %v, %d swaps, want %d", c.generation, err, s.swapped.Load(), c.swaps)
		}
	}
}
