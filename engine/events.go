package engine

import "sync/atomic"

// Events are called when something happens that is worth counting. All of them may
// be nil. They are called by the engine's own goroutines, which wait for them, and by
// many at once. An id is no label for a metric: there are too many.
type Events struct {
	// Takeover: a run was claimed from an incarnation that is dead or has stopped.
	Takeover func(id, from, to string)

	// LostRace: a claim came to nothing because somebody else was quicker.
	LostRace func(id string)

	// Fenced: a commit was refused, or not tried any more, because the run has
	// another owner or has ended. What was decided for it is dropped.
	Fenced func(id string)

	// Unknown: nobody knows whether a commit was done. It is settled before anything
	// else happens to the run. The id is empty for what concerns no run.
	Unknown func(id string)

	// InputChanged: in a replay of the run an operation was begun with another input
	// than its history tells; it is the first. The run goes on: see
	// docs/guides/workflows.md for what is compared. It is told of once in the life of an
	// engine, as a rule.
	InputChanged func(id, operation string)

	// Deposed: an incarnation has lost its lease, and puts down all that it drives.
	// The engine goes on as another.
	Deposed func(incarnation string)
}

// Counts are how often something happened to one incarnation.
type counts struct{ takeovers, lostRaces, fenced, unknown atomic.Uint64 }

func (l *life) tookOver(id, from string) {
	l.counts.takeovers.Add(1)
	if f := l.eng.config.Events.Takeover; f != nil {
		f(id, from, l.incarnation)
	}
}

func (l *life) lostRace(id string) {
	l.counts.lostRaces.Add(1)
	if f := l.eng.config.Events.LostRace; f != nil {
		f(id)
	}
}

func (l *life) fenced(id string) {
	l.counts.fenced.Add(1)
	if f := l.eng.config.Events.Fenced; f != nil {
		f(id)
	}
}

// unsure is told of commits of unknown outcome. An empty id is no run's.
func (l *life) unsure(what, id string) func(error) {
	return func(err error) {
		l.eng.log.Warn("weft: outcome of a commit is unknown, trying again", "what", what, "workflow", id, "error", err)
		l.counts.unknown.Add(1)
		if f := l.eng.config.Events.Unknown; f != nil {
			f(id)
		}
	}
}
