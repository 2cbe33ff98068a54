package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// A hooked store calls hooks around its inner store, which may call it again.
type hooked struct {
	storage.Storage
	afterGet     func(key []byte)
	beforeCommit func(b storage.Batch)
	afterCommit  func(b storage.Batch) error
	max          storage.Size
}

func (h *hooked) Unwrap() storage.Storage { return h.Storage }

func (h *hooked) Capabilities() storage.Capabilities {
	c := h.Storage.Capabilities()
	if h.max != (storage.Size{}) {
		c.MaxBatch = h.max
	}
	return c
}

func (h *hooked) Get(ctx context.Context, key []byte) ([]byte, error) {
	v, err := h.Storage.Get(ctx, key)
	if h.afterGet != nil {
		h.afterGet(key)
	}
	return v, err
}

func (h *hooked) Commit(ctx context.Context, b storage.Batch) error {
	if h.beforeCommit != nil {
		h.beforeCommit(b)
	}
	if err := b.Check(h.Capabilities().MaxBatch); err != nil {
		return err
	}
	err := h.Storage.Commit(ctx, b)
	if h.afterCommit != nil {
		err = errors.Join(err, h.afterCommit(b))
	}
	return err
}

// touches says that a batch has an operation on a key with a prefix.
func touches(b storage.Batch, prefix string) bool {
	for _, o := range b.Ops {
		if bytes.HasPrefix(o.Key, []byte(prefix)) {
			return true
		}
	}
	return false
}

// A start whose outcome is unknown is in flight; somebody signals the workflow,
// which is in the store already. It has one driver afterwards, and not none.
func TestSignalMeetsAStartOfUnknownOutcome(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		approved := &signal.Signal[string]{Name: "approved"}
		wf := flow("w", func(run *engine.Run) (string, error) { return approved.Receive(run) })
		var once atomic.Bool
		p := bootOn(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Commit" && touches(c.Batch, "wf:o:in") && once.CompareAndSwap(false, true) {
				return storagetest.ErrorAfter
			}
			return storagetest.None
		}), wf)
		time.Sleep(time.Second)
		go func() {
			time.Sleep(500 * time.Microsecond) // the start tries again after a millisecond
			if _, err := approved.Send(ctx, p, "o", "ann", nil); err != nil {
				t.Errorf("send: %v", err)
			}
		}()
		h := start(t, wf, p, "o", "")
		if got := result(t, h); got != "ann" {
			t.Errorf("result %q", got)
		}
	})
}

// An operator's retry reaches a held run whose activity has not returned yet, so
// that its former driver is still being put down.
func TestRetryOfARunThatIsBeingPutDown(t *testing.T) {
	virtual(t, func(t *testing.T) {
		slow := &activity.Activity[string, int]{Name: "slow", Timeout: time.Hour, Run: func(context.Context, string) (int, error) {
			time.Sleep(time.Minute) // heeds nothing
			return 1, nil
		}}
		var mended atomic.Bool
		wf := flow("w", func(run *engine.Run) (string, error) {
			f := slow.Go(run, "")
			if err := run.Sleep(time.Second); err != nil {
				return "", err
			}
			next := &activity.Activity[string, int]{Name: "next", Run: func(context.Context, string) (int, error) { return 1, nil }}
			if !mended.Load() {
				next.Run = nil
			}
			if _, err := next.Do(run, ""); err != nil {
				return "", err
			}
			_, err := f.Get(run)
			return "done", err
		})
		p := boot(t, fresh(t), wf)
		h := start(t, wf, p, "o", "")
		eventually(t, "the run is held", func() bool { return heldFor(describe(t, p, "o"), engine.BadDefinition) })
		mended.Store(true)
		if err := p.Retry(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		if got := result(t, h); got != "done" {
			t.Errorf("result %q", got)
		}
	})
}

// A retry whose outcome was unknown and which has been acted on is not reported
// as one that did not apply.
func TestRetryOfUnknownOutcomeIsRecognised(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var mended, armed atomic.Bool
		wf := flow("w", func(run *engine.Run) (string, error) {
			next := &activity.Activity[string, int]{Name: "next", Run: func(context.Context, string) (int, error) { return 1, nil }}
			if !mended.Load() {
				next.Run = nil
			}
			_, err := next.Do(run, "")
			return "done", err
		})
		p := bootOn(t, storagetest.NewFaulty(fresh(t), func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Commit" && touches(c.Batch, "wf:o") && armed.CompareAndSwap(true, false) {
				return storagetest.ErrorAfter
			}
			return storagetest.None
		}), wf)
		h := start(t, wf, p, "o", "")
		eventually(t, "the run is held", func() bool { return heldFor(describe(t, p, "o"), engine.BadDefinition) })
		time.Sleep(time.Minute)
		mended.Store(true)
		armed.Store(true)
		if err := p.Retry(ctx, "o", audit); err != nil {
			t.Errorf("retry: %v", err)
		}
		if got := result(t, h); got != "done" {
			t.Errorf("result %q", got)
		}
	})
}

// An activity that does not heed its context holds up neither Close nor Run for
// longer than StopTimeout allows.
func TestActivityThatDoesNotComeBack(t *testing.T) {
	for _, how := range []string{"close", "stop"} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			block := make(chan int)
			stuck := &activity.Activity[string, int]{Name: "stuck", Timeout: time.Minute, Run: func(context.Context, string) (int, error) {
				<-block
				return 1, nil
			}}
			p := boot(t, s, doing(stuck))
			defer close(block)
			start(t, doing(stuck), p, "o", "")
			time.Sleep(time.Second)
			begun := time.Now()
			ended := make(chan int)
			go func() {
				map[string]func(){"close": p.close, "stop": func() { p.stop(t) }}[how]()
				close(ended)
			}()
			select {
			case <-ended:
			case <-time.After(time.Hour):
			}
			if took := time.Since(begun); took > 25*time.Second {
				t.Errorf("%s took %v", how, took)
			}
		})
	}
}

// Nothing is claimed under an incarnation that is not known yet: another engine
// on the store would take it for dead.
func TestStartBeforeTheEngineIsKnown(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var runs tally
		slow := &activity.Activity[string, int]{Name: "slow", Timeout: time.Hour, Run: func(context.Context, string) (int, error) {
			runs.add("slow")
			time.Sleep(30 * time.Second)
			return 1, nil
		}}
		f := storagetest.NewFaulty(s, nil)
		h := &hooked{Storage: f}
		known := make(chan int)
		h.beforeCommit = func(b storage.Batch) {
			if touches(b, "eng:") {
				<-known
			}
		}
		a := made(t, h, doing(slow))
		ran := make(chan error)
		go func() { ran <- a.Run(ctx) }()
		time.Sleep(time.Second)
		handle := start(t, doing(slow), a, "o", "")
		b := bootOn(t, f, doing(slow))
		time.Sleep(10 * time.Second)
		close(known)
		result(t, handle)
		if n := runs.of("slow"); n != 1 {
			t.Errorf("the activity ran %d times", n)
		}
		b.stop(t)
		a.Close()
		<-ran
	})
}

// A start of unknown outcome whose caller gives up may be there, with this engine as
// its owner: then it is driven.
func TestStartWhoseCallerGaveUp(t *testing.T) {
	virtual(t, func(t *testing.T) {
		abandoned, abandon := context.WithCancel(ctx)
		defer abandon()
		h := &hooked{Storage: fresh(t)}
		h.afterCommit = func(b storage.Batch) error {
			if abandoned.Err() != nil || !touches(b, "wf:o") {
				return nil
			}
			abandon()
			return errors.New("the answer is lost")
		}
		wf := flow("w", func(run *engine.Run) (string, error) { return "done", nil })
		p := boot(t, h, wf)
		time.Sleep(time.Second)
		if _, err := wf.Start(abandoned, p, "o", ""); err == nil {
			t.Error("the start is acknowledged")
		}
		time.Sleep(10 * time.Second)
		if i := describe(t, p, "o"); i.Status != checkpoint.Completed {
			t.Errorf("%+v, want it completed", i)
		}
	})
}

// Who asks for a workflow while it is being started is told that it is not there
// or that it is, and not that the store is damaged.
func TestLookAtAWorkflowThatIsBeingStarted(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("w", func(run *engine.Run) (string, error) { return "", nil })
		h := &hooked{Storage: fresh(t)}
		e := made(t, h, wf)
		defer e.Close()
		var once sync.Once
		h.afterGet = func(key []byte) {
			if bytes.Equal(key, keys.Workflow("o")) {
				once.Do(func() { start(t, wf, e, "o", "") })
			}
		}
		if _, err := e.Describe(ctx, "o"); err != nil && !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("describe: %v", err)
		}
	})
}

// A signal that was accepted is received, also if its sender gave up before it
// heard of that.
func TestSignalWhoseSenderGaveUp(t *testing.T) {
	virtual(t, func(t *testing.T) {
		approved := &signal.Signal[string]{Name: "approved"}
		wf := flow("w", func(run *engine.Run) (string, error) { return approved.Receive(run) })
		ctx, cancel := context.WithCancel(ctx)
		p := boot(t, &hooked{Storage: fresh(t), afterCommit: func(b storage.Batch) error {
			if touches(b, "sigres:") {
				cancel()
				return errBroke
			}
			return nil
		}}, wf)
		h := start(t, wf, p, "o", "")
		time.Sleep(time.Minute)
		if _, err := approved.Send(ctx, p, "o", "ann", nil); err == nil {
			t.Fatal("the send was answered")
		}
		sent := time.Now()
		if got := result(t, h); got != "ann" {
			t.Errorf("result %q", got)
		}
		if took := time.Since(sent); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// No batch is larger than the store takes.
func TestBatchesOfASmallStore(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &hooked{Storage: fresh(t), max: storage.Size{Ops: 100, Bytes: 1 << 20}}
		s.beforeCommit = func(b storage.Batch) {
			if touches(b, "wf:o:ckpt:") {
				time.Sleep(time.Millisecond) // in which answers come together
			}
		}
		big := &activity.Activity[string, string]{Name: "big", Run: func(context.Context, string) (string, error) {
			time.Sleep(time.Second)
			return strings.Repeat("x", 200<<10), nil
		}}
		wf := flow("w", func(run *engine.Run) (string, error) {
			var last *future.Future[string]
			for range 10 {
				last = big.Go(run, "")
			}
			if _, err := last.Get(run); err != nil {
				return "", err
			}
			for range 200 {
				if _, err := engine.Step(run, "s", func(context.Context) (int, error) { return 1, nil }); err != nil {
					return "", err
				}
			}
			return "done", nil
		})
		p := boot(t, s, wf)
		if got := result(t, start(t, wf, p, "o", "")); got != "done" {
			t.Errorf("result %q", got)
		}
		if err := p.Purge(ctx, "o", audit); err != nil {
			t.Errorf("purge: %v", err)
		}
	})
}

// An engine that could not sign off at the first attempt does so at the next:
// the incarnation that follows in the same process goes on with its runs.
func TestSignOffIsRepeated(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var armed atomic.Bool
		wf := flow("w", func(run *engine.Run) (string, error) { return "woke", run.Sleep(time.Minute) })
		f := storagetest.NewFaulty(fresh(t), func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Commit" && touches(c.Batch, "eng:") && armed.CompareAndSwap(true, false) {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		e := made(t, f, wf)
		defer e.Close()
		for range 2 {
			ctx, cancel := context.WithCancel(ctx)
			ran := make(chan error, 1)
			go func() { ran <- e.Run(ctx) }()
			start(t, wf, e, "o", "")
			time.Sleep(time.Second)
			armed.Store(true)
			cancel()
			if err := <-ran; err != nil {
				t.Fatal(err)
			}
		}
		go e.Run(ctx)
		if got := result(t, wf.Handle(e, "o")); got != "woke" {
			t.Errorf("result %q", got)
		}
	})
}

// A sender whose context ends is not kept waiting by another who still tries.
func TestSendHeedsItsContext(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var down atomic.Bool
		wf := flow("w", func(run *engine.Run) (string, error) { return "", run.Sleep(24 * time.Hour) })
		p := bootOn(t, storagetest.NewFaulty(fresh(t), func(c storagetest.Call) storagetest.Fault {
			if down.Load() && c.Method == "Commit" {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		}), wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		down.Store(true)
		go func() { p.SendSignal(ctx, signal.Message{WorkflowID: "o", Name: "n"}) }()
		time.Sleep(time.Second)
		begun := time.Now()
		time.AfterFunc(time.Minute, func() { down.Store(false) })
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := p.SendSignal(short, signal.Message{WorkflowID: "o", Name: "n"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("send: %v", err)
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
		time.Sleep(2 * time.Minute)
	})
}

// Two signals of one id and different names have hints of their own: who deletes
// the one that he saw does not delete the other.
func TestHintsOfTwoSignalsWithOneID(t *testing.T) {
	virtual(t, func(t *testing.T) {
		one, two := &signal.Signal[string]{Name: "one"}, &signal.Signal[string]{Name: "two"}
		wf := flow("w", func(run *engine.Run) (string, error) {
			if _, err := one.Receive(run); err != nil {
				return "", err
			}
			return two.Receive(run)
		})
		h := &hooked{Storage: fresh(t)}
		client := made(t, h)
		defer client.Close()
		var once sync.Once
		h.beforeCommit = func(b storage.Batch) {
			if len(b.If) == 0 && touches(b, "wake:") { // the poll has passed the first hint on
				once.Do(func() {
					time.Sleep(time.Millisecond)
					if _, err := two.Send(ctx, client, "o", "ann", &signal.Options{ID: "1"}); err != nil {
						t.Error(err)
					}
				})
			}
		}
		e := made(t, h, wf)
		ran := make(chan error)
		go func() { ran <- e.Run(ctx) }()
		handle := start(t, wf, e, "o", "")
		time.Sleep(time.Minute)
		if _, err := one.Send(ctx, client, "o", "ann", &signal.Options{ID: "1"}); err != nil {
			t.Fatal(err)
		}
		if got := result(t, handle); got != "ann" {
			t.Errorf("result %q", got)
		}
		e.Close()
		<-ran
	})
}

// A handle of another workflow's name is told so, also while the run goes on.
func TestResultOfAnotherWorkflow(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("w", func(run *engine.Run) (string, error) { return "", run.Sleep(24 * time.Hour) })
		p := boot(t, fresh(t), wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		short, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		if err := p.Result(short, "other", "o", nil); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("result: %v, want ErrNotFound", err)
		}
	})
}

// A step may log through its run's logger while the run learns something else.
func TestLoggerInsideAStep(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("w", func(run *engine.Run) (string, error) {
			return engine.Step(run, "s", func(ctx context.Context) (string, error) {
				for ctx.Err() == nil {
					run.Logger().Info("at it")
					time.Sleep(time.Millisecond)
				}
				return "", ctx.Err()
			})
		})
		p := boot(t, fresh(t), wf)
		h := start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		if err := h.Cancel(ctx, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := outcome(h); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("result: %v", err)
		}
	})
}

// Whoever asks for a result at the moment at which the run ends is told it.
func TestResultAtTheMomentOfTheEnd(t *testing.T) {
	wf := flow("w", func(run *engine.Run) (string, error) {
		return engine.Step(run, "s", func(context.Context) (string, error) { return "done", nil })
	})
	p := boot(t, fresh(t), wf, func(c *engine.Config) { c.PollInterval = time.Hour })
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 1000 {
				h, err := wf.Start(ctx, p, fmt.Sprintf("o-%d-%d", w, i), "")
				if err != nil {
					t.Error(err)
					return
				}
				var asking sync.WaitGroup
				for range 3 {
					asking.Go(func() {
						short, cancel := context.WithTimeout(ctx, 10*time.Second)
						defer cancel()
						for range 3 {
							if _, err := h.Result(short); err != nil {
								t.Errorf("result of %q: %v", h.ID(), err)
								return
							}
						}
					})
				}
				asking.Wait()
			}
		})
	}
	all.Wait()
}
