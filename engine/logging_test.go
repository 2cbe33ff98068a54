package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// A recorder is a slog.Handler that keeps what is logged, at every level.
type recorder struct {
	mu   sync.Mutex
	said []entry
}

// An entry is a line of a log, with its attributes as text.
type entry struct {
	level   slog.Level
	message string
	attrs   map[string]string
}

func (r *recorder) handler() slog.Handler { return recorded{r, nil} }

func (r *recorder) logger() func(*engine.Config) {
	return func(c *engine.Config) { c.Logger = slog.New(r.handler()) }
}

// at returns the lines at a level or above, without the one that says that an engine started.
func (r *recorder) at(least slog.Level) (es []entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.said {
		if e.level >= least && e.message != "weft: engine started" {
			es = append(es, e)
		}
	}
	return es
}

// of returns the lines whose message contains the words.
func (r *recorder) of(words string) (es []entry) {
	return slices.DeleteFunc(r.at(slog.LevelDebug), func(e entry) bool { return !strings.Contains(e.message, words) })
}

// recorded is a handler of a recorder, with the attributes of a Logger.
type recorded struct {
	to    *recorder
	attrs []slog.Attr
}

func (h recorded) Enabled(context.Context, slog.Level) bool { return true }

func (h recorded) WithAttrs(a []slog.Attr) slog.Handler {
	return recorded{h.to, slices.Concat(h.attrs, a)}
}

func (h recorded) WithGroup(string) slog.Handler { return h }

func (h recorded) Handle(_ context.Context, r slog.Record) error {
	e := entry{level: r.Level, message: r.Message, attrs: map[string]string{}}
	for _, a := range h.attrs {
		e.attrs[a.Key] = a.Value.String()
	}
	r.Attrs(func(a slog.Attr) bool {
		e.attrs[a.Key] = a.Value.String()
		return true
	})
	h.to.mu.Lock()
	defer h.to.mu.Unlock()
	h.to.said = append(h.to.said, e)
	return nil
}

// check compares the only line of these words with a level and some attributes.
func (r *recorder) check(t testing.TB, words string, level slog.Level, attrs ...string) {
	t.Helper()
	es := r.of(words)
	if len(es) != 1 || es[0].level != level {
		t.Errorf("%q is logged as %v, want once, at %v; all: %v", words, es, level, r.at(slog.LevelDebug))
		return
	}
	for _, a := range attrs {
		key, want, _ := strings.Cut(a, "=")
		if got, ok := es[0].attrs[key]; !ok || !strings.Contains(got, want) {
			t.Errorf("%q is logged with %s=%q, want %q", words, key, got, want)
		}
	}
}

// A workflow that runs as it should says nothing at Info.
func TestSuccessIsSilent(t *testing.T) {
	virtual(t, func(t *testing.T) {
		log, c := new(recorder), new(tally)
		act := counting(c, "act")
		wf := flow("wf", func(run *engine.Run) (string, error) {
			for range 10 {
				if _, err := act.Do(run, ""); err != nil {
					return "", err
				}
			}
			return "done", run.Sleep(time.Minute)
		})
		p := boot(t, new(memory.Store), wf, log.logger())
		result(t, start(t, wf, p, "w", ""))
		p.stop(t)
		if said := log.at(slog.LevelInfo); c.of("act") != 10 || len(said) != 0 {
			t.Errorf("%d activities; logged %v", c.of("act"), said)
		}
	})
}

// The first failure of an operation is logged at Info, those that follow at Debug, and each time
// that there are ten times as many, at Warn.
func TestFailedAttemptsAreLogged(t *testing.T) {
	virtual(t, func(t *testing.T) {
		log := new(recorder)
		endless := &activity.Activity[string, string]{
			Name:  "reserve",
			Retry: activity.Retry{MaxAttempts: -1},
			Run: func(ctx context.Context, _ string) (string, error) {
				if activity.InfoFrom(ctx).Attempt > 12 {
					return "reserved", nil
				}
				return "", errBroke
			},
		}
		wf := flow("wf", func(run *engine.Run) (string, error) { return endless.Do(run, "") })
		s := new(memory.Store)
		p := boot(t, s, wf, log.logger())
		start(t, wf, p, "w", "")
		eventually(t, "three failures", func() bool { return len(log.of("attempt failed again")) == 2 })
		p.kill()
		p = boot(t, s, wf, log.logger())
		h := wf.Handle(p, "w")
		result(t, h)
		log.check(t, "attempt failed; another", slog.LevelInfo, "workflow=w", "type=wf", "operation=1", "kind=activity", "name=reserve", "attempt=1", "error=broke", "next=")
		log.check(t, "attempts keep failing", slog.LevelWarn, "workflow=w", "name=reserve", "failures=10", "error=broke")
		if n := len(log.of("attempt failed again")); n < 9 || n > 10 || log.of("attempt failed again")[0].level != slog.LevelDebug {
			t.Errorf("%d further failures: %v", n, log.of("attempt failed again"))
		}
	})
}

// A panic is logged with its stack, and so is the end of an operation without success, and of its
// workflow. If it is the workflow's function that panicked, that is a fault of the program.
func TestPanicsAndFailedWorkflowsAreLogged(t *testing.T) {
	virtual(t, func(t *testing.T) {
		log := new(recorder)
		bad := &activity.Activity[string, string]{
			Name:  "bad",
			Retry: activity.Retry{MaxAttempts: 2},
			Run:   func(context.Context, string) (string, error) { panic("no card") },
		}
		wf := flow("wf", func(run *engine.Run) (string, error) { return bad.Do(run, "") })
		worse := flow("worse", func(run *engine.Run) (string, error) { panic("no code") })
		p := boot(t, new(memory.Store), wf, worse, log.logger())
		if _, err := outcome(start(t, wf, p, "w", "")); err == nil {
			t.Error("no error")
		}
		log.check(t, "attempt failed; another", slog.LevelInfo, "error=no card", "stack=logging_test.go")
		log.check(t, "operation failed", slog.LevelInfo, "workflow=w", "operation=1", "name=bad", "attempt=2", "error=no card", "stack=logging_test.go")
		log.check(t, "workflow failed", slog.LevelInfo, "workflow=w", "type=wf", "error=no card")
		if _, err := outcome(start(t, worse, p, "p", "")); err == nil {
			t.Error("no error")
		}
		log.check(t, "workflow function panicked", slog.LevelWarn, "workflow=p", "type=worse", "error=no code", "stack=logging_test.go")
	})
}

// What waits for a person is logged at Warn: a charge of which nobody knows whether it happened, and
// a call that cannot be undone.
func TestWhatNeedsAPersonIsLogged(t *testing.T) {
	virtual(t, func(t *testing.T) {
		log := new(recorder)
		pay := puzzling(new(atomic.Bool))
		pay.VerifyRetry = activity.Retry{MaxAttempts: 3}
		wf := flow("wf", func(run *engine.Run) (string, error) { return pay.Do(run, "k") })
		book := &activity.Activity[string, string]{
			Name:       "book",
			Retry:      activity.Retry{MaxAttempts: 2},
			Run:        func(context.Context, string) (string, error) { return "booked", nil },
			Compensate: func(context.Context, string, string) error { return errBroke },
		}
		trip := flow("trip", func(run *engine.Run) (string, error) {
			if _, err := book.Do(run, ""); err != nil {
				return "", err
			}
			return "", errors.New("no hotel")
		})
		p := boot(t, new(memory.Store), wf, trip, log.logger())
		start(t, wf, p, "w", "")
		start(t, trip, p, "t", "")
		eventually(t, "both wait", func() bool {
			return heldFor(describe(t, p, "w"), engine.ReasonIndeterminate) && heldFor(describe(t, p, "t"), engine.ReasonUncompensated)
		})
		log.check(t, "outcome of an operation is unknown; it waits", slog.LevelWarn, "workflow=w", "operation=1", "name=pay", "error=no idea")
		log.check(t, "call cannot be undone", slog.LevelWarn, "workflow=t", "operation=1.undo", "name=book", "error=broke")
		log.check(t, "verifier does not know", slog.LevelInfo, "workflow=w", "operation=1", "name=pay", "reason=no idea")
	})
}

// An outcome that the workflow gets as unknown is logged at Warn too: money may have moved.
func TestUnknownOutcomesAreLogged(t *testing.T) {
	virtual(t, func(t *testing.T) {
		log := new(recorder)
		pay := puzzling(new(atomic.Bool))
		pay.OnIndeterminate, pay.VerifyRetry = 0, activity.Retry{MaxAttempts: 1}
		wf := flow("wf", func(run *engine.Run) (string, error) {
			_, err := pay.Do(run, "k")
			return fmt.Sprint(err), nil
		})
		p := boot(t, new(memory.Store), wf, log.logger())
		result(t, start(t, wf, p, "w", ""))
		log.check(t, "outcome of an operation is unknown; the workflow", slog.LevelWarn, "workflow=w", "operation=1", "name=pay", "error=no idea")
	})
}

// A held run is logged at Warn, once by each engine that finds it.
func TestHeldRunsAreLogged(t *testing.T) {
	virtual(t, func(t *testing.T) {
		log, s := new(recorder), new(memory.Store)
		sleeps := flow("wf", func(run *engine.Run) (string, error) {
			if _, err := counting(new(tally), "act").Do(run, ""); err != nil {
				return "", err
			}
			return "", run.Sleep(time.Hour)
		})
		p := boot(t, s, sleeps)
		start(t, sleeps, p, "w", "")
		eventually(t, "it sleeps", func() bool {
			return slices.ContainsFunc(describe(t, p, "w").Waiting, func(s string) bool { return strings.Contains(s, "timer") })
		})
		p.kill()
		other := flow("wf", func(run *engine.Run) (string, error) { return "", nil })
		p = boot(t, s, other, log.logger())
		eventually(t, "it is held", func() bool { return heldFor(describe(t, p, "w"), engine.ReasonNonDeterminism) })
		log.check(t, "run is held", slog.LevelWarn, "workflow=w", "type=wf", "reason=non-determinism")
	})
}

// Purges are logged at Info together, and at Debug each.
func TestPurgesAreLoggedTogether(t *testing.T) {
	virtual(t, func(t *testing.T) {
		log := new(recorder)
		wf := flow("wf", func(run *engine.Run) (string, error) { return "done", nil })
		p := boot(t, new(memory.Store), wf, log.logger())
		for n := range 20 {
			result(t, start(t, wf, p, fmt.Sprint("w", n), ""))
		}
		for n := range 20 {
			if err := p.Purge(ctx, fmt.Sprint("w", n), audit); err != nil {
				t.Fatal(err)
			}
		}
		p.stop(t)
		log.check(t, "workflows purged", slog.LevelInfo, "count=20", "by=ann", "why=test")
		if each := log.of("weft: workflow purged"); len(each) != 20 || each[0].level != slog.LevelDebug || each[0].attrs["workflow"] != "w0" {
			t.Errorf("each: %v", each)
		}
	})
}
