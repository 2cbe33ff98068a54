package activity_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// errDeclined is what the bank answers when it will not pay.
var errDeclined = errors.New("card declined")

// A charge is tried again while the bank is busy, and not when it declines.
func ExampleActivity() {
	charge := &activity.Activity[int, string]{
		Name:    "charge",
		Errors:  []error{errDeclined},
		Retry:   activity.Retry{Attempts: 3, Backoff: time.Millisecond},
		Timeout: 10 * time.Second,
		Run: func(ctx context.Context, cents int) (string, error) {
			info := activity.InfoFrom(ctx)
			switch {
			case cents > 100_000:
				return "", activity.Permanent(fmt.Errorf("%d cents: %w", cents, errDeclined))
			case info.Attempt == 1:
				return "", errors.New("the bank is busy")
			}
			return fmt.Sprintf("receipt for %s, attempt %d", info.WorkflowID, info.Attempt), nil
		},
	}
	checkout := &engine.Workflow[int, string]{
		Name: "checkout",
		Func: func(run *engine.Run, cents int) (string, error) {
			receipt, err := charge.Do(run, cents)
			if errors.Is(err, errDeclined) {
				return "asked for another card", nil
			}
			return receipt, err
		},
	}
	ctx, stop := context.WithCancel(context.Background())
	eng, err := engine.New(engine.Config{
		Storage:    new(memory.Store),
		Workflows:  []engine.Definition{checkout},
		Activities: []activity.Definition{charge}, // checked here, before anything runs
		Logger:     slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	go eng.Run(ctx)
	defer eng.Close()
	defer stop()

	for i, cents := range []int{4900, 490_000} {
		h, err := checkout.Start(ctx, eng, fmt.Sprintf("order-%d", i+1), cents)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(h.Result(ctx))
	}
	// Output:
	// receipt for order-1, attempt 2 <nil>
	// asked for another card <nil>
}
