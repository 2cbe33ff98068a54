package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// Who decides about a workflow that is purged meanwhile may find that something is missing. That is damage
// only if the workflow is still what was read.
func TestDamageOfWhatWasPurgedMeanwhile(t *testing.T) {
	for _, purged := range []bool{false, true} {
		ctx, now, s := t.Context(), time.Now(), new(memory.Store)
		w, err := journal.Create(&journal.Workflow{ID: "w", Generation: "g", Type: "t"}, nil, "", keys.Todo(0, now, "w", "n"), 0, now)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(ctx, w.Batch); err != nil {
			t.Fatal(err)
		}
		err = New(&run.Host{Env: run.Env{Store: s}}).Change(ctx, "w", Change{
			Landed: func(context.Context, *journal.Workflow) (bool, error) { return false, nil },
			Decide: func(ctx context.Context, wf *journal.Workflow) (*Changing, error) {
				if purged {
					if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Delete(keys.Workflow("w"))}}); err != nil {
						t.Fatal(err)
					}
				}
				return nil, fmt.Errorf("%w: a record is missing", storage.ErrCorrupt)
			},
		})
		want := storage.ErrCorrupt
		if purged {
			want = weft.ErrNotFound
		}
		if !errors.Is(err, want) {
			t.Errorf("purged = %v: %v, want %v", purged, err, want)
		}
	}
}
