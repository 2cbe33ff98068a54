package engine

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/storage"
)

// TransactStep is the seam to the adapters' Transact: a step whose function runs
// in the transaction in which its checkpoint is committed, so that what it writes
// there happens exactly once. result points to where f leaves its result.
//
// While it runs the run records nothing else: the next number is its own.
//
// What is recorded is the outcome, as it will be in a replay: it is not decoded over what
// f has left.
func (r *Run) TransactStep(name string, result any, f func(ctx context.Context) error) error {
	op := r.begin(ofTransaction, name, &activity.Call{
		Policy: activity.Policy{Name: name, Retry: activity.Retry{Attempts: 1}},
		Run:    func(ctx context.Context, _ any) (any, error) { return result, f(ctx) },
	})
	if o, ok := op.(*operation); ok && !o.done {
		o.transaction = true
		if _, err := r.x.transactor(); err != nil && !r.x.eng.rehearsing {
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

// transactor is the store as one that can Transact. Under SingleOwner there is
// none: its conditions are not the store's to judge.
func (x *execution) transactor() (storage.Transactor, error) {
	t, ok := storage.As[storage.Transactor](x.store)
	if !ok || x.eng.config.Ownership == SingleOwner {
		return nil, &storage.CapabilityError{Feature: "Transact", Capability: "transactions", Adapter: storage.Adapter(x.store)}
	}
	return t, nil
}

// transact runs o's function and commits its checkpoint in one transaction. That
// commit is never repeated: the function's writes would not be in it. If its
// outcome is unknown, a checkpoint says that it is given up; where that cannot be
// inserted, the first one had been.
func (x *execution) transact(o *operation) (recorded bool, err error) {
	store, err := x.transactor()
	if err != nil {
		return false, err
	}
	a := &answer{attempt: x.info(o).Attempt}
	var w *checkpoint.Write
	switch err = x.transaction(store, o, a, &w); {
	case err == nil:
		return x.judged(w, checkpoint.Done, nil)
	case x.ctx.Err() != nil:
		return false, errStopped
	case errors.Is(err, storage.ErrTransactionLost):
		o.interrupted++
		pause := min(100*time.Millisecond<<min(o.interrupted-1, 10), longestPause)
		x.eng.log.Warn("weft: transaction was lost while its function ran; it is tried again", "workflow", x.id, "step", o.name, "times", o.interrupted, "pause", pause, "error", err)
		x.again(o, pause)
		return false, nil
	case a.failure != nil && w == nil && !errors.Is(err, errNotBegun):
		o.answer = a
		x.ops.ready = append(x.ops.ready, o)
		return false, nil
	case w == nil || checkpoint.Hopeless(err):
		x.eng.log.Warn("weft: transaction did not begin, trying again", "workflow", x.id, "step", o.name, "error", err)
		x.again(o, time.Second)
		return false, nil
	case errors.Is(err, storage.ErrConflict):
		x.again(o, 0) // what the function wrote is undone
		verdict, err := checkpoint.Examine(x.ctx, x.store, w)
		if verdict == checkpoint.Refused {
			return false, nil // no longer: whatever stood in the way is gone
		}
		return x.judged(w, verdict, err)
	}
	x.life.unsure("transaction", x.id)(err)
	return x.abandon(o, w)
}

// longestPause is between two tries of a transaction that is lost again and again, as
// when its function is what brings the server down.
const longestPause = time.Minute

// errNotBegun says that the function was not called.
var errNotBegun = errors.New("engine: transaction did not begin")

// transaction runs o's function and its checkpoint w in a transaction. Once w is
// set, the outcome of an error may be unknown.
func (x *execution) transaction(store storage.Transactor, o *operation, a *answer, w **checkpoint.Write) error {
	failed := errors.New("the step failed")
	called := false
	var behind <-chan struct{}
	done := make(chan error, 1)
	go func() {
		err := error(failed) // if the function calls Goexit, which ends this goroutine
		defer func() { done <- err }()
		err = store.Transact(activity.NewContext(x.ctx, x.info(o), nil), func(ctx context.Context) (storage.Batch, error) {
			called = true
			if behind = x.callWithin(ctx, o, a); a.failure != nil {
				return storage.Batch{}, failed
			}
			decided, err := x.hold.AppendAt(checkpoint.Change{Events: []checkpoint.Event{o.succeeded(a)}}, x.eng.read())
			if err != nil {
				return storage.Batch{}, err
			}
			*w = decided
			return decided.Batch, nil
		})
		if behind != nil {
			<-behind // no two calls of one function at once
		}
	}()
	err, back := await(x, done)
	if back && called && x.probation != nil {
		x.probation.back(o)
	}
	if !back {
		x.eng.log.Error("weft: function in a transaction does not heed its context; its goroutine is left behind", "workflow", x.id, "type", x.def.name, "step", o.name)
		return errStopped
	}
	if err != nil && !called {
		return errors.Join(errNotBegun, err)
	}
	return err
}

// callWithin is call for a function in a transaction. Where all others wait for that,
// the function has a limit: when that is reached, or all is to stop, it is no longer
// waited for, whether it heeds its context or not, and nothing that it does counts. Then
// behind is closed when it has returned.
func (x *execution) callWithin(ctx context.Context, o *operation, a *answer) (behind <-chan struct{}) {
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
		case <-time.After(heeding):
			behind = returned
		}
	}
	exceeded := context.Cause(ctx) == limit
	switch {
	case behind != nil && exceeded:
		x.eng.log.Error("weft: function in a transaction has exceeded its limit and does not heed its context; the transaction is rolled back under it", "workflow", x.id, "type", x.def.name, "step", o.name, "limit", limit.Limit)
		a.failure = limit.failure()
	case behind != nil:
		a.failure = &failure{message: errStopped.Error()} // not looked at: all is to stop
	case exceeded && own.failure != nil:
		a.failure = limit.failure()
	default:
		*a = *own
	}
	return behind
}

// heeding is how long a function has to return once its context has ended, before its
// transaction is rolled back under it.
const heeding = 100 * time.Millisecond

// transactLimit is what o's function must not exceed; nil is no limit.
func (x *execution) transactLimit(o *operation) *TransactLimitError {
	s, ok := storage.As[storage.TransactLimiter](x.store)
	if !ok || s.TransactLimit() <= 0 {
		return nil
	}
	e := &TransactLimitError{Step: o.name, Limit: s.TransactLimit()}
	if ttl := x.eng.config.LeaseTTL; x.life.shared() && ttl/perTTL < e.Limit {
		e.Limit, e.LeaseTTL = ttl/perTTL, ttl
	}
	return e
}

// failure is the outcome of the step.
func (e *TransactLimitError) failure() *failure {
	return &failure{message: e.Error(), sentinel: activity.ErrTimeout.Error()}
}

// await receives from c; once x is to be put down, for no longer than StopTimeout.
func await[T any](x *execution, c <-chan T) (v T, ok bool) {
	select {
	case v = <-c:
		return v, true
	case <-x.ctx.Done():
	}
	patience := time.NewTimer(x.eng.config.StopTimeout)
	defer patience.Stop()
	select {
	case v = <-c:
		return v, true
	case <-patience.C:
		return v, false
	}
}

// abandon resolves an unknown outcome of o's transaction, which would append w.
func (x *execution) abandon(o *operation, w *checkpoint.Write) (recorded bool, err error) {
	for {
		e := o.event(checkpoint.Attempted)
		e.Attempt, e.Due = w.Checkpoint.Events[0].Attempt, checkpoint.Micro(x.time())
		e.Error = "the outcome of its transaction is unknown: given up"
		given, err := x.hold.AppendAt(checkpoint.Change{Events: []checkpoint.Event{e}}, x.eng.read())
		if err != nil {
			return false, err
		}
		verdict, err := checkpoint.Commit(x.ctx, x.store, given, x.life.unsure("checkpoint", x.id))
		if verdict == checkpoint.Overtaken {
			if first, e := checkpoint.Examine(x.ctx, x.store, w); first == checkpoint.Done {
				return x.judged(w, first, e)
			}
		}
		if done, err := x.judged(given, verdict, err); done || err != nil {
			return done, err
		}
	}
}

// again has o tried again after a pause.
func (x *execution) again(o *operation, pause time.Duration) {
	o.due = x.time().Add(pause)
	x.ops.time(o)
}
