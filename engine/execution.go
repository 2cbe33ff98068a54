package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// An execution is one run in memory: its branches, which take turns, and the
// driver, which has the turn when no branch has.
//
// It alternates: branches that can run do so, one at a time, until all of them
// wait in the engine; then one event is delivered; and so on. An event is
// durable before it is delivered. A replay delivers the recorded ones in their
// order, so it goes exactly as it went.
type execution struct {
	eng  *Engine
	life *life
	def  *definition
	id   string

	store  patient
	unsure func(error)     // tells of a commit of unknown outcome
	ctx    context.Context // ends when the run must be put down
	cancel context.CancelCauseFunc

	recovering bool // there is a history to replay
	input      payload
	output     *checkpoint.Output // set when it has ended durably
	head       atomic.Uint64      // the number of the last checkpoint
	attempts   sync.WaitGroup     // that have not returned
	replaying  atomic.Bool        // what user code does now, it did before
	busySince  atomic.Int64       // when user code was given its turn, in ns since 1970; 0: it has none
	stuck      atomic.Bool        // it was told that user code does not come back
	told       bool               // its waiters were told; guarded by eng.mu
	atGate     bool               // it waits for room for an attempt; likewise

	mailbox mailbox // what other goroutines leave
	address address // as the last sender knew it; of who leads the sends to this run

	// What follows belongs to whoever has the turn.
	turns
	hold          *checkpoint.Hold
	past          *checkpoint.Past                            // what was read when it was claimed, if that was all
	history       func() (checkpoint.Checkpoint, error, bool) // what is still to be replayed; nil: nothing
	endHistory    func()
	replayBegan   time.Time
	replayTook    time.Duration
	log           fifo[logged]  // durable, not yet delivered
	now           time.Time     // of the event delivered last
	claims        int           // seen in the history
	began         time.Time     // this driving of it, by the monotonic clock
	begunAt       time.Time     // likewise, by the run\'s time
	cancelled     *Cancellation // the delivered request to stop
	asked         bool          // the request is in the log
	root          scope         // that of the function's Run
	ops           table
	inbox         inbox
	delivery      *delivery              // a signal to be taken at once
	recordStale   bool                   // the workflow record may have changed
	childrenStale bool                   // children may have ended
	dismissed     []*checkpoint.Workflow // children to be asked to stop
	jobs          []*job                 // attempts that were not started
	unwatch       func() bool            // ends what relieves a driver when ctx ends
	places        int                    // among MaxActivities that it was given, for queued attempts
	refused       bool                   // it was given no more in this round
	stopping      bool                   // nothing new
	orphanRecords []storage.Op           // records of children that are no operation's any more
	undoing       undoing                // what it did, if it ends without success
	stays         bool                   // it cannot be parked before it has learnt something
	probation     *probation             // it has died before; nil: it has not, or is cleared
	blocked       *fault                 // it is held when what is under way has ended; nil: nothing is wrong
	changed       []string               // operations that were begun with another input than before
}

// A logged event is durable and waits to be delivered.
type logged struct {
	checkpoint.Event
	at    time.Time
	old   bool // read from the history, and not just learnt
	place checkpoint.Place
}

func newExecution(l *life, def *definition, hold *checkpoint.Hold) *execution {
	x := &execution{
		eng:           l.eng,
		life:          l,
		def:           def,
		store:         patient{l.eng.store},
		unsure:        l.unsure("checkpoint", hold.Workflow.ID),
		id:            hold.Workflow.ID,
		hold:          hold.From(time.Now()),
		childrenStale: true,
		now:           checkpoint.Time(hold.Workflow.StartedAt),
		began:         time.Now(),
		begunAt:       hold.Now(l.eng.read()),
	}
	x.head.Store(hold.Head)
	x.ctx, x.cancel = context.WithCancelCause(l.ctx)
	x.mailbox.bell = make(chan struct{}, 1)
	x.turns.init(x)
	return x
}

// time is the run's time: what it waits for is due by it. See checkpoint.Hold.Now.
func (x *execution) time() time.Time { return x.hold.Now(x.eng.read()) }

// until is how long it is until a time of the run's.
func (x *execution) until(due time.Time) time.Duration {
	x.life.clock.note()
	return x.hold.In(due.Sub(x.time()))
}

// wall is what the wall clock, which says now, will say at a time of the run's.
func (x *execution) wall(due, now time.Time) time.Time {
	if x.time().Sub(now) > time.Millisecond {
		return now.Add(x.until(due))
	}
	return due
}

// ended is how the run ended, or nil if it only is not driven any more.
func (x *execution) ended() *ending {
	if x.output == nil {
		return nil
	}
	return &ending{x.def.name, x.output}
}

// errHeld ends an execution whose run needs a person.
var errHeld = errors.New("engine: run is held")

// drive runs the workflow from its beginning until it ends, is put down or is
// held.
func (x *execution) drive() error {
	if err := x.prepare(); err != nil {
		return err
	}
	x.begin()
	return x.loop()
}

// windUp leaves the run, which is driven no more because of err.
func (x *execution) windUp(err error) {
	x.unwind()
	var n *NonDeterminismError
	f, faulty := err.(*fault)
	switch {
	case err == nil, err == errHeld, err == errStopped, err == errParked, x.ctx.Err() != nil:
	case faulty:
		x.attend(f.reason, f.operation, f.name, f.cause)
	case errors.As(err, &n):
		x.attend(NonDeterminism, n.Operation, "", err)
	case record.Damaged(err):
		if e := x.refresh(); e != nil && x.ctx.Err() != nil {
			break // it is another's, or was ended and purged
		}
		x.attend(Damaged, "", "", err)
	default:
		x.eng.log.Error("weft: run is put down", "workflow", x.id, "error", err)
	}
	x.replayed()
	if x.unwatch != nil {
		x.unwatch()
	}
	x.cancel(nil)
}

// prepare gets what a run needs that was claimed and not just started.
func (x *execution) prepare() error {
	if x.probation.mustHold(x.hold.Workflow) {
		x.attend(NoProgress, "", "", fmt.Errorf("the process died %d times in a row when this run was driven, also when it was the only suspect", x.hold.Workflow.Deaths))
		return errHeld
	}
	if !x.recovering {
		return nil
	}
	wf := x.hold.Workflow
	var in *checkpoint.Input
	var err error
	var next func() (checkpoint.Checkpoint, error, bool)
	stop := func() {}
	if x.past != nil {
		in, err = x.past.Input(wf)
		next = x.past.Reader(wf)
		x.past = nil
	} else {
		in, err = checkpoint.ReadInput(x.ctx, x.store, wf)
	}
	if err != nil {
		return err
	}
	x.input = payload{in.Codec, in.Data}
	if x.hold.Head == wf.Base {
		return nil // nobody has driven it before: nothing is a replay
	}
	if next == nil {
		next, stop = iter.Pull2(checkpoint.History(x.ctx, x.store, wf))
	}
	x.history, x.endHistory = next, stop
	x.replayBegan = time.Now()
	x.noteReplay()
	return nil
}

// loop is the alternation of branches and events.
func (x *execution) loop() error {
	for {
		if err := x.runBranches(); err != nil {
			return err
		}
		event, ok, err := x.nextEvent()
		switch {
		case err != nil:
			return err
		case ok:
			if err := x.deliver(event); err != nil {
				return err
			}
		case x.result == nil || x.awaits() || x.undoing.op != nil || x.toldOf():
			if err := x.learn(); err != nil {
				return err
			}
		case x.mustUndo():
			if err := x.beginUndoing(); err != nil {
				return err
			}
		default:
			if done, err := x.finish(); done || err != nil {
				return err
			}
		}
	}
}

// toldOf says that a person has told something that the run has not learnt. It does
// before it gives up what is under way: that may have completed.
func (x *execution) toldOf() bool { return len(x.hold.Workflow.Verbs) > 0 }

// nextEvent is the next durable event that was not delivered.
func (x *execution) nextEvent() (logged, bool, error) {
	for x.log.len() == 0 && x.history != nil {
		x.ops.late = nil // as it was when this was learnt
		c, err, ok := x.history()
		switch {
		case x.ctx.Err() != nil:
			return logged{}, false, context.Cause(x.ctx)
		case !ok:
			x.replayed()
		case err != nil:
			return logged{}, false, err
		default:
			x.record(c, true)
			if c.Number == x.hold.Head {
				x.replayed()
			}
		}
	}
	if x.log.len() == 0 {
		x.ops.late = nil
		return logged{}, false, nil
	}
	e := x.log.take()
	x.ops.learnt = e.place
	x.noteReplay()
	return e, true, nil
}

// delivering says that there are durable events that were not delivered.
func (x *execution) delivering() bool { return x.log.len() > 0 || x.history != nil }

// replayed ends the reading of the history.
func (x *execution) replayed() {
	if x.endHistory != nil {
		x.endHistory()
		x.replayTook = time.Since(x.replayBegan)
	}
	x.history, x.endHistory = nil, nil
}

// record queues the events of a durable checkpoint for delivery.
func (x *execution) record(c checkpoint.Checkpoint, old bool) {
	for i, e := range c.Events {
		x.log.put(logged{e, c.Time, old, checkpoint.Place{Checkpoint: c.Number, Event: i}})
	}
}

// noteReplay notes whether what user code does next, it did before.
func (x *execution) noteReplay() {
	x.replaying.Store(x.history != nil || x.log.len() > 0 && x.log.first().old)
}

// deliver shows an event to the run.
func (x *execution) deliver(e logged) error {
	switch e.Kind {
	case checkpoint.Claimed:
		if x.claims++; x.claims > 1 && e.Why != checkpoint.HandedOver {
			x.ops.lost(e.at)
		}
	case checkpoint.Asked:
		x.now = e.at
		x.asked = true
		x.cancelled = &Cancellation{e.Why, e.at}
		for o := range x.ops.all() {
			o.consider()
		}
		x.end(&x.root, ErrCancelled)
	case checkpoint.GivenUp:
		if o := x.ops.byID[e.Operation]; o != nil && o.keyed == nil && o.call != nil && !o.due.After(e.at) {
			o.lost++ // the run was retried
		}
	case checkpoint.Compensating:
		return x.undoAll(e)
	case checkpoint.Acted:
		x.acted(e)
	case checkpoint.Started, checkpoint.Dispatched, checkpoint.Attempted, checkpoint.Settled, checkpoint.Fired, checkpoint.Received, checkpoint.Missed:
		o, late := x.ops.find(e.Operation)
		if o == nil {
			asked := "not asked for"
			if x.result != nil {
				asked += ": the function has ended"
			}
			return &NonDeterminismError{x.id, e.Operation, describe(e.Of, e.Name), asked}
		}
		if err := o.compare(e); err != nil {
			return err
		}
		if e.Kind == checkpoint.Dispatched {
			return o.dispatched(e)
		}
		x.completes(o, e)
		if e.Kind == checkpoint.Started {
			o.child.begun = true
			if late {
				x.dismiss(o)
			}
			if o.of == ofChild {
				return nil
			}
		}
		if late && e.Kind != checkpoint.Fired { // who wants it again finds that it has
			return nil
		}
		switch {
		case e.Kind == checkpoint.Attempted:
			o.failed(e)
			return nil
		case x.takesBack(e):
			o.retried(e)
			return nil
		}
		x.now = e.at
		o.found = nil // if there was one, this is it
		o.settle(o.outcomeOf(e))
		if o.undo != nil {
			x.undoNext()
		}
	}
	return nil
}

// finish makes the end of the function durable. It is not done if there is something
// to be learnt first.
func (x *execution) finish() (done bool, err error) {
	for {
		for o := range x.ops.all() {
			if o.keyed != nil && o.keyed.sent {
				o.abandon()
			}
		}
		if err := errors.Join(x.reread(), x.dismissals()); err != nil {
			return false, err
		}
		out := x.ending()
		wf := *x.hold.Workflow
		if err := wf.Status.To(out.Status); err != nil {
			return false, err
		}
		wf.Status, wf.EndedAt, wf.Attention = out.Status, checkpoint.Micro(x.eng.now()), nil
		wf.Compensated = x.undoing.status != ""
		if out.Status == checkpoint.Failed {
			quiet := x.ops.quiet
			wf.Quiet = &quiet
		}
		put, err := checkpoint.PutOutput(x.id, out)
		if err != nil {
			return false, err
		}
		change, err := x.leftOver()
		if err != nil {
			return false, err
		}
		change.Events = append(change.Events, checkpoint.Event{Kind: checkpoint.Ended, Name: string(out.Status), Error: out.Error})
		change.Ops = append(change.Ops, put, storage.Delete(keys.Held(wf.Owner, wf.ID)))
		change.Workflow = &wf
		parent, err := x.report(&change, out)
		if err != nil {
			return false, err
		}
		done, err = x.commit(change)
		if parent != nil {
			x.eng.hint(parent, written{children: true}) // also if the outcome is unknown
		}
		if err != nil {
			return false, err
		}
		if done {
			x.output = out
			return true, nil
		}
		if x.toldOf() {
			x.ops.takeUp()
			return false, nil
		}
	}
}

// leftOver tells what was under way when the function returned, and is given up.
func (x *execution) leftOver() (c checkpoint.Change, err error) {
	c.Events = x.ops.givenUp()
	for _, o := range x.ops.pending {
		if len(c.Events) == mostEvents {
			break
		}
		if s, e := x.recorded(o, x.time()); s != nil && o.keyed.abandoned {
			c.Events = append(c.Events, e)
			if err := s.seal(&c); err != nil {
				return c, err
			}
		}
	}
	return c, nil
}

// givenUp are the events that operations are given up of which nothing else is
// recorded.
func (t *table) givenUp() (events []checkpoint.Event) {
	for o := range t.all() {
		if len(events) == mostEvents {
			break
		}
		if !o.passive() && (o.keyed == nil || !o.keyed.sent) {
			events = append(events, checkpoint.Event{Kind: checkpoint.GivenUp, Operation: o.id, Of: o.of, Name: o.name})
		}
	}
	return events
}

// attend makes it durable that the run needs a person. It stays its owner's, so
// that nobody drives it in circles; the next engine tries it again.
func (x *execution) attend(reason Reason, operation, name string, cause error) {
	x.eng.log.Error("weft: run is held", "workflow", x.id, "type", x.def.name, "reason", string(reason), "error", cause)
	detail := fail(cause, "", nil).message
	for {
		wf := *x.hold.Workflow
		wf.Attention = []checkpoint.Attention{{
			Reason:    string(reason),
			Operation: operation,
			Name:      name,
			Detail:    detail,
			Since:     checkpoint.Micro(x.eng.now()),
		}}
		if reason != NoProgress {
			wf.Deaths, wf.Alone = 0, 0 // it came to this, and the process lives
		}
		event := checkpoint.Event{Kind: checkpoint.Held, Operation: operation, Name: string(reason), Error: detail}
		done, err := x.commit(checkpoint.Change{Events: []checkpoint.Event{event}, Workflow: &wf})
		if err != nil {
			if x.ctx.Err() != nil {
				return // the next owner will find out for itself
			}
			x.eng.log.Error("weft: run is held, and this could not be recorded", "workflow", x.id, "error", err)
			return
		}
		if done {
			return
		}
	}
}

// commit appends a checkpoint. If it is done its events wait for delivery; if
// not, the run was refreshed, and its caller decides anew. An error ends the
// execution: what is in memory may be trusted no longer.
func (x *execution) commit(c checkpoint.Change) (done bool, err error) {
	w, err := x.hold.AppendAt(c, x.eng.read())
	if err != nil {
		return false, err
	}
	verdict, err := checkpoint.Commit(x.ctx, x.store, w, x.unsure)
	if verdict == checkpoint.Refused && len(c.If) > 0 {
		x.ops.outdateAll()
		x.forgetSignals()
		x.childrenStale = true
		return false, nil // a child has ended, or its id is taken; a parent's or an operation's record has changed; a signal was cleared
	}
	return x.judged(w, verdict, err)
}

// judged takes in what became of a write. See commit.
func (x *execution) judged(w *checkpoint.Write, verdict checkpoint.Verdict, err error) (done bool, _ error) {
	switch verdict {
	case checkpoint.Done:
		x.hold = w.Hold()
		x.head.Store(x.hold.Head)
		x.record(w.Checkpoint, false)
		x.stays = false
		if x.probation != nil && x.hold.Workflow.Deaths == 0 {
			x.endProbation()
		}
		return true, nil
	case checkpoint.Refreshed:
		return false, x.refresh()
	case checkpoint.Fenced:
		x.life.fenced(x.id)
		x.life.raise(x.hold) // or the store went back to before the claim
		x.eng.log.Warn("weft: run was taken over or ended by somebody else", "workflow", x.id)
	case checkpoint.Rewound:
		x.eng.log.Error("weft: the store has lost acknowledged checkpoints; the run goes on from what is left", "workflow", x.id, "checkpoint", x.hold.Head)
		x.life.rewound(x.id, x.hold)
	case checkpoint.Overtaken, checkpoint.Refused:
		x.eng.log.Error("weft: defect: checkpoint refused under an own claim; the run is put down", "workflow", x.id, "checkpoint", w.Checkpoint.Number, "verdict", verdict)
	default:
		if x.ctx.Err() == nil {
			x.eng.log.Error("weft: commit is beyond hope; the run is put down", "workflow", x.id, "error", err)
		}
	}
	x.cancel(fmt.Errorf("engine: run put down: commit was %s", verdict))
	return false, context.Cause(x.ctx)
}

// outdated judges an error of reading what belongs to the run, such as a signal that
// was in the inbox: if the run's record has changed since, what is known of the run is
// read anew, and the error is nil.
func (x *execution) outdated(cause error) error {
	if !errors.Is(cause, storage.ErrCorrupt) {
		return cause
	}
	was := x.hold.Workflow.Raw()
	if err := x.refresh(); err != nil {
		return err
	}
	if bytes.Equal(was, x.hold.Workflow.Raw()) {
		return cause
	}
	return nil
}

// refresh reads the workflow record after somebody else changed its state.
func (x *execution) refresh() error {
	wf, err := checkpoint.Load(x.ctx, x.store, x.id)
	if err != nil {
		return err
	}
	was := x.hold.Workflow
	if !wf.SameOwnership(was) {
		x.life.fenced(x.id)
		x.cancel(errors.New("engine: run was taken over"))
		return context.Cause(x.ctx)
	}
	x.hold = x.hold.With(wf)
	if x.blocked != nil && x.blocked.again {
		x.blocked = nil
	}
	x.forgetSignals()
	x.ops.outdateAll()
	return nil
}
