package engine

import "github.com/weft-go/weft/checkpoint"

// crowded reports whether more than three quarters of MaxRunsInMemory are in memory. Then runs that
// only wait are parked at once.
func (e *worker) Crowded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.runs) > e.maxRunsInMemory*3/4
}

// A capacity keeps account of the room for runs in memory.
type capacity struct {
	coming  int  // runs that have reserved room and are not yet in memory
	refused bool // a run was refused: wake the poll when there is room
}

// admit reserves room in memory for a run. The caller calls coming when the run is in memory,
// or will not be. If there is no room and asks is true, the poll is woken when there is.
func (e *worker) admit(asks bool) (coming func(), ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.hasRoom(asks) {
		return nil, false
	}
	e.capacity.coming++
	return e.arrived, true
}

// takes reports whether e may execute wf and has room for it.
func (e *worker) Takes(wf *checkpoint.Workflow) bool {
	if !e.mayDrive(wf) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hasRoom(true)
}

// hasRoom reports whether there is room for a run. If not, and asks is true, the poll is
// woken when there is. The caller holds e.mu.
func (e *worker) hasRoom(asks bool) bool {
	room := len(e.runs)+e.capacity.coming < e.maxRunsInMemory
	e.capacity.refused = e.capacity.refused || asks && !room
	return room
}

// hasRoomNow reports whether this engine is running and has room for a run.
func (e *worker) hasRoomNow() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.incarnation != nil && e.hasRoom(false)
}

func (e *worker) arrived() {
	e.mu.Lock()
	e.capacity.coming--
	l := e.roomFor()
	e.mu.Unlock()
	l.PokeNow()
}

// roomFor returns the incarnation whose poll is to be woken because there is room, or nil.
func (e *worker) roomFor() *incarnation {
	if !e.capacity.refused || len(e.runs)+e.capacity.coming >= e.maxRunsInMemory {
		return nil
	}
	e.capacity.refused = false
	return e.incarnation
}

// linger prevents this engine from executing a retry of x, which has ended, until all
// attempts of x have returned. So two attempts of an operation never run at the same time.
func (e *worker) linger(x *execution, by int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	generation := x.hold.Workflow.Generation
	if e.lingering[generation] += by; e.lingering[generation] == 0 {
		delete(e.lingering, generation)
	}
}

func (e *worker) lingers(wf *checkpoint.Workflow) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lingering[wf.Generation] > 0
}
