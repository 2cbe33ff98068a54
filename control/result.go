package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/storage"
)

type resultParams struct {
	RunID string `json:"runId" in:"path"`
	Wait  *int   `json:"wait,omitempty" in:"query"` // seconds
}

func (p *resultParams) check() []issue {
	if p.Wait != nil && (*p.Wait < 0 || *p.Wait > int(mostWait/time.Second)) {
		return []issue{{"/wait", "must be 0 to 60"}}
	}
	return nil
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
	if err == nil && !ended && asked > 0 {
		if err := c.awaitEnd(ctx, id, asked); err != nil {
			return answer{}, err
		}
		b, ended, err = c.outcome(ctx, id)
	}
	if err != nil {
		return answer{}, err
	}
	b.RunID = p.RunID
	if !ended {
		return answer{status: http.StatusAccepted, body: wire.RunPending{RunID: b.RunID, Status: b.Status}}, nil
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

// awaitEnd waits until the run has ended, the time is up or the plane closes. It is an error if it
// cannot find out, or if the key was revoked meanwhile.
func (c *call) awaitEnd(ctx context.Context, id string, wait time.Duration) error {
	ctx, release, ok := c.waits(ctx, wait)
	defer release()
	if !ok {
		return nil // it is answered at once
	}
	err := c.engine.Result(ctx, id, "", nil)
	failed := (*engine.WorkflowError)(nil)
	switch {
	case err == nil, errors.As(err, &failed), errors.Is(err, engine.ErrCancelled):
		return nil
	case ctx.Err() == nil:
		return err
	case !c.stillValid(context.WithoutCancel(ctx), c.who):
		return unknownKey()
	}
	return nil
}

// outcome returns how a run ended, as a result, or its status if it has not.
func (c *call) outcome(ctx context.Context, id string) (b wire.RunResult, ended bool, err error) {
	for {
		wf, err := c.record(ctx, id)
		if err != nil {
			return b, false, err
		}
		if !wf.Status.Terminal() {
			return wire.RunResult{Status: string(wf.Status)}, false, nil
		}
		out, err := journal.ReadOutput(ctx, c.store, wf)
		if err == nil {
			b.Status, b.Result, b.Error = string(wf.Status), nil, c.failureOf(out)
			if wf.Status == checkpoint.StatusCompleted {
				b.Result = resultOf(out)
			}
			return b, true, nil
		}
		if again, err := c.changed(ctx, wf, err); !again {
			return b, false, err
		}
	}
}

// changed reports whether a run was purged or resumed after wf was read, so that a record that
// belongs to it is missing, or another one. Otherwise it returns the error with which it was read.
func (c *call) changed(ctx context.Context, wf *journal.Workflow, cause error) (bool, error) {
	if !errors.Is(cause, storage.ErrCorrupt) {
		return false, cause
	}
	now, err := c.record(ctx, wf.ID)
	if err != nil {
		return false, err
	}
	return !bytes.Equal(now.Raw(), wf.Raw()), cause
}

// resultOf returns the result of a run that completed. It is never absent.
func resultOf(out *journal.Output) json.RawMessage {
	if out.Data == nil {
		return json.RawMessage("null")
	}
	return jsonOf(out.Codec, out.Data)
}

// failureOf returns why a run has no result, or nil.
func (c *call) failureOf(out *journal.Output) *wire.StructuredError {
	if out.Status == checkpoint.StatusCompleted {
		return nil
	}
	e := &wire.StructuredError{Message: c.who.visible(out.Error), Code: out.Sentinel}
	if c.who.has(scopeOpsRead) {
		e.Stack = out.Stack
	}
	return e
}

// addData adds the input of a run and, if it has ended, its outcome.
func (c *call) addData(ctx context.Context, id string, b *wire.Run) error {
	for {
		wf, err := c.record(ctx, id)
		if err != nil {
			return err
		}
		in, err := journal.ReadInput(ctx, c.store, wf)
		var out *journal.Output
		if err == nil && wf.Status.Terminal() && b.Status == string(wf.Status) {
			out, err = journal.ReadOutput(ctx, c.store, wf)
		}
		if err != nil {
			if again, err := c.changed(ctx, wf, err); !again {
				return err
			}
			continue
		}
		b.Input = jsonOf(in.Codec, in.Data)
		if out != nil {
			b.Error = c.failureOf(out)
			if wf.Status == checkpoint.StatusCompleted {
				b.Output = resultOf(out)
			}
		}
		return nil
	}
}
