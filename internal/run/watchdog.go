package run

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
)

// comeBack records that no branch has the turn.
func (x *Execution) comeBack() { x.BusySince.Store(0) }

// unstick removes the attention for a stuck function that has returned to the engine. done is true
// if it has recorded that.
func (x *Execution) unstick() (done bool, err error) {
	for x.Stuck.Load() {
		if err := x.refresh(true); err != nil {
			return false, err
		}
		wf := *x.Hold.Workflow
		wf.State++ // makes a concurrent report conflict
		wf.Attention = slices.DeleteFunc(slices.Clone(wf.Attention), func(a journal.Attention) bool { return a.Reason == string(weft.ReasonStuck) })
		done, err := x.commit(journal.Change{Events: []checkpoint.Event{{Kind: checkpoint.KindCameBack}}, Workflow: &wf})
		if err != nil {
			return false, err
		}
		if done {
			x.Stuck.Store(false)
			return true, nil
		}
	}
	return false, nil
}

// label labels a goroutine of user code, for profiles and for stack.
func (x *Execution) label() {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(labelWorkflow, x.ID)))
}

const labelWorkflow = "weft.workflow"

// Stack returns the stacks of the goroutines of the run's user code.
func (x *Execution) Stack() string {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return err.Error()
	}
	label := fmt.Sprintf("%q:%q", labelWorkflow, x.ID)
	var mine []string
	for _, g := range strings.Split(all.String(), "\n\n") {
		if strings.Contains(g, label) {
			mine = append(mine, g)
		}
	}
	return strings.Join(mine, "\n\n")
}
