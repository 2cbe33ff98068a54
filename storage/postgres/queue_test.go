package postgres

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weft-go/weft/storage"
)

// A batch waits only because another one, before it in the queue, names its key. Its caller gives up, and the batch
// behind it is committed at once.
func TestWithdrawnBatchLetsOthersPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{queue: newQueue()}
		enter := func(names ...string) *ticket {
			var b storage.Batch
			for _, name := range names {
				b.Ops = append(b.Ops, storage.Put([]byte(name), nil))
			}
			x := s.tickets.get(b)
			if err := s.enter(x); err != nil {
				t.Fatal(err)
			}
			return x
		}
		enter("a")
		if g := s.next(nil); len(g) != 1 {
			t.Fatalf("%d batches are taken, want the first", len(g))
		}
		both, behind := enter("a", "b"), enter("b")
		group := make(chan []*ticket)
		go func() { group <- s.next(nil) }()
		synctest.Wait() // for who waits for work
		if _, ok := s.queue.withdraw(both); !ok {
			t.Fatal("the batch is not in the queue")
		}
		if g := <-group; len(g) != 1 || g[0] != behind {
			t.Errorf("%d batches are taken, want the one behind", len(g))
		}
	})
}

// A commit that the server has rolled back is undone; of one that it does not know the end of, nobody does.
func TestOutcome(t *testing.T) {
	for code, undone := range map[string]bool{"40001": true, "40P01": true, "40003": false, "XX000": false} {
		err := outcome(&pgconn.PgError{Code: code, SeverityUnlocalized: "ERROR"}, true)
		if _, got := errors.AsType[*undoneError](err); got != undone {
			t.Errorf("%s: %T, want undone = %v", code, err, undone)
		}
	}
}
