package world_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/internal/world"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// A cursor that is none is refused before anything is written.
func TestACursorThatIsNoneIsRefused(t *testing.T) {
	c := open(t, new(memory.Store))
	c.begin("wrun_1")
	for _, cursor := range []string{"x", "evnt_", "wrun_1/evnt_1", strings.Repeat("9", 1000), "evnt_\x00", "evnt_\xff"} {
		c.refused(400, "no id of an event", "wrun_1", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1}, func(r *world.Request) { r.SinceCursor = cursor })
	}
}

// The pages of a correlation go on behind runs that were removed, and behind runs with any bytes in their ids.
func TestPagesOfACorrelationGoOn(t *testing.T) {
	now := time.Now().UnixMilli()
	inner := new(memory.Store)
	commits := 0
	var sweeping atomic.Bool
	s := storagetest.NewFaulty(inner, func(call storagetest.Call) storagetest.Fault {
		if sweeping.Load() && call.Method == "Commit" {
			if commits++; commits > 2 { // the head of a run becomes a tombstone, and the rest stays
				return storagetest.ErrorBefore
			}
		}
		return storagetest.None
	})
	c := open(t, s, clock(&now), func(o *world.Options) { o.Retention = time.Hour })
	var want []string
	for _, run := range []string{"b/1", "b/2", "b", "b:%", "b\x00", "b\U0010ffff/", "c"} {
		c.begin(run)
		c.must(run, world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1})
		want = append(want, run)
	}
	for _, run := range []string{"a", "d"} {
		c.begin(run)
		c.must(run, world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1})
		c.must(run, world.RunCompleted, "", fields{"output": 1})
		now += 2 * 3600_000
		commits = 1
		sweeping.Store(true)
		if _, err := c.Sweep(c.ctx); err == nil {
			t.Fatal("the sweep did not fail")
		}
		sweeping.Store(false)
	}
	if n := open(t, inner).count("wcor:step_1:"); n != len(want)+2 {
		t.Fatalf("%d entries of the correlation are left, want %d", n, len(want)+2)
	}
	for _, order := range []world.Order{world.Ascending, world.Descending} {
		got := map[string]int{}
		p := world.Page{Limit: 1, Order: order}
		for pages := 0; ; pages++ {
			l, err := c.Correlated(c.ctx, "step_1", "", p, "")
			if err != nil || pages > 20 {
				t.Fatalf("%s: page %d behind %q: %v", order, pages, p.Cursor, err)
			}
			for _, e := range l.Data {
				got[e.RunID]++
			}
			if p.Cursor = l.Tail; !l.HasMore {
				break
			}
		}
		for _, run := range want {
			if got[run] != 1 {
				t.Errorf("%s: run %q is there %d times", order, run, got[run])
			}
		}
		same(t, "runs", len(got), len(want))
	}
}

// A call that is refused because of another one that shares its commit is told so only if that one was committed.
func TestRefusalsRestOnACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := new(memory.Store)
		open(t, inner).begin("wrun_1")
		hold := make(chan struct{})
		var commits atomic.Int64
		c := open(t, storagetest.NewFaulty(inner, func(call storagetest.Call) storagetest.Fault {
			switch {
			case call.Method != "Commit":
			case commits.Add(1) == 1:
				<-hold
			default:
				return storagetest.ErrorBefore
			}
			return storagetest.None
		}))
		var calls sync.WaitGroup
		create := func(step string, want bool) {
			calls.Go(func() {
				_, err := c.create("wrun_1", world.StepCreated, step, fields{"stepName": "pay", "input": 1})
				if refusal, ok := errors.AsType[*world.Error](err); ok || (err == nil) != want {
					t.Errorf("%s: %v, %v", step, err, refusal)
				}
			})
			synctest.Wait()
		}
		create("step_1", true)
		create("step_2", false)
		create("step_2", false)
		close(hold)
		calls.Wait()
		same(t, "the log", open(t, inner).log("wrun_1"), "run_created run_started step_created")
	})
}
