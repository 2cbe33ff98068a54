// Execute is an engine of the release that it is built with, which is the one before. It executes the workflow
// order, whose child is parcel, and prints the input of each execution that begins. It obeys lines of its
// standard input, and prints a line when each is done. It ends with its input.
//
//	result ID       waits for the result of a workflow
//	terminate ID    terminates a workflow
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
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
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
	at := flag.String("store", "", "sqlite:FILE or postgres://URL")
	deployment := flag.String("deployment", "", "of the engine")
	flag.Parse()
	if err := execute(context.Background(), *at, *deployment); err != nil {
		fmt.Fprintln(os.Stderr, "execute:", err)
		os.Exit(1)
	}
}

func execute(ctx context.Context, at, deployment string) error {
	store, err := open(ctx, at)
	if err != nil {
		return err
	}
	defer store.Close()
	eng, err := engine.New(engine.Config{
		Storage: store, Workflows: []engine.Definition{order, parcel}, Deployment: deployment, PollInterval: 20 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
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
		}
	}
	stop()
	return <-ended
}

func open(ctx context.Context, at string) (storage.Storage, error) {
	if file, ok := strings.CutPrefix(at, "sqlite:"); ok {
		return sqlite.Open(file, nil)
	}
	return postgres.Open(ctx, at, nil)
}
