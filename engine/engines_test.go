package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// heard is what Events told.
type heard struct {
	mu    sync.Mutex
	words []string
}

func (h *heard) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.words = append(h.words, fmt.Sprintf(format, args...))
}

func (h *heard) told() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(slices.Values(h.words))
}

func (h *heard) listen(c *engine.Config) {
	c.Events = engine.Events{
		Takeover: func(t engine.TakeoverEvent) { h.note("takeover %s from %.1s to %.1s", t.WorkflowID, t.From, t.To) },
		LostRace: func(l engine.LostRaceEvent) { h.note("lost race %s", l.WorkflowID) },
		Fenced:   func(f engine.FencedEvent) { h.note("fenced %s", f.WorkflowID) },
		Deposed:  func(d engine.DeposedEvent) { h.note("deposed %.1s", d.Incarnation) },
	}
}

// told is what is known of an engine, but for the names and times that differ each
// time.
func told(i engine.EngineInfo) string {
	since := "since"
	if i.Since.IsZero() {
		since = "never"
	}
	if !i.Stopped.IsZero() {
		since += ", stopped"
	}
	return fmt.Sprintf("%s %v alive %v, %v, %d runs, lease %v, %d %d %d", i.Name, i.Workflows, i.Alive, since, i.Runs, i.LeaseTTL, i.Takeovers, i.LostRaces, i.Fenced)
}

func engines(t *testing.T, e *engine.Engine) (all []string) {
	t.Helper()
	infos, err := e.Engines(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		if !strings.HasPrefix(i.Incarnation, i.Name+"-") {
			t.Errorf("incarnation %q of %q", i.Incarnation, i.Name)
		}
		all = append(all, told(i))
	}
	return all
}

// what engines hold, take over, and lose, is seen by others, and told.
func TestEngines(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		nap := flow("nap", func(run *engine.Run) (string, error) { return "", run.Sleep(10 * time.Minute) })
		client := made(t, s, as("client"))
		want := func(when string, want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, engines(t, client)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		want("at first")

		var ofA, ofB heard
		f := storagetest.NewFaulty(s, nil)
		a := bootOn(t, f, nap, as("a"), ofA.listen)
		time.Sleep(time.Second)
		for i := range 3 {
			start(t, nap, a, fmt.Sprint(i), "")
		}
		b := boot(t, s, nap, as("b"), ofB.listen)
		time.Sleep(time.Minute)
		want("both live", "a [nap] alive true, since, 3 runs, lease 15s, 0 0 0", "b [nap] alive true, since, 0 runs, lease 15s, 0 0 0")

		f.Crash()
		time.Sleep(time.Minute)
		want("a is dead", "a [nap] alive false, since, 0 runs, lease 15s, 0 0 0", "b [nap] alive true, since, 3 runs, lease 15s, 3 0 0")
		if diff := cmp.Diff([]string{"takeover 0 from a to b", "takeover 1 from a to b", "takeover 2 from a to b"}, ofB.told()); diff != "" {
			t.Errorf("b was told (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"deposed a"}, ofA.told()[:1]); diff != "" {
			t.Errorf("a was told (-want +got):\n%s", diff)
		}
		b.stop(t)
		want("b has stopped", "a [nap] alive false, since, 0 runs, lease 15s, 0 0 0", "b [nap] alive false, since, stopped, 0 runs, lease 15s, 3 0 0")
		a.kill()
	})
}

// The record of an engine that died stays for a day after that, however long the engine had run.
func TestRecordOfADeadEngineStaysForADay(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		nap := flow("nap", nil2)
		f := storagetest.NewFaulty(s, nil)
		bootOn(t, f, nap, as("a"), rarestLeases)
		boot(t, s, nap, as("b"), rarestLeases)
		time.Sleep(48 * time.Hour)
		f.Crash()
		time.Sleep(3 * time.Hour)
		if got := engines(t, made(t, s)); len(got) != 2 {
			t.Errorf("three hours later: %q, want the dead one, too", got)
		}
		time.Sleep(23 * time.Hour)
		if got := engines(t, made(t, s)); len(got) != 1 {
			t.Errorf("a day later: %q, want the living one", got)
		}
	})
}

// The record of an engine whose clock was ahead does not stay until that time comes: it goes a day after another one has found that
// the engine has ended, also if none runs for that long.
func TestRecordOfADeadEngineWhoseClockWasAhead(t *testing.T) {
	rarest := func(c *engine.Config) { c.PollInterval, c.LeaseTTL = 5*time.Minute, 15*time.Minute } // three days pass, five times
	for _, c := range []struct {
		ahead  time.Duration
		stops  bool
		shifts bool // the other engines run for 5 hours each
	}{{time.Minute, false, false}, {decade, false, false}, {decade, true, false}, {decade, false, true}, {decade, true, true}} {
		t.Run(sprint(c.ahead, c.stops, c.shifts), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := sharing{fresh(t)}
				nap := flow("nap", nil2)
				var clock wall
				a := bootAt(t, s, &clock, nap, as("a"), rarest)
				b := boot(t, s, nap, as("b"), rarest)
				pass := func(d time.Duration) {
					for ; c.shifts && d > 5*time.Hour; d -= 5 * time.Hour {
						time.Sleep(5 * time.Hour)
						b.stop(t)
						b = boot(t, s, nap, as("b"), rarest)
					}
					time.Sleep(d)
				}
				has := func(want bool, when string) {
					t.Helper()
					got := engines(t, made(t, s))
					if slices.ContainsFunc(got, func(e string) bool { return strings.HasPrefix(e, "a ") }) != want {
						t.Errorf("%s: %q, want the dead one: %v", when, got, want)
					}
				}
				pass(48 * time.Hour)
				clock.jump(c.ahead)
				time.Sleep(10 * time.Minute)
				if c.stops {
					a.stop(t)
				} else {
					a.store.Crash()
				}
				pass(3 * time.Hour)
				has(true, "three hours later")
				pass(24 * time.Hour)
				has(false, "a day later")
			})
		})
	}
}

// On a store with one opener at a time there are no leases: who died with another
// opening is not alive, whoever looks. A damaged record is named, beside the others.
func TestEnginesOfAnExclusiveStore(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		nap := flow("nap", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Hour) })
		a := boot(t, s, nap, func(c *engine.Config) { c.Name = "a" })
		time.Sleep(time.Second)
		start(t, nap, a, "1", "")
		if diff := cmp.Diff([]string{"a [nap] alive true, since, 1 runs, lease 0s, 0 0 0"}, engines(t, a.Engine)); diff != "" {
			t.Errorf("a lives (-want +got):\n%s", diff)
		}
		owner := describe(t, a, "1").Owner
		a.kill()
		put(t, s, keys.Engine("c-damaged"), []byte("damaged"))
		b := boot(t, s, nap, func(c *engine.Config) { c.Name = "b" })
		time.Sleep(time.Second)
		infos, err := b.Engines(ctx)
		if err == nil || !strings.Contains(err.Error(), "c-damaged") {
			t.Errorf("error %v, want one that names the damaged record", err)
		}
		if len(infos) != 2 || infos[0].Incarnation != owner || infos[0].Alive || !infos[1].Alive || infos[1].Runs != 1 || infos[1].Takeovers != 1 {
			t.Errorf("got %+v", infos)
		}
	})
}

// An engine that ends before it begins, because it cannot read the floor of the store, is not shown as alive.
func TestEngineThatDoesNotBegin(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		e := made(t, s, flow("nap", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Hour) }))
		defer e.Close()
		put(t, s, keys.Meta("floor"), []byte("damaged"))
		for range 2 {
			if err := e.Run(ctx); !errors.Is(err, storage.ErrCorrupt) {
				t.Fatalf("got %v, want ErrCorrupt", err)
			}
		}
		infos, err := e.Engines(ctx)
		if err != nil || len(infos) != 2 || infos[0].Alive || infos[1].Alive {
			t.Errorf("got %+v, %v", infos, err)
		}
	})
}

// unresponsive answers that renewals are stored, which they are not from a moment on: its
// engine is trusting like one whose clock stood still while its machine slept.
type unresponsive struct {
	storage.Storage
	sleeps atomic.Bool
}

func (d *unresponsive) Commit(ctx context.Context, b storage.Batch) error {
	if b.Urgent && d.sleeps.Load() {
		return nil
	}
	return d.Storage.Commit(ctx, b)
}

// OWN-9, OWN-21, OWN-25, OW3: an owner that takes itself for alive, and is not, can do
// nothing to its run: nothing that it commits is accepted, and its effects carry a
// token below that of its successor.
func TestZombieIsFenced(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		var mu sync.Mutex
		tokens := map[string][]uint64{} // of attempts, by operation
		tick := &activity.Activity[int, int]{Name: "tick", Run: func(ctx context.Context, i int) (int, error) {
			info := activity.InfoFrom(ctx)
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			tokens[info.Operation] = append(tokens[info.Operation], info.FencingToken)
			return i, nil
		}}
		wf := flow("ticks", func(run *engine.Run) (string, error) {
			for i := range 120 {
				if _, err := tick.Do(run, i); err != nil {
					return "", err
				}
			}
			return "done", nil
		})
		var ofA, ofB heard
		store := &unresponsive{Storage: s}
		a := boot(t, store, wf, ofA.listen, func(c *engine.Config) { c.Name = "a" })
		time.Sleep(time.Second)
		start(t, wf, a, "1", "")
		b := boot(t, s, wf, ofB.listen, func(c *engine.Config) { c.Name = "b" })
		time.Sleep(30 * time.Second)
		store.sleeps.Store(true)
		if got := result(t, wf.Handle(b, "1")); got != "done" {
			t.Errorf("result %q", got)
		}
		if diff := cmp.Diff([]string{"fenced 1"}, ofA.told()); diff != "" {
			t.Errorf("a was told (-want +got):\n%s", diff)
		}
		told := slices.DeleteFunc(ofB.told(), func(s string) bool { return s == "lost race 1" }) // its first try may meet a's last step
		if diff := cmp.Diff([]string{"takeover 1 from a to b"}, told); diff != "" {
			t.Errorf("b was told (-want +got):\n%s", diff)
		}
		var owner string
		settled := map[string]bool{}
		for _, c := range historyOf(t, b.Engine, "1") {
			for _, e := range c.Events {
				switch e.Kind {
				case checkpoint.KindClaimed:
					owner = e.By
				case checkpoint.KindSettled:
					if settled[e.Operation] {
						t.Errorf("operation %s has two outcomes", e.Operation)
					}
					settled[e.Operation] = true
				}
			}
		}
		if len(settled) != 120 || !strings.HasPrefix(owner, "b-") {
			t.Errorf("%d outcomes, want 120; the last owner is %q, want b", len(settled), owner)
		}
		twice := 0
		for o, ts := range tokens {
			if twice += len(ts) - 1; len(ts) == 2 && ts[0] == ts[1] {
				t.Errorf("operation %s: both owners had the token %d", o, ts[0])
			}
		}
		if twice != 1 {
			t.Errorf("%d operations were begun by both, want the one that a was in", twice)
		}
		store.sleeps.Store(false)
	})
}

// OWN-2, OWN-9, OWN-25: engines that want the same run claim it before they execute any of it. Who
// loses that race executes nothing, also if it lost it while its claim was on the way to the
// store: engines share nothing else.
func TestWhoLosesARaceExecutesNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		var ran tally
		wf := flow("w", func(run *engine.Run) (string, error) {
			_, err := engine.Step(run, "s", func(context.Context) (int, error) {
				time.Sleep(time.Minute)
				return ran.add("s"), nil
			})
			return "done", err
		})
		var slow atomic.Int32
		h := &hooked{Storage: s, beforeCommit: func(b storage.Batch) {
			if touches(b, "held:a") && slow.Add(1) == 1 {
				time.Sleep(10 * time.Second) // meanwhile b claims
			}
		}}
		client := made(t, s, as("client"))
		defer client.Close()
		start(t, wf, client, "o", "")
		var ofA heard
		boot(t, h, wf, as("a"), ofA.listen)
		time.Sleep(3 * time.Second)
		boot(t, s, wf, as("b"))
		if got := result(t, wf.Handle(client, "o")); got != "done" {
			t.Errorf("result %q", got)
		}
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"lost race o"}, ofA.told()); diff != "" {
			t.Errorf("a was told (-want +got):\n%s", diff)
		}
		if n := ran.of("s"); n != 1 {
			t.Errorf("the step was executed %d times, want once", n)
		}
	})
}
