package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

var (
	yes = &signal.Signal[string]{Name: "yes"}
	no  = &signal.Signal[string]{Name: "no"}
)

// approval is a run that asks twice, and says what it learnt.
func approval(run *engine.Run) (string, error) {
	said := ""
	for range 2 {
		y, n, late, stop := yes.Next(run), no.Next(run), run.After(48*time.Hour), run.Cancelled()
		first, err := engine.Select(run, y, n, late, stop)
		if err != nil {
			return "", err
		}
		switch first {
		case y:
			by, err := y.Get(run)
			return said + "yes from " + by, err
		case n:
			by, err := n.Get(run)
			return said + "no from " + by, err
		case late:
			at, err := late.Get(run)
			if err != nil || !at.Equal(run.Now()) {
				return "", fmt.Errorf("late at %v, and it is %v: %w", at, run.Now(), err)
			}
			said += "late, "
		case stop:
			c, err := stop.Get(run)
			if e := run.WithoutCancel().Sleep(time.Minute); e != nil {
				return "", e
			}
			return said + "withdrawn: " + c.Reason, err
		}
	}
	return said + "nobody", nil
}

// slowly is for tests of days: they need not poll each second of these.
func slowly(c *engine.Config) { c.PollInterval = 10 * time.Minute }

func TestSelect(t *testing.T) {
	for want, do := range map[string]func(t *testing.T, p *process, h *engine.Handle[string]){
		"yes from ann": func(t *testing.T, p *process, h *engine.Handle[string]) { tell(t, yes, p, h.ID(), "ann") },
		"no from bob":  func(t *testing.T, p *process, h *engine.Handle[string]) { tell(t, no, p, h.ID(), "bob") },
		"late, late, nobody": func(t *testing.T, p *process, h *engine.Handle[string]) {
			time.Sleep(97 * time.Hour)
		},
		"late, yes from eve": func(t *testing.T, p *process, h *engine.Handle[string]) {
			time.Sleep(49 * time.Hour)
			tell(t, yes, p, h.ID(), "eve")
		},
		"late, withdrawn: enough": func(t *testing.T, p *process, h *engine.Handle[string]) {
			time.Sleep(49 * time.Hour)
			if err := h.Cancel(ctx, engine.Actor{Reason: "enough"}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(want, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				wf := flow("approval", approval)
				store := fresh(t)
				p := boot(t, store, wf, slowly)
				h := start(t, wf, p, "a", "")
				do(t, p, h)
				p.kill() // and the next replays
				p = boot(t, store, wf, slowly)
				if got := result(t, wf.Handle(p, "a")); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		})
	}
}

func tell(t testing.TB, s *signal.Signal[string], c signal.Sender, id, v string) {
	t.Helper()
	if _, err := s.Send(ctx, c, id, v, nil); err != nil {
		t.Fatalf("send %s to %q: %v", s.Name, id, err)
	}
}

// SG6: a signal that loses a select stays in the inbox, in its place; and a timer
// that loses leaves no event behind.
func TestLosersLeaveNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("loses", func(run *engine.Run) (string, error) {
			y, n, late := yes.Next(run), no.Next(run), run.After(30*time.Minute)
			first, err := engine.Select(run, y, n, late)
			if err != nil || first != engine.Case(n) {
				return "", fmt.Errorf("first: %v, %w", first, err)
			}
			if err := run.Sleep(50 * time.Minute); err != nil {
				return "", err
			}
			a, _ := yes.Receive(run) // the future y has not taken it
			b, _ := yes.Receive(run)
			return a + b, nil
		})
		store := fresh(t)
		p := boot(t, store, wf)
		start(t, wf, p, "l", "")
		tell(t, no, p, "l", "no")
		tell(t, yes, p, "l", "1")
		tell(t, yes, p, "l", "2")
		time.Sleep(time.Minute)
		p.kill()
		p = boot(t, store, wf)
		h := wf.Handle(p, "l")
		if got := result(t, h); got != "12" {
			t.Errorf("got %q", got)
		}
		fired := 0
		for _, k := range kinds(historyOf(t, p.Engine, "l")) {
			if k == checkpoint.KindFired {
				fired++
			}
		}
		if fired != 1 {
			t.Errorf("%d timers fired, want that of Sleep", fired)
		}
	})
}

// Interleaving 12, 28: the events of one commit end a select's branch before its
// signal's turn comes. Whatever comes together, no signal is taken for a select
// that another event has decided. It counts that both ways were met.
func TestSignalRacesWithOtherEvents(t *testing.T) {
	met := map[string]int{}
	for round := range 200 {
		virtual(t, func(t *testing.T) {
			act := &activity.Activity[int, string]{Name: "work", Run: func(context.Context, int) (string, error) {
				time.Sleep(time.Second)
				return "worked", nil
			}}
			wf := flow("races", func(run *engine.Run) (string, error) {
				w := engine.Go(run, "worker", func(run *engine.Run) (string, error) { return act.Do(run, 1) })
				y, late := yes.Next(run), run.After(time.Second)
				first, err := engine.Select(run, w, y, late)
				if err != nil {
					return "", err
				}
				said := map[engine.Case]string{w: "worked", y: "yes", late: "late"}[first]
				if first == engine.Case(y) {
					_, err = y.Get(run)
					return said, err
				}
				_, err = yes.Receive(run)
				return said + ", then yes", err
			})
			p := boot(t, fresh(t), wf)
			h := start(t, wf, p, "r", "")
			time.Sleep(time.Second - time.Nanosecond*time.Duration(round%3))
			tell(t, yes, p, "r", "ann")
			got := result(t, h)
			met[got]++
			if list := entries(t, p.store, "inbox:"); len(list) > 0 {
				t.Errorf("%s: left in the inbox: %v", got, list)
			}
		})
	}
	if len(met) < 2 {
		t.Errorf("one way only: %v", met)
	}
	t.Log(met)
}

// A future is chosen once, and a select without anything left says so.
func TestSelectComesToAnEnd(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("loop", func(run *engine.Run) (string, error) {
			a, b := run.After(2*time.Second), run.After(time.Second)
			said := ""
			for {
				first, err := engine.Select(run, a, b)
				switch {
				case errors.Is(err, engine.ErrNoCase):
					return said, nil
				case err != nil:
					return "", err
				case first == engine.Case(a):
					said += "a"
				case first == engine.Case(b):
					said += "b"
				}
			}
		})
		p := boot(t, fresh(t), wf)
		if got := result(t, start(t, wf, p, "l", "")); got != "ba" {
			t.Errorf("got %q", got)
		}
	})
}

func TestSelectOfNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("nothing", func(run *engine.Run) (string, error) {
			_, none := engine.Select(run)
			_, null := engine.Select(run, nil)
			return fmt.Sprint(errors.Is(none, engine.ErrNoCase), errors.Is(null, engine.ErrInvalid)), nil
		})
		p := boot(t, fresh(t), wf)
		if got := result(t, start(t, wf, p, "n", "")); got != "true true" {
			t.Errorf("got %s", got)
		}
	})
}

// A time limit holds through restarts, for a part of a run only, and a limit that
// was kept leaves nothing behind.
func TestTimeLimit(t *testing.T) {
	virtual(t, func(t *testing.T) {
		stopped := 0
		act := &activity.Activity[int, string]{Name: "endless", Run: func(ctx context.Context, _ int) (string, error) {
			<-ctx.Done()
			stopped++
			return "", ctx.Err()
		}}
		wf := flow("limit", func(run *engine.Run) (string, error) {
			short := run.WithTimeout(time.Minute)
			if err := short.Sleep(time.Second); err != nil {
				return "", err
			}
			if err := run.Sleep(time.Hour); err != nil { // the limit runs, and nothing is in it
				return "", err
			}
			late := run.WithTimeout(time.Hour)
			_, err := act.With(activity.Options{Timeout: 100 * time.Hour}).Do(late, 1)
			_, again := act.Do(late, 2)
			slow := act.Go(run, 3)
			_, wait := slow.Get(run.WithTimeout(time.Second))
			return fmt.Sprint(errors.Is(err, engine.ErrTimeout), errors.Is(again, engine.ErrTimeout), errors.Is(wait, engine.ErrTimeout)), nil
		})
		store := fresh(t)
		p := boot(t, store, wf)
		begun := time.Now()
		start(t, wf, p, "l", "")
		time.Sleep(90 * time.Minute)
		p.kill()
		p = boot(t, store, wf)
		h := wf.Handle(p, "l")
		ctx, cancel := context.WithTimeout(ctx, 10*time.Hour)
		defer cancel()
		got, err := h.Result(ctx)
		if got != "true true true" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		if took := time.Since(begun).Round(time.Second); took != 2*time.Hour+2*time.Second {
			t.Errorf("took %v", took)
		}
		fired := 0
		for _, k := range kinds(historyOf(t, p.Engine, "l")) {
			if k == checkpoint.KindFired {
				fired++
			}
		}
		if fired != 4 { // two sleeps, and two limits of three
			t.Errorf("%d timers fired", fired)
		}
	})
}

// A scope that is cancelled ends what is in it, and nothing else.
func TestCancelledScope(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("scope", func(run *engine.Run) (string, error) {
			inner, cancel := run.WithCancel()
			nap := func(run *engine.Run) (any, error) { return nil, run.Sleep(50 * time.Minute) }
			a, b := engine.Go(inner, "in", nap), engine.Go(run, "out", nap)
			shield := engine.Go(inner.WithoutCancel(), "shielded", nap)
			engine.Go(run, "canceller", func(run *engine.Run) (any, error) {
				defer cancel()
				return nil, run.Sleep(time.Minute)
			})
			_, errA := a.Get(run)
			at := run.Now()
			_, errB := b.Get(run)
			_, errS := shield.Get(run)
			cancel() // again
			return fmt.Sprint(errors.Is(errA, engine.ErrCancelled), run.Now().Sub(at).Round(time.Minute), errB, errS), nil
		})
		p := boot(t, fresh(t), wf)
		if got, want := result(t, start(t, wf, p, "s", "")), "true 49m0s <nil> <nil>"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A cancellation that was delivered before the Select is its outcome if it is one of the cases, although the Select has
// cut the others. It is so for the next owner, too.
func TestSelectAfterTheCancellation(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("w", func(run *engine.Run) (string, error) {
			stop := run.Cancelled()
			if err := run.WithoutCancel().Sleep(time.Hour); err != nil {
				return "", err
			}
			y := yes.Next(run)
			first, err := engine.Select(run, y, stop)
			if err != nil {
				return "", err
			}
			if first != stop {
				return "another case", nil
			}
			if err := run.WithoutCancel().Sleep(time.Hour); err != nil {
				return "", err
			}
			_, err = engine.Select(run, y, yes.Next(run))
			return fmt.Sprint("cleaned up; ", errors.Is(err, engine.ErrCancelled)), nil
		})
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", "")
		time.Sleep(time.Minute)
		if err := h.Cancel(ctx, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(90 * time.Minute) // the second hour has begun
		p.kill()
		p = boot(t, s, wf)
		if got, err := outcome(wf.Handle(p, "o")); got != "cleaned up; true" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		p.stop(t)
	})
}
