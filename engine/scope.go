package engine

import (
	"time"

	"github.com/weft-go/weft/future"
)

// A scope is a part of a run that ends before its time: when the workflow is
// asked to stop, after a while, or when user code says so. What is under way in
// it, and all that is begun in it later, then has the scope's error as its
// outcome.
type scope struct {
	outer *scope // whose end is its end too; nil: nobody's
	ended error
	limit *operation // the timer that ends it, or nil
	busy  int        // operations and waits in it: without any its limit is no concern
}

// err is why s has ended, or nil.
func (s *scope) err() error {
	for ; s != nil; s = s.outer {
		if s.ended != nil {
			return s.ended
		}
	}
	return nil
}

// in says that s ends when outer does.
func (s *scope) in(outer *scope) bool {
	for ; s != nil; s = s.outer {
		if s == outer {
			return true
		}
	}
	return false
}

// busier counts what is under way in s.
func (s *scope) busier(n int) {
	for ; s != nil; s = s.outer {
		was := s.busy
		s.busy += n
		if s.limit == nil {
			continue
		}
		switch {
		case was == 0:
			s.limit.want()
		case s.busy == 0:
			s.limit.unwant()
		}
	}
}

// end ends s: its operations have err as their outcome, and whoever waits in it
// goes on. A branch ends by itself, as its own operations end; a child is asked to,
// and not waited for.
func (x *execution) end(s *scope, err error) {
	if s.ended != nil {
		return
	}
	s.ended = err
	if s.busy == 0 {
		return
	}
	for o := range x.ops.all() {
		if o.scope.in(s) {
			o.cut(err)
		}
	}
	for _, b := range x.inOrder() {
		if b.within.in(s) {
			x.queue(b)
		}
	}
}

// After returns the future of the time at which d has passed, through restarts.
// A timer that nobody waits for leaves nothing behind.
func (r *Run) After(d time.Duration) *future.Future[time.Time] {
	return future.New[time.Time](r.timer(d))
}

func (r *Run) timer(d time.Duration) future.Operation {
	op := r.begin(ofTimer, "", nil)
	if o, ok := op.(*operation); ok {
		o.due, o.which = after(r.x.now, d), ofSleep
	}
	return op
}

// Cancelled returns the future of the request to stop the workflow. As a case of
// a Select it takes the place of ErrCancelled.
func (r *Run) Cancelled() *future.Future[Cancellation] {
	if err := r.enter(); err != nil {
		return future.New[Cancellation](refusal{err})
	}
	return future.New[Cancellation](r.x.ops.begin(r.b, nil, ofCancellation, ""))
}

// WithTimeout returns a Run of the same branch whose operations, together, have d
// left: what has no outcome by then has ErrTimeout, and what is begun later has
// it at once. The time counts through restarts. A future's Get with that Run
// waits no longer, and leaves the operation under way.
func (r *Run) WithTimeout(d time.Duration) *Run {
	inner := &scope{outer: r.scope}
	if o, ok := r.timer(d).(*operation); ok {
		o.ends, o.which, inner.limit = inner, ofLimit, o
	}
	return &Run{x: r.x, b: r.b, scope: inner}
}

// WithCancel returns a Run of the same branch, and a function after whose call
// its operations have ErrCancelled as their outcome. The function may be called
// from any branch, and again.
func (r *Run) WithCancel() (run *Run, cancel func()) {
	inner := &scope{outer: r.scope}
	return &Run{x: r.x, b: r.b, scope: inner}, func() {
		switch {
		case r.x.busySince.Load() == 0: // no branch has the turn
			r.x.eng.log.Error("weft: a scope was cancelled from outside of the run's branches; it goes on", "workflow", r.x.id)
		case !r.x.gone() && !r.x.unwinding:
			r.x.end(inner, ErrCancelled)
		}
	}
}

// WithoutCancel returns a Run of the same branch that goes on when the workflow
// was asked to stop, or a time limit has passed: for cleaning up.
func (r *Run) WithoutCancel() *Run {
	return &Run{x: r.x, b: r.b, scope: &scope{}}
}
