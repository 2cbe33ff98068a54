// Package storagetest tests that an adapter keeps the contract of package storage.
// It also provides a store with injected faults, for tests of code built on a store.
//
// The contract is a table of rules. [Run] tests each rule on a new store, in a
// subtest named after the rule; a failure prints what the rule says. Which rules
// apply depends only on the store's [storage.Capabilities]. [Faulty] wraps a store
// and injects faults. [NoConditions] removes the conditional batch from a store.
//
// Of the optional interfaces, Run tests [storage.Exclusive] and [storage.Prover]. It does
// not test [storage.Tx], [storage.Transactor], [storage.TransactLimiter] and [storage.Watcher]:
// an adapter that implements them needs tests of its own.
package storagetest

import (
	"errors"
	"testing"

	"github.com/weft-go/weft/storage"
)

// An Adapter describes the stores for Run to test.
type Adapter struct {
	// Open returns a new, empty store, or fails the test. Run closes the
	// store. Open registers any other cleanup with t.Cleanup.
	Open func(t testing.TB) storage.Storage

	// Reopen opens the data of s again, or fails the test with the error of the
	// opening. Usually s is closed. Run also calls Reopen while s is open: a
	// store that is not Shared must refuse that with storage.ErrInUse, and the
	// t that Reopen gets then may fail. Rules about concurrency are also tested
	// on two openings of a Shared store. Nil means that no data outlives Close;
	// a store that claims Durable must have Reopen.
	Reopen func(t testing.TB, s storage.Storage) storage.Storage

	// Want is the published capabilities of the adapter, which its stores must
	// match exactly. Nil means that they are not compared.
	Want *storage.Capabilities
}

// Run tests a against all rules. Run it with the race detector, too: some faults
// are found by nothing else.
//
// For a store that does not claim ConditionalBatch, each rule that requires it is
// replaced by the rule that conditions are refused and nothing is written. A rule
// that requires another capability that the store does not claim is skipped. A read
// must see an earlier write of the same goroutine, whether this is claimed or not.
//
// Random tests print their seed. Set WEFT_SEED to repeat one.
func Run(t *testing.T, a Adapter) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) { r.run(t, a) })
	}
}

// run tests the rule on a new store of a.
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
