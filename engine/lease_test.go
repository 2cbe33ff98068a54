package engine_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// sharing is a store in memory that several processes could have open.
type sharing struct{ storage.Storage }

func (s sharing) Capabilities() storage.Capabilities {
	c := s.Storage.Capabilities()
	c.Shared = true
	return c
}

// A process on a shared store that dies is succeeded after a TTL and a poll, and
// not before; one that lives is left alone.
func TestLeaseOfTheDeadRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := sharing{new(memory.Store)}
		var began atomic.Int32
		slow := &activity.Activity[int, int]{Name: "slow", Timeout: time.Hour, Run: func(ctx context.Context, i int) (int, error) {
			began.Add(1)
			select {
			case <-time.After(10 * time.Minute):
				return i, nil
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		}}
		wf := &engine.Workflow[int, int]{Name: "slow", Func: func(run *engine.Run, i int) (int, error) { return slow.Do(run, i) }}

		first := storagetest.NewFaulty(store, nil)
		a, endA := begin(t, first, wf)
		synctest.Wait() // it drives what it starts
		h, err := wf.Start(t.Context(), a, "1", 1)
		if err != nil {
			t.Fatal(err)
		}
		b, endB := begin(t, store, wf)
		time.Sleep(2 * time.Minute)
		if n := began.Load(); n != 1 {
			t.Fatalf("two living engines began the activity %d times, want 1", n)
		}
		first.Crash()
		died := time.Now()
		for began.Load() == 1 {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(died); took < 10*time.Second || took > 18*time.Second {
			t.Errorf("taken over after %v, want a TTL of 15s less a renewal's third, and a poll", took)
		}
		if got, err := wf.Handle(b, h.ID()).Result(t.Context()); got != 1 || err != nil {
			t.Errorf("result: got %d, %v", got, err)
		}
		endA()
		endB()
	})
}

// An engine whose lease was taken from it puts everything down, with the cause
// told to its activities, and comes back under another incarnation.
func TestDeposedEngineComesBackAsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := sharing{new(memory.Store)}
		causes := make(chan error, 2)
		slow := &activity.Activity[int, int]{Name: "slow", Timeout: time.Hour, Run: func(ctx context.Context, i int) (int, error) {
			select {
			case <-time.After(10 * time.Minute):
			case <-ctx.Done():
				causes <- context.Cause(ctx)
			}
			return i, context.Cause(ctx)
		}}
		wf := &engine.Workflow[int, int]{Name: "slow", Func: func(run *engine.Run, i int) (int, error) { return slow.Do(run, i) }}
		blocked := atomic.Bool{}
		f := storagetest.NewFaulty(store, func(c storagetest.Call) storagetest.Fault {
			if blocked.Load() {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		a, end := begin(t, f, wf)
		synctest.Wait()
		h, err := wf.Start(t.Context(), a, "1", 1)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before, _ := h.Describe(t.Context())
		blocked.Store(true) // the store is out of reach
		if cause := <-causes; cause != activity.ErrLeaseLost {
			t.Errorf("cause: got %v, want ErrLeaseLost", cause)
		}
		blocked.Store(false)
		if got, err := h.Result(t.Context()); got != 1 || err != nil {
			t.Errorf("result: got %d, %v", got, err)
		}
		after, _ := h.Describe(t.Context())
		if after.Owner == before.Owner || after.Epoch <= before.Epoch {
			t.Errorf("owner %s epoch %d, before %s %d", after.Owner, after.Epoch, before.Owner, before.Epoch)
		}
		end()
	})
}

// An engine that is told to stop has stopped as it was to, also if it loses its lease meanwhile. If the store has moved or failed, it says so.
func TestLeaseIsLostWhileTheEngineStops(t *testing.T) {
	for name, c := range map[string]struct {
		f    func(stop func(), lose func())
		want error
	}{
		"before":              {func(stop, lose func()) { lose(); stop() }, nil},
		"after":               {func(stop, lose func()) { stop(); time.Sleep(time.Second); lose() }, nil},
		"since it has moved":  {func(stop, lose func()) { stop(); time.Sleep(time.Second); lose() }, storage.ErrMoved},
		"since it has failed": {func(stop, lose func()) { stop(); time.Sleep(time.Second); lose() }, storage.ErrFailed},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var blocked, told atomic.Bool
				s := &hooked{Storage: sharing{new(memory.Store)}, afterCommit: func(storage.Batch) error {
					if blocked.Load() {
						return c.want
					}
					return nil
				}}
				store := storagetest.NewFaulty(s, func(storagetest.Call) storagetest.Fault {
					if blocked.Load() && c.want == nil {
						return storagetest.ErrorBefore
					}
					return storagetest.None
				})
				slow := &activity.Activity[int, int]{Name: "slow", Timeout: time.Hour, Run: func(ctx context.Context, i int) (int, error) {
					<-ctx.Done()
					told.Store(context.Cause(ctx) == activity.ErrLeaseLost)
					time.Sleep(time.Minute) // in which the engine waits for it
					return i, nil
				}}
				wf := &engine.Workflow[int, int]{Name: "slow", Func: func(run *engine.Run, i int) (int, error) { return slow.Do(run, i) }}
				eng, err := engine.New(engine.Config{
					Storage: store, Workflows: []engine.Definition{wf}, StopTimeout: 10 * time.Minute, Logger: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Fatal(err)
				}
				defer eng.Close()
				ctx, stop := context.WithCancel(t.Context())
				ran := make(chan error, 1)
				go func() { ran <- eng.Run(ctx) }()
				time.Sleep(time.Second)
				if _, err := wf.Start(t.Context(), eng, "o", 1); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				c.f(stop, func() {
					blocked.Store(true)
					time.Sleep(30 * time.Second)
				})
				if err := <-ran; !errors.Is(err, c.want) {
					t.Errorf("Run returned %v, want %v", err, c.want)
				}
				if !told.Load() {
					t.Error("the lease was not lost")
				}
			})
		})
	}
}

func begin(t *testing.T, s storage.Storage, w ...engine.Definition) (eng *engine.Engine, end func()) {
	eng, err := engine.New(engine.Config{Storage: s, Workflows: w, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- eng.Run(ctx) }()
	return eng, func() {
		cancel()
		eng.Close()
		<-done
	}
}

// A mute store does not answer, whatever becomes of its callers' contexts, until it
// is told to.
type mute struct {
	storage.Storage
	hush atomic.Bool
	talk chan struct{}
}

func (s *mute) Commit(ctx context.Context, b storage.Batch) error {
	if s.hush.Load() {
		<-s.talk
	}
	return s.Storage.Commit(ctx, b)
}

// OW3, OW5: a store may wait longer for its server than the context of a renewal
// lasts. Its holder stops in time all the same.
func TestTrustEndsWhileTheStoreDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mute{Storage: sharing{new(memory.Store)}, talk: make(chan struct{})}
		stopped := make(chan error, 2)
		slow := &activity.Activity[int, int]{Name: "slow", Timeout: time.Hour, Run: func(ctx context.Context, i int) (int, error) {
			select {
			case <-time.After(10 * time.Minute):
			case <-ctx.Done():
				stopped <- context.Cause(ctx)
			}
			return i, ctx.Err()
		}}
		wf := &engine.Workflow[int, int]{Name: "slow", Func: func(run *engine.Run, i int) (int, error) { return slow.Do(run, i) }}
		a, end := begin(t, store, wf)
		time.Sleep(time.Second)
		if _, err := wf.Start(t.Context(), a, "1", 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		store.hush.Store(true)
		hushed := time.Now()
		time.AfterFunc(time.Minute, func() { store.hush.Store(false); close(store.talk) })
		if cause := <-stopped; cause != activity.ErrLeaseLost {
			t.Errorf("cause: got %v, want ErrLeaseLost", cause)
		}
		if took := time.Since(hushed); took > 15*time.Second {
			t.Errorf("the holder stopped after %v, want its TTL of 15s at most", took)
		}
		time.Sleep(2 * time.Minute)
		end()
	})
}

// OWN-25: an owner that has lost its lease, or whose workflow was terminated or reset, begins nothing more, however slow it
// is: also no function and no verifier that it was about to call.
func TestNothingBegins(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		inner := store.Open(t)
		var away atomic.Bool
		s := storagetest.NewFaulty(sharing{inner}, func(storagetest.Call) storagetest.Fault {
			if away.Load() {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		var called, asked atomic.Int32
		do := func(context.Context) (int, error) {
			called.Add(1)
			return 1, nil
		}
		act := &activity.Activity[int, int]{Name: "act", Run: func(ctx context.Context, _ int) (int, error) { return do(ctx) }}
		keyed := *act
		keyed.Name = "keyed"
		keyed.IdempotencyKey = func(int) string { return "key" }
		keyed.Verify = func(context.Context, int) (activity.Verification[int], error) {
			asked.Add(1)
			return activity.NotCompleted[int](), nil
		}
		keyed.VerifyFences, keyed.VerifyTimeout = true, time.Hour
		step := flow("step", func(run *engine.Run) (string, error) {
			_, err := engine.Step(run, "step", do)
			return "done", err
		})
		two := flow("two", func(run *engine.Run) (string, error) {
			one, other := act.Go(run, 1), act.Go(run, 2)
			_, err := one.Get(run)
			_, also := other.Get(run)
			return "done", errors.Join(err, also)
		})
		verified := flow("verified", func(run *engine.Run) (string, error) {
			_, err := keyed.Do(run, 1)
			return "done", err
		})
		var held atomic.Int32 // how many calls are yet to be held up, before the function is called
		slow := make(chan struct{}, 2)
		p := boot(t, s, step, two, verified, func(c *engine.Config) {
			c.Events.AttemptBegan = func(ctx context.Context, _ engine.AttemptBeganEvent) context.Context {
				if held.Add(-1) >= 0 {
					<-slow
				}
				return ctx
			}
		})
		lose := func(string) error {
			away.Store(true)
			time.Sleep(time.Minute)
			away.Store(false)
			time.Sleep(time.Minute)
			return nil
		}
		terminate := func(id string) error { return p.Terminate(ctx, id, audit) }
		reset := func(id string) error { return p.Reset(ctx, id, "", audit) }
		for id, c := range map[string]struct {
			wf           *engine.Workflow[string, string]
			held         int32
			ends         []func(id string) error
			calls, asked int32 // by the last owner
			status       checkpoint.Status
		}{
			"a step, lease lost":           {step, 1, []func(string) error{lose}, 1, 0, checkpoint.StatusCompleted},
			"a step, terminated":           {step, 1, []func(string) error{terminate}, 0, 0, checkpoint.StatusCancelled},
			"a step, reset":                {step, 1, []func(string) error{reset}, 1, 0, checkpoint.StatusCompleted},
			"two activities, lease lost":   {two, 2, []func(string) error{lose}, 2, 0, checkpoint.StatusCompleted},
			"two activities, terminated":   {two, 2, []func(string) error{terminate}, 0, 0, checkpoint.StatusCancelled},
			"two activities, reset":        {two, 2, []func(string) error{reset}, 2, 0, checkpoint.StatusCompleted},
			"a verifier, lease lost twice": {verified, 2, []func(string) error{lose, lose}, 1, 1, checkpoint.StatusCompleted},
			"a verifier, lost, terminated": {verified, 2, []func(string) error{lose, terminate}, 0, 0, checkpoint.StatusCancelled},
		} {
			held.Store(c.held)
			start(t, c.wf, p, id, "")
			time.Sleep(time.Second)
			for _, end := range c.ends {
				if err := end(id); err != nil {
					t.Fatalf("%s: %v", id, err)
				}
			}
			if held.Load() > 0 {
				t.Errorf("%s: %d calls were not about to be made", id, held.Load())
			}
			for range c.held {
				slow <- struct{}{}
			}
			time.Sleep(time.Minute)
			i := describe(t, p, id)
			if got, asks := called.Swap(0), asked.Swap(0); got != c.calls || asks != c.asked || i.Status != c.status {
				t.Errorf("%s: %d calls, %d of the verifier, %s; want %d, %d, %s", id, got, asks, i.Status, c.calls, c.asked, c.status)
			}
		}
		p.stop(t)
		inner.Close()
	})
}
