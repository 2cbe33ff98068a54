package operation

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/weft-go/weft/idempotency"
)

// Values of Problem.Retry: whether a client may send the request again.
const (
	SameKey = "same-key"
	newKey  = "new-key"
	never   = "never"
)

// A Problem is the answer to a request that failed: RFC 9457, with extensions. It is an error, so
// an operation returns one, or an error of the engine, which Explain explains.
type Problem struct {
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

	RetryAfter int   `json:"-"` // seconds; 0: not said
	Cause      error `json:"-"` // for the log only
}

func (p *Problem) Error() string { return "control: " + p.Code + ": " + p.Message }

func (p *Problem) Unwrap() error { return p.Cause }

// NewProblem returns a problem that a repetition does not solve.
func NewProblem(status int, code, message string) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: message, Code: code, Message: message, Retry: never}
}

// say replaces the message.
func (p *Problem) say(message string) { p.Detail, p.Message = message, message }

// With adds details: a struct or map.
func (p *Problem) With(details any) *Problem {
	p.Details = details
	return p
}

// After has p say when to send the request again: in 1 s at least.
func (p *Problem) After(d time.Duration) *Problem {
	p.RetryAfter = max(int(math.Ceil(d.Seconds())), 1)
	return p
}

// Because has the log say why.
func (p *Problem) Because(err error) *Problem {
	p.Cause = err
	return p
}

// Invalid is the problem of parameters.
func Invalid(issues ...Issue) *Problem {
	return NewProblem(http.StatusBadRequest, "invalid_request", "The request is not valid.").
		With(map[string]any{"issues": issues})
}

// NotFound is the problem of what is not there, or is another namespace's.
func NotFound(what string) *Problem {
	return NewProblem(http.StatusNotFound, "not_found", what+" not found")
}

// NoRun is NotFound for a run, which is named as the client has named it.
func NoRun(runID string) *Problem {
	if runID == "" || len(runID) > maxRunID {
		return NotFound("Run")
	}
	return NotFound(fmt.Sprintf("Run %q", runID))
}

// NotConfigured is the problem of what this service is not set up for.
func NotConfigured(message string) *Problem {
	return NewProblem(http.StatusNotImplemented, "not_configured", message)
}

// UnknownKey is the problem of a token that is no secret of a key that counts.
func UnknownKey() *Problem {
	p := NewProblem(http.StatusUnauthorized, "unauthorized", "Invalid API key")
	p.Recovery = "Ask an admin for a key: this one is unknown, revoked or expired."
	return p
}

// TooLarge is the problem of a body of more than most bytes.
func TooLarge(most int64) *Problem {
	return NewProblem(http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("The body has more than %d bytes", most))
}

// TooSlow is the problem of a body that did not come in time. Nothing was done: the client sends the request again.
func TooSlow(message string) *Problem {
	p := NewProblem(http.StatusRequestTimeout, "request_timeout", message)
	p.Retry = SameKey
	return p
}

// Header returns the fields that a problem is answered with.
func (q *Problem) Header() http.Header {
	h := http.Header{}
	if q.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="weft"`)
	}
	if q.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(q.RetryAfter))
	}
	return h
}
