package runs

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
)

type resultParams struct {
	RunID string `json:"runId" in:"path"`
	Wait  *int   `json:"wait,omitempty" in:"query"` // seconds
}

func (p *resultParams) Check() []operation.Issue {
	if p.Wait != nil && (*p.Wait < 0 || *p.Wait > int(operation.MostWait/time.Second)) {
		return []operation.Issue{{Path: "/wait", Problem: "must be 0 to 60"}}
	}
	return nil
}

// runResult waits for the end of a run, as long as the client asks for.
func runResult(ctx context.Context, c *call, p *resultParams) (operation.Answer, error) {
	id, err := c.at(p.RunID)
	if err != nil {
		return operation.Answer{}, err
	}
	asked := c.Asked(p.Wait)
	b, ended, err := c.outcome(ctx, id)
	if err == nil && !ended && asked > 0 {
		if err := c.awaitEnd(ctx, id, asked); err != nil {
			return operation.Answer{}, err
		}
		b, ended, err = c.outcome(ctx, id)
	}
	if err != nil {
		return operation.Answer{}, err
	}
	b.RunID = p.RunID
	if !ended {
		return operation.Answer{Status: http.StatusAccepted, Body: wire.RunPending{RunID: b.RunID, Status: b.Status}}, nil
	}
	return operation.Answer{Body: b}, nil
}

// awaitEnd waits until the run has ended, the time is up or the plane closes. It is an error if it
// cannot find out, or if the key was revoked meanwhile.
func (c *call) awaitEnd(ctx context.Context, id string, wait time.Duration) error {
	ctx, release, ok := c.Waits(ctx, wait)
	defer release()
	if !ok {
		return nil // it is answered at once
	}
	err := c.Engine.Result(ctx, id, "", nil)
	failed := (*engine.WorkflowError)(nil)
	switch {
	case err == nil, errors.As(err, &failed), errors.Is(err, engine.ErrCancelled):
		return nil
	case ctx.Err() == nil:
		return err
	}
	return c.Revoked(ctx)
}

// outcome returns how a run ended, as a result, or its status if it has not.
func (c *call) outcome(ctx context.Context, id string) (b wire.RunResult, ended bool, err error) {
	wf, err := c.record(ctx, id)
	if err != nil {
		return b, false, err
	}
	if !wf.Status.Terminal() {
		return wire.RunResult{Status: string(wf.Status)}, false, nil
	}
	p, err := c.Engine.Payloads(ctx, id)
	if err != nil {
		return b, false, err
	}
	b.Status, b.Result, b.Error = string(p.Info.Status), resultOf(&p), c.failureOf(&p)
	return b, p.Info.Status.Terminal(), nil // an operator may have resumed it meanwhile
}

// resultOf returns the result of a run that completed, or nil. A result is never absent.
func resultOf(p *engine.Payloads) json.RawMessage {
	switch {
	case p.Result == nil:
		return nil
	case p.Result.Data == nil:
		return json.RawMessage("null")
	}
	return jsonOf(p.Result.Codec, p.Result.Data)
}

// failureOf returns why a run that has ended has no result, or nil.
func (c *call) failureOf(p *engine.Payloads) *wire.StructuredError {
	if p.Failure == nil {
		return errorOf(c.Who, &p.Info)
	}
	e := &wire.StructuredError{Message: c.Who.Visible(p.Failure.Message), Code: p.Failure.SentinelText}
	if c.Who.Has(operation.ScopeOpsRead) {
		e.Stack = p.Failure.Stack
	}
	return e
}
