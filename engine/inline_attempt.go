package engine

import (
	"context"
	"errors"
)

// errRelieved ends the loop of a driver in whose place another one drives on.
var errRelieved = errors.New("engine: run is driven by another goroutine")

// lend runs a job in the driver's goroutine: nothing is handed over, and no
// new stack has to grow. Whatever comes meanwhile, be it a post
// or the end of the run's context, brings in another driver, so that it does not
// matter how long the job takes and whether it heeds anything. lend then says no,
// and its caller has nothing to do with the run any more.
func (x *execution) lend(j *job) (back bool) {
	if x.unwatch == nil {
		x.unwatch = context.AfterFunc(x.ctx, x.relieve)
	}
	m := &x.mailbox
	m.mu.Lock()
	m.lent = len(m.posts) == 0 && x.ctx.Err() == nil
	lent := m.lent
	m.mu.Unlock()
	if !lent {
		go j.run()
		return true
	}
	returned := false
	defer func() {
		if !returned { // by Goexit: this goroutine ends
			x.relieve()
		}
	}()
	j.run()
	returned = true
	return m.regain()
}

// regain ends a lending, if there is one.
func (m *mailbox) regain() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	lent := m.lent
	m.lent = false
	return lent
}

// relieve brings in another driver if there is a lending.
func (x *execution) relieve() {
	if x.mailbox.regain() {
		go x.life.carryOn(x, x.loop)
	}
}
