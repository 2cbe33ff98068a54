package main

import (
	"cmp"
	"context"
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

// life is a customer who stays for some months.
func life(months int, month time.Duration) func(*enginetest.Recorder) enginetest.Scenario {
	return func(world *enginetest.Recorder) enginetest.Scenario {
		bank := &fakeBank{world: world, book: newBook()}
		subscription := define(2, bank, 0)
		ann := customer{id: "ann", month: month, grace: month / 2, months: months, family: months / 2}
		var mu sync.Mutex
		var last outcome
		return enginetest.Scenario{
			Workflows: []engine.Definition{subscription},
			Timeout:   2 * time.Duration(months) * month,
			Drive: func(ctx context.Context, eng *engine.Engine) error {
				o, err := ann.act(ctx, eng, subscription)
				mu.Lock()
				defer mu.Unlock()
				last = o
				return err
			},
			Check: func(t testing.TB, _ *enginetest.Recorder) {
				mu.Lock()
				defer mu.Unlock()
				loyal, err := bank.check(ann, last)
				if err != nil {
					t.Error(err)
				}
				if want := max(0, months-24); loyal != want {
					t.Errorf("%d months were cheaper, want %d", loyal, want)
				}
			},
		}
	}
}

// The process dies at each of its calls to the store, and each call fails, in a subscription of 26 months:
// it continues as new twice, needs two new cards and gets cheaper at the end. The months are short, so
// that the engine does not look for work most of the time.
func TestCrashEverywhere(t *testing.T) {
	torture.Slow(t)
	enginetest.CrashEverywhere(t, life(torture.Rounds(26, 26, 5), time.Hour))
}

// The service is killed again and again, and its second release is deployed in the middle. WEFT_KILLS kills.
func TestTwoReleases(t *testing.T) {
	torture.Slow(t)
	kills, err := strconv.Atoi(cmp.Or(os.Getenv("WEFT_KILLS"), "16"))
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

// Ten years pass, in which the process dies and calls fail again and again.
func TestTenYears(t *testing.T) {
	enginetest.CrashOften(t, torture.Rounds(10_000, 1_000, 100), life(120, 30*24*time.Hour))
}
