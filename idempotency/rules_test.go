package idempotency_test

import (
	"context"
	"testing"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
)

// FEN-12, FEN-27, FEN-59: two processes read that nothing is known of a key. The claim of the slower one is refused, even
// if the other's effect is sealed by then, and it returns the other's receipt.
func TestClaimsAtOnce(t *testing.T) {
	s := sharedStore()
	other := s.another()
	slow, quick := ledger(t, s), ledger(t, other)
	g := new(target)
	var first idempotency.Receipt[string]
	s.onCommit(func(ctx context.Context, b storage.Batch, apply func() error) error {
		if claims(b) && first.EffectID == "" {
			var err error
			first, err = g.effect().Do(t.Context(), quick, key, one)
			must(t, err)
		}
		return apply()
	})
	r, err := g.effect().Do(t.Context(), slow, key, one)
	if err != nil || r.Decision != idempotency.DecidedDuplicate || r.EffectID != first.EffectID || r.Result != first.Result || g.count() != 1 {
		t.Errorf("%+v, %v after %d effects, want a duplicate of %+v", r, err, g.count(), first)
	}
}
