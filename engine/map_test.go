package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/storage/memory"
)

// parts is a workflow with a Map whose branches have a Map, each with so many branches at a time.
// They clean up when they are stopped.
func parts(done *tally, limit int) *engine.Workflow[string, string] {
	work := &activity.Activity[string, string]{Name: "work", Run: func(_ context.Context, part string) (string, error) {
		done.add(part)
		return part, nil
	}}
	return flow("parts", func(run *engine.Run) (string, error) {
		scope := run.WithTimeout(10 * time.Hour)
		out, err := engine.Map(scope, "part", limit, []int{0, 1, 2, 3, 4, 5}, func(run *engine.Run, i int) (string, error) {
			if err := run.Sleep(time.Duration(7-i) * time.Minute); err != nil {
				if _, err := work.Do(run.WithoutCancel(), fmt.Sprint("clean up ", i)); err != nil {
					return "", err
				}
				return "", err
			}
			inner, err := engine.Map(run, "inner", limit, []int{0, 1, 2}, func(run *engine.Run, j int) (string, error) {
				part, err := work.Do(run, fmt.Sprintf("%d%d", i, j))
				if err != nil {
					return "", err
				}
				return part, run.Sleep(time.Minute)
			})
			return strings.Join(inner, ","), err
		})
		return strings.Join(out, ";"), err
	})
}

// seldom has the engine poll only once a minute, and keep its runs in memory.
func seldom(c *engine.Config) { c.PollInterval, c.ParkAfter = time.Minute, 10*time.Hour }

// A run goes on with another limit of its Maps as if it had always been that: nothing is
// repeated, and nothing is held.
func TestMapLimitMayChange(t *testing.T) {
	const want = "00,01,02;10,11,12;20,21,22;30,31,32;40,41,42;50,51,52"
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		changes := [][]int{{3, 1, 4}, {0, 1, 2}, {1, 0, 2}, {3, 2, 1}, {2, 3, 0}}
		if !strings.HasSuffix(t.Name(), "/memory") { // the store makes no difference to a replay
			changes = changes[:1]
		}
		for _, limits := range changes {
			for _, after := range []time.Duration{30 * time.Second, 5*time.Minute + 30*time.Second, 9*time.Minute + 30*time.Second} {
				s := store.Open(t)
				done := new(tally)
				p := boot(t, s, parts(done, limits[0]), seldom)
				start(t, parts(done, limits[0]), p, "o", "")
				for _, limit := range limits[1:] {
					time.Sleep(after)
					p.kill()
					p = boot(t, s, parts(done, limit), seldom)
				}
				if got, err := outcome(parts(done, 0).Handle(p, "o")); got != want || err != nil {
					t.Errorf("limits %v, changed after %v: result %q, %v, want %q", limits, after, got, err, want)
				}
				all := slices.Sorted(slices.Values(done.all()))
				if compact := slices.Compact(slices.Clone(all)); len(compact) != 18 || len(all) != 18 {
					t.Errorf("limits %v, changed after %v: worked on %q", limits, after, all)
				}
				p.stop(t)
				s.Close()
			}
		}
	})
}

func TestMapError(t *testing.T) {
	virtual(t, func(t *testing.T) {
		work := &activity.Activity[int, int]{Name: "work", Errors: []error{errBroke}, Run: func(_ context.Context, i int) (int, error) {
			if i%2 == 1 {
				return 0, activity.Permanent(errBroke)
			}
			return i, nil
		}}
		var got *engine.MapError
		wf := flow("w", func(run *engine.Run) (string, error) {
			_, err := engine.Map(run, "part", 3, make([]int, 14), func(run *engine.Run, _ int) (int, error) { return 0, nil })
			if err != nil {
				return "", err
			}
			in := make([]int, 14)
			for i := range in {
				in[i] = i
			}
			out, err := engine.Map(run.WithTimeout(30*time.Minute), "part", 13, in, func(run *engine.Run, i int) (int, error) {
				if i == 12 {
					return i, run.Sleep(2 * time.Hour)
				}
				if i == 0 {
					return i, run.Sleep(20 * time.Minute)
				}
				v, err := work.Do(run, i)
				if err == nil {
					err = run.Sleep(90 * time.Minute)
				}
				return v, err
			})
			if !errors.As(err, &got) || !errors.Is(err, errBroke) || !errors.Is(err, engine.ErrTimeout) || len(out) != 14 {
				t.Errorf("%v: %v", out, err)
			}
			return "", err
		})
		p := boot(t, new(memory.Store), wf)
		_, err := outcome(start(t, wf, p, "o", ""))
		const want = `engine: workflow w "o": map part: 13 of 14 items failed: item 1 (operation 17): activity work: attempt 1: broke; item 2 (operation 18): engine: time is up; item 3 (operation 19): activity work: attempt 1: broke; item 4 (operation 20): engine: time is up; item 5 (operation 21): activity work: attempt 1: broke; and 8 more`
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		var item *engine.ItemError
		if got == nil || len(got.Items) != 13 || got.NotStarted != 0 || !errors.As(got, &item) || item.Index != 1 || item.Operation != "17" {
			t.Errorf("%+v", got)
		}
		p.stop(t)
	})
}

// What a Map has not started has one error, whatever their number.
func TestMapErrorOfACancelledMap(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("w", func(run *engine.Run) (string, error) {
			inner, cancel := run.WithCancel()
			cancel()
			out, err := engine.Map(inner, "part", 3, make([]int, 1000), func(run *engine.Run, _ int) (int, error) { return 0, nil })
			var m *engine.MapError
			if !errors.As(err, &m) || m.NotStarted != 1000 || len(m.Items) != 0 || !errors.Is(err, engine.ErrCancelled) || len(out) != 1000 {
				t.Errorf("%d results, %v", len(out), err)
			}
			return "", err
		})
		p := boot(t, new(memory.Store), wf)
		_, err := outcome(start(t, wf, p, "o", ""))
		if want := `engine: workflow w "o": map part: 1000 of 1000 items were not started: engine: workflow cancelled`; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		p.stop(t)
	})
}

// A difference is reported where it is in the function, whatever happened first.
func TestTheFirstDifferenceIsReported(t *testing.T) {
	act := func(name string, d time.Duration) *activity.Activity[string, string] {
		return &activity.Activity[string, string]{Name: name, Run: func(context.Context, string) (string, error) {
			time.Sleep(d)
			return name, nil
		}}
	}
	slow, quick, other := act("slow", 2*time.Second), act("quick", time.Second), act("other", 0)
	both := func(run *engine.Run, before func(), more ...*future.Future[string]) (string, error) {
		a := slow.Go(run, "")
		if before != nil {
			before()
		}
		b := quick.Go(run, "")
		_, err := engine.All(run, append(more, a, b)...)
		return "", err
	}
	each := func(run *engine.Run, in []string) (string, error) {
		_, err := engine.Map(run, "part", 2, in, func(run *engine.Run, name string) (string, error) {
			d := slow
			if name == "b" {
				d = quick
			}
			return d.Do(run, "")
		})
		return "", err
	}
	for name, c := range map[string]struct {
		was, is           func(run *engine.Run) (string, error)
		operation, words  string
		lineOfTheInserted bool
	}{
		"before all": {
			func(run *engine.Run) (string, error) { return both(run, nil) },
			func(run *engine.Run) (string, error) { return both(run, nil, other.Go(run, "")) },
			"1", "operation 1 was activity slow and is now activity other", true,
		},
		"between": {
			func(run *engine.Run) (string, error) { return both(run, nil) },
			func(run *engine.Run) (string, error) { return both(run, func() { other.Go(run, "") }) },
			"2", "operation 2 was activity quick and is now activity other", true,
		},
		"a timer that nobody waits for": {
			func(run *engine.Run) (string, error) { return both(run, nil) },
			func(run *engine.Run) (string, error) { return both(run, func() { run.After(time.Hour) }) },
			"2", "operation 2 was activity quick and is now timer", true,
		},
		"before a Map": {
			func(run *engine.Run) (string, error) { return each(run, []string{"a", "b", "c"}) },
			func(run *engine.Run) (string, error) {
				if _, err := other.Do(run, ""); err != nil {
					return "", err
				}
				return each(run, []string{"a", "b", "c"})
			},
			"1", "operation 1 was branch part and is now activity other", true,
		},
		"a branch before a Map": {
			func(run *engine.Run) (string, error) { return each(run, []string{"b", "a"}) },
			func(run *engine.Run) (string, error) {
				engine.Go(run, "first", func(run *engine.Run) (string, error) { return "", nil })
				return each(run, []string{"b", "a"})
			},
			"1.1", "operation 1.1 was activity quick and is now not asked for", false,
		},
		"a shorter Map": {
			func(run *engine.Run) (string, error) { return each(run, []string{"b", "a"}) },
			func(run *engine.Run) (string, error) { return each(run, []string{"b"}) },
			"2.1", "operation 2.1 was activity slow and is now not asked for: the function has ended", false,
		},
		"in a branch": {
			func(run *engine.Run) (string, error) { return each(run, []string{"a", "b"}) },
			func(run *engine.Run) (string, error) {
				_, err := engine.Map(run, "part", 2, []string{"a", "b"}, func(run *engine.Run, name string) (string, error) {
					if _, err := other.Do(run, ""); err != nil {
						return "", err
					}
					return slow.Do(run, "")
				})
				return "", err
			},
			"2.1", "operation 2.1 was activity quick and is now activity other", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				p := boot(t, new(memory.Store), flow("w", c.was))
				result(t, start(t, flow("w", c.was), p, "o", ""))
				err := made(t, new(memory.Store), flow("w", c.is)).Replay(ctx, bytes.NewReader(exported(t, p.Engine, "o")))
				var n *engine.NonDeterminismError
				if !errors.As(err, &n) || n.Operation != c.operation || !strings.Contains(err.Error(), c.words) {
					t.Fatalf("got %v, want operation %s and %q", err, c.operation, c.words)
				}
				if got := strings.Contains(n.Line, "map_test.go:"); got != c.lineOfTheInserted {
					t.Errorf("line %q", n.Line)
				}
				p.stop(t)
			})
		})
	}
}

// What a Map has not started when its time was up is not started in a replay, although branches
// with the same name, and numbers that would be theirs, come later.
func TestMapThatWasCutIsReplayed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		work := &activity.Activity[string, string]{Name: "work", Run: func(_ context.Context, s string) (string, error) { return s, nil }}
		wf := flow("w", func(run *engine.Run) (string, error) {
			sleep := func(run *engine.Run, s string) (string, error) { return s, run.Sleep(time.Hour) }
			if _, err := engine.Map(run.WithTimeout(time.Minute), "part", 2, []string{"a", "b", "c", "d"}, sleep); !errors.Is(err, engine.ErrTimeout) {
				return "", fmt.Errorf("first: %w", err)
			}
			out, err := engine.Map(run, "part", 2, []string{"e", "f", "g"}, func(run *engine.Run, s string) (string, error) {
				if _, err := work.Do(run, s); err != nil {
					return "", err
				}
				return s, run.Sleep(time.Minute)
			})
			return strings.Join(out, ""), err
		})
		s := new(memory.Store)
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		time.Sleep(90 * time.Second)
		p.kill()
		p = boot(t, s, wf)
		if got := result(t, wf.Handle(p, "o")); got != "efg" {
			t.Errorf("got %q", got)
		}
		p.stop(t)
	})
}
