package admin

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
func (e *Admin) Result(ctx context.Context, id, workflow string, result any) error {
	call := waiting.New(ctx, "result of workflow", id)
	waiting.For(call, "the store to read")
	return call.Explain(e.awaitResult(call, id, workflow, result))
}

func (e *Admin) awaitResult(ctx context.Context, id, workflow string, result any) error {
	if err := payload.CheckID(id); err != nil {
		return err
	}
	ended, local, release := e.Await(workflow, id)
	defer release()
	for {
		if !local { // this engine does not execute it, or its waiters were already notified
			wf, err := e.Load(ctx, id)
			switch {
			case err != nil:
				return err
			case workflow != "" && workflow != wf.Type:
				return fmt.Errorf("%w: %q is a run of workflow %q, not of %q", weft.ErrNotFound, id, wf.Type, workflow)
			case wf.Status.Terminal():
				out, err := journal.ReadOutput(ctx, e.Store, wf)
				if err == nil {
					return e.result(ctx, wf.Type, id, out, result)
				}
				if err := run.Outdated(ctx, e.Store, wf, err); err != nil {
					return err
				}
				continue // it was purged or retried meanwhile
			}
		}
		waiting.For(ctx, "its end")
		out, err := e.hear(ctx, ended, id)
		if err != nil {
			return err
		}
		if x := out; x != nil && (workflow == "" || workflow == x.Workflow) {
			return e.result(ctx, x.Workflow, id, x.Output, result)
		}
		local = false
	}
}

// hear waits for the end of a run, or until it is time to check the store. Then it returns
// nil.
func (e *Admin) hear(ctx context.Context, ended <-chan *run.Ending, id string) (*run.Ending, error) {
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
func (e *Admin) result(ctx context.Context, workflow, id string, out *journal.Output, result any) error {
	switch out.Status {
	case checkpoint.StatusCompleted:
		if result == nil {
			return nil
		}
		if err := e.Codecs.Decode(ctx, payload.Payload{Codec: out.Codec, Data: out.Data}, result); err != nil {
			return fmt.Errorf("engine: result of %q: %w", id, err)
		}
		return nil
	case checkpoint.StatusCancelled:
		return fmt.Errorf("%w: %q", weft.ErrCancelled, id)
	}
	failed := &weft.WorkflowError{WorkflowID: id, Workflow: workflow, Message: out.Error, Stack: out.Stack, SentinelText: out.Sentinel}
	if d := e.Workflows[workflow]; d != nil {
		failed.Sentinel = payload.SentinelOf(out.Sentinel, d.Errors)
	}
	return failed
}
