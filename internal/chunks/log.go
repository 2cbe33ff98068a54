package chunks

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// Version is the version of the records that this package writes.
const Version = 1

// What one append has at most. One chunk may be larger than AppendBytes with its key.
const (
	AppendChunks = 1000
	AppendBytes  = 1 << 20
)

// ErrClosed says that a log is closed.
var ErrClosed = errors.New("chunks: closed")

// A Log says where a stream is stored.
type Log struct {
	HeadKey    []byte
	Prefix     []byte // of the keys of chunks
	Generation string // of what the stream belongs to; records of another one do not count
}

// Of returns the log of a stream of a workflow.
func Of(id, name, generation string) Log {
	return Log{HeadKey: keys.Stream(id, name), Prefix: keys.ChunksOf(id, name), Generation: generation}
}

// A Head is the record of a log as a whole.
type Head struct {
	Generation string `cbor:"1,keyasint"`
	Count      uint64 `cbor:"2,keyasint,omitempty"`
	Closed     string `cbor:"3,keyasint,omitempty"` // who has closed it; "": it is open

	log     Log
	raw     []byte // nil: there is no record
	unknown record.Unknown
}

// A Chunk is a record of a log.
type Chunk struct {
	Index      uint64 `cbor:"-"`
	Generation string `cbor:"1,keyasint"`
	ID         string `cbor:"2,keyasint"` // unique
	At         int64  `cbor:"3,keyasint"` // in microseconds since 1970
	Operation  string `cbor:"4,keyasint,omitempty"`
	Attempt    int    `cbor:"5,keyasint,omitempty"`
	Codec      string `cbor:"6,keyasint,omitempty"` // "" is JSON
	Data       []byte `cbor:"7,keyasint,omitempty"`
	Call       string `cbor:"8,keyasint,omitempty"` // names the call that wrote it, and others in the same commit
	Part       int    `cbor:"9,keyasint,omitempty"` // how many chunks of the call come before it
}

// Size is about how many bytes c adds to a batch.
func (l Log) Size(c *Chunk) int {
	return len(l.Prefix) + len(c.Data) + len(c.Operation) + len(c.ID) + len(c.Generation) + len(c.Call) + 64
}

// Read reads the head of l. A log that does not exist, or is of another generation, is empty and open.
func (l Log) Read(ctx context.Context, s storage.Storage) (*Head, error) {
	raw, err := s.Get(ctx, l.HeadKey)
	if errors.Is(err, storage.ErrNotFound) {
		return &Head{Generation: l.Generation, log: l}, nil
	}
	if err != nil {
		return nil, err
	}
	h, err := OpenHead(storage.Entry{Key: l.HeadKey, Value: raw})
	if err != nil {
		return nil, err
	}
	if h.Generation != l.Generation {
		h = &Head{Generation: l.Generation, raw: raw}
	}
	h.log = l
	return h, nil
}

// OpenHead decodes a stored head, without its log.
func OpenHead(e storage.Entry) (*Head, error) {
	h := &Head{raw: e.Value}
	var err error
	h.unknown, err = record.Open(e.Key, e.Value, Version, h)
	return h, err
}

// OpenChunk decodes a stored chunk.
func OpenChunk(e storage.Entry) (*Chunk, error) {
	c := new(Chunk)
	var err error
	if c.Index, err = keys.Number(e.Key); err != nil {
		return nil, err
	}
	_, err = record.Open(e.Key, e.Value, Version, c)
	return c, err
}

// Stored reports whether the log has a head in the store.
func (h *Head) Stored() bool { return h.raw != nil }

// Unchanged returns the condition that the stored head is still the one that was read or written.
func (h *Head) Unchanged() storage.Condition {
	if h.raw == nil {
		return storage.Absent(h.log.HeadKey)
	}
	return storage.Equal(h.log.HeadKey, h.raw)
}

// put returns h with its encoding, and the operation that stores it.
func (h Head) put() (*Head, storage.Op, error) {
	raw, err := record.Seal(h.log.HeadKey, Version, &h, h.unknown)
	h.raw = raw
	return &h, storage.Put(h.log.HeadKey, raw), err
}

// An Append is what adds chunks to a log.
type Append struct {
	Batch storage.Batch
	Next  *Head // after it

	log   Log
	first Chunk
}

// Append decides to add cs, at least one. It sets their generation and their numbers. The error is ErrClosed,
// or that a chunk cannot be encoded.
func (h *Head) Append(cs []Chunk) (*Append, error) {
	if h.Closed != "" {
		return nil, ErrClosed
	}
	a := &Append{log: h.log, Batch: storage.Batch{If: []storage.Condition{h.Unchanged()}, Ops: make([]storage.Op, 0, len(cs)+1)}}
	next := *h
	for i := range cs {
		c := &cs[i]
		c.Generation, c.Index = h.log.Generation, next.Count
		key := keys.Chunk(h.log.Prefix, c.Index)
		raw, err := record.Seal(key, Version, c, nil)
		if err != nil {
			return nil, err
		}
		a.Batch.Ops = append(a.Batch.Ops, storage.Put(key, raw))
		next.Count++
	}
	a.first = cs[0]
	var put storage.Op
	var err error
	a.Next, put, err = next.put()
	a.Batch.Ops = append(a.Batch.Ops, put)
	return a, err
}

// Close decides that nothing more is added, and that by has decided so. It changes nothing if h is closed.
func (h *Head) Close(by string) (*Head, []storage.Condition, []storage.Op, error) {
	if h.Closed != "" {
		return h, nil, nil, nil
	}
	return h.closed(by)
}

// Reopen decides that chunks may be added again, if by has closed the log.
func (h *Head) Reopen(by string) (*Head, []storage.Condition, []storage.Op, error) {
	if by == "" || h.Closed != by {
		return h, nil, nil, nil
	}
	return h.closed("")
}

func (h *Head) closed(by string) (*Head, []storage.Condition, []storage.Op, error) {
	next := *h
	next.Closed = by
	after, put, err := next.put()
	return after, []storage.Condition{h.Unchanged()}, []storage.Op{put}, err
}

// Commit commits a until its outcome is certain. An error that wraps storage.ErrConflict means that nothing was
// added, and any other error that this is not known. See settle.Commit.
func (a *Append) Commit(ctx context.Context, s storage.Storage, unknown func(error)) error {
	return settle.Commit(ctx, s, a.Batch, unknown, func(ctx context.Context) (bool, error) {
		key := keys.Chunk(a.log.Prefix, a.first.Index)
		raw, err := s.Get(ctx, key)
		if errors.Is(err, storage.ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		c, err := OpenChunk(storage.Entry{Key: key, Value: raw})
		return err == nil && c.ID == a.first.ID, err
	})
}

// Chunks reads chunks from number from on, at most limit of them. An error that wraps storage.ErrCorrupt may also
// mean that the log was removed meanwhile.
func (l Log) Chunks(ctx context.Context, s storage.Storage, from uint64, limit int) ([]*Chunk, error) {
	r := keys.ChunksFrom(l.Prefix, from)
	r.Limit = limit
	page, err := s.Scan(ctx, r)
	if err != nil {
		return nil, err
	}
	cs := make([]*Chunk, 0, len(page))
	for i, e := range page {
		c, err := OpenChunk(e)
		if err != nil {
			return cs, err
		}
		if want := from + uint64(i); c.Index != want || c.Generation != l.Generation {
			return cs, fmt.Errorf("%w: chunk %q is missing", storage.ErrCorrupt, keys.Chunk(l.Prefix, want))
		}
		cs = append(cs, c)
	}
	return cs, nil
}

// Delete returns the deletions of the chunks before number end, the last one first, at most so many.
func (l Log) Delete(end uint64, most int) (ops []storage.Op) {
	for n := end; n > 0 && len(ops) < most; n-- {
		ops = append(ops, storage.Delete(keys.Chunk(l.Prefix, n-1)))
	}
	return ops
}

// From returns the number of the chunk at which a reader begins who asks for at, if there are count chunks:
// a negative at counts from the end, and -1 is the last chunk.
func From(at int64, count uint64) uint64 {
	if at >= 0 {
		return uint64(at)
	}
	if back := uint64(-max(at, -math.MaxInt64)); back < count {
		return count - back
	}
	return 0
}
