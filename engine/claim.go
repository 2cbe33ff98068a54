package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/stack"
	"github.com/weft-go/weft/storage"
)

// A prospect is a run that may be claimed.
type prospect struct {
	id     string
	entry  []byte  // the key by which it was found: held, todo or in a line
	owner  string  // "" if it has none
	why    string  // how the owner shut down; "" if it did not do so cleanly
	ticket *ticket // if the run waits in the line of its queue
	called bool    // it is a suspect, released from quarantine
	alone  bool    // it is the only one in its group
}

// consider claims p and executes it, if this engine should do so now. It logs errors.
func (l *incarnation) consider(ctx context.Context, p prospect) {
	if !l.join() {
		return
	}
	defer l.running.Done()
	if _, err := l.claim(ctx, p); err != nil && ctx.Err() == nil {
		l.eng.log.Warn("weft: claim failed", "workflow", p.id, "error", err)
	}
}

// claim returns the execution if p was claimed. After a conflict it reads the run and
// decides again.
func (l *incarnation) claim(ctx context.Context, p prospect) (*execution, error) {
	for range 5 {
		c, err := l.look(ctx, p)
		if err != nil || c == nil {
			return nil, err
		}
		floor := l.Least()
		if x := l.eng.driven(p.id); x != nil {
			floor = max(floor, x.head.Load()+1) // the store was rewound
		}
		w, err := p.decide(c.hold, l.name, floor, l.eng.now())
		if err != nil {
			return nil, err
		}
		w.Batch.If = append(w.Batch.If, c.also...)
		if owner := c.hold.Workflow; owner.Owner == "" && string(owner.Todo) != string(p.entry) {
			w.Batch.Ops = append(w.Batch.Ops, storage.Delete(p.entry))
		}
		verdict, err := checkpoint.Commit(l.ctx, l.eng.store, w, l.Unsure("claim", p.id))
		if err != nil {
			l.doubtClaim(p.id)
			return nil, err
		}
		if verdict != checkpoint.Done {
			l.lostRace(p.id)
			if p.ticket != nil { // another engine may have taken the slot
				p.ticket.claimRefused(verdict)
				return nil, nil
			}
			continue
		}
		if p.owner != "" && p.owner != l.name {
			l.tookOver(p.id, p.owner)
		}
		x := l.claimed(c, w)
		l.Launch(x)
		return x, nil
	}
	return nil, nil
}

// decide decides the claim of p by owner.
func (p *prospect) decide(h *checkpoint.Hold, owner string, floor uint64, now time.Time) (*checkpoint.Write, error) {
	if p.ticket != nil {
		return p.ticket.admit(h, owner, floor, now)
	}
	return h.Claim(owner, p.why, floor, now)
}

// A claimable is a run that this engine may claim, as it was read.
type claimable struct {
	def  *definition
	hold *checkpoint.Hold
	past *checkpoint.Past
	also []storage.Condition // further conditions of the claim

	alone bool // it is the only suspect of its group
}

// claimed returns the execution of a run that w has claimed.
func (l *incarnation) claimed(c *claimable, w *checkpoint.Write) *execution {
	x := newExecution(l.eng.host, l, c.def, w.Hold())
	x.recovering, x.past = true, c.past.Then(w)
	if deaths := w.After.Deaths; deaths > 0 {
		x.probation = &probation{deaths: deaths, fresh: c.hold.Workflow.Owner != "", alone: c.alone, began: time.Now()}
	}
	return x
}

// look reads the run of p. It returns nil if this engine should not claim it now.
func (l *incarnation) look(ctx context.Context, p prospect) (*claimable, error) {
	wf, err := checkpoint.Load(ctx, l.eng.store, p.id)
	missing := errors.Is(err, storage.ErrNotFound)
	switch {
	case record.Damaged(err):
		if l.once("damaged " + p.id) {
			l.eng.log.Error("weft: the record of a workflow is damaged; it is not executed", "workflow", p.id, "error", err)
		}
		return nil, nil
	case err != nil && !missing:
		return nil, err
	}
	if missing || wf.Tombstone() || wf.Status.Terminal() || wf.Owner != p.owner || wf.Waits != (p.ticket != nil) {
		return nil, l.drop(ctx, p.entry)
	}
	def, why := l.eng.fits(wf)
	switch {
	case !l.eng.serves(wf.Queue):
		l.leaveAlone(p.entry)
		return nil, nil
	case def == nil:
		l.leaveAlone(p.entry)
		if l.once(why + wf.Type) {
			l.eng.log.Warn("weft: workflows are not executed: "+why, "type", wf.Type, "for example", p.id)
		}
		return nil, nil
	case l.eng.lingers(wf):
		return nil, nil // an ended execution still has attempts; it pokes the poll when they return
	case wf.Owner == l.name && held(wf):
		return nil, nil
	case heldFor(wf, ReasonNoProgress):
		if l.once("held " + p.id) {
			l.eng.log.Error("weft: a run that killed its process is held until an operator resumes it", "workflow", p.id)
		}
		return nil, nil
	}
	hold, past, err := checkpoint.FindPast(ctx, l.eng.store, wf)
	if err != nil && outdated(ctx, l.eng.store, wf, err) == nil {
		return nil, nil // the next look finds the run again, unless it was purged with its entry
	}
	if record.Damaged(err) {
		return nil, l.damaged(ctx, wf, err)
	}
	if err != nil {
		return nil, err
	}
	c := &claimable{def: def, hold: hold, past: past}
	if deaths := hold.Deaths(p.why != ""); deaths >= suspectAfter {
		if !p.called {
			l.quarantine.add(p, deaths)
			return nil, nil
		}
		if c.alone = p.alone; c.alone {
			c.hold = hold.Apart()
		}
	}
	if l.eng.pins(wf) {
		return l.bind(ctx, c, p.entry)
	}
	return c, nil
}

// damaged records in wf that it cannot be claimed, because its head cannot be read. Later
// polls try again: somebody may restore the head.
func (l *incarnation) damaged(ctx context.Context, wf *checkpoint.Workflow, cause error) error {
	if heldFor(wf, ReasonDamaged) {
		return nil
	}
	l.eng.log.Error("weft: the last checkpoint of a workflow is damaged; it is not executed", "workflow", wf.ID, "error", cause)
	next := *wf
	next.State++
	next.Attention = []checkpoint.Attention{{
		Reason: string(ReasonDamaged),
		Detail: recordable(cause.Error()),
		Since:  checkpoint.Micro(l.eng.now()),
	}}
	_, put, err := next.Seal()
	if err != nil {
		return err
	}
	err = l.eng.store.Commit(ctx, storage.Batch{If: []storage.Condition{wf.Unchanged()}, Ops: []storage.Op{put}})
	if errors.Is(err, storage.ErrConflict) {
		return nil // the next look reads it again
	}
	return err
}

// drop deletes an entry that is no longer needed.
func (l *incarnation) drop(ctx context.Context, entry []byte) error {
	return l.eng.store.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Delete(entry)}})
}

// launch starts the execution x. If the incarnation is stopping, the execution hands the
// run over. If it must stop immediately, launch does nothing and the next owner finds the
// run. The caller must be counted in l.running: see join.
func (l *incarnation) Launch(x *execution) {
	if l.ctx.Err() != nil {
		x.cancel(nil)
		return
	}
	if x.probation != nil {
		l.quarantine.startProbation(x)
	}
	l.running.Add(1)
	l.eng.mu.Lock()
	if old := l.eng.runs[x.id]; old != nil {
		old.cancel(errors.New("engine: run was claimed again")) // the store was rewound
	}
	l.eng.runs[x.id] = x
	few := len(l.eng.runs) <= fewRuns
	l.eng.mu.Unlock()
	l.held.Store(true)
	if !l.isOpen() {
		x.post(stopping{}) // stop may not have seen x
	}
	go l.driver(x, few)
}

// fewRuns is the number of runs in memory up to which the stacks of their drivers are grown
// before they are needed. That makes a single run faster. Among many runs, which wait for
// each other's commits, it costs more than it saves, because new stacks are larger.
const fewRuns = 16

// driver is the goroutine that executes x first.
func (l *incarnation) driver(x *execution, few bool) {
	if few {
		stack.Grow()
	}
	l.CarryOn(x, x.drive)
}

// carryOn executes x to its end, unless another goroutine takes over.
func (l *incarnation) CarryOn(x *execution, drive func() error) {
	err := drive()
	if err == errRelieved {
		return
	}
	x.windUp(err)
	if x.output != nil && x.hold.Workflow.Queue != "" {
		l.PokeNow() // its slot is free
	}
	l.eng.tell(x)
	x.shut()
	switch {
	case x.output == nil: // no attempts may be left when the run is executed again
		x.awaitAttempts()
		l.remove(x)
	case x.ops.working == 0:
		l.remove(x)
		x.awaitAttempts()
	default:
		l.eng.linger(x, 1)
		l.remove(x) // its id is free
		x.awaitAttempts()
		l.eng.linger(x, -1)
		l.PokeNow()
	}
	l.running.Done()
}

// remove removes x from the executions of the engine.
func (l *incarnation) remove(x *execution) {
	l.eng.mu.Lock()
	if l.eng.runs[x.id] == x {
		delete(l.eng.runs, x.id)
	}
	room := l.eng.roomFor()
	l.eng.mu.Unlock()
	room.PokeNow()
	l.quarantine.end(x)
}

// doubt has the poll look at a run that this incarnation may own and does not execute: its
// start has an unknown outcome, the store was rewound, or it is held and should be tried
// again.
func (l *incarnation) Doubt(id string) { l.remember(id, doubt{time.Now(), false}) }

// doubtClaim has the poll look at a run whose claim has an unknown outcome. As long as the
// run has no owner, the claim may still be applied.
func (l *incarnation) doubtClaim(id string) { l.remember(id, doubt{time.Now(), true}) }

// A doubt is about a run that this incarnation may own.
type doubt struct {
	since time.Time
	claim bool // the outcome of a claim is unknown
}

func (l *incarnation) remember(id string, d doubt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unsettled == nil {
		l.unsettled = map[string]doubt{}
	}
	d.claim = d.claim || l.unsettled[id].claim
	l.unsettled[id] = d
	l.PokeNow()
}

// pokeNow has the poll look immediately. l may be nil.
func (l *incarnation) PokeNow() {
	if l == nil {
		return
	}
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// rewound has a run claimed again after the store lost its head. The number of the new
// claim is above that of the lost head.
func (l *incarnation) Rewound(id string, lost *checkpoint.Hold) {
	l.Raise(lost)
	l.Doubt(id)
}

// raise makes the numbers of later claims higher than that of a lost head.
func (l *incarnation) Raise(lost *checkpoint.Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.floor = max(l.floor, lost.Head+1)
}

// patience is how long a commit with an unknown outcome may take until it is applied.
const patience = 10 * time.Minute

// resolve claims the doubtful runs that this incarnation owns. An error for one of them
// does not prevent it from looking at the others.
func (l *incarnation) settleDoubts(ctx context.Context) error {
	l.mu.Lock()
	doubtful := maps.Clone(l.unsettled)
	l.mu.Unlock()
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(doubtful)) { // in order, so that faults are reproducible
		d := doubtful[id]
		certain, err := l.settleDoubt(ctx, id, d)
		if err != nil {
			errs = append(errs, err)
		}
		if certain || time.Since(d.since) > patience && l.eng.driven(id) == nil {
			l.mu.Lock()
			if l.unsettled[id] == d { // unless there is a new doubt since
				delete(l.unsettled, id)
			}
			l.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// settleDoubt claims a run if this incarnation owns it, and reports whether the doubt is
// settled. It checks for starts after it has read the record, because a start that has
// written the record is then still in progress, or has launched its execution.
func (l *incarnation) settleDoubt(ctx context.Context, id string, d doubt) (certain bool, err error) {
	if l.eng.driven(id) != nil {
		return false, nil // this execution may be about to end
	}
	wf, err := checkpoint.Load(ctx, l.eng.store, id)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case l.startInProgress(id) || l.eng.driven(id) != nil:
		return false, nil
	case wf.Status.Terminal():
		return true, nil
	case d.claim && wf.Owner == "":
		return false, nil
	case wf.Owner != l.name:
		return true, nil
	}
	_, err = l.claim(ctx, prospect{id: id, entry: keys.Held(wf.Owner, id), owner: wf.Owner, why: checkpoint.CutOff})
	return err == nil, err
}

// least returns the lowest number that a claim may have.
func (l *incarnation) Least() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.floor
}
