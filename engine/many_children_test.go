package engine_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// narrow is s with small batches: a commit has room for the conditions of three children,
// so that four are many.
func narrow(s storage.Storage) *hooked {
	return &hooked{Storage: s, max: storage.Size{Ops: 84, Bytes: 1 << 20}}
}

// As many parents as there is room for runs, each of more children than one commit can
// have conditions: they leave memory, so that their children run, and each learns of all
// of its children.
func TestParentsOfManyChildren(t *testing.T) {
	test := func(t *testing.T, s storage.Storage, parents, n int) {
		sub := &engine.Workflow[int, int]{Name: "sub", Func: func(*engine.Run, int) (int, error) { return 1, nil }}
		wf := flow("parent", func(run *engine.Run) (string, error) {
			out, err := engine.Map(run, "child", 0, make([]int, n), func(run *engine.Run, _ int) (int, error) { return sub.Do(run, 0) })
			sum := 0
			for _, v := range out {
				sum += v
			}
			return fmt.Sprint(sum), err
		})
		p := boot(t, s, wf, sub, func(c *engine.Config) { c.MaxRunsInMemory = parents })
		for i := range parents {
			start(t, wf, p, fmt.Sprint(i), "")
		}
		for i := range parents {
			h := wf.Handle(p, fmt.Sprint(i))
			if got := result(t, h); got != fmt.Sprint(n) {
				t.Errorf("parent %d: got %s children, want %d", i, got, n)
			}
		}
	}
	many, n := 1001, 20
	switch {
	case os.Getenv("WEFT_TORTURE") != "":
		n = many
	case torture.Raced():
		many = 101
	}
	t.Run("one with many", func(t *testing.T) { test(t, new(memory.Store), 1, many) })
	for name, s := range allStores(t) {
		t.Run(name, func(t *testing.T) {
			inner := s.Open(t)
			defer inner.Close()
			test(t, narrow(inner), 2, n)
		})
	}
}

// allStores are those of the sweep, and PostgreSQL.
func allStores(t *testing.T) map[string]sweep.Store {
	all := map[string]sweep.Store{"postgres": onPostgres(t)}
	for name, s := range sweepStores {
		all[name] = s
	}
	return all
}

// A child ends between the last look of its parent, which has many, and the commit that
// parks the parent. The parent is told at once; and if its process dies behind that
// commit, within ten polls.
func TestParentOfManyIsParkedWhileAChildEnds(t *testing.T) {
	for name, dies := range map[string]bool{"lives": false, "dies": true} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := sharing{fresh(t)}
				sub := &engine.Workflow[time.Duration, string]{Name: "sub", Func: func(run *engine.Run, d time.Duration) (string, error) { return "grown", run.Sleep(d) }}
				wf := flow("parent", func(run *engine.Run) (string, error) {
					for range 4 {
						sub.Go(run, 10*time.Hour)
					}
					return sub.AsChild(engine.ChildOptions{ID: "kid"}).Do(run, time.Minute)
				})
				h := narrow(s)
				var p *process
				parks := 0
				isPark := func(b storage.Batch) bool {
					return isOf(b, "p") && !writes(b, "held:") && !writes(b, "kid:") && !writes(b, "wf:p:out")
				}
				h.beforeCommit = func(b storage.Batch) {
					if isPark(b) {
						if parks++; parks == 1 {
							time.Sleep(5 * time.Second)
						}
					}
				}
				h.afterCommit = func(b storage.Batch) error {
					if dies && isPark(b) && parks == 1 {
						p.store.Crash()
					}
					return nil
				}
				patience := func(c *engine.Config) { c.ParkAfter, c.PollInterval = 58*time.Second, time.Minute }
				p = boot(t, h, wf, as("here"), patience)
				boot(t, s, sub, as("elsewhere"), parkAfter(time.Hour))
				time.Sleep(time.Second)
				begun := time.Now()
				start(t, wf, p, "p", "")
				bound := 2 * time.Minute
				if dies {
					time.Sleep(70 * time.Second)
					p.kill()
					p = boot(t, narrow(s), wf, as("another"), patience)
					bound = 13 * time.Minute
				}
				if got := result(t, wf.Handle(p, "p")); got != "grown" {
					t.Errorf("got %q", got)
				}
				if took := time.Since(begun); parks == 0 || took > bound {
					t.Errorf("the parent was parked %d times, and took %v", parks, took)
				}
			})
		})
	}
}

// Whatever goes wrong with whichever call to the store, also with those that park a parent
// of many children and look back: the runs go on as those do that nothing happened to.
func TestEveryCallOfAParentOfManyMayFail(t *testing.T) {
	for name, s := range allStores(t) {
		t.Run(name, func(t *testing.T) {
			stride := torture.Rounds(1, 23, 397)
			switch name {
			case "memory":
				stride = torture.Rounds(1, 3, 47)
			case "postgres":
				stride = torture.Rounds(1, 131, 601)
			}
			small := sweep.Store{Open: func(t testing.TB) storage.Storage { return narrow(s.Open(t)) }}
			if s.Reopen != nil {
				small.Reopen = func(t testing.TB, n storage.Storage) storage.Storage {
					return narrow(s.Reopen(t, n.(*hooked).Storage))
				}
			}
			t.Logf("%d plays", sweep.Every(t, small, stride, patiently(children)))
		})
	}
}

// patiently is a scenario after which what nobody needs any more has come due and is gone.
func patiently(scenario func(*sweep.World) sweep.Scenario) func(*sweep.World) sweep.Scenario {
	return func(w *sweep.World) sweep.Scenario {
		s := scenario(w)
		drive := s.Drive
		s.Drive = func(ctx context.Context, e *engine.Engine) (string, error) {
			learnt, err := drive(ctx, e)
			if err == nil {
				time.Sleep(10 * sweep.Poll)
			}
			return learnt, err
		}
		return s
	}
}

// A parent of more children than its parking can be conditional on stays in
// memory, and rests there.
func TestParentOfTooManyToBeParked(t *testing.T) {
	virtual(t, func(t *testing.T) {
		sub := flow("sub", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Hour) })
		wf := flow("parent", func(run *engine.Run) (string, error) {
			out, err := engine.Map(run, "child", 0, make([]string, 1001), func(run *engine.Run, s string) (string, error) { return sub.Do(run, s) })
			return fmt.Sprint(len(out)), err
		})
		p := boot(t, fresh(t), wf, sub, parkAfter(-1))
		ctx, cancel := context.WithTimeout(ctx, 2*time.Hour)
		defer cancel()
		if got, err := start(t, wf, p, "p", "").Result(ctx); got != "1001" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
}
