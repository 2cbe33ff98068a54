package enginetest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/weft-go/weft/activity"
)

// A Recorder is the outside world, which a crash does not undo: it keeps the effects.
// The zero value is ready. Its methods may be called by many goroutines.
type Recorder struct {
	mu      sync.Mutex
	effects []Effect
	keyed   map[string]bool // activities that had an idempotency key
	deaths  int             // of processes, so far
	dead    bool            // and the next one has not started yet
}

// An Effect is something that was done to the outside world.
type Effect struct {
	Name string

	// The attempt of an activity or of a step that did it. All are empty for an effect
	// from elsewhere.
	WorkflowID, Activity, Operation string
	Attempt                         int

	// Phase is activity.PhaseCompensate of an effect that undoes: Operation is then the
	// operation that it undoes, and Attempt counts the attempts to undo.
	Phase activity.Phase

	// Life counts the processes: 1 until a crash, then 2.
	Life int
}

// Effect records that name happened. Call it where the effect happens: in the fake that
// an activity calls, at the line that charges the card. ctx is the activity's, and
// identifies it.
//
// In a process that has died Effect does not return, and records nothing: the goroutine
// ends there.
func (r *Recorder) Effect(ctx context.Context, name string) {
	info := activity.InfoFrom(ctx)
	if !r.record(ctx, info.IdempotencyKey != "", Effect{
		Name:       name,
		WorkflowID: info.WorkflowID,
		Activity:   info.Activity,
		Operation:  info.Operation,
		Attempt:    info.Attempt,
		Phase:      info.Phase,
	}) {
		runtime.Goexit()
	}
}

func (r *Recorder) record(ctx context.Context, keyed bool, e Effect) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	inside := e.WorkflowID != ""
	if inside && r.dead || inside && r.deaths > 0 && errors.Is(context.Cause(ctx), activity.ErrStopped) {
		return false
	}
	if keyed && e.Phase != activity.PhaseCompensate {
		if r.keyed == nil {
			r.keyed = map[string]bool{}
		}
		r.keyed[e.Activity] = true
	}
	e.Life = r.deaths + 1
	r.effects = append(r.effects, e)
	return true
}

// Count is how often name happened.
func (r *Recorder) Count(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, e := range r.effects {
		if e.Name == name {
			n++
		}
	}
	return n
}

// Effects are all effects, in their order.
func (r *Recorder) Effects() []Effect {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.effects)
}

// die records that the current process has died.
func (r *Recorder) die() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead = true
	r.deaths++
}

// live records that the next process has started.
func (r *Recorder) live() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead = false
}
