package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
)

// A run that continues as new each time that it is read is no outage of the store.
func TestReadOfABusyRun(t *testing.T) {
	if p := operation.Explain(fmt.Errorf("read again: %w", engine.ErrBusy), false); p.Status != http.StatusServiceUnavailable || p.Code != "busy" || p.Retry != operation.SameKey {
		t.Errorf("%+v", p)
	}
}

// What the ledger cannot keep is refused, and nothing is changed.
func TestWhatTheLedgerCannotKeep(t *testing.T) {
	s := idle(t, nil)
	if p := operation.Explain(fmt.Errorf("%w: the request has too many bytes", idempotency.ErrInvalid), false); p.Status != 413 || p.Code != "too_large" || p.Retry != "never" {
		t.Errorf("a request: %+v", p)
	}
	for _, written := range []bool{false, true} { // an earlier attempt may have been taken
		p := operation.Explain(fmt.Errorf("%w: too many operations", storage.ErrInvalidBatch), written)
		if refused := p.Status == 413 && p.Code == "too_large" && p.Retry == "never"; refused == written {
			t.Errorf("a batch: %+v", p)
		}
	}
	op := &operation.Operation{Name: "large", Method: "POST", Path: "/large"}
	for size, want := range map[int]bool{idempotency.DefaultMaxResult - 100: true, idempotency.DefaultMaxResult: false} {
		c := &operation.Call{Env: s.plane.env, Op: op, Who: &operation.Principal{ID: "k"}, Raw: []byte("{}"), IdempotencyKey: fmt.Sprint(size), CorrelationID: "c"}
		key := []byte("large:" + fmt.Sprint(size))
		change := func(ctx context.Context, tx storage.Tx) (operation.Answer, error) {
			return operation.Answer{Body: json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)}, tx.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(key, []byte("x"))}})
		}
		first, err := c.Mutate(t.Context(), change)
		if p, ok := err.(*operation.Problem); want != (err == nil) || !want && (!ok || p.Status != http.StatusRequestEntityTooLarge) {
			t.Errorf("%d bytes: %v", size, err)
			continue
		}
		if _, err := s.store.Get(t.Context(), key); want != (err == nil) {
			t.Errorf("%d bytes: the change: %v", size, err)
		}
		if !want {
			continue
		}
		again, err := c.Mutate(t.Context(), change)
		if err != nil || string(again.Body.(json.RawMessage)) != string(first.Body.(json.RawMessage)) {
			t.Errorf("%d bytes: the replay: %v", size, err)
		}
	}
}
