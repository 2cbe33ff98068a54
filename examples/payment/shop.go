package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
)

// An Order is to be paid, and delivered if the goods are there.
type Order struct {
	ID      string
	Cents   int
	SoldOut bool
}

// A Receipt identifies a charge.
type Receipt struct{ ChargeID string }

var (
	// ErrDeclined is the bank's answer when it declines.
	ErrDeclined = errors.New("card declined")

	// ErrSoldOut is detected after the card has been charged.
	ErrSoldOut = errors.New("sold out")
)

// checkout returns the workflow that charges an order to the bank at a URL, once. If
// the order cannot be delivered, the charge is refunded.
func checkout(bank string) *engine.Workflow[Order, Receipt] {
	c := client{bank, &http.Client{}}
	charge := &activity.Activity[Order, Receipt]{
		Name:            "charge",
		Run:             c.charge,
		Compensate:      c.refund,
		Errors:          []error{ErrDeclined},
		IdempotencyKey:  func(o Order) string { return o.ID },
		Verify:          c.find,
		VerifyFences:    true,                                                            // find tells the bank to refuse older attempts
		Timeout:         time.Second,                                                     // of one charge
		Retry:           activity.Retry{MaxAttempts: -1, Backoff: 10 * time.Millisecond}, // repeat until it is known
		VerifyRetry:     activity.Retry{MaxAttempts: -1, Backoff: 10 * time.Millisecond}, // ask until it is known
		OnIndeterminate: activity.AwaitOperator,                                          // otherwise, ask an operator
	}
	return &engine.Workflow[Order, Receipt]{
		Name:   "checkout",
		Errors: []error{ErrDeclined, ErrSoldOut},
		Func: func(run *engine.Run, o Order) (Receipt, error) {
			r, err := charge.Do(run, o)
			if err == nil && o.SoldOut {
				err = ErrSoldOut
			}
			return r, err
		},
	}
}

// A client calls the bank.
type client struct {
	url  string
	http *http.Client
}

// charge asks for a charge. Without a reply, the outcome is unknown.
func (c client) charge(ctx context.Context, o Order) (Receipt, error) {
	info := activity.InfoFrom(ctx)
	var r Receipt
	status, err := c.do(ctx, http.MethodPost, url.Values{"cents": {strconv.Itoa(o.Cents)}}, info, &r)
	switch {
	case err != nil:
		return Receipt{}, err
	case status == http.StatusPaymentRequired: // the bank says that it has not charged
		return Receipt{}, activity.Permanent(activity.NoEffect(ErrDeclined))
	case status == http.StatusConflict: // a later attempt was here before
		return Receipt{}, activity.NoEffect(errors.New("the bank has seen a higher fencing token"))
	case status != http.StatusOK:
		return Receipt{}, fmt.Errorf("the bank answers %d", status)
	}
	return r, nil
}

// find asks what became of a charge. If it was not made, the bank refuses it from now
// on: an effect that is not there now can no longer happen.
func (c client) find(ctx context.Context, _ Order) (activity.Verification[Receipt], error) {
	var r Receipt
	status, err := c.do(ctx, http.MethodGet, nil, activity.InfoFrom(ctx), &r)
	switch {
	case err != nil:
		return activity.Indeterminate[Receipt](err.Error()), nil
	case status == http.StatusOK:
		return activity.CompletedWithResult(r), nil
	case status == http.StatusNotFound:
		return activity.NotCompleted[Receipt](), nil
	}
	return activity.Indeterminate[Receipt](fmt.Sprintf("the bank answers %d", status)), nil
}

// refund reverses a charge. The bank treats a second request as the first.
func (c client) refund(ctx context.Context, _ Order, r Receipt) error {
	status, err := c.do(ctx, http.MethodDelete, url.Values{"charge": {r.ChargeID}}, activity.InfoFrom(ctx), &r)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the bank answers %d", status)
	}
	return err
}

func (c client) do(ctx context.Context, method string, form url.Values, info activity.Info, into any) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+"/charges?"+form.Encode(), nil)
	if err != nil {
		return 0, err
	}
	// Do not use the header Idempotency-Key: net/http repeats a request with that
	// header by itself when a connection breaks, and this bank treats the repetition as
	// another charge.
	req.Header.Set("X-Effect-Key", info.IdempotencyKey)
	req.Header.Set("X-Fencing-Token", strconv.FormatUint(info.FencingToken, 10))
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode, nil
	}
	return resp.StatusCode, json.NewDecoder(resp.Body).Decode(into)
}
