package webhook

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/weft-go/weft/idempotency"
)

// An answer is what the provider gets. One of an error is a problem of RFC 9457.
type answer struct {
	Status     int           `json:"-"`
	RetryAfter time.Duration `json:"-"` // of 503
	*outcome                 // of what reached the ledger
	*problem                 // of an error
}

type outcome struct {
	EffectID string               `json:"effect_id"`
	Decision idempotency.Decision `json:"decision"`
}

type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Number int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
}

func refused(status int, code, detail string) answer {
	return answer{Status: status, problem: &problem{"about:blank", http.StatusText(status), status, detail, code}}
}

// again is an answer after which the provider delivers again.
func again(after time.Duration, code, detail string) answer {
	a := refused(http.StatusServiceUnavailable, code, detail)
	a.RetryAfter = min(max(after, leastWait), mostWait)
	return a
}

// For how long a provider is asked to wait before it delivers again.
const (
	leastWait = time.Second
	mostWait  = 30 * time.Second
	someWait  = 10 * time.Second // if nothing says how long
)

// answerTo returns the answer to what Do returned. The decision says what it is, and not the error: that
// of a Run which has released the key may wrap anything, such as what another Do said to it.
func (h *handler[In, Out]) answerTo(d idempotency.Decision, err error) answer {
	switch d {
	case idempotency.DecidedNew, idempotency.DecidedDuplicate:
		if err == nil {
			return answer{Status: http.StatusOK}
		}
	case idempotency.DecidedFailed:
		return answer{Status: http.StatusOK}
	case idempotency.DecidedStale:
		if h.StaleStatus == http.StatusOK {
			return answer{Status: http.StatusOK}
		}
		return refused(h.StaleStatus, "idempotency_stale", "a newer event of this source has taken effect")
	case idempotency.DecidedConflict:
		return refused(http.StatusConflict, "idempotency_conflict", "the event was delivered before with other data")
	case idempotency.DecidedInProgress:
		var busy *idempotency.InProgressError
		after := someWait
		if errors.As(err, &busy) {
			after = busy.RetryAfter
		}
		return again(after, "idempotency_in_progress", "another delivery of the event, or another event of its source, is in progress")
	case idempotency.DecidedIndeterminate:
		return again(someWait, "idempotency_indeterminate", "it is unknown whether the event has taken effect")
	case idempotency.DecidedReleased:
		if h.Status == nil {
			break
		}
		if s := h.Status(err); 400 <= s && s < 600 && s != http.StatusServiceUnavailable {
			return refused(s, "event_refused", "the event has not taken effect")
		}
	case "":
		var config *idempotency.ConfigError
		if errors.Is(err, idempotency.ErrInvalid) && !errors.As(err, &config) {
			return refused(http.StatusBadRequest, "invalid_event", "the event has no valid key, or its data cannot be stored")
		}
	}
	return again(someWait, "idempotency_unavailable", "the event has not been recorded as done")
}

func (a answer) write(w http.ResponseWriter) {
	kind := "application/json"
	if a.problem != nil {
		kind = "application/problem+json"
	}
	w.Header().Set("Content-Type", kind)
	if a.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((a.RetryAfter+time.Second-1)/time.Second)))
	}
	w.WriteHeader(a.Status)
	_ = json.NewEncoder(w).Encode(a) // the provider has hung up: it delivers again
}
