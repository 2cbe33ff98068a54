package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/integrity"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// A deploy is one life of a process in which builds of a workflow take turns.
type deploy struct {
	newest int // of the change "way" that its code has; 0 is the code before the change
	crash  int // at this call to the store; 0: at none
	fault  storagetest.Fault
	lasts  time.Duration // until it is stopped, if it does not crash
}

// ways is what builds of a workflow do in turn, and what must hold of that.
type ways struct {
	store storage.Storage

	mu    sync.Mutex
	done  map[string]string // which way was gone at a place where something has left
	wrong []string
}

// leaves notes that something leaves at a place, from code that goes a way. All that leaves there goes
// the same way. Only the code before the change, which has no choice to record, may have had an effect
// that is not recorded.
func (w *ways) leaves(place string, way int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if first, again := w.done[place]; again && first != "0" && first != fmt.Sprint(way) {
		w.wrong = append(w.wrong, fmt.Sprintf("at %s version %d had an effect, after version %s had", place, way, first))
	}
	w.done[place] = fmt.Sprint(way)
}

// drives checks that a build drives a run: none whose choice it does not know.
func (w *ways) drives(id string, newest int) {
	wf, err := journal.Load(context.Background(), w.store, id)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.wrong = append(w.wrong, err.Error())
		return
	}
	for _, c := range wf.Versions {
		if c.Version > newest {
			w.wrong = append(w.wrong, fmt.Sprintf("a build with version %d drives a run with %+v", newest, c))
		}
	}
}

var note = &signal.Signal[string]{Name: "note"}

// build is the code with a version. Each version does something else at each place, and begins with
// another kind of operation at each.
func (w *ways) build(newest int) []engine.Definition {
	kid := &engine.Workflow[int, int]{Name: "kid", Func: func(run *engine.Run, way int) (int, error) { return way, nil }}
	wf := flow("ways", func(run *engine.Run) (string, error) {
		w.drives(run.ID(), newest)
		var all []string
		for i := range 7 {
			way := 0
			if newest > 0 {
				way = run.Version("way")
			}
			place, name := fmt.Sprint("place ", i), fmt.Sprint("way", way)
			effect := func(context.Context, string) (string, error) {
				w.leaves(place, way)
				return name, nil
			}
			var err error
			switch i {
			case 0:
				_, err = engine.Step(run, name, func(ctx context.Context) (string, error) { return effect(ctx, "") })
			case 1:
				_, err = (&activity.Activity[string, string]{Name: name, Run: effect}).Do(run, "")
			case 2:
				key := func(string) string { return place }
				_, err = (&activity.Activity[string, string]{Name: name, Run: effect, IdempotencyKey: key, Idempotent: true}).Do(run, "")
			case 3:
				// The code before the change may have sent this already, and not have recorded it.
				if err = note.SendFrom(run, run.ID(), fmt.Sprint("way", max(way, 1))); err == nil {
					_, err = note.Receive(run)
				}
			case 4:
				var got int
				if got, err = kid.Do(run, way); err == nil && got != way {
					err = fmt.Errorf("the child went way %d, not %d", got, way)
				}
			case 5:
				var by string
				if by, err = yes.Receive(run); err == nil {
					name += by
				}
			case 6:
				err = run.Sleep(time.Duration(1+way) * time.Hour)
			}
			if err != nil {
				return "", fmt.Errorf("%s, version %d: %w", place, way, err)
			}
			for range way { // more operations shift the numbers of all that follow
				if _, err := engine.Step(run, name, func(ctx context.Context) (string, error) { return effect(ctx, "") }); err != nil {
					return "", err
				}
			}
			all = append(all, name)
		}
		return strings.Join(all, " "), nil
	})
	if newest > 0 {
		wf.Versions = map[string]int{"way": newest}
	}
	return []engine.Definition{wf, kid}
}

// play has builds take turns on one store, and a last one with version 2 that lives. It returns
// how many calls to the store the first one made.
func (w *ways) play(t *testing.T, store sweep.Store, deploys []deploy) (calls int) {
	t.Helper()
	const id = "order"
	virtual(t, func(t *testing.T) {
		s := store.Open(t)
		defer func() { s.Close() }()
		w.done = map[string]string{}
		ended := false
		for n, d := range append(deploys, deploy{newest: 2, lasts: 100 * time.Hour}) {
			if n > 0 && store.Reopen != nil {
				s = store.Reopen(t, s)
			}
			w.store = s
			f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
				if c.N == d.crash {
					return d.fault
				}
				return storagetest.None
			})
			definitions := w.build(d.newest)
			eng, err := engine.New(engine.Config{
				Storage: f, Workflows: definitions, Name: "host", Logger: quiet,
				PollInterval: 10 * time.Minute, LeaseTTL: 40 * time.Minute, ParkAfter: time.Millisecond,
			})
			if err != nil {
				continue // it has crashed already
			}
			p := &process{Engine: eng, store: f}
			p.run()
			wf := definitions[0].(*engine.Workflow[string, string])
			for began := time.Now(); time.Since(began) < d.lasts && !ended && !gone(f); {
				ctx, cancel := context.WithTimeout(ctx, time.Minute) // the store may crash meanwhile
				if h, err := wf.Start(ctx, p, id, ""); err == nil {
					_, _ = yes.Send(ctx, p, id, "+", &signal.Options{ID: "click"})
					i, err := h.Describe(ctx)
					ended = err == nil && i.Status.Terminal()
					if err == nil && (heldFor(i, engine.ReasonNonDeterminism) || heldFor(i, engine.ReasonBadDefinition)) {
						w.wrong = append(w.wrong, fmt.Sprintf("version %d: %+v", d.newest, i.Attention))
						ended = true
					}
				}
				cancel()
				time.Sleep(17 * time.Minute)
			}
			if n == 0 {
				calls = f.Calls()
			}
			if gone(f) || d.crash > 0 {
				p.kill()
			} else {
				p.stop(t)
			}
		}
		wf, err := journal.Load(ctx, s, id)
		if err != nil || !wf.Status.Terminal() {
			w.wrong = append(w.wrong, fmt.Sprintf("it has not ended: %+v, %v", wf, err))
			return
		}
		if len(wf.Versions) > 1 {
			w.wrong = append(w.wrong, fmt.Sprintf("choices: %+v", wf.Versions))
		}
		out, err := journal.ReadOutput(ctx, s, wf)
		if err != nil || out.Status != checkpoint.StatusCompleted {
			w.wrong = append(w.wrong, fmt.Sprintf("it ended as %+v, %v", out, err))
			return
		}
		// It went the old way up to a place, and then one other.
		ways := slices.Compact(strings.Fields(strings.ReplaceAll(strings.Trim(string(out.Data), `"`), "+", "")))
		if !slices.ContainsFunc(deploys, func(d deploy) bool { return d.newest == 0 }) && ways[0] == "way0" {
			w.wrong = append(w.wrong, fmt.Sprintf("it went %s, and there was no old code", out.Data))
		}
		if len(ways) > 2 || len(ways) == 2 && ways[0] != "way0" {
			w.wrong = append(w.wrong, fmt.Sprintf("it went %s", out.Data))
		}
		w.wrong = append(w.wrong, integrity.Check(ctx, s, time.Now())...)
	})
	return calls
}

func gone(f *storagetest.Faulty) bool {
	select {
	case <-f.Crashed():
		return true
	default:
		return false
	}
}

// check plays deploys and reports what went wrong.
func checkDeploys(t *testing.T, store sweep.Store, deploys ...deploy) (calls int) {
	t.Helper()
	w := &ways{}
	calls = w.play(t, store, deploys)
	for _, p := range w.wrong {
		t.Errorf("%+v: %s", deploys, p)
	}
	return calls
}

// VER-1, VER-5, VER-6: the build with the change takes over from the one without, whatever call the
// first one dies at, and however the second one is followed by either. Where all have the change, no run goes
// the old way.
func TestVersionAfterEveryKill(t *testing.T) {
	stride := 11
	switch {
	case os.Getenv("WEFT_TORTURE") != "":
		stride = 1
	case torture.Raced():
		stride = 31
	}
	for name, deploys := range map[string][]deploy{
		"only new ones":  {{newest: 1, lasts: 5 * time.Hour}, {newest: 1, lasts: time.Hour}},
		"the old one":    {{newest: 0, lasts: time.Hour}, {newest: 1, lasts: time.Hour}},
		"the new one":    {{newest: 1, lasts: 5 * time.Hour}, {newest: 0, lasts: time.Hour}},
		"the newest one": {{newest: 2, lasts: 5 * time.Hour}, {newest: 0, lasts: time.Hour}, {newest: 1, lasts: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			stride := stride
			if name == "only new ones" && !torture.Raced() { // only very few of the calls matter
				stride = 1
			}
			calls := checkDeploys(t, sweepStores["memory"], deploys...)
			for n := 1; n <= calls && !t.Failed(); n += stride {
				for _, fault := range []storagetest.Fault{storagetest.CrashBefore, storagetest.CrashAfter, storagetest.ErrorBefore, storagetest.ErrorAfter, storagetest.CancelMiddle} {
					killed := slices.Clone(deploys)
					killed[0].crash, killed[0].fault = n, fault
					checkDeploys(t, sweepStores["memory"], killed...)
				}
			}
		})
	}
}

// VER-6: builds of three versions take turns on one run, are killed and stopped, and the run is parked
// and claimed by senders. No history contradicts the code, nothing leaves twice on different ways, and
// no build drives a run with a version that it does not have.
func TestBuildsTakeTurns(t *testing.T) {
	plays := map[string]int{"memory": 100, "sqlite": 5, "bolt": 5, "postgres": 2}
	if torture.Raced() {
		plays = map[string]int{"memory": 25, "sqlite": 2, "bolt": 2, "postgres": 1}
	}
	stores := map[string]sweep.Store{"postgres": onPostgres(t)}
	for name, store := range sweepStores {
		stores[name] = store
	}
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			n := plays[name]
			if os.Getenv("WEFT_TORTURE") != "" {
				n *= 50
			}
			for seed := range n {
				dice := rand.New(rand.NewPCG(uint64(seed), 6))
				var deploys []deploy
				for range 1 + dice.IntN(5) {
					d := deploy{newest: dice.IntN(3), lasts: time.Duration(dice.IntN(300)) * time.Minute}
					if dice.IntN(2) == 0 {
						d.crash, d.fault = 1+dice.IntN(80), []storagetest.Fault{storagetest.CrashBefore, storagetest.CrashAfter}[dice.IntN(2)]
					}
					deploys = append(deploys, d)
				}
				checkDeploys(t, store, deploys...)
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}
