package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/weft-go/weft/checkpoint"
)

// Result is Engine.Result.
func (e *admin) Result(ctx context.Context, id, workflow string, result any) error {
	call := waiting(ctx, "result of workflow", id)
	waitingFor(call, "the store to read")
	return call.explain(e.awaitResult(call, id, workflow, result))
}

func (e *admin) awaitResult(ctx context.Context, id, workflow string, result any) error {
	if err := checkID(id); err != nil {
		return err
	}
	ended, local, release := e.await(workflow, id)
	defer release()
	for {
		if !local { // this engine does not execute it, or its waiters were already notified
			wf, err := e.load(ctx, id)
			switch {
			case err != nil:
				return err
			case workflow != "" && workflow != wf.Type:
				return fmt.Errorf("%w: %q is a run of workflow %q, not of %q", ErrNotFound, id, wf.Type, workflow)
			case wf.Status.Terminal():
				out, err := checkpoint.ReadOutput(ctx, e.store, wf)
				if err == nil {
					return e.result(ctx, wf.Type, id, out, result)
				}
				if err := outdated(ctx, e.store, wf, err); err != nil {
					return err
				}
				continue // it was purged or retried meanwhile
			}
		}
		waitingFor(ctx, "its end")
		out, err := e.hear(ctx, ended, id)
		if err != nil {
			return err
		}
		if x := out; x != nil && (workflow == "" || workflow == x.workflow) {
			return e.result(ctx, x.workflow, id, x.Output, result)
		}
		local = false
	}
}

// hear waits for the end of a run, or until it is time to check the store. Then it returns
// nil.
func (e *admin) hear(ctx context.Context, ended <-chan *ending, id string) (*ending, error) {
	var look <-chan time.Time
	if !e.tells(id) {
		t := time.NewTimer(e.pollInterval)
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
	case <-e.closing:
		return nil, ErrClosed
	}
}

// result returns an output to a caller: it decodes the result, or returns the error.
func (e *admin) result(ctx context.Context, workflow, id string, out *checkpoint.Output, result any) error {
	switch out.Status {
	case checkpoint.StatusCompleted:
		if result == nil {
			return nil
		}
		if err := e.codecs.decode(ctx, payload{codec: out.Codec, data: out.Data}, result); err != nil {
			return fmt.Errorf("engine: result of %q: %w", id, err)
		}
		return nil
	case checkpoint.StatusCancelled:
		return fmt.Errorf("%w: %q", ErrCancelled, id)
	}
	failed := &WorkflowError{WorkflowID: id, Workflow: workflow, Message: out.Error, Stack: out.Stack, SentinelText: out.Sentinel}
	if d := e.workflows[workflow]; d != nil {
		failed.Sentinel = named(out.Sentinel, d.errors)
	}
	return failed
}
