package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/idemhttp"
)

// A Refund is money that goes back to whoever has paid.
type Refund struct {
	Payment string `json:"payment"`
	Cents   int    `json:"cents"`
}

// A Credit is a voucher.
type Credit struct {
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

// A Return is goods that come back.
type Return struct {
	Order string `json:"order"`
}

// A service has what its handlers need.
type service struct {
	ledger *idempotency.Ledger
	engine *engine.Engine
	db     database
	refund *idempotency.Effect[Refund, string]
	back   *idempotency.Effect[Return, string]
}

// newService returns the handler of the service. All its writes are guarded.
func newService(l *idempotency.Ledger, eng *engine.Engine, db database, acme client) (http.Handler, error) {
	s := &service{ledger: l, engine: eng, db: db, refund: refundAt(acme), back: takeBack(eng)}
	guard, err := idemhttp.New(idemhttp.Config{
		Ledger: l,
		Tenant: func(*http.Request) (string, error) { return "looms-and-more", nil }, // whose credentials they are
		// If a handler's process dies, the handler runs again with the next request. That does no harm:
		// what it does has a key of its own, or is in the transaction of its record.
		OnAbandoned: idempotency.TakeOver,
		Logger:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /refunds", s.postRefund)
	mux.HandleFunc("POST /credits", s.postCredit)
	mux.HandleFunc("POST /returns", s.postReturn)
	mux.HandleFunc("GET /balance", s.getBalance)
	return guard(mux), nil
}

// refundAt returns the effect of a refund by the provider. The provider does not recognise a second
// request as the first, but it can be asked.
func refundAt(acme client) *idempotency.Effect[Refund, string] {
	return &idempotency.Effect[Refund, string]{
		Name: "refund",
		Run: func(ctx context.Context, r Refund) (string, error) {
			id, err := acme.refund(ctx, idempotency.AttemptFrom(ctx).Hash, r)
			if errors.Is(err, errDeclined) {
				err = activity.NoEffect(activity.Permanent(err))
			}
			return id, err // any other error means that it may have happened
		},
		Verify: func(ctx context.Context, _ Refund) (activity.Verification[string], error) {
			switch id, err := acme.find(ctx, idempotency.AttemptFrom(ctx).Hash); {
			case errors.Is(err, errNone):
				return activity.NotCompleted[string](), nil
			case err != nil:
				return activity.Verification[string]{}, err
			default:
				return activity.CompletedWithResult(id), nil
			}
		},
		Errors: []error{errDeclined},
		// A request that is not answered in half a second may still be at work for as long again.
		Timeout: time.Second / 2, Settle: time.Second / 2,
	}
}

func (s *service) postRefund(w http.ResponseWriter, r *http.Request) {
	var in Refund
	if !decode(w, r, &in) {
		return
	}
	receipt, err := s.refund.Do(r.Context(), s.ledger, inner(r, "refund"), in)
	switch {
	case errors.Is(err, errDeclined):
		answer(w, http.StatusUnprocessableEntity, map[string]string{"error": err.Error()})
	case err != nil:
		idemhttp.Fail(w, r, err)
	default:
		answer(w, http.StatusCreated, map[string]string{"refund": receipt.Result})
	}
}

// inner returns the key of an effect inside a guarded handler. Another endpoint, or a job at night, may
// ask for the same effect: then the key is made of what both know, such as the number of a complaint.
func inner(r *http.Request, what string) idempotency.Key {
	outer := idempotency.AttemptFrom(r.Context()).Key
	return idempotency.Key{Tenant: outer.Tenant, SourceType: what, SourceID: outer.SourceID}
}

// postCredit writes a voucher into the service's own database, in the transaction of its record.
func (s *service) postCredit(w http.ResponseWriter, r *http.Request) {
	var in Credit
	if !decode(w, r, &in) {
		return
	}
	receipt, err := s.db.credit(r.Context(), s.ledger, inner(r, "credit"), in)
	if err != nil {
		idemhttp.Fail(w, r, err)
		return
	}
	answer(w, http.StatusCreated, map[string]string{"voucher": receipt.Result})
}

// goods is the workflow of a return.
var goods = &engine.Workflow[Return, string]{
	Name: "goods",
	Func: func(run *engine.Run, r Return) (string, error) {
		return engine.Step(run, "expect", func(context.Context) (string, error) { return "the goods of " + r.Order + " are expected", nil })
	},
}

// takeBack returns the effect that starts the workflow of a return. Its id is stored before the first
// attempt, so a second attempt starts the same run, which is there already.
func takeBack(eng *engine.Engine) *idempotency.Effect[Return, string] {
	return &idempotency.Effect[Return, string]{
		Name:        "take-back",
		OnAbandoned: idempotency.TakeOver,
		Reserve: func(context.Context, Return) (idempotency.Reservation, error) {
			return idempotency.Reservation{EffectID: "return-" + newID()}, nil
		},
		Run: func(ctx context.Context, r Return) (string, error) {
			id := idempotency.AttemptFrom(ctx).EffectID
			_, err := goods.Start(ctx, eng, id, r)
			return id, err
		},
	}
}

func (s *service) postReturn(w http.ResponseWriter, r *http.Request) {
	var in Return
	if !decode(w, r, &in) {
		return
	}
	receipt, err := s.back.Do(r.Context(), s.ledger, inner(r, "return"), in)
	if err != nil {
		idemhttp.Fail(w, r, err)
		return
	}
	answer(w, http.StatusAccepted, map[string]string{"return": receipt.Result})
}

// getBalance counts what the service has in its own store. It is no write, and needs no key.
func (s *service) getBalance(w http.ResponseWriter, r *http.Request) {
	vouchers, err := s.db.vouchers(r.Context())
	returns := 0
	for _, e := range s.engine.List(r.Context(), engine.Filter{}) {
		err = errors.Join(err, e)
		returns++
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintf(w, "%d voucher, %d return", vouchers, returns)
}

func decode(w http.ResponseWriter, r *http.Request, v any) bool {
	err := json.NewDecoder(r.Body).Decode(v)
	if err != nil {
		answer(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
	}
	return err == nil
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
