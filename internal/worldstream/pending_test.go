package worldstream

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A stuck store does not commit.
type stuck struct{ storage.Storage }

func (stuck) Commit(ctx context.Context, _ storage.Batch) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// While the store does not commit, what callers that are gone wanted to write is not kept.
func TestWhoIsGoneLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(stuck{new(memory.Store)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		write := func(ctx context.Context) error {
			_, err := s.Write(ctx, Write{RunID: "wrun_1", Name: "words", Chunks: [][]byte{[]byte("x")}})
			return err
		}
		var calls sync.WaitGroup
		calls.Go(func() {
			if err := write(t.Context()); !errors.Is(err, storage.ErrClosed) {
				t.Errorf("the first call: %v", err)
			}
		})
		synctest.Wait() // it is being committed
		ctx, cancel := context.WithCancel(t.Context())
		var gone sync.WaitGroup
		for range 1000 {
			gone.Go(func() {
				if err := write(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("a call whose caller is gone: %v", err)
				}
			})
		}
		synctest.Wait()
		a := s.open[string(logOf("wrun_1", "words").HeadKey)]
		if len(a.pending) != 1000 {
			t.Errorf("%d calls wait, want 1,000", len(a.pending))
		}
		cancel()
		gone.Wait()
		if len(a.pending) != 0 {
			t.Errorf("%d calls wait whose callers are gone", len(a.pending))
		}
		s.Close()
		calls.Wait()
	})
}
