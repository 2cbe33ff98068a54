package acceptance

import (
	"errors"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// forgotten decides and commits the expiry of evt 1, at a time after its acceptance,
// and returns what was deleted and put.
func forget(t *testing.T, s storage.Storage, entry []byte, after time.Duration) (b storage.Batch, err error) {
	t.Helper()
	if b, err = Forget(ctx, s, entry, noon.Add(after)); err != nil {
		t.Fatal(err)
	}
	return b, s.Commit(ctx, b)
}

func there(t *testing.T, s storage.Storage, key []byte) bool {
	t.Helper()
	_, err := s.Get(ctx, key)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// FMT-16, FMT-25, SIG-27, SIG-44, OP-35: an acceptance is deleted when it has expired and its signal
// was consumed; if the signal waits, it is kept, and checked again.
func TestForget(t *testing.T) {
	s := new(memory.Store)
	in := incoming("approved", "1", "v")
	accept(t, s, in)
	accepted := keys.Accepted("order-42", "approved", "1")
	entry := keys.ExpiringSignal(noon.Add(24*time.Hour), "order-42", "approved", "1")
	if !there(t, s, entry) {
		t.Fatal("no entry tells when it expires")
	}
	if _, err := forget(t, s, entry, 24*time.Hour); err != nil || !there(t, s, accepted) || there(t, s, entry) {
		t.Fatalf("forgotten while the signal waits: %v", err)
	}
	again := keys.ExpiringSignal(noon.Add(48*time.Hour), "order-42", "approved", "1")
	if !there(t, s, again) {
		t.Fatal("nobody looks at it again")
	}
	condition, ops := Consume("order-42", Waiting{Seq: 1, Name: "approved", ID: "1"})
	if err := s.Commit(ctx, storage.Batch{If: []storage.Condition{condition}, Ops: ops}); err != nil {
		t.Fatal(err)
	}
	if _, err := forget(t, s, again, 48*time.Hour); err != nil || there(t, s, accepted) || there(t, s, again) {
		t.Errorf("not forgotten: %v", err)
	}
}

// FMT-16, OP-35: a decision on a record that is deleted or replaced meanwhile removes nothing.
func TestForgetIsByCompare(t *testing.T) {
	s := new(memory.Store)
	in := incoming("approved", "1", "v")
	consumed := func(at time.Time, seq uint64) []byte {
		t.Helper()
		counted, err := Counter(ctx, s, "order-42")
		if err != nil {
			t.Fatal(err)
		}
		d, err := Accept([]*Incoming{in}, generation, counted, at)
		if err != nil {
			t.Fatal(err)
		}
		condition, ops := Consume("order-42", Waiting{Seq: seq, Name: "approved", ID: "1"})
		if err := errors.Join(s.Commit(ctx, d.Batch), s.Commit(ctx, storage.Batch{If: []storage.Condition{condition}, Ops: ops})); err != nil {
			t.Fatal(err)
		}
		return keys.ExpiringSignal(at.Add(24*time.Hour), "order-42", "approved", "1")
	}
	first := consumed(noon, 1)
	late, err := Forget(ctx, s, first, noon.Add(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := forget(t, s, first, 24*time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, late); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("the same removal, late: %v, want ErrConflict", err)
	}
	second := consumed(noon.Add(30*time.Hour), 2)
	if err := s.Commit(ctx, late); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("after it was accepted anew: %v, want ErrConflict", err)
	}
	if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(first, nil)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := forget(t, s, first, 31*time.Hour); err != nil || !there(t, s, keys.Accepted("order-42", "approved", "1")) || there(t, s, first) || !there(t, s, second) {
		t.Errorf("an entry of the first acceptance has removed the second: %v", err)
	}
}

// LV2: a damaged record is named and stays.
func TestForgetOfDamage(t *testing.T) {
	s := new(memory.Store)
	accept(t, s, incoming("approved", "1", "v"))
	if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(keys.Accepted("order-42", "approved", "1"), []byte("no record"))}}); err != nil {
		t.Fatal(err)
	}
	for _, entry := range [][]byte{
		keys.ExpiringSignal(noon, "order-42", "approved", "1"),
		[]byte("exp:0000000000000000:sig:order-42"),
		[]byte("exp:"),
	} {
		if b, err := Forget(ctx, s, entry, noon.Add(48*time.Hour)); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%q: %v, %v, want ErrCorrupt", entry, b, err)
		}
	}
}
