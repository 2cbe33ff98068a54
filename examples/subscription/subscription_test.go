package main

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/enginetest"
)

// A fakeBank survives every crash of the service.
type fakeBank struct {
	world *enginetest.Recorder
	mu    sync.Mutex
	*book
}

func (b *fakeBank) Charge(ctx context.Context, c Charge) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.charge(c) {
		return ErrDeclined
	}
	b.world.Effect(ctx, "charged "+c.Reference)
	return nil
}

func (b *fakeBank) Charged(_ context.Context, reference string) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, made := b.charges[reference]
	return made, nil
}

// years is a customer who stays for some months, of which each has 30 days.
func years(months int) func(*enginetest.Recorder) enginetest.Scenario {
	return func(world *enginetest.Recorder) enginetest.Scenario {
		bank := &fakeBank{world: world, book: newBook()}
		subscription := define(2, bank)
		ann := customer{"ann", 30 * 24 * time.Hour, months}
		return enginetest.Scenario{
			Workflows: []engine.Definition{subscription},
			Drive: func(ctx context.Context, eng *engine.Engine) error {
				_, err := ann.act(ctx, eng, subscription)
				return err
			},
			Check: func(t testing.TB, _ *enginetest.Recorder) {
				bank.mu.Lock()
				defer bank.mu.Unlock()
				if cents, err := bank.months("ann"); err != nil || len(cents) != months {
					t.Errorf("%d months were paid, want %d: %v", len(cents), months, err)
				}
			},
		}
	}
}

// Ten years pass, and the process dies at each of its calls to the store.
func TestTenYears(t *testing.T) {
	enginetest.CrashEverywhere(t, years(3))
}
