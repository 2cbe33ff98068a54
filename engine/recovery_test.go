package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
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
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/storagetest"
)

// Interleaving 21: a run that is put down ends by Goexit. No recover swallows
// it, a deferred function does not take it for success, an engine call in one
// unwinds too, and a panic in one harms nobody.
func TestRunThatIsPutDown(t *testing.T) {
	for _, how := range []string{"stop", "close", "kill"} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			var seen tally
			wf := flow("w", func(run *engine.Run) (out string, err error) {
				defer func() {
					if p := recover(); p != nil {
						seen.add("recovered")
					}
				}()
				returned := false
				defer func() {
					if returned && err == nil {
						seen.add("took it for success")
					}
				}()
				defer func() {
					seen.add("deferred")
					run.Sleep(0)
					engine.Step(run, "in a deferred function", func(context.Context) (int, error) { seen.add("step"); return 0, nil })
					seen.add("went on in a deferred function")
				}()
				defer func() {
					if !returned {
						panic("in a deferred function")
					}
				}()
				err = run.Sleep(time.Hour)
				returned = true
				return "woke", err
			})
			p := boot(t, s, wf)
			start(t, wf, p, "o", "")
			innocent := flow("innocent", nil2)
			time.Sleep(time.Minute)
			map[string]func(){"stop": func() { p.stop(t) }, "close": p.close, "kill": p.kill}[how]()
			if got := strings.Join(seen.all(), ", "); got != "deferred" {
				t.Errorf("%s: what happened while it was put down: %q", how, got)
			}
			client := made(t, s)
			if i := describe(t, client, "o"); i.Status != checkpoint.StatusRunning || len(i.Attention) != 0 {
				t.Errorf("%s: %+v, want it running", how, i)
			}
			if got := kinds(historyOf(t, client, "o")); len(got) > 2 {
				t.Errorf("%s: recorded %v", how, got)
			}
			p = boot(t, s, wf, innocent)
			if got := result(t, wf.Handle(p, "o")); got != "woke" {
				t.Errorf("%s: result %q", how, got)
			}
		})
	}
}

// A workflow function that does not come back is left behind after StopTimeout,
// and nothing that it does then counts.
func TestFunctionThatDoesNotComeBack(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var stuck atomic.Bool
		stuck.Store(true)
		block := make(chan int)
		wf := flow("w", func(run *engine.Run) (string, error) {
			if stuck.Load() {
				<-block // an offence: not through the engine
			}
			return "done", run.Sleep(0)
		})
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		begun := time.Now()
		p.close()
		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("Close took %v", took)
		}
		stuck.Store(false)
		close(block)
		p = boot(t, s, wf)
		if got := result(t, wf.Handle(p, "o")); got != "done" {
			t.Errorf("result %q", got)
		}
	})
}

// Interleaving 23 and 31: a run that kills the process whenever it is driven is
// found and held; those beside it are not blamed, and complete.
func TestRunThatKillsTheProcess(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var life atomic.Pointer[storagetest.Faulty]
		var p *process
		var kills atomic.Int32
		poison := flow("poison", func(run *engine.Run) (string, error) {
			kills.Add(1)
			life.Load().Crash() // the process is gone before it has got anywhere
			return "", nil      // of which nobody hears
		})
		nap := flow("nap", func(run *engine.Run) (string, error) { return "rested", run.Sleep(30 * time.Minute) })
		wait := receiving(1)
		wait.Name = "wait"
		client := made(t, s)
		defer client.Close()
		start(t, nap, client, "a-innocent", "")
		start(t, poison, client, "m-poison", "")
		start(t, wait, client, "z-innocent", "")
		lives := 0
		for ; lives < 30; lives++ {
			life.Store(storagetest.NewFaulty(s, nil))
			p = bootOn(t, life.Load(), poison, nap, wait)
			dies := false
			for range 20 {
				time.Sleep(time.Second)
				select {
				case <-p.store.Crashed():
					dies = true
				default:
				}
			}
			if !dies {
				break
			}
			p.kill()
		}
		i := describe(t, client, "m-poison")
		if i.Status != checkpoint.StatusRunning || !heldFor(i, engine.ReasonNoProgress) {
			t.Errorf("after %d lives: %+v, want it held", lives, i)
		}
		if n := kills.Load(); n < 2 || n > 10 {
			t.Errorf("it killed %d processes", n)
		}
		for _, id := range []string{"a-innocent", "z-innocent"} {
			if i := describe(t, client, id); len(i.Attention) != 0 {
				t.Errorf("%s is blamed: %v", id, i.Attention)
			}
		}
		send(t, approved, client, "z-innocent", "v", "")
		if got := result(t, nap.Handle(p, "a-innocent")); got != "rested" {
			t.Errorf("result %q", got)
		}
		if got := result(t, wait.Handle(p, "z-innocent")); got != "v" {
			t.Errorf("result %q", got)
		}
		p.stop(t)

		// The next process leaves it alone too, until a person has it tried again.
		poison.Func = func(run *engine.Run, in string) (string, error) { return "mended", nil }
		p = boot(t, s, poison, nap, wait)
		time.Sleep(time.Minute)
		if i := describe(t, p, "m-poison"); !heldFor(i, engine.ReasonNoProgress) {
			t.Errorf("in the next process: %+v, want it held", i)
		}
		if err := p.Resume(ctx, "m-poison", audit); err != nil {
			t.Fatalf("Retry: %v", err)
		}
		if got := result(t, poison.Handle(p, "m-poison")); got != "mended" {
			t.Errorf("retried: %q", got)
		}
		if err := p.Resume(ctx, "m-poison", audit); !errors.Is(err, engine.ErrNotApplicable) && !errors.Is(err, engine.ErrTerminal) {
			t.Errorf("retry of one that is not held: %v", err)
		}
	})
}

// Interleaving 10: two engines on one handle respect each other; when the first
// has closed, the second takes over at once.
func TestTwoEnginesOnOneHandle(t *testing.T) {
	for _, how := range []string{"stop", "close"} {
		virtual(t, func(t *testing.T) {
			f := storagetest.NewFaulty(fresh(t), nil)
			var drives tally
			wf := flow("w", func(run *engine.Run) (string, error) {
				drives.add("drive")
				return "done", run.Sleep(time.Hour)
			})
			a := bootOn(t, f, wf)
			time.Sleep(time.Second)
			start(t, wf, a, "o", "")
			b := bootOn(t, f, wf)
			time.Sleep(10 * time.Minute)
			owner := describe(t, b, "o").Owner
			if n := drives.of("drive"); n != 1 {
				t.Errorf("%s: driven %d times, want once", how, n)
			}
			if how == "stop" {
				a.stop(t)
			} else {
				a.close()
			}
			time.Sleep(2 * time.Second)
			if i := describe(t, b, "o"); i.Owner == owner || i.Owner == "" && how == "close" {
				t.Errorf("%s: owner %q, was %q", how, i.Owner, owner)
			}
			if got := result(t, wf.Handle(b, "o")); got != "done" || drives.of("drive") != 2 {
				t.Errorf("%s: %q; driven %d times", how, got, drives.of("drive"))
			}
			b.stop(t)
		})
	}
}

// Interleaving 20: an engine that comes back under its old name is another one,
// and claims before it drives.
func TestSameNameClaimsAnew(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		tokens := make(chan uint64, 3)
		act := &activity.Activity[string, int]{Name: "act", Run: func(ctx context.Context, _ string) (int, error) {
			tokens <- activity.InfoFrom(ctx).FencingToken
			<-ctx.Done()
			return 0, ctx.Err()
		}}
		var last uint64
		for range 3 {
			p := boot(t, s, doing(act)) // always "host"
			time.Sleep(time.Second)
			start(t, doing(act), p, "o", "")
			token := <-tokens
			if i := describe(t, p, "o"); i.Epoch != token || token <= last || !strings.HasPrefix(i.Owner, "host-") {
				t.Errorf("driven with the token %d, after %d; claimed with %d by %q", token, last, i.Epoch, i.Owner)
			}
			last = token
			p.kill()
		}
	})
}

// A run whose store went back is driven again also while a person is asked about one
// of its activities: that question holds nothing else up.
func TestStoreThatLostWritesWhileAPersonIsAsked(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		a, _ := keyed(func(context.Context, int) (string, error) { return "", errBroke },
			func(int) activity.Verification[string] { return activity.Indeterminate[string]("nobody knows") })
		a.OnIndeterminate = activity.AwaitOperator
		wf := flow("w", func(run *engine.Run) (string, error) {
			charge := a.Go(run, "42")
			for range 2 {
				if _, err := yes.Receive(run); err != nil {
					return "", err
				}
			}
			return charge.Get(run)
		})
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		time.Sleep(3 * time.Hour)
		if i := describe(t, p, "o"); !heldFor(i, engine.ReasonIndeterminate) {
			t.Fatalf("nobody is asked: %+v", i)
		}
		tell(t, yes, p, "o", "first")
		time.Sleep(time.Second)
		cs := historyOf(t, p.Engine, "o")
		lost := []storage.Op{storage.Delete(logOf(t, s, "o").Checkpoint(cs[len(cs)-1].Number)), storage.Delete(keys.SignalCounter("o"))}
		if err := s.Commit(ctx, storage.Batch{Ops: lost}); err != nil {
			t.Fatal(err)
		}
		tell(t, yes, p, "o", "second")
		tell(t, yes, p, "o", "third")
		time.Sleep(3 * time.Hour)
		if err := p.Resolve(ctx, "o", "1", activity.CompletedWithResult("paid"), audit); err != nil {
			t.Fatal(err)
		}
		if got := result(t, wf.Handle(p, "o")); got != "paid" {
			t.Errorf("result %q", got)
		}
	})
}

// Interleaving 11 and 35, OW1: the store went back under a live engine. The run
// goes on from what is left, and no number comes twice.
func TestStoreThatLostWrites(t *testing.T) {
	for _, c := range []string{"the last step", "three steps", "everything since the claim", "the claim too"} {
		t.Run(c, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := fresh(t)
				tokens := map[uint64]int{}
				var highest uint64
				act := &activity.Activity[string, int]{Name: "act", Run: func(ctx context.Context, _ string) (int, error) {
					n := activity.InfoFrom(ctx).FencingToken
					tokens[n]++
					highest = max(highest, n)
					return 1, nil
				}}
				wf := flow("w", func(run *engine.Run) (string, error) {
					for range 5 {
						if _, err := act.Do(run, ""); err != nil {
							return "", err
						}
					}
					if err := run.Sleep(time.Hour); err != nil {
						return "", err
					}
					_, err := act.Do(run, "")
					return "done", err
				})
				client := made(t, s)
				start(t, wf, client, "o", "")
				client.Close()
				before := snapshot(t, s)
				p := boot(t, s, wf)
				time.Sleep(time.Second)
				cs := historyOf(t, p.Engine, "o")
				head := cs[len(cs)-1].Number
				var lost []storage.Op
				for i, cp := range slices.Backward(cs) {
					if map[string]bool{"the last step": i == len(cs)-1, "three steps": i >= len(cs)-3, "everything since the claim": i > 0, "the claim too": true}[c] {
						lost = append(lost, storage.Delete(logOf(t, s, "o").Checkpoint(cp.Number)))
					}
				}
				if c == "the claim too" { // the record as it was before
					lost = append(lost, storage.Put(keys.Workflow("o"), get(t, before, keys.Workflow("o"))))
					for _, k := range entries(t, before, "todo:") {
						lost = append(lost, storage.Put([]byte(k), nil))
					}
				}
				if err := s.Commit(ctx, storage.Batch{Ops: lost}); err != nil {
					t.Fatal(err)
				}
				given := highest
				if got, err := wf.Handle(p, "o").Result(ctx); got != "done" || err != nil {
					t.Errorf("result %q, %v", got, err)
				}
				i := describe(t, p, "o")
				if i.Epoch <= head || i.Epoch <= given {
					t.Errorf("the new claim is %d; the head was %d, and %d was the highest token given", i.Epoch, head, given)
				}
				for n, times := range tokens {
					if times > 1 {
						t.Errorf("the token %d was given %d times", n, times)
					}
				}
				historyOf(t, p.Engine, "o") // without a gap
			})
		})
	}
}

// OW1: the store went back to a moment at which a live engine had a run, under an earlier claim than now,
// or one that the engine has parked or ended since. The engine goes on with it.
func TestStoreThatWentBackToAnEarlierClaim(t *testing.T) {
	for _, c := range []string{"claimed again", "parked", "ended"} {
		t.Run(c, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := fresh(t)
				wf := flow("w", func(run *engine.Run) (string, error) {
					if _, err := yes.Receive(run); err != nil {
						return "", err
					}
					return "done", run.Sleep(time.Hour)
				})
				p := boot(t, s, wf, parkAfter(10*time.Second), rareLeases)
				start(t, wf, p, "o", "")
				if c != "claimed again" {
					tell(t, yes, p, "o", "")
				}
				time.Sleep(5 * time.Second)
				before := snapshot(t, s)
				epoch := describe(t, p, "o").Epoch
				time.Sleep(20 * time.Second) // it is parked
				switch c {
				case "claimed again":
					tell(t, yes, p, "o", "")
					time.Sleep(time.Second)
				case "ended":
					time.Sleep(time.Hour)
				}
				if err := s.Commit(ctx, madeInto(t, s, before)); err != nil {
					t.Fatal(err)
				}
				if c == "claimed again" {
					time.Sleep(25 * time.Second) // it is to be parked, and then the next poll looks
					if now := describe(t, p, "o").Epoch; now == epoch {
						t.Error("the engine that has lost it does not look at it")
					}
					tell(t, yes, p, "o", "")
				}
				time.Sleep(2 * time.Hour)
				if i := describe(t, p, "o"); i.Status != checkpoint.StatusCompleted {
					t.Errorf("%s, %+v, want it completed", i.Status, i.Attention)
				}
			})
		})
	}
}

// OW1: an engine looks at a run that it may own, while the commit that parks the run is applied late, and a signal
// has the engine claim the run just before it removes what it takes for left over. After a crash the next
// engine finds the run.
func TestClaimWhileTheEngineTidiesUp(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		h := &hooked{Storage: s}
		wf := receiving(2)
		var late atomic.Pointer[storage.Batch] // what parks the run
		var tidied atomic.Int32
		var p *process
		h.afterGet = func(key []byte) {
			if b := late.Load(); b != nil && bytes.Equal(key, keys.Workflow("o")) {
				late.Store(nil)
				if err := s.Commit(ctx, *b); err != nil {
					t.Error(err)
				}
			}
		}
		h.beforeCommit = func(b storage.Batch) {
			if len(b.Ops) == 1 && b.Ops[0].Kind == storage.DeleteOp && touches(b, "held:") && tidied.Add(1) == 1 {
				send(t, approved, p, "o", "1", "")
			}
		}
		p = boot(t, h, wf, parkAfter(10*time.Second), rareLeases)
		start(t, wf, p, "o", "")
		time.Sleep(5 * time.Second)
		owned := snapshot(t, s)
		time.Sleep(20 * time.Second)
		parked := snapshot(t, s)
		back, again := madeInto(t, parked, owned), madeInto(t, owned, parked)
		if err := s.Commit(ctx, back); err != nil {
			t.Fatal(err)
		}
		late.Store(&again)
		for range 120 { // it looks once a minute
			if time.Sleep(time.Second); tidied.Load() > 0 {
				break
			}
		}
		if i := describe(t, p, "o"); tidied.Load() == 0 || i.Owner == "" {
			t.Errorf("the engine has tidied up %d times, and the run is owned by %q", tidied.Load(), i.Owner)
		}
		p.kill()
		p = boot(t, s, wf, parkAfter(10*time.Second))
		time.Sleep(time.Minute)
		send(t, approved, p, "o", "2", "")
		time.Sleep(time.Minute)
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusCompleted {
			t.Errorf("%s, owned by %q, want it completed", i.Status, i.Owner)
		}
	})
}

// madeInto returns what makes of the workflows in one store what they are in another.
func madeInto(t *testing.T, from, to storage.Storage) (b storage.Batch) {
	t.Helper()
	for _, s := range []storage.Storage{from, to} {
		for e, err := range storage.All(ctx, s, storage.Range{}) {
			switch {
			case err != nil:
				t.Fatal(err)
			case bytes.HasPrefix(e.Key, []byte("eng:")):
			case s == from:
				b.Ops = append(b.Ops, storage.Delete(e.Key))
			default:
				b.Ops = slices.DeleteFunc(b.Ops, func(o storage.Op) bool { return bytes.Equal(o.Key, e.Key) })
				b.Ops = append(b.Ops, storage.Put(e.Key, e.Value))
			}
		}
	}
	return b
}

// LV2, F9, FMT-13, FMT-15: a damaged or future record of one run stops that run;
// whoever looks at it is told which record, and the others go on.
func TestDamagedRecordsOfOneRun(t *testing.T) {
	future := func(t *testing.T, key []byte) []byte {
		raw, err := record.Seal(key, 9, &struct {
			A int `cbor:"1,keyasint"`
		}{1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	for _, c := range []struct {
		name string
		key  func(log keys.Log, cs []checkpoint.Checkpoint) []byte
		held engine.Reason // "" if the workflow record itself cannot be read
	}{
		{"workflow", func(keys.Log, []checkpoint.Checkpoint) []byte { return keys.Workflow("bad") }, ""},
		{"input", func(keys.Log, []checkpoint.Checkpoint) []byte { return keys.Input("bad") }, engine.ReasonDamaged},
		{"first checkpoint", func(log keys.Log, cs []checkpoint.Checkpoint) []byte { return log.Checkpoint(cs[0].Number) }, engine.ReasonDamaged},
		{"a checkpoint", func(log keys.Log, cs []checkpoint.Checkpoint) []byte { return log.Checkpoint(cs[1].Number) }, engine.ReasonDamaged},
		{"head", func(log keys.Log, cs []checkpoint.Checkpoint) []byte { return log.Checkpoint(cs[len(cs)-1].Number) }, engine.ReasonDamaged},
		{"engine", func(_ keys.Log, cs []checkpoint.Checkpoint) []byte { return keys.Engine(cs[0].Owner) }, "none"},
	} {
		for _, kind := range []string{"flipped", "future"} {
			t.Run(c.name+" "+kind, func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					s := fresh(t)
					wf := flow("w", func(run *engine.Run) (string, error) {
						for range 3 {
							if err := run.Sleep(time.Minute); err != nil {
								return "", err
							}
						}
						return "done", nil
					})
					p := boot(t, s, wf)
					time.Sleep(time.Second)
					start(t, wf, p, "bad", "")
					time.Sleep(2*time.Minute + time.Second)
					key := c.key(logOf(t, s, "bad"), historyOf(t, p.Engine, "bad"))
					p.kill()
					time.Sleep(time.Second)
					p = boot(t, s) // holds the others
					_ = p
					raw := get(t, s, key)
					if kind == "future" {
						raw = future(t, key)
					} else {
						raw = slices.Clone(raw)
						raw[len(raw)-1] ^= 1
					}
					p.kill()
					client := made(t, s)
					start(t, wf, client, "good", "")
					client.Close()
					put(t, s, key, raw)

					p = boot(t, s, wf)
					if got := result(t, wf.Handle(p, "good")); got != "done" {
						t.Errorf("the good one: %q", got)
					}
					var told error
					switch i, err := p.Describe(ctx, "bad"); {
					case c.held == "":
						told = err
					case c.held == "none":
						return // the run itself is whole
					case err != nil:
						t.Fatal(err)
					case !heldFor(i, c.held):
						t.Errorf("%+v, want it held for %s", i, c.held)
					default:
						told = errors.New(i.Attention[0].Detail)
					}
					if told == nil || !strings.Contains(told.Error(), string(key)) {
						t.Errorf("told %v, want the record %q named", told, key)
					}
					want := storage.ErrCorrupt
					if kind == "future" {
						want = storage.ErrFutureFormat
					}
					if c.held == "" && !errors.Is(told, want) {
						t.Errorf("told %v, want %v", told, want)
					}
					if c.held == engine.ReasonDamaged && c.name != "input" {
						var last error
						for _, err := range p.History(ctx, "bad") {
							last = err
						}
						if !errors.Is(last, want) {
							t.Errorf("History ends with %v, want %v", last, want)
						}
					}
					if after := get(t, s, key); string(after) != string(raw) {
						t.Errorf("the record %q was touched", key)
					}
					seen := 0
					for i, err := range p.List(ctx, engine.Filter{}) {
						if err == nil && i.ID == "good" {
							seen++
						}
					}
					if seen != 1 {
						t.Error("the good one is not in the list")
					}
				})
			})
		}
	}
}

// A truncating store ends pages of one log that have more than 30 entries at the 20th, while it is told to.
type truncating struct {
	storage.Storage
	log   []byte
	short atomic.Bool
}

func (s *truncating) Unwrap() storage.Storage { return s.Storage }

func (s *truncating) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	page, err := s.Storage.Scan(ctx, r)
	if s.short.Load() && len(page) > 30 && bytes.HasPrefix(page[0].Key, s.log) {
		page = page[:20]
	}
	return page, err
}

// AC3: a history that ends before the checkpoint of the claim is not taken for a whole one: the run is held, and what
// is recorded behind the end is not done again.
func TestHistoryThatIsNotReadToItsEnd(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &truncating{Storage: fresh(t)}
		var ran tally
		wf := flow("w", func(run *engine.Run) (string, error) {
			for i := range 120 {
				name := fmt.Sprint("step", i)
				if _, err := engine.Step(run, name, func(context.Context) (int, error) { ran.add(name); return i, nil }); err != nil {
					return "", err
				}
			}
			return "done", run.Sleep(time.Hour)
		})
		p := boot(t, s, wf)
		time.Sleep(time.Second)
		start(t, wf, p, "o", "")
		time.Sleep(time.Minute)
		s.log = logOf(t, s, "o").All().Start
		if n := len(historyOf(t, p.Engine, "o")); n <= 120 || ran.of("step119") != 1 {
			t.Fatalf("%d checkpoints, and the last step ran %d times, want more than 120 and 1", n, ran.of("step119"))
		}
		p.kill()

		s.short.Store(true)
		p = boot(t, s, wf)
		time.Sleep(time.Minute)
		if i := describe(t, p, "o"); !heldFor(i, engine.ReasonDamaged) || !strings.Contains(i.Attention[0].Detail, "is missing") {
			t.Errorf("%s, %+v, want it held, because a checkpoint is missing", i.Status, i.Attention)
		}
		s.short.Store(false)
		if err := p.Resume(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if got := result(t, wf.Handle(p, "o")); got != "done" {
			t.Errorf("%q, want done", got)
		}
		for i := range 120 {
			if n := ran.of(fmt.Sprint("step", i)); n != 1 {
				t.Errorf("step %d ran %d times, want 1", i, n)
			}
		}
	})
}

// LV2: the record of a run that an engine executes gets damaged, or is one of a newer format. The engine says so once, and
// goes on with the run when the record is whole again.
func TestDamagedRecordOfARunInMemory(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, key, raw []byte) []byte{
		"flipped": func(_ *testing.T, _, raw []byte) []byte {
			raw[len(raw)-1] ^= 1
			return raw
		},
		"future": func(t *testing.T, key, _ []byte) []byte {
			raw, err := record.Seal(key, 99, &struct{}{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return raw
		},
	} {
		t.Run(name, func(t *testing.T) {
			onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
				s, log := store.Open(t), new(lines)
				defer s.Close()
				wf := flow("w", func(run *engine.Run) (string, error) { return "done", run.Sleep(time.Minute) })
				p := boot(t, s, wf, leases, log.logger())
				start(t, wf, p, "o", "")
				time.Sleep(time.Second)
				key := keys.Workflow("o")
				raw := get(t, s, key)
				put(t, s, key, damage(t, key, bytes.Clone(raw)))
				time.Sleep(4 * time.Minute)
				failed, said := log.count("poll failed"), log.count("the record of a workflow is damaged")
				if failed != 0 || said != 1 {
					t.Errorf("the poll failed %d times, and the damage is logged %d times, want 0 and 1", failed, said)
				}
				put(t, s, key, raw)
				time.Sleep(2 * time.Minute)
				if i := describe(t, p, "o"); i.Status != checkpoint.StatusCompleted {
					t.Errorf("%s, %+v, want it completed", i.Status, i.Attention)
				}
				p.stop(t)
			})
		})
	}
}

// Runs that are held cost the engine that has them one read a minute each, and the poll reads some of them at a time.
func TestManyHeldRuns(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const many = 350
		var mu sync.Mutex
		var watched bool
		reads, at := map[string]int{}, map[time.Time]int{} // of records, by workflow and by time
		s := &hooked{Storage: fresh(t), beforeGet: func(key []byte) {
			mu.Lock()
			defer mu.Unlock()
			if watched && bytes.HasPrefix(key, []byte("wf:")) {
				reads[string(key)]++
				at[time.Now()]++
			}
		}}
		broken := &activity.Activity[string, int]{Name: "broken"}
		wf := flow("w", func(run *engine.Run) (string, error) {
			_, err := broken.Do(run, "")
			return "", err
		})
		p := boot(t, s, wf)
		for i := range many {
			start(t, wf, p, fmt.Sprint(i), "")
		}
		time.Sleep(5 * time.Minute)
		if i := describe(t, p, "0"); !heldFor(i, engine.ReasonBadDefinition) {
			t.Fatalf("%+v, want it held", i.Attention)
		}
		const minutes = 10
		mu.Lock()
		watched = true
		mu.Unlock()
		time.Sleep(minutes * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		watched = false
		total := 0
		for _, n := range reads {
			total += n
		}
		if len(reads) != many || total > minutes*many {
			t.Errorf("in %d minutes %d runs were read, %d times, want %d runs, each once a minute", minutes, len(reads), total, many)
		}
		if most := slices.Max(slices.Collect(maps.Values(at))); most > 100 {
			t.Errorf("the poll read %d at once", most)
		}
	})
}

// A damaged record of a dead engine does not keep the runs of others waiting.
func TestDamagedEngineRecord(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("w", func(run *engine.Run) (string, error) { return "done", run.Sleep(time.Minute) })
		engines := storagetest.NewFaulty(s, nil) // on one handle they respect each other
		for _, name := range []string{"a", "b", "c"} {
			p := bootOn(t, engines, wf, func(c *engine.Config) { c.Name = name })
			time.Sleep(time.Second)
			start(t, wf, p, name, "")
		}
		owner := describe(t, made(t, s), "a").Owner
		engines.Crash() // all three die at once
		put(t, s, keys.Engine(owner), []byte("damaged"))
		p := boot(t, s, wf)
		for _, id := range []string{"b", "c"} {
			if got := result(t, wf.Handle(p, id)); got != "done" {
				t.Errorf("%s: %q", id, got)
			}
		}
		if i := describe(t, p, "a"); i.Status != checkpoint.StatusRunning || i.Owner != owner {
			t.Errorf("%+v, want it left alone", i)
		}
	})
}

// OWN-4, OWN-22: one engine works on a store without conditions from a start over
// a restart to the end.
func TestSingleOwner(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		bare := storagetest.NoConditions(s)
		single := func(c *engine.Config) { c.Ownership = engine.OwnershipSingleOwner }
		var runs tally
		act := counting(&runs, "act")
		wf := flow("w", func(run *engine.Run) (string, error) {
			if _, err := act.Do(run, ""); err != nil {
				return "", err
			}
			v, err := approved.Receive(run)
			if err != nil {
				return "", err
			}
			return v, run.Sleep(time.Hour)
		})
		p := boot(t, bare, wf, single)
		start(t, wf, p, "o", "")
		start(t, wf, p, "o", "")
		start(t, wf, p, "c", "")
		if _, err := wf.Start(ctx, p, "o", "other"); !errors.Is(err, engine.ErrExists) {
			t.Errorf("other input: %v, want ErrExists", err)
		}
		send(t, approved, p, "o", "v", "")
		time.Sleep(time.Minute)
		p.kill()
		p = boot(t, bare, wf, single)
		if err := wf.Handle(p, "c").Cancel(ctx, engine.Actor{Reason: "r"}); err != nil {
			t.Error(err)
		}
		if got, err := wf.Handle(p, "o").Result(ctx); got != "v" || err != nil {
			t.Errorf("result %q, %v", got, err)
		}
		if _, err := wf.Handle(p, "c").Result(ctx); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("cancelled: %v", err)
		}
		if n := runs.of("act"); n != 2 {
			t.Errorf("the activity ran %d times for two workflows", n)
		}
		if err := p.Purge(ctx, "o", audit); err != nil {
			t.Error(err)
		}
		start(t, wf, p, "o", "anew")
	})
}

// Interleaving 35: a backup is restored, and the next engine claims with numbers
// above all that were given before.
func TestRestoredBackup(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var token atomic.Uint64
		act := &activity.Activity[string, int]{Name: "act", Run: func(ctx context.Context, _ string) (int, error) {
			n := activity.InfoFrom(ctx).FencingToken
			if last := token.Swap(n); n <= last {
				t.Errorf("token %d after %d", n, last)
			}
			return 1, nil
		}}
		wf := flow("w", func(run *engine.Run) (string, error) {
			for range 20 {
				if _, err := act.Do(run, ""); err != nil {
					return "", err
				}
				if err := run.Sleep(time.Minute); err != nil {
					return "", err
				}
			}
			return "done", nil
		})
		p := boot(t, s, wf)
		time.Sleep(time.Second)
		start(t, wf, p, "o", "")
		time.Sleep(90 * time.Second)
		backup := snapshot(t, s)
		time.Sleep(10 * time.Minute)
		p.kill()
		p = boot(t, backup, wf)
		if got, err := wf.Handle(p, "o").Result(ctx); got != "done" || err != nil {
			t.Errorf("result %q, %v", got, err)
		}
	})
}

// An engine that is started while 10,000 workflows are in progress, because the one before was
// killed, claims and replays them with four calls each, and the first after a few pages. The
// times are logged.
func TestManyInProgress(t *testing.T) {
	torture.Slow(t)
	n := int64(torture.Rounds(1_000, 10_000, 250))
	stores := maps.Clone(sweepStores)
	stores["postgres"] = sweep.Store{Open: func(t testing.TB) storage.Storage {
		s, err := postgres.Open(ctx, pgtest.URL(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}}
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			var driven atomic.Int64
			wf := flow("waits", func(run *engine.Run) (string, error) {
				driven.Add(1)
				return yes.Receive(run)
			})
			settings := func(c *engine.Config) {
				c.MaxRunsInMemory, c.LeaseTTL, c.PollInterval = int(2*n), 8*time.Second, 200*time.Millisecond
			}
			await := func(want int64) {
				t.Helper()
				for end := time.Now().Add(5 * time.Minute); driven.Load() < want; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("%d of %d runs are executed after 5 minutes", driven.Load(), want)
					}
				}
			}
			s := store.Open(t)
			defer func() { s.Close() }()
			p := boot(t, s, wf, settings)
			var all sync.WaitGroup
			for w := range int64(200) {
				all.Go(func() {
					for i := w; i < n; i += 200 {
						if _, err := wf.Start(ctx, p, fmt.Sprint(i), ""); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			await(n)
			p.kill()

			driven.Store(0)
			began := time.Now()
			if store.Reopen != nil {
				s = store.Reopen(t, s)
			}
			var claims, calls, before atomic.Int64
			p = bootOn(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
				switch key := string(c.Key) + string(c.Range.Start); {
				case strings.HasPrefix(key, "wf:"), strings.HasPrefix(key, "log:"), strings.HasPrefix(key, "inbox:"):
				case writes(c.Batch, "held:"):
					claims.Add(1)
				default:
					return storagetest.None // of the engine: its lease, its duties
				}
				calls.Add(1)
				if driven.Load() == 0 {
					before.Add(1)
				}
				return storagetest.None
			}), wf, settings)
			await(1)
			first := time.Since(began)
			await(n)
			t.Logf("%d runs: the first is executed after %v and %d calls, all after %v and %d", n, first.Round(time.Millisecond), before.Load(), time.Since(began).Round(time.Millisecond), calls.Load())
			if got := claims.Load(); got < n {
				t.Errorf("%d claims of %d runs", got, n)
			}
			// On a slow machine a lease may be lost, and the runs are claimed again.
			if got, most := calls.Load(), 5*claims.Load()+n/20; got > most {
				t.Errorf("%d calls for %d claims, want 5 each", got, claims.Load())
			}
			if got := before.Load(); got > 1_000 {
				t.Errorf("%d calls before the first run is executed, want a few pages at most", got)
			}
			p.kill()
		})
	}
}
