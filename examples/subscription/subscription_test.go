package main

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/enginetest"
	"github.com/weft-go/weft/internal/torture"
)

// A fakeBank survives every crash of the service.
type fakeBank struct {
	world *enginetest.Recorder
	turn  sync.Mutex
	*book
}

func (b *fakeBank) Charge(ctx context.Context, c Charge) error {
	b.turn.Lock()
	defer b.turn.Unlock()
	if ok, again := b.judge(c); ok && !again {
		b.world.Effect(ctx, "charged "+c.Reference) // does not return in a process that has died: it charges nothing
	}
	if ok, _ := b.charge(c); !ok {
		return ErrDeclined
	}
	return nil
}

// A plot is what happens to the service.
type plot struct {
	month     time.Duration
	customers map[string]int // how many months each stays
	deploy    int            // the month in which the second release is deployed; 0: it is there from the beginning
	removed   bool           // subscriptions that have ended are removed, and it goes on until all are
}

func (p plot) scenario(world *enginetest.Recorder) enginetest.Scenario {
	bank := &fakeBank{world: world, book: newBook()}
	kept := time.Duration(0) // for ever
	if p.removed {
		kept = 7 * 24 * time.Hour
	}
	subscription := define(2, bank, kept)
	most := 0
	for _, months := range p.customers {
		most = max(most, months)
	}
	var mu sync.Mutex
	outcomes := map[string]outcome{} // what customers know, they do not forget with the process
	customer := func(id string) customer {
		return customer{id: id, month: p.month, grace: p.month / 2, months: p.customers[id], family: p.customers[id] / 2}
	}
	sc := enginetest.Scenario{
		Workflows: []engine.Definition{subscription},
		Timeout:   2 * time.Duration(most) * p.month,
		Drive: func(ctx context.Context, eng *engine.Engine) error {
			errs := make(chan error)
			for id := range p.customers {
				go func() {
					mu.Lock()
					_, left := outcomes[id]
					mu.Unlock()
					if left {
						errs <- nil
						return
					}
					o, err := customer(id).act(ctx, eng, subscription)
					if err == nil {
						mu.Lock()
						outcomes[id] = o
						mu.Unlock()
					}
					errs <- err
				}()
			}
			var all error
			for range p.customers {
				all = errors.Join(all, <-errs)
			}
			if all != nil || !p.removed {
				return all
			}
			for {
				if n, _, err := eng.Count(ctx, engine.Filter{}, 1); err != nil || n == 0 {
					return err
				}
				select {
				case <-time.After(24 * time.Hour):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		},
		Check: func(t testing.TB, _ *enginetest.Recorder) {
			mu.Lock()
			defer mu.Unlock()
			for id, months := range p.customers {
				loyal, err := bank.check(customer(id), outcomes[id])
				if err != nil {
					t.Error(err)
				}
				if want := max(0, months-max(24, p.deploy)); loyal != want {
					t.Errorf("%d months of %s were cheaper, want %d", loyal, id, want)
				}
			}
		},
	}
	if p.deploy > 0 { // between two charges
		sc.Workflows, sc.Deployed = []engine.Definition{define(1, bank, kept)}, sc.Workflows
		sc.DeployAfter = time.Duration(p.deploy)*p.month - p.month/2
	}
	return sc
}

// The process dies at each of its calls to the store, and each call fails, in a subscription of 26 months:
// it continues as new twice, needs two new cards and gets cheaper at the end. The months are short, so
// that the engine does not look for work most of the time.
func TestCrashEverywhere(t *testing.T) {
	torture.Slow(t)
	p := plot{month: time.Hour, customers: map[string]int{"ann": torture.Rounds(26, 26, 5)}}
	enginetest.CrashEverywhere(t, p.scenario)
}

// The service is killed again and again, and its second release is deployed in the middle. WEFT_KILLS kills.
func TestTwoReleases(t *testing.T) {
	torture.Slow(t)
	kills, err := strconv.Atoi(cmp.Or(os.Getenv("WEFT_KILLS"), "6"))
	if err != nil {
		t.Fatal("WEFT_KILLS:", err)
	}
	for _, store := range []string{"sqlite", "bolt", "postgres"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			o := options{kills: kills, store: store, customers: 8, month: 50 * time.Millisecond, span: 500 * time.Millisecond, seed: rand.Uint64()}
			if err := run(t.Context(), o, t.Output()); err != nil {
				t.Fatalf("%v (seed %d)", err, o.seed)
			}
		})
	}
}

// Ten years pass, in which the process dies and calls fail again and again. In the middle, the second release of the
// service is deployed. Subscriptions that have ended are removed: that of bob while ann has hers.
func TestTenYears(t *testing.T) {
	p := plot{month: 30 * 24 * time.Hour, customers: map[string]int{"ann": 120, "bob": 14}, deploy: 61, removed: true}
	enginetest.CrashOften(t, torture.Rounds(10_000, 1_000, 100), p.scenario)
}
