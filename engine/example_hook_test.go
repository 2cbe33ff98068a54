package engine_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage/memory"
)

// An invoice waits for its payment. The bank knows the number of the invoice, and not the id of the workflow.
func ExampleRun_hook() {
	paid := &signal.Hook[string]{Name: "paid"}
	invoice := &engine.Workflow[int, string]{
		Name: "invoice",
		Func: func(run *engine.Run, number int) (string, error) {
			h, err := paid.Open(run, &signal.HookOptions{Token: fmt.Sprint("invoice/", number)})
			if err != nil {
				return "", err
			}
			if err := isOpen.Set(run, true); err != nil {
				return "", err
			}
			return h.Receive(run)
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

	h, err := invoice.Start(ctx, eng, "customer-3-july", 7)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := isOpen.Await(ctx, eng, h.ID(), func(open bool) bool { return open }); err != nil {
		log.Fatal(err)
	}
	for range 2 { // the bank repeats itself
		a, err := paid.Resume(ctx, eng, "invoice/7", "by transfer", &signal.Options{ID: "booking 12"})
		fmt.Println(a.WorkflowID, a.Repeated, err)
	}
	fmt.Println(h.Result(ctx))
	// Output:
	// customer-3-july false <nil>
	// customer-3-july true <nil>
	// by transfer <nil>
}

var isOpen = &engine.Value[bool]{Name: "open"}
