package run

import (
	"fmt"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/export"
)

// Rehearse is drive, but stops at the end of the history.
func (x *Execution) Rehearse(history []checkpoint.Checkpoint) error {
	defer x.Cancel(nil)
	defer x.unwind(nil)
	x.endHistory = func() {}
	x.history = func() (c checkpoint.Checkpoint, err error, ok bool) {
		if ok = len(history) > 0; ok {
			c, history = history[0], history[1:]
		}
		return c, nil, ok
	}
	x.lookAhead()
	x.noteReplay()
	x.startFunction()
	var end checkpoint.Event
	for {
		err := x.runBranches()
		if x.fault != nil {
			return fmt.Errorf("engine: replay of %q: %w", x.ID, x.fault.cause)
		}
		if err != nil {
			return err
		}
		e, ok, err := x.nextEvent()
		if err != nil {
			return err
		}
		if !ok {
			return x.conclude(end)
		}
		switch {
		case e.Kind == checkpoint.KindEnded:
			end = e.Event
		case export.TakesEndBack(e.Event):
			end = checkpoint.Event{}
		}
		if err := x.deliverEvent(e); err != nil {
			return err
		}
	}
}

// conclude compares the state of the function at the end of its history with the end that
// the history has recorded. An end that did not come from the function is not compared.
func (x *Execution) conclude(end checkpoint.Event) error {
	if end.Kind != checkpoint.KindEnded || end.By != "" {
		return nil
	}
	return x.endsAs(end)
}

// endsAs compares the state of the function with the recorded end. It returns nil or a
// *NonDeterminismError.
func (x *Execution) endsAs(end checkpoint.Event) error {
	n := &weft.NonDeterminismError{WorkflowID: x.ID, Recorded: inWords(checkpoint.Status(end.Name), end.Error)}
	if x.result == nil {
		n.Asked = "still to come"
		if o := x.Ops.first; o != nil {
			n.Asked = fmt.Sprintf("after operation %s, %s", o.id, describe(o.kind.name, o.name))
		}
		return n
	}
	if x.continues() {
		n.Asked = "to continue as new"
		return n
	}
	out := x.ending()
	if string(out.Status) == end.Name {
		return nil
	}
	n.Asked = inWords(out.Status, out.Error)
	return n
}

// inWords describes an end: "failed: card declined".
func inWords(status checkpoint.Status, cause string) string {
	if cause == "" {
		return string(status)
	}
	return string(status) + ": " + cause
}
