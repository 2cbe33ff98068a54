package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/bulk"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// Pages of bulks have few workflows, so that most bulks have several. After an error of the store a bulk waits for
// less than a minute: most errors would otherwise end all that it does in a storm.
const simPause = 151*time.Millisecond + 3301*time.Nanosecond

func (s *simulation) mostPage() int { return 2 + s.hash(3, "page") }

// bulks says whether bulks are played, which takes three times as long. An eighth of the seeds do that.
func (s *simulation) bulks() bool { return s.seed/16%8 == 1 }

var called = &signal.Signal[string]{Name: "call"}

// many is the workflow whose runs the bulks act on.
func (s *simulation) many(h *host) *engine.Workflow[shift, []string] {
	return &engine.Workflow[shift, []string]{Name: "many", Func: func(run *engine.Run, begun shift) ([]string, error) {
		all := begun.All
		for i, c := range begun.Chores {
			var v any
			var err error
			switch c.Do {
			case "step":
				v, err = engine.Step(run, "step", func(ctx context.Context) (int, error) { return s.plain(ctx, h, c.V) })
			case "call":
				v, err = called.Receive(run)
			case "break":
				if !s.mended.Load() {
					return nil, errBroke
				}
				continue
			case "again":
				return nil, engine.ContinueAsNew(run, shift{Chores: begun.Chores[i+1:], All: all})
			}
			if err != nil {
				return nil, err
			}
			all = append(all, fmt.Sprint(v))
		}
		return all, nil
	}}
}

// calls are the signals that chores receive.
func calls(cs []chore) (all []string) {
	for _, c := range cs {
		if c.Do == "call" {
			all = append(all, fmt.Sprint("call ", len(all)))
		}
	}
	return all
}

// promisedOfMany is the result of a run that does these chores, in any order.
func promisedOfMany(cs []chore) []string {
	all := calls(cs)
	for _, c := range cs {
		if c.Do == "step" {
			all = append(all, fmt.Sprint(c.V))
		}
	}
	return slices.Sorted(slices.Values(all))
}

// actOnMany has clients start the runs, and bulks that act on them, while operators act on them too.
func (s *simulation) actOnMany() {
	soon := func(least, most int) time.Duration {
		return time.Duration(least+s.dice.IntN(most-least)) * time.Millisecond
	}
	for i := range 2 + s.dice.IntN(5) {
		id := fmt.Sprint("many", i)
		v := 80_000 + 1000*i
		cs := drawChores(s.dice, &v, 5, []string{"step", "step", "call", "call", "break", "again"})
		s.flock[id] = cs
		wf := s.many(nil).With(engine.StartOptions{Labels: map[string]string{"of": "many"}})
		for again := range 1 + s.dice.IntN(2) {
			s.coming[id]++
			s.client(fmt.Sprint(id, " start ", again), soon(0, 300)+time.Duration(again)*soon(0, 1200), func(ctx context.Context, e *engine.Engine) error {
				if _, err := wf.Start(ctx, e, id, shift{Chores: cs}); err != nil {
					return err
				}
				s.came(id)
				return nil
			})
		}
		for n := range s.dice.IntN(3) {
			s.coming[id]++
			s.takeBack(id, fmt.Sprint(id, " take back ", n), soon(300, 1800))
		}
		s.keep(id, soon(300, 1500))
	}
	for i := range 1 + s.dice.IntN(3) {
		s.startBulk(fmt.Sprint("bulk", i), soon(100, 1300))
	}
	s.client("mend", soon(400, 1500), func(context.Context, *engine.Engine) error {
		s.mended.Store(true)
		return nil
	})
}

// takeBack has an operator reset a run that was stopped.
func (s *simulation) takeBack(id, name string, after time.Duration) {
	tries := 0
	s.client(name, after, func(ctx context.Context, e *engine.Engine) error {
		if tries++; s.ends(id) != string(checkpoint.StatusCancelled) && tries < 20 {
			return errLater
		}
		if s.ends(id) == string(checkpoint.StatusCancelled) {
			switch err := e.Reset(ctx, id, "", audit); {
			case errors.Is(err, engine.ErrNotApplicable), errors.Is(err, engine.ErrNotFound):
			case err != nil:
				return err
			default:
				s.meet("taken back")
			}
		}
		s.came(id)
		return nil
	})
}

// came notes that a client has done what it was to do to a run.
func (s *simulation) came(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.coming[id]--
}

// ends is how a run has ended, as its history has it; "": it has not, or is not there.
func (s *simulation) ends(id string) string {
	s.laws.mu.Lock()
	defer s.laws.mu.Unlock()
	if run := s.laws.runs[id]; run != nil && !run.gone {
		return run.ended
	}
	return ""
}

// keep has an operator send a run what it waits for, and resume it after failures, until nobody acts on it any
// more.
func (s *simulation) keep(id string, after time.Duration) {
	cs := s.flock[id]
	s.client(id+" keep", after, func(ctx context.Context, e *engine.Engine) error {
		s.mu.Lock()
		quiet := s.going == 0 && s.coming[id] == 0
		s.mu.Unlock()
		s.laws.mu.Lock()
		run := s.laws.runs[id]
		there := run != nil && run.record != nil
		var ended string
		var sent []string
		if there {
			ended, sent = run.ended, slices.Clone(run.accepted[called.Name])
		}
		s.laws.mu.Unlock()
		switch {
		case !there:
		case ended == string(checkpoint.StatusFailed) && s.mended.Load():
			if err := e.Resume(ctx, id, audit); err != nil && !errors.Is(err, engine.ErrTerminal) {
				return err
			}
		case ended == "":
			for n, text := range calls(cs) {
				if signalID := fmt.Sprint(n); !slices.Contains(sent, signalID) {
					if _, err := called.Send(ctx, e, id, text, &signal.Options{ID: signalID}); err != nil {
						return fmt.Errorf("%v", err) // it may be another run soon
					}
				}
			}
		}
		if quiet && (run != nil && !there || ended != "" && ended != string(checkpoint.StatusFailed)) {
			return nil
		}
		return errLater
	})
}

// startBulk has a client start a bulk, and perhaps another one stop it.
func (s *simulation) startBulk(id string, after time.Duration) {
	b := engine.Bulk{
		Do: oneOfThese(s.dice, engine.BulkCancel, engine.BulkCancel, engine.BulkTerminate, engine.BulkTerminate, engine.BulkSignal, engine.BulkResume, engine.BulkResume,
			engine.BulkReset, engine.BulkReset, engine.BulkDelete, engine.BulkPurge, engine.BulkProtect),
		Filter: oneOfThese(s.dice, engine.Filter{IDPrefix: "many"}, engine.Filter{Workflow: "many"}, engine.Filter{Labels: map[string]string{"of": "many"}}),
	}
	if s.dice.IntN(3) > 0 {
		b.Rate = activity.Rate{Count: 1, Per: time.Duration(10+s.dice.IntN(140))*time.Millisecond + time.Duration(1+s.dice.IntN(900))*time.Microsecond}
	}
	if s.dice.IntN(3) == 0 {
		b.Filter.Workflow = "many"
		b.Filter.Status = oneOfThese(s.dice, checkpoint.StatusRunning, checkpoint.StatusFailed, checkpoint.StatusCancelled)
	}
	if b.Do == engine.BulkSignal {
		b.Signal = signal.Message{Name: "all-of-" + id, Payload: "hello"}
	}
	s.going++
	begun := false
	s.client(id, after, func(ctx context.Context, e *engine.Engine) error {
		if !begun {
			if err := e.StartBulk(ctx, id, b, audit); err != nil {
				return err
			}
			begun = true
		}
		s.laws.mu.Lock()
		defer s.laws.mu.Unlock()
		if !s.laws.bulks[id].ended() {
			return errLater
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.going--
		return nil
	})
	if s.dice.IntN(3) == 0 {
		s.client(id+" stop", after+time.Duration(s.dice.IntN(600))*time.Millisecond, func(ctx context.Context, e *engine.Engine) error {
			return e.StopBulk(ctx, id, audit)
		})
	}
}

// A lawfulBulk is what is known of a bulk.
type lawfulBulk struct {
	record *bulk.Record
	page   map[member]bool     // what is to be done; true: it was, or there is nothing to do
	met    map[member]int64    // all that it has dealt with, and the page: since when it was in its state
	again  int64               // has met so many a second time
	ahead  bool                // the clock of who has begun it was ahead
	acted  map[member]bool     // on which it has acted
	after  map[*opening]member // on which an engine has acted after the stop
	fits   map[string]bool     // generations that have fitted all the time since the beginning
}

// A member is a workflow of a bulk's.
type member struct{ id, generation string }

func (b *lawfulBulk) ended() bool { return b != nil && b.record.EndedAt != 0 }

// stops reports whether the bulk ends workflows or sends them something: those that have ended are passed over.
func (b *lawfulBulk) stops() bool {
	return slices.Contains([]engine.Verb{engine.BulkCancel, engine.BulkTerminate, engine.BulkSignal}, b.record.Do)
}

// hasMet reports whether the bulk has dealt with a workflow, or is about to.
func (b *lawfulBulk) hasMet(m member) bool {
	_, ok := b.met[m]
	return ok
}

// removes reports whether the bulk removes workflows.
func (b *lawfulBulk) removes() bool {
	return b.record.Do == engine.BulkPurge || b.record.Do == engine.BulkDelete
}

// bulked judges what a commit does to bulks (OPS-10).
func (l *laws) bulked(b storage.Batch) {
	for _, op := range b.Ops {
		parts, err := storage.SplitKey(op.Key)
		if err != nil || parts[0] != "bulk" {
			continue
		}
		if op.Kind != storage.PutOp {
			l.wrong("OPS-10: bulk %s is forgotten", parts[1])
			continue
		}
		r, err := bulk.Open(storage.Entry{Key: op.Key, Value: op.Value})
		if err != nil {
			l.wrong("%v", err)
			continue
		}
		var refused []bulk.Refusal
		for _, op := range b.Ops {
			if strings.HasPrefix(string(op.Key), string(keys.BulkRefusalsOf(r.ID).Start)) {
				list, err := bulk.OpenRefusals(storage.Entry{Key: op.Key, Value: op.Value})
				if err != nil {
					l.wrong("%v", err)
				}
				refused = append(refused, list...)
			}
		}
		l.bulk(r, refused)
	}
}

// bulk judges that a bulk goes from one state to the next.
func (l *laws) bulk(r *bulk.Record, refused []bulk.Refusal) {
	was := l.bulks[r.ID]
	if was == nil {
		was = &lawfulBulk{
			record: &bulk.Record{}, page: map[member]bool{}, met: map[member]int64{}, acted: map[member]bool{}, after: map[*opening]member{}, fits: map[string]bool{},
		}
		l.bulks[r.ID] = was
		was.record, was.ahead = r, journal.Time(r.At).After(time.Now())
		l.begin(was)
	}
	before := was.record
	was.record = r
	done, dealt := r.Done-before.Done, map[string]bool{}
	if int64(len(refused)) != r.Refused-before.Refused {
		l.wrong("OPS-10: bulk %s counts %d as refused, and lists %d", r.ID, r.Refused-before.Refused, len(refused))
	}
	for _, x := range refused {
		dealt[x.ID] = true
		for m := range was.page {
			if m.id == x.ID && was.acted[m] && !l.forgotten(m) {
				l.wrong("OPS-10: bulk %s lists %s as refused (%s), and has acted on it", r.ID, x.ID, x.Why)
			}
		}
	}
	switch {
	case r.Stopped != nil && before.Stopped == nil:
		l.met("bulks stopped")
		if done != 0 || len(refused) > 0 {
			l.wrong("OPS-10: the stop of bulk %s counts what was done", r.ID)
		}
		return
	case before.EndedAt != 0: // what was done before the stop is counted
		if r.EndedAt != before.EndedAt || len(r.Page) > 0 || r.Stopped == nil {
			l.wrong("OPS-10: bulk %s has ended, and goes on: %+v", r.ID, r)
		}
		sure := int64(0)
		for m, done := range was.page {
			if done && !dealt[m.id] {
				sure++
			}
		}
		if done > sure {
			l.wrong("OPS-10: bulk %s counts %d of its last page as done, which are %d", r.ID, done, sure)
		}
		l.met("counted after a stop")
		return
	case r.Engine != before.Engine:
		if before.Engine != "" && len(before.Page) > 0 {
			l.met("bulks taken over")
		}
		if done != 0 || len(refused) > 0 {
			l.wrong("OPS-10: the takeover of bulk %s counts something as done", r.ID)
		}
		return
	}
	if int(done)+len(refused) != len(was.page) {
		l.wrong("OPS-10: bulk %s counts %d as done and %d as refused, of %d", r.ID, done, len(refused), len(was.page))
	}
	for m, is := range was.page {
		if !dealt[m.id] && !is {
			l.wrong("OPS-10: bulk %s counts %s as done, on which it has not acted", r.ID, m.id)
		}
	}
	clear(was.page)
	for _, m := range r.Page {
		next := member{m.ID, m.Generation}
		if at, err := ulid.ParseStrict(m.Generation); err != nil || ulid.Time(at.Time()).After(journal.Time(r.At)) {
			l.wrong("OPS-10: bulk %s of %v meets %s of %v", r.ID, journal.Time(r.At), m.ID, ulid.Time(at.Time()))
		}
		run := l.of(m.ID)
		there := run.record != nil && run.record.Generation == m.Generation
		since, again := was.met[next]
		if again {
			if !was.ahead || !there || run.record.Since() <= since {
				l.wrong("OPS-10: bulk %s meets %s again", r.ID, m.ID)
			}
			was.again++
			l.met("taken up beside a bulk, and met again")
		}
		was.met[next] = 0
		if there {
			was.met[next] = run.record.Since()
		}
		was.page[next] = again || was.acted[next] || there && was.needless(run.record) || !there && was.removes()
	}
	if len(r.Page) > 0 {
		l.met("pages of bulks")
	}
	if r.EndedAt == 0 {
		return
	}
	l.met("bulks ended")
	if r.Done+r.Refused != int64(len(was.met))+was.again {
		l.wrong("OPS-10: bulk %s has dealt with %d, and counts %d done and %d refused", r.ID, int64(len(was.met))+was.again, r.Done, r.Refused)
	}
	for id, run := range l.runs {
		if run.record != nil && was.fits[run.record.Generation] && !was.hasMet(member{id, run.record.Generation}) {
			l.wrong("OPS-10: bulk %s (%s) has left out %s", r.ID, r.Do, id)
		}
	}
}

// forgotten reports whether nothing tells any more what was done to a workflow: it is gone, or in another life.
func (l *laws) forgotten(m member) bool {
	run := l.of(m.id)
	return run.record == nil || run.record.Generation != m.generation || run.record.Life > 0
}

// begin notes what a bulk fits when it begins. With a status that depends on clocks, which may differ.
func (l *laws) begin(b *lawfulBulk) {
	for id, run := range l.runs {
		if run.record == nil || b.record.Filter.Status != "" || !strings.HasPrefix(id, "many") {
			continue
		}
		made, err := ulid.ParseStrict(run.record.Generation)
		if err != nil || ulid.Time(made.Time()).After(journal.Time(b.record.At)) {
			continue
		}
		ended, since := run.record.Status.Terminal(), run.record.Since() <= b.record.At
		switch {
		case b.stops() && ended, b.record.Do == engine.BulkPurge && !(ended && since):
		case b.record.Do == engine.BulkResume && !(run.record.Status == checkpoint.StatusFailed && since):
		default:
			b.fits[run.record.Generation] = true
		}
	}
}

// needless reports whether nothing is to be done to a workflow, because somebody else has.
func (b *lawfulBulk) needless(wf *journal.Workflow) bool {
	switch b.record.Do {
	case engine.BulkCancel:
		return wf.Cancel != nil
	case engine.BulkProtect:
		return wf.Protected != nil
	}
	return false
}

// actedOn judges what o does to a workflow for bulks (OPS-10): only what is on the page that was read last, once,
// and after the end of a bulk only what an engine was doing then.
func (l *laws) actedOn(o *opening, before, after *journal.Workflow, appended []checkpoint.Checkpoint) {
	for _, id := range slices.Sorted(maps.Keys(l.bulks)) {
		b := l.bulks[id]
		m := member{after.ID, after.Generation}
		if after.Status != before.Status && (b.stops() && after.Status.Terminal() || b.record.Do == engine.BulkPurge || b.record.Do == engine.BulkResume) {
			delete(b.fits, after.Generation)
		}
		if _, on := b.page[m]; on && b.needless(after) {
			b.page[m] = true
		}
		if b.acts(before, after, appended) {
			l.acts(o, b, m)
		}
	}
}

// acts reports whether a change of a workflow is by the bulk. A workflow that is to be deleted is terminated first, again
// if an operator has reset it before it is gone.
func (b *lawfulBulk) acts(before, after *journal.Workflow, appended []checkpoint.Checkpoint) bool {
	if b.removes() {
		return false
	}
	ours := func(why string) bool { return strings.Contains(why, fmt.Sprintf("(bulk %q of ", b.record.ID)) }
	verbs := 0
	for _, v := range after.Verbs {
		if ours(v.Why) {
			verbs++
		}
	}
	for _, v := range before.Verbs {
		if ours(v.Why) {
			verbs--
		}
	}
	for _, c := range appended {
		for _, e := range c.Events {
			if e.Kind == checkpoint.KindActed && ours(e.Why) {
				verbs++
			}
		}
	}
	return verbs > 0 || after.Cancel != nil && ours(after.Cancel.Reason) && (before.Cancel == nil || *before.Cancel != *after.Cancel) ||
		after.Protected != nil && before.Protected == nil && ours(after.Protected.Reason)
}

// acts judges that a bulk acts on a workflow now.
func (l *laws) acts(o *opening, b *lawfulBulk, m member) {
	id, do := b.record.ID, b.record.Do
	_, on := b.page[m]
	last, again := b.after[o]
	switch {
	case b.acted[m]:
		l.wrong("OPS-10: bulk %s (%s) acts on %s twice", id, do, m.id)
	case !on:
		l.wrong("OPS-10: bulk %s (%s) acts on %s of %s, which is not on its page", id, do, m.id, m.generation)
	case b.ended() && again && last != m:
		l.wrong("OPS-10: bulk %s (%s) acts on %s after its end, and on %s before that", id, do, m.id, last.id)
	case b.ended():
		b.after[o] = m
		l.met("acted after the stop")
	}
	l.met("acts of bulks: " + string(do))
	b.acted[m], b.page[m] = true, true
}

// signalled judges that a bulk sends its signal.
func (l *laws) signalled(o *opening, name, id string, record *journal.Workflow) {
	for _, b := range l.bulks {
		if b.record.Signal != nil && b.record.Signal.Name == name && record != nil {
			l.acts(o, b, member{id, record.Generation})
		}
	}
}

// disposed notes that a workflow is gone. It reports whether a bulk may have removed it.
func (l *laws) disposed(o *opening, record *journal.Workflow, bulks bool) (may bool) {
	for _, id := range slices.Sorted(maps.Keys(l.bulks)) {
		b, m := l.bulks[id], member{record.ID, record.Generation}
		delete(b.fits, record.Generation)
		if _, on := b.page[m]; !on || !b.removes() {
			continue
		}
		if may = true; bulks && !b.ended() {
			l.met("removed by a bulk")
		}
		b.page[m] = true
	}
	return may
}

// retried reports whether an operator takes back the failure of a run.
func retried(t *touched) bool {
	return t.ended == string(checkpoint.StatusFailed) && len(t.appended) > 0 && slices.ContainsFunc(t.appended[0].Events, func(e checkpoint.Event) bool {
		return e.Kind == checkpoint.KindActed && e.Name == run.Retried
	})
}

// unlike says what is wrong with the runs that bulks have acted on, and with the bulks.
func (s *simulation) unlike(reader *engine.Engine) (problems []string) {
	for id, cs := range s.flock {
		run := s.laws.runs[id]
		if run == nil || run.gone {
			continue
		}
		stopped := false
		for _, b := range s.laws.bulks {
			m := member{id, run.record.Generation}
			switch b.record.Do {
			case engine.BulkCancel, engine.BulkTerminate:
				stopped = stopped || b.acted[m]
			case engine.BulkDelete: // what it deletes it terminates first; then it may be stopped, or somebody protects it
				i, err := reader.Bulk(context.Background(), b.record.ID)
				refused := err == nil && slices.ContainsFunc(i.Refusals, func(r engine.Refusal) bool { return r.ID == id })
				stopped = stopped || b.hasMet(m) && (b.record.Stopped != nil || refused)
			}
		}
		got, err := s.many(nil).Handle(reader, id).Result(context.Background())
		switch {
		case errors.Is(err, engine.ErrCancelled) && stopped:
			s.meet("stopped by a bulk")
		case err != nil:
			problems = append(problems, fmt.Sprintf("%s: %v", id, err))
		case !slices.Equal(slices.Sorted(slices.Values(got)), promisedOfMany(cs)):
			problems = append(problems, fmt.Sprintf("%s: %q, want %q", id, got, promisedOfMany(cs)))
		}
	}
	for id, b := range s.laws.bulks {
		i, err := reader.Bulk(context.Background(), id)
		if err != nil || i.Done != b.record.Done || i.Refused != b.record.Refused || int64(len(i.Refusals)) != i.Refused || i.EndedAt.IsZero() || i.By != audit {
			problems = append(problems, fmt.Sprintf("bulk %s: %+v, %v", id, i, err))
		}
	}
	return problems
}
