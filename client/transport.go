package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/internal/backoff"
)

// mostBody is how large an answer may be, in bytes.
const mostBody = 32 << 20

var errTooLarge = fmt.Errorf("the answer has more than %d bytes", mostBody)

// A request is one call of an operation, whatever number of attempts it takes.
type request struct {
	what       string // for errors: `start workflow "order"`
	method     string
	path       string // below the address, escaped
	query      url.Values
	body       any  // encoded as JSON; nil: none
	raw        *raw // instead of body
	keyed      bool // it takes an idempotency key
	writes     bool // it may change something
	begun      bool // an earlier request of the same call was accepted, so only its own answer says that it had no effect
	unsafe     bool // a repetition has another answer, or another effect: see outcome.untouched
	about      subject
	wait       time.Duration // how long the server is asked to wait
	also       int           // a status, beside those of success, that a control plane may answer it with
	goneIsDone bool          // 404 not_found after an attempt of unknown outcome means that that has succeeded
}

// A raw body has a type of its own.
type raw struct {
	contentType string
	data        []byte
}

// A reply is a successful answer.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// call sends r until an attempt is answered for good, and decodes the answer into out, a pointer or
// nil.
func (c *Client) call(ctx context.Context, r *request, out any) (reply, error) {
	if err := r.check(); err != nil {
		return reply{}, err
	}
	body, contentType, err := r.encode()
	if err != nil {
		return reply{}, err
	}
	key, err := r.idempotencyKey(ctx)
	if err != nil {
		return reply{}, err
	}
	unknown := false // an attempt may have taken effect
	for failures := 1; ; failures++ {
		answered, o, failed := c.try(ctx, r, body, contentType, key)
		if failed == nil {
			return answered, c.decode(r, answered, out)
		}
		if r.goneIsDone && unknown && o.status == http.StatusNotFound && o.code == string(wire.CodeNotFound) {
			return reply{status: http.StatusNoContent}, nil
		}
		unknown = r.writes && (o.leaves(unknown) || r.begun && o.status != http.StatusConflict)
		if o.status == 0 && ctx.Err() != nil {
			return reply{}, c.interrupted(ctx, r, "an answer of "+c.base, unknown, nil)
		}
		failed.Unknown = unknown
		if !o.again(failures, !r.unsafe) {
			return reply{}, failed
		}
		pause := o.pause(failures, c.random)
		if !fits(ctx, pause) || !backoff.Sleep(ctx, pause) {
			return reply{}, c.interrupted(ctx, r, "the next attempt, after "+failed.answer(), unknown, failed)
		}
	}
}

// check returns an error unless the request has a path.
func (r *request) check() error {
	if r.path == "" {
		return fmt.Errorf("%w: %s: an id or a name is empty, or is \".\" or \"..\"", weft.ErrInvalid, r.what)
	}
	return nil
}

// fits reports whether a pause is over before the deadline of ctx.
func fits(ctx context.Context, pause time.Duration) bool {
	end, ok := ctx.Deadline()
	return !ok || time.Until(end) >= pause
}

// try makes one attempt. If it has failed, try returns how, and the error of the call in case there is
// no other attempt.
func (c *Client) try(ctx context.Context, r *request, body []byte, contentType, key string) (reply, outcome, *Error) {
	ctx, cancel := context.WithTimeout(ctx, c.attempt+r.wait)
	defer cancel()
	answered, err := c.send(ctx, r, body, contentType, key)
	if err != nil {
		return reply{}, outcome{err: err}, c.noAnswer(r, err)
	}
	if answered.status >= 200 && answered.status < 300 {
		if kind := mediaType(answered.header); answered.status != http.StatusNoContent && (kind != "application/json" || len(answered.body) == 0) {
			o := outcome{status: answered.status, code: CodeBadAnswer, retry: "never"}
			return reply{}, o, badAnswer(r, answered, fmt.Errorf("it has %d bytes of the type %q", len(answered.body), kind))
		}
		return answered, outcome{}, nil
	}
	if answered.status == r.also && answered.header.Get(correlationHeader) != "" && mediaType(answered.header) == "application/json" {
		return answered, outcome{}, nil
	}
	o, failed := outcomeOf(r, answered)
	return reply{}, o, failed
}

// outcomeOf returns how an attempt has failed that was answered.
func outcomeOf(r *request, a reply) (outcome, *Error) {
	failed := errorOf(r, a, time.Now())
	o := outcome{status: failed.Status, retry: failed.Retry, retryAfter: failed.RetryAfter, code: failed.Code}
	if failed.Message == "Path not found" { // a control plane at another path, which does not know of the attempts before
		o.code = CodeBadAnswer
	}
	return o, failed
}

// noAnswer is the error of an attempt that was not answered.
func (c *Client) noAnswer(r *request, err error) *Error {
	return &Error{Code: CodeNoAnswer, Message: c.cause(err), Retry: "same-key", call: r.what, err: err}
}

// send sends a request and reads the whole answer.
func (c *Client) send(ctx context.Context, r *request, body []byte, contentType, key string) (reply, error) {
	header := http.Header{"Accept": {"application/json, application/problem+json"}}
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	if key != "" {
		header.Set("Idempotency-Key", quoted(key))
	}
	a, err := c.open(ctx, r, body, header)
	if err != nil {
		return reply{}, err
	}
	defer a.Body.Close()
	return readReply(a)
}

// open sends a request and returns the answer, whose Body the caller closes.
func (c *Client) open(ctx context.Context, r *request, body []byte, header http.Header) (*http.Response, error) {
	target := c.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	q, err := http.NewRequestWithContext(ctx, r.method, target, reader)
	if err != nil {
		return nil, err
	}
	q.Header = header
	c.authorize(header)
	header.Set("User-Agent", "weft-client")
	return c.http.Do(q)
}

// readReply reads the whole answer.
func readReply(a *http.Response) (reply, error) {
	data, err := io.ReadAll(io.LimitReader(a.Body, mostBody+1))
	if err != nil {
		return reply{}, err
	}
	if len(data) > mostBody {
		return reply{}, errTooLarge
	}
	return reply{a.StatusCode, a.Header, data}, nil
}

// cause returns why there was no answer, without the address, which an *url.Error repeats.
func (c *Client) cause(err error) string {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("%s has not answered within %v", c.base, c.attempt)
	}
	return fmt.Sprintf("%s has not answered: %v", c.base, err)
}

// interrupted is the error of a call whose context ends before there is an answer, or before it
// could be attempted again. last is the answer to the attempt before, or nil.
func (c *Client) interrupted(ctx context.Context, r *request, waitedFor string, unknown bool, last *Error) error {
	ended := ctx.Err()
	if ended == nil {
		ended = context.DeadlineExceeded // it would end in the pause
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(ended, cause) {
		ended = fmt.Errorf("%w: %w", ended, cause)
	}
	e := &weft.InterruptedError{Call: r.what, Unknown: unknown, WaitedFor: waitedFor, ReadOnly: !r.writes, Ended: ended}
	if last != nil {
		e.Err = last
	}
	return e
}

// decode decodes the body of a successful answer.
func (c *Client) decode(r *request, a reply, out any) error {
	if out == nil || a.status == http.StatusNoContent {
		return nil
	}
	if err := json.Unmarshal(a.body, out); err != nil {
		return badAnswer(r, a, err)
	}
	return nil
}

// badAnswer is the error of an answer with a status of success that a control plane does not give.
func badAnswer(r *request, a reply, err error) *Error {
	return &Error{Status: a.status, Code: CodeBadAnswer, Message: "the answer is not the JSON of a control plane: " + err.Error(), Retry: "never", Unknown: r.writes, call: r.what, err: err} // no Body: it may have a secret
}

// encode returns the body of a request and its type. A value that has no JSON is refused before
// anything is sent.
func (r *request) encode() (body []byte, contentType string, err error) {
	switch {
	case r.raw != nil:
		return r.raw.data, r.raw.contentType, nil
	case r.body == nil:
		return nil, "", nil
	}
	body, err = json.Marshal(r.body)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %s: the request cannot be encoded as JSON: %w", weft.ErrInvalid, r.what, err)
	}
	return body, "application/json", nil
}

type idempotencyKey struct{}

// WithIdempotencyKey returns a context with which a call has this idempotency key: 1 to 255
// visible ASCII characters. A call that is made again with the same key and arguments, also by
// another process and within the time for which the control plane remembers keys (24 h), is
// answered with what the first was answered. Use the context for one call. Without a key, a call
// has a random one, which its attempts share.
func WithIdempotencyKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, idempotencyKey{}, key)
}

// idempotencyKey returns the key of a call, or "" if it takes none.
func (r *request) idempotencyKey(ctx context.Context) (string, error) {
	if !r.keyed {
		return "", nil
	}
	given, ok := ctx.Value(idempotencyKey{}).(string)
	if !ok {
		return rand.Text(), nil
	}
	if len(given) < 1 || len(given) > 255 {
		return "", fmt.Errorf("%w: %s: the idempotency key has %d bytes, and must have 1 to 255", weft.ErrInvalid, r.what, len(given))
	}
	for _, b := range []byte(given) {
		if b < '!' || b > '~' {
			return "", fmt.Errorf("%w: %s: the idempotency key %q is not visible ASCII", weft.ErrInvalid, r.what, given)
		}
	}
	return given, nil
}

// quoted returns a key as the header has it: a string of RFC 9651 if it has a character that means
// something in a header.
func quoted(key string) string {
	if !strings.ContainsAny(key, ",;\"\\") {
		return key
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}

// transferTime is how long a body takes at the least rate that a control plane accepts, 64 KiB/s.
func transferTime(bytes int) time.Duration {
	return time.Duration(bytes) * time.Second / (64 << 10)
}

// path returns the path of parts, such as ids, each escaped. It is "" if a part is empty, "." or "..":
// a proxy would take these for another path.
func path(parts ...string) string {
	var s strings.Builder
	s.WriteString("/v1")
	for _, p := range parts {
		if p == "" || p == "." || p == ".." {
			return ""
		}
		s.WriteString("/" + url.PathEscape(p))
	}
	return s.String()
}

// seconds returns a number of whole seconds for a query.
func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
