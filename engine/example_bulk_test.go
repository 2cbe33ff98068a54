package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// Invoices have failed by a bug. With corrected code, one call has all of them go back to before the mistake.
func ExampleEngine_StartBulk() {
	var corrected atomic.Bool
	invoice := &engine.Workflow[int, int]{
		Name: "invoice",
		Func: func(run *engine.Run, cents int) (int, error) {
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
	for _, id := range []string{"invoice-1", "invoice-2"} {
		h, err := invoice.Start(ctx, eng, id, 1000)
		if err != nil {
			log.Fatal(err)
		}
		_, _ = h.Result(ctx) // it fails
	}

	corrected.Store(true)
	if err := eng.StartBulk(ctx, "tax-bug", engine.Bulk{
		Filter: engine.Filter{Workflow: "invoice", Status: checkpoint.StatusFailed},
		Do:     engine.BulkReset,
		Before: "1",
	}, engine.Actor{Name: "ann", Reason: "tax bug, TICKET-7"}); err != nil {
		log.Fatal(err)
	}
	for goesOn := true; goesOn; time.Sleep(time.Millisecond) {
		for i, err := range eng.Bulks(ctx) {
			if err != nil {
				log.Fatal(err)
			}
			if goesOn = i.EndedAt.IsZero(); !goesOn {
				fmt.Println(i.ID, i.Done, "done", i.Refused, "refused")
			}
		}
	}
	for _, id := range []string{"invoice-1", "invoice-2"} {
		fmt.Println(invoice.Handle(eng, id).Result(ctx))
	}
	// Output:
	// tax-bug 2 done 0 refused
	// 200 <nil>
	// 200 <nil>
}
