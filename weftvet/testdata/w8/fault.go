// Package w8 uses a Run outside its branch.
package w8

import (
	"context"
	"sync"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
)

var charge = &activity.Activity[int, int]{Name: "charge", Run: func(ctx context.Context, n int) (int, error) { return n, nil }}

func outerInBranch(run *engine.Run) error {
	_, err := engine.Go(run, "b", func(own *engine.Run) (int, error) {
		return charge.Do(run, 1) // want `run is a Run of an outer function: it belongs to another goroutine, in which its methods return ErrForeignRun; use the Run that this function gets \(W8\)`
	}).Get(run)
	return err
}

func unnamed(run *engine.Run) error {
	_, err := engine.Go(run, "b", func(*engine.Run) (bool, error) {
		return true, run.Sleep(time.Second) // want `run is a Run of an outer function`
	}).Get(run)
	return err
}

func inMap(run *engine.Run, in []int) ([]int, error) {
	return engine.Map(run, "m", 2, in, func(_ *engine.Run, n int) (int, error) {
		return charge.Do(run, n) // want `run is a Run of an outer function`
	})
}

func derived(run *engine.Run) error {
	short := run.WithTimeout(time.Minute)
	_, err := engine.Go(run, "b", func(run *engine.Run) (int, error) {
		return charge.Do(short, 1) // want `short is a Run of an outer function`
	}).Get(run)
	return err
}

func nested(run *engine.Run) error {
	_, err := engine.Go(run, "b", func(outer *engine.Run) (int, error) {
		return engine.Go(outer, "c", func(run *engine.Run) (int, error) {
			return charge.Do(outer, 1) // want `outer is a Run of an outer function`
		}).Get(outer)
	}).Get(run)
	return err
}

func inStep(run *engine.Run) (bool, error) {
	return engine.Step(run, "s", func(ctx context.Context) (bool, error) {
		return true, run.Sleep(time.Second) // want `run is a Run, used in a step or an activity: .*read what is needed before it`
	})
}

func nowInStep(run *engine.Run) (time.Time, error) {
	return engine.Step(run, "s", func(ctx context.Context) (time.Time, error) {
		return run.Now(), nil // want `run is a Run, used in a step`
	})
}

func inActivity(run *engine.Run) (int, error) {
	a := &activity.Activity[int, int]{Name: "a", Run: func(ctx context.Context, n int) (int, error) {
		return charge.Do(run, n) // want `run is a Run, used in a step or an activity`
	}}
	return a.Do(run, 1)
}

func inGoroutine(run *engine.Run) {
	go func() { // want `a go statement`
		run.Logger().Info("x") // want `run is a Run, used in a goroutine: .*use engine.Go`
	}()
}

func given(run *engine.Run) {
	go work(run) // want `a go statement` `a Run is given to a goroutine`
}

func work(run *engine.Run) {}

func inGroup(run *engine.Run, wg *sync.WaitGroup) {
	wg.Go(func() { work(run) }) // want `sync.WaitGroup.Go` `run is a Run, used in a goroutine`
}

func later(run *engine.Run) {
	time.AfterFunc(time.Second, func() { work(run) }) // want `time.AfterFunc` `run is a Run, used in a goroutine`
}

func throughInterface(run activity.Runner) (int, error) {
	return engine.Step(nil, "s", func(ctx context.Context) (int, error) {
		return charge.Do(run, 1) // want `run is a Run, used in a step`
	})
}
