package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/storage/storagetest"
)

// onStoresInVirtualTime plays f on each store, in virtual time.
func onStoresInVirtualTime(t *testing.T, f func(t *testing.T, store sweep.Store)) {
	for name, store := range sweepStores {
		t.Run(name, func(t *testing.T) { virtual(t, func(t *testing.T) { f(t, store) }) })
	}
	t.Run("postgres", func(t *testing.T) {
		store := onPostgres(t)
		virtual(t, func(t *testing.T) { f(t, store) })
	})
}

// onSomeStoresInVirtualTime is for a test that calls it for each row of a table. With the race detector it plays f on
// the store in memory and on one of the others, which is drawn; without it, and with WEFT_TORTURE, on each store.
func onSomeStoresInVirtualTime(t *testing.T, f func(t *testing.T, store sweep.Store)) {
	others := []string{"sqlite", "bolt", "postgres"}
	if torture.Raced() && os.Getenv("WEFT_TORTURE") == "" {
		others = []string{others[rand.IntN(len(others))]}
	}
	for _, name := range append(others, "memory") {
		t.Run(name, func(t *testing.T) {
			store, ok := sweepStores[name]
			if !ok {
				store = onPostgres(t)
			}
			virtual(t, func(t *testing.T) { f(t, store) })
		})
	}
}

// bootAt starts a process whose wall clock is clock.
func bootAt(t testing.TB, s storage.Storage, clock *wall, options ...any) *process {
	t.Helper()
	f := storagetest.NewFaulty(s, nil)
	p := &process{Engine: made(t, f, options...), store: f}
	engine.SetNow(p.Engine, clock.now)
	p.run()
	t.Cleanup(p.kill)
	return p
}

const decade = 10 * 365 * 24 * time.Hour

func leases(c *engine.Config) { c.PollInterval, c.LeaseTTL = time.Second, 3*time.Second }

// rareLeases is for tests that last for minutes: on PostgreSQL each poll costs some round trips.
func rareLeases(c *engine.Config) { c.PollInterval, c.LeaseTTL = 10*time.Second, 30*time.Second }

// rarestLeases is for tests that last for hours.
func rarestLeases(c *engine.Config) { c.PollInterval, c.LeaseTTL = time.Minute, 3*time.Minute }

func parking(c *engine.Config) { leases(c); c.ParkAfter = time.Millisecond }

// What is to be done now is done now, whatever the clock of who wrote that says: a start,
// a signal to a parked run, a request to stop, a retry.
func TestClientWhoseClockIsAhead(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		for _, by := range []time.Duration{time.Hour, decade, -decade} {
			var ahead wall
			ahead.jump(by)
			client := made(t, s)
			engine.SetNow(client, ahead.now)
			fails := true
			wf := &engine.Workflow[string, string]{Name: "w", Func: func(run *engine.Run, _ string) (string, error) {
				v, err := approved.Receive(run)
				if err == nil && v == "fail" {
					_, err = engine.Step(run, "s", func(context.Context) (int, error) {
						if fails {
							return 0, errBroke
						}
						return 1, nil
					})
				}
				return v, err
			}}
			p := boot(t, s, wf, parking)
			name := func(what string) string { return fmt.Sprint(what, by) }
			soon := func(what string, ok func() bool) {
				t.Helper()
				for range 30 { // polls are a second apart
					if ok() {
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
				t.Errorf("with a client whose clock is %v ahead, nobody saw %s for three polls", by, what)
			}
			parked := func(id string) func() bool {
				return func() bool {
					i := describe(t, p, id)
					return i.Status == checkpoint.StatusRunning && len(entries(t, s, "held:")) == 0
				}
			}
			ended := func(id string, as checkpoint.Status) func() bool {
				return func() bool { return describe(t, p, id).Status == as }
			}
			for _, id := range []string{name("a"), name("b"), name("c")} {
				start(t, wf, client, id, "")
				soon("the start", parked(id))
			}
			send(t, approved, client, name("a"), "v", "")
			soon("the signal", ended(name("a"), checkpoint.StatusCompleted))
			if err := wf.Handle(client, name("b")).Cancel(ctx, engine.Actor{Reason: "enough"}); err != nil {
				t.Error(err)
			}
			soon("the cancel", ended(name("b"), checkpoint.StatusCancelled))
			send(t, approved, client, name("c"), "fail", "")
			soon("the failure", ended(name("c"), checkpoint.StatusFailed))
			fails = false
			if err := client.Resume(ctx, name("c"), audit); err != nil {
				t.Error(err)
			}
			soon("the retry", ended(name("c"), checkpoint.StatusCompleted))
			client.Close()
			p.stop(t)
		}
	})
}

// TM4: one commit under a clock that is ahead by an hour, a day, ten years. What the run
// waits for afterwards takes as long as it should, live, after a takeover by an engine
// whose clock is right, and parked; and its time does not go back, nor stand still.
func TestCommitUnderAClockThatIsAhead(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		for _, by := range []time.Duration{time.Hour, 25 * time.Hour, decade} {
			if by != time.Hour && !strings.HasSuffix(t.Name(), "memory") {
				continue // the engine does the same on all stores
			}
			for _, how := range []string{"live", "taken over", "parked", "parked by the dead"} {
				sleepAfterAJump(t, store, by, how)
			}
		}
	})
}

func sleepAfterAJump(t *testing.T, store sweep.Store, by time.Duration, how string) {
	what := fmt.Sprintf("%s, %v ahead", how, by)
	s := store.Open(t)
	defer func() { s.Close() }()
	const nap = 10 * time.Second
	var clock wall
	entered := make(chan struct{}, 1)
	var seen []time.Time
	wf := flow("w", func(run *engine.Run) (string, error) {
		_, err := engine.Step(run, "jump", func(context.Context) (int, error) {
			clock.jump(by)
			entered <- struct{}{}
			return 1, nil
		})
		if err != nil {
			return "", err
		}
		seen = []time.Time{run.Now()}
		for range 3 {
			if err := run.Sleep(nap); err != nil {
				return "", err
			}
			seen = append(seen, run.Now())
		}
		return "", nil
	})
	options := []any{wf, leases}
	if how == "parked" || how == "parked by the dead" {
		options = []any{wf, parking}
	}
	p := bootAt(t, s, &clock, options...)
	start(t, wf, p, "o", "")
	<-entered
	begun := time.Now()
	time.Sleep(2 * time.Second) // the commit, and a park
	lost := time.Duration(0)
	switch how {
	case "live", "parked":
		clock.jump(-by)
	default:
		p.kill()
		if store.Reopen != nil {
			s = store.Reopen(t, s)
		}
		clock.jump(-by)
		lost = 2*time.Second + 2*nap // nobody can tell how long it was dead
		p = bootAt(t, s, &clock, options...)
	}
	if _, err := outcome(wf.Handle(p, "o")); err != nil {
		t.Errorf("%s: %v; %q, %+v", what, err, entries(t, s, "todo:"), describe(t, p, "o"))
		p.kill()
		return
	}
	took := time.Since(begun)
	if most := 3*nap + 3*nap/64 + 10*time.Second + lost; took < 3*nap || took > most {
		t.Errorf("%s: three times %v took %v, want at most %v", what, nap, took, most)
	}
	for i := range seen[1:] {
		if d := seen[i+1].Sub(seen[i]); d < nap || d > 2*nap+lost {
			t.Errorf("%s: the run's time went on by %v while it slept for %v", what, d, nap)
		}
	}
	var last time.Time
	for _, c := range historyOf(t, p.Engine, "o") {
		if c.Time.Before(last) {
			t.Errorf("%s: checkpoint %d is of %v, the one before of %v", what, c.Number, c.Time, last)
		}
		last = c.Time
	}
	p.kill()
}

// An engine whose clock was ahead until it ended, whether it shut down cleanly or not,
// has put runs where nobody looks for as long. Those who come after it do.
func TestRunParkedByAClockThatIsAhead(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		for _, killed := range []bool{false, true} {
			s := store.Open(t)
			wf := flow("w", func(run *engine.Run) (string, error) { return "", run.Sleep(20 * time.Second) })
			var ahead, right wall
			ahead.jump(decade)
			p := bootAt(t, s, &ahead, wf, parking)
			start(t, wf, p, "o", "")
			begun := time.Now()
			time.Sleep(2 * time.Second)
			if n := len(entries(t, s, "todo:")); n != 1 {
				t.Errorf("%d entries, want the run parked", n)
			}
			if killed {
				p.kill()
			} else {
				p.stop(t)
			}
			if store.Reopen != nil {
				s = store.Reopen(t, s)
			}
			p = bootAt(t, s, &right, wf, parking)
			if _, err := outcome(wf.Handle(p, "o")); err != nil || time.Since(begun) > time.Minute {
				t.Errorf("killed %v: %v after %v; %q", killed, err, time.Since(begun), entries(t, s, "todo:"))
			}
			p.kill()
			s.Close()
		}
	})
}

// A clock jumps ahead and is set right, and nothing is recorded meanwhile. The pause before
// the next question to a verifier that began in between takes no longer for that.
func TestPauseBetweenTwoJumps(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		var clock wall
		questions := 0
		charge := &activity.Activity[string, string]{
			Name:           "charge",
			IdempotencyKey: func(s string) string { return s },
			Run:            func(context.Context, string) (string, error) { return "", errBroke },
			Verify: func(context.Context, string) (activity.Verification[string], error) {
				if questions++; questions > 1 {
					return activity.CompletedWithResult("charged"), nil
				}
				clock.jump(decade)
				time.AfterFunc(100*time.Millisecond, func() { clock.jump(-decade) })
				return activity.Indeterminate[string]("ask again"), nil
			},
		}
		p := bootAt(t, s, &clock, learning(charge), leases)
		begun := time.Now()
		h := start(t, learning(charge), p, "o", "")
		if got, err := outcome(h); got != "charged" || err != nil || time.Since(begun) > time.Minute || questions != 2 {
			t.Errorf("got %q, %v after %v and %d questions", got, err, time.Since(begun), questions)
		}
		p.kill()
		s.Close()
	})
}

// TestTransactionBetweenTwoJumps is TestPauseBetweenTwoJumps for the pause before the next
// try of a transaction that was lost.
func TestTransactionBetweenTwoJumps(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var clock wall
		wf, s := bookingOnce(t, func() {
			clock.jump(decade)
			time.AfterFunc(50*time.Millisecond, func() { clock.jump(-decade) })
		})
		p := bootAt(t, s, &clock, wf)
		begun := time.Now()
		if got, err := outcome(start(t, wf, p, "o", "")); got != "booked" || err != nil || time.Since(begun) > time.Minute {
			t.Errorf("got %q, %v after %v", got, err, time.Since(begun))
		}
		p.kill()
	})
}

// The engine stops in such a pause, after the clock was set right: the run is parked, and
// found when the pause would have ended.
func TestStopInAPauseBetweenTwoJumps(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var clock wall
		wf, s := bookingOnce(t, func() { clock.jump(decade) })
		p := bootAt(t, s, &clock, wf)
		h := start(t, wf, p, "o", "")
		time.Sleep(10 * time.Millisecond)
		clock.jump(-decade)
		p.stop(t)
		p = bootAt(t, s, &clock, wf)
		begun := time.Now()
		if got, err := outcome(wf.Handle(p, h.ID())); got != "booked" || err != nil || time.Since(begun) > time.Minute {
			t.Errorf("got %q, %v after %v; %q", got, err, time.Since(begun), entries(t, s, "todo:"))
		}
		p.kill()
	})
}

// bookingOnce returns a workflow with one transaction, and a store that loses the first one and
// calls lost then.
func bookingOnce(t *testing.T, lost func()) (*engine.Workflow[string, string], *losing) {
	s, err := sqlite.Open(filepath.Join(t.TempDir(), "weft.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return flow("w", func(run *engine.Run) (string, error) {
		return sqlite.Transact(run, "book", func(context.Context, *sql.Tx) (string, error) { return "booked", nil })
	}), &losing{Store: s, lost: lost}
}

// losing is a store that loses its first transaction, and calls lost then.
type losing struct {
	*sqlite.Store
	lost func()
}

func (l *losing) Unwrap() storage.Storage { return l.Store }

func (l *losing) Transact(ctx context.Context, f func(ctx context.Context) (storage.Batch, error)) error {
	if lost := l.lost; lost != nil {
		l.lost = nil
		lost()
		return fmt.Errorf("server restarted: %w", storage.ErrTransactionLost)
	}
	return l.Store.Transact(ctx, f)
}

// A clock jumps ahead and is set right, and the engine ends before it looks at its clock
// again. In between it parked a run. The next engine finds that run in time.
func TestRunParkedBetweenTwoJumps(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		for _, killed := range []bool{false, true} {
			s := store.Open(t)
			wf := flow("w", func(run *engine.Run) (string, error) { return "", run.Sleep(20 * time.Second) })
			var clock wall
			crowded := func(c *engine.Config) { leases(c); c.MaxRunsInMemory = 1 }
			p := bootAt(t, s, &clock, wf, crowded)
			time.Sleep(2 * time.Second)
			clock.jump(decade)
			begun := time.Now()
			start(t, wf, p, "a", "")
			start(t, wf, p, "b", "") // there is no room: runs are parked although the clock is doubted
			time.Sleep(10 * time.Millisecond)
			if len(entries(t, s, "todo:")) == 0 {
				t.Error("no entry, want a run parked")
			}
			clock.jump(-decade)
			if killed {
				p.kill()
			} else {
				p.stop(t)
			}
			if store.Reopen != nil {
				s = store.Reopen(t, s)
			}
			p = bootAt(t, s, &clock, wf, parking)
			for _, id := range []string{"a", "b"} {
				if _, err := outcome(wf.Handle(p, id)); err != nil || time.Since(begun) > time.Minute {
					t.Errorf("killed %v: %s: %v after %v; %q", killed, id, err, time.Since(begun), entries(t, s, "todo:"))
				}
			}
			p.kill()
			s.Close()
		}
	})
}

// What an attempt has left, and the pause before another, do not depend on the clock
// either.
func TestRetriesAfterACommitThatWasAhead(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var clock wall
		n := 0
		flaky := &activity.Activity[string, string]{
			Name:  "flaky",
			Retry: activity.Retry{MaxAttempts: 3, Backoff: 10 * time.Second},
			Run: func(context.Context, string) (string, error) {
				if n++; n == 1 {
					clock.jump(decade)
				}
				if n < 3 {
					return "", errBroke
				}
				return "ok", nil
			},
			IdempotencyKey: func(s string) string { return s },
			Timeout:        time.Minute,
			Verify: func(context.Context, string) (activity.Verification[string], error) {
				return activity.NotCompleted[string](), nil
			},
		}
		wf := learning(flaky)
		p := bootAt(t, fresh(t), &clock, wf)
		h := start(t, wf, p, "o", "")
		begun := time.Now()
		time.Sleep(time.Second)
		clock.jump(-decade)
		if got := result(t, h); got != "ok" {
			t.Errorf("%s, want ok", got)
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("three attempts took %v", took)
		}
	})
}

// SG1: nothing is forgotten because a clock was ahead for a moment: of an engine that
// runs, and of one that begins with it.
func TestClockAheadForgetsNothing(t *testing.T) {
	const by = 25 * time.Hour
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		for _, from := range []string{"in its life", "from its start"} {
			s := store.Open(t)
			wf := receiving(2)
			old := flow("old", func(*engine.Run) (string, error) { return "", nil })
			var clock wall
			p := bootAt(t, s, &clock, wf, old, leases)
			h := start(t, wf, p, "o", "")
			first := send(t, approved, p, "o", "v", "evt_1")
			time.Sleep(time.Second) // it is received
			result(t, start(t, old, p, "p", ""))
			if err := p.Purge(ctx, "p", audit); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			moment := func() {
				time.Sleep(time.Second)
				clock.jump(-60 * by)
				time.Sleep(20 * time.Second)
			}
			switch from {
			case "in its life":
				clock.jump(60 * by) // also past the memory of tombstones
				moment()
			default:
				p.kill()
				if store.Reopen != nil {
					s = store.Reopen(t, s)
				}
				clock.jump(60 * by)
				p = bootAt(t, s, &clock, wf, old, leases)
				moment()
				h = wf.Handle(p, "o")
			}
			if a := send(t, approved, p, "o", "v", "evt_1"); a != first {
				t.Errorf("%s: sent again: %+v, want the first answer %+v", from, a, first)
			}
			if n := len(entries(t, s, "wf:p")); n != 1 {
				t.Errorf("%s: %d records of the purged workflow, want its tombstone", from, n)
			}
			send(t, approved, p, "o", "w", "evt_2")
			if got := result(t, h); got != "vw" {
				t.Errorf("%s: received %q, want both once", from, got)
			}
			p.stop(t)
			s.Close()
		}
	})
}

// SG1: likewise of one that died before it had looked at the store: all that is known of
// it is what its clock said. The engine before it had a right one.
func TestClockAheadOfAnEngineThatDiedAtOnce(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		wf := receiving(2)
		var clock wall
		begin := func(what ...any) *process {
			if store.Reopen != nil {
				s = store.Reopen(t, s)
			}
			return bootAt(t, s, &clock, append(what, wf, rareLeases)...)
		}
		p := begin()
		start(t, wf, p, "o", "")
		first := send(t, approved, p, "o", "v", "evt_1")
		time.Sleep(time.Minute)
		p.kill()

		clock.jump(30 * time.Hour)
		if store.Reopen != nil {
			s = store.Reopen(t, s)
		}
		blind := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Scan" {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		p = &process{Engine: made(t, blind, wf, rareLeases), store: blind}
		engine.SetNow(p.Engine, clock.now)
		p.run()
		time.Sleep(500 * time.Millisecond)
		p.kill()
		if n := len(entries(t, s, "eng:")); n != 2 {
			t.Fatalf("%d engines have a record, want 2", n)
		}

		p = begin()
		time.Sleep(10 * time.Minute)
		clock.jump(-30 * time.Hour)
		time.Sleep(time.Minute)
		if a := send(t, approved, p, "o", "v", "evt_1"); a != first {
			t.Errorf("got %+v, want the first answer %+v", a, first)
		}
		p.stop(t)
	})
}

// A machine that was suspended, and a process that was down for long, forget what has
// expired meanwhile an hour later at most.
func TestForgettingAfterAPause(t *testing.T) {
	for _, how := range []string{"suspended", "down"} {
		virtual(t, func(t *testing.T) {
			s := new(memory.Store)
			wf := receiving(1)
			var clock wall
			p := bootAt(t, s, &clock, wf)
			start(t, wf, p, "o", "")
			send(t, approved, p, "o", "v", "evt_1")
			time.Sleep(time.Minute)
			if how == "down" {
				p.stop(t)
				time.Sleep(100 * time.Hour)
				bootAt(t, s, &clock, wf)
			} else {
				clock.jump(100 * time.Hour)
			}
			time.Sleep(50 * time.Minute)
			if n := len(entries(t, s, "sigres:")); n != 1 {
				t.Errorf("%s: %d acceptances before the jump is believed", how, n)
			}
			time.Sleep(11 * time.Minute)
			if left := entries(t, s, "sigres:"); len(left) != 0 {
				t.Errorf("%s: left behind %q", how, left)
			}
		})
	}
}

// SG1: three engines whose clocks differ by hours. Those that are ahead forget nothing
// before the others' clocks have come as far; who accepts with one that is behind does not
// have it forgotten at once.
func TestEnginesWhoseClocksDiffer(t *testing.T) {
	torture.Slow(t)
	virtual(t, func(t *testing.T) {
		s := sharing{new(memory.Store)}
		wf := receiving(9)
		rarely := func(c *engine.Config) { c.PollInterval, c.LeaseTTL = time.Minute, 3*time.Minute }
		clocks := [3]wall{}
		clocks[1].jump(-27 * time.Hour)
		clocks[2].jump(30 * time.Hour)
		var ps []*process
		for i := range clocks {
			ps = append(ps, bootAt(t, s, &clocks[i], wf, rarely))
		}
		start(t, wf, ps[0], "o", "")
		time.Sleep(time.Minute)
		for i, p := range ps {
			send(t, approved, p, "o", "v", fmt.Sprint("evt_", i))
		}
		first := send(t, approved, ps[0], "o", "v", "evt_0")
		time.Sleep(20 * time.Hour)
		for i := range ps {
			if a := send(t, approved, ps[0], "o", "v", fmt.Sprint("evt_", i)); i == 0 && a != first {
				t.Errorf("got %+v, want the first answer %+v", a, first)
			}
		}
		if got := describe(t, ps[0], "o"); got.Status != checkpoint.StatusRunning {
			t.Errorf("the run is %s", got.Status)
		}
		received := 0
		for _, c := range historyOf(t, ps[0].Engine, "o") {
			for _, e := range c.Events {
				if e.Kind == checkpoint.KindReceived {
					received++
				}
			}
		}
		if received != 3 {
			t.Errorf("%d signals were received, want three once each", received)
		}
		for _, p := range ps {
			p.kill()
		}
	})
}

// SG1: what an engine accepted whose clock was further behind than signals are remembered
// is not forgotten when that engine dies: neither by those that knew it, nor by one that
// begins later.
func TestAcceptanceOutlivesAnEngineThatWasBehind(t *testing.T) {
	for _, killed := range []bool{false, true} {
		virtual(t, func(t *testing.T) {
			s := sharing{new(memory.Store)}
			wf := receiving(2)
			var right, ahead, behind wall
			behind.jump(-27 * time.Hour)
			ahead.jump(30 * time.Hour)
			p, other := bootAt(t, s, &right, wf, leases), bootAt(t, s, &ahead, wf, leases)
			late := bootAt(t, s, &behind, wf, leases)
			start(t, wf, p, "o", "")
			time.Sleep(time.Minute)
			first := send(t, approved, late, "o", "v", "evt_1")
			if killed {
				late.kill()
			} else {
				late.stop(t)
			}
			for _, what := range []string{"the engines that knew it", "one that begins later"} {
				time.Sleep(10 * time.Minute)
				if a := send(t, approved, other, "o", "v", "evt_1"); a != first {
					t.Errorf("killed: %t; %s: got %+v, want the first answer %+v", killed, what, a, first)
				}
				p.kill()
				p = bootAt(t, s, &right, wf, leases)
			}
			if info := describe(t, other, "o"); info.Status != checkpoint.StatusRunning {
				t.Errorf("killed: %t: the run is %s: it received the signal twice", killed, info.Status)
			}
			p.stop(t)
			other.stop(t)
		})
	}
}

// SG1: the same where no engine has met the one that was behind: each has the store for
// itself, one after the other. An hour after that one has ended, its clock counts no more.
func TestAcceptanceOutlivesAnEngineThatNobodyMet(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		wf := receiving(2)
		var right, behind wall
		behind.jump(-20 * time.Hour) // by a day and more, it would take the record of the first engine for one of a clock that was ahead
		forgetting := func(c *engine.Config) { c.SignalIDRetention = 10 * time.Hour }
		begin := func(clock *wall) *process {
			if store.Reopen != nil {
				s = store.Reopen(t, s)
			}
			return bootAt(t, s, clock, wf, rarestLeases, forgetting)
		}
		p := begin(&right)
		start(t, wf, p, "o", "")
		time.Sleep(time.Minute)
		p.stop(t)

		p = begin(&behind)
		first := send(t, approved, p, "o", "v", "evt_1")
		time.Sleep(time.Minute)
		p.stop(t)

		for _, what := range []string{"the next engine", "the one after it"} {
			time.Sleep(time.Minute)
			p = begin(&right)
			time.Sleep(50 * time.Minute)
			if a := send(t, approved, p, "o", "v", "evt_1"); a != first {
				t.Errorf("%s: got %+v, want the first answer %+v", what, a, first)
			}
			if info := describe(t, p, "o"); info.Status != checkpoint.StatusRunning {
				t.Errorf("%s: the run is %s: it received the signal twice", what, info.Status)
			}
			if what == "the next engine" {
				p.stop(t)
			}
		}
		time.Sleep(11 * time.Minute)
		if left := entries(t, s, "sigres:"); len(left) != 0 {
			t.Errorf("an hour later left behind %q", left)
		}
		p.stop(t)
	})
}

// Where the clocks are right, an engine that was stopped and is followed at once by another
// has nothing remembered for longer.
func TestForgettingAfterARestart(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		wf := receiving(2)
		var clock wall
		p := bootAt(t, s, &clock, wf, rarestLeases, func(c *engine.Config) { c.SignalIDRetention = 2 * time.Hour })
		start(t, wf, p, "o", "")
		first := send(t, approved, p, "o", "v", "evt_1")
		time.Sleep(2*time.Hour - 10*time.Minute)
		p.stop(t)
		if store.Reopen != nil {
			s = store.Reopen(t, s)
		}
		time.Sleep(time.Minute)
		p = bootAt(t, s, &clock, wf, rarestLeases)
		time.Sleep(8 * time.Minute)
		if a := send(t, approved, p, "o", "v", "evt_1"); a != first {
			t.Errorf("got %+v, want the first answer %+v", a, first)
		}
		time.Sleep(3 * time.Minute)
		if left := entries(t, s, "sigres:"); len(left) != 0 {
			t.Errorf("left behind %q", left)
		}
		p.stop(t)
	})
}

// SG1: an acceptance by a clock that was behind for a moment has all its time before it.
func TestAcceptanceByAClockThatWasBehind(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := receiving(2)
		var clock wall
		p := bootAt(t, new(memory.Store), &clock, wf, rareLeases)
		start(t, wf, p, "o", "")
		time.Sleep(time.Minute + 3*time.Second) // between two looks at what has expired
		clock.jump(-30 * time.Hour)
		first := send(t, approved, p, "o", "v", "evt_1")
		clock.jump(30 * time.Hour)
		time.Sleep(20 * time.Hour)
		if a := send(t, approved, p, "o", "v", "evt_1"); a != first {
			t.Errorf("got %+v, want the first answer %+v", a, first)
		}
		time.Sleep(10 * time.Hour)
		if a := send(t, approved, p, "o", "v", "evt_1"); a == first {
			t.Error("it is remembered for ever")
		}
	})
}

// Clocks that were not set yet: before 1970, in its first second, and in its first hours.
func TestClocksOf1970(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		for _, at := range []time.Duration{-time.Second, 0, time.Hour, -decade, time.Millisecond, 999 * time.Millisecond} {
			if at != -time.Second && !strings.HasSuffix(t.Name(), "memory") {
				continue // the engine does the same on all stores
			}
			s := store.Open(t)
			var clock wall
			clock.jump(time.Until(time.Unix(0, 0).Add(at)))
			wf := flow("w", func(run *engine.Run) (string, error) {
				_, err := engine.Step(run, "s", func(context.Context) (int, error) { return 1, nil })
				if err == nil {
					err = run.Sleep(10 * time.Second)
				}
				if err == nil {
					_, err = approved.Receive(run)
				}
				return "done", err
			})
			p := bootAt(t, s, &clock, wf, parking)
			client := made(t, s)
			engine.SetNow(client, clock.now)
			begun := time.Now()
			here, there := start(t, wf, p, "here", ""), start(t, wf, client, "there", "")
			time.Sleep(15 * time.Second)
			for _, h := range []*engine.Handle[string]{here, there} {
				send(t, approved, p, h.ID(), "v", "evt_1")
				if got := result(t, h); got != "done" {
					t.Errorf("%v after 1970: %q", at, got)
				}
			}
			if took := time.Since(begun); took > 25*time.Second {
				t.Errorf("%v after 1970: it took %v", at, took)
			}
			client.Close()
			p.stop(t)
			s.Close()
		}
	})
}

// A lease that is over before it can be renewed is refused.
func TestLeaseTTLIsBounded(t *testing.T) {
	for ttl, ok := range map[time.Duration]bool{time.Millisecond: false, 99 * time.Millisecond: false, 100 * time.Millisecond: true} {
		e, err := engine.New(engine.Config{Storage: new(memory.Store), LeaseTTL: ttl})
		var wrong *engine.ConfigError
		if ok != (err == nil) || !ok && (!errors.As(err, &wrong) || wrong.Field != "LeaseTTL") {
			t.Errorf("a LeaseTTL of %v: %v", ttl, err)
		}
		if err == nil {
			e.Close()
		}
	}
}

// A rate counts from when a run is claimed, and not from the look before.
func TestQueueRateCountsFromTheClaim(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const per = time.Second
		slow := &hooked{Storage: new(memory.Store)}
		slow.afterGet = func(key []byte) {
			if k := string(key); k == "wf:0" || k == "wf:1" { // before they are claimed
				time.Sleep(7 * time.Millisecond)
			}
		}
		wf := flow("w", func(*engine.Run) (string, error) { return "", nil })
		client := made(t, slow.Storage)
		defer client.Close()
		const n = 6
		for i := range n {
			start(t, wf.With(engine.StartOptions{Queue: "q"}), client, fmt.Sprint(i), "")
		}
		p := boot(t, slow, wf, func(c *engine.Config) {
			c.Queues = []engine.Queue{{Name: "q", Rate: activity.Rate{Count: 2, Per: per}}}
		})
		var began []time.Time
		for i := range n {
			result(t, wf.Handle(p, fmt.Sprint(i)))
			began = append(began, describe(t, p, fmt.Sprint(i)).StartedAt)
		}
		for i := 2; i < n; i++ {
			if d := began[i].Sub(began[i-2]); d < per {
				t.Errorf("run %d began %v after the one two before it, want %v", i, d, per)
			}
		}
	})
}
