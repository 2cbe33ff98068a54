package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// listed is what List says of a workflow.
func listed(t testing.TB, e *engine.Engine, id string) engine.Info {
	t.Helper()
	for i, err := range e.List(ctx, engine.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if i.ID == id {
			return i
		}
	}
	t.Fatalf("%q is not listed", id)
	return engine.Info{}
}

// Describe tells of an activity that failed which attempt is next, when, and why the last one
// failed, and List says the same: of a run in memory, of a parked one, and after a crash.
func TestDescribeTellsOfRetries(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		act := &activity.Activity[string, string]{
			Name:  "reserve",
			Retry: activity.Retry{MaxAttempts: -1, Backoff: 24 * time.Hour, MaxBackoff: 24 * time.Hour},
			Run:   func(context.Context, string) (string, error) { return "", errBroke },
		}
		wf := flow("wf", func(run *engine.Run) (string, error) { return act.Do(run, "") })
		p := boot(t, s, wf)
		start(t, wf, p, "w", "")
		check := func(when string, p *process, more ...string) {
			t.Helper()
			waits := func(w []string) bool {
				return len(w) == 1+len(more) && strings.HasPrefix(w[0], "activity reserve until ") &&
					strings.HasSuffix(w[0], ", then attempt 2; attempt 1 failed: broke") && slices.Equal(w[1:], more)
			}
			eventually(t, when, func() bool { return waits(describe(t, p, "w").Waiting) })
			if i := listed(t, p.Engine, "w"); !waits(i.Waiting) {
				t.Errorf("%s: listed as %q", when, i.Waiting)
			}
		}
		check("in memory", p)
		p.kill()
		p = boot(t, s, wf)
		check("after a crash", p)
		p.stop(t)
		p = boot(t, s, wf, func(c *engine.Config) { c.ParkAfter = time.Second })
		eventually(t, "it is parked", func() bool { return describe(t, p, "w").Owner == "" })
		check("parked", p)
		p.stop(t)
		check("without an engine", &process{Engine: made(t, s, wf)}, "an engine: none runs")
	})
}

// An engine that runs knows that one runs. It does not read the records of engines to describe a run that nobody has in memory.
func TestDescribeOnARunningEngineReadsNoEngines(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &scanCounter{Storage: new(memory.Store), prefix: string(keys.Engines().Start)}
		wf := flow("wf", func(*engine.Run) (string, error) { return "", errors.New("it is in a queue that no engine serves") })
		wf.Defaults.Queue = "not served"
		p := boot(t, s, wf)
		start(t, wf, p, "w", "")
		before := s.scans.Load()
		if i := describe(t, p, "w"); slices.Contains(i.Waiting, "an engine: none runs") {
			t.Errorf("it waits for %q", i.Waiting)
		}
		if _, err := p.Payloads(ctx, "w"); err != nil {
			t.Fatal(err)
		}
		if n := s.scans.Load() - before; n != 0 {
			t.Errorf("the records of engines were read %d times", n)
		}
		p.stop(t)
		idle := &process{Engine: made(t, s, wf)}
		before = s.scans.Load()
		if i := describe(t, idle, "w"); !slices.Contains(i.Waiting, "an engine: none runs") || s.scans.Load() == before {
			t.Errorf("without an engine: it waits for %q after %d reads", i.Waiting, s.scans.Load()-before)
		}
	})
}

// A scanCounter counts the scans of keys with a prefix.
type scanCounter struct {
	storage.Storage
	prefix string
	scans  atomic.Int64
}

func (s *scanCounter) Unwrap() storage.Storage { return s.Storage }

func (s *scanCounter) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	if strings.HasPrefix(string(r.Start), s.prefix) {
		s.scans.Add(1)
	}
	return s.Storage.Scan(ctx, r)
}

// A call that a person must decide, and one that its verifier is to tell of, say so.
func TestDescribeTellsWhoDecides(t *testing.T) {
	virtual(t, func(t *testing.T) {
		pay := &activity.Activity[string, string]{
			Name:            "pay",
			IdempotencyKey:  func(s string) string { return s },
			OnIndeterminate: activity.AwaitOperator,
			VerifyRetry:     activity.Retry{MaxAttempts: 2, Backoff: time.Minute},
			Run:             func(context.Context, string) (string, error) { return "", errBroke },
			Verify: func(context.Context, string) (activity.Verification[string], error) {
				return activity.Indeterminate[string]("no idea"), nil
			},
		}
		wf := flow("wf", func(run *engine.Run) (string, error) { return pay.Do(run, "k") })
		p := boot(t, new(memory.Store), wf)
		start(t, wf, p, "w", "")
		for _, words := range []string{", then its verifier says what became of attempt 1; attempt 1 failed: broke", ", an operator decides; attempt 1 failed: broke"} {
			eventually(t, words, func() bool {
				w := describe(t, p, "w").Waiting
				return len(w) == 1 && strings.HasSuffix(w[0], words)
			})
		}
	})
}

// Describe says which signals wait that the workflow has not asked for, in memory and parked.
func TestDescribeTellsOfSignalsThatNobodyReceives(t *testing.T) {
	virtual(t, func(t *testing.T) {
		asked, other := &signal.Signal[string]{Name: "asked"}, &signal.Signal[string]{Name: "other"}
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if _, err := other.Receive(run); err != nil {
				return "", err
			}
			return asked.Receive(run)
		})
		s := new(memory.Store)
		p := boot(t, s, wf)
		start(t, wf, p, "w", "")
		eventually(t, "it waits", func() bool { return slices.Equal(describe(t, p, "w").Waiting, []string{"receive other"}) })
		send(t, asked, p, "w", "go", "1")
		want := []string{"1 signal asked waits, which the workflow has not asked for"}
		if i := describe(t, p, "w"); !slices.Equal(i.Unreceived, want) {
			t.Errorf("%q, want %q", i.Unreceived, want)
		}
		if i := describe(t, made(t, s, wf), "w"); len(i.Unreceived) > 0 {
			t.Errorf("an engine that does not execute it says %q", i.Unreceived)
		}
		p.stop(t)
		p = boot(t, s, wf)
		send(t, asked, p, "w", "go", "2")
		want[0] = "2 signals asked wait, which the workflow has not asked for"
		if i := describe(t, p, "w"); !slices.Equal(i.Unreceived, want) {
			t.Errorf("parked: %q, want %q", i.Unreceived, want)
		}
		send(t, other, p, "w", "go", "3")
		result(t, wf.Handle(p, "w"))
	})
}

// Info says why a workflow has no result, in the words of the error that Result returns.
func TestInfoHasTheFailureOfResult(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		broken := &engine.Workflow[string, string]{Name: "broken", Errors: []error{errBroke}, Func: func(*engine.Run, string) (string, error) { return "", errBroke }}
		panics := flow("panics", func(*engine.Run) (string, error) { panic("no code") })
		waits := flow("waits", func(run *engine.Run) (string, error) { return "", run.Sleep(24 * time.Hour) })
		p := boot(t, s, broken, panics, waits)
		for _, w := range []*engine.Workflow[string, string]{broken, panics, waits} {
			h := start(t, w, p, w.Name, "")
			if w == waits {
				if err := h.Cancel(ctx, engine.Actor{Name: "ann", Reason: "no longer needed"}); err != nil {
					t.Fatal(err)
				}
			}
			_, err := outcome(h)
			var failed *engine.WorkflowError
			switch {
			case w == broken && (!errors.Is(err, errBroke) || !errors.As(err, &failed)), w == panics && !errors.As(err, &failed), w == waits && !errors.Is(err, engine.ErrCancelled):
				t.Errorf("%s: %v", w.Name, err)
			}
			d, l := describe(t, p, w.Name), listed(t, p.Engine, w.Name)
			if err == nil || d.Failure != err.Error() || l.Failure != err.Error() {
				t.Errorf("%s: Result says %v, Describe %q, List %q", w.Name, err, d.Failure, l.Failure)
			}
			if want := `engine: workflow cancelled: "waits", by "ann": no longer needed`; w == waits && d.Failure != want {
				t.Errorf("%q, want %q", d.Failure, want)
			}
			if _, again := outcome(w.Handle(made(t, s, w), w.Name)); again == nil || again.Error() != d.Failure {
				t.Errorf("%s, from another engine: %v, want %s", w.Name, again, d.Failure)
			}
		}
	})
}

// The JSON of what operators read has names of its own, and says nothing of times that there
// are not.
func TestInfoHasJSON(t *testing.T) {
	for want, v := range map[string]any{
		`{"id":"w","workflow":"wf","status":"running"}`: engine.Info{ID: "w", Workflow: "wf", Status: checkpoint.StatusRunning},
		`{"id":"w","workflow":"wf","status":"failed","failure":"broke","attention":[{"reason":"stuck","since":"1970-01-01T00:00:01Z"}],"cancel":{"by":"ann"},"startedAt":"1970-01-01T00:00:01Z"}`: engine.Info{
			ID: "w", Workflow: "wf", Status: checkpoint.StatusFailed, Failure: "broke", StartedAt: time.Unix(1, 0).UTC(),
			Attention: []engine.Attention{{Reason: engine.ReasonStuck, Since: time.Unix(1, 0).UTC()}}, Cancel: &engine.Cancellation{By: "ann"},
		},
		`{"incarnation":"host-1","alive":true,"runs":2,"takeovers":0,"lostRaces":0,"fenced":0,"unknown":0}`: engine.EngineInfo{Incarnation: "host-1", Alive: true, Runs: 2},
		`{"name":"s","id":"1","bytes":3}`: engine.SignalInfo{Name: "s", ID: "1", Bytes: 3},
	} {
		if got, err := json.Marshal(v); err != nil || string(got) != want {
			t.Errorf("%s, want %s; %v", got, want, err)
		}
	}
}

// A workflow that has not begun has a history without checkpoints.
func TestHistoryOfWhatHasNotBegun(t *testing.T) {
	work := &engine.Workflow[string, string]{Name: "work", Func: func(*engine.Run, string) (string, error) { return "", nil }}
	e, err := engine.New(engine.Config{Storage: new(memory.Store), Workflows: []engine.Definition{work}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := work.Start(ctx, e, "w", ""); err != nil {
		t.Fatal(err)
	}
	limited, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	for c, err := range e.History(limited, "w") {
		t.Errorf("got %+v, %v, want nothing", c, err)
	}
}
