package run

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/fifo"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
)

// turns schedules user code: one branch at a time, in the order in which they became
// runnable, and the driver when no branch can run.
type turns struct {
	x         *Execution
	branches  map[*branch]bool // branches that have not ended
	numbered  int
	full      int // branches that are in a Map, at its limit
	runnable  fifo.Queue[*branch]
	yielded   chan struct{} // receives when a branch gives the turn back
	abandoned chan struct{} // closed when the driver no longer waits for a branch
	unwinding bool
	result    *result // result of the workflow function; nil: it has not ended
	fault     *fault  // found by a branch: the run is to be held
}

// A branch is a goroutine of user code. It has its own Run.
type branch struct {
	x      *Execution
	number int        // branches are numbered in the order in which they were made
	id     string     // of the operation that started it; "" for the main branch
	path   string     // its name and those of the branches around it; "" for the main branch
	of     *operation // the operation that started it; nil for the main branch
	body   func(run *Handle) (any, error)
	scope  *scope // of its Run
	begun  int    // number of operations it has started
	random *rand.Rand

	started bool
	queued  bool // it is in runnable
	resume  chan struct{}
	active  atomic.Bool // it has the turn

	waiting []*operation  // it waits for one of these
	awaited [1]*operation // space for waiting, in an Await
	within  *scope        // or for the end of this scope

	atLimit bool // it is in a Map with as many branches as may be
	needed  bool // the history needs one more
}

// A result is what a branch's function returned.
type result struct {
	value any
	err   error
	stack string // stack of a panic

	// Only of the workflow function, and of an update.
	encoded   payload.Payload // value, encoded
	failed    payload.Failure // err, as it is recorded
	cancelled bool            // err is ErrCancelled
	next      *continuation   // in err; nil: there is none
	begun     int             // the number of its last operation
}

func (t *turns) init(x *Execution) {
	t.x = x
	t.branches = map[*branch]bool{}
	t.yielded = make(chan struct{}, 1)
	t.abandoned = make(chan struct{})
}

// startFunction makes the main branch runnable.
func (t *turns) startFunction() {
	x := t.x
	t.branch(nil, &x.root, func(run *Handle) (any, error) {
		return x.Definition.Run(run, func(v any) error {
			run.decode(x.Input, v, func(err error) *fault { return undecodable("", "", fmt.Errorf("input: %w", err)) })
			return nil
		})
	})
}

// branch makes a new branch runnable. A nil operation stands for the main branch.
func (t *turns) branch(of *operation, s *scope, body func(run *Handle) (any, error)) {
	b := &branch{x: t.x, of: of, body: body, scope: s, resume: make(chan struct{})}
	if of != nil {
		b.id, b.path = of.id, within(of.branch, of.name)
	} else if first := t.x.Hold.Workflow.First; first > 0 {
		b.begun = int(first) - 1
	}
	t.numbered++
	b.number = t.numbered
	t.branches[b] = true
	t.queue(b)
}

// inOrder returns the branches that have not ended, in the order in which they were made.
func (t *turns) inOrder() []*branch {
	return slices.SortedFunc(maps.Keys(t.branches), func(a, b *branch) int { return a.number - b.number })
}

// queue makes b runnable, behind those that already are.
func (t *turns) queue(b *branch) {
	if !b.queued {
		b.queued = true
		t.runnable.Put(b)
	}
}

// run is a branch's goroutine. It ends when its body returns, or by Goexit when the run is
// released. Goexit runs deferred functions, and user code cannot recover from it.
func (b *branch) run() {
	b.x.label()
	t := &b.x.turns
	var r *result
	defer func() {
		if !t.gone() && t.branches[b] { // end has called user code, which has ended the goroutine
			t.end(b, &result{err: errGoexit})
		}
		b.active.Store(false)
		t.yield()
	}()
	defer func() {
		if r == nil {
			p := recover()
			switch {
			case t.gone(), t.unwinding:
				if p != nil {
					b.x.logger().Warn("weft: panic in a deferred function while the run was released", "error", p)
				}
			case p != nil:
				r = &result{err: payload.Panicked(p), stack: string(debug.Stack())}
			default:
				r = &result{err: errGoexit}
			}
		}
		if !t.gone() {
			t.end(b, r)
		}
	}()
	value, err := b.body(&Handle{x: b.x, b: b, scope: b.scope})
	if !t.unwinding {
		r = &result{value: value, err: err}
	}
}

// end removes b and passes its result on: to the run, or to the operation that started it.
// If r is nil, b was unwound and has no result. Where it calls user code, nothing is changed yet.
func (t *turns) end(b *branch, r *result) {
	switch {
	case r == nil:
	case b.of == nil:
		r.encode(t.x, t.x.Definition.Errors)
		r.cancelled = isCancelled(r.err)
		if r.begun = b.begun; r.stack == "" {
			r.next = t.x.continuationOf(r.err)
		}
		t.result = r
		if r.err != nil && r.next == nil {
			t.x.updates.cut(t.x)
		}
	case b.of.update != nil:
		b.of.update.ended(t.x, r)
	case r.err != nil:
		b.of.settle(outcome{err: r.failure()})
	default:
		b.of.settle(outcome{value: r.value})
	}
	delete(t.branches, b)
}

// failure returns the error of a branch, with the stack if it panicked.
func (r *result) failure() error {
	if r.stack == "" {
		return r.err
	}
	return payload.WithStack(r.err, r.stack)
}

// yield gives the turn back, unless the driver no longer waits for it.
func (t *turns) yield() {
	select {
	case t.yielded <- struct{}{}:
	case <-t.abandoned:
	}
}

// wait gives the turn back until one of ops has its outcome, and returns the one that got
// its outcome first. If within ends before, it returns that scope's error.
func (b *branch) wait(within *scope, ops ...*operation) (*operation, error) {
	for {
		for _, o := range ops {
			o.consider()
		}
		if o := first(ops); o != nil {
			return o, nil
		}
		if err := within.err(); err != nil && !allEnding(ops) {
			return nil, err
		}
		if b.atLimit && b.needed {
			return nil, nil
		}
		b.watch(within, ops)
		b.stand()
		b.unwatch()
	}
}

// allEnding reports whether all of ops are branches whose scope has ended. The caller waits
// for these, so that the end of the run does not interrupt their cleanup.
func allEnding(ops []*operation) bool {
	for _, o := range ops {
		if o.kind != ofBranch || o.scope.err() == nil {
			return false
		}
	}
	return true
}

// stand gives the turn back and waits for b's next turn.
func (b *branch) stand() {
	b.active.Store(false)
	b.x.yield()
	select {
	case <-b.resume:
	case <-b.x.abandoned:
		runtime.Goexit()
	}
	if b.x.unwinding {
		runtime.Goexit()
	}
}

func (b *branch) watch(within *scope, ops []*operation) {
	b.within, b.waiting = within, ops
	within.busier(1)
	for _, o := range ops {
		if o.waiters == nil {
			o.waiters = o.waiter[:0]
		}
		o.waiters = append(o.waiters, b)
		o.want()
	}
}

func (b *branch) unwatch() {
	for _, o := range b.waiting {
		for i, w := range o.waiters {
			if w == b {
				o.waiters = append(o.waiters[:i], o.waiters[i+1:]...)
				break
			}
		}
		o.unwant()
	}
	b.within.busier(-1)
	b.within, b.waiting = nil, nil
}

// first returns the operation of ops whose outcome came first, or nil.
func first(ops []*operation) (earliest *operation) {
	for _, o := range ops {
		if o.done && (earliest == nil || o.settled < earliest.settled) {
			earliest = o
		}
	}
	return earliest
}

// runBranches gives each branch that can run its turn, until all wait.
func (t *turns) runBranches() error {
	for t.runnable.Len() > 0 {
		b := t.runnable.Take()
		b.queued = false
		if !t.turn(b) {
			return t.x.cause()
		}
		if t.fault != nil {
			return t.fault
		}
	}
	return nil
}

// turn lets b run until it waits or ends. It blocks as long as user code does not return to the engine. If the run must be
// released meanwhile, it waits no longer than StopTimeout and then returns false.
func (t *turns) turn(b *branch) bool {
	if t.gone() || !t.branches[b] {
		return !t.gone()
	}
	t.x.BusySince.Store(time.Now().UnixNano())
	defer t.x.comeBack()
	b.active.Store(true)
	if b.started {
		b.resume <- struct{}{}
	} else {
		b.started = true
		go b.run()
	}
	_, back := await(t.x.Ctx, t.x.host.StopTimeout, t.yielded)
	if !back {
		t.x.logger().Warn("weft: workflow function does not return to the engine; its goroutine is left running")
		close(t.abandoned)
	}
	return back
}

func (t *turns) gone() bool {
	select {
	case <-t.abandoned:
		return true
	default:
		return false
	}
}

// unwind cancels the remaining attempts and ends the remaining branches, after the loop has ended with err.
func (t *turns) unwind(err error) {
	over := err == nil || err == errParked // it has ended, or continues as new; what only waits has no attempts
	why := context.Cause(t.x.Ctx)          // an attempt may not have heard of it yet
	switch {
	case why != nil:
		over = over || why == activity.ErrTerminated || why == ErrReset
	case over:
		why = errOver
	default:
		why = errHeld
	}
	for o := range t.x.Ops.all() {
		if o.unsettled() && !over {
			t.x.Owner.Interrupted()
		}
		o.stop(why)
	}
	t.endBranches()
}

// endBranches ends the remaining branches, one at a time. It returns false if one of them does not return to the engine.
// That one may still be executed, and reads t: then nothing of t may be changed any more.
func (t *turns) endBranches() bool {
	if t.gone() {
		return false
	}
	t.unwinding = true
	for _, b := range t.inOrder() {
		if !b.started {
			delete(t.branches, b)
			continue
		}
		for t.branches[b] {
			if !t.turn(b) {
				return false
			}
		}
	}
	return true
}

// cause returns why the execution ends: the run is released, or held.
func (x *Execution) cause() error {
	if err := x.Ctx.Err(); err != nil {
		return errStopped
	}
	return errHeld
}

// encode encodes the value, and makes a failure to do so the result's error. It does so at once: other branches
// may still modify the value, and the driver calls no user code.
func (r *result) encode(x *Execution, sentinels []error) {
	if r.err == nil {
		r.encoded, r.err = x.host.encode(r.value)
	}
	if r.err != nil {
		r.failed = payload.FailureOf(r.err, r.stack, sentinels)
	}
}

// output returns the output of a run whose function ended with r.
func (r *result) output(x *Execution) *journal.Output {
	out := &journal.Output{Generation: x.Hold.Workflow.Generation, Status: checkpoint.StatusCompleted}
	if r.err == nil {
		out.Codec, out.Data = r.encoded.Codec, r.encoded.Data
		return out
	}
	out.Status = checkpoint.StatusFailed
	if x.cancelled != nil && r.cancelled {
		out.Status = checkpoint.StatusCancelled
	}
	r.failed.Onto(out)
	return out
}
