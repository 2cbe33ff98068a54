package inspect

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/chunks"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/stream"
)

// How many chunks are read at once, and after how many bytes fewer are read next.
const (
	leastChunks = 16
	mostChunks  = 128
	manyBytes   = 1 << 20
)

// ReadStream is Engine.ReadStream.
func (e *Reader) ReadStream(ctx context.Context, id, name string, at int64) iter.Seq2[stream.Stored, error] {
	return func(yield func(stream.Stored, error) bool) {
		call := waiting.New(ctx, "stream of workflow", id)
		r := &streamReader{Reader: e, id: id, name: name, at: at, yield: yield}
		if err := r.read(call); err != nil {
			yield(stream.Stored{}, call.Explain(err))
		}
	}
}

// DecodeChunk is Engine.DecodeChunk.
func (e *Reader) DecodeChunk(ctx context.Context, c stream.Stored, v any) error {
	if err := e.Codecs.Decode(ctx, payload.Payload{Codec: c.Codec, Data: c.Data}, v); err != nil {
		return fmt.Errorf("engine: chunk %d of a stream: %w", c.Index, err)
	}
	return nil
}

// A streamReader reads a stream of one workflow.
type streamReader struct {
	*Reader
	id, name string
	at       int64
	yield    func(stream.Stored, error) bool

	tail  *chunks.Tail
	next  uint64 // the number of the chunk that is given next
	limit int    // how many are read at once
	over  bool   // the caller wants no more
}

// read gives chunks until the stream is over, or the caller wants no more.
func (r *streamReader) read(ctx context.Context) error {
	err := errors.Join(payload.CheckID(r.id), payload.CheckName("name of stream", r.name, keys.MaxName), r.Refused())
	if err == nil {
		err = storage.Require(r.Store, "a stream", "conditionalBatch")
	}
	if err != nil {
		return err
	}
	r.tail = r.Streams.Follow(r.source())
	defer r.tail.Close()
	r.limit, r.next = leastChunks, uint64(max(r.at, 0))
	first, began := "", false // the generation of the run; whether the reader has begun
	for !r.over {
		past := r.next
		if !began && r.at < 0 {
			past = 0
		}
		waiting.For(ctx, "the next chunk")
		state, err := r.wait(ctx, past, !began)
		if err != nil {
			return err
		}
		if first == "" {
			first = state.Generation
		}
		if state.Generation != first {
			return r.purged()
		}
		if !began {
			began = true
			if r.at < 0 {
				r.next = chunks.From(r.at, state.Count)
			}
		}
		if r.next >= state.Count {
			if state.Over {
				return nil
			}
			continue
		}
		waiting.For(ctx, "the store to read")
		if err := r.give(ctx, state); err != nil {
			return err
		}
	}
	return nil
}

// wait waits for more than past chunks. If now is true, it waits only until the stream was read once.
func (r *streamReader) wait(ctx context.Context, past uint64, now bool) (chunks.State, error) {
	state, err := r.tail.Next(ctx, r.Closing, past, now)
	if errors.Is(err, storage.ErrClosed) && r.Refused() != nil {
		err = weft.ErrClosed
	}
	return state, err
}

func (r *streamReader) purged() error {
	return fmt.Errorf("%w: it was purged before the end of its stream was read", payload.NotFound(r.id))
}

// give gives the chunks that state says there are.
func (r *streamReader) give(ctx context.Context, state chunks.State) error {
	log := chunks.Of(r.id, r.name, state.Generation)
	for r.next < state.Count && !r.over {
		cs, err := log.Chunks(ctx, r.Store, r.next, int(min(uint64(r.limit), state.Count-r.next)))
		size := 0
		for _, c := range cs {
			if err := r.Refused(); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			size += len(c.Data)
			s := stream.Stored{ID: c.ID, Index: int64(min(c.Index, math.MaxInt64)), Time: journal.Time(c.At), Operation: c.Operation, Attempt: c.Attempt, Codec: c.Codec, Data: c.Data}
			if r.next = c.Index + 1; !r.yield(s, nil) {
				r.over = true
				return nil
			}
		}
		if err == nil && len(cs) == 0 {
			err = fmt.Errorf("%w: chunk %q is missing", storage.ErrCorrupt, keys.Chunk(log.Prefix, r.next))
		}
		if errors.Is(err, storage.ErrCorrupt) {
			return r.gone(ctx, state, err)
		}
		if err != nil {
			return err
		}
		if r.limit = min(2*r.limit, mostChunks); size > manyBytes {
			r.limit = max(1, r.limit/4)
		}
	}
	return nil
}

// gone returns the error for a chunk that is missing or damaged: ErrNotFound if the run was purged meanwhile.
func (r *streamReader) gone(ctx context.Context, was chunks.State, cause error) error {
	r.tail.Refresh()
	state, err := r.wait(ctx, r.next, true)
	switch {
	case errors.Is(err, weft.ErrNotFound), err == nil && state.Generation != was.Generation:
		return r.purged()
	case err != nil:
		return err
	}
	return cause
}

// source returns what the tail of the stream reads.
func (r *streamReader) source() chunks.Source {
	e, id, name := r.Reader, r.id, r.name
	key := keys.Stream(id, name)
	return chunks.Source{
		Name: string(key),
		Keys: [][]byte{key, keys.Output(id)},
		Head: key,
		Look: func(ctx context.Context) (s chunks.State, err error) {
			wf, err := e.Load(ctx, id)
			if err != nil {
				return s, err
			}
			h, err := chunks.Of(id, name, wf.Generation).Read(ctx, e.Store) // after wf: nothing is added behind the end
			if err != nil {
				return s, err
			}
			return chunks.State{Generation: wf.Generation, Count: h.Count, Over: wf.Status.Terminal() || h.Closed != ""}, nil
		},
	}
}
