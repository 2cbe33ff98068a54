package run

import (
	"time"

	"github.com/weft-go/weft/future"
)

// timing is the state of a timer.
type timing struct {
	ends *scope // the scope that ends when the timer fires, or nil
}

// Sleep is engine.Run.Sleep.
func (r *Handle) Sleep(d time.Duration) error { return r.Await(r.timer(d), nil) }

// After is engine.Run.After.
func (r *Handle) After(d time.Duration) *future.Future[time.Time] {
	return future.New[time.Time](r.timer(d))
}

func (r *Handle) timer(d time.Duration) future.Operation {
	op := r.startOperation(ofTimer, "", nil)
	if o, ok := op.(*operation); ok {
		o.due, o.which = after(o.begins(), d), ofSleep
	}
	return op
}

// giveTime stores the time at which a timer fired.
func giveTime(_ *Handle, o *operation, result any) error {
	if p, ok := result.(*time.Time); ok {
		*p = o.outcome.at
	}
	return nil
}
