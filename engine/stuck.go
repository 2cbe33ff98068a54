package engine

import (
	"context"
	"fmt"
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
			l.reportStuck(ctx, x, busy)
		case l.once(fmt.Sprint("tardy ", x.id, since)):
			l.eng.log.Warn("weft: workflow function has not called the engine for long", "workflow", x.id, "type", x.def.name, "for", busy.Round(time.Millisecond), "stack", x.stack())
		}
	}
	return nil
}

func (l *incarnation) reportStuck(ctx context.Context, x *execution, busy time.Duration) {
	reason := checkpoint.Attention{
		Reason: string(ReasonStuck),
		Detail: recordable(fmt.Sprintf("the function has not called the engine for %v\n%s", busy.Round(time.Second), x.stack())),
		Since:  checkpoint.Micro(l.eng.now()),
	}
	l.eng.log.Error("weft: workflow function blocks its run", "workflow", x.id, "type", x.def.name, "for", busy.Round(time.Second))
	err := l.eng.change(ctx, x.id, change{
		name:   "report of the stuck run",
		landed: func(_ context.Context, wf *checkpoint.Workflow) (bool, error) { return heldFor(wf, ReasonStuck), nil },
		decide: func(_ context.Context, wf *checkpoint.Workflow) (*changing, error) {
			switch {
			case wf.Status.Terminal():
				return nil, &TerminalError{WorkflowID: x.id, Status: wf.Status}
			case wf.Owner != l.name || !x.stuck.Load():
				return nil, nil
			}
			next := *wf
			next.Attention = append(wf.Attention[:len(wf.Attention):len(wf.Attention)], reason)
			return l.eng.rewritten(wf, &next)
		},
	})
	if err != nil && ctx.Err() == nil {
		l.eng.log.Warn("weft: run is stuck, but this could not be recorded", "workflow", x.id, "error", err)
	}
}
