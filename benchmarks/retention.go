package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft/engine"
)

// retained measures how fast small workflows are started, and how fast retention removes them; and
// the steps of other workflows, alone and beside that.
var retained = &Workload{Name: "r1", Title: "R1: small workflows are removed when they are old, alone and beside W1", Parts: only(retain)}

func retain(ctx context.Context, c *Child) (err error) {
	s, err := openStore(ctx, c.site)
	if err != nil {
		return err
	}
	defer s.Close()
	small := &engine.Workflow[string, string]{Name: "small", Func: func(*engine.Run, string) (string, error) { return "", nil }}
	var steps atomic.Int64
	shaped := shapedWorkflow(c.probe)

	// with calls f with an engine that keeps small workflows for so long, and for ever if that is 0.
	with := func(kept time.Duration, f func(e *engine.Engine, removed *atomic.Int64) error) error {
		var removed atomic.Int64
		short := *small
		short.Retention.Completed = kept
		e, err := engine.New(engine.Config{
			Storage:   s,
			Workflows: []engine.Definition{&short, shaped},
			Logger:    slog.New(slog.DiscardHandler),
			Events:    engine.Events{Removed: func(engine.RemovedEvent) { removed.Add(1) }},
		})
		if err != nil {
			return err
		}
		defer e.Close()
		return whileRunning(ctx, e, func() error { return f(e, &removed) })
	}
	round := 0
	fill := func(e *engine.Engine) (n int64, took time.Duration, _ error) {
		round++
		began := time.Now()
		var next atomic.Int64
		err := each(ctx, crowd, crowd, func(int) error {
			for time.Since(began) < c.Load {
				h, err := small.Start(ctx, e, fmt.Sprintf("small-%d-%09d", round, next.Add(1)), "")
				if err != nil {
					return err
				}
				if _, err := h.Result(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		return next.Load(), time.Since(began), err
	}
	work := func(e *engine.Engine, name string, more func() bool) (perSecond float64, _ error) {
		began, before := time.Now(), steps.Load()
		var next atomic.Int64
		err := each(ctx, crowd, crowd, func(int) error {
			for more() {
				h, err := shaped.Start(ctx, e, fmt.Sprintf("%s-%09d", name, next.Add(1)), Shape{Steps: stepsEach})
				if err != nil {
					return err
				}
				if _, err := h.Result(ctx); err != nil {
					return err
				}
				steps.Add(stepsEach)
			}
			return nil
		})
		return float64(steps.Load()-before) / time.Since(began).Seconds(), err
	}

	var n int64
	var starts, alone float64
	err = with(0, func(e *engine.Engine, _ *atomic.Int64) error {
		began := time.Now()
		if _, err := work(e, "warm", func() bool { return time.Since(began) < c.Warm }); err != nil {
			return err
		}
		var took time.Duration
		if n, took, err = fill(e); err != nil {
			return err
		}
		starts = float64(n) / took.Seconds()
		began = time.Now()
		alone, err = work(e, "alone", func() bool { return time.Since(began) < c.Load })
		return err
	})
	if err != nil {
		return err
	}
	c.report("starts/s", starts)
	c.report("steps/s, alone", alone)

	all := func(removed *atomic.Int64) bool { return removed.Load() >= n }
	err = with(time.Millisecond, func(e *engine.Engine, removed *atomic.Int64) error {
		if err := until(ctx, func() bool { return removed.Load() > 0 }); err != nil {
			return err
		}
		began, before := time.Now(), removed.Load()
		err := until(ctx, func() bool { return all(removed) })
		rate := float64(removed.Load()-before) / time.Since(began).Seconds()
		c.report("removed/s, alone", rate)
		c.report("removed of started", rate/starts)
		return err
	})
	if err != nil {
		return err
	}

	if err := with(0, func(e *engine.Engine, _ *atomic.Int64) error { n, _, err = fill(e); return err }); err != nil {
		return err
	}
	return with(time.Millisecond, func(e *engine.Engine, removed *atomic.Int64) error {
		if err := until(ctx, func() bool { return removed.Load() > 0 }); err != nil {
			return err
		}
		began, before := time.Now(), removed.Load()
		beside, err := work(e, "beside", func() bool { return !all(removed) && time.Since(began) < 2*c.Load })
		c.report("removed/s, beside", float64(removed.Load()-before)/time.Since(began).Seconds())
		c.report("steps/s, beside", beside)
		c.report("steps beside of alone", beside/alone)
		return err
	})
}
