package world_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/weft-go/weft/internal/world"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A watched store counts the calls of one process, and calls a function around its commits.
type watched struct {
	storage.Storage
	reads, commits, refused atomic.Int64
	rows, written           atomic.Int64       // in what was scanned, and operations and conditions of commits
	before, after           func(commit int64) // nil: nothing
}

// cost returns what f has the store do.
func (w *watched) cost(f func()) string {
	for _, n := range []*atomic.Int64{&w.reads, &w.rows, &w.commits, &w.written} {
		n.Store(0)
	}
	f()
	return fmt.Sprintf("%d reads of %d rows, %d commits of %d", w.reads.Load(), w.rows.Load(), w.commits.Load(), w.written.Load())
}

func (w *watched) Get(ctx context.Context, key []byte) ([]byte, error) {
	w.reads.Add(1)
	return w.Storage.Get(ctx, key)
}

func (w *watched) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	w.reads.Add(1)
	page, err := w.Storage.Scan(ctx, r)
	w.rows.Add(int64(len(page)))
	return page, err
}

func (w *watched) Commit(ctx context.Context, b storage.Batch) error {
	n := w.commits.Add(1)
	w.written.Add(int64(len(b.If) + len(b.Ops)))
	if w.before != nil {
		w.before(n)
	}
	err := w.Storage.Commit(ctx, b)
	if errors.Is(err, storage.ErrConflict) {
		w.refused.Add(1)
	}
	if w.after != nil {
		w.after(n)
	}
	return err
}

// A process that is alone with a run reads nothing before it creates something, whether calls share a commit or not.
func TestCreationsReadNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &watched{Storage: new(memory.Store)}
		hold := make(chan struct{})
		s.before = func(commit int64) {
			if commit == 7 {
				<-hold
			}
		}
		c := open(t, s)
		c.must("wrun_1", world.RunCreated, "", order)
		c.must("wrun_1", world.RunStarted, "", nil)
		s.reads.Store(0) // of the log that it answers with
		c.must("wrun_1", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1})
		c.must("wrun_1", world.StepStarted, "step_2", fields{"stepName": "pay", "input": 1})
		c.must("wrun_1", world.HookCreated, "hook_1", fields{"token": "t"})
		c.must("wrun_1", world.WaitCreated, "wait_1", fields{"resumeAt": 1})
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() {
				c.must("wrun_1", world.StepCreated, fmt.Sprint("step_of_many_", i), fields{"stepName": "pay", "input": 1})
			})
			synctest.Wait()
		}
		close(hold)
		calls.Wait()
		same(t, "commits, refused", fmt.Sprint(s.commits.Load(), s.refused.Load()), "8 0")
		same(t, "reads", s.reads.Load(), 0)
		sound(t, s.Storage)
	})
}

// The end of a run reads its open hooks in two pages, however many there are: their ids, and their records, also if hooks
// that were disposed are between them. Without open hooks it reads nothing of them. Two more reads are for the answer.
func TestEndReadsHooksTogether(t *testing.T) {
	for n, want := range map[int]int64{0: 2, 1: 4, 250: 4} {
		c, s := counted(t)
		c.begin("wrun_1")
		for i := range 2 * n {
			c.must("wrun_1", world.HookCreated, fmt.Sprintf("hook_%03d", i), fields{"token": fmt.Sprint("t", i)})
		}
		for i := range n {
			c.must("wrun_1", world.HookDisposed, fmt.Sprintf("hook_%03d", 2*i), nil)
		}
		s.reads.Store(0)
		s.commits.Store(0)
		c.must("wrun_1", world.RunCompleted, "", fields{"output": 1})
		same(t, fmt.Sprint(n, " open hooks: reads, commits"), fmt.Sprint(s.reads.Load(), s.commits.Load()), fmt.Sprint(want, 1))
		same(t, "tokens that are taken", c.count("wtok:"), 0)
		sound(t, s.Storage)
	}
}

func counted(t *testing.T) (*client, *watched) {
	s := &watched{Storage: new(memory.Store)}
	return open(t, s), s
}

// Whatever another process did since this one wrote to a run, a call is answered and refused by what is in the store. So
// it is when calls share a commit.
func TestNothingIsRefusedByAKeptHead(t *testing.T) {
	step := fields{"stepName": "pay", "input": 1}
	at := func(seq uint64) func(*world.Request) { return func(r *world.Request) { r.SeqInBand = &seq } }
	for name, c := range map[string]struct {
		other  func(two *client)    // of another process
		e      world.EventType      // of this one
		id     string               //
		f      fields               //
		change func(*world.Request) //
		status int                  // of the refusal; 0: none
		log    string               // what is added by all of it
	}{
		"the event that it counts": {
			other: func(two *client) { two.must("wrun_1", world.StepCreated, "step_2", step) },
			e:     world.StepCreated, id: "step_3", f: step, change: at(5), log: "step_created step_created",
		},
		"an event that is not the last one": {
			other: func(two *client) { two.must("wrun_1", world.StepCreated, "step_2", step) },
			e:     world.StepCreated, id: "step_3", f: step, change: at(4), status: 412, log: "step_created",
		},
		"the end of the run": {
			other: func(two *client) { two.must("wrun_1", world.RunCancelled, "", nil) },
			e:     world.RunStarted, status: 409, log: "hook_disposed run_cancelled",
		},
		"room for a hook": {
			other: func(two *client) { two.must("wrun_1", world.HookDisposed, "hook_1", nil) },
			e:     world.HookCreated, id: "hook_2", f: fields{"token": "t2"}, log: "hook_disposed hook_created",
		},
		"the same step": {
			other: func(two *client) { two.must("wrun_1", world.StepCreated, "step_2", step) },
			e:     world.StepCreated, id: "step_2", f: step, status: 409, log: "step_created",
		},
		"a step of this process": {
			other: func(*client) {},
			e:     world.StepCreated, id: "step_1", f: step, status: 409,
		},
		"the same wait": {
			other: func(two *client) { two.must("wrun_1", world.WaitCreated, "wait_1", nil) },
			e:     world.WaitCreated, id: "wait_1", status: 409, log: "wait_created",
		},
		"a step to complete": {
			other: func(two *client) { two.must("wrun_1", world.StepStarted, "step_2", step) },
			e:     world.StepCompleted, id: "step_2", f: fields{"result": 1}, log: "step_created step_started step_completed",
		},
		"the token": {
			other: func(two *client) {
				two.must("wrun_1", world.HookDisposed, "hook_1", nil)
				two.begin("wrun_2")
				two.must("wrun_2", world.HookCreated, "hook_2", fields{"token": "t"})
			},
			e: world.HookCreated, id: "hook_3", f: fields{"token": "t"}, log: "hook_disposed hook_conflict",
		},
		"the run itself": {
			other: func(*client) {},
			e:     world.RunCreated, f: order,
		},
	} {
		for _, together := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", together), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					inner := new(memory.Store)
					s := &watched{Storage: inner}
					limit := func(o *world.Options) { o.MaxHooks = 1 }
					one, two := open(t, s, limit), open(t, inner, limit)
					one.begin("wrun_1")
					one.must("wrun_1", world.HookCreated, "hook_1", fields{"token": "t"})
					var calls sync.WaitGroup
					hold := make(chan struct{})
					last := s.commits.Load() + 1
					s.before = func(commit int64) {
						if together && commit == last {
							<-hold
						}
					}
					s.after = func(commit int64) {
						if commit == last {
							c.other(two)
						}
					}
					calls.Go(func() { one.must("wrun_1", world.StepCreated, "step_1", step) })
					synctest.Wait()
					call := func() {
						change := c.change
						if change == nil {
							change = func(*world.Request) {}
						}
						_, err := one.create("wrun_1", c.e, c.id, c.f, change)
						if c.status > 0 {
							refused(t, err, c.status, "")
						} else if err != nil {
							t.Error(err)
						}
					}
					calls.Go(call)
					if together { // and one more, which is refused in any case
						calls.Go(func() {
							_, err := one.create("wrun_1", world.StepCompleted, "step_unknown", nil)
							refused(t, err, 404, "")
						})
					}
					synctest.Wait()
					close(hold)
					calls.Wait()
					want := strings.TrimSpace("run_created run_started hook_created step_created " + c.log)
					same(t, "the log", two.log("wrun_1"), want)
					sound(t, inner)
				})
			})
		}
	}
}

// An event that is too large for the store is refused for another reason if there is one, which only a look at the run shows.
func TestWhatIsTooLargeIsNotRefusedByAKeptHead(t *testing.T) {
	inner := &small{Storage: new(memory.Store), max: storage.Size{Bytes: 4096}}
	one, two := open(t, inner), open(t, inner)
	one.begin("wrun_1")
	two.must("wrun_1", world.RunCancelled, "", nil)
	one.refused(409, "terminal", "wrun_1", world.StepCreated, "step_1", fields{"stepName": "pay", "input": make([]byte, 8192)})
}

// Two processes that take turns read the head of the run: it has changed since they wrote it, and a commit would be refused.
func TestHeadsOfOthersAreRead(t *testing.T) {
	inner := new(memory.Store)
	s := &watched{Storage: inner}
	one, two := open(t, s), open(t, s)
	one.begin("wrun_1")
	for i := range 20 {
		for p, c := range []*client{one, two} {
			c.must("wrun_1", world.StepCreated, fmt.Sprint("step_", p, "_", i), fields{"stepName": "pay", "input": i})
		}
	}
	if n := s.refused.Load(); n > 1 {
		t.Errorf("%d commits were refused, want one at most: that after which the other process was known", n)
	}
	sound(t, inner)
}

// A call is on its way to one process while its client makes it again at another one, which is faster. The first one gets
// the answer of the second, and the event is there once. It looks only at what came meanwhile, not at the whole log.
func TestAFirstCallIsBehindItsRepetition(t *testing.T) {
	named := func(retry bool) func(*world.Request) {
		return func(r *world.Request) { r.RequestID, r.Retry = "req_1", retry }
	}
	for _, call := range []struct {
		e  world.EventType
		id string
		f  fields
	}{
		{world.HookReceived, "hook_1", fields{"payload": 1}},
		{world.StepStarted, "step_1", nil},
		{world.AttrSet, "", fields{"changes": []map[string]any{{"key": "a", "value": "1"}}, "writer": map[string]string{"type": "step"}}},
	} {
		for _, together := range []bool{false, true} {
			t.Run(fmt.Sprint(call.e, " ", together), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					inner := new(memory.Store)
					s := &watched{Storage: inner}
					one, two := open(t, s), open(t, inner)
					one.begin("wrun_1")
					one.must("wrun_1", world.HookCreated, "hook_1", fields{"token": "t"})
					one.must("wrun_1", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1})
					for range 100 {
						one.must("wrun_1", call.e, call.id, call.f)
					}
					before := one.log("wrun_1")
					hold := make(chan struct{})
					last := s.commits.Load() + 1
					meets := last
					if together {
						meets++
					}
					var faster *world.Answered
					s.before = func(commit int64) {
						if together && commit == last {
							<-hold
						}
						if commit == meets {
							faster = two.must("wrun_1", call.e, call.id, call.f, named(true))
						}
					}
					var calls sync.WaitGroup
					if together {
						calls.Go(func() { one.must("wrun_1", world.WaitCreated, "wait_1", nil) })
						synctest.Wait()
						calls.Go(func() { one.must("wrun_1", world.WaitCreated, "wait_2", nil) })
						synctest.Wait()
						before += " wait_created wait_created"
					}
					s.reads.Store(0)
					s.rows.Store(0)
					calls.Go(func() {
						if a := one.must("wrun_1", call.e, call.id, call.f, named(false)); a.Event.EventID != faster.Event.EventID {
							t.Errorf("it got event %s, and its repetition %s", a.Event.EventID, faster.Event.EventID)
						}
					})
					synctest.Wait()
					close(hold)
					calls.Wait()
					same(t, "events", len(strings.Fields(two.log("wrun_1"))), len(strings.Fields(before))+1)
					if n := s.reads.Load(); n > 20 {
						t.Errorf("%d reads, want at most 20", n)
					}
					if n := s.rows.Load(); n > 20 {
						t.Errorf("%d rows were read, want at most 20", n)
					}
					sound(t, inner)
				})
			})
		}
	}
}

// Before any commit, another process may have written to the run. Then a call is decided anew, and is in the log once.
func TestAnotherProcessWritesBeforeEachCommit(t *testing.T) {
	met := 0
	for meddled := int64(1); ; meddled++ {
		inner := new(memory.Store)
		s := &watched{Storage: inner}
		one, two := open(t, s), open(t, inner)
		one.begin("wrun_1")
		began := s.commits.Load()
		s.before = func(commit int64) {
			if commit == began+meddled {
				two.must("wrun_1", world.AttrSet, "", fields{"changes": []map[string]any{{"key": "a", "value": "1"}}, "writer": map[string]string{"type": "step"}})
			}
		}
		one.must("wrun_1", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1})
		one.must("wrun_1", world.StepStarted, "step_2", fields{"stepName": "pay", "input": 1})
		one.must("wrun_1", world.HookCreated, "hook_1", fields{"token": "t"})
		one.must("wrun_1", world.HookReceived, "hook_1", fields{"payload": 1})
		one.must("wrun_1", world.WaitCreated, "wait_1", nil)
		one.must("wrun_1", world.WaitCompleted, "wait_1", nil)
		one.must("wrun_1", world.StepCompleted, "step_2", fields{"result": 1})
		one.must("wrun_1", world.HookDisposed, "hook_1", nil)
		one.must("wrun_1", world.RunCompleted, "", fields{"output": 1})
		log := strings.Replace(two.log("wrun_1"), " attr_set", "", 1)
		same(t, fmt.Sprint("commit ", meddled, ": the log"), log, "run_created run_started step_created step_created step_started hook_created hook_received wait_created wait_completed step_completed hook_disposed run_completed")
		sound(t, inner)
		if s.refused.Load() == 0 {
			break
		}
		met++
	}
	if met != 9 {
		t.Errorf("%d commits were refused, want 9", met)
	}
}
