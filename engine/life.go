package engine

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// A life is one Run of an engine: an incarnation, which owns what it claims.
type life struct {
	eng         *Engine
	incarnation string
	opening     string // of a store that has one opener at a time
	since       int64
	lease       []byte          // the record as it is stored
	registered  time.Time       // when the first record left
	ctx         context.Context // ends when everything must stop at once
	cancel      context.CancelCauseFunc
	over        chan struct{} // closed when Run has returned

	clock      *clock
	witness    witness
	counts     counts
	running    sync.WaitGroup // executions with their attempts, claims, starts
	cut        atomic.Bool    // attempts were cut off
	held       atomic.Bool    // there may be runs that are held, by this one or by the dead
	poke       chan struct{}  // look for work now
	quarantine *quarantine    // runs that may kill the process

	letGo     func()              // ends the renewals
	hurry     chan struct{}       // renew soon: what is to be done is done late
	fleet     fleet               // who shares the work; the poll's
	sightings map[string]sighting // of the leases of others; likewise

	// Duties of the poll, with what they remember.
	active       activeDeployment
	takeover     takeover
	unclaimed    unclaimed
	lines        queueLines
	expiry       expiry
	stamped      stampCheck
	housekeeping housekeeping

	mu        lock.Mutex         // guards what follows
	open      bool               // for new work: it is known to others, and not told to stop
	floor     uint64             // claims have at least this number
	starting  map[string]int     // starts under way, by id: nobody else here is to claim these
	seen      map[string]bool    // what was reported
	left      map[string]bool    // entries of runs that are others' to drive
	doubtful  map[string]doubt   // runs to look at
	expecting map[string]arrival // runs to which a signal may come late
}

func newLife(e *Engine) *life {
	l := &life{
		eng:         e,
		incarnation: e.config.Name + "-" + e.newID(),
		opening:     opening(e.store),
		since:       checkpoint.Micro(e.now()),
		floor:       checkpoint.First(e.now()),
		clock:       newClock(e.read),
		fleet:       fleet{gone: map[string]time.Time{}},
		sightings:   map[string]sighting{},
		over:        make(chan struct{}),
		poke:        make(chan struct{}, 1),
		quarantine:  newQuarantine(),
		hurry:       make(chan struct{}, 1),
		seen:        map[string]bool{},
		left:        map[string]bool{},
		starting:    map[string]int{},
	}
	l.mu.SetRank(lock.Inner)
	l.active = activeDeployment{life: l}
	l.takeover = takeover{life: l, leavings: map[string]leaving{}}
	l.unclaimed = unclaimed{life: l}
	l.lines = queueLines{life: l, trails: map[string]*trail{}}
	l.expiry = expiry{life: l}
	l.stamped = stampCheck{life: l}
	l.housekeeping = housekeeping{life: l}
	l.ctx, l.cancel = context.WithCancelCause(e.base)
	return l
}

// An enrolment is the record of an incarnation: eng:{incarnation}.
type registration struct {
	Name    string `cbor:"1,keyasint"`
	Opening string `cbor:"2,keyasint,omitempty"` // of the store, if it has one opener at a time
	Since   int64  `cbor:"3,keyasint"`
	Stopped int64  `cbor:"4,keyasint,omitempty"` // it ended with a word
	Nonce   string `cbor:"5,keyasint,omitempty"` // of the last renewal
	TTL     int64  `cbor:"6,keyasint,omitempty"` // how long a renewal holds, in microseconds
	Dead    bool   `cbor:"7,keyasint,omitempty"` // so others found
	Cut     bool   `cbor:"8,keyasint,omitempty"` // it ended with a word, and cut attempts off

	Workflows []string `cbor:"9,keyasint,omitempty"` // the types that it runs

	Queues []string `cbor:"15,keyasint,omitempty"` // that it serves

	// Counts, as of this writing. See EngineInfo.
	Takeovers uint64 `cbor:"10,keyasint,omitempty"`
	LostRaces uint64 `cbor:"11,keyasint,omitempty"`
	Fenced    uint64 `cbor:"12,keyasint,omitempty"`
	Unknown   uint64 `cbor:"13,keyasint,omitempty"`

	Deployment string `cbor:"14,keyasint,omitempty"`

	// Clock is what its wall clock said when this was written, and Proven how far time
	// had come for certain. See witness.
	Clock  int64 `cbor:"16,keyasint,omitempty"`
	Proven int64 `cbor:"17,keyasint,omitempty"`

	unknown record.Unknown
}

func openRegistration(key, raw []byte) (*registration, error) {
	r := new(registration)
	var err error
	r.unknown, err = record.Open(key, raw, checkpoint.Version, r)
	return r, err
}

// latest is the latest time of the wall clock of its incarnation that r tells.
func (r *registration) latest() time.Time { return checkpoint.Time(max(r.Since, r.Stopped, r.Clock)) }

// last is what the wall clock of its incarnation said when r was written.
func (r *registration) last() time.Time { return checkpoint.Time(cmp.Or(r.Clock, r.Stopped, r.Since)) }

// register makes the incarnation known. Nothing is claimed under it before.
func (l *life) register(ctx context.Context) error {
	put, err := l.record(time.Time{})
	if err != nil {
		return err
	}
	ctx, cancel := merged(ctx, l.ctx)
	defer cancel()
	b := storage.Batch{If: []storage.Condition{storage.Absent(put.Key)}, Ops: []storage.Op{put}}
	l.lease, l.registered = put.Value, time.Now()
	return checkpoint.Settle(ctx, l.eng.store, b, l.unsure("enlist", ""), func(ctx context.Context) (bool, error) {
		_, err := l.eng.store.Get(ctx, put.Key) // nobody else has this name
		return err == nil, err
	})
}

// deregister tells that the incarnation has ended, so that its runs are taken over
// at once. If this cannot be told, the end of the opening will tell.
func (l *life) deregister() {
	put, err := l.record(l.eng.now())
	if err == nil {
		ctx, cancel := context.WithTimeout(l.eng.base, 5*time.Second)
		defer cancel()
		b := storage.Batch{If: []storage.Condition{storage.Equal(put.Key, l.lease)}, Ops: []storage.Op{put}}
		for range 3 { // without a pause: a store that is gone is not waited for
			if err = l.eng.store.Commit(ctx, b); err == nil || errors.Is(err, storage.ErrConflict) {
				return // a conflict: an attempt had landed, or others have found it dead
			}
		}
	}
	l.eng.log.Warn("weft: engine could not sign off", "incarnation", l.incarnation, "error", err)
}

// state of an incarnation.
type vitality uint8

const (
	alive vitality = iota
	dead           // it ended without a word
	gone           // it signed off
	torn           // likewise, but attempts of it were cut off
)

// why is how an incarnation went, for those who claim from it.
func (v vitality) why() string {
	switch v {
	case gone:
		return checkpoint.HandedOver
	case torn:
		return checkpoint.CutOff
	}
	return ""
}

// vital tells whether an incarnation may still write. On a shared store its lease
// tells. On a store with one opener
// at a time that is certain: one of another opening is dead; one of this opening
// lives in this process and says when it ends.
func (l *life) vital(ctx context.Context, incarnation string) (vitality, error) {
	if incarnation == l.incarnation {
		return alive, nil
	}
	key := keys.Engine(incarnation)
	raw, err := l.eng.store.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return dead, nil
	}
	if err != nil {
		return alive, err
	}
	r, err := openRegistration(key, raw)
	if err != nil {
		return alive, err
	}
	return l.judge(ctx, incarnation, raw, r)
}

// judge is vital for the record of another incarnation.
func (l *life) judge(ctx context.Context, incarnation string, raw []byte, r *registration) (vitality, error) {
	switch {
	case r.Stopped != 0 && r.Cut:
		return torn, nil
	case r.Stopped != 0:
		return gone, nil
	case r.Dead:
		return dead, nil
	case l.shared():
		return l.observe(ctx, incarnation, raw, r)
	case r.Opening != l.opening || l.eng.config.Ownership == SingleOwner:
		return dead, nil
	}
	return alive, nil
}

// work recovers and polls until ctx is done or everything must stop. The error is the
// store's, if that is not where it was.
func (l *life) work(ctx context.Context) error {
	ctx, cancel := merged(ctx, l.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { l.setOpen(false) })() // what is claimed now begins nothing
	l.running.Go(func() { l.driveSuspects(ctx) })
	l.listen(ctx)
	return l.poll(ctx)
}

// stop ends the life: gently, then at once.
func (l *life) stop() {
	l.setOpen(false)
	for _, x := range l.eng.allDriven() {
		x.post(stopping{})
	}
	force := time.AfterFunc(l.eng.config.StopTimeout, func() { l.cancel(activity.ErrStopped) })
	defer force.Stop()
	l.running.Wait()
	l.letGo()
	l.deregister()
}

func (l *life) setOpen(open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = open
}

func (l *life) isOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// join counts its caller in, if the life is open.
func (l *life) join() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open || l.ctx.Err() != nil {
		return false
	}
	l.running.Add(1)
	return true
}

// begin notes that a start of id is under way, until its execution is launched
// or there is none.
func (l *life) begin(id string) (over func()) {
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

// begins says that a start of id is under way.
func (l *life) begins(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.starting[id] > 0
}

// once says whether this was not reported before.
func (l *life) once(what string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[what] {
		return false
	}
	if len(l.seen) >= mostTold { // what is there still is reported once more
		clear(l.seen)
	}
	l.seen[what] = true
	return true
}

// leaveAlone has an entry passed over: its run is another engine's to drive.
func (l *life) leaveAlone(entry []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left[string(entry)] = true
}

// leavesAlone says that an entry is passed over.
func (l *life) leavesAlone(entry []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left[string(entry)]
}

// lookAgain has no entry passed over any more. It is called by the poll.
func (l *life) lookAgain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.left)
	clear(l.lines.trails)
	clear(l.takeover.leavings)
	clear(l.fleet.gone)
	l.unclaimed.todo = trail{}
}

// merged is a context that ends with either.
func merged(a, b context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(a)
	stop := context.AfterFunc(b, func() { cancel(context.Cause(b)) })
	return ctx, func() { stop(); cancel(nil) }
}
