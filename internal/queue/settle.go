package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// A Settlement says what becomes of a delivery.
type Settlement struct {
	ID, Receipt string // of the delivery
	As          Outcome

	// After is how long the message is held from now on, for Extend; zero means the Visibility. For
	// Retry it is the time until the message is due again, never earlier.
	After time.Duration

	// Uncounted, of a Retry: the delivery does not count as an attempt.
	Uncounted bool
}

// An Outcome is what becomes of a delivery.
type Outcome string

// The outcomes.
const (
	Acknowledge Outcome = "acknowledge" // the message is removed
	Extend      Outcome = "extend"      // the consumer goes on
	Retry       Outcome = "retry"       // the message is delivered again
)

// Settle settles deliveries, each for itself, and returns an error or nil for each. A message that is gone is
// as good as settled. ErrLost means that another delivery has the message; ErrInvalid, that a settlement is
// not acceptable. After any other error its outcome is unknown.
func (q *Queue) Settle(ctx context.Context, queue string, all ...Settlement) []error {
	errs := make([]error, len(all))
	var calls sync.WaitGroup
	for i, s := range all {
		calls.Go(func() { errs[i] = q.settle(ctx, queue, s) })
	}
	calls.Wait()
	return errs
}

func (q *Queue) settle(ctx context.Context, queue string, s Settlement) error {
	if s.ID == "" || s.Receipt == "" || s.After < 0 || s.As != Acknowledge && s.As != Extend && s.As != Retry {
		return fmt.Errorf("%w: settle message %q of %q as %q after %v", ErrInvalid, s.ID, queue, s.As, s.After)
	}
	doubtful := false // an earlier batch of this call may have been applied
	for {
		raw, err := q.Storage.Get(ctx, keys.QueueMessage(queue, s.ID))
		if errors.Is(err, storage.ErrNotFound) {
			return nil
		}
		var m *message
		if err == nil {
			m, err = openMessage(queue, s.ID, raw)
		}
		if err != nil {
			return fmt.Errorf("queue: settle message %s of %q: %w", s.ID, queue, err)
		}
		if m.Receipt != s.Receipt {
			if doubtful && s.As == Retry && m.Returned == s.Receipt {
				return nil
			}
			return fmt.Errorf("%w: message %s of %q", ErrLost, s.ID, queue)
		}
		b, after, err := settling(m, s, q.now(), q.Visibility)
		if err != nil {
			return fmt.Errorf("queue: settle message %s of %q: %w", s.ID, queue, err)
		}
		err = settle.Commit(ctx, q.Storage, b, func(error) { doubtful = true }, func(ctx context.Context) (bool, error) {
			now, err := q.Storage.Get(ctx, m.key())
			if err != nil {
				return errors.Is(err, storage.ErrNotFound), absent(err)
			}
			return after != nil && string(now) == string(after.raw), nil
		})
		if errors.Is(err, storage.ErrConflict) {
			continue
		}
		if err != nil {
			return fmt.Errorf("queue: settle message %s of %q: %w", s.ID, queue, err)
		}
		if s.As == Retry {
			q.nudge(queue)
		}
		return nil
	}
}

// settling returns the batch that settles the delivery that holds m, and the message then; nil if it is removed.
func settling(m *message, s Settlement, now time.Time, visibility time.Duration) (b storage.Batch, after *message, err error) {
	if s.As == Acknowledge {
		return b, nil, m.become(&b, nil)
	}
	next := *m
	switch {
	case s.As == Retry:
		next.Receipt, next.Returned = "", m.Receipt
		next.At = now.Add(s.After).UnixMicro()
		if s.Uncounted {
			next.Attempt--
		}
	case s.After > 0:
		next.At = now.Add(s.After).UnixMicro()
	default:
		next.At = now.Add(visibility).UnixMicro()
	}
	return b, &next, m.become(&b, &next)
}
