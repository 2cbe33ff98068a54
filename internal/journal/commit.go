package journal

import (
	"context"
	"errors"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// A Verdict is the outcome of a write.
type Verdict uint8

const (
	// Unresolved: the context ended, or the store failed permanently, before the
	// outcome was known. Nothing in memory may be trusted.
	Unresolved Verdict = iota

	// Done: the write is in the store, and its owner still owns the run.
	Done

	// Fenced: the run has another owner or generation, or has ended.
	Fenced

	// Refreshed: only the record's state has changed: something was requested of the
	// run. Read the record and decide again.
	Refreshed

	// Overtaken: the next checkpoint exists and is not this one. If this happens to
	// an owner under its own claim, it is a bug.
	Overtaken

	// Rewound: the last checkpoint is missing: the store has lost writes.
	Rewound

	// Refused: the run is unchanged; one of the change's own conditions failed.
	Refused
)

func (v Verdict) String() string {
	return [...]string{"unresolved", "done", "fenced", "refreshed", "overtaken", "rewound", "refused"}[v]
}

// Seen is what the store contains after a write was refused.
type Seen struct {
	Workflow *Workflow // nil: gone
	Last     bool      // the checkpoint that had to be there is
	Next     *Entry    // at the number of the write's checkpoint; nil: nothing
}

// Judge returns why a write was refused, or Done if it was not refused after all: an
// earlier attempt of unknown outcome had been applied.
func Judge(w *Write, s Seen) Verdict {
	if s.Next != nil && s.Next.commit == w.Entry.commit {
		if w.After.Status.Terminal() || s.Workflow.SameOwnership(w.After) {
			return Done
		}
		return Fenced // it landed, and then the run was taken over
	}
	switch {
	case !s.Workflow.SameOwnership(w.Before):
		return Fenced
	case s.Next != nil:
		return Overtaken
	case !s.Last:
		return Rewound
	case string(s.Workflow.raw) != string(w.Before.raw):
		return Refreshed
	}
	return Refused
}

// SameOwnership reports whether the workflow, as w is read now, is still owned as it was
// when known was read: not ended, of the same generation, and under the same claim of the
// same owner. No other test decides whether an owner may go on.
func (w *Workflow) SameOwnership(known *Workflow) bool {
	return w != nil && known != nil && !w.Tombstone() && !w.Status.Terminal() && w.sameClaim(known)
}

// TerminatedUnder reports whether the workflow, as w is read now, has ended under the claim of
// the owner who read it as known, or was even removed since. That owner did not end it: then known
// would have ended.
func (w *Workflow) TerminatedUnder(known *Workflow) bool {
	if w == nil || known.Status.Terminal() {
		return false
	}
	return w.Tombstone() || w.Generation != known.Generation || w.Status.Terminal() && w.sameClaim(known)
}

func (w *Workflow) sameClaim(known *Workflow) bool {
	return w.Generation == known.Generation && w.Owner == known.Owner && w.Claim == known.Claim
}

// Commit writes w and resolves an unknown outcome. It calls unknown, if not nil, with the
// error of each. It returns an error only with Unresolved.
func Commit(ctx context.Context, s storage.Storage, w *Write, unknown func(error)) (Verdict, error) {
	var verdict Verdict
	doubt := func(err error) {
		w.Doubt()
		if unknown != nil {
			unknown(err)
		}
	}
	err := settle.Commit(ctx, s, w.Batch, doubt, func(ctx context.Context) (bool, error) {
		seen, err := look(ctx, s, w)
		if err != nil {
			return false, err
		}
		verdict = Judge(w, seen)
		return verdict == Done, nil
	})
	switch {
	case err == nil:
		return Done, nil
	case errors.Is(err, storage.ErrConflict):
		return verdict, nil
	}
	w.Doubt()
	return Unresolved, err
}

// Examine returns the outcome of a write that was refused, or whose outcome was unknown.
func Examine(ctx context.Context, s storage.Storage, w *Write) (Verdict, error) {
	seen, err := look(ctx, s, w)
	if err != nil {
		return Unresolved, err
	}
	return Judge(w, seen), nil
}

// Landed reports whether w was applied, whatever happened to the run afterwards.
func Landed(ctx context.Context, s storage.Storage, w *Write) (bool, error) {
	c, err := Read(ctx, s, w.After, w.Entry.Number)
	return c != nil && c.commit == w.Entry.commit, err
}

// look reads the workflow record last: so if it sees a checkpoint of another owner, it also
// sees a record that names that owner.
func look(ctx context.Context, s storage.Storage, w *Write) (seen Seen, err error) {
	if seen.Next, err = Read(ctx, s, w.After, w.Entry.Number); err != nil {
		return seen, err
	}
	seen.Last = true
	if w.last > 0 {
		last, err := Read(ctx, s, w.After, w.last)
		if err != nil {
			return seen, err
		}
		seen.Last = last != nil
	}
	seen.Workflow, err = Load(ctx, s, w.After.ID)
	if errors.Is(err, storage.ErrNotFound) {
		err = nil
	}
	return seen, err
}

// Load reads a workflow record, which may be a tombstone. It returns storage.ErrNotFound if
// there is none.
func Load(ctx context.Context, s storage.Storage, id string) (*Workflow, error) {
	raw, err := s.Get(ctx, keys.Workflow(id))
	if err != nil {
		return nil, err
	}
	return OpenWorkflow(id, raw)
}

// Read reads one checkpoint of wf. It returns nil if there is none.
func Read(ctx context.Context, s storage.Storage, wf *Workflow, n uint64) (*Entry, error) {
	key := wf.Log().Checkpoint(n)
	raw, err := s.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := open(key, n, raw)
	return &c, err
}
