package control

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"
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

func (p *Plane) webhookOperations() []*operation {
	return []*operation{
		{name: "webhooks.receive", method: "POST", path: "/v1/webhooks/{provider}", restOnly: true, unread: true, hosted: "webhook_refused", do: act(p.receiveWebhook)},
	}
}

// receiveWebhook has the host's handler answer an event of a provider, whose signature takes the place
// of a key.
func (p *Plane) receiveWebhook(_ context.Context, c *call, params *webhookParams) (answer, error) {
	if len(p.config.Webhooks) == 0 {
		return answer{}, notConfigured("This service receives no webhooks.")
	}
	handler := p.config.Webhooks[params.Provider]
	if handler == nil {
		return answer{}, notFound("Provider")
	}
	body, err := p.webhookBody(c)
	if err != nil {
		return answer{}, err
	}
	if !p.webhooks.enter(params.Provider, mostProviderWebhooks, mostWebhooks) {
		return answer{}, busyWithWebhooks()
	}
	return answer{end: func() { p.webhooks.leave(params.Provider) }, stream: func(w http.ResponseWriter, r *http.Request) {
		conn := http.NewResponseController(w)
		conn.SetWriteDeadline(time.Now().Add(webhookTime + writePatience))
		ctx, cancel := context.WithTimeout(r.Context(), webhookTime)
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = io.NopCloser(bytes.NewReader(body))
		handler.ServeHTTP(w, r)
	}}, nil
}

// webhookBody reads the body before a handler is asked for: who sends it slowly keeps no handler from others.
func (p *Plane) webhookBody(c *call) ([]byte, error) {
	from := network(c.from).String()
	if !p.bodies.enter(from, mostNetworkBodies, mostBodies) {
		return nil, busyWithWebhooks()
	}
	defer p.bodies.leave(from)
	body, bad := c.body()
	if bad != nil {
		return nil, bad
	}
	return body, nil
}

func busyWithWebhooks() *problem {
	return retryLater("busy", "The service receives as many webhooks at once as it may.")
}
