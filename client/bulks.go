package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/signal"
)

// StartBulk has an engine do one operation to every workflow that b.Filter selects. See engine.Engine.StartBulk.
// The key decides whose workflows these are. By cannot be empty: it is the reason.
//
// A control plane has the verbs cancel, terminate, signal, resume, reset and purge. The fields TopLevel, IDPrefix and NoNamespace
// of the Filter, the ID and ExpiresAfter of the Signal, and a Rate that is not in whole seconds cannot be sent: the error
// wraps errors.ErrUnsupported, and nothing is sent. Other errors, beside those of every call: engine.ErrInvalid,
// engine.ErrMismatch.
func (c *Client) StartBulk(ctx context.Context, id string, b weft.Bulk, by weft.Actor) error {
	what := fmt.Sprintf("start of bulk %q", id)
	body, err := bulkBody(what, b)
	if err != nil {
		return err
	}
	body.Reason = reason(by)
	_, err = c.call(ctx, &request{what: what, method: http.MethodPost, path: path("bulks", id), body: body, keyed: true, writes: true}, nil)
	return err
}

func bulkBody(what string, b weft.Bulk) (*wire.StartBulk, error) {
	unsupported := func(problem string) (*wire.StartBulk, error) {
		return nil, fmt.Errorf("client: %s: %s: %w", what, problem, errors.ErrUnsupported)
	}
	f := b.Filter
	switch m := b.Signal; {
	case f.TopLevel || f.IDPrefix != "" || f.NoNamespace:
		return unsupported("a control plane does not select by TopLevel, IDPrefix or NoNamespace")
	case m.ID != nil || m.ExpiresAfter != 0:
		return unsupported("the ID and ExpiresAfter of its Signal cannot be sent to a control plane")
	case b.Rate.Per%time.Second != 0:
		return unsupported("the Per of its Rate is not in whole seconds")
	case m.WorkflowID != "" || m.Start != nil || m.Token != nil:
		return nil, fmt.Errorf("client: %s: %w: its Signal has a WorkflowID, Start or Token", what, weft.ErrInvalid)
	}
	body := &wire.StartBulk{
		Do: string(b.Do),
		Filter: wire.BulkFilter{
			Workflow: f.Workflow, Status: string(f.Status), Labels: f.Labels, Attention: f.Attention, Parent: f.Parent, Deployment: f.Deployment,
			After: f.After, Before: f.Before,
		},
	}
	if b.Do == weft.BulkReset || b.Before != "" {
		body.Before = &b.Before
	}
	if b.Signal.Name != "" || b.Signal.Payload != nil {
		payload, err := encoded(what, "payload", b.Signal.Payload)
		if err != nil {
			return nil, err
		}
		body.Signal = &wire.BulkSignal{Name: b.Signal.Name, Payload: payload}
	}
	if b.Rate != (activity.Rate{}) {
		body.Rate = &wire.BulkRate{Count: b.Rate.Count, PerSeconds: int(b.Rate.Per / time.Second)}
	}
	return body, nil
}

// StopBulk ends a bulk operation. See engine.Engine.StopBulk.
func (c *Client) StopBulk(ctx context.Context, id string, by weft.Actor) error {
	_, err := c.call(ctx, &request{
		what: fmt.Sprintf("stop of bulk %q", id), method: http.MethodPost, path: path("bulks", id, "stop"),
		body: wire.StopBulk{Reason: reason(by)}, keyed: true, writes: true,
	}, nil)
	return err
}

// Bulk returns the state of a bulk operation. Its Bulk.Signal has the Name only, and its Engine is not known.
func (c *Client) Bulk(ctx context.Context, id string) (weft.BulkInfo, error) {
	var b wire.Bulk
	_, err := c.call(ctx, &request{what: fmt.Sprintf("describe bulk %q", id), method: http.MethodGet, path: path("bulks", id)}, &b)
	return bulkInfoOf(b), err
}

// Bulks returns a page of the bulk operations, in the order of their ids with r.Ascending and otherwise backwards. They have
// no Refusals.
func (c *Client) Bulks(ctx context.Context, r weft.PageRequest) (weft.Page[weft.BulkInfo], error) {
	p, err := pageOf[wire.Bulk](ctx, c, "list bulks", "/v1/bulks", nil, r, subject{})
	return mapped(p, bulkInfoOf), err
}

func bulkInfoOf(b wire.Bulk) weft.BulkInfo {
	f := b.Filter
	i := weft.BulkInfo{
		ID: b.BulkID, By: weft.Actor{Name: b.By, Reason: b.Reason}, Began: b.CreatedAt, EndedAt: b.EndedAt, Done: b.Done, Refused: b.Refused, Last: b.Last,
		Bulk: weft.Bulk{
			Do: weft.Verb(b.Do), Signal: signal.Message{Name: b.Signal},
			Filter: weft.Filter{
				Workflow: f.Workflow, Status: checkpoint.Status(f.Status), Labels: f.Labels, Attention: f.Attention, Parent: f.Parent, Deployment: f.Deployment,
				After: f.After, Before: f.Before,
			},
		},
	}
	if b.Before != nil {
		i.Bulk.Before = *b.Before
	}
	if r := b.Rate; r != nil {
		i.Bulk.Rate = activity.Rate{Count: r.Count, Per: time.Duration(r.PerSeconds) * time.Second}
	}
	if s := b.Stopped; s != nil {
		i.Stopped = &weft.Actor{Name: s.By, Reason: s.Reason}
	}
	for _, x := range b.Refusals {
		i.Refusals = append(i.Refusals, weft.Refusal{ID: x.RunID, Reason: x.Reason})
	}
	return i
}
