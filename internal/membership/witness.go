package membership

import (
	"time"

	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/saturate"
)

// A Witness computes the certain time: a time that has certainly passed. Expiry uses it
// instead of the wall clock, so that a clock that is 25 hours ahead for a second does not
// make the engine forget a signal and receive it twice. The certain time is never ahead of
// the wall clock. As a rule it equals the wall clock. It may be behind for a while after the
// wall clock jumped, and after a start, because a jump cannot be told from a pause then.
//
// A jump ahead is believed after a probation: the wall clock must run at the rate of the
// monotonic clock for as long as it jumped, at most an hour. It is believed immediately if
// the certain time of another live engine has also reached the new time.
//
// The certain time is also never ahead of the wall clock of another live engine, or of an
// engine that has been gone for less than an hour, because the signals that it accepted
// expire by its clock. An engine that was already gone at Reset counts as gone since then,
// because it is unknown when it ended.
type Witness struct {
	mu lock.Mutex // guards the fields below
	reckoning
}

// A reckoning is the state of a witness. Each call of now changes it.
type reckoning struct {
	proven     time.Time // certain time at the last call, before the limits by other clocks; zero before Reset
	at         time.Time // monotonic time of proven
	wall, mono time.Time // clock readings since which the wall clock has not jumped
	probation  time.Duration
	leapt      bool      // the wall clock has jumped ahead, and this is not believed yet
	certain    time.Time // what now returned last
	others     map[string]Testimony
	gone       map[string]departed
	before     Testimony // the clock furthest behind of the engines that were gone at Reset
}

// A Testimony holds the times in the lease of another engine.
type Testimony struct {
	Raw          string
	Wall, Proven time.Time
	At           time.Time // monotonic time at which this lease was first read
}

// A departed is the last testimony of an engine that is gone.
type departed struct {
	Testimony
	since time.Time // monotonic time since which it is gone
}

// mostProbation is the probation after which a jump of any size is believed.
const mostProbation = time.Hour

// Reset initializes w. known is the latest time found in the store, slowest the earliest of
// the last wall clock times of the engines that are gone. Each is zero if there is none.
func (w *Witness) Reset(known, slowest time.Time, now journal.Reading) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known.IsZero() || known.After(now.Wall) {
		known = now.Wall
	}
	w.proven, w.at, w.wall, w.mono = known, now.Mono, now.Wall, now.Mono
	w.probation = min(now.Wall.Sub(known), mostProbation)
	w.before = Testimony{Wall: slowest, At: now.Mono}
}

// Begun reports whether Reset was called.
func (w *Witness) Begun() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.proven.IsZero()
}

// Hear sets the testimonies of the live engines. Engines that are no longer among them
// still limit the certain time for mostProbation.
func (w *Witness) Hear(others map[string]Testimony) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for incarnation, o := range others {
		if was, known := w.others[incarnation]; known && was.Raw == o.Raw {
			others[incarnation] = was
		}
	}
	gone := map[string]departed{} // a new map, because copies of the reckoning share the old one
	for incarnation, d := range w.gone {
		if time.Since(d.since) < mostProbation {
			gone[incarnation] = d
		}
	}
	for incarnation, was := range w.others {
		if _, lives := others[incarnation]; !lives {
			gone[incarnation] = departed{was, time.Now()}
		}
	}
	w.others, w.gone = others, gone
}

// limit returns t, or the present time by the wall clock of the other engine if that is
// earlier.
func (o Testimony) limit(t time.Time, is journal.Reading) time.Time {
	if other := o.Wall.Add(is.Mono.Sub(o.At)); !o.Wall.IsZero() && other.Before(t) {
		return other
	}
	return t
}

// Now returns the certain time.
func (w *Witness) Now(is journal.Reading) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reckoning.now(is)
}

func (w *reckoning) now(is journal.Reading) time.Time {
	proven := w.proven.Add(is.Mono.Sub(w.at))
	same := is.Mono.Sub(w.mono)
	if drift := saturate.Sub(is.Wall.Sub(w.wall), same); drift.Abs() > journal.Within(same) {
		w.wall, w.mono, same = is.Wall, is.Mono, 0
		w.probation = min(max(is.Wall.Sub(proven), 0), mostProbation)
		w.leapt = true
	}
	if same >= w.probation {
		proven = Later(proven, is.Wall)
	}
	for _, o := range w.others {
		if !o.Proven.IsZero() {
			proven = Later(proven, o.Proven.Add(is.Mono.Sub(o.At)))
		}
	}
	if proven.After(is.Wall) {
		proven = is.Wall
	}
	w.proven, w.at = proven, is.Mono
	w.leapt = w.leapt && is.Wall.Sub(proven) >= MostAhead
	for _, o := range w.others {
		proven = o.limit(proven, is)
	}
	for _, d := range w.gone {
		proven = d.limit(proven, is)
	}
	if is.Mono.Sub(w.before.At) < mostProbation {
		proven = w.before.limit(proven, is)
	}
	w.certain = proven
	return proven
}

// Doubts reports whether the wall clock has jumped ahead and this is not believed yet.
func (w *Witness) Doubts(is journal.Reading) bool {
	w.mu.Lock()
	r := w.reckoning // a copy, so that w does not change
	w.mu.Unlock()
	if r.proven.IsZero() {
		return false
	}
	r.now(is)
	return r.leapt
}

// Says returns the certain time for the lease; it is zero before Reset. By it an engine
// that starts later takes account of clocks that it never saw.
func (w *Witness) Says() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.certain
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// MostAhead is the difference between the clocks of engines from which on an engine looks
// for parked runs with a wrong due time.
const MostAhead = time.Second
