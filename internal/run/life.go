package run

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/internal/record"
)

// A continuation is the error with which a workflow function ends the present life of its run. The
// next life begins with input.
type continuation struct {
	x     *Execution
	input payload.Payload
}

func (c *continuation) Error() string {
	return "engine: the workflow continues as new: its function must return this error"
}

// ContinueAsNew is engine.ContinueAsNew.
func (r *Handle) ContinueAsNew(in any) error {
	if err := r.enter("ContinueAsNew"); err != nil {
		return err
	}
	x := r.x
	switch want, is := x.Definition.In, reflect.TypeOf(in); {
	case r.b.of != nil:
		return fmt.Errorf("%w: ContinueAsNew in operation %s of workflow %q: only the workflow function itself can continue as new, and not a branch", weft.ErrNotApplicable, r.b.id, x.ID)
	case is != want && (want.Kind() != reflect.Interface || is != nil && !is.Implements(want)):
		return fmt.Errorf("%w: ContinueAsNew of workflow %q with an input of type %T: workflow %s takes %v", weft.ErrNotApplicable, x.ID, in, x.Definition.Name, want)
	}
	p, err := x.host.encode(in)
	if err == nil {
		err = x.host.Codecs.Returns(x.host.Base, in, p)
	}
	if err != nil {
		return fmt.Errorf("%w: ContinueAsNew of workflow %q: %w", weft.ErrInvalid, x.ID, err)
	}
	return &continuation{x, p}
}

// HistoryLen is engine.Run.HistoryLen.
func (r *Handle) HistoryLen() int { return r.x.delivered }

// continuationOf returns the continuation of x that err is or wraps, or nil.
func (x *Execution) continuationOf(err error) *continuation {
	defer func() { _ = recover() }() // a user's As or Unwrap may panic
	var c *continuation
	if errors.As(err, &c) && c.x == x {
		return c
	}
	return nil
}

// continues reports whether the function has ended with a continuation.
func (x *Execution) continues() bool { return x.result != nil && x.result.next != nil }

// withoutATrace is more than the operations that a reset may have passed over without a trace of them: a signal was
// accepted, and that was not recorded yet. Its id has the number of its operation.
const withoutATrace = 1 << 20

// continueAsNew commits the end of this life of the run and the beginning of the next one. done is false if the run has
// changed, and the caller must decide again. If the next life belongs to nobody yet, continueAsNew returns errParked.
func (x *Execution) continueAsNew() (done bool, err error) {
	if err := x.read(); err != nil { // a function that never waits learns only here that the engine stops
		return false, err
	}
	x.unneeded() // the archive may take long
	if x.toldOf() {
		return false, nil
	}
	if done, err := x.archiveLife(); !done || err != nil {
		return false, err
	}
	wf := *x.Hold.Workflow
	if x.Probation == nil || x.Probation.shown() {
		wf.Deaths, wf.Alone = 0, 0
	}
	with := x.with(journal.Change{Workflow: &wf}, &x.riders.labels, &x.riders.values) // the next life has no choices
	if err := x.noteBeyond(); err != nil {
		return false, err
	}
	first := uint64(max(x.result.begun, x.beyond.operation)) + 1
	if len(wf.Resets) > 0 {
		first += withoutATrace
	}
	in := x.result.next.input
	life := journal.Life{
		Workflow: with.Workflow,
		Input:    &journal.Input{Codec: in.Codec, Data: in.Data, Headers: x.headers},
		First:    first,
		Updates:  max(x.updates.count, x.beyond.update),
		GivenUp:  x.givenUp(),
		Ops:      with.Ops,
	}
	moves, err := x.move(&life)
	if err != nil {
		return false, err
	}
	if moves || x.stopping {
		life.Todo = keys.TodoNow(0, x.host.Now().Add(-x.Owner.Ahead()), wf.ID, x.host.NewID())
	}
	if err := x.atPlace(nil); err != nil {
		return false, err
	}
	left, err := x.leaveBehind(&life)
	if err != nil {
		return false, err
	}
	w, err := x.Hold.Continue(life, x.host.Read())
	if err != nil {
		return false, err
	}
	if done, err = x.committed(w, len(life.If) > 0); !done || err != nil {
		return false, err
	}
	if x.riders.values.waits() {
		x.Owner.Stored(x.ID)
	}
	if life.Todo != nil {
		x.host.Peers.PokePoll()
		return true, errParked
	}
	x.prepareNext(left)
	return true, nil
}

// lives has the execution of a run's last life, for all of them.
type lives = atomic.Pointer[Execution]

// Next returns the execution of the next life if the run has continued as new, or of a later one, and nil otherwise. An
// attempt may keep x for long, so x keeps none of those in between.
func (x *Execution) Next() *Execution {
	if x.lives == nil || x.lives.Load() == x {
		return nil
	}
	return x.lives.Load()
}

// prepareNext makes the execution of the life that begins with the head. left is what the lives before have left in the store.
func (x *Execution) prepareNext(left remains) {
	n := New(x.host, x.Owner, x.Definition, x.Hold)
	n.Input, n.headers, n.remains = x.result.next.input, x.headers, left
	n.Stuck.Store(x.Stuck.Load()) // a report of that may come only now
	if t := x.Probation; t != nil {
		n.Probation = &Probation{Deaths: t.Deaths, Alone: t.Alone, Began: t.Began}
	}
	n.lives = cmp.Or(x.lives, new(lives))
	n.lives.Store(n)
	x.lives = n.lives
}

// mostGivenUp is how many operations that a life has given up the next one's history names.
const mostGivenUp = 100

// givenUp returns an event for each operation that the function has not waited for and whose effect
// may have happened, or may still happen. They belong to no operation of the next life.
func (x *Execution) givenUp() []checkpoint.Event {
	events := x.Ops.givenUp()
	for _, o := range x.Ops.pending {
		if s, e := x.recorded(o, x.time()); s != nil && o.keyed.abandoned {
			events = append(events, e)
		}
	}
	return events[:min(len(events), mostGivenUp)]
}

// move puts a pinned run on the active deployment, and reports whether that is another one. The exceptions stay where they
// are: a child stays with its parent, and a run whose start named a deployment stays there.
func (x *Execution) move(l *journal.Life) (moves bool, err error) {
	wf := l.Workflow
	if !x.Definition.Pinned || wf.Deployment == "" || wf.Parent != nil || wf.KeepsChildren() {
		return false, nil
	}
	a, err := reads.Outlast(x.Ctx, x.host.Log, x.ID, func() (*ActiveRecord, error) { return x.host.Active(x.Ctx) })
	if record.Damaged(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	l.If = append(l.If, a.Unchanged())
	if a.Deployment == "" || a.Deployment == wf.Deployment {
		return false, nil
	}
	wf.Deployment = a.Deployment
	return true, nil
}

// learnt notes that e is the event delivered last.
func (x *Execution) learnt(e logged) {
	x.Ops.learnt = e.place
	x.delivered, x.undelivered = x.delivered+x.undelivered+1, 0
	x.tellLength()
}

// A history from so many events on is long: to replay it takes long, and all of it is kept.
const longHistory = 10_000

// tellLength logs, once, that the history is long.
func (x *Execution) tellLength() {
	if x.delivered < longHistory || x.toldLength || x.replaying.Load() {
		return
	}
	x.toldLength = true
	x.logger().Warn("weft: history of a run is long, and every replay reads all of it; let the workflow continue as new: see engine.ContinueAsNew", "count", x.delivered)
}
