package run

import (
	"fmt"
	"slices"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
)

// A rider is something that the function asks for and that is no operation, such as a label. It is
// stored with the next checkpoint that counts: see counts. All of the driver's checkpoints are made
// by appending, which adds what rides.
//
// Why that suffices: the driver commits only when it has delivered all durable events and every
// branch waits. So a checkpoint that counts, and that comes after the event delivered last, was
// written after the function had asked. A replay that asks again knows from this whether the first
// time was stored. If no such checkpoint exists, nothing that the function did afterwards is durable.
type rider interface {
	// waits reports whether something is not stored.
	waits() bool

	// ride adds it to c, which is a checkpoint that counts. See rewriting. c's slices may be those of
	// the caller, so ride must not append to them in place. It is called again if the commit is
	// refused, and changes nothing else.
	ride(x *Execution, c *journal.Change)

	// stored notes that a checkpoint that counts is in the history.
	stored()
}

// riders are the riders of a run.
type riders struct {
	versions versions
	labels   labels
	values   values

	since time.Time // when something was first asked for that is not stored; zero: everything is stored
}

func (r *riders) all() []rider { return []rider{&r.versions, &r.labels, &r.values} }

// asked notes that something was asked for.
func (r *riders) asked() {
	if r.since.IsZero() {
		r.since = time.Now()
	}
}

// waits reports whether something is not stored.
func (r *riders) waits() bool { return !r.since.IsZero() }

// soon is how long what rides waits for a checkpoint to be stored with.
const soon = 100 * time.Millisecond

// due returns how long it is until what waits is stored by itself, and whether anything waits.
func (r *riders) due() (wait time.Duration, ok bool) {
	return soon - time.Since(r.since), r.waits()
}

// stored notes that a checkpoint with these events is in the history.
func (r *riders) stored(events []checkpoint.Event) {
	if !r.waits() || !counts(events) {
		return
	}
	r.since = time.Time{}
	for _, one := range r.all() {
		one.stored()
	}
}

// counts reports whether the driver wrote a checkpoint with these events while every branch
// waited: then it has everything that the function had asked for. The others do not count: claims
// are written by whoever takes the run, a parked run has only been put aside, a run is also held
// while its function has not come to rest, and an operator can end it at any time. One that begins a
// life has what the function had asked for in the life before. A checkpoint with
// some of the values does not count because the others follow: see storeFirst.
func counts(events []checkpoint.Event) bool {
	return !slices.ContainsFunc(events, func(e checkpoint.Event) bool {
		switch e.Kind {
		case checkpoint.KindClaimed, checkpoint.KindSkipped, checkpoint.KindParked, checkpoint.KindContinued:
			return true
		case checkpoint.KindHeld:
			return e.Of == ""
		case checkpoint.KindEnded:
			return e.By != ""
		case checkpoint.KindNoted:
			return e.Operation == "" && e.Why == checkpoint.SomeValues
		}
		return false
	})
}

// with returns c with what of some riders is not stored.
func (x *Execution) with(c journal.Change, some ...rider) journal.Change {
	for _, r := range some {
		if r.waits() {
			r.ride(x, &c)
		}
	}
	return c
}

// appending decides the next checkpoint of the run, with what rides in it, in the space of w.
func (x *Execution) appending(w *journal.Write, c journal.Change) error {
	if counts(c.Events) {
		if err := x.atPlace(c.Events); err != nil {
			return err
		}
		if slices.ContainsFunc(x.riders.all(), rider.waits) { // hardly ever: with has c allocated
			c = x.with(c, x.riders.all()...)
		}
	}
	return x.Hold.AppendTo(w, c, x.host.Read())
}

// atPlace returns an *undeliveredError if durable events are not delivered. A checkpoint that counts,
// or that ends the present life, must not be made then.
func (x *Execution) atPlace(events []checkpoint.Event) error {
	if !x.delivering() {
		return nil
	}
	err := &undeliveredError{x.log.Len(), events}
	if testHookDefect != nil {
		testHookDefect(err)
	}
	return err
}

// An undeliveredError is a defect of this package. A checkpoint that counts was to be made while
// durable events were not delivered. A replay delivers them first. So it would take what the function
// asks for behind them for stored, although the function had not come there when the checkpoint was
// made. The run is released instead: its next owner replays what is durable.
type undeliveredError struct {
	undelivered int                // events that were recorded and not delivered
	events      []checkpoint.Event // of the checkpoint
}

func (e *undeliveredError) Error() string {
	var kinds []checkpoint.Kind // nothing of the payloads
	for _, event := range e.events {
		kinds = append(kinds, event.Kind)
	}
	return fmt.Sprintf("engine: defect: checkpoint with events of the kinds %q was to be made while %d events are not delivered", kinds, e.undelivered)
}

// testHookDefect, if set by a test, is called with each defect.
var testHookDefect func(error)

// rewriting returns the workflow record that c writes, to be changed further. If c has none yet, it
// is a copy of the present one.
func (x *Execution) rewriting(c *journal.Change) *journal.Workflow {
	wf := *x.Hold.Workflow
	if c.Workflow != nil {
		wf = *c.Workflow
	}
	c.Workflow = &wf
	return &wf
}
