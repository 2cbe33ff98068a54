package run

import (
	"fmt"

	"github.com/weft-go/weft"
)

// branches reports whether an operation of kind k is executed by a branch.
func (k *kind) branches() bool { return k == ofBranch || k == ofUpdate }

// A kind says what the operations of one kind have in common.
type kind struct {
	name    string // recorded, and compared on replay
	naming  string // "name of " and name, for errors
	passive bool   // one gets an outcome only while a branch waits for it

	// give stores the result of o, which has no error, in result: a pointer or nil.
	give func(r *Handle, o *operation, result any) error
}

var (
	ofActivity = &kind{name: "activity", give: giveRecorded}
	ofStep     = &kind{name: "step", give: giveRecorded}
	ofTimer    = &kind{name: "timer", passive: true, give: giveTime}
	ofReceive  = &kind{name: "receive", passive: true, give: giveSignal}
	ofSend     = &kind{name: "send", give: giveRecorded}
	ofBranch   = &kind{name: "branch", give: giveValue}
	ofChild    = &kind{name: "child", give: giveRecorded}

	ofHook     = &kind{name: "hook", give: giveRecorded}
	ofDisposal = &kind{name: "disposal", give: giveNothing} // of a hook

	ofClosing = &kind{name: "closing", give: giveNothing} // of a stream

	// A step that runs in the transaction of its checkpoint.
	ofTransaction = &kind{name: "transaction", give: giveRecorded}

	// The start of a workflow without a parent.
	ofDetached = &kind{name: "detached", give: giveNothing}

	// The cancellation request, as a case of a Select.
	ofCancellation = &kind{name: "cancellation", passive: true, give: giveCancellation}

	// It executes an update. Its id does not come from the function: see update.
	ofUpdate = &kind{name: "update", give: giveNothing}

	// It undoes a call of an activity.
	ofCompensation = &kind{name: "compensation", give: giveRecorded}
)

// kinds are the names of all kinds.
var kinds = map[string]bool{}

func init() {
	for _, k := range []*kind{ofActivity, ofStep, ofTimer, ofReceive, ofSend, ofBranch, ofChild, ofTransaction, ofDetached, ofCancellation, ofCompensation, ofHook, ofDisposal, ofClosing, ofUpdate} {
		kinds[k.name] = true
		k.naming = "name of " + k.name
	}
}

// giveRecorded decodes the recorded result.
func giveRecorded(r *Handle, o *operation, result any) error {
	if result == nil {
		return nil
	}
	r.decode(o.outcome.result, result, func(err error) *fault {
		return undecodable(o.id, o.name, fmt.Errorf("result of %s, operation %s: %w", describe(o.kind.name, o.name), o.id, err))
	})
	return nil
}

func giveNothing(*Handle, *operation, any) error { return nil }

// giveValue stores the value that a branch returned.
func giveValue(_ *Handle, o *operation, result any) error {
	o.outcome.value.(func(any))(result)
	return nil
}

// giveCancellation stores the cancellation request.
func giveCancellation(r *Handle, _ *operation, result any) error {
	if p, ok := result.(*weft.Cancellation); ok {
		*p = *r.x.cancelled
	}
	return nil
}
