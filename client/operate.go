package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/control/wire"
)

// Resume makes a workflow that has failed, or that is held, continue. See engine.Engine.Resume. Of
// another workflow, its engine looks again for what it waits for.
func (c *Client) Resume(ctx context.Context, id string, by weft.Actor) error {
	_, err := c.call(ctx, &request{
		what: fmt.Sprintf("resume workflow %q", id), method: http.MethodPost, path: "/v1/runs/resume",
		body: wire.ResumeRun{RunID: id, Reason: reason(by)}, keyed: true, writes: true, about: subject{run: id},
	}, nil)
	return err
}

// Reset takes a workflow back to before an operation of its history; "" is the start. See
// engine.Engine.Reset.
func (c *Client) Reset(ctx context.Context, id, before string, by weft.Actor) error {
	_, err := c.call(ctx, &request{
		what: fmt.Sprintf("reset workflow %q", id), method: http.MethodPost, path: path("runs", id, "reset"),
		body: wire.ResetRun{Before: before, Reason: reason(by)}, keyed: true, writes: true, about: subject{run: id},
	}, nil)
	return err
}

// Terminate ends a workflow at once, whatever it is doing. See engine.Engine.Terminate. The control plane
// does not wait until its children are asked to stop. By cannot be empty: it is the reason.
func (c *Client) Terminate(ctx context.Context, id string, by weft.Actor) error {
	_, err := c.call(ctx, &request{
		what: fmt.Sprintf("termination of workflow %q", id), method: http.MethodPost, path: path("runs", id, "terminate"),
		body: wire.TerminateRun{Reason: reason(by)}, keyed: true, writes: true, about: subject{run: id},
	}, nil)
	return err
}

// An Answer is what an operator knows of an operation whose outcome nobody else knows.
type Answer struct {
	Outcome Outcome
	Result  json.RawMessage // of Completed: JSON; nil stands for null
	Error   string          // of Failed
}

// An Outcome is what has happened to an operation.
type Outcome string

const (
	Completed         Outcome = "completed"          // its effect happened, and this is the result
	NotCompleted      Outcome = "not-completed"      // it did not happen; it is attempted again
	ResultUnavailable Outcome = "result-unavailable" // it happened, and its result is lost
	Failed            Outcome = "failed"             // it did not happen, and is not attempted again
)

// Resolve sets the outcome of an operation. See engine.Engine.Resolve.
func (c *Client) Resolve(ctx context.Context, id, operation string, a Answer, by weft.Actor) error {
	_, err := c.call(ctx, &request{
		what: fmt.Sprintf("resolve operation %q of workflow %q", operation, id), method: http.MethodPost,
		path: path("runs", id, "operations", operation, "resolve"),
		body: wire.ResolveOperation{Answer: string(a.Outcome), Result: a.Result, Error: a.Error, Reason: reason(by)}, keyed: true, writes: true,
		about: subject{run: id},
	}, nil)
	return err
}

// Purge removes a workflow that has ended. See engine.Engine.Purge. If an attempt was not answered
// and the next one finds no workflow, the workflow is purged.
func (c *Client) Purge(ctx context.Context, id string, by weft.Actor) error {
	_, err := c.call(ctx, &request{
		what: fmt.Sprintf("purge workflow %q", id), method: http.MethodDelete, path: path("runs", id),
		query: reasonQuery(by), writes: true, goneIsDone: true, about: subject{run: id},
	}, nil)
	return err
}

// Ready reports whether the control plane and its store answer. An answer which says that they do not is no error. It
// needs no key.
func (c *Client) Ready(ctx context.Context) (wire.Ready, error) {
	var r wire.Ready
	_, err := c.call(ctx, &request{what: "ask whether it is ready", method: http.MethodGet, path: "/v1/ready", also: http.StatusServiceUnavailable}, &r)
	return r, err
}

// Ownership returns the diagnostics of what was sent to a process that does not execute it.
func (c *Client) Ownership(ctx context.Context) (wire.Ownership, error) {
	var o wire.Ownership
	_, err := c.call(ctx, &request{what: "validate the ownership", method: http.MethodGet, path: "/v1/diagnostics/ownership"}, &o)
	return o, err
}
