package enginetest

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// CrashOften plays a scenario without failures, and then with many of them, in one play after
// another, until there have been failures of them. Each is one of those of CrashEverywhere, at a call
// to the store that is drawn: among the first that a process makes, or at one of the next commits. So
// failures meet what earlier ones have left behind, and the scenario may be one that is too long for
// CrashEverywhere, such as a workflow that lives for years.
//
// The test fails if some play does not end like the one without failures, as that of CrashEverywhere
// does. With the same number, the failures are drawn in the same way each time.
func CrashOften(t *testing.T, failures int, scenario func(world *Recorder) Scenario) {
	t.Helper()
	r := often(t, failures, scenario)
	if s := r.String(); s != "" {
		t.Error(s)
	}
	t.Logf("%d failures in %d plays of %d store calls", failures, r.plays-2, r.calls)
}

func often(t *testing.T, failures int, scenario func(world *Recorder) Scenario) *report {
	calm, r := undisturbed(t, scenario)
	random := rand.New(rand.NewPCG(uint64(failures), 0))
	next := draw(random)
	for left := failures; left > 0 && r.empty(); {
		most := left
		p := play(t, scenario, func(_ int, c call) (way, bool) {
			if left == 0 || !next.reached(c) {
				return way{}, false
			}
			w := ways[random.IntN(len(ways))]
			if w.writes && !c.write {
				return way{}, false // the next commit fails
			}
			left--
			next = draw(random)
			return w, true
		}, most)
		r.plays++
		r.add(place{words: fmt.Sprintf("play %d, with %d failures, of which %d were crashes", r.plays-2, most-left, p.deaths)}, p.beside(calm))
	}
	return r
}

// A distance is how many calls, or how many commits of steps, it takes until the next failure.
type distance struct {
	n     int
	steps bool
}

// draw draws whether the next failure is among the next few steps, or among the next calls, with which
// an engine recovers from the last failure.
func draw(random *rand.Rand) distance {
	if random.IntN(2) == 0 {
		return distance{1 + random.IntN(100), false}
	}
	return distance{1 + random.IntN(10), true}
}

// reached counts the call, and reports whether the next failure is due.
func (d *distance) reached(c call) bool {
	if c.step || !d.steps {
		d.n--
	}
	return d.n <= 0
}
