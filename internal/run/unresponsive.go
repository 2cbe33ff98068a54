package run

import (
	"fmt"
	"slices"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
)

// readOverdue marks an attempt as unresponsive, so that the run needs an operator.
func (x *Execution) readOverdue(o *operation, a *attempt) {
	if o.working == a && !o.unresponsive {
		o.unresponsive = true
		x.Ops.responsiveness = append(x.Ops.responsiveness, o)
	}
}

// heard is called when o's attempt has returned. If it was unresponsive, it no longer is.
func (x *Execution) heard(o *operation) {
	if !o.unresponsive {
		return
	}
	o.unresponsive = false
	if i := slices.Index(x.Ops.responsiveness, o); i >= 0 {
		x.Ops.responsiveness = slices.Delete(x.Ops.responsiveness, i, i+1) // not recorded yet
		return
	}
	x.Ops.responsiveness = append(x.Ops.responsiveness, o)
}

// unresponsiveEvent returns the event that o's attempt is unresponsive, or has returned after all.
func (o *operation) unresponsiveEvent() checkpoint.Event {
	if !o.unresponsive {
		return checkpoint.Event{Kind: checkpoint.KindCameBack, Operation: o.id, Of: o.kind.name, Name: o.name}
	}
	return checkpoint.Event{Kind: checkpoint.KindHeld, Operation: o.id, Of: o.kind.name, Name: string(weft.ReasonUnresponsive), Error: o.unresponsiveText()}
}

func (o *operation) unresponsiveText() string {
	return fmt.Sprintf("attempt %d has not returned, although its timeout and then Settle have passed", o.working.number)
}

// isUnresponsiveIn reports whether a says that o's attempt is unresponsive.
func (o *operation) isUnresponsiveIn(a journal.Attention) bool {
	return a.Reason == string(weft.ReasonUnresponsive) && a.Operation == o.id
}

// tellOf adds to a workflow record that o's attempt is unresponsive, or removes this.
func (o *operation) tellOf(wf *journal.Workflow, now time.Time) {
	wf.Attention = slices.DeleteFunc(slices.Clone(wf.Attention), o.isUnresponsiveIn)
	if o.unresponsive {
		wf.Attention = append(wf.Attention, journal.Attention{
			Reason:    string(weft.ReasonUnresponsive),
			Operation: o.id,
			Name:      o.name,
			Detail:    o.unresponsiveText(),
			Since:     journal.Micro(now),
		})
	}
}
