package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	_ "time/tzdata" // not that of the machine

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/integrity"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/schedule"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// nightly is a workflow that returns its nominal time.
var nightly = flow("nightly", func(run *engine.Run) (string, error) {
	at, ok := run.Nominal()
	return fmt.Sprint(at.Format(time.RFC3339), " ", ok), nil
})

// fiveMinutes is a workflow that takes five minutes.
var fiveMinutes = flow("slow", func(run *engine.Run) (string, error) { return "", run.Sleep(5 * time.Minute) })

// hourly is a schedule of w, changed by change.
func hourly(w *engine.Workflow[string, string], change func(s *engine.Schedule)) engine.Schedule {
	s := engine.Schedule{ID: "report", Start: w.Request("", "in"), Every: time.Hour}
	if change != nil {
		change(&s)
	}
	return s
}

func putSchedule(t testing.TB, e *engine.Engine, s engine.Schedule) {
	t.Helper()
	if err := e.PutSchedule(ctx, s, audit); err != nil {
		t.Fatalf("put schedule %q: %v", s.ID, err)
	}
}

// scheduleOf returns the state of the only schedule.
func scheduleOf(t testing.TB, e *engine.Engine) (found engine.ScheduleInfo) {
	t.Helper()
	n := 0
	for i, err := range e.Schedules(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		found = i
		n++
	}
	if n != 1 {
		t.Fatalf("there are %d schedules", n)
	}
	return found
}

// scheduled returns what follows the '@' in the ids of the workflows of the schedule report, in the
// order of their start.
func scheduled(t testing.TB, e *engine.Engine) (times []string) {
	t.Helper()
	for i, err := range e.List(ctx, engine.Filter{Labels: map[string]string{"weft.schedule": "report"}}) {
		if err != nil {
			t.Fatal(err)
		}
		_, at, _ := strings.Cut(i.ID, "@")
		times = append(times, at)
	}
	slices.Sort(times)
	return times
}

// midnight is when virtual time begins.
var midnight = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// at returns what follows the '@' in the id of a workflow for a time.
func at(after time.Duration) string { return midnight.Add(after).Format(time.RFC3339) }

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// agreeing checks that the records of a store agree with each other.
func agreeing(t testing.TB, s storage.Storage) {
	t.Helper()
	for _, problem := range integrity.Check(ctx, s, time.Time{}) {
		t.Error(problem)
	}
}

// Schedules that are not due for a while cost an idle engine hardly a read. One that is put through this engine
// starts in time all the same, and one that another program puts at most ten polls late.
func TestIdleReadsOfSchedules(t *testing.T) {
	virtual(t, func(t *testing.T) {
		reads := map[int]int64{}
		for _, n := range []int{0, 10_000} {
			s := &metered{Storage: fresh(t)}
			client := made(t, s, nightly)
			p := bootOn(t, storagetest.NewFaulty(s, nil), nightly)
			for i := range n {
				putSchedule(t, client, hourly(nightly, func(s *engine.Schedule) {
					s.ID, s.Every = fmt.Sprint("day ", i), 240*time.Hour
				}))
			}
			time.Sleep(time.Minute)
			_, reads[n] = s.during(10 * time.Minute)
			for _, c := range []struct {
				by   *engine.Engine
				id   string
				late time.Duration
			}{{p.Engine, "here", 0}, {client, "elsewhere", 10 * time.Second}} {
				putSchedule(t, c.by, hourly(nightly, func(s *engine.Schedule) { s.ID, s.Every = c.id, 5*time.Second }))
				time.Sleep(5*time.Second + c.late + time.Millisecond)
				if len(entries(t, s, "wf:"+c.id)) == 0 {
					t.Errorf("put %s: nothing was started within %v of its time", c.id, c.late)
				}
				if err := client.DeleteSchedule(ctx, c.id, audit); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute)
			}
			p.stop(t)
			client.Close()
		}
		if ratio := float64(reads[10_000]) / float64(reads[0]); ratio > 1.05 {
			t.Errorf("%d reads in ten minutes with 10,000 schedules, and %d without: %.3f", reads[10_000], reads[0], ratio)
		}
	})
}

// SCH-4: what another program puts is found within ten polls or a minute, whichever is less, and in the next
// poll if that is rarer. So no time of it is missed.
func TestWhatAnotherProgramPutsIsNotMissed(t *testing.T) {
	for _, poll := range []time.Duration{time.Second, 7 * time.Second, 26 * time.Second, 47 * time.Second, 59 * time.Second} {
		t.Run(poll.String(), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := fresh(t)
				client := made(t, s, nightly)
				defer client.Close()
				p := boot(t, s, nightly, func(c *engine.Config) { c.PollInterval, c.LeaseTTL = poll, 4*time.Minute })
				late := min(10*poll, time.Minute)
				for range 10 { // the polls have another phase each time
					time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour - time.Millisecond)))
					putSchedule(t, client, hourly(nightly, func(s *engine.Schedule) { s.Missed = engine.MissedNone }))
					time.Sleep(late + 100*time.Millisecond)
					if i := scheduleOf(t, client); i.Started != 1 || i.Missed != 0 {
						t.Errorf("%d are started and %d missed %v after its time, want one started", i.Started, i.Missed, late)
					}
					if err := client.DeleteSchedule(ctx, "report", audit); err != nil {
						t.Error(err)
					}
				}
				p.stop(t)
			})
		})
	}
}

// SCH-10: what another program has triggered, and what waits for the end of a workflow, starts within ten polls
// of that, whatever happens meanwhile to the engine that has let it wait.
func TestWaitingStartIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		engines int
		happens func(t *testing.T, s storage.Storage, clock *wall, all []*process)
	}{
		"nothing happens":     {1, func(*testing.T, storage.Storage, *wall, []*process) {}},
		"the clock goes back": {1, func(_ *testing.T, _ storage.Storage, clock *wall, _ []*process) { clock.jump(-2 * time.Hour) }},
		"the clock goes on":   {1, func(_ *testing.T, _ storage.Storage, clock *wall, _ []*process) { clock.jump(30 * time.Minute) }},
		"an engine dies":      {2, func(_ *testing.T, _ storage.Storage, _ *wall, all []*process) { all[0].kill() }},
		"the other one dies":  {2, func(_ *testing.T, _ storage.Storage, _ *wall, all []*process) { all[1].kill() }},
		"it is put again": {2, func(t *testing.T, s storage.Storage, _ *wall, _ []*process) {
			client := made(t, s, fiveMinutes)
			defer client.Close()
			putSchedule(t, client, hourly(fiveMinutes, func(s *engine.Schedule) { s.Overlap, s.Every = engine.OverlapWait, 240*time.Hour }))
		}},
		"another one takes its place": {1, func(t *testing.T, s storage.Storage, _ *wall, all []*process) {
			all[0].stop(t)
			boot(t, s, fiveMinutes, leases)
		}},
	} {
		for _, early := range []time.Duration{3 * time.Minute, 20 * time.Second, 2 * time.Second} { // before the end
			t.Run(fmt.Sprint(name, ", ", early), func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					s := sharing{fresh(t)}
					clock := new(wall)
					client := made(t, s, fiveMinutes)
					defer client.Close()
					all := []*process{bootAt(t, s, clock, fiveMinutes, leases)}
					for range c.engines - 1 {
						all = append(all, boot(t, s, fiveMinutes, leases))
					}
					time.Sleep(30 * time.Second)
					putSchedule(t, client, hourly(fiveMinutes, func(s *engine.Schedule) { s.Overlap, s.Every = engine.OverlapWait, 240*time.Hour }))
					trigger := func() string {
						i, err := client.Trigger(ctx, "report", audit)
						if err != nil {
							t.Fatal(err)
						}
						return i.ID
					}
					first := trigger()
					time.Sleep(5*time.Minute - early)
					second := trigger()
					time.Sleep(early / 2)
					c.happens(t, s, clock, all)
					eventually(t, "the first ends", func() bool {
						return describe(t, client, first).Status.Terminal()
					})
					time.Sleep(10*time.Second + 200*time.Millisecond)
					if removed(t, client, second) {
						t.Errorf("%s has not started 10 s after the end of %s: %+v", second, first, scheduleOf(t, client))
					}
					agreeing(t, s)
				})
			})
		}
	}
}

// SCH-4: what another program puts for a schedule that waits, or has a problem, is found as soon.
func TestWhatIsPutForAWaitingScheduleIsNotLate(t *testing.T) {
	pinned := flow("pinned", nil)
	pinned.Func, pinned.Pinned = nightly.Func, true
	for name, was := range map[string]engine.Schedule{
		"problem": hourly(pinned, func(s *engine.Schedule) { s.Every = 2 * time.Minute }),
		"waits":   hourly(fiveMinutes, func(s *engine.Schedule) { s.Every, s.Overlap = 2*time.Minute, engine.OverlapWait }),
	} {
		for _, after := range []time.Duration{time.Second, 20 * time.Second, 70 * time.Second} { // its time
			t.Run(fmt.Sprint(name, ", ", after), func(t *testing.T) {
				onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
					s := store.Open(t)
					defer s.Close()
					client := made(t, s)
					defer client.Close()
					p := boot(t, s, pinned, nightly, fiveMinutes, leases, func(c *engine.Config) { c.Deployment = "blue" })
					putSchedule(t, client, was)
					time.Sleep(time.Until(scheduleOf(t, client).Next))
					if name == "waits" {
						time.Sleep(2 * time.Minute)
					}
					time.Sleep(after)
					started := scheduleOf(t, client).Started
					next := was
					next.Overlap, next.Start = engine.OverlapAllow, nightly.Request("", "in")
					putSchedule(t, client, next)
					time.Sleep(10*time.Second + 100*time.Millisecond)
					if i := scheduleOf(t, client); i.Started != started+1 || i.Problem != "" {
						t.Errorf("%d have started, want %d: %+v", i.Started, started+1, i)
					}
					agreeing(t, s)
					p.kill()
				})
			})
		}
	}
}

// SCH-1: three engines whose clocks are minutes apart, which are killed all the time, start one
// workflow for each time. Most of them die at a commit by which something is started, before or after the store has
// it.
func TestEachTimeIsStartedOnce(t *testing.T) {
	seed, _ := seedToPlay(t)
	kills := 40
	if os.Getenv("WEFT_TORTURE") != "" {
		kills = 1000
	}
	t.Logf("WEFT_SEED=%d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		client := made(t, s)
		putSchedule(t, client, hourly(nightly, func(s *engine.Schedule) {
			s.Every, s.Overlap, s.Missed = time.Minute, engine.OverlapAllow, engine.MissedAll
		}))
		var engines [3]*process
		var cut atomic.Int64
		for range kills {
			i := dice.IntN(len(engines))
			if p := engines[i]; p != nil {
				p.kill()
			}
			var clock wall
			clock.jump(time.Duration(i-1) * 2 * time.Minute)
			var firings atomic.Int64
			dies, how := 1+dice.Int64N(3), []storagetest.Fault{storagetest.CrashBefore, storagetest.CrashAfter}[dice.IntN(2)]
			f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
				if !fires(c.Batch) || firings.Add(1) != dies {
					return storagetest.None
				}
				cut.Add(1)
				return how
			})
			p := &process{Engine: made(t, f, nightly, leases), store: f}
			engine.SetNow(p.Engine, clock.now)
			p.run()
			t.Cleanup(p.kill)
			engines[i] = p
			time.Sleep(time.Duration(dice.IntN(100_000)) * time.Millisecond)
		}
		for i := range engines {
			if engines[i] != nil {
				engines[i].kill()
			}
		}
		got := scheduled(t, client)
		if n := int(cut.Load()); len(got) < kills/3 || n < kills/8 {
			t.Fatalf("only %d workflows were started, and %d engines died at that", len(got), n)
		}
		for i, when := range got {
			equal(t, "time", when, at(time.Duration(i+1)*time.Minute))
		}
		equal(t, "workflows", len(entries(t, s, "ix:")), len(got))
		equal(t, "starts", scheduleOf(t, client).Started, len(got))
		agreeing(t, s)
	})
}

// fires reports whether a batch changes a schedule or starts a workflow.
func fires(b storage.Batch) bool {
	return slices.ContainsFunc(b.Ops, func(o storage.Op) bool {
		return bytes.HasPrefix(o.Key, []byte("sch:")) || bytes.HasPrefix(o.Key, []byte("ix:"))
	})
}

// SCH-1: whatever call to the store goes wrong, each time is started once, and one that waits is
// started after the end of the workflow before.
func TestScheduleWhateverCallFails(t *testing.T) {
	stride := 3
	if os.Getenv("WEFT_TORTURE") != "" {
		stride = 1
	} else if torture.Raced() {
		stride = 71
	}
	t.Logf("%d plays", sweep.Every(t, sweepStores["memory"], stride, scheduling))
}

// SCH-1, SCH-9: on every store a time is started exactly then, and its workflow knows it.
func TestScheduleOnEachStore(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		p := boot(t, s, nightly, rareLeases)
		tenth := time.Now().Truncate(10 * time.Minute)
		putSchedule(t, p.Engine, hourly(nightly, func(s *engine.Schedule) { s.Every = 10 * time.Minute }))
		time.Sleep(25 * time.Minute)
		i := scheduleOf(t, p.Engine)
		second := tenth.Add(20 * time.Minute).UTC()
		want := "report@" + second.Format(time.RFC3339)
		if i.Last == nil || i.Last.ID != want || !i.Last.StartedAt.Equal(second) || i.Started != 2 {
			t.Fatalf("got %+v, want %s as the last of 2, at its time", i.Last, want)
		}
		equal(t, "result", result(t, nightly.Handle(p, want)), second.Format(time.RFC3339)+" true")
		if err := p.PauseSchedule(ctx, "report", audit); err != nil {
			t.Fatal(err)
		}
		info, err := p.Trigger(ctx, "report", audit)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "result of a trigger", result(t, nightly.Handle(p, info.ID)), "0001-01-01T00:00:00Z false")
		if err := p.DeleteSchedule(ctx, "report", audit); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Minute)
		equal(t, "left of it", append(entries(t, s, "sch:"), entries(t, s, "due:")...), "[]")
		if _, err := p.Describe(ctx, want); err != nil {
			t.Errorf("its workflow: %v", err)
		}
		p.stop(t)
		agreeing(t, s)
	})
}

// SCH-3: an interval of a week is kept by processes that live for an hour.
func TestWeeklyIntervalAcrossRestarts(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		const week = 7 * 24 * time.Hour
		putSchedule(t, made(t, s), hourly(nightly, func(s *engine.Schedule) {
			s.Every = week
			s.Offset = 2*24*time.Hour + 210*time.Minute // the 1st of January 1970 was a Thursday, and that of 2000 a Saturday
		}))
		for n := range 12 {
			p := boot(t, s, nightly, rareLeases)
			time.Sleep(time.Hour)
			p.stop(t)
			if n == 5 {
				time.Sleep(week - 6*time.Hour) // nothing is due meanwhile
			}
		}
		client := made(t, s)
		first := 210 * time.Minute
		equal(t, "times", scheduled(t, client), []string{at(first), at(first + week)})
		i := scheduleOf(t, client)
		if late := i.Last.StartedAt.Sub(i.Last.At); late < 0 || late > 2*time.Second {
			t.Errorf("it was %v late", late)
		}
		equal(t, "missed", i.Missed, 0)
	})
}

// SCH-4: after an outage MissedLast starts one, MissedAll each in order and MissedNone none. Then the
// times are started as they come. Within bounds all of them.
func TestMissedTimes(t *testing.T) {
	for name, c := range map[string]struct {
		missed  engine.Missed
		within  time.Duration
		want    []time.Duration // hours
		missing int64
	}{
		"last":        {engine.MissedLast, 0, []time.Duration{1, 6, 7}, 4},
		"all":         {engine.MissedAll, 0, []time.Duration{1, 2, 3, 4, 5, 6, 7}, 0},
		"none":        {engine.MissedNone, 0, []time.Duration{1, 7}, 5},
		"all within":  {engine.MissedAll, 3 * time.Hour, []time.Duration{1, 4, 5, 6, 7}, 2},
		"last within": {engine.MissedLast, 10 * time.Minute, []time.Duration{1, 7}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := new(memory.Store)
				p := boot(t, s, nightly, rareLeases)
				putSchedule(t, p.Engine, hourly(nightly, func(s *engine.Schedule) {
					s.Missed, s.Within, s.Overlap = c.missed, c.within, engine.OverlapAllow
				}))
				time.Sleep(90 * time.Minute)
				p.kill()
				time.Sleep(5 * time.Hour)
				p = boot(t, s, nightly, rareLeases)
				time.Sleep(time.Hour)
				var want []string
				for _, h := range c.want {
					want = append(want, at(h*time.Hour))
				}
				equal(t, "times", scheduled(t, p.Engine), want)
				i := scheduleOf(t, p.Engine)
				equal(t, "missed", i.Missed, c.missing)
				equal(t, "started", i.Started, len(want))
				var last time.Time
				for _, when := range want { // in order
					d := describe(t, p, "report@"+when)
					if d.CreatedAt.Before(last) {
						t.Errorf("%s was started before the one before", when)
					}
					last = d.CreatedAt
				}
			})
		})
	}
}

// SCH-5: 100,000 missed times cost one record, and one commit.
func TestManyMissedTimes(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		client := made(t, s)
		putSchedule(t, client, hourly(nightly, func(s *engine.Schedule) { s.Every = time.Second }))
		minutes := hourly(nightly, func(s *engine.Schedule) { s.ID, s.Every, s.Cron = "minutes", 0, []string{"* * * * *"} })
		putSchedule(t, client, minutes)
		time.Sleep(100_000*time.Second - 500*time.Millisecond)
		before := len(entries(t, s, ""))
		if d := len(entries(t, s, "due:")); d != 2 {
			t.Errorf("%d entries", d)
		}
		time.Sleep(time.Second)
		commits, many := 0, make(chan struct{})
		tooMany := sync.OnceFunc(func() { close(many) })
		var mu sync.Mutex
		p := boot(t, s, nightly, leases, func(c *engine.Config) {
			c.Events.Committed = func(engine.CommittedEvent) {
				mu.Lock()
				defer mu.Unlock()
				if commits++; commits == 100 {
					tooMany()
				}
			}
		})
		go func() { <-many; p.end() }()
		defer tooMany()
		time.Sleep(400 * time.Millisecond)
		for i, err := range client.Schedules(ctx, "") {
			if err != nil {
				t.Fatal(err)
			}
			want := int64(100_000 - 1)
			if i.Schedule.ID == "minutes" {
				want = 100_000/60 - 1
			}
			if i.Started != 1 || i.Missed != want {
				t.Errorf("%s: %d started and %d missed, want 1 and %d", i.Schedule.ID, i.Started, i.Missed, want)
			}
		}
		p.kill()
		if n := len(recordsOfRuns(t, s)); n > 2*6 {
			t.Errorf("%d records of workflows, and %d of all kinds before", n, before)
		}
	})
}

// SCH-6: with new times no time that has passed is started. Another change leaves those that wait.
func TestChangedSchedule(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		client := made(t, s)
		putSchedule(t, client, hourly(nightly, nil))
		time.Sleep(90 * time.Minute) // a time waits
		putSchedule(t, client, hourly(nightly, func(s *engine.Schedule) { s.Jitter = time.Minute }))
		next := scheduleOf(t, client).Next
		equal(t, "next after another change", next.UTC(), midnight.Add(time.Hour))
		putSchedule(t, client, hourly(nightly, func(s *engine.Schedule) { s.Every = 30 * time.Minute }))
		equal(t, "next after new times", scheduleOf(t, client).Next.UTC(), midnight.Add(2*time.Hour))
		p := boot(t, s, nightly, leases)
		time.Sleep(45 * time.Minute)
		equal(t, "times", scheduled(t, p.Engine), []string{at(2 * time.Hour)})
	})
}

// SCH-7: resuming after a year is one step, starts nothing old, and deletes nothing.
func TestResumedAfterAYear(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		p := boot(t, s, nightly, rareLeases)
		putSchedule(t, p.Engine, hourly(nightly, func(s *engine.Schedule) { s.Missed = engine.MissedAll }))
		time.Sleep(90 * time.Minute)
		if err := p.PauseSchedule(ctx, "report", audit); err != nil {
			t.Fatal(err)
		}
		if i := scheduleOf(t, p.Engine); i.Paused == nil || i.Paused.By != "ann" || !i.Next.IsZero() {
			t.Errorf("paused: got %+v", i)
		}
		p.kill()
		year := 366 * 24 * time.Hour
		time.Sleep(year)
		p = boot(t, s, nightly, rareLeases)
		commits := 0
		counted := made(t, s, func(c *engine.Config) { c.Events.Committed = func(engine.CommittedEvent) { commits++ } })
		if err := counted.ResumeSchedule(ctx, "report", audit); err != nil {
			t.Fatal(err)
		}
		equal(t, "commits", commits, 1)
		time.Sleep(time.Hour)
		equal(t, "times", scheduled(t, p.Engine), []string{at(time.Hour), at(year + 2*time.Hour)})
		equal(t, "missed", scheduleOf(t, p.Engine).Missed, 0)
	})
}

// SCH-8: a trigger obeys Overlap and leaves the next time alone, also of a paused schedule.
func TestTrigger(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		p := boot(t, s, fiveMinutes, leases)
		put := func(o engine.Overlap) {
			putSchedule(t, p.Engine, hourly(fiveMinutes, func(s *engine.Schedule) { s.Overlap = o }))
		}
		trigger := func() (engine.Info, error) { return p.Trigger(ctx, "report", audit) }
		put(engine.OverlapSkip)
		first, err := trigger()
		if err != nil || describe(t, p, first.ID).Status != checkpoint.StatusRunning {
			t.Fatalf("got %+v, %v", first, err)
		}
		if _, err := trigger(); !errors.Is(err, engine.ErrNotApplicable) || !strings.Contains(err.Error(), first.ID) {
			t.Errorf("while the first is running, OverlapSkip: got %v", err)
		}
		put(engine.OverlapWait)
		second, err := trigger()
		if err != nil || second.Status != checkpoint.StatusPending || len(second.Waiting) != 1 {
			t.Fatalf("OverlapWait: got %+v, %v", second, err)
		}
		if _, err := p.Describe(ctx, second.ID); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("before the first has ended: got %v", err)
		}
		equal(t, "triggered", scheduleOf(t, p.Engine).Triggered, []string{second.ID})
		time.Sleep(5*time.Minute + 2*time.Second)
		equal(t, "first", describe(t, p, first.ID).Status, checkpoint.StatusCompleted)
		equal(t, "second", describe(t, p, second.ID).Status, checkpoint.StatusRunning)

		put(engine.OverlapCancel)
		third, err := trigger()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		equal(t, "second, cancelled", describe(t, p, second.ID).Status, checkpoint.StatusCancelled)
		equal(t, "third", describe(t, p, third.ID).Status, checkpoint.StatusRunning)

		put(engine.OverlapAllow)
		if err := p.PauseSchedule(ctx, "report", audit); err != nil {
			t.Fatal(err)
		}
		fourth, err := trigger()
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "third, allowed", describe(t, p, third.ID).Status, checkpoint.StatusRunning)
		equal(t, "fourth", describe(t, p, fourth.ID).Status, checkpoint.StatusRunning)
		if err := p.ResumeSchedule(ctx, "report", audit); err != nil {
			t.Fatal(err)
		}
		i := scheduleOf(t, p.Engine)
		equal(t, "next time", i.Next.UTC(), midnight.Add(time.Hour))
		equal(t, "started", i.Started, 4)

		put(engine.OverlapWait)
		for range 100 {
			if _, err := trigger(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := trigger(); !errors.Is(err, engine.ErrBusy) {
			t.Errorf("the 101st that waits: got %v, want ErrBusy", err)
		}
		agreeing(t, s)
	})
}

// SCH-9: with Jitter a time is started later, each in its own way, and before the next. After the last
// time there is nothing.
func TestJitterAndTheLastTime(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		p := boot(t, s, nightly, func(c *engine.Config) { c.PollInterval = time.Minute })
		putSchedule(t, p.Engine, hourly(nightly, func(s *engine.Schedule) {
			s.Jitter, s.Until = 24*time.Hour, midnight.Add(5*time.Hour)
		}))
		delays := map[time.Duration]bool{}
		for range 5 * 60 {
			time.Sleep(time.Minute)
			if l := scheduleOf(t, p.Engine).Last; l != nil {
				d := l.StartedAt.Sub(l.At)
				delays[d] = true
				if d < 0 || d >= time.Hour {
					t.Errorf("%s was started %v late", l.ID, d)
				}
			}
		}
		time.Sleep(48 * time.Hour)
		if len(delays) < 3 {
			t.Errorf("the delays are %v", delays)
		}
		i := scheduleOf(t, p.Engine)
		equal(t, "started and missed", fmt.Sprint(i.Started, i.Missed, i.Next.IsZero()), "4 0 true")
		equal(t, "entries", entries(t, s, "due:"), "[]")

		// The last time that there can be.
		putSchedule(t, p.Engine, hourly(nightly, func(s *engine.Schedule) { s.Every = 290 * 365 * 24 * time.Hour }))
		if i := scheduleOf(t, p.Engine); !i.Next.IsZero() {
			t.Errorf("the next time is %v", i.Next)
		}
		agreeing(t, s)
	})
}

// Within is counted from the moment to which Jitter delays a time: while an engine runs, no time is missed.
func TestJitterBeyondWithin(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		everyMinute := func(c *engine.Config) { c.PollInterval = time.Minute }
		p := boot(t, s, nightly, everyMinute)
		putSchedule(t, p.Engine, hourly(nightly, func(s *engine.Schedule) {
			s.Jitter, s.Within, s.Overlap = 50*time.Minute, 5*time.Minute, engine.OverlapAllow
		}))
		time.Sleep(48*time.Hour + 56*time.Minute)
		i := scheduleOf(t, p.Engine)
		equal(t, "started and missed", fmt.Sprint(i.Started, i.Missed), "48 0")
		p.kill()
		time.Sleep(3 * time.Hour) // for the last of three times it is six minutes too late or more
		p = boot(t, s, nightly, everyMinute)
		time.Sleep(time.Hour)
		i = scheduleOf(t, p.Engine)
		equal(t, "started and missed after an outage", fmt.Sprint(i.Started, i.Missed), "49 3")
		agreeing(t, s)
	})
}

// SCH-10: what waits for the end of the workflow before is started within a poll of it, however that
// ends. One that continues after a failure has not ended. The times that pass meanwhile are missed.
func TestOverlap(t *testing.T) {
	for name, c := range map[string]struct {
		overlap engine.Overlap
		end     func(p *process, id string) error // of the first workflow, 90 minutes after its time
		started []time.Duration
		skipped int64
	}{
		"skip":      {engine.OverlapSkip, nil, []time.Duration{1, 4}, 2},
		"wait":      {engine.OverlapWait, nil, []time.Duration{1, 3}, 0},
		"allow":     {engine.OverlapAllow, nil, []time.Duration{1, 2, 3, 4}, 0},
		"cancel":    {engine.OverlapCancel, nil, []time.Duration{1, 2, 3, 4}, 0},
		"terminate": {engine.OverlapTerminate, nil, []time.Duration{1, 2, 3, 4}, 0},
		"wait, and the first is terminated": {engine.OverlapWait, func(p *process, id string) error {
			return p.Terminate(ctx, id, audit)
		}, []time.Duration{1, 2, 4}, 0},
		"wait, and the first is purged": {engine.OverlapWait, func(p *process, id string) error {
			if err := p.Terminate(ctx, id, audit); err != nil {
				return err
			}
			return p.Purge(ctx, id, audit)
		}, []time.Duration{2, 4}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := new(memory.Store)
				long := flow("long", func(run *engine.Run) (string, error) { return "", run.Sleep(140*time.Minute + 30*time.Second) })
				p := boot(t, s, long, rareLeases)
				putSchedule(t, p.Engine, hourly(long, func(s *engine.Schedule) { s.Overlap = c.overlap }))
				time.Sleep(150*time.Minute + 30*time.Second)
				if c.end != nil {
					if err := c.end(p, "report@"+at(time.Hour)); err != nil {
						t.Fatal(err)
					}
					time.Sleep(11 * time.Second)
					equal(t, "within a poll", scheduleOf(t, p.Engine).Last.ID, "report@"+at(2*time.Hour))
				}
				time.Sleep(95 * time.Minute)
				if c.overlap == engine.OverlapWait && c.end == nil { // it has ended after 200 minutes and a half
					i := scheduleOf(t, p.Engine)
					if late := i.Last.StartedAt.Sub(midnight.Add(200*time.Minute + 30*time.Second)); late < 0 || late > 11*time.Second {
						t.Errorf("the one that waited was started %v after the end", late)
					}
				}
				if c.end != nil {
					time.Sleep(60 * time.Minute)
				}
				var want []string
				for _, h := range c.started {
					want = append(want, at(h*time.Hour))
				}
				equal(t, "times", scheduled(t, p.Engine), want)
				equal(t, "skipped", scheduleOf(t, p.Engine).Skipped, c.skipped)
				agreeing(t, s)
			})
		})
	}
}

// SCH-10: a workflow that was started with the id of the last one, after that was deleted, is not asked to end.
func TestOverlapEndsNoOtherWorkflow(t *testing.T) {
	for _, overlap := range []engine.Overlap{engine.OverlapCancel, engine.OverlapTerminate} {
		t.Run(string(overlap), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := new(memory.Store)
				long := flow("long", func(run *engine.Run) (string, error) { return "", run.Sleep(decade) })
				client := made(t, s, long)
				defer client.Close()
				var armed atomic.Bool
				last := "report@" + at(time.Hour)
				record := string(keys.Workflow(last))
				p := boot(t, &hooked{Storage: s, afterGet: func(key []byte) {
					if string(key) != record || !armed.CompareAndSwap(true, false) {
						return
					}
					if err := client.Delete(ctx, last, audit); err != nil {
						t.Error(err)
					}
					start(t, long, client, last, "")
				}}, long, rareLeases)
				putSchedule(t, p.Engine, hourly(long, func(s *engine.Schedule) { s.Overlap = overlap }))
				time.Sleep(2*time.Hour - time.Second)
				armed.Store(true)
				time.Sleep(time.Minute)
				if i := describe(t, client, last); armed.Load() || i.Status.Terminal() || i.Cancel != nil {
					t.Errorf("started anew: %t; %+v", !armed.Load(), i)
				}
				equal(t, "the next one", scheduleOf(t, client).Last.ID, "report@"+at(2*time.Hour))
				agreeing(t, s)
			})
		})
	}
}

// SCH-10: if the workflow before is damaged when it is to be asked to end, the schedule says so, and no poll fails.
func TestOverlapWithADamagedWorkflow(t *testing.T) {
	for _, overlap := range []engine.Overlap{engine.OverlapCancel, engine.OverlapTerminate} {
		t.Run(string(overlap), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s, log := new(memory.Store), new(lines)
				long := flow("long", func(run *engine.Run) (string, error) { return "", run.Sleep(decade) })
				var armed atomic.Bool
				last := keys.Workflow("report@" + at(time.Hour))
				p := boot(t, &hooked{Storage: s, afterGet: func(key []byte) {
					if bytes.Equal(key, last) && armed.CompareAndSwap(true, false) {
						put(t, s, last, []byte("damaged"))
					}
				}}, long, rareLeases, log.logger())
				putSchedule(t, p.Engine, hourly(long, func(s *engine.Schedule) { s.Overlap = overlap }))
				time.Sleep(2*time.Hour - time.Second)
				armed.Store(true)
				time.Sleep(10 * time.Minute)
				if i := scheduleOf(t, p.Engine); armed.Load() || i.Problem == "" || i.Started != 1 {
					t.Errorf("damaged: %t; %+v", !armed.Load(), i)
				}
				if failed := log.count("poll failed"); failed != 0 {
					t.Errorf("%d polls have failed", failed)
				}
			})
		})
	}
}

// SCH-10: a workflow that an operator has resumed after its failure has not ended.
func TestOverlapWithAResumedWorkflow(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		var fails atomic.Bool
		fails.Store(true)
		w := flow("w", func(run *engine.Run) (string, error) {
			if _, err := engine.Step(run, "s", func(context.Context) (int, error) {
				if fails.Load() {
					return 0, errBroke
				}
				return 0, nil
			}); err != nil {
				return "", err
			}
			return "", run.Sleep(3 * time.Hour)
		})
		p := boot(t, s, w, rareLeases)
		putSchedule(t, p.Engine, hourly(w, func(s *engine.Schedule) { s.Overlap = engine.OverlapSkip }))
		time.Sleep(90 * time.Minute)
		fails.Store(false)
		if err := p.Resume(ctx, "report@"+at(time.Hour), audit); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		i := scheduleOf(t, p.Engine)
		equal(t, "started and skipped", fmt.Sprint(i.Started, i.Skipped), "1 1")
	})
}

// SCH-11: the times that an engine with a clock ahead has dealt with are not started again. The
// schedule says so, and Resume goes back to now: then a time that has a workflow, or had one that was purged, is
// passed over.
func TestCursorAheadOfTheClock(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		var ahead wall
		ahead.jump(150 * time.Minute)
		early := bootAt(t, s, &ahead, nightly, leases)
		putSchedule(t, made(t, s), hourly(nightly, func(s *engine.Schedule) { s.Missed, s.Overlap = engine.MissedAll, engine.OverlapAllow }))
		time.Sleep(15 * time.Second)
		early.kill()
		p := boot(t, s, nightly, rareLeases)
		done := []string{at(time.Hour), at(2 * time.Hour)}
		equal(t, "started early", scheduled(t, p.Engine), done)
		time.Sleep(10 * time.Second)
		if i := scheduleOf(t, p.Engine); !strings.Contains(i.Problem, "clock is ahead") || i.Next.UTC() != midnight.Add(3*time.Hour) {
			t.Errorf("got %q, next %v", i.Problem, i.Next)
		}
		eventually(t, "the first has ended", func() bool { return describe(t, p, "report@"+done[0]).Status == checkpoint.StatusCompleted })
		if err := p.Purge(ctx, "report@"+done[0], audit); err != nil {
			t.Fatal(err)
		}
		if err := p.ResumeSchedule(ctx, "report", audit); err != nil {
			t.Fatal(err)
		}
		equal(t, "next", scheduleOf(t, p.Engine).Next.UTC(), midnight.Add(time.Hour))
		time.Sleep(200 * time.Minute)
		i := scheduleOf(t, p.Engine)
		equal(t, "started", i.Started, 3)
		equal(t, "problem", i.Problem, "")
		equal(t, "workflows", scheduled(t, p.Engine), []string{at(2 * time.Hour), at(3 * time.Hour)})
	})
}

// Times come again, because the schedule was set back to before them, and the workflow of the last of them is running: that is not the
// workflow before any of them, whatever Overlap says.
func TestTimeOfARunningWorkflowComesAgain(t *testing.T) {
	for _, overlap := range []engine.Overlap{engine.OverlapSkip, engine.OverlapWait, engine.OverlapCancel, engine.OverlapTerminate} {
		virtual(t, func(t *testing.T) {
			s := new(memory.Store)
			long := flow("long", func(run *engine.Run) (string, error) {
				if at, _ := run.Nominal(); at.Equal(midnight.Add(time.Hour)) {
					return "", nil
				}
				return "", run.Sleep(5 * time.Hour)
			})
			var ahead wall
			early := bootAt(t, s, &ahead, long, leases)
			putSchedule(t, made(t, s), hourly(long, func(s *engine.Schedule) { s.Overlap, s.Missed = overlap, engine.MissedAll }))
			for range 2 {
				ahead.jump(time.Hour + time.Minute)
				time.Sleep(15 * time.Second)
			}
			early.kill()
			p := boot(t, s, long, rareLeases)
			time.Sleep(10 * time.Second)
			equal(t, string(overlap)+": started early", scheduled(t, p.Engine), []string{at(time.Hour), at(2 * time.Hour)})
			if err := p.ResumeSchedule(ctx, "report", audit); err != nil {
				t.Fatal(err)
			}
			equal(t, "next", scheduleOf(t, p.Engine).Next.UTC(), midnight.Add(time.Hour))
			time.Sleep(130 * time.Minute)
			i := scheduleOf(t, p.Engine)
			equal(t, string(overlap)+": status, started, skipped", fmt.Sprintf("%s %d %d", describe(t, p, "report@"+at(2*time.Hour)).Status, i.Started, i.Skipped), "running 2 0")
			equal(t, string(overlap)+": next", i.Next.UTC(), midnight.Add(3*time.Hour))
		})
	}
}

// SCH-11: who resumes a schedule, and has a clock that is a little behind, takes nothing back: the time that was skipped is
// not started.
func TestResumeByAClockThatIsBehind(t *testing.T) {
	for _, paused := range []bool{false, true} {
		virtual(t, func(t *testing.T) {
			s := new(memory.Store)
			long := flow("long", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Hour + 5*time.Second) })
			p := boot(t, s, long, leases)
			putSchedule(t, p.Engine, hourly(long, func(s *engine.Schedule) { s.Overlap = engine.OverlapSkip }))
			time.Sleep(2*time.Hour + 20*time.Second)
			equal(t, "skipped", scheduleOf(t, p.Engine).Skipped, 1)
			if paused {
				if err := p.PauseSchedule(ctx, "report", audit); err != nil {
					t.Fatal(err)
				}
			}
			client := made(t, s)
			defer client.Close()
			engine.SetNow(client, behind(40*time.Second))
			if err := client.ResumeSchedule(ctx, "report", audit); err != nil {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Minute)
			i := scheduleOf(t, p.Engine)
			equal(t, "started, skipped and next", fmt.Sprint(i.Started, i.Skipped, i.Paused == nil, i.Next.UTC()), fmt.Sprint(1, 1, true, midnight.Add(3*time.Hour)))
			equal(t, "times", scheduled(t, p.Engine), []string{at(time.Hour)})
		})
	}
}

// SCH-11: an engine whose clock is ahead dies when it has started the first of the times that have passed by its clock. The
// others start the next one when it comes, and not when their clocks get to where that one was.
func TestAnEngineWhoseClockWasAheadDies(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		putSchedule(t, made(t, s), hourly(nightly, func(s *engine.Schedule) { s.Missed, s.Overlap = engine.MissedAll, engine.OverlapAllow }))
		var ahead wall
		ahead.jump(6*time.Hour + 30*time.Minute)
		f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			for _, op := range c.Batch.Ops {
				if bytes.Equal(op.Key, keys.Schedule("report")) {
					return storagetest.CrashAfter
				}
			}
			return storagetest.None
		})
		early := &process{Engine: made(t, f, nightly, leases), store: f}
		engine.SetNow(early.Engine, ahead.now)
		early.run()
		time.Sleep(15 * time.Second)
		early.kill()
		p := boot(t, s, nightly, rareLeases)
		equal(t, "started early", scheduled(t, p.Engine), []string{at(time.Hour)})
		time.Sleep(2*time.Hour + time.Minute)
		equal(t, "started in time", scheduled(t, p.Engine), []string{at(time.Hour), at(2 * time.Hour)})
		p.kill()
	})
}

// SCH-12: the same Put writes nothing, and a Put leaves the pause of an operator.
func TestSamePut(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		commits := 0
		e := made(t, s, nightly, func(c *engine.Config) { c.Events.Committed = func(engine.CommittedEvent) { commits++ } })
		full := hourly(nightly, func(s *engine.Schedule) {
			s.Every, s.Cron, s.Zone, s.From, s.Until = 0, []string{"0 2 * * *"}, "Europe/Berlin", midnight, midnight.Add(1000*time.Hour)
			s.Overlap, s.Missed, s.Within, s.Jitter = engine.OverlapWait, engine.MissedNone, time.Hour, time.Minute
			s.Start.Options.Labels = map[string]string{"team": "a"}
		})
		putSchedule(t, e, full)
		commits = 0
		putSchedule(t, e, full)
		equal(t, "commits of the same", commits, 0)
		if err := e.PauseSchedule(ctx, "report", audit); err != nil {
			t.Fatal(err)
		}
		commits = 0
		if err := e.PauseSchedule(ctx, "report", engine.Actor{Name: "ben", Reason: "too"}); err != nil {
			t.Fatal(err)
		}
		equal(t, "commits of a second pause", commits, 0)
		full.Jitter = time.Second
		putSchedule(t, e, full)
		i := scheduleOf(t, e)
		if i.Paused == nil || i.Paused.By != "ann" || i.Schedule.Jitter != time.Second {
			t.Errorf("got %+v", i)
		}
		got := i.Schedule
		equal(t, "input", string(got.Start.Input.(json.RawMessage)), `"in"`)
		full.Start, got.Start = nil, nil
		equal(t, "schedule", fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", full))
	})
}

// SCH-13: a time whose id belongs to another workflow is shown and passed over. One without an active
// deployment is tried every minute, also if an engine whose clock is ahead has tried first.
func TestStartsThatFail(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		p := boot(t, s, nightly, fiveMinutes, rareLeases)
		putSchedule(t, p.Engine, hourly(nightly, nil))
		start(t, fiveMinutes, p, "report@"+at(time.Hour), "")
		start(t, nightly, p, "report@"+at(2*time.Hour), "in") // as a backfill does
		time.Sleep(90 * time.Minute)
		i := scheduleOf(t, p.Engine)
		if !strings.Contains(i.Problem, "belongs to another workflow, of type slow") || i.Started != 0 || i.Next.UTC() != midnight.Add(2*time.Hour) || !i.Since.Equal(midnight.Add(time.Hour)) {
			t.Errorf("got %+v", i)
		}
		time.Sleep(2 * time.Hour)
		i = scheduleOf(t, p.Engine)
		equal(t, "afterwards", fmt.Sprint(i.Problem, i.Started), "1")
		p.kill()

		pinned := flow("pinned", nil)
		pinned.Func, pinned.Pinned = nightly.Func, true
		s = new(memory.Store)
		blue := func(c *engine.Config) { c.Deployment = "blue" }
		zero := time.Now().Truncate(time.Hour)
		putSchedule(t, made(t, s), hourly(pinned, nil))
		var ahead wall
		ahead.jump(3 * time.Hour)
		p = bootAt(t, s, &ahead, pinned, rareLeases, blue)
		time.Sleep(time.Minute)
		if i := scheduleOf(t, p.Engine); i.Problem == "" {
			t.Errorf("an engine whose clock is ahead has not tried: got %+v", i)
		}
		p.kill()
		var looks atomic.Int64
		p = bootOn(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Get" && bytes.Equal(c.Key, keys.Schedule("report")) {
				looks.Add(1)
			}
			return storagetest.None
		}), pinned, rareLeases, blue)
		time.Sleep(time.Until(zero.Add(70 * time.Minute)))
		if n := looks.Load(); n < 10 || n > 15 {
			t.Errorf("it has tried %d times in ten minutes", n)
		}
		if i := scheduleOf(t, p.Engine); !strings.Contains(i.Problem, "no deployment is active") || i.Started != 0 || !i.Next.Equal(zero.Add(time.Hour)) {
			t.Errorf("without a deployment: got %+v", i)
		}
		if err := p.Activate(ctx, "blue", audit); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute + 11*time.Second)
		if i := scheduleOf(t, p.Engine); i.Problem != "" || i.Started != 1 || !i.Last.At.Equal(zero.Add(time.Hour)) {
			t.Errorf("with a deployment: got %+v", i)
		}
	})
}

// SCH-14: with a queue a workflow is in its line from its start, and has not ended while it waits
// there.
func TestScheduleWithAQueue(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		p := boot(t, s, nightly, rareLeases) // it does not serve the queue
		putSchedule(t, p.Engine, hourly(nightly.With(engine.StartOptions{Queue: "q"}), nil))
		time.Sleep(150 * time.Minute)
		equal(t, "in line", len(entries(t, s, "op:q:")), 1)
		i := scheduleOf(t, p.Engine)
		equal(t, "started and skipped", fmt.Sprint(i.Started, i.Skipped), "1 1")
		server := boot(t, s, nightly, rareLeases, func(c *engine.Config) { c.Queues = []engine.Queue{{Name: "q", Concurrency: 1}} })
		result(t, nightly.Handle(server, "report@"+at(time.Hour)))
		time.Sleep(time.Hour)
		equal(t, "started", scheduleOf(t, p.Engine).Started, 2)
		agreeing(t, s)
	})
}

// SCH-15: what is no schedule is refused before anything is written.
func TestInvalidSchedules(t *testing.T) {
	s := new(memory.Store)
	e := made(t, s, nightly)
	before := len(entries(t, s, ""))
	for name, change := range map[string]func(s *engine.Schedule){
		"no id":                  func(s *engine.Schedule) { s.ID = "" },
		"a long id":              func(s *engine.Schedule) { s.ID = strings.Repeat("x", 151) },
		"an id that is no UTF-8": func(s *engine.Schedule) { s.ID = "\xff" },
		"no start":               func(s *engine.Schedule) { s.Start = nil },
		"a start with an id":     func(s *engine.Schedule) { s.Start.ID = "x" },
		"a start that is new":    func(s *engine.Schedule) { s.Start.New = true },
		"a start at a time":      func(s *engine.Schedule) { s.Start.Options.StartAt = midnight },
		"no workflow":            func(s *engine.Schedule) { s.Start.Workflow = "" },
		"no JSON":                func(s *engine.Schedule) { s.Start.Input = func() {} },
		"a large input":          func(s *engine.Schedule) { s.Start.Input = strings.Repeat("x", 300<<10) },
		"a label of weft":        func(s *engine.Schedule) { s.Start.Options.Labels = map[string]string{"weft.schedule": "x"} },
		"no times":               func(s *engine.Schedule) { s.Every = 0 },
		"both":                   func(s *engine.Schedule) { s.Cron = []string{"* * * * *"} },
		"less than a second":     func(s *engine.Schedule) { s.Every = time.Millisecond },
		"a fraction of a second": func(s *engine.Schedule) { s.Every = 1500 * time.Millisecond },
		"a negative interval":    func(s *engine.Schedule) { s.Every = -time.Hour },
		"an offset too large":    func(s *engine.Schedule) { s.Offset = time.Hour },
		"a zone and an interval": func(s *engine.Schedule) { s.Zone = "Europe/Berlin" },
		"no time between":        func(s *engine.Schedule) { s.From, s.Until = midnight, midnight },
		"from before 1970":       func(s *engine.Schedule) { s.From = time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC) },
		"an unknown overlap":     func(s *engine.Schedule) { s.Overlap = "x" },
		"an unknown missed":      func(s *engine.Schedule) { s.Missed = "x" },
		"negative jitter":        func(s *engine.Schedule) { s.Jitter = -1 },
		"a negative within":      func(s *engine.Schedule) { s.Within = -1 },
		"an unknown zone":        func(s *engine.Schedule) { s.Every, s.Cron, s.Zone = 0, []string{"* * * * *"}, "Europe/Atlantis" },
		"the zone of a machine":  func(s *engine.Schedule) { s.Every, s.Cron, s.Zone = 0, []string{"* * * * *"}, "Local" },
	} {
		if err := e.PutSchedule(ctx, hourly(nightly, change), audit); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
	for _, text := range []string{
		"", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "x * * * *",
		"0 0 30 2 *", "0 0 31 4,6,9,11 *", "TZ=Europe/Berlin 0 0 * * *", "CRON_TZ=UTC 0 0 * * *", "@every 1h", "@reboot", "H * * * *", "0 0 L * *",
	} {
		err := e.PutSchedule(ctx, hourly(nightly, func(s *engine.Schedule) { s.Every, s.Cron = 0, []string{"@daily", text} }), audit)
		if !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", text, err)
		}
		if _, err := (engine.Schedule{Cron: []string{text}}).Next(midnight, 1); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("Next of %q: got %v, want ErrInvalid", text, err)
		}
	}
	if err := e.PutSchedule(ctx, hourly(nightly, nil), engine.Actor{Name: "ann"}); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("without a reason: got %v", err)
	}
	equal(t, "records", len(entries(t, s, "")), before)
	for name, err := range map[string]error{
		"pause":  e.PauseSchedule(ctx, "x", audit),
		"resume": e.ResumeSchedule(ctx, "x", audit),
		"delete": e.DeleteSchedule(ctx, "x", audit),
	} {
		if !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("%s: got %v, want ErrNotFound", name, err)
		}
	}
	if _, err := e.Trigger(ctx, "x", audit); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("trigger: got %v, want ErrNotFound", err)
	}
}

// SCH-15: an engine whose machine does not have the zone leaves the schedule alone, and others serve
// the rest.
func TestScheduleOfAnUnknownZone(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		p := boot(t, s, nightly, rareLeases)
		putSchedule(t, p.Engine, hourly(nightly, func(s *engine.Schedule) { s.Every, s.Cron, s.Zone = 0, []string{"0 * * * *"}, "Europe/Berlin" }))
		rezone(t, s, "Europe/Atlantis")
		raw := get(t, s, keys.Schedule("report"))
		time.Sleep(150 * time.Minute)
		equal(t, "record", string(get(t, s, keys.Schedule("report"))), string(raw))
		if i := scheduleOf(t, p.Engine); !strings.Contains(i.Problem, "Europe/Atlantis") {
			t.Errorf("got %q", i.Problem)
		}
		if _, err := p.Trigger(ctx, "report", audit); !errors.Is(err, engine.ErrNotApplicable) {
			t.Errorf("trigger: got %v, want ErrNotApplicable", err)
		}
		rezone(t, s, "Europe/Berlin")
		time.Sleep(11 * time.Second)
		equal(t, "then", scheduled(t, p.Engine), []string{at(2 * time.Hour)})
	})
}

// rezone puts the schedule report into another zone, as an engine does that has other zone data.
func rezone(t *testing.T, s storage.Storage, zone string) {
	key := keys.Schedule("report")
	r, err := schedule.Open(storage.Entry{Key: key, Value: get(t, s, key)})
	if err != nil {
		t.Fatal(err)
	}
	r.Zone = zone
	raw, err := record.Seal(key, schedule.Version, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, key, raw)
}

// A damaged schedule starts nothing, is listed with its error, does not stand in the way of others,
// and can be deleted.
func TestDamagedSchedule(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		p := boot(t, s, nightly, rareLeases)
		putSchedule(t, p.Engine, hourly(nightly, func(s *engine.Schedule) { s.ID = "damaged" }))
		putSchedule(t, p.Engine, hourly(nightly, nil))
		put(t, s, keys.Schedule("damaged"), []byte("x"))
		time.Sleep(90 * time.Minute)
		equal(t, "the other", scheduled(t, p.Engine), []string{at(time.Hour)})
		var ids []string
		for i, err := range p.Schedules(ctx, "") {
			if (err != nil) != (i.Schedule.ID == "damaged") || err != nil && !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("%q: %v", i.Schedule.ID, err)
			}
			ids = append(ids, i.Schedule.ID)
		}
		equal(t, "listed", ids, "[damaged report]")
		if err := p.PutSchedule(ctx, hourly(nightly, func(s *engine.Schedule) { s.ID = "damaged" }), audit); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("put: got %v", err)
		}
		if err := p.DeleteSchedule(ctx, "damaged", audit); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		equal(t, "entries", len(entries(t, s, "due:")), 1)
		equal(t, "left", scheduleOf(t, p.Engine).Schedule.ID, "report")
	})
}
