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

// balance is what a life of an account passes to the next.
type balance struct{ Cents int }

// An account books for years. Its history stays short, because the workflow continues as new.
func ExampleContinueAsNew() {
	booked := &signal.Signal[int]{Name: "booked"}
	account := &engine.Workflow[balance, int]{
		Name: "account",
		Func: func(run *engine.Run, b balance) (int, error) {
			for run.HistoryLen() < 20 {
				cents, err := booked.Receive(run)
				if err != nil || cents == 0 { // 0: the account is closed
					return b.Cents, err
				}
				b.Cents += cents
			}
			return 0, engine.ContinueAsNew(run, b)
		},
	}
	ctx, stop := context.WithCancel(context.Background())
	eng, err := engine.New(engine.Config{
		Storage:   new(memory.Store),
		Workflows: []engine.Definition{account},
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	go eng.Run(ctx)
	defer eng.Close()
	defer stop()

	h, err := account.Start(ctx, eng, "account-7", balance{})
	if err != nil {
		log.Fatal(err)
	}
	for range 50 {
		if _, err := booked.Send(ctx, eng, "account-7", 100, nil); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := booked.Send(ctx, eng, "account-7", 0, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println(h.Result(ctx))
	info, err := eng.Describe(ctx, "account-7")
	fmt.Println(info.Status, info.Life > 0, err)
	// Output:
	// 5000 <nil>
	// completed true <nil>
}
