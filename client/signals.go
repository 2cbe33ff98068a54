package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/signal"
)

// SendSignal sends a signal to a workflow. See signal.Signal.Send. A signal without an ID gets a
// random one, so that its attempts are one signal. A Message with a Token resumes the open hook that has
// it: see signal.Hook.Resume. In a namespace, the token may be without the namespace.
//
// A Message with ExpiresAfter, and one whose Start has options, cannot be sent this way: the error
// wraps errors.ErrUnsupported, and nothing is sent. Accepted.Repeated is always false. Other errors, beside those of every call: a
// *signal.ConflictError, a *signal.IndeterminateError, a *engine.TerminalError, engine.ErrNotFound,
// engine.ErrExists, engine.ErrInvalid.
func (c *Client) SendSignal(ctx context.Context, m signal.Message) (signal.Accepted, error) {
	if m.Token != nil && (m.WorkflowID != "" || m.Start != nil) {
		return signal.Accepted{}, fmt.Errorf("client: resume of hook %q: %w: a message has a Token, or it has a WorkflowID or a Start", m.Name, weft.ErrInvalid)
	}
	id := m.WorkflowID
	start, err := startOf(m.Start)
	if err != nil {
		return signal.Accepted{}, fmt.Errorf("client: signal %q: %w", m.Name, err)
	}
	if start != nil {
		if id = m.Start.StartID(); id == "" {
			id = "wrun_" + rand.Text()
		}
	}
	what := fmt.Sprintf("signal %q to workflow %q", m.Name, id)
	if m.Token != nil {
		what = fmt.Sprintf("resume of hook %q", m.Name)
	}
	if m.ExpiresAfter != 0 {
		return signal.Accepted{}, fmt.Errorf("client: %s: its ExpiresAfter cannot be sent to a control plane, which uses Config.SignalIDRetention of its engine: %w", what, errors.ErrUnsupported)
	}
	payload, err := encoded(what, "payload", m.Payload)
	if err != nil {
		return signal.Accepted{}, err
	}
	if m.ID == nil {
		made := rand.Text()
		m.ID = &made
	}
	r := &request{what: what, method: http.MethodPost, writes: true, about: subject{run: id, signal: m.Name, signalID: *m.ID}}
	if m.Token != nil {
		r.path, r.body = path("hooks", "resume"), wire.ResumeHook{Token: *m.Token, Payload: payload, ResumeID: m.ID}
	} else {
		r.path, r.body = path("runs", id, "signals", m.Name), wire.SendSignal{Payload: payload, SignalID: m.ID, Start: start}
	}
	var accepted wire.SignalAccepted
	if _, err = c.call(ctx, r, &accepted); err != nil {
		return signal.Accepted{}, err
	}
	return signal.Accepted{
		Accepted: accepted.Accepted, WorkflowID: accepted.WorkflowID, SignalName: accepted.SignalName, SignalID: accepted.SignalID,
		AcceptedAt: accepted.AcceptedAt, SignalStorageKey: accepted.SignalStorageKey,
	}, nil
}

// startOf returns the start that goes with a signal or an update.
func startOf(s signal.Start) (*wire.SignalStart, error) {
	if s == nil {
		return nil, nil
	}
	r, ok := s.(*weft.StartRequest)
	if !ok {
		return nil, fmt.Errorf("%w: its Start is a %T, want a *weft.StartRequest", weft.ErrInvalid, s)
	}
	if r.Options.Queue != "" || r.Options.Deployment != "" || r.New || len(r.Options.Labels) > 0 || !r.Options.StartAt.IsZero() {
		return nil, fmt.Errorf("a start of workflow %q that goes with a signal or an update cannot have a queue, a deployment, labels or StartAt, or be New: start it first: %w", r.Workflow, errors.ErrUnsupported)
	}
	input, err := encoded(fmt.Sprintf("start workflow %q", r.Workflow), "input", r.Input)
	return &wire.SignalStart{WorkflowName: r.Workflow, Input: input}, err
}

// Signals returns a page of the signals of a workflow that are not received.
func (c *Client) Signals(ctx context.Context, id string, r weft.PageRequest) (weft.Page[weft.SignalInfo], error) {
	p, err := pageOf[wire.Signal](ctx, c, fmt.Sprintf("signals of workflow %q", id), path("runs", id, "signals"), nil, r, subject{run: id})
	return mapped(p, func(s wire.Signal) weft.SignalInfo {
		return weft.SignalInfo{Name: s.Name, ID: s.SignalID, AcceptedAt: s.AcceptedAt, Bytes: s.Bytes, Indeterminate: s.Indeterminate}
	}), err
}

// ClearSignal removes a signal that a workflow has not received. See engine.Engine.ClearSignal.
func (c *Client) ClearSignal(ctx context.Context, id, name, signalID string, by weft.Actor) error {
	_, err := c.call(ctx, &request{
		what: fmt.Sprintf("clear signal %q of %q in workflow %q", signalID, name, id), method: http.MethodDelete,
		path:  path("runs", id, "signals", name, signalID),
		query: reasonQuery(by), keyed: true, writes: true, about: subject{run: id, signal: name, signalID: signalID},
	}, nil)
	return err
}

func reasonQuery(by weft.Actor) url.Values {
	if r := reason(by); r != "" {
		return url.Values{"reason": {r}}
	}
	return nil
}

// timeQuery is a time in a query. Times of lists have microseconds.
func timeQuery(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
