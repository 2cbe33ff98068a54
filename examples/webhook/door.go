package main

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

// A webhook receives the provider's deliveries. It answers 200 when the event is
// durable, and not before: after any other answer, the provider retries.
type webhook struct{ engine *engine.Engine }

func (h *webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var e Event
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&e); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	accepted, err := happened.SendWithStart(r.Context(), h.engine, payment.Request(e.Payment, e.Payment), e, &signal.Options{ID: e.ID})
	if err != nil {
		http.Error(w, err.Error(), status(err))
		return
	}
	json.NewEncoder(w).Encode(accepted)
}

// status is the HTTP status of an error. Only 503 is worth a retry.
func status(err error) int {
	switch {
	case errors.Is(err, engine.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, signal.ErrConflict), errors.Is(err, engine.ErrTerminal), errors.Is(err, engine.ErrExists):
		return http.StatusConflict
	}
	return http.StatusServiceUnavailable
}
