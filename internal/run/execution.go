package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/fifo"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/limits"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// An Execution is a run in memory: its branches, which take turns, and its driver,
// the goroutine that has the turn when no branch has it.
//
// The driver alternates between two things. It lets the runnable branches run, one at a time, until all of them wait in the
// engine. Then it delivers one event. An event is durable before it is delivered. A replay delivers the recorded events in
// their order, and so repeats the run exactly.
type Execution struct {
	host       *Host
	Owner      Owner
	Definition *Definition
	ID         string
	Generation string

	store  storage.Storage // the host's, with retries of reads
	unsure func(error)     // reports a commit whose outcome is unknown
	Ctx    context.Context // ends when the run must be released, no later than Owner.Context
	Cancel context.CancelCauseFunc

	Recovering bool // there is a history to replay
	Input      payload.Payload
	Output     *journal.Output // set when the end of the run is durable
	Ending     atomic.Bool     // its end may be durable
	Lingers    atomic.Bool     // so it may, and attempts have not returned
	Head       atomic.Uint64   // the number of the last checkpoint
	attempts   sync.WaitGroup  // attempts that have not returned
	replaying  atomic.Bool     // user code repeats what it did before
	BusySince  atomic.Int64    // when user code got its turn, in ns since 1970; 0: no branch has the turn
	Stuck      atomic.Bool     // it was reported that user code does not return to the engine
	Told       bool            // its waiters were notified; guarded by worker.Worker.mu
	visitor    limits.Visitor  // waits at the gate for a free place for an attempt

	mailbox mailbox // messages from other goroutines
	Address Address // the last sender's view of the run; owned by the sender that commits for the others

	// The fields below belong to whoever has the turn.
	turns
	telling
	Hold          *journal.Hold
	Past          *journal.Past                               // the history, if the claim read all of it; otherwise nil
	history       func() (checkpoint.Checkpoint, error, bool) // next checkpoint to read; nil: none is left to replay
	ahead         lookahead
	endHistory    func()
	replayBegan   time.Time
	replayTook    time.Duration
	log           fifo.Queue[logged] // durable events that are not yet delivered
	now           time.Time          // time of the event delivered last
	claims        int                // number of claims seen in the history
	began         time.Time          // when this execution began, by the monotonic clock
	begunAt       time.Time          // when this execution began, in the run's time
	cancelled     *weft.Cancellation // the delivered cancellation request
	asked         bool               // the cancellation request was delivered
	root          scope              // scope of the function's Run
	Ops           table
	Inbox         inbox
	decision      decision            // the last one, whose space the next one uses
	transacted    bool                // the last round has run a transaction; all else has its turn
	makesRoom     bool                // an event needs what the branches do now
	delivery      *Delivery           // a signal to accept and receive in one commit
	recordStale   bool                // the workflow record may have changed
	childrenStale bool                // children may have ended
	dismissed     []*journal.Workflow // children to cancel
	left          map[string]string   // children whose start a replay has passed over: the operation of each, by its id
	beyond        numbers             // of what a replay has passed over
	strays        map[string]*stray   // those of them that were not taken up, by operation
	jobs          []*job              // prepared attempts that are not yet started
	unwatch       func() bool         // stops the callback that replaces the driver when ctx ends
	places        int                 // places of MaxActivities that were reserved for queued attempts
	refused       bool                // no place was free in this round
	stopping      bool                // start nothing new
	orphanRecords []storage.Op        // deletions of records of children whose operation has its outcome
	hooks         hooks               // of the run
	streams       streams             // likewise
	riders        riders              // what the function has asked for that is no operation
	updates       updates             // that were asked for, and that it executes
	undoing       undoing             // compensation, if the run ends without success
	delivered     int                 // events of this life up to the one delivered last
	undelivered   int                 // events of the first checkpoint, if they are not delivered
	toldLength    bool                // it was logged that the history is long
	stored        []span              // the checkpoints of this life
	remains       remains             // of earlier lives
	archive       archiving           // of this life, before the run continues as new
	lives         *lives              // nil: the run has not continued as new
	atRest        time.Time           // since when it is idle; zero: it is not
	stays         bool                // do not park before the next checkpoint
	Probation     *Probation          // set if the run has deaths that are not reset
	blocked       *fault              // hold the run when its attempts have returned; nil: nothing is wrong
	Changed       []string            // operations whose input differs from the one in the history
}

// A logged event is durable and waits to be delivered.
type logged struct {
	checkpoint.Event
	at    time.Time
	old   bool // read from the history, not recorded by this execution
	place journal.Place
}

// New returns an execution of the run that hold owns.
func New(h *Host, o Owner, def *Definition, hold *journal.Hold) *Execution {
	x := &Execution{
		host:          h,
		Owner:         o,
		Definition:    def,
		store:         reads.Retrying{Storage: h.Store, Log: h.Log, ID: hold.Workflow.ID},
		unsure:        o.Unsure("checkpoint", hold.Workflow.ID),
		ID:            hold.Workflow.ID,
		Generation:    hold.Workflow.Generation,
		Hold:          hold.From(time.Now()),
		childrenStale: true,
		now:           hold.Workflow.Began(),
		began:         time.Now(),
		begunAt:       hold.Now(h.Read()),
	}
	x.updates.stale, x.updates.count = true, hold.Workflow.Updates
	x.Head.Store(hold.Head)
	if hold.Head > 0 && hold.Head == hold.Workflow.Base {
		x.undelivered = hold.Events
		x.noteStored(hold.Head)
	}
	x.Ctx, x.Cancel = context.WithCancelCause(o.Context())
	x.within = x.Ctx
	x.mailbox.bell = make(chan struct{}, 1)
	x.visitor.For = x
	x.turns.init(x)
	return x
}

// time returns the current time of the run's clock, which decides what is due. See journal.Hold.Now.
func (x *Execution) time() time.Time { return x.Hold.Now(x.host.Read()) }

// until returns how long it is until due, a time of the run's clock.
func (x *Execution) until(due time.Time) time.Duration {
	x.Owner.NoteTime()
	return x.Hold.In(due.Sub(x.time()))
}

// wall converts due, a time of the run's clock, to wall clock time. The wall clock shows now.
func (x *Execution) wall(due, now time.Time) time.Time {
	if x.time().Sub(now) > time.Millisecond {
		return now.Add(x.until(due))
	}
	return due
}

// Ended returns how the run ended, or nil if it was only released.
func (x *Execution) Ended() *Ending {
	if x.Output == nil {
		return nil
	}
	return &Ending{x.Definition.Name, x.Hold.Workflow.Cancel, x.Output}
}

var (
	errHeld = errors.New("engine: run is held")                                           // ends an execution
	errOver = fmt.Errorf("%w: nobody waits for this attempt any more", weft.ErrCancelled) // ends an attempt of a life that is over
)

// Drive executes the run from its beginning until it ends, is released or is held.
func (x *Execution) Drive() error {
	if err := x.prepare(); err != nil {
		return err
	}
	x.announce()
	x.startFunction()
	return x.loop()
}

// WindUp cleans up after the loop has ended with err, and holds the run if err requires it.
func (x *Execution) WindUp(err error) {
	x.unwind(err)
	var n *weft.NonDeterminismError
	f, faulty := err.(*fault)
	switch {
	case err == nil, err == errHeld, err == errStopped, err == errParked, x.Ctx.Err() != nil:
	case faulty:
		x.attend(f.reason, f.operation, f.name, f.cause)
	case errors.As(err, &n):
		x.attend(weft.ReasonNonDeterminism, n.Operation, "", err)
	case record.Damaged(err):
		if e := x.refresh(true); e != nil && x.Ctx.Err() != nil {
			break // it has another owner, or has ended and was purged
		}
		x.attend(weft.ReasonDamaged, "", "", err)
	default:
		x.logger().Error("weft: run released because of an error that is not expected", "error", err)
	}
	x.replayed()
	if x.unwatch != nil {
		x.unwatch()
	}
	x.leave(err)
	x.Cancel(nil)
}

// prepare loads the input and the history of a run that was claimed rather than just started.
func (x *Execution) prepare() error {
	if x.Probation.mustHold(x.Hold.Workflow) {
		x.attend(weft.ReasonNoProgress, "", "", fmt.Errorf("the process died %d times in a row while it executed this run, also while it was the only suspect", x.Hold.Workflow.Deaths))
		return errHeld
	}
	if !x.Recovering {
		return nil
	}
	wf := x.Hold.Workflow
	var in *journal.Input
	var err error
	var next func() (checkpoint.Checkpoint, error, bool)
	stop := func() {}
	if x.Past != nil {
		in, err = x.Past.Input(wf)
		next = x.Past.Reader(wf)
		x.Past = nil
	} else {
		in, err = journal.ReadInput(x.Ctx, x.store, wf)
	}
	if err != nil {
		return err
	}
	x.Input, x.headers = payload.Payload{Codec: in.Codec, Data: in.Data}, in.Headers
	if x.Hold.Head == wf.Base {
		return nil // never executed before: nothing to replay
	}
	if next == nil {
		next, stop = iter.Pull2(journal.History(x.Ctx, x.store, wf))
	}
	x.history, x.endHistory = next, stop
	x.replayBegan = time.Now()
	x.lookAhead()
	x.noteReplay()
	return nil
}

// loop alternates between running branches and delivering events.
func (x *Execution) loop() error {
	for {
		if err := x.runBranches(); err != nil {
			return err
		}
		event, ok, err := x.nextEvent()
		switch {
		case err != nil:
			return err
		case ok:
			if err := x.deliverEvent(event); err != nil {
				return err
			}
		case !x.fit():
			if err := x.storeFirst(); err != nil {
				return err
			}
		case x.result == nil || x.awaits() || x.undoing.op != nil || x.toldOf() || len(x.updates.open) > 0:
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

// toldOf reports whether an operator's action is not yet recorded in the history. The run records it before it
// gives up unfinished operations, because it may say that one has completed.
func (x *Execution) toldOf() bool { return len(x.Hold.Workflow.Verbs) > 0 }

// nextEvent returns the next durable event that was not delivered.
func (x *Execution) nextEvent() (logged, bool, error) {
	for {
		for x.log.Len() == 0 && x.history != nil {
			x.Ops.late = nil // as it was when this checkpoint was recorded
			if err := x.readHistory(); err != nil {
				return logged{}, false, err
			}
		}
		if x.log.Len() == 0 {
			x.Ops.late, x.Ops.started = nil, nil
			return logged{}, false, nil
		}
		e := x.log.Take()
		x.atRest = time.Time{}
		x.noteReplay()
		if n := x.coveredBy(e); n > 0 {
			x.passOver(e, n)
			continue
		}
		return e, true, nil
	}
}

// readHistory reads the next checkpoint of the history, and queues its events. The last one is Hold.Head.
func (x *Execution) readHistory() error {
	next := x.takePast()
	c, err, ok := next.Checkpoint, next.err, next.ok
	switch {
	case x.Ctx.Err() != nil:
		return context.Cause(x.Ctx)
	case !ok && x.Hold.Head > 0:
		return fmt.Errorf("%w: checkpoint %d of %q is missing", storage.ErrCorrupt, x.Hold.Head, x.ID)
	case !ok:
		x.caughtUp()
		return nil
	case err != nil:
		return err
	}
	if err := x.understands(c); err != nil {
		return err
	}
	x.record(c, true)
	if x.stands(c) {
		x.riders.stored(c.Events)
	}
	x.goBack(c)
	x.replayEvents += len(c.Events)
	if c.Number == x.Hold.Head {
		x.caughtUp()
	}
	return nil
}

// understands returns an error that wraps storage.ErrFutureFormat if c has an event, or is about an operation, of a kind
// that this release does not know. To pass over it would be to execute another history than the one that is recorded.
func (x *Execution) understands(c checkpoint.Checkpoint) error {
	for _, e := range c.Events {
		what := ""
		switch e.Kind {
		case checkpoint.KindClaimed, checkpoint.KindSkipped, checkpoint.KindDispatched, checkpoint.KindNoted,
			checkpoint.KindStarted, checkpoint.KindAttempted, checkpoint.KindSettled, checkpoint.KindFired,
			checkpoint.KindReceived, checkpoint.KindMissed, checkpoint.KindAsked, checkpoint.KindActed,
			checkpoint.KindHeld, checkpoint.KindSurvived, checkpoint.KindGivenUp, checkpoint.KindParked, checkpoint.KindVersioned,
			checkpoint.KindCameBack, checkpoint.KindEnded, checkpoint.KindCompensating, checkpoint.KindContinued,
			checkpoint.KindAccepted, checkpoint.KindAnswered, checkpoint.KindOpened, checkpoint.KindDisposed, checkpoint.KindClosed:
			if e.Of == "" || kinds[e.Of] {
				continue
			}
			what = fmt.Sprintf("operation %s of kind %q", e.Operation, e.Of)
		default:
			what = fmt.Sprintf("event of kind %q", e.Kind)
		}
		return fmt.Errorf("%w: checkpoint %d of workflow %q has an %s, which only a newer release knows", storage.ErrFutureFormat, c.Number, x.ID, what)
	}
	return nil
}

// delivering reports whether there are durable events that were not delivered.
func (x *Execution) delivering() bool { return x.log.Len() > 0 || x.history != nil }

// replayed stops reading the history. Otherwise it writes nothing: a function in a transaction that was
// left behind may read x.
func (x *Execution) replayed() {
	if x.endHistory == nil {
		return
	}
	x.endHistory()
	x.replayTook = time.Since(x.replayBegan)
	x.history, x.endHistory, x.ahead = nil, nil, lookahead{}
}

// record queues the events of a durable checkpoint for delivery.
func (x *Execution) record(c checkpoint.Checkpoint, old bool) {
	x.noteStored(c.Number)
	for i, e := range c.Events {
		x.log.Put(logged{e, c.Time, old, journal.Place{Checkpoint: c.Number, Event: i}})
	}
}

// noteReplay records whether user code will next repeat what it did before.
func (x *Execution) noteReplay() {
	x.replaying.Store(x.history != nil || x.log.Len() > 0 && x.log.First().old)
}

// deliverEvent applies an event to the run.
func (x *Execution) deliverEvent(e logged) error {
	if isOutcome(e.Kind) {
		return x.deliverOutcome(e)
	}
	x.learnt(e)
	switch e.Kind {
	case checkpoint.KindClaimed:
		if x.claims++; x.claims > 1 && e.Why != checkpoint.HandedOver {
			x.Ops.ownerLost(e.at, 0)
		}
	case checkpoint.KindAsked:
		x.now = e.at
		x.asked = true
		x.cancelled = &weft.Cancellation{By: e.By, Reason: e.Why, At: e.at}
		for o := range x.Ops.all() {
			o.consider()
		}
		x.end(&x.root, weft.ErrCancelled)
	case checkpoint.KindGivenUp:
		if o := x.Ops.byID[e.Operation]; o != nil && o.keyed == nil && o.call != nil && !o.due.After(e.at) {
			o.ownersLost++ // the run was retried
		}
	case checkpoint.KindCompensating:
		return x.undoAll(e)
	case checkpoint.KindActed:
		x.acted(e)
	case checkpoint.KindHeld:
		x.logFailure(x.Ops.byID[e.Operation], e)
	case checkpoint.KindAccepted:
		return x.beginUpdate(e)
	case checkpoint.KindAnswered:
		x.updateAnswered(e)
	}
	return nil
}

// deliverOutcome applies an event about an operation that the function has started.
func (x *Execution) deliverOutcome(e logged) error {
	o, late := x.Ops.find(e.Operation)
	for o == nil && x.makeRoom(e.Operation) {
		x.makesRoom = true
		err := x.runBranches()
		x.makesRoom = false
		if err != nil {
			return err
		}
		o, late = x.Ops.find(e.Operation)
	}
	x.learnt(e)
	if n := x.differs(o, e); n != nil {
		return x.firstDifference(n)
	}
	o.compareInput(e)
	if e.Kind == checkpoint.KindDispatched {
		return o.dispatched(e)
	}
	x.completes(o, e)
	if e.Kind == checkpoint.KindStarted {
		o.child.begun = true
		delete(x.left, e.Child)
		if late {
			x.dismiss(o)
		}
		if o.kind == ofChild {
			return nil
		}
	}
	if late && e.Kind == checkpoint.KindOpened {
		x.hooks.unclaimed(e.Operation)
	}
	if late && e.Kind != checkpoint.KindFired { // a timer that is waited for again must have fired
		return nil
	}
	switch {
	case e.Kind == checkpoint.KindAttempted:
		o.failed(e)
		x.logFailure(o, e)
		x.tellRetry(o, e)
		return nil
	case x.takesBack(e):
		o.retried(e)
		return nil
	}
	x.now = e.at
	o.found = nil // the signal that was found, if any, is the one in this event
	o.settle(o.outcomeOf(e))
	x.logFailure(o, e)
	x.tellReceived(o, e)
	if o.undo != nil {
		x.undoNext()
	}
	return nil
}

// finish records the end of the run, or that it continues as new. done is false if there is something to record first.
func (x *Execution) finish() (done bool, err error) {
	for {
		for o := range x.Ops.all() {
			o.forgo()
			if o.keyed != nil && o.keyed.sent {
				o.abandon()
			}
		}
		if done, err := x.recordChoices(); done || err != nil {
			return false, err
		}
		if err := errors.Join(x.reread(), x.dismissals(), x.stopStrays()); err != nil {
			return false, err
		}
		if x.continues() {
			if done, err := x.continueAsNew(); done || err != nil {
				return done, err
			}
			if x.toldOf() {
				x.Ops.takeUp()
				return false, nil
			}
			continue
		}
		out := x.ending()
		wf := *x.Hold.Workflow
		if err := wf.Status.To(out.Status); err != nil {
			return false, err
		}
		wf.Status, wf.EndedAt, wf.Attention = out.Status, journal.Micro(x.host.Now()), nil
		wf.Compensated = x.undoing.status != ""
		if out.Status == checkpoint.StatusFailed {
			quiet := x.Ops.quiet
			wf.Quiet = &quiet
		}
		put, err := journal.PutOutput(x.ID, out)
		if err != nil {
			return false, err
		}
		change, err := x.leftOver()
		if err != nil {
			return false, err
		}
		change.Events = append(change.Events, checkpoint.Event{Kind: checkpoint.KindEnded, Name: string(out.Status), Error: out.Error})
		change.Ops = append(change.Ops, put)
		change.Workflow = &wf
		parent, err := x.host.Report(x.Ctx, x.store, x.Hold.Workflow, &change, out)
		if err != nil {
			return false, err
		}
		x.Ending.Store(true) // others may see the end, and resume the run, before commit returns
		x.Lingers.Store(x.Ops.Working > 0)
		done, err = x.commit(change)
		if !done && err == nil {
			x.Ending.Store(false)
			x.Lingers.Store(false)
		}
		if parent != nil {
			x.host.Peers.Hint(parent, Written{Children: true}) // even if the outcome is unknown
		}
		if err != nil {
			return false, err
		}
		if done {
			x.Output = out
			x.logEnd(out)
			return true, nil
		}
		if x.toldOf() {
			x.Ops.takeUp()
			return false, nil
		}
	}
}

// leftOver returns the change that gives up the operations that were unfinished when the
// function returned, and frees the tokens of the run's hooks.
func (x *Execution) leftOver() (c journal.Change, err error) {
	if c.Ops, err = x.freeTokens(); err != nil {
		return c, err
	}
	c.Events = x.Ops.givenUp()
	for _, o := range x.Ops.pending {
		if len(c.Events) == mostEvents || x.room(&c) <= 0 {
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

// givenUp returns GivenUp events for the operations that are given up without a change to a record of their own.
func (t *table) givenUp() (events []checkpoint.Event) {
	for o := range t.all() {
		if len(events) == mostEvents {
			break
		}
		if !o.passive() && (o.keyed == nil || !o.keyed.sent) {
			events = append(events, checkpoint.Event{Kind: checkpoint.KindGivenUp, Operation: o.id, Of: o.kind.name, Name: o.name})
		}
	}
	return events
}

// attend records that the run is held. The run keeps its owner, so that no engine claims
// it again and again; the next incarnation tries to execute it again.
func (x *Execution) attend(reason weft.Reason, operation, name string, cause error) {
	if reason == weft.ReasonDamaged {
		x.logger().Error("weft: run is held because its data is damaged", "operation", operation, "name", name, "reason", string(reason), "error", cause)
	} else {
		x.logger().Warn("weft: run is held until somebody mends the cause", "operation", operation, "name", name, "reason", string(reason), "error", cause)
	}
	detail := payload.FailureOf(cause, "", nil).Message
	for {
		wf := *x.Hold.Workflow
		wf.Attention = []journal.Attention{{
			Reason:    string(reason),
			Operation: operation,
			Name:      name,
			Detail:    detail,
			Since:     journal.Micro(x.host.Now()),
		}}
		if reason != weft.ReasonNoProgress {
			wf.Deaths, wf.Alone = 0, 0 // it got this far, and the process did not die
		}
		ops := x.host.ReleaseHeld(&wf)
		event := checkpoint.Event{Kind: checkpoint.KindHeld, Operation: operation, Name: string(reason), Error: detail}
		done, err := x.commit(journal.Change{Events: []checkpoint.Event{event}, Workflow: &wf, Ops: ops})
		if err != nil {
			if x.Ctx.Err() != nil {
				return // the next owner finds the same fault
			}
			x.logger().Warn("weft: run is held, but this could not be recorded", "error", err)
			return
		}
		if done {
			if len(ops) > 0 {
				x.Owner.PokeNow() // its slot is free
			}
			return
		}
	}
}

// ReleaseHeld takes the slot from wf, which is about to be held, if its queue says so.
func (h *Host) ReleaseHeld(wf *journal.Workflow) []storage.Op {
	frees := func(q weft.Queue) bool { return q.Name == wf.Queue && q.ReleaseHeld }
	if wf.Slot == 0 || !slices.ContainsFunc(h.Served, frees) {
		return nil
	}
	free := storage.Delete(keys.Slot(wf.Queue, wf.Slot))
	wf.Slot = 0
	return []storage.Op{free}
}

// commit appends a checkpoint. If done is true, its events are queued for delivery. Otherwise the run was refreshed, and the
// caller must decide again. An error ends the execution: the state in memory is no longer reliable.
func (x *Execution) commit(c journal.Change) (done bool, err error) {
	w := journal.NewWrite()
	if err := x.appending(w, c); err != nil {
		return false, err
	}
	if done, err = x.committed(w, len(c.If) > 0); err == nil {
		w.Free()
	}
	return done, err
}

// committed commits w. conditional reports whether w has conditions beside those of the run itself. See commit.
func (x *Execution) committed(w *journal.Write, conditional bool) (done bool, err error) {
	verdict, err := journal.Commit(x.Ctx, x.store, w, x.unsure)
	if verdict == journal.Refused && conditional {
		x.Ops.outdateAll()
		x.forgetSignals()
		x.childrenStale = true
		return false, nil // a child has ended, or its id is taken; the record of a parent or an operation has changed; a signal was cleared
	}
	return x.judged(w, verdict, err)
}

// judged applies the outcome of a write. See commit.
func (x *Execution) judged(w *journal.Write, verdict journal.Verdict, err error) (done bool, _ error) {
	switch verdict {
	case journal.Done:
		x.Hold = w.Hold()
		x.Head.Store(x.Hold.Head)
		x.record(w.Entry.Checkpoint, false)
		values := len(x.riders.values.pending)
		if x.riders.stored(w.Entry.Events); len(x.riders.values.pending) < values {
			x.Owner.Stored(x.ID)
		}
		x.stays = false
		if x.Probation != nil && x.Hold.Workflow.Deaths == 0 {
			x.endProbation()
		}
		x.host.Changed(w.Before, w.After)
		return true, nil
	case journal.Refreshed:
		return false, x.refresh(true)
	case journal.Fenced:
		x.Owner.Raise(x.Hold) // the store may have been rewound to before the claim
		x.Owner.Fenced(x.ID)
		wf, e := journal.Load(x.Ctx, x.host.Store, x.ID)
		if e != nil { // purged, or nobody knows
			wf = nil
		}
		x.lose(wf)
		return false, context.Cause(x.Ctx)
	case journal.Rewound:
		x.logger().Error("weft: the store has lost acknowledged checkpoints; the run continues from those that are left", "checkpoint", x.Hold.Head)
		x.Owner.Rewound(x.ID, x.Hold)
	case journal.Overtaken, journal.Refused:
		x.logger().Error("weft: defect: checkpoint refused although the claim is valid; run released", "checkpoint", w.Entry.Number, "verdict", verdict)
	default:
		if x.Ctx.Err() == nil {
			x.logger().Error("weft: commit failed permanently; run released", "error", err)
		}
	}
	x.Cancel(fmt.Errorf("engine: run released: commit was %s", verdict))
	return false, context.Cause(x.Ctx)
}

// outdated handles an error from reading data of the run, such as a signal in the inbox. It returns nil if the workflow
// record has changed since it was read: the data may have been removed on purpose, and the run has been refreshed.
func (x *Execution) outdated(cause error) error {
	if !errors.Is(cause, storage.ErrCorrupt) {
		return cause
	}
	was := x.Hold.Workflow.Raw()
	if err := x.refresh(true); err != nil {
		return err
	}
	if bytes.Equal(was, x.Hold.Workflow.Raw()) {
		return cause
	}
	return nil
}

// refresh reads the workflow record again after another writer may have changed it. If it has not changed, it forgets
// what it knows of signals and operations only if anyway: who does not only add to these changes the record, too.
func (x *Execution) refresh(anyway bool) error {
	wf, err := journal.Load(x.Ctx, x.store, x.ID)
	if err != nil {
		return err
	}
	was := x.Hold.Workflow
	if !anyway && x.blocked == nil && bytes.Equal(wf.Raw(), was.Raw()) {
		return nil
	}
	if !wf.SameOwnership(was) {
		x.Owner.Fenced(x.ID)
		x.lose(wf)
		return context.Cause(x.Ctx)
	}
	if err := wf.Understood(); err != nil {
		x.logger().Warn("weft: run released, because a newer release has used something in it", "error", err)
		x.Cancel(err)
		return context.Cause(x.Ctx)
	}
	x.Hold = x.Hold.With(wf)
	if x.blocked != nil && x.blocked.again {
		x.blocked = nil
	}
	x.forgetSignals()
	x.updates.stale = true
	x.Ops.outdateAll()
	return nil
}

// lose ends the execution, because the run has another owner, or has ended. wf is its record now, or nil.
func (x *Execution) lose(wf *journal.Workflow) {
	if wf.TerminatedUnder(x.Hold.Workflow) {
		x.logger().Info("weft: run was terminated")
		x.Cancel(activity.ErrTerminated)
		return
	}
	if wf != nil && wf.Owner == x.Owner.Name() {
		x.Owner.Doubt(x.ID) // nobody else would execute it
	}
	x.logger().Warn("weft: run was taken over, or ended elsewhere")
	x.Cancel(ErrTakenOver)
}

// DescribeWaiting asks the driver what the run waits for. It returns nil if the driver is busy for longer than patience.
func (x *Execution) DescribeWaiting(ctx context.Context, patience time.Duration) []string {
	answer := make(chan []string, 1)
	x.Post(waitsFor{answer})
	busy := time.NewTimer(patience)
	defer busy.Stop()
	select {
	case words := <-answer:
		return words
	case <-busy.C:
	case <-x.Ctx.Done():
	case <-ctx.Done():
	}
	return nil
}

// An Ending is how a workflow ended.
type Ending struct {
	Workflow string
	Cancel   *journal.Request // the request to cancel it, or nil
	*journal.Output
}
