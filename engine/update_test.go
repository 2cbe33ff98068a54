package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

var errNegative = errors.New("negative")

// increase adds to the sum of a workflow, and answers with it.
var increase = &engine.Update[int, int]{Name: "add: a/b", Errors: []error{errNegative, errBroke}}

// totals is a workflow that adds until it gets a signal. Each addition is a step, and in its own order.
func totals(done *tally) *engine.Workflow[string, string] {
	return flow("sums", func(run *engine.Run) (string, error) {
		sum := 0
		if err := increase.Handle(run, func(n int) error {
			if n < 0 {
				return fmt.Errorf("%w: %d", errNegative, n)
			}
			return nil
		}, func(run *engine.Run, n int) (int, error) {
			sum += n
			now := sum
			_, err := engine.Step(run, "note", func(context.Context) (int, error) { return done.add(fmt.Sprint(n)), nil })
			if n == 13 {
				return 0, errBroke
			}
			return now, err
		}); err != nil {
			return "", err
		}
		_, err := approved.Receive(run)
		return fmt.Sprint(sum), err
	})
}

func by(id string) *engine.UpdateOptions { return &engine.UpdateOptions{ID: id} }

// add calls the update, which must be answered.
func add(t testing.TB, c engine.Client, id, update string, n, want int) {
	t.Helper()
	got, err := increase.Call(ctx, c, id, n, by(update))
	if got != want || err != nil {
		t.Errorf("update %s of %s: %d, %v, want %d", update, id, got, err, want)
	}
}

// count returns how many events of a kind a history has.
func count(cs []checkpoint.Checkpoint, k checkpoint.Kind) (n int) {
	for _, c := range cs {
		for _, e := range c.Events {
			if e.Kind == k {
				n++
			}
		}
	}
	return n
}

// UPD-1, UPD-2, UPD-3, UPD-7: an update is executed once for each id and has one answer: also for those
// who ask again while it is executed, after it, in another engine, after a crash, and after the end of the
// workflow. Another content is a mismatch. A refusal leaves nothing in the history. After a purge nothing
// of it is left.
func TestUpdate(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		done := &tally{}
		wf := totals(done)
		p := boot(t, s, wf, leases)
		other := made(t, s, leases)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		add(t, p, "o", "1", 5, 5)
		add(t, p, "o", "1", 5, 5)
		add(t, other, "o", "1", 5, 5)
		add(t, other, "o", "2", 7, 12)
		add(t, p, "o", "2", 7, 12)
		for i, c := range []engine.Client{p, other, p, other} { // a transport gets the answer as it is stored
			var stored engine.Encoded
			update := fmt.Sprint("stored ", i/2)
			if err := c.CallUpdate(ctx, &engine.UpdateRequest{WorkflowID: "o", Update: increase.Name, ID: &update, Input: 0}, &stored); err != nil || stored.Codec != "json" || string(stored.Data) != "12" {
				t.Errorf("update %s: %q, %v", update, stored, err)
			}
		}

		var all sync.WaitGroup
		for i := range 6 {
			c := []engine.Client{p, other}[i%2]
			all.Go(func() { add(t, c, "o", "3", 100, 112) })
		}
		all.Wait()

		checkpoints := len(historyOf(t, p.Engine, "o"))
		for _, c := range []engine.Client{p, other, p} {
			for _, update := range []string{"no", "none"} {
				_, err := increase.Call(ctx, c, "o", -1, by(update))
				rejected, ok := errors.AsType[*engine.RejectedError](err)
				if !ok || !errors.Is(err, engine.ErrRejected) || !errors.Is(err, errNegative) || rejected.Message != "negative: -1" || rejected.UpdateID != update {
					t.Errorf("refused update: %#v", err)
				}
			}
			for _, update := range []string{"1", "no"} {
				if _, err := increase.Call(ctx, c, "o", 6, by(update)); !errors.Is(err, engine.ErrMismatch) || strings.Contains(err.Error(), "6") {
					t.Errorf("another input: %v, want ErrMismatch without it", err)
				}
			}
			if err := c.CallUpdate(ctx, &engine.UpdateRequest{WorkflowID: "o", Update: "other", ID: &[]string{"1"}[0], Input: 5}, nil); !errors.Is(err, engine.ErrMismatch) {
				t.Errorf("another name: %v, want ErrMismatch", err)
			}
		}
		if n := len(historyOf(t, p.Engine, "o")); n != checkpoints {
			t.Errorf("the history has %d checkpoints after refusals, and had %d", n, checkpoints)
		}
		if _, err := increase.Call(ctx, p, "o", 13, by("fails")); !errors.Is(err, errBroke) {
			t.Errorf("update that fails: %v", err)
		} else if failed, ok := errors.AsType[*engine.UpdateError](err); !ok || failed.Message != "broke" {
			t.Errorf("update that fails: %#v", err)
		}

		p.kill()
		p = boot(t, s, wf, leases)
		time.Sleep(time.Minute)
		add(t, p, "o", "1", 5, 5)
		add(t, p, "o", "4", 1, 126)
		send(t, approved, p, "o", "x", "x")
		if got := result(t, wf.Handle(p, "o")); got != "126" {
			t.Errorf("the sum is %s, want 126", got)
		}
		cs := historyOf(t, p.Engine, "o")
		if a, b := count(cs, checkpoint.KindAccepted), count(cs, checkpoint.KindAnswered); a != 7 || b != 7 {
			t.Errorf("%d acceptances and %d answers, want 7", a, b)
		}
		var exported bytes.Buffer
		if err := p.Export(ctx, "o", &exported); err != nil {
			t.Error(err)
		}
		if err := p.Replay(ctx, &exported); err != nil {
			t.Errorf("replay: %v", err)
		}
		if n := done.of("5"); n != 1 {
			t.Errorf("executed %d times, want 1", n)
		}
		add(t, other, "o", "3", 100, 112)
		if _, err := increase.Call(ctx, other, "o", -1, by("no")); !errors.Is(err, errNegative) {
			t.Errorf("refused update after the end: %v", err)
		}
		_, err := increase.Call(ctx, other, "o", 1, by("late"))
		if ended, ok := errors.AsType[*engine.TerminalError](err); !ok || ended.Status != checkpoint.StatusCompleted {
			t.Errorf("update of an ended workflow: %v, want a *TerminalError", err)
		}
		if err := p.Purge(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		for _, family := range []string{"upd:", "upr:"} {
			if left := entries(t, s, family); len(left) > 0 {
				t.Errorf("purged, and there is %q", left)
			}
		}
		if _, err := increase.Call(ctx, other, "o", 5, by("1")); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("purged: %v, want ErrNotFound", err)
		}
		start(t, wf, p, "o", "")
		add(t, other, "o", "3", 1, 1)
		p.stop(t)
	})
}

// handleIncrease has run refuse what is negative, answer what is small at once, and take a day for the rest.
func handleIncrease(run *engine.Run) error {
	return increase.Handle(run, func(n int) error {
		if n < 0 {
			return errNegative
		}
		return nil
	}, func(run *engine.Run, n int) (int, error) {
		if n > 50 {
			return n, run.Sleep(24 * time.Hour)
		}
		return n, nil
	})
}

// UPD-2: what is known of an update is looked at in turn: its answer, that it waits, that it is unknown, and
// the end of its workflow. Another input is a mismatch in each of these states.
func TestUpdateIsLookedAtInTurn(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if err := handleIncrease(run); err != nil {
				return "", err
			}
			return approved.Receive(run)
		})
		nobody := &engine.Update[int, int]{Name: "nobody handles it"}
		p := boot(t, s, wf, leases)
		other := made(t, s, leases)
		start(t, wf, p, "o", "")
		states := []struct {
			state   string
			update  *engine.Update[int, int]
			in      int
			running error // while the workflow runs; nil: the answer is in
			ended   error // after it was terminated
		}{
			{"answered", increase, 5, nil, nil},
			{"refused", increase, -1, errNegative, errNegative},
			{"accepted", increase, 100, context.DeadlineExceeded, engine.ErrTerminated},
			{"waits", nobody, 5, context.DeadlineExceeded, engine.ErrTerminal},
		}
		look := func(ended bool) {
			for range 2 {
				for _, c := range []engine.Client{p, other} {
					for _, u := range states {
						want := u.running
						if ended {
							want = u.ended
						}
						got, err := u.update.Call(patient(t, time.Minute), c, "o", u.in, by(u.state))
						if want == nil && (got != u.in || err != nil) || !errors.Is(err, want) {
							t.Errorf("%s, ended %v: %d, %v, want %v", u.state, ended, got, err, want)
						}
						if i, ok := errors.AsType[*engine.InterruptedError](err); ok && !i.Unknown {
							t.Errorf("%s: %v, but the run may answer it", u.state, err)
						}
						if _, err := u.update.Call(patient(t, time.Minute), c, "o", u.in+1, by(u.state)); !errors.Is(err, engine.ErrMismatch) {
							t.Errorf("%s, ended %v: another input: %v, want ErrMismatch", u.state, ended, err)
						}
					}
				}
			}
		}
		look(false)
		if a, u := entries(t, s, "upr:"), entries(t, s, "upd:"); len(a) != 3 || len(u) != 1 {
			t.Errorf("answered, refused or accepted are %q, and %q wait", a, u)
		}
		cs := historyOf(t, p.Engine, "o")
		if a, b := count(cs, checkpoint.KindAccepted), count(cs, checkpoint.KindAnswered); a != 2 || b != 1 {
			t.Errorf("%d acceptances and %d answers, want 2 and 1", a, b)
		}
		if err := p.Terminate(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		look(true)
		for _, c := range []engine.Client{p, other} {
			if _, err := increase.Call(patient(t, time.Minute), c, "o", 5, by("unknown")); !errors.Is(err, engine.ErrTerminal) {
				t.Errorf("an unknown one after the end: %v, want ErrTerminal", err)
			}
		}
		p.stop(t)
	})
}

// UPD-2, RET-7: an answer, a refusal, and what was accepted when the workflow was terminated, are remembered
// for SignalIDRetention, and keep their workflow for so long. A workflow without updates is removed before.
func TestAnswerExpires(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if err := handleIncrease(run); err != nil {
				return "", err
			}
			return "", run.Sleep(10 * time.Minute)
		})
		wf.Retention = engine.Retention{Completed: 10 * time.Minute, Cancelled: 10 * time.Minute}
		p := boot(t, s, wf, rareLeases, func(c *engine.Config) { c.SignalIDRetention = 2 * time.Hour })
		inputs := map[string]int{"answered": 5, "refused": -1, "terminated": 100, "without": 0}
		check := func(id string, want error) {
			t.Helper()
			if got, err := increase.Call(patient(t, time.Minute), p, id, inputs[id], by("1")); want == nil && (got != inputs[id] || err != nil) || !errors.Is(err, want) {
				t.Errorf("%s: %d, %v, want %v", id, got, err, want)
			}
		}
		for id := range inputs {
			start(t, wf, p, id, "")
		}
		check("answered", nil)
		check("refused", errNegative)
		check("terminated", context.DeadlineExceeded)
		if err := p.Terminate(ctx, "terminated", audit); err != nil {
			t.Fatal(err)
		}
		time.Sleep(90 * time.Minute)
		check("answered", nil)
		check("refused", errNegative)
		check("terminated", engine.ErrTerminated)
		check("without", engine.ErrNotFound)
		time.Sleep(2 * time.Hour)
		if left := entries(t, s, "upr:"); len(left) > 0 {
			t.Errorf("after their time there is %q", left)
		}
		for _, key := range entries(t, s, "exp:") {
			if !strings.Contains(key, ":tomb:") {
				t.Errorf("after its time there is %q", key)
			}
		}
		for id := range inputs {
			if _, err := p.Describe(ctx, id); !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("%s, after its time: %v, want it removed", id, err)
			}
		}
		p.stop(t)
	})
}

// UPD-2: after its time an answer is forgotten, also while the workflow runs.
func TestAnswerIsForgotten(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := totals(&tally{})
		p := boot(t, s, wf, rareLeases, func(c *engine.Config) { c.SignalIDRetention = time.Hour })
		start(t, wf, p, "o", "")
		add(t, p, "o", "1", 5, 5)
		time.Sleep(time.Hour / 2)
		add(t, p, "o", "1", 5, 5)
		time.Sleep(time.Hour)
		if left := append(entries(t, s, "upr:"), entries(t, s, "exp:")...); len(left) > 0 {
			t.Errorf("after its time there is %q", left)
		}
		add(t, p, "o", "1", 5, 10)
		p.stop(t)
	})
}

// UPD-4, UPD-5: a workflow does not end while an update is in progress. If its function fails, or it is
// cancelled, the update gets ErrCancelled. The answer is there before the end. A run that continues as
// new accepts in its next life what waits, and has the answers of the life before. It leaves no records of
// what the updates of that life did.
func TestUpdateInProgressAtTheEnd(t *testing.T) {
	echo := &activity.Activity[string, string]{
		Name: "echo", Idempotent: true,
		IdempotencyKey: func(in string) string { return in },
		Run:            func(_ context.Context, in string) (string, error) { return in, nil },
	}
	slow := &engine.Update[string, string]{Name: "slow"}
	more := &signal.Signal[string]{Name: "more"}
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := &engine.Workflow[string, string]{Name: "wf", Func: func(run *engine.Run, end string) (string, error) {
			if err := slow.Handle(run, nil, func(run *engine.Run, in string) (string, error) {
				w, err := more.Receive(run)
				if err != nil {
					return "", err
				}
				return echo.Do(run, in+w)
			}); err != nil {
				return "", err
			}
			if _, err := approved.Receive(run); err != nil {
				return "", err
			}
			switch end {
			case "fails":
				return "", errBroke
			case "continues":
				return "", engine.ContinueAsNew(run, "")
			}
			return "ended", nil
		}}
		p := boot(t, s, wf, parking)
		for _, end := range []string{"returns", "fails", "cancelled", "continues"} {
			id := "o" + end
			h := start(t, wf, p, id, end)
			var got string
			var err error
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				got, err = slow.Call(ctx, p, id, "a", by("1"))
			}()
			time.Sleep(time.Minute) // it is parked meanwhile
			if end == "cancelled" {
				if err := h.Cancel(ctx, audit); err != nil {
					t.Fatal(err)
				}
			} else {
				send(t, approved, p, id, "x", "x")
			}
			time.Sleep(time.Minute)
			if end == "returns" || end == "continues" {
				if i := describe(t, p, id); i.Status != checkpoint.StatusRunning {
					t.Errorf("%s: it is %s, with an update in progress", end, i.Status)
				}
				if _, err := slow.Call(patient(t, time.Minute), p, id, "b", by("2")); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: update after the function has ended: %v, want it to wait", end, err)
				}
				send(t, more, p, id, "b", "b")
			}
			<-answered
			switch end {
			case "returns", "continues":
				if got != "ab" || err != nil {
					t.Errorf("%s: %q, %v", end, got, err)
				}
			default:
				failed, ok := errors.AsType[*engine.UpdateError](err)
				if !ok || !errors.Is(err, engine.ErrCancelled) || errors.Is(err, engine.ErrTerminated) {
					t.Errorf("%s: %v, want an *UpdateError with ErrCancelled: %+v", end, err, failed)
				}
			}
			if end == "continues" {
				agreeing(t, s)
				send(t, more, p, id, "c", "c")
				if got, err := slow.Call(ctx, p, id, "b", by("2")); got != "bc" || err != nil {
					t.Errorf("%s: update of the next life: %q, %v", end, got, err)
				}
				if got, err := slow.Call(ctx, p, id, "a", by("1")); got != "ab" || err != nil {
					t.Errorf("%s: answer of the first life: %q, %v", end, got, err)
				}
				var exported bytes.Buffer
				if err := p.Export(ctx, id, &exported); err != nil || !strings.Contains(exported.String(), `"history":4`) {
					t.Errorf("%s: export: %v: %s", end, err, exported.String())
				}
				if err := p.Replay(ctx, &exported); err != nil {
					t.Errorf("%s: replay: %v", end, err)
				}
				for _, e := range historyOf(t, p.Engine, id) {
					for _, e := range e.Events {
						if e.Kind == checkpoint.KindAccepted && e.Operation != "u2" {
							t.Errorf("%s: the second update is operation %s, want u2", end, e.Operation)
						}
					}
				}
				send(t, approved, p, id, "y", "y")
			}
			if out, err := outcome(h); end == "returns" && (out != "ended" || err != nil) {
				t.Errorf("%s: %q, %v", end, out, err)
			}
		}
		p.stop(t)
	})
}

// patient returns a context that ends after d.
func patient(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(ctx, d)
	t.Cleanup(cancel)
	return ctx
}

// UPD-6: the end of the workflow is told to those who wait, at once. What was accepted is answered with
// ErrTerminated after a termination.
func TestUpdateOfAnEndedWorkflow(t *testing.T) {
	never := &engine.Update[string, string]{Name: "never"}
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if err := never.Handle(run, nil, func(run *engine.Run, in string) (string, error) {
				return approved.Receive(run)
			}); err != nil {
				return "", err
			}
			return "", run.Sleep(24 * time.Hour)
		})
		p := boot(t, s, wf, leases)
		other := made(t, s, leases)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		var all sync.WaitGroup
		for _, c := range []engine.Client{p, other} {
			all.Go(func() {
				_, err := never.Call(ctx, c, "o", "a", by("1"))
				if !errors.Is(err, engine.ErrTerminated) || !errors.Is(err, engine.ErrCancelled) {
					t.Errorf("accepted update of a terminated workflow: %v, want ErrTerminated", err)
				}
			})
			all.Go(func() {
				err := c.CallUpdate(ctx, &engine.UpdateRequest{WorkflowID: "o", Update: "unknown"}, nil)
				if !errors.Is(err, engine.ErrTerminal) {
					t.Errorf("update that waited: %v, want ErrTerminal", err)
				}
			})
		}
		time.Sleep(time.Minute)
		began := time.Now()
		if err := p.Terminate(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("told after %v", took)
		}
		if _, err := never.Call(ctx, other, "o", "a", by("1")); !errors.Is(err, engine.ErrTerminated) {
			t.Errorf("asked again: %v, want ErrTerminated", err)
		}
		p.stop(t)
	})
}

// UPD-9: without a handler an update waits, to the caller's deadline, and is accepted when there is one.
// Only so many wait, and only so many are in progress.
func TestUpdatesThatWait(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		most := 0
		open := 0
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if _, err := approved.Receive(run); err != nil {
				return "", err
			}
			if err := increase.Handle(run, nil, func(run *engine.Run, n int) (int, error) {
				open++
				most = max(most, open)
				err := run.Sleep(time.Second)
				open--
				return n, err
			}); err != nil {
				return "", err
			}
			return approved.Receive(run)
		})
		p := boot(t, s, wf, leases)
		other := made(t, s, leases)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		if _, err := increase.Call(patient(t, 10*time.Second), p, "o", 1, by("early")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a handler: %v, want the deadline's error", err)
		}
		var all sync.WaitGroup
		for i := range 130 {
			c := []engine.Client{p, other}[i%2]
			all.Go(func() { add(t, c, "o", fmt.Sprint(i), i, i) })
		}
		time.Sleep(10 * time.Second)
		send(t, approved, p, "o", "x", "x")
		all.Wait()
		add(t, p, "o", "early", 1, 1)
		if most != 100 {
			t.Errorf("%d were in progress at once, want 100", most)
		}
		send(t, approved, p, "o", "y", "y")
		result(t, wf.Handle(p, "o"))
		p.stop(t)
	})
}

// UPD-9: about 1,000 may wait.
func TestTooManyUpdates(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", func(run *engine.Run) (string, error) { return approved.Receive(run) })
		p := boot(t, s, wf, leases)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		soon := patient(t, time.Hour)
		if err := p.CallUpdate(patient(t, time.Second), &engine.UpdateRequest{WorkflowID: "o", Update: "unknown"}, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("the first: %v", err)
		}
		waits, err := journal.Load(ctx, s, "o")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 999 {
			counted, err := acceptance.Counter(ctx, s, "o")
			if err != nil {
				t.Fatal(err)
			}
			b, err := acceptance.Admit("o", &acceptance.Update{ID: fmt.Sprint(i), Generation: waits.Generation, Name: "unknown"}, counted)
			if err == nil {
				err = s.Commit(ctx, b)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := increase.Call(soon, p, "o", 1, nil); !errors.Is(err, engine.ErrBusy) {
			t.Errorf("one too many: %v, want ErrBusy", err)
		}
		p.stop(t)
	})
}

// UPD-10: names and ids have limits, and a store must have conditions.
func TestUpdatesThatAreInvalid(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("wf", func(run *engine.Run) (string, error) {
			nop := func(run *engine.Run, n int) (int, error) { return n, nil }
			var errs []error
			for _, name := range []string{"", strings.Repeat("n", 101), "\xff"} {
				errs = append(errs, (&engine.Update[int, int]{Name: name}).Handle(run, nil, nop))
			}
			for i := range 33 {
				if err := (&engine.Update[int, int]{Name: fmt.Sprint(i)}).Handle(run, nil, nop); (err != nil) != (i == 32) {
					errs = append(errs, fmt.Errorf("handler %d: %w", i, err))
				} else if err != nil {
					errs = append(errs, err)
				}
			}
			for i, err := range errs {
				if !errors.Is(err, engine.ErrInvalid) {
					t.Errorf("handler %d: %v, want ErrInvalid", i, err)
				}
			}
			return approved.Receive(run)
		})
		s := fresh(t)
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		before := snapshot(t, s)
		soon := patient(t, time.Minute)
		for _, id := range []string{"", strings.Repeat("i", 129), "\xff", strings.Repeat("é", 64) + "i"} {
			if _, err := increase.Call(soon, p, "o", 1, by(id)); !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("id %q: %v, want ErrInvalid", id, err)
			}
		}
		for _, name := range []string{"", strings.Repeat("n", 101), "\xff"} {
			if err := p.CallUpdate(soon, &engine.UpdateRequest{WorkflowID: "o", Update: name}, nil); !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("name %q: %v, want ErrInvalid", name, err)
			}
		}
		for _, in := range []any{func() {}, strings.Repeat("x", engine.MaxPayload)} {
			if err := p.CallUpdate(soon, &engine.UpdateRequest{WorkflowID: "o", Update: "0", Input: in}, nil); !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("input %T: %v, want ErrInvalid", in, err)
			}
		}
		if err := p.CallUpdate(soon, &engine.UpdateRequest{WorkflowID: "o", Update: "0", Start: wf.Request("o", "")}, nil); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("two workflows: %v, want ErrInvalid", err)
		}
		if !sameBut(t, before, snapshot(t, s), "eng:", "meta:") {
			t.Error("something was written")
		}
		if _, err := increase.Call(ctx, p, "none", 1, nil); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("no workflow: %v, want ErrNotFound", err)
		}
		if _, err := increase.Call(ctx, new(engine.Tx), "o", 1, nil); !errors.Is(err, engine.ErrNotApplicable) {
			t.Errorf("in a transaction: %v, want ErrNotApplicable", err)
		}
		for _, id := range []string{"i", strings.Repeat("i", 128), strings.Repeat("é", 64), " :/%\n"} {
			var got int
			if err := p.CallUpdate(soon, &engine.UpdateRequest{WorkflowID: "o", Update: "0", ID: &id, Input: 1}, &got); got != 1 || err != nil {
				t.Errorf("id %q: %d, %v", id, got, err)
			}
		}
		p.close()
	})
}

// UPD-10: a store without conditional batches has no updates.
func TestUpdateOnAStoreWithoutConditions(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := totals(&tally{})
		p := boot(t, storagetest.NoConditions(s), wf, func(c *engine.Config) { c.Ownership = engine.OwnershipSingleOwner })
		start(t, wf, p, "o", "")
		_, err := increase.Call(patient(t, time.Minute), p, "o", 1, by("1"))
		var c *storage.CapabilityError
		if !errors.As(err, &c) || c.Capability != "conditionalBatch" || !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%v, want a *storage.CapabilityError about conditionalBatch", err)
		}
		if left := append(entries(t, s, "upd:"), entries(t, s, "upr:")...); len(left) > 0 {
			t.Errorf("%q were written", left)
		}
		p.stop(t)
	})
}

// UPD-1: an update is answered also while a step takes long, and several are executed at the same time.
func TestUpdateDuringAStep(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if err := increase.Handle(run, nil, func(run *engine.Run, n int) (int, error) {
				return n, run.Sleep(time.Duration(n) * time.Second)
			}); err != nil {
				return "", err
			}
			return engine.Step(run, "long", func(ctx context.Context) (string, error) {
				time.Sleep(time.Hour)
				return "done", nil
			})
		})
		p := boot(t, fresh(t), wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Minute)
		began := time.Now()
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() { add(t, p, "o", fmt.Sprint(i), 10, 10) })
		}
		all.Wait()
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("answered after %v, want 10 s", took)
		}
		result(t, wf.Handle(p, "o"))
		p.stop(t)
	})
}

// UPD-10: what one caller asks for is accepted in that order, also what he no longer waits for: in the engine
// of the run and in another one, while there is no handler yet, and while the function does not wait.
func TestUpdatesInOrder(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		got := map[string]string{}
		wf := &engine.Workflow[string, string]{Name: "wf", Func: func(run *engine.Run, busy string) (string, error) {
			id := run.ID()
			got[id] = ""
			handle := func() error {
				return increase.Handle(run, nil, func(_ *engine.Run, n int) (int, error) {
					got[id] += fmt.Sprint(n, " ")
					return n, nil
				})
			}
			if busy == "" {
				if _, err := approved.Receive(run); err != nil {
					return "", err
				}
				if err := handle(); err != nil {
					return "", err
				}
			} else {
				if err := handle(); err != nil {
					return "", err
				}
				time.Sleep(time.Minute)
			}
			_, err := approved.Receive(run)
			return got[id], err
		}}
		p := boot(t, s, wf, leases)
		for name, c := range map[string]engine.Client{"here": p, "elsewhere": made(t, s, leases)} {
			for _, busy := range []string{"", "busy"} {
				id := name + busy
				start(t, wf, p, id, busy)
				want := ""
				for i := range 30 {
					if _, err := increase.Call(patient(t, time.Second), c, id, i, by(fmt.Sprint((i*7)%30))); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s: update %d: %v, want it to wait", id, i, err)
					}
					want += fmt.Sprint(i, " ")
				}
				if busy == "" {
					send(t, approved, p, id, "x", "x")
				}
				add(t, c, id, "last", 100, 100)
				send(t, approved, p, id, "y", "y")
				if got := result(t, wf.Handle(p, id)); got != want+"100 " {
					t.Errorf("%s: accepted in the order %s", id, got)
				}
			}
		}
		p.stop(t)
	})
}

// UPD-3: a check that panics refuses, and so does one that ends its goroutine. An input that cannot be
// decoded is refused.
func TestChecksThatPanic(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if err := increase.Handle(run, func(n int) error {
				if _, err := engine.Step(run, "in a check", func(context.Context) (int, error) { return 1, nil }); !errors.Is(err, engine.ErrForeignRun) {
					t.Errorf("step in a check: %v, want ErrForeignRun", err)
				}
				if n == 1 {
					panic("oh")
				}
				runtime.Goexit()
				return nil
			}, func(run *engine.Run, n int) (int, error) { return n, nil }); err != nil {
				return "", err
			}
			return approved.Receive(run)
		})
		p := boot(t, fresh(t), wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		before := len(historyOf(t, p.Engine, "o"))
		if _, err := increase.Call(ctx, p, "o", 1, nil); !errors.Is(err, engine.ErrRejected) || !strings.Contains(err.Error(), "oh") {
			t.Errorf("panic: %v, want ErrRejected", err)
		}
		for e, err := range storage.All(ctx, p.Store(), keys.AnswersOf("o")) { // for who looks into the store
			if err != nil || !bytes.Contains(e.Value, []byte("update_test.go")) {
				t.Errorf("the refusal is %q, %v, want the stack of the panic", e.Value, err)
			}
		}
		if _, err := increase.Call(ctx, p, "o", 2, nil); !errors.Is(err, engine.ErrRejected) {
			t.Errorf("Goexit: %v, want ErrRejected", err)
		}
		if err := p.CallUpdate(ctx, &engine.UpdateRequest{WorkflowID: "o", Update: increase.Name, Input: "text"}, nil); !errors.Is(err, engine.ErrRejected) {
			t.Errorf("text for a number: %v, want ErrRejected", err)
		}
		if after := len(historyOf(t, p.Engine, "o")); after != before {
			t.Errorf("%d checkpoints, want %d", after, before)
		}
		send(t, approved, p, "o", "x", "x")
		result(t, wf.Handle(p, "o"))
		p.stop(t)
	})
}

// UPD-11: a parked run is claimed for an update that it handles, and for no other. What comes while it
// parks is found.
func TestUpdateOfAParkedRun(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := totals(&tally{})
		p := boot(t, s, wf, parking)
		other := made(t, s, parking)
		start(t, wf, p, "o", "")
		claims := func() int { return count(historyOf(t, other, "o"), checkpoint.KindClaimed) }
		sum := 0
		for i := range 4 {
			time.Sleep(time.Minute)
			if i := describe(t, p, "o"); i.Owner != "" {
				t.Fatalf("%+v, want it parked", i)
			}
			before := claims()
			if err := other.CallUpdate(patient(t, time.Minute), &engine.UpdateRequest{WorkflowID: "o", Update: "unknown"}, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("update without a handler: %v", err)
			}
			if n := claims(); n != before {
				t.Errorf("claimed for an update that it does not handle")
			}
			sum += i
			add(t, []engine.Client{p, other}[i%2], "o", fmt.Sprint(i), i, sum)
			if n := claims(); n != before+1 {
				t.Errorf("claimed %d times, want 1", n-before)
			}
		}
		// At each moment of parking.
		for i := range 40 {
			time.Sleep(time.Duration(i) * time.Millisecond / 4)
			add(t, other, "o", fmt.Sprint("p", i), 1, sum+i+1)
		}
		p.stop(t)
	})
}

// UPD-11: an update that is admitted just before the commit that parks the run is not overlooked, and one
// that is admitted just after it neither.
func TestUpdateWhileItParks(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		for _, before := range []bool{true, false} {
			wf := flow("wf", func(run *engine.Run) (string, error) {
				if err := increase.Handle(run, nil, func(run *engine.Run, n int) (int, error) { return n, nil }); err != nil {
					return "", err
				}
				return "", run.Sleep(24 * time.Hour)
			})
			s := store.Open(t)
			defer s.Close()
			h := &hooked{Storage: s}
			// Another engine, which notifies the first one through the store only.
			other := made(t, h, parking)
			var armed atomic.Bool
			answer := make(chan error, 1)
			act := func(b storage.Batch) {
				if parks(b, "o") && armed.CompareAndSwap(true, false) {
					go func() {
						_, err := increase.Call(patient(t, 10*time.Minute), other, "o", 1, by("1"))
						answer <- err
					}()
					time.Sleep(time.Millisecond)
					if waits := entries(t, h.Storage, "upd:"); len(waits) != 1 {
						t.Errorf("while the run parks, %q is admitted, want one update", waits)
					}
				}
			}
			if before {
				h.beforeCommit = act
			} else {
				h.afterCommit = func(b storage.Batch) error { act(b); return nil }
			}
			p := boot(t, h, wf, parking)
			start(t, wf, p, "o", "")
			add(t, p, "o", "0", 5, 5) // so that the record says that it has updates
			time.Sleep(time.Minute)
			armed.Store(true)
			add(t, p, "o", "2", 6, 6)
			time.Sleep(time.Second)
			if armed.Load() {
				t.Fatalf("before the commit: %v: it is not met", before)
			}
			if err := <-answer; err != nil {
				t.Errorf("before the commit: %v: %v", before, err)
			}
			p.stop(t)
		}
	})
}

// UPD-12: code that does not handle an update that the history accepts is held, and goes on when it does.
func TestHandlerIsRemoved(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := totals(&tally{})
		p := boot(t, s, wf, leases)
		start(t, wf, p, "o", "")
		add(t, p, "o", "1", 5, 5)
		p.kill()
		without := flow("sums", func(run *engine.Run) (string, error) { return approved.Receive(run) })
		p = boot(t, s, without, leases)
		time.Sleep(time.Minute)
		i := describe(t, p, "o")
		if !heldFor(i, engine.ReasonNonDeterminism) || i.Attention[0].Operation != "u1" {
			t.Errorf("%+v, want it held", i)
		}
		p.stop(t)
		p = boot(t, s, wf, leases)
		add(t, p, "o", "2", 1, 6)
		p.stop(t)
	})
}

// UPD-12: signals behind an update are received as before, in their order.
func TestSignalsBehindAnUpdate(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := flow("wf", func(run *engine.Run) (string, error) {
			sum := 0
			if err := increase.Handle(run, nil, func(_ *engine.Run, n int) (int, error) {
				sum += n
				return sum, nil
			}); err != nil {
				return "", err
			}
			all := ""
			for range 20 {
				v, err := approved.Receive(run)
				if err != nil {
					return "", err
				}
				all += v
			}
			return fmt.Sprint(all, sum), nil
		})
		p := boot(t, s, wf, leases)
		other := made(t, s, leases)
		start(t, wf, p, "o", "")
		for i := range 10 {
			send(t, approved, p, "o", fmt.Sprint("a", i), fmt.Sprint("a", i))
			add(t, []engine.Client{p, other}[i%2], "o", fmt.Sprint(i), 1, i+1)
			send(t, approved, []engine.Client{p, other}[i/2%2], "o", fmt.Sprint("b", i), fmt.Sprint("b", i))
			if i == 5 {
				p.kill()
				p = boot(t, s, wf, leases)
			}
		}
		want := ""
		for i := range 10 {
			want += fmt.Sprint("a", i, "b", i)
		}
		if got := result(t, wf.Handle(p, "o")); got != want+"10" {
			t.Errorf("received %s", got)
		}
		p.stop(t)
	})
}

// UPD-1: a start and an update are one commit, and are repeated together.
func TestUpdateWithStart(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := totals(&tally{})
		p := boot(t, s, wf, leases)
		other := made(t, s, leases)
		for i, c := range []engine.Client{p, other} {
			id := fmt.Sprint("o", i)
			for range 2 {
				if got, err := increase.CallWithStart(ctx, c, wf.Request(id, ""), 5, by("1")); got != 5 || err != nil {
					t.Errorf("%d, %v, want 5", got, err)
				}
			}
			if got, err := increase.CallWithStart(ctx, c, wf.Request(id, ""), 5, by("2")); got != 10 || err != nil {
				t.Errorf("%d, %v, want 10", got, err)
			}
			if _, err := increase.CallWithStart(ctx, c, wf.Request(id, "other"), 5, by("3")); !errors.Is(err, engine.ErrExists) {
				t.Errorf("another input: %v, want ErrExists", err)
			}
			send(t, approved, c, id, "x", "x")
			if got := result(t, wf.Handle(c, id)); got != "10" {
				t.Errorf("the sum is %s, want 10", got)
			}
			if got, err := increase.CallWithStart(ctx, c, wf.Request(id, ""), 5, by("1")); got != 5 || err != nil {
				t.Errorf("after the end: %d, %v, want 5", got, err)
			}
		}
		p.stop(t)
	})
}

// UPD-8: whatever call to the store fails, and whenever the process dies, what was accepted is answered
// once, and what was not is accepted when the client calls again.
func TestUpdatesWhateverCallFails(t *testing.T) {
	t.Logf("%d plays", sweep.Every(t, sweepStores["memory"], torture.Rounds(1, 5, 97), updating))
}

// The record of a workflow says that it has an update, from the first commit with one on.
func TestUpdatesAreNoted(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := totals(&tally{})
		p := boot(t, s, wf, leases)
		other := made(t, s, leases)
		soon := patient(t, time.Minute)
		for id, call := range map[string]func() error{
			"admitted": func() error {
				return other.CallUpdate(soon, &engine.UpdateRequest{WorkflowID: "admitted", Update: "unknown"}, nil)
			},
			"refused": func() error {
				_, err := increase.Call(ctx, p, "refused", -1, nil)
				return err
			},
			"accepted": func() error {
				_, err := increase.Call(ctx, p, "accepted", 1, nil)
				return err
			},
			"started": func() error {
				_, err := increase.CallWithStart(ctx, p, wf.Request("started", ""), 1, nil)
				return err
			},
		} {
			if id != "started" {
				start(t, wf, p, id, "")
				time.Sleep(time.Second)
			}
			err := call()
			if w, e := journal.Load(ctx, s, id); e != nil || !w.Updated() {
				t.Errorf("%s (%v): the record does not say that it has an update: %v", id, err, e)
			}
		}
		p.stop(t)
	})
}
