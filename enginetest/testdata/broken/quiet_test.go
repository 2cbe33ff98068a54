package broken

import (
	"context"
	"testing"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/enginetest"
	"github.com/weft-go/weft/signal"
)

// The tests of this file wait for ever. TestQuietTestsFail runs each of them alone.

func waits(t *testing.T, f func(run *engine.Run) (string, error)) {
	w := &engine.Workflow[int, string]{Name: "tour", Func: func(run *engine.Run, n int) (string, error) { return f(run) }}
	enginetest.Run(t, []engine.Definition{w}, func(t *testing.T, eng *engine.Engine) {
		h, err := w.Start(t.Context(), eng, "tour-1", 1)
		if err == nil {
			_, err = h.Result(t.Context())
		}
		t.Fatal(err)
	})
}

func blocks() { <-make(chan int) }

func TestWaitsForASignal(t *testing.T) {
	waits(t, func(run *engine.Run) (string, error) { return (&signal.Signal[string]{Name: "where"}).Receive(run) })
}

func TestWaitsForAFunction(t *testing.T) {
	waits(t, func(*engine.Run) (string, error) {
		blocks()
		return "", nil
	})
}

func TestWaitsForAnActivity(t *testing.T) {
	waits(t, func(run *engine.Run) (string, error) {
		return (&activity.Activity[string, string]{Name: "book", Run: func(context.Context, string) (string, error) {
			blocks()
			return "", nil
		}}).Do(run, "Lisbon")
	})
}

func TestWaitsForNobody(t *testing.T) {
	enginetest.Run(t, nil, func(*testing.T, *engine.Engine) { blocks() })
}
