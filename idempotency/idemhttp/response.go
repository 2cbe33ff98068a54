package idemhttp

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Response is the stored answer of a handler: the result of a guard's effect. Somebody who finds out what became
// of a request whose outcome is unknown gives one to Ledger.Resolve, in activity.CompletedWithResult.
//
// A repetition gets the fields of Header and HeaderBytes, and none of their kind that was set before the guard. Only
// a Content-Encoding of then stays: middleware sets it that compresses answers as they leave.
type Response struct {
	Status int         `json:"status"`           // 200 to 999
	Header http.Header `json:"header,omitempty"` // Content-*, ETag, Last-Modified, Link and Location
	Body   []byte      `json:"body,omitempty"`

	// HeaderBytes has the fields of Header with a value that is not valid UTF-8, which JSON cannot have.
	HeaderBytes map[string][][]byte `json:"header_bytes,omitempty"`
}

const contentEncoding = "Content-Encoding"

// kept says that a header field is stored, by its canonical name. Content-Length is that of the body.
func kept(name string) bool {
	switch name {
	case "Etag", "Last-Modified", "Link", "Location":
		return true
	case "Content-Length":
		return false
	}
	return strings.HasPrefix(name, "Content-")
}

// An answer is what a client gets of a handler: all its header fields, of which a Response has some.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// response is what is stored of a. A Content-Encoding that was set before the guard is not that of the body.
func (a *answer) response(before http.Header) Response {
	r := Response{Status: a.status, Body: a.body}
	for name, values := range a.header {
		switch {
		case !kept(name), name == contentEncoding && slices.Equal(values, before[name]):
		case slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }):
			if r.HeaderBytes == nil {
				r.HeaderBytes = map[string][][]byte{}
			}
			for _, v := range values {
				r.HeaderBytes[name] = append(r.HeaderBytes[name], []byte(v))
			}
		default:
			if r.Header == nil {
				r.Header = http.Header{}
			}
			r.Header[name] = values
		}
	}
	return r
}

// send sends the answer to the handler's own client.
func (a *answer) send(w http.ResponseWriter) {
	h := w.Header()
	clear(h)
	maps.Copy(h, a.header)
	write(w, a.status, a.body)
}

// replay sends a stored answer. It has all of the kept fields: one that was set before the guard, and that it
// does not have, was deleted by the handler. Only a Content-Encoding from before stays, as whoever set it compresses what is sent.
func (r Response) replay(w http.ResponseWriter) {
	h := w.Header()
	maps.DeleteFunc(h, func(name string, _ []string) bool {
		name = http.CanonicalHeaderKey(name)
		return kept(name) && name != contentEncoding
	})
	for name, values := range r.Header {
		if name = http.CanonicalHeaderKey(name); kept(name) {
			h[name] = values
		}
	}
	for name, values := range r.HeaderBytes {
		if name = http.CanonicalHeaderKey(name); kept(name) {
			delete(h, name)
			for _, v := range values {
				h[name] = append(h[name], string(v))
			}
		}
	}
	h.Set("Idempotent-Replayed", "true")
	write(w, r.Status, r.Body)
}

func write(w http.ResponseWriter, status int, body []byte) {
	w.Header().Del("Content-Length")
	if bodyAllowed(status) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(status)
	if len(body) > 0 && bodyAllowed(status) {
		w.Write(body)
	}
}

// bodyAllowed is by RFC 9110, sections 15.3.5 and 15.4.5.
func bodyAllowed(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// A buffer is the ResponseWriter of a guarded handler.
type buffer struct {
	w      http.ResponseWriter // the client's: for its deadline, and header fields that were set before
	header http.Header         // as the handler changes it
	sent   http.Header         // as it was when the handler sent it
	status int                 // 0: the handler has sent no header
	body   []byte
}

func newBuffer(w http.ResponseWriter) *buffer {
	return &buffer{w: w, header: w.Header().Clone()}
}

// Header returns the header fields. Changes after WriteHeader have no effect.
func (b *buffer) Header() http.Header {
	if b.header == nil {
		b.header = http.Header{}
	}
	return b.header
}

// WriteHeader sets the status. As that of net/http, it panics if there is no such status, and only the first
// call has an effect. It ignores 1xx, which are no answers.
func (b *buffer) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("idemhttp: invalid WriteHeader code %d", status))
	}
	if b.status != 0 || status < 200 {
		return
	}
	b.status = status
	b.sent = b.header.Clone()
}

func (b *buffer) Write(p []byte) (int, error) {
	if err := b.writable(); err != nil {
		return 0, err
	}
	b.body = append(b.body, p...)
	return len(p), nil
}

// WriteString is for io.WriteString.
func (b *buffer) WriteString(s string) (int, error) {
	if err := b.writable(); err != nil {
		return 0, err
	}
	b.body = append(b.body, s...)
	return len(s), nil
}

func (b *buffer) writable() error {
	if b.status == 0 {
		b.WriteHeader(http.StatusOK)
	}
	if !bodyAllowed(b.status) {
		return http.ErrBodyNotAllowed
	}
	return nil
}

// FlushError is what an http.ResponseController calls.
func (b *buffer) FlushError() error {
	return fmt.Errorf("idemhttp: an answer leaves as a whole, after it is durable: %w", http.ErrNotSupported)
}

// SetWriteDeadline is what an http.ResponseController calls. A handler that may take longer than the
// server's WriteTimeout needs it.
func (b *buffer) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(b.w).SetWriteDeadline(t)
}

// answer returns what the handler has answered.
func (b *buffer) answer() *answer {
	if b.status == 0 {
		b.WriteHeader(http.StatusOK)
	}
	return &answer{status: b.status, header: b.sent, body: b.body}
}
