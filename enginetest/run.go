package enginetest

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// deployment is that of all engines here, and active, for workflows that are Pinned.
const deployment = "enginetest"

var audit = engine.Audit{By: "enginetest", Why: "a test begins"}

// Run calls f with an engine that runs workflows, on an empty store in memory.
//
// It is a testing/synctest bubble: time stands still while something can be
// done, and goes on at once when everything waits, so that a time.Sleep or a
// run.Sleep of days takes none. What is done by goroutines in it must not wait
// for anything outside: no network, no channel that was made before. When f
// returns the engine is closed; a goroutine of f or of an activity that does not
// end then is a failure of the test.
//
// The engine serves the queues that the workflows name in their Defaults, without bounds.
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
			PollInterval: time.Hour, // nobody but this engine writes anything
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
			<-ran
		}()
		synctest.Wait() // until it drives what it is given
		f(t, eng)
	})
}
