package runs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/bulk"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

func (r *Runs) bulkOperations() []*operation.Operation {
	return []*operation.Operation{
		{Name: "bulks.list", Method: "GET", Path: "/v1/bulks", Scopes: []string{operation.ScopeRunsRead}, Do: act(r, listBulks)},
		{Name: "bulks.start", Method: "POST", Path: "/v1/bulks/{bulkId}", Scopes: []string{operation.ScopeRunsOperate}, Key: operation.KeyOptional, Do: act(r, startBulk)},
		{Name: "bulks.get", Method: "GET", Path: "/v1/bulks/{bulkId}", Scopes: []string{operation.ScopeRunsRead}, Do: act(r, getBulk)},
		{Name: "bulks.stop", Method: "POST", Path: "/v1/bulks/{bulkId}/stop", Scopes: []string{operation.ScopeRunsOperate}, Key: operation.KeyOptional, Do: act(r, stopBulk)},
	}
}

// The engine's id of a bulk of a namespace begins like those of its runs. So do its filters select: only runs of
// the namespace.

func errNoBulk() error { return operation.NotFound("Bulk") }

// bulk returns the engine's id of the bulk that a request is about.
func (c *call) bulk(bulkID string) (string, error) {
	id, ok := c.Who.EngineID(bulkID)
	if !ok {
		return "", errNoBulk()
	}
	return id, nil
}

// bulkVerbs are what a bulk may do to each run, with the scope that this needs beside runs:operate; "": none. They are
// what can be done to one run over HTTP.
var bulkVerbs = map[engine.Verb]string{
	engine.BulkCancel: operation.ScopeRunsWrite, engine.BulkTerminate: "", engine.BulkSignal: operation.ScopeSignalsWrite, engine.BulkResume: operation.ScopeRunsWrite, engine.BulkReset: "", engine.BulkPurge: "",
}

type startBulkParams struct {
	BulkID string `json:"bulkId" in:"path"`
	wire.StartBulk
}

// Limits of the rate of a bulk. One that is slower would take an engine's time for days.
const (
	maxRateCount = 1_000_000
	maxRatePer   = 24 * 60 * 60 // seconds
)

func (p *startBulkParams) Check() (issues []operation.Issue) {
	bad := func(path, problem string) { issues = append(issues, operation.Issue{Path: path, Problem: problem}) }
	if problem := operation.RunIDProblem(p.BulkID); problem != "" {
		bad("/bulkId", problem)
	}
	do := engine.Verb(p.Do)
	_, known := bulkVerbs[do]
	if !known {
		bad("/do", "must be cancel, terminate, signal, resume, reset or purge")
	}
	switch {
	case p.Before == nil && do == engine.BulkReset:
		bad("/before", "is required for reset: nobody goes back to the start because a member is missing")
	case p.Before != nil && known && do != engine.BulkReset:
		bad("/before", "is for reset only")
	}
	switch m := p.Signal; {
	case m == nil && do == engine.BulkSignal:
		bad("/signal", "is required for signal")
	case m != nil && known && do != engine.BulkSignal:
		bad("/signal", "is for signal only")
	case m != nil && payload.CheckName("signal name", m.Name, keys.MaxName) != nil:
		bad("/signal/name", fmt.Sprintf("must have 1 to %d bytes of UTF-8", keys.MaxName))
	}
	if r := p.Rate; r != nil && (r.Count < 1 || r.Count > maxRateCount) {
		bad("/rate/count", fmt.Sprintf("must be 1 to %d", maxRateCount))
	}
	if r := p.Rate; r != nil && (r.PerSeconds < 1 || r.PerSeconds > maxRatePer) {
		bad("/rate/perSeconds", fmt.Sprintf("must be 1 to %d", maxRatePer))
	}
	issues = checkBulkFilter(issues, &p.Filter)
	return operation.CheckRequiredReason(issues, p.Reason)
}

// checkBulkFilter adds what is wrong with a filter. A namespace narrows every filter, so the engine would not notice that
// the client's selects everything.
func checkBulkFilter(issues []operation.Issue, f *wire.BulkFilter) []operation.Issue {
	bad := func(path, problem string) {
		issues = append(issues, operation.Issue{Path: "/filter" + path, Problem: problem})
	}
	if bulk.SelectsEverything(filterOf(f)) {
		bad("", "selects everything: set its before if that is meant")
	}
	if f.Workflow != "" {
		issues = checkWorkflowName(issues, "/filter/workflow", f.Workflow)
	}
	switch checkpoint.Status(f.Status) {
	case "", checkpoint.StatusPending, checkpoint.StatusRunning, checkpoint.StatusCompleted, checkpoint.StatusFailed, checkpoint.StatusCancelled:
	default:
		bad("/status", "must be pending, running, completed, failed or cancelled")
	}
	if problem := labelsProblem(f.Labels); problem != "" {
		bad("/labels", problem)
	}
	if f.Parent != "" && operation.RunIDProblem(f.Parent) != "" {
		bad("/parent", "is no id of a run")
	}
	if f.Deployment != "" && payload.CheckName("deployment", f.Deployment, keys.MaxName) != nil {
		bad("/deployment", "is no id of a deployment")
	}
	return issues
}

// filterOf returns a filter as the client gives it: its Parent is the id that the client knows.
func filterOf(f *wire.BulkFilter) engine.Filter {
	return engine.Filter{
		Workflow: f.Workflow, Status: checkpoint.Status(f.Status), Labels: f.Labels, Attention: f.Attention, Parent: f.Parent,
		Deployment: f.Deployment, After: f.After, Before: f.Before,
	}
}

// bulk returns the bulk for the engine: of the runs of k.
func (p *startBulkParams) bulk(k *operation.Principal) engine.Bulk {
	f := &p.Filter
	b := engine.Bulk{Do: engine.Verb(p.Do), Filter: filterOf(f)}
	if f.Parent != "" {
		b.Filter.Parent = k.Prefix() + f.Parent
	} else if f.Status == "" || f.Attention {
		b.Filter.IDPrefix = k.Prefix() // else the engine would read the runs of all namespaces
	}
	k.Restrict(&b.Filter)
	if p.Before != nil {
		b.Before = *p.Before
	}
	if m := p.Signal; m != nil {
		b.Signal = signal.Message{Name: m.Name, Payload: input(m.Payload)}
	}
	if r := p.Rate; r != nil {
		b.Rate = activity.Rate{Count: r.Count, Per: time.Duration(r.PerSeconds) * time.Second}
	}
	return b
}

// startBulk starts a bulk. The key needs what it would need to do the same to each run.
func startBulk(ctx context.Context, c *call, p *startBulkParams) (operation.Answer, error) {
	if scope := bulkVerbs[engine.Verb(p.Do)]; scope != "" && !c.Who.Has(scope) {
		return operation.Answer{}, operation.MissingScope(scope)
	}
	return c.Mutate(ctx, func(ctx context.Context, tx storage.Tx) (operation.Answer, error) {
		id, err := c.bulk(p.BulkID)
		if err != nil {
			return operation.Answer{}, err
		}
		err = c.Engine.In(tx).StartBulk(ctx, id, p.bulk(c.Who), c.Actor(&p.Reason, ""))
		if errors.Is(err, engine.ErrMismatch) {
			return operation.Answer{}, operation.NewProblem(http.StatusConflict, "bulk_exists", "Another bulk has this id.").Because(err)
		}
		if err != nil {
			return operation.Answer{}, err
		}
		return operation.Answer{Body: wire.Accepted{Accepted: true}}, nil
	})
}

type stopBulkParams struct {
	BulkID string  `json:"bulkId" in:"path"`
	Reason *string `json:"reason,omitempty"`
}

func (p *stopBulkParams) Check() []operation.Issue { return operation.CheckReason(nil, p.Reason) }

func stopBulk(ctx context.Context, c *call, p *stopBulkParams) (operation.Answer, error) {
	return c.Mutate(ctx, func(ctx context.Context, tx storage.Tx) (operation.Answer, error) {
		id, err := c.bulk(p.BulkID)
		if err != nil {
			return operation.Answer{}, err
		}
		err = c.Engine.In(tx).StopBulk(ctx, id, c.Actor(p.Reason, "stop"))
		if errors.Is(err, engine.ErrNotFound) {
			return operation.Answer{}, errNoBulk()
		}
		if err != nil {
			return operation.Answer{}, err
		}
		return operation.Answer{Body: wire.Accepted{Accepted: true}}, nil
	})
}

type getBulkParams struct {
	BulkID string `json:"bulkId" in:"path"`
}

func getBulk(ctx context.Context, c *call, p *getBulkParams) (operation.Answer, error) {
	id, err := c.bulk(p.BulkID)
	if err != nil {
		return operation.Answer{}, err
	}
	i, err := c.Engine.Bulk(ctx, id)
	if errors.Is(err, engine.ErrNotFound) {
		return operation.Answer{}, errNoBulk()
	}
	if err != nil {
		return operation.Answer{}, err
	}
	return operation.Answer{Body: bulkOf(c.Who, p.BulkID, &i)}, nil
}

// bulkOf returns a bulk as the client of a namespace knows it.
func bulkOf(k *operation.Principal, bulkID string, i *engine.BulkInfo) wire.Bulk {
	f := &i.Bulk.Filter
	b := wire.Bulk{
		BulkID: bulkID, Do: string(i.Bulk.Do), Signal: i.Bulk.Signal.Name, By: i.By.Name, Reason: i.By.Reason,
		Filter: wire.BulkFilter{
			Workflow: f.Workflow, Status: string(f.Status), Attention: f.Attention, Deployment: f.Deployment, After: f.After, Before: f.Before,
		},
		CreatedAt: i.Began.UTC(), EndedAt: i.EndedAt.UTC(), Done: i.Done, Refused: i.Refused,
	}
	for name, value := range f.Labels {
		if strings.HasPrefix(name, reservedLabels) {
			continue
		}
		if b.Filter.Labels == nil {
			b.Filter.Labels = map[string]string{}
		}
		b.Filter.Labels[name] = value
	}
	b.Filter.Parent, _ = k.RunID(f.Parent)
	b.Last, _ = k.RunID(i.Last)
	if i.Bulk.Do == engine.BulkReset {
		b.Before = &i.Bulk.Before
	}
	if r := i.Bulk.Rate; r.Count > 0 && r.Per%time.Second == 0 {
		b.Rate = &wire.BulkRate{Count: r.Count, PerSeconds: int(r.Per / time.Second)}
	}
	if s := i.Stopped; s != nil {
		b.Stopped = &wire.BulkStop{By: s.Name, Reason: s.Reason}
	}
	for _, x := range i.Refusals {
		if runID, ok := k.RunID(x.ID); ok {
			b.Refusals = append(b.Refusals, wire.BulkRefusal{RunID: runID, Reason: k.Visible(x.Reason)})
		}
	}
	return b
}

type listBulksParams struct{ operation.Paging }

func listBulks(ctx context.Context, c *call, p *listBulksParams) (operation.Answer, error) {
	list := operation.Listing{Range: keys.BulksOf(c.Who.Prefix()), Paging: p.Paging}
	page, err := operation.PageOf(ctx, c.Store, list, func(e storage.Entry) (b wire.Bulk, ok bool, err error) {
		id, err := keys.Last(e.Key)
		if err != nil {
			return b, false, err
		}
		bulkID, ours := c.Who.RunID(id)
		if !ours {
			return b, false, nil
		}
		r, err := bulk.Open(e)
		if record.Damaged(err) { // it must not keep a reader from all that comes then
			c.Log.Error("a bulk cannot be read; it is passed over", "key", string(e.Key), "error", err)
			return b, false, nil
		}
		if err != nil {
			return b, false, err
		}
		i := r.Info()
		return bulkOf(c.Who, bulkID, &i), true, nil
	})
	return operation.Answer{Body: page}, err
}
