package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/signal"
)

func (r *runs) hookOperations() []*operation {
	return []*operation{
		{name: "hooks.resume", method: "POST", path: "/v1/hooks/resume", scopes: []string{scopeSignalsWrite}, follows: true, do: runAct(r, resumeHook)},
	}
}

// hookParams are the parameters of hooks.resume. Nothing that is answered, logged or audited has the
// token.
type hookParams struct {
	Token    string          `json:"token"`
	Payload  json.RawMessage `json:"payload,omitempty"`
	ResumeID *string         `json:"resumeId,omitempty"`
}

func (p *hookParams) Check() (issues []issue) {
	if run.CheckToken(p.Token, run.MaxFullToken) != nil {
		issues = append(issues, issue{Path: "/token", Problem: fmt.Sprintf("must have 1 to %d bytes of UTF-8", run.MaxFullToken)})
	}
	if p.ResumeID != nil && payload.CheckSignalID(*p.ResumeID) != nil {
		issues = append(issues, issue{Path: "/resumeId", Problem: fmt.Sprintf("must have 1 to %d bytes of UTF-8", keys.MaxSignalID)})
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
func resumeHook(ctx context.Context, c *runCall, p *hookParams) (answer, error) {
	token, ours := c.who.token(p.Token)
	if !ours {
		return answer{}, notFound("Hook")
	}
	a, err := c.engine.SendSignal(ctx, signal.Message{Token: &token, Name: "hook", ID: p.ResumeID, Payload: input(p.Payload)})
	if errors.Is(err, engine.ErrNotFound) {
		return answer{}, notFound("Hook")
	}
	id := a.WorkflowID
	if e, ok := errors.AsType[*signal.ConflictError](err); ok {
		id = e.WorkflowID
	} else if e, ok := errors.AsType[*signal.IndeterminateError](err); ok {
		id = e.WorkflowID
	}
	runID, _ := c.who.runID(id)
	if c.note.runID = runID; err != nil {
		return answer{}, signalProblem(runID, err)
	}
	c.note.deduped = a.Repeated
	return answer{body: sentOf(runID, &a)}, nil
}
