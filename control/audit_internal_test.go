package control

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A slowStore takes a second for a commit.
type slowStore struct{ storage.Storage }

func (s slowStore) Commit(ctx context.Context, b storage.Batch) error {
	time.Sleep(time.Second)
	return s.Storage.Commit(ctx, b)
}

// When a flush returns, also the rows are written that the auditor's goroutine was writing.
func TestFlushWaitsForTheFlushBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(memory.Store)
		a := newAuditor(slowStore{s}, "default/default", slog.New(slog.DiscardHandler))
		a.add(&auditRow{ID: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Action: "runs.get", Result: "success"})
		time.Sleep(auditDelay + time.Millisecond) // the goroutine is writing it
		if n := records(t, s, "ctl:audit:"); n != 0 {
			t.Fatalf("%d rows were written at once", n)
		}
		a.flush(t.Context())
		if n := records(t, s, "ctl:audit:"); n != 1 {
			t.Errorf("%d rows are written after a flush, want 1", n)
		}
		a.close()
	})
}
