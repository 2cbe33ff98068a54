package world_test

import (
	"bytes"
	"testing"

	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/world"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// What a later release has stored in a record stays when the record is written again.
func TestWhatALaterReleaseWroteIsKept(t *testing.T) {
	s := new(memory.Store)
	c := open(t, s)
	c.begin("wrun_1")
	c.must("wrun_1", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1})
	c.must("wrun_1", world.HookCreated, "hook_1", fields{"token": "t"})
	c.must("wrun_1", world.HookCreated, "hook_2", fields{"token": "t2"})
	c.must("wrun_1", world.WaitCreated, "wait_1", fields{"resumeAt": 1})
	set := func(v string) fields {
		return fields{"changes": []map[string]any{{"key": "a", "value": v}}, "writer": map[string]string{"type": "step"}}
	}
	c.must("wrun_1", world.AttrSet, "", set("1"))
	before := map[string][]byte{}
	for e, err := range storage.All(c.ctx, s, storage.Prefix([]byte("world:"))) {
		if err != nil {
			t.Fatal(err)
		}
		later, err := golden.Later(e.Key, e.Value, 1, string(e.Key))
		if err == nil {
			err = s.Commit(c.ctx, storage.Batch{Ops: []storage.Op{storage.Put(e.Key, later)}})
		}
		if err != nil {
			t.Fatal(err)
		}
		before[string(e.Key)] = later
	}
	c.must("wrun_1", world.StepStarted, "step_1", nil)
	c.must("wrun_1", world.StepCompleted, "step_1", fields{"result": 1})
	c.must("wrun_1", world.HookDisposed, "hook_1", nil)
	c.must("wrun_1", world.WaitCompleted, "wait_1", nil)
	c.must("wrun_1", world.AttrSet, "", set("2"))
	c.must("wrun_1", world.RunCompleted, "", fields{"output": 1})
	written := 0
	for key, was := range before {
		is, err := s.Get(c.ctx, []byte(key))
		if err != nil {
			continue // of a hook that was open
		}
		lost, err := golden.Kept([]byte(key), was, is, 1)
		if err != nil || lost != "" {
			t.Errorf("%s: %s %v", key, lost, err)
		}
		if !bytes.Equal(was, is) {
			written++
		}
	}
	if written != 6 { // the run, the step, two hooks, the wait, the attributes
		t.Errorf("%d records were written again, want 6", written)
	}
}
