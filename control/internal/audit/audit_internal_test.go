package audit

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
		a := New(slowStore{s}, "default/default", slog.New(slog.DiscardHandler))
		a.Add(&Row{ID: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Action: "runs.get", Result: "success"})
		time.Sleep(Delay + time.Millisecond) // the goroutine is writing it
		if n := rowsOf(t, s); n != 0 {
			t.Fatalf("%d rows were written at once", n)
		}
		a.Flush(t.Context())
		if n := rowsOf(t, s); n != 1 {
			t.Errorf("%d rows are written after a flush, want 1", n)
		}
		a.Close()
	})
}

// rowsOf counts the rows in a store.
func rowsOf(t *testing.T, s storage.Storage) (n int) {
	t.Helper()
	for _, err := range storage.All(t.Context(), s, storage.Prefix([]byte("ctl:audit:"))) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	return n
}
