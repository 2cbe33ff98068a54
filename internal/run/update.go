package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/digest"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// An update is a call of a handler that a workflow function has registered. It goes through three commits at most.
//
// Whoever calls it admits it: he stores it (upd), unless the run is in his engine and takes it from memory. When all
// branches wait, and all events are delivered, the driver calls the check of the handler. If that refuses the update, the
// driver stores the refusal (upr), which is no checkpoint, so nothing is in the history. Otherwise a checkpoint accepts the
// update, with its input. When that event is delivered, the update's function begins, in a branch of its own. In a replay
// the function is in the same place then, and the handler is registered. When the branch has ended, the next checkpoint
// stores the answer (upr).

// Limits of updates.
const (
	MaxHandlers = 32   // that a function registers
	mostOpen    = 100  // accepted and not answered
	MostPending = 1000 // admitted and not accepted

	// mostInRow is how many updates are accepted one after the other before something else is recorded.
	mostInRow = 16
)

// UpdateErrors are the sentinels that the answer to any update keeps.
var UpdateErrors = []error{weft.ErrTerminated, weft.ErrCancelled, weft.ErrTimeout}

// updates are those of a run.
type updates struct {
	handlers map[string]*handler
	count    int // accepted, in all lives
	row      int // accepted since something else was recorded
	open     []*operation

	asked     []*Asking            // by callers of this engine, in order
	accepting *acceptingUpdate     // whose acceptance is being committed
	pending   []*acceptance.Update // stored, in order, as they were read
	stale     bool                 // there may be others
}

// A handler answers the updates of a name.
type handler struct {
	errors []error
	check  func(decode func(v any) error) error
	do     func(run *Handle, decode func(v any) error) (any, error)
}

// updating is the state of an operation that executes an update.
type updating struct {
	handler  *handler
	id       string // the caller's
	input    payload.Payload
	asked    []*Asking
	accepted *acceptance.Answer // its record as it was accepted; nil: not read yet
	answer   *acceptance.Answer // to be recorded; nil: its function has not returned
}

// An acceptingUpdate is an update whose acceptance is being committed.
type acceptingUpdate struct {
	from   *Asking // nil: it was stored
	record *acceptance.Answer
}

// An UpdateCall is a call of an update that was checked and encoded.
type UpdateCall struct {
	WorkflowID, Name, ID string
	Input                payload.Payload
	Digest               digest.Digest
}

// Updating checks and encodes a call of an update, before anything is written.
func (e *Env) Updating(ctx context.Context, workflow string, r *weft.UpdateRequest) (*UpdateCall, error) {
	u := &UpdateCall{WorkflowID: workflow, Name: r.Update}
	if r.ID != nil {
		u.ID = *r.ID
	} else {
		u.ID = "upd_" + e.NewID()
	}
	if err := errors.Join(payload.CheckID(workflow), payload.CheckName("name of update", u.Name, keys.MaxName), payload.CheckName("id of update", u.ID, keys.MaxSignalID)); err != nil {
		return nil, err
	}
	if err := storage.Require(e.Store, "an update", "conditionalBatch"); err != nil {
		return nil, err
	}
	var err error
	u.Input, u.Digest, err = e.Codecs.Identify(ctx, r.Input)
	if err == nil && len(u.Input.Data) > e.MaxPayload {
		return nil, payload.Invalid("input of update", u.Name, fmt.Sprintf("has %d bytes, at most %d", len(u.Input.Data), e.MaxPayload))
	}
	if err == nil {
		err = e.Codecs.Returns(ctx, r.Input, u.Input)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: input of update %.40q: %w", weft.ErrInvalid, u.Name, err)
	}
	return u, nil
}

// Record returns the record of u for a generation of its workflow.
func (u *UpdateCall) Record(generation string, now time.Time) *acceptance.Update {
	return &acceptance.Update{
		ID:         u.ID,
		Generation: generation,
		Name:       u.Name,
		Codec:      u.Input.Codec,
		Data:       u.Input.Data,
		Digest:     u.Digest.Plain,
		Canonical:  u.Digest.Canonical,
		At:         journal.Micro(now),
	}
}

// Asking asks the driver for an update that is not stored.
type Asking struct {
	Call *UpdateCall
	Done chan *acceptance.Answer // receives one value; nil: the store has to be read
}

func (m *Asking) read(x *Execution) { x.updates.asked = append(x.updates.asked, m) }

func (m *Asking) forward(*Execution) bool {
	m.Done <- nil
	return false
}

// leaveToStore has all callers read the store.
func (u *updates) leaveToStore() {
	for _, o := range u.open {
		tell(&o.update.asked, nil)
	}
	tell(&u.asked, nil)
	if a := u.accepting; a != nil && a.from != nil {
		a.from.Done <- nil
	}
	u.accepting = nil
}

func tell(asked *[]*Asking, a *acceptance.Answer) {
	for _, m := range *asked {
		m.Done <- a
	}
	*asked = nil
}

// HandleUpdate is engine.Update.Handle. It is no operation.
func (r *Handle) HandleUpdate(name string, errs []error, check func(decode func(v any) error) error, do func(run *Handle, decode func(v any) error) (any, error)) error {
	if err := r.enter("handle update " + name); err != nil {
		return err
	}
	if err := payload.CheckName("name of update", name, keys.MaxName); err != nil {
		return err
	}
	u := &r.x.updates
	if u.handlers[name] == nil && len(u.handlers) == MaxHandlers {
		return payload.Invalid("update", name, fmt.Sprintf("is one too many: a workflow handles at most %d", MaxHandlers))
	}
	if u.handlers == nil {
		u.handlers = map[string]*handler{}
	}
	u.handlers[name] = &handler{errs, check, do}
	return nil
}

// handlesUpdates reports whether the function answers updates: it does until it has returned, or is asked to stop.
func (x *Execution) handlesUpdates() bool {
	return len(x.updates.handlers) > 0 && x.result == nil && x.Hold.Workflow.Cancel == nil && x.undoing.status == ""
}

// handles returns the names of the updates that the run handles, sorted.
func (x *Execution) handles() []string {
	if !x.handlesUpdates() {
		return nil
	}
	return slices.Sorted(maps.Keys(x.updates.handlers))
}

// hasUpdate reports whether there is an update that the run could take.
func (x *Execution) hasUpdate() bool {
	u := &x.updates
	return x.handlesUpdates() && len(u.open) < mostOpen && (len(u.asked) > 0 || u.firstPending() >= 0)
}

// takesUpdate reports whether there is an update that the run takes now.
func (x *Execution) takesUpdate() bool { return x.mayBegin() && x.hasUpdate() }

func (u *updates) firstPending() int {
	return slices.IndexFunc(u.pending, func(p *acceptance.Update) bool { return u.handlers[p.Name] != nil })
}

// answering reports whether an answer is to be recorded.
func (u *updates) answering() bool {
	return slices.ContainsFunc(u.open, func(o *operation) bool { return o.update.answer != nil })
}

// cut ends the updates in progress, because the function has failed.
func (u *updates) cut(x *Execution) {
	for _, o := range slices.Clone(u.open) {
		x.end(o.scope, weft.ErrCancelled)
	}
}

// lookForUpdates reads the updates that wait, if there may be new ones, and the records of those that are to be answered.
func (x *Execution) lookForUpdates() error {
	u := &x.updates
	for _, o := range u.open {
		if o.update.answer == nil || o.update.accepted != nil {
			continue
		}
		a, err := acceptance.ReadAnswer(x.Ctx, x.store, x.ID, x.Hold.Workflow.Generation, o.update.id)
		if err == nil && a == nil {
			err = fmt.Errorf("%w: record %q is missing", storage.ErrCorrupt, keys.Answer(x.ID, o.update.id))
		}
		if err != nil {
			return err
		}
		o.update.accepted = a
	}
	if !u.stale || !x.handlesUpdates() {
		return nil
	}
	pending, err := acceptance.Updates(x.Ctx, x.store, x.ID, x.Hold.Workflow.Generation)
	if err != nil {
		return err
	}
	u.pending, u.stale = pending, false
	for _, p := range pending {
		if p.Seq == x.Inbox.end+1 && x.Inbox.lines != nil {
			x.Inbox.passed(acceptance.Waiting{Seq: p.Seq}) // it has a number of the inbox, and no place there
		}
	}
	return nil
}

// takeUpdate refuses the updates that come next, and accepts one. done reports whether there is
// something to deliver, or to decide anew.
func (x *Execution) takeUpdate() (done bool, err error) {
	u := &x.updates
	if !x.mayBegin() || !x.handlesUpdates() || len(u.open) >= mostOpen {
		tell(&u.asked, nil)
		return false, nil
	}
	if u.row == mostInRow {
		u.row = 0
		return false, nil
	}
	x.join()
	for x.hasUpdate() {
		c, from, err := x.nextUpdate()
		if err != nil {
			return false, err
		}
		if c == nil {
			continue
		}
		h := u.handlers[c.Name]
		refusal, err := x.check(h, c)
		if err != nil {
			return false, err
		}
		if refusal == nil {
			return true, x.accept(c, from)
		}
		if again, err := x.refuse(c, from, refusal); again || err != nil {
			return again, err
		}
	}
	return false, nil
}

// join has the calls of updates that are in progress wait for their answers.
func (x *Execution) join() {
	u := &x.updates
	u.asked = slices.DeleteFunc(u.asked, func(m *Asking) bool {
		c := m.Call
		known := u.handlers[c.Name] != nil && !slices.ContainsFunc(u.pending, func(p *acceptance.Update) bool { return p.ID == c.ID })
		for _, o := range u.open {
			switch {
			case o.update.id != c.ID:
			case o.update.accepted != nil && o.update.accepted.Same(c.Name, c.Digest):
				o.update.asked = append(o.update.asked, m)
				return true
			default:
				known = false
			}
		}
		if !known {
			m.Done <- nil
		}
		return !known
	})
}

// nextUpdate returns the update that comes next, and takes it from those that wait. from is the call
// that asks for it, or nil if it is stored. nil: what was stored is there no more.
func (x *Execution) nextUpdate() (c *UpdateCall, from *Asking, _ error) {
	u := &x.updates
	i := u.firstPending()
	if i < 0 {
		from, u.asked = u.asked[0], u.asked[1:]
		return from.Call, from, nil
	}
	p, err := acceptance.ReadUpdate(x.Ctx, x.store, x.ID, x.Hold.Workflow.Generation, u.pending[i].ID)
	if err != nil {
		return nil, nil, err
	}
	u.pending = slices.Delete(u.pending, i, i+1)
	if p == nil {
		return nil, nil, nil
	}
	return &UpdateCall{x.ID, p.Name, p.ID, payload.Payload{Codec: p.Codec, Data: p.Data}, p.Identity()}, nil, nil
}

// check calls the check of a handler, which is user code. All branches wait meanwhile.
func (x *Execution) check(h *handler, c *UpdateCall) (refusal *payload.Failure, _ error) {
	x.BusySince.Store(time.Now().UnixNano())
	defer x.comeBack()
	done := make(chan *payload.Failure, 1)
	go func() {
		x.label()
		why := &payload.Failure{Message: errGoexit.Error()}
		refused := func(err error, stack string) {
			f := payload.FailureOf(err, stack, h.errors)
			why = &f
		}
		defer func() { done <- why }()
		defer func() {
			if p := recover(); p != nil {
				refused(payload.Panicked(p), string(debug.Stack()))
			}
		}()
		if err := h.check(func(v any) error { return x.host.Codecs.Decode(x.host.Base, c.Input, v) }); err != nil {
			refused(err, "")
		} else {
			why = nil
		}
	}()
	refusal, back := await(x.Ctx, x.host.StopTimeout, done)
	if !back {
		x.logger().Warn("weft: check of an update does not return to the engine; its goroutine is left running")
		close(x.abandoned)
		return nil, errStopped
	}
	return refusal, nil
}

// answer returns an answer to c in a state.
func (x *Execution) answerTo(c *UpdateCall, state string, now time.Time) *acceptance.Answer {
	return &acceptance.Answer{
		Generation: x.Hold.Workflow.Generation,
		Name:       c.Name,
		State:      state,
		Digest:     c.Digest.Plain,
		Canonical:  c.Digest.Canonical,
		At:         journal.Micro(now),
	}
}

// accept commits the acceptance of c.
func (x *Execution) accept(c *UpdateCall, from *Asking) error {
	u := &x.updates
	now := x.time()
	a := x.answerTo(c, acceptance.Accepted, now)
	put, err := a.Put(x.ID, c.ID, now, 0)
	if err != nil {
		return err
	}
	ifs, ops := acceptance.Taken(x.ID, c.ID, from == nil)
	id, _ := x.again(journal.UpdatePrefix + strconv.Itoa(u.count+1))
	change := journal.Change{
		Events: []checkpoint.Event{{
			Kind:      checkpoint.KindAccepted,
			Operation: id,
			Of:        ofUpdate.name,
			Name:      c.Name,
			Key:       c.ID,
			Result:    c.Input.Data,
			Codec:     c.Input.Codec,
		}},
		If:  ifs,
		Ops: append(ops, put...),
	}
	if !x.Hold.Workflow.Updated() {
		x.rewriting(&change).Update()
	}
	u.accepting, u.stale = &acceptingUpdate{from, a}, true // unless it is accepted
	done, err := x.commit(change)
	if done {
		u.stale, u.row = false, u.row+1
		return nil
	}
	u.leaveToStore()
	return err
}

// refuse stores that c is refused. again reports that something must be decided anew.
func (x *Execution) refuse(c *UpdateCall, from *Asking, why *payload.Failure) (again bool, _ error) {
	now := x.time()
	a := x.answerTo(c, acceptance.Rejected, now)
	a.Error, a.Stack, a.Sentinel = why.Message, why.Stack, why.Sentinel
	put, err := a.Put(x.ID, c.ID, now, x.host.SignalIDRetention)
	if err != nil {
		return false, err
	}
	wf := x.Hold.Workflow
	ifs, ops := acceptance.Taken(x.ID, c.ID, from == nil)
	b := storage.Batch{If: append(ifs, wf.Unchanged()), Ops: append(ops, put...)}
	first := !wf.Updated()
	if first {
		next := *wf
		next.State++
		next.Update()
		if b.Ops, err = journal.Replace(b.Ops, wf, &next); err != nil {
			return false, err
		}
	}
	mine := put[len(put)-1]
	err = settle.Commit(x.Ctx, x.store, b, x.unsure, func(ctx context.Context) (bool, error) {
		raw, err := x.store.Get(ctx, mine.Key)
		if errors.Is(err, storage.ErrNotFound) {
			return false, nil
		}
		return bytes.Equal(raw, mine.Value), err
	})
	if err == nil {
		if from != nil {
			from.Done <- a
		}
		x.Owner.Stored(x.ID)
		if first {
			return true, x.refresh(true)
		}
		return false, nil
	}
	if from != nil {
		from.Done <- nil
	}
	if errors.Is(err, storage.ErrConflict) {
		return true, x.refresh(true)
	}
	x.Cancel(fmt.Errorf("engine: run released: %w", err))
	return false, context.Cause(x.Ctx)
}

// beginUpdate begins to execute the update that e accepts.
func (x *Execution) beginUpdate(e logged) error {
	u := &x.updates
	n, err := numbered(strings.TrimPrefix(e.Operation, journal.UpdatePrefix))
	if err != nil {
		return fmt.Errorf("%w: event %q of workflow %q is about operation %q", storage.ErrCorrupt, e.Kind, x.ID, e.Operation)
	}
	h := u.handlers[e.Name]
	if h == nil || x.result != nil {
		d := &weft.NonDeterminismError{WorkflowID: x.ID, Operation: e.Operation, Recorded: describe(e.Of, e.Name), Asked: "not handled"}
		if x.result != nil {
			d.Asked = "not handled: the function has ended"
		}
		return x.firstDifference(d)
	}
	x.now = e.at
	o := &operation{x: x, kind: ofUpdate, id: e.Operation, name: e.Name, scope: &scope{outer: &x.root}}
	o.update = &updating{handler: h, id: e.Key, input: payload.Payload{Codec: e.Codec, Data: e.Result}}
	if a := u.accepting; a != nil && !e.old {
		o.update.accepted, u.accepting = a.record, nil
		if a.from != nil {
			o.update.asked = []*Asking{a.from}
		}
	}
	u.count = n
	u.open = append(u.open, o)
	x.Ops.add(o)
	x.turns.branch(o, o.scope, func(run *Handle) (any, error) {
		return h.do(run, func(v any) error {
			run.decode(o.update.input, v, func(err error) *fault {
				return undecodable(o.id, o.name, fmt.Errorf("input of update %s, operation %s: %w", o.name, o.id, err))
			})
			return nil
		})
	})
	return nil
}

// ended notes what the function of an update has returned.
func (u *updating) ended(x *Execution, r *result) {
	if u.answer != nil {
		return
	}
	r.encode(x, slices.Concat(u.handler.errors, UpdateErrors))
	u.answer = &acceptance.Answer{State: acceptance.Completed, Codec: r.encoded.Codec, Data: r.encoded.Data}
	if f := r.failed; r.err != nil {
		u.answer = &acceptance.Answer{State: acceptance.Failed, Error: f.Message, Stack: f.Stack, Sentinel: f.Sentinel}
	}
}

// answers returns the event that o is answered, and the operations that store the answer.
func (o *operation) answers(now time.Time) (e checkpoint.Event, ops []storage.Op, _ error) {
	u := o.update
	a := *u.accepted
	a.State, a.Codec, a.Data = u.answer.State, u.answer.Codec, u.answer.Data
	a.Error, a.Stack, a.Sentinel = u.answer.Error, u.answer.Stack, u.answer.Sentinel
	e = checkpoint.Event{Kind: checkpoint.KindAnswered, Operation: o.id, Of: o.kind.name, Name: o.name, Key: u.id, Error: a.Error}
	ops, err := a.Put(o.x.ID, u.id, now, o.x.host.SignalIDRetention)
	return e, ops, err
}

// updateAnswered notes that the answer to an update is stored. If the run was resumed after a failure,
// its function may go on in the replay where it had failed: that is between the run and itself.
func (x *Execution) updateAnswered(e logged) {
	o := x.Ops.byID[e.Operation]
	if o == nil || o.update == nil {
		return
	}
	u := &x.updates
	u.row = 0
	u.open = slices.DeleteFunc(u.open, func(other *operation) bool { return other == o })
	o.settle(outcome{})
	if a := o.update.answer; !e.old && a != nil {
		tell(&o.update.asked, a)
		x.Owner.Stored(x.ID)
	}
}

// branchKind returns the kind of an operation that is executed by a branch, by its id.
func branchKind(id string) *kind {
	if strings.HasPrefix(id, journal.UpdatePrefix) && !strings.Contains(id, ".") {
		return ofUpdate
	}
	return ofBranch
}
