package engine

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/weft-go/weft/checkpoint"
)

// SetNow gives e another wall clock. It must be called before e is used.
func SetNow(e *Engine, now func() time.Time) {
	e.worker.now = now
	e.worker.read = func() checkpoint.Reading {
		return checkpoint.Reading{Wall: now().Round(0), Mono: time.Now()}
	}
}

// IsOpen says that e drives what is started.
func IsOpen(e *Engine) bool {
	e.worker.mu.Lock()
	defer e.worker.mu.Unlock()
	return e.worker.incarnation != nil && e.worker.incarnation.isOpen()
}

// SetIDs has e take its ULIDs from newID. It must be called before e is used.
func SetIDs(e *Engine, newID func() string) { e.worker.newID = newID }

// SetBase has what e does of its own accord do so under ctx. It must be called before e
// is used.
func SetBase(e *Engine, ctx context.Context) { e.worker.base = ctx }

// TurnIsLate has e renew its lease as when a goroutine has waited long for its turn.
func TurnIsLate(e *Engine) {
	e.worker.mu.Lock()
	defer e.worker.mu.Unlock()
	e.worker.incarnation.hurryUp()
}

// HurriesUp says that the incarnation of e was told to renew its lease soon, and has not heard it.
func HurriesUp(e *Engine) bool {
	e.worker.mu.Lock()
	defer e.worker.mu.Unlock()
	return e.worker.incarnation != nil && len(e.worker.incarnation.hurry) > 0
}

// Few is how many attempts of e may be under way whatever is measured.
func Few(e *Engine) int { return e.worker.gate.Few() }

// Every decision of every test is made twice, and the second time it is the same: a
// decision draws nothing and changes nothing.
func init() {
	testHookDecided = func(x *execution, now time.Time, d *decision) {
		again, err := x.decide(now)
		if err != nil {
			panic(fmt.Sprintf("decided again: %v", err))
		}
		if !reflect.DeepEqual(again.Events, d.Events) || !reflect.DeepEqual(again.Workflow, d.Workflow) ||
			len(again.If) != len(d.If) || len(again.Ops) != len(d.Ops) ||
			again.answers != d.answers || again.births != d.births || again.ends != d.ends {
			panic(fmt.Sprintf("decided %+v, and then %+v", d, again))
		}
	}
}
