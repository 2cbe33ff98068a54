package engine

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft/checkpoint"
)

// turns gives user code its turn: one branch at a time, and the driver when none
// can run.
type turns struct {
	x         *execution
	main      *branch
	runnable  []*branch
	yielded   chan struct{} // a branch gives the turn back
	abandoned chan struct{} // closed when the driver waits no longer
	unwinding bool
	result    *result // of the function; nil: it has not ended
	fault     *fault  // found by a branch; the run is held
}

// A branch is a goroutine of user code with a Run of its own.
type branch struct {
	x       *execution
	id      string // of the operation that began it; "" is the main branch
	begun   int    // operations
	resume  chan struct{}
	active  atomic.Bool // it has the turn
	ended   bool
	waiting *operation
	random  *rand.Rand
}

// A result is what a workflow function returned.
type result struct {
	value any
	err   error
	stack string // of a panic
}

func (t *turns) init(x *execution) {
	t.x = x
	t.yielded = make(chan struct{}, 1)
	t.abandoned = make(chan struct{})
}

// begin makes the main branch runnable.
func (t *turns) begin() {
	t.main = &branch{x: t.x, resume: make(chan struct{})}
	t.runnable = append(t.runnable, t.main)
	go t.main.run(&Run{x: t.x, b: t.main})
}

// run is a branch's goroutine. It ends with the function, or by Goexit when the
// run is put down: that a user's recover cannot swallow, and deferred functions
// run.
func (b *branch) run(run *Run) {
	t := &b.x.turns
	if !b.await() {
		return
	}
	var r *result
	defer func() {
		if r == nil {
			p := recover()
			switch {
			case t.unwinding:
				if p != nil {
					b.x.eng.log.Warn("weft: panic in a deferred function of a run that was put down", "workflow", b.x.id, "panic", p)
				}
			case p != nil:
				r = &result{err: panicError(p), stack: string(debug.Stack())}
			default:
				r = &result{err: errGoexit}
			}
		}
		t.result = r
		b.ended = true
		b.active.Store(false)
		t.yield()
	}()
	value, err := b.x.def.run(run, func(v any) error {
		if err := b.x.eng.codecs.decode(b.x.input, v); err != nil {
			run.hold(BadDefinition, fmt.Errorf("input: %w", err))
		}
		return nil
	})
	if !t.unwinding {
		r = &result{value: value, err: err}
	}
}

// yield gives the turn back, if anybody waits for it.
func (t *turns) yield() {
	select {
	case t.yielded <- struct{}{}:
	case <-t.abandoned:
	}
}

// await waits for the turn.
func (b *branch) await() bool {
	select {
	case <-b.resume:
		return true
	case <-b.x.abandoned:
		return false
	}
}

// wait gives the turn back until o has its outcome.
func (b *branch) wait(o *operation) {
	for !o.done {
		b.waiting = o
		b.active.Store(false)
		b.x.yield()
		if !b.await() || b.x.unwinding {
			runtime.Goexit()
		}
	}
	b.waiting = nil
}

// runBranches gives each branch that can run its turn, until all wait.
func (t *turns) runBranches() error {
	for len(t.runnable) > 0 {
		b := t.runnable[0]
		t.runnable = t.runnable[1:]
		if !t.turn(b) {
			return t.x.cause()
		}
	}
	if t.fault != nil {
		t.x.attend(t.fault.reason, "", t.fault.cause)
		return errHeld
	}
	return nil
}

// turn lets b run until it waits or ends. User code that does not come back
// holds the run up; if the run is put down meanwhile, it has StopTimeout left.
func (t *turns) turn(b *branch) bool {
	if t.gone() || b.ended {
		return !t.gone()
	}
	b.active.Store(true)
	b.resume <- struct{}{}
	select {
	case <-t.yielded:
		return true
	case <-t.x.ctx.Done():
	}
	patience := time.NewTimer(t.x.eng.config.StopTimeout)
	defer patience.Stop()
	select {
	case <-t.yielded:
		return true
	case <-patience.C:
		t.x.eng.log.Error("weft: workflow function does not come back; its goroutine is left behind", "workflow", t.x.id, "type", t.x.def.name)
		close(t.abandoned)
		return false
	}
}

func (t *turns) gone() bool {
	select {
	case <-t.abandoned:
		return true
	default:
		return false
	}
}

// unwind ends the branches that are left, one at a time.
func (t *turns) unwind() {
	for _, o := range t.x.ops.all() {
		if o.unsettled() && t.x.output == nil {
			t.x.life.cut.Store(true)
		}
		o.stop(t.x.cause())
	}
	if t.main == nil || t.main.ended || t.gone() {
		return
	}
	t.unwinding = true
	for !t.main.ended && t.turn(t.main) {
	}
}

// cause is why the run is put down.
func (x *execution) cause() error {
	if err := x.ctx.Err(); err != nil {
		return errStopped
	}
	return errHeld
}

// output is what the end of the function comes to.
func (r *result) output(x *execution) *checkpoint.Output {
	out := &checkpoint.Output{Generation: x.hold.Workflow.Generation, Status: checkpoint.Completed}
	err := r.err
	if err == nil {
		p, e := x.eng.encode(r.value)
		out.Codec, out.Data = p.codec, p.data
		err = e
	}
	if err == nil {
		return out
	}
	out.Status, out.Codec, out.Data = checkpoint.Failed, "", nil
	if x.cancelled != nil && isCancelled(err) {
		out.Status = checkpoint.Cancelled
	}
	fail(err, r.stack, x.def.errors).onto(out)
	return out
}
