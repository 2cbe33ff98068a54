package schedule

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/admin"
	"github.com/weft-go/weft/internal/cron"
	"github.com/weft-go/weft/internal/intake"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/told"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/storage"
)

// Schedules has the schedules of a store.
type Schedules struct {
	*intake.Intake
	Admin *admin.Admin

	news atomic.Bool // a schedule was written: the duty is to look
	told told.Set    // what was logged by the duty

	mu    lock.Mutex      // guards the fields below
	later map[string]wait // entries whose schedules wait, or have a problem
}

// A wait says when this engine looks again at a schedule, unless another version of its record is put before.
type wait struct {
	until time.Time
	token []byte // of the version that was looked at
}

// tell has the duty look at once, because a schedule was written.
func (s *Schedules) tell() {
	s.news.Store(true)
	s.PokePoll()
}

// A verb is an action of an operator on a schedule. do returns the record that is to follow, or nil if
// there is nothing to write, as there is after the verb was done.
type verb struct {
	name string // for errors and for the log
	do   func(r *Record, now time.Time) (next *Record, err error)
}

// change reads a schedule, decides and commits, until it is certain that v was done or cannot be.
func (s *Schedules) change(ctx context.Context, id string, by weft.Actor, v verb) error {
	ctx, explain, err := s.begin(ctx, v.name, id, by)
	if err != nil {
		return err
	}
	for range settle.MostTries {
		r, err := s.load(ctx, id)
		if err != nil {
			return explain(err)
		}
		next, err := v.do(r, s.Now())
		if err != nil || next == nil {
			return err
		}
		again, err := s.commit(ctx, r, next, nil, storage.Batch{})
		if again {
			continue
		}
		if err == nil {
			s.acted(v.name, id, by)
			s.tell()
		}
		return explain(err)
	}
	return settle.Contradiction(keys.Schedule(id))
}

func (s *Schedules) load(ctx context.Context, id string) (*Record, error) {
	if err := errors.Join(s.Refused(), ctx.Err()); err != nil {
		return nil, err
	}
	return Load(ctx, s.Store, id)
}

// commit replaces r by next, together with also. found is the entry by which r was found, or nil. It
// reports whether to decide again, because something has changed meanwhile. Otherwise next is what is stored.
func (s *Schedules) commit(ctx context.Context, r, next *Record, found []byte, also storage.Batch) (again bool, _ error) {
	written, b, err := r.replace(next, found)
	if err != nil {
		return false, err
	}
	b.If, b.Ops = append(b.If, also.If...), append(b.Ops, also.Ops...)
	err = settle.Commit(ctx, s.Store, b, s.unsure(r.ID), func(ctx context.Context) (bool, error) {
		there, err := Load(ctx, s.Store, r.ID)
		if errors.Is(err, weft.ErrNotFound) {
			return false, nil
		}
		return err == nil && bytes.Equal(there.Token, written.Token), err
	})
	switch {
	case errors.Is(err, storage.ErrConflict):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("engine: schedule %q: %w", r.ID, err)
	}
	*next = *written
	return false, nil
}

func (s *Schedules) unsure(id string) func(error) {
	return func(err error) {
		s.Log.Warn("weft: outcome of a change of a schedule is unknown; trying again", "schedule", id, "error", err)
	}
}

// begin returns what every verb does first: it checks the arguments, and prepares to explain an
// error.
func (s *Schedules) begin(ctx context.Context, what, id string, by weft.Actor) (context.Context, func(error) error, error) {
	call := waiting.New(ctx, what+" of schedule", id)
	return call, call.Explain, errors.Join(admin.CheckActor(by), checkID(id))
}

// acted logs what an operator did.
func (s *Schedules) acted(verb, id string, by weft.Actor) {
	s.Log.Info("weft: operator acted on a schedule", "schedule", id, "verb", verb, "by", by.Name, "why", by.Reason)
}

func checkID(id string) error { return payload.CheckName("schedule id", id, weft.MaxScheduleID) }

// Pause is Engine.PauseSchedule.
func (s *Schedules) Pause(ctx context.Context, id string, by weft.Actor) error {
	return s.change(ctx, id, by, verb{"pause", func(r *Record, now time.Time) (*Record, error) {
		if r.Pause != nil {
			return nil, nil
		}
		next := *r
		next.Pause = &Pause{By: by.Name, Why: by.Reason, At: journal.Micro(now)}
		if len(r.Triggered) == 0 {
			next.Due = nil
		}
		return &next, nil
	}})
}

// Resume is Engine.ResumeSchedule.
func (s *Schedules) Resume(ctx context.Context, id string, by weft.Actor) error {
	return s.change(ctx, id, by, verb{"resumption", func(r *Record, now time.Time) (*Record, error) {
		ahead := r.mark().At.Sub(now) // up to grace, it may be this clock that is behind: then nothing is taken back
		if r.Pause == nil && ahead <= grace {
			return nil, nil
		}
		c, err := r.calendar()
		if err != nil {
			return nil, err
		}
		next := *r
		next.Pause = nil
		if ahead <= 0 || ahead > grace {
			next.setMark(c.Mark(now))
		}
		next.look(c)
		return &next, nil
	}})
}

// Delete is Engine.DeleteSchedule.
func (s *Schedules) Delete(ctx context.Context, id string, by weft.Actor) error {
	ctx, explain, err := s.begin(ctx, "deletion", id, by)
	if err != nil {
		return err
	}
	return explain(s.delete(ctx, id, by))
}

func (s *Schedules) delete(ctx context.Context, id string, by weft.Actor) error {
	for range settle.MostTries {
		r, err := s.load(ctx, id)
		if damaged(err) {
			if r, err = s.unread(ctx, id); r == nil && err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		err = settle.Commit(ctx, s.Store, r.remove(), s.unsure(id), func(ctx context.Context) (bool, error) {
			_, err := s.Store.Get(ctx, keys.Schedule(id))
			if errors.Is(err, storage.ErrNotFound) {
				return true, nil
			}
			return false, err
		})
		if err == nil {
			s.acted("deletion", id, by)
			return nil
		}
		if !errors.Is(err, storage.ErrConflict) {
			return fmt.Errorf("engine: delete schedule %q: %w", id, err)
		}
	}
	return settle.Contradiction(keys.Schedule(id))
}

// unread returns a schedule without decoding its record, which is damaged. It returns nil if there is
// none by now.
func (s *Schedules) unread(ctx context.Context, id string) (*Record, error) {
	raw, err := s.Store.Get(ctx, keys.Schedule(id))
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	return &Record{ID: id, raw: raw}, err
}

// calendar returns the calendar of r. The error is about this machine: what was put was valid where it
// was put.
func (r *Record) calendar() (*cron.Calendar, error) {
	c, err := r.times().Calendar()
	if err != nil {
		return nil, fmt.Errorf("%w: schedule %q cannot be served here: %w", weft.ErrNotApplicable, r.ID, err)
	}
	return c, nil
}

// All is Engine.Schedules.
func (s *Schedules) All(ctx context.Context, prefix string) iter.Seq2[weft.ScheduleInfo, error] {
	return func(yield func(weft.ScheduleInfo, error) bool) {
		err := s.Refused()
		if err == nil && prefix != "" {
			err = payload.CheckName("prefix of ids", prefix, weft.MaxScheduleID)
		}
		if err != nil {
			yield(weft.ScheduleInfo{}, err)
			return
		}
		for e, err := range storage.All(ctx, s.Store, keys.Schedules(prefix)) {
			if err != nil {
				yield(weft.ScheduleInfo{}, err)
				return
			}
			r, err := Open(e)
			if damaged(err) {
				id, _ := keys.Last(e.Key)
				if !yield(weft.ScheduleInfo{Schedule: weft.Schedule{ID: id}}, err) {
					return
				}
				continue
			}
			if err != nil {
				yield(weft.ScheduleInfo{}, err)
				return
			}
			if !yield(r.info(s.Now()), nil) {
				return
			}
		}
	}
}

// info returns the state of r at a time.
func (r *Record) info(now time.Time) weft.ScheduleInfo {
	i := weft.ScheduleInfo{
		Schedule: r.schedule(), Started: r.Starts, Skipped: r.Skips, Missed: r.Misses,
		Problem: r.Problem, Since: journal.Time(r.Since),
	}
	if l := r.Last; l != nil {
		i.Last = &weft.ScheduledRun{ID: l.ID, At: journal.Time(l.Nominal), StartedAt: journal.Time(l.At)}
	}
	for _, t := range r.Triggered {
		i.Triggered = append(i.Triggered, t.ID)
	}
	if p := r.Pause; p != nil {
		i.Paused = &weft.Pause{By: p.By, Reason: p.Why, At: journal.Time(p.At)}
	}
	c, err := r.times().Calendar()
	if err != nil {
		i.Problem = fmt.Sprintf("it cannot be served on this machine: %v", err)
		return i
	}
	if ahead := r.mark().At.Sub(now); ahead > grace {
		i.Problem = fmt.Sprintf("an engine whose clock is ahead has dealt with its times until %v, which is %v from now; ResumeSchedule sets this to now", r.mark().At.UTC().Format(time.RFC3339), ahead.Round(time.Second))
	}
	if r.Pause == nil {
		i.Next, _ = c.Next(r.mark())
	}
	return i
}
