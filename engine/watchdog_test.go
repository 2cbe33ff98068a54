package engine_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A function that does not come back to the engine is told of after a second, and
// after half a minute it needs a person, who is told where it is; until it comes
// back after all. Others go on meanwhile. VER-5: that it came back is recorded and delivered before
// anything else is.
func TestStuckFunction(t *testing.T) {
	virtual(t, func(t *testing.T) {
		log := new(lines)
		blocked := make(chan struct{})
		wf := flow("blocks", func(run *engine.Run) (string, error) {
			<-blocked // not the engine's
			return "back", run.Sleep(time.Second)
		})
		other := flow("other", func(run *engine.Run) (string, error) { return "done", run.Sleep(time.Minute) })
		p := boot(t, new(memory.Store), wf, other, log.logger())
		h := start(t, wf, p, "b", "")
		o := start(t, other, p, "o", "")
		time.Sleep(10 * time.Second)
		if n := log.count("has not called the engine"); n != 1 {
			t.Errorf("told %d times", n)
		}
		if i := describe(t, p, "b"); len(i.Attention) > 0 {
			t.Errorf("after 10 s: %+v", i.Attention)
		}
		if got := result(t, o); got != "done" {
			t.Errorf("the other: %q", got)
		}
		i := describe(t, p, "b")
		if !heldFor(i, engine.ReasonStuck) || !strings.Contains(i.Attention[0].Detail, "watchdog_test.go") {
			t.Errorf("after a minute: %+v, want it stuck, and where", i)
		}
		close(blocked)
		if got := result(t, h); got != "back" {
			t.Errorf("got %q", got)
		}
		if i := describe(t, p, "b"); i.Status != checkpoint.StatusCompleted || len(i.Attention) > 0 {
			t.Errorf("in the end: %+v", i)
		}
	})
}

// Coming back takes nothing back but that the function was stuck, and a report that
// is late does not stay.
func TestStuckFunctionComesBack(t *testing.T) {
	for name, late := range map[string]bool{"": false, "as it is reported": true} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				act := puzzling(new(atomic.Bool))
				wf := flow("w", func(run *engine.Run) (string, error) {
					act.Go(run, "key")
					if err := run.Sleep(24 * time.Hour); err != nil {
						return "", err
					}
					time.Sleep(45 * time.Second)
					return yes.Receive(run)
				})
				s := &hooked{Storage: fresh(t)}
				reported := 0
				s.beforeCommit = func(b storage.Batch) {
					if touches(b, "wf:w") && !touches(b, "wf:w:") && !appendsTo(b, "w") {
						if reported++; late {
							time.Sleep(time.Minute)
						}
					}
				}
				p := boot(t, s, wf, rareLeases)
				start(t, wf, p, "w", "")
				time.Sleep(23 * time.Hour)
				if i := describe(t, p, "w"); !heldFor(i, engine.ReasonIndeterminate) {
					t.Fatalf("got %+v", i)
				}
				time.Sleep(2 * time.Hour)
				if i := describe(t, p, "w"); !heldFor(i, engine.ReasonIndeterminate) || heldFor(i, engine.ReasonStuck) || reported == 0 {
					t.Errorf("got %+v; reported %d times", i, reported)
				}
			})
		})
	}
}
