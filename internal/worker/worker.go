package worker

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/meta"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/storage"
)

// A Worker executes runs: it has those that are in memory, and the incarnation that owns
// them. Its methods are safe for concurrent use.
type Worker struct {
	*run.Host

	// Upkeep and Duties are tasks of packages above this one. Those of Upkeep come in the middle of each
	// poll, the others last. The engine sets them before Run.
	Upkeep, Duties []Duty

	mu          lock.Mutex                // guards what follows, and the closing of Closing
	incarnation *Incarnation              // of the Run in progress; nil: none
	runs        map[string]*run.Execution // that this engine executes, by id
	capacity    capacity                  // for runs

	// lingering counts, by generation, executions of runs that have ended whose attempts have not all returned.
	lingering map[string]int

	// waiters wait for the ends of runs, by id. Each awaits an execution, or nil if it looks at the store.
	waiters map[string]map[chan *run.Ending]*run.Execution

	// observers wait for values of runs, by id. They are notified when a value is stored, and when
	// the run ends or leaves memory.
	observers map[string]map[chan struct{}]bool

	purges purges
}

// New returns a worker that executes nothing until Run is called.
func New(h *run.Host) *Worker {
	w := &Worker{
		Host:      h,
		runs:      map[string]*run.Execution{},
		lingering: map[string]int{},
		waiters:   map[string]map[chan *run.Ending]*run.Execution{},
		observers: map[string]map[chan struct{}]bool{},
	}
	w.mu.SetRank(lock.Outer)
	return w
}

// Run executes workflows until ctx is done. See Engine.Run.
func (e *Worker) Run(ctx context.Context) error {
	for {
		switch err := e.live(ctx); {
		case err != activity.ErrLeaseLost:
			return err
		case ctx.Err() != nil:
			return e.Refused() // it was to stop: there is nothing to come back for
		}
	}
}

// live runs one incarnation of the engine. If that loses its lease, Run starts another.
func (e *Worker) live(ctx context.Context) error {
	l, err := e.beginIncarnation()
	if err != nil {
		return err
	}
	e.Gate.Open(l.hurryUp)
	defer e.endIncarnation(l)
	newer := (*meta.OutgrownError)(nil)
	if err := e.Outgrown(ctx); errors.As(err, &newer) {
		return err // the store was upgraded since New or the previous incarnation
	}
	defer l.holdSession(ctx)()
	err = l.register(ctx)
	if err == nil {
		if err = l.readFloor(ctx); err != nil {
			l.deregister()
		}
	}
	if err != nil {
		if l.ctx.Err() != nil || ctx.Err() != nil {
			return e.Refused() // stopped before it had started
		}
		return err
	}
	e.Log.Info("weft: engine started", "incarnation", l.name, "store", storage.Adapter(e.Store), "workflows", len(e.Workflows), "deployment", e.Deployment)
	l.setOpen(true)
	l.keepLease()
	lost := l.work(ctx)
	l.stop()
	switch {
	case lost != nil:
		return lost
	case context.Cause(l.ctx) != activity.ErrLeaseLost:
		return e.Refused()
	case l.lost != nil:
		return l.lost
	}
	return activity.ErrLeaseLost
}

var errRunning = errors.New("engine: Run is already in progress; call it once, or make another engine with New")

func (e *Worker) beginIncarnation() (*Incarnation, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.Refused(); err != nil {
		return nil, err
	}
	if e.incarnation != nil {
		return nil, errRunning
	}
	e.incarnation = NewIncarnation(e)
	return e.incarnation, nil
}

func (e *Worker) endIncarnation(l *Incarnation) {
	l.Cancel(nil)
	e.Gate.Shut()
	e.mu.Lock()
	e.incarnation = nil
	e.mu.Unlock()
	close(l.over)
}

// Close stops the worker at once. See Engine.Close.
func (e *Worker) Close() error {
	e.mu.Lock()
	if e.Refused() == nil {
		close(e.Closing)
	}
	l := e.incarnation
	e.mu.Unlock()
	e.Gate.Shut()
	if l != nil {
		l.Cancel(activity.ErrStopped)
		<-l.over
	}
	return e.logPurges(context.Background())
}

// Await registers a waiter for the end of a workflow. local reports whether the waiter will certainly be told the end:
// this engine executes the workflow, its type matches, and its end is not durable yet. (If it is, the workflow may have been
// resumed since.) Other waiters are told to look at the store.
func (e *Worker) Await(workflow, id string) (ended chan *run.Ending, local bool, release func()) {
	ended = make(chan *run.Ending, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiters[id] == nil {
		e.waiters[id] = map[chan *run.Ending]*run.Execution{}
	}
	x := e.runs[id]
	if x != nil && (x.Ending.Load() || x.Told || workflow != "" && workflow != x.Definition.Name) {
		x = nil
	}
	e.waiters[id][ended] = x
	return ended, x != nil, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if delete(e.waiters[id], ended); len(e.waiters[id]) == 0 {
			delete(e.waiters, id)
		}
	}
}

// tell tells the waiters for x its output, or nil if this engine does not execute it any more. All others look at the store.
func (e *Worker) tell(x *run.Execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x.Told = true
	e.tellAll(x.ID, x, x.Ended())
}

// lookAgain makes all waiters for the end of id look at the store.
func (e *Worker) lookAgain(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tellAll(id, nil, nil)
}

// tellAll tells the end of x to its waiters, and nil to all others for id. From then on they await no execution, so none is
// kept in memory. The caller holds e.mu.
func (e *Worker) tellAll(id string, x *run.Execution, end *run.Ending) {
	for ended, awaited := range e.waiters[id] {
		is := end
		if awaited != x {
			is = nil
		}
		select {
		case ended <- is:
		default:
		}
		e.waiters[id][ended] = nil
	}
	e.notifyObservers(id)
}

// succeed has the waiters for the end of x await the execution of its next life.
func (e *Worker) succeed(x, next *run.Execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for ended, awaited := range e.waiters[x.ID] {
		if awaited == x {
			e.waiters[x.ID][ended] = next
		}
	}
}

// Tells reports whether this engine executes id and will still notify its waiters.
func (e *Worker) Tells(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.runs[id]
	return x != nil && !x.Told
}

// Executing returns the execution of id if this engine executes it, or has done so and
// still waits for its attempts to return. Otherwise it returns nil.
func (e *Worker) Executing(id string) *run.Execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[id]
}

// allDriven returns all executions of this engine, including those that only wait for their attempts to return.
func (e *Worker) allDriven() []*run.Execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.runs))
}

// ExecutionOf returns the execution of wf, and not of another generation, if it belongs to wf's owner, and nil otherwise.
func (e *Worker) ExecutionOf(wf *journal.Workflow) *run.Execution {
	if x := e.Executing(wf.ID); x != nil && x.Owner.Name() == wf.Owner && x.Generation == wf.Generation {
		return x
	}
	return nil
}

// Join returns the incarnation that would execute wf, after joining it, or nil if there is none or it has no room.
func (e *Worker) Join(wf *journal.Workflow) *Incarnation {
	if !e.MayDrive(wf) {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.incarnation == nil || !e.hasRoom(true) || !e.incarnation.join() {
		return nil
	}
	e.capacity.coming++
	return e.incarnation
}

// PokePoll makes the engine poll now.
func (e *Worker) PokePoll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.incarnation != nil {
		e.incarnation.PokeNow()
	}
}

// Drives reports whether this engine executes wf for its owner.
func (e *Worker) Drives(wf *journal.Workflow) bool { return e.ExecutionOf(wf) != nil }

// IsRunning reports whether Run is in progress.
func (e *Worker) IsRunning() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.incarnation != nil
}

// Outgrown returns an error if a newer release has upgraded the store.
func (e *Worker) Outgrown(ctx context.Context) error {
	return meta.Outgrown(ctx, e.Store, e.Ownership)
}
