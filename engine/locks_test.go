//go:build weftlocks

package engine_test

import (
	"testing"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/storage/memory"
)

// In this build every test checks the order in which locks are taken, and that the store
// is not called under one. Here the order is met: Worker.mu, then Incarnation.mu; and stripes.
func TestLockOrderIsMet(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("w", func(*engine.Run) (string, error) { return "done", nil })
		p := boot(t, new(memory.Store), wf, func(c *engine.Config) { c.Ownership = engine.OwnershipSingleOwner })
		result(t, start(t, wf, p, "o", ""))
		p.stop(t)
	})
	if !lock.Met(lock.Outer, lock.Inner) || !lock.Met(lock.Stripe, lock.Stripe) {
		t.Error("no lock of an incarnation was taken under that of an engine, or no stripe after another")
	}
}
