// Package w9 keeps futures and Runs.
package w9

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/future"
)

var charge = &activity.Activity[int, int]{Name: "charge", Run: func(ctx context.Context, n int) (int, error) { return n, nil }}

type flow struct {
	run     *engine.Run         // want `the field run of flow keeps a Run: a replay makes another one, .*pass it to the functions that use it \(W9\)`
	runner  activity.Runner     // want `the field runner of flow keeps a Run`
	pending *future.Future[int] // want `the field pending of flow keeps a future`
	op      future.Operation    // want `the field op of flow keeps a future`
	cases   []engine.Case       // want `the field cases of flow keeps a future`
	inner   struct {
		byName map[string]*future.Future[int] // want `the field byName of flow keeps a future`
	}
	any any
}

type embeds struct {
	*engine.Run // want `the field embedded of embeds keeps a Run`
}

type generic[T any] struct {
	f *future.Future[T] // want `the field f of generic keeps a future`
}

var (
	current *engine.Run                // want `the package variable current keeps a Run`
	last    *future.Future[int]        // want `the package variable last keeps a future`
	all     = map[string]*engine.Run{} // want `the package variable all keeps a Run`
	shared  atomic.Pointer[engine.Run] // want `the package variable shared keeps a Run`
	guess   any
	_       sync.Mutex
)

func channels(run *engine.Run) int {
	c := make(chan *engine.Run, 1)         // want `a channel of \*engine.Run keeps a Run`
	d := make(chan *future.Future[int], 1) // want `a channel of \*future.Future\[int\] keeps a future`
	return cap(c) + cap(d)
}

func sends(run *engine.Run, c chan any) {
	c <- run // want `a channel keeps a Run` `a send to a channel`
}

func intoField(run *engine.Run, f *flow) {
	f.any = charge.Go(run, 1) // want `the field any keeps a future`
}

func intoGlobal(run *engine.Run) {
	guess = run // want `the package variable guess keeps a Run` `the package variable guess, which is written`
}
