package journal

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// lives is the ability to execute a run that has continued as new: its operations are not
// numbered from 1, its first checkpoint is no start, and its input is not that of its start.
const lives = "lives"

// A Life is what a run continues as new with.
type Life struct {
	Workflow *Workflow // the record before, with what else changes
	Input    *Input
	First    uint64 // the number of its first operation
	Updates  int    // that the run has accepted so far
	Todo     []byte // the entry by which it is found, if nobody is to own it; nil: the owner keeps it

	GivenUp []checkpoint.Event  // what the life before has given up
	If      []storage.Condition // beside those of the run itself
	Ops     []storage.Op        // deletions of what the lives before have left
}

// Continue decides the commit that ends the present life of the run and begins the next one. The
// generation stays, and with it signals, children, slot and parent. The checkpoint is the first
// of the new life, and its number is the new epoch, so nothing that was decided on the life
// before can be committed any more.
func (h *Hold) Continue(l Life, now Reading) (*Write, error) {
	was := h.Workflow
	w := &Write{Before: was, mono: sinceEpoch(now.Mono)}
	events := append(slices.Clip(l.GivenUp), checkpoint.Event{Kind: checkpoint.KindContinued, By: was.Owner})
	if l.Todo == nil {
		events = append(events, checkpoint.Event{Kind: checkpoint.KindClaimed, By: was.Owner, Why: checkpoint.HandedOver})
	}
	if err := w.append(h, events, 0, now); err != nil {
		return nil, err
	}
	in := *l.Input
	in.Generation, in.Life = was.Generation, was.Life+1
	put, err := PutInput(was.ID, &in)
	if err != nil {
		return nil, err
	}
	w.Batch.If = append(w.Batch.If, l.If...)
	w.Batch.Ops = append(append(w.Batch.Ops, put), l.Ops...)
	next := l.Workflow.again(w.Entry.Number, l.First, w.Entry.Time)
	next.Updates = l.Updates
	if l.Todo != nil {
		w.Batch.Ops = append(w.Batch.Ops, storage.Delete(keys.Held(was.Owner, was.ID)), storage.Put(l.Todo, nil))
		next.Owner, next.Todo = "", l.Todo
	}
	return w, w.rewrite(next)
}

// again returns the record of the next life of w, which begins with the checkpoint base.
func (w *Workflow) again(base, first uint64, at time.Time) *Workflow {
	next := *w
	next.Base, next.Claim, next.Life, next.First, next.LifeAt = base, base, w.Life+1, first, Micro(at)
	next.Resumed = max(w.Resumed, w.TakenUp())
	next.Versions, next.Retries, next.Resets, next.Quiet, next.Attention = nil, nil, nil, nil, nil
	next.Needs = slices.DeleteFunc(slices.Clone(w.Needs), func(need string) bool { return need == resets })
	next.Awaits, next.Handles, next.Facing, next.Heard = nil, nil, nil, 0
	next.need(lives)
	return &next
}

// begins reports whether a checkpoint with these events is the first one of a life that another
// life came before.
func begins(events []checkpoint.Event) bool {
	return slices.ContainsFunc(events, func(e checkpoint.Event) bool { return e.Kind == checkpoint.KindContinued })
}

// Began returns when the present life of the workflow began.
func (w *Workflow) Began() time.Time {
	if w.Life > 0 {
		return Time(w.LifeAt)
	}
	return Time(w.StartedAt)
}

// UpdatePrefix begins the ids of the operations that execute updates: the first one is "u1". The
// others are numbers.
const UpdatePrefix = "u"

// Former reports whether an operation, by its id, belongs to an earlier life of the workflow.
func (w *Workflow) Former(operation string) bool {
	number := operation
	if end := strings.IndexAny(operation, ".~"); end >= 0 {
		number = operation[:end]
	}
	if update, ok := strings.CutPrefix(number, UpdatePrefix); ok {
		n, err := strconv.Atoi(update)
		return err == nil && n <= w.Updates
	}
	n, err := strconv.ParseUint(number, 10, 64)
	return err == nil && n < w.First
}

// FormerCheckpoints is the range of the checkpoints of earlier lives of the workflow that are still
// stored.
func (w *Workflow) FormerCheckpoints() storage.Range {
	r := w.Log().All()
	r.End = w.Log().Checkpoint(w.Base)
	return r
}
