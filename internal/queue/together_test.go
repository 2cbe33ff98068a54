package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/weft-go/weft/internal/queue"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// A counting store counts the calls of one process.
type counting struct {
	storage.Storage
	reads, commits, bytes atomic.Int64
}

func (c *counting) Get(ctx context.Context, key []byte) ([]byte, error) {
	c.reads.Add(1)
	value, err := c.Storage.Get(ctx, key)
	c.bytes.Add(int64(len(value)))
	return value, err
}

func (c *counting) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	c.reads.Add(1)
	page, err := c.Storage.Scan(ctx, r)
	for _, e := range page {
		c.bytes.Add(int64(len(e.Value)))
	}
	return page, err
}

func (c *counting) Commit(ctx context.Context, b storage.Batch) error {
	c.commits.Add(1)
	return c.Storage.Commit(ctx, b)
}

func (c *counting) take() string {
	return fmt.Sprint(c.reads.Swap(0), " reads, ", c.commits.Swap(0), " commits")
}

func settlements(some []queue.Delivery, as ...queue.Outcome) (all []queue.Settlement) {
	for i, d := range some {
		all = append(all, queue.Settlement{ID: d.ID, Receipt: d.Receipt, As: as[i%len(as)]})
	}
	return all
}

// A hundred messages are received and settled in one commit each, and are read in four pages each.
func TestManyMessagesShareCommits(t *testing.T) {
	s := &counting{Storage: new(memory.Store)}
	q := open(t, s)
	for range 100 {
		publish(t, q, "", "x")
	}
	s.take()
	got := receive(t, q, 100)
	if n := s.take(); len(got) != 100 || n != "6 reads, 1 commits" { // those that are due, the messages, and those that are held
		t.Errorf("%d messages were received by %s", len(got), n)
	}
	if err := errors.Join(q.Settle(t.Context(), "blue", settlements(got, queue.Acknowledge)...)...); err != nil {
		t.Error(err)
	}
	if n := s.take(); n != "4 reads, 1 commits" {
		t.Errorf("they were acknowledged by %s", n)
	}
	if n := count(t, s, "w"); n != 0 {
		t.Errorf("%d records are left", n)
	}
}

// Large messages behind small ones are read a few at a time, too.
func TestLargeMessagesBehindSmallOnes(t *testing.T) {
	s := &counting{Storage: new(memory.Store)}
	q := open(t, s)
	var all []queue.Settlement
	large := string(make([]byte, 1<<20))
	for i := range 100 {
		body := "x"
		if i >= 8 {
			body = large
		}
		all = append(all, queue.Settlement{ID: publish(t, q, "", body), Receipt: "another", As: queue.Extend})
	}
	s.bytes.Store(0)
	if got := receive(t, q, 100); len(got) < 8 {
		t.Errorf("%d messages were received", len(got))
	}
	if n := s.bytes.Swap(0); n > 40<<20 {
		t.Errorf("%d bytes were read for one batch", n)
	}
	q.Settle(t.Context(), "blue", all[:50]...)
	if n := s.bytes.Load(); n > 80<<20 { // each is read to be settled by itself
		t.Errorf("%d bytes were read to extend 50 messages", n)
	}
}

// Of large messages, not many more are read than a batch has.
func TestLargeMessagesAreReadAFewAtATime(t *testing.T) {
	s := &counting{Storage: new(memory.Store)}
	q := open(t, s)
	var all []queue.Settlement
	body := string(make([]byte, 1<<20))
	for range 100 {
		all = append(all, queue.Settlement{ID: publish(t, q, "", body), Receipt: "another", As: queue.Extend})
	}
	s.bytes.Store(0)
	if got := receive(t, q, 100); len(got) == 0 {
		t.Error("nothing was received")
	}
	if n := s.bytes.Swap(0); n > 16<<20 {
		t.Errorf("%d bytes were read for one batch", n)
	}
	q.Settle(t.Context(), "blue", all[:50]...)
	if n := s.bytes.Load(); n > 60<<20 { // each is read to be settled by itself
		t.Errorf("%d bytes were read to extend 50 messages", n)
	}
}

// Who is refused because another process was faster does not read the messages again.
func TestARefusedTakeIsCheap(t *testing.T) {
	inner := new(memory.Store)
	other := open(t, inner)
	counted := &counting{Storage: inner}
	first := true
	q := open(t, onCommit{counted, func(storage.Batch) {
		if first {
			first = false
			receive(t, other, 100)
			counted.take()
		}
	}})
	for range 200 {
		publish(t, other, "", "x")
	}
	if got := receive(t, q, 100); len(got) == 0 {
		t.Error("nothing was received")
	}
	if n := counted.take(); n != "5 reads, 2 commits" {
		t.Errorf("after another process was faster: %s", n)
	}
}

// Deliveries that are settled at once may be far from each other, and settled twice, by another delivery, or
// unacceptable: each has its own answer.
func TestEachSettlementHasItsAnswer(t *testing.T) {
	onAllStores(t, func(t *testing.T, s, _ storage.Storage) {
		q := open(t, s)
		for range 60 {
			publish(t, q, "", "x")
		}
		got := receive(t, q, 60)
		var some []queue.Delivery
		for i := 0; i < len(got); i += 10 {
			some = append(some, got[i])
		}
		all := settlements(some, queue.Acknowledge)
		all[1].Receipt = "another"
		all[2].As = "forget"
		gone := all[0]
		gone.ID = "msg_gone"
		all = append(all, gone, all[3])
		for i, err := range q.Settle(t.Context(), "blue", all...) {
			if want := map[int]error{1: queue.ErrLost, 2: queue.ErrInvalid}[i]; !errors.Is(err, want) {
				t.Errorf("settlement %d: %v, want %v", i, err, want)
			}
		}
		if n := count(t, s, "wmsg:"); n != 56 {
			t.Errorf("%d messages are left, want 56", n)
		}
	})
}

// Messages that are received together may be far from each other.
func TestMessagesFarApartAreReceivedTogether(t *testing.T) {
	q := open(t, new(memory.Store))
	for range 60 {
		publish(t, q, "", "x")
	}
	got := receive(t, q, 60)
	for i := 0; i < len(got); i += 10 {
		if err := settle(q, got[i], queue.Retry); err != nil {
			t.Fatal(err)
		}
	}
	if got := receive(t, q, 60); len(got) != 6 {
		t.Errorf("%d messages were received, want 6", len(got))
	}
}

// If another process settles one of several deliveries just before, the others are settled nevertheless.
func TestARefusalIsOfOneSettlement(t *testing.T) {
	inner := new(memory.Store)
	other := open(t, inner)
	var meddle func()
	q := open(t, onCommit{inner, func(storage.Batch) {
		if meddle != nil {
			f := meddle
			meddle = nil
			f()
		}
	}})
	for range 10 {
		publish(t, other, "", "x")
	}
	got := receive(t, q, 10)
	meddle = func() {
		if err := settle(other, got[4], queue.Retry); err != nil {
			t.Error(err)
		}
	}
	for i, err := range q.Settle(t.Context(), "blue", settlements(got, queue.Acknowledge)...) {
		if lost := errors.Is(err, queue.ErrLost); lost != (i == 4) || err != nil && !lost {
			t.Errorf("settlement %d: %v", i, err)
		}
	}
	if n := count(t, inner, "wmsg:"); n != 1 {
		t.Errorf("%d messages are left, want 1", n)
	}
}

// Whatever becomes of a call to the store, deliveries that are settled at once are settled, each as it was said.
func TestEachCallOfSeveralSettlementsMayFail(t *testing.T) {
	faults := 0
	for _, fault := range []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter, storagetest.CancelMiddle, storagetest.CrashBefore, storagetest.CrashAfter} {
		for call := 1; ; call++ {
			reached := false
			virtual(t, func(t *testing.T) { reached = settleWith(t, call, fault) })
			if !reached || t.Failed() {
				break
			}
			faults++
		}
	}
	if faults < 10 {
		t.Errorf("%d faults were met, want 10 or more", faults)
	}
}

// settleWith settles deliveries with a fault in a call. It reports whether there was such a call.
func settleWith(t *testing.T, call int, fault storagetest.Fault) (reached bool) {
	inner := new(memory.Store)
	q := open(t, inner)
	for range 6 {
		publish(t, q, "", "x")
	}
	rest := settlements(receive(t, q, 6), queue.Acknowledge, queue.Extend, queue.Retry)
	p := &process{t: t, inner: inner, call: call, fault: fault}
	p.start()
	p.do(func(q *queue.Queue) error {
		var again []queue.Settlement
		errs := q.Settle(p.ctx, "blue", rest...)
		for i, err := range errs {
			switch {
			case err == nil, p.crashes > 0 && errors.Is(err, queue.ErrLost) && rest[i].As == queue.Retry: // by the incarnation before
			case errors.Is(err, queue.ErrLost):
				t.Errorf("call %d, fault %d: %v", call, fault, err)
			default:
				again = append(again, rest[i])
			}
		}
		if rest = again; len(rest) == 0 {
			return nil
		}
		return errors.Join(errs...)
	})
	p.q.Close()
	for family, want := range map[string]int{"wmsg:": 4, "wdue:": 2, "wheld:": 2} {
		if n := count(t, inner, family); n != want {
			t.Errorf("call %d, fault %d: %d records %s, want %d", call, fault, n, family, want)
		}
	}
	return p.calls >= call
}
