package enginetest

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// deployment is that of all engines here. It is active, for workflows that are Pinned.
const deployment = "enginetest"

var audit = engine.Actor{Name: "enginetest", Reason: "a test begins"}

// Run calls f with an engine that runs workflows, on an empty store in memory.
//
// It is a testing/synctest bubble: virtual time stands still while anything can run,
// and advances at once when everything waits, so a time.Sleep or a run.Sleep of days
// takes no time. Goroutines in it must not wait for anything outside: no network, no
// channel that was made before. When f returns the engine is closed; if a goroutine of
// f or of an activity does not end then, the test fails.
//
// If nothing can happen any more, because the test waits for something that nobody does, the
// test fails and the engine is closed. The message says what each run waits for, and where
// workflow functions and activities block on something outside the engine. To know this, Run
// lets two centuries pass in which no run changes.
//
// The engine serves the queues that the workflows name in their Defaults, without
// limits. It has the default configuration otherwise, but polls once a year: a workflow
// whose Retention has passed may be kept for that long.
//
// The log of the engine and of its runs goes to the test's output.
func Run(t *testing.T, workflows []engine.Definition, f func(t *testing.T, eng *engine.Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		eng, err := engine.New(engine.Config{
			Storage:      new(memory.Store),
			Workflows:    workflows,
			Queues:       engine.QueuesOf(workflows),
			Name:         "enginetest",
			Deployment:   deployment,
			PollInterval: year, // only this engine writes
			Logger:       slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := eng.Activate(t.Context(), deployment, audit); err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- eng.Run(context.Background()) }()
		defer func() {
			eng.Close()
			if err := <-ran; err != nil && !errors.Is(err, engine.ErrClosed) {
				t.Errorf("enginetest: the engine ended: %v", err)
			}
		}()
		synctest.Wait() // until it is ready for starts
		over := make(chan struct{})
		defer close(over)
		go watch(t, eng, over)
		f(t, eng)
	})
}
