package engine

import (
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/saturate"
)

// A witness tells how far time has come for certain. What is forgotten, is forgotten by
// that, and not by what one wall clock says: the same signal must not be received twice
// because a clock was 25 hours ahead for a second. It is never ahead of the wall clock.
// When that is right it is what the wall clock says, but for a while after it has jumped,
// or after a start, when nobody can tell a jump from a pause.
//
// A jump is believed when the wall clock has then gone on, for as long as it jumped, as
// the monotonic clock does, for an hour at most; or at once, when the witness of another
// engine that lives has come as far. And no engine is ahead of the wall clock of another,
// nor of one that is gone for less than an hour: what that has accepted expires by its clock.
// One that was gone at the begin counts as gone since then: nobody can tell when it went.
type witness struct {
	mu lock.Mutex // guards what follows
	reckoning
}

// A reckoning is what a witness knows. What it knows next depends on when it is asked.
type reckoning struct {
	proven     time.Time // so far time has come; zero: it was not begun
	at         time.Time // then, by the monotonic clock
	wall, mono time.Time // since then the wall clock has not jumped
	probation  time.Duration
	leapt      bool      // it has, ahead, and nobody knows why
	certain    time.Time // what now has returned last
	others     map[string]testimony
	gone       map[string]departed
	before     testimony // of those that were gone at the begin, the one that is furthest behind
}

// A testimony is what the lease of another engine says of time, since it says that.
type testimony struct {
	raw          string
	wall, proven time.Time
	at           time.Time // by the monotonic clock
}

// A departed is what an engine has said that is gone since a time.
type departed struct {
	testimony
	since time.Time // by the monotonic clock
}

// mostProbation is how long it takes until a jump of any size is believed.
const mostProbation = time.Hour

// begin begins with the newest time that the store tells, and with what the slowest clock
// said of an engine that is gone. Each is zero if there is none.
func (w *witness) begin(known, slowest time.Time, now checkpoint.Reading) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known.IsZero() || known.After(now.Wall) {
		known = now.Wall
	}
	w.proven, w.at, w.wall, w.mono = known, now.Mono, now.Wall, now.Mono
	w.probation = min(now.Wall.Sub(known), mostProbation)
	w.before = testimony{wall: slowest, at: now.Mono}
}

// begun says that there was a begin.
func (w *witness) begun() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.proven.IsZero()
}

// hear takes in what the engines that live say. What was said by those that others has
// not counts for an hour more, as a limit.
func (w *witness) hear(others map[string]testimony) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for incarnation, o := range others {
		if was, known := w.others[incarnation]; known && was.raw == o.raw {
			others[incarnation] = was
		}
	}
	gone := map[string]departed{} // copies of the reckoning keep what they have
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

// limit is t, or what the clock of the engine says by now if that is earlier.
func (o testimony) limit(t time.Time, is checkpoint.Reading) time.Time {
	if other := o.wall.Add(is.Mono.Sub(o.at)); !o.wall.IsZero() && other.Before(t) {
		return other
	}
	return t
}

// now is how far time has come for certain.
func (w *witness) now(is checkpoint.Reading) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reckoning.now(is)
}

func (w *reckoning) now(is checkpoint.Reading) time.Time {
	proven := w.proven.Add(is.Mono.Sub(w.at))
	same := is.Mono.Sub(w.mono)
	if drift := saturate.Sub(is.Wall.Sub(w.wall), same); drift.Abs() > checkpoint.Within(same) {
		w.wall, w.mono, same = is.Wall, is.Mono, 0
		w.probation = min(max(is.Wall.Sub(proven), 0), mostProbation)
		w.leapt = true
	}
	if same >= w.probation {
		proven = later(proven, is.Wall)
	}
	for _, o := range w.others {
		if !o.proven.IsZero() {
			proven = later(proven, o.proven.Add(is.Mono.Sub(o.at)))
		}
	}
	if proven.After(is.Wall) {
		proven = is.Wall
	}
	w.proven, w.at = proven, is.Mono
	w.leapt = w.leapt && is.Wall.Sub(proven) >= mostAhead
	for _, o := range w.others {
		proven = o.limit(proven, is)
	}
	for _, d := range w.gone {
		proven = d.limit(proven, is)
	}
	if is.Mono.Sub(w.before.at) < mostProbation {
		proven = w.before.limit(proven, is)
	}
	w.certain = proven
	return proven
}

// doubts says that the wall clock has jumped ahead, and that this is not believed yet.
func (w *witness) doubts(is checkpoint.Reading) bool {
	w.mu.Lock()
	r := w.reckoning // and w knows no more than before
	w.mu.Unlock()
	if r.proven.IsZero() {
		return false
	}
	r.now(is)
	return r.leapt
}

// says is what a lease tells others: how far time has come for certain, which is zero
// before begin. One that begins later knows by that of clocks that it has not met.
func (w *witness) says() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.certain
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
