package engine

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/weft-go/weft/checkpoint"
)

// comeBack records that no branch has the turn.
func (x *execution) comeBack() { x.busySince.Store(0) }

// unstick removes the attention for a stuck function that has returned to the engine.
func (x *execution) unstick() error {
	for x.stuck.Load() {
		if err := x.refresh(); err != nil {
			return err
		}
		wf := *x.hold.Workflow
		wf.State++ // makes a concurrent report conflict
		wf.Attention = slices.DeleteFunc(slices.Clone(wf.Attention), func(a checkpoint.Attention) bool { return a.Reason == string(ReasonStuck) })
		done, err := x.commit(checkpoint.Change{Events: []checkpoint.Event{{Kind: checkpoint.KindCameBack}}, Workflow: &wf})
		if err != nil {
			return err
		}
		if done {
			x.stuck.Store(false)
		}
	}
	return nil
}

// label labels a goroutine of user code, for profiles and for stack.
func (x *execution) label() {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(labelWorkflow, x.id)))
}

const labelWorkflow = "weft.workflow"

// stack returns the stacks of the goroutines of the run's user code.
func (x *execution) stack() string {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return err.Error()
	}
	label := fmt.Sprintf("%q:%q", labelWorkflow, x.id)
	var mine []string
	for _, g := range strings.Split(all.String(), "\n\n") {
		if strings.Contains(g, label) {
			mine = append(mine, g)
		}
	}
	return strings.Join(mine, "\n\n")
}
