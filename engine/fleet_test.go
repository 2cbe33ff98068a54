package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

func as(name string) func(*engine.Config) { return func(c *engine.Config) { c.Name = name } }

// owners counts, by the names of their owners, the workflows 0 to n-1.
func owners(t *testing.T, c engine.Client, n int) map[string]int {
	t.Helper()
	of := map[string]int{}
	for i := range n {
		name, _, _ := strings.Cut(describe(t, c, fmt.Sprint(i)).Owner, "-")
		of[name]++
	}
	return of
}

// OW7, X-11: what a dead engine held goes to all that are left, within a TTL and a poll,
// and they do not get into each other's way.
func TestTakeoverIsSpread(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		nap := flow("nap", func(run *engine.Run) (string, error) { return "", run.Sleep(10 * time.Minute) })
		f := storagetest.NewFaulty(s, nil)
		a := bootOn(t, f, nap, as("a"))
		time.Sleep(time.Second)
		const runs = 60
		for i := range runs {
			start(t, nap, a, fmt.Sprint(i), "")
		}
		var told heard
		for _, name := range []string{"b", "c", "d"} {
			boot(t, s, nap, as(name), told.listen)
		}
		time.Sleep(time.Minute)
		client := made(t, s)
		if got := owners(t, client, runs); got["a"] != runs {
			t.Errorf("all live: %v, want that a has them all", got)
		}
		f.Crash()
		time.Sleep(17 * time.Second) // 15 s, and polls
		got := owners(t, client, runs)
		for _, name := range []string{"b", "c", "d"} {
			if got[name] < runs/20 {
				t.Errorf("%s took over %d of %d: %v", name, got[name], runs, got)
			}
		}
		if got["b"]+got["c"]+got["d"] != runs {
			t.Errorf("owners %v, want all %d taken over", got, runs)
		}
		for _, word := range told.told() {
			if !strings.HasPrefix(word, "takeover") {
				t.Errorf("%s: want takeovers alone", word)
			}
		}
	})
}

// What waits for an engine that has no room, or is dead and nobody knows it yet, is
// found by another a little later. Who does not run a type keeps nobody waiting.
func TestOverdueWorkIsFoundByAnybody(t *testing.T) {
	for _, how := range []string{"no room", "dead", "of another type"} {
		virtual(t, func(t *testing.T) {
			s := sharing{fresh(t)}
			busy := &activity.Activity[int, int]{Name: "busy", Run: func(ctx context.Context, i int) (int, error) {
				select {
				case <-time.After(10 * time.Minute):
				case <-ctx.Done():
				}
				return i, ctx.Err()
			}}
			nap := flow("nap", func(run *engine.Run) (string, error) {
				_, err := busy.Do(run, 1)
				return "", err
			})
			other := flow("other", func(run *engine.Run) (string, error) { return "", run.Sleep(10 * time.Minute) })
			f := storagetest.NewFaulty(s, nil)
			switch how {
			case "no room":
				bootOn(t, f, nap, as("a"), func(c *engine.Config) { c.MaxRunsInMemory = 1 })
			case "dead":
				bootOn(t, f, nap, as("a"))
			default:
				bootOn(t, f, other, as("a"))
			}
			boot(t, s, nap, as("b"))
			time.Sleep(time.Minute)
			if how == "dead" {
				f.Crash()
			}
			client := made(t, s)
			const runs = 40
			for i := range runs {
				start(t, nap, client, fmt.Sprint(i), "")
			}
			within := 3 * time.Second
			if how == "of another type" {
				within = time.Second + time.Millisecond
			}
			time.Sleep(within)
			got := owners(t, client, runs)
			if got["b"] < runs-1 || got["a"]+got["b"] != runs {
				t.Errorf("%s: after %v: %v, want all of %d driven", how, within, got, runs)
			}
		})
	}
}

// New work that nobody drives yet is shared by engines that live.
func TestPendingWorkIsShared(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		nap := flow("nap", func(run *engine.Run) (string, error) { return "", run.Sleep(10 * time.Minute) })
		for _, name := range []string{"a", "b", "c"} {
			boot(t, s, nap, as(name))
		}
		time.Sleep(time.Minute)
		client := made(t, s)
		const runs = 60
		for i := range runs {
			start(t, nap, client, fmt.Sprint(i), "")
		}
		time.Sleep(4 * time.Second)
		got := owners(t, client, runs)
		for _, name := range []string{"a", "b", "c"} {
			if got[name] < runs/20 {
				t.Errorf("%s drives %d of %d: %v", name, got[name], runs, got)
			}
		}
		if got["a"]+got["b"]+got["c"] != runs {
			t.Errorf("owners %v, want all of %d driven", got, runs)
		}
	})
}

// An engine that has nothing to do asks its store twice in a poll: who is there, and what
// is due. To ask a server is most of what it costs to be idle.
func TestIdleEngineAsksLittle(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		nap := flow("nap", func(run *engine.Run) (string, error) { return "", run.Sleep(10 * time.Minute) })
		var mu sync.Mutex
		asked := map[string]int{}
		f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			mu.Lock()
			defer mu.Unlock()
			kind, _, _ := strings.Cut(string(c.Range.Start), ":")
			asked[c.Method+" "+kind]++
			return storagetest.None
		})
		boot(t, s, nap, as("other"))
		bootOn(t, f, nap, as("idle"))
		time.Sleep(30 * time.Second)
		mu.Lock()
		clear(asked)
		mu.Unlock()
		time.Sleep(100 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		for call, most := range map[string]int{
			"Scan eng": 101, "Scan todo": 101, "Commit ": 21, // renewals
			"Scan held": 11, "Scan wake": 11, "Scan exp": 22, "Scan due": 11, "Scan bulk": 11,
			"Get ": 11, // of the stamp
		} {
			if asked[call] > most {
				t.Errorf("%d of %q in 100 polls, want at most %d", asked[call], call, most)
			}
			if asked[call] == 0 {
				t.Errorf("no %q in 100 polls", call)
			}
			delete(asked, call)
		}
		if len(asked) > 0 {
			t.Errorf("asked for %v too", asked)
		}
	})
}

// SG7: a run that an engine has and does not drive, as it waits for a person or was put
// down, is reached within a poll by what others write for it, although the engine is idle
// but for it.
func TestUndrivenRunIsReachedWithinAPoll(t *testing.T) {
	for _, how := range []string{"waits for a person", "was put down"} {
		for after := range 10 { // one of them is the poll in which it looks anyway
			virtual(t, func(t *testing.T) {
				putDown := how == "was put down"
				var mended, refuse atomic.Bool
				var reached time.Time
				mended.Store(putDown)
				refuse.Store(putDown)
				s := sharing{fresh(t)}
				f := storagetest.NewFaulty(&hooked{Storage: s, afterCommit: func(b storage.Batch) error {
					if appendsTo(b, "o") && len(logged(t, s, "o")) == 2 && refuse.CompareAndSwap(true, false) {
						return storage.ErrAborted // there is no hope for it
					}
					return nil
				}}, nil)
				wf := flow("w", func(run *engine.Run) (string, error) {
					next := &activity.Activity[string, string]{Name: "next"}
					if mended.Load() {
						next.Run = func(context.Context, string) (string, error) { return "", nil }
					}
					if _, err := next.Do(run, ""); err != nil {
						return "", err
					}
					if putDown {
						if _, err := approved.Receive(run); err != nil {
							return "", err
						}
					}
					reached = time.Now()
					return "done", nil
				})
				owner := bootOn(t, f, wf, as("owner"))
				start(t, wf, owner, "o", "")
				time.Sleep(time.Minute + time.Duration(after)*time.Second)
				if i := describe(t, owner, "o"); i.Owner == "" || heldFor(i, engine.ReasonBadDefinition) == putDown || refuse.Load() {
					t.Fatalf("%s: %+v", how, i)
				}
				office := made(t, s, wf, as("office"))
				defer office.Close()
				began := time.Now()
				if putDown {
					send(t, approved, office, "o", "yes", "1")
				} else {
					mended.Store(true)
					if err := office.Resume(ctx, "o", audit); err != nil {
						t.Fatal(err)
					}
				}
				result(t, wf.Handle(office, "o"))
				if took := reached.Sub(began); took > 1100*time.Millisecond {
					t.Errorf("%s: reached after %v, want a poll", how, took)
				}
			})
		}
	}
}

// What was written for a run that has just ended is cleared away by the next poll, also
// of an engine that is idle from then on.
func TestHintOfWhatHasEndedIsClearedAway(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		nap := flow("nap", func(run *engine.Run) (string, error) { return "", run.Sleep(10500 * time.Millisecond) })
		p := boot(t, s, nap, parkAfter(time.Hour))
		h := start(t, nap, p, "o", "")
		time.Sleep(time.Second)
		owner := describe(t, p, "o").Owner
		result(t, h)
		put(t, s, keys.Wake(owner, "o", "late"), nil)
		time.Sleep(1100 * time.Millisecond)
		if left := entries(t, s, "wake:"); len(left) > 0 {
			t.Errorf("left over: %q", left)
		}
	})
}

// What others write for the runs of an engine is one commit for many runs, and the state of another engine, which
// has not read what is for it, is read once in a poll.
func TestManyWakesShareCommits(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		var deleted, reads atomic.Int32
		var busy string // the incarnation that does not look
		h := &hooked{Storage: s}
		h.beforeCommit = func(b storage.Batch) {
			if touches(b, "wake:") {
				deleted.Add(1)
			}
		}
		h.beforeGet = func(key []byte) {
			if busy != "" && string(key) == string(keys.Engine(busy)) {
				reads.Add(1)
			}
		}
		wf := receiving(1)
		stay := func(c *engine.Config) { c.ParkAfter = 10 * time.Hour }
		b := boot(t, s, wf, as("b"), stay, func(c *engine.Config) { c.PollInterval = time.Hour })
		time.Sleep(time.Second)
		const runs = 300
		for i := range runs {
			start(t, wf, b, fmt.Sprint("b", i), "")
		}
		time.Sleep(time.Second)
		busy = describe(t, b, "b0").Owner
		a := boot(t, h, wf, as("a"), stay)
		for i := range runs {
			start(t, wf, a, fmt.Sprint("a", i), "")
		}
		time.Sleep(10 * time.Second)
		client := made(t, s)
		defer client.Close()
		deleted.Store(0)
		reads.Store(0)
		for i := range runs {
			for _, of := range []string{"a", "b"} {
				send(t, approved, client, fmt.Sprint(of, i), "v", "")
			}
		}
		time.Sleep(4 * time.Second)
		for i := range runs {
			if got := result(t, wf.Handle(client, fmt.Sprint("a", i))); got != "v" {
				t.Errorf("result %q", got)
			}
		}
		if n := deleted.Load(); n == 0 || n > 20 {
			t.Errorf("%d commits deleted what was written for %d runs", n, runs)
		}
		if n := reads.Load(); n > 50 {
			t.Errorf("in 4 polls the record of an engine was read %d times", n)
		}
		if left := len(entries(t, s, "wake:")); left != runs {
			t.Errorf("%d entries are left, want those of b", left)
		}
	})
}
