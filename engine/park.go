package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// errParked ends an execution whose run waits for something outside of memory.
var errParked = errors.New("engine: run is parked")

// worth is how many times its last replay a run waits before it is parked: so
// seldom, replays cost little.
const worth = 20

// mostFacing is how many of the things that it waits for a parked run tells.
const mostFacing = 10

// mostKids is of how many children under way the commit that parks a run has conditions
// at most. One of more is parked without, and looked at again: see lookBack.
const mostKids = 1000

// waits says that the run does nothing but wait.
func (x *execution) waits() bool {
	t := &x.ops
	return t.working == 0 && len(t.ready)+len(t.toStart)+len(t.queued)+len(t.fresh)+len(t.pending)+len(t.responsiveness)+t.permits == 0 && !t.settling()
}

// idle is after what time at rest the run is parked, and false if it is not to be.
func (x *execution) idle() (time.Duration, bool) {
	t := &x.ops
	if x.stays || !x.waits() || x.eng.now().UnixMicro() <= 0 { // a clock before 1970 is not set yet, and keys tell no such times
		return 0, false
	}
	patience := max(x.eng.config.ParkAfter, saturate.Times(worth, x.replayTook))
	if x.eng.crowded() {
		patience = 0
	}
	due, timed := t.nextDue(true)
	if timed && x.hold.In(due.Sub(x.time())) <= max(patience, x.eng.config.PollInterval) {
		return 0, false
	}
	// By a clock that is ahead it would be put where nobody looks for as long.
	if timed && patience > 0 && x.life.witness.doubts(x.eng.read()) {
		return 0, false
	}
	return patience, true
}

// park puts the run aside: a checkpoint gives it up, and the next signal, child's
// end, request or due time has it claimed and replayed. It returns errParked, or
// nil if there is something new to know after all.
//
// No wake is lost: what somebody wrote before this commit makes one of its
// conditions fail, and who writes after it finds the run unclaimed. The ends of children
// that are too many for conditions are looked for after the commit.
func (x *execution) park() error {
	wf := *x.hold.Workflow
	change := checkpoint.Change{
		Events:   []checkpoint.Event{{Kind: checkpoint.Parked}},
		Workflow: &wf,
		Ops:      []storage.Op{storage.Delete(keys.Held(wf.Owner, wf.ID))},
	}
	wf.Owner = ""
	x.parkDeaths(&wf)
	wf.Awaits, wf.Facing = x.ops.awaited(), x.facing()
	if len(wf.Facing) > mostFacing {
		wf.Facing = append(wf.Facing[:mostFacing], "and more")
	}
	if due, ok := x.ops.nextDue(true); ok {
		now := x.eng.now() // by wall clocks others look
		wf.Todo = keys.TodoParked(0, x.wall(due, now), now, wf.ID, x.eng.newID())
		change.Ops = append(change.Ops, storage.Put(wf.Todo, nil))
	}
	if len(wf.Awaits) > 0 {
		counted, err := signal.Counter(x.ctx, x.store, x.id)
		if err != nil {
			return err
		}
		if wf.Heard, err = signal.Counted(x.id, counted); err != nil {
			return err
		}
		if change.If, change.Ops, err = signal.Untouched(change.If, change.Ops, x.id, counted); err != nil {
			return err
		}
	}
	x.inbox.hinted()
	x.childrenStale = true
	if err := x.look(); err != nil {
		return err
	}
	kids, known := x.ops.kidsUnchanged()
	if d, err := x.decide(x.time()); err != nil || len(d.Events) > 0 {
		return err
	}
	if !known {
		x.stays = true
		return nil
	}
	var again []byte
	if len(kids) <= min(mostKids, x.eng.room(&change)) {
		change.If = append(change.If, kids...)
	} else {
		now := x.eng.now()
		again = keys.TodoParked(0, now.Add(saturate.Times(rarely, x.eng.config.PollInterval)), now, wf.ID, x.eng.newID())
		change.Ops = append(change.Ops, storage.Put(again, nil))
	}
	done, err := x.commit(change)
	if !done {
		return err
	}
	if again != nil {
		x.lookBack(again)
	}
	return errParked
}

// lookBack looks whether a child has ended between the last look of a run and the commit
// that parked it: one that ends later finds the run unclaimed, and says so. The entry
// again has the run looked at after a while. It goes when there is no need, or comes due
// at once; if neither can be written, or the process dies here, it is there.
func (x *execution) lookBack(again []byte) {
	ended, err := x.endedUnseen()
	if err != nil {
		return
	}
	b := storage.Batch{Ops: []storage.Op{storage.Delete(again)}}
	if ended {
		b.Ops = append(b.Ops, storage.Put(keys.Todo(0, x.eng.now(), x.id, x.eng.newID()), nil))
	}
	if err := x.store.Commit(x.ctx, b); err == nil && ended {
		x.life.pokeNow()
	}
}

// endedUnseen says that a child has ended, and the run has not learnt of it.
func (x *execution) endedUnseen() (bool, error) {
	for entry, err := range storage.All(x.ctx, x.store, keys.ChildrenOf(x.id)) {
		if err != nil {
			return false, err
		}
		operation, err := keys.Last(entry.Key)
		if err != nil {
			return false, err
		}
		c, err := checkpoint.OpenChild(entry)
		if err != nil {
			return false, err
		}
		o := x.ops.byID[operation]
		if c.Parent == x.hold.Workflow.Generation && c.End != nil && o != nil && o.child != nil && o.child.ended == nil {
			return true, nil
		}
	}
	return false, nil
}

// leave ends the execution because its engine is told to stop. A run that only
// waits is parked, so that the next engine need not replay it.
func (x *execution) leave() error {
	if waited, err := x.release(); err != nil {
		return err
	} else if len(waited.Events) > 0 {
		if _, err := x.commit(waited); err != nil {
			return err
		}
	}
	if x.waits() {
		if err := x.park(); err != nil {
			return err
		}
	}
	if x.life.shared() {
		return x.handOver()
	}
	return errStopped
}

// handOver gives up a run that could go on, so that other engines need not wait until
// all else of this one has ended.
func (x *execution) handOver() error {
	wf := *x.hold.Workflow
	held := keys.Held(wf.Owner, wf.ID)
	wf.Owner, wf.Deaths, wf.Alone = "", 0, 0
	wf.Todo = keys.TodoNow(0, x.eng.now().Add(-x.life.ahead()), wf.ID, x.eng.newID())
	done, err := x.commit(checkpoint.Change{
		Events:   []checkpoint.Event{{Kind: checkpoint.Parked}},
		Workflow: &wf,
		Ops:      []storage.Op{storage.Delete(held), storage.Put(wf.Todo, nil)},
	})
	if done {
		return errParked
	}
	if err != nil {
		return err
	}
	return errStopped // somebody asks something of the run: its next owner will hear it
}

// awaited are the names of the signals that the run waits for.
func (t *table) awaited() (names []string) {
	for o := range t.all() {
		if o.of == ofReceive {
			names = append(names, o.name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// kidsUnchanged are the conditions that no child that is waited for has ended,
// and false if not all is known.
func (t *table) kidsUnchanged() (conditions []storage.Condition, known bool) {
	for o := range t.all() {
		if o.of != ofChild {
			continue
		}
		if o.child.waiting == nil {
			return nil, false
		}
		conditions = append(conditions, o.child.waiting.Unchanged())
	}
	return conditions, true
}

// crowded says that so many runs are in memory that those which only wait have to
// leave it.
func (e *Engine) crowded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.runs) > e.config.MaxRuns*3/4
}

// A lobby is room for runs in memory.
type lobby struct {
	coming     int  // runs that are about to be in memory
	turnedAway bool // somebody is to be told when there is room
}

// admit gives a run room in memory, until coming is called: then it is there, or
// does not come. If there is none, and asks is true, the poll looks again when there
// is.
func (e *Engine) admit(asks bool) (coming func(), ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.hasRoom(asks) {
		return nil, false
	}
	e.lobby.coming++
	return e.arrived, true
}

// takes says that wf is e's to drive, and that there is room for it.
func (e *Engine) takes(wf *checkpoint.Workflow) bool {
	if !e.mayDrive(wf) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hasRoom(true)
}

// hasRoom says whether there is room for a run. If not, and asks is true, somebody
// is told when there is. The caller has e.mu.
func (e *Engine) hasRoom(asks bool) bool {
	room := len(e.runs)+e.lobby.coming < e.config.MaxRuns
	e.lobby.turnedAway = e.lobby.turnedAway || asks && !room
	return room
}

// hasRoomNow says that this engine runs, and has room for a run.
func (e *Engine) hasRoomNow() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.life != nil && e.hasRoom(false)
}

func (e *Engine) arrived() {
	e.mu.Lock()
	e.lobby.coming--
	l := e.roomFor()
	e.mu.Unlock()
	l.pokeNow()
}

// roomFor is the life that is to be told that there is room, or nil.
func (e *Engine) roomFor() *life {
	if !e.lobby.turnedAway || len(e.runs)+e.lobby.coming >= e.config.MaxRuns {
		return nil
	}
	e.lobby.turnedAway = false
	return e.life
}
