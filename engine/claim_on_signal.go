package engine

import (
	"context"
	"errors"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// A taking is the claim of a parked run in the commit of what it waits for: so it
// goes on at once, and nobody has to find it.
type taking struct {
	claimable
	life  *life
	write *checkpoint.Write
	leave func()
}

// take decides the claim of wf, whose batch is to go along with b. It is nil if wf
// is not to be driven here, or not without a further look: then b has to have it
// found. Else its leave is to be called in the end.
//
// A sender may go before it knows what became of its commit. Where the store judges
// no conditions, that could land at any time, and a claim must not.
func (e *Engine) take(ctx context.Context, wf *checkpoint.Workflow, b storage.Batch) *taking {
	if !e.mayTake(wf) {
		return nil
	}
	l := e.driver(wf)
	if l == nil {
		return nil
	}
	begun := l.begin(wf.ID)
	t := &taking{life: l, leave: func() {
		begun()
		e.arrived()
		l.running.Done()
	}}
	t.def, _ = e.fits(wf)
	var err error
	if t.hold, t.past, err = checkpoint.FindPast(ctx, e.store, wf); err == nil {
		t.write, err = t.hold.Claim(l.incarnation, checkpoint.HandedOver, l.least(), e.now())
	}
	if err == nil {
		err = t.with(b).Check(e.store.Capabilities().MaxBatch)
	}
	if err != nil {
		t.leave()
		return nil
	}
	return t
}

// mayTake says that wf may be claimed in the commit of what it waits for, if there is
// room.
func (e *Engine) mayTake(wf *checkpoint.Workflow) bool {
	return e.store.Capabilities().ConditionalBatch && wf.Parked() && len(wf.Attention) == 0 && wf.Deaths < suspectAfter &&
		e.driven(wf.ID) == nil && !e.lingers(wf)
}

// with is b together with the claim.
func (t *taking) with(b storage.Batch) storage.Batch {
	w := t.write.Batch
	return storage.Batch{
		If:  append(b.If[:len(b.If):len(b.If)], w.If...),
		Ops: append(b.Ops[:len(b.Ops):len(b.Ops)], w.Ops...),
	}
}

// done drives the run if the commit of d, which came to err, has claimed it.
func (t *taking) done(err error, d *signal.Acceptance) {
	switch {
	case err == nil:
		x := t.life.claimed(&t.claimable, t.write)
		x.address = address{t.write.After, d.Counter}
		x.inbox.begin(t.hold.Workflow, d.Waiting())
		t.life.launch(x)
	case !errors.Is(err, storage.ErrConflict):
		t.life.doubtClaim(t.write.After.ID)
	}
}
