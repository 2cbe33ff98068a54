package admin

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/worker"
	"github.com/weft-go/weft/storage"
)

// checkActor refuses an actor that an operator's request cannot record.
func checkActor(a weft.Actor) error {
	if a.Name == "" || a.Reason == "" {
		return invalidActor(a)
	}
	return checkActorText(a)
}

// checkActorText refuses an actor that cannot be recorded. Its fields may be empty.
func checkActorText(a weft.Actor) error {
	if len(a.Name)+len(a.Reason) > payload.MaxReason || !utf8.ValidString(a.Name) || !utf8.ValidString(a.Reason) {
		return invalidActor(a)
	}
	return nil
}

func invalidActor(a weft.Actor) error {
	return payload.Invalid("actor", a.Name+": "+a.Reason, "needs Name and Reason, together at most 4,096 bytes of UTF-8")
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
			if err := wf.Understood(); err != nil {
				return nil, fmt.Errorf("engine: %s %q: %w", name, wf.ID, err)
			}
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
	r := keys.Checkpoints(wf.ID, wf.Base)
	r.Reverse, r.Limit = true, 1
	page, err := store.Scan(ctx, r)
	if err != nil {
		return err
	}
	next := max(wf.Base, 1)
	for _, last := range page {
		n, err := keys.Number(last.Key)
		if err != nil {
			return err
		}
		next = n + 1
	}
	s.next, s.before = next, s.count(wf.Verbs)
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
