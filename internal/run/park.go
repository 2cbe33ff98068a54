package run

import (
	"errors"
	"slices"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/storage"
)

// errParked ends an execution whose run is parked.
var errParked = errors.New("engine: run is parked")

// worth times the duration of its last replay is the least time that a run waits before it
// is parked. So replays take only a small part of the time.
const worth = 20

// longPoll is the longest PollInterval for which a run with a due time before the next poll stays
// in memory. If the interval is longer, such a run is parked, and the poll is told.
const longPoll = 12 * time.Hour

// mostFacing is how many of the things that a parked run waits for are recorded.
const mostFacing = 10

// MostKids is the maximum number of children for which the commit that parks a run has conditions. A run with more children
// is parked without them, and checked afterwards: see lookBack.
const MostKids = 1000

// waits reports whether the run does nothing but wait.
func (x *Execution) waits() bool {
	t := &x.Ops
	return t.Working == 0 && len(t.ready)+len(t.toStart)+len(t.queued)+len(t.departing)+len(t.transactions)+len(t.fresh)+len(t.pending)+len(t.responsiveness)+t.permits+len(x.hooks.asked)+len(x.streams.asked) == 0 && !t.settling() && !x.updates.answering()
}

// idle returns after how much time at rest the run is parked. It returns false if the run must not be parked.
func (x *Execution) idle() (time.Duration, bool) {
	t := &x.Ops
	if x.stays || x.riders.waits() || !x.waits() || x.host.Now().UnixMicro() <= 0 { // a clock before 1970 is not set yet, and keys cannot represent its times
		return 0, false
	}
	patience := max(x.host.ParkAfter, saturate.Times(worth, x.replayTook))
	if x.host.Peers.Crowded() {
		patience = 0
	}
	due, timed := t.nextDue(true)
	if timed && x.Hold.In(due.Sub(x.time())) <= max(patience, min(x.host.PollInterval, longPoll)) {
		return 0, false
	}
	// If this clock is ahead, the run's entry would be too far in the future, and the run would be found late.
	if timed && patience > 0 && x.Owner.DoubtsClock() {
		return 0, false
	}
	return patience, true
}

// park removes the run from memory. A checkpoint gives up its ownership; then the next signal, end of a child, request or
// due time causes it to be claimed and replayed. park returns errParked, or nil if there is something new to record first.
//
// No wakeup is lost. A write before this commit makes one of its conditions fail. A writer after this commit finds the run
// unclaimed. If there are too many children for conditions, park looks for ended children after the commit.
func (x *Execution) park() error {
	x.shorten()
	wf := *x.Hold.Workflow
	change := journal.Change{
		Events:   []checkpoint.Event{{Kind: checkpoint.KindParked}},
		Workflow: &wf,
		Ops:      []storage.Op{storage.Delete(keys.Held(wf.Owner, wf.ID))},
	}
	wf.Owner = ""
	x.parkDeaths(&wf)
	wf.Awaits, wf.Handles, wf.Facing = x.Ops.awaited(), x.handles(), x.facing()
	if len(wf.Facing) > mostFacing {
		wf.Facing = append(wf.Facing[:mostFacing], "and more")
	}
	soon := false
	if due, ok := x.Ops.nextDue(true); ok {
		soon = x.Hold.In(due.Sub(x.time())) <= x.host.PollInterval
		now := x.host.Now() // other engines go by the wall clock
		wf.Todo = keys.TodoParked(0, x.wall(due, now), now, wf.ID, x.host.NewID())
		change.Ops = append(change.Ops, storage.Put(wf.Todo, nil))
	}
	if len(wf.Awaits)+len(wf.Handles) > 0 {
		counted, err := acceptance.Counter(x.Ctx, x.store, x.ID)
		if err != nil {
			return err
		}
		if wf.Heard, err = acceptance.Counted(x.ID, counted); err != nil {
			return err
		}
		if change.If, change.Ops, err = acceptance.Untouched(change.If, change.Ops, x.ID, counted); err != nil {
			return err
		}
	}
	x.Inbox.hinted()
	x.childrenStale, x.updates.stale = true, true
	if err := x.look(); err != nil {
		return x.outdated(err)
	}
	if x.blocked != nil {
		return nil
	}
	kids, known := x.Ops.kidsUnchanged()
	if err := x.decide(&x.decision, x.time()); err != nil || len(x.decision.Events) > 0 {
		return err
	}
	if x.hasUpdate() {
		return nil
	}
	if !known {
		x.stays = true
		return nil
	}
	var again []byte
	if len(kids) <= min(MostKids, x.host.room(&change)) {
		change.If = append(change.If, kids...)
	} else {
		now := x.host.Now()
		again = keys.TodoParked(0, now.Add(saturate.Times(Rarely, x.host.PollInterval)), now, wf.ID, x.host.NewID())
		change.Ops = append(change.Ops, storage.Put(again, nil))
	}
	done, err := x.commit(change)
	if !done {
		return err
	}
	if again != nil {
		x.lookBack(again)
	}
	if soon && x.host.PollInterval > longPoll {
		x.Owner.PokeNow()
	}
	return errParked
}

// lookBack checks whether a child has ended between the run's last look at its children and the commit that parked it. (A
// child that ends later finds the run unclaimed, and writes an entry for it.)
//
// The key again is a todo entry by which an engine looks at the run after a while. lookBack deletes it, and adds an entry
// that is due at once if a child has ended. If that write fails, or the process dies before it, the entry remains.
func (x *Execution) lookBack(again []byte) {
	ended, err := x.endedUnseen()
	if err != nil {
		return
	}
	b := storage.Batch{Ops: []storage.Op{storage.Delete(again)}}
	if ended {
		b.Ops = append(b.Ops, storage.Put(keys.Todo(0, x.host.Now(), x.ID, x.host.NewID()), nil))
	}
	if err := x.store.Commit(x.Ctx, b); err == nil && ended {
		x.Owner.PokeNow()
	}
}

// endedUnseen reports whether a child has ended whose end the run has not read.
func (x *Execution) endedUnseen() (bool, error) {
	for entry, err := range journal.Records(x.Ctx, x.store, keys.ChildrenOf(x.ID)) {
		if err != nil {
			return false, err
		}
		operation, err := keys.Last(entry.Key)
		if err != nil {
			return false, err
		}
		c, err := journal.OpenChild(entry)
		if err != nil {
			return false, err
		}
		o := x.Ops.byID[operation]
		if c.Parent == x.Hold.Workflow.Generation && c.End != nil && o != nil && o.child != nil && o.child.ended == nil {
			return true, nil
		}
	}
	return false, nil
}

// releaseForShutdown ends the execution because its engine is stopping. A run that only waits is parked,
// so that the next engine need not replay it.
func (x *Execution) releaseForShutdown() error {
	if waited, err := x.release(); err != nil {
		return err
	} else if len(waited.Events) > 0 || x.riders.waits() {
		if done, err := x.commit(waited); !done || err != nil {
			return err // if the run has changed, it is decided again
		}
	}
	if x.waits() {
		if err := x.park(); err != nil {
			return err
		}
	}
	if x.Owner.Shared() {
		return x.handOver()
	}
	return errStopped
}

// handOver gives up the ownership of a run that could continue, so that another engine can
// claim it before this one has shut down.
func (x *Execution) handOver() error {
	wf := *x.Hold.Workflow
	held := keys.Held(wf.Owner, wf.ID)
	wf.Owner, wf.Deaths, wf.Alone = "", 0, 0
	wf.Todo = keys.TodoNow(0, x.host.Now().Add(-x.Owner.Ahead()), wf.ID, x.host.NewID())
	done, err := x.commit(journal.Change{
		Events:   []checkpoint.Event{{Kind: checkpoint.KindParked}},
		Workflow: &wf,
		Ops:      []storage.Op{storage.Delete(held), storage.Put(wf.Todo, nil)},
	})
	if done {
		return errParked
	}
	if err != nil {
		return err
	}
	return errStopped // the record has changed: the next owner reads it
}

// awaited returns the names of the signals that the run waits for, sorted.
func (t *table) awaited() (names []string) {
	for o := range t.all() {
		if o.kind == ofReceive {
			names = append(names, o.name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// kidsUnchanged returns conditions that hold if none of the run's children has ended since
// its record was read. It returns false if a record is not known.
func (t *table) kidsUnchanged() (conditions []storage.Condition, known bool) {
	for o := range t.all() {
		if o.kind != ofChild {
			continue
		}
		if o.child.waiting == nil {
			return nil, false
		}
		conditions = append(conditions, o.child.waiting.Unchanged())
	}
	return conditions, true
}

// Rarely is the maximum time between two looks that nothing has prompted, in units of
// PollInterval. An idle engine spends as much on a query to a server as on everything else.
const Rarely = 10
