package crashtest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/enginetest"
)

// A fakeBank charges whenever it is asked to and forgets nothing. It survives every
// crash of the shop, as a real one does.
type fakeBank struct {
	world *enginetest.Recorder

	mu      sync.Mutex
	charges int
	numbers map[string]string // by reference
}

func (b *fakeBank) Charge(ctx context.Context, reference, card string, cents int) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.world.Effect(ctx, "card charged")
	b.charges++
	b.numbers[reference] = fmt.Sprint("charge-", b.charges)
	return b.numbers[reference], nil
}

func (b *fakeBank) Find(ctx context.Context, reference string) (string, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	number, found := b.numbers[reference]
	return number, found, nil
}

// charging is an order that is started and paid, with fakes of its own.
func charging(shop func(Bank) *engine.Workflow[Order, string]) func(*enginetest.Recorder) enginetest.Scenario {
	return func(world *enginetest.Recorder) enginetest.Scenario {
		checkout := shop(&fakeBank{world: world, numbers: map[string]string{}})
		return enginetest.Scenario{
			Workflows: []engine.Definition{checkout},
			Drive: func(ctx context.Context, eng *engine.Engine) error {
				_, err := checkout.Start(ctx, eng, "order-42", Order{"42", "ann's", 4900})
				return err
			},
		}
	}
}

// The card is charged once, at whatever moment the process dies.
func TestCareful(t *testing.T) { enginetest.CrashEverywhere(t, charging(Careful)) }
