package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// AC4, LV5: whatever wakes a run, an activity of it that is under way is not begun
// again, and the function is not either.
func TestUnrelatedSignalsDuringAnActivity(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var runs tally
		charge := &activity.Activity[string, int]{Name: "charge", Run: func(context.Context, string) (int, error) {
			time.Sleep(time.Second)
			return runs.add("charge"), nil
		}}
		noise := &signal.Signal[int]{Name: "noise"}
		wf := flow("w", func(run *engine.Run) (string, error) {
			runs.add("function")
			n, err := charge.Do(run, "")
			return sprint(n), err
		})
		p := boot(t, new(memory.Store), wf, parkAfter(-1))
		h := start(t, wf, p, "o", "")
		for i := range 100 {
			time.Sleep(9 * time.Millisecond)
			send(t, noise, p, "o", i, "")
		}
		if got := result(t, h); got != "1" {
			t.Errorf("result %q", got)
		}
		if c, f := runs.of("charge"), runs.of("function"); c != 1 || f != 1 {
			t.Errorf("the activity ran %d times and the function %d times, want once", c, f)
		}
		left := 0
		for _, err := range p.Signals(ctx, "o") {
			if err != nil {
				t.Fatal(err)
			}
			left++
		}
		if left != 100 {
			t.Errorf("%d signals are listed, want 100", left)
		}
	})
}

// TM2, TM3: timers that came due while nobody was there fire at start-up, once:
// those of runs that were in memory, and those of parked ones.
func TestTimersDueWhileNobodyWasThere(t *testing.T) {
	for name, park := range map[string]time.Duration{"in memory": time.Hour, "parked": -1} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				const n = 50
				store := new(memory.Store)
				wf := &engine.Workflow[int, string]{Name: "w", Func: func(run *engine.Run, i int) (string, error) {
					return "woke", run.Sleep(10*time.Minute + time.Duration(i)*time.Minute)
				}}
				p := boot(t, store, wf, parkAfter(park))
				for i := range n {
					start(t, wf, p, sprint("o-", i), i)
				}
				time.Sleep(time.Minute)
				p.kill()
				time.Sleep(24 * time.Hour)
				p = boot(t, store, wf, parkAfter(park))
				begun := time.Now()
				for i := range n {
					if got := result(t, wf.Handle(p, sprint("o-", i))); got != "woke" {
						t.Errorf("run %d: %q", i, got)
					}
				}
				if took := time.Since(begun); took > 2*time.Second {
					t.Errorf("they woke %v after start-up", took)
				}
				for i := range n {
					fired := 0
					for _, k := range kinds(historyOf(t, p.Engine, sprint("o-", i))) {
						if k == checkpoint.KindFired {
							fired++
						}
					}
					if fired != 1 {
						t.Errorf("the timer of run %d fired %d times", i, fired)
					}
				}
			})
		})
	}
}

// A turnstile is a store before whose calls something is done.
type turnstile struct {
	storage.Storage
	before func()
}

func (s *turnstile) Unwrap() storage.Storage { return s.Storage }

func (s *turnstile) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.before()
	return s.Storage.Get(ctx, key)
}

func (s *turnstile) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	s.before()
	return s.Storage.Scan(ctx, r)
}

func (s *turnstile) Commit(ctx context.Context, b storage.Batch) error {
	s.before()
	return s.Storage.Commit(ctx, b)
}

// A race is a send by one engine while another one drives the workflow. The send
// makes its first calls to the store before one call of the run's engine, and the
// rest of them before a later one, or after the end.
type race struct {
	first, calls, then int

	turn        chan struct{} // one at a time; a mutex would stop virtual time
	made        int           // calls of the run's engine
	over        bool          // calls are of no interest: not yet, or no more
	through     int           // calls of the send that were let through
	arrived     bool          // it stands before the next one
	arrive, let chan struct{}
	sent        chan struct{} // it has returned
	accepted    signal.Accepted
	err         error
}

// running is before a call of the run's engine.
func (r *race) running() {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	if r.over {
		return
	}
	r.made++
	if r.made == r.first {
		r.release(r.calls)
	}
	if r.made == r.then {
		r.release(-1)
	}
}

// sending is before a call of the send.
func (r *race) sending() {
	if r.over {
		return
	}
	r.arrive <- struct{}{}
	<-r.let
}

// release lets n calls of the send through, or all, and waits until they are done.
func (r *race) release(n int) {
	for {
		if !r.arrived {
			select {
			case <-r.arrive:
				r.arrived = true
			case <-r.sent:
				return
			}
		}
		if n == 0 {
			return
		}
		r.let <- struct{}{}
		r.arrived = false
		r.through++
		n--
	}
}

// pending says that the send has calls to make. The one that may accept its signal
// is its last.
func (r *race) pending() bool {
	select {
	case <-r.sent:
		return false
	default:
		return true
	}
}

// finish lets the send go to its end.
func (r *race) finish() {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.release(-1)
	r.over = true
}

// SG2, SG3, SG4: a signal raced against the end of the workflow, and against a
// request to stop, at every interleaving of the calls to the store (of which the
// send's stay together, or are made in two parts), is consumed, or listed as not
// consumed, or refused with a typed error. It counts that all of these were met.
func TestSignalRacesWithTheEnd(t *testing.T) {
	step := func(run *engine.Run) error {
		_, err := engine.Step(run, "step", func(context.Context) (int, error) { return 1, nil })
		return err
	}
	ends := flow("ends", func(run *engine.Run) (string, error) {
		if err := step(run); err != nil {
			return "", err
		}
		_, _, err := yes.ReceiveWithin(run, 0)
		return "", errors.Join(err, step(run))
	})
	stops := flow("stops", func(run *engine.Run) (string, error) {
		_, err := yes.Receive(run)
		return "", errors.Join(err, step(run.WithoutCancel()))
	})
	for _, c := range []struct {
		name   string
		wf     *engine.Workflow[string, string]
		cancel bool
		park   time.Duration
	}{
		{"completion", ends, false, time.Hour},
		{"cancel", stops, true, time.Hour},
		{"cancel of a parked run", stops, true, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			met := map[string]int{}
			play := func(first, calls, then int) *race {
				r := &race{first: first, calls: calls, then: then}
				virtual(t, func(t *testing.T) {
					met[r.play(t, c.wf, c.cancel, c.park)]++
					if t.Failed() {
						t.Logf("%d calls of the send before call %d of the run's engine, the others before its call %d", calls, first, then)
					}
				})
				return r
			}
			const never = 1 << 30
			run, send := play(never, 0, never).made, 0
			for first := 1; first <= run; first++ {
				send = max(send, play(first, -1, never).through)
			}
			for calls := 1; calls < send; calls++ {
				for first := 1; first <= run; first++ {
					for then := first + 1; then <= run+1; then++ {
						play(first, calls, then)
					}
				}
			}
			t.Logf("%d calls of the run's engine, %d of the send: %v", run, send, met)
			for _, what := range []string{"consumed", "listed", "refused: has ended", "refused: not found"} {
				if met[what] == 0 {
					t.Errorf("%s was not met: %v", what, met)
				}
			}
		})
	}
}

// play has the race run, and says what became of the signal.
func (r *race) play(t *testing.T, wf *engine.Workflow[string, string], cancel bool, park time.Duration) string {
	store := new(memory.Store)
	r.turn, r.arrive, r.let, r.sent = make(chan struct{}, 1), make(chan struct{}), make(chan struct{}), make(chan struct{})
	r.over = true
	p := boot(t, &turnstile{store, r.running}, wf, parkAfter(park), func(c *engine.Config) { c.PollInterval = 100 * time.Hour })
	far := made(t, &turnstile{store, r.sending})
	defer far.Close()
	synctest.Wait()
	r.over = false

	go func() {
		defer close(r.sent)
		r.accepted, r.err = yes.Send(ctx, far, "o", "ann", &signal.Options{ID: "click"})
	}()
	h := start(t, wf, p, "o", "")
	if cancel {
		synctest.Wait()
		if err := h.Cancel(ctx, engine.Actor{Reason: "enough"}); err != nil && !errors.Is(err, engine.ErrTerminal) {
			t.Errorf("cancel: %v", err)
		}
	}
	if _, err := outcome(h); err != nil && !errors.Is(err, engine.ErrCancelled) {
		t.Errorf("result: %v", err)
	}
	synctest.Wait()
	late := r.pending()
	r.finish()

	consumed, listed := 0, 0
	for _, k := range kinds(historyOf(t, p.Engine, "o")) {
		if k == checkpoint.KindReceived {
			consumed++
		}
	}
	for s, err := range p.Signals(ctx, "o") {
		if err != nil || s.ID != "click" || s.Indeterminate {
			t.Errorf("listed: %+v, %v", s, err)
		}
		listed++
	}
	again, err := yes.Send(ctx, p, "o", "ann", &signal.Options{ID: "click"})
	switch {
	case r.err == nil && late:
		t.Error("accepted after the end")
	case r.err == nil && consumed+listed != 1:
		t.Errorf("accepted; %d times consumed, %d times listed", consumed, listed)
	case r.err == nil && (err != nil || canonical(again) != canonical(r.accepted)):
		t.Errorf("sent again: %+v, %v, first %+v", again, err, r.accepted)
	case r.err == nil && consumed == 1:
		return "consumed"
	case r.err == nil:
		return "listed"
	case consumed+listed != 0:
		t.Errorf("refused with %v; %d times consumed, %d times listed", r.err, consumed, listed)
	case errors.Is(r.err, engine.ErrNotFound):
		return "refused: not found"
	case errors.As(r.err, new(*engine.TerminalError)):
		return "refused: has ended"
	default:
		t.Errorf("refused with %v, which is no typed error", r.err)
	}
	return "wrong"
}

// Interleaving 21: a call of the engine from a deferred function does nothing where
// a run is parked, and where a branch is left behind.
func TestDeferredCallsWhileUnwinding(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var seen tally
		deferred := func(run *engine.Run, who string) {
			seen.add(who)
			_, err := engine.Step(run, "deferred", func(context.Context) (int, error) { return seen.add("step of " + who), nil })
			seen.add(who + " went on: " + sprint(err))
		}
		woken := false
		wf := flow("w", func(run *engine.Run) (string, error) {
			engine.Go(run, "left", func(run *engine.Run) (any, error) {
				defer deferred(run, "branch")
				return nil, run.Sleep(time.Hour)
			})
			defer func() {
				if !woken {
					deferred(run, "function")
				}
			}()
			who, err := yes.Receive(run)
			woken = true
			return who, err
		})
		p := boot(t, new(memory.Store), wf, parkAfter(-1))
		h := start(t, wf, p, "o", "")
		time.Sleep(time.Minute)
		if i := describe(t, p, "o"); i.Owner != "" {
			t.Fatalf("%+v, want it parked", i)
		}
		tell(t, yes, p, "o", "ann")
		if got := result(t, h); got != "ann" {
			t.Errorf("result %q", got)
		}
		synctest.Wait()
		if f, b, all := seen.of("function"), seen.of("branch"), len(seen.all()); f != 1 || b != 2 || all != 3 {
			t.Errorf("parked once and left once: %q", seen.all())
		}
	})
}

// LV1, SG8: while a third of the calls to the store fail and the process dies now
// and then, what is answered stands; when that has stopped, every run gets on
// within seconds, and every signal that was accepted is received.
func TestRunsGetOnWhenFaultsStop(t *testing.T) {
	const runs = 10
	for seed := range uint64(5) {
		virtual(t, func(t *testing.T) {
			r, naps := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
			var faulty atomic.Bool
			decide := func(storagetest.Call) storagetest.Fault {
				if !faulty.Load() || r.IntN(3) > 0 {
					return storagetest.None
				}
				return []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter, storagetest.CancelMiddle}[r.IntN(3)]
			}
			works := flow("works", func(run *engine.Run) (string, error) {
				for {
					if _, err := engine.Step(run, "step", func(context.Context) (int, error) { return 1, nil }); err != nil {
						return "", err
					}
					if err := run.Sleep(time.Second); err != nil {
						return "", err
					}
				}
			})
			hears := flow("hears", func(run *engine.Run) (string, error) {
				for {
					if _, err := yes.Receive(run); err != nil {
						return "", err
					}
				}
			})
			inner := new(memory.Store)
			client := made(t, inner)
			defer client.Close()
			for i := range runs {
				start(t, works, client, sprint("w-", i), "")
				start(t, hears, client, sprint("h-", i), "")
			}
			var p *process
			for life := range 4 {
				faulty.Store(false) // New does not try again
				p = bootOn(t, storagetest.NewFaulty(inner, decide), works, hears, parkAfter(2*time.Second))
				faulty.Store(true)
				for i := range runs {
					for j := range 3 {
						id, o := sprint("h-", i), &signal.Options{ID: sprint(life, "-", j)}
						for _, err := yes.Send(ctx, p, id, "ann", o); err != nil; _, err = yes.Send(ctx, p, id, "ann", o) {
							time.Sleep(100 * time.Millisecond)
						}
					}
				}
				time.Sleep(time.Duration(naps.IntN(60)) * time.Second)
				if life < 3 {
					p.kill()
				}
			}
			faulty.Store(false)
			heads := func() (all []uint64) {
				for i := range runs {
					cs := historyOf(t, client, sprint("w-", i))
					all = append(all, cs[len(cs)-1].Number)
				}
				return all
			}
			before := heads()
			time.Sleep(5 * time.Second)
			for i, now := range heads() {
				if now == before[i] {
					t.Errorf("seed %d: run w-%d has not got on in 5 s", seed, i)
				}
				heard := 0
				for _, k := range kinds(historyOf(t, client, sprint("h-", i))) {
					if k == checkpoint.KindReceived {
						heard++
					}
				}
				if heard != 4*3 {
					t.Errorf("seed %d: run h-%d has received %d signals of %d", seed, i, heard, 4*3)
				}
			}
		})
	}
}

// LV3: when runs have ended, with their branches, activities and children, the
// engine has the goroutines that it had before; and none after its end.
func TestGoroutinesGoWithTheirRuns(t *testing.T) {
	runs := torture.Rounds(100_000/2, 500, 100) // each has a child
	virtual(t, func(t *testing.T) {
		act := &activity.Activity[string, int]{Name: "act", Run: func(context.Context, string) (int, error) {
			time.Sleep(time.Second)
			return 1, nil
		}}
		sub := doing(act)
		wf := flow("parent", func(run *engine.Run) (string, error) {
			engine.Go(run, "left behind", func(run *engine.Run) (any, error) { return nil, run.Sleep(time.Hour) })
			f := engine.Go(run, "part", func(run *engine.Run) (int, error) { return act.Do(run, "") })
			if _, err := sub.Do(run, ""); err != nil {
				return "", err
			}
			_, err := f.Get(run)
			return "done", err
		})
		none := runtime.NumGoroutine()
		p := boot(t, new(memory.Store), wf, sub)
		synctest.Wait()
		idle := runtime.NumGoroutine()
		for i := range runs {
			start(t, wf, p, sprint("o-", i), "")
		}
		for i := range runs {
			if got := result(t, wf.Handle(p, sprint("o-", i))); got != "done" {
				t.Errorf("run %d: %q", i, got)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := goroutines(idle); n > idle || engine.Runs(p.Engine) != 0 {
			t.Errorf("after %d runs there are %d goroutines, %d before, and %d runs in memory", runs, n, idle, engine.Runs(p.Engine))
		}
		p.stop(t)
		synctest.Wait()
		if n := goroutines(none); n > none {
			t.Errorf("after the end there are %d goroutines, %d before the engine", n, none)
		}
	})
}

// goroutines is how many there are, once those that have returned are gone, or are more
// than most for long: synctest.Wait does not wait for the last instructions of one.
func goroutines(most int) (n int) {
	for range 1_000_000 {
		if n = runtime.NumGoroutine(); n <= most {
			break
		}
		runtime.Gosched()
	}
	return n
}

// LV4: a store that answers nobody is asked less and less often, up to once a second
// for each run; when it is back, all goes on.
func TestStoreThatIsDownIsAskedSeldom(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const runs = 20
		var down atomic.Bool
		var calls atomic.Int64
		p := bootOn(t, storagetest.NewFaulty(new(memory.Store), func(storagetest.Call) storagetest.Fault {
			if !down.Load() {
				return storagetest.None
			}
			calls.Add(1)
			return storagetest.ErrorBefore
		}), flow("w", func(run *engine.Run) (string, error) {
			for range 100 {
				if err := run.Sleep(time.Second); err != nil {
					return "", err
				}
			}
			return "done", nil
		}))
		wf := flow("w", nil)
		for i := range runs {
			start(t, wf, p, sprint("o-", i), "")
		}
		time.Sleep(30 * time.Second)
		down.Store(true)
		time.Sleep(time.Minute)
		calls.Store(0)
		time.Sleep(10 * time.Minute)
		// Each run tries once a second, and a poll makes seven calls: an eighth is room for the chance in their waits.
		if n, most := calls.Load(), int64(10*60*(runs+8)); n > most || n < runs {
			t.Errorf("%d calls in ten minutes for %d runs, want at most %d", n, runs, most)
		}
		down.Store(false)
		for i := range runs {
			if got := result(t, wf.Handle(p, sprint("o-", i))); got != "done" {
				t.Errorf("run %d: %q", i, got)
			}
		}
	})
}
