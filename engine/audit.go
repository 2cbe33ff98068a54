package engine

import (
	"context"
	"unicode/utf8"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// An Audit says who acts on a workflow, and why. Both are required.
type Audit struct{ By, Why string }

func (a Audit) check() error {
	if a.By == "" || a.Why == "" || len(a.By)+len(a.Why) > maxReason || !utf8.ValidString(a.By+a.Why) {
		return invalid("audit", a.By+": "+a.Why, "must say who and why")
	}
	return nil
}

// act is a change that an operator decides and that the history tells as verb.
func (e *Engine) act(verb checkpoint.Verb, name string, decide func(ctx context.Context, wf *checkpoint.Workflow) (*changing, error)) change {
	said := saying{verb: verb}
	return change{
		name: name,
		landed: func(ctx context.Context, wf *checkpoint.Workflow) (bool, error) {
			return said.recorded(ctx, e.store, wf)
		},
		decide: func(ctx context.Context, wf *checkpoint.Workflow) (*changing, error) {
			if said.next == 0 {
				if err := said.begin(ctx, e.store, wf); err != nil {
					return nil, err
				}
			}
			return decide(ctx, wf)
		},
	}
}

// A saying is a verb that an operator is about to have recorded. The same person may have
// said the same before, when something else was asked: only what is recorded from the
// first try on is this one.
type saying struct {
	verb   checkpoint.Verb
	next   uint64 // the number of the next checkpoint before the first try; 0: not tried
	before int    // how often the verb stood in the record then
}

// begin notes what is there before the first try. It reads no more than the number of the
// last checkpoint: that may be damaged, and be what a person has been asked about.
func (s *saying) begin(ctx context.Context, store storage.Storage, wf *checkpoint.Workflow) error {
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

// recorded says that a try of unknown outcome has landed: the verb stands in the record,
// or in a checkpoint that has taken it over from there.
func (s *saying) recorded(ctx context.Context, store storage.Storage, wf *checkpoint.Workflow) (bool, error) {
	n := s.count(wf.Verbs)
	since := *wf
	since.Base = max(wf.Base, s.next)
	for c, err := range checkpoint.History(ctx, store, &since) {
		if err != nil {
			return false, err
		}
		for _, e := range c.Events {
			if e.Kind == checkpoint.Acted && s.verb == (checkpoint.Verb{Name: e.Name, By: e.By, Why: e.Why}) {
				n++
			}
		}
	}
	return n > s.before, nil
}

func (s *saying) count(verbs []checkpoint.Verb) (n int) {
	for _, v := range verbs {
		if v == s.verb {
			n++
		}
	}
	return n
}
