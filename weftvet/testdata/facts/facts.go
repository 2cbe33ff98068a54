// Package facts calls functions of another package.
package facts

import (
	"time"

	"example.com/corpus/clock"
	"example.com/corpus/shared"
	"github.com/weft-go/weft/engine"
)

func function(run *engine.Run) int64 {
	return clock.Stamp() // want `clock.Stamp, which uses time.Now \(clock.go:15\), in workflow code: a replay gets another time; use run.Now \(W1\)`
}

func method(run *engine.Run, s *clock.Source) ([]byte, error) {
	return s.Read() // want `clock.Source.Read, which uses time.Now` `clock.Source.Read, which uses os.ReadFile \(clock.go:25\), in workflow code: .* \(W5\)`
}

func generic(run *engine.Run) (int, time.Time) {
	return clock.Any(1) // want `clock.Any, which uses time.Now`
}

func value(run *engine.Run) func() int64 {
	return clock.Stamp // want `clock.Stamp, which uses time.Now`
}

func throughOwn(run *engine.Run) int64 { return own() }

func own() int64 {
	return clock.Stamp() // want `clock.Stamp, .* in workflow code \(throughOwn calls own\)`
}

func variable(run *engine.Run) time.Time {
	return shared.Started // want `shared.Started, whose value uses time.Now \(shared.go:\d+\), in workflow code`
}

func order(run *engine.Run, m map[string]int) (err error) {
	for range m { // want `a range over a map that begins operations`
		err = clock.Wait(run)
	}
	clock.Wait(run) // want `the error of clock.Wait is dropped`
	return err
}

func name(run *engine.Run, id string) (int64, error) {
	return clock.Once(run, "stamp-"+id, clock.Stamp) // want `the name of an operation is computed`
}

// Silent.

func approved(run *engine.Run) time.Time {
	return clock.Approved().Add(time.Duration(clock.ApprovedCall()))
}

func pure(run *engine.Run) time.Time { return clock.Twice(run.Now()) }

func inStep(run *engine.Run) (int64, error) { return clock.Once(run, "stamp", clock.Stamp) }

func literalInStep(run *engine.Run) (int64, error) {
	return clock.Once(run, "stamp", func() int64 { return clock.Stamp() })
}

func tells(run *engine.Run, m map[string]int) {
	for k := range m {
		_ = clock.Tell(run, k)
	}
}

func client() int64 { return clock.Stamp() }
