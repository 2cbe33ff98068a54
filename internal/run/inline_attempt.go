package run

import (
	"context"
	"errors"
)

// ErrRelieved ends the loop of a driver that another driver has replaced.
var ErrRelieved = errors.New("engine: another goroutine executes the run")

// lend runs a job in the driver's goroutine. This avoids a switch to another goroutine and the growth of its stack. If a
// message arrives or the run's context ends meanwhile, another driver takes over in a new goroutine. So the run does not
// depend on how long the job takes and whether it respects cancellation. lend then returns false, and its caller must not
// use the run any more.
func (x *Execution) lend(j *job) (back bool) {
	if x.unwatch == nil {
		x.unwatch = context.AfterFunc(x.Ctx, x.relieve)
	}
	m := &x.mailbox
	m.mu.Lock()
	m.lent = len(m.posts) == 0 && x.Ctx.Err() == nil
	lent := m.lent
	m.mu.Unlock()
	if !lent {
		go j.run()
		return true
	}
	returned := false
	defer func() {
		if !returned { // Goexit ends this goroutine
			x.relieve()
		}
	}()
	j.run()
	returned = true
	return m.regain()
}

// regain clears lent and returns its previous value.
func (m *mailbox) regain() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	lent := m.lent
	m.lent = false
	return lent
}

// relieve starts another driver if the driver is running an attempt inline.
func (x *Execution) relieve() {
	if x.mailbox.regain() {
		go x.Owner.CarryOn(x, x.loop)
	}
}
