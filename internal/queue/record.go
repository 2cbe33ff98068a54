package queue

import (
	"context"
	"time"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// version is the version of the records of this package.
const version = 1

// A message is the record wmsg:{queue}:{id}.
type message struct {
	Name      string            `cbor:"1,keyasint"`
	Body      []byte            `cbor:"2,keyasint,omitempty"`
	Headers   map[string]string `cbor:"3,keyasint,omitempty"`
	Published int64             `cbor:"4,keyasint"`           // times are in microseconds since 1970
	At        int64             `cbor:"5,keyasint"`           // the time in its entry wdue or wheld
	Receipt   string            `cbor:"6,keyasint,omitempty"` // of the delivery that holds it; "": it waits
	Attempt   int               `cbor:"7,keyasint,omitempty"` // deliveries that count, the one in progress included
	Returned  string            `cbor:"8,keyasint,omitempty"` // receipt of the delivery that gave it back last

	unknown record.Unknown
	queue   string
	id      string
	raw     []byte // as it is stored
}

func (m *message) key() []byte { return keys.QueueMessage(m.queue, m.id) }

// entry is the key of its entry wdue or wheld.
func (m *message) entry() []byte {
	if m.Receipt == "" {
		return keys.QueueDue(m.queue, time.UnixMicro(m.At), m.id)
	}
	return keys.QueueHeld(m.queue, time.UnixMicro(m.At), m.id)
}

// change returns how many bytes a batch has at most that takes, extends or gives back the message: its record twice, as it is
// and as it will be, with a receipt more; and the keys of both, and of its entries.
func (m *message) change() int { return 2*len(m.raw) + 4*len(m.key()) + 256 }

// fits reports whether a batch of so many bytes, or any if that is 0, is large enough for each change of the message.
func (m *message) fits(limit int) bool { return limit == 0 || m.change() <= limit }

func openMessage(queue, id string, raw []byte) (*message, error) {
	m := &message{queue: queue, id: id, raw: raw}
	var err error
	m.unknown, err = record.Open(m.key(), raw, version, m)
	return m, err
}

// stored returns messages as they are stored, and nil for those that are not there. Behind takeBytes it ends: then it returns fewer
// than there are ids. It reads a few first, and then more at once.
// Messages that were published one after the other are beside each other, so a page has most of them, or all.
func (q *Queue) stored(ctx context.Context, queue string, ids []string) (raws [][]byte, err error) {
	for n, size := readFirst, 0; len(raws) < len(ids) && size <= takeBytes; n = readAtOnce {
		some := ids[len(raws):min(len(raws)+n, len(ids))]
		at := make([][]byte, len(some))
		for i, id := range some {
			at[i] = keys.QueueMessage(queue, id)
		}
		page, err := reads.Get(ctx, q.Storage, at)
		if err != nil {
			return nil, err
		}
		for _, raw := range page {
			size += len(raw)
		}
		raws = append(raws, page...)
	}
	return raws, nil
}

// become adds to b the change of m to after, or its removal if that is nil.
func (m *message) become(b *storage.Batch, after *message) error {
	b.If = append(b.If, storage.Equal(m.key(), m.raw))
	if after == nil {
		b.Ops = append(b.Ops, storage.Delete(m.key()), storage.Delete(m.entry()))
		return nil
	}
	var err error
	if after.raw, err = record.Seal(m.key(), version, after, m.unknown); err != nil {
		return err
	}
	b.Ops = append(b.Ops, storage.Put(m.key(), after.raw))
	if before, entry := m.entry(), after.entry(); string(before) != string(entry) {
		b.Ops = append(b.Ops, storage.Delete(before))
		return put(b, entry, &mark{})
	}
	return nil
}

// A used is the record wkey:{queue}:{key}.
type used struct {
	Message string `cbor:"1,keyasint"`
	At      int64  `cbor:"2,keyasint"`           // when the message was published
	Until   int64  `cbor:"3,keyasint"`           // the time in its QueueKeyPast key
	Request string `cbor:"4,keyasint,omitempty"` // names the call that has published it

	unknown record.Unknown
	raw     []byte
}

func openUsed(queue, key string, raw []byte) (*used, error) {
	u := &used{raw: raw}
	var err error
	u.unknown, err = record.Open(keys.QueueKey(queue, key), raw, version, u)
	return u, err
}

// A mark is the record of an entry whose key says everything.
type mark struct{}

// put adds to b that a record is stored.
func put(b *storage.Batch, key []byte, v any) error {
	raw, err := record.Seal(key, version, v, nil)
	b.Ops = append(b.Ops, storage.Put(key, raw))
	return err
}
