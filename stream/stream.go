// Package stream is for what a workflow shows while it works, such as the words of a model as they come.
//
// An attempt of an activity, or a step, writes chunks to a [Stream] with a [Writer]. Each chunk is stored, so
// [Stream.Read] yields what there is, and then what comes, in any process, and again after a reload.
//
// Chunks are not part of the history, and a workflow does not read them. They are stored at least once: if an
// attempt fails, its chunks stay, and those of the next attempt follow. Chunk.Attempt tells them apart.
package stream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/future"
)

// A Stream is a log of values that attempts of one run write, one after the other. Each run has its own. It ends
// when it is closed, or when the run ends. Only Name is required, of at most 100 bytes.
type Stream[T any] struct {
	Name string // stored; never changes
}

// ErrClosed is returned to a Writer if the workflow has closed the stream.
var ErrClosed = errors.New("stream: closed")

// ErrStale is returned to a Writer if its attempt may not write any more: the run has another owner, or
// has ended, or the attempt has returned.
var ErrStale = errors.New("stream: the attempt may not write any more")

// MaxChunk is the maximum size in bytes of an encoded chunk. On a store with small batches it is a quarter of
// the largest one.
const MaxChunk = 1 << 20

// Writer returns a writer for an attempt of an activity or a step, whose context is ctx. The writer ends with
// the attempt. It needs no Close: the success of the attempt is recorded after all that it has written is stored, and if
// that cannot be stored, the attempt has failed.
//
// The function of a Transact step, and a verifier, have no writer: every Write returns an error. With a context from
// activity.NewContext without a Heart, for tests, what is written is dropped.
func (s *Stream[T]) Writer(ctx context.Context) *Writer[T] {
	w := &Writer[T]{name: s.Name, ctx: ctx}
	w.to, _ = activity.HeartFrom(ctx).(Attempt)
	w.test = activity.InfoFrom(ctx) != (activity.Info{}) && activity.HeartFrom(ctx) == nil
	return w
}

// A Writer writes to a stream. Its methods are safe for concurrent use.
type Writer[T any] struct {
	name string
	ctx  context.Context // of the attempt
	to   Attempt         // nil: nobody stores what is written
	test bool
}

// Write adds v to the stream, as it is now. It returns before v is stored: chunks are stored together, after
// ten milliseconds, or 64 KiB. It waits while a MiB is not stored.
//
// The errors are ErrClosed; ErrStale; the cause of the end of the attempt's context; engine.ErrInvalid if v
// cannot be encoded or is larger than MaxChunk, or no stream can have the name; a *storage.CapabilityError on a store without
// ConditionalBatch. Otherwise the store could not store what was written before.
func (w *Writer[T]) Write(v T) error {
	if w.to == nil {
		return w.nowhere()
	}
	return w.named(w.to.WriteChunk(w.name, v))
}

// Flush waits until everything that the attempt has written to the stream is stored. Its errors are those of Write.
func (w *Writer[T]) Flush() error {
	if w.to == nil {
		return w.nowhere()
	}
	return w.named(w.to.FlushChunks(w.name))
}

// named returns err with the stream and the run in its text if it is an ErrStale.
func (w *Writer[T]) named(err error) error {
	if errors.Is(err, ErrStale) {
		return fmt.Errorf("stream %q of workflow %q: %w", w.name, activity.InfoFrom(w.ctx).WorkflowID, err)
	}
	return err
}

func (w *Writer[T]) nowhere() error {
	if !w.test {
		return fmt.Errorf("stream: write to %q: the context is not that of an attempt of an activity or a step", w.name)
	}
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	return nil
}

// Close closes the stream, and waits until that is durable. All that was written before is stored first. Later
// writes are ErrClosed, and who reads the stream comes to its end. To close it twice does nothing. The end of the run needs no
// Close.
//
// The errors are engine.ErrCancelled or ErrTimeout, and then the stream may still be open; engine.ErrInvalid if
// no stream can have the name; a *storage.CapabilityError on a store without ConditionalBatch.
func (s *Stream[T]) Close(run Runner) error {
	if run == nil {
		panic("stream: " + s.Name + " is closed with a nil Run: use the one that the workflow function, or its branch, was given")
	}
	return run.Await(run.CloseStream(s.Name), nil)
}

// A Chunk is one value of a stream.
type Chunk[T any] struct {
	ID        string // different for each chunk
	Index     int64  // its place in the stream, from 0
	Time      time.Time
	Data      T
	Operation string // that has written it
	Attempt   int    // of that operation
}

// Read yields the chunks of the stream of a run from index at on, in order and each once: those that there are,
// and then those that come. It ends when the stream is closed or the run has ended, and all chunks were yielded.
// A negative at counts from the end: -1 begins with the last chunk that there is now.
//
// If the stream does not exist yet, or has fewer chunks, Read waits. To go on after a reload, begin
// behind the last Index that was shown. An attempt that failed leaves its chunks: where Attempt rises, its
// operation has begun anew.
//
// A Reset or Resume of a run that had ended opens its streams again. Read does not wait for that.
//
// An error ends the sequence: engine.ErrNotFound if there is no such run, or it was purged meanwhile; engine.ErrInvalid;
// engine.ErrClosed; a *storage.CapabilityError on a store without ConditionalBatch; the store's; an *engine.InterruptedError if ctx
// has ended; or that a chunk cannot be decoded into a T.
func (s *Stream[T]) Read(ctx context.Context, from Source, runID string, at int64) iter.Seq2[Chunk[T], error] {
	return func(yield func(Chunk[T], error) bool) {
		for c, err := range from.ReadStream(ctx, runID, s.Name, at) {
			var chunk Chunk[T]
			if err == nil {
				chunk = Chunk[T]{ID: c.ID, Index: c.Index, Time: c.Time, Operation: c.Operation, Attempt: c.Attempt}
				err = from.DecodeChunk(ctx, c, &chunk.Data)
			}
			if err != nil {
				yield(Chunk[T]{}, err)
				return
			}
			if !yield(chunk, nil) {
				return
			}
		}
	}
}

// Internal to Weft: what package engine and transports need.

// An Attempt is the engine's side of a Writer.
type Attempt interface {
	WriteChunk(stream string, v any) error // encodes v before it returns
	FlushChunks(stream string) error
}

// A Runner is an *engine.Run.
type Runner interface {
	future.Runner
	CloseStream(name string) future.Operation
}

// A Source is an *engine.Engine or a *client.Client.
type Source interface {
	ReadStream(ctx context.Context, runID, stream string, at int64) iter.Seq2[Stored, error]
	DecodeChunk(ctx context.Context, c Stored, v any) error
}

// Stored is a chunk without its type.
type Stored struct {
	ID        string
	Index     int64
	Time      time.Time
	Operation string
	Attempt   int
	Codec     string // "" is JSON
	Data      []byte
}
