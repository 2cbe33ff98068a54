// Package consumer has messages of a queue take effect once, however often the broker delivers them.
//
// Do calls Effect.Do with a key of the message's topic and what identifies the message in it, and says
// what to tell the broker:
//
//	o := consumer.Do(ctx, ledger, ship, consumer.Message{Topic: m.Topic, Key: m.Key, DedupeID: m.ID}, order)
//	switch o.Next {
//	case consumer.Ack:
//		m.Ack()
//	case consumer.Retry:
//		m.Nack(o.After)
//	case consumer.DeadLetter:
//		m.Reject(o.Err)
//	}
//
// Nothing is acknowledged before its outcome is durable in the ledger's store. So the process may die
// at any moment: the broker delivers the message again, and the ledger knows what became of it.
package consumer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
)

// A Message identifies a message of a queue. Topic is required, and one of Key and DedupeID. Two
// messages are the same if all five fields are.
type Message struct {
	Tenant string // whose message it is; at most 100 bytes of UTF-8
	Topic  string // the topic, queue or stream: the SourceType of the key; at most 200 bytes of UTF-8

	// Partition is of those that have no identity but their offset: then DedupeID is the offset. Otherwise
	// leave it empty. Else a message that comes to another partition, when their number changes,
	// counts as a new one.
	Partition string

	Key      string // any bytes; names the effect if DedupeID is empty
	DedupeID string // the message's ID: the same in each delivery; any bytes
}

// Next is what to tell the broker.
type Next uint8

const (
	Retry      Next = iota // deliver again, after Outcome.After; also the zero Outcome
	Ack                    // the message is done
	DeadLetter             // no delivery will help: put it aside
)

func (n Next) String() string {
	switch n {
	case Retry:
		return "retry"
	case Ack:
		return "ack"
	case DeadLetter:
		return "dead-letter"
	}
	return "invalid"
}

// An Outcome says what became of a delivery.
type Outcome struct {
	Next     Next
	After    time.Duration        // of Retry: when to deliver again
	Decision idempotency.Decision // empty if the ledger did not get to one
	EffectID string
	Err      error // what Effect.Do returned; nil if the effect has happened and its result is known
}

// How long Retry waits.
const (
	retryAfter         = 5 * time.Second // if nothing says how long
	indeterminateAfter = time.Minute     // somebody has to find out
)

// maxSourceID is the most that a key's SourceID may have, in bytes.
const maxSourceID = 255

// Do has e happen once for m, and says what to tell the broker:
//
//   - Ack: the effect is sealed, by this delivery or an earlier one, or a newer message of its source
//     is (stale).
//   - DeadLetter: the effect has failed for good, the message was delivered before with other data
//     (conflict), or m or in is invalid.
//   - Retry: another delivery is in progress, the outcome is indeterminate, nothing happened
//     (released), or the store is unavailable. Also if e is no valid definition, or e.Reserve or the
//     ledger's codec fails, or e.Order.Compare does for what is stored: these are not the message's fault.
//
// A Retention of zero is here that of the Ledger's policies for webhooks and consumers, 14 days if they
// say nothing. It must be longer than the broker keeps messages. e.Wait is ignored: Do does not wait
// for another delivery. What belongs to a delivery, such as its number or its time, must not be in in.
//
// If ctx ends before Do is called, nothing is done. Later its end does not end Run, which e.Timeout does:
// an effect that is cut off may have happened. On a Ledger of In, acknowledge after the commit of its
// transaction, and not if that fails; before Retry and DeadLetter, roll back.
func Do[In, Out any](ctx context.Context, l *idempotency.Ledger, e *idempotency.Effect[In, Out], m Message, in In) Outcome {
	if l == nil || e == nil {
		return outcome("", &idempotency.ConfigError{Field: "consumer.Do", Problem: "was called without a Ledger or an Effect"})
	}
	if err := ctx.Err(); err != nil {
		return outcome("", err)
	}
	k, err := m.key()
	if err != nil {
		return outcome("", err)
	}
	c := *e
	c.Wait = -1
	c.Retention = cmp.Or(c.Retention, l.Policies().Webhook())
	r, err := c.Do(context.WithoutCancel(ctx), l, k, in)
	o := outcome(r.Decision, err)
	o.EffectID = r.EffectID
	return o
}

// key returns the key of m. The SourceID is the three parts escaped as in keys of stores, or, if that
// is too long, its SHA-256. That has no ':', so it is not the key of another message.
func (m Message) key() (idempotency.Key, error) {
	if m.Key == "" && m.DedupeID == "" {
		return idempotency.Key{}, fmt.Errorf("%w: a message needs a Key or a DedupeID", idempotency.ErrInvalid)
	}
	id := storage.AppendKey(nil, m.Partition, m.Key, m.DedupeID)
	if len(id) > maxSourceID {
		sum := sha256.Sum256(id)
		id = hex.AppendEncode(nil, sum[:])
	}
	return idempotency.Key{Tenant: m.Tenant, SourceType: m.Topic, SourceID: string(id)}, nil
}

// outcome says what follows from what Effect.Do returned. The decision says so, and not the error: that
// of a Run which has released the key may wrap anything, such as what another Do said to it. Only its marks count.
func outcome(d idempotency.Decision, err error) Outcome {
	o := Outcome{Next: Retry, After: retryAfter, Decision: d, Err: err}
	switch d {
	case idempotency.DecidedNew, idempotency.DecidedDuplicate:
		if err == nil || errors.Is(err, idempotency.ErrResultUnavailable) {
			o.Next, o.After = Ack, 0
		}
	case idempotency.DecidedStale:
		o.Next, o.After = Ack, 0
	case idempotency.DecidedFailed, idempotency.DecidedConflict:
		o.Next, o.After = DeadLetter, 0
	case idempotency.DecidedReleased:
		if activity.IsNoEffect(err) && activity.IsPermanent(err) { // failed for good, in a transaction, which records no failure
			o.Next, o.After = DeadLetter, 0
		}
	case idempotency.DecidedInProgress:
		var busy *idempotency.InProgressError
		if errors.As(err, &busy) && busy.RetryAfter > 0 {
			o.After = busy.RetryAfter
		}
	case idempotency.DecidedIndeterminate:
		o.After = indeterminateAfter
	case "":
		var config *idempotency.ConfigError
		if errors.Is(err, idempotency.ErrInvalid) && !errors.As(err, &config) {
			o.Next, o.After = DeadLetter, 0
		}
	}
	return o
}
