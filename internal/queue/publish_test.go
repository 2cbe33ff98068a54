package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/queue"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// WLD-29, WLD-31, WLD-32, WLD-36, WLD-38: within the window of a key there is one message, and another one behind
// it, although nothing was swept and the first is still in flight.
func TestAKeyIsPublishedOnceWithinItsWindow(t *testing.T) {
	onAllStores(t, func(t *testing.T, s, two storage.Storage) {
		var passed atomic.Int64
		began := time.Now()
		tick := clock(func() time.Time { return began.Add(time.Duration(passed.Load())) })
		q, other := open(t, s, tick), open(t, two, tick)
		first := publish(t, q, "k", "1")
		for _, later := range []time.Duration{0, time.Second, queue.DefaultWindow} {
			passed.Store(int64(later))
			if again := publish(t, other, "k", "2"); again != first {
				t.Errorf("%v later: got %s, want %s", later, again, first)
			}
		}
		held := one(t, q)
		if held.ID != first || string(held.Body) != "1" {
			t.Errorf("got %+v, want %s with the first body", held, first)
		}
		none(t, other)
		passed.Store(int64(queue.DefaultWindow + time.Millisecond))
		second := publish(t, other, "k", "3")
		if beside := one(t, q); second == first || beside.ID != second {
			t.Errorf("behind the window: published %s, delivered %+v beside %s", second, beside, first)
		}
		if n := count(t, s, "wkey:"); n != 1 {
			t.Errorf("the store has %d records of the key, want 1", n)
		}
		if n := count(t, s, "wexp:"); n != 1 {
			t.Errorf("the store has %d entries of the end of a window, want 1", n)
		}
	})
}

// WLD-30, WLD-35: the window is 5 s and settable, and that of each key is its own.
func TestEachKeyHasItsWindow(t *testing.T) {
	if queue.DefaultWindow != 5000*time.Millisecond {
		t.Errorf("the window is %v", queue.DefaultWindow)
	}
	now := time.Now()
	tick := func() time.Time { return now }
	q := open(t, new(memory.Store), clock(tick), func(c *queue.Config) { c.Window = time.Hour })
	minted := map[string]bool{}
	for i := range 100 { // 100 steps over five days
		key := fmt.Sprintf("step_%026d", i)
		id := publish(t, q, key, "")
		now = now.Add(time.Hour)
		if again := publish(t, q, key, ""); again != id {
			t.Fatalf("%s within its window: got %s, want %s", key, again, id)
		}
		if other := publish(t, q, key+"b", ""); other == id {
			t.Fatalf("%s and another key have one message", key)
		}
		now = now.Add(12 * time.Minute)
		minted[id] = true
	}
	if len(minted) != 100 {
		t.Errorf("100 keys have %d messages", len(minted))
	}
}

// WLD-33: without a key each publication counts. WLD-1, WLD-2: its id has the prefix of messages.
func TestWithoutAKeyEachPublicationCounts(t *testing.T) {
	q := open(t, new(memory.Store))
	minted := map[string]bool{}
	for range 10 {
		id := publish(t, q, "", "same")
		if !regexp.MustCompile(`^msg_[0-9A-HJKMNP-TV-Z]{26}$`).MatchString(id) {
			t.Errorf("got the id %q", id)
		}
		minted[id] = true
	}
	if got := drain(t, q); len(minted) != 10 || len(got) != 10 {
		t.Errorf("10 publications have %d ids and %d deliveries", len(minted), len(got))
	}
}

// WLD-41: who publishes waits for no consumer.
func TestWhoPublishesDoesNotWait(t *testing.T) {
	virtual(t, func(t *testing.T) {
		q := open(t, new(memory.Store))
		began := time.Now()
		publish(t, q, "", "x")
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// WLD-29, WLD-31: 64 publications with one key at once, from two processes, are one message.
func TestOneKeyAtOnceIsOneMessage(t *testing.T) {
	onAllStores(t, func(t *testing.T, s, two storage.Storage) {
		both := []*queue.Queue{open(t, s), open(t, two)}
		got := make([]string, 64)
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() { got[i] = publish(t, both[i%2], "k", "x") })
		}
		all.Wait()
		for _, id := range got {
			if id != got[0] {
				t.Fatalf("got %s and %s", got[0], id)
			}
		}
		if d := drain(t, both[1]); len(d) != 1 || d[got[0]] != 1 {
			t.Errorf("delivered %v, want %s once", d, got[0])
		}
	})
}

// A clock that is an hour off suppresses no publication of others.
func TestAWrongClockSuppressesNothing(t *testing.T) {
	for _, d := range []time.Duration{time.Hour, -time.Hour} {
		s := new(memory.Store)
		wrong, right := open(t, s, off(d)), open(t, s)
		theirs := publish(t, wrong, "k", "wrong")
		if mine := publish(t, right, "k", "right"); mine == theirs {
			t.Errorf("a clock that is %v off suppressed a publication", d)
		}
		if n := count(t, s, "wmsg:"); n != 2 {
			t.Errorf("%v: the store has %d messages, want 2", d, n)
		}
	}
}

// WLD-29: a publication landed, and its process did not hear of it until its key was another's, or was swept. It
// does not publish once more, and does not ask without end.
func TestPublicationThatIsSettledLate(t *testing.T) {
	for _, taken := range []bool{true, false} {
		virtual(t, func(t *testing.T) {
			s := new(memory.Store)
			began := time.Now()
			ctx, cancel := context.WithCancel(backoff.Even(t.Context()))
			defer cancel()
			calls, commits := 0, 0
			q := open(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
				if c.Method == "Commit" {
					commits++
				}
				switch calls++; {
				case c.Method == "Commit" && commits == 1:
					return storagetest.ErrorAfter
				case commits > 0 && time.Since(began) < 5*time.Minute:
					return storagetest.ErrorBefore
				case calls > 10_000:
					cancel()
				}
				return storagetest.None
			}))
			other := open(t, s)
			go other.Run(ctx)
			if taken {
				time.AfterFunc(4*time.Minute+58*time.Second, func() { publish(t, other, "k", "other") })
			}
			id, err := q.Publish(ctx, queue.Message{Queue: "blue", Name: "flow", Body: []byte("mine"), Key: "k"})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]int{id: 1}
			if taken {
				want[publish(t, other, "k", "again")] = 1
			}
			if got := drain(t, other); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("taken %v: delivered %v, want %v", taken, got, want)
			}
			if calls > 1000 {
				t.Errorf("taken %v: it asked the store %d times", taken, calls)
			}
		})
	}
}

// A call that is made again behind the window gets its first answer, for a minute, also if its message was delivered and publishers
// sweep. Another call with the key, and one that does not say that it is made again, publish.
func TestACallIsMadeAgainBehindItsWindow(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		q := open(t, s)
		call := func(name string, retry bool) string {
			t.Helper()
			id, err := q.Publish(t.Context(), queue.Message{Queue: "blue", Name: "flow", Key: "k", Request: name, Retry: retry})
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		first := call("r1", false)
		if err := settle(q, one(t, q), queue.Acknowledge); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			time.Sleep(20 * time.Second)
			for i := range 1000 { // it sweeps
				publish(t, q, fmt.Sprint(i), "")
			}
			synctest.Wait()
			if again := call("r1", true); again != first {
				t.Errorf("made again: %s, want %s", again, first)
			}
		}
		second := call("r2", true)
		if second == first {
			t.Error("another call with the key has published nothing")
		}
		time.Sleep(20 * time.Second)
		if third := call("r2", false); third == second {
			t.Error("a call that is not made again has published nothing")
		}
		time.Sleep(20 * time.Second)
		unnamed := call("", true)
		time.Sleep(20 * time.Second)
		if call("", true) == unnamed {
			t.Error("a call without a name has published nothing")
		}
		call("r3", false)
		time.Sleep(time.Minute + time.Second)
		for i := range 1000 {
			publish(t, q, fmt.Sprint("late", i), "")
		}
		synctest.Wait()
		if n := count(t, s, "wkey:blue:k"); n != 0 {
			t.Errorf("after a minute %d records of the key are left", n)
		}
	})
}

// WLD-37: who has written 1,000 keys removes those whose window is over.
func TestPublishersSweep(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		q := open(t, s)
		for i := range 999 {
			publish(t, q, fmt.Sprint(i), "")
		}
		time.Sleep(6 * time.Second)
		if n := count(t, s, "wkey:"); n != 999 {
			t.Fatalf("after 999 keys the store has %d", n)
		}
		publish(t, q, "last", "")
		synctest.Wait()
		if n, m := count(t, s, "wkey:"), count(t, s, "wexp:"); n != 1 || m != 1 {
			t.Errorf("after 1,000 keys the store has %d, and %d entries; want those of the last one", n, m)
		}
	})
}

// WLD-39: Run removes keys that are older than a minute and than their window, and no others.
func TestRunSweeps(t *testing.T) {
	for _, window := range []time.Duration{5 * time.Second, time.Hour} {
		virtual(t, func(t *testing.T) {
			s := new(memory.Store)
			q := open(t, s, func(c *queue.Config) { c.Window = window })
			ctx, cancel := context.WithCancel(backoff.Even(t.Context())) // it sweeps at each full minute
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- q.Run(ctx) }()
			time.Sleep(2 * time.Second)
			publish(t, q, "k", "")
			least := max(window, time.Minute)
			time.Sleep(least - time.Second)
			if n := count(t, s, "wkey:"); n != 1 {
				t.Errorf("a window of %v: the key is gone before %v", window, least)
			}
			time.Sleep(3 * time.Minute)
			if n, m := count(t, s, "wkey:"), count(t, s, "wexp:"); n != 0 || m != 0 {
				t.Errorf("a window of %v: %d keys and %d entries are left behind %v", window, n, m, least)
			}
			if n := count(t, s, "wmsg:"); n != 1 {
				t.Error("the message went with its key")
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// Run reports queues that nobody empties.
func TestRunReportsQueuesThatNobodyEmpties(t *testing.T) {
	virtual(t, func(t *testing.T) {
		overdue := make(chan string, 100)
		q := open(t, new(memory.Store), func(c *queue.Config) {
			c.Overdue = func(name string, since time.Time) { overdue <- fmt.Sprint(name, " ", time.Since(since) >= time.Minute) }
		})
		for _, m := range []queue.Message{{Queue: "a:b", Name: "n"}, {Queue: "b", Name: "n", Delay: time.Hour}, {Queue: "c", Name: "n"}, {Queue: "c", Name: "n"}} {
			if _, err := q.Publish(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		q.Run(ctx)
		close(overdue)
		got := map[string]bool{}
		for o := range overdue {
			got[o] = true
		}
		if len(got) != 2 || !got["a:b true"] || !got["c true"] {
			t.Errorf("got %v, want a:b and c, each when it is overdue", got)
		}
	})
}

// What the store does not answer is told, is no damage, and is done in the next minute.
func TestRunTellsWhatFails(t *testing.T) {
	for _, method := range []string{"Get", "Scan", "Commit"} {
		virtual(t, func(t *testing.T) {
			s := new(memory.Store)
			var away atomic.Bool
			faulty := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
				if away.Load() && c.Method == method {
					return storagetest.ErrorBefore
				}
				return storagetest.None
			})
			failed := make(chan error, 100)
			q := open(t, faulty, func(c *queue.Config) { c.Failed = func(err error) { failed <- err } })
			publish(t, q, "k", "")
			time.Sleep(time.Hour)
			away.Store(true)
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { q.Run(ctx) })
			synctest.Wait()
			if n := count(t, s, "wkey:"); n != 1 || len(failed) != 1 || !errors.Is(<-failed, storagetest.ErrInjected) {
				t.Errorf("%s fails: %d keys, and not the one error", method, n)
			}
			away.Store(false)
			time.Sleep(3 * time.Minute)
			if n := count(t, s, "wkey:"); n != 0 || len(failed) != 0 {
				t.Errorf("%s works again: %d keys, %d errors", method, n, len(failed))
			}
			stop()
			running.Wait()
		})
	}
}

// A key whose record cannot be read keeps no other from being removed, and the error says which it is.
func TestSweepPassesOverAKeyThatCannotBeRead(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		bad := keys.QueueKey("blue", "k3")
		faulty := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Get" && bytes.Equal(c.Key, bad) && time.Now().Minute() > 30 {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		failed := make(chan error, 100)
		q := open(t, faulty, func(c *queue.Config) { c.Failed = func(err error) { failed <- err } })
		for i := range 6 {
			publish(t, q, fmt.Sprint("k", i), "")
		}
		time.Sleep(31 * time.Minute)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { q.Run(ctx) })
		synctest.Wait()
		if n := count(t, s, "wkey:"); n != 1 || len(failed) != 1 {
			t.Fatalf("%d keys are left, and %d errors", n, len(failed))
		}
		if err := <-failed; !errors.Is(err, storagetest.ErrInjected) || !strings.Contains(err.Error(), "k3") {
			t.Errorf("%v does not say which key cannot be read", err)
		}
		stop()
		running.Wait()
	})
}

// Several keys in a row that cannot be read hold up those behind them only until the next sweep.
func TestSweepGoesOnBehindKeysThatCannotBeRead(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		began := time.Now()
		faulty := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			bad := []string{string(keys.QueueKey("blue", "k1")), string(keys.QueueKey("blue", "k2")), string(keys.QueueKey("blue", "k3"))}
			if c.Method == "Get" && slices.Contains(bad, string(c.Key)) && time.Since(began) > 30*time.Minute {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		q := open(t, faulty)
		for i := range 6 {
			publish(t, q, fmt.Sprint("k", i), "")
		}
		time.Sleep(31 * time.Minute)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { q.Run(ctx) })
		time.Sleep(90 * time.Second)
		if n := count(t, s, "wkey:"); n != 3 {
			t.Errorf("%d keys are left after two sweeps, want the three that cannot be read", n)
		}
		stop()
		running.Wait()
	})
}

// What is not acceptable is refused before anything is written.
func TestPublishRefuses(t *testing.T) {
	s := new(memory.Store)
	q := open(t, s)
	long := strings.Repeat("x", 2000)
	for name, m := range map[string]queue.Message{
		"no queue":      {Name: "n"},
		"long queue":    {Queue: long, Name: "n"},
		"no name":       {Queue: "blue"},
		"long name":     {Queue: "blue", Name: long},
		"long key":      {Queue: "blue", Name: "n", Key: long},
		"long header":   {Queue: "blue", Name: "n", Headers: map[string]string{"a": strings.Repeat("x", 12<<10-4)}},
		"long call":     {Queue: "blue", Name: "n", Key: "k", Request: long},
		"negative wait": {Queue: "blue", Name: "n", Delay: -1},

		// A record with them could not be read.
		"queue that is no text":  {Queue: "bl\xffue", Name: "n"},
		"name that is no text":   {Queue: "blue", Name: "n\xff"},
		"key that is no text":    {Queue: "blue", Name: "n", Key: "\xff"},
		"call that is no text":   {Queue: "blue", Name: "n", Key: "k", Request: "\xff"},
		"header that is no text": {Queue: "blue", Name: "n", Headers: map[string]string{"caf\xe9": "a"}},
		"value that is no text":  {Queue: "blue", Name: "n", Headers: map[string]string{"a": "caf\xe9"}},

		// No consumer could post it.
		"header without a name":     {Queue: "blue", Name: "n", Headers: map[string]string{"": "a"}},
		"header with a blank":       {Queue: "blue", Name: "n", Headers: map[string]string{"a b": "a"}},
		"header with a colon":       {Queue: "blue", Name: "n", Headers: map[string]string{"a:": "a"}},
		"header in Latin-1":         {Queue: "blue", Name: "n", Headers: map[string]string{"é": "a"}},
		"header of the connection":  {Queue: "blue", Name: "n", Headers: map[string]string{"Transfer-Encoding": "chunked"}},
		"header of another length":  {Queue: "blue", Name: "n", Headers: map[string]string{"content-length": "1"}},
		"value with a line feed":    {Queue: "blue", Name: "n", Headers: map[string]string{"a": "a\n"}},
		"value with a zero":         {Queue: "blue", Name: "n", Headers: map[string]string{"a": "a\x00"}},
		"value with a DEL":          {Queue: "blue", Name: "n", Headers: map[string]string{"a": "\x7f"}},
		"value that is not Latin-1": {Queue: "blue", Name: "n", Headers: map[string]string{"a": "注文"}},
	} {
		if _, err := q.Publish(t.Context(), m); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
	fits := queue.Message{Queue: "green", Name: "n", Headers: map[string]string{"A-1!#$%&'*+.^_`|~z": "\tcafé ~", "b": strings.Repeat("x", 12<<10-40)}}
	if _, err := open(t, new(memory.Store)).Publish(t.Context(), fits); err != nil {
		t.Errorf("headers that fit: %v", err)
	}
	if _, err := q.Receive(t.Context(), "", 1, 0); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("receive of no queue: %v", err)
	}
	if _, err := q.Receive(t.Context(), "blue", 0, 0); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("receive of nothing: %v", err)
	}
	for _, st := range []queue.Settlement{{}, {ID: "m", Receipt: "r", As: "drop"}, {ID: "m", Receipt: "r", As: queue.Extend, After: -1}, {ID: "m", As: queue.Acknowledge}} {
		if err := q.Settle(t.Context(), "blue", st)[0]; !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("settle %+v: %v, want ErrInvalid", st, err)
		}
	}
	if _, err := queue.New(queue.Config{Storage: s, Window: -1}); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("a negative window: %v", err)
	}
	if all := left(t, s); len(all) != 0 {
		t.Errorf("the store has %v", all)
	}
}
