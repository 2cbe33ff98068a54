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
	"github.com/weft-go/weft/storage"
)

// A prospect is a run that may be claimed, as an entry of a list named it.
type prospect struct {
	id     string
	entry  []byte  // a held or a todo key, or a place in a line
	owner  string  // whose it is; "" is nobody's
	why    string  // how the owner went: "" is without a word
	ticket *ticket // of a run that waits in the line of its queue
	called bool    // it is a suspect whose turn it is
	alone  bool    // and no other's
}

// consider claims p and drives it, if that is to be done here and now.
func (l *life) consider(ctx context.Context, p prospect) {
	if !l.join() {
		return
	}
	defer l.running.Done()
	if _, err := l.claim(ctx, p); err != nil && ctx.Err() == nil {
		l.eng.log.Warn("weft: claim", "workflow", p.id, "error", err)
	}
}

// claim returns the execution if p was claimed. A claim that loses a race is
// decided anew from what is there then.
func (l *life) claim(ctx context.Context, p prospect) (*execution, error) {
	for range 5 {
		c, err := l.look(ctx, p)
		if err != nil || c == nil {
			return nil, err
		}
		floor := l.least()
		if x := l.eng.driven(p.id); x != nil {
			floor = max(floor, x.head.Load()+1) // the store went back
		}
		w, err := p.decide(c.hold, l.incarnation, floor, l.eng.now())
		if err != nil {
			return nil, err
		}
		w.Batch.If = append(w.Batch.If, c.also...)
		if owner := c.hold.Workflow; owner.Owner == "" && string(owner.Todo) != string(p.entry) {
			w.Batch.Ops = append(w.Batch.Ops, storage.Delete(p.entry))
		}
		verdict, err := checkpoint.Commit(l.ctx, l.eng.store, w, l.unsure("claim", p.id))
		if err != nil {
			l.doubtClaim(p.id)
			return nil, err
		}
		if verdict != checkpoint.Done {
			l.lostRace(p.id)
			if p.ticket != nil { // it may be the slot that somebody else has taken
				p.ticket.lost(verdict)
				return nil, nil
			}
			continue
		}
		if p.owner != "" && p.owner != l.incarnation {
			l.tookOver(p.id, p.owner)
		}
		x := l.claimed(c, w)
		l.launch(x)
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

// A claimable is a run as it was read, of which a claim can be decided.
type claimable struct {
	def  *definition
	hold *checkpoint.Hold
	past *checkpoint.Past
	also []storage.Condition // of the claim

	alone bool // it is a suspect, and driven with no other
}

// claimed is the execution of a run that w has claimed.
func (l *life) claimed(c *claimable, w *checkpoint.Write) *execution {
	x := newExecution(l, c.def, w.Hold())
	x.recovering, x.past = true, c.past.Then(w)
	if deaths := w.After.Deaths; deaths > 0 {
		x.probation = &probation{deaths: deaths, fresh: c.hold.Workflow.Owner != "", alone: c.alone, began: time.Now()}
	}
	return x
}

// look reads what p is now; nil if there is nothing to claim here.
func (l *life) look(ctx context.Context, p prospect) (*claimable, error) {
	wf, err := checkpoint.Load(ctx, l.eng.store, p.id)
	missing := errors.Is(err, storage.ErrNotFound)
	switch {
	case record.Damaged(err):
		if l.once("damaged " + p.id) {
			l.eng.log.Error("weft: the record of a workflow is damaged; it is left alone", "workflow", p.id, "error", err)
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
			l.eng.log.Warn("weft: workflows are left alone: "+why, "type", wf.Type, "for example", p.id)
		}
		return nil, nil
	case l.eng.lingers(wf):
		return nil, nil // looked at again when they are over
	case wf.Owner == l.incarnation && held(wf):
		return nil, nil
	case heldFor(wf, NoProgress):
		if l.once("held " + p.id) {
			l.eng.log.Error("weft: a run that killed its process is left alone until somebody retries it", "workflow", p.id)
		}
		return nil, nil
	}
	hold, past, err := checkpoint.FindPast(ctx, l.eng.store, wf)
	if err != nil && outdated(ctx, l.eng.store, wf, err) == nil {
		return nil, nil // it is looked at again: the entry is there still, or has gone with it
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

// damaged makes it known that wf cannot be claimed, because its head cannot be
// read. It is looked at again: the record may have been restored.
func (l *life) damaged(ctx context.Context, wf *checkpoint.Workflow, cause error) error {
	if heldFor(wf, Damaged) {
		return nil
	}
	l.eng.log.Error("weft: the last checkpoint of a workflow is damaged; it is left alone", "workflow", wf.ID, "error", cause)
	next := *wf
	next.State++
	next.Attention = []checkpoint.Attention{{
		Reason: string(Damaged),
		Detail: recordable(cause.Error()),
		Since:  checkpoint.Micro(l.eng.now()),
	}}
	_, put, err := next.Seal()
	if err != nil {
		return err
	}
	err = l.eng.store.Commit(ctx, storage.Batch{If: []storage.Condition{wf.Unchanged()}, Ops: []storage.Op{put}})
	if errors.Is(err, storage.ErrConflict) {
		return nil // the next look sees what it is now
	}
	return err
}

// drop deletes an entry that has done its work.
func (l *life) drop(ctx context.Context, entry []byte) error {
	return l.eng.store.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Delete(entry)}})
}

// held says that wf is not driven until a person has seen to it. The other reasons
// for attention are those of a run that is.
func held(wf *checkpoint.Workflow) bool {
	return slices.ContainsFunc(wf.Attention, func(a checkpoint.Attention) bool {
		r := Reason(a.Reason)
		return r != Stuck && r != Deaf && r != Indeterminate && r != Uncompensated
	})
}

func heldFor(wf *checkpoint.Workflow, r Reason) bool {
	for _, a := range wf.Attention {
		if a.Reason == string(r) {
			return true
		}
	}
	return false
}

// launch drives x. In a life that was told to stop, that hands it over; in one that
// is to stop at once, its next owner will find it. The caller is counted among what
// is running.
func (l *life) launch(x *execution) {
	if l.ctx.Err() != nil {
		x.cancel(nil)
		return
	}
	if x.probation != nil {
		l.quarantine.begin(x)
	}
	l.running.Add(1)
	l.eng.mu.Lock()
	if old := l.eng.runs[x.id]; old != nil {
		old.cancel(errors.New("engine: run was claimed anew")) // the store went back
	}
	l.eng.runs[x.id] = x
	l.eng.mu.Unlock()
	l.held.Store(true)
	if !l.isOpen() {
		x.post(stopping{}) // it was not among those that were told
	}
	go l.carryOn(x, x.drive)
}

// carryOn drives x to its end, unless another goroutine is brought in to do so.
func (l *life) carryOn(x *execution, drive func() error) {
	err := drive()
	if err == errRelieved {
		return
	}
	x.windUp(err)
	if x.output != nil && x.hold.Workflow.Queue != "" {
		l.pokeNow() // its slot is free
	}
	l.eng.tell(x)
	x.shut()
	switch {
	case x.output == nil: // whoever drives it next must not meet its attempts
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
		l.pokeNow()
	}
	l.running.Done()
}

// remove makes it known that x is not driven any more.
func (l *life) remove(x *execution) {
	l.eng.mu.Lock()
	if l.eng.runs[x.id] == x {
		delete(l.eng.runs, x.id)
	}
	room := l.eng.roomFor()
	l.eng.mu.Unlock()
	room.pokeNow()
	l.quarantine.end(x)
}

// doubt remembers a run that this incarnation may own without driving it, and
// should look at: a start of which nobody knows whether it was written, a run
// whose store lost writes, a held one that is to be tried again.
func (l *life) doubt(id string) { l.remember(id, doubt{time.Now(), false}) }

// doubtClaim remembers a run of which nobody knows whether it was claimed. As long
// as it is nobody's, the claim may still land.
func (l *life) doubtClaim(id string) { l.remember(id, doubt{time.Now(), true}) }

// A doubt is since when, and whether for a claim.
type doubt struct {
	since time.Time
	claim bool
}

func (l *life) remember(id string, d doubt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.doubtful == nil {
		l.doubtful = map[string]doubt{}
	}
	d.claim = d.claim || l.doubtful[id].claim
	l.doubtful[id] = d
	l.pokeNow()
}

// pokeNow has the poll look at once. A life of nil is none to be poked.
func (l *life) pokeNow() {
	if l == nil {
		return
	}
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// rewound has a run claimed again after the store lost its head. The new claim's
// number is above all that were given away.
func (l *life) rewound(id string, lost *checkpoint.Hold) {
	l.raise(lost)
	l.doubt(id)
}

// raise has later claims number above what is lost.
func (l *life) raise(lost *checkpoint.Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.floor = max(l.floor, lost.Head+1)
}

// patience is how long a commit of unknown outcome may take to turn up.
const patience = 10 * time.Minute

// resolve claims the doubtful runs that turn out to be this incarnation's. One
// that cannot be read does not keep the others waiting.
func (l *life) resolve(ctx context.Context) error {
	l.mu.Lock()
	doubtful := maps.Clone(l.doubtful)
	l.mu.Unlock()
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(doubtful)) { // in order, so that a fault can be repeated
		d := doubtful[id]
		certain, err := l.settleDoubt(ctx, id, d)
		if err != nil {
			errs = append(errs, err)
		}
		if certain || time.Since(d.since) > patience && l.eng.driven(id) == nil {
			l.mu.Lock()
			if l.doubtful[id] == d { // and no other has come up meanwhile
				delete(l.doubtful, id)
			}
			l.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// settleDoubt says whether there is no doubt about a run any more. Starts are
// looked at after the record: one that has written it is under way still, or has
// launched its execution.
func (l *life) settleDoubt(ctx context.Context, id string, d doubt) (certain bool, err error) {
	if l.eng.driven(id) != nil {
		return false, nil // it may be about to be put down
	}
	wf, err := checkpoint.Load(ctx, l.eng.store, id)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case l.begins(id) || l.eng.driven(id) != nil:
		return false, nil
	case wf.Status.Terminal():
		return true, nil
	case d.claim && wf.Owner == "":
		return false, nil
	case wf.Owner != l.incarnation:
		return true, nil
	}
	_, err = l.claim(ctx, prospect{id: id, entry: keys.Held(wf.Owner, id), owner: wf.Owner, why: checkpoint.CutOff})
	return err == nil, err
}

// least is the least number of a claim.
func (l *life) least() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.floor
}

// wakeUp adds to ops what tells whoever drives wf, or will, to look at it. One that
// waits in a line is looked at when it is its turn.
func wakeUp(ops []storage.Op, wf *checkpoint.Workflow, now time.Time, nonce string) []storage.Op {
	switch {
	case wf.Owner != "":
		return append(ops, storage.Put(keys.Wake(wf.Owner, wf.ID, nonce), nil))
	case wf.Waits:
		return ops
	}
	return append(ops, storage.Put(keys.TodoNow(0, now, wf.ID, nonce), nil))
}
