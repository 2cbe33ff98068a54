package engine

import (
	"context"

	"github.com/weft-go/weft/signal"
)

// handToDriver delivers s to the driver of the workflow, if the run waits for it. If it
// returns false, the sender commits the acceptance itself.
func (e *intake) handToDriver(ctx context.Context, to address, s *sending) bool {
	x := e.drives(to.wf)
	if x == nil {
		return false
	}
	d := &delivery{in: s.in, to: to, from: ctx, done: make(chan *signal.Acceptance, 1)}
	if !x.offer(d) {
		return false
	}
	leftTo(ctx, true, nil)
	s.look = true // only the recorded acceptance shows whether the driver accepted it
	x.address = address{}
	var a *signal.Acceptance
	select {
	case a = <-d.done:
	case <-ctx.Done():
		a = d.answered()
	case <-x.ctx.Done(): // the run takes no more deliveries, and may have ended with this signal
		a = d.answered()
	}
	if a == nil {
		return false
	}
	x.address = address{wf: to.wf, counted: a.Counter}
	e.sends.settle(s, a.Arrived[0].Answer, nil)
	return true
}
