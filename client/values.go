package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/internal/backoff"
)

// ReadValue decodes a value that a workflow has published into value, a pointer. See
// engine.Value.Read.
//
// Errors, beside those of every call: engine.ErrNotFound if there is no such workflow; a
// *engine.NoValueError, which wraps engine.ErrNotFound, if it has not published the value; a
// *engine.DecodeError if it was encoded by a codec that Options.Codecs does not have.
func (c *Client) ReadValue(ctx context.Context, id, name string, value any) error {
	var v wire.Value
	if _, err := c.call(ctx, valueRequest(id, name), &v); err != nil {
		return err
	}
	return c.decodeValue(ctx, id, &v, value)
}

func valueRequest(id, name string) *request {
	return &request{
		what: fmt.Sprintf("value %q of workflow %q", name, id), method: http.MethodGet,
		path: path("runs", id, "values", name), about: subject{run: id, value: name},
	}
}

func (c *Client) decodeValue(ctx context.Context, id string, v *wire.Value, into any) error {
	if err := c.decodePayload(ctx, v.Value, into); err != nil {
		return fmt.Errorf("client: value %q of %q: %w", v.Name, id, err)
	}
	return nil
}

// AwaitValue calls enough with a value, and again with later ones, until it returns true or an error.
// The argument of enough decodes the value into a pointer. See engine.Value.Await. It asks the control
// plane again and again, each time for up to half a minute, for as long as the context lasts. Errors:
// those of ReadValue, except that it waits for a value that is not published yet; a *engine.TerminalError
// if the workflow has ended and its value is not enough.
func (c *Client) AwaitValue(ctx context.Context, id, name string, enough func(decode func(value any) error) (bool, error)) error {
	version := ""
	for {
		var v wire.Value
		asked, wait := time.Now(), longest
		if deadline, ok := ctx.Deadline(); ok {
			wait = max(min(wait, time.Until(deadline)).Truncate(time.Second), 0)
		}
		q := valueRequest(id, name)
		q.query, q.wait, q.about.awaits = url.Values{"wait": {seconds(wait)}}, wait, true
		if version != "" {
			q.query.Set("after", version)
		}
		_, err := c.call(ctx, q, &v)
		_, none := errors.AsType[*weft.NoValueError](err)
		changed := false
		switch {
		case none: // it is not published yet
		case err != nil:
			return err
		case v.Version != version:
			version, changed = v.Version, true
			done, err := enough(func(value any) error { return c.decodeValue(ctx, id, &v, value) })
			if done || err != nil {
				return err
			}
		}
		if status := checkpoint.Status(v.Status); status.Terminal() {
			return &weft.TerminalError{WorkflowID: id, Status: status}
		}
		// A control plane that closes, or has too many who wait, answers at once.
		if !changed && time.Since(asked) < time.Second && !backoff.Wait(ctx, time.Second) || ctx.Err() != nil {
			return c.interrupted(ctx, q, "another value", false, nil)
		}
	}
}

// Values yields the values that a workflow has published, in the order of their names, without decoding
// them. An error ends the sequence.
func (c *Client) Values(ctx context.Context, id string) iter.Seq2[weft.ValueInfo, error] {
	return func(yield func(weft.ValueInfo, error) bool) {
		for r := (weft.PageRequest{}); ; {
			p, err := pageOf[wire.Value](ctx, c, fmt.Sprintf("values of workflow %q", id), path("runs", id, "values"), nil, r, subject{run: id})
			if err != nil {
				yield(weft.ValueInfo{}, err)
				return
			}
			for _, v := range p.Data {
				if !yield(weft.ValueInfo{Name: v.Name, SetAt: v.SetAt, Value: encodedOf(v.Value)}, nil) {
					return
				}
			}
			if r.Cursor = p.Next; !p.HasMore {
				return
			}
		}
	}
}

// encodedOf returns a payload as it is stored: a control plane shows JSON, or {codec, base64}.
func encodedOf(data json.RawMessage) weft.Encoded {
	var other struct {
		Codec  string  `json:"codec"`
		Base64 *string `json:"base64"`
	}
	if json.Unmarshal(data, &other) == nil && other.Codec != "" && other.Base64 != nil {
		if raw, err := base64.StdEncoding.DecodeString(*other.Base64); err == nil {
			return weft.Encoded{Codec: other.Codec, Data: raw}
		}
	}
	return weft.Encoded{Codec: weft.JSON.Name(), Data: data}
}
