package idempotency

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// A sequence is the record of the events of one source: idemver:{tenant}:{source type}:{source}.
// It says which is the newest that is sealed, and which is under way. A claim takes the slot, and the
// end of the claim frees it, in the batch of the entry.
type sequence struct {
	Version  string `cbor:"1,keyasint,omitempty"` // of the newest that is sealed; "": none is
	SourceID string `cbor:"2,keyasint,omitempty"`
	Hash     string `cbor:"3,keyasint,omitempty"`
	Epoch    uint64 `cbor:"4,keyasint,omitempty"`

	SlotSourceID string `cbor:"5,keyasint,omitempty"` // of what is under way
	SlotHash     string `cbor:"6,keyasint,omitempty"` // "": nothing is

	// SlotEpoch is the fencing token of the claim that took the slot. So no two claims leave the same
	// record, and a batch that was decided when an event had the slot is refused if that event has
	// left the slot and taken it again.
	SlotEpoch uint64 `cbor:"7,keyasint,omitempty"`

	UnknownFields record.Unknown `cbor:"-"`
}

// A source is a sequence as it was read.
type source struct {
	sequence
	key, raw []byte // raw is nil if there is none
}

func readSource(ctx context.Context, s storage.Storage, tenant, sourceType, name string) (*source, error) {
	key := keys.Order(tenant, sourceType, name)
	raw, err := s.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return &source{key: key}, nil
	}
	if err != nil {
		return nil, err
	}
	return openSource(key, raw)
}

// openSource reads a stored sequence. If it is damaged, the source has only its key and its bytes.
func openSource(key, raw []byte) (*source, error) {
	src := &source{key: key, raw: raw}
	var err error
	src.UnknownFields, err = record.Open(key, raw, version, &src.sequence)
	return src, err
}

// become has c also replace src by next.
func (src *source) become(c *change, next sequence) error {
	if src.raw == nil {
		c.If = append(c.If, storage.Absent(src.key))
	} else {
		c.If = append(c.If, storage.Equal(src.key, src.raw))
	}
	if next.Version == "" && next.SlotHash == "" {
		c.Ops = append(c.Ops, storage.Delete(src.key))
		return nil
	}
	raw, err := record.Seal(src.key, version, &next, src.UnknownFields)
	if err == nil {
		c.Ops = append(c.Ops, storage.Put(src.key, raw))
	}
	return err
}

// taken returns s with e in the slot.
func (s sequence) taken(e *entry, hash string) sequence {
	s.SlotSourceID, s.SlotHash, s.SlotEpoch = e.SourceID, hash, e.Epoch
	return s
}

// vacated returns s with nothing in the slot.
func (s sequence) vacated() sequence {
	s.SlotSourceID, s.SlotHash, s.SlotEpoch = "", "", 0
	return s
}

// after returns s after a claim has ended as e says.
func (s sequence) after(e *entry, hash string) sequence {
	if s.SlotHash == hash && e.State != StateIndeterminate {
		s = s.vacated()
	}
	if e.State == StateSealed {
		s.Version, s.SourceID, s.Hash, s.Epoch = e.OrderVersion, e.SourceID, hash, e.Epoch
	}
	return s
}

// without returns the sequence of src after an operator has replaced an entry by next, which is nil if it
// was forgotten, and whether it differs.
func (src *source) without(next *entry, hash string) (to sequence, changed bool) {
	to = src.sequence
	switch {
	case src.SlotHash == hash && next != nil:
		return to.after(next, hash), true
	case src.SlotHash == hash:
		return to.vacated(), true
	case src.Hash == hash && next == nil:
		to.Version, to.SourceID, to.Hash, to.Epoch = "", "", "", 0
		return to, true
	}
	return to, false
}

// An ordering is where the event of a job stands.
type ordering struct {
	source, version string
	compare         func(a, b string) (int, error)
	ties            bool
}

// guarded returns compare, which is user code, with panics as errors.
func guarded(compare func(a, b string) (int, error)) func(a, b string) (int, error) {
	return func(a, b string) (n int, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = payload.Panicked(p)
			}
		}()
		return compare(a, b)
	}
}

func (o *ordering) check() error {
	if o.source == "" || o.version == "" {
		return fmt.Errorf("%w: the event has no source or no version: %q, %q", ErrInvalid, o.source, o.version)
	}
	if err := checkText("Order.Source", o.source, maxSource); err != nil {
		return err
	}
	if err := checkText("Order.Version", o.version, maxSource); err != nil {
		return err
	}
	_, err := o.compare(o.version, o.version)
	return invalid(err)
}

func invalid(err error) error {
	if err == nil || errors.Is(err, ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrInvalid, err)
}

// inSlot returns the entry that is under way in a source, or nil.
func (l *Ledger) inSlot(ctx context.Context, tenant, sourceType string, src *source) (*entry, error) {
	if src.SlotHash == "" {
		return nil, nil
	}
	e, err := l.find(ctx, keys.Claim(tenant, sourceType, src.SlotSourceID, src.SlotHash), src.SlotHash)
	if err != nil || e == nil || e.State != StateInProgress && e.State != StateIndeterminate {
		return nil, err
	}
	return e, nil
}

// precedence says how the event of j stands to the others of its source.
func (l *Ledger) precedence(ctx context.Context, j *job, src *source) (p precedence, err error) {
	p = precedence{against: 1, named: src.Hash == j.hash, ties: j.order.ties}
	if src.Version != "" {
		if p.against, err = j.order.compare(j.order.version, src.Version); err != nil {
			return p, invalid(err)
		}
	}
	if src.SlotHash == j.hash {
		return p, nil
	}
	slot, err := l.inSlot(ctx, j.key.Tenant, j.key.SourceType, src)
	if err != nil || slot == nil {
		return p, err
	}
	p.slot = slot
	if slot.State == StateInProgress {
		if p.holder, _, err = l.vitality(ctx, slot, 0); err != nil {
			return p, err
		}
	}
	n, err := j.order.compare(j.order.version, slot.OrderVersion)
	p.newer = n > 0
	return p, invalid(err)
}
