package run

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/storage"
)

// A Handle is what an engine.Run is inside: a branch of a run, in a scope.
type Handle struct {
	x     *Execution
	b     *branch
	scope *scope
}

// ID is engine.Run.ID.
func (r *Handle) ID() string { return r.x.ID }

// Nominal is engine.Run.Nominal.
func (r *Handle) Nominal() (at time.Time, ok bool) {
	i := strings.LastIndexByte(r.x.ID, '@')
	at, err := time.Parse(time.RFC3339, r.x.ID[i+1:])
	if i < 0 || err != nil || (weft.Schedule{ID: r.x.ID[:i]}).RunID(at) != r.x.ID {
		return time.Time{}, false
	}
	return at, true
}

// Now is engine.Run.Now.
func (r *Handle) Now() time.Time { return r.x.now }

// Random is engine.Run.Random.
func (r *Handle) Random() *rand.Rand {
	if r.b.random == nil {
		h := fnv.New128a()
		h.Write([]byte(r.x.Hold.Workflow.Generation + ":" + r.b.id))
		if life := r.x.Hold.Workflow.Life; life > 0 {
			fmt.Fprintf(h, ":%d", life)
		}
		var seed [32]byte
		h.Sum(seed[:0])
		r.b.random = rand.New(rand.NewChaCha8(seed))
	}
	return r.b.random
}

// Logger is engine.Run.Logger.
func (r *Handle) Logger() *slog.Logger {
	return slog.New(replayHandler{r.x, r.x.host.Log.Handler()}).With("workflow", r.x.ID)
}

type replayHandler struct {
	x *Execution
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

// Step begins to run f inline. See engine.Step.
func (r *Handle) Step(name string, f func(ctx context.Context) (any, error)) future.Operation {
	return r.startOperation(ofStep, name, &activity.Call{
		Policy: activity.Policy{Name: name, Retry: activity.Retry{MaxAttempts: 1}},
		Run:    func(ctx context.Context, _ any) (any, error) { return f(ctx) },
	})
}

// enter checks that the caller may use r for a call. Words describe the call for an error; those that are empty are left out.
// They are joined only then, because enter is called several times for each step. If the run is being released, or the
// driver no longer waits for the function, enter ends the goroutine.
func (r *Handle) enter(call ...string) error {
	if !r.b.active.Load() {
		call = slices.DeleteFunc(call, func(word string) bool { return word == "" })
		return r.foreign(strings.Join(call, " "))
	}
	if r.x.gone() || r.x.unwinding {
		runtime.Goexit()
	}
	return nil
}

// foreign returns the error of a call that was made with r outside of r's branch.
func (r *Handle) foreign(call string) error {
	return fmt.Errorf("%w: %s in workflow %q: use the Run that the function, or its branch, was given, and not in an activity, a step or a goroutine", weft.ErrForeignRun, call, r.x.ID)
}

// startOperation makes an operation. If it cannot be started, the operation has its error as its
// outcome already, or is a refusal.
func (r *Handle) startOperation(k *kind, name string, call *activity.Call) future.Operation {
	if err := r.enter(k.name, name); err != nil {
		return refusal{err}
	}
	o := r.x.Ops.newOperation(r.b, r.scope, k, name)
	o.call = call
	if k != ofTimer {
		if err := payload.CheckName(k.naming, name, keys.MaxName); err != nil {
			o.settle(outcome{err: err})
		}
	}
	if err := r.scope.err(); err != nil {
		o.settle(outcome{err: err, cut: true})
	}
	return o
}

// A refusal is an operation that was not started.
type refusal struct{ err error }

func (refusal) ID() string { return "" }

// RunActivity is engine.Run.RunActivity.
func (r *Handle) RunActivity(c activity.Call) future.Operation {
	err := c.Definition.Check()
	if err == nil {
		err = r.x.host.know(c.Definition)
	}
	if err != nil {
		if e := r.enter(ofActivity.name, c.Policy.Name); e != nil {
			return refusal{e}
		}
		r.hold(weft.ReasonBadDefinition, err)
	}
	if c.Policy.Timeout == 0 {
		c.Policy.Timeout = activity.DefaultTimeout
	}
	if c.Key != nil || c.Policy.Idempotent {
		if err := storage.Require(r.x.host.Store, "an activity with an idempotency key", "conditionalBatch"); err != nil {
			return refusal{err}
		}
	}
	op := r.startOperation(ofActivity, c.Policy.Name, &c)
	if o, ok := op.(*operation); ok && !o.done {
		o.take(r, &c)
		if limit := c.Policy.TotalTimeout; limit > 0 {
			o.limited = after(r.x.since(r.x.now), limit)
		}
	}
	return op
}

// Await is engine.Run.Await.
func (r *Handle) Await(op future.Operation, result any) error {
	if f, ok := op.(refusal); ok {
		return f.err
	}
	o, ok := op.(*operation)
	if !ok || o.x != r.x {
		return fmt.Errorf("%w: workflow %q waits for a future that is not its own", weft.ErrForeignRun, r.x.ID)
	}
	if err := r.enter("wait for", o.kind.name, o.name); err != nil {
		return err
	}
	r.b.awaited[0] = o
	if _, err := r.b.wait(r.scope, r.b.awaited[:]...); err != nil {
		return err
	}
	if o.outcome.err != nil {
		return o.outcome.err
	}
	return o.kind.give(r, o, result)
}

// decode decodes what is recorded. If it cannot, it holds the run instead of returning an
// error, on which the workflow function could act.
func (r *Handle) decode(p payload.Payload, v any, explain func(error) *fault) {
	returned := false
	defer func() {
		if !returned { // by runtime.Goexit, which ends this goroutine
			r.x.fault = explain(errGoexit)
		}
	}()
	err := r.x.host.Codecs.Decode(r.x.host.Base, p, v)
	if returned = true; err != nil {
		r.holdFor(explain(err))
	}
}

// hold ends the execution, and the run is held until an operator has fixed the cause. It does not return.
func (r *Handle) hold(reason weft.Reason, cause error) {
	r.holdFor(&fault{reason: reason, cause: cause})
}

func (r *Handle) holdFor(f *fault) {
	r.x.fault = f
	r.b.stand()
	runtime.Goexit()
}

// A fault is why a run cannot continue. It was found in one of its branches, or in data that was about to be recorded.
type fault struct {
	reason          weft.Reason
	operation, name string
	cause           error

	again bool // check again when the workflow record has changed: the cause may be gone
}

func (f *fault) Error() string { return f.cause.Error() }
func (f *fault) Unwrap() error { return f.cause }

// undecodable returns the fault that data of an operation cannot be decoded.
func undecodable(operation, name string, cause error) *fault {
	return &fault{reason: weft.ReasonUndecodable, operation: operation, name: name, cause: fmt.Errorf("%w; the run continues with code or a codec that can decode it", cause)}
}

// readable returns an error if p cannot be decoded into v. If it returns errStopped, v may still be written to, so v
// must have no other user.
func (x *Execution) readable(p payload.Payload, v any) error {
	return x.awaitCodec(x.host.Decodes(p, v))
}

// Decodes decodes p into v and sends the error, or nil.
func (e *Env) Decodes(p payload.Payload, v any) <-chan error {
	return apart(func() error { return e.Codecs.Decode(e.Base, p, v) })
}

// awaitCodec waits for what apart sends, or returns errStopped if that does not come in time.
func (x *Execution) awaitCodec(done <-chan error) error {
	err, back := await(x.Ctx, x.host.StopTimeout, done)
	if !back {
		return errStopped
	}
	return err
}

// apart calls a codec in a goroutine of its own, because it is user code that may call Goexit. It sends the error, or nil.
func apart(codec func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := errGoexit
		defer func() { done <- err }()
		err = codec()
	}()
	return done
}
