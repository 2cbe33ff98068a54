package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/control/internal/deployments"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/ids"
	"github.com/weft-go/weft/internal/inspect"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/stage"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/world"
)

// Runs has the operations on runs.
type Runs struct {
	Deployments *deployments.Deployments
	World       *world.World // nil: there is none
	Streams     operation.Waiters
}

// A call is a call of one of them.
type call struct {
	*operation.Call
	*Runs
}

// act returns the action of a function.
func act[P any](r *Runs, run func(ctx context.Context, c *call, p *P) (operation.Answer, error)) operation.Action {
	return operation.Act(func(ctx context.Context, c *operation.Call, p *P) (operation.Answer, error) {
		return run(ctx, &call{c, r}, p)
	})
}

// These have rules of their own, or must not be repeated. See operation.Checker.
var (
	_ operation.Checker      = (*cancelParams)(nil)
	_ operation.Checker      = (*clearParams)(nil)
	_ operation.Checker      = (*createParams)(nil)
	_ operation.Checker      = (*eventParams)(nil)
	_ operation.Checker      = (*getParams)(nil)
	_ operation.Checker      = (*hookParams)(nil)
	_ operation.Checker      = (*listBulksParams)(nil)
	_ operation.Checker      = (*listParams)(nil)
	_ operation.Checker      = (*purgeParams)(nil)
	_ operation.Checker      = (*resetParams)(nil)
	_ operation.Checker      = (*resolveParams)(nil)
	_ operation.Checker      = (*resultParams)(nil)
	_ operation.Checker      = (*resumeParams)(nil)
	_ operation.Checker      = (*sendParams)(nil)
	_ operation.Checker      = (*startBulkParams)(nil)
	_ operation.Checker      = (*stopBulkParams)(nil)
	_ operation.Checker      = (*streamParams)(nil)
	_ operation.Checker      = (*terminateParams)(nil)
	_ operation.Checker      = (*updateParams)(nil)
	_ operation.Checker      = (*valueParams)(nil)
	_ operation.Checker      = (*valuesParams)(nil)
	_ operation.Unrepeatable = (*hookParams)(nil)
	_ operation.Unrepeatable = (*resetParams)(nil)
	_ operation.Unrepeatable = (*sendParams)(nil)
	_ operation.Unrepeatable = (*updateParams)(nil)
)

// Operations is the table of them.
func (r *Runs) Operations() []*operation.Operation {
	return slices.Concat(r.runOperations(), r.bulkOperations(), r.signalOperations(), r.updateOperations(), r.valueOperations(), r.hookOperations())
}

func (r *Runs) runOperations() []*operation.Operation {
	return []*operation.Operation{
		{Name: "runs.create", Method: "POST", Path: "/v1/runs", Scopes: []string{operation.ScopeTriggerWrite}, Key: operation.KeyRequired, Do: act(r, createRun)},
		{Name: "runs.list", Method: "GET", Path: "/v1/runs", Scopes: []string{operation.ScopeRunsRead}, Do: act(r, listRuns)},
		{Name: "runs.resume", Method: "POST", Path: "/v1/runs/resume", Scopes: []string{operation.ScopeRunsWrite}, Key: operation.KeyOptional, Do: act(r, resumeRun)},
		{Name: "runs.get", Method: "GET", Path: "/v1/runs/{runId}", Scopes: []string{operation.ScopeRunsRead}, Do: act(r, getRun)},
		{Name: "runs.purge", Method: "DELETE", Path: "/v1/runs/{runId}", Scopes: []string{operation.ScopeRunsOperate}, Do: act(r, purgeRun)},
		{Name: "runs.result", Method: "GET", Path: "/v1/runs/{runId}/result", Scopes: []string{operation.ScopeRunsRead}, Do: act(r, runResult)},
		{Name: "runs.events", Method: "GET", Path: "/v1/runs/{runId}/events", Scopes: []string{operation.ScopeRunsRead}, Do: act(r, runEvents)},
		{Name: "runs.stream", Method: "GET", Path: "/v1/runs/{runId}/streams/{name}", Scopes: []string{operation.ScopeRunsRead}, Do: act(r, readStream)},
		{Name: "runs.cancel", Method: "POST", Path: "/v1/runs/{runId}/cancel", Scopes: []string{operation.ScopeRunsWrite}, Key: operation.KeyOptional, Do: act(r, cancelRun)},
		{Name: "runs.terminate", Method: "POST", Path: "/v1/runs/{runId}/terminate", Scopes: []string{operation.ScopeRunsOperate}, Key: operation.KeyOptional, Do: act(r, terminateRun)},
		{Name: "runs.reset", Method: "POST", Path: "/v1/runs/{runId}/reset", Scopes: []string{operation.ScopeRunsOperate}, Key: operation.KeyOptional, Do: act(r, resetRun)},
		{Name: "runs.resolve", Method: "POST", Path: "/v1/runs/{runId}/operations/{op}/resolve", Scopes: []string{operation.ScopeRunsOperate}, Key: operation.KeyOptional, Do: act(r, resolveOperation)},
	}
}

// at returns the engine's id of the run that a request is about, and notes the run for the audit.
func (c *call) at(runID string) (string, error) {
	c.Note.RunID = runID
	id, ok := c.Who.EngineID(runID)
	if !ok {
		return "", operation.NoRun(runID)
	}
	return id, nil
}

// createParams are the parameters of runs.create (HTTP-42).
type createParams struct {
	WorkflowName string            `json:"workflowName"`
	Input        json.RawMessage   `json:"input,omitempty"`
	RunID        *string           `json:"runId,omitempty"`
	DeploymentID *string           `json:"deploymentId,omitempty"`
	SpecVersion  *int              `json:"specVersion,omitempty"`
	Queue        *string           `json:"queue,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
}

// newestSpec is the newest version of the world's specification (HTTP-42). An engine's run does
// not depend on it.
const newestSpec = 7

func (p *createParams) Check() (issues []operation.Issue) {
	bad := func(path, problem string) { issues = append(issues, operation.Issue{Path: path, Problem: problem}) }
	issues = checkWorkflowName(issues, "/workflowName", p.WorkflowName)
	if p.RunID != nil {
		if problem := operation.RunIDProblem(*p.RunID); problem != "" {
			bad("/runId", problem)
		}
	}
	if p.DeploymentID != nil && !deployments.IsID(*p.DeploymentID) {
		bad("/deploymentId", "is no id of a deployment")
	}
	if v := p.SpecVersion; v != nil && (*v < 1 || *v > newestSpec) {
		bad("/specVersion", fmt.Sprintf("must be 1 to %d", newestSpec))
	}
	if p.Queue != nil && payload.CheckName("queue", *p.Queue, keys.MaxName) != nil {
		bad("/queue", fmt.Sprintf("must have 1 to %d bytes of UTF-8", keys.MaxName))
	}
	if problem := labelsProblem(p.Labels); problem != "" {
		bad("/labels", problem)
	}
	return issues
}

func checkWorkflowName(issues []operation.Issue, path, name string) []operation.Issue {
	if payload.CheckName("workflow name", name, keys.MaxName) != nil {
		return append(issues, operation.Issue{Path: path, Problem: fmt.Sprintf("must have 1 to %d bytes of UTF-8", keys.MaxName)})
	}
	return issues
}

// labelsProblem says what is wrong with labels, or "".
func labelsProblem(labels map[string]string) string {
	if payload.CheckLabels(labels) == nil {
		return ""
	}
	return fmt.Sprintf("must be at most %d labels with names of 1 to %d bytes that do not begin with %s, and values of 1 to %d bytes, at most %d bytes together",
		payload.MaxLabels, payload.MaxLabelName, payload.ReservedLabels, payload.MaxLabelValue, payload.MaxLabelBytes)
}

// createRun starts a run. The start, the answer under its key and the audit row are one commit.
func createRun(ctx context.Context, c *call, p *createParams) (operation.Answer, error) {
	if !c.Who.Home && (p.DeploymentID != nil || p.Queue != nil) {
		return operation.Answer{}, homeOnly("deploymentId and queue")
	}
	return c.Mutate(ctx, func(ctx context.Context, tx storage.Tx) (operation.Answer, error) {
		runID := "wrun_" + ids.ULID(time.Now())
		if p.RunID != nil {
			runID = *p.RunID
		}
		id, err := c.at(runID)
		if err != nil {
			return operation.Answer{}, err
		}
		if p.RunID == nil {
			tx.(*stage.Tx).Mint(keys.Workflow(id)) // nobody else has minted it
		}
		target, err := c.Deployments.Target(ctx, c.Call, tx, p.WorkflowName, p.DeploymentID)
		if err != nil {
			return operation.Answer{}, err
		}
		r := &engine.StartRequest{Workflow: p.WorkflowName, ID: id, Input: input(p.Input), New: true}
		r.Options.Labels = p.Labels
		r.Options.Deployment, r.Options.Queue = target.DeploymentID, target.Queue
		if p.Queue != nil {
			r.Options.Queue = *p.Queue
		}
		if _, err := c.Engine.In(tx).StartWorkflow(ctx, r); err != nil {
			return operation.Answer{}, runExistsOr(runID, err)
		}
		return operation.Answer{
			Status: http.StatusCreated,
			Header: http.Header{"Location": {"/v1/runs/" + url.PathEscape(runID)}},
			Body:   wire.RunCreated{RunID: runID, Status: string(checkpoint.StatusPending), DeploymentID: target.DeploymentID},
		}, nil
	})
}

// runExistsOr returns the problem of a start whose runId is taken, or err.
func runExistsOr(runID string, err error) error {
	if e, ok := errors.AsType[*engine.ExistsError](err); ok {
		return runExists(runID, e.Status, e.Same)
	}
	return err
}

func runExists(runID string, status checkpoint.Status, same bool) *operation.Problem {
	return operation.NewProblem(http.StatusConflict, "run_exists", fmt.Sprintf("The runId %q is taken: that run is %s.", runID, status)).With(map[string]any{"runId": runID, "status": status, "same": same})
}

// input returns a payload for the engine: without one it is nil, as with null.
func input(raw json.RawMessage) any {
	if raw == nil {
		return nil
	}
	return raw
}

// homeOnly is the problem of a parameter that only keys of the home namespace may give.
func homeOnly(what string) *operation.Problem {
	return operation.NewProblem(http.StatusForbidden, "missing_scope", "A key of this namespace may not choose "+what+".")
}

// getParams are the parameters of runs.get.
type getParams struct {
	RunID       string  `json:"runId" in:"path"`
	ResolveData *string `json:"resolveData,omitempty" in:"query"`
}

func (p *getParams) Check() []operation.Issue { return checkResolveData(nil, p.ResolveData) }

func checkResolveData(issues []operation.Issue, data *string) []operation.Issue {
	if data != nil && *data != "all" && *data != "meta" && *data != "none" {
		issues = append(issues, operation.Issue{Path: "/resolveData", Problem: "must be all, meta or none"})
	}
	return issues
}

func getRun(ctx context.Context, c *call, p *getParams) (operation.Answer, error) {
	id, err := c.at(p.RunID)
	if err != nil {
		return operation.Answer{}, err
	}
	if p.ResolveData != nil && *p.ResolveData != "all" {
		info, err := c.Engine.Describe(ctx, id)
		return operation.Answer{Body: runOf(c.Who, p.RunID, &info)}, err
	}
	data, err := c.Engine.Payloads(ctx, id)
	if err != nil {
		return operation.Answer{}, err
	}
	b := runOf(c.Who, p.RunID, &data.Info)
	b.Input, b.Output, b.Error = jsonOf(data.Input.Codec, data.Input.Data), resultOf(&data), c.failureOf(&data)
	return operation.Answer{Body: b}, nil
}

type purgeParams struct {
	RunID  string  `json:"runId" in:"path"`
	Reason *string `json:"reason,omitempty" in:"query"`
}

func (p *purgeParams) Check() []operation.Issue { return operation.CheckReason(nil, p.Reason) }

func purgeRun(ctx context.Context, c *call, p *purgeParams) (operation.Answer, error) {
	id, err := c.at(p.RunID)
	if err != nil {
		return operation.Answer{}, err
	}
	ctx, cancel := c.Outlasting(ctx)
	defer cancel()
	err = c.Engine.Purge(ctx, id, c.Actor(p.Reason, "purge"))
	if refused, ok := errors.AsType[*inspect.ArchiveError](err); ok { // what it wraps is the host's, and says nothing of the run
		c.Log.Warn("a run is not purged: Config.Archive has not taken it", "correlation", c.CorrelationID, "error", refused)
		p := operation.NewProblem(http.StatusConflict, "not_applicable", "The archive of the service has not taken the run. Nothing was removed.").Because(refused)
		p.Retry = operation.SameKey
		return operation.Answer{}, p
	}
	if err != nil {
		return operation.Answer{}, err
	}
	return operation.Answer{Status: http.StatusNoContent}, nil
}

type cancelParams struct {
	RunID  string  `json:"runId" in:"path"`
	Reason *string `json:"reason,omitempty"`
}

func (p *cancelParams) Check() []operation.Issue { return operation.CheckReason(nil, p.Reason) }

func cancelRun(ctx context.Context, c *call, p *cancelParams) (operation.Answer, error) {
	return c.Mutate(ctx, func(ctx context.Context, tx storage.Tx) (operation.Answer, error) {
		id, err := c.at(p.RunID)
		if err != nil {
			return operation.Answer{}, err
		}
		in := c.Engine.In(tx)
		err = in.Cancel(ctx, id, c.Actor(p.Reason, ""))
		if ended, ok := errors.AsType[*engine.TerminalError](err); ok {
			if ended.Status == checkpoint.StatusCancelled {
				return operation.Answer{Body: wire.RunCancelled{Accepted: true, Status: string(ended.Status)}}, nil
			}
			return operation.Answer{}, runTerminal(ended.Status)
		}
		if err != nil {
			return operation.Answer{}, err
		}
		now, err := in.Describe(ctx, id)
		if err != nil {
			return operation.Answer{}, err
		}
		return operation.Answer{
			Status: http.StatusAccepted,
			Body:   wire.RunCancelled{Accepted: true, Status: string(now.Status), Attention: attentionOf(c.Who, now.Attention)},
		}, nil
	})
}

type terminateParams struct {
	RunID  string `json:"runId" in:"path"`
	Reason string `json:"reason"`
}

func (p *terminateParams) Check() []operation.Issue {
	return operation.CheckRequiredReason(nil, p.Reason)
}

// terminateRun ends a run at once. After the commit, an engine asks its children to stop.
func terminateRun(ctx context.Context, c *call, p *terminateParams) (operation.Answer, error) {
	return c.Mutate(ctx, func(ctx context.Context, tx storage.Tx) (operation.Answer, error) {
		id, err := c.at(p.RunID)
		if err != nil {
			return operation.Answer{}, err
		}
		if err := c.Engine.In(tx).Terminate(ctx, id, c.Actor(&p.Reason, "")); err != nil {
			return operation.Answer{}, err
		}
		return operation.Answer{Body: wire.RunCancelled{Accepted: true, Status: string(checkpoint.StatusCancelled)}}, nil
	})
}

func runTerminal(status checkpoint.Status) *operation.Problem {
	return operation.NewProblem(http.StatusConflict, "run_terminal", fmt.Sprintf("The run has ended: %s.", status)).With(map[string]any{"status": status})
}

// resumeParams are the parameters of runs.resume (HTTP-59).
type resumeParams struct {
	RunID   string          `json:"runId"`
	Reason  *string         `json:"reason,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"`

	ascii string // Payload as a runtime gets it; set by check
}

// maxResumePayload is the largest payload of runs.resume in bytes, as JSON in ASCII (HTTP-62). With the longest reason, the headers of the
// message are not too large for a server of Node.
const maxResumePayload = 8 << 10

func (p *resumeParams) Check() (issues []operation.Issue) {
	if p.RunID == "" {
		issues = append(issues, operation.Issue{Path: "/runId", Problem: "is required"})
	}
	if p.Payload != nil {
		if p.ascii = inASCII(p.Payload); len(p.ascii) > maxResumePayload {
			issues = append(issues, operation.Issue{Path: "/payload", Problem: fmt.Sprintf("has more than %d bytes", maxResumePayload)})
		}
	}
	return operation.CheckReason(issues, p.Reason)
}

// resumeRun retries a run that failed or is held, and has the engine look at any other. A run of the world gets a message.
func resumeRun(ctx context.Context, c *call, p *resumeParams) (operation.Answer, error) {
	return c.Mutate(ctx, func(ctx context.Context, tx storage.Tx) (operation.Answer, error) {
		id, err := c.at(p.RunID)
		if err != nil {
			return operation.Answer{}, err
		}
		in := c.Engine.In(tx)
		now, err := in.Describe(ctx, id)
		if errors.Is(err, engine.ErrNotFound) && c.Who.Home && c.World != nil {
			return c.resumeInWorld(ctx, tx, p)
		}
		if err != nil {
			return operation.Answer{}, err
		}
		if now.Status == checkpoint.StatusCompleted || now.Status == checkpoint.StatusCancelled {
			return operation.Answer{}, runTerminal(now.Status)
		}
		if p.Payload != nil {
			return operation.Answer{}, operation.NewProblem(http.StatusConflict, "not_applicable", "The run takes no payload when it is resumed: send it a signal.")
		}
		err = in.Resume(ctx, id, c.Actor(p.Reason, "resume"))
		if errors.Is(err, engine.ErrNotApplicable) && now.Status != checkpoint.StatusFailed {
			err = nil // it is neither failed nor held: Poke, after the commit, has the engine look at it
		}
		if err != nil {
			return operation.Answer{}, err
		}
		return operation.Answer{Body: wire.Accepted{Accepted: true}}, nil
	})
}

// resetParams are the parameters of runs.reset. Nobody goes back to the start because a member is missing.
type resetParams struct {
	RunID  string  `json:"runId" in:"path"`
	Before string  `json:"before"`
	Reason *string `json:"reason,omitempty"`
}

func (p *resetParams) Check() []operation.Issue { return operation.CheckReason(nil, p.Reason) }

// InsteadOfAgain is what to do if the outcome is unknown: a repetition takes the run back from where it has got to.
func (*resetParams) InsteadOfAgain() string {
	return "The run may have been reset, and a repetition takes it back again. Look at the history of the run. Send an Idempotency-Key: then the same request can be sent again."
}

// resetRun takes a run back to before an operation of its history.
func resetRun(ctx context.Context, c *call, p *resetParams) (operation.Answer, error) {
	return c.Mutate(ctx, func(ctx context.Context, tx storage.Tx) (operation.Answer, error) {
		id, err := c.at(p.RunID)
		if err != nil {
			return operation.Answer{}, err
		}
		in := c.Engine.In(tx)
		if _, err := in.Describe(ctx, id); err != nil {
			return operation.Answer{}, err
		}
		err = in.Reset(ctx, id, p.Before, c.Actor(p.Reason, "reset"))
		if errors.Is(err, engine.ErrNotFound) {
			return operation.Answer{}, operation.NotFound(fmt.Sprintf("Operation %q of run %q", p.Before, p.RunID)).Because(err)
		}
		if err != nil {
			return operation.Answer{}, err
		}
		return operation.Answer{Body: wire.Accepted{Accepted: true}}, nil
	})
}

// resolveParams are the parameters of runs.resolve.
type resolveParams struct {
	RunID  string          `json:"runId" in:"path"`
	Op     string          `json:"op" in:"path"`
	Answer string          `json:"answer"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *string         `json:"error,omitempty"`
	Reason string          `json:"reason"`
}

// Values of resolveParams.Answer.
const (
	answerCompleted    = "completed"
	answerNotCompleted = "not-completed"
	answerUnavailable  = "result-unavailable"
	answerFailed       = "failed"
)

func (p *resolveParams) Check() (issues []operation.Issue) {
	bad := func(path, problem string) { issues = append(issues, operation.Issue{Path: path, Problem: problem}) }
	known := slices.Contains([]string{answerCompleted, answerNotCompleted, answerUnavailable, answerFailed}, p.Answer)
	if !known {
		bad("/answer", "must be completed, not-completed, result-unavailable or failed")
	}
	if known && p.Result != nil && p.Answer != answerCompleted {
		bad("/result", "is for the answer completed only")
	}
	if known && p.Error != nil && p.Answer != answerFailed {
		bad("/error", "is for the answer failed only")
	}
	if p.Error != nil && (len(*p.Error) > operation.MaxReason || !utf8.ValidString(*p.Error)) {
		bad("/error", fmt.Sprintf("must have at most %d bytes of UTF-8", operation.MaxReason))
	}
	return operation.CheckRequiredReason(issues, p.Reason)
}

// verdict returns the answer for the engine.
func (p *resolveParams) verdict() activity.Answer {
	switch p.Answer {
	case answerCompleted:
		return activity.CompletedWithResult(input(p.Result))
	case answerNotCompleted:
		return activity.NotCompleted[any]()
	case answerUnavailable:
		return activity.CompletedResultUnavailable[any]()
	}
	if p.Error == nil {
		return activity.Failed(p.Reason)
	}
	return activity.Failed(*p.Error)
}

func resolveOperation(ctx context.Context, c *call, p *resolveParams) (operation.Answer, error) {
	return c.Mutate(ctx, func(ctx context.Context, tx storage.Tx) (operation.Answer, error) {
		id, err := c.at(p.RunID)
		if err != nil {
			return operation.Answer{}, err
		}
		if err := c.Engine.In(tx).Resolve(ctx, id, p.Op, p.verdict(), c.Actor(&p.Reason, "")); err != nil {
			return operation.Answer{}, err
		}
		return operation.Answer{Body: wire.Accepted{Accepted: true}}, nil
	})
}
