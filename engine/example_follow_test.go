package engine_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// A page shows what an order does while it does it. It was reloaded after the first event, and goes on behind it.
func ExampleEngine_Follow() {
	order := &engine.Workflow[string, string]{
		Name: "order",
		Func: func(run *engine.Run, item string) (string, error) {
			return engine.Step(run, "pack", func(context.Context) (string, error) { return "packed " + item, nil })
		},
	}
	ctx, stop := context.WithCancel(context.Background())
	eng, err := engine.New(engine.Config{
		Storage:   new(memory.Store),
		Workflows: []engine.Definition{order},
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	go eng.Run(ctx)
	defer eng.Close()
	defer stop()

	if _, err := order.Start(ctx, eng, "order-42", "a lamp"); err != nil {
		log.Fatal(err)
	}
	last := ""
	for ev, err := range eng.Follow(ctx, "order-42", last) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ev.Kind)
		last = ev.ID
		break
	}
	for ev, err := range eng.Follow(ctx, "order-42", last) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ev.Kind, ev.Name, string(ev.Result))
	}
	// Output:
	// claimed
	// settled pack "packed a lamp"
	// ended completed
}
