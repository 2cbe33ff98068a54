package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/weft-go/weft/checkpoint"
)

// readOverdue marks an attempt as unresponsive, so that the run needs an operator.
func (x *execution) readOverdue(o *operation, a *attempt) {
	if o.working == a && !o.unresponsive {
		o.unresponsive = true
		x.ops.responsiveness = append(x.ops.responsiveness, o)
	}
}

// heard is called when o's attempt has returned. If it was unresponsive, it no longer is.
func (x *execution) heard(o *operation) {
	if !o.unresponsive {
		return
	}
	o.unresponsive = false
	if i := slices.Index(x.ops.responsiveness, o); i >= 0 {
		x.ops.responsiveness = slices.Delete(x.ops.responsiveness, i, i+1) // not recorded yet
		return
	}
	x.ops.responsiveness = append(x.ops.responsiveness, o)
}

// unresponsiveEvent returns the event that o's attempt is unresponsive, or has returned after all.
func (o *operation) unresponsiveEvent() checkpoint.Event {
	if !o.unresponsive {
		return checkpoint.Event{Kind: checkpoint.KindCameBack, Operation: o.id, Of: o.of, Name: o.name}
	}
	return checkpoint.Event{Kind: checkpoint.KindHeld, Operation: o.id, Of: o.of, Name: string(ReasonUnresponsive), Error: o.unresponsiveText()}
}

func (o *operation) unresponsiveText() string {
	return fmt.Sprintf("attempt %d has not returned, although its timeout and then Settle have passed", o.working.number)
}

// isUnresponsiveIn reports whether a says that o's attempt is unresponsive.
func (o *operation) isUnresponsiveIn(a checkpoint.Attention) bool {
	return a.Reason == string(ReasonUnresponsive) && a.Operation == o.id
}

// tellOf adds to a workflow record that o's attempt is unresponsive, or removes this.
func (o *operation) tellOf(wf *checkpoint.Workflow, now time.Time) {
	wf.Attention = slices.DeleteFunc(slices.Clone(wf.Attention), o.isUnresponsiveIn)
	if o.unresponsive {
		wf.Attention = append(wf.Attention, checkpoint.Attention{
			Reason:    string(ReasonUnresponsive),
			Operation: o.id,
			Name:      o.name,
			Detail:    o.unresponsiveText(),
			Since:     checkpoint.Micro(now),
		})
	}
}
