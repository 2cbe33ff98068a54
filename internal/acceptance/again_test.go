package acceptance

import (
	"errors"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// OPS-3: a decision to forget an acceptance that was made before its signal is there again forgets nothing. So
// does one by a clock that is ahead.
func TestForgetBesideAgain(t *testing.T) {
	for _, ahead := range []time.Duration{0, 20 * time.Hour} {
		s := new(memory.Store)
		in := incoming("approved", "1", "v")
		accept(t, s, in)
		accepted := keys.Accepted("order-42", "approved", "1")
		condition, ops := Consume("order-42", Waiting{Seq: 1, Name: "approved", ID: "1"})
		if err := s.Commit(ctx, storage.Batch{If: []storage.Condition{condition}, Ops: ops}); err != nil {
			t.Fatal(err)
		}
		expired := noon.Add(25 * time.Hour)
		entry := keys.ExpiringSignal(noon.Add(24*time.Hour), "order-42", "approved", "1")
		late, err := Forget(ctx, s, entry, expired)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Again(ctx, s, Received{
			WorkflowID: "order-42", Generation: generation, Seq: 1, Name: "approved", ID: "1", Data: []byte(`"v"`), At: noon, Memory: time.Minute,
		}, expired.Add(-ahead))
		if err := errors.Join(err, s.Commit(ctx, again)); err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(ctx, late); !errors.Is(err, storage.ErrConflict) || !there(t, s, accepted) {
			t.Errorf("%v ahead: forgotten while the signal waits: %v, want ErrConflict", ahead, err)
		}
		if _, err := forget(t, s, entry, 24*time.Hour); err != nil || !there(t, s, accepted) {
			t.Errorf("%v ahead: it is forgotten by its first entry: %v", ahead, err)
		}
		condition, ops = Consume("order-42", Waiting{Seq: 1, Name: "approved", ID: "1"})
		if err := s.Commit(ctx, storage.Batch{If: []storage.Condition{condition}, Ops: ops}); err != nil {
			t.Fatal(err)
		}
		left := 0
		for e, err := range storage.All(ctx, s, keys.ExpiredAt(noon.Add(1000*time.Hour))) {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := forget(t, s, e.Key, 1000*time.Hour); err != nil {
				t.Errorf("%v ahead: %v", ahead, err)
			}
			left++
		}
		if left == 0 || there(t, s, accepted) {
			t.Errorf("%v ahead: it is never forgotten: %d entries", ahead, left)
		}
	}
}
