package run

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// TransactStep is engine.Run.TransactStep.
func (r *Handle) TransactStep(name string, result any, f func(ctx context.Context) error) error {
	op := r.startOperation(ofTransaction, name, &activity.Call{
		Policy: activity.Policy{Name: name, Retry: activity.Retry{MaxAttempts: 1}},
		Run:    func(ctx context.Context, _ any) (any, error) { return result, f(ctx) },
	})
	if o, ok := op.(*operation); ok && !o.done {
		o.transaction = true
		if _, err := r.x.transactor(); err != nil && !r.x.host.Rehearsing {
			o.settle(outcome{err: err})
		}
	}
	if result == nil {
		return r.Await(op, nil)
	}
	recorded := reflect.New(reflect.TypeOf(result).Elem())
	err := r.Await(op, recorded.Interface())
	reflect.ValueOf(result).Elem().Set(recorded.Elem())
	return err
}

// transactor returns the store as a Transactor. Under OwnershipSingleOwner there is none, because the
// store does not check the conditions of commits then.
func (x *Execution) transactor() (storage.Transactor, error) {
	t, ok := storage.As[storage.Transactor](x.store)
	if !ok || x.host.Ownership == weft.OwnershipSingleOwner {
		return nil, &storage.CapabilityError{Feature: "Transact", Capability: "transactions", Adapter: storage.Adapter(x.store)}
	}
	return t, nil
}

// transact runs o's function and commits its checkpoint in one transaction. That commit is never repeated, because the
// function's writes would be missing. If its outcome is unknown, transact writes a checkpoint with the same number that
// gives the attempt up. If that one already exists, the transaction was committed.
func (x *Execution) transact(o *operation) (recorded bool, err error) {
	store, err := x.transactor()
	if err != nil {
		return false, err
	}
	a := &answer{attempt: x.info(o).Attempt}
	var w *journal.Write
	if err = x.inTransaction(store, o, a, &w); errors.Is(err, storage.ErrTransactionRefused) {
		f := payload.FailureOf(err, "", []error{storage.ErrTransactionRefused})
		a.failure, w = &f, nil
	}
	switch {
	case err == nil:
		return x.judged(w, journal.Done, nil)
	case x.Ctx.Err() != nil:
		return false, errStopped
	case errors.Is(err, storage.ErrTransactionLost):
		pause := o.interruption()
		o.logger().Warn("weft: transaction was lost while its function ran; trying again", "failures", o.interrupted, "pause", pause, "error", err)
		x.dueAfter(o, x.time(), pause)
		return false, nil
	case a.failure != nil && w == nil && !errors.Is(err, errNotBegun):
		o.answer = a
		x.Ops.ready = append(x.Ops.ready, o)
		return false, nil
	case w == nil || settle.Hopeless(err):
		o.logger().Warn("weft: transaction did not begin; trying again", "error", err)
		x.dueAfter(o, x.time(), time.Second)
		return false, nil
	case errors.Is(err, storage.ErrConflict):
		x.dueAfter(o, x.time(), 0) // the function's writes were rolled back
		verdict, err := journal.Examine(x.Ctx, x.store, w)
		if verdict == journal.Refused {
			return false, nil // the cause of the conflict is gone
		}
		return x.judged(w, verdict, err)
	}
	x.Owner.Unsure("transaction", x.ID)(err)
	return x.abandon(o, w)
}

// interruption notes that o's transaction was lost, and returns the pause before the next one.
func (o *operation) interruption() time.Duration {
	const longest = time.Minute // its function may crash the server each time
	o.interrupted++
	return min(100*time.Millisecond<<min(o.interrupted-1, 10), longest)
}

// errNotBegun means that the function was not called.
var errNotBegun = errors.New("engine: transaction did not begin")

// inTransaction runs o's function and writes its checkpoint w in a transaction. If it returns
// an error and w is set, the outcome may be unknown.
func (x *Execution) inTransaction(store storage.Transactor, o *operation, a *answer, w **journal.Write) error {
	failed := errors.New("the step failed")
	called := false
	var behind <-chan struct{}
	done := make(chan error, 1)
	go func() {
		err := error(failed) // stays if the function calls Goexit, which ends this goroutine
		defer func() { done <- err }()
		err = store.Transact(activity.NewContext(x.within, x.info(o), silent{}), func(ctx context.Context) (storage.Batch, error) {
			called = true
			if behind = x.callWithin(ctx, o, a); a.failure != nil {
				return storage.Batch{}, failed
			}
			decided := new(journal.Write)
			if err := x.appending(decided, journal.Change{Events: []checkpoint.Event{o.succeeded(a)}}); err != nil {
				return storage.Batch{}, err
			}
			*w = decided
			return decided.Batch, nil
		})
		if behind != nil {
			<-behind // never two calls of the function at once
		}
	}()
	err, back := await(x.Ctx, x.host.StopTimeout, done)
	if back && called && x.Probation != nil {
		x.Probation.back(o)
	}
	if !back {
		o.logger().Warn("weft: function in a transaction ignores cancellation; its goroutine is left running")
		return errStopped
	}
	if err != nil && !called {
		return errors.Join(errNotBegun, err)
	}
	return err
}

// silent is the heart of a function in a transaction. It is not a stream.Attempt: the commit of a chunk might wait
// for the transaction.
type silent struct{}

func (silent) Beat(any) error { return nil }
func (silent) Last(any) bool  { return false }

// callWithin is call for a function in a transaction. On a store where all other commits wait for the transaction, the
// function has a time limit. When the limit is reached, or the engine is stopping, the function gets a short time to return.
// If it does not, its answer and its writes are discarded, and behind is a channel that is closed when it returns.
func (x *Execution) callWithin(ctx context.Context, o *operation, a *answer) (behind <-chan struct{}) {
	limit := x.transactLimit(o)
	if limit == nil {
		x.call(ctx, o, a)
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit.Limit, limit)
	defer cancel()
	own := &answer{attempt: a.attempt}
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		x.call(ctx, o, own)
	}()
	select {
	case <-returned:
	case <-ctx.Done():
		select {
		case <-returned:
		case <-time.After(cancelGrace):
			behind = returned
		}
	}
	exceeded := context.Cause(ctx) == limit
	switch {
	case behind != nil && exceeded:
		o.logger().Warn("weft: function in a transaction has exceeded its limit and ignores cancellation; the transaction is rolled back while it runs", "limit", limit.Limit)
		a.failure = limitFailure(limit)
	case behind != nil:
		a.failure = &payload.Failure{Message: errStopped.Error()} // not used: the engine is stopping
	case exceeded && own.failure != nil:
		a.failure = limitFailure(limit)
	default:
		*a = *own
	}
	return behind
}

// cancelGrace is how long a function has to return after its context has ended, before its transaction is rolled back.
const cancelGrace = 100 * time.Millisecond

// transactLimit returns the time limit of o's function as the error for exceeding it; nil means no limit.
func (x *Execution) transactLimit(o *operation) *weft.TransactLimitError {
	s, ok := storage.As[storage.TransactLimiter](x.store)
	if !ok || s.TransactLimit() <= 0 {
		return nil
	}
	e := &weft.TransactLimitError{Step: o.name, Limit: s.TransactLimit()}
	if ttl := x.host.LeaseTTL; x.Owner.Shared() && ttl/PerTTL < e.Limit {
		e.Limit, e.LeaseTTL = ttl/PerTTL, ttl
	}
	return e
}

// await receives from c, or waits until it is closed. Once ctx has ended, it waits no longer than most, and then returns false.
func await[T any](ctx context.Context, most time.Duration, c <-chan T) (v T, back bool) {
	select {
	case v = <-c:
		return v, true
	case <-ctx.Done():
	}
	patience := time.NewTimer(most)
	defer patience.Stop()
	select {
	case v = <-c:
		return v, true
	case <-patience.C:
		return v, false
	}
}

// abandon finds out whether o's transaction, which was to append w, was committed. If it was
// not, abandon makes sure that it never will be.
func (x *Execution) abandon(o *operation, w *journal.Write) (recorded bool, err error) {
	pause := o.interruption()
	for {
		e := o.event(checkpoint.KindAttempted)
		e.Attempt, e.Due = w.Entry.Events[0].Attempt, journal.Micro(x.time().Add(pause))
		e.Error = "the outcome of its transaction is unknown: given up"
		given := new(journal.Write)
		if err := x.appending(given, journal.Change{Events: []checkpoint.Event{e}}); err != nil {
			return false, err
		}
		verdict, err := journal.Commit(x.Ctx, x.store, given, x.Owner.Unsure("checkpoint", x.ID))
		if verdict == journal.Overtaken {
			if first, e := journal.Examine(x.Ctx, x.store, w); first == journal.Done {
				return x.judged(w, first, e)
			}
		}
		if done, err := x.judged(given, verdict, err); done || err != nil {
			return done, err
		}
	}
}

// limitFailure returns the outcome of a step that has taken too long.
func limitFailure(e *weft.TransactLimitError) *payload.Failure {
	return &payload.Failure{Message: e.Error(), Sentinel: activity.ErrTimeout.Error()}
}
