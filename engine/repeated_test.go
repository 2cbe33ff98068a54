package engine_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// An answer says whether an earlier call had the signal accepted: of all calls with one ID, one
// is the first, however many engines and goroutines send it. TestStagedInTheHostsTransaction shows
// it for a transaction of the host.
func TestAnswerSaysWhetherItIsRepeated(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		wf := receiving(2)
		a, b := made(t, s), made(t, s)
		defer a.Close()
		defer b.Close()
		start(t, wf, a, "o", "")
		says := func(want bool, what string, to signal.Sender, v string, o *signal.Options) {
			t.Helper()
			if got, err := approved.Send(ctx, to, "o", v, o); err != nil || got.Repeated != want {
				t.Errorf("%s: repeated is %v, %v, want %v", what, got.Repeated, err, want)
			}
		}
		id := &signal.Options{ID: "evt_1"}
		says(false, "the first", a, "v", id)
		says(true, "again", a, "v", id)
		says(true, "over another engine", b, "v", id)
		says(false, "another ID", b, "v", &signal.Options{ID: "evt_2"})
		says(false, "without an ID", a, "v", nil)
		says(false, "without an ID again", a, "v", nil)

		var mu sync.Mutex
		var wg sync.WaitGroup
		firsts := 0
		for i := range 16 {
			to := []signal.Sender{a, b}[i%2]
			wg.Go(func() {
				got, err := approved.Send(ctx, to, "o", "v", &signal.Options{ID: "at once"})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				if !got.Repeated {
					firsts++
				}
			})
		}
		wg.Wait()
		if firsts != 1 {
			t.Errorf("of equal sends at once, %d are the first, want 1", firsts)
		}

		withStart := func(want bool, what, signalID string) {
			t.Helper()
			got, err := approved.SendWithStart(ctx, b, wf.Request("new", ""), "v", &signal.Options{ID: signalID})
			if err != nil || got.Repeated != want {
				t.Errorf("with a start, %s: repeated is %v, %v, want %v", what, got.Repeated, err, want)
			}
		}
		withStart(false, "the first", "1")
		withStart(true, "again", "1")
		withStart(false, "another signal to the same workflow", "2")
		withStart(true, "that one again", "2")
	})
}

// A call whose own commit took effect without an answer is not a repetition of itself.
func TestUnknownCommitIsNoRepetition(t *testing.T) {
	lost := errors.New("the answer is lost")
	for name, send := range map[string]func(e *engine.Engine) (signal.Accepted, error){
		"send": func(e *engine.Engine) (signal.Accepted, error) {
			return approved.Send(ctx, e, "o", "v", &signal.Options{ID: "evt_1"})
		},
		"without an ID": func(e *engine.Engine) (signal.Accepted, error) {
			return approved.Send(ctx, e, "o", "v", nil)
		},
		"with a start": func(e *engine.Engine) (signal.Accepted, error) {
			return approved.SendWithStart(ctx, e, receiving(1).Request("new", ""), "v", &signal.Options{ID: "evt_1"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				times, armed := 0, false
				s := &hooked{Storage: fresh(t)}
				s.afterCommit = func(b storage.Batch) error {
					if !armed {
						return nil
					}
					if times++; times == 1 {
						return lost
					}
					return nil
				}
				e := made(t, s)
				defer e.Close()
				start(t, receiving(1), e, "o", "")
				armed = true // the next commit is that of the send
				a, err := send(e)
				if err != nil || a.Repeated || times == 0 {
					t.Errorf("repeated is %v, %v, after %d commits", a.Repeated, err, times)
				}
			})
		})
	}
}

// Of equal sends that share a commit, one is the first.
func TestOneOfEqualSendsInACommitIsTheFirst(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newGated(fresh(t))
		e := made(t, s)
		defer e.Close()
		start(t, receiving(1), e, "o", "")
		var wg sync.WaitGroup
		wg.Go(func() { sent(t, e, "o", "v", "leads") }) // waits at the gate, and the others behind it
		synctest.Wait()
		var firsts atomic.Int32
		for range 16 {
			wg.Go(func() {
				a, err := approved.Send(ctx, e, "o", "v", &signal.Options{ID: "evt_1"})
				if err != nil {
					t.Error(err)
				}
				if !a.Repeated {
					firsts.Add(1)
				}
			})
		}
		synctest.Wait()
		close(s.gate)
		wg.Wait()
		if n := firsts.Load(); n != 1 || s.commits.Load() != 2 {
			t.Errorf("%d are the first, want 1; %d commits, want 2", n, s.commits.Load())
		}
	})
}
