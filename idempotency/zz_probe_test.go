package idempotency_test

import (
	"context"
	"testing"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
)

func TestProbe(t *testing.T) {
	l := ledger(t, exclusiveStore())
	g := new(target)
	r, err := g.effect().Do(t.Context(), l, key, refund{"\xff", 1})
	t.Log(r, err)
	r, err = g.effect().Do(t.Context(), l, key, refund{"\xfe", 1})
	t.Log(r.Decision, err)
	k := key
	k.Revision = "2"
	asked := false
	e := &idempotency.Effect[refund, string]{Name: "refund", OnAbandoned: idempotency.Hold, Run: func(context.Context, refund) (string, error) { return "", errCut },
		Verify: func(context.Context, refund) (activity.Verification[string], error) {
			asked = true
			return activity.CompletedWithResult("x"), nil
		}}
	r, err = e.Do(t.Context(), l, k, one)
	t.Log(r.Decision, err, "asked", asked)
	for i, err := range l.List(t.Context(), idempotency.Filter{SourceID: key.SourceID}) {
		t.Log("listed", i.Hash, err)
	}
}
