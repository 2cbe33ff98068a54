package storage_test

import (
	"errors"
	"testing"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// A claiming store declares the capabilities that it is given.
type claiming struct {
	storage.Storage
	claims storage.Capabilities
}

func (c claiming) Capabilities() storage.Capabilities { return c.claims }

func TestRequireReadsEachClaim(t *testing.T) {
	for capability, claims := range map[string]storage.Capabilities{
		"conditionalBatch": {ConditionalBatch: true},            // CAP-1
		"atomicBatch":      {AtomicBatch: true},                 // CAP-7
		"readAfterWrite":   {ReadAfterWrite: true},              // CAP-8
		"scanConsistency":  {ScanConsistency: storage.Snapshot}, // CAP-9
		"durable":          {Durable: true},
		"shared":           {Shared: true},
	} {
		// The wrapped store supports most of it: only what is declared counts.
		if err := storage.Require(claiming{new(memory.Store), claims}, "feature", capability); err != nil {
			t.Errorf("Require(%q) of %+v: got %v, want nil", capability, claims, err)
		}
		var missing *storage.CapabilityError
		err := storage.Require(claiming{new(memory.Store), storage.Capabilities{}}, "feature", capability)
		if !errors.As(err, &missing) || missing.Capability != capability {
			t.Errorf("Require(%q) of nothing: got %v, want a CapabilityError that names it", capability, err)
		}
	}
}

func TestRequireNamesFeatureCapabilityAndAdapter(t *testing.T) { // CAP-6
	for _, feature := range []string{"signal idempotency", "checkpoint ownership", "activity reconciliation"} { // CAP-2, CAP-3, CAP-4
		err := storage.Require(storagetest.NoConditions(new(memory.Store)), feature, "conditionalBatch")
		want := "storage: " + feature + " needs conditionalBatch, which *memory.Store does not have"
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
		if !errors.Is(err, errors.ErrUnsupported) { // CAP-5
			t.Errorf("got %v, want it to wrap errors.ErrUnsupported", err)
		}
	}
}

func TestRequireKnowsItsWords(t *testing.T) {
	err := storage.Require(new(memory.Store), "feature", "ConditionalBatch")
	var missing *storage.CapabilityError
	if err == nil || errors.As(err, &missing) || errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Require of a misspelt capability: got %v, want an error that blames no store", err)
	}
}

func TestScanConsistencyHasWords(t *testing.T) {
	if got := storage.BestEffort.String() + ", " + storage.Snapshot.String(); got != "best-effort, snapshot" {
		t.Errorf("got %q, want best-effort, snapshot", got)
	}
}
