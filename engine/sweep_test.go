package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// The scenarios of the sweep. Each is played with every fault at every store
// call. Whatever the fault, the client is told the same, no acknowledged start or
// signal is lost (CK1, CK5), each operation has one outcome in a dense history
// (CK2, CK4, CK7), what belongs together is there together (CK3), and a run that
// was put down goes on as the one that was not (CK6, CK8).
var scenarios = map[string]func(*sweep.World) sweep.Scenario{
	"steps":    steps,
	"order":    order,
	"retries":  retries,
	"cancel":   cancelled,
	"failure":  failing,
	"signals":  signals,
	"unbidden": unbidden,
	"fanout":   fanout,
	"branches": branches,
	"select":   selecting,
	"children": children,
	"charges":  charges,
	"revival":  revival,
	"mail":     mail,
	"undoing":  undoing,
	"deploys":  deploys,
	"orphan":   orphan,
	"lines":    inLine,
	"answers":  answersOf,
	"purge":    purging,
	"clearing": clearing,
	"beats":    beating,
	"expiry":   forgetting,
	"ending":   terminating,
	"labels":   labelling,
	"lives":    living,
	"values":   publishing,
	"updates":  updating,
	"old":      removing,
	"schedule": scheduling,
	"delay":    delaying,
	"reset":    resetting,
	"bulk":     bulking,
	"hooks":    hooking,
	"stream":   streamed,
}

func TestEveryStoreCallMayFail(t *testing.T) {
	torture.Slow(t)
	for adapter, store := range sweepStores {
		stride := torture.Rounds(1, 101, 401)
		if adapter == "memory" {
			stride = torture.Rounds(1, 5, 97)
		}
		for name, scenario := range scenarios {
			if adapter != "memory" && leftToThePlainBuild(name) {
				continue
			}
			t.Run(adapter+"/"+name, func(t *testing.T) {
				t.Logf("%d plays", sweep.Every(t, store, stride, scenario))
			})
		}
	}
}

// leftToThePlainBuild reports whether a scenario is played on disks and servers only without the race detector,
// which makes it several times slower. The concurrency of the stores has tests of its own. WEFT_TORTURE plays all.
func leftToThePlainBuild(scenario string) bool {
	return torture.Raced() && os.Getenv("WEFT_TORTURE") == "" && scenario != "steps" && scenario != "signals"
}

// sweepStores are closed and opened again where a restart of the process would.
var sweepStores = map[string]sweep.Store{
	"memory": {Open: func(testing.TB) storage.Storage { return new(memory.Store) }},
	"sqlite": onFile(func(path string) (storage.Storage, error) { return sqlite.Open(path, nil) }),
	"bolt":   onFile(func(path string) (storage.Storage, error) { return bolt.Open(path, nil) }),
}

// onPostgres is a schema of its own for each play, on one server. Its restarts
// leave the store open, as those of a process leave the server.
func onPostgres(t *testing.T) sweep.Store {
	url := pgtest.URL(t)
	plays := 0
	return sweep.Store{Open: func(t testing.TB) storage.Storage {
		plays++
		// Without LISTEN and sessions: in a synctest bubble time stands still while
		// a connection is being read.
		s, err := postgres.New(context.Background(), pgtest.Pool(t, url), &postgres.Options{Schema: fmt.Sprintf("play%d", plays), NoListen: true, LeaseOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}}
}

// What a step writes in the transaction of its checkpoint is there once, whatever call goes
// wrong, and whatever happens to the transaction.
func TestEveryTransactionMayFail(t *testing.T) {
	torture.Slow(t)
	stride := torture.Rounds(1, 1, 23)
	t.Logf("%d plays", sweep.Every(t, sweepStores["sqlite"], stride, transactions))
}

// A run goes on on PostgreSQL, whatever call to it goes wrong. Engines there are
// succeeded when their leases have run out.
func TestEveryPostgresCallMayFail(t *testing.T) {
	store := onPostgres(t)
	stride := torture.Rounds(2, 701, 997)
	for name, scenario := range scenarios {
		if name == "unbidden" || leftToThePlainBuild(name) {
			continue // the engines of the first have the same handle
		}
		t.Run(name, func(t *testing.T) {
			t.Logf("%d plays", sweep.Every(t, store, stride, scenario))
		})
	}
}

func onFile(open func(path string) (storage.Storage, error)) sweep.Store {
	var path string
	opened := func(t testing.TB) storage.Storage {
		s, err := open(path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return sweep.Store{
		Open: func(t testing.TB) storage.Storage {
			path = filepath.Join(t.TempDir(), "store")
			return opened(t)
		},
		Reopen: func(t testing.TB, s storage.Storage) storage.Storage {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return opened(t)
		},
	}
}

// effect is an activity that has an effect outside each time it runs.
func effect(w *sweep.World, name string) *activity.Activity[int, string] {
	return &activity.Activity[int, string]{
		Name: name,
		Run: func(_ context.Context, i int) (string, error) {
			w.Effect(fmt.Sprintf("%s %d", name, i))
			return fmt.Sprintf("%s%d", name, i), nil
		},
	}
}

// steps: one activity after the other, and inline steps between them.
func steps(w *sweep.World) sweep.Scenario {
	act := effect(w, "a")
	wf := &engine.Workflow[int, string]{Name: "steps", Func: func(run *engine.Run, n int) (string, error) {
		all := ""
		for i := range n {
			a, err := act.Do(run, i)
			if err != nil {
				return "", err
			}
			b, err := engine.Step(run, "b", func(context.Context) (string, error) {
				w.Effect(fmt.Sprint("b ", i))
				return fmt.Sprint("b", i), nil
			})
			if err != nil {
				return "", err
			}
			all += a + b
		}
		return all, nil
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"steps"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "steps", 3)
			if err != nil {
				return "", err
			}
			return h.Result(ctx)
		},
	}
}

// order: an order waits for approval, charges, sleeps for a day and ships.
func order(w *sweep.World) sweep.Scenario {
	approved := &signal.Signal[string]{Name: "approved"}
	charge, ship := effect(w, "charge"), effect(w, "ship")
	wf := &engine.Workflow[string, string]{Name: "order", Func: func(run *engine.Run, o string) (string, error) {
		by, ok, err := approved.ReceiveWithin(run, 48*time.Hour)
		if err != nil || !ok {
			return "not approved", err
		}
		a, err := charge.Do(run, 1)
		if err != nil {
			return "", err
		}
		if err := run.Sleep(24 * time.Hour); err != nil {
			return "", err
		}
		b, err := ship.Do(run, 1)
		return o + by + a + b, err
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"order 1"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "order 1", "o")
			if err != nil {
				return "", err
			}
			time.Sleep(time.Second)
			if _, err := approved.Send(ctx, eng, h.ID(), "bob", &signal.Options{ID: "click"}); err != nil {
				return "", err
			}
			return h.Result(ctx)
		},
	}
}

// retries: an activity that fails twice, and one whose failure is final.
func retries(w *sweep.World) sweep.Scenario {
	var declined = errors.New("declined")
	flaky := &activity.Activity[int, int]{
		Name:  "flaky",
		Retry: activity.Retry{MaxAttempts: 9, Backoff: time.Minute},
		Run: func(ctx context.Context, i int) (int, error) {
			if n := activity.InfoFrom(ctx).Attempt; n < 3 {
				return 0, fmt.Errorf("attempt %d", n)
			}
			w.Effect("flaky")
			return i, nil
		},
	}
	final := &activity.Activity[int, int]{
		Name:   "final",
		Errors: []error{declined},
		Run: func(context.Context, int) (int, error) {
			w.Effect("final")
			return 0, activity.Permanent(fmt.Errorf("card 1: %w", declined))
		},
	}
	wf := &engine.Workflow[int, string]{Name: "retries", Func: func(run *engine.Run, i int) (string, error) {
		n, err := flaky.Do(run, i)
		if err != nil {
			return "", err
		}
		_, err = final.Do(run, i)
		return fmt.Sprint(n, errors.Is(err, declined)), nil
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"retries"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "retries", 7)
			if err != nil {
				return "", err
			}
			return h.Result(ctx)
		},
	}
}

// cancelled: a sleeper is asked to stop.
func cancelled(w *sweep.World) sweep.Scenario {
	wf := &engine.Workflow[int, string]{Name: "sleeper", Func: func(run *engine.Run, i int) (string, error) {
		err := run.Sleep(30 * 24 * time.Hour)
		return "slept", err
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"sleeper"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "sleeper", 7)
			if err != nil {
				return "", err
			}
			time.Sleep(time.Hour)
			if err := h.Cancel(ctx, engine.Actor{Reason: "enough"}); err != nil && !errors.Is(err, engine.ErrTerminal) {
				return "", err
			}
			if _, err = h.Result(ctx); errors.Is(err, engine.ErrCancelled) {
				return "cancelled", nil
			}
			return "", err
		},
	}
}

// failing: a workflow that fails, after an effect.
func failing(w *sweep.World) sweep.Scenario {
	broke := errors.New("broke")
	act := effect(w, "a")
	wf := &engine.Workflow[int, string]{Name: "failing", Errors: []error{broke}, Func: func(run *engine.Run, i int) (string, error) {
		if _, err := act.Do(run, i); err != nil {
			return "", err
		}
		return "", fmt.Errorf("after all: %w", broke)
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"failing"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "failing", 7)
			if err != nil {
				return "", err
			}
			if _, err = h.Result(ctx); errors.Is(err, broke) {
				return "broke", nil
			}
			return "", err
		},
	}
}

// signals: two names, several of each, and a wait that ends with nothing.
func signals(w *sweep.World) sweep.Scenario {
	left, right := &signal.Signal[int]{Name: "left"}, &signal.Signal[int]{Name: "right"}
	wf := &engine.Workflow[int, string]{Name: "signals", Func: func(run *engine.Run, n int) (string, error) {
		all := ""
		for range n {
			r, err := right.Receive(run)
			if err != nil {
				return "", err
			}
			l, err := left.Receive(run)
			if err != nil {
				return "", err
			}
			all += fmt.Sprint(l, r, " ")
		}
		_, ok, err := left.ReceiveWithin(run, 0)
		return fmt.Sprint(all, ok), err
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"signals"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "signals", 3)
			if err != nil {
				return "", err
			}
			first := ""
			for i := range 3 {
				for _, s := range []*signal.Signal[int]{left, right} {
					id := fmt.Sprint(s.Name, i)
					a, err := s.Send(ctx, eng, h.ID(), i, &signal.Options{ID: id})
					if err != nil {
						return "", err
					}
					b, err := s.Send(ctx, eng, h.ID(), i, &signal.Options{ID: id})
					if err != nil || !b.Repeated || canonical(a) != canonical(b) {
						return "", fmt.Errorf("again: %v, %v, %w", a, b, err)
					}
					first += a.SignalID
				}
			}
			s, err := h.Result(ctx)
			return first + s, err
		},
	}
}

// fanout: activities side by side, awaited in another order, one of them never.
func fanout(w *sweep.World) sweep.Scenario {
	act := effect(w, "a")
	wf := &engine.Workflow[int, string]{Name: "fanout", Func: func(run *engine.Run, n int) (string, error) {
		var begun []*future.Future[string]
		for i := range n {
			begun = append(begun, act.Go(run, i))
		}
		if err := run.Sleep(time.Hour); err != nil {
			return "", err
		}
		all := ""
		for _, f := range slices.Backward(begun[1:]) {
			s, err := f.Get(run)
			if err != nil {
				return "", err
			}
			again, err := f.Get(run)
			if err != nil || again != s {
				return "", fmt.Errorf("again: %q, %w", again, err)
			}
			all += s
		}
		return all, nil
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"fanout"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "fanout", 5)
			if err != nil {
				return "", err
			}
			return h.Result(ctx)
		},
	}
}

// branches: branches side by side that share a variable, inside each other, within
// a time limit, two at a time; one is left behind.
func branches(w *sweep.World) sweep.Scenario {
	act := effect(w, "a")
	wf := &engine.Workflow[int, string]{Name: "branches", Func: func(run *engine.Run, n int) (string, error) {
		sum := 0
		part := func(run *engine.Run, i int) (string, error) {
			if err := run.Sleep(time.Duration(i%2) * time.Hour); err != nil {
				return "", err
			}
			sum++
			s, err := act.Do(run, i)
			return fmt.Sprint(s, sum > 0), err
		}
		nested := engine.Go(run, "nested", func(run *engine.Run) (string, error) {
			a := engine.Go(run, "inner", func(run *engine.Run) (string, error) { return part(run, 10) })
			b, err := part(run, 11)
			if err != nil {
				return "", err
			}
			s, err := a.Get(run)
			return s + b, err
		})
		engine.Go(run, "left behind", func(run *engine.Run) (any, error) { return nil, run.Sleep(1000 * time.Hour) })
		all, err := engine.Map(run.WithTimeout(100*time.Hour), "part", 2, []int{0, 1, 2}, part)
		if err != nil {
			return "", err
		}
		s, err := nested.Get(run)
		late := engine.Go(run.WithTimeout(time.Minute), "late", func(run *engine.Run) (any, error) { return nil, run.Sleep(time.Hour) })
		_, e := late.Get(run)
		return fmt.Sprint(all, s, sum, errors.Is(e, engine.ErrTimeout)), err
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"branches"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "branches", 3)
			if err != nil {
				return "", err
			}
			return h.Result(ctx)
		},
	}
}

// selecting: a signal, a timer, a branch and a request to stop, whichever is first,
// each of them once.
func selecting(w *sweep.World) sweep.Scenario {
	left, right := &signal.Signal[int]{Name: "left"}, &signal.Signal[int]{Name: "right"}
	act := effect(w, "a")
	wf := &engine.Workflow[int, string]{Name: "select", Func: func(run *engine.Run, n int) (string, error) {
		var said []string // in whatever order: a restart takes its time
		done := engine.Go(run, "worker", func(run *engine.Run) (string, error) {
			if err := run.Sleep(5 * time.Hour); err != nil {
				return "", err
			}
			return act.Do(run, 1)
		})
		late, stop := run.After(10*time.Hour), run.Cancelled()
		for {
			l, r := left.Next(run), right.Next(run)
			first, err := engine.Select(run, l, r, done, late, stop)
			if err != nil {
				return "", err
			}
			switch first {
			case l:
				v, err := l.Get(run)
				said = append(said, fmt.Sprint("l", v, err))
			case r:
				v, err := r.Get(run)
				said = append(said, fmt.Sprint("r", v, err))
			case done:
				v, err := done.Get(run)
				said = append(said, fmt.Sprint(v, err))
			case late:
				said = append(said, "late")
			case stop:
				c, err := stop.Get(run)
				if err != nil {
					return "", err
				}
				s, err := act.Do(run.WithoutCancel(), 2)
				slices.Sort(said)
				return fmt.Sprint(said, c.Reason, s), err
			}
		}
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"select"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "select", 3)
			if err != nil {
				return "", err
			}
			for i, s := range []*signal.Signal[int]{right, left, left} {
				if _, err := s.Send(ctx, eng, h.ID(), i, &signal.Options{ID: fmt.Sprint(i)}); err != nil && !errors.Is(err, engine.ErrTerminal) {
					return "", err
				}
				time.Sleep(time.Hour)
			}
			time.Sleep(30 * time.Hour)
			if err := h.Cancel(ctx, engine.Actor{Reason: "enough"}); err != nil && !errors.Is(err, engine.ErrTerminal) {
				return "", err
			}
			return h.Result(ctx)
		},
	}
}

// children: one that succeeds, one that fails, one that is asked to stop with its
// parent, one that is waited for at the end, one that is nobody's.
func children(w *sweep.World) sweep.Scenario {
	act := effect(w, "a")
	sub := &engine.Workflow[int, string]{Name: "sub", Func: func(run *engine.Run, i int) (string, error) {
		if err := run.Sleep(time.Duration(i) * time.Hour); err != nil {
			return "", err
		}
		s, err := act.Do(run, i)
		if i == 2 {
			return "", errors.New("two is too many")
		}
		return s, err
	}}
	wf := &engine.Workflow[int, string]{Name: "parent", Func: func(run *engine.Run, n int) (string, error) {
		sub.Go(run, 500)
		sub.AsChild(engine.ChildOptions{ID: "awaited", OnParentEnd: engine.ParentEndAwait}).Go(run, 20)
		a, b := sub.Go(run, 1), sub.Go(run, 2)
		sa, err := a.Get(run)
		if err != nil {
			return "", err
		}
		_, err = b.Get(run)
		var failed *engine.WorkflowError
		if !errors.As(err, &failed) {
			return "", fmt.Errorf("child two: %w", err)
		}
		c, err := sub.Do(run, 3)
		if err != nil {
			return "", err
		}
		id, err := sub.Detach(run, "detached", 4)
		return sa + failed.Message + c + id, err
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf, sub},
		IDs:       []string{"parent", "awaited", "detached"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.With(engine.StartOptions{Labels: widest()}).Start(ctx, eng, "parent", 3)
			if err != nil {
				return "", err
			}
			s, err := h.Result(ctx)
			if err != nil {
				return "", err
			}
			status := ""
			for info, err := range eng.List(ctx, engine.Filter{Parent: "parent"}) {
				if err != nil {
					return "", err
				}
				status += string(info.Status) + " "
				if info.Status == "running" { // it has been asked to stop
					if err := eng.Result(ctx, info.ID, "", nil); !errors.Is(err, engine.ErrCancelled) {
						return "", fmt.Errorf("child: %w", err)
					}
				}
			}
			d, err := sub.Handle(eng, "detached").Result(ctx)
			return fmt.Sprint(s, len(strings.Fields(status)), d), err
		},
	}
}

// unbidden: a workflow is started by an engine that does not drive it.
func unbidden(w *sweep.World) sweep.Scenario {
	act := effect(w, "a")
	wf := &engine.Workflow[int, string]{Name: "unbidden", Func: func(run *engine.Run, i int) (string, error) {
		return act.Do(run, i)
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"unbidden"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			// Another engine on the same handle, which only starts.
			starter, err := engine.New(engine.Config{Storage: engine.StorageOf(eng)})
			if err != nil {
				return "", err
			}
			defer starter.Close()
			if _, err := wf.Start(ctx, starter, "unbidden", 1); err != nil {
				return "", err
			}
			return wf.Handle(eng, "unbidden").Result(ctx)
		},
	}
}

// inLine: runs of a queue that takes two an hour, one at a time; one in a queue that
// nobody serves, which is asked to stop; and a child there, whose parent ends.
func inLine(w *sweep.World) sweep.Scenario {
	act := effect(w, "a")
	print := &engine.Workflow[int, string]{Name: "print", Defaults: engine.StartOptions{Queue: "printer"}, Func: func(run *engine.Run, i int) (string, error) {
		if err := run.Sleep(time.Minute); err != nil {
			return "", err
		}
		return act.Do(run, i)
	}}
	lost := print.With(engine.StartOptions{Queue: "nobody's"}).AsChild(engine.ChildOptions{ID: "kid"})
	wf := &engine.Workflow[int, string]{Name: "office", Func: func(run *engine.Run, n int) (string, error) {
		kid, late := lost.Go(run, 9), run.After(time.Hour)
		first, err := engine.Select(run, kid, late)
		return fmt.Sprint(first == late), err
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{print, wf},
		Queues:    []engine.Queue{{Name: "printer", Concurrency: 1, Rate: activity.Rate{Count: 2, Per: time.Hour}}},
		IDs:       []string{"1", "2", "3", "lost", "kid", "office"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			all := ""
			for i := range 3 {
				if _, err := print.Start(ctx, eng, fmt.Sprint(i+1), i+1); err != nil {
					return "", err
				}
			}
			if _, err := lost.Start(ctx, eng, "lost", 7); err != nil {
				return "", err
			}
			if err := eng.Cancel(ctx, "lost", engine.Actor{Reason: "enough"}); err != nil && !errors.Is(err, engine.ErrTerminal) {
				return "", err
			}
			if err := eng.Result(ctx, "lost", "", nil); !errors.Is(err, engine.ErrCancelled) {
				return "", fmt.Errorf("lost: %w", err)
			}
			office, err := wf.Start(ctx, eng, "office", 1)
			if err != nil {
				return "", err
			}
			for i := range 3 {
				s, err := print.Handle(eng, fmt.Sprint(i+1)).Result(ctx)
				if err != nil {
					return "", err
				}
				all += s
			}
			s, err := office.Result(ctx)
			return all + s, err
		},
	}
}

// mail: a workflow is started with its first signal, gets some from the client at
// the same time, and some from another workflow, and takes what is there. SIG-41,
// SIG-43, SIG-53
func mail(w *sweep.World) sweep.Scenario {
	letter := &signal.Signal[string]{Name: "letter"}
	closing := &signal.Signal[string]{Name: "closing"}
	box := &engine.Workflow[string, string]{Name: "box", Func: func(run *engine.Run, name string) (string, error) {
		first, err := letter.Receive(run)
		if err != nil {
			return "", err
		}
		last, err := closing.Receive(run)
		if err != nil {
			return "", err
		}
		others, err := letter.Drain(run)
		slices.Sort(others)
		return fmt.Sprint(name, first, others, last), err
	}}
	writer := &engine.Workflow[string, string]{Name: "writer", Func: func(run *engine.Run, to string) (string, error) {
		return "", errors.Join(letter.SendFrom(run, to, "x"), letter.SendFrom(run, to, "x"), closing.SendFrom(run, to, "bye"))
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{box, writer},
		IDs:       []string{"box", "writer"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			first, err := letter.SendWithStart(ctx, eng, box.Request("box", "b"), "a", &signal.Options{ID: "1"})
			if err != nil {
				return "", err
			}
			time.Sleep(time.Minute) // it is received
			errs := make(chan error)
			for _, v := range []string{"b", "c", "d"} {
				go func() {
					_, err := letter.Send(ctx, eng, "box", v, &signal.Options{ID: v})
					errs <- err
				}()
			}
			if err := errors.Join(<-errs, <-errs, <-errs); err != nil {
				return "", err
			}
			h, err := writer.Start(ctx, eng, "writer", "box")
			if err != nil {
				return "", err
			}
			if _, err := h.Result(ctx); err != nil {
				return "", err
			}
			said, err := box.Handle(eng, "box").Result(ctx)
			if err != nil {
				return "", err
			}
			again, err := letter.SendWithStart(ctx, eng, box.Request("box", "b"), "a", &signal.Options{ID: "1"})
			return fmt.Sprint(said, canonical(again) == canonical(first)), err
		},
	}
}

// charges: activities with a key and an honest verifier. One of them fails after its
// effect, and one before it. No effect is repeated, whatever crashes.
func charges(w *sweep.World) sweep.Scenario {
	var books sync.Mutex
	made := map[string]bool{}
	charge := &activity.Activity[int, string]{
		Name:           "charge",
		IdempotencyKey: func(i int) string { return fmt.Sprint("order/", i) },
		Run: func(ctx context.Context, i int) (string, error) {
			info := activity.InfoFrom(ctx)
			if i == 3 && info.Attempt == 1 {
				return "", activity.NoEffect(errors.New("busy"))
			}
			books.Lock()
			defer books.Unlock()
			if w.Effect(info.IdempotencyKey); made[info.IdempotencyKey] {
				w.Effect("charged twice")
			}
			made[info.IdempotencyKey] = true
			if i == 2 {
				return "", errors.New("the reply is lost")
			}
			return "ch_" + info.IdempotencyKey, nil
		},
		Verify: func(ctx context.Context, i int) (activity.Verification[string], error) {
			books.Lock()
			defer books.Unlock()
			key := activity.InfoFrom(ctx).IdempotencyKey
			if !made[key] {
				return activity.NotCompleted[string](), nil
			}
			return activity.CompletedWithResult("ch_" + key), nil
		},
	}
	wf := &engine.Workflow[string, string]{Name: "charges", Func: func(run *engine.Run, _ string) (string, error) {
		first := charge.Go(run, 1)
		second, err := charge.Do(run, 2)
		if err != nil {
			return "", err
		}
		third, err := charge.Do(run, 3)
		if err != nil {
			return "", err
		}
		got, err := first.Get(run)
		return got + second + third, err
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"charges"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "charges", "")
			if err != nil {
				return "", err
			}
			return h.Result(ctx)
		},
	}
}

// undoing: a trip of which there is no hotel. What was booked is cancelled, the last
// first: one at the second attempt, one by a person. ACT-10
func undoing(w *sweep.World) sweep.Scenario {
	broke := errors.New("broke")
	var books sync.Mutex
	var cancelled []string // in order, each once
	book := effect(w, "book")
	book.Compensate = func(ctx context.Context, i int, out string) error {
		info := activity.InfoFrom(ctx)
		switch {
		case i == 2 && info.Attempt == 1:
			return errors.New("busy")
		case i == 1:
			return activity.Permanent(errors.New("the airline says no"))
		}
		books.Lock()
		defer books.Unlock()
		w.Effect("cancel " + out)
		if !slices.Contains(cancelled, out) {
			cancelled = append(cancelled, out)
		}
		return nil
	}
	keyed := *book
	keyed.IdempotencyKey = func(i int) string { return fmt.Sprint("seat/", i) }
	keyed.Idempotent = true
	hang := &activity.Activity[int, string]{
		Name:           "hang",
		Timeout:        1000 * time.Hour,
		IdempotencyKey: keyed.IdempotencyKey,
		Run:            func(ctx context.Context, _ int) (string, error) { <-ctx.Done(); return "", ctx.Err() },
		Compensate:     func(context.Context, int, string) error { w.Effect("undone what nobody knows"); return nil },
	}
	wf := &engine.Workflow[int, string]{Name: "undoing", Errors: []error{broke}, Func: func(run *engine.Run, _ int) (string, error) {
		hang.Go(run, 3)
		engine.Go(run, "left behind", func(run *engine.Run) (any, error) { return nil, run.Sleep(1000 * time.Hour) })
		if _, err := keyed.Do(run, 0); err != nil {
			return "", err
		}
		_, err := engine.Map(run, "part", 1, []int{1, 2}, func(run *engine.Run, i int) (string, error) { return book.Do(run, i) })
		return "", errors.Join(err, broke)
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"undoing"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "undoing", 1)
			if err != nil {
				return "", err
			}
			for {
				info, err := h.Describe(ctx)
				if err != nil {
					return "", err
				}
				if info.Status.Terminal() {
					break
				}
				for _, a := range info.Attention {
					err := eng.Resolve(ctx, "undoing", a.Operation, activity.Failed("let them fly"), engine.Actor{Name: "ann", Reason: "no refund"})
					if err != nil && !errors.Is(err, engine.ErrNotApplicable) && !errors.Is(err, engine.ErrTerminal) {
						return "", err
					}
				}
				time.Sleep(time.Minute)
			}
			if _, err = h.Result(ctx); !errors.Is(err, broke) {
				return "", err
			}
			books.Lock()
			defer books.Unlock()
			return fmt.Sprint(cancelled), nil
		},
	}
}

// answersOf: a person is asked about a charge, and answers from a process that does not
// know what the charge returns: first with a number, and when that is withdrawn, with a
// string.
func answersOf(*sweep.World) sweep.Scenario {
	charge := &activity.Activity[int, string]{
		Name:            "charge",
		IdempotencyKey:  func(i int) string { return fmt.Sprint("order/", i) },
		OnIndeterminate: activity.AwaitOperator,
		Run:             func(context.Context, int) (string, error) { return "", errors.New("the reply is lost") },
	}
	wf := &engine.Workflow[int, string]{Name: "answers", Func: func(run *engine.Run, i int) (string, error) { return charge.Do(run, i) }}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"answers"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "answers", 1)
			if err != nil {
				return "", err
			}
			client, err := engine.New(engine.Config{Storage: engine.StorageOf(eng), Logger: quiet})
			if err != nil {
				return "", err
			}
			defer client.Close()
			for {
				info, err := h.Describe(ctx)
				if err != nil {
					return "", err
				}
				if info.Status.Terminal() {
					return h.Result(ctx)
				}
				for _, a := range info.Attention {
					var answer activity.Answer = activity.CompletedWithResult(7)
					if strings.Contains(a.Detail, "the answer by ann is rejected") {
						answer = activity.CompletedWithResult("ch_7")
					}
					err := client.Resolve(ctx, "answers", a.Operation, answer, audit)
					if err != nil && !errors.Is(err, engine.ErrNotApplicable) && !errors.Is(err, engine.ErrTerminal) {
						return "", err
					}
				}
				time.Sleep(5 * time.Hour) // what another process writes is found by a poll
			}
		},
	}
}

// deploys: a run and its child stay on their deployment while another one is active,
// on which nothing begins until it is rolled back. A run whose start names a deployment is there
// meanwhile, with a child that is not Pinned.
func deploys(w *sweep.World) sweep.Scenario {
	act := effect(w, "a")
	kid := &engine.Workflow[int, string]{Name: "kid", Pinned: true, Func: func(run *engine.Run, i int) (string, error) {
		if err := run.Sleep(time.Hour); err != nil {
			return "", err
		}
		return act.Do(run, i)
	}}
	wf := &engine.Workflow[int, string]{Name: "deploys", Pinned: true, Func: func(run *engine.Run, i int) (string, error) {
		a, err := act.Do(run, i)
		if err != nil {
			return "", err
		}
		if err := run.Sleep(time.Hour); err != nil {
			return "", err
		}
		b, err := kid.Do(run, 10*i)
		return a + b, err
	}}
	loose := &engine.Workflow[int, string]{Name: "loose", Func: func(run *engine.Run, i int) (string, error) { return act.Do(run, i) }}
	outer := &engine.Workflow[int, string]{Name: "outer", Func: func(run *engine.Run, i int) (string, error) { return loose.Do(run, i) }}
	return sweep.Scenario{
		Workflows:  []engine.Definition{wf, kid, loose, outer},
		Deployment: "blue",
		IDs:        []string{"first", "second", "third"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			if err := eng.Activate(ctx, "blue", audit); err != nil {
				return "", err
			}
			first, err := wf.Start(ctx, eng, "first", 1)
			if err != nil {
				return "", err
			}
			for w.Effects()["a 1"] == 0 && ctx.Err() == nil {
				time.Sleep(time.Second) // until it has begun, or it would wait for the end of green
			}
			if err := eng.Activate(ctx, "green", audit); err != nil {
				return "", err
			}
			second, err := wf.Start(ctx, eng, "second", 2)
			if err != nil {
				return "", err
			}
			third, err := outer.With(engine.StartOptions{Deployment: "blue"}).Start(ctx, eng, "third", 3)
			if err != nil {
				return "", err
			}
			one, err := first.Result(ctx)
			if err != nil {
				return "", err
			}
			three, err := third.Result(ctx)
			if err != nil {
				return "", err
			}
			if err := eng.Rollback(ctx, audit); err != nil {
				return "", err
			}
			two, err := second.Result(ctx)
			if err != nil {
				return "", err
			}
			active, err := eng.ActiveDeployment(ctx)
			return one + two + three + active, err
		},
	}
}

// purging: a workflow is purged as soon as it has ended, and its id used again. Its tombstone
// expires.
func purging(*sweep.World) sweep.Scenario {
	wf := &engine.Workflow[int, string]{Name: "quick", Func: func(run *engine.Run, n int) (string, error) {
		return fmt.Sprint("done ", n), run.Sleep(time.Second)
	}}
	audit := engine.Actor{Name: "ann", Reason: "test"}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"kept"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			learnt := ""
			for _, id := range []string{"kept", "gone", "gone"} {
				h, err := wf.Start(ctx, eng, id, 7)
				if err != nil {
					return "", err
				}
				got, err := h.Result(ctx)
				if err != nil {
					return "", err
				}
				if learnt += got + " "; id == "gone" {
					if err := eng.Purge(ctx, id, audit); err != nil {
						return "", err
					}
					if _, err := eng.Describe(ctx, id); !errors.Is(err, engine.ErrNotFound) {
						return "", fmt.Errorf("describe of what was purged: %w", err)
					}
				}
			}
			time.Sleep(3 * 24 * time.Hour)
			return learnt, nil
		},
	}
}

// removing: retention removes what has ended, and its id is used again; one is protected.
func removing(w *sweep.World) sweep.Scenario {
	wf := &engine.Workflow[int, string]{
		Name:      "old",
		Retention: engine.Retention{Completed: 10 * time.Minute},
		Func: func(run *engine.Run, n int) (string, error) {
			return engine.Step(run, "do", func(context.Context) (string, error) { return fmt.Sprint("done ", n), nil })
		},
	}
	audit := engine.Actor{Name: "ann", Reason: "test"}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"kept"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			learnt := ""
			for _, id := range []string{"kept", "gone", "gone"} {
				h, err := wf.Start(ctx, eng, id, 7)
				if err != nil {
					return "", err
				}
				got, err := h.Result(ctx)
				if err != nil {
					return "", err
				}
				if learnt += got + " "; id == "kept" {
					if err := eng.Protect(ctx, id, audit); err != nil {
						return "", err
					}
					continue
				}
				for hours := 0; err == nil; hours++ {
					if hours == 24 {
						return "", errors.New("what is older than its retention is there after a day")
					}
					time.Sleep(time.Hour)
					_, err = eng.Describe(ctx, id)
				}
				if !errors.Is(err, engine.ErrNotFound) {
					return "", err
				}
			}
			if err := eng.Purge(ctx, "kept", audit); !errors.Is(err, engine.ErrProtected) {
				return "", fmt.Errorf("purge of what is protected: %w", err)
			}
			return learnt, nil
		},
	}
}

// terminating: an operator ends a parent whose activity is in progress; a child of each kind
// follows, or does not.
func terminating(*sweep.World) sweep.Scenario {
	act := &activity.Activity[int, string]{Name: "hang", Timeout: 30 * 24 * time.Hour, Run: func(ctx context.Context, _ int) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	}}
	sub := &engine.Workflow[int, string]{Name: "sub", Func: func(run *engine.Run, _ int) (string, error) {
		return "", run.Sleep(30 * 24 * time.Hour)
	}}
	wf := &engine.Workflow[int, string]{Name: "parent", Func: func(run *engine.Run, n int) (string, error) {
		sub.AsChild(engine.ChildOptions{ID: "cancel"}).Go(run, 0)
		sub.AsChild(engine.ChildOptions{ID: "abandon", OnParentEnd: engine.ParentEndAbandon}).Go(run, 0)
		sub.AsChild(engine.ChildOptions{ID: "await", OnParentEnd: engine.ParentEndAwait}).Go(run, 0)
		return act.Do(run, n)
	}}
	audit := engine.Actor{Name: "ann", Reason: "test"}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf, sub},
		IDs:       []string{"parent", "cancel", "await"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "parent", 1)
			if err != nil {
				return "", err
			}
			for { // until it has started them
				_, err := eng.Describe(ctx, "await")
				if err == nil {
					break
				}
				if !errors.Is(err, engine.ErrNotFound) {
					return "", err
				}
				time.Sleep(time.Hour)
			}
			if err := eng.Terminate(ctx, "parent", audit); err != nil && !errors.Is(err, engine.ErrTerminal) {
				return "", err
			}
			if _, err := h.Result(ctx); !errors.Is(err, engine.ErrCancelled) {
				return "", fmt.Errorf("result: %w", err)
			}
			for _, id := range []string{"cancel", "await"} {
				if _, err := sub.Handle(eng, id).Result(ctx); !errors.Is(err, engine.ErrCancelled) {
					return "", fmt.Errorf("result of %s: %w", id, err)
				}
			}
			i, err := eng.Describe(ctx, "abandon")
			if err != nil {
				return "", err
			}
			if i.Cancel != nil && i.Cancel.Reason != audit.Reason {
				return "", fmt.Errorf("abandon was asked to stop: %+v", i.Cancel)
			}
			ends := 0
			for c, err := range eng.History(ctx, "parent") {
				if err != nil {
					return "", err
				}
				for _, e := range c.Events {
					if e.Kind == checkpoint.KindActed || e.Kind == checkpoint.KindEnded {
						ends++
					}
				}
			}
			if err := eng.Terminate(ctx, "abandon", audit); err != nil && !errors.Is(err, engine.ErrTerminal) {
				return "", err
			}
			return fmt.Sprint(ends), nil
		},
	}
}

// clearing: signals that nobody receives are removed by an operator.
func clearing(*sweep.World) sweep.Scenario {
	junk, end := &signal.Signal[int]{Name: "junk"}, &signal.Signal[int]{Name: "end"}
	wf := &engine.Workflow[int, string]{Name: "clearing", Func: func(run *engine.Run, _ int) (string, error) {
		n, err := end.Receive(run)
		if err != nil {
			return "", err
		}
		_, ok, err := junk.ReceiveWithin(run, 0)
		return fmt.Sprint(n, ok), err
	}}
	audit := engine.Actor{Name: "ann", Reason: "test"}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"clearing"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.With(engine.StartOptions{Labels: widest()}).Start(ctx, eng, "clearing", 0)
			if err != nil {
				return "", err
			}
			for i := range 2 {
				if _, err := junk.Send(ctx, eng, h.ID(), i, &signal.Options{ID: fmt.Sprint(i)}); err != nil {
					return "", err
				}
			}
			for i := range 2 {
				err := eng.ClearSignal(ctx, h.ID(), junk.Name, fmt.Sprint(i), audit)
				if err != nil && !errors.Is(err, engine.ErrNotApplicable) && !errors.Is(err, engine.ErrTerminal) { // it was cleared before the fault
					return "", err
				}
			}
			if _, err := end.Send(ctx, eng, h.ID(), 1, &signal.Options{ID: "end"}); err != nil {
				return "", err
			}
			return h.Result(ctx)
		},
	}
}

// beating: an import reports how far it has come, and the next attempt continues there.
func beating(w *sweep.World) sweep.Scenario {
	load := &activity.Activity[int, int]{
		Name:  "load",
		Retry: activity.Retry{MaxAttempts: -1, Backoff: time.Minute},
		Run: func(ctx context.Context, rows int) (int, error) {
			row, _ := activity.Progress[int](ctx) // 0 before the first beat
			for ; row < rows; row++ {
				w.Effect(fmt.Sprint("row ", row))
				if err := activity.Heartbeat(ctx, row+1); err != nil {
					return 0, err
				}
				time.Sleep(time.Hour) // until this beat is stored
				if row == 1 && activity.InfoFrom(ctx).Attempt == 1 {
					return 0, errBroke
				}
			}
			return row, nil
		},
	}
	wf := &engine.Workflow[int, string]{Name: "beating", Func: func(run *engine.Run, n int) (string, error) {
		rows, err := load.Do(run, n)
		return fmt.Sprint(rows), err
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"beating"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "beating", 4)
			if err != nil {
				return "", err
			}
			return h.Result(ctx)
		},
	}
}

// forgetting: the acceptance of a signal is forgotten after its time.
func forgetting(*sweep.World) sweep.Scenario {
	wf := &engine.Workflow[int, string]{Name: "forgetting", Func: func(run *engine.Run, _ int) (string, error) {
		n, err := (&signal.Signal[int]{Name: "go"}).Receive(run)
		return fmt.Sprint(n), err
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"forgetting"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "forgetting", 0)
			if err != nil {
				return "", err
			}
			id := "1"
			_, err = eng.SendSignal(ctx, signal.Message{WorkflowID: h.ID(), Name: "go", ID: &id, Payload: 7, ExpiresAfter: time.Hour})
			if err != nil && !errors.Is(err, engine.ErrTerminal) { // it was accepted, and forgotten, before the fault
				return "", err
			}
			got, err := h.Result(ctx)
			time.Sleep(3 * 24 * time.Hour)
			return got, err
		},
	}
}

// scheduling: a schedule with two times. The second one waits for the end of the first workflow.
func scheduling(w *sweep.World) sweep.Scenario {
	act := effect(w, "report")
	wf := &engine.Workflow[int, string]{Name: "nightly", Func: func(run *engine.Run, n int) (string, error) {
		if err := run.Sleep(70 * time.Minute); err != nil {
			return "", err
		}
		at, _ := run.Nominal()
		_, err := act.Do(run, at.Hour())
		return fmt.Sprint(n, at.Format(time.RFC3339)), err
	}}
	s := engine.Schedule{
		ID: "report", Start: wf.Request("", 7), Every: time.Hour, Overlap: engine.OverlapWait, Missed: engine.MissedAll,
		Until: midnight.Add(150 * time.Minute),
	}
	first, second := s.RunID(midnight.Add(time.Hour)), s.RunID(midnight.Add(2*time.Hour))
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{first, second},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			if err := eng.PutSchedule(ctx, s, audit); err != nil {
				return "", err
			}
			time.Sleep(5 * time.Hour)
			all := ""
			for _, id := range []string{first, second} {
				out, err := wf.Handle(eng, id).Result(ctx)
				if err != nil {
					return "", err
				}
				all += out + " "
			}
			for i, err := range eng.Schedules(ctx, "report") {
				if err != nil {
					return "", err
				}
				all += fmt.Sprint(i.Started, i.Missed, i.Skipped, i.Problem)
			}
			return all, eng.PauseSchedule(ctx, "report", audit)
		},
	}
}

// transactions: two steps write rows in the transactions of their checkpoints.
func transactions(*sweep.World) sweep.Scenario {
	wf := &engine.Workflow[int, string]{Name: "transactions", Func: func(run *engine.Run, n int) (string, error) {
		rows := 0
		for range n {
			var err error
			rows, err = sqlite.Transact(run, "book", func(ctx context.Context, tx *sql.Tx) (int, error) {
				if _, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS seats (n INTEGER)"); err != nil {
					return 0, err
				}
				if _, err := tx.ExecContext(ctx, "INSERT INTO seats VALUES (1)"); err != nil {
					return 0, err
				}
				var rows int
				return rows, tx.QueryRowContext(ctx, "SELECT count(*) FROM seats").Scan(&rows)
			})
			if err != nil {
				return "", err
			}
		}
		return fmt.Sprint(rows, " seats"), nil
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"transactions"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "transactions", 2)
			if err != nil {
				return "", err
			}
			return h.Result(ctx)
		},
	}
}

// living: a run continues as new twice. Each life charges, receives a signal, starts a child that
// outlives it, and leaves an attempt and a child behind.
func living(w *sweep.World) sweep.Scenario {
	charge := effect(w, "charge")
	charge.IdempotencyKey = func(i int) string { return fmt.Sprint("charge ", i) }
	charge.Verify = func(_ context.Context, i int) (activity.Verification[string], error) {
		if w.Effects()[fmt.Sprint("charge ", i)] > 0 {
			return activity.CompletedWithResult(fmt.Sprint("charge", i)), nil
		}
		return activity.NotCompleted[string](), nil
	}
	hang := &activity.Activity[int, string]{Name: "hang", Timeout: 30 * 24 * time.Hour, IdempotencyKey: func(i int) string { return fmt.Sprint("hang ", i) },
		OnIndeterminate: activity.AwaitOperator,
		Run: func(ctx context.Context, _ int) (string, error) {
			<-ctx.Done()
			return "", activity.NoEffect(context.Cause(ctx))
		}}
	word := &signal.Signal[string]{Name: "word"}
	sub := &engine.Workflow[int, string]{Name: "sub", Func: func(run *engine.Run, n int) (string, error) {
		return "", run.Sleep(time.Duration(n) * time.Hour)
	}}
	type state struct {
		Life  int
		Words string
	}
	wf := &engine.Workflow[state, string]{Name: "lives", Func: func(run *engine.Run, s state) (string, error) {
		c, err := charge.Do(run, s.Life)
		if err != nil {
			return "", err
		}
		sub.AsChild(engine.ChildOptions{ID: fmt.Sprint("cancel", s.Life)}).Go(run, 24*30)
		sub.AsChild(engine.ChildOptions{ID: fmt.Sprint("abandon", s.Life), OnParentEnd: engine.ParentEndAbandon}).Go(run, 5)
		hang.Go(run, s.Life)
		w, err := word.Receive(run)
		if err != nil {
			return "", err
		}
		s.Words += c + w
		if s.Life++; s.Life < 3 {
			return "", engine.ContinueAsNew(run, s)
		}
		return s.Words, nil
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf, sub},
		IDs:       []string{"lives", "cancel0", "abandon0", "cancel1", "abandon1", "cancel2", "abandon2"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "lives", state{})
			if err != nil {
				return "", err
			}
			for i := range 3 {
				if _, err := word.Send(ctx, eng, "lives", fmt.Sprint(i), &signal.Options{ID: fmt.Sprint(i)}); err != nil {
					return "", err
				}
				time.Sleep(time.Hour)
			}
			out, err := h.Result(ctx)
			if err != nil {
				return "", err
			}
			for i := range 3 {
				if _, err := sub.Handle(eng, fmt.Sprint("cancel", i)).Result(ctx); !errors.Is(err, engine.ErrCancelled) {
					return "", fmt.Errorf("result of child %d: %w", i, err)
				}
				if _, err := sub.Handle(eng, fmt.Sprint("abandon", i)).Result(ctx); err != nil {
					return "", err
				}
			}
			return out, nil
		},
	}
}

// updating: updates that are executed and refused, before and after a start, in two lives, from memory
// and from the store, with signals between them. One waits in the store for the second life.
func updating(w *sweep.World) sweep.Scenario {
	charge := effect(w, "charge")
	word := &signal.Signal[string]{Name: "word"}
	spend := &engine.Update[int, string]{Name: "spend", Errors: []error{errNegative}}
	later := &engine.Update[int, string]{Name: "later"}
	type state struct{ Life, Sum int }
	wf := &engine.Workflow[state, string]{Name: "updates", Func: func(run *engine.Run, s state) (string, error) {
		if err := spend.Handle(run, func(n int) error {
			if n < 0 {
				return errNegative
			}
			return nil
		}, func(run *engine.Run, n int) (string, error) {
			s.Sum += n
			sum := s.Sum
			c, err := charge.Do(run, sum)
			if err != nil {
				return "", err
			}
			return fmt.Sprint(c, sum), nil
		}); err != nil {
			return "", err
		}
		if s.Life == 1 {
			if err := later.Handle(run, nil, func(run *engine.Run, n int) (string, error) { return charge.Do(run, n) }); err != nil {
				return "", err
			}
		}
		if _, err := word.Receive(run); err != nil {
			return "", err
		}
		if s.Life++; s.Life < 2 {
			return "", engine.ContinueAsNew(run, s)
		}
		return fmt.Sprint(s.Sum), nil
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"updates"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			all := ""
			one, err := spend.CallWithStart(ctx, eng, wf.Request("updates", state{}), 5, by("one"))
			if err != nil {
				return "", err
			}
			soon, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			if _, err := later.Call(soon, eng, "updates", 1000, by("later")); err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
				return "", err
			}
			for i := range 2 {
				if i == 1 {
					a, err := later.Call(ctx, eng, "updates", 1000, by("later"))
					if err != nil {
						return "", err
					}
					all += a
				}
				for range 2 {
					_, err := spend.Call(ctx, eng, "updates", -1, by(fmt.Sprint("no", i)))
					if !errors.Is(err, errNegative) {
						return "", fmt.Errorf("refused: %w", err)
					}
					a, err := spend.Call(ctx, eng, "updates", 1, by(fmt.Sprint("yes", i)))
					if err != nil {
						return "", err
					}
					all += a
				}
				if _, err := word.Send(ctx, eng, "updates", fmt.Sprint(i), &signal.Options{ID: fmt.Sprint(i)}); err != nil {
					return "", err
				}
				time.Sleep(time.Hour)
			}
			h := wf.Handle(eng, "updates")
			out, err := h.Result(ctx)
			if err != nil {
				return "", err
			}
			again, err := spend.Call(ctx, eng, "updates", 5, by("one"))
			if again != one || err != nil {
				return "", fmt.Errorf("after the end: %q, %w, and it was %q", again, err, one)
			}
			return one + all + out, nil
		},
	}
}
