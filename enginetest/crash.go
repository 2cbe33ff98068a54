package enginetest

import (
	"context"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage"
)

// A Scenario is a play with a few workflows and the systems that they act on.
type Scenario struct {
	// Workflows are what the engine runs.
	Workflows []engine.Definition

	// Deployed, if it is not nil, is what the engine runs instead of Workflows from DeployAfter on, in virtual
	// time since the beginning of a play: a new release of your program. The process stops then, and the next
	// one begins. Drive is called again, as after a crash.
	Deployed    []engine.Definition
	DeployAfter time.Duration

	// Queues are those that the engine serves; nil are those that Workflows name in
	// their Defaults, without limits.
	Queues []engine.Queue

	// Drive is what the clients do: start workflows, send signals, cancel. It need not
	// wait for results; the play continues until all workflows have ended. It is called
	// again when it has failed and after a crash, as a client retries, so it names what
	// it does: ids for workflows, IDs for signals. ctx ends when the process dies.
	Drive func(ctx context.Context, eng *engine.Engine) error

	// Timeout is how long Drive may take in one process, in virtual time; zero is 1,200 days. A
	// workflow that lives for years needs more.
	Timeout time.Duration

	// Check inspects the world at the end of each play; it may be nil. What it reports
	// with Errorf or Fatalf is shown with the place of the crash.
	Check func(t testing.TB, world *Recorder)

	// MayRepeat are effects that do no harm when they are repeated.
	MayRepeat []string

	// Open opens an empty store; nil is one in memory. It is closed at the end of
	// a play, and stays open in a crash.
	Open func(t testing.TB) storage.Storage
}

// CrashEverywhere plays a scenario without failures, and then once for every call to
// the store and every way in which that can fail: the process dies before or after the
// call, the call returns an error having done none or all of its work, its context is
// cancelled. After a crash the next process continues with what is in the store. Each
// play has its own call of scenario, in virtual time.
//
// The test fails if some play does not end like the one without failures: if an effect
// happened more often (unless it is in MayRepeat) or less often, if a workflow ended
// otherwise or not at all, if an operation has not written to a stream what it
// writes without failures, if Drive does not succeed or Check reports an
// error. It also fails if a workflow is held, in whichever play. The report says where, once for
// each kind of problem. A play without failures that makes more than 5,000 commits is ended, and
// the test fails. Results that differ between two plays without failures, such as those with a
// time or a random number in them, are not compared. The ids that the engine makes for children,
// and the numbers of attempts that failed, may differ.
//
// Scenarios are played in a testing/synctest bubble, so what scenario creates must not
// wait for anything outside.
func CrashEverywhere(t *testing.T, scenario func(world *Recorder) Scenario) {
	t.Helper()
	r := everywhere(t, scenario)
	if s := r.String(); s != "" {
		t.Error(s)
	}
	t.Logf("%d plays of %d store calls", r.plays, r.calls)
}

func everywhere(t *testing.T, scenario func(world *Recorder) Scenario) *report {
	calm, r := undisturbed(t, scenario)
	if !r.empty() {
		return r // report it once, and not for each play
	}
	for i, c := range calm.calls {
		for _, w := range ways {
			if w.writes && !c.write {
				continue
			}
			// The calls of concurrent goroutines come in any order, so a call is
			// identified by its description, or by its number where the description
			// changes each time.
			p := play(t, scenario, once(w, func(_ int, now call) bool { return now == c }), 1)
			r.plays++
			if p.struck == "" {
				p = play(t, scenario, once(w, func(n int, _ call) bool { return n == i+1 }), 1)
				r.plays++
			}
			r.add(w.place(i+1, len(calm.calls), p.struck, p.wrote), p.beside(calm))
		}
	}
	return r
}

// undisturbed plays the scenario twice without failures.
func undisturbed(t *testing.T, scenario func(world *Recorder) Scenario) (*played, *report) {
	calm := play(t, scenario, nil, 0)
	r := &report{plays: 1, calls: len(calm.calls)}
	// A run that is held in the same way in each play would be the same end.
	if r.add(place{words: "undisturbed"}, append(calm.trouble, calm.held()...)); !r.empty() {
		return calm, r
	}
	again := play(t, scenario, nil, 0)
	r.plays++
	r.add(place{words: "played twice, undisturbed"}, calm.differs(again))
	return calm, r
}

// once makes the first call fail for which is returns true.
func once(w way, is func(n int, c call) bool) strike {
	struck := false
	return func(n int, c call) (way, bool) {
		if struck || !is(n, c) {
			return way{}, false
		}
		struck = true
		return w, true
	}
}
