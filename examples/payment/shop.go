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

// A Receipt tells of a charge.
type Receipt struct{ ChargeID string }

var (
	// ErrDeclined is what the bank answers when it will not pay.
	ErrDeclined = errors.New("card declined")

	// ErrSoldOut is found out when the card has been charged.
	ErrSoldOut = errors.New("sold out")
)

// checkout returns the workflow that charges an order to the bank at a URL, once. Of
// one that cannot be delivered, the charge is refunded.
func checkout(bank string) *engine.Workflow[Order, Receipt] {
	c := client{bank, &http.Client{}}
	charge := &activity.Activity[Order, Receipt]{
		Name:            "charge",
		Run:             c.charge,
		Compensate:      c.refund,
		Errors:          []error{ErrDeclined},
		IdempotencyKey:  func(o Order) string { return o.ID },
		Verify:          c.find,
		VerifyFences:    true,                                                         // find tells the bank to refuse what is older
		Timeout:         time.Second,                                                  // so long may a charge take
		Retry:           activity.Retry{Attempts: -1, Backoff: 10 * time.Millisecond}, // until it is known,
		VerifyRetry:     activity.Retry{Attempts: -1, Backoff: 10 * time.Millisecond}, // one way
		OnIndeterminate: activity.Park,                                                // or the other
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

// A client talks to the bank.
type client struct {
	url  string
	http *http.Client
}

// charge asks for a charge. If there is no reply, nobody knows.
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

// find asks what became of a charge, and has the bank refuse it from now on if it
// was not made: what is not there now, never will be.
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

// refund takes a charge back. To the bank, a second time is no other refund.
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
	// Not the header Idempotency-Key: net/http sends a request that has it again by
	// itself when a connection breaks, and this bank takes that for another charge.
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
