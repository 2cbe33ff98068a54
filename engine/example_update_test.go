package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage/memory"
)

// A customer moves. The order takes the new address until it is shipped, and says what it did.
func ExampleUpdate() {
	errShipped := errors.New("the order is shipped")
	move := &engine.Update[string, string]{Name: "move", Errors: []error{errShipped}}
	shipped := &signal.Signal[bool]{Name: "shipped"}
	received := &signal.Signal[bool]{Name: "received"}
	order := &engine.Workflow[string, string]{
		Name: "order",
		Func: func(run *engine.Run, address string) (string, error) {
			gone := false
			if err := move.Handle(run, func(to string) error {
				if gone {
					return errShipped
				}
				return nil
			}, func(run *engine.Run, to string) (string, error) {
				address = to
				return engine.Step(run, "print label", func(context.Context) (string, error) { return "label for " + to, nil })
			}); err != nil {
				return "", err
			}
			if _, err := shipped.Receive(run); err != nil {
				return "", err
			}
			gone = true
			_, err := received.Receive(run)
			return address, err
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

	h, err := order.Start(ctx, eng, "order-42", "Main Street 1")
	if err != nil {
		log.Fatal(err)
	}
	click := &engine.UpdateOptions{ID: "click-7"}
	fmt.Println(move.Call(ctx, eng, "order-42", "Park Lane 2", click))
	fmt.Println(move.Call(ctx, eng, "order-42", "Park Lane 2", click)) // the same update
	if _, err := shipped.Send(ctx, eng, "order-42", true, nil); err != nil {
		log.Fatal(err)
	}
	if _, err := received.Send(ctx, eng, "order-42", true, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println(h.Result(ctx))
	_, err = move.Call(ctx, eng, "order-42", "Hill Road 3", nil)
	fmt.Println(errors.Is(err, engine.ErrTerminal))
	// Output:
	// label for Park Lane 2 <nil>
	// label for Park Lane 2 <nil>
	// Park Lane 2 <nil>
	// true
}
