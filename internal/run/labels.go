package run

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
)

// SetLabel is engine.Run.SetLabel.
//
// A label is a rider. So a replay knows which labels were stored: those that it asks for before it
// reads a checkpoint that counts. It must not store these again, because an operator may have
// changed them since. The error depends only on what the function itself has done.
func (r *Handle) SetLabel(name, value string) error {
	if err := r.enter("SetLabel " + name); err != nil {
		return err
	}
	x := r.x
	if err := payload.CheckLabelChange(name, value); err != nil {
		return fmt.Errorf("set a label: %w", err)
	}
	l := &x.riders.labels
	own := Relabelled(l.own, map[string]string{name: value})
	if err := payload.CheckLabels(own); err != nil {
		return fmt.Errorf("set label %q: %w", name, err)
	}
	l.own = own
	if l.pending == nil {
		l.pending = map[string]string{}
	}
	l.pending[name] = value
	x.riders.asked()
	return nil
}

// labels are those that the function of a run has set.
type labels struct {
	own     map[string]string // by name, as the function has them
	pending map[string]string // that are not stored; "" removes one
}

func (l *labels) waits() bool { return len(l.pending) > 0 }

func (l *labels) stored() { l.pending = nil }

func (l *labels) ride(x *Execution, c *journal.Change) {
	wf := x.rewriting(c)
	wf.Labels = x.relabelled(wf.Labels)
}

// relabelled returns labels with those that are not stored. One for which there is no room is left
// out.
func (x *Execution) relabelled(labels map[string]string) map[string]string {
	next := Relabelled(labels, nil)
	for _, name := range slices.Sorted(maps.Keys(x.riders.labels.pending)) {
		with := Relabelled(next, map[string]string{name: x.riders.labels.pending[name]})
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
