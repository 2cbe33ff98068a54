package worker

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/admission"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/stack"
	"github.com/weft-go/weft/storage"
)

// A prospect is a run that may be claimed.
type prospect struct {
	id     string
	entry  []byte            // the key by which it was found: held, todo or in a line
	owner  string            // "" if it has none
	why    string            // how the owner shut down; "" if it did not do so cleanly
	ticket *admission.Ticket // if the run waits in the line of its queue
	called bool              // it is a suspect, released from quarantine
	alone  bool              // it is the only one in its group
}

// consider claims p and executes it, if this engine should do so now. It logs errors.
func (l *Incarnation) consider(ctx context.Context, p prospect) {
	if !l.join() {
		return
	}
	defer l.Running.Done()
	if _, err := l.claim(ctx, p); err != nil && ctx.Err() == nil {
		l.Worker.Log.Warn("weft: claim failed", "workflow", p.id, "error", err)
	}
}

// claim returns the execution if p was claimed. After a conflict it reads the run and decides again.
func (l *Incarnation) claim(ctx context.Context, p prospect) (*run.Execution, error) {
	defer l.BeginStart(p.id)()
	for range 5 {
		c, err := l.look(ctx, p)
		if err != nil || c == nil {
			return nil, err
		}
		floor := l.Least()
		if x := l.Worker.Executing(p.id); x != nil {
			floor = max(floor, x.Head.Load()+1) // the store was rewound
		}
		w, err := p.decide(c.Hold, l.name, floor, l.Worker.Now())
		if err != nil {
			return nil, err
		}
		w.Batch.If = append(w.Batch.If, c.also...)
		if owner := c.Hold.Workflow; owner.Owner == "" && string(owner.Todo) != string(p.entry) {
			w.Batch.Ops = append(w.Batch.Ops, storage.Delete(p.entry))
		}
		verdict, err := journal.Commit(l.ctx, l.Worker.Store, w, l.Unsure("claim", p.id))
		if err != nil {
			l.DoubtClaim(p.id)
			return nil, err
		}
		if verdict != journal.Done {
			l.lostRace(p.id)
			if p.ticket != nil { // another engine may have taken the slot
				p.ticket.ClaimRefused(verdict)
				return nil, nil
			}
			continue
		}
		l.claimed(p, c.Hold.Workflow, w.After)
		x := l.Claimed(c, w)
		l.Launch(x)
		return x, nil
	}
	return nil, nil
}

// decide decides the claim of p by owner.
func (p *prospect) decide(h *journal.Hold, owner string, floor uint64, now time.Time) (*journal.Write, error) {
	if p.ticket != nil {
		return p.ticket.Admit(h, owner, floor, now)
	}
	return h.Claim(owner, p.why, floor, now)
}

// A Claimable is a run that this engine may claim, as it was read.
type Claimable struct {
	Definition *run.Definition
	Hold       *journal.Hold
	Past       *journal.Past
	also       []storage.Condition // further conditions of the claim

	alone bool // it is the only suspect of its group
}

// Claimed returns the execution of a run that w has claimed.
func (l *Incarnation) Claimed(c *Claimable, w *journal.Write) *run.Execution {
	x := run.New(l.Worker.Host, l, c.Definition, w.Hold())
	x.Recovering, x.Past = true, c.Past.Then(w)
	if deaths := w.After.Deaths; deaths > 0 {
		x.Probation = &run.Probation{Deaths: deaths, Fresh: c.Hold.Workflow.Owner != "", Alone: c.alone, Began: time.Now()}
	}
	return x
}

// look reads the run of p. It returns nil if this engine should not claim it now.
func (l *Incarnation) look(ctx context.Context, p prospect) (*Claimable, error) {
	wf, err := journal.Load(ctx, l.Worker.Store, p.id)
	missing := errors.Is(err, storage.ErrNotFound)
	switch {
	case record.Damaged(err):
		l.unreadable(p.id, err)
		return nil, nil
	case err != nil && !missing:
		return nil, err
	}
	if !missing && wf.Unmet() != "" { // its entries may mean something else
		_, why := l.Worker.Fits(wf)
		l.leaveToOther(p, wf, why)
		return nil, nil
	}
	if missing {
		key := keys.Workflow(p.id) // a batch must change what it wants absent: deleted, it stays absent
		return nil, l.Drop(ctx, []storage.Condition{storage.Absent(key)}, p.entry, key)
	}
	if wf.Tombstone() || wf.Status.Terminal() || wf.Owner != p.owner || wf.Waits != (p.ticket != nil) {
		return nil, l.Drop(ctx, []storage.Condition{wf.Unchanged()}, p.entry)
	}
	if wf.Delayed() {
		if begins, err := l.delayed(ctx, wf, p.entry); !begins {
			return nil, err
		}
	}
	def, why := l.Worker.Fits(wf)
	switch {
	case !l.Worker.Serves(wf.Queue):
		l.left.Add(p.entry, l.Worker.PollInterval)
		return nil, nil
	case def == nil:
		l.leaveToOther(p, wf, why)
		return nil, nil
	case l.Worker.Lingers(wf), l.Worker.endOfReset(wf):
		return nil, nil // an ended execution still has attempts; it pokes the poll when they return
	case wf.Owner == l.name && run.Held(wf):
		return nil, nil
	case run.HeldFor(wf, weft.ReasonNoProgress):
		if l.Once("held " + p.id) {
			l.Worker.Log.Warn("weft: a run that killed its process is held until an operator resumes it", "workflow", p.id, "type", wf.Type)
		}
		return nil, nil
	}
	hold, past, err := journal.FindPast(ctx, l.Worker.Store, wf)
	if err != nil && run.Outdated(ctx, l.Worker.Store, wf, err) == nil {
		return nil, nil // the next look finds the run again, unless it was purged with its entry
	}
	if record.Damaged(err) {
		return nil, l.damaged(ctx, wf, err)
	}
	if err != nil {
		return nil, err
	}
	c := &Claimable{Definition: def, Hold: hold, Past: past}
	if deaths := hold.Deaths(p.why != ""); deaths >= run.SuspectAfter {
		if !p.called {
			l.quarantine.add(p, deaths)
			return nil, nil
		}
		if c.alone = p.alone; c.alone {
			c.Hold = hold.Apart()
		}
	}
	if l.Worker.Pins(wf) {
		return l.bind(ctx, c, p.entry)
	}
	return c, nil
}

// unreadable logs once that the record of a workflow cannot be read.
func (l *Incarnation) unreadable(id string, err error) {
	if l.Once("damaged " + id) {
		l.Worker.Log.Error("weft: the record of a workflow is damaged; it is not executed", "workflow", id, "error", err)
	}
}

// delayed reports whether wf, which is delayed, may begin now. If it has a queue, it joins the line
// instead, whether this engine serves the queue or not. An entry other than its own does not have
// it begin early. If it was asked to stop by a release that does not know delays, it is cancelled.
func (l *Incarnation) delayed(ctx context.Context, wf *journal.Workflow, entry []byte) (begins bool, _ error) {
	now := l.Worker.Now()
	switch {
	case wf.Cancel != nil:
		return false, l.Worker.cancelDelayed(ctx, wf.ID)
	case !wf.MayStart(now) && string(entry) != string(wf.Todo):
		return false, l.Drop(ctx, nil, entry)
	case !wf.MayStart(now):
		return false, nil
	case wf.Queue == "":
		return true, nil
	}
	b, err := wf.Enqueue(now)
	if err != nil {
		return false, err
	}
	if err = l.Worker.Store.Commit(ctx, b); err == nil {
		l.PokeNow() // the duty for queues may have looked before
	}
	if errors.Is(err, storage.ErrConflict) {
		err = nil // the next look reads it again
	}
	return false, err
}

// leaveToOther leaves a run that this engine may not execute alone, and logs why once for each type of workflow.
func (l *Incarnation) leaveToOther(p prospect, wf *journal.Workflow, why string) {
	l.left.Add(p.entry, l.Worker.PollInterval)
	if l.Once(why + wf.Type) {
		l.Worker.Log.Warn("weft: workflows are not executed by this engine", "workflow", p.id, "type", wf.Type, "reason", why)
	}
}

// damaged records in wf that it cannot be claimed, because its head cannot be read. Later
// polls try again: somebody may restore the head.
func (l *Incarnation) damaged(ctx context.Context, wf *journal.Workflow, cause error) error {
	if run.HeldFor(wf, weft.ReasonDamaged) {
		return nil
	}
	l.Worker.Log.Error("weft: the last checkpoint of a workflow is damaged; it is not executed", "workflow", wf.ID, "type", wf.Type, "error", cause)
	next := *wf
	next.State++
	next.Attention = []journal.Attention{{
		Reason: string(weft.ReasonDamaged),
		Detail: payload.Recordable(cause.Error()),
		Since:  journal.Micro(l.Worker.Now()),
	}}
	free := l.Worker.ReleaseHeld(&next)
	ops, err := journal.Replace(nil, wf, &next)
	if err != nil {
		return err
	}
	err = l.Worker.Store.Commit(ctx, storage.Batch{If: []storage.Condition{wf.Unchanged()}, Ops: append(ops, free...)})
	if errors.Is(err, storage.ErrConflict) {
		return nil // the next look reads it again
	}
	if err == nil {
		l.Worker.Changed(wf, &next)
	}
	if len(free) > 0 {
		l.PokeNow()
	}
	return err
}

// Drop deletes entries that are no longer needed, unless conditions say that something has changed. A claim
// puts the same held entry again, so one is only deleted under the condition that the run is unchanged.
func (l *Incarnation) Drop(ctx context.Context, unchanged []storage.Condition, entries ...[]byte) error {
	b := storage.Batch{If: unchanged}
	for _, entry := range entries {
		b.Ops = append(b.Ops, storage.Delete(entry))
	}
	if len(b.Ops) == 0 {
		return nil
	}
	err := l.Worker.Store.Commit(ctx, b)
	if errors.Is(err, storage.ErrConflict) {
		err = nil // the next look reads it again
	}
	return err
}

// Launch starts the execution x. If the incarnation is stopping, the execution hands the run over. If it must stop
// immediately, Launch does nothing and the next owner finds the run. The caller must be counted in l.Running: see join.
func (l *Incarnation) Launch(x *run.Execution) {
	if l.ctx.Err() != nil {
		x.Cancel(nil)
		return
	}
	if x.Probation != nil {
		l.quarantine.startProbation(x)
	}
	l.Running.Add(1)
	l.Worker.mu.Lock()
	if old := l.Worker.runs[x.ID]; old != nil {
		old.Cancel(run.ErrTakenOver) // the store was rewound
	}
	l.Worker.runs[x.ID] = x
	few := len(l.Worker.runs) <= fewRuns
	l.Worker.mu.Unlock()
	l.held.Store(true)
	if !l.isOpen() {
		x.Post(run.Stopping{}) // stop may not have seen x
	}
	go l.driver(x, few)
}

// fewRuns is the number of runs in memory up to which the stacks of their drivers are grown
// before they are needed. That makes a single run faster. Among many runs, which wait for
// each other's commits, it costs more than it saves, because new stacks are larger.
const fewRuns = 16

// driver is the goroutine that executes x first.
func (l *Incarnation) driver(x *run.Execution, few bool) {
	if few {
		stack.Grow()
	}
	l.CarryOn(x, x.Drive)
}

// CarryOn executes x to its end, unless another goroutine takes over.
func (l *Incarnation) CarryOn(x *run.Execution, drive func() error) {
	err := drive()
	if err == run.ErrRelieved {
		return
	}
	x.WindUp(err)
	if next := x.Next(); next != nil {
		l.continueAs(next, x)
		return
	}
	if wf := x.Hold.Workflow; x.Output != nil && (wf.Queue != "" || wf.Schedule != "") {
		l.PokeNow() // its slot is free, or its schedule may have waited for it
	}
	l.Worker.tell(x)
	x.Shut()
	switch {
	case x.Output == nil: // no attempts may be left when the run is executed again
		x.AwaitAttempts()
		if l.remove(x); x.Lingers.Load() {
			l.PokeNow() // it was reset
		}
	case x.Ops.Working == 0:
		l.remove(x)
		x.AwaitAttempts()
	default:
		l.Worker.linger(x, 1)
		l.remove(x) // its id is free
		x.AwaitAttempts()
		l.Worker.linger(x, -1)
		l.PokeNow()
	}
	l.Running.Done()
}

// continueAs executes the next life of a run whose execution x has ended. It does not wait for
// attempts of the life before: these were given up, and nothing that they do concerns the next.
func (l *Incarnation) continueAs(next, x *run.Execution) {
	x.Shut() // what was sent to x is for next
	l.Launch(next)
	l.Worker.succeed(x, next)
	l.remove(x)
	if l.ctx.Err() != nil { // another engine executes it
		l.Worker.lookAgain(x.ID)
	}
	x.AwaitAttempts()
	l.Running.Done()
}

// remove removes x from the executions of the engine.
func (l *Incarnation) remove(x *run.Execution) {
	l.Worker.mu.Lock()
	if l.Worker.runs[x.ID] == x {
		delete(l.Worker.runs, x.ID)
	}
	room := l.Worker.roomFor()
	l.Worker.mu.Unlock()
	room.PokeNow()
	l.quarantine.end(x)
}

// Doubt has the poll look at a run that this incarnation may own and does not execute: its
// start has an unknown outcome, the store was rewound, or it is held and should be tried
// again. As long as there is no run, or only what a purge has left of one, the start may still be applied.
func (l *Incarnation) Doubt(id string) { l.remember(id, false, math.MaxInt) }

// DoubtStart is Doubt for a start that has failed. Beside many doubts it does nothing: recall finds the run, if there is one.
func (l *Incarnation) DoubtStart(id string) { l.remember(id, false, mostDoubts) }

// DoubtClaim has the poll look at a run whose claim has an unknown outcome. As long as the
// run has no owner, the claim may still be applied.
func (l *Incarnation) DoubtClaim(id string) { l.remember(id, true, math.MaxInt) }

// A doubt is about a run that this incarnation may own. It is looked at at intervals that double.
type doubt struct {
	arrival
	claim bool // the outcome of a claim is unknown
}

const (
	mostDoubts = 1000 // beside so many, no failed start is remembered
	mostFailed = 10   // how many of them cannot be read in one look, which the next goes on behind
)

func (l *Incarnation) remember(id string, claim bool, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if was, known := l.unsettled[id]; known || len(l.unsettled) < most {
		l.unsettled[id] = doubt{arrival{since: time.Now()}, claim || was.claim}
	}
	l.PokeNow()
}

// PokeNow has the poll look immediately. l may be nil.
func (l *Incarnation) PokeNow() {
	if l == nil {
		return
	}
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// Rewound has a run claimed again after the store lost its head. The number of the new claim is above that of the lost head.
func (l *Incarnation) Rewound(id string, lost *journal.Hold) {
	l.Raise(lost)
	l.Doubt(id)
}

// Raise makes the numbers of later claims higher than that of a lost head.
func (l *Incarnation) Raise(lost *journal.Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.floor = max(l.floor, lost.Head+1)
}

// patience is how long a commit with an unknown outcome may take until it is applied. If the store cannot be read for longer,
// recall finds what the commit has written.
const patience = 10 * time.Minute

// settleDoubts claims the doubtful runs that this incarnation owns. An error for one of them does not prevent it from looking at
// the others.
func (l *Incarnation) settleDoubts(ctx context.Context) error {
	l.mu.Lock()
	doubtful := maps.Clone(l.unsettled)
	l.mu.Unlock()
	var errs []error
	ids := slices.Sorted(maps.Keys(doubtful)) // in order, so that faults are reproducible
	from, _ := slices.BinarySearch(ids, l.doubtsFrom)
	for _, id := range slices.Concat(ids[from:], ids[:from]) {
		d := doubtful[id]
		if !d.due() || l.Worker.Tells(id) { // this execution may be about to end
			continue
		}
		certain, err := l.settleDoubt(ctx, id, d)
		told := time.Now()
		if err != nil {
			errs, told = append(errs, err), d.told
		}
		over := certain || time.Since(d.since) > patience && l.Worker.Executing(id) == nil
		l.mu.Lock()
		if l.unsettled[id] == d { // unless there is a new doubt since
			d.told = told
			if l.unsettled[id] = d; over {
				delete(l.unsettled, id)
			}
		}
		l.mu.Unlock()
		if len(errs) == mostFailed {
			l.doubtsFrom = id + "\x00" // behind it
			break
		}
	}
	return errors.Join(errs...)
}

// settleDoubt claims a run if this incarnation owns it, and reports whether the doubt is
// settled. It checks for starts and claims after it has read the record, because one that has
// written the record is then still in progress, or has launched its execution.
func (l *Incarnation) settleDoubt(ctx context.Context, id string, d doubt) (certain bool, err error) {
	wf, err := journal.Load(ctx, l.Worker.Store, id)
	switch {
	case errors.Is(err, storage.ErrNotFound) || err == nil && wf.Tombstone():
		return false, nil // a start may still be applied
	case record.Damaged(err):
		l.unreadable(id, err)
		return true, nil // recall finds it again: somebody may restore the record
	case err != nil:
		return false, err
	case l.startInProgress(id) || l.Worker.ExecutionOf(wf) != nil:
		return false, nil
	case d.claim && wf.Owner == "" && !wf.Status.Terminal():
		return false, nil
	case wf.Status.Terminal() || wf.Owner != l.name || run.Held(wf):
		return true, nil
	}
	_, err = l.claim(ctx, prospect{id: id, entry: keys.Held(wf.Owner, id), owner: wf.Owner, why: checkpoint.CutOff})
	return err == nil, err
}

// Least returns the lowest number that a claim may have.
func (l *Incarnation) Least() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.floor
}
