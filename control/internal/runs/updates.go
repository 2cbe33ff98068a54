package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/ids"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/storage"
)

func (r *Runs) updateOperations() []*operation.Operation {
	return []*operation.Operation{
		{Name: "updates.call", Method: "POST", Path: "/v1/runs/{runId}/updates/{name}", Scopes: []string{operation.ScopeSignalsWrite, operation.ScopeRunsWrite}, Follows: true, Do: act(r, callUpdate)},
	}
}

// How long updates.call waits for the answer.
const (
	updateWait      = 10 * time.Second // if the client does not say
	leastUpdateWait = time.Second      // also in a batch of JSON-RPC: the run may be elsewhere, or has to be read
)

// updateParams are the parameters of updates.call.
type updateParams struct {
	RunID    string          `json:"runId" in:"path"`
	Name     string          `json:"name" in:"path"`
	Wait     *int            `json:"wait,omitempty" in:"query"` // seconds
	Input    json.RawMessage `json:"input,omitempty"`
	UpdateID *string         `json:"updateId,omitempty"`
	Start    *absentStart    `json:"start,omitempty"`
}

func (p *updateParams) Check() (issues []operation.Issue) {
	if payload.CheckName("name of update", p.Name, keys.MaxName) != nil {
		issues = append(issues, operation.Issue{Path: "/name", Problem: fmt.Sprintf("must have 1 to %d bytes of UTF-8", keys.MaxName)})
	}
	if p.UpdateID != nil && payload.CheckSignalID(*p.UpdateID) != nil {
		issues = append(issues, operation.Issue{Path: "/updateId", Problem: fmt.Sprintf("must have 1 to %d bytes of UTF-8", keys.MaxSignalID)})
	}
	if p.Wait != nil && (*p.Wait < 1 || *p.Wait > int(operation.MostWait/time.Second)) {
		issues = append(issues, operation.Issue{Path: "/wait", Problem: "must be 1 to 60"})
	}
	if p.Start != nil {
		issues = checkWorkflowName(issues, "/start/workflowName", p.Start.WorkflowName)
	}
	return issues
}

// InsteadOfAgain is what to do if the outcome is unknown: without an updateId, a repetition is another update.
func (p *updateParams) InsteadOfAgain() string {
	if p.UpdateID != nil {
		return ""
	}
	return "The run may have accepted the update, and called again it is another one. Call updates with an updateId: then the same request can be sent again."
}

// callUpdate calls an update and waits for the answer, as long as the client asks for. Without an answer
// by then, the same request asks for it again. With a start, it first starts the run if it does not exist.
func callUpdate(ctx context.Context, c *call, p *updateParams) (operation.Answer, error) {
	id, err := c.at(p.RunID)
	if err != nil {
		return operation.Answer{}, err
	}
	if p.Start != nil && !c.Who.Has(operation.ScopeTriggerWrite) {
		return operation.Answer{}, operation.MissingScope(operation.ScopeTriggerWrite)
	}
	updateID := "upd_" + ids.ULID(time.Now())
	if p.UpdateID != nil {
		updateID = *p.UpdateID
	}
	asked := c.Asked(p.Wait)
	if asked == 0 {
		asked = updateWait
	}
	c.Wait = max(c.Wait, leastUpdateWait)
	waiting, release, ok := c.Waits(ctx, max(asked, leastUpdateWait))
	defer release()
	if !ok {
		return operation.Answer{}, operation.RetryLater("busy", "Too many calls of this key wait. Nothing was changed.")
	}
	pending := operation.Answer{Status: http.StatusAccepted, Body: wire.UpdatePending{RunID: p.RunID, UpdateName: p.Name, UpdateID: updateID}}
	r := &engine.UpdateRequest{WorkflowID: id, Update: p.Name, ID: &updateID, Input: input(p.Input)}
	if p.Start != nil {
		if _, err := c.admitWithStart(ctx, p, *r, pending); err != nil {
			return operation.Answer{}, err
		}
	}
	a, err := c.awaitUpdate(ctx, waiting, p, r, pending)
	if err != nil {
		c.Audited = false // what was audited is that the run was started, and has the update
	}
	return a, err
}

// admitWithStart starts the run of an update if it does not exist, and leaves the update to it: that, and the audit
// row, are one commit.
func (c *call) admitWithStart(ctx context.Context, p *updateParams, r engine.UpdateRequest, pending operation.Answer) (operation.Answer, error) {
	id := r.WorkflowID
	return c.Mutate(ctx, func(ctx context.Context, tx storage.Tx) (operation.Answer, error) {
		c.Note.RunID = p.RunID
		start, err := c.startIfAbsent(ctx, tx, id, p.Start)
		if err != nil {
			return operation.Answer{}, err
		}
		r.WorkflowID, r.Start = "", start
		if err := c.Engine.In(tx).AdmitUpdate(ctx, &r); err != nil {
			return operation.Answer{}, c.updateProblem(p, *r.ID, runExistsOr(p.RunID, err))
		}
		return pending, nil
	})
}

// awaitUpdate calls an update and returns its answer, or pending if there is none when waiting ends.
func (c *call) awaitUpdate(ctx, waiting context.Context, p *updateParams, r *engine.UpdateRequest, pending operation.Answer) (operation.Answer, error) {
	updateID := *r.ID
	var stored weft.Encoded
	err := c.Engine.CallUpdate(waiting, r, &stored)
	interrupted, isInterrupted := errors.AsType[*weft.InterruptedError](err)
	switch {
	case isInterrupted && interrupted.Last == nil && waiting.Err() != nil:
		return pending, c.Revoked(ctx)
	case err != nil:
		return operation.Answer{}, c.updateProblem(p, updateID, err)
	}
	result := json.RawMessage("null")
	if stored.Data != nil {
		result = jsonOf(stored.Codec, stored.Data)
	}
	return operation.Answer{Body: wire.UpdateAnswer{RunID: p.RunID, UpdateName: p.Name, UpdateID: updateID, Result: result}}, nil
}

// updateProblem returns the problem of an update that has another answer than a result, or err.
func (c *call) updateProblem(p *updateParams, updateID string, err error) error {
	details := map[string]any{"runId": p.RunID, "updateName": p.Name, "updateId": updateID}
	if e, ok := errors.AsType[*engine.RejectedError](err); ok {
		refusal := wire.StructuredError{Message: c.Who.Visible(e.Message), Code: e.SentinelText}
		details["error"] = refusal
		return operation.NewProblem(http.StatusConflict, "update_rejected", "The run has refused the update: "+refusal.Message).With(details)
	}
	if e, ok := errors.AsType[*engine.UpdateError](err); ok {
		failure := wire.StructuredError{Message: c.Who.Visible(e.Message), Code: e.SentinelText}
		if c.Who.Has(operation.ScopeOpsRead) {
			failure.Stack = e.Stack
		}
		details["error"] = failure
		return operation.NewProblem(http.StatusConflict, "update_failed", "The run has accepted the update, and it has failed: "+failure.Message).With(details)
	}
	switch {
	case errors.Is(err, engine.ErrMismatch):
		return operation.NewProblem(http.StatusConflict, "update_mismatch", "The updateId came before with another update, or with another input.").With(details)
	case errors.Is(err, engine.ErrBusy):
		return operation.RetryLater("busy", "As many updates as may wait for this run. Nothing was changed.").Because(err)
	}
	return err
}
