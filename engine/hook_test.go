package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

var paid = &signal.Hook[string]{Name: "paid"}

// waitsFor is a workflow that opens a hook with the token of its input, or a minted one, and returns
// what the hook gets.
func waitsFor(name string) *engine.Workflow[string, string] {
	return &engine.Workflow[string, string]{Name: name, Func: func(run *engine.Run, token string) (string, error) {
		h, err := paid.Open(run, &signal.HookOptions{Token: token})
		if err != nil {
			return "", err
		}
		set(run, h.Token(), 1)
		return h.Receive(run)
	}}
}

// tokenOf waits for the token that waitsFor has.
func tokenOf(t testing.TB, c engine.Client, id string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	token, err := phase.Await(ctx, c, id, func(token string) bool { return token != "" })
	if err != nil {
		t.Fatalf("token of %q: %v", id, err)
	}
	return token
}

// resume resumes a hook with an ID.
func resume(t testing.TB, to signal.Sender, token, v, id string) signal.Accepted {
	t.Helper()
	a, err := paid.Resume(ctx, to, token, v, &signal.Options{ID: id})
	if err != nil {
		t.Fatalf("resume with %q: %v", v, err)
	}
	return a
}

// A token resumes the run that has opened the hook, also while it is parked. Sent again,
// also after the end and the purge, it gets the first answer. No key has the token.
func TestHook(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := waitsFor("wf")
		p := boot(t, s, wf, parking)
		for _, chosen := range []string{"", "invoice/7: ü"} {
			h := start(t, wf, p, "o", chosen)
			token := tokenOf(t, p, "o")
			if chosen != "" && token != chosen || len(token) < 7 {
				t.Errorf("token %q, want %q", token, chosen)
			}
			time.Sleep(time.Minute)
			if i := describe(t, p, "o"); i.Owner != "" {
				t.Fatalf("%+v, want it parked", i)
			}
			first := resume(t, p, token, "r1", "evt")
			if first.WorkflowID != "o" || !strings.HasPrefix(first.SignalName, "hook/hook_") || first.Repeated {
				t.Errorf("accepted %+v", first)
			}
			if got := result(t, h); got != "r1" {
				t.Errorf("result %q", got)
			}
			for e, err := range storage.All(ctx, s, storage.Range{}) {
				if err != nil || strings.Contains(string(e.Key), token) || strings.Contains(string(e.Key), string(storage.AppendKey(nil, token))) {
					t.Errorf("key %q has the token, %v", e.Key, err)
				}
			}
			intact(t, s)
			again := func(when string) {
				t.Helper()
				a := resume(t, p, token, "r1", "evt")
				if !a.Repeated || canonical(a) != canonical(first) {
					t.Errorf("%s: answered %+v, want %+v", when, a, first)
				}
				if _, err := paid.Resume(ctx, p, token, "r2", &signal.Options{ID: "evt"}); !errors.Is(err, signal.ErrConflict) {
					t.Errorf("%s, with another payload: %v, want ErrConflict", when, err)
				}
				if _, err := paid.Resume(ctx, p, token, "r1", nil); !errors.Is(err, engine.ErrNotFound) || strings.Contains(err.Error(), token) {
					t.Errorf("%s, without an ID: %v, want ErrNotFound without the token", when, err)
				}
			}
			again("ended")
			if err := p.Purge(ctx, "o", audit); err != nil {
				t.Fatal(err)
			}
			if left := slices.Concat(entries(t, s, "hk:"), entries(t, s, "hook:")); len(left) > 0 {
				t.Errorf("purged, and there is %q", left)
			}
			again("purged")
		}
		p.stop(t)
	})
}

// The answer to a resume is forgotten when its acceptance is, and not before.
func TestAnswerToAResumeExpires(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", func(run *engine.Run) (string, error) {
			h, err := paid.Open(run, &signal.HookOptions{Token: "t"})
			if err == nil {
				err = run.Sleep(10 * time.Hour)
			}
			if err != nil {
				return "", err
			}
			first, err := h.Receive(run)
			if err != nil {
				return "", err
			}
			second, _, err := h.ReceiveWithin(run, 100*time.Hour)
			return first + second, err
		})
		p := boot(t, s, wf, parking, func(c *engine.Config) { c.SignalIDRetention = time.Hour })
		h := start(t, wf, p, "o", "")
		eventually(t, "it is open", func() bool { return len(entries(t, s, "hook:")) == 1 })
		resume(t, p, "t", "1", "x")
		time.Sleep(5 * time.Hour)
		if a := resume(t, p, "t", "1", "x"); !a.Repeated { // it waits, and is remembered for as long
			t.Error("accepted twice while it waits")
		}
		if kept := entries(t, s, "hres:"); len(kept) != 1 {
			t.Errorf("it waits, and its answers are %q", kept)
		}
		time.Sleep(8 * time.Hour)
		if left := slices.Concat(entries(t, s, "hres:"), entries(t, s, "exp:")); len(left) > 0 {
			t.Errorf("it has expired, and there is %q", left)
		}
		if a := resume(t, p, "t", "2", "x"); a.Repeated {
			t.Error("remembered for ever")
		}
		if got := result(t, h); got != "12" {
			t.Errorf("result %q", got)
		}
		p.stop(t)
	})
}

// Three runs have one token in turn. A resume of the first one is answered as it was, and the
// others get nothing of it.
func TestTokenInTurn(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := waitsFor("wf")
		p := boot(t, s, wf, parking)
		var first signal.Accepted
		for i, id := range []string{"a", "b", "c"} {
			h := start(t, wf, p, id, "token")
			tokenOf(t, p, id)
			a := resume(t, p, "token", "to a", "evt")
			if i == 0 {
				first = a
			} else if canonical(a) != canonical(first) {
				t.Errorf("%s: answered %+v, want %+v", id, a, first)
			} else {
				time.Sleep(time.Minute)
				if i := describe(t, p, id); i.Status.Terminal() {
					t.Errorf("%s got what was for a", id)
				}
				resume(t, p, "token", "to "+id, "evt "+id)
			}
			if got := result(t, h); got != "to "+id {
				t.Errorf("%s: result %q", id, got)
			}
			if i == 1 {
				if err := p.Purge(ctx, "a", audit); err != nil {
					t.Fatal(err)
				}
			}
		}
		intact(t, s)
		p.stop(t)
	})
}

// A token has one open hook. Another Open of it is refused, also by the same run, until the hook
// is disposed of. What the hook got before can still be received.
func TestTokenIsTaken(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		other := waitsFor("other")
		var refusal atomic.Pointer[signal.TokenError]
		wf := flow("wf", func(run *engine.Run) (string, error) {
			h, err := paid.Open(run, &signal.HookOptions{Token: "token"})
			if err != nil {
				return "", err
			}
			_, err = paid.Open(run, &signal.HookOptions{Token: "token"})
			taken, ok := errors.AsType[*signal.TokenError](err)
			if !ok || !errors.Is(err, signal.ErrTokenTaken) {
				return "", fmt.Errorf("opened twice: %v", err)
			}
			refusal.Store(&signal.TokenError{WorkflowID: taken.WorkflowID})
			if _, err := approved.Receive(run); err != nil {
				return "", err
			}
			if err := errors.Join(h.Dispose(run), h.Dispose(run)); err != nil {
				return "", err
			}
			got, err := h.Receive(run)
			if err != nil {
				return "", err
			}
			none, ok, err := h.ReceiveWithin(run, 5*time.Minute)
			if ok {
				got += none
			}
			return got, err
		})
		p := boot(t, s, wf, other, parking)
		h := start(t, wf, p, "o", "")
		time.Sleep(time.Minute)
		if taken := refusal.Load(); taken == nil || taken.WorkflowID != "o" || strings.Contains(taken.Error(), "token\"") {
			t.Fatalf("opened twice: %v", taken)
		}
		refused := start(t, other, p, "refused", "token")
		if _, err := outcome(refused); !strings.Contains(fmt.Sprint(err), signal.ErrTokenTaken.Error()) || !strings.Contains(fmt.Sprint(err), `"o"`) {
			t.Errorf("another run: %v, want a TokenError with o", err)
		}
		resume(t, p, "token", "before", "1")
		send(t, approved, p, "o", "go on", "")
		time.Sleep(time.Minute)
		if _, err := paid.Resume(ctx, p, "token", "after", nil); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("disposed of: %v, want ErrNotFound", err)
		}
		next := start(t, other, p, "next", "token")
		tokenOf(t, p, "next")
		resume(t, p, "token", "next", "2")
		if got, of := result(t, h), result(t, next); got != "before" || of != "next" {
			t.Errorf("results %q, %q", got, of)
		}
		if ks := kinds(historyOf(t, p.Engine, "o")); !slices.Contains(ks, checkpoint.KindOpened) || !slices.Contains(ks, checkpoint.KindDisposed) {
			t.Errorf("history %v", ks)
		}
		intact(t, s)
		p.stop(t)
	})
}

// WLD-58, WLD-60, WLD-61: 250 hooks, or as many as a run may have on a store with small batches, do not outlive
// their run, however it ends. One commit frees all tokens and ends the run.
func TestHooksEndWithTheirRun(t *testing.T) {
	const most = 250
	ends := map[string]func(p *process) error{
		"completed":  func(p *process) error { _, err := approved.Send(ctx, p, "o", "", nil); return err },
		"failed":     func(p *process) error { _, err := approved.Send(ctx, p, "o", "fail", nil); return err },
		"cancelled":  func(p *process) error { return p.Cancel(ctx, "o", audit) },
		"terminated": func(p *process) error { return p.Terminate(ctx, "o", audit) },
	}
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		for _, end := range slices.Sorted(maps.Keys(ends)) {
			s := store.Open(t)
			least := most
			if ops := s.Capabilities().MaxBatch.Ops; ops > 0 && ops < 2*most {
				least = 20
			}
			var many atomic.Int64 // hooks that are open
			wf := flow("wf", func(run *engine.Run) (string, error) {
				n := int64(0)
				for ; n < most; n++ {
					_, err := paid.Open(run, &signal.HookOptions{Token: fmt.Sprint("token ", n)})
					if errors.Is(err, engine.ErrBusy) {
						break // the store has small batches
					}
					if err != nil {
						return "", err
					}
				}
				many.Store(n)
				v, err := approved.Receive(run)
				if v == "fail" {
					err = errBroke
				}
				return v, err
			})
			freeing := 0
			counted := &witnessed{s, func(b storage.Batch) {
				n, ends := 0, false
				for _, op := range b.Ops {
					if strings.HasPrefix(string(op.Key), "hook:") && op.Kind == storage.DeleteOp {
						n++
					}
					ends = ends || strings.HasPrefix(string(op.Key), "wf:o:out")
				}
				if n > 0 {
					freeing++
					if n != int(many.Load()) || !ends {
						t.Errorf("%s: a commit frees %d tokens, and ends the run: %v", end, n, ends)
					}
				}
			}}
			p := boot(t, counted, wf)
			h := start(t, wf, p, "o", "")
			eventually(t, "all are open", func() bool { return many.Load() > 0 })
			if n := len(entries(t, s, "hook:")); n != int(many.Load()) || n < least {
				t.Errorf("%s: %d tokens are taken, the run has opened %d hooks", end, n, many.Load())
			}
			intact(t, s)
			if err := ends[end](p); err != nil {
				t.Fatal(err)
			}
			_, _ = outcome(h)
			synctest.Wait() // the end can be read before its commit is counted
			if open := entries(t, s, "hook:"); len(open) > 0 || freeing != 1 {
				t.Errorf("%s: %d tokens are taken, after %d commits that free some", end, len(open), freeing)
			}
			intact(t, s)
			p.stop(t)
			s.Close()
		}
	})
}

// The process that ends a run with 250 hooks dies before or after any of its calls to the store: all tokens are free or none is.
// They are when the next process has ended the run, and 250 hooks may have them.
func TestEndOfManyHooksMayCrash(t *testing.T) {
	many, stride := torture.Rounds(250, 250, 50), torture.Rounds(1, 1, 3)
	plays := 0
	for end, f := range map[string]func(ctx context.Context, p *process) error{
		"completed": func(ctx context.Context, p *process) error {
			_, err := approved.Send(ctx, p, "o", "", &signal.Options{ID: "x"})
			return err
		},
		"failed": func(ctx context.Context, p *process) error {
			_, err := approved.Send(ctx, p, "o", "fail", &signal.Options{ID: "x"})
			return err
		},
		"cancelled":  func(ctx context.Context, p *process) error { return p.Cancel(ctx, "o", audit) },
		"terminated": func(ctx context.Context, p *process) error { return p.Terminate(ctx, "o", audit) },
	} {
		for _, fault := range []storagetest.Fault{storagetest.CrashBefore, storagetest.CrashAfter} {
			for call := 1 + plays%stride; ; call += stride {
				reached := false
				virtual(t, func(t *testing.T) { reached = endsHooks(t, many, end, f, call, fault) })
				if !reached || t.Failed() {
					break
				}
				plays++
			}
		}
	}
	t.Logf("%d crashes", plays)
	if plays < 16 {
		t.Errorf("%d crashes were met, want 16 or more", plays)
	}
}

// endsHooks ends a run with many hooks while its process dies at a call to the store. It reports whether there was such a call.
func endsHooks(t *testing.T, many int, end string, f func(ctx context.Context, p *process) error, call int, fault storagetest.Fault) (reached bool) {
	s := fresh(t)
	wf := flow("wf", func(run *engine.Run) (string, error) {
		for i := range many {
			if _, err := paid.Open(run, &signal.HookOptions{Token: fmt.Sprint("token ", i)}); err != nil {
				return "", err
			}
		}
		set(run, "open", many)
		v, err := approved.Receive(run)
		if v == "fail" {
			err = errBroke
		}
		return v, err
	})
	var calls, ends atomic.Int64
	var ending atomic.Bool
	dies := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
		if ending.Load() && calls.Add(1) == int64(call) {
			return fault
		}
		return storagetest.None
	})
	p := bootOn(t, dies, wf)
	h := start(t, wf, p, "o", "")
	taken := func() int { return len(entries(t, s, "hook:")) }
	eventually(t, "all are open", func() bool { return taken() == many })
	ending.Store(true)
	wait, stop := context.WithTimeout(ctx, 10*time.Second) // who is dead answers nothing
	defer stop()
	err := f(wait, p)
	if err == nil {
		_, err = h.Result(wait)
	}
	dead := calls.Load() >= int64(call)
	if n := taken(); n != 0 && (n != many || !dead) {
		t.Errorf("%s, call %d, fault %d: %d tokens are taken (%v)", end, call, fault, n, err)
	}
	p.kill()
	p = boot(t, &witnessed{s, func(b storage.Batch) {
		if touches(b, "hook:") {
			ends.Add(1)
		}
	}}, wf)
	before := taken()
	if err := f(ctx, p); err != nil && !errors.Is(err, engine.ErrTerminal) {
		t.Errorf("%s, call %d, fault %d: again: %v", end, call, fault, err)
	}
	_, _ = outcome(wf.Handle(p, "o"))
	synctest.Wait() // the end can be read before its commit is counted
	if n := taken(); n != 0 || before > 0 && ends.Load() != 1 {
		t.Errorf("%s, call %d, fault %d: %d tokens are taken after the end, which took %d commits", end, call, fault, n, ends.Load())
	}
	start(t, wf, p, "next", "")
	eventually(t, "all are open again", func() bool { return taken() == many })
	intact(t, s)
	p.stop(t)
	return dead
}

// The record of a hook is damaged: the run is held when it ends, and an operator can end it. That
// frees the tokens of its hooks, and those of no other run.
func TestDamagedHook(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		other := waitsFor("other")
		wf := flow("wf", func(run *engine.Run) (string, error) {
			for _, token := range []string{"a", "b"} {
				if _, err := paid.Open(run, &signal.HookOptions{Token: token}); err != nil {
					return "", err
				}
			}
			return approved.Receive(run)
		})
		p := boot(t, s, wf, other, parking)
		start(t, other, p, "other", "c")
		start(t, wf, p, "o", "")
		eventually(t, "they are open", func() bool { return len(entries(t, s, "hook:")) == 3 })
		p.kill()
		r, err := journal.Load(ctx, s, "o")
		if err != nil {
			t.Fatal(err)
		}
		hooks, err := journal.Hooks(ctx, s, r)
		if err != nil || len(hooks) != 2 {
			t.Fatalf("%d hooks, %v", len(hooks), err)
		}
		put(t, s, keys.Hook("o", hooks[0].ID), []byte("damaged"))

		p = boot(t, s, wf, other, parking)
		send(t, approved, p, "o", "x", "")
		eventually(t, "it is held", func() bool { return heldFor(describe(t, p, "o"), engine.ReasonDamaged) })
		if err := p.Terminate(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusCancelled {
			t.Errorf("terminated, and it is %s", i.Status)
		}
		if open := entries(t, s, "hook:"); len(open) != 1 {
			t.Errorf("terminated, and the tokens are %q", open)
		}
		next := start(t, other, p, "next", "a")
		tokenOf(t, p, "next")
		resume(t, p, "a", "to next", "x")
		if got := result(t, next); got != "to next" {
			t.Errorf("result %q", got)
		}
		if err := p.Purge(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		intact(t, s)
		p.stop(t)
	})
}

// witnessed is a store that tells which batches it has committed.
type witnessed struct {
	storage.Storage
	committed func(b storage.Batch)
}

func (o *witnessed) Unwrap() storage.Storage { return o.Storage }

func (o *witnessed) Commit(ctx context.Context, b storage.Batch) error {
	err := o.Storage.Commit(ctx, b)
	if err == nil {
		o.committed(b)
	}
	return err
}

// A run has at most 1,000 open hooks, or as many as half of the store's largest batch holds.
func TestTooManyHooks(t *testing.T) {
	virtual(t, func(t *testing.T) {
		for most, s := range map[int]storage.Storage{1000: new(memory.Store), 58: &hooked{Storage: new(memory.Store), max: storage.Size{Ops: 200}}} {
			opened := 0
			wf := flow("wf", func(run *engine.Run) (string, error) {
				opened = 0
				var last *signal.OpenHook[string]
				for {
					h, err := paid.Open(run, nil)
					if errors.Is(err, engine.ErrBusy) {
						break
					}
					if err != nil {
						return "", err
					}
					last, opened = h, opened+1
				}
				if err := last.Dispose(run); err != nil {
					return "", err
				}
				_, err := paid.Open(run, nil)
				return "", errors.Join(err, errBroke)
			})
			p := boot(t, s, wf)
			h := start(t, wf, p, "o", "")
			if _, err := outcome(h); !strings.Contains(fmt.Sprint(err), errBroke.Error()) || opened != most {
				t.Errorf("%v after %d hooks, want %d", err, opened, most)
			}
			if left := entries(t, s, "hook:"); len(left) > 0 {
				t.Errorf("%d tokens are taken", len(left))
			}
			if err := p.Resume(ctx, "o", audit); err != nil {
				t.Errorf("retry: %v", err)
			}
			if _, err := outcome(h); !strings.Contains(fmt.Sprint(err), errBroke.Error()) {
				t.Error(err)
			}
			intact(t, s)
			p.stop(t)
		}
	})
}

// Hooks stay open when the run continues as new, with what waits in them. An Open of the same
// token takes the hook over; one that is not taken over is free at the end.
func TestHookOverLives(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		type state struct {
			Life      int
			ID, Words string
			Minted    string
		}
		wf := &engine.Workflow[state, string]{Name: "wf", Func: func(run *engine.Run, st state) (string, error) {
			h, err := paid.Open(run, &signal.HookOptions{Token: "token"})
			if err != nil {
				return "", err
			}
			if st.Life > 0 && h.ID() != st.ID {
				return "", fmt.Errorf("hook %s, want %s", h.ID(), st.ID)
			}
			m, err := paid.Open(run, &signal.HookOptions{Token: st.Minted})
			if err != nil {
				return "", err
			}
			if _, err := paid.Open(run, nil); err != nil { // left open
				return "", err
			}
			v, err := h.Receive(run)
			if err != nil {
				return "", err
			}
			st.Words += v
			st.ID, st.Minted = h.ID(), m.Token()
			if st.Life++; st.Life < 3 {
				return "", engine.ContinueAsNew(run, st)
			}
			v, err = m.Receive(run)
			return st.Words + v, err
		}}
		p := boot(t, s, wf, parking)
		h := start(t, wf, p, "o", state{})
		eventually(t, "it is open", func() bool { return len(entries(t, s, "hook:")) == 3 })
		for i := range 3 {
			resume(t, p, "token", fmt.Sprint(i), fmt.Sprint("evt", i))
		}
		eventually(t, "the third life", func() bool { return len(entries(t, s, "hook:")) == 5 })
		intact(t, s)
		var minted string
		for _, c := range historyOf(t, p.Engine, "o") {
			for _, e := range c.Events {
				if e.Kind == checkpoint.KindOpened && minted == "" && !strings.Contains(string(e.Result), `"token":"token"`) {
					_, minted, _ = strings.Cut(string(e.Result), `"token":"`)
					minted = strings.TrimSuffix(minted, `"}`)
				}
			}
		}
		resume(t, p, minted, "m", "m")
		if got := result(t, h); got != "012m" {
			t.Errorf("result %q, want 012m", got)
		}
		if left := entries(t, s, "hook:"); len(left) > 0 {
			t.Errorf("%d tokens are taken", len(left))
		}
		intact(t, s)
		p.stop(t)
	})
}

// A retry opens the hooks again that were open when the run failed. If another run has one of
// the tokens, it is refused and nothing is written.
func TestRetryOpensHooks(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		other := waitsFor("other")
		fails := true
		wf := flow("wf", func(run *engine.Run) (string, error) {
			h, err := paid.Open(run, &signal.HookOptions{Token: "token"})
			if err != nil {
				return "", err
			}
			gone, err := paid.Open(run, &signal.HookOptions{Token: "gone"})
			if err == nil {
				err = gone.Dispose(run)
			}
			if err != nil {
				return "", err
			}
			if _, err := engine.Step(run, "s", func(context.Context) (int, error) {
				if fails {
					return 0, errBroke
				}
				return 1, nil
			}); err != nil {
				return "", err
			}
			return h.Receive(run)
		})
		p := boot(t, s, wf, other)
		h := start(t, wf, p, "o", "")
		if _, err := outcome(h); err == nil {
			t.Fatal("it did not fail")
		}
		holder := start(t, other, p, "holder", "token")
		tokenOf(t, p, "holder")
		time.Sleep(time.Second)
		before := snapshot(t, s)
		var taken *signal.TokenError
		if err := p.Resume(ctx, "o", audit); !errors.As(err, &taken) || taken.WorkflowID != "holder" {
			t.Errorf("retry: %v, want a TokenError with holder", err)
		}
		if !sameBut(t, before, snapshot(t, s), "eng:", "meta:") {
			t.Error("a retry that was refused has written something")
		}
		resume(t, p, "token", "x", "x")
		result(t, holder)
		fails = false
		if err := p.Resume(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		if open := entries(t, s, "hook:"); len(open) != 1 {
			t.Errorf("open after the retry: %q", open)
		}
		intact(t, s)
		resume(t, p, "token", "y", "y")
		if got := result(t, h); got != "y" {
			t.Errorf("result %q", got)
		}
		p.stop(t)
	})
}

// What is no token, a name or a message of a hook is refused before anything is written.
func TestHooksThatAreRefused(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var refusals atomic.Pointer[[]error]
		wf := flow("wf", func(run *engine.Run) (string, error) {
			var errs []error
			open := func(h *signal.Hook[string], token string) {
				_, err := h.Open(run, &signal.HookOptions{Token: token})
				errs = append(errs, err)
			}
			open(paid, "@acme/prod/x")
			open(paid, "@")
			open(paid, strings.Repeat("a", 513))
			open(paid, "\xff")
			open(&signal.Hook[string]{}, "x")
			open(&signal.Hook[string]{Name: strings.Repeat("a", 101)}, "x")
			open(paid, strings.Repeat("a", 512))
			refusals.Store(&errs)
			return approved.Receive(run)
		})
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", "")
		eventually(t, "it is open", func() bool { return len(entries(t, s, "hook:")) == 1 })
		time.Sleep(time.Second)
		errs := *refusals.Load()
		for i, err := range errs {
			if valid := i == len(errs)-1; valid != (err == nil) || !valid && !errors.Is(err, engine.ErrInvalid) || strings.Contains(fmt.Sprint(err), "acme") {
				t.Errorf("open %d: %v", i, err)
			}
		}
		before := snapshot(t, s)
		token, other, id := strings.Repeat("a", 512), "", "x"
		long, broken := strings.Repeat("a", 700), "\xff"
		for what, m := range map[string]signal.Message{
			"both":          {Token: &token, WorkflowID: "o"},
			"and a start":   {Token: &token, Start: &engine.StartRequest{Workflow: "wf", ID: "n"}},
			"empty":         {Token: &other},
			"long":          {Token: &long},
			"not UTF-8":     {Token: &broken},
			"empty ID":      {Token: &token, ID: &other},
			"user's signal": {WorkflowID: "o", Name: "hook/x", ID: &id},
		} {
			if _, err := p.SendSignal(ctx, m); !errors.Is(err, engine.ErrInvalid) || strings.Contains(err.Error(), token) {
				t.Errorf("%s: %v, want ErrInvalid", what, err)
			}
		}
		if !sameBut(t, before, snapshot(t, s), "eng:", "meta:") {
			t.Error("something was written")
		}
		send(t, approved, p, "o", "x", "")
		result(t, h)
		p.stop(t)

		single := boot(t, new(memory.Store), waitsFor("wf"), func(c *engine.Config) { c.Ownership = engine.OwnershipSingleOwner })
		if _, err := paid.Resume(ctx, single, "t", "v", nil); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("resume without conditions: %v", err)
		}
		one := start(t, waitsFor("wf"), single, "o", "")
		if _, err := outcome(one); !strings.Contains(fmt.Sprint(err), "conditionalBatch") {
			t.Errorf("open without conditions: %v", err)
		}
		single.stop(t)
	})
}

// Of many resumes with one ID, over two processes, one is received, and all get its answer. Those
// with different IDs are all received, in the order of their acceptance.
func TestManyResumes(t *testing.T) {
	const many = 64
	onProcesses(t, 2, func(t *testing.T, ss []storage.Storage) {
		one, two := ss[0], ss[1]
		wf := flow("wf", func(run *engine.Run) (string, error) {
			h, err := paid.Open(run, &signal.HookOptions{Token: "token"})
			var all []string
			if err == nil {
				_, err = approved.Receive(run)
			}
			for len(all) <= many && err == nil {
				var v string
				if v, err = h.Receive(run); err == nil {
					all = append(all, v)
				}
			}
			return strings.Join(all, ","), err
		})
		p, q := boot(t, one, wf), boot(t, two, wf, func(c *engine.Config) { c.Name = "other" })
		h := start(t, wf, p, "o", "")
		eventually(t, "it is open", func() bool { return len(entries(t, one, "hook:")) == 1 })
		resumeAll := func(id func(i int) string) (as []signal.Accepted) {
			as = make([]signal.Accepted, many)
			var wg sync.WaitGroup
			for i := range many {
				wg.Go(func() {
					a, err := paid.Resume(ctx, []*process{p, q}[i%2], "token", id(i), &signal.Options{ID: id(i)})
					if err != nil {
						t.Error(err)
					}
					as[i] = a
				})
			}
			wg.Wait()
			return as
		}
		as := resumeAll(func(int) string { return "one" })
		fresh := 0
		for _, a := range as {
			if canonical(a) != canonical(as[0]) {
				t.Errorf("answered %+v and %+v", a, as[0])
			}
			if !a.Repeated {
				fresh++
			}
		}
		if fresh > 1 {
			t.Errorf("%d are not repeated", fresh)
		}
		resumeAll(func(i int) string { return fmt.Sprint(i) })
		inbox, _, err := acceptance.Inbox(ctx, one, "o", 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, w := range inbox {
			want = append(want, w.ID)
		}
		send(t, approved, p, "o", "go on", "")
		got := strings.Split(result(t, h), ",")
		if len(got) != many+1 || !slices.Equal(got, want) {
			t.Errorf("received %q, accepted in the order %q", got, want)
		}
		intact(t, one)
		p.stop(t)
		q.stop(t)
	})
}

// A resume in a transaction of the host is staged, and so is what it rests on.
func TestResumeInATransaction(t *testing.T) {
	onAllTransactions(t, func(t *testing.T, s storage.Storage, begin func(testing.TB) hostTx, staged bool) {
		wf := waitsFor("wf")
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", "token")
		tokenOf(t, p, "o")
		time.Sleep(200 * time.Millisecond) // the run is at rest
		tx := begin(t)
		resume(t, p.In(tx), "token", "no", "1")
		tx.rollback()
		tx = begin(t)
		resume(t, p.In(tx), "token", "yes", "1")
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		p.Poke()
		if got := result(t, h); got != "yes" {
			t.Errorf("result %q", got)
		}
		tx = begin(t)
		if a := resume(t, p.In(tx), "token", "yes", "1"); !a.Repeated {
			t.Error("accepted twice")
		}
		if _, err := paid.Resume(ctx, p.In(tx), "token", "yes", nil); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("ended: %v, want ErrNotFound", err)
		}
		if err := tx.commit(); err != nil {
			t.Error(err)
		}
		p.stop(t)
	})
}

// The answer to a resume that was made before rests on its record.
func TestStagedRepetitionOfAResumeRestsOnItsAnswer(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		wf := waitsFor("wf")
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", "token")
		tokenOf(t, p, "o")
		resume(t, p, "token", "v", "x")
		result(t, h)
		tx := staging(s)
		resume(t, p.In(tx), "token", "v", "x")
		if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Delete(keys.Resumed(keys.TokenHash("token"), "x"))}}); err != nil {
			t.Fatal(err)
		}
		if err := tx.commit(); !errors.Is(err, storage.ErrConflict) {
			t.Errorf("the answer was forgotten meanwhile: got %v, want ErrConflict", err)
		}
		p.stop(t)
	})
}

// A hook that was opened when the time of its scope was up is nobody's: the run may open the
// token again, also in a replay.
func TestHookThatCameTooLate(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", func(run *engine.Run) (string, error) {
			scope := run.WithTimeout(time.Second)
			engine.Step(run, "s", func(context.Context) (int, error) { return 1, nil })
			time.Sleep(2 * time.Second) // so that the time is up in the commit that opens the hook
			_, late := paid.Open(scope, &signal.HookOptions{Token: "token"})
			if !errors.Is(late, engine.ErrTimeout) {
				return "", fmt.Errorf("opened in time: %v", late)
			}
			h, err := paid.Open(run, &signal.HookOptions{Token: "token"})
			if err != nil {
				return "", fmt.Errorf("late %v: %w", late, err)
			}
			v, err := h.Receive(run)
			return v + fmt.Sprint(late), err
		})
		p := boot(t, s, wf, parking)
		h := start(t, wf, p, "o", "")
		time.Sleep(2 * time.Hour)
		resume(t, p, "token", "v", "x")
		result(t, h)
		intact(t, s)
		p.stop(t)
	})
}

// FMT-13: a run with a hook needs an engine that frees its token. One without does not.
func TestRunNeedsHooks(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := waitsFor("wf")
		other := flow("other", func(run *engine.Run) (string, error) { return approved.Receive(run) })
		p := boot(t, s, wf, other)
		start(t, wf, p, "o", "token")
		start(t, other, p, "other", "")
		tokenOf(t, p, "o")
		time.Sleep(time.Second)
		for id, want := range map[string][]string{"o": {"hooks"}, "other": nil} {
			r, err := journal.Load(ctx, s, id)
			if err != nil || !slices.Equal(r.Needs, want) {
				t.Errorf("%s needs %q, %v, want %q", id, r.Needs, err, want)
			}
		}
		if _, err := s.Get(ctx, keys.HookAddress(keys.TokenHash("token"))); err != nil {
			t.Error(err)
		}
		p.kill()
	})
}

// hooking is the scenario of the sweep: one token in turn, a disposal, and a life.
func hooking(*sweep.World) sweep.Scenario {
	wf := &engine.Workflow[int, string]{Name: "hooking", Func: func(run *engine.Run, life int) (string, error) {
		h, err := paid.Open(run, &signal.HookOptions{Token: "hooking"})
		if err != nil {
			return "", err
		}
		m, err := paid.Open(run, nil)
		if err == nil {
			err = m.Dispose(run)
		}
		if err != nil {
			return "", err
		}
		_, err = paid.Open(run, &signal.HookOptions{Token: "hooking"})
		if !errors.Is(err, signal.ErrTokenTaken) {
			return "", fmt.Errorf("opened twice: %w", err)
		}
		v, err := h.Receive(run)
		if err == nil && life == 0 {
			err = engine.ContinueAsNew(run, 1)
		}
		return v, err
	}}
	next := waitsFor("next")
	return sweep.Scenario{
		Workflows: []engine.Definition{wf, next},
		IDs:       []string{"first", "next"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "first", 0)
			if err != nil {
				return "", err
			}
			var answers []string
			resume := func(v, id string) error {
				for {
					a, err := paid.Resume(ctx, eng, "hooking", v, &signal.Options{ID: id})
					if errors.Is(err, engine.ErrNotFound) { // not open yet
						if err := sleep(ctx, time.Second); err != nil {
							return err
						}
						continue
					}
					answers = append(answers, a.WorkflowID)
					return err
				}
			}
			for _, r := range [][2]string{{"1", "one"}, {"2", "two"}} {
				if err := resume(r[0], r[1]); err != nil {
					return "", err
				}
			}
			first, err := h.Result(ctx)
			if err != nil {
				return "", err
			}
			n, err := next.Start(ctx, eng, "next", "hooking")
			if err != nil {
				return "", err
			}
			for _, r := range [][2]string{{"1", "one"}, {"3", "three"}} {
				if err := resume(r[0], r[1]); err != nil {
					return "", err
				}
			}
			last, err := n.Result(ctx)
			return fmt.Sprint(first, last, answers), err
		},
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A resume that is repeated tells a run of this engine what was accepted: whoever resumed the hook
// before may have died before it told anybody.
func TestRepeatedResumeIsTold(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := waitsFor("wf")
		p := boot(t, s, wf, func(c *engine.Config) { c.PollInterval, c.LeaseTTL = 10*time.Minute, 30*time.Minute })
		h := start(t, wf, p, "o", "token")
		tokenOf(t, p, "o")
		time.Sleep(time.Minute)
		resume(t, made(t, s), "token", "x", "1") // of another process
		began := time.Now()
		if a := resume(t, p, "token", "x", "1"); !a.Repeated {
			t.Errorf("accepted twice: %+v", a)
		}
		if got := result(t, h); got != "x" {
			t.Errorf("result %q", got)
		}
		if late := time.Since(began); late > time.Second {
			t.Errorf("received after %v", late)
		}
		p.stop(t)
	})
}

// What a commit takes over, or disposes of, does not count when it opens a hook, too: the run may
// still have as many as it may have.
func TestLastHookBesideOthers(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const most = 58
		s := &hooked{Storage: new(memory.Store), max: storage.Size{Ops: 200}}
		wf := &engine.Workflow[int, string]{Name: "wf", Func: func(run *engine.Run, life int) (string, error) {
			if life == 0 {
				for i := range most - 1 {
					if _, err := paid.Open(run, &signal.HookOptions{Token: fmt.Sprint(i)}); err != nil {
						return "", err
					}
				}
				return "", engine.ContinueAsNew(run, 1)
			}
			over, last := run.OpenHook("paid", "0"), run.OpenHook("paid", "last")
			var first signal.Opened
			if err := errors.Join(run.Await(over, &first), run.Await(last, nil)); err != nil {
				return "", fmt.Errorf("beside one that is taken over: %w", err)
			}
			gone, next := run.DisposeHook("paid", first.ID), run.OpenHook("paid", "next")
			if err := errors.Join(run.Await(gone, nil), run.Await(next, nil)); err != nil {
				return "", fmt.Errorf("beside one that is disposed of: %w", err)
			}
			if _, err := paid.Open(run, nil); !errors.Is(err, engine.ErrBusy) {
				return "", fmt.Errorf("one too many: %v", err)
			}
			return "done", nil
		}}
		p := boot(t, s, wf)
		if got, err := outcome(start(t, wf, p, "o", 0)); got != "done" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if left := entries(t, s, "hook:"); len(left) > 0 {
			t.Errorf("%d tokens are taken", len(left))
		}
		intact(t, s)
		p.stop(t)
	})
}

// An exported history of hooks replays, also in the life that has taken one over. Another token is
// another operation, and the error does not show it.
func TestReplayOfHooks(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		token := "secret"
		wf := &engine.Workflow[int, string]{Name: "wf", Func: func(run *engine.Run, life int) (string, error) {
			h, err := paid.Open(run, &signal.HookOptions{Token: token})
			if err != nil {
				return "", err
			}
			if life == 0 {
				return "", engine.ContinueAsNew(run, 1)
			}
			if _, err := paid.Open(run, &signal.HookOptions{Token: token}); !errors.Is(err, signal.ErrTokenTaken) {
				return "", fmt.Errorf("opened twice: %v", err)
			}
			minted, err := paid.Open(run, nil)
			if err != nil {
				return "", err
			}
			set(run, minted.Token(), 1)
			if _, err := h.Receive(run); err != nil {
				return "", err
			}
			return minted.Token(), errors.Join(minted.Dispose(run), run.Sleep(time.Hour))
		}}
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", 0)
		minted := tokenOf(t, p, "o")
		exported := func() []byte {
			var b bytes.Buffer
			if err := p.Export(ctx, "o", &b); err != nil {
				t.Fatal(err)
			}
			return b.Bytes()
		}
		replays := func(when string) {
			if err := p.Replay(ctx, bytes.NewReader(exported())); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
		replays("while the hooks are open")
		resume(t, p, "secret", "x", "1")
		time.Sleep(time.Minute)
		replays("when one was disposed of")
		if got := result(t, h); got != minted {
			t.Errorf("result %q, want the token %q", got, minted)
		}
		replays("when the run has ended")
		before := snapshot(t, s)
		token = "elsewhere"
		err := p.Replay(ctx, bytes.NewReader(exported()))
		if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "elsewhere") {
			t.Errorf("with another token: %v", err)
		}
		if !sameBut(t, before, snapshot(t, s), "eng:", "meta:") {
			t.Error("a replay has written something")
		}
		p.stop(t)
	})
}

// A beforehand store calls a function before each commit.
type beforehand struct {
	storage.Storage
	before func(storage.Batch)
}

func (s *beforehand) Commit(ctx context.Context, b storage.Batch) error {
	s.before(b)
	return s.Storage.Commit(ctx, b)
}

func (s *beforehand) Unwrap() storage.Storage { return s.Storage }

// An engine that shuts down when a run has asked to open a hook, or to dispose of one, leaves the run to the
// next engine. The commit is refused because an operator has labelled the run, and not tried again.
func TestHookWhenTheEngineShutsDown(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		wf := flow("wf", func(run *engine.Run) (string, error) {
			h, err := paid.Open(run, &signal.HookOptions{Token: run.ID()})
			if err == nil {
				err = run.Sleep(time.Second)
			}
			if err == nil {
				err = h.Dispose(run)
			}
			return "done", err
		})
		for _, kind := range []storage.OpKind{storage.PutOp, storage.DeleteOp} {
			id := fmt.Sprint("run", kind)
			operator := made(t, s)
			var p *process
			var once sync.Once
			b := &beforehand{Storage: s}
			b.before = func(b storage.Batch) {
				if !slices.ContainsFunc(b.Ops, func(o storage.Op) bool {
					return o.Kind == kind && bytes.HasPrefix(o.Key, []byte("hook:"))
				}) {
					return
				}
				once.Do(func() {
					if err := operator.Label(ctx, id, map[string]string{"seen": "yes"}, audit); err != nil {
						t.Error(err)
					}
					p.end()
					time.Sleep(time.Millisecond)
				})
			}
			p = bootOn(t, storagetest.NewFaulty(b, nil), wf, leases)
			start(t, wf, p, id, "")
			time.Sleep(10 * time.Second)
			p.stop(t)
			next := boot(t, s, wf, leases)
			if got, err := outcome(wf.Handle(next, id)); got != "done" || err != nil {
				t.Errorf("%v of a token refused: result %q, %v", kind, got, err)
			}
			whole(t, s)
			next.stop(t)
		}
	})
}
