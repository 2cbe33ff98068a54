package storage

import (
	"errors"
	"fmt"
)

// Capabilities declare what a store supports. The zero value claims nothing.
// Correctness depends on these claims. storagetest tests what one process can see of them. It cannot cut the power, end the
// process in the middle of a batch, or look from another process.
type Capabilities struct {
	// ConditionalBatch: checking the conditions and applying the batch is one
	// atomic step. A store without it refuses a batch that has conditions with
	// an error that wraps errors.ErrUnsupported. It must not read first and
	// then write.
	ConditionalBatch bool

	// AtomicBatch: a batch is applied as a whole or not at all, even in a crash.
	AtomicBatch bool

	// ReadAfterWrite: after a Commit returned nil, every read by anyone sees it.
	ReadAfterWrite bool

	// ScanConsistency: whether a page of Scan may show part of a batch.
	ScanConsistency ScanConsistency

	// Durable: a batch whose Commit returned nil survives a power loss, and so
	// does every batch that a read or a conflict has shown.
	Durable bool

	// Shared: several processes may have the store open at the same time. A
	// store that is not Shared refuses a second opening with ErrInUse, also in
	// the same process, and implements Exclusive.
	Shared bool

	// MaxBatch is the largest batch that Commit accepts. Conditions count as
	// operations. Zero means no limit. An engine works with 84 operations and
	// 1 MiB.
	MaxBatch Size
}

// ScanConsistency is the consistency of a page of Scan.
type ScanConsistency uint8

const (
	// BestEffort: a page may show part of a batch.
	BestEffort ScanConsistency = iota
	// Snapshot: a page is one consistent view, with all of a batch or none of it.
	Snapshot
)

func (c ScanConsistency) String() string {
	if c == Snapshot {
		return "snapshot"
	}
	return "best-effort"
}

// Require returns a *CapabilityError if s lacks a capability that a feature
// needs. The capability is the name of a field of Capabilities with a lower-case
// first letter: "conditionalBatch", "atomicBatch", "readAfterWrite", "durable",
// "shared", or "scanConsistency", which requires Snapshot.
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

// Adapter returns the type name of the innermost store, for messages: "*sqlite.Store".
func Adapter(s Storage) string { return fmt.Sprintf("%T", Innermost(s)) }

// A CapabilityError means that a store does not support what a feature needs. It
// wraps errors.ErrUnsupported.
type CapabilityError struct{ Feature, Capability, Adapter string }

func (e *CapabilityError) Error() string {
	return fmt.Sprintf("storage: %s needs %s, which %s does not have", e.Feature, e.Capability, e.Adapter)
}

func (e *CapabilityError) Unwrap() error { return errors.ErrUnsupported }
