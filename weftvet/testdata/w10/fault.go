// Package w10 drops the errors of operations.
package w10

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage/postgres"
)

var (
	charge = &activity.Activity[int, int]{Name: "charge", Run: func(ctx context.Context, n int) (int, error) { return n, nil }}
	paid   = &signal.Signal[int]{Name: "paid"}
	child  = &engine.Workflow[int, int]{Name: "child", Func: func(run *engine.Run, n int) (int, error) { return n, nil }}
)

func statements(run *engine.Run) {
	run.Sleep(time.Second)     // want `the error of Run.Sleep is dropped: the run goes on although the operation failed or the workflow is cancelled; handle it \(W10\)`
	charge.Do(run, 1)          // want `the error of Activity.Do is dropped`
	paid.Receive(run)          // want `the error of Signal.Receive is dropped`
	paid.SendFrom(run, "a", 1) // want `the error of Signal.SendFrom is dropped`
	child.Do(run, 1)           // want `the error of Workflow.Do is dropped`
	child.Detach(run, "", 1)   // want `the error of Workflow.Detach is dropped`
}

func blanks(run *engine.Run) int {
	_ = run.Sleep(time.Second)             // want `the error of Run.Sleep is dropped`
	n, _ := charge.Do(run, 1)              // want `the error of Activity.Do is dropped`
	v, ok, _ := paid.ReceiveWithin(run, 1) // want `the error of Signal.ReceiveWithin is dropped`
	if ok {
		n += v
	}
	var k, _ = charge.Do(run, 1) // want `the error of Activity.Do is dropped`
	n += k
	m, _ := charge.Go(run, 1).Get(run) // want `the error of Future.Get is dropped`
	return n + m
}

func functions(run *engine.Run) {
	engine.Step(run, "s", func(context.Context) (int, error) { return 1, nil })                    // want `the error of Step is dropped`
	engine.Map(run, "m", 0, []int{1}, func(run *engine.Run, n int) (int, error) { return n, nil }) // want `the error of Map is dropped`
	first, _ := engine.Select(run, run.After(1))                                                   // want `the error of Select is dropped`
	_ = first
	postgres.Transact(run, "t", func(ctx context.Context, tx pgx.Tx) (int, error) { return 1, nil }) // want `the error of Transact is dropped`
}

func futures(run *engine.Run) {
	charge.Go(run, 1)                                                         // want `the future of Activity.Go is dropped, and with it its error: what it began is given up when the function returns; wait for it with Get, All or Select \(W10\)`
	_ = child.Go(run, 1)                                                      // want `the future of Workflow.Go is dropped`
	engine.Go(run, "b", func(run *engine.Run) (int, error) { return 1, nil }) // want `the future of Go is dropped`
}

func deferred(run *engine.Run) error {
	defer charge.Do(run.WithoutCancel(), 1) // want `the error of Activity.Do is dropped`
	return run.Sleep(time.Second)
}

// A function of the user that begins operations.
func callers(run *engine.Run) {
	both(run)     // want `the error of both is dropped`
	_ = both(run) // want `the error of both is dropped`
}

func both(run *engine.Run) error {
	if _, err := charge.Do(run, 1); err != nil {
		return err
	}
	return run.Sleep(time.Second)
}

func inBranch(run *engine.Run) error {
	_, err := engine.Go(run, "b", func(run *engine.Run) (int, error) {
		run.Sleep(time.Second) // want `the error of Run.Sleep is dropped`
		return 1, nil
	}).Get(run)
	return err
}

func labels(run *engine.Run) {
	run.SetLabel("team", "red") // want `the error of Run.SetLabel is dropped`
	_ = state.Set(run, "begun") // want `the error of Value.Set is dropped`
	labelled(run)               // want `the error of labelled is dropped`
}

var state = &engine.Value[string]{Name: "state"}

func labelled(run *engine.Run) error { return run.SetLabel("team", "blue") }

func inLoop(run *engine.Run) {
	for range 3 {
		if n, _ := charge.Do(run, 1); n > 1 { // want `the error of Activity.Do is dropped`
			return
		}
	}
}
