// Package w1 reads the clock.
package w1

import (
	"context"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

var (
	charge = &activity.Activity[int, int]{Name: "charge", Run: func(ctx context.Context, n int) (int, error) { return n, nil }}
	paid   = &signal.Signal[int]{Name: "paid"}
)

func now(run *engine.Run) time.Time {
	return time.Now() // want `time.Now in workflow code: a replay gets another time; use run.Now \(W1\)`
}

func sleep(run *engine.Run) {
	time.Sleep(time.Second) // want `time.Sleep in workflow code: .*use run.Sleep \(W1\)`
}

func timers(run *engine.Run) {
	_ = time.After(time.Second)                   // want `time.After in workflow code: .*run.After`
	_ = time.Tick(time.Second)                    // want `time.Tick in workflow code`
	_ = time.NewTimer(time.Second)                // want `time.NewTimer in workflow code`
	_ = time.NewTicker(time.Second)               // want `time.NewTicker in workflow code`
	_ = time.Until(time.Time{})                   // want `time.Until in workflow code`
	time.AfterFunc(time.Second, func() {})        // want `time.AfterFunc in workflow code`
	_, stop := context.WithTimeout(nil, 1)        // want `context.WithTimeout in workflow code: .*run.WithTimeout`
	_, stop = context.WithDeadline(nil, now(run)) // want `context.WithDeadline in workflow code`
	stop()
}

// The time over which a run waits is another one in a replay, also if it began with run.Now.
func waited(run *engine.Run) (time.Duration, error) {
	begun := run.Now()
	if _, err := charge.Do(run, 1); err != nil {
		return 0, err
	}
	return time.Since(begun), nil // want `time.Since in workflow code: .*use run.Now\(\).Sub \(W1\)`
}

func waitedForSignal(run *engine.Run) (time.Duration, error) {
	begun := run.Now()
	_, err := paid.Receive(run)
	return time.Now().Sub(begun), err // want `time.Now in workflow code`
}

func deferred(run *engine.Run, observe func(time.Duration)) error {
	begun := run.Now()
	defer func() { observe(time.Since(begun)) }() // want `time.Since in workflow code`
	return run.Sleep(time.Hour)
}

// A function is called where it is used as a value.
func value(run *engine.Run) func() time.Time {
	return time.Now // want `time.Now in workflow code`
}

func inBranch(run *engine.Run) error {
	_, err := engine.Go(run, "b", func(run *engine.Run) (time.Time, error) {
		return time.Now(), nil // want `time.Now in workflow code`
	}).Get(run)
	return err
}

// No registration is needed: a Run makes it a workflow.
var _ = func(run *engine.Run, in int) (int64, error) {
	return time.Now().Unix(), nil // want `time.Now in workflow code`
}

func caller(run *engine.Run) string { return helper() }

func helper() string { return stamp().String() }

func stamp() time.Time {
	return time.Now() // want `time.Now in workflow code \(caller calls stamp\): a replay gets another time`
}

type flow struct{}

func (f flow) start(run *engine.Run) time.Time { return f.stamp() }

func (flow) stamp() time.Time {
	return time.Now() // want `time.Now in workflow code \(flow.start calls flow.stamp\)`
}

// Behind an interface it is still a Run.
func behind(run activity.Runner) time.Time {
	return time.Now() // want `time.Now in workflow code`
}

// A key is made in the workflow.
var keyed = &activity.Activity[int, int]{
	Name:           "keyed",
	Run:            func(ctx context.Context, n int) (int, error) { return n, nil },
	IdempotencyKey: func(n int) string { return time.Now().String() }, // want `time.Now in workflow code`
	ResourceScope:  scope,
}

func scope(n int) string {
	return time.Now().String() // want `time.Now in workflow code \(a key of an activity calls scope\)`
}

// So is one that a field gets later.
func init() {
	keyed.IdempotencyKey = func(n int) string { return time.Now().String() } // want `time.Now in workflow code`
	(*keyed).ResourceScope = scopeOf
}

func scopeOf(n int) string {
	return time.Now().String() // want `time.Now in workflow code \(a key of an activity calls scopeOf\)`
}

// Variables that get a time before the run, another one in each process.
var (
	started = time.Now()
	clock   = func() int64 { return time.Now().Unix() }
)

func reads(run *engine.Run) time.Duration {
	return run.Now().Sub(started) // want `started, whose value uses time.Now \(fault.go:\d+\), in workflow code: a replay gets another time; use run.Now \(W1\)`
}

func calls(run *engine.Run) int64 {
	return clock() // want `clock, whose value uses time.Now`
}
