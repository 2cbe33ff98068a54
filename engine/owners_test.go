package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// Interleaving 2: a run is ended from elsewhere while its owner is in an activity. What
// the owner then commits is refused, once and for all: the end stands as it was written.
func TestEndFromElsewhereStands(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		began := make(chan bool, 1)
		slow := &activity.Activity[int, int]{Name: "slow", Run: func(ctx context.Context, i int) (int, error) {
			began <- true
			time.Sleep(10 * time.Second)
			return i, nil
		}}
		wf := flow("w", func(run *engine.Run) (string, error) {
			_, err := slow.Do(run, 1)
			return "done", err
		})
		var told heard
		p := boot(t, s, wf, told.listen)
		time.Sleep(time.Second)
		h := start(t, wf, p, "o", "")
		<-began
		read, err := journal.Load(ctx, s, "o")
		if err != nil {
			t.Fatal(err)
		}
		hold, err := journal.Find(ctx, s, read)
		if err != nil {
			t.Fatal(err)
		}
		ended := *read
		ended.Status, ended.EndedAt = checkpoint.StatusCancelled, journal.Micro(time.Now())
		out, err := journal.PutOutput("o", &journal.Output{Generation: read.Generation, Status: checkpoint.StatusCancelled})
		if err != nil {
			t.Fatal(err)
		}
		w, err := hold.Append(journal.Change{
			Events:   []checkpoint.Event{{Kind: checkpoint.KindEnded, Name: string(checkpoint.StatusCancelled), By: "ann"}},
			Workflow: &ended,
			Ops:      []storage.Op{out},
		}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if v, err := journal.Commit(ctx, s, w, nil); v != journal.Done {
			t.Fatalf("the end from elsewhere: %v, %v", v, err)
		}
		before := get(t, s, keys.Workflow("o"))
		time.Sleep(time.Minute)
		if after := get(t, s, keys.Workflow("o")); string(after) != string(before) {
			t.Error("the record has changed after the end")
		}
		if _, err := h.Result(ctx); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("result: %v, want ErrCancelled", err)
		}
		for _, k := range kinds(historyOf(t, p.Engine, "o")) {
			if k == checkpoint.KindSettled {
				t.Error("the activity's outcome is in the history")
			}
		}
		if got := told.told(); len(got) != 1 || got[0] != "fenced o" {
			t.Errorf("told %q, want that it was fenced", got)
		}
	})
}

// lateCommit keeps back a batch, as a network may, until landing is closed. Its sender has died meanwhile, or given up.
type lateCommit struct {
	storage.Storage
	is      func(storage.Batch) bool // the batch
	sent    chan bool
	landing chan bool
	landed  chan error
}

func (l *lateCommit) Unwrap() storage.Storage { return l.Storage }

func (l *lateCommit) Commit(ctx context.Context, b storage.Batch) error {
	if !l.is(b) {
		return l.Storage.Commit(ctx, b)
	}
	l.sent <- true
	go func() {
		<-l.landing
		l.landed <- l.Storage.Commit(context.Background(), b)
	}()
	<-ctx.Done()
	return ctx.Err()
}

// creates is whether a batch creates what is under a key.
func creates(key []byte) func(storage.Batch) bool {
	return func(b storage.Batch) bool {
		return slices.ContainsFunc(b.If, func(c storage.Condition) bool { return c.Kind == storage.IsAbsent && bytes.Equal(c.Key, key) })
	}
}

// commitsLate returns a store that keeps back a batch.
func commitsLate(s storage.Storage, is func(storage.Batch) bool) *lateCommit {
	return &lateCommit{s, is, make(chan bool, 1), make(chan bool), make(chan error, 1)}
}

// Interleaving 5: a start is under way when its engine dies and is succeeded. What lands
// later is found too: within a poll or two, and within ten if its owner is long dead.
func TestStartThatLandsAfterItsEngineDied(t *testing.T) {
	t.Run("soon", func(t *testing.T) { startLands(t, 25*time.Second, 3*time.Second) })
	t.Run("late", func(t *testing.T) { startLands(t, time.Minute, 12*time.Second) })
}

func startLands(t *testing.T, after, within time.Duration) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		wf := flow("w", func(run *engine.Run) (string, error) { return "done", nil })
		late := commitsLate(s, creates(keys.Workflow("late")))
		f := storagetest.NewFaulty(late, nil)
		a := bootOn(t, f, wf, as("a"))
		time.Sleep(time.Second)
		abandoned, abandon := context.WithCancel(ctx)
		defer abandon()
		started := make(chan error, 1)
		go func() {
			_, err := wf.Start(abandoned, a, "late", "")
			started <- err
		}()
		<-late.sent
		f.Crash()
		b := boot(t, s, wf, as("b"))
		time.Sleep(after)
		if infos, err := b.Engines(ctx); err != nil || len(infos) != 2 || infos[0].Alive {
			t.Fatalf("%+v, %v, want a to be found dead", infos, err)
		}
		close(late.landing)
		if err := <-late.landed; err != nil {
			t.Fatalf("the late start: %v", err)
		}
		time.Sleep(within)
		if i := describe(t, b, "late"); i.Status != checkpoint.StatusCompleted {
			t.Errorf("%+v, want it completed by b", i)
		}
		if first := historyOf(t, b.Engine, "late")[0].Events[0].By; !strings.HasPrefix(first, "a-") {
			t.Errorf("first owned by %q, want the one that is dead", first)
		}
		abandon()
		<-started
	})
}

// OW3: an engine that reads a lease and is then suspended for longer than that lasts
// judges what it has read by what is stored: the holder has renewed it meanwhile.
func TestDeathOfWhoRenewedMeanwhile(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		deposed := func(c *engine.Config) {
			c.Events.Deposed = func(d engine.DeposedEvent) { t.Errorf("%s has lost its lease", d.Incarnation) }
		}
		wf := flow("w", func(run *engine.Run) (string, error) { return "done", run.Sleep(time.Minute) })
		a := boot(t, s, wf, as("a"), deposed, parkAfter(time.Hour))
		time.Sleep(time.Second)
		h := start(t, wf, a, "o", "")
		looks := 0
		b := boot(t, &hooked{Storage: s, afterGet: func(key []byte) {
			if strings.HasPrefix(string(key), "eng:a-") {
				if looks++; looks == 2 {
					time.Sleep(20 * time.Second)
				}
			}
		}}, wf, as("b"))
		if got := result(t, h); got != "done" || looks < 3 {
			t.Errorf("got %q after %d looks at the lease", got, looks)
		}
		infos, err := b.Engines(ctx)
		if err != nil || len(infos) != 2 || !infos[0].Alive {
			t.Errorf("%+v, %v, want a to be alive", infos, err)
		}
	})
}

// Interleaving 19, OW3: a renewal lands, unheard, and is found "mine" eight seconds later.
// It is trusted from its first sending on: its holder stops before anybody may succeed
// it.
func TestTrustBeginsWithTheFirstSending(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		sent := time.Now() // of the last renewal that landed, from a minute on
		var renewal string // that one
		var down, unresponsive atomic.Bool
		f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			switch {
			case unresponsive.Load() && c.Batch.Urgent && string(c.Batch.Ops[0].Value) != renewal:
				return storagetest.ErrorBefore
			case down.Load():
				return storagetest.ErrorBefore
			case c.Batch.Urgent && time.Since(sent) > time.Minute:
				sent, renewal = time.Now(), string(c.Batch.Ops[0].Value)
				down.Store(true)
				return storagetest.ErrorAfter
			}
			return storagetest.None
		})
		stopped := make(chan time.Time, 10)
		slow := &activity.Activity[int, int]{Name: "slow", Timeout: time.Hour, Run: func(ctx context.Context, i int) (int, error) {
			select {
			case <-ctx.Done():
				stopped <- time.Now()
			case <-time.After(10 * time.Minute):
			}
			return i, ctx.Err()
		}}
		wf := flow("w", func(run *engine.Run) (string, error) {
			_, err := slow.Do(run, 1)
			return "done", err
		})
		var told heard
		a := bootOn(t, f, wf, as("a"))
		time.Sleep(time.Second)
		start(t, wf, a, "o", "")
		taken := make(chan time.Time, 10)
		boot(t, s, wf, as("b"), told.listen, func(c *engine.Config) {
			c.Events.Takeover = func(engine.TakeoverEvent) { taken <- time.Now() }
		})
		for !down.Load() {
			time.Sleep(time.Second)
		}
		left := sent
		time.Sleep(time.Until(left.Add(8 * time.Second)))
		unresponsive.Store(true) // and from now on nothing is stored
		down.Store(false)
		ended := (<-stopped).Sub(left)
		f.Crash() // nor does it come back
		succeeded := (<-taken).Sub(left)
		if ended > 15*time.Second || ended < 14*time.Second {
			t.Errorf("the holder stopped %v after the renewal had left, want its TTL of 15s", ended)
		}
		if succeeded < ended {
			t.Errorf("it was succeeded after %v, and stopped after %v", succeeded, ended)
		}
	})
}

// OW8: an engine that is told to stop finishes its activities and hands over at once.
// Three engines under load are replaced, one after the other: no run stands still for
// longer than a poll, and none of their activities is begun twice.
func TestRollingRestart(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		const runs, steps, poll = 30, 60, time.Second
		var mu sync.Mutex
		last := map[string]time.Time{} // when a run's activity ended last
		begun := map[string]int{}
		var longest time.Duration
		work := &activity.Activity[int, int]{Name: "work", Run: func(ctx context.Context, i int) (int, error) {
			info := activity.InfoFrom(ctx)
			mu.Lock()
			if ended, ok := last[info.WorkflowID]; ok {
				longest = max(longest, time.Since(ended))
			}
			begun[info.WorkflowID+"/"+info.Operation]++
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			last[info.WorkflowID] = time.Now()
			mu.Unlock()
			return i, nil
		}}
		wf := flow("w", func(run *engine.Run) (string, error) {
			for i := range steps {
				if _, err := work.Do(run, i); err != nil {
					return "", err
				}
			}
			return "done", nil
		})
		var all []*process
		for i := range 3 {
			all = append(all, boot(t, s, wf, as(fmt.Sprint("old", i))))
		}
		time.Sleep(2 * poll)
		for i := range runs {
			start(t, wf, all[i%3], fmt.Sprint(i), "")
		}
		for i, old := range all {
			time.Sleep(10 * time.Second)
			boot(t, s, wf, as(fmt.Sprint("new", i)))
			old.stop(t)
		}
		client := made(t, s)
		for i := range runs {
			if got := result(t, wf.Handle(client, fmt.Sprint(i))); got != "done" {
				t.Errorf("run %d: %q", i, got)
			}
		}
		if longest > poll {
			t.Errorf("a run stood still for %v, want at most a poll", longest)
		}
		if longest == 0 {
			t.Error("no run changed hands")
		}
		if len(begun) != runs*steps {
			t.Errorf("%d activities were begun, want %d", len(begun), runs*steps)
		}
		for what, n := range begun {
			if n != 1 {
				t.Errorf("%s was begun %d times", what, n)
			}
		}
	})
}
