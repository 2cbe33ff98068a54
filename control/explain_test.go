package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
)

// An engine that closes in the middle of a write may have made it. What a repetition would do twice is not
// repeated, unless it has an idempotency key.
func TestWhatMayHaveTakenEffect(t *testing.T) {
	id := "s"
	for _, c := range []struct {
		op, key string
		params  any
		write   bool
		code    string
		retry   string
	}{
		{"runs.purge", "", nil, true, "outcome_unknown", sameKey},
		{"runs.purge", "", nil, false, "closing", sameKey},
		{"signals.send", "", &sendParams{}, true, "outcome_unknown", never},
		{"signals.send", "", &sendParams{SignalID: &id}, true, "outcome_unknown", sameKey},
		{"updates.call", "", &updateParams{}, true, "outcome_unknown", never},
		{"updates.call", "", &updateParams{UpdateID: &id}, true, "outcome_unknown", sameKey},
		{"keys.create", "", &createKeyParams{}, true, "outcome_unknown", never},
		{"keys.rotate", "", &rotateKeyParams{}, true, "outcome_unknown", never},
		{"keys.create", "k", &createKeyParams{}, true, "outcome_unknown", sameKey},
	} {
		call := &call{op: &operation{name: c.op}, params: c.params, idempotencyKey: c.key}
		p := call.explain(fmt.Errorf("purge: %w", engine.ErrClosed), c.write)
		if p.Status != 503 || p.Code != c.code || p.Retry != c.retry || p.retryAfter == 0 || c.write && p.Recovery == "" {
			t.Errorf("%s, key %q, write %v: %+v", c.op, c.key, c.write, p)
		}
	}
}

// What the ledger cannot keep is refused, and nothing is changed.
func TestWhatTheLedgerCannotKeep(t *testing.T) {
	s := idle(t, nil)
	if p := explain(fmt.Errorf("%w: the request has too many bytes", idempotency.ErrInvalid), false); p.Status != 413 || p.Code != "too_large" || p.Retry != never {
		t.Errorf("a request: %+v", p)
	}
	op := &operation{name: "large", method: "POST", path: "/large"}
	for size, want := range map[int]bool{idempotency.DefaultMaxResult - 100: true, idempotency.DefaultMaxResult: false} {
		c := &call{env: s.plane.env, op: op, who: &principal{id: "k"}, raw: []byte("{}"), idempotencyKey: fmt.Sprint(size), correlationID: "c"}
		key := []byte("large:" + fmt.Sprint(size))
		change := func(ctx context.Context, tx storage.Tx) (answer, error) {
			return answer{body: json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)}, tx.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(key, []byte("x"))}})
		}
		first, err := c.mutate(t.Context(), change)
		if p, ok := err.(*problem); want != (err == nil) || !want && (!ok || p.Status != http.StatusRequestEntityTooLarge) {
			t.Errorf("%d bytes: %v", size, err)
			continue
		}
		if _, err := s.store.Get(t.Context(), key); want != (err == nil) {
			t.Errorf("%d bytes: the change: %v", size, err)
		}
		if !want {
			continue
		}
		again, err := c.mutate(t.Context(), change)
		if err != nil || string(again.body.(json.RawMessage)) != string(first.body.(json.RawMessage)) {
			t.Errorf("%d bytes: the replay: %v", size, err)
		}
	}
}

// A page of events has no more bytes than a page may have, but one event at least.
func TestPagesOfEventsAreBounded(t *testing.T) {
	events := make([]wire.Event, 100)
	for i := range events {
		events[i].Result = make(json.RawMessage, maxPageBytes/4)
	}
	if n := fit(events); n != 3 {
		t.Errorf("%d events that have a quarter of a page each", n)
	}
	events[0].Result = make(json.RawMessage, 2*maxPageBytes)
	if n := fit(events); n != 1 {
		t.Errorf("%d events, and the first one is larger than a page", n)
	}
	if n := fit(events[50:52]); n != 2 {
		t.Errorf("%d of two events that fit", n)
	}
}
