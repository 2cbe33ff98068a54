package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/internal/backoff"
)

// longest is how long a request asks the server to wait for the end of a run.
const longest = 30 * time.Second

// StartWorkflow starts the workflow that r describes. See engine.Workflow.Start. Its status is
// pending, whatever the run does by then. If the id is in use by the same workflow with the same
// input, StartWorkflow returns that run, with its id, workflow and status, unless r.New is set. If
// no queue is named, the run waits in that of the workflow's definition, also with
// StartOptions.NoQueue. With StartOptions.StartAt the error wraps errors.ErrUnsupported.
//
// Errors, beside those of every call: engine.ErrInvalid, also for a workflow that no engine has and
// a queue or a deployment that is for keys of the home namespace; a *engine.ExistsError;
// engine.ErrNoActiveDeployment; engine.ErrNotFound if there is no such deployment.
func (c *Client) StartWorkflow(ctx context.Context, r *weft.StartRequest) (weft.Info, error) {
	what := fmt.Sprintf("start workflow %q", r.Workflow)
	if !r.Options.StartAt.IsZero() {
		return weft.Info{}, fmt.Errorf("%s: a control plane cannot delay a start: %w", what, errors.ErrUnsupported)
	}
	input, err := encoded(what, "input", r.Input)
	if err != nil {
		return weft.Info{}, err
	}
	body := wire.CreateRun{WorkflowName: r.Workflow, Input: input, RunID: optional(r.ID), Queue: optional(r.Options.Queue), Labels: r.Options.Labels, DeploymentID: optional(r.Options.Deployment)}
	var started wire.RunCreated
	_, err = c.call(ctx, &request{
		what: what, method: http.MethodPost, path: "/v1/runs", body: body, keyed: true, writes: true,
		about: subject{run: r.ID, workflow: r.Workflow},
	}, &started)
	if there, ok := errors.AsType[*weft.ExistsError](err); ok && there.Same && !r.New {
		return weft.Info{ID: there.WorkflowID, Workflow: r.Workflow, Status: there.Status}, nil
	}
	if err != nil {
		return weft.Info{}, err
	}
	return weft.Info{
		ID: started.RunID, Workflow: r.Workflow, Status: checkpoint.Status(started.Status),
		Deployment: started.DeploymentID, Queue: r.Options.Queue, Labels: r.Options.Labels,
	}, nil
}

// Result waits for the end of a workflow and decodes its result into result, a pointer or nil. An
// empty workflow name stands for any. See engine.Handle.Result. It asks the control plane again and
// again, each time for up to half a minute, for as long as the context lasts.
//
// Errors, beside those of every call: a *engine.WorkflowError, without a Stack unless the key has
// ops:read; engine.ErrCancelled; engine.ErrNotFound, also if the run is one of another workflow; a
// *engine.DecodeError if the result was encoded by a codec that Options.Codecs does not have.
func (c *Client) Result(ctx context.Context, id, workflow string, result any) error {
	what := fmt.Sprintf("result of workflow %q", id)
	if workflow != "" {
		if err := c.isOf(ctx, what, id, workflow); err != nil {
			return err
		}
	}
	for {
		var end wire.RunResult
		asked, wait := time.Now(), longest
		if deadline, ok := ctx.Deadline(); ok {
			wait = max(min(wait, time.Until(deadline)).Truncate(time.Second), 0)
		}
		a, err := c.call(ctx, &request{
			what: what, method: http.MethodGet, path: path("runs", id, "result"), query: url.Values{"wait": {seconds(wait)}},
			wait: wait, about: subject{run: id, workflow: workflow},
		}, &end)
		if err != nil {
			return err
		}
		if a.status == http.StatusOK {
			return c.ended(ctx, id, workflow, &end, result)
		}
		// A control plane that closes, or has too many who wait, answers at once.
		if time.Since(asked) < time.Second && !backoff.Wait(ctx, time.Second) || ctx.Err() != nil {
			return c.interrupted(ctx, &request{what: what}, "its end", false, nil)
		}
	}
}

// isOf returns an error if a run is not one of this workflow.
func (c *Client) isOf(ctx context.Context, what, id, workflow string) error {
	i, _, err := c.get(ctx, what, id, "none")
	if err == nil && i.Workflow != workflow {
		return fmt.Errorf("%w: %q is a run of workflow %q, not of %q", weft.ErrNotFound, id, i.Workflow, workflow)
	}
	return err
}

// ended returns how a run has ended, as an engine does.
func (c *Client) ended(ctx context.Context, id, workflow string, end *wire.RunResult, result any) error {
	var message, code, stack string
	if end.Error != nil {
		message, code, stack = end.Error.Message, end.Error.Code, end.Error.Stack
	}
	switch checkpoint.Status(end.Status) {
	case checkpoint.StatusCancelled:
		if message == "" {
			return fmt.Errorf("%w: %q", weft.ErrCancelled, id)
		}
		return fmt.Errorf("%w: %q: %s", weft.ErrCancelled, id, message)
	case checkpoint.StatusFailed:
		return &weft.WorkflowError{WorkflowID: id, Workflow: workflow, Message: message, Stack: stack, SentinelText: code}
	}
	if result == nil {
		return nil
	}
	if err := c.decodePayload(ctx, end.Result, result); err != nil {
		return fmt.Errorf("client: result of %q: %w", id, err)
	}
	return nil
}

// decodePayload decodes a payload as a control plane shows it: JSON, or {codec, base64}.
func (c *Client) decodePayload(ctx context.Context, data json.RawMessage, into any) error {
	var other struct {
		Codec  string  `json:"codec"`
		Base64 *string `json:"base64"`
	}
	if json.Unmarshal(data, &other) == nil && other.Codec != "" && other.Base64 != nil {
		if codec, known := c.codecs[other.Codec]; known {
			raw, err := base64.StdEncoding.DecodeString(*other.Base64)
			if err == nil {
				err = codec.Decode(ctx, raw, into)
			}
			if err != nil {
				return &weft.DecodeError{Type: fmt.Sprintf("%T", into), Codec: other.Codec, Err: err}
			}
			return nil
		}
	}
	if len(data) == 0 {
		data = json.RawMessage("null")
	}
	if err := weft.JSON.Decode(ctx, data, into); err != nil {
		return &weft.DecodeError{Type: fmt.Sprintf("%T", into), Codec: weft.JSON.Name(), Err: err}
	}
	return nil
}

// Cancel requests the cancellation of a workflow. See engine.Engine.Cancel, also of a workflow that is
// held. The actor that is recorded is the key: the Name of by is put in front of its Reason.
func (c *Client) Cancel(ctx context.Context, id string, by weft.Actor) error {
	var answer wire.RunCancelled
	a, err := c.call(ctx, &request{
		what: fmt.Sprintf("cancel of workflow %q", id), method: http.MethodPost, path: path("runs", id, "cancel"),
		body: wire.CancelRun{Reason: reason(by)}, keyed: true, writes: true, about: subject{run: id},
	}, &answer)
	if err == nil && a.status == http.StatusOK {
		return &weft.TerminalError{WorkflowID: id, Status: checkpoint.Status(answer.Status)}
	}
	for _, x := range answer.Attention {
		if r := weft.Reason(x.Reason); err == nil && holds(r) {
			return &weft.HeldError{WorkflowID: id, Reason: r, Detail: x.Detail}
		}
	}
	return err
}

// holds reports whether a run that needs attention for the reason r is held.
func holds(r weft.Reason) bool {
	switch r {
	case weft.ReasonUnregistered, weft.ReasonNewerRelease, weft.ReasonStuck, weft.ReasonUnresponsive, weft.ReasonIndeterminate, weft.ReasonUncompensated:
		return false
	}
	return true
}

// Describe returns the state of a workflow. Owner, Epoch, Unreceived, Versions and Protected are empty, as they are in lists.
func (c *Client) Describe(ctx context.Context, id string) (weft.Info, error) {
	i, _, err := c.get(ctx, fmt.Sprintf("describe workflow %q", id), id, "none")
	return i, err
}

// Get returns the state of a workflow, with its input and output, as the control plane shows it.
func (c *Client) Get(ctx context.Context, id string) (wire.Run, error) {
	_, run, err := c.get(ctx, fmt.Sprintf("get workflow %q", id), id, "all")
	return run, err
}

func (c *Client) get(ctx context.Context, what, id, resolve string) (weft.Info, wire.Run, error) {
	var run wire.Run
	_, err := c.call(ctx, &request{
		what: what, method: http.MethodGet, path: path("runs", id), query: url.Values{"resolveData": {resolve}}, about: subject{run: id},
	}, &run)
	if err != nil {
		return weft.Info{}, wire.Run{}, err
	}
	return infoOf(run), run, nil
}

// infoOf returns what a control plane says of a run as an engine says it.
func infoOf(r wire.Run) weft.Info {
	i := weft.Info{
		ID: r.RunID, Workflow: r.WorkflowName, Status: checkpoint.Status(r.Status), Deployment: r.DeploymentID,
		Waiting: r.Waiting, Labels: r.Labels, Queue: r.Queue, Parent: r.Parent, Damaged: r.Damaged,
		CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, Life: r.Life, LifeAt: r.LifeAt, EndedAt: r.EndedAt,
	}
	for _, a := range r.Attention {
		i.Attention = append(i.Attention, weft.Attention{Reason: weft.Reason(a.Reason), Operation: a.Operation, Name: a.Name, Detail: a.Detail, Since: a.Since})
	}
	if r.Cancel != nil {
		i.Cancel = &weft.Cancellation{By: r.Cancel.By, Reason: r.Cancel.Reason, At: r.Cancel.At, Terminated: r.Cancel.Terminated}
	}
	if r.Error != nil {
		i.Failure = r.Error.Message
		if i.Status == checkpoint.StatusFailed {
			i.Failure = (&weft.WorkflowError{WorkflowID: i.ID, Workflow: i.Workflow, Message: r.Error.Message}).Error()
		}
	}
	return i
}

// reason returns an actor as the reason of a request, whose actor is the key.
func reason(by weft.Actor) string {
	if by.Name == "" || by.Reason == "" {
		return by.Name + by.Reason
	}
	return by.Name + ": " + by.Reason
}

// encoded returns v as JSON. A value that has none is refused before anything is sent.
func encoded(call, what string, v any) (json.RawMessage, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: the %s cannot be encoded as JSON: %w", weft.ErrInvalid, call, what, err)
	}
	return data, nil
}

// optional returns nil for a string that is absent.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
