package enginetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/sqlite"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// A bank charges whenever it is asked to, or once for each key that is not empty.
type bank struct {
	world *Recorder
	paid  map[string]string
}

func (b *bank) charge(ctx context.Context, key, order string) string {
	if receipt, ok := b.paid[key]; ok && key != "" {
		return receipt
	}
	b.world.Effect(ctx, "card charged")
	receipt := "receipt for " + order
	if b.paid == nil {
		b.paid = map[string]string{}
	}
	b.paid[key] = receipt
	return receipt
}

// charging charges an order. keyed says that the bank gets the idempotency key.
func charging(b *bank, keyed bool) *activity.Activity[string, string] {
	return &activity.Activity[string, string]{Name: "charge", Run: func(ctx context.Context, order string) (string, error) {
		key := ""
		if i := activity.InfoFrom(ctx); keyed {
			key = i.WorkflowID + "/" + i.Operation
		}
		return b.charge(ctx, key, order), nil
	}}
}

// checkout charges an order after a day.
func checkout(b *bank, keyed bool) *engine.Workflow[string, string] {
	charge := charging(b, keyed)
	return &engine.Workflow[string, string]{Name: "checkout", Func: func(run *engine.Run, order string) (string, error) {
		if err := run.Sleep(24 * time.Hour); err != nil {
			return "", err
		}
		return charge.Do(run, order)
	}}
}

// ordering is the scenario of a workflow that is only started.
func ordering(w *engine.Workflow[string, string]) Scenario {
	return Scenario{
		Workflows: []engine.Definition{w},
		Drive: func(ctx context.Context, eng *engine.Engine) error {
			_, err := w.Start(ctx, eng, "order-42", "o")
			return err
		},
	}
}

func simple(f func(run *engine.Run) (string, error)) *engine.Workflow[string, string] {
	return &engine.Workflow[string, string]{Name: "simple", Func: func(run *engine.Run, _ string) (string, error) { return f(run) }}
}

// found compares a report with a text, in which the numbers of calls are N.
func found(t *testing.T, r *report, want ...string) {
	t.Helper()
	got := r.String()
	if len(want) == 0 && got != "" {
		t.Errorf("found:\n%s\nwant nothing", got)
	}
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("found:\n%s\nwant it to have\n%s", got, w)
		}
	}
	if len(want) == 0 && r.plays < 2 {
		t.Errorf("%d plays", r.plays)
	}
	t.Logf("%d plays, %d calls%s", r.plays, r.calls, got)
}

func TestDoubleChargeIsFound(t *testing.T) {
	r := everywhere(t, func(world *Recorder) Scenario { return ordering(checkout(&bank{world: world}, false)) })
	found(t, r, "order-42 (charge settled), before it was written:\n"+
		"    \"card charged\" happened 2 times, undisturbed once\n"+
		"        order-42  charge  operation 2  attempt 1  before the crash\n"+
		"        order-42  charge  operation 2  attempt 2  after it\n"+
		"    charge has no IdempotencyKey: it runs at least once.",
		`put "card charged" into Scenario.MayRepeat`)
	if strings.Count(r.String(), "happened") != 1 {
		t.Errorf("told more than once:\n%s", r)
	}
}

func TestChargeWithAKeyIsRight(t *testing.T) {
	r := everywhere(t, func(world *Recorder) Scenario {
		s := ordering(checkout(&bank{world: world}, true))
		s.Check = func(t testing.TB, world *Recorder) {
			if n := world.Count("card charged"); n != 1 {
				t.Errorf("charged %d times", n)
			}
		}
		return s
	})
	found(t, r)
	if r.plays < 3*r.calls {
		t.Errorf("%d plays of %d calls", r.plays, r.calls)
	}
}

// An activity with a key is run again if it says that this does no harm. If the bank
// ignores the key, the test detects it.
func TestKeyThatNobodyMinds(t *testing.T) {
	r := everywhere(t, func(world *Recorder) Scenario {
		b := &bank{world: world}
		charge := &activity.Activity[string, string]{
			Name:       "charge",
			Idempotent: true,
			Run:        func(ctx context.Context, order string) (string, error) { return b.charge(ctx, "", order), nil },
		}
		return ordering(simple(func(run *engine.Run) (string, error) { return charge.Do(run, "o") }))
	})
	found(t, r, "(charge settled), before it was written:\n",
		"    \"card charged\" happened 2 times, undisturbed once\n",
		"    charge has an IdempotencyKey, and was run again with it. Hand the key to the other side")
}

// A failed workflow undoes its calls wherever its process dies, and twice if the
// external system ignores the key: that is detected.
func TestCompensationInACrash(t *testing.T) {
	trip := func(world *Recorder, heeds bool) Scenario {
		refunded := map[string]bool{}
		charge := &activity.Activity[string, string]{
			Name:           "charge",
			IdempotencyKey: func(order string) string { return order },
			Idempotent:     true,
			Run:            func(_ context.Context, order string) (string, error) { return "receipt for " + order, nil },
			Compensate: func(ctx context.Context, order, receipt string) error {
				key := activity.InfoFrom(ctx).IdempotencyKey
				if heeds && refunded[key] {
					return nil
				}
				refunded[key] = true
				world.Effect(ctx, "refunded "+receipt)
				return nil
			},
		}
		return ordering(simple(func(run *engine.Run) (string, error) {
			_, err := charge.Do(run, "o")
			_, other := charge.Do(run, "p")
			return "", errors.Join(err, other, errors.New("sold out"))
		}))
	}
	found(t, everywhere(t, func(world *Recorder) Scenario { return trip(world, true) }))
	found(t, everywhere(t, func(world *Recorder) Scenario { return trip(world, false) }),
		"order-42 (undoing charge settled), before it was written:\n"+
			"    \"refunded receipt for p\" happened 2 times, undisturbed once\n"+
			"        order-42  Compensate of charge  operation 2  attempt 1  before the crash\n"+
			"        order-42  Compensate of charge  operation 2  attempt 2  after it\n"+
			"    Compensate of charge runs at least once.",
		`"refunded receipt for o" happened 2 times`)
}

// A scenario may provide its store. It stays open in a crash, and is closed at the end
// of a play.
func TestStoreOfOnesOwn(t *testing.T) {
	opened, closed := 0, 0
	r := everywhere(t, func(world *Recorder) Scenario {
		s := ordering(simple(func(run *engine.Run) (string, error) {
			return engine.Step(run, "step", func(context.Context) (string, error) { return "done", nil })
		}))
		s.Open = func(t testing.TB) storage.Storage {
			store, err := sqlite.Open(filepath.Join(t.TempDir(), "store"), &sqlite.Options{Relaxed: true})
			if err != nil {
				t.Fatal(err)
			}
			opened++
			return &countedStore{store, &closed}
		}
		return s
	})
	found(t, r)
	if opened != r.plays || closed != opened {
		t.Errorf("%d plays opened %d stores and closed %d", r.plays, opened, closed)
	}
}

// A countedStore counts how often it is closed.
type countedStore struct {
	*sqlite.Store
	closed *int
}

func (c *countedStore) Close() error {
	*c.closed++
	return c.Store.Close()
}

// A transaction is a commit: it fails in all ways, and counts as a step.
func TestTransactionsFailInAllWays(t *testing.T) {
	path := ""
	scenario := func(*Recorder) Scenario {
		s := ordering(simple(func(run *engine.Run) (string, error) {
			forgotten := "no seat"
			_, err := sqlite.Transact(run, "book", func(ctx context.Context, tx *sql.Tx) (string, error) {
				forgotten = "seat 7" // a replay does not call this function
				for _, statement := range []string{"CREATE TABLE IF NOT EXISTS seats (n INTEGER)", "INSERT INTO seats VALUES (7)"} {
					if _, err := tx.ExecContext(ctx, statement); err != nil {
						return "", err
					}
				}
				return "", nil
			})
			return forgotten, err
		}))
		s.Open = func(t testing.TB) storage.Storage {
			path = filepath.Join(t.TempDir(), "store")
			store, err := sqlite.Open(path, &sqlite.Options{Relaxed: true})
			if err != nil {
				t.Fatal(err)
			}
			return store
		}
		s.Check = func(t testing.TB, _ *Recorder) {
			host, err := sql.Open("sqlite", "file:"+path)
			if err != nil {
				t.Fatal(err)
			}
			defer host.Close()
			rows := 0
			if err := host.QueryRow("SELECT count(*) FROM seats").Scan(&rows); err != nil || rows != 1 {
				t.Errorf("%d rows, want 1; %v", rows, err)
			}
		}
		return s
	}
	r := everywhere(t, scenario)
	found(t, r, ", transaction, after it was written:\n    result of order-42 differs:\n        here         \"no seat\"\n        undisturbed  \"seat 7\"\n")
	if s := r.String(); strings.Contains(s, "rows") {
		t.Errorf("the rows are not right:\n%s", s)
	}
	calm, _ := undisturbed(t, scenario)
	if n := len(slices.DeleteFunc(calm.calls, func(c call) bool { return !c.step || c.words != "transaction" })); n != 1 {
		t.Errorf("%d steps are transactions, want 1", n)
	}
}

func TestMayRepeat(t *testing.T) {
	found(t, everywhere(t, func(world *Recorder) Scenario {
		s := ordering(checkout(&bank{world: world}, false))
		s.MayRepeat = []string{"card charged"}
		return s
	}))
}

// Data that is only in memory is lost in a crash. A workflow that depends on it is
// detected.
func TestBrokenWorkflowsAreFound(t *testing.T) {
	step := func(run *engine.Run, name string) (string, error) {
		return engine.Step(run, name, func(context.Context) (string, error) { return name, nil })
	}
	for name, c := range map[string]struct {
		broken func(world *Recorder) Scenario
		want   []string
	}{
		"another operation in a replay": {func(*Recorder) Scenario {
			times := 0
			return ordering(simple(func(run *engine.Run) (string, error) {
				times++
				if _, err := step(run, fmt.Sprintf("step %d", times)); err != nil {
					return "", err
				}
				return step(run, "last")
			}))
		}, []string{"order-42 is held for non-determinism: engine: replay of \"order-42\": operation 1 was step step 1 and is now step step 2 (at enginetest/crash_test.go:", "Time, chance and the world must come"}},
		"another result": {func(*Recorder) Scenario {
			times := 0
			return ordering(simple(func(run *engine.Run) (string, error) {
				times++
				_, err := step(run, "first")
				return fmt.Sprint("run ", times), err
			}))
		}, []string{"result of order-42 differs:\n        here         \"run 2\"\n        undisturbed  \"run 1\""}},
		"another end": {func(*Recorder) Scenario {
			times := 0
			return ordering(simple(func(run *engine.Run) (string, error) {
				times++
				if _, err := step(run, "first"); err != nil || times > 1 {
					return "", errors.New("out of luck")
				}
				return "", nil
			}))
		}, []string{"order-42 ended otherwise:\n        here         failed: out of luck\n        undisturbed  completed: \"\""}},
		"an effect that is lost": {func(world *Recorder) Scenario {
			asked := map[string]bool{} // the target counts it as done before it is
			return ordering(simple(func(run *engine.Run) (string, error) {
				return engine.Step(run, "mail", func(ctx context.Context) (string, error) {
					if !asked["mail"] {
						asked["mail"] = true
						time.Sleep(7 * time.Hour) // the engine polls, and dies
						world.Effect(ctx, "mail sent")
					}
					return "", nil
				})
			}))
		}, []string{`"mail sent" happened never, undisturbed once`}},
		"a client that does not name what it does": {func(world *Recorder) Scenario {
			w := simple(func(run *engine.Run) (string, error) { return step(run, "first") })
			return Scenario{Workflows: []engine.Definition{w}, Drive: func(ctx context.Context, eng *engine.Engine) error {
				_, err := w.Start(ctx, eng, "", "o")
				return err
			}}
		}, []string{"played twice, undisturbed:\n", "is there only the first time", "Start it with an id of yours"}},
		"a client that does more than once": {func(world *Recorder) Scenario {
			s := ordering(simple(func(run *engine.Run) (string, error) { return step(run, "first") }))
			start := s.Drive
			s.Drive = func(ctx context.Context, eng *engine.Engine) error {
				world.Effect(ctx, "invoice printed")
				return start(ctx, eng)
			}
			return s
		}, []string{"\"invoice printed\" happened 2 times, undisturbed once\n        outside of any activity  before the crash", "Drive is called again after a crash"}},
		"a store that fails": {func(*Recorder) Scenario {
			s := ordering(simple(func(run *engine.Run) (string, error) { return step(run, "first") }))
			s.Open = func(testing.TB) storage.Storage { return &burning{Storage: new(memory.Store)} }
			return s
		}, []string{"undisturbed:\n", "    the engine ended: ", "the disk burns"}},
		"a client without success": {func(*Recorder) Scenario {
			s := ordering(simple(func(run *engine.Run) (string, error) { return step(run, "first") }))
			s.Drive = func(context.Context, *engine.Engine) error { return errors.New("no idea") }
			return s
		}, []string{"undisturbed:\n    Drive has no success: no idea"}},
		"a workflow that nobody answers": {func(*Recorder) Scenario {
			answer := &signal.Signal[string]{Name: "answer"}
			return ordering(simple(func(run *engine.Run) (string, error) { return answer.Receive(run) }))
		}, []string{"undisturbed:\n    order-42 has not ended: 400 days after Drive had returned it is running and waits for [receive answer]"}},
		"a definition that is not valid": {func(*Recorder) Scenario {
			charge := &activity.Activity[string, string]{
				Name:   "charge",
				Settle: time.Minute, // without a Verify
				Run:    func(context.Context, string) (string, error) { return "", nil },
			}
			return ordering(simple(func(run *engine.Run) (string, error) { return charge.Do(run, "o") }))
		}, []string{"undisturbed:\n    order-42 is held for bad-definition: "}},
		"another operation after a pause": {func(*Recorder) Scenario {
			noon := time.Now().Add(12 * time.Hour)
			return ordering(simple(func(run *engine.Run) (string, error) {
				if time.Now().Before(noon) {
					if _, err := step(run, "early"); err != nil {
						return "", err
					}
				}
				if err := run.Sleep(24 * time.Hour); err != nil {
					return "", err
				}
				return step(run, "last")
			}))
		}, []string{"undisturbed:\n    order-42 is held for non-determinism: engine: replay of \"order-42\": operation 1 was step early", "Time, chance and the world must come"}},
		"an operator who does not answer": {func(*Recorder) Scenario {
			charge := &activity.Activity[string, string]{
				Name:            "charge",
				IdempotencyKey:  func(order string) string { return order },
				OnIndeterminate: activity.AwaitOperator,
				Run:             func(context.Context, string) (string, error) { return "", errors.New("connection lost") },
			}
			return ordering(simple(func(run *engine.Run) (string, error) { return charge.Do(run, "o") }))
		}, []string{"undisturbed:\n    order-42 has not ended: 400 days after Drive had returned it is running", "; indeterminate: "}},
		"another story each time": {tellsAnother(), []string{"played twice, undisturbed:\n    the effects were map[told 1:1] and then map[told 2:1]."}},
		"what Check says": {func(world *Recorder) Scenario {
			s := ordering(simple(func(run *engine.Run) (string, error) { return step(run, "first") }))
			s.Check = func(t testing.TB, world *Recorder) {
				t.Logf("this and\nthat")
				t.Fatalf("never mind %d", 7)
			}
			return s
		}, []string{"undisturbed:\n    Check complains:\n        this and\n        that\n        never mind 7"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := everywhere(t, c.broken)
			found(t, r, c.want...)
		})
	}
}

func tellsAnother() func(world *Recorder) Scenario {
	plays := 0
	return func(world *Recorder) Scenario {
		plays++
		return ordering(simple(func(run *engine.Run) (string, error) {
			return engine.Step(run, "tell", func(ctx context.Context) (string, error) {
				world.Effect(ctx, fmt.Sprint("told ", plays))
				return "", nil
			})
		}))
	}
}

// A burning store fails from its fifth commit on.
type burning struct {
	storage.Storage
	commits atomic.Int32
}

func (b *burning) Unwrap() storage.Storage { return b.Storage }

func (b *burning) Commit(ctx context.Context, batch storage.Batch) error {
	if b.commits.Add(1) >= 5 {
		return fmt.Errorf("%w: the disk burns", storage.ErrFailed)
	}
	return b.Storage.Commit(ctx, batch)
}

// A result with a time or a random number in it is not a problem.
func TestUnstableResultsAreNotCompared(t *testing.T) {
	found(t, everywhere(t, func(*Recorder) Scenario {
		return ordering(simple(func(run *engine.Run) (string, error) {
			s, err := engine.Step(run, "first", func(context.Context) (string, error) { return "s", nil })
			return fmt.Sprint(s, run.Random().Int()), err
		}))
	}))
}

// An activity that runs when its process dies has no effect any more, even if it
// ignores its context.
func TestTheDeadHaveNoEffect(t *testing.T) {
	r := everywhere(t, func(world *Recorder) Scenario {
		slow := &activity.Activity[string, string]{Name: "slow", Timeout: 24 * time.Hour, Run: func(ctx context.Context, _ string) (string, error) {
			time.Sleep(time.Hour) // ignores the context
			world.Effect(ctx, "done")
			return "", nil
		}}
		quick := &activity.Activity[string, string]{Name: "quick", Run: func(ctx context.Context, _ string) (string, error) {
			time.Sleep(time.Second)
			return "", nil
		}}
		return ordering(simple(func(run *engine.Run) (string, error) {
			f := slow.Go(run, "")
			if _, err := quick.Do(run, ""); err != nil { // its commit is where the process dies
				return "", err
			}
			return f.Get(run)
		}))
	})
	if s := r.String(); strings.Contains(s, "(quick settled)") {
		t.Errorf("found:\n%s\nwant nothing at the commit of quick", s)
	}
}

// A run that needs an operator and is not held continues, and is played to its end.
func TestUnresponsiveAttemptIsNoEnd(t *testing.T) {
	_, r := undisturbed(t, func(world *Recorder) Scenario {
		attempts := 0
		slow := &activity.Activity[string, string]{Name: "slow", Run: func(context.Context, string) (string, error) {
			if attempts++; attempts == 1 {
				time.Sleep(10 * time.Minute) // ignores the context
			}
			return "", nil
		}}
		s := ordering(simple(func(run *engine.Run) (string, error) {
			if _, err := slow.Do(run, ""); err != nil {
				return "", err
			}
			return engine.Step(run, "mail", func(ctx context.Context) (string, error) {
				world.Effect(ctx, "mail sent")
				return "", nil
			})
		}))
		s.Check = func(t testing.TB, world *Recorder) {
			if n := world.Count("mail sent"); n != 1 {
				t.Errorf("mail was sent %d times", n)
			}
		}
		return s
	})
	found(t, r)
}

// A workflow without an end, with pauses or without, is ended and reported: by itself, and also
// if Drive waits for its result.
func TestWorkflowWithoutAnEndIsReported(t *testing.T) {
	for name, pause := range map[string]time.Duration{"with pauses": time.Minute, "without": 0} {
		for _, waits := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, Drive waits %v", name, waits), func(t *testing.T) {
				r := everywhere(t, func(*Recorder) Scenario {
					ticks := simple(func(run *engine.Run) (string, error) {
						for {
							if _, err := engine.Step(run, "tick", func(context.Context) (int, error) { return 1, nil }); err != nil {
								return "", err
							}
							if err := run.Sleep(pause); err != nil {
								return "", err
							}
						}
					})
					s := ordering(ticks)
					if waits {
						s.Drive = func(ctx context.Context, eng *engine.Engine) error {
							h, err := ticks.Start(ctx, eng, "order-42", "o")
							if err == nil {
								_, err = h.Result(ctx)
							}
							return err
						}
					}
					return s
				})
				want := []string{"the scenario does not end: it has made 5000 commits"}
				if !waits {
					want = append(want, "order-42 has not ended: after 5000 commits it is running")
				}
				found(t, r, want...)
				if r.plays != 1 {
					t.Errorf("%d plays, want 1", r.plays)
				}
			})
		}
	}
}
