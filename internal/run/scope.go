package run

import (
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/future"
)

// A scope is a part of a run that can end early: when the workflow is cancelled, after a
// time limit, or when user code ends it. Then unfinished operations in it, and all that are
// started in it later, get the scope's error as their outcome.
type scope struct {
	outer *scope // the scope that ends this one when it ends, or nil
	ended error
	limit *operation // the timer that ends it, or nil
	busy  int        // number of operations and waits in it; if 0, limit is not waited for
}

// err returns why s has ended, or nil.
func (s *scope) err() error {
	for ; s != nil; s = s.outer {
		if s.ended != nil {
			return s.ended
		}
	}
	return nil
}

// in reports whether s ends when outer does.
func (s *scope) in(outer *scope) bool {
	for ; s != nil; s = s.outer {
		if s == outer {
			return true
		}
	}
	return false
}

// busier adds n to the count of operations and waits in s and its outer scopes.
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

// end ends s. Its operations get err as their outcome, and branches that wait in it become
// runnable. A branch in it is not ended itself: its operations are. A child is cancelled
// and not waited for, unless it is to be abandoned.
func (x *Execution) end(s *scope, err error) {
	if s.ended != nil {
		return
	}
	s.ended = err
	if s.busy == 0 {
		return
	}
	for o := range x.Ops.all() {
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

// Cancelled is engine.Run.Cancelled.
func (r *Handle) Cancelled() *future.Future[weft.Cancellation] {
	if err := r.enter("cancellation"); err != nil {
		return future.New[weft.Cancellation](refusal{err})
	}
	return future.New[weft.Cancellation](r.x.Ops.newOperation(r.b, nil, ofCancellation, ""))
}

// WithTimeout is engine.Run.WithTimeout.
func (r *Handle) WithTimeout(d time.Duration) *Handle {
	inner := &scope{outer: r.scope}
	if o, ok := r.timer(d).(*operation); ok {
		o.ends, o.which, inner.limit = inner, ofLimit, o
	}
	return &Handle{x: r.x, b: r.b, scope: inner}
}

// WithCancel is engine.Run.WithCancel.
func (r *Handle) WithCancel() (run *Handle, cancel func()) {
	inner := &scope{outer: r.scope}
	return &Handle{x: r.x, b: r.b, scope: inner}, func() {
		switch {
		case r.x.BusySince.Load() == 0: // no branch has the turn
			r.x.logger().Warn("weft: a scope was cancelled from outside of the run's branches; this was ignored")
		case !r.x.gone() && !r.x.unwinding:
			r.x.end(inner, weft.ErrCancelled)
		}
	}
}

// WithoutCancel is engine.Run.WithoutCancel.
func (r *Handle) WithoutCancel() *Handle {
	return &Handle{x: r.x, b: r.b, scope: &scope{}}
}
