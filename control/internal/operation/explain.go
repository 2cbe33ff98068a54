package operation

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/internal/stage"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// Explain returns the problem that an error is answered with. Its text is made here: the texts of the
// engine have ids as the store has them, of all namespaces. Call.explain adds what the caller may see. write says that
// the error may have followed a write that took effect.
func Explain(err error, write bool) *Problem {
	if bad, ok := errors.AsType[*Problem](err); ok {
		return bad
	}
	if bad := keyProblem(err); bad != nil {
		return bad.Because(err)
	}
	if e, ok := errors.AsType[*engine.TerminalError](err); ok {
		return NewProblem(http.StatusConflict, "run_terminal", "The run has ended: "+string(e.Status)).
			With(map[string]any{"status": string(e.Status)}).Because(err)
	}
	for _, known := range []struct {
		sentinel error
		problem  *Problem
	}{
		{engine.ErrInvalid, NewProblem(http.StatusBadRequest, "invalid_request", "The request is not valid: an id, a name, a label or a payload is empty, too long, too large, or not text.")},
		{engine.ErrNotFound, NotFound("Run")},
		{engine.ErrNoActiveDeployment, NoActiveDeployment()},
		{engine.ErrNotApplicable, NewProblem(http.StatusConflict, "not_applicable", "This does not apply to the state that it is in.")},
		{signal.ErrTokenTaken, NewProblem(http.StatusConflict, "not_applicable", "An open hook of another run has the token of one of its hooks.")},
		{engine.ErrProtected, NewProblem(http.StatusConflict, "not_applicable", "The run is protected: it is not removed before an operator unprotects it.")},
		{storage.ErrCorrupt, damaged()},
		{storage.ErrFutureFormat, damaged()},
		{idempotency.ErrInvalid, NewProblem(http.StatusRequestEntityTooLarge, "too_large", "The request is too large to be kept under an idempotency key.")},
	} {
		if errors.Is(err, known.sentinel) {
			return known.problem.Because(err)
		}
	}
	if !write && (errors.Is(err, engine.ErrClosed) || errors.Is(err, idempotency.ErrClosed)) {
		return Closing().Because(err)
	}
	if !write && errors.Is(err, engine.ErrBusy) {
		return RetryLater("busy", "The run changes all the time, or too much of it waits already. Nothing was changed.").Because(err)
	}
	if _, ok := errors.AsType[*stage.TooLargeError](err); ok || !write && errors.Is(err, storage.ErrInvalidBatch) {
		return NewProblem(http.StatusRequestEntityTooLarge, "too_large", "The request is too large for one change of the store.").Because(err)
	}
	if write {
		return outcomeUnknown(err)
	}
	return StoreUnavailable(err)
}

// keyProblem returns the problem of an error of the ledger, or nil.
func keyProblem(err error) *Problem {
	if e, ok := errors.AsType[*idempotency.ConflictError](err); ok {
		p := NewProblem(http.StatusConflict, "idempotency_conflict", "The idempotency key was used for another request.")
		p.Retry = newKey
		p.Recovery = "Send the first request again, or this one with another key."
		p.Diff, p.DiffTruncated = e.Diff, e.Truncated
		return p
	}
	for _, known := range []struct {
		sentinel   error
		code, text string
	}{
		{idempotency.ErrIndeterminate, "idempotency_indeterminate", "It is unknown whether the first request with this key has taken effect. It is not repeated."},
		{idempotency.ErrResultUnavailable, "idempotency_result_unavailable", "The first request with this key has taken effect, and its answer is not available."},
	} {
		if errors.Is(err, known.sentinel) {
			return NewProblem(http.StatusConflict, known.code, known.text)
		}
	}
	return nil
}

// explain returns the problem of an error of c. It names the run as the client does, and has the reason of the engine. If
// a repetition could be a second effect, it does not ask for one.
func (c *Call) explain(err error, write bool) *Problem {
	p := Explain(err, write)
	if _, ok := errors.AsType[*Problem](err); !ok { // p was made of err
		switch p.Code {
		case "not_found":
			p = NoRun(c.Note.RunID).Because(err)
		case "not_applicable":
			p.say(c.refusal(err, p.Message))
			if e, ok := errors.AsType[*signal.TokenError](err); ok && c.Who != nil {
				if holder, ours := c.Who.RunID(e.WorkflowID); ours {
					p.Details = map[string]any{"holder": holder}
				}
			}
		}
	}
	if p.Code == "outcome_unknown" && c.IdempotencyKey == "" {
		if u, ok := c.params.(Unrepeatable); ok && u.InsteadOfAgain() != "" {
			p.Retry, p.Recovery = never, u.InsteadOfAgain()
		}
	}
	return p
}

// refusal returns the text of an error of the engine as the caller may see it. It is otherwise if the text may name something of
// another namespace.
func (c *Call) refusal(err error, otherwise string) string {
	text := err.Error()
	for _, sentinel := range []error{engine.ErrNotApplicable, engine.ErrProtected} {
		text = strings.TrimPrefix(text, sentinel.Error()+": ")
	}
	if c.Who == nil {
		return otherwise
	}
	if text = c.Who.Visible(strings.TrimPrefix(text, "engine: ")); qualified.MatchString(text) {
		return otherwise
	}
	return text
}

// qualified is how an id of a namespace begins, wherever it is in a text.
var qualified = regexp.MustCompile(`@[A-Za-z0-9_-]{1,40}/[A-Za-z0-9_-]{1,20}/`)

// An Unrepeatable is a struct of parameters with which a repetition could be a second effect. It says what to do instead
// if the outcome is unknown; "": the same request can be sent again. A package says of each that it is one, as of a Checker.
type Unrepeatable interface{ InsteadOfAgain() string }

// NoActiveDeployment is the problem of a start that needs an active deployment.
func NoActiveDeployment() *Problem {
	p := NewProblem(http.StatusConflict, "no_active_deployment", "No active deployment. Activate a deployment before triggering runs.")
	p.Recovery = "POST /v1/deployments/{deploymentId}/activate"
	return p
}

func damaged() *Problem {
	p := NewProblem(http.StatusInternalServerError, "damaged", "What is stored is damaged, or was written by a newer release.")
	p.Recovery = "The log of the server says which record it is."
	return p
}

// RetryLater is a problem that passes.
func RetryLater(code, text string) *Problem {
	p := NewProblem(http.StatusServiceUnavailable, code, text).After(time.Second)
	p.Retry = SameKey
	return p
}

// StoreUnavailable is the problem of a store that does not answer, when nothing was written.
func StoreUnavailable(err error) *Problem {
	return RetryLater("store_unavailable", "The store does not answer. Nothing was changed.").Because(err)
}

// busy is the problem of a change that others prevent by changing the same all the time.
func busy(err error) *Problem {
	return RetryLater("busy", "Others change the same all the time. Nothing was changed.").Because(err)
}

// Closing is the problem of a request that comes while the plane closes.
func Closing() *Problem { return RetryLater("closing", "The server is shutting down.") }

func outcomeUnknown(err error) *Problem {
	p := RetryLater("outcome_unknown", "It is not known whether the change was made: the store does not answer.").Because(err)
	p.Recovery = "Send the same request again, with the same idempotency key if it had one."
	return p
}

// Internal is the problem of a mistake of ours, of which the client is told nothing.
func Internal(err error) *Problem {
	return NewProblem(http.StatusInternalServerError, "internal", "The server has made a mistake. Its log says which.").Because(err)
}

// Gone reports whether an error is that of a client which no longer waits.
func Gone(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}
