package engine

import (
	"context"
	"iter"

	"github.com/weft-go/weft/internal/payload"
)

// A Value is something that a workflow publishes about itself, such as how far it is. Others read
// it without touching the run: also while the run waits, is parked or held, and after it has ended.
//
// Define a Value once, as a variable, and use it on both sides. Its name is stored, and the same
// for all runs.
type Value[T any] struct {
	Name string // 1 to 100 bytes
}

// Set publishes x. It is no operation: it does not wait, and a call may be added or removed
// anywhere while runs are in progress. The value is stored with the run's next checkpoint, or within
// about a tenth of a second if there is none. Of several values before that, the last one is stored.
// After a crash before that, the function sets it again. What is stored is not set again by a replay.
//
// A workflow has at most 100 values, each of at most 256 KiB when it is encoded. They stay until the
// workflow is purged, also if it continues as new: only the values that the present life sets are
// counted, so a workflow that continues as new must not give them other names in each life. The error is
// ErrInvalid if x cannot be encoded, is too large, or is one value too many, or if the name is not valid.
func (v *Value[T]) Set(run *Run, x T) error {
	return run.handle().Publish(v.Name, x)
}

// Read returns the value that a workflow has published last. It writes nothing, and needs no engine
// that executes the workflow. Errors: ErrNotFound if there is no such workflow; a
// *NoValueError, which wraps ErrNotFound, if it has not published the value yet; ErrInvalid;
// ErrClosed; a *DecodeError; the store's.
func (v *Value[T]) Read(ctx context.Context, c Client, id string) (T, error) {
	v.check(c)
	var x T
	err := c.ReadValue(ctx, id, v.Name, &x)
	return x, err
}

// Await waits until a workflow has published a value for which enough returns true, and returns that
// value. It sees the values that are there when it looks: at once if c executes the workflow, and
// otherwise after at most a Config.PollInterval. It may miss a value that is soon replaced.
//
// If the workflow has ended and its value is not enough, the error is a *TerminalError. Other errors:
// those of Read, except that it waits for a value that is not published yet; the context's.
func (v *Value[T]) Await(ctx context.Context, c Client, id string, enough func(x T) bool) (T, error) {
	v.check(c)
	var last T
	err := c.AwaitValue(ctx, id, v.Name, func(decode func(value any) error) (bool, error) {
		var x T
		if err := decode(&x); err != nil {
			return false, err
		}
		last = x
		return enough(x), nil
	})
	if err != nil {
		var zero T
		return zero, err
	}
	return last, nil
}

func (v *Value[T]) check(c Client) {
	if payload.IsNil(c) {
		panic("engine: to read value " + v.Name + " needs a client, such as an *engine.Engine, and got nil")
	}
}

// ReadValue decodes the value of a name that a workflow has published last into value, a pointer. See
// Value.Read.
func (e *Engine) ReadValue(ctx context.Context, id, name string, value any) error {
	return e.reader.ReadValue(ctx, id, name, value)
}

// AwaitValue calls enough with each value of a name that it finds, until enough returns true or an
// error. The argument of enough decodes the value into a pointer. See Value.Await.
func (e *Engine) AwaitValue(ctx context.Context, id, name string, enough func(decode func(value any) error) (bool, error)) error {
	return e.reader.AwaitValue(ctx, id, name, enough)
}

// Values yields the values that a workflow has published, in the order of their names, without
// decoding them. An error ends the sequence: ErrNotFound, ErrInvalid, ErrClosed, storage.ErrCorrupt,
// the store's.
func (e *Engine) Values(ctx context.Context, id string) iter.Seq2[ValueInfo, error] {
	return e.reader.Values(ctx, id)
}
