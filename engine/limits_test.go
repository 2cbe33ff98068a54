package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// No time limit passes over a signal whose send had returned before, or over a child that had ended before, even if another
// process did that, and nobody has told the engine that executes the run.
func TestTimeLimitsPassOverNothing(t *testing.T) {
	const limit = 10 * time.Second
	kid := flow("kid", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Hour) }).AsChild(engine.ChildOptions{ID: "kid"})
	ended := func(_ string, err error) (string, error) {
		if w := (*engine.WorkflowError)(nil); errors.As(err, &w) && w.WorkflowID == "kid" {
			return "ended", nil
		}
		return fmt.Sprint(err), nil
	}
	signals := map[string]func(run *engine.Run) (string, error){
		"ReceiveWithin": func(run *engine.Run) (string, error) {
			v, _, err := approved.ReceiveWithin(run, limit)
			return v, err
		},
		"one that begins afterwards": func(run *engine.Run) (string, error) {
			if all, err := approved.Drain(run); len(all) > 0 || err != nil {
				return "", fmt.Errorf("%q is there, %w", all, err)
			}
			if err := run.Sleep(limit); err != nil {
				return "", err
			}
			all, err := approved.Drain(run)
			return strings.Join(all, " "), err
		},
		"Select": func(run *engine.Run) (string, error) {
			s := approved.Next(run)
			if c, err := engine.Select(run, run.After(limit), s); c != s {
				return "", err
			}
			return s.Get(run)
		},
		"WithTimeout": func(run *engine.Run) (string, error) { return approved.Receive(run.WithTimeout(limit)) },
		"of a branch": func(run *engine.Run) (string, error) {
			b := engine.Go(run, "b", func(run *engine.Run) (string, error) { return approved.Receive(run) })
			if c, err := engine.Select(run, run.After(limit), b); c != b {
				return "", err
			}
			return b.Get(run)
		},
	}
	children := map[string]func(run *engine.Run) (string, error){
		"Get": func(run *engine.Run) (string, error) { return ended(kid.Go(run, "").Get(run.WithTimeout(limit))) },
		"a child that nobody waits for": func(run *engine.Run) (string, error) {
			within := run.WithTimeout(limit)
			k := kid.Go(within, "")
			if err := run.Sleep(2 * limit); err != nil {
				return "", err
			}
			return ended(k.Get(run))
		},
		"Select with a child": func(run *engine.Run) (string, error) {
			k := kid.Go(run, "")
			if c, err := engine.Select(run, run.After(limit), k); c != k {
				return "", err
			}
			return ended(k.Get(run))
		},
	}
	onEveryStore(t, func(t *testing.T, s storage.Storage) {
		play := func(name, want string, f func(run *engine.Run) (string, error), happens func(e *engine.Engine)) {
			p := boot(t, s, flow(name, f), kid, func(c *engine.Config) { c.PollInterval = time.Hour })
			defer p.stop(t)
			elsewhere := made(t, s)
			defer elsewhere.Close()
			h := start(t, flow(name, f), p, name, "")
			time.Sleep(limit - time.Second)
			happens(elsewhere)
			if got, err := outcome(h); err != nil || got != want {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
		two := func(name string, f func(run *engine.Run) (string, error)) {
			play(name, "v w", f, func(e *engine.Engine) {
				send(t, approved, e, name, "v", "")
				send(t, yes, e, name, "w", "")
			})
		}
		two("two receives of a scope", func(run *engine.Run) (string, error) {
			within := run.WithTimeout(limit)
			b := engine.Go(within, "b", func(run *engine.Run) (string, error) { return yes.Receive(run) })
			v, err := approved.Receive(within)
			if err != nil {
				return "", err
			}
			w, err := b.Get(run)
			return v + " " + w, err
		})
		two("two Selects", func(run *engine.Run) (string, error) {
			b := engine.Go(run, "b", func(run *engine.Run) (string, error) {
				s := yes.Next(run)
				if c, err := engine.Select(run, run.After(limit), s); c != s {
					return "", err
				}
				return s.Get(run)
			})
			s := approved.Next(run)
			if c, err := engine.Select(run, run.After(limit), s); c != s {
				return "", err
			}
			v, err := s.Get(run)
			if err != nil {
				return "", err
			}
			w, err := b.Get(run)
			return v + " " + w, err
		})
		for name, f := range signals {
			play(name, "v", f, func(e *engine.Engine) { send(t, approved, e, name, "v", "") })
		}
		for name, f := range children {
			play(name, "ended", f, func(e *engine.Engine) {
				if err := e.Terminate(ctx, "kid", audit); err != nil {
					t.Error(err)
				}
			})
			client := made(t, s)
			if err := client.Delete(ctx, "kid", audit); err != nil { // its id is free again
				t.Error(err)
			}
			client.Close()
		}
	})
}

// A sluggish store takes a while to return what it has read first of an inbox.
type sluggish struct {
	storage.Storage
	takes time.Duration
	read  atomic.Bool
}

func (s *sluggish) Unwrap() storage.Storage { return s.Storage }

func (s *sluggish) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	page, err := s.Storage.Scan(ctx, r)
	if strings.HasPrefix(string(r.Start), "inbox:") && s.read.CompareAndSwap(false, true) {
		time.Sleep(s.takes)
	}
	return page, err
}

// A time limit passes while the inbox is read: what was accepted after that was read, and before the limit, is received.
func TestTimeLimitPassesDuringALook(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		wf := flow("w", func(run *engine.Run) (string, error) {
			v, _, err := approved.ReceiveWithin(run, 10*time.Second)
			return v, err
		})
		p := boot(t, &sluggish{Storage: s, takes: 11 * time.Second}, wf, func(c *engine.Config) { c.PollInterval = time.Hour })
		elsewhere := made(t, s)
		defer elsewhere.Close()
		h := start(t, wf, p, "o", "")
		time.Sleep(5 * time.Second)
		send(t, approved, elsewhere, "o", "v", "")
		if got := result(t, h); got != "v" {
			t.Errorf("received %q", got)
		}
	})
}

// A tracked store counts the reads of inboxes, and of what is known of children.
type tracked struct {
	storage.Storage
	inbox, children atomic.Int64
}

func (s *tracked) Unwrap() storage.Storage { return s.Storage }

func (s *tracked) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	if strings.HasPrefix(string(r.Start), "inbox:") {
		s.inbox.Add(1)
	}
	if strings.HasPrefix(string(r.Start), "kid:") {
		s.children.Add(1)
	}
	return s.Storage.Scan(ctx, r)
}

// A time limit that passes costs one read, of what it may have passed over. A sleep, a receive without a time limit and
// a child cost nothing more.
func TestWhatTimeLimitsCost(t *testing.T) {
	other := &signal.Signal[string]{Name: "other"}
	kid := flow("kid", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Hour) })
	for _, c := range []struct {
		name            string
		inbox, children int64
		f               func(run *engine.Run) error
	}{
		{"sleeps beside a receive and a child", 1, 0, func(run *engine.Run) error {
			engine.Go(run, "r", func(run *engine.Run) (string, error) { return other.Receive(run) })
			engine.Go(run, "k", func(run *engine.Run) (string, error) { return kid.Go(run, "").Get(run) })
			for range 20 {
				if err := run.Sleep(time.Second); err != nil {
					return err
				}
			}
			return nil
		}},
		{"receives and sleeps", 1, 0, func(run *engine.Run) error {
			for range 20 {
				if _, err := approved.Receive(run); err != nil {
					return err
				}
				if err := run.Sleep(time.Millisecond); err != nil {
					return err
				}
			}
			return nil
		}},
		{"receives in time", 1, 0, func(run *engine.Run) error {
			for range 20 {
				if _, ok, err := approved.ReceiveWithin(run, time.Minute); !ok || err != nil {
					return fmt.Errorf("%t, %w", ok, err)
				}
			}
			return nil
		}},
		{"time limits of a receive", 21, 0, func(run *engine.Run) error {
			for range 20 {
				if _, ok, err := other.ReceiveWithin(run, time.Second); ok || err != nil {
					return fmt.Errorf("%t, %w", ok, err)
				}
			}
			return nil
		}},
		{"time limits of an activity", 0, 0, func(run *engine.Run) error {
			for range 20 {
				if _, err := engine.Step(run.WithTimeout(time.Millisecond), "s", func(ctx context.Context) (int, error) {
					<-ctx.Done()
					return 0, ctx.Err()
				}); !errors.Is(err, engine.ErrTimeout) {
					return err
				}
			}
			return nil
		}},
	} {
		virtual(t, func(t *testing.T) {
			s := &tracked{Storage: new(memory.Store)}
			wf := flow("w", func(run *engine.Run) (string, error) { return "", c.f(run) })
			p := boot(t, s, wf, kid, func(c *engine.Config) { c.PollInterval = time.Hour })
			time.Sleep(time.Second) // it runs
			h := start(t, wf, p, "o", "")
			for range 20 {
				time.Sleep(100 * time.Millisecond)
				_, _ = approved.Send(ctx, p, "o", "v", nil) // it may have ended
			}
			result(t, h)
			if inbox, children := s.inbox.Load(), s.children.Load(); inbox != c.inbox || children != c.children {
				t.Errorf("%s: %d reads of the inbox and %d of children, want %d and %d", c.name, inbox, children, c.inbox, c.children)
			}
		})
	}
}
