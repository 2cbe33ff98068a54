package control

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/internal/stage"
	"github.com/weft-go/weft/storage"
)

// explain returns the problem that an error is answered with. Its text is made here: the texts of the
// engine have ids as the store has them, of all namespaces. write says that the error may have
// followed a write that took effect.
func explain(err error, write bool) *problem {
	if bad, ok := errors.AsType[*problem](err); ok {
		return bad
	}
	if bad := keyProblem(err); bad != nil {
		return bad.because(err)
	}
	if e, ok := errors.AsType[*engine.TerminalError](err); ok {
		return newProblem(http.StatusConflict, "run_terminal", "The run has ended: "+string(e.Status)).
			with(map[string]any{"status": string(e.Status)}).because(err)
	}
	for _, known := range []struct {
		sentinel error
		problem  *problem
	}{
		{engine.ErrInvalid, newProblem(http.StatusBadRequest, "invalid_request", "The request is not valid: an id, a name, a label or a payload is empty, too long, too large, or not text.")},
		{engine.ErrNotFound, notFound("Run")},
		{engine.ErrNoActiveDeployment, noActiveDeployment()},
		{engine.ErrNotApplicable, newProblem(http.StatusConflict, "not_applicable", "This does not apply to the state that it is in.")},
		{engine.ErrProtected, newProblem(http.StatusConflict, "not_applicable", "The run is protected: it is not removed before an operator unprotects it.")},
		{storage.ErrCorrupt, damaged()},
		{storage.ErrFutureFormat, damaged()},
		{idempotency.ErrInvalid, newProblem(http.StatusRequestEntityTooLarge, "too_large", "The request is too large to be kept under an idempotency key.")},
	} {
		if errors.Is(err, known.sentinel) {
			return known.problem.because(err)
		}
	}
	if !write && (errors.Is(err, engine.ErrClosed) || errors.Is(err, idempotency.ErrClosed)) {
		return closing().because(err)
	}
	if e, ok := errors.AsType[*stage.TooLargeError](err); ok {
		return newProblem(http.StatusRequestEntityTooLarge, "too_large", "The request is too large for one change of the store.").because(e)
	}
	if write {
		return outcomeUnknown(err)
	}
	return storeUnavailable(err)
}

// keyProblem returns the problem of an error of the ledger, or nil.
func keyProblem(err error) *problem {
	if e, ok := errors.AsType[*idempotency.ConflictError](err); ok {
		p := newProblem(http.StatusConflict, "idempotency_conflict", "The idempotency key was used for another request.")
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
			return newProblem(http.StatusConflict, known.code, known.text)
		}
	}
	return nil
}

// explain is that of every error. If a repetition could be a second effect, it does not ask for one.
func (c *call) explain(err error, write bool) *problem {
	p := explain(err, write)
	if p.Code == "outcome_unknown" && c.idempotencyKey == "" {
		if u, ok := c.params.(unrepeatable); ok && u.InsteadOfAgain() != "" {
			p.Retry, p.Recovery = never, u.InsteadOfAgain()
		}
	}
	return p
}

// An unrepeatable is a struct of parameters with which a repetition could be a second effect. It says what to do instead
// if the outcome is unknown; "": the same request can be sent again.
type unrepeatable interface{ InsteadOfAgain() string }

func noActiveDeployment() *problem {
	p := newProblem(http.StatusConflict, "no_active_deployment", "No active deployment. Activate a deployment before triggering runs.")
	p.Recovery = "POST /v1/deployments/{deploymentId}/activate"
	return p
}

func damaged() *problem {
	p := newProblem(http.StatusInternalServerError, "damaged", "What is stored is damaged, or was written by a newer release.")
	p.Recovery = "The log of the server says which record it is."
	return p
}

// retryLater is a problem that passes.
func retryLater(code, text string) *problem {
	p := newProblem(http.StatusServiceUnavailable, code, text).after(time.Second)
	p.Retry = sameKey
	return p
}

func storeUnavailable(err error) *problem {
	return retryLater("store_unavailable", "The store does not answer. Nothing was changed.").because(err)
}

// busy is the problem of a change that others prevent by changing the same all the time.
func busy(err error) *problem {
	return retryLater("busy", "Others change the same all the time. Nothing was changed.").because(err)
}

func closing() *problem { return retryLater("closing", "The server is shutting down.") }

func outcomeUnknown(err error) *problem {
	p := retryLater("outcome_unknown", "It is not known whether the change was made: the store does not answer.").because(err)
	p.Recovery = "Send the same request again, with the same idempotency key if it had one."
	return p
}

// internal is the problem of a mistake of ours, of which the client is told nothing.
func internal(err error) *problem {
	return newProblem(http.StatusInternalServerError, "internal", "The server has made a mistake. Its log says which.").because(err)
}

// gone reports whether an error is that of a client which no longer waits.
func gone(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}
