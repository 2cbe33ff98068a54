package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// What was written as a string, and cannot be read as one of these.
type (
	panics string
	exits  string
)

func (*panics) UnmarshalJSON([]byte) error { panic("oh") }
func (*exits) UnmarshalJSON([]byte) error  { runtime.Goexit(); return nil }

// recordable is the value that each recorded thing has.
func recordable[T any]() (v T) {
	if s, ok := any(&v).(*string); ok {
		*s = "value"
	}
	return v
}

// transaction is the reading that only some stores have.
const transaction = "transaction"

// readings are the operations of a workflow whose outcome is a T.
func readings[T any]() map[string]func(run *engine.Run) error {
	act := &activity.Activity[string, T]{Name: "act", Run: func(context.Context, string) (T, error) { return recordable[T](), nil }}
	sig := &signal.Signal[T]{Name: "sig"}
	kid := readingKid[T]()
	return map[string]func(run *engine.Run) error{
		"activity": func(run *engine.Run) error { _, err := act.Do(run, ""); return err },
		"step": func(run *engine.Run) error {
			_, err := engine.Step(run, "step", func(context.Context) (T, error) { return recordable[T](), nil })
			return err
		},
		"child":   func(run *engine.Run) error { _, err := kid.Do(run, ""); return err },
		"receive": func(run *engine.Run) error { _, err := sig.Receive(run); return err },
		"drain": func(run *engine.Run) error {
			for {
				if all, err := sig.Drain(run); err != nil || len(all) > 0 {
					return err
				}
				if err := run.Sleep(10 * time.Millisecond); err != nil {
					return err
				}
			}
		},
		transaction: func(run *engine.Run) error {
			var result T
			return run.TransactStep("transaction", &result, func(context.Context) error { result = recordable[T](); return nil })
		},
		"within": func(run *engine.Run) error { _, _, err := sig.ReceiveWithin(run, time.Hour); return err },
		"select": func(run *engine.Run) error {
			next, late := sig.Next(run), run.After(time.Hour)
			if _, err := engine.Select(run, next, late); err != nil {
				return err
			}
			_, err := next.Get(run)
			_, again := next.Get(run)
			return errors.Join(err, again)
		},
		"branch": func(run *engine.Run) error {
			_, err := engine.Go(run, "branch", func(run *engine.Run) (string, error) {
				_, err := sig.Receive(run)
				return "", err
			}).Get(run)
			return err
		},
	}
}

func readingKid[T any]() *engine.Workflow[string, T] {
	return &engine.Workflow[string, T]{Name: "kid", Func: func(*engine.Run, string) (T, error) { return recordable[T](), nil }}
}

// readers are workflows that read recorded things as a T, and are undone if they fail.
func readers[T any](undone *tally) []any {
	var all []any
	book := &activity.Activity[string, string]{
		Name:       "book",
		Run:        func(_ context.Context, in string) (string, error) { return in, nil },
		Compensate: func(_ context.Context, in, _ string) error { undone.add(in); return nil },
	}
	for name, read := range readings[T]() {
		all = append(all, flow(name, func(run *engine.Run) (string, error) {
			if _, err := book.Do(run, name); err != nil {
				return "", err
			}
			if err := read(run); err != nil {
				return "", err
			}
			return approved.Receive(run)
		}))
	}
	return append(all, readingKid[T](), &engine.Workflow[T, string]{Name: "input", Func: func(run *engine.Run, _ T) (string, error) {
		if _, err := book.Do(run, "input"); err != nil {
			return "", err
		}
		return approved.Receive(run)
	}})
}

// reversed is a codec of another name.
type reversed struct{}

func (reversed) Name() string { return "reversed" }
func (reversed) Encode(ctx context.Context, v any) ([]byte, error) {
	b, err := engine.JSON.Encode(ctx, v)
	return flip(b), err
}

func (reversed) Decode(ctx context.Context, data []byte, v any) error {
	return engine.JSON.Decode(ctx, flip(data), v)
}

func flip(b []byte) []byte {
	out := make([]byte, len(b))
	for i, c := range b {
		out[i] = ^c
	}
	return out
}

// What is recorded and cannot be decoded by today's code holds the run: it is not
// shown to the workflow's function, which would fail, and be undone. Code that can
// decode it goes on.
func TestReplayOfWhatCannotBeDecodedIsHeld(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		text := &signal.Signal[string]{Name: "sig"}
		other := func(c *engine.Config) { c.Codec = reversed{} }
		reads := func(c *engine.Config) { c.Codecs = []engine.Codec{reversed{}} }
		soonFound := func(c *engine.Config) { c.PollInterval, c.LeaseTTL = 20*time.Millisecond, 2*time.Second }
		names := []string{"input"}
		_, transacts := storage.As[storage.Transactor](s)
		for name := range readings[string]() {
			if name != transaction || transacts {
				names = append(names, name)
			}
		}
		undone := new(tally)
		good := append(readers[string](undone), other, soonFound)
		p := boot(t, s, good...)
		for _, name := range names {
			id := "o-" + name
			if _, err := p.StartWorkflow(ctx, &engine.StartRequest{Workflow: name, ID: id, Input: "value"}); err != nil {
				t.Fatal(err)
			}
			if _, err := text.Send(ctx, p, id, "value", nil); err != nil {
				t.Fatal(err)
			}
		}
		awaits := func(p *process, name string) bool {
			last := ""
			for _, w := range describe(t, p, "o-"+name).Waiting {
				last = w
			}
			return last == "receive approved"
		}
		for _, name := range names {
			eventually(t, name+" waits", func() bool { return awaits(p, name) })
		}
		p.kill()

		for _, c := range []struct {
			how     string
			options []any
			says    string
		}{
			{"its type has changed", append(readers[int](undone), reads), "decode int"},
			{"it panics", append(readers[panics](undone), reads), "panic: oh"},
			{"it ends its goroutine", append(readers[exits](undone), reads), "Goexit"},
			{"its codec is missing", readers[string](undone), `"reversed"`},
		} {
			p := boot(t, s, append(c.options, soonFound)...)
			for _, name := range names {
				eventually(t, fmt.Sprintf("%s is held: %s", name, c.how), func() bool {
					i := describe(t, p, "o-"+name)
					return heldFor(i, engine.ReasonUndecodable) && strings.Contains(i.Attention[0].Detail, c.says)
				})
				i := describe(t, p, "o-"+name)
				a := i.Attention[0]
				where := a.Operation != "" && a.Name != "" || name == "input" || c.how == "its codec is missing"
				if i.Status != checkpoint.StatusRunning || !where {
					t.Errorf("%s, %s: %+v", name, c.how, i)
				}
			}
			p.stop(t)
		}
		if n := undone.all(); len(n) > 0 {
			t.Errorf("undone: %q", n)
		}
		p = boot(t, s, good...)
		for _, name := range names {
			send(t, approved, p, "o-"+name, "done", "")
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			var got string
			if err := p.Result(ctx, "o-"+name, name, &got); err != nil || got != "done" {
				t.Errorf("%s: %q, %v", name, got, err)
			}
			cancel()
		}
		p.stop(t)
	})
}

// A signal that cannot be decoded, and comes from another process just before its receiver is parked, holds the run as any other
// does. What comes later does not overtake it.
func TestSignalThatCannotBeDecodedIsNotParked(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		client := made(t, s)
		defer client.Close()
		wf := flow("w", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		p := boot(t, s, wf, parkAfter(5*time.Second), func(c *engine.Config) { c.PollInterval = time.Hour })
		start(t, wf, p, "o", "")
		time.Sleep(4 * time.Second)
		if _, err := (&signal.Signal[int]{Name: yes.Name}).Send(ctx, client, "o", 1, &signal.Options{ID: "bad"}); err != nil {
			t.Fatal(err)
		}
		if i := describe(t, p, "o"); i.Attention != nil {
			t.Fatalf("the engine has heard of it at once: %+v", i)
		}
		time.Sleep(2 * time.Second)
		if i := describe(t, p, "o"); !heldFor(i, engine.ReasonUndecodable) {
			t.Errorf("it is not held: %+v", i)
		}
		tell(t, yes, client, "o", "ann")
		time.Sleep(2 * time.Hour)
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusRunning {
			t.Errorf("it is %s", i.Status)
		}
		if err := p.ClearSignal(ctx, "o", yes.Name, "bad", audit); err != nil {
			t.Error(err)
		}
		if got, err := outcome(wf.Handle(p, "o")); got != "ann" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		p.stop(t)
	})
}

// A signal that the receiver cannot decode is not received: the run is held when what
// is under way has ended, no time limit passes meanwhile, and it goes on when a person
// has taken the signal away, or with code that can decode it.
func TestSignalThatCannotBeDecodedIsNotReceived(t *testing.T) {
	for _, mend := range []string{"clear", "code", "panic", "exit", "delivered"} {
		virtual(t, func(t *testing.T) {
			s := new(memory.Store)
			var begun, ended atomic.Int32
			pay := &activity.Activity[string, string]{
				Name:           "pay", // of which nobody could tell what became
				IdempotencyKey: func(s string) string { return s },
				Timeout:        time.Hour,
				Run: func(ctx context.Context, _ string) (string, error) {
					begun.Add(1)
					select {
					case <-time.After(time.Minute):
						ended.Add(1)
						return "paid", nil
					case <-ctx.Done():
						return "", ctx.Err()
					}
				},
			}
			wf := func(receive func(run *engine.Run) (any, bool, error)) engine.Definition {
				return flow("w", func(run *engine.Run) (string, error) {
					paid := pay.Go(run, "key")
					v, ok, err := receive(run)
					if err != nil {
						return "", err
					}
					p, err := paid.Get(run)
					return fmt.Sprint(v, ok, p), err
				})
			}
			number := wf(func(run *engine.Run) (any, bool, error) {
				v, ok, err := (&signal.Signal[int]{Name: "approved"}).ReceiveWithin(run, 2*time.Minute)
				return v, ok, err
			})
			switch mend {
			case "panic":
				number = wf(func(run *engine.Run) (any, bool, error) {
					v, ok, err := (&signal.Signal[panics]{Name: "approved"}).ReceiveWithin(run, 2*time.Minute)
					return v, ok, err
				})
			case "exit":
				number = wf(func(run *engine.Run) (any, bool, error) {
					v, ok, err := (&signal.Signal[exits]{Name: "approved"}).ReceiveWithin(run, 2*time.Minute)
					return v, ok, err
				})
			}
			text := wf(func(run *engine.Run) (any, bool, error) { return approvedWithin(run, 2*time.Minute) })
			p := boot(t, s, number)
			if _, err := p.StartWorkflow(ctx, &engine.StartRequest{Workflow: "w", ID: "o", Input: ""}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // it rests in its receive
			sender := p.Engine
			if mend != "delivered" {
				sender = made(t, s)
				defer sender.Close()
			}
			send(t, approved, sender, "o", "no number", "x")
			time.Sleep(30 * time.Second)
			if i := describe(t, p, "o"); len(i.Attention) > 0 || ended.Load() > 0 {
				t.Errorf("%s: held while an attempt is under way: %+v", mend, i)
			}
			time.Sleep(time.Hour)
			i := describe(t, p, "o")
			if !heldFor(i, engine.ReasonUndecodable) || i.Attention[0].Operation != "2" || i.Attention[0].Name != "approved" || !strings.Contains(i.Attention[0].Detail, "decode") {
				t.Errorf("%s: %+v", mend, i)
			}
			if got := signalsOf(t, p.Engine, "o"); len(got) != 1 {
				t.Errorf("%s: not received are %q, want one", mend, got)
			}
			want := "7 truepaid"
			if mend == "clear" || mend == "delivered" {
				send(t, &signal.Signal[int]{Name: "approved"}, p, "o", 7, "y")
				if err := p.ClearSignal(ctx, "o", "approved", "x", audit); err != nil {
					t.Fatal(err)
				}
			} else {
				want = "no numbertruepaid"
				p.stop(t)
				p = boot(t, s, text)
			}
			var got string
			if err := p.Result(timed(t, time.Hour), "o", "w", &got); err != nil || got != want {
				t.Errorf("%s: %q, %v; want %q", mend, got, err, want)
			}
			if begun.Load() != 1 || ended.Load() != 1 {
				t.Errorf("%s: %d attempts, of which %d came to their end", mend, begun.Load(), ended.Load())
			}
			p.stop(t)
		})
	}
}

func approvedWithin(run *engine.Run, d time.Duration) (any, bool, error) {
	v, ok, err := approved.ReceiveWithin(run, d)
	return v, ok, err
}

// timed is a context that ends after d.
func timed(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// A call whose result today's code cannot decode is not undone, and that is no failure
// of its Compensate: the run is held, and code that can decode it goes on.
func TestCompensateWhoseResultCannotBeDecoded(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		undone := new(tally)
		p := boot(t, s, failingLate[string](undone))
		if _, err := p.StartWorkflow(ctx, &engine.StartRequest{Workflow: "w", ID: "o", Input: ""}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it waits", func() bool { return len(describe(t, p, "o").Waiting) > 0 })
		p.stop(t)
		before := uint64(0)
		for how, bad := range map[string]engine.Definition{"type": failingLate[int](undone), "panic": failingLate[panics](undone), "exit": failingLate[exits](undone)} {
			p := boot(t, s, bad)
			if how == "exit" || len(signalsOf(t, p.Engine, "o")) == 0 {
				_, _ = approved.Send(ctx, p, "o", "go on, and fail", &signal.Options{ID: "x"})
			}
			var i engine.Info
			eventually(t, how+": it is held", func() bool { // it may still be held by the engine before
				i = describe(t, p, "o")
				return heldFor(i, engine.ReasonUndecodable) && i.Epoch > before
			})
			if before = i.Epoch; i.Attention[0].Operation != "1.undo" || len(i.Attention) != 1 {
				t.Errorf("%s: %+v", how, i)
			}
			p.stop(t)
		}
		if n := undone.all(); len(n) > 0 {
			t.Errorf("undone: %q", n)
		}
		p = boot(t, s, failingLate[string](undone))
		err := p.Result(timed(t, time.Minute), "o", "w", nil)
		var failed *engine.WorkflowError
		if !errors.As(err, &failed) || len(undone.all()) != 1 || undone.all()[0] != "value" {
			t.Errorf("%v; undone: %q", err, undone.all())
		}
		p.stop(t)
	})
}

// failingLate is a workflow that fails when it is told to, and does not use the result of
// what it did.
func failingLate[T any](undone *tally) engine.Definition {
	act := &activity.Activity[string, T]{
		Name:       "act",
		Run:        func(context.Context, string) (T, error) { return recordable[T](), nil },
		Compensate: func(_ context.Context, _ string, out T) error { undone.add(fmt.Sprint(out)); return nil },
	}
	return flow("w", func(run *engine.Run) (string, error) {
		done := act.Go(run, "")
		if _, err := engine.Select(run, done); err != nil {
			return "", err
		}
		if _, err := approved.Receive(run); err != nil {
			return "", err
		}
		return "", errBroke
	})
}
