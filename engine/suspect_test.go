package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/storage/storagetest"
)

// forever is an activity without a bound on its attempts.
func forever(name string, f func(context.Context)) *activity.Activity[string, int] {
	return &activity.Activity[string, int]{
		Name:  name,
		Retry: activity.Retry{MaxAttempts: -1},
		Run:   func(ctx context.Context, _ string) (int, error) { f(ctx); return 0, ctx.Err() },
	}
}

// doze is what an activity does for a while.
func doze(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// crashed says that a process has died.
func crashed(p *process) bool {
	select {
	case <-p.store.Crashed():
		return true
	default:
		return false
	}
}

// killers are runs that kill their process, by die, and record something before each death.
func killers(die func(), beat time.Duration) map[string]*engine.Workflow[string, string] {
	kill := func(after time.Duration) func(context.Context) {
		return func(ctx context.Context) {
			doze(ctx, after)
			if ctx.Err() == nil {
				die()
			}
			<-ctx.Done()
		}
	}
	beside := func(body func(run *engine.Run) error) func(run *engine.Run) (string, error) {
		return func(run *engine.Run) (string, error) {
			engine.Go(run, "beside", func(run *engine.Run) (int, error) {
				for {
					if err := body(run); err != nil {
						return 0, err
					}
				}
			})
			_, err := forever("kill", kill(5*beat)).Do(run, "")
			return "", err
		}
	}
	idempotent := forever("kill", kill(0))
	idempotent.Idempotent = true
	bounded := forever("kill", kill(0))
	bounded.Idempotent, bounded.Retry.MaxAttempts = true, 2
	return map[string]*engine.Workflow[string, string]{
		"an idempotent activity": flow("killer", func(run *engine.Run) (string, error) {
			_, err := idempotent.Do(run, "")
			return "", err
		}),
		"a timer beside it": flow("killer", beside(func(run *engine.Run) error { return run.Sleep(beat) })),
		"steps beside it": flow("killer", beside(func(run *engine.Run) error {
			_, err := engine.Step(run, "step", func(ctx context.Context) (int, error) { doze(ctx, beat); return 0, nil })
			return err
		})),
		"another activity when one is given up": flow("killer", func(run *engine.Run) (string, error) {
			for {
				bounded.Do(run, "")
				if err := run.Sleep(3 * beat); err != nil {
					return "", err
				}
			}
		}),
	}
}

// errand is a run that a process which dies soon does not finish before it dies.
func errand(beat time.Duration) *engine.Workflow[string, string] {
	work := forever("work", func(ctx context.Context) { doze(ctx, beat) })
	return flow("errand", func(run *engine.Run) (string, error) {
		for range 3 {
			if _, err := work.Do(run, ""); err != nil {
				return "", err
			}
		}
		return "done", nil
	})
}

// A run that kills its process is held, whatever it records beside that, and the others
// are finished before: on a store with one opener, and on one that two engines share.
func TestRunThatKillsTheProcessAndRecordsSomething(t *testing.T) {
	for how := range killers(nil, time.Second) {
		for _, engines := range []int{1, 2} {
			t.Run(fmt.Sprint(how, " ", engines), func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					k := killing10{how: how, beat: 500 * time.Millisecond, store: fresh(t)}
					if engines > 1 {
						k.store = sharing{k.store}
					}
					k.play(t, engines)
				})
			})
		}
	}
}

// A killing10 is a killer among ten others.
type killing10 struct {
	how   string
	beat  time.Duration
	store storage.Storage
}

func (k killing10) play(t *testing.T, engines int) {
	client := made(t, k.store)
	defer client.Close()
	start(t, killers(nil, k.beat)[k.how], client, "killer", "")
	for i := range 10 {
		start(t, errand(k.beat), client, sprint("errand-", i), "")
	}
	lives := make([]*process, engines)
	deaths := 0
	for began := time.Now(); !k.over(t, client) && time.Since(began) < 2*time.Hour && deaths < 30; {
		for i, p := range lives {
			switch {
			case p == nil:
			case !crashed(p):
				continue
			default:
				p.kill()
				deaths++
			}
			f := storagetest.NewFaulty(k.store, nil)
			lives[i] = bootOn(t, f, killers(f.Crash, k.beat)[k.how], errand(k.beat), func(c *engine.Config) { c.Name, c.ParkAfter = sprint("host", i), -1 })
		}
		time.Sleep(50 * time.Millisecond)
	}
	if i := describe(t, client, "killer"); !heldFor(i, engine.ReasonNoProgress) {
		t.Errorf("after %d deaths: %+v, want it held", deaths, i)
	}
	for i := range 10 {
		if i := describe(t, client, sprint("errand-", i)); i.Status != checkpoint.StatusCompleted {
			t.Errorf("after %d deaths: %+v, want it completed", deaths, i)
		}
	}
	if deaths < 3 || deaths > 14 {
		t.Errorf("%d deaths, want as many as tell the killer from the others", deaths)
	}
	t.Logf("%d deaths", deaths)
}

// over says that the killer is held and the others are done.
func (k killing10) over(t *testing.T, client *engine.Engine) bool {
	for i := range 10 {
		if describe(t, client, sprint("errand-", i)).Status != checkpoint.StatusCompleted {
			return false
		}
	}
	return heldFor(describe(t, client, "killer"), engine.ReasonNoProgress)
}

// A process that is killed from outside delays nobody the first two times, and after
// that its runs are not driven one after the other.
func TestKillsFromOutsideDelayNobodyMuch(t *testing.T) {
	for kills, most := range []time.Duration{2, 2, 2, 4, 6, 8, 10} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			wf := errand(2 * time.Second)
			wf.Func = func(run *engine.Run, _ string) (string, error) {
				_, err := forever("work", func(ctx context.Context) { doze(ctx, 2*time.Second) }).Do(run, "")
				return "done", err
			}
			client := made(t, s)
			defer client.Close()
			for i := range 20 {
				start(t, wf, client, sprint(i), "")
			}
			for range kills {
				p := boot(t, s, wf)
				time.Sleep(500 * time.Millisecond)
				p.kill()
			}
			began := time.Now()
			p := boot(t, s, wf)
			for i := range 20 {
				if got := result(t, wf.Handle(p, sprint(i))); got != "done" {
					t.Errorf("%d: %q", i, got)
				}
			}
			if took := time.Since(began); took > most*time.Second+time.Second {
				t.Errorf("after %d kills: %v, want at most %v", kills, took, most*time.Second)
			}
		})
	}
}

// A run that kills its process at once is found among n in as many deaths as there are
// halvings, and not one of the others is blamed.
func TestSuspectsAreToldApart(t *testing.T) {
	for _, n := range []int{1, 2, 7, 20, 100} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			client := made(t, s)
			defer client.Close()
			defs := func(die func()) []any {
				return []any{
					flow("killer", func(run *engine.Run) (string, error) {
						_, err := forever("kill", func(ctx context.Context) {
							doze(ctx, 100*time.Millisecond) // all that are driven at the same time die with it
							die()
							<-ctx.Done()
						}).Do(run, "")
						return "", err
					}),
					errand(200 * time.Millisecond),
				}
			}
			ds := defs(nil)
			start(t, ds[0].(*engine.Workflow[string, string]), client, "killer", "")
			for i := range n - 1 {
				start(t, ds[1].(*engine.Workflow[string, string]), client, sprint("innocent-", i), "")
			}
			deaths, halvings := 0, bits.Len(uint(n-1))
			for ; deaths < 40; deaths++ {
				f := storagetest.NewFaulty(s, nil)
				p := bootOn(t, f, defs(f.Crash)...)
				for range 600 {
					if time.Sleep(100 * time.Millisecond); crashed(p) {
						break
					}
				}
				if !crashed(p) {
					break
				}
				p.kill()
			}
			if i := describe(t, client, "killer"); !heldFor(i, engine.ReasonNoProgress) || deaths > max(10, 3+halvings+4+2) { // a hash halves them as luck has it
				t.Errorf("among %d, after %d deaths: %+v, want it held", n, deaths, i)
			}
			t.Logf("among %d: %d deaths", n, deaths)
			for i := range n - 1 {
				if i := describe(t, client, sprint("innocent-", i)); len(i.Attention) > 0 {
					t.Errorf("among %d: %s is blamed: %v", n, i.ID, i.Attention)
				}
			}
		})
	}
}

// A run whose process is killed from outside again and again is not held as long as it
// gets on, however long that takes, and although nobody else is there to blame.
func TestRunThatGetsOnIsNotHeld(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		step := forever("work", func(ctx context.Context) { doze(ctx, 200*time.Millisecond) })
		wf := flow("w", func(run *engine.Run) (string, error) {
			for range 60 {
				if _, err := step.Do(run, ""); err != nil {
					return "", err
				}
			}
			return "done", nil
		})
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		for range 50 {
			time.Sleep(250 * time.Millisecond)
			p.kill()
			p = boot(t, s, wf)
		}
		if got := result(t, wf.Handle(p, "o")); got != "done" {
			t.Errorf("result %q", got)
		}
	})
}

// A run that dies with its engine every other hour does not become a suspect by that, also if
// it gets nowhere: each time it has lived for long enough.
func TestDeathsAreForgotten(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("w", func(run *engine.Run) (string, error) {
			_, err := forever("serve", func(ctx context.Context) { <-ctx.Done() }).Do(run, "")
			return "", err
		})
		client := made(t, s)
		defer client.Close()
		start(t, wf, client, "a", "")
		start(t, wf, client, "b", "")
		for range 20 {
			p := boot(t, s, wf, func(c *engine.Config) { c.PollInterval = time.Hour })
			time.Sleep(2 * time.Hour)
			p.kill()
		}
		p := boot(t, s, wf)
		time.Sleep(10 * time.Second)
		for _, id := range []string{"a", "b"} {
			if i := describe(t, p, id); i.Owner == "" || len(i.Attention) > 0 {
				t.Errorf("%+v, want it driven", i)
			}
			wf, err := journal.Load(ctx, s, id)
			if err != nil || wf.Deaths > 3 || wf.Alone > 1 {
				t.Errorf("%s: %d deaths, %d alone, %v; want them forgotten", id, wf.Deaths, wf.Alone, err)
			}
		}
	})
}

// A record of a release that counted in another way is gone on with: a run with many
// deaths is a suspect, and not held for what that release had counted.
func TestDeathsThatAnEarlierReleaseCounted(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := errand(time.Second)
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		p.kill()
		r, err := journal.Load(ctx, s, "o")
		if err != nil {
			t.Fatal(err)
		}
		old := *r
		old.Deaths, old.Alone = 9, 0
		ops, err := journal.Replace(nil, r, &old)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(ctx, storage.Batch{Ops: ops}); err != nil {
			t.Fatal(err)
		}
		p = boot(t, s, wf)
		if got := result(t, wf.Handle(p, "o")); got != "done" {
			t.Errorf("result %q", got)
		}
	})
}

// killerEnv has the orders of a process that drives a killer and others.
const killerEnv = "WEFT_TEST_KILLER"

// A doomed host is such a process, as it is told.
type doomed struct {
	Store, Where string // which, and the path or URL
	How          string // the killer kills
	Name         string
}

func (h doomed) open() (storage.Storage, error) {
	switch h.Store {
	case "sqlite":
		return sqlite.Open(h.Where, nil)
	case "bolt":
		return bolt.Open(h.Where, nil)
	}
	return postgres.Open(ctx, h.Where, nil)
}

const hostBeat = 30 * time.Millisecond

// run drives what is there until the killer is held and the others are done.
func (h doomed) run() error {
	s, err := h.open()
	if err != nil {
		return err
	}
	defer s.Close()
	killer, other := killers(die, hostBeat)[h.How], errand(hostBeat)
	eng, err := engine.New(engine.Config{
		Storage:      s,
		Name:         h.Name,
		Workflows:    []engine.Definition{killer, other},
		Logger:       quiet,
		ParkAfter:    -1,
		PollInterval: 20 * time.Millisecond,
		LeaseTTL:     400 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	defer eng.Close()
	if _, err := killer.Start(ctx, eng, "killer", ""); err != nil {
		return err
	}
	for i := range 10 {
		if _, err := other.Start(ctx, eng, sprint("errand-", i), ""); err != nil {
			return err
		}
	}
	go func() { _ = eng.Run(ctx) }()
	for i := range 10 {
		if _, err := other.Handle(eng, sprint("errand-", i)).Result(ctx); err != nil {
			return err
		}
	}
	for {
		i, err := eng.Describe(ctx, "killer")
		if err != nil || heldFor(i, engine.ReasonNoProgress) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// The same with processes that are really killed: one after the other on a store with one
// opener, and two at a time on one that is shared.
func TestProcessesThatARunKills(t *testing.T) {
	torture.Slow(t)
	hows := []string{"an idempotent activity", "a timer beside it", "another activity when one is given up"}
	if os.Getenv("WEFT_TORTURE") != "" {
		hows = append(hows, "steps beside it")
	}
	dir := t.TempDir()
	var rounds sync.WaitGroup
	for i, store := range []string{"sqlite", "bolt", "postgres"} {
		for j, how := range hows {
			if i != j%3 && os.Getenv("WEFT_TORTURE") == "" {
				continue
			}
			h := doomed{Store: store, Where: filepath.Join(dir, fmt.Sprint(i, j)), How: how, Name: "host"}
			processes := 1
			if store == "postgres" {
				h.Where, processes = pgtest.URL(t), 2
			}
			rounds.Go(func() { h.play(t, processes) })
		}
	}
	rounds.Wait()
}

// play keeps so many processes alive until one of them has no more to do.
func (h doomed) play(t *testing.T, processes int) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var deaths, most = make(chan error), 40
	var all sync.WaitGroup
	defer all.Wait()
	orders, err := json.Marshal(h)
	exe, e := os.Executable()
	if err = errors.Join(err, e); err != nil {
		t.Error(err)
		return
	}
	live := func() {
		cmd, said := exec.CommandContext(ctx, exe), new(strings.Builder)
		cmd.Env = append(os.Environ(), killerEnv+"="+string(orders))
		cmd.Stderr = said
		all.Go(func() {
			err := cmd.Run()
			if said.Len() > 0 {
				err = errors.Join(err, errors.New(said.String()))
			}
			select {
			case deaths <- err:
			case <-ctx.Done():
			}
		})
	}
	for range processes {
		live()
	}
	for n := 0; n < most; n++ {
		err := <-deaths
		if err == nil {
			cancel()
			if n < 3 {
				t.Errorf("%s, %s: held after %d deaths", h.Store, h.How, n)
			}
			t.Logf("%s, %s: %d deaths", h.Store, h.How, n)
			return
		}
		if !strings.Contains(err.Error(), "killed") || ctx.Err() != nil {
			t.Errorf("%s, %s: after %d deaths: %v", h.Store, h.How, n, err)
			return
		}
		live()
	}
	t.Errorf("%s, %s: %d deaths, and the killer is not held", h.Store, h.How, most)
}
