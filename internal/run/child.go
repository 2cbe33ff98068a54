package run

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/storage"
)

// A child is a workflow that a run starts.
type child struct {
	starting *PreparedStart
	onEnd    weft.ParentEnd
	errors   []error

	foreign   bool           // its id is of another namespace than the run's
	begun     bool           // its start is durable
	taken     bool           // its id is taken by another workflow
	ready     bool           // the start may be decided: the id needs no check, or was checked
	dismissed bool           // its cancellation was requested because the parent ends
	waiting   *journal.Child // its record as read last, without its end
	ended     *journal.Child // its record with its end
	found     *adoption      // it was started before the run was reset, and is taken up
}

// start begins an operation that starts a workflow.
func (r *Handle) start(k *kind, workflow string, o weft.StartOptions, options weft.ChildOptions, in any, errs []error) future.Operation {
	op := r.startOperation(k, workflow, nil)
	c, ok := op.(*operation)
	if !ok || c.done {
		return op
	}
	id, ours := r.x.named(options.ID)
	if id == "" {
		id, _ = r.x.named(r.x.derived("wrun_", c.id))
	}
	s, err := r.x.host.Prepare(r.x.host.Base, &weft.StartRequest{Workflow: workflow, ID: id, Input: in, Options: o})
	if err == nil && options.OnParentEnd > weft.ParentEndAwait {
		err = fmt.Errorf("%w: OnParentEnd is %d: use ParentEndCancel, ParentEndAbandon or ParentEndAwait", weft.ErrInvalid, options.OnParentEnd)
	}
	if err != nil {
		c.settle(outcome{err: err})
		return op
	}
	if k == ofChild {
		s.Workflow.Parent = &journal.Parent{ID: r.x.ID, Generation: r.x.Hold.Workflow.Generation, Operation: c.id}
		s.inherit(r.x.Hold.Workflow)
	}
	c.digest = payload.Fingerprint(s.Workflow.Digest)
	c.child = &child{starting: s, onEnd: options.OnParentEnd, errors: errs, foreign: !ours, ready: options.ID == ""}
	return op
}

// derived returns an id that is unique to this operation of this generation of the run.
func (x *Execution) derived(prefix, operation string) string {
	h := sha256.New()
	for _, part := range []string{x.ID, x.Hold.Workflow.Generation, operation} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return prefix + strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)[:20]))
}

// mostBirths is how many children one checkpoint starts at most.
const mostBirths = 100

// examine checks whether the id of a child that is to be started is free, and whether this engine is to execute the child.
func (x *Execution) examine(c *child) error {
	if c.foreign {
		c.ready = true
		return nil
	}
	s := c.starting
	s.Announce(x.within)
	if s.Owner = x.Owner; s.host.Pins(s.Workflow) || !s.host.Peers.Takes(s.Workflow) {
		s.Owner = nil // start it unclaimed: for another engine, for lack of room, or because its claim chooses the deployment
	}
	if c.ready {
		return nil
	}
	c.taken, c.found = false, nil
	there, err := journal.Load(x.Ctx, x.store, c.starting.Workflow.ID)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		c.starting.Replaces = nil
		orphaned := func() error { _, err := x.host.Orphaned(x.Ctx, c.starting.Workflow.ID); return err }
		if err := x.outlasts(orphaned, weft.ErrNotFound); err != nil {
			return err
		}
	case err != nil:
		return err
	case there.Tombstone():
		sweep := func() error { return journal.Sweep(x.Ctx, x.store, there) }
		if err := x.outlasts(sweep, storage.ErrConflict); err != nil { // the id was used again
			return err
		}
		c.starting.Replaces = there
	default:
		if c.found, err = x.adopts(c, there); err != nil {
			return err
		}
		c.taken = c.found == nil
	}
	c.ready = true
	return nil
}

// A birth is the start of a child that a commit makes.
type birth struct {
	op       *operation
	starting PreparedStart  // with the owner that will execute it, if any
	write    *journal.Write // nil: its id is taken
}

// namesake reports whether the child that o is to start has the id of b.
func (o *operation) namesake(b *birth) bool {
	return o.child.starting.Workflow.ID == b.starting.Workflow.ID
}

// born adds the start of o's child to a change.
func (o *operation) born(c *journal.Change) (*birth, error) {
	b := &birth{op: o, starting: *o.child.starting}
	e := o.event(checkpoint.KindStarted)
	e.Child = b.starting.Workflow.ID
	if o.child.foreign { // recorded, because a run of an earlier release may have started it
		e.Kind, e.Error, e.Sentinel = checkpoint.KindSettled, foreign(e.Child).Error(), weft.ErrInvalid.Error()
		c.Events = append(c.Events, e)
		return b, nil
	}
	if o.child.taken {
		e.Kind, e.Error = checkpoint.KindSettled, (&weft.ExistsError{WorkflowID: e.Child}).Error()
		c.Events = append(c.Events, e)
		return b, nil
	}
	if a := o.child.found; a != nil {
		c.Events = append(c.Events, e)
		return b, a.take(o, c)
	}
	s := &b.starting
	w, err := s.Decide()
	if err != nil {
		return nil, err
	}
	b.write = w
	c.Events = append(c.Events, e)
	c.If = append(c.If, w.Batch.If...)
	c.Ops = append(c.Ops, w.Batch.Ops...)
	if p := s.Workflow.Parent; p != nil {
		put, err := journal.NewChild(*p, s.Workflow.ID, uint8(o.child.onEnd)).Put()
		if err != nil {
			return nil, err
		}
		c.Ops = append(c.Ops, put)
	}
	return b, nil
}

// commitBirths commits c, which starts the children of born, and begins to execute them. If the commit fails, their ids are
// checked again. If it is not certain that it failed, the children are claimed later in case it started them.
func (x *Execution) commitBirths(c journal.Change, born []*birth) (done bool, err error) {
	for _, b := range born {
		defer x.Owner.BeginStart(b.starting.Workflow.ID)()
	}
	done, err = x.commit(c)
	for _, b := range born {
		switch {
		case !done:
			b.op.child.ready = false
			if err != nil {
				x.Owner.DoubtStart(b.starting.Workflow.ID)
			}
		case b.write != nil:
			b.starting.Begun(b.write)
		case b.op.child.found != nil:
			x.childrenStale = true // it may have ended
		}
	}
	return done, err
}

// readChildren reads the records of children, to find those that have ended. The next commit
// deletes records that nobody needs: their operation has left the table.
func (x *Execution) readChildren() error {
	if !x.childrenStale {
		return nil
	}
	x.orphanRecords = nil
	if x.Ops.hasChildren() || len(x.left) > 0 {
		for entry, err := range journal.Records(x.Ctx, x.store, keys.ChildrenOf(x.ID)) {
			if err == nil {
				err = x.readChild(entry)
			}
			if err != nil {
				return err
			}
		}
	}
	x.childrenStale = false
	return nil
}

func (x *Execution) readChild(entry storage.Entry) error {
	operation, err := keys.Last(entry.Key)
	if err != nil {
		return err
	}
	c, err := journal.OpenChild(entry)
	o := x.Ops.byID[operation]
	switch {
	case err != nil || c.Parent != x.Hold.Workflow.Generation:
		return err
	case c.End == nil && x.isStray(operation, c), o != nil && o.child != nil && !o.child.begun:
	case o == nil || o.child == nil:
		// A child that is to outlive the run keeps its record while it runs: nothing else says so after a reset. All keep
		// theirs while the function may have given them up because of a failure that a retry takes back.
		goesOn := c.End == nil && weft.ParentEnd(c.OnEnd) == weft.ParentEndAbandon
		if !goesOn && !x.Ops.lastCut.After(x.Ops.quiet) && len(x.orphanRecords) < mostBirths {
			x.orphanRecords = append(x.orphanRecords, c.Delete())
		}
	case c.End == nil:
		o.child.waiting = c
	case o.child.ended == nil:
		o.child.ended = c
		x.Ops.endedChildren = append(x.Ops.endedChildren, o)
	}
	return nil
}

func (t *table) hasChildren() bool {
	for o := range t.all() {
		if o.child != nil && o.child.begun {
			return true
		}
	}
	return false
}

// grownUp adds the end of o's child to a change, and returns its event.
func (o *operation) grownUp(c *journal.Change) checkpoint.Event {
	k := o.child.ended
	c.If = append(c.If, k.Unchanged())
	c.Ops = append(c.Ops, k.Delete())
	e := o.event(checkpoint.KindSettled)
	e.Input = nil // its start has it
	e.Child, e.Result, e.Codec = k.ID, k.End.Data, k.End.Codec
	e.Error, e.Stack, e.Sentinel, e.Why = k.End.Error, k.End.Stack, k.End.Sentinel, string(k.End.Status)
	return e
}

// endOfChild returns the error of a child that a durable event records.
func (o *operation) endOfChild(e logged) error {
	switch {
	case e.Kind == checkpoint.KindStarted || e.Why == string(checkpoint.StatusCompleted):
		return nil
	case e.Why == "" && e.Sentinel == weft.ErrInvalid.Error():
		return foreign(e.Child)
	case e.Why == "":
		return &weft.ExistsError{WorkflowID: e.Child}
	}
	failed := &weft.WorkflowError{WorkflowID: e.Child, Workflow: o.name, Message: e.Error, Stack: e.Stack, SentinelText: e.Sentinel}
	failed.Sentinel = payload.SentinelOf(e.Sentinel, o.child.errors, o.x.Definition.Errors)
	if e.Why == string(checkpoint.StatusCancelled) {
		failed.Sentinel = weft.ErrCancelled
	}
	return failed
}

// dismiss marks o's child to be cancelled, unless OnParentEnd is ParentEndAbandon.
func (x *Execution) dismiss(o *operation) {
	if o.kind == ofChild && o.child.begun && o.child.onEnd != weft.ParentEndAbandon {
		x.dismissed = append(x.dismissed, o.child.starting.Workflow)
	}
}

// dismissals cancels the children that are marked for it. This is done before anything
// later becomes durable, and repeated after a crash.
func (x *Execution) dismissals() error {
	why := "end"
	if x.cancelled != nil {
		why = "cancellation"
	}
	for len(x.dismissed) > 0 {
		kid := x.dismissed[0]
		if err := x.askToStop(kid.ID, kid.Parent, why); err != nil {
			return err
		}
		x.dismissed = x.dismissed[1:]
	}
	return nil
}

// askToStop requests the cancellation of a child, unless it has ended or is gone.
func (x *Execution) askToStop(id string, parent *journal.Parent, why string) error {
	return x.outlasts(func() error {
		return x.host.Peers.RequestCancel(x.Ctx, id, parent, weft.Actor{Reason: fmt.Sprintf("%s of parent %q", why, x.ID)})
	}, weft.ErrTerminal, weft.ErrNotFound)
}

// outlasts calls do as reads.Outlast calls read. These errors are none.
func (x *Execution) outlasts(do func() error, none ...error) error {
	_, err := reads.Outlast(x.Ctx, x.host.Log, x.ID, func() (any, error) {
		err := do()
		if payload.MatchSentinel(err, none) != nil {
			err = nil
		}
		return nil, err
	})
	return err
}

// awaits reports whether the run must not end yet: a child with ParentEndAwait has not ended, or a child that is to outlive
// the run has not been started. It dismisses the children that the run does not wait for.
func (x *Execution) awaits() (wait bool) {
	for o := range x.Ops.all() {
		switch {
		case o.kind != ofChild:
		case !o.child.begun:
			wait = wait || o.child.onEnd != weft.ParentEndCancel
		case o.child.onEnd == weft.ParentEndAwait:
			wait = true
		case !o.child.dismissed:
			o.child.dismissed = true
			x.dismiss(o)
		}
	}
	return wait
}

// Report adds the end of wf to a change, in the record that its parent has of it, or that no life of the parent will learn
// of it. It returns the parent to notify when the change is committed, or nil.
func (e *Host) Report(ctx context.Context, s storage.Storage, wf *journal.Workflow, c *journal.Change, out *journal.Output) (parent *journal.Workflow, err error) {
	p := wf.Parent
	if p == nil {
		return nil, nil
	}
	parent, err = journal.Load(ctx, s, p.ID)
	switch {
	case errors.Is(err, storage.ErrNotFound), err == nil && (parent.Tombstone() || parent.Generation != p.Generation):
		return nil, nil
	case err != nil:
		return nil, err
	}
	c.Workflow.Untold = parent.Former(p.Operation)
	c.If = append(c.If, parent.Unchanged()) // a retry or a reset of the parent must not miss this end
	if parent.Status.Terminal() {
		return nil, nil
	}
	kid, err := ChildOf(ctx, s, wf)
	if err != nil || kid == nil || kid.End != nil {
		return nil, err
	}
	kid.End = out
	put, err := kid.Put()
	if err != nil {
		return nil, err
	}
	c.If = append(c.If, kid.Unchanged())
	c.Ops = append(c.Ops, put)
	if !e.Peers.Drives(parent) {
		c.Ops = WakeUp(c.Ops, parent, e.Now(), wf.Generation)
	}
	return parent, nil
}

// ChildOf reads the record that the parent of wf has of it. It returns nil if there is none.
func ChildOf(ctx context.Context, s storage.Storage, wf *journal.Workflow) (*journal.Child, error) {
	key := keys.Child(wf.Parent.ID, wf.Parent.Operation)
	raw, err := s.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	kid, err := journal.OpenChild(storage.Entry{Key: key, Value: raw})
	if err != nil || kid.Parent != wf.Parent.Generation || kid.ID != wf.ID {
		return nil, err
	}
	return kid, nil
}

// StartChild begins a child. See engine.Workflow.Go.
func (r *Handle) StartChild(workflow string, o weft.StartOptions, options weft.ChildOptions, in any, errs []error) future.Operation {
	return r.start(ofChild, workflow, o, options, in, errs)
}

// StartDetached begins a workflow without a parent. See engine.Workflow.Detach.
func (r *Handle) StartDetached(workflow string, o weft.StartOptions, id string, in any) future.Operation {
	return r.start(ofDetached, workflow, o, weft.ChildOptions{ID: id}, in, nil)
}

// ChildID returns the id of the workflow that op started.
func ChildID(op future.Operation) string { return op.(*operation).child.starting.Workflow.ID }
