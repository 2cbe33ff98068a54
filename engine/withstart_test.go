package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage/storagetest"
)

// adding receives deposits until one of them is 0, and returns their sum.
var deposit = &signal.Signal[int]{Name: "deposit"}

var adding = &engine.Workflow[string, int]{Name: "adding", Func: func(run *engine.Run, _ string) (sum int, err error) {
	for {
		n, err := deposit.Receive(run)
		if n == 0 || err != nil {
			return sum, err
		}
		sum += n
	}
}}

func depositWithStart(t testing.TB, to signal.Sender, id, input string, n int, signalID string) (signal.Accepted, error) {
	t.Helper()
	return deposit.SendWithStart(ctx, to, adding.Request(id, input), n, &signal.Options{ID: signalID})
}

// OP-15: the first signal starts the workflow, later ones are sent to it, whoever
// is first; a repetition is answered and starts nothing, also after the end.
func TestSendWithStart(t *testing.T) {
	for _, drives := range []bool{true, false} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			p := boot(t, s, adding)
			client := engine.Client(p)
			if !drives {
				e := made(t, s)
				defer e.Close()
				client = e
			}
			time.Sleep(time.Second)
			var wg sync.WaitGroup
			answers := make([]signal.Accepted, 10)
			for i := range answers {
				wg.Go(func() {
					a, err := depositWithStart(t, client, "o", "x", 1+i%5, fmt.Sprint("evt_", i%5))
					if err != nil {
						t.Errorf("deposit %d: %v", i, err)
					}
					answers[i] = canonical(a)
				})
			}
			wg.Wait()
			for i, a := range answers {
				if !a.Accepted || a.WorkflowID != "o" || a != answers[(i+5)%10] {
					t.Errorf("answer %d is %+v, its repetition's %+v", i, a, answers[(i+5)%10])
				}
			}
			if _, err := depositWithStart(t, client, "o", "another", 1, "evt_9"); !errors.Is(err, engine.ErrExists) {
				t.Errorf("another input: %v, want ErrExists", err)
			}
			send(t, deposit, client, "o", 0, "")
			if got := result(t, adding.Handle(p, "o")); got != 1+2+3+4+5 {
				t.Errorf("sum is %d, want each once: 15", got)
			}
			if a, err := depositWithStart(t, client, "o", "x", 1, "evt_0"); err != nil || canonical(a) != answers[0] {
				t.Errorf("after the end: %+v, %v, want the first answer", a, err)
			}
			if _, err := depositWithStart(t, client, "o", "x", 1, "new"); !errors.Is(err, engine.ErrTerminal) {
				t.Errorf("a new one after the end: %v, want ErrTerminal", err)
			}
		})
	}
}

// A start with a signal is one commit: no fault leaves a workflow without it. The
// sender tries again until it is answered, and it is accepted once.
func TestSendWithStartIsOneCommit(t *testing.T) {
	for _, fault := range []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter, storagetest.CrashBefore, storagetest.CrashAfter} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			var once atomic.Bool
			p := bootOn(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
				if c.Method == "Commit" && touches(c.Batch, "wf:o:in") && once.CompareAndSwap(false, true) {
					if !touches(c.Batch, "sig:o:") || !touches(c.Batch, "inbox:o:") || !touches(c.Batch, "sigres:o:") {
						t.Errorf("the start does not hold the signal")
					}
					return fault
				}
				return storagetest.None
			}), adding)
			time.Sleep(time.Second)
			soon, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			if _, err := deposit.SendWithStart(soon, p, adding.Request("o", ""), 3, &signal.Options{ID: "evt_1"}); err != nil {
				p.kill()
				p = boot(t, s, adding)
				if _, err := depositWithStart(t, p, "o", "", 3, "evt_1"); err != nil {
					t.Fatal(err)
				}
			}
			send(t, deposit, p, "o", 0, "")
			if got := result(t, adding.Handle(p, "o")); got != 3 {
				t.Errorf("sum is %d, want 3", got)
			}
		})
	}
}

// What is wrong with either half is found before anything is written.
func TestSendWithStartAtTheDoor(t *testing.T) {
	s := fresh(t)
	e := made(t, s)
	defer e.Close()
	before := len(entries(t, s, ""))
	empty := ""
	for name, m := range map[string]signal.Message{
		"no request":      {Start: other("o"), Name: "a"},
		"a nil request":   {Start: (*engine.StartRequest)(nil), Name: "a"},
		"two workflows":   {Start: adding.Request("o", ""), WorkflowID: "p", Name: "a"},
		"no workflow":     {Start: &engine.StartRequest{ID: "o"}, Name: "a"},
		"a bad input":     {Start: &engine.StartRequest{Workflow: "w", ID: "o", Input: make(chan int)}, Name: "a"},
		"no name":         {Start: adding.Request("o", "")},
		"an empty ID":     {Start: adding.Request("o", ""), Name: "a", ID: &empty},
		"a bad payload":   {Start: adding.Request("o", ""), Name: "a", Payload: make(chan int)},
		"a bad workflow":  {Start: adding.Request("\xff", ""), Name: "a"},
		"nothing to send": {},
	} {
		if _, err := e.SendSignal(ctx, m); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if after := len(entries(t, s, "")); after != before {
		t.Errorf("%d records were written", after-before)
	}
}

type other string

func (o other) StartID() string { return string(o) }

// A workflow that was purged, by half even, is started anew; what was accepted in
// its former generation is forgotten with it.
func TestSendWithStartOnAPurgedID(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		p := boot(t, s, adding)
		time.Sleep(time.Second)
		for _, want := range []int{1, 2} {
			if _, err := depositWithStart(t, p, "o", "", want, "evt_1"); err != nil {
				t.Fatal(err)
			}
			send(t, deposit, p, "o", 0, "")
			if got := result(t, adding.Handle(p, "o")); got != want {
				t.Errorf("sum is %d, want %d", got, want)
			}
			if err := p.Purge(ctx, "o", audit); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A workflow sends to another one, and to itself: once, whatever is replayed.
func TestSendFrom(t *testing.T) {
	virtual(t, func(t *testing.T) {
		giver := flow("giver", func(run *engine.Run) (string, error) {
			for _, n := range []int{5, 5, 7} {
				if err := deposit.SendFrom(run, "o", n); err != nil {
					return "", err
				}
			}
			if err := approved.SendFrom(run, run.ID(), "by myself"); err != nil {
				return "", err
			}
			if err := run.Sleep(time.Hour); err != nil { // and is replayed
				return "", err
			}
			nobody := deposit.SendFrom(run, "nobody", 1)
			if err := deposit.SendFrom(run, "o", 0); err != nil {
				return "", err
			}
			if err := run.Sleep(time.Minute); err != nil {
				return "", err
			}
			late := deposit.SendFrom(run, "o", 1)
			by, err := approved.Receive(run)
			return fmt.Sprint(by, errors.Is(nobody, engine.ErrNotFound), errors.Is(late, engine.ErrTerminal)), err
		})
		s := fresh(t)
		p := boot(t, s, giver, adding)
		start(t, adding, p, "o", "")
		start(t, giver, p, "g", "")
		time.Sleep(30 * time.Minute)
		p.kill()
		p = boot(t, s, giver, adding)
		if got := result(t, adding.Handle(p, "o")); got != 17 {
			t.Errorf("sum is %d, want 17: equal values are two signals, a replayed one is not", got)
		}
		if got := result(t, giver.Handle(p, "g")); got != "by myselftrue true" {
			t.Errorf("giver: %q", got)
		}
	})
}

// A send whose outcome is not known to the run is made again after a crash, and
// is accepted once.
func TestSendFromOfUnknownOutcome(t *testing.T) {
	for _, fault := range []storagetest.Fault{storagetest.CrashBefore, storagetest.CrashAfter, storagetest.ErrorBefore, storagetest.ErrorAfter} {
		for _, at := range []string{"sigseq:o", "log:"} { // the acceptance, and the record of it
			virtual(t, func(t *testing.T) {
				giver := flow("giver", func(run *engine.Run) (string, error) {
					return "", errors.Join(deposit.SendFrom(run, "o", 5), deposit.SendFrom(run, "o", 0))
				})
				s := fresh(t)
				var armed atomic.Bool
				p := bootOn(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
					if c.Method == "Commit" && (touches(c.Batch, at) && at != "log:" || at == "log:" && appendsTo(c.Batch, "g")) && !touches(c.Batch, "wf:g:in") && armed.CompareAndSwap(true, false) {
						return fault
					}
					return storagetest.None
				}), giver, adding)
				time.Sleep(time.Second)
				start(t, adding, p, "o", "")
				armed.Store(true)
				start(t, giver, p, "g", "")
				time.Sleep(time.Minute)
				if fault == storagetest.CrashBefore || fault == storagetest.CrashAfter {
					p.kill()
					p = boot(t, s, giver, adding)
				}
				if got := result(t, adding.Handle(p, "o")); got != 5 {
					t.Errorf("fault %v at %s: sum is %d, want 5", fault, at, got)
				}
				if i := describe(t, p, "o"); i.Status != checkpoint.StatusCompleted {
					t.Errorf("status %s", i.Status)
				}
			})
		}
	}
}
