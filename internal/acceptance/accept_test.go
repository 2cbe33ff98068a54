package acceptance

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// FMT-4, FMT-21, FMT-22: the bytes of each record. SIG-20, SIG-21, SIG-22, SIG-23,
// SIG-24, SIG-25, SIG-26, SIG-27: those of the accepted one.
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
		"accepted-canonical": {
			Key: keys.Accepted("order-42", "approved", "evt:1"), Version: version, Empty: func() any { return new(accepted) },
			Value: &accepted{
				WorkflowID: "order-42", SignalName: "approved", SignalID: "evt:1", SignalStorageKey: string(payloadKey),
				AcceptedAt: 1767355200000000, ExpiresAt: 1767441600000000, Digest: bytes.Repeat([]byte{0xd1}, 32), Generation: gen,
				Canonical: bytes.Repeat([]byte{0xd2}, 32),
			},
		},
		"resumed": {
			Key: keys.Resumed(keys.TokenHash("invoice/7"), "evt:1"), Version: version, Empty: func() any { return new(accepted) },
			Value: &accepted{
				WorkflowID: "order-42", SignalName: "hook/hook_01JGZ3Q8X0000000000000000B", SignalID: "evt:1",
				SignalStorageKey: string(keys.Signal("order-42", "hook/hook_01JGZ3Q8X0000000000000000B", "evt:1")),
				AcceptedAt:       1767355200000000, ExpiresAt: 1767441600000000, Digest: bytes.Repeat([]byte{0xd1}, 32), Generation: gen,
			},
		},
		"place": {
			Key: keys.Inbox("order-42", 7), Version: version, Empty: func() any { return new(place) },
			Value: &place{Name: "approved", ID: "evt:1"},
		},
		"place-told": {
			Key: keys.Inbox("order-42", 7), Version: version, Empty: func() any { return new(place) },
			Value: &place{"approved", "evt:1", 1767355200000000, 5},
		},
		"update": {
			Key: keys.Update("order-42", "click-7"), Version: version, Empty: func() any { return new(Update) },
			Value: &Update{Generation: gen, Name: "move", Codec: "cbor", Data: []byte(`"home"`), Digest: bytes.Repeat([]byte{0xd1}, 32),
				Canonical: bytes.Repeat([]byte{0xd2}, 32), Seq: 7, At: 1767355200000000},
		},
		"answer-accepted": {
			Key: keys.Answer("order-42", "click-7"), Version: version, Empty: func() any { return new(Answer) },
			Value: &Answer{Generation: gen, Name: "move", State: Accepted, Digest: bytes.Repeat([]byte{0xd1}, 32), At: 1767355200000000},
		},
		"answer-completed": {
			Key: keys.Answer("order-42", "click-7"), Version: version, Empty: func() any { return new(Answer) },
			Value: &Answer{Generation: gen, Name: "move", State: Completed, Digest: bytes.Repeat([]byte{0xd1}, 32), Canonical: bytes.Repeat([]byte{0xd2}, 32),
				At: 1767355200000000, ExpiresAt: 1767441600000000, Codec: "cbor", Data: []byte(`"T-1"`)},
		},
		"answer-failed": {
			Key: keys.Answer("order-42", "click-7"), Version: version, Empty: func() any { return new(Answer) },
			Value: &Answer{Generation: gen, Name: "move", State: Failed, Digest: bytes.Repeat([]byte{0xd1}, 32),
				At: 1767355200000000, ExpiresAt: 1767441600000000, Error: "panic: oh", Stack: "main.go:1", Sentinel: "oh"},
		},
		"answer-rejected": {
			Key: keys.Answer("order-42", "click-7"), Version: version, Empty: func() any { return new(Answer) },
			Value: &Answer{Generation: gen, Name: "move", State: Rejected, Digest: bytes.Repeat([]byte{0xd1}, 32),
				At: 1767355200000000, ExpiresAt: 1767441600000000, Error: "shipped", Sentinel: "shipped"},
		},
		"counter": {
			Key: keys.SignalCounter("order-42"), Version: version, Empty: func() any { return new(counter) },
			Value: &counter{7},
		},
	})
}

// SIG-12, SIG-38, SG1: payload, place, response, expiry and counter are one batch, which
// succeeds only if none of the first three exists and the counter is unchanged since it
// was read.
func TestAcceptIsOneConditionalBatch(t *testing.T) {
	s := new(memory.Store)
	d := decide(t, s, incoming("approved", "x", `"v"`))
	want := map[string]storage.ConditionKind{
		"sig:order-42:approved:x":    storage.IsAbsent,
		"sigres:order-42:approved:x": storage.IsAbsent,
		"sigseq:order-42":            storage.IsAbsent,
	}
	for _, c := range d.Batch.If {
		if want[string(c.Key)] != c.Kind {
			t.Errorf("condition %d on %q", c.Kind, c.Key)
		}
		delete(want, string(c.Key))
	}
	if len(want) > 0 || len(d.Batch.Ops) != 5 {
		t.Errorf("conditions missing: %v; %d operations, want 5", want, len(d.Batch.Ops))
	}
	if want := (signal.Accepted{Accepted: true, WorkflowID: "order-42", SignalName: "approved", SignalID: "x", AcceptedAt: noon, SignalStorageKey: "sig:order-42:approved:x"}); d.Arrived[0].Answer != want {
		t.Errorf("accepted %+v, want %+v", d.Arrived[0].Answer, want)
	}
	if err := s.Commit(ctx, d.Batch); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, d.Batch); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("the same again: %v, want ErrConflict", err)
	}
}

// SG1, SIG-42: of a signal that is consumed in the same commit only the response is
// written. The condition that neither the response nor a payload of its ID exists
// remains.
func TestAcceptConsumedIsConditionalToo(t *testing.T) {
	payload := keys.Signal("order-42", "approved", "x")
	for what, there := range map[string][]storage.Op{
		"nothing":    nil,
		"a payload":  {storage.Put(payload, nil)},
		"a response": {storage.Put(keys.Accepted("order-42", "approved", "x"), nil)},
		"a counter":  {storage.Put(keys.SignalCounter("order-42"), nil)},
	} {
		s := new(memory.Store)
		d, err := AcceptConsumed(incoming("approved", "x", "v"), generation, nil, noon)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(ctx, storage.Batch{Ops: there}); err != nil {
			t.Fatal(err)
		}
		err = s.Commit(ctx, d.Batch)
		if conflict := errors.Is(err, storage.ErrConflict); conflict != (there != nil) || err != nil && !conflict {
			t.Errorf("with %s there: %v", what, err)
		}
		if _, err := s.Get(ctx, payload); there == nil && !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("its payload was written: %v", err)
		}
	}
}

// Several signals of one workflow are accepted together, in their order, or not at all.
func TestAcceptTogether(t *testing.T) {
	s := new(memory.Store)
	accept(t, s, incoming("approved", "0", "0"))
	d := decide(t, s, incoming("approved", "1", "1"), incoming("rejected", "1", "2"), incoming("approved", "3", "3"))
	accept(t, s, incoming("approved", "3", "3"))
	if err := s.Commit(ctx, d.Batch); !errors.Is(err, storage.ErrConflict) {
		t.Fatalf("one of them was accepted meanwhile: %v, want ErrConflict", err)
	}
	d = decide(t, s, incoming("approved", "1", "1"), incoming("rejected", "1", "2"))
	if err := s.Commit(ctx, d.Batch); err != nil {
		t.Fatal(err)
	}
	page, _, err := Inbox(ctx, s, "order-42", 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	var want []Waiting
	for i, w := range []Waiting{{Name: "approved", ID: "0"}, {Name: "approved", ID: "3"}, {Name: "approved", ID: "1"}, {Name: "rejected", ID: "1"}} {
		w.Seq, w.AcceptedAt, w.Bytes = uint64(i+1), noon, 1
		want = append(want, w)
	}
	if !slices.Equal(page, want) {
		t.Errorf("inbox %v, want %v", page, want)
	}
	if counted, err := Counter(ctx, s, "order-42"); err != nil || !bytes.Equal(counted, d.Counter) {
		t.Errorf("counter %x, %v; the decision said %x", counted, err, d.Counter)
	}
}

// Interleaving 9: if two read the same counter, one is accepted.
func TestTwoSendersOfOneCounter(t *testing.T) {
	s := new(memory.Store)
	accept(t, s, incoming("approved", "1", "1"))
	a := decide(t, s, incoming("approved", "2", "2"))
	b := decide(t, s, incoming("approved", "3", "3"))
	if err := s.Commit(ctx, a.Batch); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, b.Batch); !errors.Is(err, storage.ErrConflict) {
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

// SIG-12, SIG-32, SIG-33, OP-13: the first answer is repeated.
func TestEarlier(t *testing.T) {
	s := new(memory.Store)
	in := incoming("approved", "x", "v")
	if a, ok, err := Earlier(ctx, s, in); ok || err != nil {
		t.Errorf("before: %+v, %v, %v", a, ok, err)
	}
	first := accept(t, s, in)
	later := *in
	later.Memory = time.Hour
	first.Repeated = true
	if a, ok, err := Earlier(ctx, s, &later); !ok || err != nil || a != first {
		t.Errorf("again: %+v, %v, %v, want %+v", a, ok, err, first)
	}
	later.Generated, first.Repeated = true, false // then its own sender looks
	if a, ok, err := Earlier(ctx, s, &later); !ok || err != nil || a != first {
		t.Errorf("of a generated ID: %+v, %v, %v, want %+v", a, ok, err, first)
	}
	other := incoming("approved", "x", "secret")
	_, ok, err := Earlier(ctx, s, other)
	var c *signal.ConflictError
	if ok || !errors.As(err, &c) || !errors.Is(err, signal.ErrConflict) || strings.Contains(err.Error(), "secret") {
		t.Errorf("another payload: %v, %v, want a *ConflictError without it", ok, err)
	}
}

// SIG-42, OP-12, T-21: a payload without its accepted response is an error, which names
// everything except the payload.
func TestEarlierOfRecordsThatCameApart(t *testing.T) {
	s := new(memory.Store)
	in := incoming("approved", "x", "secret")
	accept(t, s, in)
	if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Delete(keys.Accepted("order-42", "approved", "x"))}}); err != nil {
		t.Fatal(err)
	}
	_, ok, err := Earlier(ctx, s, in)
	var i *signal.IndeterminateError
	if ok || !errors.As(err, &i) || !errors.Is(err, signal.ErrConflict) || *i != (signal.IndeterminateError{WorkflowID: "order-42", SignalName: "approved", SignalID: "x", CorrelationID: ""}) || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, %v, want an *IndeterminateError without the payload", ok, err)
	}
}

// The inbox is read in pages, and a payload is deleted with its place.
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
	there, ops := Consume("order-42", all[3])
	consume := storage.Batch{If: []storage.Condition{there}, Ops: ops}
	if err := s.Commit(ctx, consume); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, consume); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("consumed again: %v, want ErrConflict", err)
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
	w := Waiting{Seq: 1, Name: "approved", ID: "x"}
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
		_, accepting := Accept([]*Incoming{in}, generation, counted, noon)
		if err := errors.Join(reading, earlier, inbox, accepting); !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), string(key)) {
			t.Errorf("%q is damaged: %v, want ErrCorrupt naming it", key, err)
		}
		if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(key, raw)}}); err != nil {
			t.Fatal(err)
		}
	}
}
