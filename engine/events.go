package engine

import "sync/atomic"

// counts are the numbers of events of one incarnation.
type counts struct{ takeovers, lostRaces, fenced, unknown atomic.Uint64 }

func (l *incarnation) tookOver(id, from string) {
	l.counts.takeovers.Add(1)
	if f := l.eng.events.Takeover; f != nil {
		f(TakeoverEvent{WorkflowID: id, From: from, To: l.name})
	}
}

func (l *incarnation) lostRace(id string) {
	l.counts.lostRaces.Add(1)
	if f := l.eng.events.LostRace; f != nil {
		f(LostRaceEvent{WorkflowID: id})
	}
}

func (l *incarnation) Fenced(id string) {
	l.counts.fenced.Add(1)
	if f := l.eng.events.Fenced; f != nil {
		f(FencedEvent{WorkflowID: id})
	}
}

// unsure returns a function that reports commits of unknown outcome. The id is empty if
// they belong to no run.
func (l *incarnation) Unsure(what, id string) func(error) {
	return func(err error) {
		l.eng.log.Warn("weft: outcome of a commit is unknown, trying again", "what", what, "workflow", id, "error", err)
		l.counts.unknown.Add(1)
		if f := l.eng.events.Unknown; f != nil {
			f(UnknownEvent{WorkflowID: id})
		}
	}
}
