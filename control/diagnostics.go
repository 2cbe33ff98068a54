package control

import (
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

func (p *Plane) diagnosticOperations() []*operation.Operation {
	ops := []string{operation.ScopeOpsRead}
	return []*operation.Operation{
		{Name: "health.get", Method: http.MethodGet, Path: "/v1/health", Unsecured: true, Unaudited: true, Do: operation.Act(getHealth)},
		{Name: "health.ready", Method: http.MethodGet, Path: "/v1/ready", Unsecured: true, Unaudited: true, Do: operation.Act(p.getReady)},
		{Name: "openapi.get", Method: http.MethodGet, Path: "/v1/openapi.json", Unaudited: true, Do: operation.Act(getDocument)},
		{Name: "engines.list", Method: http.MethodGet, Path: "/v1/engines", Scopes: ops, Home: true, Do: operation.Act(listEngines)},
		{Name: "diagnostics.ownership", Method: http.MethodGet, Path: "/v1/diagnostics/ownership", Scopes: ops, Home: true, Do: operation.Act(p.getOwnership)},
	}
}

const healthTime = "2006-01-02T15:04:05.000Z"

func getHealth(context.Context, *operation.Call, *operation.NoParams) (operation.Answer, error) {
	return operation.Answer{Body: wire.Health{Healthy: true, Timestamp: time.Now().UTC().Format(healthTime)}}, nil
}

// A readiness is what the store has said lately.
type readiness struct {
	at            time.Time
	store, engine bool
}

// Times of health.ready.
const (
	readyFor      = time.Second // for which the store is not asked again
	readyPatience = 2 * time.Second
)

// A prober asks the store at most once in readyFor, whatever the number of requests.
type prober struct {
	last   atomic.Pointer[readiness]
	asking chan struct{} // has one element while somebody asks
}

func (p *Plane) ready(ctx context.Context) readiness {
	for {
		if r := p.probe.last.Load(); r != nil && time.Since(r.at) < readyFor {
			return *r
		}
		select {
		case p.probe.asking <- struct{}{}:
		case <-ctx.Done():
			return readiness{}
		}
		p.ask(ctx)
	}
}

// ask asks the store, unless another request has meanwhile. It ends the caller's asking, also if the store panics.
func (p *Plane) ask(ctx context.Context) {
	defer func() { <-p.probe.asking }()
	if r := p.probe.last.Load(); r != nil && time.Since(r.at) < readyFor {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyPatience)
	defer cancel()
	r := readiness{}
	_, err := p.env.Store.Get(ctx, keys.ControlHits()) // any record: the store answers, whatever that has
	r.store = err == nil || errors.Is(err, storage.ErrNotFound)
	if r.store {
		engines, _ := p.env.Engine.Engines(ctx) // with those that are not damaged
		r.engine = slices.ContainsFunc(engines, func(e engine.EngineInfo) bool { return e.Alive })
	}
	r.at = time.Now()
	p.probe.last.Store(&r)
}

// getReady says whether requests can be served. A plane whose engine executes nothing serves
// them too: workers on its store do.
func (p *Plane) getReady(ctx context.Context, c *operation.Call, _ *operation.NoParams) (operation.Answer, error) {
	r := p.ready(ctx)
	body := wire.Ready{Ready: r.store && !c.IsClosing(), Store: r.store, Engine: r.engine}
	if !body.Ready {
		return operation.Answer{Status: http.StatusServiceUnavailable, Body: body, Header: http.Header{"Retry-After": {"1"}}}, nil
	}
	return operation.Answer{Body: body}, nil
}

//go:embed openapi.json
var document []byte

func getDocument(context.Context, *operation.Call, *operation.NoParams) (operation.Answer, error) {
	return operation.Answer{Body: json.RawMessage(document)}, nil
}

type listEnginesParams struct{ operation.Paging }

func listEngines(ctx context.Context, c *operation.Call, p *listEnginesParams) (operation.Answer, error) {
	engines, err := c.Engine.Engines(ctx)
	if len(engines) == 0 && err != nil {
		return operation.Answer{}, err
	}
	slices.SortFunc(engines, func(a, b engine.EngineInfo) int { return strings.Compare(a.Incarnation, b.Incarnation) })
	if !p.Ascending() {
		slices.Reverse(engines)
	}
	behind, err := base64.RawURLEncoding.DecodeString(p.Cursor)
	if err != nil {
		return operation.Answer{}, operation.BadCursor()
	}
	page := weft.Page[wire.Engine]{Next: p.Cursor}
	for _, e := range engines {
		if order := strings.Compare(e.Incarnation, string(behind)); len(behind) > 0 && (p.Ascending() && order <= 0 || !p.Ascending() && order >= 0) {
			continue
		}
		if len(page.Data) == p.Most() {
			page.HasMore = true
			break
		}
		page.Data = append(page.Data, engineOf(e))
		page.Next = base64.RawURLEncoding.EncodeToString([]byte(e.Incarnation))
	}
	return operation.Answer{Body: page}, nil
}

func engineOf(e engine.EngineInfo) wire.Engine {
	return wire.Engine{
		Incarnation: e.Incarnation, Name: e.Name, Deployment: e.Deployment, Workflows: e.Workflows, Queues: e.Queues,
		Alive: e.Alive, LeaseTTL: int64(e.LeaseTTL), Runs: e.Runs, Since: e.Since, Stopped: e.Stopped,
		Takeovers: e.Takeovers, LostRaces: e.LostRaces, Fenced: e.Fenced, Unknown: e.Unknown,
	}
}

func (p *Plane) getOwnership(ctx context.Context, c *operation.Call, _ *operation.NoParams) (operation.Answer, error) {
	g := p.config.Guard
	total, lately, last, err := p.hits.read(ctx, time.Now())
	if err != nil {
		return operation.Answer{}, err
	}
	body := wire.Ownership{
		RemoteModeEnabled: g.remote(), StrictMode: g.strict(), ExpectedTargetWorld: g.expected(),
		LifetimeUnexpectedHits: total, UnexpectedHitsLast15M: lately, Status: ownershipStatus(g, lately),
	}
	if g != nil && g.TargetWorld != "" {
		body.TargetWorld = &g.TargetWorld
	}
	if !last.IsZero() {
		body.LastUnexpectedHitAt = &last
	}
	return operation.Answer{Body: body}, nil
}

// ownershipStatus is pass without recent hits, and with them warn, or fail if the guard is strict.
func ownershipStatus(g *Guard, lately int64) string {
	switch {
	case lately == 0:
		return "pass"
	case g.strict():
		return "fail"
	}
	return "warn"
}
