package engine_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/storagetest"
)

// A day takes no time where time is virtual, and exactly a day where it is not.
func TestSleepADay(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("w", func(run *engine.Run) (string, error) {
			before := run.Now()
			err := run.Sleep(24 * time.Hour)
			return sprint(run.Now().Sub(before) >= 24*time.Hour), err
		})
		p := boot(t, fresh(t), wf, func(c *engine.Config) { c.PollInterval = time.Minute })
		begun := time.Now()
		h := start(t, wf, p, "o", "")
		time.Sleep(time.Hour)
		if w := describe(t, p, "o").Waiting; len(w) != 1 || w[0] != "timer until "+begun.Add(24*time.Hour).UTC().Format(time.RFC3339) {
			t.Errorf("waiting for %q", w)
		}
		if got, err := h.Result(ctx); got != "true" || err != nil || time.Since(begun) != 24*time.Hour {
			t.Errorf("%s, %v after %v, want true after a day", got, err, time.Since(begun))
		}
		p.stop(t)
	})
}

// TM4: zero, negative and huge durations.
func TestSleepOfAnyLength(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("w", func(run *engine.Run) (string, error) {
			for _, d := range []time.Duration{0, -1, -time.Hour, math.MinInt64, time.Nanosecond} {
				if err := run.Sleep(d); err != nil {
					return "", err
				}
			}
			return "", run.Sleep(math.MaxInt64)
		})
		p := boot(t, fresh(t), wf, func(c *engine.Config) { c.PollInterval = time.Hour })
		begun := time.Now()
		start(t, wf, p, "o", "")
		eventually(t, "the last sleep begins", func() bool { return len(historyOf(t, p.Engine, "o")) == 6 })
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the short ones took %v", took)
		}
		time.Sleep(1000 * 24 * time.Hour)
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusRunning {
			t.Errorf("after three years of 292: %s", i.Status)
		}
	})
}

// TM1, TM2: a sleep goes through restarts and is not longer for it; one that was
// due while nobody was there is over at once.
func TestSleepOverARestart(t *testing.T) {
	for _, c := range []struct {
		name       string
		down, want time.Duration
	}{
		{"due later", 10 * time.Minute, 60 * time.Minute},
		{"due meanwhile", 3 * time.Hour, 3*time.Hour + 30*time.Minute},
	} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			var woke []time.Duration
			wf := flow("w", func(run *engine.Run) (string, error) {
				began := run.Now()
				if err := run.Sleep(time.Hour); err != nil {
					return "", err
				}
				woke = append(woke, run.Now().Sub(began))
				return "", nil
			})
			p := boot(t, s, wf)
			begun := time.Now()
			start(t, wf, p, "o", "")
			time.Sleep(30 * time.Minute)
			p.kill()
			time.Sleep(c.down)
			p = boot(t, s, wf)
			result(t, wf.Handle(p, "o"))
			took := time.Since(begun)
			if took < c.want || took > c.want+2*time.Second {
				t.Errorf("%s: over after %v, want %v", c.name, took, c.want)
			}
			if len(woke) != 1 || woke[0] < time.Hour {
				t.Errorf("%s: slept %v, want at least an hour", c.name, woke)
			}
		})
	}
}

// A wall clock that its test sets.
type wall struct {
	mu sync.Mutex
	by time.Duration
}

func (w *wall) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.by).Round(0)
}

func (w *wall) jump(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.by += d
}

// TM4, OP-34: the wall clock goes forward and a timer is due at once; it goes
// back, and nothing fires twice or early, and recorded time does not go back.
func TestWallClockJumps(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var clock wall
		wf := flow("w", func(run *engine.Run) (string, error) {
			for range 3 {
				if err := run.Sleep(time.Hour); err != nil {
					return "", err
				}
			}
			return "", nil
		})
		f := storagetest.NewFaulty(fresh(t), nil)
		e := made(t, f, wf)
		engine.SetNow(e, clock.now)
		p := &process{Engine: e, store: f}
		p.run()
		defer p.kill()
		h := start(t, wf, e, "o", "")
		fired := func() int {
			n := 0
			for _, k := range kinds(historyOf(t, e, "o")) {
				if k == checkpoint.KindFired {
					n++
				}
			}
			return n
		}
		begun := time.Now()
		time.Sleep(time.Minute)
		clock.jump(2 * time.Hour)
		time.Sleep(2 * time.Second)
		if fired() != 1 {
			t.Errorf("%d timers fired after a jump forward, want 1", fired())
		}
		clock.jump(-5 * time.Hour)
		time.Sleep(time.Minute)
		if fired() != 1 {
			t.Errorf("%d timers fired after a jump back, want 1", fired())
		}
		clock.jump(5 * time.Hour)
		if _, err := h.Result(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took < 2*time.Hour || took > 2*time.Hour+5*time.Minute {
			t.Errorf("it took %v", took)
		}
		var last time.Time
		for _, c := range historyOf(t, e, "o") {
			if c.Time.Before(last) {
				t.Errorf("checkpoint %d is of %v, the one before of %v", c.Number, c.Time, last)
			}
			last = c.Time
		}
	})
}

// TM2, TM4: the wall clock is wrong between two looks of the poll, just when a timer is
// set anew. It fires within a poll of the clock's return, and not as much later as the
// clock was wrong.
func TestWallClockIsWrongForAMoment(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var clock wall
		wf := flow("w", func(run *engine.Run) (string, error) { return "", run.Sleep(15 * time.Second) })
		f := storagetest.NewFaulty(fresh(t), nil)
		e := made(t, f, wf, func(c *engine.Config) { c.PollInterval = 10 * time.Second })
		engine.SetNow(e, clock.now)
		p := &process{Engine: e, store: f}
		p.run()
		defer p.kill()
		time.Sleep(time.Second)
		begun := time.Now()
		h := start(t, wf, e, "o", "")
		time.Sleep(14 * time.Second)
		clock.jump(-time.Hour)
		time.Sleep(2 * time.Second) // it wakes, and is not due
		clock.jump(time.Hour)
		result(t, h)
		if took := time.Since(begun); took < 15*time.Second || took > 30*time.Second {
			t.Errorf("it took %v, want 15s and a poll at most", took)
		}
	})
}

// What may differ between two runs of a function and comes through run does not
// differ on replay; the logger tells each line once.
func TestReplaySeesTheSame(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var log lines
		var seen [][]string
		wf := flow("w", func(run *engine.Run) (string, error) {
			var all []string
			note := func() {
				all = append(all, run.ID(), run.Now().Format(time.RFC3339Nano), sprint(run.Random().Uint64(), run.Random().IntN(1000)))
			}
			note()
			run.Logger().With("k", "v").WithGroup("g").Info("line-0")
			for range 3 {
				if _, err := engine.Step(run, "s", func(context.Context) (int, error) { time.Sleep(time.Second); return 1, nil }); err != nil {
					return "", err
				}
				note()
			}
			run.Logger().Info("line-1")
			seen = append(seen, all)
			if err := run.Sleep(10 * time.Minute); err != nil {
				return "", err
			}
			run.Logger().Info("line-2")
			return "", nil
		})
		p := boot(t, s, wf, log.logger())
		start(t, wf, p, "o", "")
		for range 2 {
			time.Sleep(time.Minute)
			p.kill()
			p = boot(t, s, wf, log.logger())
		}
		result(t, wf.Handle(p, "o"))
		if len(seen) != 3 || !slices.Equal(seen[0], seen[1]) || !slices.Equal(seen[0], seen[2]) {
			t.Errorf("three replays saw\n%q", seen)
		}
		for _, l := range []string{"line-0", "line-1", "line-2"} {
			if n := log.count(l); n != 1 {
				t.Errorf("%s is logged %d times, want once", l, n)
			}
		}
		var other []string
		wf2 := flow("w2", func(run *engine.Run) (string, error) {
			other = append(other, sprint(run.Random().Uint64()))
			return "", nil
		})
		p.stop(t)
		p = boot(t, s, wf2)
		result(t, start(t, wf2, p, "a", ""))
		result(t, start(t, wf2, p, "b", ""))
		if other[0] == other[1] {
			t.Errorf("two runs have the same chance: %v", other)
		}
	})
}

// What code says between two events of one checkpoint is said live.
func TestLoggerBetweenEventsOfOneCheckpoint(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var log lines
		wf := flow("w", func(run *engine.Run) (string, error) {
			_, err := engine.Step(run, "s", func(context.Context) (int, error) { time.Sleep(time.Minute); return 1, nil })
			run.Logger().Info("after the step")
			return "", errors.Join(err, run.Sleep(time.Hour))
		})
		inner := fresh(t)
		client := made(t, inner)
		defer client.Close()
		asked := false
		f := storagetest.NewFaulty(inner, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Commit" && !asked && len(c.Batch.If) == 3 && len(c.Batch.Ops) == 1 { // that of the step's result
				asked = true
				if err := client.Cancel(ctx, "o", engine.Actor{Reason: "enough"}); err != nil {
					t.Error(err)
				}
			}
			return storagetest.None
		})
		p := bootOn(t, f, wf, log.logger())
		h := start(t, wf, p, "o", "")
		if _, err := outcome(h); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("%v, want ErrCancelled", err)
		}
		together := false
		for _, c := range historyOf(t, p.Engine, "o") {
			together = together || len(c.Events) == 2
		}
		if n := log.count("after the step"); !together || n != 1 {
			t.Errorf("two events in one checkpoint: %v; logged %d times, want once", together, n)
		}
	})
}
