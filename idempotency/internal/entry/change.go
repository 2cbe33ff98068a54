package entry

import (
	"bytes"

	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// A Change is a batch, and the entry as it leaves it; nil if it removes the entry.
type Change struct {
	storage.Batch
	Key      []byte // where the entry is
	After    *Entry
	Sequence *Sequence // if it also changes that
}

// Changing returns the change that replaces before by after. Either may be nil. It is refused
// unless what is stored is before, byte for byte.
func Changing(k Key, hash string, before, after *Entry) (*Change, error) {
	c := &Change{Key: k.Place(hash), After: after}
	var expired, expires []byte
	if before == nil {
		c.If = append(c.If, storage.Absent(c.Key))
	} else {
		c.If = append(c.If, storage.Equal(c.Key, before.Raw))
		if before.Expires != 0 {
			expired = k.Expiring(hash, before.Expires)
		}
	}
	if after == nil {
		c.Ops = append(c.Ops, storage.Delete(c.Key))
	} else {
		raw, err := record.Seal(c.Key, version, after, after.UnknownFields)
		if err != nil {
			return nil, err
		}
		after.Raw = raw
		c.Ops = append(c.Ops, storage.Put(c.Key, raw))
		if after.Expires != 0 {
			expires = k.Expiring(hash, after.Expires)
			c.Ops = append(c.Ops, storage.Put(expires, nil))
		}
	}
	if expired != nil && !bytes.Equal(expired, expires) {
		c.Ops = append(c.Ops, storage.Delete(expired))
	}
	return c, nil
}

// Also has c also replace another entry of the source.
func (c *Change) Also(before, after *Entry) error {
	other, err := Changing(before.Key, before.Hash(), before, after)
	if err == nil {
		c.If, c.Ops = append(c.If, other.If...), append(c.Ops, other.Ops...)
	}
	return err
}
