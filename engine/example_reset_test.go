package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"sync/atomic"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// An invoice has failed by a bug. With corrected code it goes back to before the mistake, and what
// came before is not done again.
func ExampleEngine_Reset() {
	var corrected atomic.Bool
	invoice := &engine.Workflow[int, int]{
		Name: "invoice",
		Func: func(run *engine.Run, cents int) (int, error) {
			if _, err := engine.Step(run, "reserve", func(context.Context) (string, error) {
				fmt.Println("reserved")
				return "r-7", nil
			}); err != nil {
				return 0, err
			}
			return engine.Step(run, "compute tax", func(context.Context) (int, error) {
				if !corrected.Load() {
					return 0, errors.New("unknown country")
				}
				return cents / 5, nil
			})
		},
	}
	ctx, stop := context.WithCancel(context.Background())
	eng, err := engine.New(engine.Config{
		Storage:   new(memory.Store),
		Workflows: []engine.Definition{invoice},
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	go eng.Run(ctx)
	defer eng.Close()
	defer stop()

	h, err := invoice.Start(ctx, eng, "invoice-42", 1000)
	if err != nil {
		log.Fatal(err)
	}
	_, err = h.Result(ctx)
	fmt.Println(err)

	corrected.Store(true)
	if err := eng.Reset(ctx, "invoice-42", "2", engine.Actor{Name: "ann", Reason: "tax bug, TICKET-7"}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(h.Result(ctx))
	// Output:
	// reserved
	// engine: workflow invoice "invoice-42": activity compute tax: attempt 1: unknown country
	// 200 <nil>
}
