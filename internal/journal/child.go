package journal

import (
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// A Parent identifies the operation that waits for the end of a workflow.
type Parent struct {
	ID         string `cbor:"1,keyasint"`
	Generation string `cbor:"2,keyasint"`
	Operation  string `cbor:"3,keyasint"`
}

// A Child is a workflow's record of a child that it started: kid:{id}:{operation}. It
// is written with the start of the child, written again with its end, and deleted when
// the parent has recorded that end.
type Child struct {
	Parent string `cbor:"1,keyasint"` // the generation
	ID     string `cbor:"2,keyasint"`

	// End is a copy of the child's output, because the child may be purged before
	// its parent reads it.
	End *Output `cbor:"3,keyasint,omitempty"`

	// OnEnd is the child's weft.ParentEnd, for those who end the parent without its
	// function. Records of a build without this field have 0, which is ParentEndCancel.
	OnEnd uint8 `cbor:"4,keyasint,omitempty"`

	key, raw []byte
	unknown  record.Unknown
}

// childEnd is the field number of Child.End.
const childEnd = 3

// NewChild returns the record for a child that is being started.
func NewChild(p Parent, id string, onEnd uint8) *Child {
	return &Child{Parent: p.Generation, ID: id, OnEnd: onEnd, key: keys.Child(p.ID, p.Operation)}
}

// Put returns the operation that stores c.
func (c *Child) Put() (storage.Op, error) {
	keep := c.unknown
	if c.End != nil && c.End.unknown != nil { // a copy keeps what the original has
		var err error
		if keep, err = keep.With(childEnd, c.End, c.End.unknown); err != nil {
			return storage.Op{}, err
		}
	}
	raw, err := record.Seal(c.key, Version, c, keep)
	return storage.Put(c.key, raw), err
}

// Delete returns the operation that removes c.
func (c *Child) Delete() storage.Op { return storage.Delete(c.key) }

// Unchanged returns the condition that the stored record is still the one that was read.
func (c *Child) Unchanged() storage.Condition { return storage.Equal(c.key, c.raw) }

// OpenChild decodes a stored child record.
func OpenChild(e storage.Entry) (*Child, error) {
	c := &Child{key: e.Key, raw: e.Value}
	var err error
	c.unknown, err = record.Open(e.Key, e.Value, Version, c)
	return c, err
}
