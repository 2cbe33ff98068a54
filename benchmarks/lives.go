package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage"
)

// continued measures a workflow that continues as new: against one that does not, and whether it
// takes more of anything the longer it goes on.
var continued = &Workload{Name: "w11", Title: "W11: one workflow of many activities in sequence, which continues as new after every 500", Stores: []string{"sqlite", "bolt", "pebble", "postgres"}, Parts: only(lives), Patience: time.Hour}

// lifeSteps is how many activities a life has.
const lifeSteps = 500

// A Way is what a workflow that may continue has still to do.
type Way struct {
	Left      int
	Continues bool
}

func lives(ctx context.Context, c *Child) error {
	s, err := openStore(ctx, c.site)
	if err != nil {
		return err
	}
	defer s.Close()
	var done atomic.Int64
	step := &activity.Activity[int, int]{Name: "step", Run: func(context.Context, int) (int, error) { return int(done.Add(1)), nil }}
	way := &engine.Workflow[Way, int]{Name: "way", Func: func(run *engine.Run, w Way) (n int, err error) {
		for i := 0; w.Left > 0; i++ {
			if w.Continues && i == lifeSteps {
				return 0, engine.ContinueAsNew(run, w)
			}
			if n, err = step.Do(run, w.Left); err != nil {
				return n, err
			}
			w.Left--
		}
		return n, nil
	}}
	e, err := engine.New(engine.Config{Storage: s, Workflows: []engine.Definition{way}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer e.Close()
	return whileRunning(ctx, e, func() error { return live(ctx, c, s, e, way, &done) })
}

// live measures way, of which e executes the activities that done counts.
func live(ctx context.Context, c *Child, s storage.Storage, e *engine.Engine, way *engine.Workflow[Way, int], done *atomic.Int64) error {
	runs := 0
	start := func(w Way) (*engine.Handle[int], error) {
		done.Store(0)
		runs++
		return way.Start(ctx, e, fmt.Sprint("way-", runs), w)
	}
	rate := func(w Way) (float64, error) {
		began := time.Now()
		h, err := start(w)
		if err == nil {
			_, err = h.Result(ctx)
		}
		return float64(w.Left) / time.Since(began).Seconds(), err
	}

	if _, err := rate(Way{c.Steps, true}); err != nil { // warms up
		return err
	}
	var with, without []float64
	for range 3 {
		for _, continues := range []bool{true, false} {
			r, err := rate(Way{c.Steps, continues})
			if err != nil {
				return err
			}
			if continues {
				with = append(with, r)
			} else {
				without = append(without, r)
			}
		}
	}
	c.report("steps/s, not continued", median(without))
	c.report("steps/s, continued", median(with))
	c.report("continued of not continued", median(with)/median(without))

	h, err := start(Way{c.Lived, true})
	if err != nil {
		return err
	}
	// at waits until so many activities are done, and returns the bytes of the heap and the rows of the store.
	at := func(n int) (heap, rows float64, when time.Time, _ error) {
		if err := until(ctx, func() bool { return done.Load() >= int64(n) }); err != nil {
			return 0, 0, when, err
		}
		when = time.Now()
		heap = math.Inf(1) // with as little as can be of what the engine allocates while it is measured
		for range 5 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			heap = min(heap, float64(m.HeapAlloc))
		}
		for _, err := range storage.All(ctx, s, storage.Range{Limit: 10_000}) {
			if err != nil {
				return 0, 0, when, err
			}
			rows++
		}
		return heap, rows, when, nil
	}
	heap, rows, first, err := at(c.Lived / 10)
	if err != nil {
		return err
	}
	_, _, second, err := at(c.Lived * 2 / 10)
	if err != nil {
		return err
	}
	lastHeap, lastRows, ninth, err := at(c.Lived * 9 / 10)
	if err != nil {
		return err
	}
	if _, err := h.Result(ctx); err != nil {
		return err
	}
	c.report("steps", float64(c.Lived))
	c.report("last tenth's rate of the second's", second.Sub(first).Seconds()/time.Since(ninth).Seconds())
	c.report("heap, last of first", lastHeap/heap)
	c.report("rows, last of first", lastRows/rows)
	return nil
}
