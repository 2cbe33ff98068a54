package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/waiting"
)

// Result is Engine.Result.
func (e *Reader) Result(ctx context.Context, id, workflow string, result any) error {
	call := waiting.New(ctx, "result of workflow", id)
	waiting.For(call, "the store to read")
	return call.Explain(e.awaitResult(call, id, workflow, result))
}

func (e *Reader) awaitResult(ctx context.Context, id, workflow string, result any) error {
	if err := payload.CheckID(id); err != nil {
		return err
	}
	ended, local, release := e.Await(workflow, id)
	defer release()
	waitsForEnd := "its end"
	for {
		if !local { // nobody will tell the end, or it was told that it is to look
			wf, err := e.Load(ctx, id)
			switch {
			case err != nil:
				return err
			case workflow != "" && workflow != wf.Type:
				return fmt.Errorf("%w: %q is a run of workflow %q, not of %q", weft.ErrNotFound, id, wf.Type, workflow)
			case wf.Status.Terminal():
				out, err := journal.ReadOutput(ctx, e.Store, wf)
				if err == nil {
					return e.result(ctx, &run.Ending{Workflow: wf.Type, Cancel: wf.Cancel, Output: out}, id, result)
				}
				if err := run.Outdated(ctx, e.Store, wf, err); err != nil {
					return err
				}
				continue // it was purged or retried meanwhile
			case wf.Status == checkpoint.StatusPending && !e.Tells(id):
				waitsForEnd = "its end; no engine has begun it"
			default:
				waitsForEnd = "its end"
			}
		}
		waiting.For(ctx, waitsForEnd)
		end, err := e.hear(ctx, ended, id)
		if err != nil {
			return err
		}
		if end != nil {
			return e.result(ctx, end, id, result)
		}
		local = false
	}
}

// hear waits for the end of a run, or until it is time to check the store. Then it returns
// nil.
func (e *Reader) hear(ctx context.Context, ended <-chan *run.Ending, id string) (*run.Ending, error) {
	var look <-chan time.Time
	if !e.Tells(id) {
		t := time.NewTimer(e.PollInterval)
		defer t.Stop()
		look = t.C
	}
	select {
	case out := <-ended:
		return out, nil
	case <-look:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-e.Closing:
		return nil, weft.ErrClosed
	}
}

// result returns an output to a caller: it decodes the result, or returns the error.
func (e *Reader) result(ctx context.Context, end *run.Ending, id string, result any) error {
	if end.Status != checkpoint.StatusCompleted {
		return e.failure(end, id)
	}
	if result == nil {
		return nil
	}
	if err := e.Codecs.Decode(ctx, payload.Payload{Codec: end.Codec, Data: end.Data}, result); err != nil {
		return fmt.Errorf("engine: result of %q: %w", id, err)
	}
	return nil
}

// failure returns why a workflow has no result: it failed or was cancelled.
func (e *Reader) failure(end *run.Ending, id string) error {
	if end.Status == checkpoint.StatusCancelled {
		how := ""
		if end.Cancel != nil && end.Cancel.Terminated {
			how = " was terminated"
		}
		return fmt.Errorf("%w: %q%s%s", weft.ErrCancelled, id, how, requested(end.Cancel))
	}
	return e.failed(end, id)
}

// failed returns the error of a workflow that has failed.
func (e *Reader) failed(end *run.Ending, id string) *weft.WorkflowError {
	failed := &weft.WorkflowError{WorkflowID: id, Workflow: end.Workflow, Message: end.Error, Stack: end.Stack, SentinelText: end.Sentinel}
	if d := e.Workflows[end.Workflow]; d != nil {
		failed.Sentinel = payload.SentinelOf(end.Sentinel, d.Errors)
	}
	return failed
}

// requested returns who requested a cancellation, and why, as the end of a sentence.
func requested(r *journal.Request) (s string) {
	if r == nil {
		return ""
	}
	if r.By != "" {
		s += fmt.Sprintf(", by %q", r.By)
	}
	if r.Reason != "" {
		s += ": " + r.Reason
	}
	return s
}
