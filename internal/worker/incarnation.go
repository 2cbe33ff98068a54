package worker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/membership"
	"github.com/weft-go/weft/internal/meta"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/told"
	"github.com/weft-go/weft/internal/trail"
	"github.com/weft-go/weft/storage"
)

// An Incarnation is an engine from the start of Engine.Run to its end, or until it loses its
// lease. It owns the runs that it claims. Run then continues as another incarnation.
type Incarnation struct {
	Worker     *Worker
	name       string
	since      int64
	lease      []byte          // its record, as stored
	registered time.Time       // when the first record was sent
	ctx        context.Context // ends when everything must stop immediately
	Cancel     context.CancelCauseFunc
	over       chan struct{} // closed when Run has returned
	lost       error         // the fatal error by which the lease was lost, if it was; set before ctx ends

	clock      *clock
	witness    membership.Witness
	Counts     counts
	Running    sync.WaitGroup // executions with their attempts, claims, starts
	cut        atomic.Bool    // attempts were interrupted
	held       atomic.Bool    // this or a dead incarnation may own runs
	left       trail.Skipped  // entries of runs that other engines execute
	poke       chan struct{}  // tells the poll to look for work now
	quarantine *quarantine    // runs that may kill the process

	stopRenewals func()              // stops the renewals
	hurry        chan struct{}       // asks for an early renewal, because goroutines are scheduled late
	session      session             // proves to others that this incarnation lives
	fleet        fleet               // used by the poll only
	sightings    map[string]sighting // leases of others; used by the poll only

	// The poll's duties and their state.
	active     activeDeployment
	takeover   takeover
	unclaimed  unclaimed
	lines      queueLines
	doubtsFrom string   // where settleDoubts goes on, if it could not look at all
	seen       told.Set // what was reported

	mu          lock.Mutex         // guards the fields below
	open        bool               // accepts new work: registered, and not stopping
	floor       uint64             // lowest number that a claim may have
	starting    map[string]int     // starts and claims in progress, by id: no doubt may claim these
	unsettled   map[string]doubt   // runs to look at
	lateSignals map[string]arrival // runs to which a signal may come late
}

// NewIncarnation returns an incarnation that is not registered yet.
func NewIncarnation(e *Worker) *Incarnation {
	l := &Incarnation{
		Worker:      e,
		name:        e.EngineName + "-" + e.NewID(),
		since:       journal.Micro(e.Now()),
		floor:       journal.First(e.Now()),
		clock:       newClock(e.Read),
		fleet:       fleet{gone: map[string]time.Time{}},
		sightings:   map[string]sighting{},
		lateSignals: map[string]arrival{},
		over:        make(chan struct{}),
		poke:        make(chan struct{}, 1),
		quarantine:  newQuarantine(),
		hurry:       make(chan struct{}, 1),
		session:     session{lost: make(chan struct{}, 1)},
		starting:    map[string]int{},
		unsettled:   map[string]doubt{},
	}
	l.mu.SetRank(lock.Inner)
	l.active = activeDeployment{incarnation: l}
	l.takeover = takeover{incarnation: l, leavings: map[string]trail.Leaving{}}
	l.unclaimed = unclaimed{incarnation: l}
	l.lines = queueLines{incarnation: l, trails: map[string]*trail.Trail{}}
	l.ctx, l.Cancel = context.WithCancelCause(e.Base)
	return l
}

// register writes the record of the incarnation. It claims nothing before that.
func (l *Incarnation) register(ctx context.Context) error {
	put, err := l.record(time.Time{})
	if err != nil {
		return err
	}
	ctx, cancel := merged(ctx, l.ctx)
	defer cancel()
	b := storage.Batch{If: []storage.Condition{storage.Absent(put.Key)}, Ops: []storage.Op{put}}
	l.lease, l.registered = put.Value, time.Now()
	return settle.Commit(ctx, l.Worker.Store, b, l.Unsure("register", ""), func(ctx context.Context) (bool, error) {
		_, err := l.Worker.Store.Get(ctx, put.Key) // the name is unique, so the record is this one's
		return err == nil, err
	})
}

// readFloor raises the floor of l to that of the store. It is called after l is registered and before it claims anything.
func (l *Incarnation) readFloor(ctx context.Context) error {
	ctx, cancel := merged(ctx, l.ctx)
	defer cancel()
	f, err := meta.LoadFloor(ctx, reads.Retrying{Storage: l.Worker.Store, Log: l.Worker.Log})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.floor = max(l.floor, f.Floor)
	return nil
}

// unsaid has the incarnations of this process that have ended, and whose records do not say so: in which way they ended.
var unsaid sync.Map // membership.Vitality, by name

// deregister marks the record as stopped, so that others take over its runs immediately. If that fails, others find out when
// the lease expires. On an exclusive store there is none, and all others are in this process.
func (l *Incarnation) deregister() {
	put, err := l.record(l.Worker.Now())
	if err == nil {
		ctx, cancel := context.WithTimeout(l.Worker.Base, 5*time.Second)
		defer cancel()
		b := storage.Batch{If: []storage.Condition{storage.Equal(put.Key, l.lease)}, Ops: []storage.Op{put}}
		for range 3 { // without a pause: shutdown does not wait for an unreachable store
			if err = l.Worker.Store.Commit(ctx, b); err == nil || errors.Is(err, storage.ErrConflict) {
				return // a conflict: an earlier try was applied, or others declared it dead
			}
		}
	}
	unsaid.Store(l.name, shutDown(l.cut.Load()))
	l.Worker.Log.Warn("weft: engine could not deregister", "incarnation", l.name, "error", err)
}

// shutDown is the state of an incarnation that has ended by itself, and has cut attempts off or has not.
func shutDown(cut bool) membership.Vitality {
	if cut {
		return membership.ShutDownEarly
	}
	return membership.ShutDown
}

// vital returns the state of an incarnation. On a shared store it depends on the lease. On an exclusive store it is certain:
// an incarnation of another opening is dead; one of this opening is in this process, which knows when it ends.
func (l *Incarnation) vital(ctx context.Context, incarnation string) (membership.Vitality, error) {
	if incarnation == l.name {
		return membership.Alive, nil
	}
	key := keys.Engine(incarnation)
	raw, err := l.Worker.Store.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return membership.Dead, nil
	}
	if err != nil {
		return membership.Alive, err
	}
	r, err := membership.OpenRegistration(key, raw)
	if err != nil {
		return membership.Alive, err
	}
	return l.judge(ctx, incarnation, raw, r)
}

// Gone reports whether an incarnation has ended or is declared dead. Only the poll calls it.
func (l *Incarnation) Gone(ctx context.Context, incarnation string) (bool, error) {
	v, err := l.vital(ctx, incarnation)
	return err == nil && v != membership.Alive, err
}

// judge is vital for a record of another incarnation that was already read.
func (l *Incarnation) judge(ctx context.Context, incarnation string, raw []byte, r *membership.Registration) (membership.Vitality, error) {
	switch {
	case r.Stopped != 0:
		return shutDown(r.Cut), nil
	case r.Dead:
		return membership.Dead, nil
	case l.Shared():
		return l.observe(ctx, incarnation, raw, r)
	case r.Opening != l.Worker.Opening || l.Worker.Ownership == weft.OwnershipSingleOwner:
		return membership.Dead, nil
	}
	if how, ended := unsaid.Load(incarnation); ended {
		return how.(membership.Vitality), nil
	}
	return membership.Alive, nil
}

// work recovers and polls until ctx is done or everything must stop. It returns an error
// if the poll cannot continue: see fatal.
func (l *Incarnation) work(ctx context.Context) error {
	ctx, cancel := merged(ctx, l.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { l.setOpen(false) })() // runs claimed from now on start nothing
	l.Running.Go(func() { l.driveSuspects(ctx) })
	l.listen(ctx)
	return l.poll(ctx)
}

// stop ends the incarnation. It asks all runs to stop, and interrupts them after StopTimeout.
func (l *Incarnation) stop() {
	l.setOpen(false)
	for _, x := range l.Worker.allDriven() {
		x.Post(run.Stopping{})
	}
	force := time.AfterFunc(l.Worker.StopTimeout, func() { l.Cancel(activity.ErrStopped) })
	defer force.Stop()
	l.Running.Wait()
	l.stopRenewals()
	l.deregister()
}

func (l *Incarnation) setOpen(open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = open
}

func (l *Incarnation) isOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// join adds the caller to Running if the incarnation is open, and reports whether it did.
func (l *Incarnation) join() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open || l.ctx.Err() != nil {
		return false
	}
	l.Running.Add(1)
	return true
}

// Go calls f in a goroutine, for which the incarnation waits when it stops. It returns false, and
// calls nothing, if the incarnation is stopping.
func (l *Incarnation) Go(f func()) bool {
	if !l.join() {
		return false
	}
	go func() {
		defer l.Running.Done()
		f()
	}()
	return true
}

// BeginStart records that a start or claim of id is in progress. The caller calls over when the
// execution is launched, or when there will be none.
func (l *Incarnation) BeginStart(id string) (over func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starting[id]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.starting[id]--; l.starting[id] == 0 {
			delete(l.starting, id)
		}
	}
}

// startInProgress reports whether a start or claim of id is in progress.
func (l *Incarnation) startInProgress(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.starting[id] > 0
}

// Once reports whether it is called with what for the first time, so that it is logged once.
func (l *Incarnation) Once(what string) bool { return l.seen.First(what, run.MostTold) }

// LookAgain has the poll look at all skipped entries again. The poll calls it.
func (l *Incarnation) LookAgain() {
	l.left.Clear()
	clear(l.lines.trails)
	clear(l.takeover.leavings)
	clear(l.fleet.gone)
	l.unclaimed.prompt, l.unclaimed.todo = trail.Trail{}, trail.Trail{}
}

// merged returns a context that ends when a or b does.
func merged(a, b context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(a)
	stop := context.AfterFunc(b, func() { cancel(context.Cause(b)) })
	return ctx, func() { stop(); cancel(nil) }
}

// Name returns the name of the incarnation, which is unique.
func (l *Incarnation) Name() string { return l.name }

// Context returns a context that ends when everything must stop immediately.
func (l *Incarnation) Context() context.Context { return l.ctx }

// NoteTime compares the clocks, so that a jump is noticed.
func (l *Incarnation) NoteTime() { l.clock.note() }

// DoubtsClock reports whether this clock may be ahead by so much that what is written with it would be found late.
func (l *Incarnation) DoubtsClock() bool { return l.witness.Doubts(l.Worker.Read()) }

// Interrupted notes that attempts were cut off.
func (l *Incarnation) Interrupted() { l.cut.Store(true) }

// ProbationEnded has suspects wait for x no longer.
func (l *Incarnation) ProbationEnded(x *run.Execution) { l.quarantine.end(x) }

// Living returns the current incarnation of e if it has that name, and nil otherwise.
func (e *Worker) Living(incarnation string) *Incarnation {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.incarnation != nil && e.incarnation.name == incarnation {
		return e.incarnation
	}
	return nil
}

// Store writes the numbers to a registration.
func (c *counts) Store(r *membership.Registration) {
	r.Takeovers, r.LostRaces = c.takeovers.Load(), c.lostRaces.Load()
	r.Fenced, r.Unknown = c.fenced.Load(), c.unknown.Load()
}
