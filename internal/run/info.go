package run

import (
	"fmt"
	"maps"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
)

// InfoOf returns what a workflow record says.
func InfoOf(wf *journal.Workflow) weft.Info {
	i := weft.Info{
		ID:         wf.ID,
		Workflow:   wf.Type,
		Status:     wf.Status,
		Queue:      wf.Queue,
		Owner:      wf.Owner,
		Deployment: wf.Deployment,
		Epoch:      wf.Claim,
		CreatedAt:  journal.Time(wf.CreatedAt),
		StartedAt:  journal.Time(wf.StartedAt),
		EndedAt:    journal.Time(wf.EndedAt),
		Labels:     maps.Clone(wf.Labels),
		Life:       wf.Life,
		LifeAt:     journal.Time(wf.LifeAt),
	}
	for _, c := range wf.Versions {
		if i.Versions == nil {
			i.Versions = map[string]int{}
		}
		i.Versions[c.Change] = c.Version
	}
	for _, a := range wf.Attention {
		i.Attention = append(i.Attention, weft.Attention{Reason: weft.Reason(a.Reason), Operation: a.Operation, Name: a.Name, Detail: a.Detail, Since: journal.Time(a.Since)})
	}
	i.Waiting = wf.Facing
	if wf.Waits {
		i.Waiting = []string{fmt.Sprintf("admission to queue %q", wf.Queue)}
	}
	if wf.Delayed() {
		i.Waiting = []string{"its start at " + journal.Time(wf.StartAt).Format(time.RFC3339)}
	}
	if wf.Parent != nil {
		i.Parent = wf.Parent.ID
	}
	if p := wf.Protected; p != nil {
		i.Protected = &weft.Protection{By: p.By, Reason: p.Reason, At: journal.Time(p.At)}
	}
	if c := wf.Cancel; c != nil {
		i.Cancel = &weft.Cancellation{By: c.By, Reason: c.Reason, At: journal.Time(c.At), Terminated: c.Terminated}
	}
	return i
}
