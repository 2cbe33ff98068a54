package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/chunks"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/internal/worker"
	"github.com/weft-go/weft/storage"
)

// Reset is Engine.Reset.
func (e *Admin) Reset(ctx context.Context, id, before string, by weft.Actor) error {
	call := waiting.New(ctx, "reset of workflow", id)
	return call.Explain(e.resetWorkflow(call, id, before, by))
}

// mostResets is how often a workflow can be reset. Each reset is kept in its record.
const mostResets = 100

func (e *Admin) resetWorkflow(ctx context.Context, id, before string, by weft.Actor) (err error) {
	if err := errors.Join(CheckActor(by), payload.CheckID(id), CheckOperation(before)); err != nil {
		return err
	}
	var tries []*journal.Write
	var life lifeline
	var driven *run.Execution
	defer func() {
		if err != nil && driven != nil {
			driven.Lingers.Store(false)
		}
	}()
	read := &reading{before: before}
	err = e.Change(ctx, id, worker.Change{
		Name: "reset",
		Landed: func(ctx context.Context, wf *journal.Workflow) (bool, error) {
			for _, w := range tries {
				if done, err := journal.Landed(ctx, e.Store, w); done || err != nil {
					return done, err
				}
			}
			return false, nil
		},
		Decide: func(ctx context.Context, wf *journal.Workflow) (*worker.Changing, error) {
			if err := life.holds(wf, "reset"); err != nil {
				return nil, err
			}
			if len(tries) > 1 && !wf.Status.Terminal() && !e.Staged { // its owner commits all the time
				if err := e.interrupt(ctx, wf, "reset"); err != nil {
					return nil, err
				}
			}
			w, err := e.resetting(ctx, wf, read, by)
			if err != nil {
				return nil, err
			}
			tries = append(tries, w)
			if x := e.ExecutionOf(wf); x != nil && !e.Staged {
				driven = x
				x.Lingers.Store(true) // not before its attempts have returned
			}
			return &worker.Changing{Batch: w.Batch, Tell: func() {
				e.Hint(wf, run.Written{Record: true})
				e.PokePoll()
			}}, nil
		},
	})
	if err != nil || e.Staged { // the host may roll back
		return err
	}
	e.Log.Info("weft: workflow is reset", "workflow", id, "operation", before, "by", by.Name, "why", by.Reason)
	if driven != nil {
		driven.Cancel(run.ErrReset)
	}
	return nil
}

// noOperation means that the history of a workflow has no operation with an id. It is weft.ErrNotFound.
type noOperation struct{ workflow, id string }

func (e *noOperation) Error() string {
	return fmt.Sprintf("engine: reset %q: its history has no operation %q", e.workflow, e.id)
}
func (e *noOperation) Is(target error) bool { return target == weft.ErrNotFound }

// CheckOperation refuses the id of an operation that none can have. "" is none.
func CheckOperation(id string) error {
	if id == "" {
		return nil
	}
	return payload.CheckName("operation", id, keys.MaxID)
}

// resetting decides the reset of wf.
func (e *Admin) resetting(ctx context.Context, wf *journal.Workflow, read *reading, by weft.Actor) (*journal.Write, error) {
	refused := func(format string, args ...any) (*journal.Write, error) {
		return nil, fmt.Errorf("%w: reset %q: %s", weft.ErrNotApplicable, wf.ID, fmt.Sprintf(format, args...))
	}
	switch {
	case wf.StartedAt == 0:
		return refused("it has not begun")
	case len(wf.Resets) >= mostResets:
		return refused("it was reset %d times", mostResets)
	}
	var also []storage.Condition
	if wf.Status.Terminal() {
		told, conditions, err := e.told(ctx, wf)
		if err != nil {
			return nil, err
		}
		if told {
			return refused("its parent %q has been told how it ended: start a workflow with another id", wf.Parent.ID)
		}
		also = conditions
	}
	// The end of the history is found before the history is read. What the owner commits between
	// these two is then read, or refuses the reset's commit.
	hold, err := journal.Find(ctx, e.Store, wf)
	if err != nil {
		return nil, err
	}
	if err := read.on(ctx, e.Store, wf); err != nil {
		return nil, err
	}
	if !read.found {
		return nil, &noOperation{wf.ID, read.before}
	}
	if why := read.refusal(wf); why != "" {
		return refused("%s", why)
	}
	terminated := wf.Cancel != nil && wf.Cancel.Terminated
	if terminated && !e.Staged { // its children are asked to stop, and not those that it will start
		if err := Dismiss(ctx, e.Worker, wf.ID, wf.Generation); err != nil {
			return nil, err
		}
	}
	now := e.Now()
	to := journal.Rewind{
		Before: read.operation,
		Point:  read.point,
		By:     journal.Verb{Name: run.ResetTo(read.operation), By: by.Name, Why: by.Reason},
		Todo:   run.EntryOf(wf, now, e.NewID()),
	}
	switch {
	case read.asked != nil && terminated: // the termination has taken its place in the record
		to.Cancel = read.asked
	case read.asked != nil || !wf.Status.Terminal() && !read.askedBehind:
		to.Cancel = wf.Cancel // it was delivered before the point, or is still to be delivered
	case !read.askedBehind && !terminated:
		to.Untold = wf.Cancel
	}
	w, err := hold.Reset(to, now)
	if err != nil {
		return nil, err
	}
	w.Batch.If = append(w.Batch.If, also...)
	if terminated {
		w.Batch.Ops = append(w.Batch.Ops, storage.Delete(keys.Dismissal(wf.ID, wf.Generation)))
	}
	if wf.Owner != "" && e.ExecutionOf(wf) == nil {
		w.Batch.Ops = run.WakeUp(w.Batch.Ops, wf, now, e.NewID())
	}
	for _, putBack := range []func(context.Context, *journal.Workflow, *reading, *journal.Write, time.Time) error{
		e.signalsAgain, e.updatesAgain, e.hooksAgain, e.streamsAgain, e.childrenAgain, e.valuesGone,
	} {
		if err := putBack(ctx, wf, read, w, now); err != nil {
			return nil, err
		}
	}
	size := 0
	for _, o := range w.Batch.Ops {
		size += len(o.Key) + len(o.Value)
	}
	if n := len(w.Batch.If) + len(w.Batch.Ops); n > e.MaxOps || size > e.MaxBytes {
		return refused("the signals, updates, hooks, streams and children behind the point do not fit into one commit: it has %d entries of %d bytes, at most %d of %d; reset it to a later operation", n, size, e.MaxOps, e.MaxBytes)
	}
	return w, nil
}

// signalsAgain adds to w the signals that were received behind the point.
func (e *Admin) signalsAgain(ctx context.Context, wf *journal.Workflow, read *reading, w *journal.Write, now time.Time) error {
	type identity struct{ name, id string }
	again := map[identity]bool{}
	for _, r := range read.received {
		var b storage.Batch
		var err error
		if is := (identity{r.Name, r.ID}); again[is] {
			err = r.Reused()
		} else {
			again[is] = true
			r.WorkflowID, r.Generation, r.Memory = wf.ID, wf.Generation, e.SignalIDRetention
			b, err = acceptance.Again(ctx, e.Store, r, now)
		}
		if errors.Is(err, acceptance.ErrForgotten) || errors.Is(err, acceptance.ErrReused) {
			return fmt.Errorf("%w: reset %q: %w", weft.ErrNotApplicable, wf.ID, err)
		}
		if err != nil {
			return err
		}
		w.Batch.If, w.Batch.Ops = append(w.Batch.If, b.If...), append(w.Batch.Ops, b.Ops...)
	}
	return nil
}

// childrenAgain adds to w the records of children that were begun before the point, and whose end the
// run has not been told by then.
func (e *Admin) childrenAgain(ctx context.Context, wf *journal.Workflow, read *reading, w *journal.Write, _ time.Time) error {
	there := map[string]bool{}
	for entry, err := range journal.Records(ctx, e.Store, keys.ChildrenOf(wf.ID)) {
		if err != nil {
			return err
		}
		c, err := journal.OpenChild(entry)
		if err != nil {
			return err
		}
		operation, err := keys.Operation(entry.Key)
		if err != nil {
			return err
		}
		if _, begun := read.children[operation]; !begun || c.Parent != wf.Generation {
			continue
		}
		there[operation] = true
		if c.End == nil && wf.Status.Terminal() { // then it has told nobody
			if err := e.tellEnd(ctx, wf, c, w); err != nil {
				return err
			}
		}
	}
	for _, operation := range slices.Sorted(maps.Keys(read.children)) {
		k := read.children[operation]
		if there[operation] {
			continue
		}
		if k.end == nil { // it was asked to stop, and forgotten
			kid, end, err := e.endOf(ctx, k.id)
			gone := errors.Is(err, storage.ErrNotFound)
			switch {
			case err != nil && !gone:
				return err
			case gone || kid.Tombstone() || kid.Parent == nil || kid.Parent.Generation != wf.Generation:
				end = &journal.Output{Generation: wf.Generation, Status: checkpoint.StatusFailed, Error: "it was purged before its parent had looked"}
			}
			if k.end = end; !gone {
				w.Batch.If = append(w.Batch.If, kid.Unchanged())
			}
		}
		c, absent := run.Again(journal.Parent{ID: wf.ID, Generation: wf.Generation, Operation: operation}, k.id, k.end)
		put, err := c.Put()
		if err != nil {
			return err
		}
		w.Batch.If, w.Batch.Ops = append(w.Batch.If, absent), append(w.Batch.Ops, put)
	}
	return nil
}

// valuesGone adds to w the deletions of values that may have been published behind the point. The run
// stores again what it has published before.
func (e *Admin) valuesGone(ctx context.Context, wf *journal.Workflow, read *reading, w *journal.Write, _ time.Time) error {
	since := wf.Began()
	if read.at.After(since) {
		since = read.at
	}
	for entry, err := range journal.Records(ctx, e.Store, keys.PublishedBy(wf.ID)) {
		if err != nil {
			return err
		}
		_, v, err := journal.OpenPublished(entry)
		if err != nil {
			return err
		}
		if v.Generation == wf.Generation && v.At >= journal.Micro(since) {
			w.Batch.Ops = append(w.Batch.Ops, storage.Delete(entry.Key))
		}
	}
	return nil
}

// updatesAgain adds to w that updates which were accepted behind the point are pending again, and that
// those which were accepted before it and answered behind it have no answer.
func (e *Admin) updatesAgain(ctx context.Context, wf *journal.Workflow, read *reading, w *journal.Write, _ time.Time) error {
	again := func(u *acceptance.TakenUpdate, decide func(context.Context, storage.Storage) (storage.Batch, error)) error {
		u.WorkflowID, u.Generation = wf.ID, wf.Generation
		b, err := decide(ctx, e.Store)
		if errors.Is(err, acceptance.ErrForgotten) || errors.Is(err, acceptance.ErrReused) {
			return fmt.Errorf("%w: reset %q: %w", weft.ErrNotApplicable, wf.ID, err)
		}
		w.Batch.If, w.Batch.Ops = append(w.Batch.If, b.If...), append(w.Batch.Ops, b.Ops...)
		return err
	}
	for _, u := range read.unanswered {
		if err := again(u, u.Unanswered); err != nil {
			return err
		}
	}
	var last time.Time
	for _, u := range read.pending {
		if u.At = u.At.Truncate(time.Microsecond); !u.At.After(last) {
			u.At = last.Add(time.Microsecond) // their order
		}
		last = u.At
		if err := again(u, u.Pending); err != nil {
			return err
		}
	}
	return nil
}

// hooksAgain adds to w that the hooks which were open at the point are open, and no others. If another
// run has one of their tokens, the error wraps a *signal.TokenError.
func (e *Admin) hooksAgain(ctx context.Context, wf *journal.Workflow, read *reading, w *journal.Write, _ time.Time) error {
	stored, err := journal.Hooks(ctx, e.Store, wf)
	if err != nil {
		return err
	}
	hooks := map[string]*journal.Hook{}
	for _, h := range stored {
		hooks[h.ID] = h
	}
	open := !wf.Status.Terminal() // the end has freed the tokens
	free := map[string]string{}   // tokens that hooks have which are not to be open: their ids
	var closed []*journal.Hook    // that need their tokens again
	for _, id := range slices.Sorted(maps.Keys(read.hooks)) {
		is, was := hooks[id], read.hooks[id]
		if delete(hooks, id); was == nil {
			if is != nil {
				w.Batch.Ops = append(w.Batch.Ops, is.Delete())
			}
			if is != nil && open {
				free[is.TokenHash] = id
			}
			continue
		}
		h, err := journal.OpenHook(storage.Entry{Key: keys.Hook(wf.ID, id), Value: was})
		if err != nil {
			return err
		}
		w.Batch.Ops = append(w.Batch.Ops, h.PutBack())
		if is == nil || !open {
			closed = append(closed, h)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(hooks)) {
		if !open {
			closed = append(closed, hooks[id])
		}
	}
	for _, h := range closed {
		if err := e.occupy(ctx, "reset", wf, h, free, w); err != nil {
			return err
		}
	}
	for _, hash := range slices.Sorted(maps.Keys(free)) {
		holder, err := journal.ReadHookAddress(ctx, e.Store, hash)
		if err != nil {
			return err
		}
		if holder != nil && holder.Of(wf) && holder.HookID == free[hash] {
			w.Batch.If = append(w.Batch.If, holder.Unchanged())
			w.Batch.Ops = append(w.Batch.Ops, storage.Delete(keys.HookAddress(hash)))
		}
	}
	return nil
}

// streamsAgain adds to w that streams which were closed behind the point are open. Their chunks stay.
func (e *Admin) streamsAgain(ctx context.Context, wf *journal.Workflow, read *reading, w *journal.Write, _ time.Time) error {
	for _, operation := range slices.Sorted(maps.Keys(read.closed)) {
		head, err := chunks.Of(wf.ID, read.closed[operation], wf.Generation).Read(ctx, e.Store)
		if err != nil {
			return err
		}
		_, conditions, ops, err := head.Reopen(operation)
		if err != nil {
			return err
		}
		w.Batch.If, w.Batch.Ops = append(w.Batch.If, conditions...), append(w.Batch.Ops, ops...)
	}
	return nil
}

// A reading is what a reset has read of the history. It goes on where it stopped if the run has
// committed meanwhile.
type reading struct {
	before string
	last   uint64 // the last checkpoint that was read; 0: none
	resets int    // that the run had then

	again bool // the operation was gone back to before, and has not begun since

	found     bool
	operation string        // that before names
	point     journal.Place // of the last event on which the function went on
	at        time.Time     // when that was

	asked       *journal.Request // to cancel, delivered before the point
	askedBehind bool             // a request was delivered behind it
	undoing     bool             // the run has begun to undo its effects
	undoes      bool             // and had begun by the point
	completed   []string
	undone      map[string]bool // operations, as far as it is recorded
	unplaced    string          // a signal that was received behind the point, and whose place is not known
	received    []acceptance.Received
	children    map[string]*begunChild // by operation

	open       map[string]*acceptance.TakenUpdate // by ID: updates that were accepted and not answered by the point
	unanswered []*acceptance.TakenUpdate          // those of them that were answered behind it
	pending    []*acceptance.TakenUpdate          // updates that were accepted behind it
	hooks      map[string][]byte                  // the records that hooks had at the point, by ID; nil: there was none
	closed     map[string]string                  // streams that were closed behind the point, by the operation
}

// A begunChild was begun before the point, and the run was not told of its end by then.
type begunChild struct {
	id  string
	end *journal.Output // that the run was told of behind the point
}

// on reads the history of wf up to now.
func (r *reading) on(ctx context.Context, s storage.Storage, wf *journal.Workflow) error {
	n := len(wf.Resets)
	if r.last == 0 || n != r.resets || r.again { // a reset takes back what was read
		*r = reading{before: r.before, resets: n, found: r.before == "", undone: map[string]bool{}, children: map[string]*begunChild{},
			open: map[string]*acceptance.TakenUpdate{}, hooks: map[string][]byte{}, closed: map[string]string{}}
	}
	since := *wf
	since.Base = max(wf.Base, r.last)
	for c, err := range journal.History(ctx, s, &since) {
		if err != nil {
			return err
		}
		if c.Number == r.last {
			continue
		}
		for i, ev := range c.Events {
			former := wf.Life > 0 && c.Number == wf.Base && ev.Kind == checkpoint.KindGivenUp // by the life before
			if p := (journal.Place{Checkpoint: c.Number, Event: i}); !former && !wf.PassedOver(p) {
				r.take(c, p, ev)
			}
		}
		r.last = c.Number
	}
	if !r.found && n > 0 {
		r.operation, r.again = named(wf.Resets[n-1].Before, r.before)
		r.found = r.again
	}
	return nil
}

// take takes in an event that a replay delivers.
func (r *reading) take(c checkpoint.Checkpoint, p journal.Place, ev checkpoint.Event) {
	if ev.Kind == checkpoint.KindAsked && slices.ContainsFunc(c.Events, func(e checkpoint.Event) bool { return e.Kind == checkpoint.KindEnded }) {
		r.askedBehind = true // the function was never told of it: see Admin.untold, and Worker.turnAway
		return
	}
	if !r.found {
		r.operation, r.found = named(ev.Operation, r.before)
	}
	behind := r.found
	if !behind && run.GoesOn(ev.Kind) {
		r.point, r.at = p, c.Time
	}
	if undone, is := strings.CutSuffix(ev.Operation, run.UndoSuffix); is {
		r.undone[undone] = true
		return
	}
	switch ev.Kind {
	case checkpoint.KindAsked:
		if r.askedBehind = behind; !behind {
			r.asked = &journal.Request{By: ev.By, Reason: ev.Why, At: journal.Micro(c.Time)}
		}
	case checkpoint.KindAccepted:
		u := &acceptance.TakenUpdate{ID: ev.Key, Name: ev.Name, Codec: ev.Codec, Data: ev.Result, At: c.Time}
		switch {
		case !behind:
			r.open[u.ID] = u
		case r.open[u.ID] == nil: // else its answer was forgotten, and it was accepted again
			r.pending = append(slices.DeleteFunc(r.pending, func(p *acceptance.TakenUpdate) bool { return p.ID == u.ID }), u)
		}
	case checkpoint.KindAnswered:
		switch u := r.open[ev.Key]; {
		case !behind:
			delete(r.open, ev.Key)
		case u != nil && !slices.Contains(r.unanswered, u):
			r.unanswered = append(r.unanswered, u)
		}
	case checkpoint.KindOpened, checkpoint.KindDisposed:
		if _, known := r.hooks[ev.Key]; behind && !known && ev.Key != "" {
			r.hooks[ev.Key] = ev.Was
		}
	case checkpoint.KindClosed:
		if behind {
			r.closed[ev.Operation] = ev.Name
		}
	case checkpoint.KindCompensating:
		r.undoing, r.undoes = true, !behind
	case checkpoint.KindReceived:
		switch {
		case !behind:
		case ev.Seq == 0:
			r.unplaced = ev.Name
		default:
			r.received = append(r.received, acceptance.Received{Seq: ev.Seq, Name: ev.Name, ID: ev.SignalID, Codec: ev.Codec, Data: ev.Result, At: c.Time})
		}
	case checkpoint.KindStarted:
		if !behind && ev.Of == "child" {
			r.children[ev.Operation] = &begunChild{id: ev.Child}
		}
	case checkpoint.KindSettled:
		switch k := r.children[ev.Operation]; {
		case k != nil && behind:
			k.end = &journal.Output{
				Status: checkpoint.Status(ev.Why), Codec: ev.Codec, Data: ev.Result,
				Error: ev.Error, Stack: ev.Stack, Sentinel: ev.Sentinel,
			}
		case k != nil:
			delete(r.children, ev.Operation)
		case !behind && ev.Of == "activity" && ev.Error == "" && ev.Category == "":
			r.completed = append(r.completed, ev.Operation)
		}
	}
}

// named reports whether before names the operation, or a branch that it is in, and returns the id of
// what it names. An id without a reset also names what was begun again in its place.
func named(operation, before string) (id string, ok bool) {
	for end := 0; end < len(operation); {
		next := strings.IndexByte(operation[end:], '.')
		if next < 0 {
			next = len(operation) - end
		}
		if id = operation[:end+next]; id == before || run.Place(id) == before {
			return id, true
		}
		end += next + 1
	}
	return "", false
}

// refusal returns why the run cannot be reset to the point, or "".
func (r *reading) refusal(wf *journal.Workflow) string {
	switch {
	case run.Undoes(r.operation) || r.undoes:
		return "its calls are being undone from that point on; reset it to before one of them"
	case r.unplaced != "":
		return fmt.Sprintf("an earlier release has received a signal %s behind the point, and its place among the others is not known", r.unplaced)
	}
	if !r.undoing {
		return ""
	}
	for _, id := range r.completed {
		if r.undone[id] || !wf.Compensated {
			return fmt.Sprintf("operation %s, which has completed before that point, was undone, or is being undone; reset it to before that", id)
		}
	}
	return ""
}
