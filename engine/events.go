package engine

import "sync/atomic"

// Events are callbacks for metrics. Any of them may be nil. The engine's goroutines
// call them synchronously and concurrently. Do not use an id as the label of a metric:
// there are too many.
type Events struct {
	// Takeover: a run was claimed whose previous owner is dead or has stopped.
	Takeover func(id, from, to string)

	// LostRace: a claim was refused because another write came first.
	LostRace func(id string)

	// Fenced: a commit was refused, or abandoned, because the run has another
	// owner or has ended. Its contents are discarded.
	Fenced func(id string)

	// Unknown: the outcome of a commit is unknown. It is settled before anything
	// else happens to the run. The id is empty if the commit belongs to no run.
	Unknown func(id string)

	// InputChanged: in a replay of the run, an operation was started with an input that
	// differs from the recorded one. Only the first such operation is reported. The run
	// continues. docs/guides/workflows.md describes what is compared. An engine usually
	// reports a run once.
	InputChanged func(id, operation string)

	// Deposed: an incarnation has lost its lease and releases all its runs. The
	// engine continues as another incarnation.
	Deposed func(incarnation string)
}

// counts are the numbers of events of one incarnation.
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

// unsure returns a function that reports commits of unknown outcome. The id is empty if
// they belong to no run.
func (l *life) unsure(what, id string) func(error) {
	return func(err error) {
		l.eng.log.Warn("weft: outcome of a commit is unknown, trying again", "what", what, "workflow", id, "error", err)
		l.counts.unknown.Add(1)
		if f := l.eng.config.Events.Unknown; f != nil {
			f(id)
		}
	}
}
