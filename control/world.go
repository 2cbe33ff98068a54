package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/weft-go/weft/control/internal/deployments"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/internal/worldhttp"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/world"
)

func (p *Plane) worldOperations() []*operation.Operation {
	return []*operation.Operation{
		{Name: "world.queue.publish", Method: "POST", Path: "/v1/queue/publish", Scopes: []string{operation.ScopeWorldProxy}, Home: true, Do: operation.Act(p.publishMessage)},
		{Name: "world.call", Method: "POST", Path: "/v1/world/{area}/{action}", Scopes: []string{operation.ScopeWorldProxy}, Home: true, RestOnly: true, Unread: true, Hosted: "world_refused", Do: operation.Act(p.callWorld)},
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

var (
	_ operation.Checker      = (*publishParams)(nil)
	_ operation.Unrepeatable = (*publishParams)(nil)
)

func (p *publishParams) Check() (issues []operation.Issue) {
	if p.QueueName == "" {
		issues = append(issues, operation.Issue{Path: "/queueName", Problem: "is required"})
	}
	if p.Message == nil {
		issues = append(issues, operation.Issue{Path: "/message", Problem: "is required"})
	}
	if o := p.Opts; o != nil && o.IdempotencyKey != nil && (*o.IdempotencyKey == "" || len(*o.IdempotencyKey) > mostQueueKey || strings.ContainsRune(*o.IdempotencyKey, 0)) {
		issues = append(issues, operation.Issue{Path: "/opts/idempotencyKey", Problem: "must have 1 to 255 bytes without NUL"})
	}
	return issues
}

// InsteadOfAgain is what to do if the outcome is unknown: without an idempotencyKey, a repetition is another message.
func (*publishParams) InsteadOfAgain() string {
	return "The message may have been published, and sent again it is another one. Publish messages with opts.idempotencyKey: then the same request can be sent again."
}

// publishMessage publishes a message to the queue of a deployment, or of the active one. Only an idempotencyKey makes two
// calls the same (HTTP-66).
func (p *Plane) publishMessage(ctx context.Context, c *operation.Call, params *publishParams) (operation.Answer, error) {
	w := p.config.World
	if w == nil {
		return operation.Answer{}, operation.NotConfigured(noWorld)
	}
	body, err := worldhttp.FromJSON(params.Message)
	if err != nil {
		return operation.Answer{}, operation.Invalid(operation.Issue{Path: "/message", Problem: err.Error()})
	}
	m := world.Message{QueueName: params.QueueName, Body: body}
	if params.Opts != nil && params.Opts.IdempotencyKey != nil {
		c.IdempotencyKey = *params.Opts.IdempotencyKey
	}
	return c.Mutate(ctx, func(ctx context.Context, tx storage.Tx) (operation.Answer, error) {
		if params.Opts != nil && params.Opts.DeploymentID != nil {
			m.Deployment = *params.Opts.DeploymentID
		} else {
			active, err := deployments.ReadActive(ctx, tx)
			if err == nil {
				err = tx.Commit(ctx, deployments.Pointed(active))
			}
			if err != nil {
				return operation.Answer{}, err
			}
			if m.Deployment = active.Deployment; m.Deployment == "" {
				return operation.Answer{}, operation.NoActiveDeployment()
			}
		}
		published, err := w.In(tx).Publish(ctx, m)
		if e, ok := errors.AsType[*world.Error](err); ok {
			return operation.Answer{}, operation.Invalid(operation.Issue{Problem: e.Message})
		}
		return operation.Answer{Body: wire.Published{MessageID: published.MessageID}}, err
	})
}

type worldParams struct {
	Area   string `json:"area" in:"path"`
	Action string `json:"action" in:"path"`
}

// waiting are the calls that may wait: for messages, or for chunks of a stream.
var waiting = map[worldParams]bool{{"queue", "receive"}: true, {"streams", "read"}: true}

// callWorld has the world answer a call of a runtime. One that waits does so until the client goes, its key is revoked, or Close.
func (p *Plane) callWorld(_ context.Context, c *operation.Call, params *worldParams) (operation.Answer, error) {
	if p.config.World == nil {
		return operation.Answer{}, operation.NotConfigured(noWorld)
	}
	body, bad := c.Body()
	if bad != nil {
		return operation.Answer{}, bad
	}
	if !waiting[*params] {
		return operation.Answer{Stream: func(w http.ResponseWriter, r *http.Request) { p.askWorld(w, r, body) }}, nil
	}
	leave, ok := c.EnterPoll()
	if !ok {
		return operation.Answer{}, operation.RetryLater("busy", "As many calls of the key wait as may.")
	}
	return operation.Answer{End: leave, Stream: func(w http.ResponseWriter, r *http.Request) {
		ctx, release := c.Hold(r.Context())
		defer release()
		p.askWorld(w, r.WithContext(ctx), body)
	}}, nil
}

func (p *Plane) askWorld(w http.ResponseWriter, r *http.Request, body []byte) {
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.world.ServeHTTP(w, r)
}
