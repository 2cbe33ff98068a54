package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/internal/queue"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// virtual runs a test in virtual time.
func virtual(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// Each message gets to one consumer.
func TestEachMessageIsDeliveredOnce(t *testing.T) {
	onAllStores(t, func(t *testing.T, s, two storage.Storage) {
		const messages = 60
		both := []*queue.Queue{open(t, s), open(t, two)}
		sent := map[string]bool{}
		for i := range messages {
			sent[publish(t, both[0], "", fmt.Sprint(i))] = true
		}
		var mu sync.Mutex
		got := map[string]int{}
		var left atomic.Int64
		left.Store(messages)
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				q := both[i%2]
				for left.Load() > 0 {
					some, err := q.Receive(t.Context(), "blue", 10, 0)
					if err != nil {
						t.Error(err)
						return
					}
					var settled []queue.Settlement
					for _, d := range some {
						mu.Lock()
						got[d.ID]++
						mu.Unlock()
						left.Add(-1)
						settled = append(settled, queue.Settlement{ID: d.ID, Receipt: d.Receipt, As: queue.Acknowledge})
						if d.Attempt != 1 || d.Name != "flow" {
							t.Errorf("got %+v", d)
						}
					}
					if err := errors.Join(q.Settle(t.Context(), "blue", settled...)...); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		for id, n := range got {
			if n != 1 || !sent[id] {
				t.Errorf("%s was delivered %d times", id, n)
			}
		}
		if len(got) != messages {
			t.Errorf("%d messages were delivered, want %d", len(got), messages)
		}
		if n := count(t, s, "w"); n != 0 {
			t.Errorf("%d records are left", n)
		}
	})
}

// A consumer that waits gets what is published meanwhile, in this process or in another one.
func TestAConsumerWaits(t *testing.T) {
	onAllStores(t, func(t *testing.T, s, two storage.Storage) {
		q, other := open(t, s), open(t, two)
		for _, from := range []*queue.Queue{q, other} {
			got := make(chan queue.Delivery, 1)
			go func() { got <- one(t, q) }()
			id := publish(t, from, "", "x")
			d := <-got
			if d.ID != id {
				t.Errorf("got %+v, want %s", d, id)
			}
			if err := settle(q, d, queue.Acknowledge); err != nil {
				t.Error(err)
			}
		}
	})
}

// A message whose consumer was killed is delivered again, with the same id, and before twice the Visibility. It
// delays no other message.
func TestTheMessagesOfAKilledConsumer(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		killed, q := open(t, s), open(t, s)
		ids := map[string]bool{}
		for range 100 {
			ids[publish(t, killed, "", "x")] = true
		}
		if n := len(receive(t, killed, 100)); n != 100 {
			t.Fatalf("took %d", n)
		}
		began := time.Now()
		another := publish(t, q, "", "y")
		if d := one(t, q); d.ID != another || time.Since(began) > time.Second {
			t.Errorf("got %s after %v, want %s at once", d.ID, time.Since(began), another)
		} else if err := settle(q, d, queue.Acknowledge); err != nil {
			t.Error(err)
		}
		for n := 0; n < 100; {
			if time.Since(began) > 10*queue.DefaultVisibility {
				t.Fatalf("%d of 100 messages were delivered again in %v", n, time.Since(began))
			}
			for _, d := range receive(t, q, 30) {
				if !ids[d.ID] || d.Attempt != 2 {
					t.Errorf("got %+v, want one of the 100 for the second time", d)
				}
				delete(ids, d.ID)
				n++
			}
		}
		if took := time.Since(began); took <= queue.DefaultVisibility || took > 2*queue.DefaultVisibility {
			t.Errorf("it took %v, want between %v and twice that", took, queue.DefaultVisibility)
		}
	})
}

// However many messages, up to 20,000, a dead cluster of consumers held, all are delivered again before twice the Visibility.
func TestTheMessagesOfManyKilledConsumers(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const messages = 2500
		s := new(memory.Store)
		killed, q := open(t, s), open(t, s)
		for range messages {
			publish(t, killed, "", "x")
		}
		for n := 0; n < messages; {
			n += len(receive(t, killed, 100))
		}
		began := time.Now()
		for n := 0; n < messages; {
			some := receive(t, q, 100)
			if len(some) == 0 {
				t.Fatalf("%d of %d messages were delivered again in %v", n, messages, time.Since(began))
			}
			var settled []queue.Settlement
			for _, d := range some {
				settled = append(settled, queue.Settlement{ID: d.ID, Receipt: d.Receipt, As: queue.Acknowledge})
			}
			if err := errors.Join(q.Settle(t.Context(), "blue", settled...)...); err != nil {
				t.Fatal(err)
			}
			n += len(some)
		}
		if took := time.Since(began); took > 2*queue.DefaultVisibility {
			t.Errorf("it took %v, want at most %v", took, 2*queue.DefaultVisibility)
		}
	})
}

// A consumer that is slow, and says so, keeps its message, also from a process whose clock is an hour ahead.
func TestASlowConsumerKeepsItsMessage(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		virtual(t, func(t *testing.T) {
			s := new(memory.Store)
			q, other := open(t, s), open(t, s, off(ahead))
			publish(t, q, "", "x")
			d := one(t, q)
			ctx, cancel := context.WithCancel(t.Context())
			theirs := make(chan []queue.Delivery, 1)
			go func() {
				got, _ := other.Receive(ctx, "blue", 1, time.Hour)
				theirs <- got
			}()
			for range 30 { // five minutes
				time.Sleep(queue.DefaultVisibility / 3)
				if err := settle(q, d, queue.Extend); err != nil {
					t.Fatalf("clock %v off: %v", ahead, err)
				}
			}
			cancel()
			if got := <-theirs; len(got) != 0 {
				t.Errorf("clock %v off: another consumer got %+v", ahead, got)
			}
			if err := settle(q, d, queue.Acknowledge); err != nil {
				t.Error(err)
			}
		})
	}
}

// Who acknowledges a message that another consumer has by now is told so. One that is gone is answered.
func TestALateAcknowledgementIsLost(t *testing.T) {
	onAllStores(t, func(t *testing.T, s, two storage.Storage) {
		late, q := open(t, s, visible(40*time.Millisecond)), open(t, two, visible(40*time.Millisecond))
		publish(t, late, "", "x")
		d := one(t, late)
		again := one(t, q)
		if again.ID != d.ID || again.Attempt != 2 || again.Receipt == d.Receipt {
			t.Fatalf("got %+v, then %+v", d, again)
		}
		for _, as := range []queue.Outcome{queue.Acknowledge, queue.Extend, queue.Retry} {
			if err := settle(late, d, as); !errors.Is(err, queue.ErrLost) {
				t.Errorf("%s too late: %v, want ErrLost", as, err)
			}
		}
		for range 2 {
			if err := settle(q, again, queue.Acknowledge); err != nil {
				t.Error(err)
			}
		}
		if err := settle(late, d, queue.Acknowledge); err != nil {
			t.Errorf("of a message that is gone: %v", err)
		}
		if n := count(t, s, "w"); n != 0 {
			t.Errorf("%d records are left", n)
		}
	})
}

// A retry is never early, and one that is uncounted does not count.
func TestARetryIsNotEarly(t *testing.T) {
	virtual(t, func(t *testing.T) {
		q := open(t, new(memory.Store))
		publish(t, q, "", "x")
		for i, want := range []int{1, 2, 2, 3} {
			began := time.Now()
			d := one(t, q)
			if d.Attempt != want {
				t.Errorf("delivery %d has attempt %d, want %d", i, d.Attempt, want)
			}
			if took := time.Since(began); i > 0 && (took < 7*time.Second || took > 8*time.Second) {
				t.Errorf("delivery %d came after %v, want 7 s", i, took)
			}
			if err := q.Settle(t.Context(), "blue", queue.Settlement{ID: d.ID, Receipt: d.Receipt, As: queue.Retry, After: 7 * time.Second, Uncounted: i == 1})[0]; err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A message waits for its delay.
func TestADelayIsWaitedFor(t *testing.T) {
	virtual(t, func(t *testing.T) {
		q := open(t, new(memory.Store))
		began := time.Now()
		if _, err := q.Publish(t.Context(), queue.Message{Queue: "blue", Name: "flow", Headers: map[string]string{"a": "b"}, Delay: 90 * time.Second}); err != nil {
			t.Fatal(err)
		}
		none(t, q)
		got, err := q.Receive(t.Context(), "blue", 1, time.Hour)
		if took := time.Since(began); err != nil || len(got) != 1 || got[0].Headers["a"] != "b" || took < 90*time.Second || took > 91*time.Second {
			t.Errorf("got %+v, %v after %v", got, err, took)
		}
	})
}

// A consumer that is gone takes nothing, and what it has been given at that moment is given back.
func TestAConsumerThatIsGoneTakesNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		q := open(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			got, err := q.Receive(ctx, "blue", 1, time.Hour)
			if len(got) > 0 {
				t.Errorf("got %+v", got)
			}
			ended <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		publish(t, q, "", "x")
		synctest.Wait()
		if n := count(t, s, "wdue:"); n != 1 {
			t.Errorf("%d messages wait, want 1", n)
		}
		if d := one(t, q); d.Attempt != 1 {
			t.Errorf("got %+v, want attempt 1", d)
		}
		q.Close()
		if _, err := q.Receive(t.Context(), "blue", 1, 0); !errors.Is(err, queue.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// A delivery writes a message twice: as a condition, and anew. A message is refused if the store has no room for that, and several
// are taken at a time as far as there is room.
func TestMessagesOfAStoreWithSmallBatches(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wide := new(memory.Store)
		s := small{wide, 10_000}
		q := open(t, s)
		body := func(n int) queue.Message {
			return queue.Message{Queue: "blue", Name: "n", Body: bytes.Repeat([]byte{'x'}, n)}
		}
		largest := 0
		for n := 10_000; n > 0 && largest == 0; n -= 10 {
			switch _, err := q.Publish(t.Context(), body(n)); {
			case err == nil:
				largest = n
			case !errors.Is(err, queue.ErrInvalid):
				t.Fatal(err)
			}
		}
		if largest < 4_000 || largest > 5_000 {
			t.Errorf("a message of %d bytes is accepted, want somewhat less than half a batch", largest)
		}
		for range 5 {
			if _, err := q.Publish(t.Context(), body(3_000)); err != nil {
				t.Fatal(err)
			}
		}
		sizes := map[int]int{}
		for range 6 {
			for _, d := range receive(t, q, 6) {
				sizes[len(d.Body)]++
				for _, as := range []queue.Outcome{queue.Extend, queue.Retry} {
					if err := q.Settle(t.Context(), "blue", queue.Settlement{ID: d.ID, Receipt: d.Receipt, As: as, After: time.Hour})[0]; err != nil {
						t.Errorf("%s: %v", as, err)
					}
				}
			}
		}
		if sizes[largest] != 1 || sizes[3_000] != 5 {
			t.Errorf("got messages of sizes %v", sizes)
		}
	})
}

// What a store had room for once, and has no more, is passed over, and is reported.
func TestMessageThatNoLongerFits(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wide, large := new(memory.Store), queue.Message{Queue: "blue", Name: "n", Body: make([]byte, 6_000)}
		for range 20 * 17 {
			if _, err := open(t, wide).Publish(t.Context(), large); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second) // they are the first ones
		var reported atomic.Int64
		q := open(t, small{wide, 10_000}, func(c *queue.Config) { c.Damaged = func(string, error) { reported.Add(1) } })
		publish(t, q, "", "x")
		if d := one(t, q); string(d.Body) == "" || len(d.Body) > 1_000 || reported.Load() == 0 {
			t.Errorf("got a message of %d bytes; another one was reported %d times", len(d.Body), reported.Load())
		}
	})
}

// Entries of a queue that cannot be read are passed over, and are reported, however many a consumer takes.
func TestEntriesThatCannotBeRead(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		for i := range 30 {
			b := storage.Batch{Ops: []storage.Op{storage.Put(fmt.Appendf(nil, "wdue:blue:!%02d:m", i), nil)}}
			if err := s.Commit(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		reported, overdue := map[string]bool{}, map[string]bool{}
		var mu sync.Mutex
		note := func(in map[string]bool, what string) {
			mu.Lock()
			defer mu.Unlock()
			in[what] = true
		}
		q := open(t, s, func(c *queue.Config) {
			c.Damaged = func(key string, _ error) { note(reported, key) }
			c.Overdue = func(name string, _ time.Time) { note(overdue, name) }
		})
		id := publish(t, q, "", "x")
		if d := one(t, q); d.ID != id || len(reported) != 30 {
			t.Errorf("got %s, want %s; %d entries were reported, want 30", d.ID, id, len(reported))
		}
		clear(reported)
		for _, name := range []string{"blue", "green"} {
			if _, err := q.Publish(t.Context(), queue.Message{Queue: name, Name: "n"}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		q.Run(ctx)
		if len(reported) != 30 || !overdue["blue"] || !overdue["green"] {
			t.Errorf("%d entries were reported, want 30; overdue are %v, want blue and green", len(reported), overdue)
		}
	})
}

// Queues of which nobody receives any more are forgotten, and can be received from again.
func TestQueuesAreForgotten(t *testing.T) {
	virtual(t, func(t *testing.T) {
		q := open(t, new(memory.Store))
		for i := range 3000 {
			if got, err := q.Receive(t.Context(), fmt.Sprint("q", i), 1, 0); err != nil || len(got) != 0 {
				t.Fatal(got, err)
			}
		}
		time.Sleep(time.Minute)
		if n := q.Lines(); n > 1000 {
			t.Errorf("%d queues are remembered", n)
		}
		publish(t, q, "", "x")
		one(t, q)
	})
}

// A small store has a limit of the bytes of a batch.
type small struct {
	storage.Storage
	bytes int
}

func (s small) Capabilities() storage.Capabilities {
	c := s.Storage.Capabilities()
	c.MaxBatch.Bytes = s.bytes
	return c
}

func (s small) Commit(ctx context.Context, b storage.Batch) error {
	if err := b.Check(s.Capabilities().MaxBatch); err != nil {
		return err
	}
	return s.Storage.Commit(ctx, b)
}

// A consumer that goes while its message is being taken gives it back, uncounted.
func TestAConsumerThatGoesMeanwhileGivesBack(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		ctx, cancel := context.WithCancel(t.Context())
		q := open(t, onCommit{s, func(b storage.Batch) {
			for _, o := range b.Ops {
				if string(o.Key[:6]) == "wheld:" {
					cancel()
				}
			}
		}})
		publish(t, q, "", "x")
		if got, err := q.Receive(ctx, "blue", 1, time.Hour); len(got) > 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("got %+v, %v", got, err)
		}
		began := time.Now()
		if d := one(t, open(t, s)); d.Attempt != 1 || time.Since(began) > time.Second {
			t.Errorf("got %+v after %v, want attempt 1 at once", d, time.Since(began))
		}
	})
}

// An onCommit has something happen before each commit that puts something.
type onCommit struct {
	storage.Storage
	happens func(storage.Batch)
}

func (s onCommit) Commit(ctx context.Context, b storage.Batch) error {
	s.happens(b)
	return s.Storage.Commit(ctx, b)
}
