package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf16"

	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/internal/worldhttp"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/world"
)

func worldOperations() []*operation {
	return []*operation{
		{name: "world.queue.publish", method: "POST", path: "/v1/queue/publish", scopes: []string{scopeWorldProxy}, home: true, do: act(publishMessage)},
		{name: "world.call", method: "POST", path: "/v1/world/{area}/{action}", scopes: []string{scopeWorldProxy}, home: true, restOnly: true, unread: true, hosted: "world_refused", do: act(callWorld)},
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

func (p *publishParams) check() (issues []issue) {
	if p.QueueName == "" {
		issues = append(issues, issue{"/queueName", "is required"})
	}
	if p.Message == nil {
		issues = append(issues, issue{"/message", "is required"})
	}
	if o := p.Opts; o != nil && o.IdempotencyKey != nil && (*o.IdempotencyKey == "" || len(*o.IdempotencyKey) > mostQueueKey) {
		issues = append(issues, issue{"/opts/idempotencyKey", "must have 1 to 255 bytes"})
	}
	return issues
}

// publishMessage publishes a message to the queue of a deployment, or of the active one. Only an idempotencyKey makes two
// calls the same (HTTP-66).
func publishMessage(ctx context.Context, c *call, p *publishParams) (answer, error) {
	w := c.config.World
	if w == nil {
		return answer{}, notConfigured(noWorld)
	}
	body, err := worldhttp.FromJSON(p.Message)
	if err != nil {
		return answer{}, invalid(issue{"/message", err.Error()})
	}
	m := world.Message{QueueName: p.QueueName, Body: body}
	if p.Opts != nil && p.Opts.IdempotencyKey != nil {
		c.idempotencyKey = *p.Opts.IdempotencyKey
	}
	return c.mutate(ctx, func(ctx context.Context, tx storage.Tx) (answer, error) {
		if p.Opts != nil && p.Opts.DeploymentID != nil {
			m.Deployment = *p.Opts.DeploymentID
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
			return answer{}, invalid(issue{"", e.Message})
		}
		return answer{body: wire.Published{MessageID: published.MessageID}}, err
	})
}

// The headers of a message that resumes a run.
const (
	resumeReason  = "x-workflow-resume-reason"
	resumePayload = "x-workflow-resume-payload"
)

// resumeInWorld has the runtime look at a run of the world: it publishes a message that has the reason and the payload in its
// headers (HTTP-61, HTTP-62). What is absent has none (HTTP-63).
func (c *call) resumeInWorld(ctx context.Context, tx storage.Tx, p *resumeParams) (answer, error) {
	headers := map[string]string{}
	if p.Reason != nil {
		headers[resumeReason] = percentEncoded(*p.Reason)
	}
	if p.Payload != nil {
		headers[resumePayload] = p.ascii
	}
	_, err := c.config.World.In(tx).Resume(ctx, p.RunID, headers)
	if e, ok := errors.AsType[*world.Error](err); ok {
		switch e.Status {
		case http.StatusNotFound:
			return answer{}, errNoRun()
		case http.StatusConflict:
			return answer{}, newProblem(http.StatusConflict, "run_terminal", e.Message+".")
		}
		return answer{}, invalid(issue{"", e.Message})
	}
	return answer{body: wire.Accepted{Accepted: true}}, err
}

// percentEncoded returns s with each byte as %XX that is no visible character of ASCII, or a percent sign: what
// decodeURIComponent decodes.
func percentEncoded(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c > ' ' && c < 0x7f && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// inASCII returns JSON without blanks, and with other characters than those of ASCII as \uXXXX.
func inASCII(raw json.RawMessage) string {
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		panic(fmt.Sprintf("control: a payload is no JSON: %v", err)) // the body was
	}
	var b strings.Builder
	for _, r := range compact.String() {
		if r < 0x7f {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, "\\u%04x", unit)
		}
	}
	return b.String()
}

type worldParams struct {
	Area   string `json:"area" in:"path"`
	Action string `json:"action" in:"path"`
}

// callWorld has the world answer a call of a runtime. It may wait for messages or for chunks of a stream: until the client
// goes, or Close.
func callWorld(_ context.Context, c *call, _ *worldParams) (answer, error) {
	if c.config.World == nil {
		return answer{}, notConfigured(noWorld)
	}
	body, bad := c.exchange.read()
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
		c.world.ServeHTTP(w, r)
	}}, nil
}
