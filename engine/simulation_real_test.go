package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// The simulation on each real store: what it answers to every call in a storm, and to every commit that lands late, is what
// the store in memory answers, and in the end both have the same contents. So what TestSimulation shows of engines on the store in
// memory is true on the others.
func TestSimulationOnStores(t *testing.T) {
	torture.Slow(t)
	stores := map[string]sweep.Store{"postgres": onPostgres(t)}
	maps.Copy(stores, sweepStores)
	delete(stores, "memory")
	first, n := uint64(20_000), torture.Rounds(100, 10, 1)
	seed, chosen := seedToPlay(t)
	switch {
	case chosen:
		first, n = seed, 1
	case os.Getenv("WEFT_TORTURE") != "":
		first = seed >> 1
	}
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			met := map[string]int{}
			for seed := first; seed < first+uint64(n); seed++ {
				for what, times := range simulateOn(t, seed, store.Open).met {
					met[what] += times
				}
			}
			t.Logf("%d seeds: %v", n, met)
			for _, what := range []string{"error before", "error after", "answer late", "lands late", "refused late", "unknown outcomes", "killed", "takeovers", "calls compared"} {
				if met[what] < n/2 {
					t.Errorf("%s: %d in %d seeds, want %d at least: too few to mean anything", what, met[what], n, n/2)
				}
			}
		})
	}
}

// A store that differs from its model in one answer, or in one value that nobody reads, is noticed.
func TestSimulationNoticesAnotherAnswer(t *testing.T) {
	ctx, key := context.Background(), []byte("key")
	for name, call := range map[string]func(*compared){
		"Get":  func(c *compared) { c.Get(ctx, key) },
		"Scan": func(c *compared) { c.Scan(ctx, storage.Range{Limit: 1}) },
		"Commit": func(c *compared) {
			c.Commit(ctx, storage.Batch{If: []storage.Condition{storage.Absent(key)}, Ops: []storage.Op{storage.Put(key, nil)}})
		},
		"no": func(*compared) {},
	} {
		for other, value := range map[string]string{"lost a value": "", "has another value": "another", "is equal": "value"} {
			t.Run(name+" of a store that "+other, func(t *testing.T) {
				c := &compared{Storage: new(memory.Store), model: new(memory.Store)}
				put(t, c.model, key, []byte("value"))
				if value != "" {
					put(t, c.Storage, key, []byte(value))
				}
				call(c)
				noticed := c.wrong != nil
				want := other == "lost a value" && name != "no" || other == "has another value" && (name == "Get" || name == "Scan")
				if noticed != want {
					t.Errorf("got %v, want it to be noticed: %v", c.wrong, want)
				}
				if err := c.equal(); (err != nil) != (other != "is equal") {
					t.Errorf("got %v for the contents", err)
				}
			})
		}
	}
}

// A compared store is called like a model of it, and is to answer like that. It is called once at a time, so there is one
// right answer to each call.
type compared struct {
	storage.Storage
	model *memory.Store

	mu    sync.Mutex // held during a call
	calls int
	wrong error // the first difference
}

func (c *compared) Get(ctx context.Context, key []byte) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	got, err := c.Storage.Get(ctx, key)
	want, wantErr := c.model.Get(ctx, key)
	c.compare(err, wantErr, bytes.Equal(got, want), "Get of %q: got %q, and %q in memory", key, got, want)
	return got, err
}

func (c *compared) Scan(ctx context.Context, in storage.Range) ([]storage.Entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	got, err := c.Storage.Scan(ctx, in)
	want, wantErr := c.model.Scan(ctx, in)
	same := slices.EqualFunc(got, want, func(a, b storage.Entry) bool {
		return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value)
	})
	c.compare(err, wantErr, same, "Scan of %+v: got %q, and %q in memory", in, got, want)
	return got, err
}

func (c *compared) Commit(ctx context.Context, b storage.Batch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.Storage.Commit(ctx, b)
	b.Group = nil
	c.compare(err, c.model.Commit(ctx, b), true, "Commit of %q on the condition of %q", b.Ops, b.If)
	return err
}

// compare keeps the first difference. Errors are compared as an engine tells them apart: there are no others here than
// those for what is absent and for a conflict.
func (c *compared) compare(err, want error, same bool, format string, args ...any) {
	c.calls++
	if c.wrong == nil && !(same && (err == nil) == (want == nil) && (err == nil || errors.Is(err, want))) {
		c.wrong = fmt.Errorf("call %d, a "+format+"; errors %v and %v", slices.Concat([]any{c.calls}, args, []any{err, want})...)
	}
}

// equal returns the first difference between the answers, or between what both stores hold.
func (c *compared) equal() error {
	for _, err := range storage.All(context.Background(), c, storage.Range{}) {
		if err != nil {
			return err
		}
	}
	return c.wrong
}
