package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/internal/worldhttp"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/world"
)

func (p *Plane) worldOperations() []*operation {
	return []*operation{
		{name: "world.queue.publish", method: "POST", path: "/v1/queue/publish", scopes: []string{scopeWorldProxy}, home: true, do: act(p.publishMessage)},
		{name: "world.call", method: "POST", path: "/v1/world/{area}/{action}", scopes: []string{scopeWorldProxy}, home: true, restOnly: true, unread: true, hosted: "world_refused", do: act(p.callWorld)},
	}
}

const noWorld = "This service does not have a world."

// mostQueueKey is the longest idempotencyKey of a message in bytes.
const mostQueueKey = 255

type publishParams struct {
	QueueName string          `json:"queueName"`
	Message   json.RawMessage `json:"message"`
	Opts      *publishOptions `json:"opts,omitempty"`
}

type publishOptions struct {
	DeploymentID   *string `json:"deploymentId,omitempty"`
	IdempotencyKey *string `json:"idempotencyKey,omitempty"`
}

func (p *publishParams) Check() (issues []issue) {
	if p.QueueName == "" {
		issues = append(issues, issue{Path: "/queueName", Problem: "is required"})
	}
	if p.Message == nil {
		issues = append(issues, issue{Path: "/message", Problem: "is required"})
	}
	if o := p.Opts; o != nil && o.IdempotencyKey != nil && (*o.IdempotencyKey == "" || len(*o.IdempotencyKey) > mostQueueKey) {
		issues = append(issues, issue{Path: "/opts/idempotencyKey", Problem: "must have 1 to 255 bytes"})
	}
	return issues
}

// publishMessage publishes a message to the queue of a deployment, or of the active one. Only an idempotencyKey makes two
// calls the same (HTTP-66).
func (p *Plane) publishMessage(ctx context.Context, c *call, params *publishParams) (answer, error) {
	w := p.config.World
	if w == nil {
		return answer{}, notConfigured(noWorld)
	}
	body, err := worldhttp.FromJSON(params.Message)
	if err != nil {
		return answer{}, invalid(issue{Path: "/message", Problem: err.Error()})
	}
	m := world.Message{QueueName: params.QueueName, Body: body}
	if params.Opts != nil && params.Opts.IdempotencyKey != nil {
		c.idempotencyKey = *params.Opts.IdempotencyKey
	}
	return c.mutate(ctx, func(ctx context.Context, tx storage.Tx) (answer, error) {
		if params.Opts != nil && params.Opts.DeploymentID != nil {
			m.Deployment = *params.Opts.DeploymentID
		} else {
			active, err := readPointer(ctx, tx)
			if err == nil {
				err = tx.Commit(ctx, pointed(active))
			}
			if err != nil {
				return answer{}, err
			}
			if m.Deployment = active.Deployment; m.Deployment == "" {
				return answer{}, noActiveDeployment()
			}
		}
		published, err := w.In(tx).Publish(ctx, m)
		if e, ok := errors.AsType[*world.Error](err); ok {
			return answer{}, invalid(issue{Path: "", Problem: e.Message})
		}
		return answer{body: wire.Published{MessageID: published.MessageID}}, err
	})
}

type worldParams struct {
	Area   string `json:"area" in:"path"`
	Action string `json:"action" in:"path"`
}

// callWorld has the world answer a call of a runtime. It may wait for messages or for chunks of a stream: until the client
// goes, or Close.
func (p *Plane) callWorld(_ context.Context, c *call, _ *worldParams) (answer, error) {
	if p.config.World == nil {
		return answer{}, notConfigured(noWorld)
	}
	body, bad := c.body()
	if bad != nil {
		return answer{}, bad
	}
	return answer{stream: func(w http.ResponseWriter, r *http.Request) {
		ctx, end := context.WithCancel(r.Context())
		defer end()
		go func() {
			select {
			case <-c.closing:
				end()
			case <-ctx.Done():
			}
		}()
		r = r.WithContext(ctx)
		r.Body = io.NopCloser(bytes.NewReader(body))
		p.world.ServeHTTP(w, r)
	}}, nil
}
