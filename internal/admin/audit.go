package admin

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/worker"
	"github.com/weft-go/weft/storage"
)

// CheckActor refuses an actor that an operator's request cannot record.
func CheckActor(a weft.Actor) error {
	switch {
	case blank(a.Name) && blank(a.Reason):
		return lacking(a, "Name and Reason: who acts, and why")
	case blank(a.Name):
		return lacking(a, "Name: who acts")
	case blank(a.Reason):
		return lacking(a, "Reason: why")
	}
	return checkActorText(a)
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

// checkActorText refuses an actor that cannot be recorded. Its fields may be empty.
func checkActorText(a weft.Actor) error {
	switch n := len(a.Name) + len(a.Reason); {
	case n > payload.MaxReason:
		return payload.Invalid("actor", a.Name, fmt.Sprintf("has a Name and a Reason of %d bytes together, at most %d", n, payload.MaxReason))
	case !utf8.ValidString(a.Name) || !utf8.ValidString(a.Reason):
		return payload.Invalid("actor", a.Name, "has a Name or a Reason that is not UTF-8")
	}
	return nil
}

func lacking(a weft.Actor, what string) error {
	return fmt.Errorf("%w: weft.Actor{Name: %.40q, Reason: %.40q} lacks %s", weft.ErrInvalid, a.Name, a.Reason, what)
}

// act returns a change by an operator that the history records as verb.
func (e *Admin) act(verb journal.Verb, name string, decide func(ctx context.Context, wf *journal.Workflow) (*worker.Changing, error)) worker.Change {
	said := auditRecord{verb: verb}
	return worker.Change{
		Name: name,
		Landed: func(ctx context.Context, wf *journal.Workflow) (bool, error) {
			return said.recorded(ctx, e.Store, wf)
		},
		Decide: func(ctx context.Context, wf *journal.Workflow) (*worker.Changing, error) {
			if err := said.note(ctx, e.Store, wf); err != nil {
				return nil, err
			}
			return decide(ctx, wf)
		},
	}
}

// An auditRecord is a verb that is about to be recorded for an operator. The same operator may
// have done the same with the same reason earlier. Only a record that was written since the
// first try counts as this one.
type auditRecord struct {
	verb   journal.Verb
	next   uint64 // the number of the next checkpoint before the first try; 0: not tried yet
	before int    // how often the verb was in the workflow record then
}

// note notes the state before the first try, and does nothing before later ones. Of the
// last checkpoint it reads only the number: the checkpoint may be damaged, and be the reason
// why an operator acts.
func (s *auditRecord) note(ctx context.Context, store storage.Storage, wf *journal.Workflow) error {
	if s.next != 0 {
		return nil
	}
	hold, err := journal.FindUnread(ctx, store, wf)
	if err != nil {
		return err
	}
	s.next, s.before = max(wf.Base, hold.Head+1), s.count(wf.Verbs)
	return nil
}

// recorded reports whether a try of unknown outcome was written: the verb is in the
// workflow record, or in a checkpoint to which it was moved from there.
func (s *auditRecord) recorded(ctx context.Context, store storage.Storage, wf *journal.Workflow) (bool, error) {
	n := s.count(wf.Verbs)
	since := *wf
	since.Base = max(wf.Base, s.next)
	for c, err := range journal.History(ctx, store, &since) {
		if err != nil {
			return false, err
		}
		for _, e := range c.Events {
			if e.Kind == checkpoint.KindActed && s.verb == (journal.Verb{Name: e.Name, By: e.By, Why: e.Why}) {
				n++
			}
		}
	}
	return n > s.before, nil
}

func (s *auditRecord) count(verbs []journal.Verb) (n int) {
	for _, v := range verbs {
		if v == s.verb {
			n++
		}
	}
	return n
}

// A lifeline ties an action of an operator to the life of the run on which it was first decided. What
// somebody wants done to one life is not done to another: its operations, and the reason to act, are
// gone. The run may continue as new between two tries, or after a try of unknown outcome.
type lifeline struct{ first *journal.Workflow }

// holds returns ErrNotApplicable if wf is in another life.
func (l *lifeline) holds(wf *journal.Workflow, verb string) error {
	if l.first == nil {
		l.first = wf
	}
	if l.first.Life != wf.Life {
		return fmt.Errorf("%w: %s %q: it has continued as new meanwhile; look at it again", weft.ErrNotApplicable, verb, wf.ID)
	}
	return nil
}
