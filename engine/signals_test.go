package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

func signalsOf(t testing.TB, e *engine.Engine, id string) (ids []string) {
	t.Helper()
	for i, err := range e.Signals(ctx, id) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, i.Name+"/"+i.ID)
	}
	return ids
}

// SG2: what a workflow has not consumed stays listed, in the order of acceptance,
// after it has ended too, until it is purged.
func TestSignalsAreListed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		wf := receiving(1)
		p := boot(t, s, wf)
		left := &signal.Signal[string]{Name: "left"}
		h := start(t, wf, p, "o", "")
		first := send(t, left, p, "o", "0123456789", "b")
		send(t, left, p, "o", "v", "a")
		send(t, approved, p, "o", "v", "c")
		result(t, h)
		for i, err := range p.Signals(ctx, "o") {
			if want := (engine.SignalInfo{Name: "left", ID: "b", AcceptedAt: first.AcceptedAt, Bytes: 12}); err != nil || i != want {
				t.Errorf("the first is %+v, %v, want %+v", i, err, want)
			}
			break
		}
		if got := signalsOf(t, p.Engine, "o"); !slices.Equal(got, []string{"left/b", "left/a"}) {
			t.Errorf("left are %q", got)
		}
		if err := p.Purge(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		for _, err := range p.Signals(ctx, "o") {
			if !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("purged: %v, want ErrNotFound", err)
			}
		}
	})
}

// A signal that an operator has cleared is not received, also by a run that has
// it in memory already; its ID stays taken.
func TestClearSignal(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		other := &signal.Signal[string]{Name: "other"}
		wf := flow("w", func(run *engine.Run) (string, error) {
			a, err := approved.Receive(run)
			if err != nil {
				return "", err
			}
			if err := run.Sleep(time.Hour); err != nil {
				return "", err
			}
			b, err := approved.Receive(run)
			if err != nil {
				return "", err
			}
			c, err := other.Drain(run)
			return a + b + fmt.Sprint(c), err
		})
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", "")
		for _, v := range []string{"a", "b", "c", "d"} {
			send(t, approved, p, "o", v, v)
			send(t, other, p, "o", v, v)
		}
		time.Sleep(time.Minute) // a was received; the others are in memory
		for _, id := range []string{"b", "c"} {
			if err := p.ClearSignal(ctx, "o", "approved", id, audit); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.ClearSignal(ctx, "o", "other", "a", audit); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a", "b", "x"} {
			if err := p.ClearSignal(ctx, "o", "approved", id, audit); !errors.Is(err, engine.ErrNotApplicable) {
				t.Errorf("clear %q, which does not wait: %v, want ErrNotApplicable", id, err)
			}
		}
		send(t, approved, p, "o", "b", "b") // a repetition
		if got := result(t, h); got != "ad[b c d]" {
			t.Errorf("received %q, want a and d, and b, c, d", got)
		}
		if err := p.ClearSignal(ctx, "nobody", "approved", "a", audit); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("of nobody: %v, want ErrNotFound", err)
		}
		if err := p.ClearSignal(ctx, "o", "approved", "a", engine.Actor{}); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("by nobody: %v, want ErrInvalid", err)
		}
	})
}

// A signal is cleared or received, whatever the outcome of the commit that clears
// it; what an operator did stands in the history.
func TestClearSignalOfUnknownOutcome(t *testing.T) {
	for _, fault := range []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter} {
		virtual(t, func(t *testing.T) {
			s := new(memory.Store)
			var once atomic.Bool
			f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
				if c.Method == "Commit" && len(c.Batch.Ops) > 0 && touches(c.Batch, "sig:") && !touches(c.Batch, "sigseq:") && once.CompareAndSwap(false, true) {
					return fault
				}
				return storagetest.None
			})
			wf := receiving(1)
			client := made(t, f)
			defer client.Close()
			start(t, wf, client, "o", "")
			send(t, approved, client, "o", "a", "a")
			send(t, approved, client, "o", "b", "b")
			if err := client.ClearSignal(ctx, "o", "approved", "a", audit); err != nil {
				t.Fatal(err)
			}
			p := boot(t, s, wf)
			if got := result(t, wf.Handle(p, "o")); got != "b" {
				t.Errorf("received %q, want b", got)
			}
			found := false
			for _, c := range historyOf(t, p.Engine, "o") {
				for _, e := range c.Events {
					found = found || e.Kind == checkpoint.KindActed && e.Name == "clear signal approved a" && e.By == audit.Name && e.Why == audit.Reason
				}
			}
			if !found {
				t.Error("the history does not tell who cleared it")
			}
		})
	}
}

// A second clear of a signal, in the words of the first, is not taken for the first when
// somebody else was quicker.
func TestSameClearOfASignal(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := &hooked{Storage: fresh(t)}
		var p *process
		clears := func(by engine.Actor) error { return p.ClearSignal(ctx, "o", "approved", "a", by) }
		var meets atomic.Bool // before the next commit of o
		h.beforeCommit = func(b storage.Batch) {
			if isOf(b, "o") && meets.CompareAndSwap(true, false) {
				if err := clears(engine.Actor{Name: "bob", Reason: "was quicker"}); err != nil {
					t.Error(err)
				}
			}
		}
		wf := flow("w", func(run *engine.Run) (string, error) { return no.Receive(run) })
		p = boot(t, h, wf)
		o := start(t, wf, p, "o", "")
		brief := &signal.Signal[string]{Name: "approved", ExpiresAfter: time.Minute}
		send(t, brief, p, "o", "a", "a")
		if err := clears(audit); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Hour) // it is forgotten
		send(t, brief, p, "o", "a", "a")
		time.Sleep(time.Second)
		meets.Store(true)
		if err := clears(audit); !errors.Is(err, engine.ErrNotApplicable) || meets.Load() {
			t.Errorf("clear: %v, want ErrNotApplicable", err)
		}
		send(t, no, p, "o", "done", "")
		if got := result(t, o); got != "done" {
			t.Errorf("result %q", got)
		}
		p.stop(t)
	})
}

// A clear and a receipt of the same signal race: one of them has it.
func TestClearSignalRacesWithItsReceipt(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := &hooked{Storage: new(memory.Store)}
		wf := receiving(1)
		operator := made(t, h)
		defer operator.Close()
		var cleared atomic.Int32
		h.beforeCommit = func(b storage.Batch) {
			if appendsTo(b, "o") && touches(b, "inbox:o:") && cleared.Add(1) == 1 {
				if err := operator.ClearSignal(ctx, "o", "approved", "a", audit); err != nil {
					t.Errorf("clear while it is about to be received: %v", err)
				}
			}
		}
		p := boot(t, h, wf)
		o := start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		send(t, approved, operator, "o", "a", "a") // apart from the engine that drives it
		time.Sleep(time.Minute)
		if cleared.Load() != 1 {
			t.Errorf("the run was to receive it %d times", cleared.Load())
		}
		send(t, approved, operator, "o", "b", "b")
		if got := result(t, o); got != "b" || cleared.Load() != 2 {
			t.Errorf("received %q, want b: a was cleared", got)
		}
	})
}

// counted counts what is read, and how much at once.
type counted struct {
	storage.Storage
	calls, largest, commits atomic.Int64
}

func (c *counted) Unwrap() storage.Storage { return c.Storage }

func (c *counted) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	page, err := c.Storage.Scan(ctx, r)
	c.calls.Add(1)
	c.largest.Store(max(c.largest.Load(), int64(len(page))))
	return page, err
}

func (c *counted) Commit(ctx context.Context, b storage.Batch) error {
	c.commits.Add(1)
	return c.Storage.Commit(ctx, b)
}

func (c *counted) Get(ctx context.Context, key []byte) ([]byte, error) {
	c.calls.Add(1)
	return c.Storage.Get(ctx, key)
}

// A lateContext makes who is about to wait for its end late by a second.
type lateContext struct{ context.Context }

func (c lateContext) Done() <-chan struct{} {
	time.Sleep(time.Second)
	return c.Context.Done()
}

// A signal to a run that waits here costs what it must: two commits (it is
// accepted and received, and the run ends) and no read.
func TestSignalToAWaitingRunCostsLittle(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &counted{Storage: new(memory.Store)}
		wf := receiving(1)
		p := boot(t, s, wf, func(c *engine.Config) { c.PollInterval = time.Hour })
		time.Sleep(time.Second) // it runs
		for name, ctx := range map[string]context.Context{
			"a sender that waits": ctx,
			// It goes on when the run has long ended.
			"a sender that is late": lateContext{ctx},
		} {
			for n := range 20 {
				id := fmt.Sprint(name, n)
				h := start(t, wf, p, id, "")
				time.Sleep(time.Second)
				s.calls.Store(0)
				s.commits.Store(0)
				if _, err := approved.Send(ctx, p, id, "v", &signal.Options{ID: "evt_1"}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if calls, commits := s.calls.Load(), s.commits.Load(); calls != 0 || commits != 2 {
					t.Fatalf("%s: %d reads and %d commits, want 0 and 2", name, calls, commits)
				}
				if got := result(t, h); got != "v" {
					t.Errorf("%s: received %q", name, got)
				}
			}
		}
	})
}

// A perused store counts reads of the inbox, and of what is known of activities.
type perused struct {
	storage.Storage
	inbox, activities atomic.Int64
}

func (p *perused) Unwrap() storage.Storage { return p.Storage }

func (p *perused) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	if strings.HasPrefix(string(r.Start), "inbox:") {
		p.inbox.Add(1)
	}
	return p.Storage.Scan(ctx, r)
}

func (p *perused) Get(ctx context.Context, key []byte) ([]byte, error) {
	if strings.HasPrefix(string(key), "act:") {
		p.activities.Add(1)
	}
	return p.Storage.Get(ctx, key)
}

// A signal of another engine costs a run that waits for one of another name a look behind those that it knows. It
// reads neither these again nor what is known of its activities.
func TestSignalsOfAnotherEngineCostLittle(t *testing.T) {
	virtual(t, func(t *testing.T) {
		late := &signal.Signal[string]{Name: "late"}
		a, _ := keyed(func(ctx context.Context, _ int) (string, error) { <-ctx.Done(); return "", ctx.Err() }, nil)
		a.Timeout = 3 * time.Hour
		wf := flow("w", func(run *engine.Run) (string, error) {
			for i := range 20 {
				a.Go(run, fmt.Sprint(i))
			}
			return late.Receive(run)
		})
		s := &perused{Storage: new(memory.Store)}
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		for range 1000 {
			send(t, approved, p, "o", "v", "")
		}
		other := made(t, s)
		defer other.Close()
		time.Sleep(time.Second)
		s.inbox.Store(0)
		s.activities.Store(0)
		const signals = 20
		for range signals {
			send(t, approved, other, "o", "v", "")
			time.Sleep(2 * time.Second) // and a poll
		}
		if n := s.inbox.Load(); n < signals || n > 5*signals {
			t.Errorf("%d signals had the inbox read %d times", signals, n)
		}
		if n := s.activities.Load(); n != 0 {
			t.Errorf("%d signals had the records of activities read %d times", signals, n)
		}
		send(t, late, other, "o", "done", "")
		if got := result(t, h); got != "done" {
			t.Errorf("result %q", got)
		}
	})
}

// crowdOfSignals is how many signals wait for one workflow.
func crowdOfSignals() int {
	return torture.Rounds(100_000, 10_000, 3_000)
}

// Interleaving 33 (first half), LV5, T16: however many signals wait, they are
// accepted, listed in pages and consumed in order; the number of reads grows with
// that of the signals, and a run has no more than a page of each name in memory.
func TestManySignalsWait(t *testing.T) {
	virtual(t, func(t *testing.T) {
		n := crowdOfSignals()
		late := &signal.Signal[string]{Name: "late"}
		wf := &engine.Workflow[int, string]{Name: "w", Func: func(run *engine.Run, n int) (string, error) {
			if _, err := late.Receive(run); err != nil { // behind all the others
				return "", err
			}
			for i := range n {
				v, err := approved.Receive(run)
				if err != nil {
					return "", err
				}
				if v != fmt.Sprint(i) {
					return "", fmt.Errorf("%dth is %q", i, v)
				}
			}
			return "all", nil
		}}
		s := &counted{Storage: new(memory.Store)}
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", n)
		const senders = 50
		for at := 0; at < n; at += senders {
			var wg sync.WaitGroup
			for i := at; i < at+senders; i++ {
				wg.Go(func() { sent(t, p, "o", fmt.Sprint(i), fmt.Sprint(i)) })
				synctest.Wait()
			}
			wg.Wait()
		}
		if held := engine.SignalsInMemory(p.Engine, "o"); held > 100 {
			t.Errorf("a run that waits for another name has %d signals in memory", held)
		}
		listed := 0
		for i, err := range p.Signals(ctx, "o") {
			if err != nil || i.ID != fmt.Sprint(listed) {
				t.Fatalf("signal %d: %+v, %v", listed, i, err)
			}
			if listed++; listed == n {
				break
			}
		}
		s.calls.Store(0)
		s.largest.Store(0)
		send(t, late, p, "o", "go on", "")
		if got := result(t, h); got != "all" {
			t.Errorf("got %q", got)
		}
		// The payload of each, and each page of the inbox for each of two names.
		if calls, most := s.calls.Load(), int64(n+2*n/100+200); calls > most {
			t.Errorf("%d reads of %d signals, want at most %d", calls, n, most)
		}
		if s.largest.Load() > 1000 {
			t.Errorf("%d records were read at once", s.largest.Load())
		}
	})
}

// A run that is busy, and to which nobody waits to send, keeps a bounded number of
// signals in memory.
func TestSignalsToABusyRun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const n = 1000
		busy := make(chan struct{})
		wf := flow("w", func(run *engine.Run) (string, error) {
			if _, ok, err := approved.ReceiveWithin(run, 0); ok || err != nil {
				return "", err
			}
			<-busy // against the rules
			all, err := approved.Drain(run)
			return strings.Join(all, " "), err
		})
		p := boot(t, new(memory.Store), wf)
		h := start(t, wf, p, "o", "")
		synctest.Wait()
		want := make([]string, n)
		for i := range n {
			want[i] = fmt.Sprint(i)
			send(t, approved, p, "o", want[i], "")
		}
		if held := engine.SignalsInMemory(p.Engine, "o"); held > 100 {
			t.Errorf("%d signals in memory", held)
		}
		close(busy)
		if got := result(t, h); got != strings.Join(want, " ") {
			t.Errorf("not in order: %.100s", got)
		}
	})
}

// A sender that is slow to tell the run what it has sent tells of a signal that was
// cleared meanwhile: it is not received.
func TestClearedSignalIsToldOfLate(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := &hooked{Storage: new(memory.Store)}
		var p *process
		var armed atomic.Bool
		h.afterCommit = func(b storage.Batch) error {
			if touches(b, "sigseq:o") && armed.CompareAndSwap(true, false) {
				if err := p.ClearSignal(ctx, "o", "approved", "a", audit); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
			}
			return nil
		}
		busy := make(chan struct{})
		wf := flow("w", func(run *engine.Run) (string, error) {
			if _, err := approved.Receive(run); err != nil {
				return "", err
			}
			if _, err := engine.Step(run, "busy", func(context.Context) (int, error) { <-busy; return 0, nil }); err != nil {
				return "", err
			}
			return approved.Receive(run)
		})
		p = boot(t, h, wf)
		o := start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		send(t, approved, p, "o", "first", "first")
		time.Sleep(time.Second)
		armed.Store(true)
		send(t, approved, p, "o", "a", "a")
		close(busy)
		time.Sleep(time.Second)
		send(t, approved, p, "o", "b", "b")
		if got := result(t, o); got != "b" {
			t.Errorf("received %q, want b: a was cleared", got)
		}
	})
}

// What another engine accepted, and nobody has told of yet, is received before
// what was accepted after it here. SG5
func TestOrderOfWhatNobodyToldOf(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		other := &signal.Signal[string]{Name: "other"}
		wf := flow("w", func(run *engine.Run) (string, error) {
			all := ""
			receive := func() {
				v, err := approved.Receive(run)
				all += fmt.Sprint(v, err)
			}
			receive()
			run.Sleep(time.Minute) // 2 is accepted elsewhere
			_, ok, err := other.ReceiveWithin(run, 0)
			run.Sleep(time.Minute) // 3 is accepted here
			receive()
			receive()
			return fmt.Sprint(all, ok, err), nil
		})
		p := boot(t, s, wf, func(c *engine.Config) { c.PollInterval = time.Hour })
		elsewhere := made(t, s)
		defer elsewhere.Close()
		h := start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		send(t, approved, p, "o", "1", "")
		time.Sleep(30 * time.Second)
		send(t, approved, elsewhere, "o", "2", "")
		time.Sleep(time.Minute)
		send(t, approved, p, "o", "3", "")
		if got := result(t, h); got != "1<nil>2<nil>3<nil>false <nil>" {
			t.Errorf("received %q", got)
		}
	})
}

// SG7, interleaving 26: with every hint lost, to a run of this engine or another's,
// a signal is received within a poll interval, and however many come, the owner
// commits.
func TestHintsAreLost(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const n = 200
		s := new(memory.Store)
		wf := receiving(n)
		p := boot(t, s, wf, func(c *engine.Config) { c.PollInterval = time.Minute })
		elsewhere := made(t, s) // tells nobody, but for what it writes
		defer elsewhere.Close()
		h := start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		begun := time.Now()
		for i := range n {
			send(t, approved, elsewhere, "o", "x", fmt.Sprint(i))
			time.Sleep(10 * time.Millisecond)
		}
		if got := result(t, h); got != strings.Repeat("x", n) {
			t.Errorf("received %d, want %d", len(got), n)
		}
		if took := time.Since(begun); took > 2*time.Minute+time.Second {
			t.Errorf("it took %v, and the poll interval is a minute", took)
		}
	})
}
