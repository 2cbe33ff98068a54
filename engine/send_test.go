package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// sent is send for a goroutine of its own.
func sent(t testing.TB, to signal.Sender, id, v, signalID string) signal.Accepted {
	t.Helper()
	a, err := approved.Send(ctx, to, id, v, &signal.Options{ID: signalID})
	if err != nil {
		t.Errorf("send %q to %q: %v", v, id, err)
	}
	return canonical(a)
}

// gated holds every acceptance of signals up until it is let through.
type gated struct {
	*hooked
	gate    chan struct{}
	commits atomic.Int32
}

func newGated(s storage.Storage) *gated {
	g := &gated{hooked: &hooked{Storage: s}, gate: make(chan struct{})}
	g.beforeCommit = func(b storage.Batch) {
		if touches(b, "sigseq:") {
			<-g.gate
			g.commits.Add(1)
		}
	}
	return g
}

// Sends that arrive together share a commit, and are received in the order in
// which they were accepted. SG5
func TestSendsThatArriveTogetherShareACommit(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const n = 64
		s := newGated(fresh(t))
		wf := receiving(n)
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", "")
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { sent(t, p, "o", fmt.Sprint(i, " "), fmt.Sprint(i)) })
			synctest.Wait() // so that they stand in line in this order
		}
		close(s.gate)
		want := ""
		for i := range n {
			want += fmt.Sprint(i, " ")
		}
		if got := result(t, h); got != want {
			t.Errorf("received %q, want %q", got, want)
		}
		wg.Wait()
		if got := s.commits.Load(); got != 2 {
			t.Errorf("%d commits, want 2: of the first, and of the others", got)
		}
	})
}

// A store that panics ends the call in which it does. Those that wait behind it are accepted.
func TestSendsBehindAPanic(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newGated(fresh(t))
		before := s.beforeCommit
		s.beforeCommit = func(b storage.Batch) {
			if before(b); touches(b, "sigseq:") && s.commits.Load() == 2 {
				panic("the store has a fault")
			}
		}
		wf := waitsFor("other") // so that the senders commit
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		var panics, accepted atomic.Int32
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				defer func() {
					if recover() != nil {
						panics.Add(1)
					}
				}()
				sent(t, p, "o", "x", fmt.Sprint(i))
				accepted.Add(1)
			})
			synctest.Wait()
		}
		close(s.gate)
		wg.Wait()
		sent(t, p, "o", "x", "last")
		if panics.Load() != 1 || accepted.Load() != 9 {
			t.Errorf("%d calls have panicked, and %d signals were accepted, want 1 and 9", panics.Load(), accepted.Load())
		}
		intact(t, s)
		p.stop(t)
	})
}

// SIG-38, SG1: of sends with one ID that arrive together one is accepted, and all
// are answered alike; who has another payload hears of the conflict.
func TestSendsOfOneIDThatArriveTogether(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const n = 64
		s := newGated(fresh(t))
		wf := receiving(2)
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", "")
		var wg sync.WaitGroup
		answers := make([]signal.Accepted, n)
		for i := range n {
			wg.Go(func() { answers[i] = sent(t, p, "o", "v", "evt_1") })
		}
		synctest.Wait()
		wg.Go(func() {
			_, err := approved.Send(ctx, p, "o", "another", &signal.Options{ID: "evt_1"})
			if c := (*signal.ConflictError)(nil); !errors.As(err, &c) {
				t.Errorf("another payload: %v, want a *ConflictError", err)
			}
		})
		wg.Go(func() { sent(t, p, "o", "w", "evt_2") })
		synctest.Wait()
		close(s.gate)
		wg.Wait()
		for i, a := range answers {
			if a != answers[0] || !a.Accepted {
				t.Errorf("answer %d is %+v, the first %+v", i, a, answers[0])
			}
		}
		if got := result(t, h); got != "vw" {
			t.Errorf("received %q, want each once", got)
		}
	})
}

// Who stands in line and gives up does not hold up the others: as the one who
// commits for all, as one of those, or as one who waits.
func TestSenderGivesUp(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newGated(fresh(t))
		wf := receiving(4)
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", "")
		begin := func(v string) (context.CancelFunc, chan error) {
			ctx, cancel := context.WithCancel(ctx)
			done := make(chan error, 1)
			go func() {
				_, err := approved.Send(ctx, p, "o", v, &signal.Options{ID: v})
				done <- err
			}()
			synctest.Wait()
			return cancel, done
		}
		_, first := begin("a")      // commits, held up
		leave, second := begin("b") // stands in line
		_, third := begin("c")      //
		lead, fourth := begin("d")  //
		leave()
		if err := <-second; !errors.Is(err, context.Canceled) {
			t.Errorf("gave up in line: %v", err)
		}
		s.gate <- struct{}{} // a is accepted; c leads for itself and d
		synctest.Wait()
		lead()
		if err := <-fourth; !errors.Is(err, context.Canceled) {
			t.Errorf("gave up while another committed for it: %v", err)
		}
		cancelled, fifth := begin("e")
		close(s.gate)
		for _, c := range []chan error{first, third, fifth} {
			if err := <-c; err != nil {
				t.Error(err)
			}
		}
		cancelled()
		send(t, approved, p, "o", "d", "d") // it may have been accepted
		if got := result(t, h); len(got) != 4 || !strings.HasPrefix(got, "ac") {
			t.Errorf("received %q, want a, c, d and e", got)
		}
	})
}

// A leader whose context ends while it commits leaves the line to the next, who
// looks first what became of them all.
func TestLeaderOfALineGivesUp(t *testing.T) {
	for _, fault := range []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter} {
		virtual(t, func(t *testing.T) {
			var broken atomic.Bool
			s := newGated(storagetest.NewFaulty(fresh(t), func(c storagetest.Call) storagetest.Fault {
				if c.Method == "Commit" && touches(c.Batch, "sigseq:") && broken.Load() {
					return fault
				}
				return storagetest.None
			}))
			wf := receiving(4)
			p := boot(t, s, wf)
			h := start(t, wf, p, "o", "")
			var wg sync.WaitGroup
			wg.Go(func() { sent(t, p, "o", "a", "a") })
			synctest.Wait()
			ctx, cancel := context.WithCancel(ctx)
			gaveUp := make(chan error, 1)
			go func() {
				_, err := approved.Send(ctx, p, "o", "b", &signal.Options{ID: "b"})
				gaveUp <- err
			}()
			synctest.Wait()
			wg.Go(func() { sent(t, p, "o", "c", "c") })
			synctest.Wait()
			s.gate <- struct{}{} // a is accepted; b leads
			synctest.Wait()
			broken.Store(true)
			cancel()
			s.gate <- struct{}{}
			if err := <-gaveUp; !errors.Is(err, context.Canceled) {
				t.Errorf("gave up: %v, want context.Canceled", err)
			}
			broken.Store(false)
			close(s.gate)
			wg.Wait()
			send(t, approved, p, "o", "b", "b")
			send(t, approved, p, "o", "d", "d")
			got := result(t, h)
			if len(got) != 4 || !strings.HasPrefix(got, "a") || !strings.HasSuffix(got, "d") || !strings.Contains(got, "b") || !strings.Contains(got, "c") {
				t.Errorf("received %q, want a, b, c and d, each once", got)
			}
		})
	}
}

// Order of delivery is order of acceptance, across engines: who was refused
// because another engine was quicker is behind it. Interleaving 9, SG5
func TestSendsOfTwoEngines(t *testing.T) {
	const n = 40
	s := fresh(t)
	wf := receiving(2 * n)
	a, b := made(t, s, wf), made(t, s)
	defer a.Close()
	defer b.Close()
	h := start(t, wf, a, "o", "")
	var wg sync.WaitGroup
	for from, e := range []*engine.Engine{a, b} {
		for i := range n {
			v := fmt.Sprintf("%d.%d ", from, i)
			wg.Go(func() { sent(t, e, "o", v, v) })
		}
	}
	wg.Wait()
	order := ""
	for w, err := range a.Signals(ctx, "o") {
		if err != nil {
			t.Fatal(err)
		}
		order += w.ID
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go a.Run(ctx)
	if got := result(t, h); got != order || len(strings.Fields(got)) != 2*n {
		t.Errorf("received %q, accepted as %q", got, order)
	}
}

// SG2, SG3: a signal that meets the end of its workflow is received, or stays
// listed, or its sender hears that the workflow has ended; nothing else.
func TestSendsMeetTheEnd(t *testing.T) {
	s := fresh(t)
	wf := flow("w", func(run *engine.Run) (string, error) {
		if _, err := approved.Receive(run); err != nil {
			return "", err
		}
		all, err := approved.Drain(run)
		return strings.Join(all, " "), err
	})
	p := boot(t, s, wf)
	elsewhere := made(t, s)
	defer elsewhere.Close()
	refused := 0
	for round := range 200 {
		id := fmt.Sprint("o", round)
		h := start(t, wf, p, id, "")
		var mu sync.Mutex
		accepted := map[string]bool{}
		var wg sync.WaitGroup
		for n := range 6 {
			to := []signal.Sender{p, elsewhere}[n%2]
			wg.Go(func() {
				for i := range 3 {
					v := fmt.Sprintf("%d.%d", n, i)
					_, err := approved.Send(ctx, to, id, v, &signal.Options{ID: v})
					mu.Lock()
					switch {
					case err == nil:
						accepted[v] = true
					case errors.Is(err, engine.ErrTerminal):
						refused++
					default:
						t.Errorf("%s: send %s: %v", id, v, err)
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		result(t, h)
		seen := map[string]bool{}
		for _, c := range historyOf(t, p.Engine, id) {
			for _, e := range c.Events {
				if e.SignalID != "" {
					seen[e.SignalID] = true
				}
			}
		}
		for _, left := range signalsOf(t, elsewhere, id) {
			v := strings.TrimPrefix(left, "approved/")
			if seen[v] {
				t.Errorf("%s: %s was received and is listed", id, v)
			}
			seen[v] = true
		}
		if len(seen) != len(accepted) {
			t.Fatalf("%s: accepted are %v, received or listed %v", id, accepted, seen)
		}
	}
	if refused == 0 {
		t.Error("no send met the end")
	}
}

// LV1, SG6: a signal lands after its sender has given up, and while the run is driven by
// the engine that sent it and waits for just that. It is received before as much time
// again has passed.
func TestSignalThatLandsAfterItsSenderGaveUp(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		wf := flow("w", func(run *engine.Run) (string, error) {
			if err := run.Sleep(5 * time.Second); err != nil { // else it would be handed over
				return "", err
			}
			return approved.Receive(run)
		})
		late := commitsLate(s, creates(keys.Accepted("o", approved.Name, "s1")))
		a := bootOn(t, storagetest.NewFaulty(late, nil), wf, as("a"), parkAfter(time.Hour))
		h := start(t, wf, a, "o", "")
		givesUp, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := approved.Send(givesUp, a, "o", "yes", &signal.Options{ID: "s1"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("send: %v, want DeadlineExceeded", err)
		}
		time.Sleep(time.Minute)
		if i := describe(t, a, "o"); i.Status != checkpoint.StatusRunning {
			t.Fatalf("%+v, want it to wait", i)
		}
		close(late.landing)
		if err := <-late.landed; err != nil {
			t.Fatalf("the late signal: %v", err)
		}
		soon, cancel := context.WithTimeout(ctx, time.Minute+2*time.Second)
		defer cancel()
		if v, err := h.Result(soon); v != "yes" || err != nil {
			t.Errorf("got %q and error %v, want the signal", v, err)
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
