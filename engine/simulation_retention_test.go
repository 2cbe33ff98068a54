package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// simKept is how long brief runs are kept after their end.
const simKept = 211*time.Millisecond + 4201*time.Nanosecond

// retains says whether runs are removed. Half of the seeds play that.
func (s *simulation) retains() bool { return s.seed/2%2 == 1 }

// brief is a workflow whose runs are removed: by retention and by operators.
func (s *simulation) brief(h *host) *engine.Workflow[[]chore, int] {
	say := s.saying(h)
	return &engine.Workflow[[]chore, int]{
		Name: "brief", Retention: engine.Retention{Completed: simKept, Failed: simKept, Cancelled: simKept},
		Func: func(run *engine.Run, cs []chore) (n int, err error) {
			for _, c := range cs {
				switch c.Do {
				case "step":
					_, err = engine.Step(run, "step", func(ctx context.Context) (int, error) { return s.plain(ctx, h, c.V) })
				case "value":
					err = far.Set(run, c.V)
				case "say":
					_, err = say.Do(run, c.V)
				case "hook":
					_, err = invoices.Open(run, &signal.HookOptions{Token: fmt.Sprint(run.ID(), "/", c.V)})
				}
				if err != nil {
					return 0, err
				}
			}
			return len(cs), nil
		},
	}
}

// dispose has clients start brief runs, and remove and protect them. A start that is repeated after a removal starts
// the run again.
func (s *simulation) dispose() {
	brief, kinds := s.brief(nil), []string{"step", "value", "hook"}
	if s.streams() {
		kinds = append(kinds, "say")
	}
	for i := range 1 + s.dice.IntN(3) {
		id := fmt.Sprint("brief", i)
		v := 50_000 + 1000*i
		cs := append(drawChores(s.dice, &v, 3, kinds), chore{Do: "step", V: v + 1})
		soon := func(most int) time.Duration { return time.Duration(s.dice.IntN(most)) * time.Millisecond }
		for again := range 1 + s.dice.IntN(2) {
			s.client(fmt.Sprint(id, " start ", again), soon(300)+time.Duration(again)*soon(2000), func(ctx context.Context, e *engine.Engine) error {
				_, err := brief.Start(ctx, e, id, cs)
				return err
			})
		}
		if s.dice.IntN(4) == 0 {
			s.client(id+" word", soon(800), func(ctx context.Context, e *engine.Engine) error {
				_, err := word.Send(ctx, e, id, "to nobody", &signal.Options{ID: "only"})
				return unless(err, engine.ErrNotFound)
			})
		}
		if s.dice.IntN(2) == 0 {
			s.protect(id, soon(800))
		}
		for n := range s.dice.IntN(3) {
			deletes := s.dice.IntN(2) == 0
			s.client(fmt.Sprint(id, " remove ", n), soon(1500), func(ctx context.Context, e *engine.Engine) error {
				if deletes {
					return unless(e.Delete(ctx, id, audit), engine.ErrNotFound)
				}
				return unless(e.Purge(ctx, id, audit), engine.ErrNotFound)
			})
		}
	}
}

// unless is err, or nil if it is one that contents the client.
func unless(err, contents error) error {
	if errors.Is(err, contents) {
		return nil
	}
	return err
}

// protect has a client protect a run, if there is one, look for it several times, and take that back.
func (s *simulation) protect(id string, after time.Duration) {
	looks, done := 0, false
	s.client(id+" protect", after, func(ctx context.Context, e *engine.Engine) error {
		switch {
		case !done:
			if err := e.Protect(ctx, id, audit); err != nil {
				return unless(err, engine.ErrNotFound)
			}
			s.meet("protected")
			done = true
			return errLater
		case looks < 8:
			looks++
			if _, err := e.Describe(ctx, id); errors.Is(err, engine.ErrNotFound) {
				s.laws.mu.Lock()
				defer s.laws.mu.Unlock()
				s.laws.wrong("RET-4: %s was protected, and is gone", id)
			}
			return errLater
		}
		return unless(e.Unprotect(ctx, id, audit), engine.ErrNotFound)
	})
}

// removed judges the removals of a commit, and returns which runs it has removed: nothing is removed before
// its time, while it is protected, or before it has ended, and nothing of it is left.
func (l *laws) removed(o *opening, asked bool, b storage.Batch) map[string]bool {
	gone := map[string]bool{}
	for _, op := range b.Ops {
		parts, err := storage.SplitKey(op.Key)
		if err != nil || len(parts) != 2 || parts[0] != "wf" || op.Kind != storage.PutOp {
			continue
		}
		id := parts[1]
		wf, err := journal.OpenWorkflow(id, op.Value)
		if err != nil || !wf.Tombstone() {
			continue
		}
		run := l.of(id)
		if run.record != nil && l.disposed(o, run.record, !asked) {
			asked = true
		}
		switch early := run.endedAt().Add(simKept).Sub(time.Now().Add(o.furthestAhead())); {
		case run.record == nil || run.gone:
			l.wrong("%s is removed, which there is not", id)
			continue
		case run.ended == "":
			l.wrong("RET-1: %s is removed and has not ended", id)
		case run.record.Protected != nil:
			l.wrong("RET-4: %s is removed and is protected", id)
		case !asked && early > time.Microsecond:
			l.wrong("RET-1: %s is removed %v before its time", id, early)
		case !asked && len(run.accepted) > 0:
			l.wrong("RET-7: %s is removed, and has accepted signals that are to be remembered", id)
		}
		l.nothingLeft(id)
		if asked {
			l.met("removed by an operator")
		} else {
			l.met("removed by retention")
		}
		next := newLawful()
		next.gone, next.above, next.fenced = true, max(run.above, run.head.Number), run.fenced
		for _, owner := range l.owners {
			next.fenced[owner] = true
		}
		l.runs[id], gone[id] = next, true
		delete(l.spoken, id)
	}
	return gone
}

// nothingLeft judges that nothing of a run is in the store but its tombstone, and what says when that expires.
// Its owner, or who polls, reads and deletes what was to wake it.
func (l *laws) nothingLeft(id string) {
	for e, err := range storage.All(context.Background(), l.store, storage.Range{}) {
		if err != nil {
			l.wrong("%v", err)
			return
		}
		parts, err := storage.SplitKey(e.Key)
		if wf := l.logOf(e.Key); wf != nil {
			parts[1] = wf.ID
		}
		if err != nil || !slices.Contains(parts[1:], id) || parts[0] == "exp" || parts[0] == "wake" || string(e.Key) == string(keys.Workflow(id)) {
			continue
		}
		if parts[0] == "todo" && string(e.Key) != string(l.of(id).record.Todo) {
			continue // a hint
		}
		l.wrong("RET-5: %s is removed, and %q is left", id, e.Key)
	}
}

// furthestAhead is how far o's wall clock was ahead at most.
func (o *opening) furthestAhead() time.Duration { return time.Duration(o.ahead.Load()) }

// endedAt is when a run ended by the clock of who ended it. Checkpoints do not follow a clock that goes back.
func (run *lawful) endedAt() time.Time {
	if run.record == nil {
		return time.Time{}
	}
	return journal.Time(run.record.EndedAt)
}
