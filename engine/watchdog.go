package engine

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft/checkpoint"
)

// A turn of user code lasts from one call of the engine to the next, usually microseconds. A
// longer turn is logged after tardy, and recorded as a reason for attention after lost.
const (
	tardy = time.Second
	lost  = 30 * time.Second
)

// watch looks for runs whose function does not return to the engine. While the function has
// the turn, the run cannot process anything.
func (l *incarnation) findStuck(ctx context.Context) error {
	l.eng.mu.Lock()
	var late []*execution
	for _, x := range l.eng.runs {
		if since := x.busySince.Load(); since != 0 && time.Since(time.Unix(0, since)) >= tardy {
			late = append(late, x)
		}
	}
	l.eng.mu.Unlock()
	for _, x := range late {
		since := x.busySince.Load()
		busy := time.Since(time.Unix(0, since))
		switch {
		case since == 0 || busy < tardy:
		case busy >= lost && x.stuck.CompareAndSwap(false, true):
			x.reportStuck(ctx, busy)
		case l.once(fmt.Sprint("tardy ", x.id, since)):
			l.eng.log.Warn("weft: workflow function has not called the engine for long", "workflow", x.id, "type", x.def.name, "for", busy.Round(time.Millisecond), "stack", x.stack())
		}
	}
	return nil
}

func (x *execution) reportStuck(ctx context.Context, busy time.Duration) {
	reason := checkpoint.Attention{
		Reason: string(ReasonStuck),
		Detail: recordable(fmt.Sprintf("the function has not called the engine for %v\n%s", busy.Round(time.Second), x.stack())),
		Since:  checkpoint.Micro(x.eng.now()),
	}
	x.eng.log.Error("weft: workflow function blocks its run", "workflow", x.id, "type", x.def.name, "for", busy.Round(time.Second))
	err := x.eng.change(ctx, x.id, change{
		name:   "report of the stuck run",
		landed: func(_ context.Context, wf *checkpoint.Workflow) (bool, error) { return heldFor(wf, ReasonStuck), nil },
		decide: func(_ context.Context, wf *checkpoint.Workflow) (*changing, error) {
			switch {
			case wf.Status.Terminal():
				return nil, &TerminalError{WorkflowID: x.id, Status: wf.Status}
			case wf.Owner != x.incarnation.name || !x.stuck.Load():
				return nil, nil
			}
			next := *wf
			next.Attention = append(wf.Attention[:len(wf.Attention):len(wf.Attention)], reason)
			return x.eng.rewritten(wf, &next)
		},
	})
	if err != nil && ctx.Err() == nil {
		x.eng.log.Warn("weft: run is stuck, but this could not be recorded", "workflow", x.id, "error", err)
	}
}

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
