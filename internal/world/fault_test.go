package world_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/internal/world"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/storage/storagetest"
)

// Whatever becomes of a call to the store, a process's death included, each call of the client that is sent again until
// it is answered is in the log once. The tokens of hooks are free after the end, and not before.
func TestEachCallToTheStoreMayFail(t *testing.T) {
	everyCall(t, 150, []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter, storagetest.CancelMiddle, storagetest.CrashBefore, storagetest.CrashAfter}, playWith)
}

// everyCall plays each fault in each call to the store: in memory, and in some calls to stores of files.
func everyCall(t *testing.T, least int, faults []storagetest.Fault, play func(t *testing.T, inner storage.Storage, call int, fault storagetest.Fault) (reached bool)) {
	path := func(t *testing.T) string { return filepath.Join(t.TempDir(), "store") }
	for name, open := range map[string]func(t *testing.T) (storage.Storage, error){
		"memory": func(*testing.T) (storage.Storage, error) { return new(memory.Store), nil },
		"sqlite": func(t *testing.T) (storage.Storage, error) { return sqlite.Open(path(t), nil) },
		"bolt":   func(t *testing.T) (storage.Storage, error) { return bolt.Open(path(t), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			stride := 1
			if name != "memory" {
				stride = torture.Rounds(1, 13, 37)
			}
			met := 0
			for _, fault := range faults {
				for call := 1 + met%stride; ; call += stride {
					reached := false
					synctest.Test(t, func(t *testing.T) {
						s, err := open(t)
						if err != nil {
							t.Fatal(err)
						}
						defer s.Close()
						reached = play(t, s, call, fault)
					})
					if !reached || t.Failed() {
						break
					}
					met++
				}
			}
			if t.Logf("%d faults", met); met < least/stride/2 || stride == 1 && met < least {
				t.Errorf("%d faults were met, want %d or more", met, least/stride/2)
			}
		})
	}
}

// A call that has no name cannot be sought in the log. If the outcome of its commit is unknown, it is there once nevertheless.
func TestACallWithoutANameIsInTheLogOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := new(memory.Store)
		look := open(t, inner)
		look.begin("wrun_1")
		look.must("wrun_1", world.HookCreated, "hook_1", fields{"token": "t"})
		met := 0
		c := open(t, storagetest.NewFaulty(inner, func(call storagetest.Call) storagetest.Fault {
			if call.Method == "Commit" {
				if met++; met == 1 {
					return storagetest.ErrorAfter
				}
			}
			return storagetest.None
		}))
		c.must("wrun_1", world.HookReceived, "hook_1", fields{"payload": 1})
		same(t, "the log", look.log("wrun_1"), "run_created run_started hook_created hook_received")
		if met == 0 {
			t.Error("no commit had an unknown outcome")
		}
	})
}

// playWith plays a run with a fault in a call to the store. It reports whether there was such a call.
func playWith(t *testing.T, inner storage.Storage, call int, fault storagetest.Fault) (reached bool) {
	look := open(t, inner)
	calls := 0
	var c *client
	start := func() {
		s := storagetest.NewFaulty(inner, func(storagetest.Call) storagetest.Fault {
			if calls++; calls == call {
				return fault
			}
			return storagetest.None
		})
		c = open(t, s)
		var end context.CancelFunc
		c.ctx, end = context.WithCancel(t.Context())
		go func(ctx context.Context) {
			defer end()
			select {
			case <-s.Crashed():
			case <-ctx.Done():
			}
		}(c.ctx)
	}
	start()
	look.begin("wrun_0")
	look.must("wrun_0", world.HookCreated, "hook_0", fields{"token": "other"})
	want := ""
	for i, e := range []struct {
		t           world.EventType
		correlation string
		f           fields
		log         string
	}{
		{world.RunCreated, "", order, "run_created"},
		{world.RunStarted, "", nil, " run_started"},
		{world.StepStarted, "step_1", fields{"stepName": "pay", "input": 1}, " step_created step_started"},
		{world.HookCreated, "hook_1", fields{"token": "t"}, " hook_created"},
		{world.HookCreated, "hook_2", fields{"token": "t2"}, " hook_created"},
		{world.HookCreated, "hook_3", fields{"token": "other"}, " hook_conflict"},
		{world.HookReceived, "hook_1", fields{"payload": 1}, " hook_received"},
		{world.HookDisposed, "hook_2", nil, " hook_disposed"},
		{world.AttrSet, "attr_1", fields{"changes": []map[string]any{{"key": "a", "value": "1"}}, "writer": map[string]string{"type": "workflow"}}, " attr_set"},
		{world.StepCompleted, "step_1", fields{"result": 1}, " step_completed"},
		{world.RunCompleted, "", fields{"output": 1}, " hook_disposed run_completed"},
	} {
		want += e.log
		answered, tries := false, 0
		for try := range 5 {
			tries++
			a, err := c.create("wrun_1", e.t, e.correlation, e.f, func(r *world.Request) {
				r.RequestID, r.Retry = fmt.Sprint("req_", i), try > 0
			})
			if refusal, ok := errors.AsType[*world.Error](err); ok {
				t.Fatalf("call %d, fault %d: %s is refused: %v", call, fault, e.t, refusal)
			}
			if err == nil {
				if e.t == world.StepStarted && !a.StepCreated {
					t.Errorf("call %d, fault %d: who has created the step is not told so", call, fault)
				}
				answered = true
				break
			}
			if c.ctx.Err() != nil || errors.Is(err, storagetest.ErrCrashed) {
				start()
			}
		}
		if tries == 1 && e.t != world.RunCompleted {
			continue // nothing to see
		}
		sound(t, inner)
		if got := look.log("wrun_1"); !answered || got != want {
			t.Fatalf("call %d, fault %d: %s was answered: %v; the log is %s, want %s", call, fault, e.t, answered, got, want)
		}
		if free := look.count("wtok:") == 1; free != (e.t == world.RunCompleted || i < 3) {
			t.Errorf("call %d, fault %d: after %s the tokens are free: %v", call, fault, e.t, free)
		}
	}
	return calls >= call
}
