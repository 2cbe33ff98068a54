package engine

import "sync/atomic"

// Events are callbacks for metrics. Any of them may be nil. The engine's goroutines
// call them synchronously and concurrently. Do not use an id as the label of a metric:
// there are too many.
type Events struct {
	// Takeover: a run was claimed whose previous owner is dead or has stopped.
	Takeover func(TakeoverEvent)

	// LostRace: a claim was refused because another write came first.
	LostRace func(LostRaceEvent)

	// Fenced: a commit was refused, or abandoned, because the run has another
	// owner or has ended. Its contents are discarded.
	Fenced func(FencedEvent)

	// Unknown: the outcome of a commit is unknown. It is settled before anything
	// else happens to the run.
	Unknown func(UnknownEvent)

	// InputChanged: in a replay of the run, an operation was started with an input that
	// differs from the recorded one. Only the first such operation is reported. The run
	// continues. docs/guides/workflows.md describes what is compared. An engine usually
	// reports a run once.
	InputChanged func(InputChangedEvent)

	// Deposed: an incarnation has lost its lease and releases all its runs. The
	// engine continues as another incarnation.
	Deposed func(DeposedEvent)
}

// A TakeoverEvent: a run was claimed whose previous owner is dead or has stopped. From and To
// are incarnations: see EngineInfo.
type TakeoverEvent struct{ WorkflowID, From, To string }

// A LostRaceEvent: a claim was refused because another write came first.
type LostRaceEvent struct{ WorkflowID string }

// A FencedEvent: a commit was refused, or abandoned, because the run has another owner or has
// ended.
type FencedEvent struct{ WorkflowID string }

// An UnknownEvent: the outcome of a commit is unknown. The WorkflowID is empty if the commit
// belongs to no run.
type UnknownEvent struct{ WorkflowID string }

// An InputChangedEvent: a replay started an operation with another input than the recorded one.
type InputChangedEvent struct{ WorkflowID, Operation string }

// A DeposedEvent: an incarnation has lost its lease.
type DeposedEvent struct{ Incarnation string }

// counts are the numbers of events of one incarnation.
type counts struct{ takeovers, lostRaces, fenced, unknown atomic.Uint64 }

func (l *incarnation) tookOver(id, from string) {
	l.counts.takeovers.Add(1)
	if f := l.eng.config.Events.Takeover; f != nil {
		f(TakeoverEvent{id, from, l.name})
	}
}

func (l *incarnation) lostRace(id string) {
	l.counts.lostRaces.Add(1)
	if f := l.eng.config.Events.LostRace; f != nil {
		f(LostRaceEvent{id})
	}
}

func (l *incarnation) fenced(id string) {
	l.counts.fenced.Add(1)
	if f := l.eng.config.Events.Fenced; f != nil {
		f(FencedEvent{id})
	}
}

// unsure returns a function that reports commits of unknown outcome. The id is empty if
// they belong to no run.
func (l *incarnation) unsure(what, id string) func(error) {
	return func(err error) {
		l.eng.log.Warn("weft: outcome of a commit is unknown, trying again", "what", what, "workflow", id, "error", err)
		l.counts.unknown.Add(1)
		if f := l.eng.config.Events.Unknown; f != nil {
			f(UnknownEvent{id})
		}
	}
}
