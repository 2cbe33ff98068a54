package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/reconcile"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// A receipt can be written, and only one with a number can be read.
type receipt struct{ number string }

func (r receipt) MarshalJSON() ([]byte, error) { return json.Marshal(r.number) }

func (r *receipt) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &r.number); err != nil {
		return err
	}
	if r.number == "" {
		return errors.New("a receipt without a number")
	}
	return nil
}

// asking is a workflow whose activity fails, and of which a person is then asked what
// became of it. Its result is the number of the receipt.
func asking(name string) *engine.Workflow[string, string] {
	return asksAbout(name, &activity.Activity[string, receipt]{
		Name:            "charge",
		IdempotencyKey:  func(order string) string { return "order/" + order },
		OnIndeterminate: activity.AwaitOperator,
		Run:             func(context.Context, string) (receipt, error) { return receipt{}, errBroke },
	})
}

func asksAbout(name string, charge *activity.Activity[string, receipt]) *engine.Workflow[string, string] {
	return flow(name, func(run *engine.Run) (string, error) {
		r, err := charge.Do(run, "42")
		return r.number, err
	})
}

// asksFor waits until a person is asked about operation 1 of o, with this in the question.
func asksFor(t testing.TB, c engine.Client, detail ...string) {
	t.Helper()
	asks := func(a engine.Attention) bool {
		missing := func(d string) bool { return !strings.Contains(a.Detail, d) }
		return a.Reason == engine.ReasonIndeterminate && a.Operation == "1" && a.Name == "charge" && !slices.ContainsFunc(detail, missing)
	}
	var i engine.Info
	for range 6000 {
		i = describe(t, c, "o")
		switch {
		case slices.ContainsFunc(i.Attention, asks):
			return
		case i.Status.Terminal(), heldFor(i, engine.ReasonUndecodable):
			t.Fatalf("%s, %+v; want a person asked: %q", i.Status, i.Attention, detail)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%+v; want a person asked: %q", i, detail)
}

// within waits, for a minute at most.
func within(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// charged is the record of o's charge.
func charged(t testing.TB, s storage.Storage) reconcile.Record { return recordOf(t, s, "order/42") }

func ends(t testing.TB, c engine.Client, want string) {
	t.Helper()
	var got string
	if err := c.Result(timed(t, time.Minute), "o", "", &got); err != nil || got != want {
		t.Fatalf("the result is %q, %v; want %q", got, err, want)
	}
}

// A wrong answer can be corrected while nothing is built on it. The history has both.
func TestResolveIsCorrected(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		wf := asking("checkout")
		approved := flow("approved", func(run *engine.Run) (string, error) {
			got, err := wf.Func(run, "")
			if err != nil {
				return "", err
			}
			_, err = yes.Receive(run)
			return got, err
		})
		p := boot(t, s, approved)
		start(t, approved, p, "o", "")
		asksFor(t, p)
		p.stop(t)
		client := made(t, s)
		if err := client.Resolve(ctx, "o", "1", activity.CompletedWithResult(receipt{"wrong"}), bob); err != nil {
			t.Fatal(err)
		}
		if err := client.Resolve(ctx, "o", "1", activity.CompletedWithResult(receipt{"right"}), bob); err != nil {
			t.Fatalf("correction: %v", err)
		}
		client.Close()
		p = boot(t, s, approved)
		eventually(t, "it goes on", func() bool { return len(describe(t, p, "o").Attention) == 0 })
		err := p.Resolve(ctx, "o", "1", activity.CompletedWithResult(receipt{"late"}), bob)
		if !errors.Is(err, engine.ErrNotApplicable) || !strings.Contains(err.Error(), "has its outcome already, and the workflow goes on with it") {
			t.Errorf("a correction after the run went on: %v", err)
		}
		tell(t, yes, p, "o", "ann")
		ends(t, p, "right")
		answers := 0
		for c, err := range p.History(ctx, "o") {
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range c.Events {
				if e.Kind == checkpoint.KindActed && strings.HasPrefix(e.Name, "resolve 1: ") {
					answers++
				}
			}
		}
		if answers != 2 {
			t.Errorf("the history has %d answers, want 2", answers)
		}
		p.stop(t)
	})
}

// A correction that meets the run either replaces the answer, or is refused.
func TestResolveIsCorrectedOrRefused(t *testing.T) {
	met := map[string]int{}
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		wf := asking("checkout")
		p := boot(t, s, wf)
		// Which of the two comes first is chance: go on until both were met.
		for n := 0; n < 30 || n < 300 && (met["first"] == 0 || met["second"] == 0); n++ {
			start(t, wf, p, "o", "")
			asksFor(t, p)
			resolve(t, p, "1", activity.CompletedWithResult(receipt{"first"}))
			err := p.Resolve(ctx, "o", "1", activity.CompletedWithResult(receipt{"second"}), bob)
			want := "second"
			if err != nil {
				want = "first"
				if !errors.Is(err, engine.ErrNotApplicable) && !errors.Is(err, engine.ErrTerminal) {
					t.Fatalf("correction: %v", err)
				}
			}
			met[want]++
			ends(t, p, want)
			if err := p.Purge(ctx, "o", bob); err != nil {
				t.Fatal(err)
			}
		}
		p.stop(t)
	})
	if met["first"] == 0 || met["second"] == 0 {
		t.Errorf("met %v: too few to mean anything", met)
	}
}

// The last answer about a compensation counts.
func TestResolveOfACompensationIsCorrected(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		var undone atomic.Int64
		act := &activity.Activity[string, string]{
			Name: "act",
			Run:  func(context.Context, string) (string, error) { return "", nil },
			Compensate: func(context.Context, string, string) error {
				if undone.Add(1) == 1 {
					return activity.Permanent(errBroke)
				}
				return nil
			},
		}
		wf := flow("w", func(run *engine.Run) (string, error) {
			if _, err := act.Do(run, ""); err != nil {
				return "", err
			}
			return "", errBroke
		})
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		eventually(t, "it asks", func() bool { return heldFor(describe(t, p, "o"), engine.ReasonUncompensated) })
		p.stop(t)
		client := made(t, s)
		for _, a := range []activity.Answer{activity.Failed("it cannot be undone"), activity.NotCompleted[any]()} {
			if err := client.Resolve(ctx, "o", "1.undo", a, bob); err != nil {
				t.Fatal(err)
			}
		}
		client.Close()
		p = boot(t, s, wf)
		if _, err := outcome(wf.Handle(p, "o")); err == nil || undone.Load() != 2 {
			t.Errorf("%v after %d calls of Compensate, want 2", err, undone.Load())
		}
		p.stop(t)
	})
}

// An engine that knows what an activity returns, because it is in Config.Activities or
// because a run of it has called the activity, refuses a person's result of another type,
// and one that could not be read again. Nothing is written.
func TestResolveOfAnotherTypeIsRefused(t *testing.T) {
	type word string
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		wf := asking("checkout")
		owner := boot(t, s, wf)
		listing := made(t, s, func(c *engine.Config) {
			c.Activities = []activity.Definition{&activity.Activity[string, receipt]{
				Name: "charge",
				Run:  func(context.Context, string) (receipt, error) { return receipt{}, nil },
			}}
		})
		defer listing.Close()
		start(t, wf, owner, "o", "")
		asksFor(t, owner)
		state := func() string {
			r := charged(t, s)
			return string(get(t, s, keys.Workflow("o"))) + string(r.Raw()) + strings.Join(append(entries(t, s, "wf:o"), logged(t, s, "o")...), " ")
		}
		before := state()
		for _, e := range []*engine.Engine{owner.Engine, listing} {
			for _, c := range []struct {
				answer activity.Answer
				says   string
			}{
				{activity.CompletedWithResult(5), "a int is no result of activity charge, which returns engine_test.receipt"},
				{activity.CompletedWithResult("ch_7"), "a string is no result"}, // it could be read
				{activity.CompletedWithResult(word("ch_7")), "a engine_test.word is no result"},
				{activity.CompletedWithResult(&receipt{"ch_7"}), "a *engine_test.receipt is no result"},
				{activity.CompletedWithResult[any](nil), "a <nil> is no result"},
				{activity.CompletedWithResult(receipt{}), "a receipt without a number"}, // it could not
				{activity.CompletedWithResult(json.RawMessage(`5`)), "cannot unmarshal"},
			} {
				err := e.Resolve(ctx, "o", "1", c.answer, audit)
				if !errors.Is(err, engine.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%+v: %v, want ErrInvalid that says %q", c.answer, err, c.says)
				}
			}
		}
		if now := state(); now != before {
			t.Errorf("written: %q, before %q", now, before)
		}
		if err := owner.Resolve(ctx, "o", "1", activity.CompletedWithResult(receipt{"ch_7"}), audit); err != nil {
			t.Fatal(err)
		}
		ends(t, owner, "ch_7")
		owner.stop(t)
	})
}

// A tool without types gives a json.RawMessage, also to an engine that knows the type.
func TestResolveWithJSON(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		wf := asking("checkout")
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		asksFor(t, p)
		resolve(t, p, "1", activity.CompletedWithResult(json.RawMessage(`"ch_7"`)))
		ends(t, p, "ch_7")
		p.stop(t)
	})
}

// often has an engine find quickly what others have written.
func often(c *engine.Config) { c.PollInterval = 20 * time.Millisecond }

// brief has it also find quickly who has died. A machine that stands still has its lease lost.
func brief(c *engine.Config) { often(c); c.LeaseTTL = 2 * time.Second }

var bob = engine.Actor{Name: "bob", Reason: "saw it in the books"}

// asksBob is what a person is asked whose answer was withdrawn.
var asksBob = []string{"the answer by bob is rejected", "another type", "activity charge returns engine_test.receipt"}

// resolvedBy has an engine resolve o's charge that knows nothing of its type.
func resolvedBy(t testing.TB, s storage.Storage, by engine.Actor, a activity.Answer) {
	t.Helper()
	client := made(t, s)
	defer client.Close()
	if err := client.Resolve(ctx, "o", "1", a, by); err != nil {
		t.Fatalf("resolve: %v", err)
	}
}

// Where the engine that is asked does not know the type, the run's owner finds out that
// the result cannot be decoded. It is not the outcome: the person is asked again, also by
// the next owner, and told which type is expected. Another answer corrects it.
func TestResolveOfAnotherTypeIsCorrected(t *testing.T) {
	for name, c := range map[string]struct {
		parks bool // the run rests in the store
		dies  bool // nobody drives the run when it is resolved
		asked bool // a person was asked before
	}{
		"driven":    {asked: true},
		"parked":    {asked: true, parks: true},
		"undriven":  {asked: true, dies: true},
		"not asked": {dies: true}, // without an answer the workflow would get an *activity.IndeterminateError
	} {
		t.Run(name, func(t *testing.T) {
			onAllStores(t, func(t *testing.T, s storage.Storage) {
				var life atomic.Pointer[storagetest.Faulty]
				charge := &activity.Activity[string, receipt]{
					Name:           "charge",
					IdempotencyKey: func(order string) string { return "order/" + order },
					Run: func(ctx context.Context, _ string) (receipt, error) {
						if !c.asked {
							life.Load().Crash()
							<-ctx.Done()
						}
						return receipt{}, errBroke
					},
				}
				if c.asked {
					charge.OnIndeterminate = activity.AwaitOperator
				}
				wf := asksAbout("checkout", charge)
				boots := func() *process {
					life.Store(storagetest.NewFaulty(s, nil))
					options := []any{wf, brief}
					if c.parks {
						options = append(options, parkAfter(10*time.Millisecond))
					}
					return bootOn(t, life.Load(), options...)
				}
				p := boots()
				start(t, wf, p, "o", "")
				if c.asked {
					asksFor(t, p, "there is no verifier; attempt 1: broke")
				} else {
					within(t, "its process dies", func() bool { return len(entries(t, s, "act:o")) > 0 })
				}
				if c.parks {
					within(t, "it is parked", func() bool { return describe(t, p, "o").Owner == "" })
				}
				if c.dies {
					p.kill()
				}
				resolvedBy(t, s, bob, activity.CompletedWithResult(5))
				if c.dies {
					p = boots()
				}
				asksFor(t, p, asksBob...)
				if r := charged(t, s); r.Settled || r.HasResult || len(r.Result) > 0 || r.Status != reconcile.StatusIndeterminate {
					t.Errorf("the record is %+v, want it without an outcome", r)
				}
				p.kill()
				p = boots() // and who drives it next asks the same
				if asksFor(t, p, asksBob...); !c.parks {
					asksFor(t, p, append(asksBob, "there is no verifier")...)
				}

				resolvedBy(t, s, audit, activity.CompletedWithResult([]string{"ch_7"}))
				asksFor(t, p, "the answer by ann is rejected")
				resolvedBy(t, s, audit, activity.CompletedWithResult(receipt{"ch_7"}))
				ends(t, p, "ch_7")
				acted, settled := "", ""
				for _, c := range historyOf(t, p.Engine, "o") {
					for _, e := range c.Events {
						switch e.Kind {
						case checkpoint.KindActed:
							acted += e.By + " "
						case checkpoint.KindSettled:
							settled += string(e.Result)
						}
					}
				}
				if acted != "bob ann ann " || settled != `"ch_7"` {
					t.Errorf("the history tells answers by %s and the outcome %s", acted, settled)
				}
				p.stop(t)
			})
		})
	}
}

// A person answers with another type while the attempt is under way, or while what it came
// to is not recorded. The answer is withdrawn, and what the attempt comes to counts.
// Nobody is asked: another attempt must not begin beside this one.
func TestResolveOfAnotherTypeWhileTheAttemptIsUnderWay(t *testing.T) {
	for _, meets := range []string{"runs", "returns"} {
		t.Run(meets, func(t *testing.T) {
			onAllStores(t, func(t *testing.T, s storage.Storage) {
				var armed atomic.Bool
				store := &hooked{Storage: s, beforeCommit: func(b storage.Batch) {
					if touches(b, "act:o") && armed.CompareAndSwap(true, false) {
						resolvedBy(t, s, bob, activity.CompletedWithResult(5))
					}
				}}
				begun, goOn := make(chan bool, 1), make(chan bool)
				charge := &activity.Activity[string, receipt]{
					Name:           "charge",
					IdempotencyKey: func(order string) string { return "order/" + order },
					MaxConcurrent:  1,
					Run: func(context.Context, string) (receipt, error) {
						begun <- true
						<-goOn
						return receipt{"ch_8"}, nil
					},
				}
				wf := asksAbout("checkout", charge)
				p := boot(t, store, wf, often)
				noted := func() bool { return notes(t, p, asksBob[0]) }
				start(t, wf, p, "o", "")
				within(t, "it leaves", func() bool { return len(entries(t, s, "act:o")) > 0 })
				<-begun
				if meets == "returns" {
					armed.Store(true)
					close(goOn)
				} else {
					resolvedBy(t, s, bob, activity.CompletedWithResult(5))
					within(t, "the answer is withdrawn", func() bool {
						if i := describe(t, p, "o"); len(i.Attention) > 0 {
							t.Fatalf("a person is asked: %+v", i.Attention)
						}
						return noted()
					})
					if err := p.Resolve(ctx, "o", "1", activity.NotCompleted[receipt](), audit); !errors.Is(err, engine.ErrNotApplicable) {
						t.Errorf("not completed, while it may be under way: %v, want ErrNotApplicable", err)
					}
					close(goOn)
				}
				within(t, "it ends", func() bool {
					i := describe(t, p, "o")
					if len(i.Attention) > 0 {
						t.Fatalf("a person is asked: %+v", i.Attention)
					}
					return i.Status.Terminal()
				})
				ends(t, p, "ch_8")
				if !noted() {
					t.Error("the history does not tell that the answer is withdrawn")
				}
				p.stop(t)
			})
		})
	}
}

// The withdrawal of an answer is one commit. Whatever becomes of it, the answer is not
// taken, the question is asked, and another answer corrects it.
func TestWithdrawalOfAnAnswerMayFail(t *testing.T) {
	for name, fault := range map[string]storagetest.Fault{
		"refused by an error":        storagetest.ErrorBefore,
		"answered by an error":       storagetest.ErrorAfter,
		"the process dies before it": storagetest.CrashBefore,
		"the process dies after it":  storagetest.CrashAfter,
		"met by another change":      storagetest.None,
	} {
		t.Run(name, func(t *testing.T) {
			onAllStores(t, func(t *testing.T, s storage.Storage) {
				wf := asking("checkout")
				var armed, struck atomic.Bool
				met := &hooked{Storage: s, beforeCommit: func(b storage.Batch) {
					if fault == storagetest.None && touches(b, "act:o") && armed.CompareAndSwap(true, false) {
						struck.Store(true)
						client := made(t, s)
						defer client.Close()
						if err := client.Resume(ctx, "o", audit); err != nil {
							t.Errorf("retry: %v", err)
						}
					}
				}}
				p := bootOn(t, storagetest.NewFaulty(met, func(c storagetest.Call) storagetest.Fault {
					if fault == storagetest.None || c.Method != "Commit" || !touches(c.Batch, "act:o") || !armed.CompareAndSwap(true, false) {
						return storagetest.None
					}
					struck.Store(true)
					if !touches(c.Batch, "wf:o") {
						t.Error("the record of the activity is written without the workflow's")
					}
					return fault
				}), wf, brief)
				start(t, wf, p, "o", "")
				asksFor(t, p)
				armed.Store(true)
				resolvedBy(t, s, bob, activity.CompletedWithResult(5))
				within(t, "the answer is withdrawn", struck.Load)
				if fault == storagetest.CrashBefore || fault == storagetest.CrashAfter {
					p.kill()
					p = boot(t, s, wf, brief)
				}
				asksFor(t, p, asksBob...)
				resolvedBy(t, s, audit, activity.CompletedWithResult(receipt{"ch_7"}))
				ends(t, p, "ch_7")
				p.stop(t)
			})
		})
	}
}

// notes says that the history of o notes this.
func notes(t testing.TB, p *process, what string) bool {
	t.Helper()
	for _, c := range historyOf(t, p.Engine, "o") {
		for _, e := range c.Events {
			if e.Kind == checkpoint.KindNoted && strings.Contains(e.Why, what) {
				return true
			}
		}
	}
	return false
}

// A person is asked what became of an attempt whose time is up. The attempt returns a
// result after that. The history notes it, and the person is still asked.
func TestLateReturnLeavesTheQuestion(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		goOn := make(chan bool)
		wf := asksAbout("checkout", &activity.Activity[string, receipt]{
			Name:            "charge",
			IdempotencyKey:  func(order string) string { return "order/" + order },
			OnIndeterminate: activity.AwaitOperator,
			Timeout:         500 * time.Millisecond, // the second attempt takes less, on a slow machine too
			Run: func(context.Context, string) (receipt, error) {
				<-goOn
				return receipt{"ch_8"}, nil
			},
		})
		p := boot(t, s, wf, often)
		start(t, wf, p, "o", "")
		asksFor(t, p, "there is no verifier; attempt 1: timed out")
		question := func() (asked []engine.Attention) {
			for _, a := range describe(t, p, "o").Attention {
				if a.Reason == engine.ReasonIndeterminate {
					asked = append(asked, a)
				}
			}
			return asked
		}
		before := question()
		close(goOn)
		within(t, "the late return is noted", func() bool {
			return notes(t, p, "attempt 1 returned a result after its time was up")
		})
		if now := question(); !slices.Equal(now, before) {
			t.Fatalf("after the late return a person is asked %+v; want %+v", now, before)
		}
		resolve(t, p, "1", activity.NotCompleted[receipt]())
		ends(t, p, "ch_8") // by a second attempt
		if left := question(); len(left) > 0 {
			t.Errorf("a person is still asked: %+v", left)
		}
		p.stop(t)
	})
}

// The commit that withdraws an answer is refused, because another answer has changed the
// workflow's record. The attempt ends before the withdrawal is tried again. What it came to
// is not lost.
func TestAttemptEndsWhileAnAnswerIsWithdrawn(t *testing.T) {
	torture.Slow(t)
	for _, how := range []string{"returns", "times out"} {
		t.Run(how, func(t *testing.T) {
			onAllStores(t, func(t *testing.T, s storage.Storage) {
				for limit := 5 * time.Second; attemptEndsWhileAnAnswerIsWithdrawn(t, s, how, limit); limit *= 4 {
					if limit > time.Minute {
						t.Fatal("the attempt always times out before it is resolved")
					}
					t.Logf("again: the attempt timed out in %v before it was resolved, as on a busy machine", limit)
					client := made(t, s)
					if err := client.Terminate(ctx, "o", audit); err != nil && !errors.Is(err, engine.ErrTerminal) {
						t.Fatal(err)
					}
					if err := errors.Join(client.Purge(ctx, "o", audit), client.Close()); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// attemptEndsWhileAnAnswerIsWithdrawn reports that the attempt was over before anybody resolved it: the time of one that
// is to time out was too short.
func attemptEndsWhileAnAnswerIsWithdrawn(t *testing.T, s storage.Storage, how string, limit time.Duration) (late bool) {
	begun, goOn, returned := make(chan bool), make(chan bool), make(chan bool)
	charge := &activity.Activity[string, receipt]{
		Name:           "charge",
		IdempotencyKey: func(order string) string { return "order/" + order },
		Run: func(ctx context.Context, _ string) (receipt, error) {
			begun <- true
			select {
			case <-goOn:
				close(returned)
				return receipt{"ch_8"}, nil
			case <-ctx.Done():
				close(returned)
				return receipt{}, ctx.Err()
			}
		},
	}
	if how == "times out" {
		charge.Timeout = limit
	}
	other := &activity.Activity[string, string]{
		Name:            "other",
		IdempotencyKey:  func(string) string { return "other" },
		OnIndeterminate: activity.AwaitOperator,
		Run:             func(context.Context, string) (string, error) { return "", errBroke },
	}
	wf := flow("checkout", func(run *engine.Run) (string, error) {
		first, second := charge.Go(run, "42"), other.Go(run, "")
		r, err := first.Get(run)
		_, failed := second.Get(run)
		return r.number, errors.Join(err, failed)
	})
	var armed atomic.Bool
	store := &hooked{Storage: s, beforeCommit: func(b storage.Batch) {
		if !touches(b, "act:o") || !armed.CompareAndSwap(true, false) {
			return
		}
		client := made(t, s)
		defer client.Close()
		if err := client.Resolve(ctx, "o", "2", activity.CompletedWithResult(""), audit); err != nil {
			t.Errorf("resolve of the other: %v", err)
		}
		if how == "returns" {
			close(goOn)
		}
		<-returned
		time.Sleep(100 * time.Millisecond) // until the run has been told
	}}
	p := boot(t, store, wf, often, parkAfter(10*time.Millisecond))
	start(t, wf, p, "o", "")
	<-begun
	within(t, "a person is asked about the other", func() bool { return len(describe(t, p, "o").Attention) > 0 })
	armed.Store(true)
	client := made(t, s)
	defer client.Close()
	err := client.Resolve(ctx, "o", "1", activity.CompletedWithResult(5), bob)
	if how == "times out" && (errors.Is(err, engine.ErrNotApplicable) || errors.Is(err, engine.ErrTerminal)) {
		p.stop(t)
		return true
	} else if err != nil {
		t.Fatalf("resolve: %v", err)
	}
	within(t, "the run takes it in", func() bool {
		i := describe(t, p, "o")
		if i.Owner == "" && !i.Status.Terminal() && len(i.Attention) == 0 {
			t.Fatal("the run waits, and nobody is asked")
		}
		return i.Status.Terminal() || how == "times out" && !armed.Load() && len(i.Attention) > 0 && i.Attention[0].Operation == "1"
	})
	if armed.Load() {
		t.Error("the answer was not withdrawn: this test tests nothing")
	}
	want := "ch_8"
	if how == "times out" {
		asksFor(t, p, append(asksBob, "attempt 1: timed out")...)
		want = "ch_7"
		resolvedBy(t, s, audit, activity.CompletedWithResult(receipt{want}))
	}
	ends(t, p, want)
	p.stop(t)
	return false
}

// An attempt whose time was up returns a result, and before that is noted a person answers
// with another type. Nothing is under way: the person is asked again.
func TestResolveOfAnotherTypeMeetsALateReturn(t *testing.T) {
	for _, what := range []string{"a person is asked", "the verifier is asked"} {
		t.Run(what, func(t *testing.T) {
			onAllStores(t, func(t *testing.T, s storage.Storage) {
				goOn := make(chan bool)
				charge := &activity.Activity[string, receipt]{
					Name:           "charge",
					IdempotencyKey: func(order string) string { return "order/" + order },
					Timeout:        50 * time.Millisecond,
					Run: func(context.Context, string) (receipt, error) {
						<-goOn
						return receipt{"ch_8"}, nil
					},
				}
				if what == "a person is asked" {
					charge.OnIndeterminate = activity.AwaitOperator
				} else {
					charge.Verify = func(context.Context, string) (activity.Verification[receipt], error) {
						return activity.Indeterminate[receipt]("the books are closed"), nil
					}
					charge.VerifyRetry = activity.Retry{MaxAttempts: -1, Backoff: time.Hour, MaxBackoff: time.Hour}
				}
				wf := asksAbout("checkout", charge)
				var armed atomic.Bool
				p := boot(t, &hooked{Storage: s, beforeCommit: func(b storage.Batch) {
					if touches(b, "act:o") && armed.CompareAndSwap(true, false) {
						resolvedBy(t, s, bob, activity.CompletedWithResult(5))
					}
				}}, wf, often)
				start(t, wf, p, "o", "")
				within(t, "its time is up", func() bool {
					return len(entries(t, s, "act:o")) > 0 && charged(t, s).Status == reconcile.StatusTimedOut
				})
				armed.Store(true)
				close(goOn)
				within(t, "the person is asked again", func() bool {
					if notes(t, p, asksBob[0]) {
						t.Fatal("the answer is withdrawn, and nobody is asked again")
					}
					return slices.ContainsFunc(describe(t, p, "o").Attention, func(a engine.Attention) bool {
						return strings.Contains(a.Detail, asksBob[0])
					})
				})
				within(t, "the late return is noted", func() bool {
					return notes(t, p, "attempt 1 returned a result after its time was up")
				})
				asksFor(t, p, asksBob...)
				resolvedBy(t, s, audit, activity.CompletedWithResult(receipt{"ch_7"}))
				ends(t, p, "ch_7")
				p.stop(t)
			})
		})
	}
}

// An operation waits for an operator, and its time limit comes. Somebody answers just before the commit that gives it up: then
// it needs nobody any more.
func TestAnswerBesideATimeLimit(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		inner := store.Open(t)
		defer func() { inner.Close() }()
		charge := &activity.Activity[string, string]{
			Name:            "charge",
			IdempotencyKey:  func(order string) string { return "order/" + order },
			OnIndeterminate: activity.AwaitOperator,
			Run:             func(context.Context, string) (string, error) { return "", errBroke },
		}
		wf := flow("wf", func(run *engine.Run) (string, error) {
			scope := run.WithTimeout(time.Minute)
			if _, err := charge.Do(scope, "42"); !errors.Is(err, engine.ErrTimeout) {
				return "", err
			}
			return "", run.Sleep(decade)
		})
		var armed atomic.Value // the operation
		s := &hooked{Storage: inner}
		s.beforeCommit = func(b storage.Batch) {
			if operation, _ := armed.Load().(string); operation != "" && touches(b, "act:o") && armed.CompareAndSwap(operation, "") {
				client := made(t, inner)
				defer client.Close()
				if err := client.Resolve(ctx, "o", operation, activity.CompletedWithResult("ch_7"), audit); err != nil {
					t.Errorf("resolve: %v", err)
				}
			}
		}
		p := boot(t, s, wf, leases)
		start(t, wf, p, "o", "")
		time.Sleep(30 * time.Second)
		i := describe(t, p, "o")
		if !heldFor(i, engine.ReasonIndeterminate) {
			t.Fatalf("nobody is asked: %+v", i)
		}
		armed.Store(i.Attention[0].Operation)
		time.Sleep(time.Minute)
		if armed.Load() != "" {
			t.Fatal("nothing was written of the operation: this tests nothing")
		}
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusRunning || len(i.Attention) > 0 {
			t.Errorf("it is %s, and somebody is asked %+v", i.Status, i.Attention)
		}
		p.stop(t)
	})
}

// Actions of operators on a run that no engine executes wait in its record. There is a bound, so that an engine that starts can
// still claim the run, and record them all; and the run can be ended all the same.
func TestActionsOnARunThatNobodyExecutes(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := flow("w", func(run *engine.Run) (string, error) { return "done", run.Sleep(time.Minute) })
		e := made(t, s, wf)
		for _, id := range []string{"claimed", "terminated"} {
			start(t, wf, e, id, "")
			for i := range 100 {
				if err := e.Label(ctx, id, map[string]string{"n": fmt.Sprint(i)}, audit); err != nil {
					t.Fatalf("label %d of %s: %v", i, id, err)
				}
			}
			before := len(recordsOfRuns(t, s))
			for name, err := range map[string]error{
				"label":     e.Label(ctx, id, map[string]string{"n": "more"}, audit),
				"protect":   e.Protect(ctx, id, audit),
				"unprotect": e.Unprotect(ctx, id, audit), // it is not protected
			} {
				if errors.Is(err, engine.ErrNotApplicable) != (name != "unprotect") {
					t.Errorf("%s of %s: %v", name, id, err)
				}
			}
			if got := describe(t, e, id).Labels["n"]; got != "99" || len(recordsOfRuns(t, s)) != before {
				t.Errorf("%s has label %q, and %d records, before %d", id, got, len(recordsOfRuns(t, s)), before)
			}
		}
		if err := e.Terminate(ctx, "terminated", audit); err != nil {
			t.Error(err)
		}
		p := boot(t, s, wf)
		result(t, wf.Handle(p, "claimed"))
		for _, id := range []string{"claimed", "terminated"} {
			if n := acted(t, p.Engine, id)["label"]; n != 100 {
				t.Errorf("the history of %s has %d labels, want 100", id, n)
			}
		}
		p.stop(t)
	})
}

// acted returns how often the history of a run has each action of an operator.
func acted(t testing.TB, e *engine.Engine, id string) map[string]int {
	t.Helper()
	n := map[string]int{}
	for _, c := range historyOf(t, e, id) {
		for _, ev := range c.Events {
			if ev.Kind == checkpoint.KindActed {
				n[ev.Name]++
			}
		}
	}
	return n
}

// Nobody executes a held run, although its engine lives: as many actions may wait as of any other. What ends that it is held is
// taken nevertheless.
func TestAHeldRunCanBeResumed(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		var mended atomic.Bool
		wf := mendable(&mended)
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		eventually(t, "it is held", func() bool { return heldFor(describe(t, p, "o"), engine.ReasonBadDefinition) })
		for i := range 100 {
			if err := p.Label(ctx, "o", map[string]string{"n": fmt.Sprint(i)}, audit); err != nil {
				t.Fatalf("label %d: %v", i, err)
			}
		}
		if err := p.Label(ctx, "o", map[string]string{"n": "more"}, audit); !errors.Is(err, engine.ErrNotApplicable) {
			t.Errorf("the 101st label: %v", err)
		}
		mended.Store(true)
		if err := p.Resume(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		if got := result(t, wf.Handle(p, "o")); got != "done" {
			t.Errorf("the result is %q", got)
		}
		if n := acted(t, p.Engine, "o"); n["label"] != 100 || n["retry"] != 1 {
			t.Errorf("the history has %v, want 100 labels and a retry", n)
		}
		p.stop(t)
	})
}
