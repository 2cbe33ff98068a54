package signal

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// FMT-4, FMT-21, FMT-22, SIG-20 to SIG-27: the bytes of each record.
func TestGoldenRecords(t *testing.T) {
	const gen = "01JGZ3Q8X0000000000000000A"
	payloadKey := keys.Signal("order-42", "approved", "evt:1")
	golden.Check(t, "testdata/v1", map[string]golden.Record{
		"payload": {
			Key: payloadKey, Version: version, Empty: func() any { return new(Payload) },
			Value: &Payload{Generation: gen, Codec: "cbor", Data: []byte(`"bob"`)},
		},
		"accepted": {
			Key: keys.Accepted("order-42", "approved", "evt:1"), Version: version, Empty: func() any { return new(accepted) },
			Value: &accepted{
				WorkflowID: "order-42", SignalName: "approved", SignalID: "evt:1", SignalStorageKey: string(payloadKey),
				AcceptedAt: 1767355200000000, ExpiresAt: 1767441600000000, Digest: bytes.Repeat([]byte{0xd1}, 32), Generation: gen,
			},
		},
		"place": {
			Key: keys.Inbox("order-42", 7), Version: version, Empty: func() any { return new(place) },
			Value: &place{"approved", "evt:1"},
		},
		"counter": {
			Key: keys.SignalCounter("order-42"), Version: version, Empty: func() any { return new(counter) },
			Value: &counter{7},
		},
	})
}

// SIG-38, SG1: payload, place, response and counter are one batch, which holds
// only if none of them is there and the counter is what was read.
func TestAcceptIsOneConditionalBatch(t *testing.T) {
	s := new(memory.Store)
	b, a := decide(t, s, incoming("approved", "x", `"v"`))
	want := map[string]storage.ConditionKind{
		"sig:order-42:approved:x":    storage.IsAbsent,
		"sigres:order-42:approved:x": storage.IsAbsent,
		"sigseq:order-42":            storage.IsAbsent,
	}
	for _, c := range b.If {
		if want[string(c.Key)] != c.Kind {
			t.Errorf("condition %d on %q", c.Kind, c.Key)
		}
		delete(want, string(c.Key))
	}
	if len(want) > 0 || len(b.Ops) != 4 {
		t.Errorf("conditions missing: %v; %d operations, want 4", want, len(b.Ops))
	}
	if wantA := (Accepted{true, "order-42", "approved", "x", noon, "sig:order-42:approved:x"}); a != wantA {
		t.Errorf("accepted %+v, want %+v", a, wantA)
	}
	if err := s.Commit(ctx, b); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, b); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("the same again: %v, want ErrConflict", err)
	}
}

// Interleaving 9: of two who read one counter, one is accepted.
func TestTwoSendersOfOneCounter(t *testing.T) {
	s := new(memory.Store)
	accept(t, s, incoming("approved", "1", "1"))
	a, _ := decide(t, s, incoming("approved", "2", "2"))
	b, _ := decide(t, s, incoming("approved", "3", "3"))
	if err := s.Commit(ctx, a); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, b); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("the second: %v, want ErrConflict", err)
	}
	accept(t, s, incoming("approved", "3", "3"))
	page, last, err := Inbox(ctx, s, "order-42", 0, 10)
	if err != nil || !last || len(page) != 3 {
		t.Fatalf("inbox %+v, last %v, %v", page, last, err)
	}
	for i, w := range page {
		if w.Seq != uint64(i+1) || w.ID != fmt.Sprint(i+1) {
			t.Errorf("place %d: %+v", i+1, w)
		}
	}
}

// SIG-12, SIG-32, SIG-33, OP-13: the first answer is the answer.
func TestEarlier(t *testing.T) {
	s := new(memory.Store)
	in := incoming("approved", "x", "v")
	if a, ok, err := Earlier(ctx, s, in); ok || err != nil {
		t.Errorf("before: %+v, %v, %v", a, ok, err)
	}
	first := accept(t, s, in)
	later := *in
	later.At, later.Generation, later.ExpiresAt = noon.Add(time.Hour), "ANOTHER", noon
	if a, ok, err := Earlier(ctx, s, &later); !ok || err != nil || a != first {
		t.Errorf("again: %+v, %v, %v, want %+v", a, ok, err, first)
	}
	other := incoming("approved", "x", "secret")
	_, ok, err := Earlier(ctx, s, other)
	var c *ConflictError
	if ok || !errors.As(err, &c) || !errors.Is(err, ErrConflict) || strings.Contains(err.Error(), "secret") {
		t.Errorf("another payload: %v, %v, want a *ConflictError without it", ok, err)
	}
}

// The inbox is read in pages, and a payload is gone with its place.
func TestInboxInPages(t *testing.T) {
	s := new(memory.Store)
	for i := range 25 {
		accept(t, s, incoming("approved", fmt.Sprint(i), fmt.Sprint(i)))
	}
	var all []Waiting
	for from, last := uint64(0), false; !last; from = all[len(all)-1].Seq + 1 {
		page, end, err := Inbox(ctx, s, "order-42", from, 10)
		if err != nil {
			t.Fatal(err)
		}
		all, last = append(all, page...), end
	}
	if len(all) != 25 {
		t.Fatalf("%d places, want 25", len(all))
	}
	p, err := Read(ctx, s, "order-42", all[3])
	if err != nil || string(p.Data) != "3" {
		t.Errorf("payload %+v, %v", p, err)
	}
	if err := s.Commit(ctx, storage.Batch{Ops: Consume("order-42", all[3])}); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(ctx, s, "order-42", all[3]); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("a place without its payload: %v, want ErrCorrupt", err)
	}
	page, _, err := Inbox(ctx, s, "order-42", 0, 100)
	if err != nil || len(page) != 24 {
		t.Errorf("%d places, %v, want 24", len(page), err)
	}
	if a, ok, err := Earlier(ctx, s, incoming("approved", "3", "3")); !ok || err != nil {
		t.Errorf("consumed and forgotten: %+v, %v", a, err)
	}
}

// LV2: a damaged record is named.
func TestDamagedRecordsAreNamed(t *testing.T) {
	s := new(memory.Store)
	in := incoming("approved", "x", "v")
	accept(t, s, in)
	w := Waiting{1, "approved", "x"}
	for _, key := range [][]byte{keys.Signal("order-42", "approved", "x"), keys.Accepted("order-42", "approved", "x"), keys.Inbox("order-42", 1), keys.SignalCounter("order-42")} {
		raw, err := s.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		bad := bytes.Clone(raw)
		bad[len(bad)-1] ^= 1
		if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(key, bad)}}); err != nil {
			t.Fatal(err)
		}
		_, reading := Read(ctx, s, "order-42", w)
		_, _, earlier := Earlier(ctx, s, in)
		_, _, inbox := Inbox(ctx, s, "order-42", 0, 10)
		counted, _ := Counter(ctx, s, "order-42")
		_, _, accepting := Accept(in, counted)
		if err := errors.Join(reading, earlier, inbox, accepting); !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), string(key)) {
			t.Errorf("%q is damaged: %v, want ErrCorrupt naming it", key, err)
		}
		if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(key, raw)}}); err != nil {
			t.Fatal(err)
		}
	}
}
