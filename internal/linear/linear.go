// Package linear checks that a store is linearizable: all results of concurrent calls could
// have been returned by a store that executes one call at a time, each at some time between
// its call and its return. [Check] records histories of Get, Scan and Commit and verifies
// them with porcupine.
//
// A call of unknown outcome counts as one that takes effect at any time after it was made, or
// never.
package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// A history is the calls of several clients. All clients work on one set of keys and then on
// the next, so that they compete, and so that each set can be verified separately.
const (
	clients = 8
	sets    = 10
	calls   = 1000
	atOnce  = 4 // concurrent histories, so that sets and histories share groups of commits
)

// Check records 40 histories of 1,000 calls on s (8 under the race detector, 1,000 with
// WEFT_TORTURE), and expects each to be linearizable. Besides calls that fail in s, some calls
// are made to fail before or after they reach s. WEFT_SEED repeats the calls, but not their
// interleaving.
func Check(t *testing.T, s storage.Storage) { check(t, s, true, some()) }

// CheckWithoutRanges is Check without DeleteRange.
func CheckWithoutRanges(t *testing.T, s storage.Storage) { check(t, s, false, some()) }

// During is Check for as many histories as begin while more reports true, and at least a few.
func During(t *testing.T, s storage.Storage, more func() bool) {
	check(t, s, true, func(first int) int {
		if first > 0 && !more() {
			return 0
		}
		return atOnce
	})
}

// some tells check how many histories are to be recorded next, after so many.
func some() func(first int) int {
	histories := torture.Rounds(1000, 40, 8)
	return func(first int) int { return min(atOnce, histories-first) }
}

func check(t *testing.T, s storage.Storage, ranges bool, next func(first int) int) {
	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("WEFT_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("WEFT_SEED=%d", seed)
	begun := time.Now()
	var total tally
	var judging time.Duration
	histories := 0
	for n := next(0); n > 0 && !t.Failed(); n = next(histories) {
		var all sync.WaitGroup
		recorded := make([]*history, n)
		for i := range recorded {
			recorded[i] = newHistory(s, seed, uint64(histories+i))
			recorded[i].ranges = ranges
			all.Go(recorded[i].record)
		}
		all.Wait()
		since := time.Now()
		for _, h := range recorded {
			if err := h.judge(); err != nil {
				t.Error(err)
			}
			total.add(&h.tally)
		}
		judging += time.Since(since)
		histories += n
	}
	t.Logf("%d histories in %v, %v of it judging: %s", histories, time.Since(begun).Round(time.Millisecond), judging.Round(time.Millisecond), &total)
	if err := total.enough(); err != nil && !t.Failed() {
		t.Error(err)
	}
}

// A tally counts results.
type tally struct{ reads, failed, done, conflicts, unknown atomic.Int64 }

func (a *tally) add(b *tally) {
	a.reads.Add(b.reads.Load())
	a.failed.Add(b.failed.Load())
	a.done.Add(b.done.Load())
	a.conflicts.Add(b.conflicts.Load())
	a.unknown.Add(b.unknown.Load())
}

func (a *tally) String() string {
	return fmt.Sprintf("%d reads and %d failed ones, %d commits, %d conflicts, %d unknown outcomes",
		a.reads.Load(), a.failed.Load(), a.done.Load(), a.conflicts.Load(), a.unknown.Load())
}

// enough returns an error if there were too few results of any kind to be meaningful.
func (a *tally) enough() error {
	all := a.done.Load() + a.conflicts.Load() + a.unknown.Load()
	for _, of := range []struct {
		name     string
		n, least int64
	}{
		{"reads", a.reads.Load(), all / 4},
		{"commits", a.done.Load(), all / 5},
		{"conflicts", a.conflicts.Load(), all / 20},
		{"unknown outcomes", a.unknown.Load(), all / 100},
	} {
		if of.n < of.least {
			return fmt.Errorf("got %d %s of %d batches, want at least %d: this proves little", of.n, of.name, all, of.least)
		}
	}
	return nil
}

// A history is recorded on its own keys.
type history struct {
	tally
	store  storage.Storage
	prefix string
	seed   uint64
	number uint64
	ranges bool         // batches may have a DeleteRange
	clock  atomic.Int64 // increases at each call and each return
	value  atomic.Uint32

	mu      sync.Mutex
	entries []porcupine.Operation // guarded by mu
}

func newHistory(s storage.Storage, seed, number uint64) *history {
	rnd := rand.New(rand.NewPCG(seed, number))
	h := &history{seed: seed, number: number, prefix: fmt.Sprintf("history%d-%d:", seed, number)}
	h.value.Store(shared)
	h.store = storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
		if c.Method != "Commit" {
			return storagetest.None
		}
		switch rnd.IntN(100) {
		case 0:
			return storagetest.ErrorBefore
		case 1, 2:
			return storagetest.ErrorAfter
		case 3:
			return storagetest.CancelMiddle
		}
		return storagetest.None
	})
	return h
}

func (h *history) record() {
	var all sync.WaitGroup
	for i := range clients {
		c := &client{history: h, id: i, rnd: rand.New(rand.NewPCG(h.seed, h.number<<8|uint64(i+1)))}
		all.Go(c.run)
	}
	all.Wait()
}

// judge returns an error that shows the calls if no order explains their results.
func (h *history) judge() error {
	for _, set := range bySet(h.entries) {
		switch porcupine.CheckOperationsTimeout(model, set, 5*time.Minute) {
		case porcupine.Illegal:
			return fmt.Errorf("WEFT_SEED=%d, history %d: no serial order explains the results:\n%s", h.seed, h.number, describe(set))
		case porcupine.Unknown:
			return fmt.Errorf("WEFT_SEED=%d, history %d: verification timed out:\n%s", h.seed, h.number, describe(set))
		}
	}
	return nil
}

// A client makes one call after another.
type client struct {
	*history
	id    int
	rnd   *rand.Rand
	set   int
	known state // what it last saw of the set
	look  bool  // scan next: it has not seen the set yet, or has met a conflict
}

func (c *client) run() {
	const each = calls / clients
	for n := range each {
		if set := n * sets / each; n == 0 || set != c.set {
			c.set, c.known, c.look = set, state{}, c.rnd.IntN(2) == 0
		}
		c.call()
	}
}

func (c *client) call() {
	switch n := c.rnd.IntN(100); {
	case c.look || n < 10:
		c.look = false
		c.scan()
	case n < 35:
		c.get()
	default:
		c.commit()
	}
}

func (c *client) key(i int) []byte { return fmt.Appendf(nil, "%s%d:%d", c.prefix, c.set, i) }

func (c *client) get() {
	in := input{set: c.set, kind: getting, key: c.rnd.IntN(keys)}
	began := c.clock.Add(1)
	raw, err := c.store.Get(context.Background(), c.key(in.key))
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		c.failed.Add(1)
		return
	}
	v := absent
	if err == nil {
		v = decode(raw)
	}
	c.reads.Add(1)
	c.known[in.key] = v
	var seen state
	seen[in.key] = v
	c.note(in, output{seen: seen}, began)
}

// scan reads a whole set.
func (c *client) scan() {
	began := c.clock.Add(1)
	page, err := c.store.Scan(context.Background(), storage.Prefix(fmt.Appendf(nil, "%s%d:", c.prefix, c.set)))
	if err != nil {
		c.failed.Add(1)
		return
	}
	var seen state
	for _, e := range page {
		i, _ := strconv.Atoi(string(e.Key[len(e.Key)-1:]))
		seen[i] = decode(e.Value)
	}
	c.reads.Add(1)
	c.known = seen
	c.note(input{set: c.set, kind: scanning}, output{seen: seen}, began)
}

func (c *client) commit() {
	in := input{set: c.set, kind: committing, batch: c.decide()}
	b := storage.Batch{Urgent: c.rnd.IntN(20) == 0}
	for _, cond := range in.batch.conditions {
		b.If = append(b.If, storage.Condition{Kind: cond.kind, Key: c.key(cond.key), Value: encode(cond.value)})
	}
	for _, o := range in.batch.ops {
		if o.kind == storage.DeleteRangeOp {
			b.Ops = append(b.Ops, storage.DeleteRange(storage.Prefix(fmt.Appendf(nil, "%s%d:", c.prefix, c.set))))
			continue
		}
		b.Ops = append(b.Ops, storage.Op{Kind: o.kind, Key: c.key(o.key), Value: encode(o.value)})
	}
	began := c.clock.Add(1)
	err := c.store.Commit(context.Background(), b)
	switch {
	case err == nil:
		c.done.Add(1)
		c.known = in.batch.apply(c.known)
		c.note(in, output{answer: done}, began)
	case errors.Is(err, storage.ErrConflict):
		c.conflicts.Add(1)
		c.look = true
		c.note(in, output{answer: refused}, began)
	default:
		c.unknown.Add(1)
		c.look = c.rnd.IntN(2) == 0
		c.note(in, output{answer: unknown}, began)
	}
}

// decide returns a batch whose conditions mostly hold, as far as the client knows.
func (c *client) decide() (b batch) {
	mustPut := [keys]bool{}
	for i, v := range c.known {
		cond := condition{key: i, value: v}
		switch n := c.rnd.IntN(20); {
		case n < 9:
			continue
		case n == 9:
			cond.kind, cond.value = storage.IsEqual, c.fresh()
		case v == absent:
			cond.kind, mustPut[i] = storage.IsAbsent, true
		case n < 13:
			cond.kind = storage.IsPresent
		default:
			cond.kind = storage.IsEqual
		}
		b.conditions = append(b.conditions, cond)
	}
	for _, i := range c.rnd.Perm(keys) {
		switch n := c.rnd.IntN(20); {
		case mustPut[i] || n < 12:
			b.ops = append(b.ops, op{storage.PutOp, i, c.fresh()})
		case n < 14:
			b.ops = append(b.ops, op{kind: storage.DeleteOp, key: i})
		case n == 14 && len(b.ops) < 2 && c.ranges:
			b.ops = append(b.ops, op{kind: storage.DeleteRangeOp})
		}
	}
	return b
}

// fresh returns a value that nobody has put before, or occasionally one that many clients put.
func (c *client) fresh() uint32 {
	if c.rnd.IntN(8) == 0 {
		return 1 + c.rnd.Uint32N(shared)
	}
	return c.value.Add(1)
}

func (c *client) note(in input, out output, began int64) {
	ended := c.clock.Add(1)
	if out.answer == unknown {
		ended = never
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = append(c.entries, porcupine.Operation{ClientId: c.id, Input: in, Call: began, Output: out, Return: ended})
}
