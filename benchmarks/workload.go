package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Workload is something to do, and what to measure of it. Each of its parts
// runs in a process of its own, on what the part before left.
type Workload struct {
	Name   string
	Title  string
	Stores []string // on which it means something; nil: all
	Parts  []func(ctx context.Context, c *Child) error

	// Beside is what another process does that a part hires. nil: none does.
	Beside func(ctx context.Context, c *Child) error

	Patience time.Duration // how long a part may take; 0: patience
}

// A Size says how much of a workload is done.
type Size struct {
	Warm, Load, Idle time.Duration
	Bursts           int // of signals to 200 workflows at once
	Samples          int // of a latency
	Repeat           int // how often a short workload is done
	Steps            int // of the long workflow
	Parked, Woken    int // workflows that wait, and how many of them are signalled after a restart
	Recorded         int // workflows whose rows are those of the grouped raw limit
	Jobs             int
	Listed           int // workflows in the larger of two stores with lists
	Lived            int // activities of a workflow that continues as new
}

var (
	full  = Size{Warm: time.Second, Load: 4 * time.Second, Idle: 5 * time.Second, Bursts: 25, Samples: 300, Repeat: 15, Steps: 5000, Parked: 10000, Woken: 5000, Recorded: 2000, Jobs: 50000, Listed: 100000, Lived: 1000000}
	quick = Size{Warm: 300 * time.Millisecond, Load: time.Second, Idle: time.Second, Bursts: 5, Samples: 60, Repeat: 5, Steps: 5000, Parked: 2000, Woken: 1000, Recorded: 2000, Jobs: 10000, Listed: 20000, Lived: 20000}
)

const crowd = 200 // callers at once, where a workload has many

func only(f func(context.Context, *Child) error) []func(context.Context, *Child) error {
	return []func(context.Context, *Child) error{f}
}

// The workloads W1 to W6. An activity does nothing and returns a short string.
var (
	stepsOne  = &Workload{Name: "w1c1", Title: "W1 c1: workflows of 10 activities in sequence, one after the other", Parts: only(sequence(1, counted("w")))}
	stepsMany = &Workload{Name: "w1c200", Title: "W1 c200: the same, 200 at once", Parts: only(sequence(crowd, counted("w")))}
	stepsUUID = &Workload{Name: "w1uuid", Title: "W1 c200, ids are random UUIDs", Parts: only(sequence(crowd, random))}
	signals   = &Workload{Name: "w2", Title: "W2: workflows that wait for one signal", Parts: only(signalled)}
	parallel  = &Workload{Name: "w3", Title: "W3: one workflow, 1,000 activities side by side", Parts: only(fanOut)}
	long      = &Workload{Name: "w4", Title: "W4: one workflow, 5,000 activities in sequence", Parts: only(longRun)}
	parked    = &Workload{Name: "w5", Title: "W5: many workflows wait; then a restart", Parts: []func(context.Context, *Child) error{park, restart}}
	latency   = &Workload{Name: "w6", Title: "W6: one workflow of one activity, at low load", Parts: only(startToResult)}

	workloads = []*Workload{stepsOne, stepsMany, signals, parallel, long, parked, latency}
)

const stepsEach = 10

func sequence(at int, id func(int64) string) func(ctx context.Context, c *Child) error {
	return func(ctx context.Context, c *Child) error {
		sys, err := c.ready(ctx, at)
		if err != nil {
			return err
		}
		defer sys.Close()
		before := usageOf(sys)
		n, took, err := load(ctx, sys, id, at, c.Load, Shape{Steps: stepsEach})
		if err != nil {
			return err
		}
		steps := float64(n * stepsEach)
		c.report("steps/s", steps/took.Seconds())
		if at > 1 {
			before.report(c, usageOf(sys), steps)
		}
		return nil
	}
}

func signalled(ctx context.Context, c *Child) error {
	sys, err := c.ready(ctx, crowd)
	if err != nil {
		return err
	}
	defer sys.Close()
	var total time.Duration
	for i := range c.Bursts {
		burst := fmt.Sprint("burst-", i)
		if err := c.parkAll(ctx, sys, burst, crowd); err != nil {
			return err
		}
		took, err := signalAll(ctx, sys, burst, 0, crowd)
		if err != nil {
			return err
		}
		total += took
	}
	c.report("signals/s", float64(crowd*c.Bursts)/total.Seconds())

	ds, err := c.sample(func(id string) (time.Duration, error) {
		c.probe.reset(0, 0)
		err := sys.Start(ctx, id, Shape{Signal: true})
		if err == nil {
			err = until(ctx, func() bool { return c.probe.parked.Load() == 1 })
		}
		time.Sleep(lowLoad)
		began := time.Now()
		if err == nil {
			err = sys.Signal(ctx, id)
		}
		if err == nil {
			err = sys.Wait(ctx, id)
		}
		return time.Since(began), err
	})
	c.reportLatency("signal to done", ds)
	return err
}

func fanOut(ctx context.Context, c *Child) error {
	sys, err := c.ready(ctx, crowd)
	if err != nil {
		return err
	}
	defer sys.Close()
	var times, commits []float64
	for i := range c.Repeat {
		before, began := commitsOf(sys), time.Now()
		id := fmt.Sprintf("wide-%d", i)
		if err := sys.Start(ctx, id, Shape{Parallel: 1000}); err != nil {
			return err
		}
		if err := sys.Wait(ctx, id); err != nil {
			return err
		}
		times = append(times, milliseconds(time.Since(began)))
		commits = append(commits, float64(commitsOf(sys)-before))
	}
	c.report("ms", median(times))
	if median(commits) > 0 {
		c.report("commits", median(commits))
	}
	return nil
}

// longRun ends the workflow with a signal, so that what it holds in memory can
// be looked at while it waits. The time is until then.
func longRun(ctx context.Context, c *Child) error {
	sys, err := c.ready(ctx, 1)
	if err != nil {
		return err
	}
	defer sys.Close()
	heap := heapInUse()
	c.probe.reset(c.Steps, 10)
	began := time.Now()
	if err := sys.Start(ctx, "long", Shape{Steps: c.Steps, Signal: true}); err != nil {
		return err
	}
	if err := until(ctx, func() bool { return c.probe.parked.Load() > 0 }); err != nil {
		return err
	}
	c.report("s", time.Since(began).Seconds())
	parts := c.probe.parts()
	c.report("growth", parts[len(parts)-1]/parts[0])
	if !c.volatile {
		c.report("heap B/step", max(0, float64(heapInUse())-float64(heap))/float64(c.Steps))
	}
	if err := sys.Signal(ctx, "long"); err != nil {
		return err
	}
	return sys.Wait(ctx, "long")
}

// parts are the seconds that each part of the steps took.
func (p *Probe) parts() []float64 {
	parts := make([]float64, len(p.marks))
	last := int64(0)
	for i := range p.marks {
		at := p.marks[i].Load()
		parts[i], last = time.Duration(at-last).Seconds(), at
	}
	return parts
}

// aside is a little more than what an engine takes to put a workflow that waits out
// of memory, if it does so.
const aside = 7 * time.Second

func park(ctx context.Context, c *Child) error {
	sys, err := c.ready(ctx, crowd)
	if err != nil {
		return err
	}
	c.probe.reset(0, 0)
	began := time.Now()
	err = each(ctx, c.Parked, crowd, func(i int) error { return sys.Start(ctx, fmt.Sprintf("parked-%d", i), Shape{Signal: true}) })
	if err != nil {
		return err
	}
	c.report("starts/s", float64(c.Parked)/time.Since(began).Seconds())
	if err := until(ctx, func() bool { return c.probe.parked.Load() >= int64(c.Parked) }); err != nil {
		return err
	}
	time.Sleep(aside)
	debug.FreeOSMemory()
	if rss, ok := resident(); ok {
		c.report("resident MiB", float64(rss)/(1<<20))
	}
	c.report("goroutines", float64(runtime.NumGoroutine()))
	time.Sleep(c.Warm) // what was given back comes again when it is first touched
	cpu := processorTime()
	time.Sleep(c.Idle)
	c.report("idle CPU, % of a core", 100*(processorTime()-cpu).Seconds()/c.Idle.Seconds())
	return sys.Close()
}

func restart(ctx context.Context, c *Child) error {
	began := time.Now()
	sys, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer sys.Close()
	if err := sys.Signal(ctx, "parked-0"); err != nil {
		return err
	}
	if err := sys.Wait(ctx, "parked-0"); err != nil {
		return err
	}
	c.report("restart to first done, ms", milliseconds(time.Since(began)))
	if err := settled(ctx, c.probe.entered.Load); err != nil {
		return err
	}
	c.report("functions run again", float64(c.probe.entered.Load()))
	took, err := signalAll(ctx, sys, "parked", 1, 1+min(c.Woken, c.Parked-1))
	if err != nil {
		return err
	}
	c.report("signals/s after restart", float64(min(c.Woken, c.Parked-1))/took.Seconds())
	return nil
}

func startToResult(ctx context.Context, c *Child) error {
	sys, err := c.ready(ctx, 1)
	if err != nil {
		return err
	}
	defer sys.Close()
	ds, err := c.sample(func(id string) (time.Duration, error) {
		time.Sleep(lowLoad)
		began := time.Now()
		err := sys.Start(ctx, id, Shape{Steps: 1})
		if err == nil {
			err = sys.Wait(ctx, id)
		}
		return time.Since(began), err
	})
	c.reportLatency("start to result", ds)
	return err
}

// lowLoad is the pause before what is measured at low load.
const lowLoad = 5 * time.Millisecond

// ready returns a system that has worked for a while.
func (c *Child) ready(ctx context.Context, at int) (System, error) {
	sys, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.warm(ctx, sys, at); err != nil {
		return nil, errors.Join(err, sys.Close())
	}
	return sys, nil
}

// warm works for a while, so that logs have grown and code was paged in.
func (c *Child) warm(ctx context.Context, sys System, at int) error {
	_, _, err := load(ctx, sys, counted("warm"), min(at, 50), c.Warm, Shape{Steps: 1})
	runtime.GC()
	return err
}

// load runs workflows, at so many at once, until d is over, and then those that
// have begun. took is all of it. id returns the id of workflow 1, 2 and so on.
func load(ctx context.Context, sys System, id func(int64) string, at int, d time.Duration, s Shape) (n int64, took time.Duration, err error) {
	began := time.Now()
	var count, number atomic.Int64
	err = each(ctx, at, at, func(int) error {
		for i := 0; i == 0 || time.Since(began) < d; i++ {
			id := id(number.Add(1))
			if err := sys.Start(ctx, id, s); err != nil {
				return err
			}
			if err := sys.Wait(ctx, id); err != nil {
				return err
			}
			count.Add(1)
		}
		return nil
	})
	return count.Load(), time.Since(began), err
}

// counted are ids that are counted up, as orders are.
func counted(prefix string) func(int64) string {
	return func(i int64) string { return fmt.Sprintf("%s-%09d", prefix, i) }
}

// parkAll starts workflows and waits until all of them wait.
func (c *Child) parkAll(ctx context.Context, sys System, prefix string, n int) error {
	c.probe.reset(0, 0)
	err := each(ctx, n, crowd, func(i int) error { return sys.Start(ctx, fmt.Sprintf("%s-%d", prefix, i), Shape{Signal: true}) })
	if err != nil {
		return err
	}
	return until(ctx, func() bool { return c.probe.parked.Load() >= int64(n) })
}

// signalAll signals the workflows from number from to before to, and then waits
// until all have ended.
func signalAll(ctx context.Context, sys System, prefix string, from, to int) (time.Duration, error) {
	began := time.Now()
	for _, do := range []func(context.Context, string) error{sys.Signal, sys.Wait} {
		err := each(ctx, to-from, crowd, func(i int) error { return do(ctx, fmt.Sprintf("%s-%d", prefix, from+i)) })
		if err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// sample measures as often as the size says.
func (c *Child) sample(one func(id string) (time.Duration, error)) ([]time.Duration, error) {
	var ds []time.Duration
	for i := range c.Samples {
		d, err := one(fmt.Sprintf("sample-%d", i))
		if err != nil {
			return ds, err
		}
		ds = append(ds, d)
	}
	return ds, nil
}

func (c *Child) reportLatency(what string, ds []time.Duration) {
	if len(ds) == 0 {
		return
	}
	slices.Sort(ds)
	for _, p := range []int{50, 99} {
		c.report(fmt.Sprintf("%s p%d, ms", what, p), milliseconds(ds[min(len(ds)*p/100, len(ds)-1)]))
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// each calls f for the numbers below n, from so many goroutines, until one
// fails.
func each(ctx context.Context, n, at int, f func(i int) error) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range min(n, at) {
		wg.Go(func() {
			for failed.Load() == nil && ctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= int64(n) {
					return
				}
				if err := f(int(i)); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return ctx.Err()
}

// until waits for something that cannot tell.
func until(ctx context.Context, done func() bool) error {
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// settled waits until a count has not changed for a second.
func settled(ctx context.Context, count func() int64) error {
	last, since := count(), time.Now()
	return until(ctx, func() bool {
		if n := count(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > time.Second
	})
}
