package runs

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
)

// listParams are the parameters of runs.list.
type listParams struct {
	Workflow   *string  `json:"workflow,omitempty" in:"query"`
	Status     *string  `json:"status,omitempty" in:"query"`
	Label      []string `json:"label,omitempty" in:"query"`
	Attention  *bool    `json:"attention,omitempty" in:"query"`
	Parent     *string  `json:"parent,omitempty" in:"query"`
	Deployment *string  `json:"deployment,omitempty" in:"query"`
	After      *string  `json:"after,omitempty" in:"query"`
	Before     *string  `json:"before,omitempty" in:"query"`
	operation.Paging
}

func (p *listParams) Check() []operation.Issue {
	issues := p.Paging.Check()
	bad := func(path, problem string) { issues = append(issues, operation.Issue{Path: path, Problem: problem}) }
	if p.Workflow != nil {
		issues = checkWorkflowName(issues, "/workflow", *p.Workflow)
	}
	if s := p.Status; s != nil {
		switch checkpoint.Status(*s) {
		case checkpoint.StatusPending, checkpoint.StatusRunning, checkpoint.StatusCompleted, checkpoint.StatusFailed, checkpoint.StatusCancelled:
		default:
			bad("/status", "must be pending, running, completed, failed or cancelled")
		}
	}
	if _, problem := p.labels(); problem != "" {
		bad("/label", problem)
	}
	if p.Parent != nil && *p.Parent == "" {
		bad("/parent", "is empty")
	}
	if p.Deployment != nil && payload.CheckName("deployment", *p.Deployment, keys.MaxName) != nil {
		bad("/deployment", "is no id of a deployment")
	}
	if _, ok := operation.TimeIn(p.After); !ok {
		bad("/after", "is no time of RFC 3339")
	}
	if _, ok := operation.TimeIn(p.Before); !ok {
		bad("/before", "is no time of RFC 3339")
	}
	return issues
}

// labels returns the labels that are asked for, or what is wrong with them.
func (p *listParams) labels() (map[string]string, string) {
	labels := map[string]string{}
	for _, l := range p.Label {
		name, value, ok := strings.Cut(l, ":")
		if !ok {
			return nil, "must be a name and a value with a colon between them"
		}
		name, err := url.PathUnescape(name)
		if err != nil {
			return nil, "must have % in the name as %25, and a colon as %3A"
		}
		if _, twice := labels[name]; twice {
			return nil, "names a label twice"
		}
		labels[name] = value
	}
	return labels, labelsProblem(labels)
}

// filter returns what the engine is asked for. It is false if nothing can be selected.
func (p *listParams) filter(k *operation.Principal) (engine.Filter, bool) {
	var f engine.Filter
	f.Labels, _ = p.labels()
	f.After, _ = operation.TimeIn(p.After)
	f.Before, _ = operation.TimeIn(p.Before)
	if p.Workflow != nil {
		f.Workflow = *p.Workflow
	}
	if p.Status != nil {
		f.Status = checkpoint.Status(*p.Status)
	}
	if p.Deployment != nil {
		f.Deployment = *p.Deployment
	}
	f.Attention = p.Attention != nil && *p.Attention
	if p.Parent != nil {
		parent, ok := k.EngineID(*p.Parent)
		if !ok {
			return f, false
		}
		f.Parent = parent
	}
	k.Restrict(&f)
	return f, true
}

func listRuns(ctx context.Context, c *call, p *listParams) (operation.Answer, error) {
	f, ok := p.filter(c.Who)
	if !ok {
		return operation.Answer{Body: weft.Page[wire.Run]{}}, nil
	}
	page, err := operation.Within(p.Most(), func(limit int) (weft.Page[wire.Run], error) {
		found, err := c.Engine.Page(ctx, f, engine.PageRequest{Limit: limit, Cursor: p.Cursor, Ascending: p.Ascending()})
		page := weft.Page[wire.Run]{Next: found.Next, HasMore: found.HasMore}
		for i := range found.Data {
			if runID, ok := c.Who.RunID(found.Data[i].ID); ok {
				page.Data = append(page.Data, runOf(c.Who, runID, &found.Data[i]))
			}
		}
		return page, err
	})
	if errors.Is(err, engine.ErrInvalid) { // everything else was checked
		return operation.Answer{}, operation.BadCursor()
	}
	return operation.Answer{Body: page}, err
}
