package engine

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// A Run is what a workflow function has in hand, as a test has its testing.T. It
// belongs to the function's goroutine; used anywhere else, its methods return
// ErrForeignRun.
//
// A Run is no context: there is nothing in a workflow function to do I/O with.
// Activities and steps get a context.
type Run struct {
	x     *execution
	b     *branch
	scope *scope
}

// ID returns the workflow's id.
func (r *Run) ID() string { return r.x.id }

// Now returns the time at which the run last went on: that of the checkpoint
// from which it learnt something last. It is the same in a replay, and never earlier than
// it was, also when the clock of an engine is set back.
func (r *Run) Now() time.Time { return r.x.now }

// Random returns a source of chance that is the same in a replay. It is no
// source of secrets.
func (r *Run) Random() *rand.Rand {
	if r.b.random == nil {
		h := fnv.New128a()
		h.Write([]byte(r.x.hold.Workflow.Generation + ":" + r.b.id))
		var seed [32]byte
		h.Sum(seed[:0])
		r.b.random = rand.New(rand.NewChaCha8(seed))
	}
	return r.b.random
}

// Logger returns the engine's logger with the workflow's id. It is silent while
// the run is replayed.
func (r *Run) Logger() *slog.Logger {
	return slog.New(replayHandler{r.x, r.x.eng.log.Handler()}).With("workflow", r.x.id)
}

type replayHandler struct {
	x *execution
	slog.Handler
}

func (h replayHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return !h.x.replaying.Load() && h.Handler.Enabled(ctx, l)
}

func (h replayHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return replayHandler{h.x, h.Handler.WithAttrs(a)}
}

func (h replayHandler) WithGroup(g string) slog.Handler {
	return replayHandler{h.x, h.Handler.WithGroup(g)}
}

// Sleep waits for d, through restarts: until d after Now. A d of zero or less is
// over at once. The error is ErrCancelled if the workflow was asked to stop.
func (r *Run) Sleep(d time.Duration) error {
	return r.Await(r.timer(d), nil)
}

// Step runs f inline, as an activity without a definition: once, if no process
// dies, and at least once. Its result is durable before Step returns, and is not
// asked for again. A step that fails is not retried: its error, an
// *activity.Error, is the outcome; engine.Workflow.Errors are kept apart in it.
func Step[T any](run *Run, name string, f func(ctx context.Context) (T, error)) (T, error) {
	op := run.begin(ofStep, name, &activity.Call{
		Policy: activity.Policy{Name: name, Retry: activity.Retry{Attempts: 1}},
		Run:    func(ctx context.Context, _ any) (any, error) { return f(ctx) },
	})
	return future.Await[T](run, op)
}

// enter checks that the caller may use r. A run that is put down ends here, and
// so does a function that came back too late.
func (r *Run) enter() error {
	if !r.b.active.Load() {
		return ErrForeignRun
	}
	if r.x.gone() || r.x.unwinding {
		runtime.Goexit()
	}
	return nil
}

// begin adds an operation, or returns one that has failed already.
func (r *Run) begin(of, name string, call *activity.Call) future.Operation {
	if err := r.enter(); err != nil {
		return refusal{err}
	}
	o := r.x.ops.begin(r.b, r.scope, of, name)
	o.call = call
	if of != ofTimer {
		if err := checkName("name of "+of, name, keys.MaxName); err != nil {
			o.settle(outcome{err: err})
		}
	}
	if err := r.scope.err(); err != nil {
		o.settle(outcome{err: err, cut: true})
	}
	return o
}

// A refusal is an operation that was not begun.
type refusal struct{ err error }

func (refusal) ID() string { return "" }

// The seam to the packages activity, signal and future. Users have no business
// here.

// RunActivity begins an activity.
func (r *Run) RunActivity(c activity.Call) future.Operation {
	if err := c.Definition.Check(); err != nil {
		if e := r.enter(); e != nil {
			return refusal{e}
		}
		r.hold(BadDefinition, err)
	}
	if c.Policy.Timeout == 0 {
		c.Policy.Timeout = activity.DefaultTimeout
	}
	if c.Key != nil || c.Policy.Idempotent {
		if err := storage.Require(r.x.eng.store, "an activity with an idempotency key", "conditionalBatch"); err != nil {
			return refusal{err}
		}
		r.x.eng.reconciles(c.Definition)
	}
	op := r.begin(ofActivity, c.Policy.Name, &c)
	if o, ok := op.(*operation); ok && !o.done {
		o.take(r, &c)
		if limit := c.Policy.Deadline; limit > 0 {
			o.limited = after(r.x.since(r.x.now), limit)
		}
	}
	return op
}

// ReceiveSignal begins to wait for a signal.
func (r *Run) ReceiveSignal(w signal.Wait) future.Operation {
	op := r.begin(ofReceive, w.Name, nil)
	if o, ok := op.(*operation); ok {
		o.wait = &w
		if w.Within != nil {
			o.due = after(r.x.now, *w.Within)
		}
	}
	return op
}

// Await waits for op and decodes its result into result, a pointer or nil.
func (r *Run) Await(op future.Operation, result any) error {
	if f, ok := op.(refusal); ok {
		return f.err
	}
	o, ok := op.(*operation)
	if !ok || o.x != r.x {
		return ErrForeignRun
	}
	if err := r.enter(); err != nil {
		return err
	}
	if _, err := r.b.wait(r.scope, o); err != nil {
		return err
	}
	if o.outcome.err != nil {
		return o.outcome.err
	}
	return r.give(o, result)
}

// give puts o's result where the caller wants it.
func (r *Run) give(o *operation, result any) error {
	switch o.of {
	case ofReceive:
		return r.take(o, result)
	case ofTimer:
		if p, ok := result.(*time.Time); ok {
			*p = o.outcome.at
		}
		return nil
	case ofCancellation:
		if p, ok := result.(*Cancellation); ok {
			*p = *r.x.cancelled
		}
		return nil
	case ofBranch:
		o.outcome.value.(func(any))(result)
		return nil
	}
	if result == nil || o.of == ofDetached {
		return nil
	}
	r.decode(o.outcome.result, result, func(err error) *fault {
		return undecodable(o.id, o.name, fmt.Errorf("result of %s, operation %s: %w", describe(o.of, o.name), o.id, err))
	})
	return nil
}

// decode decodes what is recorded, or holds the run: an error would be one that the
// workflow's function could act on.
func (r *Run) decode(p payload, v any, explain func(error) *fault) {
	returned := false
	defer func() {
		if !returned { // by runtime.Goexit, which ends this goroutine
			r.x.fault = explain(errGoexit)
		}
	}()
	err := r.x.eng.codecs.decode(p, v)
	if returned = true; err != nil {
		r.holdFor(explain(err))
	}
}

// take gives a received signal to its receiver.
func (r *Run) take(o *operation, result any) error {
	if !o.outcome.received {
		return nil
	}
	decode := func(v any) error {
		r.decode(o.outcome.result, v, func(err error) *fault {
			return undecodable(o.id, o.name, &signal.PayloadError{WorkflowID: r.x.id, SignalName: o.name, SignalID: o.outcome.signalID, Err: err})
		})
		return nil
	}
	if o.wait.Take != nil {
		return o.wait.Take(decode)
	}
	return decode(result)
}

// hold stops the run here until a person has mended something. It does not
// return.
func (r *Run) hold(reason Reason, cause error) { r.holdFor(&fault{reason: reason, cause: cause}) }

func (r *Run) holdFor(f *fault) {
	r.x.fault = f
	r.b.stand()
	runtime.Goexit()
}

// A fault is why a run cannot go on: found in one of its branches, or in what it was
// about to learn.
type fault struct {
	reason          Reason
	operation, name string
	cause           error

	again bool // it may go when the run's record is changed: what it is about is looked at anew
}

func (f *fault) Error() string { return f.cause.Error() }
func (f *fault) Unwrap() error { return f.cause }

// undecodable is the fault that something of an operation cannot be decoded.
func undecodable(operation, name string, cause error) *fault {
	return &fault{reason: Undecodable, operation: operation, name: name, cause: fmt.Errorf("%w; code or a codec that can decode it goes on", cause)}
}

// readable says whether p can be decoded into v, which nobody else uses. That is user
// code: it runs in a goroutine of its own, which it may end.
func (x *execution) readable(p payload, v any) error {
	err, back := await(x, x.eng.decodes(p, v))
	if !back {
		return errStopped
	}
	return err
}

// decodes tells whether p can be decoded into v. See execution.readable.
func (e *Engine) decodes(p payload, v any) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := errGoexit
		defer func() { done <- err }()
		err = e.codecs.decode(p, v)
	}()
	return done
}
