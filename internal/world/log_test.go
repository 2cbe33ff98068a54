package world_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-go/weft/internal/world"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// The life of a run: its log, and what follows from it, on all stores and from two processes.
func TestARun(t *testing.T) {
	onAllStores(t, func(t *testing.T, one, two *client) {
		one.must("wrun_1", world.RunCreated, "", fields{"workflowName": "order", "deploymentId": "blue", "input": []byte("in"), "executionContext": map[string]int{"a": 1}, "attributes": map[string]string{"team": "a"}})
		same(t, "status", two.run("wrun_1").Status, world.Pending)
		a := two.must("wrun_1", world.RunStarted, "", nil)
		same(t, "the log with run_started", len(a.Events), 2)
		two.must("wrun_1", world.StepCreated, "step_1", fields{"stepName": "pay", "input": []byte("a")})
		one.must("wrun_1", world.StepStarted, "step_1", nil)
		one.must("wrun_1", world.StepRetrying, "step_1", fields{"error": []byte("no")})
		two.must("wrun_1", world.StepStarted, "step_1", nil)
		two.must("wrun_1", world.StepCompleted, "step_1", fields{"result": []byte("b")})
		b := one.must("wrun_1", world.StepStarted, "step_2", fields{"stepName": "send", "input": []byte("c")})
		same(t, "stepCreated", b.StepCreated, true)
		same(t, "an event", string(b.Event.EventType)+" "+b.Event.RunID, "step_started wrun_1")
		one.must("wrun_1", world.StepFailed, "step_2", fields{"error": []byte("e")})
		one.must("wrun_1", world.WaitCreated, "wait_1", fields{"resumeAt": "2026-01-02T12:00:00.123Z"})
		w := two.must("wrun_1", world.WaitCompleted, "wait_1", nil).Wait
		same(t, "the wait", fmt.Sprint(w.Status, " ", w.ResumeAt.UTC().Format(time.RFC3339Nano)), "completed 2026-01-02T12:00:00.123Z")
		one.must("wrun_1", world.HookCreated, "hook_1", fields{"token": "invoice/7", "metadata": []byte("m"), "isWebhook": true})
		two.must("wrun_1", world.HookReceived, "hook_1", fields{"payload": []byte("p")})
		one.must("wrun_1", world.AttrSet, "attr_1", fields{"changes": []map[string]any{{"key": "a", "value": "1"}, {"key": "team", "value": nil}}, "writer": map[string]string{"type": "workflow"}})
		one.must("wrun_1", world.RunCompleted, "", fields{"output": []byte("out")})
		same(t, "the log", two.log("wrun_1"), "run_created run_started step_created step_started step_retrying step_started step_completed step_created step_started step_failed wait_created wait_completed hook_created hook_received attr_set hook_disposed run_completed")
		r := two.run("wrun_1")
		same(t, "the run", fmt.Sprintf("%s %s %s %x %x %x %v", r.Status, r.WorkflowName, r.DeploymentID, []byte(r.Input), []byte(r.Output), []byte(r.ExecutionContext), r.Attributes),
			"completed order blue 42696e 436f7574 a1616101 map[a:1]")
		s1, s2 := two.step("wrun_1", "step_1"), two.step("wrun_1", "step_2")
		same(t, "step 1", fmt.Sprintf("%s %s %d %x %x %x", s1.StepName, s1.Status, s1.Attempt, []byte(s1.Input), []byte(s1.Output), []byte(s1.Error)), "pay completed 2 4161 4162 426e6f")
		same(t, "step 2", fmt.Sprintf("%s %s %d %x %x", s2.StepName, s2.Status, s2.Attempt, []byte(s2.Input), []byte(s2.Error)), "send failed 1 4163 4165")
		if n := one.count("wtok:") + one.count("world:wrun_1:live:"); n != 0 {
			t.Errorf("%d records of open hooks are left", n)
		}
	})
}

// WLD-15, WLD-19, WLD-36, WLD-55 to WLD-57: what the log refuses.
func TestTheLogRefuses(t *testing.T) {
	c := open(t, new(memory.Store))
	c.refused(400, "runId is required", "", world.RunStarted, "", nil)
	c.refused(404, "Run not found: wrun_0", "wrun_0", world.RunStarted, "", nil)
	c.refused(404, "Run not found: wrun_0", "wrun_0", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1})
	c.begin("wrun_1")
	for _, e := range []world.EventType{world.StepCreated, world.StepStarted, world.StepCompleted, world.StepFailed, world.StepRetrying, world.HookCreated, world.HookReceived, world.HookDisposed, world.WaitCreated, world.WaitCompleted} {
		c.refused(400, "correlationId", "wrun_1", e, "", nil)
	}
	c.refused(400, "hook_conflict", "wrun_1", world.HookConflict, "hook_1", nil)
	c.refused(400, "step_exploded", "wrun_1", "step_exploded", "step_1", nil)
	c.refused(400, "eventData", "wrun_1", world.StepCreated, "step_1", nil, func(r *world.Request) { r.Data = world.Value{0x01} })
	c.refused(400, "eventData", "wrun_1", world.StepCreated, "step_1", nil, func(r *world.Request) { r.Data = world.Value{0xa1, 0x61} })
	c.refused(400, "at most", "wrun_1", world.StepCreated, strings.Repeat("x", 300), nil)
	c.refused(400, "UTF-8", "wrun_\xff", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1})
	c.refused(400, "UTF-8", "wrun_1", world.StepCreated, "step_\xff", fields{"stepName": "pay", "input": 1})
	c.refused(400, "UTF-8", "wrun_1", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1}, func(r *world.Request) { r.RequestID = "caf\xe9" }) // Node sends such a header
	c.refused(400, "UTF-8", "wrun_1", world.HookReceived, "hook_1", fields{"payload": 1}, func(r *world.Request) { r.ResumeID = "\xff" })
	c.refused(400, "resolveData", "wrun_1", world.StepStarted, "step_1", nil, func(r *world.Request) { r.Resolve = "some" })
	c.refused(400, "stepName", "wrun_1", world.StepCreated, "step_1", fields{"input": 1})
	c.refused(400, "deploymentId", "wrun_2", world.RunCreated, "", fields{"workflowName": "order"})
	c.refused(400, "deploymentId", "wrun_2", world.RunCreated, "", fields{"workflowName": "order", "deploymentId": strings.Repeat("d", 101)}) // no queue has that name

	c.refused(404, "Step not found: step_1", "wrun_1", world.StepStarted, "step_1", nil)
	c.refused(404, "Step not found: step_1", "wrun_1", world.StepCompleted, "step_1", fields{"result": 1})
	c.refused(404, "Hook not found: hook_1", "wrun_1", world.HookReceived, "hook_1", fields{"payload": 1})
	c.refused(404, "Hook not found: hook_1", "wrun_1", world.HookDisposed, "hook_1", nil)
	c.refused(404, "Wait not found: wait_1", "wrun_1", world.WaitCompleted, "wait_1", nil)
	c.must("wrun_1", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1})
	c.refused(409, "exists", "wrun_1", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1})
	c.refused(409, "exists", "wrun_1", world.StepStarted, "step_1", fields{"stepName": "pay", "input": 1})
	c.must("wrun_1", world.StepStarted, "step_1", nil)
	c.must("wrun_1", world.StepCompleted, "step_1", fields{"result": 1})
	c.refused(409, "Invalid transition from completed to failed", "wrun_1", world.StepFailed, "step_1", fields{"error": 1})
	c.refused(409, "Invalid transition from completed to running", "wrun_1", world.StepStarted, "step_1", nil)
	c.refused(409, "Invalid transition from completed to pending", "wrun_1", world.StepRetrying, "step_1", nil)
	c.must("wrun_1", world.WaitCreated, "wait_1", fields{"resumeAt": time.Now().UnixMilli()})
	c.refused(409, "exists", "wrun_1", world.WaitCreated, "wait_1", fields{"resumeAt": 1})
	c.must("wrun_1", world.WaitCompleted, "wait_1", nil)
	c.refused(409, "completed", "wrun_1", world.WaitCompleted, "wait_1", nil)
	c.must("wrun_1", world.HookCreated, "hook_1", fields{"token": "t"})
	c.must("wrun_1", world.HookDisposed, "hook_1", nil)
	c.refused(404, "Hook not found", "wrun_1", world.HookDisposed, "hook_1", nil)
	c.refused(404, "Hook not found", "wrun_1", world.HookReceived, "hook_1", fields{"payload": 1})
	c.refused(409, "disposed", "wrun_1", world.HookCreated, "hook_1", fields{"token": "t"})

	// The second start is answered, and the run has one event of it.
	c.must("wrun_1", world.RunStarted, "", nil)
	if n := strings.Count(c.log("wrun_1"), "run_started"); n != 1 {
		t.Errorf("started twice, the run has %d run_started", n)
	}
	for name, end := range map[string]world.EventType{"completed": world.RunCompleted, "failed": world.RunFailed, "cancelled": world.RunCancelled} {
		run := "wrun_" + name
		c.begin(run)
		c.must(run, world.StepCreated, "step_p", fields{"stepName": "pay", "input": 1})
		c.must(run, world.StepStarted, "step_r", fields{"stepName": "pay", "input": 1})
		c.must(run, end, "", fields{"output": 1, "error": 2})
		c.refused(409, "terminal state", run, world.RunStarted, "", nil)
		c.refused(409, "terminal run", run, world.StepCreated, "step_2", fields{"stepName": "pay", "input": 1})
		c.refused(409, "terminal run", run, world.StepStarted, "step_2", fields{"stepName": "pay", "input": 1})
		c.refused(409, "terminal run", run, world.StepStarted, "step_p", nil)
		c.refused(409, "terminal run", run, world.StepCompleted, "step_p", fields{"result": 1})
		c.refused(409, "terminal run", run, world.HookCreated, "hook_2", fields{"token": "t2"})
		c.refused(409, "terminal run", run, world.WaitCreated, "wait_2", fields{"resumeAt": 1})
		c.refused(409, "terminal run", run, world.AttrSet, "", fields{"changes": []map[string]any{{"key": "a", "value": "1"}}, "writer": map[string]string{"type": "workflow"}})
		for other, e := range map[string]world.EventType{"completed": world.RunCompleted, "failed": world.RunFailed, "cancelled": world.RunCancelled} {
			if other != "cancelled" || name != "cancelled" {
				if got := c.refused(409, "Invalid transition from "+name+" to "+other, run, e, "", fields{"output": 1, "error": 2}); got != nil && got.Code != world.CodeRunTerminal {
					t.Errorf("got the code %s", got.Code)
				}
			}
		}
		c.must(run, world.StepCompleted, "step_r", fields{"result": 1}) // it was running
	}
	// The second cancellation is answered with the first one's event.
	first, err := c.Events(c.ctx, "wrun_cancelled", world.Page{Limit: 2}, world.ResolveAll)
	again := c.must("wrun_cancelled", world.RunCancelled, "", nil)
	if err != nil || again.Event.EventID != first.Data[1].EventID {
		t.Errorf("cancelled again: got %s, want %s (%v)", again.Event.EventID, first.Data[1].EventID, err)
	}
}

// WLD-54: a run that is created again with the same workflow, deployment and input is answered. Anything else is refused.
func TestARunIsCreatedOnce(t *testing.T) {
	c := open(t, new(memory.Store))
	first := c.must("wrun_1", world.RunCreated, "", order)
	again := c.must("wrun_1", world.RunCreated, "", order)
	same(t, "again", again.Event.EventID, first.Event.EventID)
	for _, other := range []fields{
		{"workflowName": "other", "deploymentId": "blue", "input": []byte("in")},
		{"workflowName": "order", "deploymentId": "green", "input": []byte("in")},
		{"workflowName": "order", "deploymentId": "blue", "input": []byte("other")},
	} {
		c.refused(409, "exists", "wrun_1", world.RunCreated, "", other)
	}
	same(t, "the log", c.log("wrun_1"), "run_created")
	minted := c.must("", world.RunCreated, "", order).Run
	if !regexp.MustCompile(`^wrun_[0-9A-HJKMNP-TV-Z]{26}$`).MatchString(minted.RunID) || c.log(minted.RunID) != "run_created" {
		t.Errorf("minted %q", minted.RunID)
	}
	late := c.must("wrun_2", world.RunStarted, "", order) // its run_created was lost
	same(t, "the log", c.log("wrun_2"), "run_created run_started")
	same(t, "the run", fmt.Sprintf("%s %x", late.Run.Status, []byte(late.Run.Input)), "running 42696e")
	c.must("wrun_3", world.RunCreated, "", order)
	c.must("wrun_3", world.RunCompleted, "", fields{"output": 1})
	same(t, "the log of a run that ended unstarted", c.log("wrun_3"), "run_created run_started run_completed")
	c.must("wrun_4", world.RunCreated, "", order)
	c.must("wrun_4", world.RunCancelled, "", nil)
	same(t, "the log of a run that was cancelled unstarted", c.log("wrun_4"), "run_created run_cancelled")
}

// WLD-51 to WLD-53: the times of runs and steps.
func TestTimes(t *testing.T) {
	now := int64(1767355200000)
	c := open(t, new(memory.Store), clock(&now))
	c.must("wrun_1", world.RunCreated, "", order)
	tick := func() time.Time { now += 1000; return time.UnixMilli(now).UTC() }
	started := tick()
	c.must("wrun_1", world.RunStarted, "", nil)
	created := tick()
	c.must("wrun_1", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1})
	same(t, "a run changes with its steps", c.run("wrun_1").UpdatedAt, created)
	first := tick()
	c.must("wrun_1", world.StepStarted, "step_1", nil)
	tick()
	retried := c.must("wrun_1", world.StepRetrying, "step_1", fields{"error": 1, "retryAfter": time.UnixMilli(now + 5500).UTC()}).Step
	same(t, "a step that is to be retried", fmt.Sprint(retried.Status, retried.RetryAfter.UnixMilli()-now), "pending5500")
	tick()
	early := c.refused(425, "retried in 4.5s", "wrun_1", world.StepStarted, "step_1", nil)
	if early != nil && early.RetryAfter != 4500*time.Millisecond {
		t.Errorf("retry after %v, want 4.5 s", early.RetryAfter)
	}
	now += 4500
	again := c.must("wrun_1", world.StepStarted, "step_1", nil).Step
	same(t, "a step that is started again", fmt.Sprint(again.StartedAt.Equal(first), again.UpdatedAt.UnixMilli() == now, again.Attempt, again.RetryAfter == nil, again.CompletedAt == nil), "true true 2 true true")
	ended := tick()
	s := c.must("wrun_1", world.StepCompleted, "step_1", fields{"result": 1}).Step
	same(t, "a step that has ended", fmt.Sprint(s.StartedAt.Equal(first), s.CompletedAt.Equal(ended), s.UpdatedAt.Equal(ended)), "true true true")
	c.must("wrun_1", world.RunStarted, "", nil)
	same(t, "the run was started once", c.run("wrun_1").StartedAt.UTC(), started)
	for i, end := range []world.EventType{world.RunCompleted, world.RunFailed, world.RunCancelled} {
		run := fmt.Sprint("wrun_e", i)
		c.begin(run)
		at := tick()
		r := c.must(run, end, "", fields{"output": 1, "error": 1}).Run
		same(t, string(end), fmt.Sprint(r.CompletedAt.Equal(at), r.UpdatedAt.Equal(at), r.StartedAt.Before(at)), "true true true")
	}
	now -= 3600_000 // the clock is set back
	c.begin("wrun_b")
	now -= 3600_000
	c.must("wrun_b", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1})
	c.log("wrun_b") // checks that ids and times rise
}

// WLD-16, WLD-19: at most one open hook has a token. A hook that is created for a token that another one has is an event
// of its run, or an error.
func TestATokenIsTaken(t *testing.T) {
	onAllStores(t, func(t *testing.T, one, two *client) {
		for _, run := range []string{"wrun_1", "wrun_2"} {
			one.begin(run)
		}
		first := one.must("wrun_1", world.HookCreated, "hook_1", fields{"token": "t", "metadata": 1})
		again := two.must("wrun_1", world.HookCreated, "hook_1", fields{"token": "t", "metadata": 1})
		same(t, "its own again", again.Event.EventID, first.Event.EventID)
		a := two.must("wrun_2", world.HookCreated, "hook_2", fields{"token": "t"})
		var data map[string]string
		if err := cbor.Unmarshal(a.Event.EventData, &data); err != nil || a.Event.EventType != world.HookConflict || data["conflictingRunId"] != "wrun_1" || data["token"] != "t" || a.Hook != nil {
			t.Errorf("got %s with %v, %v", a.Event.EventType, data, err)
		}
		e := two.refused(409, "Hook with token t already exists", "wrun_2", world.HookCreated, "hook_3", fields{"token": "t"}, func(r *world.Request) { r.OnConflict = "error" })
		same(t, "the code", e.Code, world.CodeTokenTaken)
		if _, err := two.Hook(two.ctx, "hook_2", ""); err == nil {
			t.Error("the hook that was refused is there")
		}
		h, err := two.HookByToken(two.ctx, "t", "")
		if err != nil || h.RunID != "wrun_1" || h.HookID != "hook_1" || h.Token != "t" || string(h.Metadata) != "\x01" {
			t.Errorf("by token: %+v, %v", h, err)
		}
		one.must("wrun_1", world.HookDisposed, "hook_1", nil)
		_, err = two.HookByToken(two.ctx, "t", "")
		refused(t, err, 404, "t")
		_, err = two.Hook(two.ctx, "hook_1", "")
		refused(t, err, 404, "Hook not found: hook_1")
		two.must("wrun_2", world.HookCreated, "hook_4", fields{"token": "t"})

		// Eight runs at once: one gets a token.
		var wins, conflicts atomic.Int64
		var all sync.WaitGroup
		for i := range 8 {
			c := []*client{one, two}[i%2]
			run := fmt.Sprint("wrun_r", i)
			c.begin(run)
			all.Go(func() {
				a, err := c.create(run, world.HookCreated, "hook_"+run, fields{"token": "race"})
				switch {
				case err != nil:
					t.Error(err)
				case a.Event.EventType == world.HookConflict:
					conflicts.Add(1)
				default:
					wins.Add(1)
				}
			})
		}
		all.Wait()
		if wins.Load() != 1 || conflicts.Load() != 7 {
			t.Errorf("%d have the token, %d conflicts", wins.Load(), conflicts.Load())
		}
	})
}

// An id is that of one open hook. Another run that creates a hook with it is refused, until the first is disposed or its run
// has ended. Then it is the other run's, and a repetition of the disposal does not take it away.
func TestAnIDIsOfOneOpenHook(t *testing.T) {
	onAllStores(t, func(t *testing.T, one, two *client) {
		for _, run := range []string{"wrun_1", "wrun_2", "wrun_3"} {
			one.begin(run)
		}
		holder := func(want string) {
			t.Helper()
			h, err := two.Hook(two.ctx, "hook_1", "")
			if err != nil || h.RunID != want || h.Token != "t "+want {
				t.Errorf("the hook is %+v, %v, want that of %s", h, err, want)
			}
		}
		create := func(run string) fields { return fields{"token": "t " + run} }
		one.must("wrun_1", world.HookCreated, "hook_1", create("wrun_1"))
		for _, c := range []*client{one, two} {
			e := c.refused(409, "Hook hook_1 exists already, in run wrun_1", "wrun_2", world.HookCreated, "hook_1", create("wrun_2"))
			same(t, "the code", e.Code, world.CodeConflict)
		}
		_, err := two.HookByToken(two.ctx, "t wrun_2", "")
		refused(t, err, 404, "t wrun_2")
		holder("wrun_1")
		one.must("wrun_1", world.HookDisposed, "hook_1", nil)
		two.must("wrun_2", world.HookCreated, "hook_1", create("wrun_2"))
		one.refused(404, "hook_1", "wrun_1", world.HookDisposed, "hook_1", nil)
		one.must("wrun_1", world.RunCompleted, "", fields{"output": 1})
		holder("wrun_2")
		one.must("wrun_2", world.RunFailed, "", fields{"error": "no"})
		two.must("wrun_3", world.HookCreated, "hook_1", create("wrun_3"))
		holder("wrun_3")

		// Eight runs at once: one gets an id.
		var wins, refusals atomic.Int64
		var all sync.WaitGroup
		for i := range 8 {
			c := []*client{one, two}[i%2]
			run := fmt.Sprint("wrun_r", i)
			c.begin(run)
			all.Go(func() {
				_, err := c.create(run, world.HookCreated, "hook_race", create(run))
				if e, ok := errors.AsType[*world.Error](err); ok && e.Status == 409 {
					refusals.Add(1)
				} else if err == nil {
					wins.Add(1)
				}
			})
		}
		all.Wait()
		if wins.Load() != 1 || refusals.Load() != 7 {
			t.Errorf("%d have the id, %d were refused", wins.Load(), refusals.Load())
		}
		for _, problem := range world.Check(t.Context(), one.store) {
			t.Error(problem)
		}
	})
}

// A list without a run has the open hooks of all runs, and no others.
func TestHooksOfAllRuns(t *testing.T) {
	onAllStores(t, func(t *testing.T, one, two *client) {
		for i := range 6 {
			run := fmt.Sprint("wrun_", i%3)
			if i < 3 {
				one.begin(run)
			}
			one.must(run, world.HookCreated, fmt.Sprint("hook_", i), fields{"token": fmt.Sprint("t", i), "metadata": i})
		}
		one.must("wrun_0", world.RunCompleted, "", fields{"output": 1}) // hooks 0 and 3
		one.must("wrun_1", world.HookDisposed, "hook_1", nil)
		l, err := two.Hooks(two.ctx, "", world.Page{Order: world.Ascending}, "")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, h := range l.Data {
			got = append(got, h.HookID+" of "+h.RunID+" "+h.Token+" "+fmt.Sprint(h.Metadata))
		}
		same(t, "the open hooks", got, []string{"hook_2 of wrun_2 t2 [2]", "hook_4 of wrun_1 t4 [4]", "hook_5 of wrun_2 t5 [5]"})
	})
}

// WLD-58 to WLD-61: each end of a run disposes its hooks, each with one event, and frees their tokens, in one commit.
func TestHooksEndWithTheirRun(t *testing.T) {
	for _, end := range []world.EventType{world.RunCompleted, world.RunFailed, world.RunCancelled} {
		c := open(t, new(memory.Store))
		c.begin("wrun_1")
		c.begin("wrun_2")
		c.must("wrun_2", world.HookCreated, "hook_o", fields{"token": "other"})
		for i := range 250 {
			c.must("wrun_1", world.HookCreated, fmt.Sprintf("hook_%03d", i), fields{"token": fmt.Sprint("t", i)})
		}
		c.must("wrun_1", world.HookDisposed, "hook_007", nil)
		c.must("wrun_1", end, "", fields{"output": 1, "error": 1})
		l, err := c.Events(c.ctx, "wrun_1", world.Page{Limit: 251}, "")
		if err != nil || l.Data[0].EventType != end {
			t.Fatalf("the last event is %+v, %v", l.Data[0], err)
		}
		disposed := map[string]bool{}
		for _, e := range l.Data[1:250] {
			if e.EventType != world.HookDisposed || e.SpecVersion != 5 {
				t.Fatalf("got %+v before the end", e)
			}
			disposed[e.CorrelationID] = true
		}
		if len(disposed) != 249 || disposed["hook_007"] || l.Data[250].EventType == world.HookDisposed && l.Data[250].CorrelationID != "hook_007" {
			t.Errorf("%s disposed %d hooks", end, len(disposed))
		}
		if n := c.count("wtok:"); n != 1 {
			t.Errorf("%s: %d tokens are taken, want that of the other run", end, n)
		}
		if n := c.count("whk:"); n != 1 {
			t.Errorf("%s: %d ids of hooks are taken, want that of the other run", end, n)
		}
		list, err := c.Hooks(c.ctx, "wrun_1", world.Page{}, "")
		if err != nil || len(list.Data) != 0 {
			t.Errorf("%s: open hooks %v, %v", end, list.Data, err)
		}
		c.begin("wrun_3")
		for i := range 250 {
			if a := c.must("wrun_3", world.HookCreated, fmt.Sprint("hook_n", i), fields{"token": fmt.Sprint("t", i)}); a.Event.EventType != world.HookCreated {
				t.Fatalf("%s: token %d is not free", end, i)
			}
		}
	}
	c := open(t, new(memory.Store)) // of a run with an older spec
	c.spec = 1
	c.must("wrun_1", world.RunCreated, "", order)
	c.spec = 2
	c.must("wrun_2", world.RunCreated, "", order)
	c.must("wrun_2", world.HookCreated, "hook_1", fields{"token": "t"})
	c.must("wrun_2", world.RunCancelled, "", nil)
	l, _ := c.Events(c.ctx, "wrun_2", world.Page{}, "")
	same(t, "the spec of hook_disposed", l.Data[1].SpecVersion, 2)
}

// Of 16 writers that have seen the same log, one writes. An event from outside refuses who has not seen it.
func TestWhoHasNotSeenTheLogIsRefused(t *testing.T) {
	onAllStores(t, func(t *testing.T, one, two *client) {
		one.begin("wrun_1")
		seen := uint64(2)
		var written, stale atomic.Int64
		var all sync.WaitGroup
		for i := range 16 {
			c := []*client{one, two}[i%2]
			all.Go(func() {
				_, err := c.create("wrun_1", world.StepCreated, fmt.Sprint("step_", i), fields{"stepName": "pay", "input": 1}, func(r *world.Request) { r.SeqInBand = &seen })
				e, _ := errors.AsType[*world.Error](err)
				switch {
				case err == nil:
					written.Add(1)
				case e != nil && e.Status == 412:
					stale.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if written.Load() != 1 || stale.Load() != 15 {
			t.Errorf("%d have written, %d were refused", written.Load(), stale.Load())
		}
		same(t, "the log", two.log("wrun_1"), "run_created run_started step_created")
	})
	now := int64(1767355200000)
	c := open(t, new(memory.Store), clock(&now))
	c.begin("wrun_1")
	c.must("wrun_1", world.HookCreated, "hook_1", fields{"token": "t"})
	now += 1000
	seen := uint64(3)
	c.must("wrun_1", world.HookReceived, "hook_1", fields{"payload": 1})
	c.refused(412, "from outside", "wrun_1", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1}, func(r *world.Request) { r.StateUpdatedAt = now - 1 })
	c.must("wrun_1", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1}, func(r *world.Request) { r.StateUpdatedAt, r.SeqInBand = now, &seen })
	one := uint64(2)
	a := c.must("wrun_1", world.StepCreated, "step_2", fields{"stepName": "pay", "input": 1}, func(r *world.Request) { r.EventCount = &one })
	same(t, "what was skipped", fmt.Sprint(len(a.Events), a.Events[0].EventType, *a.HasMore), "4hook_createdfalse")
	b := c.must("wrun_1", world.StepCreated, "step_3", fields{"stepName": "pay", "input": 1}, func(r *world.Request) { r.SinceCursor = a.Events[2].EventID })
	same(t, "the page behind a cursor", fmt.Sprint(len(b.Events), b.Events[0].CorrelationID, *b.Cursor == b.Event.EventID), "2step_2true")
	five := uint64(8)
	if d := c.must("wrun_1", world.StepCreated, "step_4", fields{"stepName": "pay", "input": 1}, func(r *world.Request) { r.EventCount = &five }); d.Events != nil {
		t.Errorf("who has seen all gets %v", d.Events)
	}
}

// Whoever has seen only what came before an event from outside is told so, also if the server of that event has a clock behind.
func TestAnEventFromOutsideIsSeenByItsTime(t *testing.T) {
	now := int64(1767355200000)
	c := open(t, new(memory.Store), clock(&now))
	c.begin("wrun_1")
	c.must("wrun_1", world.HookCreated, "hook_1", fields{"token": "t"})
	seen := now
	now -= 50
	c.must("wrun_1", world.HookReceived, "hook_1", fields{"payload": 1})
	next := func(r *world.Request) { r.StateUpdatedAt = seen }
	c.refused(412, "from outside", "wrun_1", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1}, next)
	seen++
	c.must("wrun_1", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1}, next)
}

// A resume with an id is received once.
func TestAResumeIsReceivedOnce(t *testing.T) {
	c := open(t, new(memory.Store))
	c.begin("wrun_1")
	c.must("wrun_1", world.HookCreated, "hook_1", fields{"token": "t"})
	c.must("wrun_1", world.HookCreated, "hook_2", fields{"token": "t2"})
	id := func(r *world.Request) { r.ResumeID = "res_1" }
	first := c.must("wrun_1", world.HookReceived, "hook_1", fields{"payload": 1}, id)
	c.must("wrun_1", world.HookDisposed, "hook_1", nil)
	again := c.must("wrun_1", world.HookReceived, "hook_1", fields{"payload": 1}, id)
	same(t, "again", again.Event.EventID+again.Event.ResumeID, first.Event.EventID+"res_1")
	c.refused(409, "res_1", "wrun_1", world.HookReceived, "hook_1", fields{"payload": 2}, id)
	c.refused(409, "res_1", "wrun_1", world.HookReceived, "hook_2", fields{"payload": 1}, id)
}

// What attributes may be.
func TestAttributes(t *testing.T) {
	c := open(t, new(memory.Store))
	c.begin("wrun_1")
	set := func(by, correlation string, change func(*world.Request), pairs ...any) error {
		var changes []map[string]any
		for i := 0; i < len(pairs); i += 2 {
			changes = append(changes, map[string]any{"key": pairs[i], "value": pairs[i+1]})
		}
		_, err := c.create("wrun_1", world.AttrSet, correlation, fields{"changes": changes, "writer": map[string]string{"type": by}}, func(r *world.Request) {
			if change != nil {
				change(r)
			}
		})
		return err
	}
	if err := set("workflow", "attr_1", nil, "a", "1", "b", "2"); err != nil {
		t.Fatal(err)
	}
	refused(t, set("workflow", "attr_1", nil, "a", "2"), 409, "attr_1")
	for range 2 {
		if err := set("step", "step_1", nil, "a", "3", "b", nil); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "attributes", c.run("wrun_1").Attributes, map[string]string{"a": "3"})
	refused(t, set("workflow", "", nil, "$a", "1"), 400, "reserved")
	refused(t, set("workflow", "", nil, "a", strings.Repeat("x", 257)), 400, "256")
	refused(t, set("workflow", "", nil, strings.Repeat("x", 257), "1"), 400, "256")
	refused(t, set("workflow", "", nil, "a", "1", "a", "2"), 400, "twice")
	refused(t, set("workflow", "", nil), 400, "changes")
	refused(t, set("other", "", nil, "a", "1"), 400, "writer")
	var many []any
	for i := range 64 {
		many = append(many, fmt.Sprint("k", i), "v")
	}
	refused(t, set("workflow", "", nil, many...), 400, "64")
	c.must("wrun_2", world.RunCreated, "", fields{"workflowName": "order", "deploymentId": "blue", "input": 1, "attributes": map[string]string{"$root": "wrun_1"}, "allowReservedAttributes": true})
	same(t, "reserved attributes", c.run("wrun_2").Attributes, map[string]string{"$root": "wrun_1"})
	c.refused(400, "reserved", "wrun_3", world.RunCreated, "", fields{"workflowName": "order", "deploymentId": "blue", "input": 1, "attributes": map[string]string{"$root": "wrun_1"}})
}

// A run has at most so many events and open hooks. It can end all the same.
func TestLimits(t *testing.T) {
	c := open(t, new(memory.Store), func(o *world.Options) { o.MaxEvents, o.MaxHooks = 6, 2 })
	c.begin("wrun_1")
	c.must("wrun_1", world.HookCreated, "hook_1", fields{"token": "1"})
	c.must("wrun_1", world.HookCreated, "hook_2", fields{"token": "2"})
	e := c.refused(409, "open hooks", "wrun_1", world.HookCreated, "hook_3", fields{"token": "3"})
	same(t, "the code", e.Code, world.CodeLimit)
	c.must("wrun_1", world.HookDisposed, "hook_1", nil)
	c.must("wrun_1", world.HookCreated, "hook_3", fields{"token": "3"})
	e = c.refused(409, "6 events", "wrun_1", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1})
	same(t, "the code", e.Code, world.CodeLimit)
	c.must("wrun_1", world.RunCompleted, "", fields{"output": 1})
	same(t, "the end", strings.HasSuffix(c.log("wrun_1"), "hook_disposed hook_disposed run_completed"), true)
}

// A runtime sends the input of a run with its creation, and again with its start. It is stored, and read, once.
func TestTheInputIsStoredOnce(t *testing.T) {
	c := open(t, new(memory.Store))
	c.must("wrun_1", world.RunCreated, "", order)
	a := c.must("wrun_1", world.RunStarted, "", order)
	if len(a.Events) != 2 || a.Events[0].EventData == nil || a.Events[1].EventData != nil {
		t.Errorf("got %+v, want the input in the first of two events", a.Events)
	}
	same(t, "the input", fmt.Sprintf("%x", []byte(c.run("wrun_1").Input)), "42696e")
}

// Runs of the first spec take three events, unchecked, and runs of a later spec than the client's take none.
func TestSpecs(t *testing.T) {
	c := open(t, new(memory.Store))
	c.spec = 0
	c.must("wrun_1", world.RunCreated, "", order)
	c.refused(409, "not supported for legacy runs", "wrun_1", world.RunStarted, "", nil)
	c.refused(409, "not supported for legacy runs", "wrun_1", world.StepCreated, "step_1", fields{"stepName": "pay"})
	c.must("wrun_1", world.HookReceived, "hook_1", fields{"payload": 1})
	c.must("wrun_1", world.WaitCompleted, "wait_1", nil)
	c.must("wrun_1", world.RunCancelled, "", nil)
	c.spec = 7
	c.begin("wrun_7")
	old := func(r *world.Request) { r.ClientSpec = 5 }
	e := c.refused(409, "spec version 7", "wrun_7", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1}, old)
	same(t, "the code", e.Code, world.CodeNotSupported)
	c.refused(409, "spec version 7", "wrun_8", world.RunCreated, "", order, old)
	l, err := c.Events(c.ctx, "wrun_7", world.Page{Order: world.Ascending}, "")
	if err != nil || l.Data[1].EventID != "evnt_00000000000000000000000002" {
		t.Errorf("got %+v, %v: the id of an event is its position", l.Data, err)
	}
	got, err := c.Event(c.ctx, "wrun_7", l.Data[1].EventID, "")
	if err != nil || got.EventType != world.RunStarted {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A call that is sent again is answered as the first time, and changes nothing.
func TestACallThatIsSentAgain(t *testing.T) {
	c := open(t, new(memory.Store))
	c.begin("wrun_1")
	named := func(id string) func(*world.Request) {
		return func(r *world.Request) { r.RequestID, r.Retry = id, true }
	}
	c.must("wrun_1", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1})
	for _, call := range []struct {
		e           world.EventType
		correlation string
		f           fields
	}{
		{world.StepStarted, "step_1", nil},
		{world.StepStarted, "step_2", fields{"stepName": "pay", "input": 1}},
		{world.HookCreated, "hook_1", fields{"token": "t"}},
		{world.HookReceived, "hook_1", fields{"payload": 1}},
		{world.HookDisposed, "hook_1", nil},
		{world.AttrSet, "", fields{"changes": []map[string]any{{"key": "a", "value": "1"}}, "writer": map[string]string{"type": "step"}}},
		{world.StepCompleted, "step_1", fields{"result": 1}},
		{world.RunCompleted, "", fields{"output": 1}},
	} {
		id := named(string(call.e) + call.correlation)
		first := c.must("wrun_1", call.e, call.correlation, call.f, id)
		before := c.log("wrun_1")
		again := c.must("wrun_1", call.e, call.correlation, call.f, id)
		if c.log("wrun_1") != before || again.Event.EventID != first.Event.EventID || again.StepCreated != first.StepCreated {
			t.Errorf("%s sent again: got %+v, want %+v", call.e, again, first)
		}
	}
}

// A conflict names a hook that has the token. If that is disposed meanwhile, there is none.
func TestAConflictIsOfAnOpenHook(t *testing.T) {
	s := new(memory.Store)
	look := open(t, s)
	look.begin("wrun_1")
	look.begin("wrun_2")
	look.must("wrun_1", world.HookCreated, "hook_1", fields{"token": "t"})
	commits := 0
	c := open(t, beforeCommit{s, func() {
		if commits++; commits == 2 { // the first one presumes that nobody has the token
			look.must("wrun_1", world.HookDisposed, "hook_1", nil)
		}
	}})
	if a := c.must("wrun_2", world.HookCreated, "hook_2", fields{"token": "t"}); a.Event.EventType != world.HookCreated {
		t.Errorf("got %s, want hook_created", a.Event.EventType)
	}
	same(t, "commits", commits, 3)
	same(t, "the log", look.log("wrun_2"), "run_created run_started hook_created")
}

// A beforeCommit has something happen before each commit.
type beforeCommit struct {
	storage.Storage
	happens func()
}

func (s beforeCommit) Commit(ctx context.Context, b storage.Batch) error {
	s.happens()
	return s.Storage.Commit(ctx, b)
}

// A step that is to be retried in centuries is to wait for a year, and no negative time.
func TestAStepWaitsForCenturies(t *testing.T) {
	c := open(t, new(memory.Store))
	c.begin("wrun_1")
	c.must("wrun_1", world.StepStarted, "step_1", fields{"stepName": "pay", "input": 1})
	c.must("wrun_1", world.StepRetrying, "step_1", fields{"error": 1, "retryAfter": time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)})
	if e := c.refused(425, "to be retried", "wrun_1", world.StepStarted, "step_1", nil); e != nil && e.RetryAfter != 366*24*time.Hour {
		t.Errorf("retry after %v, want a year", e.RetryAfter)
	}
}
