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
	e.now = now
	e.read = func() checkpoint.Reading {
		return checkpoint.Reading{Wall: now().Round(0), Mono: time.Now()}
	}
}

// IsOpen says that e drives what is started.
func IsOpen(e *Engine) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.incarnation != nil && e.incarnation.isOpen()
}

// SetIDs has e take its ULIDs from newID. It must be called before e is used.
func SetIDs(e *Engine, newID func() string) { e.newID = newID }

// SetBase has what e does of its own accord do so under ctx. It must be called before e
// is used.
func SetBase(e *Engine, ctx context.Context) { e.base = ctx }

// A Gate is that of an engine, for tests.
type Gate struct{ g gate }

func NewGate(few, most int, tooLate time.Duration) *Gate {
	return &Gate{gate{most: most, few: few, bound: most, tooLate: tooLate}}
}

func (g *Gate) Take() bool                               { return g.g.take() }
func (g *Gate) Measured(late time.Duration, n time.Time) { g.g.measured(late, n) }
func (g *Gate) Busy() int                                { return g.g.busy }

// TurnIsLate has e renew its lease as when a goroutine has waited long for its turn.
func TurnIsLate(e *Engine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.incarnation.hurryUp()
}

// MeasuresAgain has a late turn of e measured, with so many places taken and one who waits
// for a place or nobody, and says whether another turn will be measured.
func MeasuresAgain(e *Engine, taken int, waits bool) bool {
	e.mu.Lock()
	g := &e.gate
	usual := g.tooLate
	g.tooLate, g.busy, g.waiting, g.probing = -1, taken, nil, true
	g.trickled = time.Now().Add(time.Hour) // nothing begins although turns are late
	if waits {
		g.waiting = []*execution{{}}
	}
	e.mu.Unlock()
	e.probe()
	e.mu.Lock()
	defer e.mu.Unlock()
	again := g.probing
	g.tooLate, g.busy, g.waiting = usual, 0, nil
	return again
}

// HurriesUp says that the incarnation of e was told to renew its lease soon, and has not heard it.
func HurriesUp(e *Engine) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.incarnation != nil && len(e.incarnation.hurry) > 0
}

// Few is how many attempts of e may be under way whatever is measured.
func Few(e *Engine) int { return e.gate.few }

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
