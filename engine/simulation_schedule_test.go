package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/schedule"
	"github.com/weft-go/weft/storage"
)

// schedules says whether a schedule is played. A quarter of the seeds do that.
func (s *simulation) schedules() bool { return s.seed/4%4 == 1 }

const (
	simEvery = time.Second // of the schedule
	simTimes = 4           // at most
)

// tick is the workflow of the schedule.
func (s *simulation) tick(h *host) *engine.Workflow[int, string] {
	return &engine.Workflow[int, string]{Name: "tick", Func: func(run *engine.Run, v int) (string, error) {
		_, err := engine.Step(run, "step", func(ctx context.Context) (int, error) { return s.plain(ctx, h, v) })
		at, _ := run.Nominal()
		return at.Format(time.RFC3339), err
	}}
}

// repeat has a client put a schedule.
func (s *simulation) repeat() {
	request := s.tick(nil).Request("", 70_000)
	s.client("schedule", time.Duration(s.dice.IntN(300))*time.Millisecond, func(ctx context.Context, e *engine.Engine) error {
		return e.PutSchedule(ctx, engine.Schedule{
			ID: "tick", Start: request, Every: simEvery, From: s.began.Truncate(time.Second), Until: s.began.Truncate(time.Second).Add(simTimes*simEvery + time.Millisecond),
			Overlap: engine.OverlapAllow, Missed: engine.MissedAll,
		}, audit)
	})
}

// scheduled notes from when on a schedule is served: that is decided when it is put first.
func (l *laws) scheduled(b storage.Batch) {
	for _, op := range b.Ops {
		if l.served != nil || string(op.Key) != string(keys.Schedule("tick")) || op.Kind != storage.PutOp {
			continue
		}
		r, err := schedule.Open(storage.Entry{Key: op.Key, Value: op.Value})
		if err != nil {
			l.wrong("%v", err)
			return
		}
		from := time.UnixMicro(r.Cursor).UTC()
		l.served = &from
	}
}

// due are the ids of the runs that the schedule has to start.
func (s *simulation) due() (ids []string) {
	if s.laws.served == nil {
		return nil
	}
	for i := range simTimes + 1 {
		if at := s.began.UTC().Truncate(time.Second).Add(time.Duration(i) * simEvery); at.After(*s.laws.served) {
			ids = append(ids, "tick@"+at.Format(time.RFC3339))
		}
	}
	return ids
}

// ticked says whether the schedule has started what it has to.
func (s *simulation) ticked() bool {
	for _, id := range s.due() {
		if s.laws.runs[id] == nil {
			return false
		}
	}
	return true
}

// unscheduled says what is wrong with what the schedule has started (SCH-1): each of its times is started once, and
// nothing else.
func (s *simulation) unscheduled(reader *engine.Engine) (problems []string) {
	due := s.due()
	for id := range s.laws.runs {
		if strings.HasPrefix(id, "tick@") && !slices.Contains(due, id) {
			problems = append(problems, id+" was started, which is no time of the schedule")
		}
	}
	for _, id := range due {
		got, err := s.tick(nil).Handle(reader, id).Result(context.Background())
		if err != nil || "tick@"+got != id {
			problems = append(problems, fmt.Sprintf("%s: %q, %v", id, got, err))
		}
		s.meet("started by a schedule")
	}
	return problems
}
