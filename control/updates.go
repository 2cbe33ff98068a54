package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/storage"
)

func (r *runs) updateOperations() []*operation {
	return []*operation{
		{name: "updates.call", method: "POST", path: "/v1/runs/{runId}/updates/{name}", scopes: []string{scopeSignalsWrite, scopeRunsWrite}, follows: true, do: runAct(r, callUpdate)},
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

func (p *updateParams) Check() (issues []issue) {
	if payload.CheckName("name of update", p.Name, keys.MaxName) != nil {
		issues = append(issues, issue{Path: "/name", Problem: fmt.Sprintf("must have 1 to %d bytes of UTF-8", keys.MaxName)})
	}
	if p.UpdateID != nil && payload.CheckSignalID(*p.UpdateID) != nil {
		issues = append(issues, issue{Path: "/updateId", Problem: fmt.Sprintf("must have 1 to %d bytes of UTF-8", keys.MaxSignalID)})
	}
	if p.Wait != nil && (*p.Wait < 1 || *p.Wait > int(mostWait/time.Second)) {
		issues = append(issues, issue{Path: "/wait", Problem: "must be 1 to 60"})
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
func callUpdate(ctx context.Context, c *runCall, p *updateParams) (answer, error) {
	id, err := c.at(p.RunID)
	if err != nil {
		return answer{}, err
	}
	if p.Start != nil && !c.who.has(scopeTriggerWrite) {
		return answer{}, missingScope(scopeTriggerWrite)
	}
	updateID := "upd_" + newULID(time.Now())
	if p.UpdateID != nil {
		updateID = *p.UpdateID
	}
	asked := c.asked(p.Wait)
	if asked == 0 {
		asked = updateWait
	}
	c.wait = max(c.wait, leastUpdateWait)
	waiting, release, ok := c.waits(ctx, max(asked, leastUpdateWait))
	defer release()
	if !ok {
		return answer{}, retryLater("busy", "Too many calls of this key wait. Nothing was changed.")
	}
	pending := answer{status: http.StatusAccepted, body: wire.UpdatePending{RunID: p.RunID, UpdateName: p.Name, UpdateID: updateID}}
	r := &engine.UpdateRequest{WorkflowID: id, Update: p.Name, ID: &updateID, Input: input(p.Input)}
	if p.Start != nil {
		if _, err := c.admitWithStart(ctx, p, *r, pending); err != nil {
			return answer{}, err
		}
	}
	a, err := c.awaitUpdate(ctx, waiting, p, r, pending)
	if err != nil {
		c.audited = false // what was audited is that the run was started, and has the update
	}
	return a, err
}

// admitWithStart starts the run of an update if it does not exist, and leaves the update to it: that, and the audit
// row, are one commit.
func (c *runCall) admitWithStart(ctx context.Context, p *updateParams, r engine.UpdateRequest, pending answer) (answer, error) {
	id := r.WorkflowID
	return c.mutate(ctx, func(ctx context.Context, tx storage.Tx) (answer, error) {
		c.note.runID = p.RunID
		start, err := c.startIfAbsent(ctx, tx, id, p.Start)
		if err != nil {
			return answer{}, err
		}
		r.WorkflowID, r.Start = "", start
		if err := c.engine.In(tx).AdmitUpdate(ctx, &r); err != nil {
			return answer{}, c.updateProblem(p, *r.ID, runExistsOr(p.RunID, err))
		}
		return pending, nil
	})
}

// awaitUpdate calls an update and returns its answer, or pending if there is none when waiting ends.
func (c *runCall) awaitUpdate(ctx, waiting context.Context, p *updateParams, r *engine.UpdateRequest, pending answer) (answer, error) {
	updateID := *r.ID
	var stored weft.Encoded
	err := c.engine.CallUpdate(waiting, r, &stored)
	interrupted, isInterrupted := errors.AsType[*weft.InterruptedError](err)
	switch {
	case isInterrupted && interrupted.Last == nil && waiting.Err() != nil:
		return pending, c.revoked(ctx)
	case err != nil:
		return answer{}, c.updateProblem(p, updateID, err)
	}
	result := json.RawMessage("null")
	if stored.Data != nil {
		result = jsonOf(stored.Codec, stored.Data)
	}
	return answer{body: wire.UpdateAnswer{RunID: p.RunID, UpdateName: p.Name, UpdateID: updateID, Result: result}}, nil
}

// updateProblem returns the problem of an update that has another answer than a result, or err.
func (c *runCall) updateProblem(p *updateParams, updateID string, err error) error {
	details := map[string]any{"runId": p.RunID, "updateName": p.Name, "updateId": updateID}
	if e, ok := errors.AsType[*engine.RejectedError](err); ok {
		refusal := wire.StructuredError{Message: c.who.visible(e.Message), Code: e.SentinelText}
		details["error"] = refusal
		return newProblem(http.StatusConflict, "update_rejected", "The run has refused the update: "+refusal.Message).with(details)
	}
	if e, ok := errors.AsType[*engine.UpdateError](err); ok {
		failure := wire.StructuredError{Message: c.who.visible(e.Message), Code: e.SentinelText}
		if c.who.has(scopeOpsRead) {
			failure.Stack = e.Stack
		}
		details["error"] = failure
		return newProblem(http.StatusConflict, "update_failed", "The run has accepted the update, and it has failed: "+failure.Message).with(details)
	}
	switch {
	case errors.Is(err, engine.ErrMismatch):
		return newProblem(http.StatusConflict, "update_mismatch", "The updateId came before with another update, or with another input.").with(details)
	case errors.Is(err, engine.ErrBusy):
		return retryLater("busy", "As many updates as may wait for this run. Nothing was changed.").because(err)
	}
	return err
}
