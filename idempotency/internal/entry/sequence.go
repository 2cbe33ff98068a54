package entry

import (
	"bytes"

	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// A Sequence is the record of the events of one source: idemver:{tenant}:{source type}:{source}.
// It says which is the newest that is sealed, and which is under way. A claim takes the slot, and the
// end of the claim frees it, in the batch of the entry.
type Sequence struct {
	Version  string `cbor:"1,keyasint,omitempty"` // of the newest that is sealed; "": none is
	SourceID string `cbor:"2,keyasint,omitempty"`
	Hash     string `cbor:"3,keyasint,omitempty"`
	Epoch    uint64 `cbor:"4,keyasint,omitempty"` // the highest fencing token of the claims that have left the slot

	SlotSourceID string `cbor:"5,keyasint,omitempty"` // of what is under way
	SlotHash     string `cbor:"6,keyasint,omitempty"` // "": nothing is

	// SlotEpoch is the fencing token of the claim that took the slot. So no two claims leave the same
	// record, and a batch that was decided when an event had the slot is refused if that event has
	// left the slot and taken it again.
	SlotEpoch uint64 `cbor:"7,keyasint,omitempty"`

	UnknownFields record.Unknown `cbor:"-"`
}

// A Source is a sequence as it was read.
type Source struct {
	Sequence
	Key, Raw []byte // Raw is nil if there is none
}

// OpenSource reads a stored sequence. If it is damaged, the source has only its key and its bytes.
func OpenSource(key, raw []byte) (*Source, error) {
	src := &Source{Key: key, Raw: raw}
	var err error
	src.UnknownFields, err = record.Open(key, raw, version, &src.Sequence)
	return src, err
}

// Become has c also replace src by next.
func (src *Source) Become(c *Change, next Sequence) error {
	if src.Raw == nil {
		c.If = append(c.If, storage.Absent(src.Key))
	} else {
		c.If = append(c.If, storage.Equal(src.Key, src.Raw))
	}
	if next.Version == "" && next.SlotHash == "" {
		c.Ops = append(c.Ops, storage.Delete(src.Key))
		return nil
	}
	raw, err := record.Seal(src.Key, version, &next, src.UnknownFields)
	if err == nil {
		c.Ops = append(c.Ops, storage.Put(src.Key, raw))
	}
	return err
}

// Taken returns s with e in the slot.
func (s Sequence) Taken(e *Entry, hash string) Sequence {
	s.SlotSourceID, s.SlotHash, s.SlotEpoch = e.SourceID, hash, e.Epoch
	return s
}

// Vacated returns s with nothing in the slot.
func (s Sequence) Vacated() Sequence {
	s.Epoch = max(s.Epoch, s.SlotEpoch)
	s.SlotSourceID, s.SlotHash, s.SlotEpoch = "", "", 0
	return s
}

// After returns s after a claim has ended as e says.
func (s Sequence) After(e *Entry, hash string) Sequence {
	if s.SlotHash == hash && e.State != Indeterminate {
		s = s.Vacated()
	}
	if e.State == Sealed {
		s.Version, s.SourceID, s.Hash, s.Epoch = e.OrderVersion, e.SourceID, hash, e.Epoch
	}
	return s
}

// Without returns the sequence of src after an operator has replaced an entry by next, which is nil if it
// was forgotten, and whether it differs.
func (src *Source) Without(next *Entry, hash string) (to Sequence, changed bool) {
	to = src.Sequence
	switch {
	case src.SlotHash == hash && next != nil:
		return to.After(next, hash), true
	case src.SlotHash == hash:
		return to.Vacated(), true
	case src.Hash == hash && next == nil:
		to.Version, to.SourceID, to.Hash, to.Epoch = "", "", "", 0
		return to, true
	}
	return to, false
}

// Advance has c store to in the place of src, as Become does. c keeps to for Left.
func (src *Source) Advance(c *Change, to Sequence) error {
	if err := src.Become(c, to); err != nil {
		return err
	}
	c.Sequence = &to
	return nil
}

// Left returns src as it is once c is committed: src itself, unless c advances it.
func (src *Source) Left(c *Change) *Source {
	if c.Sequence == nil {
		return src
	}
	left := &Source{Sequence: *c.Sequence, Key: src.Key}
	for _, op := range c.Ops {
		if op.Kind == storage.PutOp && bytes.Equal(op.Key, src.Key) {
			left.Raw = op.Value
		}
	}
	left.UnknownFields = src.UnknownFields
	return left
}
