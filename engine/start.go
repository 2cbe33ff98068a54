package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// StartWorkflow is Engine.StartWorkflow.
func (e *intake) StartWorkflow(ctx context.Context, r *StartRequest) (Info, error) {
	s, err := e.prepareCall(ctx, r)
	if err != nil {
		return Info{}, err
	}
	call := waiting(ctx, "start of workflow", s.wf.ID)
	info, err := s.start(call)
	return info, call.explain(err)
}

// A startCall is a start from outside of any run.
type startCall struct {
	*starting
	intake *intake

	first    *signal.Incoming // accepted in the same commit; nil: none
	accepted signal.Accepted  // the answer to first, if there is one

	giveUp context.CancelCauseFunc
}

// prepareCall validates and encodes a start before anything is written.
func (e *intake) prepareCall(ctx context.Context, r *StartRequest) (*startCall, error) {
	s, err := e.prepare(ctx, r)
	return &startCall{starting: s, intake: e}, err
}

// start writes the start, or returns the workflow that already has the id.
func (s *startCall) start(ctx context.Context) (Info, error) {
	e := s.intake
	if err := e.refused(); err != nil {
		return Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return Info{}, err
	}
	l := e.driver(s.wf)
	if l != nil {
		defer l.running.Done()
		defer e.arrived()
		defer l.beginStart(s.wf.ID)()
	}
	ctx, s.giveUp = context.WithCancelCause(ctx)
	defer s.giveUp(nil)
	for range mostTries {
		s.owner = nil
		if l != nil {
			s.owner = l
		}
		info, again, err := s.try(ctx)
		if !again {
			return info, err
		}
	}
	return Info{}, contradiction(keys.Workflow(s.wf.ID))
}

// try writes the start on the assumption that the id is free, or has the tombstone s.on. It
// reports whether to try again because that was wrong.
func (s *startCall) try(ctx context.Context) (info Info, again bool, err error) {
	if err := s.place(ctx); err != nil {
		info, free, there := s.meet(ctx) // a repeated start gets its answer all the same
		if !free {
			return info, false, there
		}
		return Info{}, false, err
	}
	w, err := s.decide()
	if err != nil {
		return Info{}, false, err
	}
	a, err := s.accept(w)
	if err != nil {
		return Info{}, false, err
	}
	err = checkpoint.Settle(ctx, s.intake.store, w.Batch, s.unsure, func(ctx context.Context) (bool, error) {
		wf, err := checkpoint.Load(ctx, s.intake.store, s.wf.ID)
		if errors.Is(err, storage.ErrNotFound) {
			return false, nil
		}
		return err == nil && wf.Generation == s.wf.Generation, err
	})
	switch {
	case err == nil:
		s.begun(w)
		s.accepted = a
		return infoOf(w.After), false, nil
	case errors.Is(err, storage.ErrConflict):
		if s.first != nil {
			a, earlier, err := s.intake.earlier(ctx, s.first)
			if s.accepted = a; earlier || err != nil {
				return Info{}, false, err
			}
		}
		return s.meet(ctx)
	}
	if s.owner != nil && !errors.Is(err, storage.ErrInvalidBatch) {
		s.owner.Doubt(s.wf.ID)
	}
	return Info{}, false, fmt.Errorf("engine: start %q: %w", s.wf.ID, err)
}

// accept adds the acceptance of the first signal to the start.
func (s *startCall) accept(w *checkpoint.Write) (signal.Accepted, error) {
	if s.first == nil {
		return signal.Accepted{}, nil
	}
	d, err := signal.Accept([]*signal.Incoming{s.first}, s.wf.Generation, nil, s.intake.now())
	if err != nil {
		return signal.Accepted{}, err
	}
	w.Batch.If = append(w.Batch.If, d.Batch.If...)
	w.Batch.Ops = append(w.Batch.Ops, d.Batch.Ops...)
	return d.Arrived[0].Answer, nil
}

// meet handles the case that the id of the start is in use. It returns the workflow that
// has it if that is the same start, or reports whether to try again.
func (s *startCall) meet(ctx context.Context) (info Info, again bool, err error) {
	there, err := checkpoint.Load(ctx, s.intake.store, s.wf.ID)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		s.on = nil
		_, err := s.intake.orphaned(ctx, s.wf.ID)
		return Info{}, err == nil || errors.Is(err, ErrNotFound), err
	case err != nil:
		return Info{}, false, fmt.Errorf("engine: start %q: %w", s.wf.ID, err)
	case there.Tombstone():
		s.on = there
		err := checkpoint.Sweep(ctx, s.intake.store, there)
		return Info{}, err == nil || errors.Is(err, storage.ErrConflict), err
	case there.Type == s.wf.Type && bytes.Equal(there.Digest, s.wf.Digest):
		return infoOf(there), false, nil
	case there.Type != s.wf.Type:
		return Info{}, false, fmt.Errorf("%w: %q is a run of workflow %q, not of %q", ErrExists, there.ID, there.Type, s.wf.Type)
	}
	return Info{}, false, fmt.Errorf("%w: %q was started with another input", ErrExists, there.ID)
}

func (s *startCall) unsure(err error) {
	if s.owner != nil {
		s.owner.Unsure("start", s.wf.ID)(err)
	} else {
		s.intake.log.Warn("weft: outcome of a start is unknown, trying again", "workflow", s.wf.ID, "error", err)
	}
	if err := s.intake.refused(); err != nil {
		s.giveUp(err)
	} else if s.owner != nil && s.owner.Context().Err() != nil {
		s.giveUp(context.Cause(s.owner.Context()))
	}
}
