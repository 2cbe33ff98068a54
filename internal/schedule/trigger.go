package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// MostTriggered is how many triggered workflows of a schedule may wait.
const MostTriggered = 100

// Trigger is Engine.Trigger.
func (s *Schedules) Trigger(ctx context.Context, id string, by weft.Actor) (weft.Info, error) {
	ctx, explain, err := s.begin(ctx, "trigger", id, by)
	if err != nil {
		return weft.Info{}, err
	}
	info, err := s.trigger(ctx, id, by)
	if err != nil {
		return weft.Info{}, explain(err)
	}
	s.acted("trigger", id, by)
	return info, nil
}

func (s *Schedules) trigger(ctx context.Context, id string, by weft.Actor) (weft.Info, error) {
	o := &occasion{id: id + "@" + s.NewID()}
	for range settle.MostTries {
		r, err := s.load(ctx, id)
		if err != nil {
			return weft.Info{}, err
		}
		c, err := r.calendar()
		if err != nil {
			return weft.Info{}, err
		}
		f := &firing{record: r, calendar: c, step: step{start: o}, now: s.Now()}
		running, unchanged, err := s.lastOf(ctx, r, o.id)
		if err != nil {
			return weft.Info{}, fmt.Errorf("engine: trigger schedule %q: %w", id, err)
		}
		var info weft.Info
		switch {
		case running != nil && r.Overlap == weft.OverlapSkip:
			return weft.Info{}, fmt.Errorf("%w: trigger schedule %q: workflow %q, which it has started before, has not ended, and its Overlap is OverlapSkip", weft.ErrNotApplicable, id, running.ID)
		case running == nil && len(r.Triggered) == 0:
			info, err = s.startNow(ctx, f, unchanged)
		case len(r.Triggered) >= MostTriggered:
			return weft.Info{}, fmt.Errorf("%w: trigger schedule %q: %d triggered workflows wait already for the end of the one before", weft.ErrBusy, id, len(r.Triggered))
		default:
			info, err = s.startLater(ctx, f, by)
		}
		if !errors.Is(err, storage.ErrConflict) {
			return info, err
		}
	}
	return weft.Info{}, settle.Contradiction(keys.Schedule(id))
}

// startNow starts the workflow of f.
func (s *Schedules) startNow(ctx context.Context, f *firing, unchanged storage.Batch) (weft.Info, error) {
	p, err := s.prepared(f.record, f.step.start)
	if err != nil {
		return weft.Info{}, err
	}
	_, b, err := f.record.replace(f.begun(p), nil)
	if err != nil {
		return weft.Info{}, err
	}
	b.If, b.Ops = append(b.If, unchanged.If...), append(b.Ops, unchanged.Ops...)
	return s.StartTogether(ctx, p, b)
}

// startLater records that the workflow of f is to be started. An engine does so, as Overlap says.
func (s *Schedules) startLater(ctx context.Context, f *firing, by weft.Actor) (weft.Info, error) {
	r, id := f.record, f.step.start.id
	next := *r
	next.Triggered = append(slices.Clone(r.Triggered), Trigger{ID: id, By: by.Name, Why: by.Reason, At: journal.Micro(f.now)})
	next.look(f.calendar)
	_, b, err := r.replace(&next, nil)
	if err != nil {
		return weft.Info{}, err
	}
	err = settle.Commit(ctx, s.Store, b, s.unsure(r.ID), func(ctx context.Context) (bool, error) {
		return s.knows(ctx, r.ID, id)
	})
	if err != nil {
		if !errors.Is(err, storage.ErrConflict) {
			err = fmt.Errorf("engine: trigger schedule %q: %w", r.ID, err)
		}
		return weft.Info{}, err
	}
	s.tell()
	return weft.Info{ID: id, Workflow: r.Workflow, Status: checkpoint.StatusPending, Queue: r.Queue, Waiting: []string{fmt.Sprintf("the end of workflow %q", r.Last.ID)}}, nil
}

// knows reports whether a triggered workflow waits to be started, or was started.
func (s *Schedules) knows(ctx context.Context, id, workflow string) (bool, error) {
	r, err := Load(ctx, s.Store, id)
	if err == nil && slices.ContainsFunc(r.Triggered, func(t Trigger) bool { return t.ID == workflow }) {
		return true, nil
	}
	if err != nil && !errors.Is(err, weft.ErrNotFound) {
		return false, err
	}
	_, err = journal.Load(ctx, s.Store, workflow)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
