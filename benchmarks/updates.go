package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

// updated measures updates against signals: each workflow waits, gets one, and what is counted is over
// when it is done with it.
var updated = &Workload{Name: "w12", Title: "W12: workflows that wait for one update, against one signal", Stores: []string{"sqlite", "bolt", "pebble", "postgres"}, Parts: only(updates)}

func updates(ctx context.Context, c *Child) error {
	s, err := openStore(ctx, c.site)
	if err != nil {
		return err
	}
	defer s.Close()
	next := &engine.Update[int, int]{Name: "next"}
	goAhead := &signal.Signal[string]{Name: "go ahead"}
	waits := &engine.Workflow[string, string]{Name: "waits", Func: func(run *engine.Run, _ string) (string, error) {
		n := 0
		if err := next.Handle(run, nil, func(_ *engine.Run, more int) (int, error) { n += more; return n, nil }); err != nil {
			return "", err
		}
		c.probe.Park()
		return goAhead.Receive(run)
	}}
	e, err := engine.New(engine.Config{Storage: s, Workflows: []engine.Definition{waits}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer e.Close()
	return whileRunning(ctx, e, func() error {
		// park starts workflows and waits until all of them wait.
		park := func(prefix string, n int) error {
			c.probe.reset(0, 0)
			if err := each(ctx, n, crowd, func(i int) error { _, err := waits.Start(ctx, e, fmt.Sprint(prefix, i), ""); return err }); err != nil {
				return err
			}
			return until(ctx, func() bool { return c.probe.parked.Load() >= int64(n) })
		}
		send := func(id string) error { _, err := goAhead.Send(ctx, e, id, "done", nil); return err }
		wait := func(id string) error { _, err := waits.Handle(e, id).Result(ctx); return err }
		call := func(id string) error {
			n, err := next.Call(ctx, e, id, 1, nil)
			if err == nil && n != 1 {
				err = fmt.Errorf("the update of %q has the answer %d", id, n)
			}
			return err
		}
		burst := func(prefix string, do ...func(string) error) (took time.Duration, _ error) {
			began := time.Now()
			for _, do := range do {
				if err := each(ctx, crowd, crowd, func(i int) error { return do(fmt.Sprint(prefix, i)) }); err != nil {
					return 0, err
				}
			}
			return time.Since(began), nil
		}
		var signalling, updating time.Duration
		for i := range c.Bursts + 1 { // the first one warms up
			prefix := fmt.Sprint("burst-", i, "-")
			if err := park(prefix, crowd); err != nil {
				return err
			}
			u, err := burst(prefix, call)
			if err != nil {
				return err
			}
			s, err := burst(prefix, send, wait)
			if err != nil {
				return err
			}
			if i > 0 {
				updating, signalling = updating+u, signalling+s
			}
		}
		n := float64(crowd * c.Bursts)
		c.report("signals/s", n/signalling.Seconds())
		c.report("updates/s", n/updating.Seconds())
		c.report("updates of signals", signalling.Seconds()/updating.Seconds())

		var answers []time.Duration
		done, err := c.sample(func(id string) (time.Duration, error) {
			err := park(id+"-", 1)
			id += "-0"
			time.Sleep(lowLoad)
			began := time.Now()
			if err == nil {
				err = call(id)
			}
			answers = append(answers, time.Since(began))
			time.Sleep(lowLoad)
			began = time.Now()
			if err == nil {
				err = send(id)
			}
			if err == nil {
				err = wait(id)
			}
			return time.Since(began), err
		})
		if err != nil {
			return err
		}
		c.reportLatency("signal to done", done)
		c.reportLatency("update to answer", answers)
		c.report("p50 of update, of signal", milliseconds(answers[len(answers)/2])/milliseconds(done[len(done)/2]))
		return nil
	})
}
