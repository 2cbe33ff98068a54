package intake

import (
	"context"

	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/waiting"
)

// handToDriver delivers s to the driver of the workflow, if the run waits for it. If it
// returns false, the sender commits the acceptance itself.
func (e *Intake) handToDriver(ctx context.Context, to run.Address, s *sending) bool {
	x := e.ExecutionOf(to.Workflow)
	if x == nil {
		return false
	}
	d := &run.Delivery{In: s.in, To: to, From: ctx, Done: make(chan *acceptance.Acceptance, 1)}
	if !x.Offer(d) {
		return false
	}
	waiting.LeftTo(ctx, true, nil)
	s.handed = append(s.handed, d)
	s.look = true // only the recorded acceptance shows whether the driver accepted it
	x.Address = run.Address{}
	var a *acceptance.Acceptance
	select {
	case a = <-d.Done:
	case <-ctx.Done():
	case <-x.Ctx.Done(): // the run takes no more deliveries, and may have ended with this signal
	}
	if a == nil && len(d.Done) > 0 {
		a = <-d.Done
	}
	if a == nil {
		return false
	}
	x.Address = run.Address{Workflow: to.Workflow, Counted: a.Counter}
	e.sends.settle(s, a.Arrived[0].Answer, nil)
	return true
}
