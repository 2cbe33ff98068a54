package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
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
	"github.com/weft-go/weft/storage/storagetest"
)

// on is of a build, which is also what the engine is called.
func on(deployment string) func(*engine.Config) {
	return func(c *engine.Config) { c.Name, c.Deployment = deployment, deployment }
}

// pinned is flow, Pinned.
func pinned(name string, f func(run *engine.Run) (string, error)) *engine.Workflow[string, string] {
	w := flow(name, f)
	w.Pinned = true
	return w
}

// build is a workflow that returns the name of the build whose code it is.
func build(deployment string) *engine.Workflow[string, string] {
	return pinned("build", func(*engine.Run) (string, error) { return deployment, nil })
}

func activate(t testing.TB, e *engine.Engine, deployment string) {
	t.Helper()
	if err := e.Activate(ctx, deployment, audit); err != nil {
		t.Fatalf("activate %q: %v", deployment, err)
	}
}

// placed wants a run to stay on a deployment.
func placed(t testing.TB, c engine.Client, id, deployment string) {
	t.Helper()
	if i := describe(t, c, id); i.Deployment != deployment {
		t.Errorf("%s is on deployment %q, want %q", id, i.Deployment, deployment)
	}
}

// OW7: a run of a Pinned workflow goes on in engines of the deployment on which it began,
// and in no others: when a signal comes while it is parked, when it is due, when its owner
// has died. While there is no such engine it waits, and is shown.
func TestPinnedRunStaysOnItsDeployment(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		slow := &activity.Activity[int, int]{Name: "slow", Run: func(ctx context.Context, i int) (int, error) {
			select {
			case <-time.After(30 * time.Second):
			case <-ctx.Done():
			}
			return i, ctx.Err()
		}}
		old := pinned("w", func(run *engine.Run) (string, error) {
			if run.ID() == "busy" {
				_, err := slow.Do(run, 1)
				return "blue", err
			}
			by, err := yes.Receive(run)
			if err != nil {
				return "", err
			}
			return "blue " + by, run.Sleep(5 * time.Minute)
		})
		var driven tally // by the new code
		changed := pinned("w", func(run *engine.Run) (string, error) {
			driven.add(run.ID())
			return "green", run.Sleep(time.Second)
		})

		f := storagetest.NewFaulty(s, nil)
		blue := bootOn(t, f, old, on("blue"), parkAfter(-1))
		activate(t, blue.Engine, "blue")
		time.Sleep(time.Second)
		start(t, old, blue, "w", "")
		var log lines
		green := boot(t, s, changed, on("green"), parkAfter(-1), log.logger())
		activate(t, green.Engine, "green")
		time.Sleep(time.Minute)
		tell(t, yes, green, "w", "ann")
		time.Sleep(10 * time.Second)
		if i := describe(t, green, "w"); len(i.Waiting) != 1 || !strings.HasPrefix(i.Waiting[0], "timer") || len(i.Attention) > 0 {
			t.Fatalf("signalled: %+v, want that it went on to its timer, on blue", i)
		}
		placed(t, green, "w", "blue")

		activate(t, blue.Engine, "blue")
		start(t, old, blue, "busy", "")
		activate(t, green.Engine, "green")
		time.Sleep(time.Second)
		f.Crash()
		blue.kill()
		time.Sleep(10 * time.Minute)
		for _, id := range []string{"w", "busy"} {
			i := describe(t, green, id)
			if !heldFor(i, engine.ReasonUnregistered) || !strings.Contains(i.Attention[0].Detail, `"blue"`) || i.Status != checkpoint.StatusRunning {
				t.Errorf("nobody of blue: %+v, want it shown", i)
			}
		}
		var shown []string
		for i, err := range green.List(ctx, engine.Filter{Attention: true}) {
			if err != nil {
				t.Fatal(err)
			}
			shown = append(shown, i.ID)
		}
		if slices.Sort(shown); !slices.Equal(shown, []string{"busy", "w"}) {
			t.Errorf("needing a person: %q", shown)
		}
		if n := log.count("not executed"); n != 1 {
			t.Errorf("green has said %d times that it leaves runs alone, want once", n)
		}

		again := boot(t, s, old, on("blue"))
		if got := result(t, old.Handle(again, "w")); got != "blue ann" {
			t.Errorf("w: %q", got)
		}
		if got := result(t, old.Handle(again, "busy")); got != "blue" {
			t.Errorf("busy: %q", got)
		}
		if got := driven.all(); len(got) > 0 {
			t.Errorf("green has driven %q", got)
		}
		placed(t, green, "w", "blue") // also when it has ended
	})
}

func TestRollingDeploy(t *testing.T) {
	virtual(t, func(t *testing.T) { rollingDeploy(t, sharing{fresh(t)}) })
}

func TestRollingDeployOnFiles(t *testing.T) {
	for adapter, store := range sweepStores {
		t.Run(adapter, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := store.Open(t)
				defer s.Close()
				rollingDeploy(t, sharing{s})
			})
		})
	}
}

// A deployment takes over the new runs when it is activated, the old ones end where they
// are, and after a rollback new ones begin there again.
func rollingDeploy(t *testing.T, s storage.Storage) {
	long := func(deployment string) *engine.Workflow[string, string] {
		return pinned("long", func(run *engine.Run) (string, error) { return deployment, run.Sleep(5 * time.Minute) })
	}
	boots := func(deployment string) (*process, *engine.Workflow[string, string]) {
		w := long(deployment)
		p := boot(t, s, w, on(deployment), parkAfter(-1))
		time.Sleep(time.Second)
		return p, w
	}
	blue, w := boots("blue")
	defer blue.kill()
	activate(t, blue.Engine, "blue")
	var old []*engine.Handle[string]
	for i := range 5 {
		old = append(old, start(t, w, blue, sprint("old", i), ""))
	}
	green, _ := boots("green")
	defer green.kill()
	start(t, w, green, "before", "") // of an engine that is not active yet
	time.Sleep(5 * time.Second)
	placed(t, green, "before", "blue")
	activate(t, green.Engine, "green")
	fresh := start(t, w, blue, "fresh", "")
	time.Sleep(5 * time.Second)
	placed(t, blue, "fresh", "green")

	infos, err := green.Engines(ctx)
	if err != nil || len(infos) != 2 || infos[0].Deployment != "blue" || infos[1].Deployment != "green" {
		t.Errorf("engines: %+v, %v", infos, err)
	}
	for _, h := range append(old, w.Handle(green, "before")) {
		if got := result(t, h); got != "blue" {
			t.Errorf("%s was ended by %s", h.ID(), got)
		}
	}
	if got := result(t, fresh); got != "green" {
		t.Errorf("fresh was ended by %s", got)
	}
	if err := green.Rollback(ctx, audit); err != nil {
		t.Fatal(err)
	}
	if got := result(t, start(t, w, green, "again", "")); got != "blue" {
		t.Errorf("rolled back: ended by %s", got)
	}
}

// While no deployment is active a start of what is Pinned is refused by who knows that,
// and nothing is written. One of a client, and a child, wait.
func TestNoActiveDeployment(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		w := build("blue")
		outer := flow("outer", func(run *engine.Run) (string, error) { return w.AsChild(engine.ChildOptions{ID: "kid"}).Do(run, "") })
		p := boot(t, s, w, outer, on("blue"))
		time.Sleep(time.Second)
		wrote := len(entries(t, s, ""))
		_, err := w.Start(ctx, p, "w", "")
		if !errors.Is(err, engine.ErrNoActiveDeployment) {
			t.Errorf("start: %v", err)
		}
		if _, err := yes.SendWithStart(ctx, p, w.Request("w", ""), "v", nil); !errors.Is(err, engine.ErrNoActiveDeployment) {
			t.Errorf("send with start: %v", err)
		}
		if d, err := p.ActiveDeployment(ctx); d != "" || !errors.Is(err, engine.ErrNoActiveDeployment) {
			t.Errorf("active: %q, %v", d, err)
		}
		if err := p.Rollback(ctx, audit); !errors.Is(err, engine.ErrNotApplicable) {
			t.Errorf("rollback: %v", err)
		}
		if got := len(entries(t, s, "")); got != wrote {
			t.Errorf("%d records, before %d", got, wrote)
		}

		client := made(t, s)
		start(t, w, client, "c", "")
		parent := start(t, outer, p, "outer", "")
		if h, err := w.Start(ctx, p, "c", ""); err != nil || h.ID() != "c" {
			t.Errorf("a start again: %v, want that it is there", err)
		}
		if _, err := w.Start(ctx, p, "c", "other"); !errors.Is(err, engine.ErrExists) {
			t.Errorf("a start of a taken id: %v", err)
		}
		time.Sleep(time.Minute)
		for _, id := range []string{"c", "kid"} {
			i := describe(t, p, id)
			if i.Status != checkpoint.StatusPending || !heldFor(i, engine.ReasonUnregistered) || i.Attention[0].Detail != "no deployment is active" {
				t.Errorf("%s waits: %+v", id, i)
			}
		}
		activate(t, p.Engine, "green")
		time.Sleep(time.Minute)
		if i := describe(t, p, "c"); i.Status != checkpoint.StatusPending || !heldFor(i, engine.ReasonUnregistered) || !strings.Contains(i.Attention[0].Detail, `"green"`) {
			t.Errorf("nobody of green: %+v", i)
		}
		activate(t, client, "blue")
		for _, h := range []*engine.Handle[string]{w.Handle(p, "c"), parent} {
			if got := result(t, h); got != "blue" {
				t.Errorf("%s: %q", h.ID(), got)
			}
		}
		if i := describe(t, p, "outer"); i.Deployment != "" {
			t.Errorf("a run that is not Pinned is on %q", i.Deployment)
		}
	})
}

// What is activated is durable, with who and why; a second time changes nothing. A
// rollback goes one step back.
func TestActivate(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		e := made(t, s)
		for _, name := range []string{"", "\xff", strings.Repeat("d", 101)} {
			if err := e.Activate(ctx, name, audit); !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("activate %q: %v", name, err)
			}
		}
		for _, by := range []engine.Actor{{}, {Name: "ann"}, {Reason: "w"}} {
			if err := errors.Join(e.Activate(ctx, "blue", by), e.Rollback(ctx, by)); !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("audit %+v: %v", by, err)
			}
		}
		active := func(want string) {
			t.Helper()
			if got, err := e.ActiveDeployment(ctx); got != want || err != nil {
				t.Errorf("active: %q, %v, want %q", got, err, want)
			}
		}
		refused := func() {
			t.Helper()
			if err := e.Rollback(ctx, audit); !errors.Is(err, engine.ErrNotApplicable) {
				t.Errorf("rollback: %v", err)
			}
		}
		activate(t, e, "blue")
		active("blue")
		refused()
		written := get(t, s, keys.Meta("deployment"))
		for _, word := range []string{"blue", audit.Name, audit.Reason} {
			if !bytes.Contains(written, []byte(word)) {
				t.Errorf("the record does not tell %q", word)
			}
		}
		time.Sleep(time.Second)
		activate(t, e, "blue")
		if again := get(t, s, keys.Meta("deployment")); !bytes.Equal(again, written) {
			t.Error("the record was written again")
		}
		refused()
		activate(t, e, "green")
		activate(t, e, "red")
		if err := e.Rollback(ctx, audit); err != nil {
			t.Error(err)
		}
		active("green")
		refused()

		put(t, s, keys.Meta("deployment"), []byte("rubbish"))
		if _, err := e.ActiveDeployment(ctx); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("damaged: %v", err)
		}
		if err := e.Rollback(ctx, audit); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("rollback of what is damaged: %v", err)
		}
		activate(t, e, "blue")
		active("blue")
		refused()

		e.Close()
		_, err := e.ActiveDeployment(ctx)
		for _, err := range []error{err, e.Activate(ctx, "red", audit), e.Rollback(ctx, audit)} {
			if !errors.Is(err, engine.ErrClosed) {
				t.Errorf("closed: %v", err)
			}
		}
	})
}

// A damaged record of what is active lets nothing begin, and is shown with what waits;
// to activate mends it.
func TestDamagedActiveDeployment(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		w := build("blue")
		var log lines
		p := boot(t, s, w, on("blue"), log.logger())
		put(t, s, keys.Meta("deployment"), []byte("rubbish"))
		start(t, w, made(t, s), "c", "")
		time.Sleep(time.Minute)
		if i := describe(t, p, "c"); i.Status != checkpoint.StatusPending || !heldFor(i, engine.ReasonUnregistered) || !strings.Contains(i.Attention[0].Detail, "corrupt") {
			t.Errorf("%+v", i)
		}
		if n := log.count("corrupt"); n != 1 {
			t.Errorf("the log tells of it %d times, want once", n)
		}
		if _, err := w.Start(ctx, p, "w", ""); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("start: %v", err)
		}
		activate(t, p.Engine, "blue")
		if got := result(t, w.Handle(p, "c")); got != "blue" {
			t.Errorf("got %q", got)
		}
	})
}

// An activation of unknown outcome is found out: it was done, it was not, or somebody
// has activated another since, and then nobody says that it was not.
func TestActivationOfUnknownOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		fault  storagetest.Fault
		others bool
		want   string
	}{
		"it was done":                {storagetest.ErrorAfter, false, "green"},
		"it was not":                 {storagetest.ErrorBefore, false, "green"},
		"others have gone on":        {storagetest.ErrorAfter, true, "red"},
		"others have been before it": {storagetest.ErrorBefore, true, "red"},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := fresh(t)
				activate(t, made(t, s), "blue")
				e := made(t, &meddled{Storage: s, fault: c.fault, meddle: func() {
					if c.others {
						activate(t, made(t, s), "red")
					}
				}})
				err := e.Activate(ctx, "green", audit)
				if c.others != (err != nil) {
					t.Errorf("activate: %v", err)
				}
				if got, err := e.ActiveDeployment(ctx); got != c.want || err != nil {
					t.Errorf("active: %q, %v, want %q", got, err, c.want)
				}
			})
		})
	}
}

// A meddled store answers the first commit of an activation with an error, and then
// somebody else gets on.
type meddled struct {
	storage.Storage
	fault  storagetest.Fault
	meddle func()
	done   atomic.Bool
}

func (m *meddled) Commit(ctx context.Context, b storage.Batch) error {
	if !writes(b, "meta:deployment") || m.done.Swap(true) {
		return m.Storage.Commit(ctx, b)
	}
	if m.fault == storagetest.ErrorAfter {
		if err := m.Storage.Commit(ctx, b); err != nil {
			return err
		}
	}
	m.meddle()
	return storagetest.ErrInjected
}

func (m *meddled) Unwrap() storage.Storage { return m.Storage }

// A delayed store keeps back the commit that creates a workflow until it may land.
type delayed struct {
	storage.Storage
	sent, land chan bool
	once       sync.Once
}

func (d *delayed) Commit(ctx context.Context, b storage.Batch) error {
	if writes(b, "wf:") {
		d.once.Do(func() { d.sent <- true; <-d.land })
	}
	return d.Storage.Commit(ctx, b)
}

// When Activate has returned nothing begins on another deployment any more, not even a
// start that had found that one active.
func TestStartThatAnActivationOvertakes(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		w := build("blue")
		d := &delayed{Storage: s, sent: make(chan bool), land: make(chan bool)}
		blue := boot(t, d, w, on("blue"))
		activate(t, blue.Engine, "blue")
		time.Sleep(time.Second)
		begun := make(chan error)
		go func() {
			_, err := w.Start(ctx, blue, "w", "")
			begun <- err
		}()
		<-d.sent
		green := boot(t, s, build("green"), on("green"))
		activate(t, green.Engine, "green")
		d.land <- true
		if err := <-begun; err != nil {
			t.Fatal(err)
		}
		if got := result(t, w.Handle(green, "w")); got != "green" {
			t.Errorf("ended by %s", got)
		}
		placed(t, green, "w", "green")
	})
}

// A claim of a run that waited to be begun is overtaken likewise.
func TestClaimThatAnActivationOvertakes(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		client := made(t, s)
		activate(t, client, "blue")
		start(t, build("blue"), client, "w", "")
		d := &delayed{Storage: s, sent: make(chan bool), land: make(chan bool)}
		boot(t, d, build("blue"), on("blue"))
		<-d.sent
		activate(t, client, "green")
		d.land <- true
		green := boot(t, s, build("green"), on("green")) // not earlier: it would have claimed the run
		if got := result(t, build("green").Handle(green, "w")); got != "green" {
			t.Errorf("ended by %s", got)
		}
		placed(t, green, "w", "green")
	})
}

// Starts race with activations. What is started and ends while one deployment is active
// begins on that one, wherever it was started; each run is driven where it says.
func TestActivationsRaceWithStarts(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		engines := map[string]*process{}
		for _, d := range []string{"blue", "green"} {
			engines[d] = boot(t, s, build(d), on(d))
		}
		client := made(t, s)
		activate(t, client, "blue")
		var epoch atomic.Int64 // even: blue is active; odd: green is, or will be, or was
		name := []string{"blue", "green"}

		var wg sync.WaitGroup
		for who, p := range engines {
			wg.Go(func() {
				for i := range 60 {
					time.Sleep(time.Duration(rand.IntN(int(500 * time.Millisecond))))
					before := epoch.Load()
					h := start(t, build(who), p, sprint(who, i), "")
					got := result(t, h)
					placed(t, p, h.ID(), got)
					if epoch.Load() == before && before%2 == 0 && got != name[before/2%2] {
						t.Errorf("%s began on %s while %s was active", h.ID(), got, name[before/2%2])
					}
				}
			})
		}
		over := make(chan bool)
		go func() { wg.Wait(); close(over) }()
		for turns := 0; ; turns++ {
			select {
			case <-over:
				if turns < 4 {
					t.Errorf("%d activations, too few to mean anything", turns)
				}
				return
			case <-time.After(3 * time.Second):
			}
			epoch.Add(1)
			activate(t, client, name[(turns+1)%2])
			epoch.Add(1)
		}
	})
}

// A child of a pinned run begins on its parent's deployment, whatever is active. What
// is detached, and the child of a run that is not pinned, begin on the active one.
func TestChildrenOfPinnedRuns(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		boots := func(deployment string) (*process, *engine.Workflow[string, string], *engine.Workflow[string, string]) {
			kid := build(deployment)
			kid.Name = "kid"
			body := func(run *engine.Run) (string, error) {
				if err := run.Sleep(time.Minute); err != nil {
					return "", err
				}
				if _, err := kid.Detach(run, run.ID()+"'s successor", ""); err != nil {
					return "", err
				}
				got, err := kid.AsChild(engine.ChildOptions{ID: run.ID() + "'s kid"}).Do(run, "")
				return deployment + " " + got, err
			}
			stays, roams := pinned("stays", body), flow("roams", body)
			p := boot(t, s, kid, stays, roams, on(deployment))
			time.Sleep(time.Second)
			return p, stays, roams
		}
		blue, stays, roams := boots("blue")
		activate(t, blue.Engine, "blue")
		one, two := start(t, stays, blue, "stays", ""), start(t, roams, blue, "roams", "")
		green, _, _ := boots("green")
		activate(t, green.Engine, "green")
		if got := result(t, one); got != "blue blue" {
			t.Errorf("pinned parent: %q", got)
		}
		if got := result(t, two); got != "blue green" {
			t.Errorf("parent that is not pinned: %q", got)
		}
		for _, id := range []string{"stays's successor", "roams's successor"} {
			if got := result(t, flow("kid", nil).Handle(green, id)); got != "green" {
				t.Errorf("%s began on %s", id, got)
			}
			placed(t, green, id, "green")
		}
	})
}

// A child waits for room on its parent's deployment too.
func TestChildOfAPinnedRunWaitsForRoom(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		kid := build("blue")
		kid.Name = "kid"
		w := pinned("w", func(run *engine.Run) (string, error) {
			if err := run.Sleep(time.Minute); err != nil {
				return "", err
			}
			return kid.AsChild(engine.ChildOptions{ID: "kid"}).Do(run, "")
		})
		blue := boot(t, s, kid, w, on("blue"), func(c *engine.Config) { c.MaxRunsInMemory, c.ParkAfter = 1, time.Second })
		activate(t, blue.Engine, "blue")
		time.Sleep(time.Second)
		h := start(t, w, blue, "w", "")
		other := build("green")
		other.Name = "kid"
		green := boot(t, s, other, on("green"))
		activate(t, green.Engine, "green")
		if got := result(t, h); got != "blue" {
			t.Errorf("child was driven by %s", got)
		}
		placed(t, green, "kid", "blue")
	})
}

// A failed run that is retried goes on where it was, whoever is active and retries it.
func TestRetryOfAPinnedRun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		tries := 0
		w := pinned("w", func(run *engine.Run) (string, error) {
			return engine.Step(run, "s", func(context.Context) (string, error) {
				if tries++; tries == 1 {
					return "", errBroke
				}
				return "blue", nil
			})
		})
		blue := boot(t, s, w, on("blue"))
		activate(t, blue.Engine, "blue")
		time.Sleep(time.Second)
		h := start(t, w, blue, "w", "")
		if _, err := outcome(h); err == nil {
			t.Fatal("it has not failed")
		}
		green := boot(t, s, build("green"), pinned("w", func(*engine.Run) (string, error) { return "green", nil }), on("green"))
		activate(t, green.Engine, "green")
		if err := green.Resume(ctx, "w", audit); err != nil {
			t.Fatal(err)
		}
		if got := result(t, h); got != "blue" {
			t.Errorf("went on on %s", got)
		}
	})
}

// A run that began before its workflow was Pinned may go on anywhere.
func TestRunThatIsOlderThanItsPin(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		w := flow("w", func(run *engine.Run) (string, error) { return "done", run.Sleep(5 * time.Minute) })
		first := boot(t, s, w, parkAfter(-1))
		time.Sleep(time.Second)
		h := start(t, w, first, "w", "")
		first.stop(t)
		w.Pinned = true
		boot(t, s, w, on("blue")) // and nothing is active
		if got := result(t, w.Handle(made(t, s), h.ID())); got != "done" {
			t.Errorf("got %q", got)
		}
	})
}

// What is left to another deployment is not read at every poll.
func TestRunsOfOthersCostNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		client := made(t, s)
		activate(t, client, "blue")
		w := build("blue")
		const runs = 20
		for i := range runs {
			start(t, w, client, fmt.Sprint(i), "")
		}
		var reads atomic.Int64
		f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Get" && bytes.HasPrefix(c.Key, []byte("wf:")) {
				reads.Add(1)
			}
			return storagetest.None
		})
		bootOn(t, f, build("green"), on("green"))
		time.Sleep(2 * time.Minute)
		if n := reads.Load(); n > 5*runs {
			t.Errorf("%d records of workflows were read in 120 polls, for %d runs", n, runs)
		}
		activate(t, client, "green")
		for i := range runs {
			if got := result(t, w.Handle(client, fmt.Sprint(i))); got != "green" {
				t.Errorf("%d: %s", i, got)
			}
		}
	})
}

// A signal may start what is Pinned.
func TestPinnedStartWithItsSignal(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{new(memory.Store)}
		w := pinned("w", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		blue := boot(t, s, w, on("blue"))
		activate(t, blue.Engine, "blue")
		time.Sleep(time.Second)
		if _, err := yes.SendWithStart(ctx, blue, w.Request("w", ""), "v", &signal.Options{ID: "1"}); err != nil {
			t.Fatal(err)
		}
		if got := result(t, w.Handle(blue, "w")); got != "v" {
			t.Errorf("got %q", got)
		}
		placed(t, blue, "w", "blue")
	})
}

// A start of what is Pinned may be staged in the host's transaction, and begins, where
// it must, when that is committed. While nothing is active it is refused there too.
func TestPinnedStartInTheHostsTransaction(t *testing.T) {
	store, host := hosted(t)
	w := build("blue")
	eng := boot(t, store, w, on("blue"), func(c *engine.Config) { c.PollInterval = 10 * time.Millisecond })
	place := func() error {
		tx, err := host.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := w.Start(ctx, eng.In(store.WithTx(tx)), "w", ""); err != nil {
			return err
		}
		return tx.Commit()
	}
	if err := place(); !errors.Is(err, engine.ErrNoActiveDeployment) {
		t.Errorf("nothing is active: %v", err)
	}
	activate(t, eng.Engine, "blue")
	if err := place(); err != nil {
		t.Fatal(err)
	}
	if got := result(t, w.Handle(eng, "w")); got != "blue" {
		t.Errorf("got %q", got)
	}
	placed(t, eng, "w", "blue")
}

// A single owner has deployments too: one after the other.
func TestDeploymentsOfASingleOwner(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		alone := func(c *engine.Config) { c.Ownership = engine.OwnershipSingleOwner }
		boots := func(deployment string) (*process, *engine.Workflow[string, string]) {
			w := pinned("w", func(run *engine.Run) (string, error) { return deployment, run.Sleep(time.Minute) })
			p := boot(t, s, w, on(deployment), alone)
			time.Sleep(time.Second)
			return p, w
		}
		blue, w := boots("blue")
		activate(t, blue.Engine, "blue")
		start(t, w, blue, "old", "")
		blue.stop(t)
		green, w := boots("green")
		activate(t, green.Engine, "green")
		if got := result(t, start(t, w, green, "new", "")); got != "green" {
			t.Errorf("new: %q", got)
		}
		if i := describe(t, green, "old"); i.Status != checkpoint.StatusRunning || !heldFor(i, engine.ReasonUnregistered) {
			t.Errorf("old: %+v, want that it waits for blue and is shown", i)
		}
		green.stop(t)
		blue, w = boots("blue")
		if got := result(t, w.Handle(blue, "old")); got != "blue" {
			t.Errorf("old: %q", got)
		}
	})
}

// A queue lets in what is Pinned where it may begin, and who may not begin it keeps no
// place in the queue.
func TestPinnedRunsInAQueue(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		queues := func(c *engine.Config) { c.Queues = []engine.Queue{{Name: "q", Concurrency: 1}} }
		queued := func(deployment string) *engine.Workflow[string, string] {
			w := pinned("w", func(run *engine.Run) (string, error) { return deployment, run.Sleep(time.Minute) })
			return w.With(engine.StartOptions{Queue: "q"})
		}
		blue := boot(t, s, queued("blue"), on("blue"), queues)
		green := boot(t, s, queued("green"), on("green"), queues)
		time.Sleep(time.Second)
		activate(t, blue.Engine, "blue")
		first := start(t, queued("blue"), green, "0", "")
		time.Sleep(10 * time.Second)
		placed(t, green, "0", "blue")
		var hs []*engine.Handle[string]
		for i := 1; i < 4; i++ {
			hs = append(hs, start(t, queued("blue"), blue, sprint(i), ""))
		}
		activate(t, green.Engine, "green")
		if got := result(t, first); got != "blue" {
			t.Errorf("0: %s", got)
		}
		for _, h := range hs {
			if got := result(t, h); got != "green" {
				t.Errorf("%s began on %s, when green was active", h.ID(), got)
			}
			placed(t, blue, h.ID(), "green")
		}
	})
}
