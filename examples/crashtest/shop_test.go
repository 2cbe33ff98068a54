package crashtest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/enginetest"
)

// A fakeBank outlives every crash of the shop, as the real one does.
type fakeBank struct {
	world *enginetest.Recorder

	mu      sync.Mutex
	numbers map[string]string // of charges, by key
}

func (b *fakeBank) Charge(ctx context.Context, key, card string, cents int) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if number, ok := b.numbers[key]; ok && key != "" {
		return number, nil
	}
	b.world.Effect(ctx, "card charged")
	number := fmt.Sprint("charge-", len(b.numbers)+1)
	if b.numbers == nil {
		b.numbers = map[string]string{}
	}
	b.numbers[key] = number
	return number, nil
}

// charging is an order that is started and paid, in a world of its own.
func charging(shop func(Bank) *engine.Workflow[Order, string]) func(*enginetest.Recorder) enginetest.Scenario {
	return func(world *enginetest.Recorder) enginetest.Scenario {
		checkout := shop(&fakeBank{world: world})
		return enginetest.Scenario{
			Workflows: []engine.Definition{checkout},
			Drive: func(ctx context.Context, eng *engine.Engine) error {
				_, err := checkout.Start(ctx, eng, "order-42", Order{Card: "ann's", Cents: 4900})
				return err
			},
		}
	}
}

// Whatever moment the process dies in, the card is charged once.
func TestCareful(t *testing.T) { enginetest.CrashEverywhere(t, charging(Careful)) }
