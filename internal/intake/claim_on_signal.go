package intake

import (
	"context"
	"errors"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/worker"
	"github.com/weft-go/weft/storage"
)

// A taking is the claim of a parked run in the same commit as the signal that it waits
// for. So the run continues at once, and no poll has to find it.
type taking struct {
	worker.Claimable
	incarnation *worker.Incarnation
	write       *journal.Write
	leave       func()
}

// take decides the claim of wf that is to be committed together with b. It returns nil if
// this engine may not execute wf, or cannot decide that without another read. Then b must
// contain a wake-up for wf. Otherwise the caller must call leave at the end.
//
// A sender may give up before it knows the outcome of its commit. On a store without
// conditions that commit could still take effect at any time, which a claim must not.
func (e *Intake) take(ctx context.Context, wf *journal.Workflow, b storage.Batch) *taking {
	if !e.mayTake(wf) {
		return nil
	}
	l := e.Join(wf)
	if l == nil {
		return nil
	}
	begun := l.BeginStart(wf.ID)
	t := &taking{incarnation: l, leave: func() {
		begun()
		e.Arrived()
		l.Running.Done()
	}}
	t.Definition, _ = e.Fits(wf)
	var err error
	if t.Hold, t.Past, err = journal.FindPast(ctx, e.Store, wf); err == nil {
		t.write, err = t.Hold.Claim(l.Name(), checkpoint.HandedOver, l.Least(), e.Now())
	}
	if err == nil {
		err = t.with(b).Check(e.Store.Capabilities().MaxBatch)
	}
	if err != nil {
		t.leave()
		return nil
	}
	return t
}

// mayTake reports whether wf may be claimed in the commit of a signal that it waits for,
// if there is room.
func (e *Intake) mayTake(wf *journal.Workflow) bool {
	return e.Store.Capabilities().ConditionalBatch && wf.Parked() && len(wf.Attention) == 0 && wf.Deaths < run.SuspectAfter &&
		e.Executing(wf.ID) == nil && !e.Lingers(wf)
}

// with returns b extended by the claim.
func (t *taking) with(b storage.Batch) storage.Batch {
	w := t.write.Batch
	return storage.Batch{
		If:  append(b.If[:len(b.If):len(b.If)], w.If...),
		Ops: append(b.Ops[:len(b.Ops):len(b.Ops)], w.Ops...),
	}
}

// done executes the run if the commit of d, which returned err, has claimed it.
func (t *taking) done(err error, d *acceptance.Acceptance) {
	switch {
	case err == nil:
		x := t.incarnation.Claimed(&t.Claimable, t.write)
		x.Address = run.Address{Workflow: t.write.After, Counted: d.Counter}
		x.Inbox.TakeIn(t.Hold.Workflow, d.Waiting())
		t.incarnation.Launch(x)
	case !errors.Is(err, storage.ErrConflict):
		t.incarnation.DoubtClaim(t.write.After.ID)
	}
}
