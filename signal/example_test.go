package signal_test

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

var approved = &signal.Signal[string]{Name: "approved"}

// An expense waits for its approval. A click that is delivered twice counts once.
func ExampleSignal() {
	expense := &engine.Workflow[int, string]{
		Name: "expense",
		Func: func(run *engine.Run, cents int) (string, error) {
			by, err := approved.Receive(run)
			return fmt.Sprintf("%d cents, approved by %s", cents, by), err
		},
	}
	ctx, stop := context.WithCancel(context.Background())
	eng, err := engine.New(engine.Config{
		Storage:   new(memory.Store),
		Workflows: []engine.Definition{expense},
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	go eng.Run(ctx)
	defer eng.Close()
	defer stop()

	h, err := expense.Start(ctx, eng, "expense-7", 4900)
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		a, err := approved.Send(ctx, eng, "expense-7", "bob", &signal.Options{ID: "click-1"})
		fmt.Println(a.Accepted, a.SignalID, err)
	}
	fmt.Println(h.Result(ctx))
	// Output:
	// true click-1 <nil>
	// true click-1 <nil>
	// 4900 cents, approved by bob <nil>
}
