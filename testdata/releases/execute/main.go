// Execute is an engine of the release that it is built with, which is the one before. It executes the workflow
// order, whose child is parcel, and those of package shop, and prints the input of each execution that begins. It
// obeys lines of its standard input, and prints a line when each is done. It ends with its input.
//
//	result ID       waits for the result of a workflow
//	terminate ID    terminates a workflow
//	approve ID      sends a delivery the signal that most kinds wait for
//	deliver ID      sends a delivery the signal that the kind waits waits for, and waits for its end
//	cancel ID       asks a workflow to stop
//	touch KEY       deletes a record, as no engine may
//
// It must build with the release before, so it uses nothing that is new.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/testdata/releases/shop"
)

var (
	order = &engine.Workflow[string, string]{Name: "order", Func: func(run *engine.Run, article string) (string, error) {
		fmt.Println("executes", article)
		return parcel.Do(run, article)
	}}
	parcel = &engine.Workflow[string, string]{Name: "parcel", Func: func(run *engine.Run, article string) (string, error) {
		fmt.Println("executes", article)
		return "a parcel of " + article, nil
	}}
)

func main() {
	at := flag.String("store", "", "sqlite:FILE, bolt:FILE or postgres://URL")
	deployment := flag.String("deployment", "", "of the engine")
	flag.Parse()
	if err := execute(context.Background(), *at, *deployment); err != nil {
		fmt.Fprintln(os.Stderr, "execute:", err)
		os.Exit(1)
	}
}

func execute(ctx context.Context, at, deployment string) error {
	store, err := shop.Open(ctx, at)
	if err != nil {
		return err
	}
	defer store.Close()
	delivery := shop.Delivery(func(*engine.Run, shop.Task) error { return nil })
	eng, err := engine.New(shop.Quick(engine.Config{
		Storage: store, Workflows: append([]engine.Definition{order, parcel}, delivery...), Deployment: deployment,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}))
	if err != nil {
		return err
	}
	defer eng.Close()
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		verb, id, _ := strings.Cut(lines.Text(), " ")
		switch verb {
		case "result":
			result, err := order.Handle(eng, id).Result(ctx)
			fmt.Println(verb, id, result, err)
		case "terminate":
			fmt.Println(verb, id, eng.Terminate(ctx, id, engine.Actor{Name: "releases", Reason: "a test"}))
		case "approve":
			_, err := shop.Approved.Send(ctx, eng, id, true, &signal.Options{ID: "approval"})
			fmt.Println(verb, id, err)
		case "deliver":
			_, err := shop.Released.Send(ctx, eng, id, true, &signal.Options{ID: "release"})
			if err == nil {
				var sent string
				err = eng.Result(ctx, id, shop.Name, &sent)
			}
			fmt.Println(verb, id, err)
		case "cancel":
			fmt.Println(verb, id, eng.Cancel(ctx, id, engine.Actor{Name: "releases", Reason: "a test"}))
		case "touch":
			fmt.Println(verb, store.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Delete([]byte(id))}}))
		}
	}
	stop()
	return <-ended
}
