package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/webhook"
	"github.com/weft-go/weft/signal"
)

// newHook returns the handler of the provider's deliveries. It answers 200 when the event is
// durable, and not before: after any other answer, the provider retries.
func newHook(l *idempotency.Ledger, to signal.Sender, secret string) (http.Handler, error) {
	signature, err := webhook.Standard(secret)
	if err != nil {
		return nil, err
	}
	return webhook.New(webhook.Config[Event, signal.Accepted]{
		Ledger:    l,
		Provider:  "acme",
		Signature: signature,
		Event:     parse,
		Effect:    accept(to),
		Status:    status,
		MaxBody:   1 << 16,
	})
}

// parse reads an event. The signature covers all of the body.
func parse(_ http.Header, body []byte) (webhook.Event, Event, error) {
	var e Event
	err := json.Unmarshal(body, &e)
	if err == nil && e.Payment == "" { // SendWithStart would make up an id for its workflow
		err = errors.New("the event has no payment")
	}
	return webhook.Event{ID: e.ID}, e, err
}

// workflowID is the id of the workflow of a payment. Without the prefix, an event could name the workflow of something else.
func workflowID(payment string) string { return "payment-" + payment }

// accept returns the effect of an event: its payment's workflow has it, and was started if it
// was the first. The event's ID is the signal's ID, so a repetition after a crash does no harm.
func accept(to signal.Sender) *idempotency.Effect[Event, signal.Accepted] {
	return &idempotency.Effect[Event, signal.Accepted]{
		Name:        "accept",
		OnAbandoned: idempotency.TakeOver,
		EffectID:    func(_ Event, a signal.Accepted) string { return a.SignalStorageKey },
		Run: func(ctx context.Context, e Event) (signal.Accepted, error) {
			accepted, err := happened.SendWithStart(ctx, to, payment.Request(workflowID(e.Payment), e.Payment), e, &signal.Options{ID: e.ID})
			if status(err) != http.StatusServiceUnavailable {
				err = activity.NoEffect(err) // it was refused
			}
			return accepted, err
		},
	}
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
