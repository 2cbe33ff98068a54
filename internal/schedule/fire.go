package schedule

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/cron"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/worker"
	"github.com/weft-go/weft/storage"
)

const (
	atOnce  = 200   // schedules that are served at the same time; stores commit more together then
	mostDue = 2_000 // schedules that are served in one look
	hints   = 100   // hints that are removed in one commit
)

// Duty returns the duty to serve all schedules of the store.
func (s *Schedules) Duty() worker.Duty {
	return worker.Duty{Name: "schedules", Begin: func(l *worker.Incarnation) func(context.Context) (time.Duration, error) {
		return (&server{Schedules: s, incarnation: l}).look
	}}
}

// A server is the duty of one incarnation. Only the poll uses it.
//
// While no schedule is due within a minute, it asks the store only rarely: what another process has put
// is then found before it is too late for MissedNone. It asks at once if a schedule was written through
// this engine. If a schedule waits for the end of a workflow, its entry is due: so the server looks in each poll
// for the hint of that end. It looks at the schedule itself again only after a minute. It remembers that by itself,
// because an entry never has the time of a clock.
type server struct {
	*Schedules
	incarnation *worker.Incarnation

	idle  bool      // nothing is due within a minute, as of the last look
	next  time.Time // when the first schedule is due, if idle is set; zero: there is none
	last  time.Time // when the last look began
	place []byte    // where the next look continues; nil: at the beginning
}

// look serves the schedules that are due. It returns after how much time there is something to do.
func (v *server) look(ctx context.Context) (time.Duration, error) {
	now := v.Now()
	news := v.news.Swap(false)
	if !news && v.rests(now) {
		return v.wait(now), nil
	}
	v.forgetLater(func(string) bool { return news })
	v.idle, v.last = false, time.Now()
	first, ok, err := reads.First(ctx, v.Store, keys.DueAll(), keys.DueTime, v.incarnation.Unreadable)
	due := ok && !first.After(now)
	if due {
		if err = v.round(ctx, now); err == nil { // what is left is looked at in the next poll
			first, ok, err = reads.First(ctx, v.Store, keys.DueNext(now), keys.DueTime, v.incarnation.Unreadable)
		}
	}
	if err != nil {
		return v.PollInterval, err
	}
	v.idle, v.next = !due && (!ok || first.Sub(now) > retryAfter), first
	return v.wait(now), nil
}

// rests reports whether the store need not be asked at the time now, because the next poll is soon enough.
func (v *server) rests(now time.Time) bool {
	rarely := min(saturate.Times(run.Rarely, v.PollInterval), grace)
	return v.idle && (v.next.IsZero() || now.Before(v.next)) && time.Since(v.last) <= rarely-v.PollInterval
}

// wait returns how long it is from now until the first schedule is due, and at most PollInterval.
func (v *server) wait(now time.Time) time.Duration {
	if v.next.IsZero() {
		return v.PollInterval
	}
	return max(0, min(v.PollInterval, v.next.Sub(now)))
}

// round serves the schedules that are due at the time now, at most mostDue.
func (v *server) round(ctx context.Context, now time.Time) error {
	l := &round{schedules: v.Schedules, places: make(chan struct{}, atOnce)}
	served := map[string]bool{}
	due := keys.DueUntil(now)
	if v.place != nil {
		due.Start = v.place
	}
	v.place = nil
	for e, err := range storage.All(ctx, v.Store, due) {
		if err != nil {
			return errors.Join(err, l.end(ctx))
		}
		kind, id, err := keys.DueOf(e.Key)
		if err != nil {
			v.incarnation.Unreadable(e.Key, err)
			continue
		}
		if kind != "sch" {
			continue
		}
		if served[id] || v.isLater(e) { // by a hint: that was for everything that is due
			continue
		}
		if len(served) == mostDue {
			v.place = e.Key
			v.PokePoll() // continue after the other duties
			break
		}
		served[id] = true
		l.serve(ctx, id, e.Key)
	}
	return l.end(ctx)
}

// A round serves the schedules of one look, several at the same time.
type round struct {
	schedules *Schedules
	places    chan struct{} // has an element for each that is being served
	all       sync.WaitGroup

	mu   lock.Mutex // guards the fields below
	errs []error
	gone [][]byte // hints that are not needed any more
}

func (l *round) serve(ctx context.Context, id string, entry []byte) {
	l.places <- struct{}{}
	l.all.Go(func() {
		defer func() { <-l.places }()
		unneeded, err := l.schedules.serve(ctx, id, entry)
		l.mu.Lock()
		defer l.mu.Unlock()
		if err != nil {
			l.errs = append(l.errs, fmt.Errorf("schedule %q: %w", id, err))
		}
		if unneeded {
			l.gone = append(l.gone, entry)
		}
	})
}

// end waits for those that are being served, and removes the hints that are not needed any more.
func (l *round) end(ctx context.Context) error {
	l.all.Wait()
	for len(l.gone) > 0 {
		n := min(len(l.gone), hints)
		var b storage.Batch
		for _, entry := range l.gone[:n] {
			b.Ops = append(b.Ops, storage.Delete(entry))
		}
		l.gone = l.gone[n:]
		if err := l.schedules.Store.Commit(ctx, b); err != nil {
			return errors.Join(append(l.errs, err)...)
		}
	}
	return errors.Join(l.errs...)
}

// serve does what is to be done for a schedule of which entry is due. It reports whether entry is an
// unneeded hint. No record names one, so it may be removed without a condition.
func (s *Schedules) serve(ctx context.Context, id string, entry []byte) (unneeded bool, _ error) {
	hint := bytes.Equal(entry, keys.ScheduleHint(id))
	for range settle.MostTries {
		r, err := Load(ctx, s.Store, id)
		switch {
		case errors.Is(err, weft.ErrNotFound):
			if hint {
				return true, nil
			}
			return false, s.drop(ctx, &Record{ID: id}, entry)
		case damaged(err):
			if s.told.First("damaged "+id, run.MostTold) {
				s.Log.Error("weft: the record of a schedule is damaged; it starts nothing", "schedule", id, "error", err)
			}
			return false, nil
		case err != nil:
			return false, err
		}
		idle, again, err := s.attempt(ctx, r, entry)
		switch {
		case err != nil:
			return false, err
		case idle && hint:
			return true, nil
		case idle:
			return false, s.drop(ctx, r, entry)
		case !again:
			return false, nil
		}
	}
	r, err := Load(ctx, s.Store, id)
	if err != nil {
		return false, err
	}
	return false, s.troubled(ctx, r, entry, settle.Contradiction(keys.Schedule(id)))
}

// drop removes an entry that r does not name.
func (s *Schedules) drop(ctx context.Context, r *Record, entry []byte) error {
	b := storage.Batch{If: []storage.Condition{r.Unchanged()}, Ops: []storage.Op{storage.Delete(entry)}}
	if r.raw == nil { // a batch must change what it wants absent: deleted, it stays absent
		b.Ops = append(b.Ops, storage.Delete(keys.Schedule(r.ID)))
	}
	if err := s.Store.Commit(ctx, b); err != nil && !errors.Is(err, storage.ErrConflict) {
		return err
	}
	return nil // after a conflict the next look decides
}

// attempt does what is to be done for r now. It reports whether there was nothing to do and r does not
// name entry, or whether to decide again because something has changed meanwhile.
func (s *Schedules) attempt(ctx context.Context, r *Record, entry []byte) (idle, again bool, _ error) {
	c, err := r.calendar()
	if err != nil {
		if s.told.First(err.Error(), run.MostTold) {
			s.Log.Warn("weft: this engine leaves a schedule to others", "schedule", r.ID, "error", err)
		}
		return false, false, nil
	}
	now := s.Now()
	step := r.decide(c, now)
	if step.start != nil {
		again, err = s.start(ctx, &firing{r, c, step, entry, now})
		return false, again, err
	}
	next := *r
	next.dealt(c, step)
	next.look(c)
	if step.passed.IsZero() && bytes.Equal(next.Due, r.Due) {
		return !bytes.Equal(entry, r.Due), false, nil
	}
	again, err = s.commit(ctx, r, &next, entry, storage.Batch{})
	return false, again, err
}

// A firing is a try to start a workflow of a schedule.
type firing struct {
	record   *Record
	calendar *cron.Calendar
	step     step
	entry    []byte // by which the schedule was found; nil: by a call
	now      time.Time
}

// passed returns the record after the times that the firing has passed over.
func (f *firing) passed() *Record {
	next := *f.record
	next.dealt(f.calendar, f.step)
	return &next
}

// begun returns the record after the start of p.
func (f *firing) begun(p *run.PreparedStart) *Record {
	next := f.passed()
	next.started(f.calendar, f.step.start, p.Workflow.Generation, f.now)
	next.note("", f.now)
	next.look(f.calendar)
	return next
}

// start starts the workflow of f, unless the one before has not ended: then Overlap says what
// happens. It reports whether to decide again.
func (s *Schedules) start(ctx context.Context, f *firing) (again bool, _ error) {
	r, o := f.record, f.step.start
	running, unchanged, err := s.lastOf(ctx, r, o.id)
	if damaged(err) {
		return false, s.troubled(ctx, r, f.entry, err)
	}
	if err != nil {
		return false, err
	}
	switch {
	case running == nil:
	case !o.nominal.IsZero() && r.Last.Nominal >= journal.Micro(o.nominal):
		return s.passOver(ctx, f, 0, unchanged) // the schedule was set back, and the workflow that runs is of this time or of a later one
	default:
		return s.overlapping(ctx, f, running, unchanged)
	}
	p, err := s.prepared(r, o)
	if err != nil {
		return false, s.troubled(ctx, r, f.entry, err)
	}
	next, b, err := r.replace(f.begun(p), f.entry)
	if err != nil {
		return false, err
	}
	b.If, b.Ops = append(b.If, unchanged.If...), append(b.Ops, unchanged.Ops...)
	_, err = s.StartTogether(ctx, p, b)
	switch {
	case err == nil:
		s.forgetLater(func(entry string) bool { return entry == string(next.Due) }) // what waited there was begun
		if next.Due != nil && bytes.Compare(next.Due, keys.DueUntil(f.now).End) < 0 {
			s.PokePoll() // another time has passed
		}
		s.Log.Debug("weft: schedule has started a workflow", "schedule", r.ID, "workflow", o.id)
		return false, nil
	case errors.Is(err, storage.ErrConflict):
		return s.refused(ctx, f)
	case errors.Is(err, weft.ErrNoActiveDeployment), errors.Is(err, weft.ErrInvalid), errors.Is(err, storage.ErrInvalidBatch):
		return false, s.troubled(ctx, r, f.entry, err)
	}
	return false, err
}

// prepared returns the start of a workflow of r.
func (s *Schedules) prepared(r *Record, o *occasion) (*run.PreparedStart, error) {
	p, err := s.PrepareEncoded(r.request(o.id), r.input(), r.identity())
	if err != nil {
		return nil, err
	}
	p.Workflow.Schedule = r.ID
	p.Workflow.Labels = run.Relabelled(p.Workflow.Labels, map[string]string{Label: r.ID})
	return p, nil
}

// Label is the name of the label that each workflow of a schedule has. Its value is the id of the
// schedule.
const Label = "weft.schedule"

// lastOf returns the workflow that r has started last, if it has not ended, and the conditions that
// this is still so. They do not include the workflow with the id starting, which has conditions of
// its own.
func (s *Schedules) lastOf(ctx context.Context, r *Record, starting string) (running *journal.Workflow, unchanged storage.Batch, _ error) {
	if r.Last == nil || r.Overlap == weft.OverlapAllow {
		return nil, storage.Batch{}, nil
	}
	wf, err := journal.Load(ctx, s.Store, r.Last.ID)
	key := keys.Workflow(r.Last.ID)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		// A batch must change what it wants absent: deleted, it stays absent.
		unchanged = storage.Batch{If: []storage.Condition{storage.Absent(key)}, Ops: []storage.Op{storage.Delete(key)}}
	case err != nil:
		return nil, storage.Batch{}, fmt.Errorf("read workflow %q, which was started last: %w", r.Last.ID, err)
	default:
		unchanged.If = []storage.Condition{wf.Unchanged()}
		if !wf.Tombstone() && !wf.Status.Terminal() && wf.Generation == r.Last.Generation {
			running = wf
		}
	}
	if r.Last.ID == starting {
		unchanged = storage.Batch{}
	}
	return running, unchanged, nil
}

// passOver starts nothing at the time of f, and counts so many skips. It reports whether to decide again.
func (s *Schedules) passOver(ctx context.Context, f *firing, skips int64, unchanged storage.Batch) (again bool, err error) {
	next := f.passed()
	next.done(f.calendar, f.step.start)
	next.Skips += skips
	next.look(f.calendar)
	return s.commit(ctx, f.record, next, f.entry, unchanged)
}

// overlapping does what Overlap says while the workflow before is running. It reports whether to
// decide again.
func (s *Schedules) overlapping(ctx context.Context, f *firing, running *journal.Workflow, unchanged storage.Batch) (again bool, err error) {
	r := f.record
	by := weft.Actor{Name: "weft", Reason: fmt.Sprintf("schedule %q: the next workflow is due", r.ID)}
	a := s.Admin.Only(func(_ context.Context, wf *journal.Workflow) error {
		if wf.Generation != running.Generation { // deleted, and started again
			return payload.NotFound(running.ID)
		}
		return nil
	})
	switch r.Overlap {
	case weft.OverlapSkip:
		return s.passOver(ctx, f, 1, unchanged)
	case weft.OverlapCancel:
		if running.Cancel == nil {
			return s.asked(ctx, f, a.Change(ctx, running.ID, a.Cancellation(running.ID, nil, by)))
		}
	case weft.OverlapTerminate:
		return s.asked(ctx, f, a.Terminate(ctx, running.ID, by))
	}
	return s.lookLater(ctx, r, *r, f.calendar, f.entry, unchanged)
}

// lookLater replaces r by next, which says why nothing can be started at present, unless that is what r says, and has this
// engine look at the schedule again after a minute. It reports whether to decide again.
func (s *Schedules) lookLater(ctx context.Context, r *Record, next Record, c *cron.Calendar, entry []byte, unchanged storage.Batch) (again bool, err error) {
	next.look(c)
	if next.Problem != r.Problem || !bytes.Equal(next.Due, r.Due) || !bytes.Equal(entry, r.Due) {
		again, err = s.commit(ctx, r, &next, entry, unchanged)
	}
	if again || err != nil || next.Due == nil {
		return again, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.later == nil {
		s.later = map[string]wait{}
	}
	s.later[string(next.Due)] = wait{time.Now().Add(retryAfter), next.Token}
	return false, nil
}

// isLater reports whether this engine is to look at the schedule of entry only later. An engine of an earlier release puts no
// token into an entry.
func (s *Schedules) isLater(entry storage.Entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.later[string(entry.Key)]
	return time.Now().Before(w.until) && (len(entry.Value) == 0 || bytes.Equal(entry.Value, w.token))
}

// forgetLater forgets the entries at which this engine is to look again by now, and those for which also is true.
func (s *Schedules) forgetLater(also func(entry string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.later, func(entry string, w wait) bool { return also(entry) || !time.Now().Before(w.until) })
}

// asked reports whether to decide again after the workflow before was asked to end, which may have ended by itself: err is
// the answer.
func (s *Schedules) asked(ctx context.Context, f *firing, err error) (again bool, _ error) {
	switch {
	case errors.Is(err, weft.ErrTerminal), errors.Is(err, weft.ErrNotFound):
		return true, nil
	case damaged(err):
		return false, s.troubled(ctx, f.record, f.entry, err)
	}
	return err == nil, err
}

// refused finds out why a start was refused. If the id is in use, its time is passed over.
func (s *Schedules) refused(ctx context.Context, f *firing) (again bool, _ error) {
	r, o := f.record, f.step.start
	now, err := Load(ctx, s.Store, r.ID)
	if errors.Is(err, weft.ErrNotFound) || err == nil && !bytes.Equal(now.raw, r.raw) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	there, err := journal.Load(ctx, s.Store, o.id)
	if errors.Is(err, storage.ErrNotFound) {
		return true, nil // another condition did not hold
	}
	if err != nil && !damaged(err) {
		return false, err
	}
	next := f.passed()
	next.done(f.calendar, o)
	var unchanged storage.Batch
	problem := ""
	switch {
	case err != nil:
		problem = err.Error()
	case there.Tombstone(), there.Schedule == r.ID:
	case there.Type == r.Workflow && there.Identity().Same(r.identity()): // somebody has started it already
	default:
		problem = fmt.Sprintf("the id %q belongs to another workflow, of type %s; its time is passed over", o.id, there.Type)
	}
	if err == nil {
		unchanged.If = []storage.Condition{there.Unchanged()}
	}
	if problem != "" && next.note(problem, f.now) {
		s.Log.Warn("weft: schedule could not start a workflow", "schedule", r.ID, "reason", problem)
	}
	next.look(f.calendar)
	return s.commit(ctx, r, next, f.entry, unchanged)
}

// troubled records why r could not start a workflow, and has this engine try again in a minute.
func (s *Schedules) troubled(ctx context.Context, r *Record, entry []byte, cause error) error {
	c, err := r.calendar()
	if err != nil {
		return nil // it is for the engines that know its zone
	}
	next := *r
	if next.note(cause.Error(), s.Now()) {
		s.Log.Warn("weft: schedule could not start a workflow", "schedule", r.ID, "reason", cause)
	}
	_, err = s.lookLater(ctx, r, next, c, entry, storage.Batch{}) // after a conflict the next look decides
	return err
}
