package control

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/weft-go/weft/control/internal/deployments"
	"github.com/weft-go/weft/control/internal/forwarded"
	"github.com/weft-go/weft/control/internal/keyring"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/internal/httpheader"
)

// Times of one request.
const (
	bodyPatience = 30 * time.Second // within which the body must come

	// Within which the rest of a body must come that nobody wants. Otherwise the connection ends.
	unreadPatience = time.Second

	hiddenWait = 5 * time.Second // the longest wait if middleware hides the connection's deadlines
)

const correlationHeader = "X-Workflow-Correlation-Id"

// An exchange is one HTTP request and its answer.
type exchange struct {
	*Plane
	w     http.ResponseWriter
	r     *http.Request
	conn  *http.ResponseController
	began time.Time
	from  forwarded.Peer

	correlationID string
	consumed      bool // nothing is left of the body, or the server knows that the connection ends
	counted       bool // a request of JSON-RPC in the body was counted by the rate
	refused       bool // one was refused before that
}

// newExchange begins an answer with what every answer has.
func (p *Plane) newExchange(w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{
		Plane: p, w: w, r: r, conn: http.NewResponseController(w), began: time.Now(),
		from: forwarded.Proxies(p.config.Proxies).Peer(r), correlationID: correlation(r.Header),
	}
	httpheader.Set(w.Header(), correlationHeader, x.correlationID, "X-Content-Type-Options", "nosniff", "Cache-Control", "no-store")
	if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
		// It may have had a Content-Length, too, which net/http does not show. A proxy that went by that takes what
		// follows for another request: RFC 9112, section 6.1, has the connection end.
		w.Header().Set("Connection", "close")
	}
	return x
}

// ServeHTTP serves one request. The order of its checks is: path, https, token, scope, rate, media type,
// size, header, strict JSON, shape; then the operation's own. What is refused before a commit stores
// nothing.
func (p *Plane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := p.newExchange(w, r)
	op, path, allowed := p.router.find(r.Method, r.URL)
	switch {
	case op == nil && allowed != nil:
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		x.refuse(operation.NewProblem(http.StatusMethodNotAllowed, "method_not_allowed", "The method is not allowed here."))
		return
	case op == nil:
		x.refuse(operation.NotFound("Path"))
		return
	}
	if p.enter() {
		defer p.leave()
		x.serve(op, path)
		return
	}
	switch {
	case op.Unsecured:
		x.serve(op, path)
	case op.Batch:
		x.refuseRPC(operation.Closing())
	default:
		x.refuse(operation.Closing())
	}
}

// serve answers a call of an operation.
func (x *exchange) serve(op *operation.Operation, path map[string]string) {
	c := &operation.Call{
		Env: x.env, Op: op, Resource: op.Resource(path), CorrelationID: x.correlationID,
		Body: x.read, From: x.from.Address, Agent: x.r.UserAgent(), Request: x.r, Conn: x.conn, Wait: operation.MostWait, Behalf: behalf(x.r.Header),
	}
	c.Note.RunID = path["runId"]
	a, bad := x.answer(x.r.Context(), c, path)
	if a.End != nil {
		defer a.End()
	}
	x.finish(c, a, bad)
}

// guarded makes a panic a problem.
func guarded(bad **operation.Problem) {
	if v := recover(); v != nil {
		*bad = operation.Internal(fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
	}
}

// answer makes the checks that need no body, and runs the operation.
func (x *exchange) answer(ctx context.Context, c *operation.Call, path map[string]string) (a operation.Answer, bad *operation.Problem) {
	defer guarded(&bad)
	op := c.Op
	if x.conn.SetWriteDeadline(time.Time{}) != nil { // a host's limit might pass while the call waits
		c.Wait = hiddenWait
	}
	bad = x.secure(x.r, op, x.from)
	if bad == nil && op.Scopes != nil {
		c.Who, bad = x.keys.Authenticate(ctx, x.r.Header, x.from.Address)
	}
	if bad == nil {
		bad = op.Permits(c.Who)
	}
	if bad == nil && c.Who != nil && !op.Batch {
		var a keyring.Allowance
		a, bad = x.keys.Permit(ctx, c.Who)
		a.Header(x.w.Header())
	}
	if bad != nil {
		return operation.Answer{}, bad
	}
	return x.run(ctx, c, path)
}

// run reads the request and runs the operation.
func (x *exchange) run(ctx context.Context, c *operation.Call, path map[string]string) (operation.Answer, *operation.Problem) {
	var body []byte
	if !c.Op.Unread {
		var bad *operation.Problem
		if body, bad = x.body(c.Op); bad != nil {
			if c.Op.Batch {
				bad = x.refusedBatch(ctx, c, bad)
			}
			return operation.Answer{}, bad
		}
	}
	if bad := readIdempotencyKey(c, x.r.Header); bad != nil {
		return operation.Answer{}, bad
	}
	if c.Op.Batch {
		return x.rpc(ctx, c, body)
	}
	if len(body) > 0 {
		if err := operation.CheckJSON(body, operation.MaxDepth); err != nil {
			return operation.Answer{}, operation.Invalid(operation.Issue{Path: err.Path, Problem: err.Problem})
		}
	}
	query, err := url.ParseQuery(x.r.URL.RawQuery)
	if err != nil {
		return operation.Answer{}, operation.Invalid(operation.Issue{Problem: "the query is not well-formed"})
	}
	raw, issues := c.Op.Gather(path, query, body)
	if len(issues) > 0 {
		return operation.Answer{}, operation.Invalid(issues...)
	}
	return c.Perform(ctx, raw)
}

// body reads the body of a request.
func (x *exchange) body(op *operation.Operation) ([]byte, *operation.Problem) {
	r := x.r
	if !op.TakesBody() || r.ContentLength == 0 || op.Upload && deployments.IsMultipart(r.Header) {
		return nil, nil
	}
	if len(r.Header["Content-Encoding"]) > 0 {
		return nil, operation.NewProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "The body must not have a Content-Encoding")
	}
	if (len(r.Header["Content-Type"]) > 0 || r.ContentLength > 0) && !isJSON(r.Header) {
		return nil, notJSON()
	}
	body, bad := x.read()
	if bad == nil && len(body) > 0 && !isJSON(r.Header) {
		return nil, notJSON()
	}
	return body, bad
}

// read reads a body of any type.
func (x *exchange) read() ([]byte, *operation.Problem) {
	r, most := x.r, x.config.MaxBody
	if r.ContentLength > most {
		return nil, operation.TooLarge(most)
	}
	x.consumed = true
	if err := x.conn.SetReadDeadline(time.Now().Add(bodyPatience)); err == nil {
		// Without a deadline, the server notices a client that leaves, however long it waits.
		defer x.conn.SetReadDeadline(time.Time{})
	}
	var body bytes.Buffer
	_, err := body.ReadFrom(http.MaxBytesReader(x.w, r.Body, most))
	switch _, over := errors.AsType[*http.MaxBytesError](err); {
	case over:
		return nil, operation.TooLarge(most)
	case errors.Is(err, os.ErrDeadlineExceeded):
		x.w.Header().Set("Connection", "close")
		return nil, operation.TooSlow("The body did not come in time")
	case err != nil && !errors.Is(err, io.EOF):
		return nil, operation.NewProblem(http.StatusBadRequest, "invalid_request", "The body could not be read")
	}
	return body.Bytes(), nil
}

func notJSON() *operation.Problem {
	return operation.NewProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "The body must be application/json")
}

func isJSON(h http.Header) bool {
	values := h["Content-Type"]
	if len(values) != 1 {
		return false
	}
	t, params, err := mime.ParseMediaType(values[0])
	charset, has := params["charset"]
	return err == nil && t == "application/json" && (!has || strings.EqualFold(charset, "utf-8"))
}

// readIdempotencyKey reads the idempotency key of a REST request.
func readIdempotencyKey(c *operation.Call, h http.Header) *operation.Problem {
	if c.Op.Key == operation.KeyUnused {
		return nil
	}
	key, err := httpheader.Key(h)
	switch {
	case errors.Is(err, httpheader.ErrNoKey) && c.Op.Key == operation.KeyOptional:
	case errors.Is(err, httpheader.ErrNoKey):
		return keyRequiredProblem()
	case err != nil:
		return operation.NewProblem(http.StatusBadRequest, "idempotency_key_invalid", err.Error())
	}
	c.IdempotencyKey = key
	return nil
}

func keyRequiredProblem() *operation.Problem {
	p := operation.NewProblem(http.StatusBadRequest, "idempotency_required", "Idempotency-Key header is required")
	p.Recovery = "Send the header with a key that names this request, and the same one if you send it again."
	return p
}

// finish answers, and tells the audit and Config.Observe.
func (x *exchange) finish(c *operation.Call, a operation.Answer, bad *operation.Problem) {
	if bad == nil && c.Op.Hosted != "" {
		x.host(c, a)
		return
	}
	x.account(x.r.Context(), c, a, bad, time.Since(x.began))
	switch {
	case bad != nil && c.Op.Batch:
		x.refuseRPC(bad)
		return
	case bad != nil:
		x.refuse(bad)
		return
	}
	x.send(a)
}

// host has a handler of the host answer, and tells afterwards what it answered.
func (x *exchange) host(c *operation.Call, a operation.Answer) {
	w := &statusWriter{ResponseWriter: x.w}
	x.w = w
	done := false
	defer func() {
		status := w.code()
		if !done && w.status == 0 { // it panicked
			status = http.StatusInternalServerError
		}
		var bad *operation.Problem
		if status >= 400 {
			bad = operation.NewProblem(status, c.Op.Hosted, "The handler has refused the request")
		}
		x.account(x.r.Context(), c, operation.Answer{Status: status}, bad, time.Since(x.began))
	}()
	x.send(a)
	done = true
}

// A statusWriter knows the status that was written.
type statusWriter struct {
	http.ResponseWriter
	status int // 0: none yet
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(p []byte) (int, error) {
	w.status = w.code()
	return w.ResponseWriter.Write(p)
}

func (w *statusWriter) Flush() { http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap lets a http.ResponseController find the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) code() int { return cmp.Or(w.status, http.StatusOK) }

// account tells the log, the audit and Config.Observe what became of a call.
func (p *Plane) account(ctx context.Context, c *operation.Call, a operation.Answer, bad *operation.Problem, took time.Duration) {
	status, code := a.Code(), ""
	if bad != nil {
		status, code = bad.Status, bad.Code
	}
	if bad != nil && status >= 500 && !operation.Gone(ctx, bad.Cause) {
		c.Log.Error("an operation failed", "operation", c.Op.Name, "status", status, "code", code, "correlation", c.CorrelationID, "error", bad.Cause)
	}
	c.Audit(ctx, status, code)
	if p.config.Observe != nil {
		r := Report{Operation: c.Op.Name, Lane: c.Op.Lane(), RPC: c.Request == nil, Status: status, Code: code, Deduped: c.Note.Deduped, Took: took}
		if c.Who != nil {
			r.KeyID = c.Who.ID
		}
		defer func() {
			if p := recover(); p != nil {
				c.Log.Error("Config.Observe panicked", "panic", p)
			}
		}()
		p.config.Observe(ctx, r)
	}
}

// refuse answers with a problem.
func (x *exchange) refuse(p *operation.Problem) {
	q := *p
	if q.CorrelationID == "" {
		q.CorrelationID = x.correlationID
	}
	h := q.Header()
	h.Set("Content-Type", "application/problem+json")
	x.send(operation.Answer{Status: q.Status, Header: h, Body: &q})
}

// refuseRPC answers a body of JSON-RPC as a whole with a problem.
func (x *exchange) refuseRPC(p *operation.Problem) {
	q := *p
	q.CorrelationID = x.correlationID
	status := http.StatusOK
	switch q.Status {
	case http.StatusUnauthorized, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusServiceUnavailable:
		status = q.Status
	}
	body := rpcError("", rpcCode(q.Status), q.Message, &rpcProblem{Problem: &q, HTTPStatus: q.Status, RetryAfter: q.RetryAfter})
	x.send(operation.Answer{Status: status, Header: q.Header(), Body: body})
}

// send writes an answer, whatever time limit the host has for that.
func (x *exchange) send(a operation.Answer) {
	for name, values := range a.Header {
		x.w.Header()[name] = values
	}
	if a.Stream != nil {
		a.Stream(x.w, x.r)
		return
	}
	x.conn.SetWriteDeadline(time.Now().Add(operation.WritePatience))
	if x.r.ContentLength != 0 && (!x.consumed || a.Code() >= http.StatusBadRequest) {
		// The server reads the rest of the body before it answers, or before it closes the connection: not for as long
		// as the client likes. What is refused may have been read in part.
		x.conn.SetReadDeadline(time.Now().Add(unreadPatience))
	}
	body, err := a.JSON()
	if err != nil {
		x.env.Log.Error("an answer cannot be encoded", "correlation", x.correlationID, "error", err)
		x.w.WriteHeader(http.StatusInternalServerError)
		return
	}
	h := x.w.Header()
	if body != nil {
		if h.Get("Content-Type") == "" {
			h.Set("Content-Type", "application/json")
		}
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	x.w.WriteHeader(a.Code())
	x.w.Write(body) // a client that has left is not told
}

// correlation returns the id by which a client finds its request in logs and audit: its own, or a
// random one.
func correlation(h http.Header) string {
	if values := h[correlationHeader]; len(values) == 1 && visible(values[0], 128) {
		return values[0]
	}
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // a UUID of version 4
	text := make([]byte, 0, 36)
	for i, part := range [][]byte{b[:4], b[4:6], b[6:8], b[8:10], b[10:]} {
		if i > 0 {
			text = append(text, '-')
		}
		text = hex.AppendEncode(text, part)
	}
	return string(text)
}

// behalf returns the run on whose behalf a request is made, if its client says so.
func behalf(h http.Header) string {
	if values := h["X-Workflow-Run-Id"]; len(values) == 1 && operation.RunIDProblem(values[0]) == "" {
		return values[0]
	}
	return ""
}

// visible reports whether s is 1 to most bytes of visible ASCII.
func visible(s string, most int) bool {
	return s != "" && len(s) <= most && !strings.ContainsFunc(s, func(c rune) bool { return c < 0x21 || c > 0x7e })
}
