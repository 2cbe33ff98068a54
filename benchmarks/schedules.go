package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage"
)

// scheduled measures what schedules cost that have nothing to do, and how fast they start workflows
// when all are due at once, against as many plain starts.
var scheduled = &Workload{Name: "w10", Title: "W10: many schedules, idle and all due at once", Stores: []string{"sqlite", "bolt", "pebble", "postgres"}, Parts: only(schedules)}

// A readCounter counts reads of a store.
type readCounter struct {
	storage.Storage
	reads atomic.Int64
}

func (s *readCounter) Unwrap() storage.Storage { return s.Storage }

func (s *readCounter) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.reads.Add(1)
	return s.Storage.Get(ctx, key)
}

func (s *readCounter) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	s.reads.Add(1)
	return s.Storage.Scan(ctx, r)
}

func schedules(ctx context.Context, c *Child) error {
	inner, err := openStore(ctx, c.site)
	if err != nil {
		return err
	}
	defer inner.Close()
	s := &readCounter{Storage: inner}
	n := c.Listed / 10 // 10,000
	var executed atomic.Int64
	quick := &engine.Workflow[string, string]{Name: "quick", Func: func(*engine.Run, string) (string, error) {
		executed.Add(1)
		return "", nil
	}}
	by := engine.Actor{Name: "benchmarks", Reason: "to measure"}
	e, err := engine.New(engine.Config{Storage: s, Workflows: []engine.Definition{quick}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer e.Close()
	// completed waits until so many workflows have completed. It asks the store once they were executed,
	// since counting them costs much.
	completed := func(want int) error {
		if err := until(ctx, func() bool { return executed.Load() >= int64(want) }); err != nil {
			return err
		}
		for {
			got, _, err := e.Count(ctx, engine.Filter{Workflow: "quick", Status: checkpoint.StatusCompleted}, want)
			if err != nil || got >= want {
				return err
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	put := func(name string, change func(*engine.Schedule)) error {
		return each(ctx, n, crowd, func(i int) error {
			schedule := engine.Schedule{ID: fmt.Sprint(name, "-", i), Start: quick.Request("", ""), Every: 10_000 * time.Hour}
			change(&schedule)
			return e.PutSchedule(ctx, schedule, by)
		})
	}
	idle := func(what string) error {
		return whileRunning(ctx, e, func() error {
			time.Sleep(2 * time.Second) // it has started
			before := s.reads.Load()
			time.Sleep(c.Idle)
			c.report("idle reads/s, "+what, float64(s.reads.Load()-before)/c.Idle.Seconds())
			return nil
		})
	}
	// An engine looks more often for a while after another one has left. So another one leaves before
	// either measurement.
	if err := idle("first engine"); err != nil {
		return err
	}
	if err := idle("no schedules"); err != nil {
		return err
	}
	if err := put("idle", func(*engine.Schedule) {}); err != nil {
		return err
	}
	if err := idle(fmt.Sprintf("%d schedules", n)); err != nil {
		return err
	}
	if err := whileRunning(ctx, e, func() error {
		began := time.Now()
		if err := each(ctx, n, crowd, func(i int) error {
			_, err := quick.Start(ctx, e, fmt.Sprint("plain-", i), "")
			return err
		}); err != nil {
			return err
		}
		if err := completed(n); err != nil {
			return err
		}
		c.report("plain starts/s", float64(n)/time.Since(began).Seconds())
		return nil
	}); err != nil {
		return err
	}
	// All times of each pass before an engine runs, and the last one of them is started.
	last := time.Now().Truncate(time.Second).Add(2*time.Second + time.Duration(n)*2*time.Millisecond)
	if err := put("due", func(s *engine.Schedule) { s.Every, s.Until = time.Second, last }); err != nil {
		return err
	}
	if late := time.Since(last); late > -time.Second {
		return fmt.Errorf("the schedules were put %v after their last time but one: some have none", late+time.Second)
	}
	time.Sleep(time.Until(last) + time.Second)
	return whileRunning(ctx, e, func() error {
		began := time.Now()
		if err := completed(2 * n); err != nil {
			return err
		}
		c.report("starts/s of schedules, all due at once", float64(n)/time.Since(began).Seconds())
		return nil
	})
}

// whileRunning calls f while e executes workflows, and waits until e has stopped.
func whileRunning(ctx context.Context, e *engine.Engine, f func() error) error {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	defer func() { stop(); <-ended }()
	return f()
}
