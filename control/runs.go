package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/stage"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/world"
)

// runs has the operations on runs.
type runs struct {
	deployments *deployments
	world       *world.World // nil: there is none
	streams     waiters
}

// A runCall is a call of one of them.
type runCall struct {
	*call
	*runs
}

// runAct returns the action of a function.
func runAct[P any](r *runs, run func(ctx context.Context, c *runCall, p *P) (answer, error)) action {
	return act(func(ctx context.Context, c *call, p *P) (answer, error) { return run(ctx, &runCall{c, r}, p) })
}

// operations is the table of them.
func (r *runs) operations() []*operation {
	return slices.Concat(r.runOperations(), r.bulkOperations(), r.signalOperations(), r.updateOperations(), r.valueOperations(), r.hookOperations())
}

func (r *runs) runOperations() []*operation {
	return []*operation{
		{name: "runs.create", method: "POST", path: "/v1/runs", scopes: []string{scopeTriggerWrite}, key: keyRequired, do: runAct(r, createRun)},
		{name: "runs.list", method: "GET", path: "/v1/runs", scopes: []string{scopeRunsRead}, do: runAct(r, listRuns)},
		{name: "runs.resume", method: "POST", path: "/v1/runs/resume", scopes: []string{scopeRunsWrite}, key: keyOptional, do: runAct(r, resumeRun)},
		{name: "runs.get", method: "GET", path: "/v1/runs/{runId}", scopes: []string{scopeRunsRead}, do: runAct(r, getRun)},
		{name: "runs.purge", method: "DELETE", path: "/v1/runs/{runId}", scopes: []string{scopeRunsOperate}, do: runAct(r, purgeRun)},
		{name: "runs.result", method: "GET", path: "/v1/runs/{runId}/result", scopes: []string{scopeRunsRead}, do: runAct(r, runResult)},
		{name: "runs.events", method: "GET", path: "/v1/runs/{runId}/events", scopes: []string{scopeRunsRead}, do: runAct(r, runEvents)},
		{name: "runs.stream", method: "GET", path: "/v1/runs/{runId}/streams/{name}", scopes: []string{scopeRunsRead}, do: runAct(r, readStream)},
		{name: "runs.cancel", method: "POST", path: "/v1/runs/{runId}/cancel", scopes: []string{scopeRunsWrite}, key: keyOptional, do: runAct(r, cancelRun)},
		{name: "runs.reset", method: "POST", path: "/v1/runs/{runId}/reset", scopes: []string{scopeRunsOperate}, key: keyOptional, do: runAct(r, resetRun)},
		{name: "runs.resolve", method: "POST", path: "/v1/runs/{runId}/operations/{op}/resolve", scopes: []string{scopeRunsOperate}, key: keyOptional, do: runAct(r, resolveOperation)},
	}
}

// at returns the engine's id of the run that a request is about, and notes the run for the audit.
func (c *runCall) at(runID string) (string, error) {
	c.note.runID = runID
	id, ok := c.who.engineID(runID)
	if !ok {
		return "", errNoRun()
	}
	return id, nil
}

func errNoRun() error { return notFound("Run") }

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

func (p *createParams) Check() (issues []issue) {
	bad := func(path, problem string) { issues = append(issues, issue{Path: path, Problem: problem}) }
	issues = checkWorkflowName(issues, "/workflowName", p.WorkflowName)
	if p.RunID != nil {
		if problem := runIDProblem(*p.RunID); problem != "" {
			bad("/runId", problem)
		}
	}
	if p.DeploymentID != nil && !isDeploymentID(*p.DeploymentID) {
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

func checkWorkflowName(issues []issue, path, name string) []issue {
	if payload.CheckName("workflow name", name, keys.MaxName) != nil {
		return append(issues, issue{Path: path, Problem: fmt.Sprintf("must have 1 to %d bytes of UTF-8", keys.MaxName)})
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
func createRun(ctx context.Context, c *runCall, p *createParams) (answer, error) {
	if !c.who.home && (p.DeploymentID != nil || p.Queue != nil) {
		return answer{}, homeOnly("deploymentId and queue")
	}
	return c.mutate(ctx, func(ctx context.Context, tx storage.Tx) (answer, error) {
		runID := "wrun_" + newULID(time.Now())
		if p.RunID != nil {
			runID = *p.RunID
		}
		id, err := c.at(runID)
		if err != nil {
			return answer{}, err
		}
		if p.RunID == nil {
			tx.(*stage.Tx).Mint(keys.Workflow(id)) // nobody else has minted it
		}
		target, err := c.deployments.target(ctx, c.call, tx, p.WorkflowName, p.DeploymentID)
		if err != nil {
			return answer{}, err
		}
		r := &engine.StartRequest{Workflow: p.WorkflowName, ID: id, Input: input(p.Input), New: true}
		r.Options.Labels = p.Labels
		r.Options.Deployment, r.Options.Queue = target.deploymentID, target.queue
		if p.Queue != nil {
			r.Options.Queue = *p.Queue
		}
		if _, err := c.engine.In(tx).StartWorkflow(ctx, r); err != nil {
			return answer{}, runExistsOr(runID, err)
		}
		return answer{
			status: http.StatusCreated,
			header: http.Header{"Location": {"/v1/runs/" + url.PathEscape(runID)}},
			body:   wire.RunCreated{RunID: runID, Status: string(checkpoint.StatusPending), DeploymentID: target.deploymentID},
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

func runExists(runID string, status checkpoint.Status, same bool) *problem {
	return newProblem(http.StatusConflict, "run_exists", "The runId is taken.").with(map[string]any{"runId": runID, "status": status, "same": same})
}

// input returns a payload for the engine: without one it is nil, as with null.
func input(raw json.RawMessage) any {
	if raw == nil {
		return nil
	}
	return raw
}

// homeOnly is the problem of a parameter that only keys of the home namespace may give.
func homeOnly(what string) *problem {
	return newProblem(http.StatusForbidden, "missing_scope", "A key of this namespace may not choose "+what+".")
}

// getParams are the parameters of runs.get.
type getParams struct {
	RunID       string  `json:"runId" in:"path"`
	ResolveData *string `json:"resolveData,omitempty" in:"query"`
}

func (p *getParams) Check() []issue { return checkResolveData(nil, p.ResolveData) }

func checkResolveData(issues []issue, data *string) []issue {
	if data != nil && *data != "all" && *data != "meta" && *data != "none" {
		issues = append(issues, issue{Path: "/resolveData", Problem: "must be all, meta or none"})
	}
	return issues
}

func getRun(ctx context.Context, c *runCall, p *getParams) (answer, error) {
	id, err := c.at(p.RunID)
	if err != nil {
		return answer{}, err
	}
	if p.ResolveData != nil && *p.ResolveData != "all" {
		info, err := c.engine.Describe(ctx, id)
		return answer{body: runOf(c.who, p.RunID, &info)}, err
	}
	data, err := c.engine.Payloads(ctx, id)
	if err != nil {
		return answer{}, err
	}
	b := runOf(c.who, p.RunID, &data.Info)
	b.Input, b.Output, b.Error = jsonOf(data.Input.Codec, data.Input.Data), resultOf(&data), c.failureOf(&data)
	return answer{body: b}, nil
}

type purgeParams struct {
	RunID  string  `json:"runId" in:"path"`
	Reason *string `json:"reason,omitempty" in:"query"`
}

func (p *purgeParams) Check() []issue { return checkReason(nil, p.Reason) }

func purgeRun(ctx context.Context, c *runCall, p *purgeParams) (answer, error) {
	id, err := c.at(p.RunID)
	if err != nil {
		return answer{}, err
	}
	if err := c.engine.Purge(ctx, id, c.actor(p.Reason, "purge")); err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, nil
}

type cancelParams struct {
	RunID  string  `json:"runId" in:"path"`
	Reason *string `json:"reason,omitempty"`
}

func (p *cancelParams) Check() []issue { return checkReason(nil, p.Reason) }

func cancelRun(ctx context.Context, c *runCall, p *cancelParams) (answer, error) {
	return c.mutate(ctx, func(ctx context.Context, tx storage.Tx) (answer, error) {
		id, err := c.at(p.RunID)
		if err != nil {
			return answer{}, err
		}
		in := c.engine.In(tx)
		err = in.Cancel(ctx, id, c.actor(p.Reason, ""))
		if ended, ok := errors.AsType[*engine.TerminalError](err); ok {
			if ended.Status == checkpoint.StatusCancelled {
				return answer{body: wire.RunCancelled{Accepted: true, Status: string(ended.Status)}}, nil
			}
			return answer{}, runTerminal(ended.Status)
		}
		if err != nil {
			return answer{}, err
		}
		now, err := in.Describe(ctx, id)
		if err != nil {
			return answer{}, err
		}
		return answer{status: http.StatusAccepted, body: wire.RunCancelled{Accepted: true, Status: string(now.Status)}}, nil
	})
}

func runTerminal(status checkpoint.Status) *problem {
	return newProblem(http.StatusConflict, "run_terminal", fmt.Sprintf("The run has ended: %s.", status)).with(map[string]any{"status": status})
}

// resumeParams are the parameters of runs.resume (HTTP-59).
type resumeParams struct {
	RunID   string          `json:"runId"`
	Reason  *string         `json:"reason,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"`

	ascii string // Payload as a runtime gets it; set by check
}

// maxResumePayload is the largest payload of runs.resume in bytes, as JSON in ASCII (HTTP-62).
const maxResumePayload = 64 << 10

func (p *resumeParams) Check() (issues []issue) {
	if p.RunID == "" {
		issues = append(issues, issue{Path: "/runId", Problem: "is required"})
	}
	if p.Payload != nil {
		if p.ascii = inASCII(p.Payload); len(p.ascii) > maxResumePayload {
			issues = append(issues, issue{Path: "/payload", Problem: fmt.Sprintf("has more than %d bytes", maxResumePayload)})
		}
	}
	return checkReason(issues, p.Reason)
}

// resumeRun retries a run that failed or is held, and has the engine look at any other. A run of the world gets a message.
func resumeRun(ctx context.Context, c *runCall, p *resumeParams) (answer, error) {
	return c.mutate(ctx, func(ctx context.Context, tx storage.Tx) (answer, error) {
		id, err := c.at(p.RunID)
		if err != nil {
			return answer{}, err
		}
		in := c.engine.In(tx)
		now, err := in.Describe(ctx, id)
		if errors.Is(err, engine.ErrNotFound) && c.who.home && c.world != nil {
			return c.resumeInWorld(ctx, tx, p)
		}
		if err != nil {
			return answer{}, err
		}
		if now.Status == checkpoint.StatusCompleted || now.Status == checkpoint.StatusCancelled {
			return answer{}, runTerminal(now.Status)
		}
		if p.Payload != nil {
			return answer{}, newProblem(http.StatusConflict, "not_applicable", "The run takes no payload when it is resumed: send it a signal.")
		}
		err = in.Resume(ctx, id, c.actor(p.Reason, "resume"))
		if errors.Is(err, engine.ErrNotApplicable) && now.Status != checkpoint.StatusFailed {
			err = nil // it is neither failed nor held: Poke, after the commit, has the engine look at it
		}
		if err != nil {
			return answer{}, err
		}
		return answer{body: wire.Accepted{Accepted: true}}, nil
	})
}

// resetParams are the parameters of runs.reset. Nobody goes back to the start because a member is missing.
type resetParams struct {
	RunID  string  `json:"runId" in:"path"`
	Before string  `json:"before"`
	Reason *string `json:"reason,omitempty"`
}

func (p *resetParams) Check() []issue { return checkReason(nil, p.Reason) }

// resetRun takes a run back to before an operation of its history.
func resetRun(ctx context.Context, c *runCall, p *resetParams) (answer, error) {
	return c.mutate(ctx, func(ctx context.Context, tx storage.Tx) (answer, error) {
		id, err := c.at(p.RunID)
		if err != nil {
			return answer{}, err
		}
		in := c.engine.In(tx)
		if _, err := in.Describe(ctx, id); err != nil {
			return answer{}, err
		}
		err = in.Reset(ctx, id, p.Before, c.actor(p.Reason, "reset"))
		if errors.Is(err, engine.ErrNotFound) {
			return answer{}, notFound("Operation").because(err)
		}
		if err != nil {
			return answer{}, err
		}
		return answer{body: wire.Accepted{Accepted: true}}, nil
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

func (p *resolveParams) Check() (issues []issue) {
	bad := func(path, problem string) { issues = append(issues, issue{Path: path, Problem: problem}) }
	switch p.Answer {
	case answerCompleted, answerNotCompleted, answerUnavailable, answerFailed:
	case "":
		bad("/answer", "is required")
	default:
		bad("/answer", "must be completed, not-completed, result-unavailable or failed")
	}
	if p.Result != nil && p.Answer != answerCompleted {
		bad("/result", "belongs to the answer completed")
	}
	if p.Error != nil && p.Answer != answerFailed {
		bad("/error", "belongs to the answer failed")
	}
	if p.Error != nil && (len(*p.Error) > maxReason || !utf8.ValidString(*p.Error)) {
		bad("/error", fmt.Sprintf("must have at most %d bytes of UTF-8", maxReason))
	}
	if strings.TrimSpace(p.Reason) == "" {
		bad("/reason", "is required")
	}
	return checkReason(issues, &p.Reason)
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

func resolveOperation(ctx context.Context, c *runCall, p *resolveParams) (answer, error) {
	return c.mutate(ctx, func(ctx context.Context, tx storage.Tx) (answer, error) {
		id, err := c.at(p.RunID)
		if err != nil {
			return answer{}, err
		}
		if err := c.engine.In(tx).Resolve(ctx, id, p.Op, p.verdict(), c.actor(&p.Reason, "")); err != nil {
			return answer{}, err
		}
		return answer{body: wire.Accepted{Accepted: true}}, nil
	})
}
