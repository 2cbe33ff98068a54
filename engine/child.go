package engine

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// A child is a workflow that a run starts.
type child struct {
	starting *starting
	onEnd    ParentEnd
	errors   []error

	begun     bool              // its start is durable
	taken     bool              // its id is taken by another workflow
	ready     bool              // the start may be decided: the id needs no check, or was checked
	dismissed bool              // its cancellation was requested because the parent ends
	waiting   *checkpoint.Child // its record as read last, without its end
	ended     *checkpoint.Child // its record with its end
}

// start begins an operation that starts a workflow.
func (r *runHandle) start(of, workflow string, o StartOptions, options ChildOptions, in any, errs []error) future.Operation {
	op := r.startOperation(of, workflow, nil)
	c, ok := op.(*operation)
	if !ok || c.done {
		return op
	}
	id := options.ID
	if id == "" {
		id = r.x.derived("wrun_", c.id)
	}
	s, err := r.x.host.prepare(r.x.host.base, &StartRequest{Workflow: workflow, ID: id, Input: in, Options: o})
	if err == nil && options.OnParentEnd > ParentEndAwait {
		err = fmt.Errorf("%w: OnParentEnd is %d", ErrInvalid, options.OnParentEnd)
	}
	if err != nil {
		c.settle(outcome{err: err})
		return op
	}
	if of == ofChild {
		s.wf.Parent = &checkpoint.Parent{ID: r.x.id, Generation: r.x.hold.Workflow.Generation, Operation: c.id}
	}
	if def := r.x.host.workflows[workflow]; of == ofChild && def != nil && def.pinned {
		s.wf.Deployment = r.x.hold.Workflow.Deployment
	}
	c.digest = fingerprint(s.wf.Digest)
	c.child = &child{starting: s, onEnd: options.OnParentEnd, errors: errs, ready: options.ID == ""}
	return op
}

// derived returns an id that is unique to this operation of this generation of the run.
func (x *execution) derived(prefix, operation string) string {
	h := sha256.New()
	for _, part := range []string{x.id, x.hold.Workflow.Generation, operation} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return prefix + strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)[:20]))
}

// mostBirths is how many children one checkpoint starts at most.
const mostBirths = 100

// examine checks whether the id of a child that is to be started is free, and whether this
// engine is to execute the child.
func (x *execution) examine(c *child) error {
	s := c.starting
	if s.owner = x.owner; s.host.pins(s.wf) || !s.host.peers.Takes(s.wf) {
		s.owner = nil // start it unclaimed: for another engine, for lack of room, or because its claim chooses the deployment
	}
	if c.ready {
		return nil
	}
	there, err := checkpoint.Load(x.ctx, x.store, c.starting.wf.ID)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		c.starting.on = nil
		if err := x.absent(c.starting.wf.ID); err != nil {
			return err
		}
	case err != nil:
		return err
	case there.Tombstone():
		if err := x.sweep(there); err != nil {
			return err
		}
		c.starting.on = there
	default:
		c.taken = true
	}
	c.ready = true
	return nil
}

// absent returns an error if data is left of a workflow whose record does not exist.
func (x *execution) absent(id string) error {
	_, err := outlast(x.ctx, func() (struct{}, error) {
		_, err := x.host.orphaned(x.ctx, id)
		if errors.Is(err, ErrNotFound) {
			err = nil
		}
		return struct{}{}, err
	})
	return err
}

// sweep finishes a purge.
func (x *execution) sweep(tomb *checkpoint.Workflow) error {
	_, err := outlast(x.ctx, func() (struct{}, error) {
		err := checkpoint.Sweep(x.ctx, x.store, tomb)
		if errors.Is(err, storage.ErrConflict) { // the id was used again
			err = nil
		}
		return struct{}{}, err
	})
	return err
}

// A birth is the start of a child that a commit makes.
type birth struct {
	op       *operation
	starting starting          // with the owner that will execute it, if any
	write    *checkpoint.Write // nil: its id is taken
}

// namesake reports whether the child that o is to start has the id of b.
func (o *operation) namesake(b *birth) bool { return o.child.starting.wf.ID == b.starting.wf.ID }

// born adds the start of o's child to a change.
func (o *operation) born(c *checkpoint.Change) (*birth, error) {
	b := &birth{op: o, starting: *o.child.starting}
	e := o.event(checkpoint.KindStarted)
	e.Child = b.starting.wf.ID
	if o.child.taken {
		e.Kind, e.Error = checkpoint.KindSettled, fmt.Sprintf("%v: %q", ErrExists, e.Child)
		c.Events = append(c.Events, e)
		return b, nil
	}
	s := &b.starting
	w, err := s.decide()
	if err != nil {
		return nil, err
	}
	b.write = w
	c.Events = append(c.Events, e)
	c.If = append(c.If, w.Batch.If...)
	c.Ops = append(c.Ops, w.Batch.Ops...)
	if p := s.wf.Parent; p != nil {
		put, err := checkpoint.NewChild(*p, s.wf.ID).Put()
		if err != nil {
			return nil, err
		}
		c.Ops = append(c.Ops, put)
	}
	return b, nil
}

// launchBorn begins to execute the children that a commit has started.
func (x *execution) launchBorn(born []*birth) {
	for _, b := range born {
		if b.write != nil {
			b.starting.begun(b.write)
		}
	}
}

// undoStart is called when a commit failed. The ids of the children that it was to start are
// checked again. If it is not certain that the commit failed, the children are claimed later
// in case it started them.
func (x *execution) undoStart(born []*birth, certain bool) {
	for _, b := range born {
		b.op.child.ready = false
		if !certain {
			x.owner.Doubt(b.starting.wf.ID)
		}
	}
}

// readChildren reads the records of children, to find those that have ended. The next commit
// deletes records whose operation has left the table.
func (x *execution) readChildren() error {
	if !x.childrenStale {
		return nil
	}
	x.childrenStale = false
	x.orphanRecords = nil
	if !x.ops.hasChildren() {
		return nil
	}
	for entry, err := range storage.All(x.ctx, x.store, keys.ChildrenOf(x.id)) {
		if err == nil {
			err = x.readChild(entry)
		}
		if err != nil {
			x.childrenStale = true
			return err
		}
	}
	return nil
}

func (x *execution) readChild(entry storage.Entry) error {
	operation, err := keys.Last(entry.Key)
	if err != nil {
		return err
	}
	c, err := checkpoint.OpenChild(entry)
	o := x.ops.byID[operation]
	switch {
	case err != nil || c.Parent != x.hold.Workflow.Generation:
		return err
	case o == nil || o.child == nil:
		if len(x.orphanRecords) < mostBirths {
			x.orphanRecords = append(x.orphanRecords, c.Delete())
		}
	case c.End == nil:
		o.child.waiting = c
	case o.child.ended == nil:
		o.child.ended = c
		x.ops.endedChildren = append(x.ops.endedChildren, o)
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
func (o *operation) grownUp(c *checkpoint.Change) checkpoint.Event {
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
	case e.Why == "":
		return fmt.Errorf("%w: %q", ErrExists, e.Child)
	}
	failed := &WorkflowError{WorkflowID: e.Child, Workflow: o.name, Message: e.Error, Stack: e.Stack, SentinelText: e.Sentinel}
	failed.Sentinel = named(e.Sentinel, o.child.errors, o.x.def.errors)
	if e.Why == string(checkpoint.StatusCancelled) {
		failed.Sentinel = ErrCancelled
	}
	return failed
}

// dismiss marks o's child to be cancelled, unless OnParentEnd is ParentEndAbandon.
func (x *execution) dismiss(o *operation) {
	if o.of == ofChild && o.child.begun && o.child.onEnd != ParentEndAbandon {
		x.dismissed = append(x.dismissed, o.child.starting.wf)
	}
}

// dismissals cancels the children that are marked for it. This is done before anything
// later becomes durable, and repeated after a crash.
func (x *execution) dismissals() error {
	for len(x.dismissed) > 0 {
		_, err := outlast(x.ctx, func() (struct{}, error) {
			kid := x.dismissed[0]
			err := x.host.peers.CancelChild(x.ctx, kid.ID, kid.Parent, Actor{Reason: fmt.Sprintf("%s of parent %q", x.whyDismissed(), x.id)})
			if errors.Is(err, ErrTerminal) || errors.Is(err, ErrNotFound) {
				err = nil
			}
			return struct{}{}, err
		})
		if err != nil {
			return err
		}
		x.dismissed = x.dismissed[1:]
	}
	return nil
}

func (x *execution) whyDismissed() string {
	if x.cancelled != nil {
		return "cancellation"
	}
	return "end"
}

// awaits reports whether the run must not end yet: a child with ParentEndAwait has not ended,
// or a child that is to outlive the run has not been started. It dismisses the children that
// the run does not wait for.
func (x *execution) awaits() (wait bool) {
	for o := range x.ops.all() {
		switch {
		case o.of != ofChild:
		case !o.child.begun:
			wait = wait || o.child.onEnd != ParentEndCancel
		case o.child.onEnd == ParentEndAwait:
			wait = true
		case !o.child.dismissed:
			o.child.dismissed = true
			x.dismiss(o)
		}
	}
	return wait
}

// report adds the end of the run to a change, in the record that its parent has of it. It
// returns the parent to notify when the change is committed, or nil.
func (x *execution) report(c *checkpoint.Change, out *checkpoint.Output) (parent *checkpoint.Workflow, err error) {
	return x.host.report(x.ctx, x.store, x.hold.Workflow, c, out)
}

// report is execution.report for any workflow.
func (e *host) report(ctx context.Context, s storage.Storage, wf *checkpoint.Workflow, c *checkpoint.Change, out *checkpoint.Output) (parent *checkpoint.Workflow, err error) {
	p := wf.Parent
	if p == nil {
		return nil, nil
	}
	parent, err = checkpoint.Load(ctx, s, p.ID)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if parent.Tombstone() || parent.Generation != p.Generation {
		return nil, nil
	}
	if parent.Status.Terminal() {
		c.If = append(c.If, parent.Unchanged()) // a retry of the parent must not miss this end
		return nil, nil
	}
	kid, err := childOf(ctx, s, p)
	if err != nil || kid == nil || kid.ID != wf.ID || kid.End != nil {
		return nil, err
	}
	kid.End = out
	put, err := kid.Put()
	if err != nil {
		return nil, err
	}
	c.If = append(c.If, parent.Unchanged(), kid.Unchanged())
	c.Ops = append(c.Ops, put)
	if !e.peers.Drives(parent) {
		c.Ops = wakeUp(c.Ops, parent, e.now(), wf.Generation)
	}
	return parent, nil
}

// childOf reads the record that a parent has of a child. It returns nil if there is none.
func childOf(ctx context.Context, s storage.Storage, p *checkpoint.Parent) (*checkpoint.Child, error) {
	key := keys.Child(p.ID, p.Operation)
	raw, err := s.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	kid, err := checkpoint.OpenChild(storage.Entry{Key: key, Value: raw})
	if err != nil || kid.Parent != p.Generation {
		return nil, err
	}
	return kid, nil
}

// StartChild begins a child. See engine.Workflow.Go.
func (r *runHandle) StartChild(workflow string, o StartOptions, options ChildOptions, in any, errs []error) future.Operation {
	return r.start(ofChild, workflow, o, options, in, errs)
}

// StartDetached begins a workflow without a parent. See engine.Workflow.Detach.
func (r *runHandle) StartDetached(workflow string, o StartOptions, id string, in any) future.Operation {
	return r.start(ofDetached, workflow, o, ChildOptions{ID: id}, in, nil)
}

// childID returns the id of the workflow that op started.
func childID(op future.Operation) string { return op.(*operation).child.starting.wf.ID }
