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
	"time"

	"github.com/weft-go/weft/internal/world"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// held is a store whose first commit waits until it is let go. fault is that of the second one.
func held(inner storage.Storage, fault storagetest.Fault) (s storage.Storage, commits *atomic.Int64, let func()) {
	hold := make(chan struct{})
	commits = new(atomic.Int64)
	return storagetest.NewFaulty(inner, func(c storagetest.Call) storagetest.Fault {
		if c.Method != "Commit" {
			return storagetest.None
		}
		switch commits.Add(1) {
		case 1:
			<-hold
		case 2:
			return fault
		}
		return storagetest.None
	}), commits, func() { close(hold) }
}

// Calls about one run that come while another one commits share a commit. Each is decided on what those before it did: of
// two that create the same step one is refused, and so are all but one with the same seqInBand. An unknown outcome changes
// nothing.
func TestCallsAboutARunShareACommit(t *testing.T) {
	for what, fault := range map[string]storagetest.Fault{"": storagetest.None, "not applied": storagetest.ErrorBefore, "applied": storagetest.ErrorAfter} {
		for shape, max := range map[string]storage.Size{"": {}, "small batches": {Ops: 40}} {
			synctest.Test(t, func(t *testing.T) {
				inner := &small{Storage: new(memory.Store), max: max}
				open(t, inner).begin("wrun_1")
				s, commits, let := held(inner, fault)
				c := open(t, s)
				var calls sync.WaitGroup
				calls.Go(func() { c.must("wrun_1", world.StepCreated, "step_first", fields{"stepName": "pay", "input": 1}) })
				synctest.Wait()
				var made, refused, stale atomic.Int64
				call := func(e world.EventType, correlation string, f fields, change ...func(*world.Request)) {
					calls.Go(func() {
						a, err := c.create("wrun_1", e, correlation, f, change...)
						refusal, _ := errors.AsType[*world.Error](err)
						switch {
						case err == nil && a.Event.CorrelationID == correlation:
							made.Add(1)
						case refusal != nil && refusal.Status == 409:
							refused.Add(1)
						case refusal != nil && refusal.Status == 412:
							stale.Add(1)
						default:
							t.Errorf("%s of %s: %+v, %v", e, correlation, a, err)
						}
					})
				}
				for i := range 20 {
					call(world.StepStarted, fmt.Sprint("step_", i), fields{"stepName": "pay", "input": i})
					call(world.StepCreated, "step_same", fields{"stepName": "pay", "input": i})
				}
				synctest.Wait()
				seq := uint64(3 + 2*20 + 1) // as it is after those
				for i := range 16 {
					call(world.StepCreated, fmt.Sprint("step_seq_", i), fields{"stepName": "pay", "input": i}, func(r *world.Request) { r.SeqInBand = &seq })
				}
				synctest.Wait()
				let()
				calls.Wait()
				same(t, what+": made, refused, stale", fmt.Sprint(made.Load(), refused.Load(), stale.Load()), "22 19 15")
				log := c.log("wrun_1")
				same(t, what+": events", fmt.Sprint(strings.Count(log, "step_created"), strings.Count(log, "step_started")), "23 20")
				sound(t, inner)
				if most := map[string]int64{"": 4, "small batches": 40}[shape]; commits.Load() > most {
					t.Errorf("%s %s: %d commits, want at most %d", what, shape, commits.Load(), most)
				}
			})
		}
	}
}

// A store that panics ends the call in which it does. Those that share its commit fail, and may be made again.
func TestCallsBesideAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := new(memory.Store)
		open(t, inner).begin("wrun_1")
		s, _, let := held(&panics{Store: inner, at: 2}, storagetest.None)
		c := open(t, s)
		var calls sync.WaitGroup
		var panicked, failed atomic.Int64
		step := func(i int) {
			defer func() {
				if recover() != nil {
					panicked.Add(1)
				}
			}()
			if _, err := c.create("wrun_1", world.StepCreated, fmt.Sprint("step_", i), fields{"stepName": "pay", "input": 1}); err != nil {
				failed.Add(1)
			}
		}
		for i := range 10 {
			calls.Go(func() { step(i) })
			synctest.Wait()
		}
		let()
		calls.Wait()
		same(t, "panicked and failed", fmt.Sprint(panicked.Load(), failed.Load()), "1 8")
		for i := 1; i < 10; i++ {
			c.must("wrun_1", world.StepCreated, fmt.Sprint("step_", i), fields{"stepName": "pay", "input": 1})
		}
		sound(t, inner)
	})
}

// panics is a store one of whose commits panics.
type panics struct {
	*memory.Store
	at, commits int
}

func (p *panics) Commit(ctx context.Context, b storage.Batch) error {
	if p.commits++; p.commits == p.at {
		panic("the store has a fault")
	}
	return p.Store.Commit(ctx, b)
}

// A call whose client is gone before its turn is not made, and the others are.
func TestWhoIsGoneMakesNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := new(memory.Store)
		open(t, inner).begin("wrun_1")
		s, _, let := held(inner, storagetest.None)
		c := open(t, s)
		var calls sync.WaitGroup
		step := func(c *client, id string) {
			_, err := c.create("wrun_1", world.StepCreated, id, fields{"stepName": "pay", "input": 1})
			if (err == nil) != (c.ctx.Err() == nil) {
				t.Errorf("%s: %v", id, err)
			}
		}
		calls.Go(func() { step(c, "step_1") })
		synctest.Wait()
		gone := *c
		ctx, end := context.WithCancel(t.Context())
		gone.ctx = ctx
		calls.Go(func() { step(&gone, "step_gone") })
		calls.Go(func() { step(c, "step_2") })
		calls.Go(func() { step(c, "step_3") })
		synctest.Wait()
		end()
		synctest.Wait()
		let()
		calls.Wait()
		same(t, "the log", c.log("wrun_1"), "run_created run_started step_created step_created step_created")
	})
}

// While a store cannot be read, calls that share a commit fail, and none is made.
func TestCallsFailTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := new(memory.Store)
		open(t, inner).begin("wrun_1")
		hold := make(chan struct{})
		var broken atomic.Bool
		c := open(t, storagetest.NewFaulty(inner, func(call storagetest.Call) storagetest.Fault {
			switch {
			case broken.Load():
				return storagetest.ErrorBefore
			case call.Method == "Commit":
				<-hold
			}
			return storagetest.None
		}))
		var calls sync.WaitGroup
		var failed atomic.Int64
		for i := range 10 {
			calls.Go(func() {
				_, err := c.create("wrun_1", world.StepCreated, fmt.Sprint("step_", i), fields{"stepName": "pay", "input": 1})
				if _, ok := errors.AsType[*world.Error](err); ok {
					t.Errorf("refused: %v", err)
				}
				if err != nil {
					failed.Add(1)
				}
			})
			synctest.Wait()
		}
		broken.Store(true)
		close(hold)
		calls.Wait()
		log := open(t, inner).log("wrun_1")
		if n := strings.Count(log, "step_created"); failed.Load() != 9 || n != 1 {
			t.Errorf("%d calls failed, %d were made; want 9 and 1", failed.Load(), n)
		}
	})
}

// Two processes create events of one run at once: each is in the log once.
func TestTwoProcessesCreateEventsOfARun(t *testing.T) {
	onAllStores(t, func(t *testing.T, one, two *client) {
		one.begin("wrun_1")
		var calls sync.WaitGroup
		const each = 40
		for i := range each {
			for p, c := range []*client{one, two} {
				calls.Go(func() {
					c.must("wrun_1", world.StepStarted, fmt.Sprint("step_", p, "_", i), fields{"stepName": "pay", "input": i})
				})
			}
		}
		begun := time.Now()
		calls.Wait()
		t.Logf("%d events in %v", 4*each, time.Since(begun))
		log := one.log("wrun_1")
		same(t, "events", fmt.Sprint(strings.Count(log, "step_created"), strings.Count(log, "step_started")), fmt.Sprint(2*each, " ", 2*each))
		sound(t, two.store)
	})
}
