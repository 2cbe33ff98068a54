package idemhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/idemhttp"
)

// FEN-60: a batch and an API that call one Effect with the same business key make one effect, whichever is first.
// Each request of the API has a key of its own around it.
func TestBatchAndRequestsShareAnEffect(t *testing.T) {
	l, runs := open(t, idempotency.Config{}), 0
	settle := &idempotency.Effect[int, string]{Name: "settle", Run: func(_ context.Context, invoice int) (string, error) {
		runs++
		return fmt.Sprint("settled ", invoice), nil
	}}
	do := func(ctx context.Context, invoice int) (idempotency.Receipt[string], error) {
		return settle.Do(ctx, l, idempotency.Key{Tenant: "acme", SourceType: "invoice", SourceID: fmt.Sprint(invoice)}, invoice)
	}
	batch := func(invoice int) string {
		r, err := do(t.Context(), invoice)
		if err != nil {
			t.Fatal(err)
		}
		return r.EffectID + " " + r.Result
	}
	s := guarded(t, idemhttp.Config{Ledger: l}, func(w http.ResponseWriter, r *http.Request) {
		invoice := 0
		if _, err := fmt.Sscanf(r.URL.Path, "/invoices/%d", &invoice); err != nil {
			http.NotFound(w, r)
			return
		}
		receipt, err := do(r.Context(), invoice)
		if err != nil {
			idemhttp.Fail(w, r, err)
			return
		}
		io.WriteString(w, receipt.EffectID+" "+receipt.Result)
	})
	request := func(invoice int, key string) string {
		return s.do(call{path: fmt.Sprintf("/invoices/%d", invoice), key: key}).body
	}
	for invoice, answers := range map[int][]string{
		1: {batch(1), request(1, "k1"), request(1, "k2"), batch(1), request(1, "k1")},
		2: {request(2, "k3"), batch(2), request(2, "k3"), request(2, "k4")},
	} {
		for _, a := range answers {
			if a != answers[0] || a == "" {
				t.Errorf("invoice %d: the answers are %q", invoice, answers)
			}
		}
	}
	if runs != 2 {
		t.Errorf("%d effects, want 2", runs)
	}
}
