package intake

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// StartTogether writes a start and b in one commit, and has this engine execute the workflow if it
// may and has room. It makes no second try: storage.ErrConflict means that nothing was written,
// because the id is in use, even by a tombstone, or because a condition of b does not hold. After
// any other error of the store the outcome is unknown. The start must be a new one.
func (e *Intake) StartTogether(ctx context.Context, p *run.PreparedStart, b storage.Batch) (weft.Info, error) {
	s := &startCall{PreparedStart: p, intake: e}
	if err := e.Refused(); err != nil {
		return weft.Info{}, err
	}
	if l := e.Join(s.Workflow); l != nil {
		s.Owner = l
		defer l.Running.Done()
		defer e.Arrived()
		defer l.BeginStart(s.Workflow.ID)()
	}
	ctx, s.giveUp = context.WithCancelCause(ctx)
	defer s.over()
	s.Announce(ctx)
	if err := s.Place(ctx); err != nil {
		return weft.Info{}, err
	}
	w, err := s.Decide()
	if err != nil {
		return weft.Info{}, err
	}
	w.Batch.If = append(w.Batch.If, b.If...)
	w.Batch.Ops = append(w.Batch.Ops, b.Ops...)
	err = settle.Commit(ctx, e.Store, w.Batch, s.unsure, s.landed)
	switch {
	case err == nil:
		s.Begun(w)
		return run.InfoOf(w.After), nil
	case errors.Is(err, storage.ErrConflict):
		return weft.Info{}, err
	}
	s.doubt(err)
	return weft.Info{}, fmt.Errorf("engine: start %q: %w", s.Workflow.ID, err)
}

// landed reports whether the start is in the store.
func (s *startCall) landed(ctx context.Context) (bool, error) {
	wf, err := journal.Load(ctx, s.intake.Store, s.Workflow.ID)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil && wf.Generation == s.Workflow.Generation, err
}
