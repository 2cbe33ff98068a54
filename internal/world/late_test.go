package world_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/internal/world"
	"github.com/weft-go/weft/internal/worldstream"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/storage/storagetest"
)

// records are the records of a store, but for those whose keys begin with one of but.
func records(t testing.TB, s storage.Storage, but ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for e, err := range storage.All(context.Background(), s, storage.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if k := string(e.Key); !slices.ContainsFunc(but, func(p string) bool { return strings.HasPrefix(k, p) }) {
			all[k] = string(e.Value)
		}
	}
	return all
}

// What comes twice, too late or of what is not there is refused or answered, and changes no other entity.
func TestWhatComesTwiceOrTooLate(t *testing.T) {
	onAllStores(t, func(t *testing.T, one, two *client) {
		one.begin("wrun_2") // the other run
		one.must("wrun_2", world.StepStarted, "step_1", fields{"stepName": "pay", "input": 1})
		one.must("wrun_2", world.HookCreated, "hook_2", fields{"token": "theirs"})
		one.begin("wrun_1")
		one.must("wrun_1", world.StepStarted, "step_o", fields{"stepName": "pay", "input": 1})
		one.must("wrun_1", world.HookCreated, "hook_o", fields{"token": "other"})
		one.must("wrun_1", world.WaitCreated, "wait_o", fields{"resumeAt": 1})
		step := fields{"stepName": "pay", "input": 1}
		for _, c := range []struct {
			what        string
			t           world.EventType
			correlation string
			f           fields
			status      int // 0: it is answered
			added       int // events
		}{
			{"a step is started", world.StepStarted, "step_1", step, 0, 2},
			{"it is to be retried", world.StepRetrying, "step_1", fields{"error": 1}, 0, 1},
			{"it is started again", world.StepStarted, "step_1", nil, 0, 1},
			{"it is to be retried again", world.StepRetrying, "step_1", fields{"error": 1}, 0, 1},
			{"it is started for the third time", world.StepStarted, "step_1", nil, 0, 1},
			{"it is completed", world.StepCompleted, "step_1", fields{"result": 1}, 0, 1},
			{"then it fails", world.StepFailed, "step_1", fields{"error": 1}, 409, 0},
			{"then it starts", world.StepStarted, "step_1", nil, 409, 0},
			{"the outcome of no step", world.StepCompleted, "step_none", fields{"result": 1}, 404, 0},
			{"a hook is created", world.HookCreated, "hook_1", fields{"token": "mine"}, 0, 1},
			{"it receives", world.HookReceived, "hook_1", fields{"payload": 1}, 0, 1},
			{"it receives again", world.HookReceived, "hook_1", fields{"payload": 1}, 0, 1},
			{"it is disposed", world.HookDisposed, "hook_1", nil, 0, 1},
			{"it is disposed again", world.HookDisposed, "hook_1", nil, 404, 0},
			{"it receives too late", world.HookReceived, "hook_1", fields{"payload": 1}, 404, 0},
			{"a hook is created that another run has", world.HookCreated, "hook_2", fields{"token": "new"}, 409, 0},
			{"it is created after that", world.HookCreated, "hook_1", fields{"token": "mine"}, 409, 0},
			{"the run is started again", world.RunStarted, "", nil, 0, 0},
			{"a wait is completed", world.WaitCreated, "wait_1", fields{"resumeAt": 1}, 0, 1},
			{"it is completed", world.WaitCompleted, "wait_1", nil, 0, 1},
			{"it is completed again", world.WaitCompleted, "wait_1", nil, 409, 0},
		} {
			// What the event is about, and what all events of a run change.
			touched := []string{"world:wrun_1:ev:", "wcor:", "wtok:"}
			if c.correlation != "" {
				for _, kind := range []string{"st", "hk", "wt", "live"} {
					touched = append(touched, "world:wrun_1:"+kind+":"+c.correlation)
				}
				touched = append(touched, "whk:"+c.correlation)
			}
			all, others, log := records(t, one.store), records(t, one.store, append(touched, "world:wrun_1")...), one.log("wrun_1")
			for k, v := range records(t, one.store, touched...) {
				if k != "world:wrun_1" {
					others[k] = v
				}
			}
			_, err := two.create("wrun_1", c.t, c.correlation, c.f)
			if e, _ := errors.AsType[*world.Error](err); c.status == 0 && err != nil || c.status > 0 && (e == nil || e.Status != c.status) {
				t.Errorf("%s: %v, want %d", c.what, err, c.status)
			}
			is := records(t, one.store)
			if c.added == 0 && fmt.Sprint(is) != fmt.Sprint(all) {
				t.Errorf("%s: the store has changed", c.what)
			}
			for k, v := range others {
				if is[k] != v {
					t.Errorf("%s: record %s has changed", c.what, k)
				}
			}
			if n := len(strings.Fields(one.log("wrun_1"))) - len(strings.Fields(log)); n != c.added {
				t.Errorf("%s: %d events were added, want %d", c.what, n, c.added)
			}
		}
		sound(t, one.store)
	})
}

// The process that ends a run with 250 hooks dies at any of its calls to the store: all tokens are free, or none is. One commit
// frees them, and 250 hooks may have them then.
func TestEndOfManyHooksMayCrash(t *testing.T) {
	many := torture.Rounds(250, 250, 20)
	full := new(memory.Store)
	c := open(t, full)
	c.begin("wrun_1")
	for i := range many {
		c.must("wrun_1", world.HookCreated, fmt.Sprintf("hook_%03d", i), fields{"token": fmt.Sprint("t", i)})
	}
	crashes := 0
	for _, end := range []world.EventType{world.RunCompleted, world.RunFailed, world.RunCancelled} {
		for _, fault := range []storagetest.Fault{storagetest.CrashBefore, storagetest.CrashAfter} {
			for call := 1; ; call++ {
				if !endsHooks(t, full, end, call, fault, many) || t.Failed() {
					break
				}
				crashes++
			}
		}
	}
	if t.Logf("%d crashes", crashes); crashes < 24 {
		t.Errorf("%d crashes were met, want 24 or more", crashes)
	}
}

// endsHooks ends a run with open hooks, in a copy of a store, with a crash at a call. It reports whether there was such a call.
func endsHooks(t *testing.T, full storage.Storage, end world.EventType, call int, fault storagetest.Fault, many int) (reached bool) {
	inner := new(memory.Store)
	var b storage.Batch
	for k, v := range records(t, full) {
		b.Ops = append(b.Ops, storage.Put([]byte(k), []byte(v)))
	}
	if err := inner.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	var calls, freeing atomic.Int64
	counted := func(fault func() storagetest.Fault) storage.Storage {
		return storagetest.NewFaulty(inner, func(c storagetest.Call) storagetest.Fault {
			if slices.ContainsFunc(c.Batch.Ops, func(o storage.Op) bool { return strings.HasPrefix(string(o.Key), "wtok:") }) {
				freeing.Add(1)
			}
			return fault()
		})
	}
	look := open(t, inner)
	dies := open(t, counted(func() storagetest.Fault {
		if calls.Add(1) == int64(call) {
			return fault
		}
		return storagetest.None
	}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	dies.ctx = ctx
	do := func(c *client, retry bool) error {
		_, err := c.create("wrun_1", end, "", fields{"output": 1, "error": 1}, func(r *world.Request) { r.RequestID, r.Retry = "req_1", retry })
		return err
	}
	err := do(dies, false)
	reached = calls.Load() >= int64(call)
	if n := look.count("wtok:"); n != 0 && n != many || err == nil && n != 0 {
		t.Errorf("%s, call %d, fault %d: %d tokens are taken (%v)", end, call, fault, n, err)
	}
	before := look.count("wtok:")
	freeing.Store(0)
	if err := do(open(t, counted(func() storagetest.Fault { return storagetest.None })), true); err != nil {
		t.Errorf("%s, call %d, fault %d: again: %v", end, call, fault, err)
	}
	if n := look.count("wtok:"); n != 0 || (freeing.Load() == 1) != (before > 0) {
		t.Errorf("%s, call %d, fault %d: %d tokens are taken, after %d commits that free some of %d", end, call, fault, n, freeing.Load(), before)
	}
	sound(t, inner)
	look.begin("wrun_2")
	for i := range many {
		if a := look.must("wrun_2", world.HookCreated, fmt.Sprint("hook_n", i), fields{"token": fmt.Sprint("t", i)}); a.Event.EventType != world.HookCreated {
			t.Fatalf("%s, call %d, fault %d: token %d is not free", end, call, fault, i)
		}
	}
	return reached
}

// While five writers create 1,000 runs, no list has one twice, and each has once what was there.
func TestListsWhileOthersWrite(t *testing.T) {
	onAllStores(t, func(t *testing.T, one, two *client) {
		const writers, there = 5, 60
		each := torture.Rounds(200, 200, 20)
		for i := range there {
			one.must(fmt.Sprintf("wrun_there_%03d", i*7%there), world.RunCreated, "", order)
		}
		var writing sync.WaitGroup
		listed, done := make(chan bool), make(chan bool)
		for w := range writers {
			c := []*client{one, two}[w%2]
			writing.Go(func() {
				for i := range each {
					if i == each/2 {
						<-listed
					}
					run := fmt.Sprintf("wrun_%s_%d_%03d", []string{"a", "there", "z"}[i%3], w, i)
					if _, err := c.create(run, world.RunCreated, "", order); err != nil {
						t.Error(err)
					}
				}
			})
		}
		go func() { writing.Wait(); close(done) }()
		filters := []world.RunFilter{{}, {WorkflowName: "order"}, {Status: world.Pending}, {WorkflowName: "order", Status: world.Pending}}
		seen := func(n int) (count int) {
			got := map[string]int{}
			p := world.Page{Limit: 17, Order: []world.Order{world.Ascending, world.Descending}[n%2]}
			f := filters[n/2%4]
			for more := true; more; {
				l, err := two.Runs(two.ctx, f, p, world.ResolveNone)
				if err != nil {
					t.Error(err)
					return 0
				}
				for _, r := range l.Data {
					got[r.RunID]++
				}
				more, p.Cursor = l.HasMore, l.Tail
			}
			for id, n := range got {
				if n > 1 {
					t.Errorf("%+v, %s: %s is there %d times", f, p.Order, id, n)
				}
			}
			for i := range there {
				if id := fmt.Sprintf("wrun_there_%03d", i); got[id] != 1 {
					t.Errorf("%+v, %s: %s is there %d times, and was there before", f, p.Order, id, got[id])
				}
			}
			return len(got)
		}
		during := 0
		for n, listing := 0, true; listing; n++ {
			select {
			case <-done:
				listing = false
			default:
				if n == 1 {
					close(listed)
				}
				if got := seen(n); got > there && got < there+writers*each {
					during++
				}
			}
		}
		if during == 0 {
			t.Error("no list was read while others wrote")
		}
		for n := range 8 {
			same(t, "runs", seen(n), there+writers*each)
		}
	})
}

// Followers in three processes see each event of a run and each chunk of its stream once, in order, also where the
// store tells them of nothing.
func TestFollowersInThreeProcesses(t *testing.T) {
	on := func(name string, open func(t *testing.T) func() (storage.Storage, error)) {
		t.Run(name, func(t *testing.T) {
			one := open(t)
			var ss []storage.Storage
			for range 3 {
				s, err := one()
				ss = append(ss, opened(t, s, err))
			}
			followThree(t, ss)
		})
	}
	on("sqlite", func(t *testing.T) func() (storage.Storage, error) {
		path := filepath.Join(t.TempDir(), "store")
		return func() (storage.Storage, error) { return sqlite.Open(path, &sqlite.Options{Shared: true}) }
	})
	on("postgres", func(t *testing.T) func() (storage.Storage, error) {
		url := pgtest.URL(t)
		return func() (storage.Storage, error) { return postgres.Open(t.Context(), url, nil) }
	})
	on("postgres without LISTEN", func(t *testing.T) func() (storage.Storage, error) {
		url := pgtest.URL(t)
		return func() (storage.Storage, error) {
			return postgres.Open(t.Context(), url, &postgres.Options{NoListen: true})
		}
	})
}

func followThree(t *testing.T, ss []storage.Storage) {
	each := torture.Rounds(500, 100, 30)
	var cs []*client
	var streamed []*worldstream.Streams
	for _, s := range ss {
		cs, streamed = append(cs, open(t, s)), append(streamed, streams(t, s))
	}
	cs[0].begin("wrun_1")
	var following, writing sync.WaitGroup
	events, chunks := make([][]string, 3), make([][]string, 3)
	for i, c := range cs {
		following.Go(func() {
			ctx, cancel := context.WithTimeout(c.ctx, 2*time.Minute)
			defer cancel()
			var err error
			if events[i], err = eventsToTheEnd(ctx, c.World); err != nil {
				t.Errorf("follower %d has %d events: %v", i, len(events[i]), err)
			}
		})
		following.Go(func() { chunks[i] = wordsWithin(t, streamed[i], 0, 2*time.Minute) })
	}
	for p := range cs {
		writing.Go(func() {
			for i := range each {
				cs[p].must("wrun_1", world.StepCreated, fmt.Sprintf("step_%d_%d", p, i), fields{"stepName": "pay", "input": 1})
				write(t, streamed[p], fmt.Sprint(p, " ", i))
			}
		})
	}
	writing.Wait()
	closeWords(t, streamed[0])
	cs[1].must("wrun_1", world.RunCompleted, "", fields{"output": 1})
	following.Wait()
	for i := range cs {
		if len(events[i]) != 3*each+3 || !slices.IsSorted(events[i]) || len(slices.Compact(slices.Clone(events[i]))) != len(events[i]) || !slices.Equal(events[i], events[0]) {
			t.Errorf("follower %d got %d events, want %d, each once and in order", i, len(events[i]), 3*each+3)
		}
		next := map[string]int{}
		for _, c := range chunks[i] {
			who, n, _ := strings.Cut(c, " ")
			if fmt.Sprint(next[who]) != n {
				t.Errorf("reader %d got chunk %s of writer %s, want %d", i, n, who, next[who])
				break
			}
			next[who]++
		}
		if len(chunks[i]) != 3*each {
			t.Errorf("reader %d got %d chunks, want %d", i, len(chunks[i]), 3*each)
		}
	}
	sound(t, ss[0])
}
