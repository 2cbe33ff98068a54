package control

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/weft-go/weft/idempotency"
)

// Values of problem.Retry: whether a client may send the request again.
const (
	sameKey = "same-key"
	newKey  = "new-key"
	never   = "never"
)

// A problem is the answer to a request that failed: RFC 9457, with extensions. It is an error, so
// an operation returns one, or an error of the engine, which problemOf explains.
type problem struct {
	Type          string   `json:"type"`
	Title         string   `json:"title"`
	Status        int      `json:"status"`
	Detail        string   `json:"detail"`
	Code          string   `json:"code"`
	Message       string   `json:"message"` // the same as Detail
	Retry         string   `json:"retry"`
	CorrelationID string   `json:"correlationId"`
	Required      []string `json:"required,omitempty"` // scopes
	Recovery      string   `json:"recovery,omitempty"` // what to do about it
	Details       any      `json:"details,omitempty"`

	// Of idempotency_conflict: where the requests differ, as in RFC 6902.
	Diff          []idempotency.Change `json:"diff,omitempty"`
	DiffTruncated bool                 `json:"diff_truncated,omitempty"`

	retryAfter int   // seconds; 0: not said
	cause      error // for the log only
}

func (p *problem) Error() string { return "control: " + p.Code + ": " + p.Message }

func (p *problem) Unwrap() error { return p.cause }

// newProblem returns a problem that a repetition does not solve.
func newProblem(status int, code, message string) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: message, Code: code, Message: message, Retry: never}
}

// with adds details: a struct or map.
func (p *problem) with(details any) *problem {
	p.Details = details
	return p
}

// after has p say when to send the request again: in 1 s at least.
func (p *problem) after(d time.Duration) *problem {
	p.retryAfter = max(int(math.Ceil(d.Seconds())), 1)
	return p
}

// because has the log say why.
func (p *problem) because(err error) *problem {
	p.cause = err
	return p
}

// invalid is the problem of parameters.
func invalid(issues ...issue) *problem {
	return newProblem(http.StatusBadRequest, "invalid_request", "The request is not valid.").
		with(map[string]any{"issues": issues})
}

// notFound is the problem of what is not there, or is another namespace's.
func notFound(what string) *problem {
	return newProblem(http.StatusNotFound, "not_found", what+" not found")
}

// notConfigured is the problem of what this service is not set up for.
func notConfigured(message string) *problem {
	return newProblem(http.StatusNotImplemented, "not_configured", message)
}

// unknownKey is the problem of a token that is no secret of a key that counts.
func unknownKey() *problem {
	p := newProblem(http.StatusUnauthorized, "unauthorized", "Invalid API key")
	p.Recovery = "Ask an admin for a key: this one is unknown, revoked or expired."
	return p
}

// tooLarge is the problem of a body of more than most bytes.
func tooLarge(most int64) *problem {
	return newProblem(http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("The body has more than %d bytes", most))
}

// header returns the fields that a problem is answered with.
func (q *problem) header() http.Header {
	h := http.Header{}
	if q.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="weft"`)
	}
	if q.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(q.retryAfter))
	}
	return h
}
