package worker

import (
	"sync/atomic"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
)

// counts are the numbers of events of one incarnation.
type counts struct{ takeovers, lostRaces, fenced, unknown atomic.Uint64 }

// claimed reports that p, whose record was was, has been claimed, and now has the record now.
func (l *Incarnation) claimed(p prospect, was, now *journal.Workflow) {
	if p.owner != "" && p.owner != l.name {
		l.tookOver(p.id, p.owner)
	}
	l.Worker.Changed(was, now)
	if f := l.Worker.Events.Admitted; f != nil && p.ticket != nil {
		e := weft.AdmittedEvent{WorkflowID: p.id, Workflow: now.Type, Queue: now.Queue}
		if since, err := keys.LineSince(p.entry); err == nil {
			e.Waited = max(l.Worker.Now().Sub(since), 0)
		}
		f(e)
	}
}

func (l *Incarnation) tookOver(id, from string) {
	l.Counts.takeovers.Add(1)
	if f := l.Worker.Events.Takeover; f != nil {
		f(weft.TakeoverEvent{WorkflowID: id, From: from, To: l.name})
	}
}

func (l *Incarnation) lostRace(id string) {
	l.Counts.lostRaces.Add(1)
	if f := l.Worker.Events.LostRace; f != nil {
		f(weft.LostRaceEvent{WorkflowID: id})
	}
}

// Fenced reports that a commit for a run was refused, because the run is not this owner's.
func (l *Incarnation) Fenced(id string) {
	l.Counts.fenced.Add(1)
	if f := l.Worker.Events.Fenced; f != nil {
		f(weft.FencedEvent{WorkflowID: id})
	}
}

// Unsure returns a function that reports commits of unknown outcome. The id is empty if they belong to no run.
func (l *Incarnation) Unsure(what, id string) func(error) {
	return func(err error) {
		l.Worker.Log.Warn("weft: outcome of a commit is unknown; trying again", "workflow", id, "write", what, "error", err)
		l.Counts.unknown.Add(1)
		if f := l.Worker.Events.Unknown; f != nil {
			f(weft.UnknownEvent{WorkflowID: id})
		}
	}
}
