package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/weft-go/weft/engine"
)

// mostWait is how long a request may wait for a result.
const mostWait = 60 * time.Second

type resultParams struct {
	RunID string `json:"runId" in:"path"`
	Wait  *int   `json:"wait" in:"query"` // seconds
}

func (p *resultParams) check() []issue {
	if p.Wait != nil && (*p.Wait < 0 || *p.Wait > int(mostWait/time.Second)) {
		return []issue{{"/wait", "must be 0 to 60"}}
	}
	return nil
}

type resultBody struct {
	RunID  string          `json:"runId"`
	Status string          `json:"status"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *failureBody    `json:"error,omitempty"`
}

// runResult waits for the end of a run, as long as the client asks for.
func runResult(ctx context.Context, c *call, p *resultParams) (answer, error) {
	id, err := c.at(p.RunID)
	if err != nil {
		return answer{}, err
	}
	asked := time.Duration(0)
	if p.Wait != nil {
		asked = time.Duration(*p.Wait) * time.Second
	} else if c.request != nil {
		asked = preferredWait(c.request.Header)
	}
	b, ended, err := c.outcome(ctx, id)
	if err == nil && !ended {
		if wait := c.patience(asked); wait > 0 {
			if err := c.awaitEnd(ctx, id, wait); err != nil {
				return answer{}, err
			}
			b, ended, err = c.outcome(ctx, id)
		}
	}
	if err != nil {
		return answer{}, err
	}
	b.RunID = p.RunID
	if !ended {
		return answer{status: http.StatusAccepted, body: b}, nil
	}
	return answer{body: b}, nil
}

// preferredWait is how long a client would like to wait: the wait of a Prefer header (RFC 7240, section
// 4.3). A header that is no dictionary of RFC 9651 is ignored, as RFC 7240 allows.
func preferredWait(h http.Header) time.Duration {
	values := h["Prefer"]
	if len(values) == 0 {
		return 0
	}
	prefer, err := httpsfv.UnmarshalDictionary(values)
	if err != nil {
		return 0
	}
	member, _ := prefer.Get("wait")
	item, _ := member.(httpsfv.Item)
	seconds, _ := item.Value.(int64)
	return time.Duration(min(max(seconds, 0), int64(mostWait/time.Second))) * time.Second
}

// awaitEnd waits until the run has ended, the time is up, the plane closes or the key is revoked. It is
// an error only if it cannot find out.
func (c *call) awaitEnd(ctx context.Context, id string, wait time.Duration) error {
	release, ok := c.waits.poll(c.who)
	if !ok {
		return nil // too many wait: this one is answered at once
	}
	defer release()
	ctx, cancel := c.watched(ctx, wait)
	defer cancel()
	err := c.engine.Result(ctx, id, "", nil)
	if failed := (*engine.WorkflowError)(nil); err == nil || errors.As(err, &failed) || errors.Is(err, engine.ErrCancelled) {
		return nil
	}
	if ctx.Err() != nil {
		return waitEnded(ctx)
	}
	return err
}
