package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

func (r *Runs) signalOperations() []*operation.Operation {
	return []*operation.Operation{
		{Name: "signals.list", Method: "GET", Path: "/v1/runs/{runId}/signals", Scopes: []string{operation.ScopeRunsRead}, Do: act(r, listSignals)},
		{Name: "signals.send", Method: "POST", Path: "/v1/runs/{runId}/signals/{name}", Scopes: []string{operation.ScopeSignalsWrite, operation.ScopeRunsWrite}, Follows: true, Do: act(r, sendSignal)},
		{Name: "signals.clear", Method: "DELETE", Path: "/v1/runs/{runId}/signals/{name}/{signalId}", Scopes: []string{operation.ScopeRunsOperate}, Key: operation.KeyOptional, Do: act(r, clearSignal)},
	}
}

// sendParams are the parameters of signals.send.
type sendParams struct {
	RunID    string          `json:"runId" in:"path"`
	Name     string          `json:"name" in:"path"`
	Payload  json.RawMessage `json:"payload,omitempty"`
	SignalID *string         `json:"signalId,omitempty"` // SIG-1, SIG-2: optional; empty is not absent
	Start    *absentStart    `json:"start,omitempty"`
}

// An absentStart is the run to start if it does not exist.
type absentStart struct {
	WorkflowName string          `json:"workflowName"`
	Input        json.RawMessage `json:"input,omitempty"`
}

func (p *sendParams) Check() (issues []operation.Issue) {
	issues = checkSignalName(issues, p.Name)
	if p.SignalID != nil && payload.CheckSignalID(*p.SignalID) != nil {
		issues = append(issues, operation.Issue{Path: "/signalId", Problem: fmt.Sprintf("must have 1 to %d bytes of UTF-8", keys.MaxSignalID)})
	}
	if p.Start != nil {
		issues = checkWorkflowName(issues, "/start/workflowName", p.Start.WorkflowName)
	}
	return issues
}

// InsteadOfAgain is what to do if the outcome is unknown: without a signalId, a repetition is another signal.
func (p *sendParams) InsteadOfAgain() string {
	if p.SignalID != nil {
		return ""
	}
	return "The signal may have been accepted, and sent again it is another one. Send signals with a signalId: then the same request can be sent again."
}

func checkSignalName(issues []operation.Issue, name string) []operation.Issue {
	if payload.CheckName("signal name", name, keys.MaxName) != nil {
		issues = append(issues, operation.Issue{Path: "/name", Problem: fmt.Sprintf("must have 1 to %d bytes of UTF-8", keys.MaxName)})
	}
	return issues
}

// sentOf returns an acceptance as the client of a run knows it: without the namespace.
func sentOf(runID string, a *signal.Accepted) wire.SignalAccepted {
	return wire.SignalAccepted{
		Accepted: a.Accepted, WorkflowID: runID, SignalName: a.SignalName, SignalID: a.SignalID, AcceptedAt: a.AcceptedAt.UTC(),
		SignalStorageKey: string(keys.Signal(runID, a.SignalName, a.SignalID)),
	}
}

// sendSignal sends a signal. The engine has it share a commit with others for the same run. With a
// start, it is a commit of its own, which the audit row is part of.
func sendSignal(ctx context.Context, c *call, p *sendParams) (operation.Answer, error) {
	m := signal.Message{Name: p.Name, ID: p.SignalID, Payload: input(p.Payload)}
	if p.Start == nil {
		id, err := c.at(p.RunID)
		if err != nil {
			return operation.Answer{}, err
		}
		m.WorkflowID = id
		ctx, cancel := operation.Settling(ctx)
		defer cancel()
		return c.sent(p, c.Engine.SendSignal)(ctx, m)
	}
	if !c.Who.Has(operation.ScopeTriggerWrite) {
		return operation.Answer{}, operation.MissingScope(operation.ScopeTriggerWrite)
	}
	return c.Mutate(ctx, func(ctx context.Context, tx storage.Tx) (operation.Answer, error) {
		id, err := c.at(p.RunID)
		if err != nil {
			return operation.Answer{}, err
		}
		r, err := c.startIfAbsent(ctx, tx, id, p.Start)
		if err != nil {
			return operation.Answer{}, err
		}
		m.Start = r
		return c.sent(p, c.Engine.In(tx).SendSignal)(ctx, m)
	})
}

// startIfAbsent returns the request that starts a run if it does not exist. The commit of tx depends on what was found:
// on where a run starts, or on the run that is there.
func (c *call) startIfAbsent(ctx context.Context, tx storage.Tx, id string, s *absentStart) (*engine.StartRequest, error) {
	r := &engine.StartRequest{Workflow: s.WorkflowName, ID: id, Input: input(s.Input)}
	_, err := c.Engine.In(tx).Describe(ctx, id)
	switch {
	case errors.Is(err, engine.ErrNotFound):
		target, err := c.Deployments.Target(ctx, c.Call, tx, s.WorkflowName, nil)
		r.Options.Deployment, r.Options.Queue = target.DeploymentID, target.Queue
		return r, err
	case err != nil:
		return nil, err
	}
	// It must still be there when this is committed: nothing is known of where another one would start.
	wf, err := journal.Load(ctx, tx, id)
	switch {
	case errors.Is(err, storage.ErrNotFound), err == nil && wf.Tombstone():
		return nil, storage.ErrConflict // purged since
	case err != nil:
		return nil, err
	}
	return r, tx.Commit(ctx, storage.Batch{If: []storage.Condition{wf.Unchanged()}})
}

// sent returns a function that sends a signal by send and answers what came of it.
func (c *call) sent(p *sendParams, send func(context.Context, signal.Message) (signal.Accepted, error)) func(context.Context, signal.Message) (operation.Answer, error) {
	return func(ctx context.Context, m signal.Message) (operation.Answer, error) {
		a, err := send(ctx, m)
		if err != nil {
			return operation.Answer{}, signalProblem(p.RunID, runExistsOr(p.RunID, err))
		}
		c.Note.Deduped = a.Repeated
		return operation.Answer{Body: sentOf(p.RunID, &a)}, nil
	}
}

// signalProblem returns the problem of a signal that conflicts with another one, or err. It shows no
// payload (SIG-50), and a repetition does not help (SIG-51).
func signalProblem(runID string, err error) error {
	details := func(name, id string) map[string]any {
		return map[string]any{"workflowId": runID, "signalName": name, "signalId": id}
	}
	if e, ok := errors.AsType[*signal.IndeterminateError](err); ok {
		p := operation.NewProblem(http.StatusConflict, e.Code(), "The payload of this signalId is there, and its acceptance is not.").
			With(details(e.SignalName, e.SignalID)).Because(err)
		p.CorrelationID = e.CorrelationID
		p.Recovery = "An operator looks at the signal and clears it; then it may be sent again."
		return p
	}
	if e, ok := errors.AsType[*signal.ConflictError](err); ok {
		return operation.NewProblem(http.StatusConflict, "SignalPayloadConflict", "The signalId was accepted with another payload.").
			With(details(e.SignalName, e.SignalID))
	}
	return err
}

type signalListParams struct {
	RunID string `json:"runId" in:"path"`
	operation.Paging
}

// signalBody is a signal as a client sees it.
type signalBody struct {
	wire.Signal
	at signalPlace
}

func signalOf(w acceptance.Waiting, indeterminate bool, at signalPlace) signalBody {
	return signalBody{wire.Signal{Name: w.Name, SignalID: w.ID, AcceptedAt: w.AcceptedAt.UTC(), Bytes: w.Bytes, Indeterminate: indeterminate}, at}
}

// A signalPlace is the place of a signal in the list of those that wait: first come those of the
// inbox, in the order of acceptance, then those whose acceptance is indeterminate, in the order of
// name and id.
type signalPlace struct {
	Seq  uint64 `cbor:"1,keyasint,omitempty"` // in the inbox
	Rest bool   `cbor:"2,keyasint,omitempty"` // it is not in the inbox
	Name string `cbor:"3,keyasint,omitempty"`
	ID   string `cbor:"4,keyasint,omitempty"`
}

// listSignals answers a page of the signals of a run that it has not received.
func listSignals(ctx context.Context, c *call, p *signalListParams) (operation.Answer, error) {
	id, err := c.at(p.RunID)
	if err != nil {
		return operation.Answer{}, err
	}
	if _, err := c.record(ctx, id); err != nil {
		return operation.Answer{}, err
	}
	var from *signalPlace
	list := fmt.Sprintf("signals:%s:%v", id, p.Ascending())
	if cursor := p.Cursor; cursor != "" {
		if from = new(signalPlace); !operation.OpenCursor(list, cursor, from) {
			return operation.Answer{}, operation.BadCursor()
		}
	}
	page := weft.Page[signalBody]{Next: p.Cursor}
	page.Data, err = c.waitingSignals(ctx, id, from, p.Ascending(), p.Most()+1)
	if err != nil {
		return operation.Answer{}, err
	}
	if len(page.Data) > p.Most() {
		page.Data, page.HasMore = page.Data[:p.Most()], true
	}
	if n := len(page.Data); n > 0 {
		page.Next, err = operation.SealCursor(list, &page.Data[n-1].at)
	}
	return operation.Answer{Body: page}, err
}

// waitingSignals returns the first signals behind a place, upwards or downwards, that a run has not received: at most
// limit. It reads no signal of the inbox beside these, because there may be any number.
func (c *call) waitingSignals(ctx context.Context, id string, from *signalPlace, up bool, limit int) (found []signalBody, err error) {
	inbox, rest := keys.InboxFrom(id, 0), keys.Signals(id)
	accepted := func() error {
		for e, err := range storage.All(ctx, c.Store, inbox) {
			if err != nil {
				return err
			}
			w, err := acceptance.OpenPlace(e)
			if err != nil {
				return err
			}
			if found = append(found, signalOf(w, false, signalPlace{Seq: w.Seq})); len(found) == limit {
				break
			}
		}
		return nil
	}
	indeterminate := func() error {
		for w, err := range acceptance.Unaccounted(ctx, c.Store, id, rest) {
			if err != nil {
				return err
			}
			if found = append(found, signalOf(w, true, signalPlace{Rest: true, Name: w.Name, ID: w.ID})); len(found) == limit {
				break
			}
		}
		return nil
	}
	parts := []func() error{accepted, indeterminate}
	if !up {
		inbox.Reverse, rest.Reverse = true, true
		slices.Reverse(parts)
	}
	if from != nil {
		part, key := &inbox, keys.Inbox(id, from.Seq)
		if from.Rest {
			part, key = &rest, keys.Signal(id, from.Name, from.ID)
		}
		if up {
			part.Start = append(key, 0)
		} else {
			part.End = key
		}
		if from.Rest == up {
			parts = parts[1:] // the first one ends before this place
		}
	}
	for _, read := range parts {
		inbox.Limit = limit - len(found)
		if inbox.Limit == 0 {
			break
		}
		if err := read(); err != nil {
			return nil, err
		}
	}
	return found, nil
}

type clearParams struct {
	RunID    string  `json:"runId" in:"path"`
	Name     string  `json:"name" in:"path"`
	SignalID string  `json:"signalId" in:"path"`
	Reason   *string `json:"reason,omitempty" in:"query"`
}

func (p *clearParams) Check() []operation.Issue {
	issues := checkSignalName(nil, p.Name)
	if payload.CheckSignalID(p.SignalID) != nil {
		issues = append(issues, operation.Issue{Path: "/signalId", Problem: fmt.Sprintf("must have 1 to %d bytes of UTF-8", keys.MaxSignalID)})
	}
	return operation.CheckReason(issues, p.Reason)
}

func clearSignal(ctx context.Context, c *call, p *clearParams) (operation.Answer, error) {
	return c.Mutate(ctx, func(ctx context.Context, tx storage.Tx) (operation.Answer, error) {
		id, err := c.at(p.RunID)
		if err != nil {
			return operation.Answer{}, err
		}
		if err := c.Engine.In(tx).ClearSignal(ctx, id, p.Name, p.SignalID, c.Actor(p.Reason, "clear")); err != nil {
			return operation.Answer{}, err
		}
		return operation.Answer{Status: http.StatusNoContent}, nil
	})
}
