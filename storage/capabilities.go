package storage

import (
	"errors"
	"fmt"
	"strings"
)

// Capabilities are what a store can do. The zero value claims nothing. They are
// claims that correctness rests on: storagetest proves them.
type Capabilities struct {
	// ConditionalBatch: conditions are judged and the batch applied as one
	// atomic step. A store without it answers a batch that has conditions with
	// an error that wraps errors.ErrUnsupported; it never reads first and then
	// writes.
	ConditionalBatch bool

	// AtomicBatch: all of a batch is applied or none of it, also in a crash.
	AtomicBatch bool

	// ReadAfterWrite: after an acknowledged Commit, every read by anybody sees it.
	ReadAfterWrite bool

	ScanConsistency ScanConsistency

	// Durable: what was acknowledged survives a power loss.
	Durable bool

	// Shared: several processes may have the store open at once. A store that
	// is not Shared refuses a second opener, and says in Opening who it is.
	Shared bool

	// MaxBatch is the largest batch that Commit takes. Zero is no bound.
	MaxBatch Size
}

// ScanConsistency is what a page of Scan shows.
type ScanConsistency uint8

const (
	// BestEffort: a page may show one half of a batch.
	BestEffort ScanConsistency = iota
	// Snapshot: a page is one view, with all of a batch or none of it.
	Snapshot
)

func (c ScanConsistency) String() string {
	if c == Snapshot {
		return "snapshot"
	}
	return "best-effort"
}

// Require returns a *CapabilityError if s lacks a capability that a feature
// needs. The capability is a field of Capabilities with a lower-case first
// letter: "conditionalBatch", "atomicBatch", "readAfterWrite", "durable",
// "shared", or "scanConsistency" for Snapshot.
func Require(s Storage, feature, capability string) error {
	c := s.Capabilities()
	have, known := map[string]bool{
		"conditionalBatch": c.ConditionalBatch,
		"atomicBatch":      c.AtomicBatch,
		"readAfterWrite":   c.ReadAfterWrite,
		"scanConsistency":  c.ScanConsistency == Snapshot,
		"durable":          c.Durable,
		"shared":           c.Shared,
	}[capability]
	if !known {
		return fmt.Errorf("storage: require for %s: unknown capability %q", feature, capability)
	}
	if have {
		return nil
	}
	return &CapabilityError{Feature: feature, Capability: capability, Adapter: Adapter(s)}
}

// Adapter names the type of the innermost store, for people: "*sqlite.Store".
func Adapter(s Storage) string {
	for {
		w, ok := s.(Wrapper)
		if !ok {
			return strings.TrimSpace(fmt.Sprintf("%T", s))
		}
		s = w.Unwrap()
	}
}

// A CapabilityError says that a store cannot do what a feature needs. It wraps
// errors.ErrUnsupported.
type CapabilityError struct{ Feature, Capability, Adapter string }

func (e *CapabilityError) Error() string {
	return fmt.Sprintf("storage: %s needs %s, which %s does not have", e.Feature, e.Capability, e.Adapter)
}

func (e *CapabilityError) Unwrap() error { return errors.ErrUnsupported }
