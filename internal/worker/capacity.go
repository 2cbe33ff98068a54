package worker

import (
	"time"

	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/run"
)

// Crowded reports whether more than three quarters of MaxRunsInMemory are in memory. Then runs
// that only wait are parked at once.
func (e *Worker) Crowded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.runs) > e.MaxRunsInMemory*3/4
}

// A capacity keeps account of the room for runs in memory.
type capacity struct {
	coming  int       // runs that have reserved room and are not yet in memory
	refused bool      // a run was refused: wake the poll when there is room
	nudged  time.Time // when runs that rest were last told that there is no room
}

// admit reserves room in memory for a run. The caller calls coming when the run is in memory,
// or will not be. If there is no room and asks is true, the poll is woken when there is.
func (e *Worker) admit(asks bool) (coming func(), ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.hasRoom(asks) {
		return nil, false
	}
	e.capacity.coming++
	return e.Arrived, true
}

// Takes reports whether e may execute wf and has room for it.
func (e *Worker) Takes(wf *journal.Workflow) bool {
	if !e.MayDrive(wf) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hasRoom(true)
}

// hasRoom reports whether there is room for a run. If not, and asks is true, the poll is
// woken when there is. The caller holds e.mu.
func (e *Worker) hasRoom(asks bool) bool {
	room := len(e.runs)+e.capacity.coming < e.MaxRunsInMemory
	if asks && !room && time.Since(e.capacity.nudged) > time.Second {
		e.capacity.nudged = time.Now()
		for _, x := range e.runs { // those that rested before it became crowded
			x.Nudge()
		}
	}
	e.capacity.refused = e.capacity.refused || asks && !room
	return room
}

// HasRoomNow reports whether this engine is running and has room for a run.
func (e *Worker) HasRoomNow() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.incarnation != nil && e.hasRoom(false)
}

// Arrived ends a reservation of room that Join or admit has made.
func (e *Worker) Arrived() {
	e.mu.Lock()
	e.capacity.coming--
	l := e.roomFor()
	e.mu.Unlock()
	l.PokeNow()
}

// roomFor returns the incarnation whose poll is to be woken because there is room, or nil.
func (e *Worker) roomFor() *Incarnation {
	if !e.capacity.refused || len(e.runs)+e.capacity.coming >= e.MaxRunsInMemory {
		return nil
	}
	e.capacity.refused = false
	return e.incarnation
}

// linger prevents this engine from executing a retry of x, which has ended, until all
// attempts of x have returned. So two attempts of an operation never run at the same time.
func (e *Worker) linger(x *run.Execution, by int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	generation := x.Hold.Workflow.Generation
	if e.lingering[generation] += by; e.lingering[generation] == 0 {
		delete(e.lingering, generation)
	}
}

// Lingers reports whether attempts of an execution of wf that has ended have not returned.
func (e *Worker) Lingers(wf *journal.Workflow) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.runs[wf.ID] // may be of another generation; its id is free soon
	return e.lingering[wf.Generation] > 0 || x != nil && x.Lingers.Load()
}

// endOfReset ends the execution of wf if wf was reset and the execution does not know that. It reports whether
// there was one.
func (e *Worker) endOfReset(wf *journal.Workflow) bool {
	x, n := e.Executing(wf.ID), len(wf.Resets)
	if x == nil || n == 0 || wf.Resets[n-1].To <= x.Head.Load() {
		return false
	}
	x.Lingers.Store(true)
	x.Cancel(run.ErrReset)
	return true
}
