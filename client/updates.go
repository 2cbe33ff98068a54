package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/internal/backoff"
)

// CallUpdate calls an update, waits for the answer and decodes it into result, a pointer or nil. See
// engine.Update.Call. An update without an ID gets a random one, so that its attempts are one update. It
// asks the control plane again and again, each time for up to half a minute, for as long as the context
// lasts.
//
// A request whose Start has options cannot be sent this way: the error wraps errors.ErrUnsupported, and
// nothing is sent. Other errors, beside those of every call: a *engine.RejectedError; a
// *engine.UpdateError, without a Stack unless the key has ops:read; engine.ErrMismatch; a
// *engine.TerminalError; engine.ErrNotFound; engine.ErrExists; engine.ErrBusy; engine.ErrInvalid; a
// *engine.DecodeError if the answer was encoded by a codec that Options.Codecs does not have.
func (c *Client) CallUpdate(ctx context.Context, r *weft.UpdateRequest, result any) error {
	run := r.WorkflowID
	var start *wire.SignalStart
	if r.Start != nil {
		if run != "" {
			return fmt.Errorf("client: update %q: %w: WorkflowID must be empty if there is a Start", r.Update, weft.ErrInvalid)
		}
		var err error
		if start, err = startOf(r.Start); err != nil {
			return fmt.Errorf("client: update %q: %w", r.Update, err)
		}
		if run = r.Start.ID; run == "" {
			run = "wrun_" + rand.Text()
		}
	}
	what := fmt.Sprintf("update %q of workflow %q", r.Update, run)
	input, err := encoded(what, "input", r.Input)
	if err != nil {
		return err
	}
	id := rand.Text()
	if r.ID != nil {
		id = *r.ID
	}
	for begun := false; ; begun = true {
		var answer wire.UpdateAnswer
		asked, wait := time.Now(), longest
		if deadline, ok := ctx.Deadline(); ok {
			wait = max(min(wait, time.Until(deadline)).Truncate(time.Second), time.Second)
		}
		q := &request{
			what: what, method: http.MethodPost, path: path("runs", run, "updates", r.Update), query: url.Values{"wait": {seconds(wait)}},
			body: wire.CallUpdate{Input: input, UpdateID: &id, Start: start}, writes: true, begun: begun, wait: wait,
			about: subject{run: run, update: r.Update, updateID: id},
		}
		a, err := c.call(ctx, q, &answer)
		if err != nil {
			return err
		}
		if a.status == http.StatusOK {
			if result == nil {
				return nil
			}
			if err := c.decodePayload(ctx, answer.Result, result); err != nil {
				return fmt.Errorf("client: result of update %q of %q: %w", r.Update, run, err)
			}
			return nil
		}
		start = nil // the run has been there: it is not started once more if it is purged meanwhile
		// A control plane that closes answers at once.
		if time.Since(asked) < time.Second && !backoff.Wait(ctx, time.Second) || ctx.Err() != nil {
			return c.interrupted(ctx, q, "the run to answer it", true, nil)
		}
	}
}
