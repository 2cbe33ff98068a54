package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/signal"
)

func (r *Runs) hookOperations() []*operation.Operation {
	return []*operation.Operation{
		{Name: "hooks.resume", Method: "POST", Path: "/v1/hooks/resume", Scopes: []string{operation.ScopeSignalsWrite}, Follows: true, Do: act(r, resumeHook)},
	}
}

// hookParams are the parameters of hooks.resume. Nothing that is answered, logged or audited has the
// token.
type hookParams struct {
	Token    string          `json:"token"`
	Payload  json.RawMessage `json:"payload,omitempty"`
	ResumeID *string         `json:"resumeId,omitempty"`
}

func (p *hookParams) Check() (issues []operation.Issue) {
	if run.CheckToken(p.Token, run.MaxFullToken) != nil {
		issues = append(issues, operation.Issue{Path: "/token", Problem: fmt.Sprintf("must have 1 to %d bytes of UTF-8", run.MaxFullToken)})
	}
	if p.ResumeID != nil && payload.CheckSignalID(*p.ResumeID) != nil {
		issues = append(issues, operation.Issue{Path: "/resumeId", Problem: fmt.Sprintf("must have 1 to %d bytes of UTF-8", keys.MaxSignalID)})
	}
	return issues
}

// InsteadOfAgain is what to do if the outcome is unknown: without a resumeId, a repetition is another signal.
func (p *hookParams) InsteadOfAgain() string {
	if p.ResumeID != nil {
		return ""
	}
	return "The hook may have been resumed, and to resume it again would be another signal. Send a resumeId: then the same request can be sent again."
}

// resumeHook sends a signal to the open hook that has a token. A token that nobody has, one whose hook
// is closed and one of another namespace are answered alike.
func resumeHook(ctx context.Context, c *call, p *hookParams) (operation.Answer, error) {
	token, ours := c.Who.Token(p.Token)
	if !ours {
		return operation.Answer{}, operation.NotFound("Hook")
	}
	ctx, cancel := operation.Settling(ctx)
	defer cancel()
	a, err := c.Engine.SendSignal(ctx, signal.Message{Token: &token, Name: "hook", ID: p.ResumeID, Payload: input(p.Payload)})
	if errors.Is(err, engine.ErrNotFound) {
		return operation.Answer{}, operation.NotFound("Hook")
	}
	id := a.WorkflowID
	if e, ok := errors.AsType[*signal.ConflictError](err); ok {
		id = e.WorkflowID
	} else if e, ok := errors.AsType[*signal.IndeterminateError](err); ok {
		id = e.WorkflowID
	}
	runID, _ := c.Who.RunID(id)
	if c.Note.RunID = runID; err != nil {
		return operation.Answer{}, signalProblem(runID, err)
	}
	c.Note.Deduped = a.Repeated
	return operation.Answer{Body: sentOf(runID, &a)}, nil
}
