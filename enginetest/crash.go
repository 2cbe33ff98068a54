package enginetest

import (
	"context"
	"testing"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage"
)

// A Scenario is a story of a few workflows, and of the world that they act on.
type Scenario struct {
	// Workflows are what the engine runs.
	Workflows []engine.Definition

	// Queues are those that it serves; nil are those that Workflows name in their
	// Defaults, without bounds.
	Queues []engine.Queue

	// Drive is what the clients do: start workflows, send signals, cancel. It
	// need not wait for results; the play goes on until all workflows have
	// ended. It is called again when it has failed and after a crash, as a client
	// tries again, so it names what it does: ids for workflows, IDs for signals.
	// ctx ends when the process dies.
	Drive func(ctx context.Context, eng *engine.Engine) error

	// Check looks at the world at the end of each play; it may be nil. What it
	// says with Errorf or Fatalf is reported with the place of the crash.
	Check func(t testing.TB, world *Recorder)

	// MayRepeat are effects that do no harm when they are repeated.
	MayRepeat []string

	// Open opens an empty store; nil is one in memory. It is closed at the end of
	// a play, and stays open in a crash.
	Open func(t testing.TB) storage.Storage
}

// CrashEverywhere plays a scenario undisturbed, and then once for every call to
// the store and every way in which that can go wrong: the process dies before or
// after the call, the call answers an error having done nothing or all, its
// context is cancelled. After a crash the next process goes on with what is in
// the store. Each play is made by its own call of scenario, in virtual time.
//
// The test fails if some play does not end as the undisturbed one did: if an
// effect was had more often (unless it is in MayRepeat) or less often, if a
// workflow ended otherwise or not at all or is held, if Drive has no success or
// Check complains. The report says where, once for each kind of trouble. Results
// that differ between two undisturbed plays, as those with a time or a random
// number in them do, are not compared.
//
// As scenario is played in a testing/synctest bubble, what it makes must not
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
	calm, again := play(t, scenario, nil, way{}), play(t, scenario, nil, way{})
	r := &report{plays: 2, calls: len(calm.calls)}
	if r.add(place{words: "undisturbed"}, calm.trouble); !r.empty() {
		return r // before it is said a thousand times
	}
	if r.add(place{words: "played twice, undisturbed"}, calm.differs(again)); !r.empty() {
		return r
	}
	for i, c := range calm.calls {
		for _, w := range ways {
			if w.writes && !c.write {
				continue
			}
			// What an engine does at the same time comes in any order, so a call is known
			// by its words, or where these are others each time, by its number.
			p := play(t, scenario, func(_ int, now call) bool { return now == c }, w)
			r.plays++
			if p.struck == "" {
				p = play(t, scenario, func(n int, _ call) bool { return n == i+1 }, w)
				r.plays++
			}
			r.add(w.place(i+1, len(calm.calls), p.struck, p.wrote), p.beside(calm, w))
		}
	}
	return r
}
