package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

var approved = &signal.Signal[string]{Name: "approved"}

func send[T any](t testing.TB, s *signal.Signal[T], to signal.Sender, id string, v T, signalID string) signal.Accepted {
	t.Helper()
	var o *signal.Options
	if signalID != "" {
		o = &signal.Options{ID: signalID}
	}
	a, err := s.Send(ctx, to, id, v, o)
	if err != nil {
		t.Fatalf("send %v to %q: %v", v, id, err)
	}
	return canonical(a)
}

// canonical is the part of an answer that is the same for all sends of one ID.
func canonical(a signal.Accepted) signal.Accepted {
	a.Repeated = false
	return a
}

// receiving receives n approvals and returns them.
func receiving(n int) *engine.Workflow[string, string] {
	return flow("w", func(run *engine.Run) (string, error) {
		all := ""
		for range n {
			v, err := approved.Receive(run)
			if err != nil {
				return "", err
			}
			all += v
		}
		return all, nil
	})
}

// SG2, SG5, SG6: accepted before the workflow runs, before it waits and while it
// waits; received in the order of acceptance, also over a restart.
func TestSignalsAreReceivedInOrder(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := receiving(6)
		client := made(t, s)
		defer client.Close()
		start(t, wf, client, "o", "")
		send(t, approved, client, "o", "a", "")
		send(t, approved, client, "o", "b", "x")
		p := boot(t, s, wf)
		send(t, approved, p, "o", "c", "")
		time.Sleep(time.Minute)
		send(t, approved, p, "o", "d", "")
		time.Sleep(time.Minute)
		p.kill()
		send(t, approved, client, "o", "e", "")
		p = boot(t, s, wf)
		time.Sleep(time.Minute)
		send(t, approved, client, "o", "f", "") // by another engine: found within a poll
		if got := result(t, wf.Handle(p, "o")); got != "abcdef" {
			t.Errorf("received %q, want abcdef", got)
		}
		if left := append(entries(t, s, "sig:"), entries(t, s, "inbox:")...); len(left) != 0 {
			t.Errorf("left behind: %q", left)
		}
		if left := append(entries(t, s, "wake:"), entries(t, s, "todo:")...); len(left) != 0 {
			time.Sleep(10 * time.Second)
			if left := append(entries(t, s, "wake:"), entries(t, s, "todo:")...); len(left) != 0 {
				t.Errorf("hints left behind: %q", left)
			}
		}
	})
}

// SIG-7, SIG-12 to SIG-15, SIG-28, SIG-29, SIG-30, SIG-31, SIG-32, SIG-33, SG1, OP-13,
// OP-14: one acceptance for an ID, consumed once; the answer is the same after the end, in another
// process, from another engine.
func TestSignalIDsAreAcceptedOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := receiving(2)
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		first := send(t, approved, p, "o", "a", "evt_1")
		want := signal.Accepted{Accepted: true, WorkflowID: "o", SignalName: "approved", SignalID: "evt_1", AcceptedAt: first.AcceptedAt, SignalStorageKey: "sig:o:approved:evt_1"}
		if first != want || first.AcceptedAt.IsZero() {
			t.Errorf("accepted %+v, want %+v", first, want)
		}
		again := func(when string, to signal.Sender) {
			t.Helper()
			if a, err := approved.Send(ctx, to, "o", "a", &signal.Options{ID: "evt_1"}); err != nil || canonical(a) != first {
				t.Errorf("%s: %+v, %v, want the first answer %+v", when, a, err, first)
			}
			_, err := approved.Send(ctx, to, "o", "secret", &signal.Options{ID: "evt_1"})
			var c *signal.ConflictError
			if !errors.As(err, &c) || !errors.Is(err, signal.ErrConflict) || *c != (signal.ConflictError{WorkflowID: "o", SignalName: "approved", SignalID: "evt_1"}) {
				t.Errorf("%s, another payload: %v, want a *ConflictError", when, err)
			} else if strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: the error shows the payload: %v", when, err)
			}
		}
		again("at once", p)
		time.Sleep(time.Minute)
		again("after it was consumed", p)
		p.kill()
		p = boot(t, s, wf)
		again("after a restart", p)
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusRunning {
			t.Fatalf("status %s: it was consumed twice", i.Status)
		}
		send(t, approved, p, "o", "b", "EVT_1") // another case is another ID
		if got := result(t, wf.Handle(p, "o")); got != "ab" {
			t.Errorf("received %q, want ab", got)
		}
		again("after the end", p)
		_, err := approved.Send(ctx, p, "o", "c", &signal.Options{ID: "new"})
		var end *engine.TerminalError
		if !errors.As(err, &end) || !errors.Is(err, engine.ErrTerminal) || *end != (engine.TerminalError{WorkflowID: "o", Status: checkpoint.StatusCompleted}) {
			t.Errorf("a new one after the end: %v, want a *TerminalError", err)
		}
		if _, err := approved.Send(ctx, p, "nobody", "c", nil); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("to nobody: %v, want ErrNotFound", err)
		}
		client := made(t, s)
		defer client.Close()
		again("from another engine", client)
	})
}

// SIG-7: an ID is taken for one signal of one workflow. Another signal of that workflow, and
// that signal of another workflow, may have it too.
func TestSignalIDsAreOfOneWorkflowAndName(t *testing.T) {
	s := fresh(t)
	e := made(t, s)
	defer e.Close()
	for _, id := range []string{"o", "p"} {
		start(t, receiving(1), e, id, "")
		for _, to := range []*signal.Signal[string]{approved, {Name: "other"}} {
			want := signal.Accepted{Accepted: true, WorkflowID: id, SignalName: to.Name, SignalID: "evt_1", SignalStorageKey: "sig:" + id + ":" + to.Name + ":evt_1"}
			a, err := to.Send(ctx, e, id, id+to.Name, &signal.Options{ID: "evt_1"})
			if a.AcceptedAt = want.AcceptedAt; err != nil || a != want {
				t.Errorf("%s to %s: %+v, %v, want %+v", to.Name, id, a, err, want)
			}
		}
		if got := signalsOf(t, e, id); !slices.Equal(got, []string{"approved/evt_1", "other/evt_1"}) {
			t.Errorf("for %s wait %q", id, got)
		}
	}
}

// SIG-9, SIG-11, SIG-14, SIG-15, OP-6: signal ids and names at the door.
func TestSignalIDsAtTheDoor(t *testing.T) {
	s := fresh(t)
	e := made(t, s)
	defer e.Close()
	wf := receiving(1)
	start(t, wf, e, "o", "")
	before := len(entries(t, s, ""))
	for _, id := range []string{"", strings.Repeat("x", 129), strings.Repeat("é", 65), "\xff"} {
		if _, err := approved.Send(ctx, e, "o", "v", &signal.Options{ID: id}); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("signal id %.20q: %v, want ErrInvalid", id, err)
		}
	}
	for _, name := range []string{"", strings.Repeat("x", 101), "\xff"} {
		if _, err := (&signal.Signal[int]{Name: name}).Send(ctx, e, "o", 1, nil); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("signal name %.20q: %v, want ErrInvalid", name, err)
		}
	}
	if _, err := (&signal.Signal[chan int]{Name: "c"}).Send(ctx, e, "o", make(chan int), nil); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("a channel: %v, want ErrInvalid", err)
	}
	if _, err := approved.Send(ctx, e, "o", strings.Repeat("x", engine.MaxPayload), nil); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("too large a payload: %v, want ErrInvalid", err)
	}
	if after := len(entries(t, s, "")); after != before {
		t.Errorf("%d records were written", after-before)
	}
	ids := []string{"a", "A", " a", "a ", "e\u0301", "é", "a:b", "a%3Ab", "a/b", "\x00", strings.Repeat("x", 128), strings.Repeat("é", 64)}
	for _, id := range ids {
		send(t, approved, e, "o", "v", id)
	}
	if n := len(entries(t, s, "sig:")); n != len(ids) {
		t.Errorf("%d signals are there, want %d", n, len(ids))
	}
}

// TM3: what comes first is what is received: a signal or the end of the wait.
func TestReceiveWithin(t *testing.T) {
	for _, c := range []struct {
		within, after time.Duration
		want          string
	}{
		{time.Hour, 30 * time.Minute, "v true"},
		{time.Hour, 61 * time.Minute, " false"},
		{0, -1, "v true"}, // there already
		{0, time.Minute, " false"},
		{-time.Hour, time.Minute, " false"},
	} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			var seen []string
			wf := flow("w", func(run *engine.Run) (string, error) {
				v, ok, err := approved.ReceiveWithin(run, c.within)
				seen = append(seen, fmt.Sprint(v, " ", ok))
				if err != nil {
					return "", err
				}
				return fmt.Sprint(v, " ", ok), run.Sleep(3 * time.Hour)
			})
			client := made(t, s)
			defer client.Close()
			start(t, wf, client, "o", "")
			if c.after < 0 {
				send(t, approved, client, "o", "v", "")
			}
			p := boot(t, s, wf, func(c *engine.Config) { c.PollInterval = time.Minute })
			begun := time.Now()
			if c.after >= 0 {
				time.Sleep(c.after)
				send(t, approved, p, "o", "v", "")
			}
			time.Sleep(2*time.Hour - time.Since(begun))
			p.kill()
			p = boot(t, s, wf, func(c *engine.Config) { c.PollInterval = time.Minute })
			got, err := wf.Handle(p, "o").Result(ctx)
			if err != nil || got != c.want || len(seen) != 2 || seen[0] != seen[1] {
				t.Errorf("within %v, sent after %v: %q, %v; want %q; live and replayed %q", c.within, c.after, got, err, c.want, seen)
			}
			if took := time.Since(begun); took > 6*time.Hour {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// SG7, SG8: an acceptance of which the sender did not hear is the same when it is
// sent again, and is received although nobody was told of it.
func TestSendOfUnknownOutcome(t *testing.T) {
	for _, fault := range []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter} {
		for _, apart := range []bool{false, true} { // else its receiver takes it at once
			virtual(t, func(t *testing.T) {
				var broken atomic.Bool
				inner := fresh(t)
				f := storagetest.NewFaulty(inner, func(c storagetest.Call) storagetest.Fault {
					if c.Method == "Commit" && touches(c.Batch, "sigres:") && broken.CompareAndSwap(true, false) {
						return fault
					}
					return storagetest.None
				})
				wf := receiving(1)
				p := bootOn(t, f, wf)
				sender := p.Engine
				if apart {
					sender = made(t, f)
					defer sender.Close()
				}
				start(t, wf, p, "o", "")
				time.Sleep(time.Second)
				broken.Store(true)
				begun := time.Now()
				a := send(t, approved, sender, "o", "v", "evt_1")
				if broken.Load() {
					t.Fatal("the fault was not met")
				}
				if got := result(t, wf.Handle(p, "o")); got != "v" || time.Since(begun) > 5*time.Second {
					t.Errorf("received %q after %v", got, time.Since(begun))
				}
				if b := send(t, approved, sender, "o", "v", "evt_1"); a != b {
					t.Errorf("again: %+v, first %+v", b, a)
				}
			})
		}
	}
}

// A run with many signals of another name reads them once and finds its own.
func TestSignalBehindManyOthers(t *testing.T) {
	virtual(t, func(t *testing.T) {
		noise := &signal.Signal[int]{Name: "noise"}
		wf := flow("w", func(run *engine.Run) (string, error) {
			v, err := approved.Receive(run)
			if err != nil {
				return "", err
			}
			n, ok, err := noise.ReceiveWithin(run, 0)
			return fmt.Sprint(v, n, ok), err
		})
		p := boot(t, fresh(t), wf)
		start(t, wf, p, "o", "")
		for i := range 350 {
			send(t, noise, p, "o", i, "")
		}
		send(t, approved, p, "o", "v", "")
		if got := result(t, wf.Handle(p, "o")); got != "v0 true" {
			t.Errorf("got %q, want its own and the first of the others", got)
		}
	})
}

// SIG-39, SIG-40, CAP-2, CAP-5: without conditional batches an ID is refused and
// a signal without one is accepted.
func TestSignalOnAStoreWithoutConditions(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := receiving(1)
		s := fresh(t)
		p := boot(t, storagetest.NoConditions(s), wf, func(c *engine.Config) { c.Ownership = engine.OwnershipSingleOwner })
		start(t, wf, p, "o", "")
		_, err := approved.Send(ctx, p, "o", "v", &signal.Options{ID: "x"})
		var c *storage.CapabilityError
		if !errors.As(err, &c) || c.Capability != "conditionalBatch" || c.Adapter != "*memory.Store" {
			t.Errorf("with an ID: %v, want a *storage.CapabilityError about conditionalBatch", err)
		}
		if n := len(entries(t, s, "sig")); n != 0 {
			t.Errorf("with an ID: %d records were written", n)
		}
		send(t, approved, p, "o", "v", "")
		if got := result(t, wf.Handle(p, "o")); got != "v" {
			t.Errorf("received %q", got)
		}
	})
}

// SG5: a signal that its receiver has no use for any more goes to the next
// receiver, before those that were accepted after it.
func TestSignalThatIsPutBackComesFirst(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("w", func(run *engine.Run) (string, error) {
			inner, cancel := run.WithCancel()
			said := ""
			receive := func(name string) func(run *engine.Run) (any, error) {
				return func(run *engine.Run) (any, error) {
					v, err := yes.Receive(run)
					if err == nil {
						said += name + v + " "
					}
					if v == "1" {
						cancel()
					}
					return nil, err
				}
			}
			engine.Go(run, "a", receive("a"))
			engine.Go(inner, "b", receive("b"))
			_, err := engine.Go(run, "c", receive("c")).Get(run)
			return said, err
		})
		s := fresh(t)
		p := boot(t, s, wf)
		start(t, wf, p, "w", "")
		time.Sleep(time.Second)
		p.stop(t)
		e := made(t, s)
		for _, v := range []string{"1", "2", "3"} {
			tell(t, yes, e, "w", v)
		}
		e.Close()
		p = boot(t, s, wf)
		h := wf.Handle(p, "w")
		if got := result(t, h); got != "a1 c2 " {
			t.Errorf("got %q", got)
		}
	})
}
