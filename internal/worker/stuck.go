package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/storage"
)

// A turn of user code lasts from one call of the engine to the next, usually microseconds. A
// longer turn is logged after tardy, and recorded as a reason for attention after lost.
const (
	tardy = time.Second
	lost  = 30 * time.Second
)

// findStuck looks for runs whose function does not return to the engine. While the function has
// the turn, the run cannot process anything.
func (l *Incarnation) findStuck(ctx context.Context) error {
	l.Worker.mu.Lock()
	var late []*run.Execution
	for _, x := range l.Worker.runs {
		if since := x.BusySince.Load(); since != 0 && time.Since(time.Unix(0, since)) >= tardy {
			late = append(late, x)
		}
	}
	l.Worker.mu.Unlock()
	for _, x := range late {
		since := x.BusySince.Load()
		busy := time.Since(time.Unix(0, since))
		switch {
		case since == 0 || busy < tardy:
		case busy >= lost && x.Stuck.CompareAndSwap(false, true):
			l.reportStuck(ctx, x, busy)
		case busy >= lost:
			l.cutOffLost(ctx, x)
		case l.Once(fmt.Sprint("tardy ", x.ID, since)):
			l.Worker.Log.Warn("weft: workflow function has not called the engine for long", "workflow", x.ID, "type", x.Definition.Name, "for", busy.Round(time.Millisecond), "stack", x.Stack())
		}
	}
	return nil
}

// cutOffLost ends the execution x if user code has the turn, and the run was terminated meanwhile, and perhaps removed or
// started again since, or was taken from x. x itself notices nothing before user code returns to the engine.
func (l *Incarnation) cutOffLost(ctx context.Context, x *run.Execution) {
	since := x.BusySince.Load()
	if since == 0 || x.Ctx.Err() != nil {
		return
	}
	wf, err := journal.Load(ctx, l.Worker.Store, x.ID)
	var cause error
	switch {
	case errors.Is(err, storage.ErrNotFound), err == nil && (wf.Tombstone() || wf.Generation != x.Generation || wf.Status.Terminal() && wf.Owner == l.name):
		cause = activity.ErrTerminated
	case err == nil && wf.Owner != l.name:
		cause = run.ErrTakenOver
	}
	if cause != nil && x.BusySince.Load() == since {
		l.Worker.CutOff(x, cause)
	}
}

func (l *Incarnation) reportStuck(ctx context.Context, x *run.Execution, busy time.Duration) {
	reason := journal.Attention{
		Reason: string(weft.ReasonStuck),
		Detail: payload.Recordable(fmt.Sprintf("the function has not called the engine for %v\n%s", busy.Round(time.Second), x.Stack())),
		Since:  journal.Micro(l.Worker.Now()),
	}
	l.Worker.Log.Warn("weft: workflow function blocks its run", "workflow", x.ID, "type", x.Definition.Name, "for", busy.Round(time.Second))
	err := l.Worker.Change(ctx, x.ID, Change{
		Name: "report of the stuck run",
		Landed: func(_ context.Context, wf *journal.Workflow) (bool, error) {
			return run.HeldFor(wf, weft.ReasonStuck), nil
		},
		Decide: func(_ context.Context, wf *journal.Workflow) (*Changing, error) {
			switch {
			case wf.Status.Terminal():
				return nil, &weft.TerminalError{WorkflowID: x.ID, Status: wf.Status}
			case wf.Owner != l.name || !x.Stuck.Load():
				return nil, nil
			}
			next := *wf
			next.Attention = append(wf.Attention[:len(wf.Attention):len(wf.Attention)], reason)
			return l.Worker.Rewritten(wf, &next)
		},
	})
	if err != nil && ctx.Err() == nil {
		l.Worker.Log.Warn("weft: run is stuck, but this could not be recorded", "workflow", x.ID, "type", x.Definition.Name, "error", err)
	}
}
