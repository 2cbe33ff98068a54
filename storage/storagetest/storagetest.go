// Package storagetest proves that an adapter keeps the contract of package
// storage, and gives the tests of what is built on top a store that fails when
// told to.
//
// The contract is a table of rules. [Run] puts each to a fresh store, as a
// subtest that is named after it and that prints the rule in words where the
// store broke it. It reads the [storage.Capabilities] of a store and never its
// name. [Faulty] wraps a store and injects faults, [NoConditions] takes the
// conditional batch away from one.
package storagetest

import (
	"errors"
	"testing"

	"github.com/weft-go/weft/storage"
)

// An Adapter is what Run needs to know of the stores that it tests.
type Adapter struct {
	// Open returns a new, empty store. It fails the test if it cannot. Run
	// closes the store; what else there is to clean up, Open leaves to
	// t.Cleanup.
	Open func(t testing.TB) storage.Storage

	// Reopen opens again what s, which was closed, had kept. Nil: nothing
	// outlives Close, which a store that claims Durable cannot say.
	Reopen func(t testing.TB, s storage.Storage) storage.Storage

	// Want is the row of the published table of adapters that a store of this
	// one must claim, no more and no less. Nil: not compared.
	Want *storage.Capabilities
}

// Run tests a against all rules.
//
// A rule that rests on ConditionalBatch becomes, for a store that does not claim
// it, the rule that conditions are refused and nothing is written. A rule that
// rests on another capability that is not claimed is skipped. Reads that follow
// a write on the same goroutine are expected to see it, claimed or not.
//
// Random tests print their seed; the variable WEFT_SEED sets it.
func Run(t *testing.T, a Adapter) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) { r.run(t, a) })
	}
}

// run puts the rule to a fresh store of a.
func (r rule) run(t testing.TB, a Adapter) {
	s := a.Open(t)
	t.Cleanup(func() { s.Close() })
	tr := &trial{TB: t, rule: r, adapter: a, store: s, caps: s.Capabilities()}
	for _, capability := range r.needs {
		err := storage.Require(s, r.name, capability)
		switch missing := (*storage.CapabilityError)(nil); {
		case err == nil:
		case !errors.As(err, &missing):
			t.Fatal(err)
		case capability == conditionalBatch:
			tr.rule.says = "a store without conditionalBatch refuses conditions and writes nothing"
			conditionsAreRefused(tr)
			return
		default:
			t.Skip(err)
		}
	}
	r.check(tr)
}
