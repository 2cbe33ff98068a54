package w8

import (
	"context"
	"slices"
	"time"

	"github.com/weft-go/weft/engine"
)

func shadows(run *engine.Run) error {
	_, err := engine.Go(run, "b", func(run *engine.Run) (int, error) { return charge.Do(run, 1) }).Get(run)
	return err
}

func ownName(run *engine.Run) error {
	_, err := engine.Go(run, "b", func(own *engine.Run) (int, error) { return charge.Do(own, 1) }).Get(run)
	return err
}

func inMapToo(run *engine.Run, in []int) ([]int, error) {
	return engine.Map(run, "m", 2, in, func(run *engine.Run, n int) (int, error) { return charge.Do(run, n) })
}

func named(run *engine.Run, in []int) ([]int, error) { return engine.Map(run, "m", 2, in, one) }

func one(run *engine.Run, n int) (int, error) { return charge.Do(run, n) }

// A closure runs in the branch that calls it.
func closure(run *engine.Run) error {
	again := func(n int) error { _, err := charge.Do(run, n); return err }
	if err := again(1); err != nil {
		return err
	}
	return again(2)
}

func sorts(run *engine.Run, list []int) {
	slices.SortFunc(list, func(a, b int) int { run.Logger().Info("compare"); return a - b })
}

func deferred(run *engine.Run) (err error) {
	defer func() { _, err = charge.Do(run.WithoutCancel(), 1) }()
	return run.Sleep(time.Second)
}

func closureInBranch(run *engine.Run) error {
	_, err := engine.Go(run, "b", func(run *engine.Run) (int, error) {
		do := func() (int, error) { return charge.Do(run, 1) }
		return do()
	}).Get(run)
	return err
}

func derivedInside(run *engine.Run) error {
	_, err := engine.Go(run, "b", func(run *engine.Run) (int, error) {
		short := run.WithTimeout(time.Minute)
		return charge.Do(short, 1)
	}).Get(run)
	return err
}

// The function of WithCancel may be called from any branch.
func cancels(run *engine.Run) error {
	part, cancel := run.WithCancel()
	f := charge.Go(part, 1)
	_, err := engine.Go(run, "b", func(run *engine.Run) (bool, error) {
		err := run.Sleep(time.Second)
		cancel()
		return true, err
	}).Get(run)
	if err != nil {
		return err
	}
	_, err = f.Get(run)
	return err
}

func readBefore(run *engine.Run) (string, error) {
	id, now := run.ID(), run.Now()
	return engine.Step(run, "s", func(ctx context.Context) (string, error) { return id + now.String(), nil })
}

// A future may be waited for in another branch, with that branch's Run.
func futureInBranch(run *engine.Run) error {
	f := charge.Go(run, 1)
	_, err := engine.Go(run, "b", func(run *engine.Run) (int, error) { return f.Get(run) }).Get(run)
	return err
}

func makesWorkflow() *engine.Workflow[int, int] {
	return &engine.Workflow[int, int]{Name: "w", Func: func(run *engine.Run, n int) (int, error) { return charge.Do(run, n) }}
}

type track struct{ run int }

// Another thing that is called run.
func otherRun(run *engine.Run, t track) (int, error) {
	return engine.Step(run, "s", func(ctx context.Context) (int, error) { run := t.run; return run + t.run, nil })
}
