package intake

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/storage"
)

// CallUpdate is Engine.CallUpdate.
func (e *Intake) CallUpdate(ctx context.Context, r *weft.UpdateRequest, result any) error {
	id := r.WorkflowID
	if r.Start != nil {
		id = r.Start.ID
	}
	call := waiting.New(ctx, "update "+waiting.Quoted(r.Update)+" of workflow", id)
	return call.Explain(e.callUpdate(call, r, result))
}

func (e *Intake) callUpdate(ctx context.Context, r *weft.UpdateRequest, result any) error {
	u, s, err := e.prepareUpdate(ctx, r)
	if err != nil {
		return err
	}
	changed, release := e.Observe(u.WorkflowID)
	defer release()
	c := &updateCall{UpdateCall: u, intake: e, changed: changed}
	if s == nil {
		if a, err := c.ask(ctx); a != nil || err != nil {
			return c.end(ctx, a, err, result)
		}
	} else if _, err := s.start(ctx); err != nil {
		return err
	}
	a, err := c.await(ctx)
	return c.end(ctx, a, err, result)
}

// prepareUpdate checks and encodes a call of an update, and its start, if it has one, before anything is written.
func (e *Intake) prepareUpdate(ctx context.Context, r *weft.UpdateRequest) (*run.UpdateCall, *startCall, error) {
	id := r.WorkflowID
	var s *startCall
	if r.Start != nil {
		if id != "" {
			return nil, nil, fmt.Errorf("%w: update %s: WorkflowID must be empty if there is a Start", weft.ErrInvalid, r.Update)
		}
		var err error
		if s, err = e.prepareCall(ctx, r.Start); err != nil {
			return nil, nil, err
		}
		id = s.Workflow.ID
	}
	u, err := e.Updating(ctx, id, r)
	if err == nil {
		err = errors.Join(e.Refused(), ctx.Err())
	}
	if err == nil && s != nil {
		s.update, s.Signalled = u, true
		s.Workflow.Update()
	}
	return u, s, err
}

// AdmitUpdate is Tx.AdmitUpdate. storage.ErrConflict means that somebody else was faster.
func (e *Intake) AdmitUpdate(ctx context.Context, r *weft.UpdateRequest) error {
	u, s, err := e.prepareUpdate(ctx, r)
	if err == nil && s != nil {
		_, err = s.start(ctx)
	}
	if err != nil {
		return err
	}
	c := &updateCall{UpdateCall: u, intake: e}
	_, known, err := c.look(ctx)
	if err == nil && !known {
		err = fmt.Errorf("engine: update %q of workflow %q: %w", r.Update, u.WorkflowID, storage.ErrConflict)
	}
	return err
}

// An updateCall is a call of an update in progress.
type updateCall struct {
	*run.UpdateCall
	intake     *Intake
	changed    <-chan struct{} // receives when there may be an answer
	generation string          // of the workflow, as it was read first
}

// ask asks the driver of the run, if this engine executes it, and waits for the answer. nil means that
// the store has to be read.
func (c *updateCall) ask(ctx context.Context) (*acceptance.Answer, error) {
	x := c.intake.Executing(c.WorkflowID)
	if x == nil {
		return nil, nil
	}
	waitsFor(ctx, "the run to answer it")
	m := &run.Asking{Call: c.UpdateCall, Done: make(chan *acceptance.Answer, 1)}
	x.Post(m)
	select {
	case a := <-m.Done:
		return a, nil
	case <-x.Ctx.Done(): // what it has committed is in the store
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.intake.Closing:
		return nil, weft.ErrClosed
	}
}

// await waits for the answer in the store, and admits the update if it is not there.
func (c *updateCall) await(ctx context.Context) (*acceptance.Answer, error) {
	for pause := time.Millisecond; ; {
		a, known, err := c.look(ctx)
		if a != nil || err != nil {
			return a, err
		}
		if !known { // somebody else was first, or the outcome is unknown
			if !backoff.Wait(ctx, pause) {
				return nil, ctx.Err()
			}
			pause = min(2*pause, time.Second)
			continue
		}
		pause = time.Millisecond
		if err := c.rest(ctx); err != nil {
			return nil, err
		}
	}
}

// rest waits for a notification, or until it is time to read the store again.
func (c *updateCall) rest(ctx context.Context) error {
	again := time.NewTimer(c.intake.PollInterval)
	defer again.Stop()
	select {
	case <-c.changed:
	case <-again.C:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.intake.Closing:
		return weft.ErrClosed
	}
	return nil
}

// waitsFor records that the call of ctx waits for the run, which may execute the update also when nobody
// waits any more.
func waitsFor(ctx context.Context, what string) {
	waiting.LeftTo(ctx, true, nil)
	waiting.On(ctx, what)
}

// look reads what is known of the update: its answer, that it waits, or nothing. Then it admits it.
// known reports that it waits. The record of the workflow is read first: if it has ended by then, nothing changes
// any more, unless an operator resumes or resets it.
func (c *updateCall) look(ctx context.Context) (_ *acceptance.Answer, known bool, _ error) {
	e := c.intake
	waiting.On(ctx, "the store to read")
	if err := e.Refused(); err != nil {
		return nil, false, err
	}
	wf, err := e.Load(ctx, c.WorkflowID)
	if err != nil {
		return nil, false, err
	}
	if c.generation == "" {
		c.generation = wf.Generation
	}
	if wf.Generation != c.generation {
		return nil, false, fmt.Errorf("%w: %q was purged, and started again, while update %q waited", weft.ErrNotFound, wf.ID, c.Name)
	}
	a, err := acceptance.ReadAnswer(ctx, e.Store, wf.ID, wf.Generation, c.ID)
	switch {
	case err != nil:
		return nil, false, err
	case a != nil && !a.Same(c.Name, c.Digest):
		return nil, false, c.mismatch()
	case a != nil && a.State != acceptance.Accepted:
		return a, true, e.Rests(ctx, wf.Unchanged(), storage.Present(keys.Answer(wf.ID, c.ID)))
	case a != nil && wf.Status.Terminal():
		return nil, false, c.over(ctx, wf, c.terminated(wf))
	case a != nil:
		waitsFor(ctx, "the run to answer it")
		return nil, true, e.Rests(ctx, wf.Unchanged(), storage.Present(keys.Answer(wf.ID, c.ID)))
	}
	u, err := acceptance.ReadUpdate(ctx, e.Store, wf.ID, wf.Generation, c.ID)
	switch {
	case err != nil:
		return nil, false, err
	case u != nil && !u.Same(c.Name, c.Digest):
		return nil, false, c.mismatch()
	case wf.Status.Terminal():
		return nil, false, c.over(ctx, wf, &weft.TerminalError{WorkflowID: wf.ID, Status: wf.Status})
	case u != nil:
		waitsFor(ctx, "the run to accept it, which it does if its function handles such updates")
		return nil, true, e.Rests(ctx, wf.Unchanged(), storage.Present(keys.Update(wf.ID, c.ID)))
	}
	known, err = c.admit(ctx, wf)
	return nil, known, err
}

// over returns why, if wf, which has ended, is still as it was read. Otherwise it returns nil: what was read
// afterwards may be of the time after a reset.
func (c *updateCall) over(ctx context.Context, wf *journal.Workflow, why error) error {
	now, err := c.intake.Load(ctx, wf.ID)
	switch {
	case err != nil:
		return err
	case bytes.Equal(now.Raw(), wf.Raw()):
		return why
	}
	return nil
}

// admit stores the update for the next driver of wf, and wakes it if it waits for such updates. known is
// false if it has to be read what is there now.
func (c *updateCall) admit(ctx context.Context, wf *journal.Workflow) (known bool, _ error) {
	e := c.intake
	if err := wf.Understood(); err != nil {
		return false, fmt.Errorf("engine: update %q: %w", wf.ID, err)
	}
	pending, n := keys.UpdatesOf(wf.ID), 0
	pending.Limit = keys.PayloadPage
	for _, err := range storage.All(ctx, e.Store, pending) {
		if err != nil {
			return false, err
		}
		if n++; n == run.MostPending {
			return false, fmt.Errorf("%w: update %q: %d updates of workflow %q wait already", weft.ErrBusy, c.Name, n, wf.ID)
		}
	}
	counted, err := acceptance.Counter(ctx, e.Store, wf.ID)
	if err != nil {
		return false, err
	}
	now := e.Now()
	b, err := acceptance.Admit(wf.ID, c.Record(wf.Generation, now), counted)
	if err != nil {
		return false, err
	}
	b.If = append(b.If, wf.Unchanged())
	if !wf.Updated() {
		next := *wf
		next.State++
		next.Update()
		if b.Ops, err = journal.Replace(b.Ops, wf, &next); err != nil {
			return false, err
		}
	}
	handled := !wf.Parked() || slices.Contains(wf.Handles, c.Name)
	if handled && e.ExecutionOf(wf) == nil {
		b.Ops = run.WakeUp(b.Ops, wf, now, e.NewID())
	}
	err = e.Store.Commit(ctx, b)
	if handled && !errors.Is(err, storage.ErrConflict) {
		e.Hint(wf, run.Written{Updates: true, Record: !wf.Updated()})
	}
	switch {
	case err == nil:
		waitsFor(ctx, "the run to accept it, which it does if its function handles such updates")
		return true, nil
	case errors.Is(err, storage.ErrConflict):
		return false, nil
	case settle.Hopeless(err):
		return false, fmt.Errorf("engine: update %q: %w", wf.ID, err)
	}
	e.MayArrive(wf.ID)
	waiting.LeftTo(ctx, true, err)
	return false, nil
}

func (c *updateCall) mismatch() error {
	return fmt.Errorf("%w: update %q of workflow %q: another update, or one with another input, has the id %q", weft.ErrMismatch, c.Name, c.WorkflowID, c.ID)
}

// terminated returns the answer to an update that wf had accepted when it was terminated.
func (c *updateCall) terminated(wf *journal.Workflow) error {
	message := "the workflow was terminated"
	if by := wf.Cancel; by != nil && by.Terminated {
		message += fmt.Sprintf(" by %s: %s", by.By, by.Reason)
	}
	return &weft.UpdateError{
		WorkflowID: c.WorkflowID, Update: c.Name, UpdateID: c.ID, Message: message,
		Sentinel: weft.ErrTerminated, SentinelText: weft.ErrTerminated.Error(),
	}
}

// end returns the answer to the caller: it decodes the result, or returns the error.
func (c *updateCall) end(ctx context.Context, a *acceptance.Answer, err error, result any) error {
	if err != nil {
		return err
	}
	switch a.State {
	case acceptance.Rejected:
		return &weft.RejectedError{WorkflowID: c.WorkflowID, Update: c.Name, UpdateID: c.ID, Message: a.Error, SentinelText: a.Sentinel}
	case acceptance.Failed:
		return &weft.UpdateError{
			WorkflowID: c.WorkflowID, Update: c.Name, UpdateID: c.ID, Message: a.Error, Stack: a.Stack,
			Sentinel: payload.SentinelOf(a.Sentinel, run.UpdateErrors), SentinelText: a.Sentinel,
		}
	}
	switch stored, is := result.(*weft.Encoded); {
	case result == nil:
		return nil
	case is:
		*stored = weft.Encoded{Codec: cmp.Or(a.Codec, weft.JSON.Name()), Data: bytes.Clone(a.Data)}
		return nil
	}
	if err := c.intake.Codecs.Decode(ctx, payload.Payload{Codec: a.Codec, Data: a.Data}, result); err != nil {
		return fmt.Errorf("engine: result of update %q of %q: %w", c.Name, c.WorkflowID, err)
	}
	return nil
}
