package idemhttp

import (
	"encoding/json"
	"errors"
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

// A problem is an answer of the guard itself: RFC 9457, with extensions.
type problem struct {
	Type          string               `json:"type"`
	Title         string               `json:"title"`
	Status        int                  `json:"status"`
	Detail        string               `json:"detail"`
	Code          string               `json:"code"`
	Message       string               `json:"message"` // the same as Detail
	Retry         string               `json:"retry"`
	Diff          []idempotency.Change `json:"diff,omitempty"`
	DiffTruncated bool                 `json:"diff_truncated,omitempty"`

	retryAfter string // seconds; empty: not said
	cause      error  // for the log only
}

func newProblem(status int, code, retry, text string) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: text, Code: code, Message: text, Retry: retry}
}

// internal is the problem of a host's mistake, of which the client is told nothing.
func internal(err error) *problem {
	return newProblem(http.StatusInternalServerError, "internal", never, "The server is not set up correctly.").because(err)
}

// after has p say when to send the request again: 1 s to 30 s.
func (p *problem) after(d time.Duration) *problem {
	p.retryAfter = strconv.Itoa(min(max(int(math.Ceil(d.Seconds())), 1), 30))
	return p
}

// because has the log say why.
func (p *problem) because(err error) *problem {
	p.cause = err
	return p
}

// answer returns p as a handler would have answered it. It keeps header fields that were set before, such as
// those of CORS, and the Content-Encoding of middleware that compresses answers as they leave.
func (p *problem) answer(before http.Header) *answer {
	body, err := json.Marshal(p)
	if err != nil { // no field allows it
		panic(err)
	}
	h := before.Clone()
	h.Del("Etag")
	h.Del("Last-Modified")
	h.Set("Content-Type", "application/problem+json")
	if p.retryAfter != "" {
		h.Set("Retry-After", p.retryAfter)
	}
	return &answer{status: p.Status, header: h, body: body}
}

func (p *problem) send(w http.ResponseWriter) { p.answer(w.Header()).send(w) }

// problemOf returns the answer to an error of Do.
func problemOf(err error, conflicts idempotency.ConflictPolicy) *problem {
	const conflicted = http.StatusConflict
	switch e := outermost(err).(type) {
	case *idempotency.ConflictError:
		p := newProblem(conflicts.Status, "idempotency_conflict", newKey, "The key was used for another request.")
		if *conflicts.IncludeDiff {
			p.Diff, p.DiffTruncated = e.Diff, e.Truncated
		}
		return p
	case *idempotency.InProgressError:
		return newProblem(conflicted, "idempotency_in_progress", sameKey, "The first request with this key is in progress.").after(e.RetryAfter).because(e.Err)
	case *idempotency.FenceLostError:
		return newProblem(conflicted, "idempotency_in_progress", sameKey, "Another process has taken the request over.").after(0)
	case *idempotency.IndeterminateError:
		return newProblem(conflicted, "idempotency_indeterminate", sameKey, "It is unknown whether the first request with this key has taken effect. It is not repeated.")
	case *idempotency.StaleError:
		return newProblem(conflicted, "idempotency_stale", never, "A newer request has taken effect.")
	case *idempotency.ResultUnavailableError:
		return newProblem(conflicted, "idempotency_result_unavailable", never, "The first request with this key has taken effect, and its answer is not available.")
	case *idempotency.FailedError:
		return newProblem(http.StatusUnprocessableEntity, "idempotency_failed", never, "The request has not taken effect and never will: "+e.Message)
	}
	if errors.Is(err, idempotency.ErrInvalid) {
		return newProblem(http.StatusBadRequest, "invalid_request", never, "The request is not acceptable.").because(err)
	}
	return newProblem(http.StatusServiceUnavailable, "idempotency_unavailable", sameKey, "The request cannot be recorded now.").after(0).because(err)
}

// outermost returns the first error of a Do in the tree of err: what it wraps is its cause. It returns nil if
// there is none.
func outermost(err error) error {
	switch e := err.(type) {
	case *idempotency.ConflictError, *idempotency.InProgressError, *idempotency.FenceLostError, *idempotency.IndeterminateError,
		*idempotency.StaleError, *idempotency.ResultUnavailableError, *idempotency.FailedError:
		return err
	case interface{ Unwrap() error }:
		return outermost(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if found := outermost(inner); found != nil {
				return found
			}
		}
	}
	return nil
}

// Fail answers with the error of a Do inside the handler, as the guard answers its own: problem+json, with
// 400, 409, 422 or 503, and Retry-After if the request may be repeated. It also calls NoEffect: whatever became of the
// inner key, a repetition asks it again, and this answer must not be stored. Outside a guard it answers the
// same. Errors of your own, such as one that Run marked with activity.NoEffect, answer yourself: here they are
// 503, as those of the store.
func Fail(w http.ResponseWriter, r *http.Request, err error) {
	NoEffect(r.Context())
	policy := idempotency.DefaultPolicies().OnConflict
	x := exchangeFrom(r.Context())
	if x != nil {
		policy = x.guard.conflict
	}
	p := problemOf(err, policy)
	if x != nil {
		x.guard.log(r, p)
	}
	p.send(w)
}
