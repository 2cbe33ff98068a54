package engine

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/storage"
)

// A worker executes runs: it has those that are in memory, and the incarnation that owns
// them. Its methods are safe for concurrent use.
type worker struct {
	*host

	mu          lock.Mutex // guards what follows
	closed      bool
	incarnation *incarnation          // of the Run in progress; nil: none
	runs        map[string]*execution // that this engine executes, by id
	capacity    capacity              // for runs

	// lingering counts, by generation, executions of runs that have ended whose
	// attempts have not all returned.
	lingering map[string]int

	waiters map[string]map[chan *ending]bool
}

func newWorker(h *host) *worker {
	w := &worker{
		host:      h,
		runs:      map[string]*execution{},
		lingering: map[string]int{},
		waiters:   map[string]map[chan *ending]bool{},
	}
	w.mu.SetRank(lock.Outer)
	return w
}

// Run executes workflows until ctx is done. See Engine.Run.
func (e *worker) Run(ctx context.Context) error {
	for {
		err := e.live(ctx)
		if err != activity.ErrLeaseLost || ctx.Err() != nil {
			return err
		}
	}
}

// live runs one incarnation of the engine. If that loses its lease, Run starts another.
func (e *worker) live(ctx context.Context) error {
	l, err := e.beginIncarnation()
	if err != nil {
		return err
	}
	defer e.endIncarnation(l)
	newer := (*outgrownError)(nil)
	if err := e.outgrown(ctx); errors.As(err, &newer) {
		return err // the store was upgraded since New or the previous incarnation
	}
	err = l.register(ctx)
	if err == nil {
		err = l.readFloor(ctx)
	}
	if err != nil {
		if l.ctx.Err() != nil || ctx.Err() != nil {
			return e.refused() // stopped before it had started
		}
		return err
	}
	e.log.Info("weft: engine started", "incarnation", l.name, "store", storage.Adapter(e.store), "workflows", len(e.workflows), "deployment", e.deployment)
	l.setOpen(true)
	l.keepLease()
	lost := l.work(ctx)
	l.stop()
	if lost != nil {
		return lost
	}
	if context.Cause(l.ctx) == activity.ErrLeaseLost {
		return activity.ErrLeaseLost
	}
	return e.refused()
}

var errRunning = errors.New("engine: Run is already in progress")

func (e *worker) beginIncarnation() (*incarnation, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return nil, ErrClosed
	case e.incarnation != nil:
		return nil, errRunning
	}
	e.incarnation = newIncarnation(e)
	e.gate.Open(e.incarnation.hurryUp)
	return e.incarnation, nil
}

func (e *worker) endIncarnation(l *incarnation) {
	l.cancel(nil)
	e.gate.Shut()
	e.mu.Lock()
	e.incarnation = nil
	e.mu.Unlock()
	close(l.over)
}

// Close stops the worker at once. See Engine.Close.
func (e *worker) Close() error {
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		close(e.closing)
	}
	l := e.incarnation
	e.mu.Unlock()
	e.gate.Shut()
	if l != nil {
		l.cancel(activity.ErrStopped)
		<-l.over
	}
	return nil
}

// await registers a waiter for the end of a workflow. local reports whether this engine
// executes it and its type matches, so that the waiter will certainly be notified.
func (e *worker) await(workflow, id string) (ended chan *ending, local bool, release func()) {
	ended = make(chan *ending, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiters[id] == nil {
		e.waiters[id] = map[chan *ending]bool{}
	}
	e.waiters[id][ended] = true
	x := e.runs[id]
	return ended, x != nil && !x.told && (workflow == "" || workflow == x.def.name), func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if delete(e.waiters[id], ended); len(e.waiters[id]) == 0 {
			delete(e.waiters, id)
		}
	}
}

// tell notifies all waiters for x: of its output, or with nil that this engine does not
// execute it any more. Waiters that register later are not notified.
func (e *worker) tell(x *execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x.told = true
	e.tellAll(x.id, x.ended())
}

// lookAgain makes all waiters for the end of id check the store.
func (e *worker) lookAgain(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tellAll(id, nil)
}

// tellAll notifies all waiters for the end of id. The caller holds e.mu.
func (e *worker) tellAll(id string, end *ending) {
	for ended := range e.waiters[id] {
		select {
		case ended <- end:
		default:
		}
	}
}

// tells reports whether this engine executes id and will still notify its waiters.
func (e *worker) tells(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.runs[id]
	return x != nil && !x.told
}

// driven returns the execution of id if this engine executes it, or has done so and
// still waits for its attempts to return. Otherwise it returns nil.
func (e *worker) driven(id string) *execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[id]
}

// allDriven returns all executions of this engine, including those that only wait for
// their attempts to return.
func (e *worker) allDriven() []*execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.runs))
}

// drives returns the execution of wf if it belongs to wf's owner, and nil otherwise.
func (e *worker) drives(wf *checkpoint.Workflow) *execution {
	if x := e.driven(wf.ID); x != nil && x.owner.Name() == wf.Owner {
		return x
	}
	return nil
}

// driver returns the incarnation that would execute wf, after joining it, or nil if there
// is none or it has no room.
func (e *worker) driver(wf *checkpoint.Workflow) *incarnation {
	if !e.mayDrive(wf) {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.incarnation == nil {
		return nil
	}
	if !e.hasRoom(true) || !e.incarnation.join() {
		return nil
	}
	e.capacity.coming++
	return e.incarnation
}

// pokePoll makes the engine poll now.
func (e *worker) PokePoll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.incarnation != nil {
		e.incarnation.PokeNow()
	}
}

// Drives reports whether this engine executes wf for its owner.
func (e *worker) Drives(wf *checkpoint.Workflow) bool { return e.drives(wf) != nil }
