package engine

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/future"
	inner "github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/signal"
)

// A Run is a workflow function's handle on its run, as testing.T is a test's. It belongs to
// the goroutine of the function. Used in another goroutine while the function waits, or after it
// has returned, its methods return ErrForeignRun. A call from another goroutine while the
// function itself computes is a data race that is not detected.
//
// A Run is not a context, because a workflow function must not do I/O. Activities and steps
// get a context.
type Run handle

// handle is what a Run is inside. Only the engine makes one.
type handle = inner.Handle

func (r *Run) handle() *inner.Handle {
	if r == nil {
		panic("engine: the Run is nil: use the one that the workflow function, or its branch, was given")
	}
	return (*inner.Handle)(r)
}

// ID returns the workflow's id.
func (r *Run) ID() string {
	return r.handle().ID()
}

// Nominal returns the time for which a Schedule has started the workflow. It is in the workflow's
// id, so it is also there if the workflow was started under the id that the schedule would have
// used. It returns false for any other workflow, and for one that Engine.Trigger has started.
func (r *Run) Nominal() (at time.Time, ok bool) {
	return r.handle().Nominal()
}

// Now returns the time of the checkpoint whose event the run has received last. It is the
// same in a replay. It never goes back, even if an engine's clock is set back.
func (r *Run) Now() time.Time {
	return r.handle().Now()
}

// Random returns a source of random numbers that yields the same numbers in a replay. Do not
// use it for secrets.
func (r *Run) Random() *rand.Rand {
	return r.handle().Random()
}

// HistoryLen returns how many events the history of the run has, up to the one that it has
// received last: one or a few for each operation. After ContinueAsNew it counts from the beginning
// again. It is the same in a replay. A replay reads the whole history, so let a workflow that goes
// on and on continue as new after some thousands.
func (r *Run) HistoryLen() int {
	return r.handle().HistoryLen()
}

// Logger returns the engine's logger with the workflow's id. It logs nothing while the run
// is replayed.
func (r *Run) Logger() *slog.Logger {
	return r.handle().Logger()
}

// SetLabel sets a label of the workflow, by which Filter finds it; an empty value removes it. It is
// no operation: it does not wait, and may be called anywhere. The label is stored with the run's
// next checkpoint, or within about a tenth of a second if there is none. After a crash before that,
// the function sets it again. A replay does not set again what was stored, so that a label that
// Engine.Label has changed meanwhile stays as it is.
//
// The error is ErrInvalid if the name or the value is not valid, or if the function has set more
// than a workflow can have: see StartOptions.Labels. Labels from elsewhere do not count for that.
// If there is no room beside them, the label is not stored, and the log says so.
func (r *Run) SetLabel(name, value string) error {
	return r.handle().SetLabel(name, value)
}

// Version returns by which version of a change the run goes on from here. 0 is the code before the
// change. Workflow.Versions has the newest version of each change.
//
//	if run.Version("fraud-check") >= 1 {
//		if _, err := fraud.Do(run, order); err != nil {
//			return Receipt{}, err
//		}
//	}
//
// A run that has gone on from this place before goes on as it did. So runs that have passed it with the
// old code keep to the old code, also in a replay. A run that comes here for the first time goes by the
// newest version, and from then on by this one. Its history records the choice before anything of
// the changed code has an effect. Info.Versions has it. If the run waited here or was held here, and
// has recorded nothing since, it comes here for the first time.
//
// Version is no operation: it takes no number and does not wait. A call may be added anywhere, and may
// be removed while the change is in Workflow.Versions. It answers for this moment: in a loop it may
// return 0 for the first iterations and 1 for later ones. Where two places belong together, ask
// once and keep the answer. Ask before a Map, not in it, if the limit of the Map may change.
//
// A change that Workflow.Versions does not have holds the run with ReasonBadDefinition. Used where
// other methods return ErrForeignRun, Version panics with that error.
func (r *Run) Version(change string) int {
	return r.handle().Version(change)
}

// Sleep waits until d after Now. It survives restarts. A d of zero or less is over at once.
// The error is ErrCancelled if the workflow was cancelled, and ErrTimeout if the time of
// Run.WithTimeout has passed.
func (r *Run) Sleep(d time.Duration) error {
	return r.handle().Sleep(d)
}

// After returns a future that has its outcome, the time, once d has passed. The timer
// survives restarts. A timer that no branch waits for costs nothing.
func (r *Run) After(d time.Duration) *future.Future[time.Time] {
	return r.handle().After(d)
}

// WithTimeout returns a Run of the same branch with a time limit of d for all of its
// operations together. Operations that have no outcome by then get ErrTimeout, and those
// that are started later get it at once. The time limit survives restarts. A Get with the
// returned Run, of a future from another Run, waits no longer than that either; the
// operation then continues.
func (r *Run) WithTimeout(d time.Duration) *Run {
	return (*Run)(r.handle().WithTimeout(d))
}

// WithCancel returns a Run of the same branch, and a function that cancels its operations:
// they get ErrCancelled as their outcome. The function may be called from any branch of the
// run, and more than once.
func (r *Run) WithCancel() (run *Run, cancel func()) {
	inner, cancel := r.handle().WithCancel()
	return (*Run)(inner), cancel
}

// WithoutCancel returns a Run of the same branch that is not affected by a cancellation
// request or a time limit. Use it for cleanup.
func (r *Run) WithoutCancel() *Run {
	return (*Run)(r.handle().WithoutCancel())
}

// Cancelled returns the future of the workflow's cancellation request. If it is a case of a
// Select, the Select returns it instead of ErrCancelled.
func (r *Run) Cancelled() *future.Future[Cancellation] {
	return r.handle().Cancelled()
}

// Await waits for op and decodes its result into result, a pointer or nil. Package future calls
// it; workflow functions call Future.Get.
func (r *Run) Await(op future.Operation, result any) error {
	return r.handle().Await(op, result)
}

// RunActivity begins an activity. Package activity calls it; workflow functions call
// Activity.Do and Go.
func (r *Run) RunActivity(c activity.Call) future.Operation {
	return r.handle().RunActivity(c)
}

// ReceiveSignal begins to wait for a signal. Package signal calls it; workflow functions call
// Signal.Receive and Next.
func (r *Run) ReceiveSignal(w signal.Wait) future.Operation {
	return r.handle().ReceiveSignal(w)
}

// ForwardSignal begins to send a signal to another workflow, or to this one. The signal's ID
// is derived from the operation, so that it is accepted once even if it is sent again.
// Package signal calls it; workflow functions call Signal.SendFrom.
func (r *Run) ForwardSignal(m signal.Message) future.Operation {
	return r.handle().ForwardSignal(m)
}

// OpenHook begins to open a hook. Package signal calls it; workflow functions call Hook.Open.
func (r *Run) OpenHook(name, token string) future.Operation {
	return r.handle().OpenHook(name, token)
}

// DisposeHook begins to dispose of a hook. Package signal calls it; workflow functions call
// OpenHook.Dispose.
func (r *Run) DisposeHook(name, id string) future.Operation {
	return r.handle().DisposeHook(name, id)
}

// CloseStream begins to close a stream. Package stream calls it; workflow functions call Stream.Close.
func (r *Run) CloseStream(name string) future.Operation { return r.handle().CloseStream(name) }

// TransactStep is for the Transact functions of the adapters. It runs a step whose function
// runs in the transaction that commits its checkpoint, so that the function's writes there
// happen exactly once. result points to where f leaves its result.
//
// While f runs, the run records nothing else: the next checkpoint is the step's.
//
// Afterwards *result is the recorded result, decoded into a zero value as in a replay.
func (r *Run) TransactStep(name string, result any, f func(ctx context.Context) error) error {
	return r.handle().TransactStep(name, result, f)
}

// ContinueAsNew returns the error with which a workflow function ends the present life of its run,
// and begins the next one: the function is called again, with in as its input and an empty history.
// Both is one commit, so the run is in one life or the other whatever fails. A workflow that never
// ends does this again and again, so that its history stays short. Only returning the error has an
// effect, wrapped or not.
//
// The next life has the same id. It gets the signals that were not received, the labels, the place
// in the queue and a request to stop. Whoever waits for the result, and a parent, waits for the last
// life. Numbers of operations go on, so that no key or id that is derived from one is used twice.
// All else of the life before is gone: what its calls had to undo in case of a failure, its timers,
// and calls that it has not waited for, as if it had returned. Children are asked to stop or awaited
// as at the end of a run: see ChildOptions.OnParentEnd. A run of a Pinned workflow goes to the
// active deployment, except a child and a run whose StartOptions name a Deployment.
//
// It is a function and not a method of Workflow, because a workflow cannot refer to itself in its
// own definition. The type of in must be the workflow's In.
//
// Other errors: ErrNotApplicable for another type of in, or in a branch; ErrInvalid if in cannot be
// encoded, or is not decoded as it was; ErrForeignRun. The workflow fails if its function returns
// one of these.
func ContinueAsNew(run *Run, in any) error {
	return run.handle().ContinueAsNew(in)
}

// Step runs f inline, as an activity without a definition. f is called once if the engine
// executes the run until the result is durable. If the engine dies, loses its lease or is
// stopped before that, f is called again. The result is durable before Step returns; after that, f is not
// called again. A step that fails is not retried: its outcome is an *activity.Error, which
// wraps the first error of engine.Workflow.Errors that f's error matches.
//
// A step has no time limit. The context of f ends when the workflow is cancelled or terminated, and when the engine stops
// or has lost the run. A step that does not return has no Attention. For a limit, give the step a Run of WithTimeout.
func Step[T any](run *Run, name string, f func(ctx context.Context) (T, error)) (T, error) {
	return future.Await[T](run, run.handle().Step(name, func(ctx context.Context) (any, error) { return f(ctx) }))
}

// Go starts a branch: f runs concurrently with the caller, with its own Run. Branches take
// turns: one runs until it waits. So they may share variables, and a replay runs them in the
// same order. Branches must wait for each other only through the engine, with Get, Select
// or All.
//
// An error or a panic of f is the error of the future. When the workflow function returns,
// the remaining branches are ended, and the history records what was given up.
func Go[T any](run *Run, name string, f func(run *Run) (T, error)) *future.Future[T] {
	return inner.Go(run.handle(), name, func(run *inner.Handle) (T, error) { return f((*Run)(run)) })
}

// All waits for all of the futures and returns their results in order. The error joins
// theirs. The result of a future with an error is the zero value.
func All[T any](run *Run, fs ...*future.Future[T]) ([]T, error) {
	return inner.All(run.handle(), fs...)
}

// Map calls f for each element of in, each in its own branch, with at most limit branches at
// a time; a limit below one means no limit. It waits for all branches and returns the
// results in the order of in. If some have failed, the error is a *MapError. The result of a
// branch that failed is the zero value. After the workflow was cancelled, or the time limit
// of run has passed, Map starts no further branches.
//
// The limit may be changed while runs are in progress: it is no part of their histories. Do not
// lower it while a run that was cancelled, or whose time limit has passed, still cleans up in its
// branches: that run may be held, until the old limit is back.
func Map[In, Out any](run *Run, name string, limit int, in []In, f func(run *Run, in In) (Out, error)) ([]Out, error) {
	return inner.Map(run.handle(), name, limit, in, func(run *inner.Handle, in In) (Out, error) { return f((*Run)(run), in) })
}

// A Case is what Select waits for: a *future.Future of any type.
type Case interface{ Operation() future.Operation }

// Select waits until one of the cases has an outcome and returns the case that had its
// outcome first. Compare the returned case with your futures in a switch; Get of the chosen future
// returns immediately. A replay chooses the same case.
//
// The other cases are not affected: an activity continues, a signal stays in the inbox, and
// a timer that no branch waits for costs nothing. A future is chosen only once. So a loop
// around Select ends with ErrNoCase when all cases have been chosen. The error is
// ErrCancelled if the workflow was cancelled and run.Cancelled is not one of the cases, and
// ErrTimeout if the time of run.WithTimeout has passed.
func Select(run *Run, cases ...Case) (Case, error) { return inner.Select(run.handle(), cases) }
