package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// A reminder is to be sent in an hour. Until then it is there and waits, and can be cancelled.
func ExampleWorkflow_With() {
	ctx := context.Background()
	remind := &engine.Workflow[string, string]{Name: "remind", Func: func(run *engine.Run, whom string) (string, error) {
		return "reminded " + whom, nil
	}}
	eng, err := engine.New(engine.Config{
		Storage:   new(memory.Store),
		Workflows: []engine.Definition{remind},
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	go eng.Run(ctx)

	in := func(d time.Duration) engine.StartOptions { return engine.StartOptions{StartAt: time.Now().Add(d)} }
	later, err := remind.With(in(time.Hour)).Start(ctx, eng, "remind-ann", "ann")
	if err != nil {
		log.Fatal(err)
	}
	i, err := later.Describe(ctx)
	fmt.Println(i.Status, err)
	fmt.Println(later.Cancel(ctx, engine.Actor{Name: "ann", Reason: "it is done"}))
	_, err = later.Result(ctx)
	fmt.Println(errors.Is(err, engine.ErrCancelled))

	soon, err := remind.With(in(50*time.Millisecond)).Start(ctx, eng, "remind-bob", "bob")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(soon.Result(ctx))
	// Output:
	// pending <nil>
	// <nil>
	// true
	// reminded bob <nil>
}

// Before a deploy, its code is compared with the runs in the store. One of them has passed a place where the
// new code has another step. Behind a Version it would go on.
func ExampleEngine_Rehearse() {
	ctx := context.Background()
	store := new(memory.Store)
	build := func(steps ...string) *engine.Workflow[string, string] {
		return &engine.Workflow[string, string]{Name: "order", Func: func(run *engine.Run, _ string) (string, error) {
			for _, name := range steps {
				if _, err := engine.Step(run, name, func(context.Context) (bool, error) { return true, nil }); err != nil {
					return "", err
				}
			}
			return "", run.Sleep(time.Hour)
		}}
	}
	open := func(w *engine.Workflow[string, string]) *engine.Engine {
		eng, err := engine.New(engine.Config{
			Storage:   store,
			Workflows: []engine.Definition{w},
			Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			log.Fatal(err)
		}
		return eng
	}

	old := build("pack", "ship")
	eng := open(old)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(running) }()
	h, err := old.Start(ctx, eng, "order-42", "a lamp")
	if err != nil {
		log.Fatal(err)
	}
	for i, err := h.Describe(ctx); len(i.Waiting) == 0 || i.Waiting[0][0] != 't'; i, err = h.Describe(ctx) { // for its timer
		if err != nil {
			log.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	fmt.Println(<-ended)
	eng.Close()

	for _, steps := range [][]string{{"pack", "ship"}, {"weigh", "pack", "ship"}} {
		eng := open(build(steps...))
		for r, err := range eng.Rehearse(ctx, engine.Filter{}) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(r.ID, r.Err != nil)
		}
		eng.Close()
	}
	// Output:
	// <nil>
	// order-42 false
	// order-42 true
}
