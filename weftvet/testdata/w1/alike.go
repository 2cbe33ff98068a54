package w1

import (
	"context"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
)

func runNow(run *engine.Run) time.Time { return run.Now() }

func subtracts(run *engine.Run) (time.Duration, error) {
	begun := run.Now()
	err := run.Sleep(time.Hour)
	return run.Now().Sub(begun), err
}

func computes(run *engine.Run) time.Time {
	return time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Hour).Truncate(time.Minute)
}

func parses(run *engine.Run, s string) (time.Time, error) { return time.Parse(time.RFC3339, s) }

func inStep(run *engine.Run) (time.Time, error) {
	return engine.Step(run, "now", func(ctx context.Context) (time.Time, error) { return time.Now(), nil })
}

func inNamedStep(run *engine.Run) (time.Time, error) { return engine.Step(run, "now", readClock) }

func readClock(ctx context.Context) (time.Time, error) { return time.Now(), nil }

func inStepBefore(run *engine.Run) (time.Time, error) {
	read := func(ctx context.Context) (time.Time, error) { return time.Now(), nil }
	return engine.Step(run, "now", read)
}

// A wrapper of Step, whose function has no context.
func once[T any](run *engine.Run, name string, f func() T) (T, error) {
	return engine.Step(run, name, func(context.Context) (T, error) { return f(), nil })
}

func inWrapper(run *engine.Run) (time.Time, error) { return once(run, "now", time.Now) }

func inWrappedLiteral(run *engine.Run) (time.Time, error) {
	return twice(run, "now", func() time.Time { return time.Now() })
}

func twice[T any](run *engine.Run, name string, f func() T) (T, error) {
	if _, err := once(run, name, f); err != nil {
		return *new(T), err
	}
	return once(run, name, f)
}

func inActivity(run *engine.Run) (time.Time, error) {
	clock := &activity.Activity[int, time.Time]{
		Name: "clock",
		Run:  func(ctx context.Context, _ int) (time.Time, error) { return time.Now(), nil },
	}
	return clock.Do(run, 0)
}

// What an activity runs is no key.
func init() {
	clock := &activity.Activity[int, time.Time]{Name: "clock"}
	clock.Run = func(ctx context.Context, _ int) (time.Time, error) { return time.Now(), nil }
}

// No workflow calls it.
func server() time.Duration {
	begun := time.Now()
	time.Sleep(time.Second)
	return time.Since(begun)
}

type clockOf struct{}

// A method of the same name.
func (clockOf) Now() time.Time { return time.Time{} }

func ownNow(run *engine.Run) time.Time {
	time := clockOf{}
	return time.Now()
}

func duration(run *engine.Run) time.Duration { return time.Duration(3) * time.Second }

var location = time.UTC

func constantVariable(run *engine.Run) time.Time { return run.Now().In(location) }
