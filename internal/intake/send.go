package intake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/internal/worker"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// An Intake takes in what comes from outside of any run: starts and signals.
type Intake struct {
	*worker.Worker
	sends sends // in progress
}

// SendSignal is Engine.SendSignal.
func (e *Intake) SendSignal(ctx context.Context, m signal.Message) (signal.Accepted, error) {
	if m.Token != nil {
		call := waiting.New(ctx, "resume of hook", m.Name)
		a, err := e.resume(call, m)
		return a, call.Explain(err)
	}
	id := m.WorkflowID
	if r, ok := m.Start.(*weft.StartRequest); ok && r != nil {
		id = r.ID
	}
	call := waiting.New(ctx, "signal "+waiting.Quoted(m.Name)+" to workflow", id)
	a, err := e.sendSignal(call, m)
	return a, call.Explain(err)
}

func (e *Intake) sendSignal(ctx context.Context, m signal.Message) (signal.Accepted, error) {
	if m.Start != nil {
		return e.sendWithStart(ctx, m)
	}
	in, err := e.FromOutside(ctx, m)
	if err != nil {
		return signal.Accepted{}, err
	}
	return e.Send(ctx, in)
}

// Send sends a signal that was checked and encoded.
func (e *Intake) Send(ctx context.Context, in *acceptance.Incoming) (signal.Accepted, error) {
	if err := e.Refused(); err != nil {
		return signal.Accepted{}, err
	}
	if err := ctx.Err(); err != nil {
		return signal.Accepted{}, err
	}
	a, err := e.deliverSignal(ctx, in)
	e.tellAccepted(a, err)
	return a, err
}

// tellAccepted says how a send ended.
func (e *Intake) tellAccepted(a signal.Accepted, err error) {
	if f := e.Events.SignalAccepted; f != nil && err == nil {
		f(weft.SignalAcceptedEvent{WorkflowID: a.WorkflowID, Signal: a.SignalName, SignalID: a.SignalID, Duplicate: a.Repeated})
	}
}

// sendWithStart starts a workflow with its first signal in one commit, or sends the signal
// to the workflow that has the id. See signal.Signal.SendWithStart.
func (e *Intake) sendWithStart(ctx context.Context, m signal.Message) (a signal.Accepted, err error) {
	defer func() { e.tellAccepted(a, err) }()
	r, ok := m.Start.(*weft.StartRequest)
	if !ok || r == nil || m.WorkflowID != "" {
		return signal.Accepted{}, fmt.Errorf("%w: signal %s: Start must be a *StartRequest, and WorkflowID empty", weft.ErrInvalid, m.Name)
	}
	s, err := e.prepareCall(ctx, r)
	if err != nil {
		return signal.Accepted{}, err
	}
	m.WorkflowID = s.Workflow.ID
	if s.first, err = e.FromOutside(ctx, m); err != nil {
		return signal.Accepted{}, err
	}
	s.Signalled = true
	for range settle.MostTries {
		_, err := s.start(ctx)
		if err != nil || s.accepted.Accepted {
			return s.accepted, err
		}
		a, err := e.deliverSignal(ctx, s.first)
		if !errors.Is(err, weft.ErrNotFound) { // ErrNotFound: it was purged meanwhile
			return a, err
		}
	}
	return signal.Accepted{}, settle.Contradiction(keys.Workflow(s.Workflow.ID))
}

// sends has the sends in progress, in a line for each workflow. The first send of a line
// is its leader: it commits itself and those behind it in one batch, while further sends
// join the line. So concurrent sends share a commit and do not conflict.
type sends struct {
	mu    lock.Mutex
	lines map[string][]*sending // a line exists while it has a leader
}

// A sending is one send in progress.
type sending struct {
	in   *acceptance.Incoming
	turn chan struct{} // notifies it that it is answered, or is the leader now

	// Owned by the leader of the line.
	look    bool        // it may have been accepted: check first
	tried   []time.Time // of each commit of unknown outcome: the time of the acceptance that it was to write
	handed  []*run.Delivery
	refused run.Address
	times   int // how often it was refused on the address refused

	// Guarded by sends.mu.
	answered, left bool
	trouble        error // of the last commit that included it, or that it waited for
	answer         signal.Accepted
	err            error
}

// deliverSignal sends in, as the leader of its line or behind the leader.
func (e *Intake) deliverSignal(ctx context.Context, in *acceptance.Incoming) (signal.Accepted, error) {
	s := &sending{in: in, turn: make(chan struct{}, 1)}
	if !e.sends.join(s) {
		select {
		case <-s.turn:
		case <-ctx.Done():
			if answered, sent := e.sends.withdraw(s); !answered {
				waiting.LeftTo(ctx, sent, s.trouble)
				if sent {
					e.MayArrive(in.WorkflowID)
				}
				return signal.Accepted{}, undecided(in, ctx.Err())
			}
		}
		waiting.LeftTo(ctx, s.look, s.trouble)
	}
	if !s.answered {
		e.lead(ctx, s)
	}
	if s.err != nil && s.look {
		e.MayArrive(in.WorkflowID)
	}
	return s.answer, s.err
}

// undecided returns the error of a send if it is unknown whether the signal was accepted.
func undecided(in *acceptance.Incoming, cause error) error {
	return fmt.Errorf("engine: signal %q: %w", in.WorkflowID, cause)
}

// join adds s to its line, and reports whether it is the leader.
func (l *sends) join(s *sending) (leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line, led := l.lines[s.in.WorkflowID]
	if !led {
		if l.lines == nil {
			l.lines = map[string][]*sending{}
		}
		l.lines[s.in.WorkflowID] = nil
		return true
	}
	l.lines[s.in.WorkflowID] = append(line, s)
	return false
}

// withdraw removes s from its line, because its sender does not wait any longer. It reports
// whether s was answered just now, and whether a commit with s was tried or may be.
func (l *sends) withdraw(s *sending) (answered, sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := s.in.WorkflowID
	if i := slices.Index(l.lines[id], s); i >= 0 {
		l.lines[id] = slices.Delete(l.lines[id], i, i+1)
		return false, s.look
	}
	s.left = true
	if len(s.turn) == 0 {
		return false, true // it is in a batch of the leader
	}
	if !s.answered {
		l.next(id) // it was to become the leader
	}
	return s.answered, s.look
}

// next makes the first of a line its leader.
func (l *sends) next(id string) {
	line := l.lines[id]
	if len(line) == 0 {
		delete(l.lines, id)
		return
	}
	l.lines[id] = line[1:]
	line[0].turn <- struct{}{}
}

// gather adds to batch the sends that have joined the line, up to the limits of one
// commit.
func (l *sends) gather(id string, batch []*sending, ops, bytes int) []*sending {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range batch {
		ops, bytes = ops-s.ops(), bytes-len(s.in.Data)
	}
	line := l.lines[id]
	for len(line) > 0 && len(batch) < mostSends && line[0].ops() <= ops && len(line[0].in.Data) <= bytes {
		ops, bytes = ops-line[0].ops(), bytes-len(line[0].in.Data)
		batch, line = append(batch, line[0]), line[1:]
	}
	l.lines[id] = line
	return batch
}

// settle answers s.
func (l *sends) settle(s *sending, a signal.Accepted, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.answered, s.answer, s.err = true, a, err
	s.turn <- struct{}{}
}

// pass gives up the lead of a line. Those that were not answered go to its front.
func (l *sends) pass(id string, open []*sending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	open = slices.DeleteFunc(open, func(s *sending) bool { return s.left })
	l.lines[id] = append(open, l.lines[id]...)
	l.next(id)
}

// mostSends is the maximum number of signals accepted in one commit.
const mostSends = 250

// ops is how many conditions and operations s has in a batch at most, with its share of those that
// the batch has anyway.
func (s *sending) ops() int {
	if s.in.Resume != nil {
		return 12
	}
	return 8
}

// lead commits s and those behind it until s is answered.
func (e *Intake) lead(ctx context.Context, s *sending) {
	id, open := s.in.WorkflowID, []*sending{s}
	defer func() { // also if the store panics
		e.sends.pass(id, slices.DeleteFunc(open, func(o *sending) bool { return o == s || o.answered }))
	}()
	for wait, most := time.Microsecond, time.Second; ; wait = min(4*wait, most) { // the first wait is almost none
		var lost bool
		var err error
		open = e.sends.gather(id, open, e.MaxOps, e.MaxBytes)
		open, lost, err = e.round(ctx, id, open)
		if s.answered {
			break
		}
		if most = time.Second; lost {
			most = 4 * time.Millisecond // another writer made progress
		}
		if err == nil && !backoff.Wait(ctx, wait) {
			err = undecided(s.in, ctx.Err())
		}
		if err != nil {
			e.sends.settle(s, signal.Accepted{}, err)
			break
		}
	}
}

// round tries once to accept all of batch in one commit. It returns those that are not
// answered, and whether they lost a race. An error means that the leader could not read,
// and is for the leader alone: the others may be able to read.
func (e *Intake) round(ctx context.Context, id string, batch []*sending) (open []*sending, lost bool, err error) {
	for i, s := range batch {
		answered := false
		if s.look {
			if answered, err = e.again(ctx, s); err != nil {
				return append(open, batch[i:]...), false, err
			}
		}
		if !answered {
			open = append(open, s)
		}
	}
	if len(open) == 0 {
		return nil, false, nil
	}
	to, err := e.addressOf(ctx, id, open)
	if waiting.Failed(ctx, err) {
		return open, false, err
	}
	if err != nil {
		for i, s := range open {
			// Also what it has sent before may have been accepted since it looked.
			answered, failure := e.replay(ctx, s)
			if failure != nil {
				return open[i:], false, failure
			}
			if !answered {
				e.sends.settle(s, signal.Accepted{}, err)
			}
		}
		return nil, false, nil
	}
	open = slices.DeleteFunc(open, func(s *sending) bool {
		other := s.notFor(to.Workflow) // purged, and started again
		if other {
			e.sends.settle(s, signal.Accepted{}, payload.NotFound(id))
		}
		return other
	})
	if len(open) == 0 {
		return nil, false, nil
	}
	if len(open) == 1 && e.handToDriver(ctx, to, open[0]) {
		return nil, false, nil
	}
	open, lost = e.accept(ctx, to, open)
	return open, lost, nil
}

// again answers s, which was refused or whose outcome is unknown, if it was accepted, or resumes a hook
// that is not open any more. An error means that this could not be read.
func (e *Intake) again(ctx context.Context, s *sending) (answered bool, err error) {
	closed, err := e.closed(ctx, s.in)
	if waiting.Failed(ctx, err) {
		return false, err
	}
	if answered, failure := e.replay(ctx, s); answered || failure != nil {
		return answered, failure
	}
	if err == nil && closed {
		err = errMoved
	}
	if err != nil {
		e.sends.settle(s, signal.Accepted{}, err)
	}
	return err != nil, nil
}

// replay answers s if it was accepted before. An error means that this could not be read.
func (e *Intake) replay(ctx context.Context, s *sending) (answered bool, err error) {
	a, earlier, err := e.earlier(ctx, s.in)
	if waiting.Failed(ctx, err) {
		return false, err
	}
	if earlier || err != nil {
		if slices.ContainsFunc(s.tried, a.AcceptedAt.Equal) || slices.ContainsFunc(s.handed, func(d *run.Delivery) bool { return d.Tried.Load() == a.AcceptedAt.UnixMicro() }) {
			a.Repeated = false // by this call
		}
		e.sends.settle(s, a, err)
	}
	return earlier || err != nil, nil
}

// earlier returns the answer that was given to in before. A repeated try reads it before the workflow,
// so that a repeated send is answered also after the workflow has ended.
func (e *Intake) earlier(ctx context.Context, in *acceptance.Incoming) (signal.Accepted, bool, error) {
	standing, err := e.standing(ctx, in)
	if err != nil {
		return signal.Accepted{}, false, err
	}
	a, earlier, err := acceptance.Earlier(ctx, e.Store, in)
	if earlier && err == nil {
		if err = e.Rests(ctx, standing...); errors.Is(err, storage.ErrConflict) {
			return e.earlier(ctx, in)
		}
	}
	if x := e.Executing(a.WorkflowID); earlier && x != nil {
		x.Post(run.Written{Inbox: true}) // the first sender may have died before it notified the run
	}
	if i := (*signal.IndeterminateError)(nil); errors.As(err, &i) {
		i.CorrelationID = e.NewID()
		e.Log.Error("weft: signal acceptance is indeterminate: the payload exists, but no record of its acceptance",
			"workflow", i.WorkflowID, "signal", i.SignalName, "signal_id", i.SignalID, "correlation_id", i.CorrelationID)
	}
	return a, earlier, err
}

// standing returns, in a transaction of the host, the condition that the answer to in's ID is the
// one that is there now. Outside of one it reads nothing.
func (e *Intake) standing(ctx context.Context, in *acceptance.Incoming) ([]storage.Condition, error) {
	if !e.Staged {
		return nil, nil
	}
	c, err := acceptance.Standing(ctx, e.Store, in)
	return []storage.Condition{c}, err
}

// notFor reports whether s is for another generation than that of wf.
func (s *sending) notFor(wf *journal.Workflow) bool {
	return s.in.Generation != "" && s.in.Generation != wf.Generation
}

// addressOf returns the address for batch: the last known one if this engine executes the
// workflow, or else the one in the store. The last known one may be of a generation that was
// purged, so it is no answer to a send that is for another.
func (e *Intake) addressOf(ctx context.Context, id string, batch []*sending) (run.Address, error) {
	if err := e.Refused(); err != nil {
		return run.Address{}, err
	}
	x := e.Executing(id)
	if x != nil && x.Address.Workflow != nil && !slices.ContainsFunc(batch, func(s *sending) bool { return s.notFor(x.Address.Workflow) }) {
		return x.Address, nil
	}
	wf, err := e.Load(ctx, id)
	if err != nil {
		return run.Address{}, err
	}
	if wf.Status.Terminal() {
		return run.Address{}, &weft.TerminalError{WorkflowID: wf.ID, Status: wf.Status}
	}
	var counted []byte
	if e.thinks(wf, batch) {
		counted, err = acceptance.CounterAt(id, wf.Heard)
	} else {
		counted, err = acceptance.Counter(ctx, e.Store, id)
	}
	return run.Address{Workflow: wf, Counted: counted}, err
}

// thinks reports whether to assume that wf's counter is unchanged since wf was parked.
// This saves a read for the signal that claims the run, which is usually the first one.
// If it is not, the commit is refused and the counter is read.
func (e *Intake) thinks(wf *journal.Workflow, batch []*sending) bool {
	awaited := false
	for _, s := range batch {
		if s.look {
			return false
		}
		awaited = awaited || slices.Contains(wf.Awaits, s.in.Name)
	}
	return awaited && e.mayTake(wf) && e.MayDrive(wf) && e.HasRoomNow()
}

// accept commits the acceptance of batch. After a conflict or an unknown outcome, it
// returns those that have to be checked and decided again: only the recorded acceptance
// shows what was written. lost reports a conflict.
func (e *Intake) accept(ctx context.Context, to run.Address, batch []*sending) (open []*sending, lost bool) {
	batch, open = together(batch)
	var ins []*acceptance.Incoming
	first := map[[2]string]int{} // of name and ID: the place in ins
	var untried []*sending
	for _, s := range batch {
		if !s.look {
			untried = append(untried, s)
		}
		s.look = true
		key := [2]string{s.in.Name, s.in.ID}
		if _, taken := first[key]; !taken {
			first[key] = len(ins)
			ins = append(ins, s.in)
		}
	}
	d, err := e.commitSignals(ctx, to, ins)
	met := err
	if withdrawn, ok := errors.AsType[*storage.WithdrawnError](err); ok {
		met = withdrawn.Last
		for _, s := range untried {
			s.look = false
		}
	}
	for _, s := range batch {
		switch i := first[[2]string{s.in.Name, s.in.ID}]; {
		case err == nil && s.in.SamePayload(ins[i]):
			a := d.Arrived[i].Answer
			a.Repeated = s.in != ins[i]
			e.sends.settle(s, a, nil)
		case err == nil:
			e.sends.settle(s, signal.Accepted{}, s.in.Conflict())
		case errors.Is(err, storage.ErrConflict) && s.contradicted(to):
			e.sends.settle(s, signal.Accepted{}, settle.Contradiction(keys.Accepted(s.in.WorkflowID, s.in.Name, s.in.ID)))
		case settle.Hopeless(err):
			e.sends.settle(s, signal.Accepted{}, undecided(s.in, err))
		default:
			if d != nil && s.in == ins[i] && !errors.Is(err, storage.ErrConflict) {
				s.tried = append(s.tried, d.Arrived[i].Answer.AcceptedAt)
			}
			open = append(open, s)
		}
	}
	if len(open) > 0 && met != nil && !errors.Is(met, storage.ErrConflict) {
		e.sends.note(open, met)
	}
	return open, errors.Is(err, storage.ErrConflict)
}

// note records the error of a commit for the unanswered sends of batch, and for those
// that wait behind them.
func (l *sends) note(batch []*sending, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range slices.Concat(batch, l.lines[batch[0].in.WorkflowID]) {
		if !s.left { // otherwise its sender may be reading trouble
			s.trouble = err
		}
	}
}

// contradicted reports whether s was refused ten times on an address that did not change,
// and no other reason was found: the store contradicts itself.
func (s *sending) contradicted(on run.Address) bool {
	if s.refused.Workflow == nil || !bytes.Equal(s.refused.Workflow.Raw(), on.Workflow.Raw()) || !bytes.Equal(s.refused.Counted, on.Counted) {
		s.refused, s.times = on, 0
	}
	s.times++
	return s.times == 10
}

// awaited reports whether wf is to be notified of a signal of ins. A parked run waits only
// for certain names. It finds the other signals when it receives them.
func awaited(wf *journal.Workflow, ins []*acceptance.Incoming) bool {
	if !wf.Parked() {
		return true
	}
	return slices.ContainsFunc(ins, func(in *acceptance.Incoming) bool { return slices.Contains(wf.Awaits, in.Name) })
}

// commitSignals writes the acceptance of ins and notifies the owner of the workflow, also
// if the outcome is unknown.
func (e *Intake) commitSignals(ctx context.Context, to run.Address, ins []*acceptance.Incoming) (*acceptance.Acceptance, error) {
	now := e.Now()
	d, err := acceptance.Accept(ins, to.Workflow.Generation, to.Counted, now)
	if err != nil {
		return nil, err
	}
	x := e.ExecutionOf(to.Workflow)
	var t *taking
	if x == nil && awaited(to.Workflow, ins) {
		if t = e.take(ctx, to.Workflow, d.Batch); t == nil {
			d.Batch.Ops = run.WakeUp(d.Batch.Ops, to.Workflow, now, e.NewID())
		}
	}
	if t != nil {
		defer t.leave()
		d.Batch = t.with(d.Batch)
	} else {
		d.Batch.If = append(d.Batch.If, to.Workflow.Unchanged())
	}
	err = e.Store.Commit(ctx, d.Batch)
	switch {
	case t != nil:
		t.done(err, d)
	case x == nil:
		if !errors.Is(err, storage.ErrConflict) {
			e.Hint(to.Workflow, run.Written{Inbox: true})
		}
	case err == nil:
		x.Address = run.Address{Workflow: to.Workflow, Counted: d.Counter}
		x.Post(run.Arrived{Signals: d.Waiting()})
	default:
		x.Address = run.Address{}
		if !errors.Is(err, storage.ErrConflict) {
			x.Post(run.Written{Inbox: true})
		}
	}
	return d, err
}
