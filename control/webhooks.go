package control

import (
	"context"
	"net/http"
	"time"
)

// Limits of webhooks.
const (
	mostWebhooks = 64 // at once
	webhookTime  = 30 * time.Second
)

type webhookParams struct {
	Provider string `json:"provider" in:"path"`
}

func webhookOperations() []*operation {
	return []*operation{
		{name: "webhooks.receive", method: "POST", path: "/v1/webhooks/{provider}", restOnly: true, unread: true, do: act(receiveWebhook)},
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
	if !c.webhooks.enter("", mostWebhooks, mostWebhooks) {
		return answer{}, retryLater("busy", "The service receives as many webhooks at once as it may.")
	}
	return answer{stream: func(w http.ResponseWriter, r *http.Request) {
		defer c.webhooks.leave("")
		conn := http.NewResponseController(w)
		conn.SetReadDeadline(time.Now().Add(webhookTime))
		conn.SetWriteDeadline(time.Now().Add(webhookTime + writePatience))
		ctx, cancel := context.WithTimeout(r.Context(), webhookTime)
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = http.MaxBytesReader(w, r.Body, c.config.MaxBody)
		handler.ServeHTTP(w, r)
	}}, nil
}
