package runs

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/storage"
)

func (r *Runs) valueOperations() []*operation.Operation {
	return []*operation.Operation{
		{Name: "values.list", Method: "GET", Path: "/v1/runs/{runId}/values", Scopes: []string{operation.ScopeRunsRead}, Do: act(r, listValues)},
		{Name: "values.get", Method: "GET", Path: "/v1/runs/{runId}/values/{name}", Scopes: []string{operation.ScopeRunsRead}, Do: act(r, getValue)},
	}
}

// valueOf returns a value that is stored, or nil if it is not one of this workflow: of one that is being
// purged.
func valueOf(wf *journal.Workflow, e storage.Entry) (*wire.Value, error) {
	name, p, err := journal.OpenPublished(e)
	if err != nil || p.Generation != wf.Generation {
		return nil, err
	}
	sum := sha256.Sum256(e.Value)
	v := &wire.Value{
		Name: name, SetAt: journal.Time(p.At).UTC(), Status: string(wf.Status), Value: jsonOf(p.Codec, p.Data),
		Version: base64.RawURLEncoding.EncodeToString(sum[:12]),
	}
	if p.Data == nil {
		v.Value = []byte("null")
	}
	return v, nil
}

type valueParams struct {
	RunID string `json:"runId" in:"path"`
	Name  string `json:"name" in:"path"`
	Wait  *int   `json:"wait,omitempty" in:"query"` // seconds
	After string `json:"after,omitempty" in:"query"`
}

func (p *valueParams) Check() (issues []operation.Issue) {
	if payload.CheckName("name of value", p.Name, keys.MaxName) != nil {
		issues = append(issues, operation.Issue{Path: "/name", Problem: fmt.Sprintf("must have 1 to %d bytes of UTF-8", keys.MaxName)})
	}
	if p.Wait != nil && (*p.Wait < 0 || *p.Wait > int(operation.MostWait/time.Second)) {
		issues = append(issues, operation.Issue{Path: "/wait", Problem: "must be 0 to 60"})
	}
	return issues
}

// getValue answers a value of a run. It waits for one of another version than the client has, as long as
// the client asks for.
func getValue(ctx context.Context, c *call, p *valueParams) (operation.Answer, error) {
	id, err := c.at(p.RunID)
	if err != nil {
		return operation.Answer{}, err
	}
	v, status, err := c.value(ctx, id, p.Name)
	if asked := c.Asked(p.Wait); err == nil && asked > 0 && !status.Terminal() && (v == nil || v.Version == p.After) {
		if err := c.awaitValue(ctx, id, p, asked); err != nil {
			return operation.Answer{}, err
		}
		v, status, err = c.value(ctx, id, p.Name)
	}
	if err != nil {
		return operation.Answer{}, err
	}
	if v == nil {
		return operation.Answer{}, operation.NewProblem(http.StatusNotFound, "no_value", "The run has not published this value.").
			With(map[string]any{"runId": p.RunID, "name": p.Name, "status": string(status)})
	}
	return operation.Answer{Body: v}, nil
}

// value reads a value and the status of its run; nil: there is none. The status is read first: if the
// run has ended, the value is its last one.
func (c *call) value(ctx context.Context, id, name string) (*wire.Value, checkpoint.Status, error) {
	wf, err := c.record(ctx, id)
	if err != nil {
		return nil, "", err
	}
	key := keys.Published(id, name)
	raw, err := c.Store.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, wf.Status, nil
	}
	if err != nil {
		return nil, "", err
	}
	v, err := valueOf(wf, storage.Entry{Key: key, Value: raw})
	return v, wf.Status, err
}

// awaitValue waits for another version of a value, for the end of the run, until the time is up or the
// plane closes. It is an error if it cannot find out, or if the key was revoked meanwhile.
func (c *call) awaitValue(ctx context.Context, id string, p *valueParams, wait time.Duration) error {
	ctx, release, ok := c.Waits(ctx, wait)
	defer release()
	if !ok {
		return nil // it is answered at once
	}
	err := c.Engine.AwaitValue(ctx, id, p.Name, func(func(any) error) (bool, error) {
		v, _, err := c.value(ctx, id, p.Name)
		return v != nil && v.Version != p.After, err
	})
	switch {
	case err == nil, errors.Is(err, engine.ErrTerminal):
		return nil
	case ctx.Err() == nil:
		return err
	}
	return c.Revoked(ctx)
}

type valuesParams struct {
	RunID  string `json:"runId" in:"path"`
	Limit  *int   `json:"limit,omitempty" in:"query"`
	Cursor string `json:"cursor,omitempty" in:"query"`
}

func (p *valuesParams) paging() *operation.Paging {
	return &operation.Paging{Limit: p.Limit, Cursor: p.Cursor}
}

func (p *valuesParams) Check() []operation.Issue { return p.paging().Check() }

// A valuePlace is the place of a value in the list of those of a run.
type valuePlace struct {
	Name string `cbor:"1,keyasint"`
}

// listValues answers a page of the values of a run, in the order of their names. Values may be large, so
// that a page may have fewer than the client asks for.
func listValues(ctx context.Context, c *call, p *valuesParams) (operation.Answer, error) {
	id, err := c.at(p.RunID)
	if err != nil {
		return operation.Answer{}, err
	}
	wf, err := c.record(ctx, id)
	if err != nil {
		return operation.Answer{}, err
	}
	list, r := "values:"+id, keys.PublishedBy(id)
	r.Limit = keys.PayloadPage
	if p.Cursor != "" {
		var from valuePlace
		if !operation.OpenCursor(list, p.Cursor, &from) {
			return operation.Answer{}, operation.BadCursor()
		}
		r.Start = append(keys.Published(id, from.Name), 0)
	}
	page := weft.Page[*wire.Value]{Next: p.Cursor}
	size := 0
	for e, err := range storage.All(ctx, c.Store, r) {
		var v *wire.Value
		if err == nil {
			v, err = valueOf(wf, e)
		}
		if err != nil {
			return operation.Answer{}, err
		}
		if v == nil {
			continue
		}
		if size += len(v.Value); len(page.Data) > 0 && (len(page.Data) == p.paging().Most() || size > operation.MaxPageBytes) {
			page.HasMore = true
			break
		}
		page.Data = append(page.Data, v)
	}
	if n := len(page.Data); n > 0 {
		page.Next, err = operation.SealCursor(list, &valuePlace{page.Data[n-1].Name})
	}
	return operation.Answer{Body: page}, err
}
