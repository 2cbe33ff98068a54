package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
)

// A Kind of refund is one way to deal with an unknown outcome.
type Kind string

const (
	verified Kind = "verified" // a verifier asks the provider, once the request can have no effect any more
	fenced   Kind = "fenced"   // a verifier has the provider refuse late requests, and asks
	held     Kind = "held"     // an operator has the provider refuse late requests, asks, and resolves
	repeated Kind = "repeated" // it is sent again: the provider knows that it is the same
	inTx     Kind = "in-tx"    // it is a row, in the transaction of its seal
)

// A Refund is to be made.
type Refund struct {
	N     int
	Cents int
}

// errDeclined means that the provider has not made the refund, and may make it later.
var errDeclined = errors.New("declined")

// key names the effect.
func key(k Kind, n int) idempotency.Key {
	return idempotency.Key{Tenant: "shop", SourceType: string(k), SourceID: fmt.Sprint(n), Action: "refund"}
}

// A call is a request to the provider to make a refund, or a question after one.
type call struct {
	Kind     Kind
	Hash     string
	Attempt  int
	Token    uint64    // the provider refuses lower ones of kinds that fence
	Deadline time.Time // of the attempt
}

type reply struct{ Number string }

func calling(ctx context.Context, k Kind) call {
	i := activity.InfoFrom(ctx)
	return call{k, idempotency.AttemptFrom(ctx).Hash, i.Attempt, i.FencingToken, i.Deadline}
}

// timeout returns how long an attempt may last. Where it takes a lease until a worker is known to be
// dead, what it has sent must be able to arrive still later.
func timeout(k Kind, shared bool, t, lease time.Duration) time.Duration {
	if k == verified && shared {
		return lease + t
	}
	return t
}

func (w *worker) definitions() map[Kind]*idempotency.Effect[Refund, string] {
	all := map[Kind]*idempotency.Effect[Refund, string]{}
	for _, k := range []Kind{verified, fenced, held, repeated} {
		e := &idempotency.Effect[Refund, string]{
			Name:    "refund",
			Timeout: timeout(k, stores[w.Store].shared, w.Timeout, w.Lease), Settle: w.Settle, Wait: w.Timeout,
			Run: func(ctx context.Context, _ Refund) (string, error) { return w.run(ctx, k) },
		}
		switch k {
		case verified, fenced:
			e.Verify = func(ctx context.Context, _ Refund) (activity.Verification[string], error) {
				return w.find(ctx, calling(ctx, k))
			}
			e.VerifyFences = k == fenced
		case held:
			e.OnAbandoned = idempotency.Hold
		case repeated:
			e.OnAbandoned = idempotency.TakeOver
		}
		all[k] = e
	}
	return all
}

// refund makes a refund, whatever its kind is.
func (w *worker) refund(ctx context.Context, t task) (idempotency.Receipt[string], error) {
	if t.Kind != inTx {
		return w.effects[t.Kind].Do(ctx, w.ledger, key(t.Kind, t.Refund.N), t.Refund)
	}
	r, err := w.host.refund(ctx, w.ledger, key(inTx, t.Refund.N), t.Refund, func(ctx context.Context) error {
		_, err := w.post(ctx, "/inside", calling(ctx, inTx), nil)
		return err
	})
	return r, err
}

// run asks the provider to make a refund.
func (w *worker) run(ctx context.Context, k Kind) (string, error) {
	var r reply
	status, err := w.post(ctx, "/refund", calling(ctx, k), &r)
	switch {
	case err != nil:
		return "", err // it may have been made
	case status == http.StatusPaymentRequired:
		return "", activity.NoEffect(errDeclined)
	case status != http.StatusOK:
		return "", fmt.Errorf("the provider answers %d", status)
	}
	return r.Number, nil
}

// find asks the provider whether it has made a refund.
func (w *worker) find(ctx context.Context, c call) (v activity.Verification[string], err error) {
	var r reply
	switch status, err := w.post(ctx, "/find", c, &r); {
	case err != nil:
		return v, err
	case status == http.StatusNotFound:
		return activity.NotCompleted[string](), nil
	case status != http.StatusOK:
		return v, fmt.Errorf("the provider answers %d", status)
	}
	return activity.CompletedWithResult(r.Number), nil
}

// resolve does what an operator does: he has the provider refuse what may still be on its way, asks
// it what it has done, and tells the ledger.
func (w *worker) resolve(ctx context.Context, t task) error {
	k := key(held, t.Refund.N)
	for info, err := range w.ledger.List(ctx, idempotency.Filter{Tenant: k.Tenant, SourceType: k.SourceType, SourceID: k.SourceID}) {
		if err != nil {
			return err
		}
		v, err := w.find(ctx, call{Kind: held, Hash: info.Hash, Token: info.Epoch + 1})
		if err != nil {
			return err
		}
		err = w.ledger.Resolve(ctx, k, info.Attempt, v, idempotency.Actor{Name: "operator", Reason: "the provider's books"})
		if errors.Is(err, idempotency.ErrNotApplicable) {
			return nil // it has an outcome
		}
		return err
	}
	return idempotency.ErrNotFound
}
