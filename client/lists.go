package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/control/wire"
)

// Page returns a page of the workflows that f selects, the newest first, or the oldest first with
// r.Ascending. See engine.Engine.Page. The key decides whose workflows these are. The
// fields TopLevel, IDPrefix and NoNamespace of f cannot be asked for: the error wraps
// errors.ErrUnsupported.
func (c *Client) Page(ctx context.Context, f weft.Filter, r weft.PageRequest) (weft.Page[weft.Info], error) {
	q, err := filterQuery(f)
	if err != nil {
		return weft.Page[weft.Info]{}, err
	}
	p, err := pageOf[wire.Run](ctx, c, "list workflows", "/v1/runs", q, r, subject{})
	return mapped(p, infoOf), err
}

// List yields all workflows that f selects, the newest first. It reads one Page after the other. A
// workflow whose record is damaged has Info.Damaged. An error ends the sequence.
func (c *Client) List(ctx context.Context, f weft.Filter) iter.Seq2[weft.Info, error] {
	return func(yield func(weft.Info, error) bool) {
		var r weft.PageRequest
		for {
			p, err := c.Page(ctx, f, r)
			if err != nil {
				yield(weft.Info{}, err)
				return
			}
			for _, i := range p.Data {
				if !yield(i, nil) {
					return
				}
			}
			if !p.HasMore {
				return
			}
			r.Cursor = p.Next
		}
	}
}

// Events returns a page of the events of a workflow, the newest first, or the oldest first with
// r.Ascending. Their payloads are as the control plane shows them, or left out with r.NoData.
func (c *Client) Events(ctx context.Context, id string, r weft.PageRequest) (weft.Page[wire.Event], error) {
	q := url.Values{}
	if r.NoData {
		q.Set("resolveData", "none")
	}
	return pageOf[wire.Event](ctx, c, fmt.Sprintf("events of workflow %q", id), path("runs", id, "events"), q, r, subject{run: id})
}

// labelName escapes the name of a label for a query.
var labelName = strings.NewReplacer("%", "%25", ":", "%3A")

// filterQuery returns the query of a list of workflows.
func filterQuery(f weft.Filter) (url.Values, error) {
	if f.TopLevel || f.IDPrefix != "" || f.NoNamespace {
		return nil, fmt.Errorf("client: list workflows: a control plane does not select by TopLevel, IDPrefix or NoNamespace: %w", errors.ErrUnsupported)
	}
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("workflow", f.Workflow)
	set("status", string(f.Status))
	set("parent", f.Parent)
	set("deployment", f.Deployment)
	if f.Attention {
		q.Set("attention", "true")
	}
	for _, name := range slices.Sorted(maps.Keys(f.Labels)) {
		q.Add("label", labelName.Replace(name)+":"+f.Labels[name])
	}
	if !f.After.IsZero() {
		q.Set("after", timeQuery(f.After))
	}
	if !f.Before.IsZero() {
		q.Set("before", timeQuery(f.Before))
	}
	return q, nil
}

// A page is the JSON of a page.
type page[T any] struct {
	Data    []T    `json:"data"`
	HasMore bool   `json:"hasMore"`
	Tail    string `json:"tail"`
}

// pageOf reads a page of a list.
func pageOf[T any](ctx context.Context, c *Client, what, path string, q url.Values, r weft.PageRequest, about subject) (weft.Page[T], error) {
	query := maps.Clone(q)
	if query == nil {
		query = url.Values{}
	}
	if r.Limit != 0 {
		query.Set("limit", strconv.Itoa(r.Limit))
	}
	if r.Cursor != "" {
		query.Set("cursor", r.Cursor)
	}
	if r.Ascending {
		query.Set("sortOrder", "asc")
	}
	var p page[T]
	if _, err := c.call(ctx, &request{what: what, method: http.MethodGet, path: path, query: query, about: about}, &p); err != nil {
		return weft.Page[T]{}, err
	}
	return weft.Page[T]{Data: p.Data, Next: p.Tail, HasMore: p.HasMore}, nil
}

// mapped returns p with other items.
func mapped[A, B any](p weft.Page[A], f func(A) B) weft.Page[B] {
	all := weft.Page[B]{Next: p.Next, HasMore: p.HasMore}
	for _, a := range p.Data {
		all.Data = append(all.Data, f(a))
	}
	return all
}

// An AuditFilter selects rows of the audit trail. A field that is zero selects all.
type AuditFilter struct {
	Action   string // of this operation, such as "runs.create"
	Result   string // "success" or "failure"
	KeyID    string // of the key with this id
	RunID    string // about this run
	From, To time.Time
}

// Audit returns a page of the audit trail, the newest rows first, or the oldest first with
// r.Ascending. In ascending order the last 30 s are left out, so that who reads on misses none of
// processes whose clocks differ by less than ten seconds.
func (c *Client) Audit(ctx context.Context, f AuditFilter, r weft.PageRequest) (weft.Page[wire.AuditRow], error) {
	q := url.Values{}
	for name, value := range map[string]string{"action": f.Action, "result": f.Result, "keyId": f.KeyID, "runId": f.RunID} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if !f.From.IsZero() {
		q.Set("from", timeQuery(f.From))
	}
	if !f.To.IsZero() {
		q.Set("to", timeQuery(f.To))
	}
	return pageOf[wire.AuditRow](ctx, c, "list the audit trail", "/v1/audit", q, r, subject{})
}

// Engines returns a page of the engines that use the store of the control plane.
func (c *Client) Engines(ctx context.Context, r weft.PageRequest) (weft.Page[wire.Engine], error) {
	return pageOf[wire.Engine](ctx, c, "list engines", "/v1/engines", nil, r, subject{})
}
