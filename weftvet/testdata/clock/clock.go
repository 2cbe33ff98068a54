// Package clock has no workflow. What it does is known to packages that have.
package clock

import (
	"context"
	"os"
	"time"

	"github.com/weft-go/weft/engine"
)

// Stamp reads the clock.
func Stamp() int64 { return read().Unix() }

func read() time.Time { return time.Now() }

// A Source is a clock and a file.
type Source struct{ path string }

// Read reads both.
func (s *Source) Read() ([]byte, error) {
	if Stamp() == 0 {
		return nil, nil
	}
	return os.ReadFile(s.path)
}

// Any reads the clock for any type.
func Any[T any](v T) (T, time.Time) { return v, time.Now() }

// Approved may read the clock.
func Approved() time.Time {
	return time.Now() //weft:ignore W1 for a log only
}

// ApprovedCall calls what reads it.
func ApprovedCall() int64 {
	//weft:ignore W1 for a log only
	return Stamp()
}

// Twice gets a time.
func Twice(t time.Time) time.Time { return t.Add(t.Sub(time.Time{})) }

// Once is a step whose function has no context.
func Once[T any](run *engine.Run, name string, f func() T) (T, error) {
	return engine.Step(run, name, func(context.Context) (T, error) { return f(), nil })
}

// Tell begins nothing.
func Tell(run *engine.Run, k string) error { run.Logger().Info(k); return nil }

// Wait begins something.
func Wait(run *engine.Run) error { return run.Sleep(1) }
