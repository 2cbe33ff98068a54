// Package sweep runs a scenario repeatedly, each time with one fault at another call to the
// store, until every call has had every fault. It checks the final state of each run.
package sweep

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/integrity"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// A Scenario is a test with a few workflows. A new one is made for each run.
type Scenario struct {
	Workflows  []engine.Definition
	Deployment string // of the engines
	Queues     []engine.Queue

	// Drive is the client. After a fault it is called again, as a client would retry,
	// so it must use the same ids. It returns what the client learned, which must be
	// the same in all runs.
	Drive func(ctx context.Context, eng *engine.Engine) (string, error)

	// IDs are the workflows that must have ended when Drive has returned.
	IDs []string
}

// A World is what a crash does not undo: effects outside of the store.
type World struct {
	mu      sync.Mutex
	effects map[string]int
}

// Effect counts an effect.
func (w *World) Effect(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.effects == nil {
		w.effects = map[string]int{}
	}
	w.effects[name]++
}

// Effects returns how often each effect happened.
func (w *World) Effects() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := make(map[string]int, len(w.effects))
	for k, v := range w.effects {
		c[k] = v
	}
	return c
}

// Faults are the faults to inject.
var Faults = []storagetest.Fault{
	storagetest.CrashBefore,
	storagetest.CrashAfter,
	storagetest.ErrorBefore,
	storagetest.ErrorAfter,
	storagetest.CancelMiddle,
}

// Names are the names of the faults in messages.
var Names = map[storagetest.Fault]string{
	storagetest.CrashBefore:  "crash before",
	storagetest.CrashAfter:   "crash after",
	storagetest.ErrorBefore:  "error before",
	storagetest.ErrorAfter:   "error after applying",
	storagetest.CancelMiddle: "context cancelled in the middle",
}

// Every runs the scenario without a fault, and then with each of faults, by default all, at each
// stride-th call. The first of these calls is drawn, so that in time it is every call. It fails if a run has
// problems, or if no fault was met. It returns the number of runs.
func Every(t *testing.T, s Store, stride int, scenario func(*World) Scenario, faults ...storagetest.Fault) int {
	t.Helper()
	if faults == nil {
		faults = Faults
	}
	calm := play(t, s, scenario, 0, storagetest.None)
	plays, met := 1, false
	for _, problem := range calm.problems {
		t.Errorf("without a fault: %s", problem)
	}
	for call := 1 + rand.IntN(max(1, min(stride, calm.calls))); call <= calm.calls; call += stride {
		for _, fault := range faults {
			p := play(t, s, scenario, call, fault)
			plays++
			met = met || p.at != ""
			what := fmt.Sprintf("%s call %d of %d (%s)", Names[fault], call, calm.calls, p.at)
			for _, problem := range p.compare(calm, fault) {
				t.Errorf("%s: %s", what, problem)
			}
			if t.Failed() {
				return plays
			}
		}
	}
	if !met && !t.Failed() {
		met = play(t, s, scenario, 1, faults[0]).at != "" // plays differ, and the draw may be too late for all
	}
	if !met && !t.Failed() {
		t.Errorf("no fault was met in %d plays of %d calls", plays, calm.calls)
	}
	return plays
}

// A played is the result of a run.
type played struct {
	calls    int
	at       string // the call that had the fault
	learnt   string
	effects  map[string]int
	problems []string
}

// compare returns what is wrong with p, compared to the run without a fault.
func (p *played) compare(calm *played, fault storagetest.Fault) []string {
	problems := p.problems
	if p.learnt != calm.learnt {
		problems = append(problems, fmt.Sprintf("client learnt %q, undisturbed %q", p.learnt, calm.learnt))
	}
	repeated := 0
	for name, n := range calm.effects {
		switch got := p.effects[name]; {
		case got < n:
			problems = append(problems, fmt.Sprintf("effect %q happened %d times, undisturbed %d", name, got, n))
		case got > n:
			repeated += got - n
		}
	}
	for name := range p.effects {
		if _, ok := calm.effects[name]; !ok {
			problems = append(problems, fmt.Sprintf("effect %q happened, undisturbed it does not", name))
		}
	}
	crash := fault == storagetest.CrashBefore || fault == storagetest.CrashAfter
	if repeated > 0 && !crash {
		problems = append(problems, fmt.Sprintf("%d effects repeated without a crash: %v", repeated, p.effects))
	}
	return problems
}

// lives is the maximum number of incarnations before a run is considered stuck.
const lives = 6

func play(t *testing.T, s Store, scenario func(*World) Scenario, call int, fault storagetest.Fault) *played {
	p := &played{}
	var stage *Stage
	err := Play(t, func(testing.TB) *Stage {
		stage = p.stage(s, scenario, call, fault)
		return stage
	})
	if err != nil {
		p.problems = append(p.problems, err.Error())
	}
	p.problems = append(p.problems, stage.Problems...)
	return p
}

func (p *played) stage(s Store, scenario func(*World) Scenario, call int, fault storagetest.Fault) *Stage {
	world := &World{}
	sc := scenario(world)
	return &Stage{
		Store:  s,
		Config: engine.Config{Workflows: sc.Workflows, Queues: sc.Queues, Deployment: sc.Deployment},
		Decide: func(c storagetest.Call) storagetest.Fault {
			if p.calls++; p.calls != call {
				return storagetest.None
			}
			p.at = Where(c)
			return fault
		},
		Begin: func(int) {},
		Drive: func(ctx context.Context, eng *engine.Engine) (err error) {
			p.learnt, err = sc.Drive(ctx, eng)
			return err
		},
		Tries: 3,
		After: func(context.Context, *engine.Engine, storage.Storage) {
			time.Sleep(12 * Poll) // by then also an idle engine has removed hints
		},
		Closing: func(ctx context.Context, s storage.Storage) {
			p.effects = world.Effects()
			p.problems = append(p.problems, Inspect(ctx, s, sc.IDs, []string{"held:", "todo:", "wake:", "sig:", "inbox:", "upd:", "op:", "slot:"})...)
		},
		Check:    true,
		Lives:    lives,
		Patience: 50 * 24 * time.Hour,
	}
}

// Where describes a call by its keys.
func Where(c storagetest.Call) string {
	switch c.Method {
	case "Transact":
		return "Transact"
	case "Get":
		return fmt.Sprintf("Get %s", c.Key)
	case "Scan":
		return fmt.Sprintf("Scan %s", c.Range.Start)
	}
	s := "Commit"
	for _, o := range c.Batch.Ops {
		s += fmt.Sprintf(" %s", o.Key)
	}
	return s
}

// Inspect returns what is wrong with the store at the end: every workflow must have ended, its
// history must be dense and contain each thing once, and there must be no entry of the given
// families, because somebody would still have to process it. The records must agree: see
// package integrity.
func Inspect(ctx context.Context, s storage.Storage, ids, families []string) (problems []string) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, id := range ids {
		wf, err := journal.Load(ctx, s, id)
		if err != nil {
			wrong("workflow %q: %v", id, err)
			continue
		}
		if !wf.Status.Terminal() {
			wrong("workflow %q is %s", id, wf.Status)
		}
		for _, p := range history(ctx, s, wf) {
			wrong("workflow %q: %s", id, p)
		}
	}
	for _, family := range families {
		page, err := s.Scan(ctx, storage.Prefix([]byte(family)))
		if err != nil {
			wrong("scan %s: %v", family, err)
		}
		for _, e := range page {
			wrong("left over: %s", e.Key)
		}
	}
	return append(problems, integrity.Check(ctx, s, time.Now())...)
}

// history checks CK2 and CK3 for one workflow: numbers are dense, each operation has one
// outcome, each signal was received once, each update was accepted and answered once, times do not
// decrease, and the end comes last and agrees with the record. A failure need not be the end if an operator revoked it, together
// with the failed operations that led to it.
func history(ctx context.Context, s storage.Storage, wf *journal.Workflow) (problems []string) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	outcomes, signals := map[string]int{}, map[string]int{}
	accepted, answered := map[string]int{}, map[string]int{}
	var last checkpoint.Checkpoint
	var ended []string
	for c, err := range journal.History(ctx, s, wf) {
		if err != nil {
			wrong("history: %v", err)
			return problems
		}
		if c.Time.Before(last.Time) {
			wrong("checkpoint %d is of %v, the one before of %v", c.Number, c.Time, last.Time)
		}
		retried := len(c.Events) == 1 && c.Events[0].Kind == checkpoint.KindActed && c.Events[0].Name == "retry"
		if retried && len(ended) == 1 && ended[0] == string(checkpoint.StatusFailed) {
			ended = nil
		}
		if len(ended) > 0 {
			wrong("checkpoint %d follows the end", c.Number)
		}
		for i, e := range c.Events {
			place := journal.Place{Checkpoint: c.Number, Event: i}
			if wf.PassedOver(place) {
				continue
			}
			if e.Kind == checkpoint.KindSettled && e.Error != "" && slices.ContainsFunc(wf.Retries, func(r journal.Retry) bool { return r.Covers(place) }) {
				continue
			}
			switch e.Kind {
			case checkpoint.KindSettled, checkpoint.KindFired, checkpoint.KindReceived, checkpoint.KindMissed:
				outcomes[e.Operation]++
			case checkpoint.KindAccepted:
				accepted[e.Key]++
			case checkpoint.KindAnswered:
				answered[e.Key]++
			case checkpoint.KindEnded:
				ended = append(ended, e.Name)
			}
			if e.Kind == checkpoint.KindReceived {
				signals[e.Name+"/"+e.SignalID]++
			}
		}
		last = c
	}
	for op, n := range outcomes {
		if n != 1 {
			wrong("operation %s has %d outcomes", op, n)
		}
	}
	for sig, n := range signals {
		if n != 1 {
			wrong("signal %s was received %d times", sig, n)
		}
	}
	for update, n := range accepted {
		cut := wf.Cancel != nil && wf.Cancel.Terminated // then its callers are told so
		if n != 1 || answered[update] > 1 || answered[update] == 0 && !cut {
			wrong("update %s was accepted %d times, and answered %d times", update, n, answered[update])
		}
	}
	if len(ended) != 1 || ended[0] != string(wf.Status) {
		wrong("ended as %v, record says %s", ended, wf.Status)
	}
	if _, err := s.Get(ctx, keys.Output(wf.ID)); err != nil {
		wrong("output: %v", err)
	}
	return problems
}
