package run

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
)

// SetLabel is engine.Run.SetLabel.
//
// A label is no operation. It is stored with the next checkpoint that the driver writes while
// every branch waits: see atRest. So a replay knows which labels were stored: those that it
// asks for before it reads such a checkpoint. It must not store these again, because an operator
// may have changed them since. The error depends only on what the function itself has done.
func (r *Handle) SetLabel(name, value string) error {
	if err := r.enter("SetLabel " + name); err != nil {
		return err
	}
	x := r.x
	if err := payload.CheckLabelChange(name, value); err != nil {
		return fmt.Errorf("set a label: %w", err)
	}
	own := Relabelled(x.labels.own, map[string]string{name: value})
	if err := payload.CheckLabels(own); err != nil {
		return fmt.Errorf("set label %q: %w", name, err)
	}
	x.labels.own = own
	if x.labels.pending == nil {
		x.labels.pending, x.labels.since = map[string]string{}, time.Now()
	}
	x.labels.pending[name] = value
	return nil
}

// labels are those that the function of a run has set.
type labels struct {
	own     map[string]string // by name, as the function has them
	pending map[string]string // that are not stored; "" removes one
	since   time.Time         // when the first of these was set
}

// soon is how long a label waits for a checkpoint to be stored with.
const soon = 100 * time.Millisecond

// due returns how long it is until the labels are stored by themselves, and whether any are to be.
func (l *labels) due() (wait time.Duration, ok bool) {
	return soon - time.Since(l.since), len(l.pending) > 0
}

// atRest reports whether the driver wrote a checkpoint with these events while every branch
// waited: then it has the labels that were set before it. Claims are written by whoever takes the
// run, and a run is also held while its function has not come to rest. A checkpoint that begins a
// life has the labels of the life before.
func atRest(events []checkpoint.Event) bool {
	return !slices.ContainsFunc(events, func(e checkpoint.Event) bool {
		switch e.Kind {
		case checkpoint.KindClaimed, checkpoint.KindSkipped, checkpoint.KindParked, checkpoint.KindContinued:
			return true
		case checkpoint.KindHeld:
			return e.Of == ""
		}
		return false
	})
}

// appending decides the next checkpoint of the run, with the labels that are not stored.
func (x *Execution) appending(c journal.Change) (*journal.Write, error) {
	if len(x.labels.pending) > 0 && atRest(c.Events) {
		wf := *x.Hold.Workflow
		if c.Workflow != nil {
			wf = *c.Workflow
		}
		wf.Labels = x.relabelled(wf.Labels)
		c.Workflow = &wf
	}
	return x.Hold.AppendAt(c, x.host.Read())
}

// relabelled returns labels with those that are not stored. One for which there is no room is left
// out.
func (x *Execution) relabelled(labels map[string]string) map[string]string {
	next := Relabelled(labels, nil)
	for _, name := range slices.Sorted(maps.Keys(x.labels.pending)) {
		with := Relabelled(next, map[string]string{name: x.labels.pending[name]})
		if err := payload.CheckRelabelled(with); err != nil {
			x.logger().Warn("weft: label of a workflow is not stored", "name", name, "error", err)
			continue
		}
		next = with
	}
	return next
}

// Relabelled returns labels with changes, of which an empty value removes a label.
func Relabelled(labels, changes map[string]string) map[string]string {
	next := map[string]string{}
	maps.Copy(next, labels)
	for name, value := range changes {
		if next[name] = value; value == "" {
			delete(next, name)
		}
	}
	return next
}

// storedLabels notes that a checkpoint with these events is in the history.
func (x *Execution) storedLabels(events []checkpoint.Event) {
	if atRest(events) {
		x.labels.pending = nil
	}
}
