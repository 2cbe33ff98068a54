package main

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

// A webhook is where the provider delivers. It answers 200 when the event is
// durable, and not before: whatever else it answers, the provider tries again.
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

// status is what an error is in HTTP. Only 503 is worth another try.
func status(err error) int {
	switch {
	case errors.Is(err, engine.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, signal.ErrConflict), errors.Is(err, engine.ErrTerminal), errors.Is(err, engine.ErrExists):
		return http.StatusConflict
	}
	return http.StatusServiceUnavailable
}
