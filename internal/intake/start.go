package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// StartWorkflow is Engine.StartWorkflow.
func (e *Intake) StartWorkflow(ctx context.Context, r *weft.StartRequest) (weft.Info, error) {
	s, err := e.prepareCall(ctx, r)
	if err != nil {
		return weft.Info{}, err
	}
	call := waiting.New(ctx, "start of workflow", s.Workflow.ID)
	info, err := s.start(call)
	return info, call.Explain(err)
}

// A startCall is a start from outside of any run.
type startCall struct {
	*run.PreparedStart
	intake *Intake
	fresh  bool // StartRequest.New

	first    *acceptance.Incoming // accepted in the same commit; nil: none
	accepted signal.Accepted      // the answer to first, if there is one

	update *run.UpdateCall // admitted in the same commit; nil: none

	giveUp  context.CancelCauseFunc
	release func() bool // of giveUp from the end of the engine; nil: all outcomes were certain
	unknown bool        // something may have been written
}

// prepareCall validates and encodes a start before anything is written.
func (e *Intake) prepareCall(ctx context.Context, r *weft.StartRequest) (*startCall, error) {
	s, err := e.PrepareStart(ctx, r)
	return &startCall{PreparedStart: s, intake: e, fresh: r.New}, err
}

// PrepareStart validates and encodes a start from outside of any run.
func (e *Intake) PrepareStart(ctx context.Context, r *weft.StartRequest) (*run.PreparedStart, error) {
	s, err := e.Prepare(ctx, e.queued(r))
	if err != nil {
		return nil, err
	}
	return s, s.Returns(ctx, r.Input)
}

// queued returns r with the queue of the workflow's definition, if r leaves the queue open and
// this engine has the definition.
func (e *Intake) queued(r *weft.StartRequest) *weft.StartRequest {
	def := e.Workflows[r.Workflow]
	if def == nil || r.Options.Queue != "" || r.Options.NoQueue {
		return r
	}
	q := *r
	q.Options.Queue = def.Queue
	return &q
}

// start writes the start, or returns the workflow that already has the id.
func (s *startCall) start(ctx context.Context) (weft.Info, error) {
	e := s.intake
	if err := e.Refused(); err != nil {
		return weft.Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return weft.Info{}, err
	}
	l := e.Join(s.Workflow)
	if l != nil {
		defer l.Running.Done()
		defer e.Arrived()
		defer l.BeginStart(s.Workflow.ID)()
	}
	ctx, s.giveUp = context.WithCancelCause(ctx)
	defer s.over()
	s.Announce(ctx)
	for range settle.MostTries {
		s.Owner = nil
		if l != nil {
			s.Owner = l
		}
		info, again, err := s.try(ctx)
		if !again {
			return info, err
		}
	}
	return weft.Info{}, settle.Contradiction(keys.Workflow(s.Workflow.ID))
}

// try writes the start on the assumption that the id is free, or has the tombstone s.Replaces. It
// reports whether to try again because that was wrong.
func (s *startCall) try(ctx context.Context) (info weft.Info, again bool, err error) {
	if err := s.Place(ctx); err != nil {
		info, free, there := s.meet(ctx) // a repeated start gets its answer all the same
		if !free {
			return info, false, there
		}
		return weft.Info{}, false, err
	}
	w, err := s.Decide()
	if err != nil {
		return weft.Info{}, false, err
	}
	a, err := s.accept(w)
	if err != nil {
		return weft.Info{}, false, err
	}
	doubt := func(err error) {
		w.Doubt()
		s.unsure(err)
	}
	err = settle.Commit(ctx, s.intake.Store, w.Batch, doubt, s.landed)
	switch {
	case err == nil:
		s.Begun(w)
		s.accepted = a
		info = run.InfoOf(w.After)
		w.Free()
		return info, false, nil
	case errors.Is(err, storage.ErrConflict):
		w.Free()
		if s.first != nil {
			a, earlier, err := s.intake.earlier(ctx, s.first)
			if s.accepted = a; earlier || err != nil {
				return weft.Info{}, false, err
			}
		}
		return s.meet(ctx)
	}
	s.doubt(err)
	return weft.Info{}, false, fmt.Errorf("engine: start %q: %w", s.Workflow.ID, err)
}

// accept adds the acceptance of the first signal, or the admission of an update, to the start.
func (s *startCall) accept(w *journal.Write) (signal.Accepted, error) {
	if u := s.update; u != nil {
		b, err := acceptance.Admit(u.WorkflowID, u.Record(s.Workflow.Generation, s.intake.Now()), nil)
		w.Batch.If = append(w.Batch.If, b.If...)
		w.Batch.Ops = append(w.Batch.Ops, b.Ops...)
		return signal.Accepted{}, err
	}
	if s.first == nil {
		return signal.Accepted{}, nil
	}
	d, err := acceptance.Accept([]*acceptance.Incoming{s.first}, s.Workflow.Generation, nil, s.intake.Now())
	if err != nil {
		return signal.Accepted{}, err
	}
	w.Batch.If = append(w.Batch.If, d.Batch.If...)
	w.Batch.Ops = append(w.Batch.Ops, d.Batch.Ops...)
	return d.Arrived[0].Answer, nil
}

// meet handles the case that the id of the start is in use. It returns the workflow that
// has it if that is the same start and need not be new, or reports whether to try again.
func (s *startCall) meet(ctx context.Context) (info weft.Info, again bool, err error) {
	there, err := journal.Load(ctx, s.intake.Store, s.Workflow.ID)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		s.Replaces = nil
		_, err := s.intake.Orphaned(ctx, s.Workflow.ID)
		return weft.Info{}, err == nil || errors.Is(err, weft.ErrNotFound), err
	case err != nil:
		return weft.Info{}, false, fmt.Errorf("engine: start %q: %w", s.Workflow.ID, err)
	case there.Tombstone():
		s.Replaces = there
		err := journal.Sweep(ctx, s.intake.Store, there)
		return weft.Info{}, err == nil || errors.Is(err, storage.ErrConflict), err
	}
	same := there.Type == s.Workflow.Type && there.Identity().Same(s.Workflow.Identity())
	if same && !s.fresh {
		if err := s.intake.Rests(ctx, there.Unchanged()); errors.Is(err, storage.ErrConflict) {
			return s.meet(ctx)
		} else if err != nil {
			return weft.Info{}, false, err
		}
		return run.InfoOf(there), false, nil
	}
	return weft.Info{}, false, &weft.ExistsError{WorkflowID: there.ID, Workflow: there.Type, Status: there.Status, Asked: s.Workflow.Type, Same: same}
}

// doubt has the engine look for the start, whose last try has ended with err, unless it was certainly not written.
func (s *startCall) doubt(err error) {
	if s.Owner != nil && !errors.Is(err, storage.ErrInvalidBatch) && (s.unknown || !withdrawn(err)) {
		s.Owner.DoubtStart(s.Workflow.ID)
	}
}

func withdrawn(err error) bool {
	_, is := errors.AsType[*storage.WithdrawnError](err)
	return is
}

// over releases what the call holds.
func (s *startCall) over() {
	s.giveUp(nil)
	if s.release != nil {
		s.release()
	}
}

// unsure notes that a try has ended with err. From then on the call does not outlast the engine.
func (s *startCall) unsure(err error) {
	s.unknown = s.unknown || !withdrawn(err)
	if s.Owner != nil {
		s.Owner.Unsure("start", s.Workflow.ID)(err)
	} else {
		s.intake.Log.Warn("weft: outcome of a start is unknown; trying again", "workflow", s.Workflow.ID, "type", s.Workflow.Type, "error", err)
	}
	if err := s.intake.Refused(); err != nil {
		s.giveUp(err)
	} else if s.Owner != nil && s.release == nil {
		stopping := s.Owner.Context()
		s.release = context.AfterFunc(stopping, func() { s.giveUp(cmp.Or(s.intake.Refused(), context.Cause(stopping))) })
	}
}
