package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/sqlite"
)

func parkAfter(d time.Duration) func(*engine.Config) {
	return func(c *engine.Config) { c.ParkAfter = d }
}

// Who looks at a run does not keep it in memory.
func TestDescribedRunsAreParked(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		wf := flow("waits", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		p := boot(t, s, wf, parkAfter(2*time.Second))
		start(t, wf, p, "w", "")
		begun := time.Now()
		for describe(t, p, "w").Owner != "" {
			if time.Since(begun) > 10*time.Second {
				t.Fatal("it is not parked")
			}
			time.Sleep(500 * time.Millisecond)
		}
		if took := time.Since(begun); took < 2*time.Second {
			t.Errorf("it was parked after %v", took)
		}
		tell(t, yes, p, "w", "ann")
		if got := result(t, wf.Handle(p, "w")); got != "ann" {
			t.Errorf("got %q", got)
		}
		p.stop(t)
	})
}

// A run that only waits leaves memory, and comes back for a signal, a due time, the
// end of a child and a request to stop: at once, and not with the next poll.
func TestParkedRunsComeBack(t *testing.T) {
	sub := flow("sub", func(run *engine.Run) (string, error) { return "grown", run.Sleep(10 * time.Minute) })
	calls := 0
	for name, c := range map[string]struct {
		wait func(run *engine.Run) (string, error)
		wake func(t *testing.T, p *process)
		want string
	}{
		"signal": {
			func(run *engine.Run) (string, error) { return yes.Receive(run) },
			func(t *testing.T, p *process) { tell(t, yes, p, "w", "ann") }, "ann",
		},
		"timer": {
			func(run *engine.Run) (string, error) { return "slept", run.Sleep(10 * time.Minute) },
			func(*testing.T, *process) {}, "slept",
		},
		"child": {
			func(run *engine.Run) (string, error) { return sub.Do(run, "") },
			func(*testing.T, *process) {}, "grown",
		},
		"cancel": {
			func(run *engine.Run) (string, error) {
				c, err := run.Cancelled().Get(run)
				return c.Reason, err
			},
			func(t *testing.T, p *process) {
				if err := p.Cancel(ctx, "w", engine.Actor{Reason: "enough"}); err != nil {
					t.Fatal(err)
				}
			}, "enough",
		},
		"retry": {
			func(run *engine.Run) (string, error) {
				return (&activity.Activity[string, string]{
					Name:  "again",
					Retry: activity.Retry{Backoff: 20 * time.Minute, MaxBackoff: 20 * time.Minute},
					Run: func(ctx context.Context, _ string) (string, error) {
						if n := activity.InfoFrom(ctx).Attempt; n < 3 {
							return "", errBroke
						}
						return "third time", nil
					},
				}).Do(run, "")
			},
			func(*testing.T, *process) {}, "third time",
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				calls = 0
				wf := flow("waits", func(run *engine.Run) (string, error) {
					calls++
					return c.wait(run)
				})
				p := boot(t, fresh(t), wf, sub, parkAfter(time.Second))
				h := start(t, wf, p, "w", "")
				time.Sleep(8 * time.Minute)
				if n := engine.Runs(p.Engine); n != 0 {
					t.Errorf("%d runs in memory", n)
				}
				if i := describe(t, p, "w"); i.Status != checkpoint.StatusRunning || i.Owner != "" {
					t.Errorf("parked: %+v", i)
				}
				c.wake(t, p)
				begun := time.Now()
				if got := result(t, h); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
				if took := time.Since(begun); took > 45*time.Minute || name == "signal" && took > 0 {
					t.Errorf("took %v", took)
				}
				if calls < 2 || !slices.Contains(kinds(historyOf(t, p.Engine, "w")), checkpoint.KindParked) {
					t.Errorf("the function was called %d times: not parked", calls)
				}
			})
		})
	}
}

// A signal comes just before a run parks, and is cleared while the run reads it. Nothing is damaged: the
// run waits for the next one.
func TestSignalIsClearedWhileItsRunParks(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := &hooked{Storage: fresh(t)}
		client := made(t, h.Storage)
		defer client.Close()
		var sent, cleared bool
		h.afterGet = func(key []byte) {
			if string(key) == string(keys.SignalCounter("o")) && !sent {
				sent = true
				if _, err := yes.Send(ctx, client, "o", "ann", &signal.Options{ID: "a"}); err != nil {
					t.Error(err)
				}
			}
		}
		h.beforeGet = func(key []byte) {
			if string(key) == string(keys.Signal("o", "yes", "a")) && !cleared {
				cleared = true
				if err := client.ClearSignal(ctx, "o", "yes", "a", audit); err != nil {
					t.Error(err)
				}
			}
		}
		p := boot(t, h, once, parkAfter(time.Second))
		handle := start(t, once, p, "o", "")
		time.Sleep(time.Minute)
		if i := describe(t, p, "o"); !sent || !cleared || len(i.Attention) > 0 {
			t.Fatalf("sent %v, cleared %v, and then %s, %+v", sent, cleared, i.Status, i.Attention)
		}
		tell(t, yes, p, "o", "bob")
		if got := result(t, handle); !strings.HasPrefix(got, "bob") {
			t.Errorf("result %q", got)
		}
	})
}

// Interleaving 14: whatever is written at whatever moment around the commit that
// parks a run, the run learns of it. No poll is near enough to help.
func TestWakeRacesWithParking(t *testing.T) {
	met := map[string]int{}
	for seed := range 300 {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		virtual(t, func(t *testing.T) {
			sub := flow("sub", func(run *engine.Run) (string, error) { return yes.Receive(run) })
			wf := flow("waits", func(run *engine.Run) (string, error) {
				y, kid := yes.Next(run), sub.AsChild(engine.ChildOptions{ID: "kid"}).Go(run, "")
				first, err := engine.Select(run, y, kid, run.Cancelled())
				return fmt.Sprint(first == engine.Case(y), first == engine.Case(kid)), err
			})
			h := &hooked{Storage: fresh(t)}
			// Another engine on the same handle: it has no way to hint this one
			// but through the store.
			far := made(t, h)
			defer far.Close()
			do := []func() error{
				func() error { _, err := yes.Send(ctx, far, "w", "ann", nil); return err },
				func() error { _, err := yes.Send(ctx, far, "kid", "ann", nil); return err },
				func() error { return far.Cancel(ctx, "w", engine.Actor{Reason: "enough"}) },
			}[seed%3]
			before := r.IntN(2) == 0
			lag := time.Duration(r.IntN(3)) * time.Millisecond
			var once sync.Once
			act := func(b storage.Batch) {
				if !parks(b, "w") {
					return
				}
				once.Do(func() {
					met[fmt.Sprint(seed%3, before)]++
					if err := do(); err != nil {
						t.Error(err)
					}
					time.Sleep(lag)
				})
			}
			if before {
				h.beforeCommit = act
			} else {
				h.afterCommit = func(b storage.Batch) error { act(b); return nil }
			}
			p := boot(t, h, wf, sub, parkAfter(time.Second), func(c *engine.Config) { c.PollInterval = time.Minute })
			start(t, wf, p, "w", "")
			short, cancel := context.WithTimeout(ctx, 10*time.Minute)
			defer cancel()
			if err := p.Result(short, "w", "", nil); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
	if len(met) != 6 {
		t.Errorf("not all ways were met: %v", met)
	}
	t.Log(met)
}

// parks says that b is the commit that parks a run.
func parks(b storage.Batch, id string) bool {
	deleted := slices.ContainsFunc(b.Ops, func(o storage.Op) bool {
		return o.Kind == storage.DeleteOp && strings.HasPrefix(string(o.Key), "held:") && strings.HasSuffix(string(o.Key), ":"+id)
	})
	return deleted && !touches(b, "wf:"+id+":out")
}

// Interleaving 15, 34: a child ends while its parent is being parked, or claimed
// by somebody else: the commit of its end meets another record of its parent than
// it read, is decided anew, and wakes who drives the parent then.
func TestChildEndsWhileItsParentMoves(t *testing.T) {
	for name, move := range map[string]func(t *testing.T, far *engine.Engine){
		"parked":  func(*testing.T, *engine.Engine) { time.Sleep(5 * time.Second) },
		"claimed": func(t *testing.T, here *engine.Engine) { tell(t, no, here, "p", "claim it"); time.Sleep(time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				patience := 61 * time.Second // it is about to be parked when the child ends
				if name == "claimed" {
					patience = 40 * time.Second // it is parked by then
				}
				sub := flow("sub", func(run *engine.Run) (string, error) { return "grown", run.Sleep(time.Minute) })
				wf := flow("parent", func(run *engine.Run) (string, error) {
					engine.Go(run, "aside", func(run *engine.Run) (string, error) { return no.Receive(run) })
					return sub.AsChild(engine.ChildOptions{ID: "kid"}).Do(run, "")
				})
				h := &hooked{Storage: fresh(t)}
				var p *process
				tried := 0
				h.beforeCommit = func(b storage.Batch) {
					if touches(b, "wf:kid:out") {
						if tried++; tried == 1 {
							move(t, p.Engine)
						}
					}
				}
				p = boot(t, h, wf, sub, parkAfter(patience), func(c *engine.Config) { c.PollInterval = time.Hour })
				begun := time.Now()
				if got := result(t, start(t, wf, p, "p", "")); got != "grown" {
					t.Errorf("got %q", got)
				}
				if took := time.Since(begun); tried < 2 || took > 2*time.Minute {
					t.Errorf("the child's end was committed in %d tries; the parent's took %v", tried, took)
				}
			})
		})
	}
}

// Interleaving 15: a child that another engine drives ends between its parent's last
// look and the commit that parks it. The parent is not parked.
func TestParentIsParkedWhileItsChildEnds(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		sub := flow("sub", func(run *engine.Run) (string, error) { return "grown", run.Sleep(time.Minute) })
		wf := flow("parent", func(run *engine.Run) (string, error) {
			return sub.AsChild(engine.ChildOptions{ID: "kid"}).Do(run, "")
		})
		parks := 0
		h := &hooked{Storage: s, beforeCommit: func(b storage.Batch) {
			if isOf(b, "p") && !isOf(b, "kid") && !writes(b, "held:") && !writes(b, "wf:p:out") {
				if parks++; parks == 1 {
					time.Sleep(5 * time.Second)
				}
			}
		}}
		patience := func(c *engine.Config) { c.ParkAfter, c.PollInterval = 58*time.Second, time.Hour }
		p := boot(t, h, wf, as("here"), patience)
		boot(t, s, sub, as("elsewhere"), parkAfter(time.Hour))
		time.Sleep(time.Second)
		begun := time.Now()
		if got := result(t, start(t, wf, p, "p", "")); got != "grown" {
			t.Errorf("got %q", got)
		}
		if took := time.Since(begun); parks == 0 || took > 90*time.Second {
			t.Errorf("the parent was parked %d times, and took %v", parks, took)
		}
	})
}

// Start-up claims what can go on, and not what is there.
func TestStartUpLeavesTheParked(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var calls atomic.Int32
		wf := flow("waits", func(run *engine.Run) (string, error) {
			calls.Add(1)
			return yes.Receive(run)
		})
		store := fresh(t)
		p := boot(t, store, wf, parkAfter(-1))
		for i := range 1000 {
			start(t, wf, p, fmt.Sprint(i), "")
		}
		time.Sleep(time.Minute)
		p.kill()
		calls.Store(0)
		p = boot(t, store, wf, parkAfter(-1))
		time.Sleep(time.Minute)
		if n := calls.Load(); n != 0 {
			t.Errorf("%d functions called for nothing", n)
		}
		tell(t, no, p, "7", "a name that nobody waits for")
		time.Sleep(time.Minute)
		if n := calls.Load(); n != 0 {
			t.Errorf("%d functions called for a signal of another name", n)
		}
		tell(t, yes, p, "7", "ann")
		if got := result(t, wf.Handle(p, "7")); got != "ann" || calls.Load() != 1 {
			t.Errorf("got %q; %d functions called", got, calls.Load())
		}
	})
}

// An engine that is told to stop parks what only waits, so that the next one has
// nothing to replay.
func TestStopParksWhatWaits(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var calls atomic.Int32
		wf := flow("waits", func(run *engine.Run) (string, error) {
			calls.Add(1)
			return yes.Receive(run)
		})
		store := fresh(t)
		p := boot(t, store, wf)
		for i := range 100 {
			start(t, wf, p, fmt.Sprint(i), "")
		}
		time.Sleep(time.Second)
		p.stop(t)
		if held := entries(t, store, "held:"); len(held) > 0 {
			t.Errorf("%d are still held", len(held))
		}
		calls.Store(0)
		p = boot(t, store, wf)
		time.Sleep(time.Minute)
		tell(t, yes, p, "7", "ann")
		if got := result(t, wf.Handle(p, "7")); got != "ann" || calls.Load() != 1 {
			t.Errorf("got %q; %d functions called", got, calls.Load())
		}
	})
}

// So many runs in memory, and so many attempts under way, and no more; and
// everything ends. Calls with a key are recorded before they begin, and have their place by then.
func TestRoom(t *testing.T) {
	for name, keyed := range map[string]func(i int) bool{
		"without keys": func(int) bool { return false },
		"with keys":    func(int) bool { return true },
		"first":        func(i int) bool { return i == 0 },
		"last":         func(i int) bool { return i == 4 },
	} {
		for _, room := range []int32{7, 1} {
			t.Run(fmt.Sprint(name, ", ", room), func(t *testing.T) { virtual(t, func(t *testing.T) { findRoom(t, keyed, room) }) })
		}
	}
}

func findRoom(t *testing.T, keyed func(i int) bool, room int32) {
	var under, most atomic.Int32
	act := &activity.Activity[int, int]{Name: "work", Run: func(_ context.Context, i int) (int, error) {
		n := under.Add(1)
		defer under.Add(-1)
		most.Store(max(most.Load(), n))
		time.Sleep(time.Second)
		return i, nil
	}}
	again := *act
	again.Name, again.Idempotent = "again", true
	wf := flow("works", func(run *engine.Run) (string, error) {
		out, err := engine.Map(run, "part", 0, []int{0, 1, 2, 3, 4}, func(run *engine.Run, i int) (int, error) {
			if keyed(i) {
				return again.Do(run, i)
			}
			return act.Do(run, i)
		})
		return fmt.Sprint(len(out)), err
	})
	p := boot(t, fresh(t), wf, func(c *engine.Config) { c.MaxRunsInMemory, c.MaxActivities = 10, int(room) })
	var hs []*engine.Handle[string]
	inMemory := 0
	for i := range 100 {
		hs = append(hs, start(t, wf, p, fmt.Sprint(i), ""))
		inMemory = max(inMemory, engine.Runs(p.Engine))
	}
	for _, h := range hs {
		if got := result(t, h); got != "5" {
			t.Errorf("got %q", got)
		}
		inMemory = max(inMemory, engine.Runs(p.Engine))
	}
	if most.Load() != room || inMemory > 11 {
		t.Errorf("%d attempts at a time and %d runs in memory, want %d and 10", most.Load(), inMemory, room)
	}
}

// Runs that only wait do not keep others out, however many there are.
func TestWaitingRunsMakeRoom(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("waits", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		p := boot(t, fresh(t), wf, func(c *engine.Config) { c.MaxRunsInMemory = 8 })
		for i := range 100 {
			start(t, wf, p, fmt.Sprint(i), "")
		}
		time.Sleep(time.Minute)
		if n := engine.Runs(p.Engine); n > 6 {
			t.Errorf("%d runs in memory, want three quarters of 8", n)
		}
		for i := range 100 {
			tell(t, yes, p, fmt.Sprint(i), "ann")
		}
		for i := range 100 {
			if got := result(t, wf.Handle(p, fmt.Sprint(i))); got != "ann" {
				t.Errorf("got %q", got)
			}
		}
	})
}

// Runs that came to rest while there was room leave memory when there is none, however long they may stay.
func TestRunsThatRestMakeRoom(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var working atomic.Int32
		waits := flow("waits", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		works := flow("works", func(run *engine.Run) (string, error) {
			return engine.Step(run, "long", func(ctx context.Context) (string, error) {
				working.Add(1)
				<-ctx.Done()
				return "", ctx.Err()
			})
		})
		p := boot(t, fresh(t), waits, works, parkAfter(24*time.Hour), func(c *engine.Config) { c.MaxRunsInMemory = 8 })
		for i := range 6 {
			start(t, waits, p, fmt.Sprint(i), "")
		}
		time.Sleep(time.Minute)
		if n := engine.Runs(p.Engine); n != 6 {
			t.Errorf("%d runs in memory, want those that rest", n)
		}
		for i := range 8 {
			start(t, works, p, fmt.Sprint("works ", i), "")
		}
		time.Sleep(time.Minute)
		if n := working.Load(); n != 8 {
			t.Errorf("%d of 8 runs work, beside those that only wait", n)
		}
		for i := range 6 {
			tell(t, yes, p, fmt.Sprint(i), "ann")
		}
		p.stop(t)
	})
}

// 100,000 parked workflows (fewer here) cost no memory and no time at start-up,
// and each of them can be woken. W5 of the benchmarks has the figures.
func TestManyParked(t *testing.T) {
	torture.Slow(t)
	n := torture.Rounds(100_000, 10_000, 500)
	path := filepath.Join(t.TempDir(), "store")
	open := func() *sqlite.Store {
		s, err := sqlite.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	wf := flow("waits", func(run *engine.Run) (string, error) { return yes.Receive(run) })
	store := open()
	p := boot(t, store, wf)
	base := heap()
	var all sync.WaitGroup
	for w := range 100 {
		all.Go(func() {
			for i := w; i < n; i += 100 {
				if _, err := wf.Start(ctx, p, fmt.Sprint(i), ""); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for engine.Runs(p.Engine) > 750 {
		time.Sleep(10 * time.Millisecond)
	}
	endedChildren := heap() - base
	if endedChildren > 64<<20 {
		t.Errorf("%d parked workflows: heap has grown by %d MiB", n, endedChildren>>20)
	}
	p.stop(t)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}

	wake := func(i int) {
		id := fmt.Sprint(i)
		if _, err := yes.Send(ctx, p, id, "ann", nil); err != nil && !strings.Contains(err.Error(), "has ended") {
			t.Error(err)
		}
		if got, err := wf.Handle(p, id).Result(ctx); got != "ann" || err != nil {
			t.Errorf("%s: got %q, %v", id, got, err)
		}
	}
	began := time.Now()
	store = open()
	p = boot(t, store, wf)
	wake(n - 1)
	ready := time.Since(began)
	base = heap()
	for range 1000 {
		all.Go(func() { wake(rand.IntN(n)) })
	}
	all.Wait()
	t.Logf("%d parked: %d KiB of heap; %v from the opening of the store to a first result, then 1,000 in %v",
		n, endedChildren>>10, ready.Round(time.Millisecond), (time.Since(began) - ready).Round(time.Millisecond))
	if endedChildren := heap() - base; endedChildren > 64<<20 {
		t.Errorf("after 1,000 signals: heap has grown by %d MiB", endedChildren>>20)
	}
	p.stop(t)
	store.Close()
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A workflow that cannot be claimed does not keep those behind it from the last
// place in memory, nor the engine busy.
func TestLastPlaceIsForWhoCanBeClaimed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("w", func(run *engine.Run) (string, error) { return "done", run.Sleep(time.Second) })
		s := fresh(t)
		e := made(t, s, wf)
		for _, id := range []string{"a", "b", "c", "d"} {
			start(t, wf, e, id, "")
			time.Sleep(time.Second)
		}
		e.Close()
		for _, id := range []string{"a", "b"} {
			put(t, s, []byte("wf:"+id), []byte("damaged"))
		}
		var read atomic.Int32
		h := &hooked{Storage: s, afterGet: func(key []byte) {
			if string(key) == "wf:a" {
				read.Add(1)
			}
		}}
		p := boot(t, h, wf, func(c *engine.Config) { c.MaxRunsInMemory = 1 })
		for _, id := range []string{"c", "d"} {
			if got := result(t, wf.Handle(p, id)); got != "done" {
				t.Errorf("%s: got %q", id, got)
			}
		}
		time.Sleep(time.Minute)
		if n := read.Load(); n > 200 { // it is looked at with every poll
			t.Errorf("a damaged record was read %d times in a minute", n)
		}
	})
}
