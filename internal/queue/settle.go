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

// atOnce is how many deliveries of a call are settled at once, each in a commit of its own.
const atOnce = 16

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
	settled, doubtful := q.together(ctx, queue, all)
	var calls sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for i, s := range all {
		if settled[i] {
			continue
		}
		free <- struct{}{}
		calls.Go(func() {
			defer func() { <-free }()
			errs[i] = q.settle(ctx, queue, s, doubtful)
		})
	}
	calls.Wait()
	return errs
}

// together settles deliveries in one commit, and reports which. It leaves out those whose message is gone, or held by another
// delivery, and what is too much for one commit. If doubtful is true, it may have settled others, too.
func (q *Queue) together(ctx context.Context, queue string, all []Settlement) (settled []bool, doubtful bool) {
	settled = make([]bool, len(all))
	if len(all) < 2 {
		return settled, false
	}
	ids := make([]string, len(all))
	for i, s := range all {
		ids[i] = s.ID
	}
	raws, err := q.stored(ctx, queue, ids)
	if err != nil {
		return settled, false
	}
	var union storage.Batch
	var in []int
	size, most, again := 0, mostTaken, false
	if ops := q.Storage.Capabilities().MaxBatch.Ops; ops > 0 {
		most = min(most, ops/4) // a condition and three operations each
	}
	known := map[string]bool{}
	for i, s := range all[:len(raws)] {
		if size += len(raws[i]); raws[i] == nil || size > takeBytes || len(in) >= most || known[s.ID] || s.check(queue) != nil {
			continue
		}
		known[s.ID] = true
		m, err := openMessage(queue, s.ID, raws[i])
		if err != nil || m.Receipt != s.Receipt {
			continue
		}
		b, _, err := settling(m, s, q.now(), q.Visibility)
		if err != nil {
			continue
		}
		union.If, union.Ops = append(union.If, b.If...), append(union.Ops, b.Ops...)
		in = append(in, i)
		again = again || s.As == Retry
	}
	if len(in) == 0 {
		return settled, false
	}
	if err := q.Storage.Commit(ctx, union); err != nil {
		return settled, !errors.Is(err, storage.ErrConflict) && !errors.Is(err, storage.ErrInvalidBatch)
	}
	for _, i := range in {
		settled[i] = true
	}
	if again {
		q.nudge(queue)
	}
	return settled, false
}

func (s *Settlement) check(queue string) error {
	if s.ID == "" || s.Receipt == "" || s.After < 0 || s.As != Acknowledge && s.As != Extend && s.As != Retry {
		return fmt.Errorf("%w: settle message %q of %q as %q after %v", ErrInvalid, s.ID, queue, s.As, s.After)
	}
	return nil
}

// settle settles one delivery. doubtful says that an earlier batch of the call may have been applied.
func (q *Queue) settle(ctx context.Context, queue string, s Settlement, doubtful bool) error {
	if err := s.check(queue); err != nil {
		return err
	}
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
