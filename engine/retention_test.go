package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/integrity"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// retaining keeps workflows for so long, and is for tests that last for hours.
func retaining(r engine.Retention) func(*engine.Config) {
	return func(c *engine.Config) {
		c.PollInterval, c.LeaseTTL = 20*time.Second, time.Minute
		c.Retention = r
	}
}

// ending is a workflow whose input says how it ends.
func ending(name string) *engine.Workflow[string, string] {
	return &engine.Workflow[string, string]{Name: name, Func: func(run *engine.Run, how string) (string, error) {
		switch how {
		case "fails":
			return "", errBroke
		case "waits":
			return "", run.Sleep(decade)
		case "late":
			return how, run.Sleep(8 * time.Minute)
		}
		return how, nil
	}}
}

// removed says whether no workflow has the id.
func removed(t testing.TB, c engine.Client, id string) bool {
	t.Helper()
	_, err := c.Describe(ctx, id)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		t.Fatalf("describe %q: %v", id, err)
	}
	return err != nil
}

// there says which workflows there are.
func there(t testing.TB, c engine.Client, ids ...string) (found []string) {
	t.Helper()
	for _, id := range ids {
		if !removed(t, c, id) {
			found = append(found, id)
		}
	}
	return found
}

// intact says that the records of a store agree.
func intact(t testing.TB, s storage.Storage) {
	t.Helper()
	for _, problem := range integrity.Check(ctx, s, time.Time{}) {
		t.Error(problem)
	}
}

// RET-1, RET-2, RET-5: workflows are removed when they have ended for as long as their retention says,
// each by how it ended, with all that belongs to them, and what has not ended stays.
func TestRetention(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		wf, own := ending("usual"), ending("own")
		own.Retention = engine.Retention{Completed: -1, Failed: time.Minute}
		told := &chronicle{}
		p := boot(t, s, wf, own, retaining(engine.Retention{Completed: 10 * time.Minute, Failed: 30 * time.Minute, Cancelled: 20 * time.Minute}),
			func(c *engine.Config) {
				c.Events.Removed = func(e engine.RemovedEvent) {
					told.add(sprint(e.WorkflowID, " ", e.Workflow, " ", e.Status, " ", e.Cause))
				}
			})
		for _, id := range []string{"done", "late", "fails", "waits", "stopped"} {
			how := map[string]string{"stopped": "waits"}[id]
			if how == "" {
				how = id
			}
			start(t, wf, p, id, how)
		}
		start(t, own, p, "own-done", "done")
		start(t, own, p, "own-fails", "fails")
		time.Sleep(time.Second)
		if err := p.Cancel(ctx, "stopped", audit); err != nil {
			t.Fatal(err)
		}
		all := []string{"done", "late", "fails", "waits", "stopped", "own-done", "own-fails"}
		now := time.Duration(0)
		for _, c := range []struct {
			after time.Duration
			want  string
		}{
			{50 * time.Second, "[done late fails waits stopped own-done own-fails]"},
			{9*time.Minute + 30*time.Second, "[done late fails waits stopped own-done]"},
			{10*time.Minute + 30*time.Second, "[late fails waits stopped own-done]"},
			{17*time.Minute + 30*time.Second, "[late fails waits stopped own-done]"},
			{18*time.Minute + 30*time.Second, "[fails waits stopped own-done]"},
			{20*time.Minute + 30*time.Second, "[fails waits own-done]"},
			{29*time.Minute + 30*time.Second, "[fails waits own-done]"},
			{30*time.Minute + 30*time.Second, "[waits own-done]"},
		} {
			time.Sleep(c.after - now)
			now = c.after
			if got := sprint(there(t, p, all...)); got != c.want {
				t.Errorf("after %v there are %s, want %s", c.after, got, c.want)
			}
		}
		if left := entries(t, s, "wf:done:"); len(left) > 0 {
			t.Errorf("left of a removed workflow: %q", left)
		}
		want := "[own-fails own failed retention done usual completed retention late usual completed retention " +
			"stopped usual cancelled retention fails usual failed retention]"
		if got := sprint(told.list()); got != want {
			t.Errorf("told %s, want %s", got, want)
		}
		p.stop(t)
		intact(t, s)
	})
}

// A chronicle is lines in the order in which they came.
type chronicle struct {
	mu sync.Mutex
	in []string
}

func (n *chronicle) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.in = append(n.in, line)
}

func (n *chronicle) list() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string{}, n.in...)
}

// An engine without the workflow, or without a retention, removes nothing.
func TestRetentionIsOfWhoHasTheWorkflow(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		wf := ending("usual")
		first := boot(t, s, wf)
		result(t, start(t, wf, first, "done", "done"))
		first.stop(t)
		other := boot(t, s, ending("another"), retaining(engine.Retention{Completed: time.Minute}))
		time.Sleep(2 * time.Hour)
		other.stop(t)
		none := boot(t, s, wf, retaining(engine.Retention{}))
		time.Sleep(2 * time.Hour)
		if removed(t, none, "done") {
			t.Error("a workflow that nobody says when to remove is gone")
		}
		none.stop(t)
	})
}

func TestRetentionIsChecked(t *testing.T) {
	for _, c := range []struct {
		r     engine.Retention
		field string
	}{
		{engine.Retention{Completed: -1}, "Retention.Completed"},
		{engine.Retention{Failed: -1}, "Retention.Failed"},
		{engine.Retention{Cancelled: -1}, "Retention.Cancelled"},
	} {
		_, err := engine.New(engine.Config{Storage: new(memory.Store), Retention: c.r})
		var wrong *engine.ConfigError
		if !errors.As(err, &wrong) || wrong.Field != c.field {
			t.Errorf("%+v: %v, want a ConfigError of %s", c.r, err, c.field)
		}
	}
}

// An archive is what Config.Archive has got.
type archive struct {
	mu     sync.Mutex
	infos  []engine.Info
	texts  []string
	answer func(call int) error
}

func (a *archive) put(_ context.Context, i engine.Info, history io.Reader) error {
	text, err := io.ReadAll(history)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.infos, a.texts = append(a.infos, i), append(a.texts, string(text))
	call := len(a.infos)
	a.mu.Unlock()
	if a.answer != nil {
		return a.answer(call)
	}
	return nil
}

func (a *archive) calls() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.infos)
}

// archiving has short retention, an archive, and polls rarely.
func archiving(archive func(context.Context, engine.Info, io.Reader) error) func(*engine.Config) {
	return func(c *engine.Config) {
		retaining(engine.Retention{Completed: time.Minute, Failed: time.Minute})(c)
		c.PollInterval = 30 * time.Second
		c.LeaseTTL = 2 * time.Minute
		c.Archive = archive
	}
}

// RET-3: a workflow is removed only after its archive has taken what Export writes, and one that
// changes meanwhile is archived again.
func TestArchive(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		wf := ending("usual")
		var p *process
		a := &archive{}
		a.answer = func(call int) error {
			switch call {
			case 1:
				return errBroke
			case 2:
				if err := p.Label(ctx, "o", map[string]string{"team": "blue"}, audit); err != nil {
					t.Error(err)
				}
			}
			return nil
		}
		p = boot(t, s, wf, archiving(a.put))
		start(t, wf, p, "o", "fails")
		time.Sleep(time.Second)
		var export bytes.Buffer
		if err := p.Export(ctx, "o", &export); err != nil {
			t.Fatal(err)
		}
		for call, after := range []time.Duration{3 * time.Minute, time.Hour + time.Minute} {
			time.Sleep(after)
			if n := a.calls(); n != call+1 || removed(t, p, "o") {
				t.Fatalf("archived %d times, gone: %t; want %d times, and there", n, removed(t, p, "o"), call+1)
			}
		}
		time.Sleep(time.Hour + time.Minute)
		if n := a.calls(); n != 3 || !removed(t, p, "o") {
			t.Fatalf("archived %d times, gone: %t; want 3 times, and gone", n, removed(t, p, "o"))
		}
		if i := a.infos[2]; i.ID != "o" || i.Status != checkpoint.StatusFailed || i.Labels["team"] != "blue" || !strings.Contains(i.Failure, "broke") {
			t.Errorf("archived last: %+v", i)
		}
		if a.texts[2] != export.String() {
			t.Errorf("archived\n%s\nexported\n%s", a.texts[2], export.String())
		}
		p.stop(t)
		intact(t, s)
	})
}

// RET-3: a run continues as new only when its archive has taken the life that it leaves. Until then
// nothing of it is deleted. The run goes on when the archive works again.
func TestArchiveOfEachLife(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		w := again("w", 2, func(run *engine.Run, life int) error {
			if _, err := engine.Step(run, fmt.Sprint("step of life ", life), func(context.Context) (int, error) { return life, nil }); err != nil {
				return err
			}
			return run.Sleep(time.Minute)
		})
		var p *process
		a := &archive{}
		a.answer = func(call int) error {
			switch call {
			case 1, 2, 3:
				return errBroke
			case 4: // the life changes while it is archived
				return p.Label(ctx, "w", map[string]string{"team": "blue"}, audit)
			}
			return nil
		}
		log := &lines{}
		p = boot(t, s, w, archiving(a.put), log.logger())
		h := start(t, w, p, "w", 0)
		time.Sleep(time.Minute + 2*time.Second)
		if i := describe(t, p, "w"); i.Life != 0 || a.calls() != 2 || log.count("was not archived") != 2 {
			t.Errorf("life %d, archived %d times, told %d times; want the first life, which is not archived", i.Life, a.calls(), log.count("was not archived"))
		}
		if ks := kinds(historyOf(t, p.Engine, "w")); !slices.Contains(ks, checkpoint.KindFired) {
			t.Errorf("its history is %v", ks)
		}
		inLife(t, p, "w", 1)
		result(t, h)
		if err := p.Purge(ctx, "w", audit); err != nil {
			t.Fatal(err)
		}
		if n := a.calls(); n != 7 {
			t.Fatalf("archived %d times, want 7", n)
		}
		for i, c := range []struct {
			call, life int
			status     checkpoint.Status
			label      string
		}{{3, 0, checkpoint.StatusRunning, ""}, {4, 0, checkpoint.StatusRunning, "blue"}, {5, 1, checkpoint.StatusRunning, "blue"}, {6, 2, checkpoint.StatusCompleted, "blue"}} {
			got, text := a.infos[c.call], a.texts[c.call]
			if got.ID != "w" || got.Life != c.life || got.Status != c.status || got.Labels["team"] != c.label {
				t.Errorf("%d: archived %+v", i, got)
			}
			if step := fmt.Sprint("step of life ", c.life); !strings.Contains(text, step) || strings.Count(text, "step of life") != strings.Count(text, step) {
				t.Errorf("%d: archived, of life %d:\n%s", i, c.life, text)
			}
			if err := p.Replay(ctx, strings.NewReader(text)); err != nil {
				t.Errorf("%d: replay: %v", i, err)
			}
		}
		p.stop(t)
		intact(t, s)
	})
}

// RET-3: whatever call to the store fails, or at whichever the process is killed, no run continues before
// its archive has the life that it leaves.
func TestArchiveOfEachLifeWhateverFails(t *testing.T) {
	w := again("w", 2, func(run *engine.Run, life int) error {
		_, err := engine.Step(run, "s", func(context.Context) (int, error) { return life, nil })
		return err
	})
	// play plays with a fault at a call to the store, and returns how many there were.
	play := func(t *testing.T, at int, fault storagetest.Fault) (calls int) {
		s, a := fresh(t), &archive{}
		kept := func(c *engine.Config) {
			archiving(a.put)(c)
			c.Retention = engine.Retention{} // result is to find it
		}
		has := func(life int) bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return slices.ContainsFunc(a.infos, func(i engine.Info) bool { return i.Life == life })
		}
		checked := &hooked{Storage: s, beforeCommit: func(b storage.Batch) {
			wf, err := journal.Load(ctx, s, "w")
			continues := err == nil && touches(b, "wf:w:in") && slices.ContainsFunc(b.If, func(c storage.Condition) bool { // not applied before
				return string(c.Key) == "wf:w" && string(c.Value) == string(wf.Raw())
			})
			if continues && !has(wf.Life) {
				t.Errorf("life %d is left before it is archived", wf.Life)
			}
		}}
		var begun atomic.Bool
		p := bootOn(t, storagetest.NewFaulty(checked, func(storagetest.Call) storagetest.Fault {
			if !begun.Load() {
				return storagetest.None
			}
			if calls++; calls == at {
				return fault
			}
			return storagetest.None
		}), w, kept)
		begun.Store(true)
		within, cancel := context.WithTimeout(ctx, time.Minute) // a start in a process that is dead does not return
		defer cancel()
		_, err := w.Start(within, p, "w", 0)
		time.Sleep(time.Minute)
		p.kill()
		p = boot(t, checked, w, kept)
		if err != nil {
			start(t, w, p, "w", 0)
		}
		result(t, w.Handle(p, "w"))
		p.stop(t)
		intact(t, s)
		return calls
	}
	stride := 3
	if os.Getenv("WEFT_TORTURE") != "" {
		stride = 1
	}
	virtual(t, func(t *testing.T) {
		calls := play(t, 0, storagetest.None)
		for _, fault := range sweep.Faults {
			for at := 1 + rand.IntN(stride); at <= calls; at += stride {
				if play(t, at, fault); t.Failed() {
					t.Fatalf("%s call %d of %d", sweep.Names[fault], at, calls)
				}
			}
		}
	})
}

// RET-3: an engine that stops while its archive refuses a life does not wait for that. The next one
// archives it.
func TestEngineStopsWhileALifeIsNotArchived(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		w := again("w", 1, func(run *engine.Run, life int) error { return nil })
		a := &archive{}
		p := boot(t, s, w, archiving(func(context.Context, engine.Info, io.Reader) error { return errBroke }))
		start(t, w, p, "w", 0)
		time.Sleep(10 * time.Minute)
		began := time.Now()
		p.stop(t)
		if took := time.Since(began); took > time.Second {
			t.Errorf("the engine has stopped after %v", took)
		}
		p = boot(t, s, w, archiving(a.put))
		result(t, w.Handle(p, "w"))
		if n := a.calls(); n != 1 {
			t.Errorf("archived %d times, want 1", n)
		}
		p.stop(t)
		intact(t, s)
	})
}

// RET-3: a life that is damaged cannot be archived, so its run is held: to try again does not help. It goes on
// when the record is mended. What Config.Archive says of damage of its own is a refusal as any other.
func TestArchiveOfADamagedLife(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		w := again("w", 1, func(run *engine.Run, life int) error {
			if life == 1 {
				return nil
			}
			if _, err := engine.Step(run, "s", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return err
			}
			_, err := yes.Receive(run)
			return err
		})
		a := &archive{answer: func(call int) error {
			if call == 1 {
				return fmt.Errorf("the archive is damaged: %w", storage.ErrCorrupt)
			}
			return nil
		}}
		p := boot(t, s, w, archiving(a.put))
		for _, c := range []struct {
			id  string
			key func(id string, log keys.Log, cs []checkpoint.Checkpoint) []byte
		}{
			{"history", func(_ string, log keys.Log, cs []checkpoint.Checkpoint) []byte { return log.Checkpoint(cs[1].Number) }},
			{"input", func(id string, _ keys.Log, _ []checkpoint.Checkpoint) []byte { return keys.Input(id) }},
		} {
			start(t, w, p, c.id, 0)
			eventually(t, "it waits for a signal", func() bool { return slices.Contains(describe(t, p, c.id).Waiting, "receive yes") })
			key := c.key(c.id, logOf(t, s, c.id), historyOf(t, p.Engine, c.id))
			whole := get(t, s, key)
			damaged := slices.Clone(whole)
			damaged[len(damaged)-1] ^= 1
			put(t, s, key, damaged)
			tell(t, yes, p, c.id, "")
			time.Sleep(10 * time.Second)
			if i := describe(t, p, c.id); !heldFor(i, engine.ReasonDamaged) || i.Life != 0 || !strings.Contains(i.Attention[0].Detail, string(key)) {
				t.Errorf("%+v, want it held in its first life, and the record %q named", i, key)
			}
			put(t, s, key, whole)
		}
		if n := a.calls(); n != 0 {
			t.Errorf("archived %d times before the records are mended", n)
		}
		p.stop(t)
		p = boot(t, s, w, archiving(a.put))
		result(t, w.Handle(p, "history"))
		result(t, w.Handle(p, "input"))
		if n := a.calls(); n != 3 {
			t.Errorf("archived %d times, want 3: one was refused", n)
		}
		p.stop(t)
		intact(t, s)
	})
}

// RET-3: an archive of a life that takes as long as it may, or that ignores its context, holds up neither
// the end of its engine for longer than StopTimeout allows, nor another engine.
func TestArchiveOfALifeThatBlocks(t *testing.T) {
	const stopTimeout = 20 * time.Second
	for name, ignores := range map[string]bool{"heeds its context": false, "ignores its context": true} {
		// blocking returns an archive that blocks, and what it has noted: how many calls there were, and why its context has ended.
		blocking := func(let chan struct{}) (archive func(context.Context, engine.Info, io.Reader) error, calls *atomic.Int64, why *atomic.Pointer[error]) {
			calls, why = new(atomic.Int64), new(atomic.Pointer[error])
			return func(ctx context.Context, _ engine.Info, _ io.Reader) error {
				calls.Add(1)
				<-ctx.Done()
				cause := context.Cause(ctx)
				why.Store(&cause)
				if ignores {
					<-let
				}
				return nil
			}, calls, why
		}
		most := stopTimeout + time.Second // until the context ends
		grace := time.Second              // from then on
		if ignores {
			most, grace = most+stopTimeout, grace+stopTimeout
		}
		patient := func(archive func(context.Context, engine.Info, io.Reader) error) func(*engine.Config) {
			return func(c *engine.Config) {
				leases(c)
				c.Archive, c.StopTimeout = archive, stopTimeout
			}
		}
		w := again("w", 1, func(run *engine.Run, life int) error { return nil })
		for end, c := range map[string]struct {
			stop func(t *testing.T, p *process)
			most time.Duration
		}{
			"is stopped": {func(t *testing.T, p *process) { p.stop(t) }, most},
			"is closed":  {func(t *testing.T, p *process) { p.close() }, grace},
			"is killed":  {func(t *testing.T, p *process) { p.kill() }, grace},
		} {
			t.Run(name+", engine "+end, func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					s, let, a := fresh(t), make(chan struct{}), &archive{}
					defer func() { close(let); time.Sleep(time.Second) }()
					blocks, calls, _ := blocking(let)
					p := boot(t, s, w, patient(blocks))
					start(t, w, p, "w", 0)
					time.Sleep(time.Minute)
					if i := describe(t, p, "w"); i.Life != 0 || calls.Load() != 1 {
						t.Errorf("%+v after %d calls, want it in its first life", i, calls.Load())
					}
					began := time.Now()
					c.stop(t, p)
					if took := time.Since(began); took > c.most {
						t.Errorf("the engine has ended after %v, want %v at most", took, c.most)
					}
					p = boot(t, s, w, patient(a.put))
					result(t, w.Handle(p, "w"))
					if n := a.calls(); n != 1 {
						t.Errorf("archived %d times, want 1", n)
					}
					p.stop(t)
					intact(t, s)
				})
			})
		}
		t.Run(name+", lease is lost", func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s, let, a := sharing{fresh(t)}, make(chan struct{}), &archive{}
				defer func() { close(let); time.Sleep(time.Second) }()
				blocks, calls, why := blocking(let)
				var apart atomic.Bool
				p := bootOn(t, storagetest.NewFaulty(s, func(storagetest.Call) storagetest.Fault {
					if apart.Load() {
						return storagetest.ErrorBefore
					}
					return storagetest.None
				}), w, patient(blocks))
				start(t, w, p, "w", 0)
				time.Sleep(time.Minute)
				apart.Store(true)
				other := boot(t, s, w, patient(a.put))
				within, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				if _, err := w.Handle(other, "w").Result(within); err != nil || a.calls() != 1 {
					t.Errorf("another engine: %v, archived %d times, want 1", err, a.calls())
				}
				apart.Store(false)
				time.Sleep(grace)
				h := start(t, w, p, "next", 1) // it comes back as another incarnation
				if _, err := h.Result(within); err != nil {
					t.Errorf("the engine itself, later: %v", err)
				}
				if err := why.Load(); calls.Load() != 1 || err == nil || !errors.Is(*err, activity.ErrLeaseLost) {
					t.Errorf("%d calls, the context of the first has ended with %v", calls.Load(), err)
				}
				other.stop(t)
				p.stop(t)
				intact(t, s)
			})
		})
		t.Run(name+", run is terminated", func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s, let := fresh(t), make(chan struct{})
				defer func() { close(let); time.Sleep(time.Second) }()
				blocks, _, why := blocking(let)
				p := boot(t, s, w, patient(blocks))
				start(t, w, p, "w", 0)
				time.Sleep(time.Minute)
				if err := p.Terminate(ctx, "w", audit); err != nil {
					t.Fatal(err)
				}
				time.Sleep(grace)
				if i := describe(t, p, "w"); i.Status != checkpoint.StatusCancelled || i.Life != 0 {
					t.Errorf("%+v, want it cancelled in its first life", i)
				}
				if err := why.Load(); err == nil || !errors.Is(*err, activity.ErrTerminated) {
					t.Errorf("the context of the archive has ended with %v", err)
				}
				p.stop(t)
				intact(t, s)
			})
		})
	}
}

// RET-3: what Config.Archive does beside returning an error is no archive, unless it returns nil.
func TestArchiveThatMisbehaves(t *testing.T) {
	for name, c := range map[string]struct {
		archive func(ctx context.Context, i engine.Info, history io.Reader) error
		gone    bool
	}{
		"reads nothing": {func(context.Context, engine.Info, io.Reader) error { return nil }, true},
		"reads little": {func(_ context.Context, _ engine.Info, r io.Reader) error {
			_, err := r.Read(make([]byte, 10))
			return err
		}, true},
		"closes what it reads, as a client does with the body of a request": {func(_ context.Context, _ engine.Info, r io.Reader) error {
			if c, ok := r.(io.Closer); ok {
				return c.Close()
			}
			return nil
		}, true},
		"panics":             {func(context.Context, engine.Info, io.Reader) error { panic("no") }, false},
		"ends its goroutine": {func(context.Context, engine.Info, io.Reader) error { runtime.Goexit(); return nil }, false},
		"waits for the end of its context": {func(ctx context.Context, _ engine.Info, _ io.Reader) error {
			<-ctx.Done()
			return nil
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := new(memory.Store)
				wf, log := ending("usual"), &lines{}
				p := boot(t, s, wf, archiving(c.archive), log.logger())
				result(t, start(t, wf, p, "o", "done"))
				time.Sleep(3 * time.Minute)
				if removed(t, p, "o") != c.gone {
					t.Errorf("gone: %t, want %t", !c.gone, c.gone)
				}
				if said := log.count("Config.Archive has not returned for a minute") > 0; said != strings.HasPrefix(name, "waits") {
					t.Errorf("the log says that it does not return: %t", said)
				}
				p.stop(t)
				if other := made(t, s, wf); removed(t, other, "o") != c.gone {
					t.Errorf("gone after the engine has stopped: %t, want %t", !c.gone, c.gone)
				}
			})
		})
	}
}

// RET-3: an operator's Purge archives, too, and says so if that fails. Delete does not archive.
func TestArchiveOfAPurge(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		wf := ending("usual")
		a := &archive{answer: func(call int) error {
			if call == 1 {
				return errBroke
			}
			return nil
		}}
		p := boot(t, s, wf, func(c *engine.Config) { c.Archive = a.put })
		for _, id := range []string{"purged", "deleted"} {
			if _, err := soon(start(t, wf, p, id, "done")); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Purge(ctx, "purged", audit); !errors.Is(err, errBroke) || removed(t, p, "purged") {
			t.Errorf("purge, not archived: %v, gone: %t", err, removed(t, p, "purged"))
		}
		if err := p.Purge(ctx, "purged", audit); err != nil || !removed(t, p, "purged") {
			t.Errorf("purge: %v, gone: %t", err, removed(t, p, "purged"))
		}
		if err := p.Delete(ctx, "deleted", audit); err != nil || !removed(t, p, "deleted") {
			t.Errorf("delete: %v, gone: %t", err, removed(t, p, "deleted"))
		}
		if n := a.calls(); n != 2 {
			t.Errorf("archived %d times, want 2", n)
		}
		p.stop(t)
	})
}

// RET-4: a protected workflow goes on as before, and nobody removes it.
func TestProtect(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		wf := ending("usual")
		p := boot(t, s, wf, archiving(nil))
		start(t, wf, p, "runs", "waits")
		result(t, start(t, wf, p, "done", "done"))
		hold := engine.Actor{Name: "law", Reason: "case 7"}
		for _, id := range []string{"runs", "done"} {
			for range 2 { // the second changes nothing
				if err := p.Protect(ctx, id, hold); err != nil {
					t.Fatal(err)
				}
				hold = audit
			}
			hold = engine.Actor{Name: "law", Reason: "case 7"}
			if is := describe(t, p, id).Protected; is == nil || is.By != "law" || is.Reason != "case 7" || is.At.IsZero() {
				t.Errorf("%s is protected as %+v", id, is)
			}
			wf, err := journal.Load(ctx, s, id)
			if err != nil || sprint(wf.Needs) != "[protected]" {
				t.Errorf("%s needs %v, %v", id, wf.Needs, err)
			}
		}
		if err := p.Delete(ctx, "runs", audit); !errors.Is(err, engine.ErrProtected) || describe(t, p, "runs").Status != checkpoint.StatusRunning {
			t.Errorf("delete: %v, and it is %s", err, describe(t, p, "runs").Status)
		}
		if err := p.Terminate(ctx, "runs", audit); err != nil {
			t.Errorf("terminate: %v", err)
		}
		if !strings.Contains(sprint(historyOf(t, p.Engine, "runs")), "case 7") {
			t.Error("the history does not say who protected it")
		}
		time.Sleep(5 * time.Minute)
		for _, id := range []string{"runs", "done"} {
			for verb, remove := range map[string]func(context.Context, string, engine.Actor) error{"purge": p.Purge, "delete": p.Delete} {
				if err := remove(ctx, id, audit); !errors.Is(err, engine.ErrProtected) || !strings.Contains(sprint(err), "case 7") {
					t.Errorf("%s of %s: %v, want ErrProtected", verb, id, err)
				}
			}
			if removed(t, p, id) {
				t.Errorf("%s is gone", id)
			}
		}
		for range 2 {
			if err := p.Unprotect(ctx, "done", audit); err != nil {
				t.Fatal(err)
			}
		}
		if wf, err := journal.Load(ctx, s, "done"); err != nil || wf.Needs != nil || wf.Protected != nil {
			t.Errorf("not protected, it needs %v, and says %v, %v", wf.Needs, wf.Protected, err)
		}
		time.Sleep(time.Hour)
		if !removed(t, p, "done") || removed(t, p, "runs") {
			t.Error("an hour later the one that is not protected is there, or the other is gone")
		}
		for _, verb := range []func(context.Context, string, engine.Actor) error{p.Protect, p.Unprotect} {
			if err := verb(ctx, "done", audit); !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("of one that is gone: %v", err)
			}
			if err := verb(ctx, "runs", engine.Actor{}); !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("by nobody: %v", err)
			}
		}
		p.stop(t)
		intact(t, s)
	})
}

// RET-4: a protection that comes while a workflow is being removed holds, if it was in time.
func TestProtectWhileItIsRemoved(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		wf := ending("usual")
		p := boot(t, s, wf)
		for _, how := range []string{"done", "waits"} {
			for verb, remove := range map[string]func(e *engine.Engine, id string) error{
				"purge":  func(e *engine.Engine, id string) error { return e.Purge(ctx, id, audit) },
				"delete": func(e *engine.Engine, id string) error { return e.Delete(ctx, id, audit) },
			} {
				if verb == "purge" && how == "waits" {
					continue
				}
				id := verb + how
				h := start(t, wf, p, id, how)
				if how == "done" {
					if _, err := soon(h); err != nil {
						t.Fatal(err)
					}
				}
				operator := made(t, &between{Storage: s, get: "wf:" + id, happens: func() {
					if err := p.Protect(ctx, id, audit); err != nil {
						t.Error(err)
					}
				}}, wf)
				err := remove(operator, id)
				if !errors.Is(err, engine.ErrProtected) || removed(t, p, id) {
					t.Errorf("%s of one that %s: %v, gone: %t", verb, how, err, removed(t, p, id))
				}
				operator.Close()
			}
		}
		p.stop(t)
	})
}

// RET-4: nor does retention remove what is protected a moment after it was archived.
func TestProtectWhileItIsArchived(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		wf := ending("usual")
		var p *process
		p = boot(t, s, wf, archiving(func(_ context.Context, i engine.Info, _ io.Reader) error {
			if i.ID == "o" {
				return p.Protect(ctx, i.ID, audit)
			}
			return nil
		}))
		for _, id := range []string{"a", "o", "z"} {
			result(t, start(t, wf, p, id, "done"))
		}
		time.Sleep(5 * time.Minute)
		if got := sprint(there(t, p, "a", "o", "z")); got != "[o]" {
			t.Errorf("there are %s, want [o]", got)
		}
		p.stop(t)
		intact(t, s)
	})
}

// inVirtualMemory is onStoresInVirtualTime for the store in memory.
func inVirtualMemory(t *testing.T, f func(t *testing.T, store sweep.Store)) {
	virtual(t, func(t *testing.T) { f(t, sweepStores["memory"]) })
}

// RET-10: Delete removes a workflow whatever it is doing, and does so once. An attempt that is late
// finds that it was terminated.
func TestDelete(t *testing.T) {
	for state, begin := range terminables {
		t.Run(state, func(t *testing.T) {
			play := onStoresInVirtualTime
			if state != "in an activity" && state != "parked for a signal" && os.Getenv("WEFT_TORTURE") == "" {
				play = inVirtualMemory
			}
			play(t, func(t *testing.T, store sweep.Store) {
				c := &terminable{t: t, store: store, s: store.Open(t)}
				defer func() { c.s.Close() }()
				begin(c)
				time.Sleep(time.Minute)
				waiter := make(chan error, 1)
				go func() { waiter <- c.p.Result(ctx, "o", "", nil) }()
				time.Sleep(time.Second)
				e := made(t, c.s, leases)
				if err := e.Delete(ctx, "o", audit); err != nil {
					t.Errorf("delete: %v", err)
				}
				if !removed(t, e, "o") {
					t.Error("it is there")
				}
				if err := e.Delete(ctx, "o", audit); err != nil && !errors.Is(err, engine.ErrNotFound) {
					t.Errorf("delete again: %v", err)
				}
				if err := <-waiter; !errors.Is(err, engine.ErrNotFound) && !errors.Is(err, engine.ErrCancelled) {
					t.Errorf("who waited for the result got %v", err)
				}
				e.Close()
				time.Sleep(time.Minute)
				if c.release != nil {
					close(c.release)
				}
				c.p.stop(t)
				intact(t, c.s)
				if cause := c.cause.Load(); state == "in an activity" && (cause == nil || !errors.Is(*cause, activity.ErrTerminated)) {
					t.Errorf("the attempt ended with %v, want ErrTerminated", cause)
				}
				if left := entries(t, c.s, "held:"); len(left) > 0 {
					t.Errorf("left: %q", left)
				}
			})
		})
	}
}

// RET-5: whatever call to the store fails, or at whichever the process is killed, a workflow is removed
// once it is old, and the next one of its id sees nothing of it.
func TestRetentionWhateverFails(t *testing.T) {
	stride := 17
	switch {
	case os.Getenv("WEFT_TORTURE") != "":
		stride = 1
	case torture.Raced():
		stride = 71
	}
	t.Logf("%d plays", sweep.Every(t, sweepStores["memory"], stride, removing))
}

// RET-6: a parent is removed before its abandoned child ends, a child before its parent looks how
// it ended, and neither hangs.
func TestRetentionOfParentsAndChildren(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		child := flow("child", func(run *engine.Run) (string, error) { return "from the child", run.Sleep(time.Minute) })
		slow := flow("slow", func(run *engine.Run) (string, error) { return "slow", run.Sleep(20 * time.Minute) })
		parent := flow("parent", func(run *engine.Run) (string, error) {
			f := child.AsChild(engine.ChildOptions{ID: "child"}).Go(run, "")
			if err := run.Sleep(15 * time.Minute); err != nil {
				return "", err
			}
			return f.Get(run)
		})
		leaving := flow("leaving", func(run *engine.Run) (string, error) {
			slow.AsChild(engine.ChildOptions{ID: "slow", OnParentEnd: engine.ParentEndAbandon}).Go(run, "")
			return "left", nil
		})
		p := boot(t, s, child, slow, parent, leaving, archiving(nil))
		h, abandons := start(t, parent, p, "parent", ""), start(t, leaving, p, "leaving", "")
		result(t, abandons)
		time.Sleep(5 * time.Minute)
		if got := sprint(there(t, p, "parent", "child", "leaving", "slow")); got != "[parent slow]" {
			t.Errorf("after 5 minutes there are %s, want [parent slow]", got)
		}
		if got := result(t, h); got != "from the child" {
			t.Errorf("the parent got %q of its child that was removed", got)
		}
		if got := result(t, slow.Handle(p, "slow")); got != "slow" {
			t.Errorf("the child of a parent that was removed: %q", got)
		}
		time.Sleep(5 * time.Minute)
		if got := there(t, p, "parent", "child", "leaving", "slow"); len(got) > 0 {
			t.Errorf("in the end there are %s", got)
		}
		p.stop(t)
		intact(t, s)
	})
}

// RET-7: a workflow stays while a signal that it has accepted is still to be remembered, and no
// longer, also if it has not received the signal.
func TestRetentionWaitsForSignals(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		wf := flow("hears", func(run *engine.Run) (string, error) {
			if err := run.Sleep(time.Second); err != nil { // until both are accepted
				return "", err
			}
			return yes.Receive(run)
		})
		p := boot(t, s, wf, archiving(nil), func(c *engine.Config) { c.SignalIDRetention = 30 * time.Minute })
		h := start(t, wf, p, "o", "")
		ids := []string{"first", "second"}
		for _, id := range ids {
			if _, err := p.SendSignal(ctx, signal.Message{WorkflowID: "o", Name: yes.Name, ID: &id, Payload: "yes"}); err != nil {
				t.Fatal(err)
			}
		}
		result(t, h)
		time.Sleep(29 * time.Minute)
		again, err := p.SendSignal(ctx, signal.Message{WorkflowID: "o", Name: yes.Name, ID: &ids[0], Payload: "yes"})
		if err != nil || !again.Repeated {
			t.Errorf("the signal again: %+v, %v", again, err)
		}
		time.Sleep(time.Hour)
		if !removed(t, p, "o") {
			t.Error("an hour after its signals were to be remembered, it is there")
		}
		if _, err := p.SendSignal(ctx, signal.Message{WorkflowID: "o", Name: yes.Name, ID: &ids[0], Payload: "yes"}); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("the signal to one that is gone: %v", err)
		}
		p.stop(t)
		intact(t, s)
	})
}

// A looker counts the entries of ended workflows that are read between two polls.
type looker struct {
	storage.Storage
	now, most, all atomic.Int64
}

func (l *looker) Unwrap() storage.Storage { return l.Storage }

func (l *looker) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	page, err := l.Storage.Scan(ctx, r)
	switch from := string(r.Start); {
	case strings.HasPrefix(from, "todo:"):
		l.now.Store(0)
	case strings.HasPrefix(from, "ls:usual:completed:") && r.Limit != 1:
		l.all.Add(int64(len(page)))
		if n := l.now.Add(int64(len(page))); n > l.most.Load() {
			l.most.Store(n)
		}
	}
	return page, err
}

// RET-8, RET-9: a look removes at most 2,000, and the next one goes on with the others. What has to
// stay is passed once, however much it is.
func TestRetentionLooksLittleByLittle(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &looker{Storage: new(memory.Store)}
		wf := ending("usual")
		first := boot(t, s, wf)
		const protected, more = 150, 1900
		var wg sync.WaitGroup
		next := atomic.Int64{}
		for range 50 {
			wg.Go(func() {
				for i := next.Add(1); i <= protected+more; i = next.Add(1) {
					id := fmt.Sprint(i)
					result(t, start(t, wf, first, id, "done"))
					if i <= protected {
						if err := first.Protect(ctx, id, audit); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Wait()
		first.stop(t)
		p := boot(t, s, wf, archiving(nil))
		time.Sleep(20 * time.Minute)
		n, all, err := p.Count(ctx, engine.Filter{}, 10_000)
		if err != nil || n != protected || !all {
			t.Errorf("%d are there (all: %t), %v; want %d", n, all, err, protected)
		}
		if most := s.most.Load(); most > 2000 || most < 1000 {
			t.Errorf("a look read %d entries, want 2000", most)
		}
		if read := s.all.Load(); read > protected+more+100 {
			t.Errorf("%d entries were read of %d", read, protected+more)
		}
		result(t, start(t, wf, p, "later", "done"))
		time.Sleep(5 * time.Minute)
		if !removed(t, p, "later") {
			t.Error("what ended behind those that have to stay is there")
		}
		p.stop(t)
		intact(t, s)
	})
}

// RET-9: workflows whose archive fails slowly hold up no others, of their type or of another one.
func TestRetentionBesideASlowArchive(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const slow = 200
		s := new(memory.Store)
		a, b := ending("a"), ending("b")
		first := boot(t, s, a, b)
		for i := range slow + 1 {
			result(t, start(t, a, first, fmt.Sprintf("a%03d", i), "done"))
			time.Sleep(time.Millisecond)
		}
		result(t, start(t, b, first, "b", "done"))
		first.stop(t)
		var tries atomic.Int64
		p := boot(t, s, a, b, archiving(func(ctx context.Context, i engine.Info, _ io.Reader) error {
			if strings.HasPrefix(i.ID, "a") && i.ID < fmt.Sprintf("a%03d", slow) {
				tries.Add(1)
				select {
				case <-time.After(10 * time.Minute):
				case <-ctx.Done():
				}
				return errBroke
			}
			return nil
		}))
		time.Sleep(90 * time.Minute) // 16 at once: 100 take 70 minutes
		equal(t, "of b", there(t, p, "b"), "[]")
		time.Sleep(150 * time.Minute)
		equal(t, "behind those that stay", there(t, p, fmt.Sprintf("a%03d", slow)), "[]")
		time.Sleep(2 * time.Hour)
		if n := tries.Load(); n <= slow {
			t.Errorf("%d tries: those that stay were not tried again", n)
		}
		p.kill()
	})
}

// RET-9: the next look begins with another type of workflow if one has failed.
func TestRetentionOfTypesHasTurns(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, log := new(memory.Store), new(lines)
		a, b := ending("a"), ending("b")
		f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Get" && strings.HasPrefix(string(c.Key), string(keys.Workflow("a"))) {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		first := boot(t, s, a, b)
		for i := range 500 {
			result(t, start(t, a, first, fmt.Sprintf("a%03d", i), "done"))
		}
		result(t, start(t, b, first, "b", "done"))
		first.stop(t)
		p := bootOn(t, f, a, b, retaining(engine.Retention{Completed: time.Minute}), log.logger())
		for log.count("were not removed; trying again in a minute") == 0 {
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Minute)
		equal(t, "of b", there(t, p, "b"), "[]")
		p.kill()
	})
}

// While an engine executes workflows, it removes others in a tenth of its time. It takes all the time it
// needs when they should have been gone for an hour, so that a store whose engine is never idle does
// not grow for ever.
func TestRetentionBesideWork(t *testing.T) {
	for _, c := range []struct {
		overdue     time.Duration
		least, most time.Duration
	}{
		{50 * time.Minute, 25 * time.Second, 75 * time.Second}, // six commits of a second, and rests
		{70 * time.Minute, 4 * time.Second, 15 * time.Second},
	} {
		virtual(t, func(t *testing.T) {
			const n = 550
			slow := &hooked{Storage: new(memory.Store), beforeCommit: func(b storage.Batch) {
				if len(b.Ops) > 100 { // removes many
					time.Sleep(time.Second)
				}
			}}
			wf := ending("usual")
			stays := flow("stays", func(run *engine.Run) (string, error) { return "", run.Sleep(24 * time.Hour) })
			first := boot(t, slow.Storage, wf)
			for i := range n {
				result(t, start(t, wf, first, fmt.Sprint(i), "done"))
			}
			time.Sleep(time.Hour + c.overdue) // while an engine runs: what passes without one is not certain
			first.stop(t)
			var left atomic.Int64
			left.Store(n)
			done := make(chan struct{})
			p := boot(t, slow, wf, stays, parkAfter(48*time.Hour), retaining(engine.Retention{Completed: time.Hour}), func(c *engine.Config) {
				c.Events.Removed = func(engine.RemovedEvent) {
					if left.Add(-1) == 0 {
						close(done)
					}
				}
			})
			start(t, stays, p, "stays", "")
			for left.Load() == n {
				time.Sleep(time.Second)
			}
			began := time.Now()
			<-done
			if took := time.Since(began); took < c.least || took > c.most {
				t.Errorf("what is overdue for %v was removed in %v, want %v to %v", c.overdue, took, c.least, c.most)
			}
			p.stop(t)
			intact(t, slow.Storage)
		})
	}
}

// RET-8: for ten minutes after the wall clock has jumped by a minute, nothing is removed.
func TestRetentionAfterAJumpOfTheClock(t *testing.T) {
	for _, by := range []time.Duration{time.Minute, -time.Minute} {
		onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
			s := store.Open(t)
			defer func() { s.Close() }()
			var clock wall
			wf := ending("usual")
			p := bootAt(t, s, &clock, wf, retaining(engine.Retention{Completed: 10 * time.Minute}))
			result(t, start(t, wf, p, "o", "done"))
			time.Sleep(9 * time.Minute)
			clock.jump(by)
			time.Sleep(9*time.Minute + 30*time.Second)
			if removed(t, p, "o") {
				t.Errorf("removed less than ten minutes after a jump by %v", by)
			}
			time.Sleep(time.Minute)
			if !removed(t, p, "o") {
				t.Errorf("ten minutes after a jump by %v it is there", by)
			}
			p.stop(t)
		})
	}
}

// RET-10: a late attempt, a start, a signal and the end of a child find a workflow that is removed
// beside them, or begin anew.
func TestWhatComesBesideARemoval(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		rounds := 6
		if os.Getenv("WEFT_TORTURE") != "" {
			rounds = 500
		}
		act := &activity.Activity[string, string]{Name: "late", IdempotencyKey: func(in string) string { return in }, Idempotent: true,
			Run: func(ctx context.Context, in string) (string, error) {
				if in == "hangs" {
					<-ctx.Done() // it ignores that, and is late
				}
				return "done", activity.Heartbeat(ctx, "half")
			}}
		child := flow("child", func(run *engine.Run) (string, error) {
			got, _, err := yes.ReceiveWithin(run, time.Hour)
			return got, err
		})
		wf := &engine.Workflow[string, string]{Name: "usual", Func: func(run *engine.Run, in string) (string, error) {
			child.AsChild(engine.ChildOptions{ID: "child-" + run.ID(), OnParentEnd: engine.ParentEndAbandon}).Go(run, "")
			return act.Do(run, in)
		}}
		p := boot(t, s, wf, child, func(c *engine.Config) { c.PollInterval = 20 * time.Millisecond })
		for i := range rounds {
			id, in := fmt.Sprint("o", i), []string{"hangs", "ends"}[i%2]
			start(t, wf, p, id, in)
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := p.Delete(ctx, id, audit); err != nil {
					t.Errorf("delete: %v", err)
				}
			})
			wg.Go(func() {
				if _, err := wf.Start(ctx, p, id, in); err != nil {
					t.Errorf("start: %v", err)
				}
			})
			wg.Go(func() {
				_, err := p.SendSignal(ctx, signal.Message{WorkflowID: id, Name: yes.Name, Payload: "yes"})
				if err != nil && !errors.Is(err, engine.ErrNotFound) && !errors.Is(err, engine.ErrTerminal) {
					t.Errorf("signal: %v", err)
				}
			})
			wg.Go(func() {
				_, err := p.SendSignal(ctx, signal.Message{WorkflowID: "child-" + id, Name: yes.Name, Payload: "yes"})
				if err != nil && !errors.Is(err, engine.ErrNotFound) && !errors.Is(err, engine.ErrTerminal) {
					t.Errorf("signal to the child: %v", err)
				}
			})
			wg.Wait()
			if err := p.Delete(ctx, id, audit); err != nil && !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("delete again: %v", err)
			}
			if !removed(t, p, id) {
				t.Errorf("%s is there", id)
			}
		}
		p.stop(t)
		intact(t, s)
	})
}
