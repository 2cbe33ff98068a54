package schedule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// maxInput is the maximum size in bytes of the encoded input of a schedule: its record is written anew
// with each start.
const maxInput = 256 << 10

// Put is Engine.PutSchedule.
func (s *Schedules) Put(ctx context.Context, p weft.Schedule, by weft.Actor) error {
	ctx, explain, err := s.begin(ctx, "put", p.ID, by)
	if err != nil {
		return err
	}
	put, err := s.recordOf(ctx, p)
	if err != nil {
		return err
	}
	put.By, put.Why = by.Name, by.Reason
	err = explain(s.put(ctx, put))
	s.tell() // also after an error: the outcome may be unknown
	return err
}

func (s *Schedules) put(ctx context.Context, put *Record) error {
	c, err := put.calendar()
	if err != nil {
		return err
	}
	for range settle.MostTries {
		r, err := s.load(ctx, put.ID)
		isNew := errors.Is(err, weft.ErrNotFound)
		if err != nil && !isNew {
			return err
		}
		if isNew {
			r = &Record{ID: put.ID}
		} else if r.same(put) {
			return nil
		}
		now := s.Now()
		next := r.with(put)
		if next.At = journal.Micro(now); isNew || !r.sameTimes(put) {
			next.setMark(c.Mark(now))
		}
		next.note("", now)
		next.look(c)
		again, err := s.commit(ctx, r, next, nil, storage.Batch{})
		if again {
			continue
		}
		if err == nil {
			s.acted("put", put.ID, weft.Actor{Name: put.By, Reason: put.Why})
		}
		return err
	}
	return settle.Contradiction(keys.Schedule(put.ID))
}

// with returns r as put describes it, with what has become of r so far.
func (r *Record) with(put *Record) *Record {
	n := *put
	n.Cursor, n.Wall, n.Due = r.Cursor, r.Wall, r.Due
	n.Last, n.Triggered, n.Pause = r.Last, r.Triggered, r.Pause
	n.Starts, n.Skips, n.Misses = r.Starts, r.Skips, r.Misses
	n.Problem, n.Since = r.Problem, r.Since
	return &n
}

// recordOf checks p and returns the record that describes it.
func (s *Schedules) recordOf(ctx context.Context, p weft.Schedule) (*Record, error) {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: schedule %q: %w", weft.ErrInvalid, p.ID, fmt.Errorf(format, args...))
	}
	switch {
	case p.Start == nil:
		return nil, wrong("it has no Start")
	case p.Start.ID != "":
		return nil, wrong("its Start has the ID %q: each workflow gets its own", p.Start.ID)
	case p.Start.New:
		return nil, wrong("its Start has New: each workflow is new")
	case !p.Start.Options.StartAt.IsZero():
		return nil, wrong("its Start has StartAt: the schedule says when")
	case p.Within < 0:
		return nil, wrong("its Within is negative: %v", p.Within)
	case p.Jitter < 0:
		return nil, wrong("its Jitter is negative: %v", p.Jitter)
	}
	switch p.Overlap {
	case weft.OverlapSkip, weft.OverlapWait, weft.OverlapCancel, weft.OverlapTerminate, weft.OverlapAllow:
	default:
		return nil, wrong("its Overlap is unknown: %q", string(p.Overlap))
	}
	switch p.Missed {
	case weft.MissedLast, weft.MissedAll, weft.MissedNone:
	default:
		return nil, wrong("its Missed is unknown: %q", string(p.Missed))
	}
	for _, t := range []time.Time{p.From, p.Until} {
		if !t.IsZero() && (t.Year() < 1970 || t.Year() > 2200) {
			return nil, wrong("its From or Until is %v, and must be from 1970 to 2200", t)
		}
	}
	r := &Record{
		ID: p.ID, Cron: slices.Clone(p.Cron), Zone: p.Zone, Every: p.Every.Microseconds(), Offset: p.Offset.Microseconds(),
		From: journal.Micro(p.From), Until: journal.Micro(p.Until), Overlap: p.Overlap, Missed: p.Missed,
		Within: p.Within.Microseconds(), Jitter: p.Jitter.Microseconds(),
	}
	if _, err := (weft.Schedule{ID: p.ID, Cron: p.Cron, Zone: p.Zone, Every: p.Every, Offset: p.Offset, From: p.From, Until: p.Until}).Next(time.Time{}, 0); err != nil {
		return nil, err
	}
	start := *p.Start
	start.ID = weft.Schedule{ID: p.ID}.RunID(time.Unix(0, 0))
	prepared, err := s.PrepareStart(ctx, &start)
	if err != nil {
		return nil, err
	}
	in, wf := prepared.Input(), prepared.Workflow
	if len(in.Data) > maxInput {
		return nil, payload.Invalid("input of schedule", p.ID, fmt.Sprintf("has %d bytes, at most %d", len(in.Data), maxInput))
	}
	r.Workflow, r.Codec, r.Input, r.Digest, r.Canonical = wf.Type, in.Codec, in.Data, wf.Digest, wf.Canonical
	r.Queue, r.Deployment, r.Labels = wf.Queue, p.Start.Options.Deployment, maps.Clone(p.Start.Options.Labels)
	return r, nil
}

// damaged reports whether an error is about one record, and not about the store.
func damaged(err error) bool { return record.Damaged(err) }
