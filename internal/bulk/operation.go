package bulk

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/waiting"
)

// errDone means that an operation was done before: by an engine that has died since, or by another one.
var errDone = errors.New("done already")

// operate does the operation of r to m. It may be called again after it was done, and does nothing then.
func (s *Bulks) operate(ctx context.Context, r *Record, m Member) error {
	if m.Damage != "" {
		return errors.New(m.Damage)
	}
	by := r.actor()
	a := s.Admin.Only(func(ctx context.Context, wf *journal.Workflow) error { return s.may(ctx, r, m, wf) })
	var err error
	switch r.Do {
	case weft.BulkCancel:
		if err = a.Cancel(ctx, m.ID, by); errors.Is(err, weft.ErrHeld) {
			err = nil // the request is recorded all the same
		}
	case weft.BulkTerminate:
		err = a.Terminate(ctx, m.ID, by)
	case weft.BulkSignal:
		err = s.signal(ctx, r, m)
	case weft.BulkResume:
		err = a.Resume(ctx, m.ID, by)
	case weft.BulkReset:
		err = a.Reset(ctx, m.ID, r.Before, by)
	case weft.BulkPurge:
		err = a.Purge(ctx, m.ID, by)
	case weft.BulkDelete:
		err = a.Delete(ctx, m.ID, by)
	case weft.BulkProtect:
		err = a.Protect(ctx, m.ID, by)
	case weft.BulkUnprotect:
		err = a.Unprotect(ctx, m.ID, by)
	default:
		return fmt.Errorf("engine: this release cannot do %q", string(r.Do))
	}
	removes := r.Do == weft.BulkPurge || r.Do == weft.BulkDelete
	if errors.Is(err, errDone) || removes && errors.Is(err, weft.ErrNotFound) { // it was there when the page was read
		return nil
	}
	return err
}

// may returns errDone if the operation was done to wf, and another error if wf is not what m was.
func (s *Bulks) may(ctx context.Context, r *Record, m Member, wf *journal.Workflow) error {
	if wf.Generation != m.Generation { // purged, and started again
		return payload.NotFound(m.ID)
	}
	switch r.Do {
	case weft.BulkCancel:
		if wf.Status.Terminal() && wf.Cancel != nil { // it was asked to stop, and has ended
			return errDone
		}
		return s.takenBack(ctx, r, m, wf)
	case weft.BulkTerminate:
		by, c := r.actor(), wf.Cancel
		if wf.Status.Terminal() && c != nil && c.By == by.Name && c.Reason == by.Reason {
			return errDone
		}
		return s.takenBack(ctx, r, m, wf)
	case weft.BulkResume, weft.BulkReset:
		if wf.Life != m.Life {
			return fmt.Errorf("%w: %s %q: it has continued as new meanwhile", weft.ErrNotApplicable, r.Do, m.ID)
		}
		return s.unlessActed(ctx, r, wf)
	case weft.BulkUnprotect:
		if wf.Protected == nil || m.Held != 0 && m.Held != wf.Protected.At { // it was protected anew
			return errDone
		}
	case weft.BulkProtect: // of what had ended nobody knows whether it was protected: to protect it again is safe
		if had := wf.Status.Terminal() && wf.EndedAt <= r.At; wf.Protected == nil && !had {
			return s.unlessActed(ctx, r, wf)
		}
	}
	return nil
}

// takenBack returns errDone if r has stopped wf, and an operator has taken that back. If an operator has reset or
// resumed an earlier life of wf since the page was read, the history does not tell any more whether r had stopped it.
func (s *Bulks) takenBack(ctx context.Context, r *Record, m Member, wf *journal.Workflow) error {
	if wf.Life != m.Life && wf.Resumed > m.TakenUp {
		return fmt.Errorf("%w: %s %q: an operator has reset or resumed it meanwhile, and it has continued as new", weft.ErrNotApplicable, r.Do, m.ID)
	}
	if len(wf.Resets) == 0 && len(wf.Retries) == 0 {
		return nil
	}
	return s.unlessActed(ctx, r, wf)
}

// unlessActed returns errDone if the history of the present life of wf has an action of r.
func (s *Bulks) unlessActed(ctx context.Context, r *Record, wf *journal.Workflow) error {
	acted, err := s.acted(ctx, r, wf)
	if err == nil && acted {
		err = errDone
	}
	return err
}

// acted reports whether the history of the present life of wf has an action of r. No other ever has the
// reason that r gives.
func (s *Bulks) acted(ctx context.Context, r *Record, wf *journal.Workflow) (bool, error) {
	by := r.actor()
	for _, v := range wf.Verbs {
		if v.By == by.Name && v.Why == by.Reason {
			return true, nil
		}
	}
	if r.Do == weft.BulkReset && len(wf.Resets) == 0 {
		return false, nil
	}
	for c, err := range journal.History(ctx, s.Store, wf) {
		if record.Damaged(err) {
			return false, nil // the operation itself says what can be done with such a history
		}
		if err != nil {
			return false, err
		}
		for _, e := range c.Events {
			if (e.Kind == checkpoint.KindActed || e.Kind == checkpoint.KindAsked) && e.By == by.Name && e.Why == by.Reason {
				return true, nil
			}
		}
	}
	return false, nil
}

// signal sends the signal of r to m. A repetition has the same ID.
func (s *Bulks) signal(ctx context.Context, r *Record, m Member) error {
	call := waiting.New(ctx, "signal "+waiting.Quoted(r.Signal.Name)+" to workflow", m.ID)
	_, err := s.Send(call, r.Signal.incoming(m))
	return call.Explain(err)
}

// refuses reports whether err is an answer about a workflow. Otherwise it is trouble with the store or
// the end of this engine, and the operation is tried again.
func refuses(ctx context.Context, err error) bool {
	if _, interrupted := errors.AsType[*weft.InterruptedError](err); interrupted || ctx.Err() != nil {
		return false
	}
	return !errors.Is(err, weft.ErrClosed) && !settle.Gone(err)
}

// applies reports whether the operation of r is meant for wf, which its filter selects. What had ended when r
// began is not to be stopped, and what had not is not to be purged. Nobody wants to have it listed as
// refused. And what r has reset may be in the list once more, because the clock of an engine is behind.
func (s *Bulks) applies(ctx context.Context, r *Record, wf *journal.Workflow) (bool, error) {
	since := wf.Since() <= r.At
	switch r.Do {
	case weft.BulkCancel, weft.BulkTerminate, weft.BulkSignal:
		return !wf.Status.Terminal() || !since, nil
	case weft.BulkPurge:
		return wf.Status.Terminal() && since, nil
	case weft.BulkResume:
		if (wf.Status != checkpoint.StatusFailed || !since) && len(wf.Attention) == 0 {
			return false, nil
		}
	case weft.BulkReset:
	default:
		return true, nil
	}
	if len(wf.Resets) == 0 && len(wf.Retries) == 0 {
		return true, nil
	}
	acted, err := s.acted(ctx, r, wf)
	return !acted, err
}
