package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/integrity"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// A terminable is a run in some state that its function does not end by itself.
type terminable struct {
	t     *testing.T
	store sweep.Store
	s     storage.Storage
	p     *process
	cause atomic.Pointer[error] // of the end of an attempt's context
	begun tally

	options  engine.StartOptions
	settings func(*engine.Config)
	release  chan struct{} // what a function blocks on
}

// boot starts a process with an engine that has the settings of c.
func (c *terminable) boot(options ...any) *process {
	if c.settings != nil {
		options = append(options, c.settings)
	}
	return boot(c.t, c.s, options...)
}

var (
	endless = flow("endless", func(run *engine.Run) (string, error) {
		if _, err := engine.Step(run, "begin", func(context.Context) (string, error) { return "", nil }); err != nil {
			return "", err
		}
		return "", run.Sleep(decade)
	})
	forgotten = flow("endless", func(run *engine.Run) (string, error) { return yes.Receive(run) }) // another release of endless
)

// hang is an activity that ends only with its context.
func (c *terminable) hang() *activity.Activity[string, string] {
	return &activity.Activity[string, string]{
		Name:           "hang",
		Timeout:        decade,
		IdempotencyKey: func(s string) string { return "key" },
		Verify: func(context.Context, string) (activity.Verification[string], error) {
			return activity.NotCompleted[string](), nil
		},
		Run: func(ctx context.Context, _ string) (string, error) {
			c.begun.add("hang")
			<-ctx.Done()
			cause := context.Cause(ctx)
			c.cause.Store(&cause)
			return "done after all", nil
		},
	}
}

// hanging is a workflow that has such an activity.
func (c *terminable) hanging() *engine.Workflow[string, string] {
	act := c.hang()
	return flow("hanging", func(run *engine.Run) (string, error) { return act.Do(run, "") })
}

// stubborn is a workflow that cannot undo what it did.
func (c *terminable) stubborn() *engine.Workflow[string, string] {
	act := &activity.Activity[string, string]{
		Name:       "book",
		Run:        func(context.Context, string) (string, error) { return "booked", nil },
		Compensate: func(context.Context, string, string) error { return errBroke },
	}
	return flow("stubborn", func(run *engine.Run) (string, error) {
		if _, err := act.Do(run, ""); err != nil {
			return "", err
		}
		return "", errBroke
	})
}

// terminables are the states, each with what starts the run "o" and brings it there.
var terminables = map[string]func(c *terminable){
	"in an activity": func(c *terminable) {
		wf := c.hanging()
		c.p = boot(c.t, c.s, wf, leases)
		start(c.t, wf, c.p, "o", "")
	},
	"asleep in memory": func(c *terminable) {
		c.p = boot(c.t, c.s, endless, leases)
		start(c.t, endless, c.p, "o", "")
	},
	"parked with a due time": func(c *terminable) {
		c.p = boot(c.t, c.s, endless, parking)
		start(c.t, endless, c.p, "o", "")
	},
	"parked for a signal": func(c *terminable) {
		c.p = boot(c.t, c.s, forgotten, parking)
		start(c.t, forgotten, c.p, "o", "")
	},
	"held": func(c *terminable) {
		p := c.boot(endless, leases)
		start(c.t, endless.With(c.options), p, "o", "")
		time.Sleep(time.Minute)
		p.kill()
		c.reopen()
		c.p = c.boot(forgotten, leases)
		eventually(c.t, "it is held", func() bool { return heldFor(describe(c.t, c.p, "o"), engine.ReasonNonDeterminism) })
	},
	"its head is damaged": func(c *terminable) {
		p := c.boot(endless, leases)
		start(c.t, endless.With(c.options), p, "o", "")
		time.Sleep(time.Minute)
		p.kill()
		c.reopen()
		wf, err := journal.Load(ctx, c.s, "o")
		if err != nil {
			c.t.Fatal(err)
		}
		hold, err := journal.Find(ctx, c.s, wf)
		if err != nil {
			c.t.Fatal(err)
		}
		put(c.t, c.s, wf.Log().Checkpoint(hold.Head), []byte("damaged"))
		c.p = c.boot(endless, leases)
		eventually(c.t, "it is held", func() bool { return heldFor(describe(c.t, c.p, "o"), engine.ReasonDamaged) })
	},
	"its function blocks": func(c *terminable) {
		c.release = make(chan struct{})
		act := c.hang()
		blocks := flow("endless", func(run *engine.Run) (string, error) {
			act.Go(run, "")
			if err := run.Sleep(time.Second); err != nil {
				return "", err
			}
			<-c.release
			return "", nil
		})
		c.p = boot(c.t, c.s, blocks, leases)
		start(c.t, blocks, c.p, "o", "")
	},
	"undoing in vain": func(c *terminable) {
		wf := c.stubborn()
		c.p = boot(c.t, c.s, wf, leases)
		start(c.t, wf, c.p, "o", "")
	},
	"cancelled, and deaf to it": func(c *terminable) {
		wf := flow("endless", func(run *engine.Run) (string, error) { return "", run.WithoutCancel().Sleep(decade) })
		c.p = boot(c.t, c.s, wf, leases)
		if err := start(c.t, wf, c.p, "o", "").Cancel(ctx, engine.Actor{Name: "bob", Reason: "please"}); err != nil {
			c.t.Fatal(err)
		}
	},
	"no engine has its workflow": func(c *terminable) {
		client := made(c.t, c.s)
		start(c.t, endless, client, "o", "")
		client.Close()
		c.p = boot(c.t, c.s, forgotten.With(engine.StartOptions{}), leases, func(c *engine.Config) { c.Workflows = nil })
	},
	"in line": func(c *terminable) {
		queue := func(c *engine.Config) { c.Queues = []engine.Queue{{Name: "reports", Concurrency: 1}} }
		wf := endless.With(engine.StartOptions{Queue: "reports"})
		c.p = boot(c.t, c.s, wf, leases, queue)
		start(c.t, wf, c.p, "first", "")
		time.Sleep(time.Second)
		start(c.t, wf, c.p, "o", "")
	},
}

func (c *terminable) reopen() {
	if c.store.Reopen != nil {
		c.s = c.store.Reopen(c.t, c.s)
	}
}

// OPS-1: Terminate ends a run whatever it is doing, once, for everybody, and nothing is
// recorded for it afterwards.
func TestTerminate(t *testing.T) {
	for state, begin := range terminables {
		for _, by := range []string{"its engine", "another engine"} {
			t.Run(state+" by "+by, func(t *testing.T) {
				onSomeStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
					c := &terminable{t: t, store: store, s: store.Open(t)}
					defer func() { c.s.Close() }()
					begin(c)
					time.Sleep(time.Minute)
					var other engineLike = c.p
					if by == "another engine" {
						e := made(t, c.s, leases)
						defer e.Close()
						other = e
					}
					c.terminated(other)
				})
			})
		}
	}
}

// An engine whose function blocks notices that another has terminated the run, also if the entry that was to wake it is lost.
func TestTerminateWithoutAWake(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &terminable{t: t, s: fresh(t)}
		terminables["its function blocks"](c)
		time.Sleep(time.Minute)
		other := made(t, wakeless{c.s}, leases)
		defer other.Close()
		if err := other.Terminate(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if cause := c.cause.Load(); cause == nil || !errors.Is(*cause, activity.ErrTerminated) {
			t.Errorf("the attempt ended with %v, want ErrTerminated", cause)
		}
		close(c.release)
		c.p.stop(t)
	})
}

// A wakeless store loses what wakes engines.
type wakeless struct{ storage.Storage }

func (w wakeless) Unwrap() storage.Storage { return w.Storage }

func (w wakeless) Commit(ctx context.Context, b storage.Batch) error {
	b.Ops = slices.DeleteFunc(slices.Clone(b.Ops), func(o storage.Op) bool { return bytes.HasPrefix(o.Key, keys.Wakes().Start) })
	return w.Storage.Commit(ctx, b)
}

// The engine that terminates its own run does not wait until it notices that the function blocks.
func TestTerminateOfAFunctionThatBlocks(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		ended := make(chan error, 1)
		act := &activity.Activity[string, string]{Name: "hang", Run: func(ctx context.Context, _ string) (string, error) {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return "", ctx.Err()
		}}
		release := make(chan struct{})
		blocks := flow("blocks", func(run *engine.Run) (string, error) {
			act.Go(run, "")
			if err := run.Sleep(time.Second); err != nil {
				return "", err
			}
			<-release
			return "", nil
		})
		p := boot(t, s, blocks, leases)
		start(t, blocks, p, "o", "")
		time.Sleep(2 * time.Second)
		if err := p.Terminate(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := p.Result(soon, "o", "", nil); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("result: %v, want ErrCancelled", err)
		}
		select {
		case cause := <-ended:
			if !errors.Is(cause, activity.ErrTerminated) {
				t.Errorf("the attempt ended with %v, want ErrTerminated", cause)
			}
		case <-soon.Done():
			t.Error("the context of the attempt has not ended")
		}
		close(release)
		p.stop(t)
	})
}

type engineLike interface {
	engine.Client
	Terminate(context.Context, string, engine.Actor) error
	Resume(context.Context, string, engine.Actor) error
	Reset(context.Context, string, string, engine.Actor) error
}

func (c *terminable) terminated(by engineLike) {
	t := c.t
	t.Helper()
	undecided := make(chan error, 1)
	go func() { undecided <- c.p.Result(ctx, "o", "", nil) }() // who waits is told
	time.Sleep(time.Second)
	was := describe(t, c.p, "o")
	if err := by.Terminate(ctx, "o", engine.Actor{Name: "ann", Reason: "it is stuck"}); err != nil {
		t.Fatalf("terminate: %v", err)
	}
	select {
	case err := <-undecided:
		if !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("result: %v, want ErrCancelled", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("who waits for the result is not told")
	}
	i := describe(t, by, "o")
	if i.Status != checkpoint.StatusCancelled || len(i.Attention) > 0 || i.EndedAt.IsZero() || i.Cancel == nil || len(i.Waiting) > 0 {
		t.Errorf("it is described as %+v", i)
	}
	if i.Cancel != nil && (i.Cancel.By != "ann" || i.Cancel.Reason != "it is stuck" || !i.Cancel.Terminated) {
		t.Errorf("the request is %+v", i.Cancel)
	}
	if want := `"o" was terminated, by "ann": it is stuck`; !strings.HasSuffix(i.Failure, want) {
		t.Errorf("the failure is %q, want %q at the end", i.Failure, want)
	}
	var end *engine.TerminalError
	for what, err := range map[string]error{
		"terminate": by.Terminate(ctx, "o", audit),
		"cancel":    by.Cancel(ctx, "o", audit),
		"resume":    by.Resume(ctx, "o", audit),
	} {
		if !errors.As(err, &end) || end.Status != checkpoint.StatusCancelled {
			t.Errorf("%s afterwards: %v, want a *TerminalError", what, err)
		}
	}
	time.Sleep(time.Minute)
	if cause := c.cause.Load(); c.begun.of("hang") > 0 && (cause == nil || !errors.Is(*cause, activity.ErrTerminated)) {
		t.Errorf("the attempt ended with %v, want ErrTerminated", cause)
	}
	before := recordsOfRuns(t, c.s)
	time.Sleep(time.Minute)
	if after := recordsOfRuns(t, c.s); !slices.Equal(before, after) {
		t.Errorf("written after the end: %q, before %q", after, before)
	}
	if left := entries(t, c.s, "exp:0000000000000000"); len(left) > 0 {
		t.Errorf("children are still to be asked: %q", left)
	}
	if n := c.begun.of("hang"); n > 1 {
		t.Errorf("the activity was attempted %d times", n)
	}
	soon, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := c.p.Result(soon, "o", "", nil); !errors.Is(err, engine.ErrCancelled) {
		t.Errorf("result, asked for after the end: %v, want ErrCancelled", err)
	}
	if c.release != nil {
		close(c.release)
	}
	c.lastEvents(was)
	if err := c.p.Purge(ctx, "o", audit); err != nil {
		t.Errorf("purge: %v", err)
	}
	c.p.stop(t)
	if problems := integrity.Check(ctx, c.s, time.Time{}); len(problems) > 0 && !heldFor(was, engine.ReasonDamaged) {
		t.Errorf("%q", problems)
	}
}

// lastEvents checks what the history says of the end.
func (c *terminable) lastEvents(was engine.Info) {
	t := c.t
	t.Helper()
	wf, err := journal.Load(ctx, c.s, "o")
	if err != nil {
		t.Fatal(err)
	}
	hold, err := journal.Find(ctx, c.s, wf)
	if err != nil {
		t.Fatal(err)
	}
	last, err := journal.Read(ctx, c.s, wf, hold.Head)
	if err != nil {
		t.Fatal(err)
	}
	acted := func(e checkpoint.Event) bool {
		return e.Kind == checkpoint.KindActed && e.Name == "terminate" && e.By == "ann" && e.Why == "it is stuck"
	}
	n := len(last.Events)
	if !slices.ContainsFunc(last.Events, acted) || last.Events[n-1].Kind != checkpoint.KindEnded || !strings.Contains(last.Events[n-1].Error, "it is stuck") {
		t.Errorf("the history ends with %+v", last.Events)
	}
	abandoned := func(e checkpoint.Event) bool { return e.Kind == checkpoint.KindGivenUp && e.Name == "hang" }
	if got, want := slices.ContainsFunc(last.Events, abandoned), c.begun.of("hang") > 0; got != want {
		t.Errorf("the history names the activity in progress: %v, want %v: %+v", got, want, last.Events)
	}
}

// The slot of a terminated run is free for the next one, and its parent is told.
func TestTerminateFreesTheSlotAndTellsTheParent(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		queued := endless.With(engine.StartOptions{Queue: "reports"})
		parent := flow("parent", func(run *engine.Run) (string, error) {
			_, err := queued.AsChild(engine.ChildOptions{ID: "child"}).Do(run, "")
			if errors.Is(err, engine.ErrCancelled) {
				return "told: " + err.Error(), nil
			}
			return "", err
		})
		p := boot(t, s, parent, endless, parking, func(c *engine.Config) {
			c.Queues = []engine.Queue{{Name: "reports", Concurrency: 1}}
		})
		h := start(t, parent, p, "o", "")
		time.Sleep(time.Second)
		start(t, queued, p, "behind", "")
		time.Sleep(time.Minute)
		if i := describe(t, p, "behind"); i.Status != checkpoint.StatusPending {
			t.Fatalf("it does not wait: %+v", i)
		}
		if err := p.Terminate(ctx, "child", audit); err != nil {
			t.Fatal(err)
		}
		if got := result(t, h); !strings.Contains(got, "terminated by ann: test") {
			t.Errorf("the parent got %q", got)
		}
		eventually(t, "the next one is admitted", func() bool { return describe(t, p, "behind").Status == checkpoint.StatusRunning })
	})
}

// OPS-1, RET-6: the children of a terminated workflow are asked to stop as their ParentEnd says, also
// if who terminated it died before they were asked, and if the workflow is purged meanwhile.
func TestTerminateDismissesChildren(t *testing.T) {
	for _, then := range []string{"", "the caller dies", "the caller dies, and it is purged"} {
		t.Run(then, func(t *testing.T) {
			onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
				s := store.Open(t)
				defer func() { s.Close() }()
				ends := map[string]engine.ParentEnd{"cancel": engine.ParentEndCancel, "abandon": engine.ParentEndAbandon, "await": engine.ParentEndAwait}
				parent := flow("parent", func(run *engine.Run) (string, error) {
					for _, id := range []string{"abandon", "await", "cancel"} {
						endless.AsChild(engine.ChildOptions{ID: id, OnParentEnd: ends[id]}).Go(run, "")
					}
					return "", run.Sleep(decade)
				})
				p := boot(t, s, parent, endless, parking)
				start(t, parent, p, "o", "")
				time.Sleep(time.Minute)
				if then == "" {
					if err := p.Terminate(ctx, "o", audit); err != nil {
						t.Fatal(err)
					}
				} else {
					dying := &after{Storage: s, put: string(keys.Output("o"))}
					e := made(t, dying, leases)
					if err := e.Terminate(ctx, "o", audit); err != nil {
						t.Fatal(err)
					}
					e.Close()
					if dying.refused == 0 {
						t.Fatal("no commit was refused")
					}
				}
				if strings.HasSuffix(then, "purged") {
					if err := p.Purge(ctx, "o", audit); err != nil {
						t.Fatal(err)
					}
				}
				eventually(t, "the children are asked", func() bool {
					return describe(t, p, "cancel").Status.Terminal() && describe(t, p, "await").Status.Terminal()
				})
				for _, id := range []string{"cancel", "await"} {
					if i := describe(t, p, id); i.Status != checkpoint.StatusCancelled || i.Cancel.Reason != `termination of parent "o"` {
						t.Errorf("child %s is %s: %+v", id, i.Status, i.Cancel)
					}
				}
				time.Sleep(time.Minute)
				if i := describe(t, p, "abandon"); i.Status != checkpoint.StatusRunning || i.Cancel != nil {
					t.Errorf("the child that is to continue is %s: %+v", i.Status, i.Cancel)
				}
				if left := entries(t, s, "exp:0000000000000000"); len(left) > 0 {
					t.Errorf("the children are still to be asked: %q", left)
				}
				p.stop(t)
				if problems := integrity.Check(ctx, s, time.Time{}); len(problems) > 0 {
					t.Errorf("%q", problems)
				}
			})
		})
	}
}

// stalling is a store in which reads of the workflows with ids that begin with "gone" wait until it is freed.
type stalling struct {
	storage.Storage
	waiting atomic.Int64
	freed   chan struct{}
}

func (s *stalling) Unwrap() storage.Storage { return s.Storage }

func (s *stalling) Get(ctx context.Context, key []byte) ([]byte, error) {
	if bytes.HasPrefix(key, keys.Workflow("gone")) {
		s.waiting.Add(1)
		defer s.waiting.Add(-1)
		select {
		case <-s.freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return s.Storage.Get(ctx, key)
}

// However many terminated workflows have children to be asked to stop, an engine asks those of a few at a time. What
// expires is removed meanwhile, and in the end all are asked, soon after each other.
func TestTerminatedWorkflowsTakeTurns(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &stalling{Storage: new(memory.Store), freed: make(chan struct{})}
		const n = 3000
		for i := range n {
			put(t, s, keys.Dismissal(sprint("gone", i), sprint("01JGZ3Q8X", i)), nil)
		}
		put(t, s, keys.ExpiringTombstone(time.Now(), "other", "01JGZ3Q8X0000000000000000A"), nil)
		p := bootOn(t, storagetest.NewFaulty(s, nil), leases)
		time.Sleep(time.Minute)
		if w := s.waiting.Load(); w < 2 || w > 16 {
			t.Errorf("%d are asked at a time, want 16", w)
		}
		if left := entries(t, s, "exp:"); len(left) != n {
			t.Errorf("%d entries are left, want those of %d workflows", len(left), n)
		}
		close(s.freed)
		time.Sleep(time.Minute)
		if left := entries(t, s, "exp:"); len(left) != 0 {
			t.Errorf("%d entries are left a minute later", len(left))
		}
		p.kill()
	})
}

// The history of a terminated workflow has the request to cancel it once, whether its run was told of it or not: by that a
// bulk knows, also after a reset, that it has made the request. The reset takes it back.
func TestTerminateKeepsTheRequestToCancel(t *testing.T) {
	for _, told := range []bool{true, false} {
		t.Run(fmt.Sprintf("told %v", told), func(t *testing.T) {
			onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
				s := store.Open(t)
				defer func() { s.Close() }()
				deaf := flow("deaf", func(run *engine.Run) (string, error) { return "", run.WithoutCancel().Sleep(decade) })
				p := boot(t, s, deaf, leases)
				start(t, deaf, p, "o", "")
				time.Sleep(2 * time.Minute)
				if !told {
					p.stop(t)
				}
				client := made(t, s)
				defer client.Close()
				bob := engine.Actor{Name: "bob", Reason: "please"}
				if err := client.Cancel(ctx, "o", bob); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if err := client.Terminate(ctx, "o", audit); err != nil {
					t.Fatal(err)
				}
				var asked, ended []checkpoint.Event
				for _, c := range historyOf(t, client, "o") {
					for _, e := range c.Events {
						switch {
						case e.Kind == checkpoint.KindAsked:
							asked = append(asked, e)
						case e.Kind == checkpoint.KindEnded:
							ended = append(ended, e)
						}
					}
				}
				if len(asked) != 1 || asked[0].By != bob.Name || asked[0].Why != bob.Reason || len(ended) != 1 {
					t.Errorf("the history has the requests %+v and the ends %+v, want one of bob, and one end", asked, ended)
				}
				if i := describe(t, client, "o"); i.Cancel == nil || !i.Cancel.Terminated || i.Cancel.By != audit.Name {
					t.Errorf("described as %+v, want terminated by %s", i.Cancel, audit.Name)
				}
				if err := client.Reset(ctx, "o", "", audit); err != nil {
					t.Fatal(err)
				}
				if told {
					p.stop(t)
				}
				p = boot(t, s, deaf, leases)
				time.Sleep(time.Minute)
				if i := describe(t, p, "o"); i.Status != checkpoint.StatusRunning || i.Cancel != nil {
					t.Errorf("after the reset it is %s, %+v, want it running", i.Status, i.Cancel)
				}
				p.stop(t)
				intact(t, s)
			})
		})
	}
}

// A request to cancel that only the history of a terminated workflow has is delivered to nobody, also if the workflow is
// reset twice to before the same operation.
func TestResetPassesOverARequestThatWasNeverTold(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if _, err := engine.Step(run, "first", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return "", err
			}
			return "", run.Sleep(decade)
		})
		p := boot(t, s, wf, leases)
		start(t, wf, p, "o", "")
		time.Sleep(time.Minute)
		p.stop(t)
		client := made(t, s)
		defer client.Close()
		for what, err := range map[string]error{
			"reset":       client.Reset(ctx, "o", "1", audit),
			"cancel":      client.Cancel(ctx, "o", engine.Actor{Name: "bob", Reason: "please"}),
			"terminate":   client.Terminate(ctx, "o", audit),
			"reset again": client.Reset(ctx, "o", "1", audit),
		} {
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		p = boot(t, s, wf, leases)
		time.Sleep(time.Minute)
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusRunning || i.Cancel != nil {
			t.Errorf("after the reset it is %s, %+v, want it running", i.Status, i.Cancel)
		}
		p.stop(t)
		intact(t, s)
	})
}

// A workflow that had been told to stop, and was terminated later, is told so again after a reset: by whom it was asked,
// and not that it was terminated. If it is terminated once more, its history has the request once.
func TestResetKeepsTheRequestThatWasTold(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		wf := flow("wf", func(run *engine.Run) (string, error) {
			nothing := func(context.Context) (int, error) { return 0, nil }
			_, begun := engine.Step(run, "begin", nothing)
			if err := run.Sleep(decade); !errors.Is(err, engine.ErrCancelled) {
				return "", errors.Join(begun, err)
			}
			run = run.WithoutCancel()
			_, cleaned := engine.Step(run, "clean up", nothing)
			if _, err := engine.Step(run, "report", nothing); err != nil {
				return "", errors.Join(begun, cleaned, err)
			}
			return "", run.Sleep(decade)
		})
		p := boot(t, s, wf, leases)
		start(t, wf, p, "o", "")
		time.Sleep(time.Minute)
		began := time.Now().Truncate(time.Microsecond)
		bob := engine.Actor{Name: "bob", Reason: "please"}
		must := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		must("cancel", p.Cancel(ctx, "o", bob))
		time.Sleep(time.Minute)
		must("terminate", p.Terminate(ctx, "o", audit))
		must("reset", p.Reset(ctx, "o", "4", audit))
		time.Sleep(time.Minute)
		i := describe(t, p, "o")
		if i.Status != checkpoint.StatusRunning || i.Cancel == nil {
			t.Fatalf("after the reset it is %s, %+v, want it running, and asked to stop", i.Status, i.Cancel)
		}
		if c := *i.Cancel; c.Terminated || c.By != bob.Name || c.Reason != bob.Reason || c.At.Before(began) || c.At.After(began.Add(time.Minute)) {
			t.Errorf("after the reset its request is %+v, want that of bob", c)
		}
		must("terminate again", p.Terminate(ctx, "o", audit))
		if n := requests(historyOf(t, p.Engine, "o")); n != 1 {
			t.Errorf("the history has the request %d times", n)
		}

		// The same request once more, after a reset has taken it back, is another one, and nobody is told of it.
		must("reset to the start", p.Reset(ctx, "o", "1", audit))
		time.Sleep(time.Minute)
		p.stop(t)
		client := made(t, s)
		defer client.Close()
		must("cancel once more", client.Cancel(ctx, "o", bob))
		must("terminate", client.Terminate(ctx, "o", audit))
		if n := requests(historyOf(t, client, "o")); n != 2 {
			t.Errorf("the history has the request that was taken back, and the same one after it, %d times", n)
		}
		intact(t, s)
	})
}

// An unsure store applies a batch, calls then, and returns an error, once.
type unsure struct {
	storage.Storage
	is   func(storage.Batch) bool
	then func()
	done atomic.Bool
}

func (u *unsure) Unwrap() storage.Storage { return u.Storage }

func (u *unsure) Commit(ctx context.Context, b storage.Batch) error {
	err := u.Storage.Commit(ctx, b)
	if u.is(b) && !u.done.Swap(true) {
		u.then()
		return errBroke
	}
	return err
}

// A termination of unknown outcome that was applied ends the execution that there was and its children, and not what has begun after
// a reset.
func TestTerminateEndsOneExecution(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		inner := store.Open(t)
		executions := 0
		wf := flow("wf", func(run *engine.Run) (string, error) {
			executions++
			if _, err := engine.Step(run, "step", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return "", err
			}
			endless.AsChild(engine.ChildOptions{}).Go(run, "")
			return "done", run.Sleep(10 * time.Minute)
		})
		s := &unsure{Storage: inner, is: func(b storage.Batch) bool {
			return slices.ContainsFunc(b.Ops, func(o storage.Op) bool { return strings.Contains(string(o.Key), ":kids:o:") })
		}}
		p := boot(t, s, wf, endless)
		start(t, wf, p, "o", "")
		time.Sleep(time.Minute)
		reset := false
		s.then = func() {
			reset = true
			if err := p.Reset(ctx, "o", "1", audit); err != nil {
				t.Errorf("reset: %v", err)
			}
			time.Sleep(time.Minute)
		}
		if err := p.Terminate(ctx, "o", audit); err != nil {
			t.Errorf("terminate: %v", err)
		}
		equal(t, "children, and whether they were asked to stop", childrenOf(t, p, "o"), []string{"cancelled true", "running false"})
		time.Sleep(20 * time.Minute)
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusCompleted || !reset {
			t.Errorf("after a reset (%v) it is %s, want it completed", reset, i.Status)
		}
		equal(t, "executions", executions, 2)
		p.stop(t)
		intact(t, inner)
		inner.Close()
	})
}

// OPS-1: a termination that was applied and whose outcome its caller does not learn ends the execution at once.
func TestTerminateOfUnknownOutcomeEndsTheExecution(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		c := &terminable{t: t, store: store}
		inner := store.Open(t)
		wf := c.hanging()
		callers, giveUp := context.WithCancel(ctx)
		s := &unsure{Storage: inner, then: giveUp, is: func(b storage.Batch) bool {
			return slices.ContainsFunc(b.Ops, func(o storage.Op) bool { return bytes.Equal(o.Key, keys.Output("o")) })
		}}
		p := boot(t, s, wf, leases)
		start(t, wf, p, "o", "")
		time.Sleep(time.Minute)
		if err := p.Terminate(callers, "o", audit); !errors.Is(err, context.Canceled) {
			t.Errorf("terminate: %v, want that its caller gave up", err)
		}
		began := time.Now()
		eventually(t, "the attempt ends", func() bool { return c.cause.Load() != nil })
		if err := *c.cause.Load(); !errors.Is(err, activity.ErrTerminated) || time.Since(began) > 100*time.Millisecond {
			t.Errorf("after %s the attempt ends with %v, want ErrTerminated at once", time.Since(began), err)
		}
		p.stop(t)
		intact(t, inner)
		inner.Close()
	})
}

// A slowScan calls then before it scans the range r for the first time.
type slowScan struct {
	storage.Storage
	r    storage.Range
	then func()
	done atomic.Bool
}

func (s *slowScan) Unwrap() storage.Storage { return s.Storage }

func (s *slowScan) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	if bytes.Equal(r.Start, s.r.Start) && !s.done.Swap(true) {
		s.then()
	}
	return s.Storage.Scan(ctx, r)
}

// A workflow is reset just before its termination reads which children it has: the one that it has begun since is not asked to stop.
func TestTerminateBesideAReset(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		inner := store.Open(t)
		wf := flow("wf", func(run *engine.Run) (string, error) {
			endless.AsChild(engine.ChildOptions{}).Go(run, "")
			return "", run.Sleep(decade)
		})
		s := &slowScan{Storage: inner, r: keys.ChildrenOf("o")}
		p := boot(t, inner, wf, endless)
		start(t, wf, p, "o", "")
		time.Sleep(time.Minute)
		s.then = func() {
			reset(t, p, "o", "")
			time.Sleep(2 * time.Second)
		}
		e := made(t, s)
		if err := e.Terminate(ctx, "o", audit); err != nil {
			t.Errorf("terminate: %v", err)
		}
		equal(t, "children, and whether they were asked to stop", childrenOf(t, p, "o"), []string{"cancelled true", "running false"})
		e.Close()
		p.stop(t)
		intact(t, inner)
		inner.Close()
	})
}

// childrenOf returns the states of the children of a workflow, and whether they were asked to stop, in order.
func childrenOf(t testing.TB, p *process, id string) (children []string) {
	t.Helper()
	for i, err := range p.List(ctx, engine.Filter{Parent: id}) {
		if err != nil {
			t.Fatal(err)
		}
		children = append(children, fmt.Sprint(i.Status, " ", i.Cancel != nil))
	}
	slices.Sort(children)
	return children
}

// requests counts the requests to cancel in a history.
func requests(cs []checkpoint.Checkpoint) (n int) {
	for _, k := range kinds(cs) {
		if k == checkpoint.KindAsked {
			n++
		}
	}
	return n
}

// An after refuses all commits after the first one that puts a key.
type after struct {
	storage.Storage
	put     string
	down    bool
	refused int
}

func (a *after) Unwrap() storage.Storage { return a.Storage }

func (a *after) Commit(ctx context.Context, b storage.Batch) error {
	if a.down {
		a.refused++
		return errBroke
	}
	a.down = slices.ContainsFunc(b.Ops, func(o storage.Op) bool { return string(o.Key) == a.put })
	return a.Storage.Commit(ctx, b)
}

// A run that commits without a pause cannot evade its termination.
func TestTerminateWhatNeverRests(t *testing.T) {
	torture.Slow(t)
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		var steps atomic.Int64
		busy := flow("busy", func(run *engine.Run) (string, error) {
			for {
				if _, err := engine.Step(run, "step", func(context.Context) (int64, error) { return steps.Add(1), nil }); err != nil {
					return "", err
				}
			}
		})
		p := boot(t, s, busy)
		other := made(t, s)
		defer other.Close()
		for i, by := range []engineLike{p, other} {
			id := sprint(i)
			start(t, busy, p, id, "")
			for begun := steps.Load(); steps.Load() < begun+100; {
				time.Sleep(time.Millisecond)
			}
			limit, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			if err := by.Terminate(limit, id, audit); err != nil {
				t.Fatal(err)
			}
			if err := p.Result(limit, id, "", nil); !errors.Is(err, engine.ErrCancelled) {
				t.Errorf("result: %v", err)
			}
		}
		t.Logf("%d steps", steps.Load())
	})
}

// After a commit of unknown outcome, Terminate looks whether it was applied.
func TestTerminateKnowsItsOwnEnd(t *testing.T) {
	for fault, applied := range map[storagetest.Fault]bool{storagetest.ErrorBefore: false, storagetest.ErrorAfter: true} {
		onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
			s := store.Open(t)
			defer func() { s.Close() }()
			p := boot(t, s, endless, leases)
			h := start(t, endless, p, "o", "")
			time.Sleep(time.Minute)
			met := 0
			e := made(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
				if c.Method == "Commit" && slices.ContainsFunc(c.Batch.Ops, func(o storage.Op) bool { return string(o.Key) == string(keys.Output("o")) }) {
					if met++; met == 1 {
						return fault
					}
				}
				return storagetest.None
			}), leases)
			defer e.Close()
			if err := e.Terminate(ctx, "o", audit); err != nil {
				t.Errorf("terminate: %v", err)
			}
			if want := map[bool]int{false: 2, true: 1}[applied]; met != want {
				t.Errorf("%d commits, want %d", met, want)
			}
			if _, err := outcome(h); !errors.Is(err, engine.ErrCancelled) {
				t.Errorf("result: %v", err)
			}
		})
	}
}

// Bad requests change nothing.
func TestTerminateRefusesBadRequests(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		p := boot(t, s, endless)
		start(t, endless, p, "o", "")
		time.Sleep(time.Second)
		before := entries(t, s, "")
		for what, c := range map[string]struct {
			id   string
			by   engine.Actor
			want error
		}{
			"no id":             {"", audit, engine.ErrInvalid},
			"no such workflow":  {"no:such%workflow", audit, engine.ErrNotFound},
			"an id of bytes":    {"\xff", audit, engine.ErrInvalid},
			"nobody":            {"o", engine.Actor{Reason: "because"}, engine.ErrInvalid},
			"for no reason":     {"o", engine.Actor{Name: "ann"}, engine.ErrInvalid},
			"for a long reason": {"o", engine.Actor{Name: "ann", Reason: strings.Repeat("x", 5000)}, engine.ErrInvalid},
		} {
			if err := p.Terminate(ctx, c.id, c.by); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", what, err, c.want)
			}
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := p.Terminate(ended, "o", audit); !errors.Is(err, context.Canceled) {
			t.Errorf("with a cancelled context: %v", err)
		}
		if now := entries(t, s, ""); !slices.Equal(before, now) {
			t.Errorf("the store has %q, before %q", now, before)
		}
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusRunning {
			t.Errorf("it is %s", i.Status)
		}
		p.Close()
		if err := p.Terminate(ctx, "o", audit); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("by a closed engine: %v", err)
		}
	})
}

// A cancellation request to a held run is recorded, and the caller is told that it has no effect
// yet. It has when the run continues.
func TestCancelOfAHeldRunSaysSo(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		c := &terminable{t: t, store: store, s: store.Open(t)}
		defer func() { c.s.Close() }()
		terminables["held"](c)
		var held *engine.HeldError
		for range 2 {
			err := c.p.Cancel(ctx, "o", audit)
			if !errors.As(err, &held) || !errors.Is(err, engine.ErrHeld) || held.Reason != engine.ReasonNonDeterminism || !strings.Contains(err.Error(), "Terminate") {
				t.Errorf("cancel: %v, want a *HeldError", err)
			}
		}
		if i := describe(t, c.p, "o"); i.Cancel == nil || i.Cancel.By != "ann" {
			t.Errorf("the request is not recorded: %+v", i)
		}
		c.p.stop(t)
		c.reopen()
		c.p = boot(t, c.s, endless, leases)
		if _, err := outcome(endless.Handle(c.p, "o")); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("with code that agrees: %v, want ErrCancelled", err)
		}
	})
}

// A queue goes on beside its held runs if it says ReleaseHeld, and stands still if not. A run
// that gave its slot away ends like any other.
func TestHeldRunReleasesItsSlot(t *testing.T) {
	for _, state := range []string{"held", "its head is damaged"} {
		for _, release := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, %v", state, release), func(t *testing.T) {
				onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
					queue := func(c *engine.Config) {
						c.Queues = []engine.Queue{{Name: "reports", Concurrency: 1, ReleaseHeld: release}}
					}
					c := &terminable{t: t, store: store, s: store.Open(t), options: engine.StartOptions{Queue: "reports"}, settings: queue}
					defer func() { c.s.Close() }()
					terminables[state](c)
					brief := flow("brief", func(*engine.Run) (string, error) { return "done", nil }).With(c.options)
					c.p.kill()
					c.reopen()
					c.p = boot(t, c.s, forgotten, brief, leases, queue)
					h := start(t, brief, c.p, "behind", "")
					time.Sleep(time.Minute)
					want := map[bool]checkpoint.Status{false: checkpoint.StatusPending, true: checkpoint.StatusCompleted}[release]
					if i := describe(t, c.p, "behind"); i.Status != want {
						t.Errorf("the run behind it is %s, want %s", i.Status, want)
					}
					if err := c.p.Terminate(ctx, "o", audit); err != nil {
						t.Fatal(err)
					}
					result(t, h)
					if left := entries(t, c.s, "slot:"); len(left) > 0 {
						t.Errorf("slots are taken: %q", left)
					}
				})
			})
		}
	}
}
