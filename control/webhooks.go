package control

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/weft-go/weft/control/internal/operation"
)

// Limits of webhooks.
const (
	mostWebhooks         = 64  // that handlers have at once
	mostProviderWebhooks = 48  // of one provider: the others have the rest
	mostBodies           = 256 // that come at once
	mostNetworkBodies    = 64  // from one network
	webhookTime          = 30 * time.Second
)

type webhookParams struct {
	Provider string `json:"provider" in:"path"`
}

func (p *Plane) webhookOperations() []*operation.Operation {
	return []*operation.Operation{
		{Name: "webhooks.receive", Method: "POST", Path: "/v1/webhooks/{provider}", RestOnly: true, Unread: true, Hosted: "webhook_refused", Do: operation.Act(p.receiveWebhook)},
	}
}

// receiveWebhook has the host's handler answer an event of a provider, whose signature takes the place
// of a key.
func (p *Plane) receiveWebhook(_ context.Context, c *operation.Call, params *webhookParams) (operation.Answer, error) {
	if len(p.config.Webhooks) == 0 {
		return operation.Answer{}, operation.NotConfigured("This service receives no webhooks.")
	}
	handler := p.config.Webhooks[params.Provider]
	if handler == nil {
		return operation.Answer{}, operation.NotFound("Provider")
	}
	body, err := p.webhookBody(c)
	if err != nil {
		return operation.Answer{}, err
	}
	if !p.webhooks.Enter(params.Provider, mostProviderWebhooks, mostWebhooks) {
		return operation.Answer{}, busyWithWebhooks()
	}
	return operation.Answer{End: func() { p.webhooks.Leave(params.Provider) }, Stream: func(w http.ResponseWriter, r *http.Request) {
		conn := http.NewResponseController(w)
		conn.SetWriteDeadline(time.Now().Add(webhookTime + operation.WritePatience))
		ctx, cancel := context.WithTimeout(r.Context(), webhookTime)
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = io.NopCloser(bytes.NewReader(body))
		handler.ServeHTTP(w, r)
	}}, nil
}

// webhookBody reads the body before a handler is asked for: who sends it slowly keeps no handler from others.
func (p *Plane) webhookBody(c *operation.Call) ([]byte, error) {
	from := operation.Network(c.From).String()
	if !p.bodies.Enter(from, mostNetworkBodies, mostBodies) {
		return nil, busyWithWebhooks()
	}
	defer p.bodies.Leave(from)
	body, bad := c.Body()
	if bad != nil {
		return nil, bad
	}
	return body, nil
}

func busyWithWebhooks() *operation.Problem {
	return operation.RetryLater("busy", "The service receives as many webhooks at once as it may.")
}
