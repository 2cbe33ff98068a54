package journal

import (
	"slices"
	"sync"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/storage"
)

// A Hold is the owner's knowledge of a run: the workflow record and the last checkpoint. It
// is immutable; each write results in a new one.
type Hold struct {
	Workflow *Workflow
	Head     uint64
	HeadTime time.Time
	Events   int // in the head, if this process wrote it

	key   []byte        // of the head; nil: not made yet
	ahead time.Duration // by which HeadTime was ahead of the wall clock of who wrote it
	mono  time.Duration // when this process wrote it, see sinceEpoch; 0: another did
}

// A Change is what is written together with a checkpoint.
type Change struct {
	Events   []checkpoint.Event
	Workflow *Workflow           // the record anew, which the write takes over; nil: it stays as it is
	If       []storage.Condition // beside those of the run itself
	Ops      []storage.Op        // consumed signals, lists, the output
}

// A Write is a decision: a batch, and the state of the run after it is applied.
type Write struct {
	Batch  storage.Batch
	Entry  Entry // the last one that the batch appends
	Before *Workflow
	After  *Workflow
	last   uint64        // the checkpoint that must be there; 0: none
	put    int           // which of the batch's operations stores Entry
	mono   time.Duration // see Hold
	unsure bool          // see Doubt

	// Space for the batch of a start, of a step and of an end, and for the checkpoint while it is
	// encoded.
	conditions [4]storage.Condition
	ops        [8]storage.Op
	stored     stored
}

var unused = sync.Pool{New: func() any { return new(Write) }}

// NewWrite returns space for AppendTo, or for the batch of a start.
func NewWrite() *Write { return unused.Get().(*Write) }

// Doubt says that a try to commit w ended with an unknown outcome. Free then leaves w to the garbage collector, in case
// that the store still has the batch. A later try that succeeds changes nothing about that.
func (w *Write) Doubt() { w.unsure = true }

// Free gives w back, to be used again. Its commit is over.
func (w *Write) Free() {
	if w.unsure {
		return
	}
	*w = Write{}
	unused.Put(w)
}

// Hold returns the owner's knowledge after the write is done.
func (w *Write) Hold() *Hold {
	c := &w.Entry
	return &Hold{Workflow: w.After, Head: c.Number, HeadTime: c.Time, Events: len(c.Events), key: w.Batch.Ops[w.put].Key, ahead: c.ahead, mono: w.mono}
}

// Append decides how to commit the next checkpoint: the batch applies the change if the
// workflow record is unchanged, the head present and the next number absent.
func (h *Hold) Append(c Change, now time.Time) (*Write, error) {
	return h.AppendAt(c, Reading{Wall: now})
}

// AppendAt is Append with a monotonic clock, for the engine that continues the run.
func (h *Hold) AppendAt(c Change, now Reading) (*Write, error) {
	w := new(Write)
	return w, h.AppendTo(w, c, now)
}

// AppendTo is AppendAt, in the space of w, which is not used any more.
func (h *Hold) AppendTo(w *Write, c Change, now Reading) error {
	*w = Write{Before: h.Workflow, After: h.Workflow, mono: sinceEpoch(now.Mono)}
	if err := w.append(h, c.Events, 0, now); err != nil {
		return err
	}
	if err := w.rewrite(c.Workflow); err != nil {
		return err
	}
	w.Batch.If = append(w.Batch.If, c.If...)
	w.Batch.Ops = append(w.Batch.Ops, c.Ops...)
	return nil
}

func (w *Write) append(h *Hold, events []checkpoint.Event, skip uint64, now Reading) error {
	wf := h.Workflow
	if w.Batch.If == nil {
		w.Batch.If = append(w.conditions[:0], wf.Unchanged())
		w.last = h.Head
		if h.Head > 0 {
			w.Batch.If = append(w.Batch.If, storage.Present(h.headKey()))
		}
	}
	next := h.Head + 1
	if h.Head == 0 {
		next = wf.Base
	}
	at := Micro(h.Now(now))
	w.Entry = Entry{
		Checkpoint: checkpoint.Checkpoint{Number: next, Time: Time(at), Events: events},
		ahead:      saturate.Times(max(at-Micro(now.Wall), 0), time.Microsecond),
		generation: wf.Generation,
		commit:     NewCommitID(),
		skip:       skip,
	}
	key := wf.Log().Checkpoint(next)
	raw, err := w.Entry.seal(key, &w.stored)
	if err != nil {
		return err
	}
	if w.Batch.Ops == nil {
		w.Batch.Ops = w.ops[:0]
	}
	w.put = len(w.Batch.Ops)
	w.Batch.If = append(w.Batch.If, storage.Absent(key))
	w.Batch.Ops = append(w.Batch.Ops, storage.Put(key, raw))
	return nil
}

func (h *Hold) headKey() []byte {
	if h.key == nil {
		return h.Workflow.Log().Checkpoint(h.Head)
	}
	return h.key
}

func (w *Write) rewrite(next *Workflow) (err error) {
	if next == nil {
		return nil
	}
	if next.Status.Terminal() {
		w.depart(next)
	}
	w.After = next
	w.Batch.Ops, err = Replace(w.Batch.Ops, w.Before, next)
	return err
}

// First returns the first checkpoint number for a new id. It is far above the numbers of any
// earlier generation, even if that was forgotten because a backup was restored or a tombstone
// expired. So no fencing token is ever used twice.
func First(now time.Time) uint64 { return uint64(max(now.Unix(), 0)) << 20 }

// Claim decides that owner takes a run that no live owner holds. The number of the claim, the
// new epoch, is at least floor; if this skips numbers, a checkpoint says so. why is how the
// previous owner shut down; "" means that it crashed.
func (h *Hold) Claim(owner, why string, floor uint64, now time.Time) (*Write, error) {
	wf := *h.Workflow
	if wf.Waits {
		return nil, errWaits
	}
	w := &Write{Before: h.Workflow}
	from := h
	if h.Head == 0 && wf.Base < floor {
		wf.Base = floor
		from = &Hold{Workflow: &wf}
	}
	if h.Head > 0 && h.Head+1 < floor {
		if err := w.append(h, []checkpoint.Event{{Kind: checkpoint.KindSkipped}}, floor, Reading{Wall: now}); err != nil {
			return nil, err
		}
		from = &Hold{Workflow: h.Workflow, Head: floor - 1, HeadTime: w.Entry.Time, ahead: w.Entry.ahead}
	}
	events := append([]checkpoint.Event{{Kind: checkpoint.KindClaimed, By: owner, Why: why}}, wf.Acted()...)
	wf.Verbs = nil
	if err := w.append(from, events, 0, Reading{Wall: now}); err != nil {
		return nil, err
	}
	w.take(&wf, owner, w.Entry.Number, now)
	if wf.Deaths = h.Deaths(why != ""); wf.Deaths == 0 {
		wf.Alone = 0
	}
	return w, w.rewrite(&wf)
}

// On returns a copy of h for a claim that binds the run to a deployment.
func (h *Hold) On(deployment string) *Hold {
	c, wf := *h, *h.Workflow
	wf.Deployment = deployment
	c.Workflow = &wf
	return &c
}

// Retry decides that a failed run continues from its last checkpoint, without an owner. todo
// is the key by which it is found, or its new place in the line of its queue. Its history is
// kept, and continues with who requested the retry and why. Reset is the only other way out of
// a terminal status.
func (h *Hold) Retry(by Verb, todo []byte, now time.Time) (*Write, error) {
	wf := *h.Workflow
	if wf.Status != checkpoint.StatusFailed {
		return nil, &checkpoint.TransitionError{From: wf.Status, To: checkpoint.StatusRunning}
	}
	again := Retry{Quiet: Place{Checkpoint: h.Head}, End: h.Head, At: Micro(h.Now(Reading{Wall: now}))}
	if wf.Quiet != nil {
		again.Quiet = *wf.Quiet
	}
	wf.Retries = append(slices.Clone(wf.Retries), again)
	wf.Status, wf.EndedAt, wf.Quiet = checkpoint.StatusRunning, 0, nil
	wf.Owner, wf.Deaths, wf.Alone, wf.Todo, wf.Waits = "", 0, 0, todo, wf.Queue != ""
	wf.State++
	w := &Write{Before: h.Workflow}
	if err := w.append(h, []checkpoint.Event{by.event()}, 0, Reading{Wall: now}); err != nil {
		return nil, err
	}
	w.Batch.Ops = append(w.Batch.Ops, storage.Put(todo, nil))
	return w, w.rewrite(&wf)
}

// take makes owner the owner of wf.
func (w *Write) take(wf *Workflow, owner string, claim uint64, now time.Time) {
	if wf.Owner != "" && wf.Owner != owner {
		w.Batch.Ops = append(w.Batch.Ops, storage.Delete(keys.Held(wf.Owner, wf.ID)))
	}
	if len(wf.Todo) > 0 {
		w.Batch.Ops = append(w.Batch.Ops, storage.Delete(wf.Todo))
		wf.Todo = nil
	}
	w.Batch.Ops = append(w.Batch.Ops, storage.Put(keys.Held(owner, wf.ID), nil))
	wf.Owner, wf.Claim = owner, claim
	wf.Attention, wf.Awaits, wf.Handles, wf.Facing, wf.Heard = nil, nil, nil, nil, 0
	if wf.Status == checkpoint.StatusPending {
		wf.Status, wf.StartedAt = checkpoint.StatusRunning, Micro(now)
	}
	wf.undelay()
}

// Apart returns a copy of h for a claim under which the run is driven while no other run with
// as many deaths is.
func (h *Hold) Apart() *Hold {
	c, wf := *h, *h.Workflow
	wf.Alone++
	c.Workflow = &wf
	return &c
}

// Deaths returns the number of successive owners, up to now, that crashed. It does not matter
// whether they appended checkpoints: another branch of the run may have done so while one
// branch crashed the process.
func (h *Hold) Deaths(clean bool) int {
	wf := h.Workflow
	switch {
	case wf.Owner == "":
		return wf.Deaths
	case clean:
		return 0
	}
	return wf.Deaths + 1
}

// Create decides the start of wf, where nothing exists or on the tombstone of its id, and makes
// wf its record. With an owner, it is claimed at once. Without one, todo is the key by which it is found. A
// workflow with a queue has no owner, and todo is its place in the line, unless it is delayed. Its checkpoint numbers
// start at floor or above; floor is the owner's.
func Create(wf *Workflow, on *Workflow, owner string, todo []byte, floor uint64, now time.Time) (*Write, error) {
	wf.Status, wf.CreatedAt, wf.Base = checkpoint.StatusPending, Micro(now), max(First(now), floor, 1) // 0, of a clock that was not set yet, is no checkpoint
	w := NewWrite()
	w.Before, w.Batch = on, storage.Batch{If: w.conditions[:0], Ops: w.ops[:0]}
	if on != nil {
		wf.Base = max(wf.Base, on.Next)
		w.Batch.If = append(w.Batch.If, on.Unchanged())
	} else {
		wf.key = keys.Workflow(wf.ID)
		w.Batch.If = append(w.Batch.If, storage.Absent(wf.key))
	}
	if owner == "" {
		wf.Todo, wf.Waits = todo, wf.Queue != "" && !wf.Delayed()
		w.Batch.Ops = append(w.Batch.Ops, storage.Put(todo, nil))
		return w, w.rewrite(wf)
	}
	if err := w.append(&Hold{Workflow: wf}, []checkpoint.Event{{Kind: checkpoint.KindClaimed, By: owner}}, 0, Reading{Wall: now}); err != nil {
		return nil, err
	}
	w.take(wf, owner, wf.Base, now)
	return w, w.rewrite(wf)
}
