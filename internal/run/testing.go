package run

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/weft-go/weft/checkpoint"
)

// SignalsInMemory returns how many signals are in memory. It is for tests, which call it while
// the run waits or its function is busy.
func (x *Execution) SignalsInMemory() (n int) {
	x.mailbox.mu.Lock()
	defer x.mailbox.mu.Unlock()
	for _, p := range x.mailbox.posts {
		if a, ok := p.(Arrived); ok {
			n += len(a.Signals)
		}
	}
	for _, l := range x.Inbox.lines {
		n += len(l.waiting)
	}
	return n
}

// Receives reports whether the run waits for a signal, which its sender may hand over.
func (x *Execution) Receives() bool {
	x.mailbox.mu.Lock()
	defer x.mailbox.mu.Unlock()
	return len(x.mailbox.receiving) > 0
}

// PanicAtDefects has a checkpoint that must not be made panic instead of being refused, for tests. It
// must be called before any run is executed.
func PanicAtDefects() { testHookDefect = func(err error) { panic(err) } }

// DecideTwice has every decision made twice and compared, for tests: a decision draws nothing
// and changes nothing. It must be called before any run is executed.
func DecideTwice() {
	testHookDecided = func(x *Execution, now time.Time, d *decision) {
		again := new(decision)
		if err := x.decide(again, now); err != nil {
			panic(fmt.Sprintf("decided again: %v", err))
		}
		same := func(a, b checkpoint.Event) bool { return reflect.DeepEqual(a, b) }
		if !slices.EqualFunc(again.Events, d.Events, same) || !reflect.DeepEqual(again.Workflow, d.Workflow) ||
			len(again.If) != len(d.If) || len(again.Ops) != len(d.Ops) ||
			again.answers != d.answers || again.births != d.births || again.ends != d.ends {
			panic(fmt.Sprintf("decided %+v, and then %+v", d, again))
		}
	}
}
