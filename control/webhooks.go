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

func webhookOperations() []*operation {
	return []*operation{
		{name: "webhooks.receive", method: "POST", path: "/v1/webhooks/{provider}", restOnly: true, unread: true, hosted: "webhook_refused", do: act(receiveWebhook)},
	}
}

// receiveWebhook has the host's handler answer an event of a provider, whose signature takes the place
// of a key.
func receiveWebhook(_ context.Context, c *call, p *webhookParams) (answer, error) {
	if len(c.config.Webhooks) == 0 {
		return answer{}, notConfigured("This service receives no webhooks.")
	}
	handler := c.config.Webhooks[p.Provider]
	if handler == nil {
		return answer{}, notFound("Provider")
	}
	body, err := c.webhookBody()
	if err != nil {
		return answer{}, err
	}
	if !c.webhooks.enter(p.Provider, mostProviderWebhooks, mostWebhooks) {
		return answer{}, busyWithWebhooks()
	}
	return answer{end: func() { c.webhooks.leave(p.Provider) }, stream: func(w http.ResponseWriter, r *http.Request) {
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
func (c *call) webhookBody() ([]byte, error) {
	from := network(c.from).String()
	if !c.bodies.enter(from, mostNetworkBodies, mostBodies) {
		return nil, busyWithWebhooks()
	}
	defer c.bodies.leave(from)
	body, bad := c.exchange.read()
	if bad != nil {
		return nil, bad
	}
	return body, nil
}

func busyWithWebhooks() *problem {
	return retryLater("busy", "The service receives as many webhooks at once as it may.")
}
