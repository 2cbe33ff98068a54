package world

import (
	"testing"

	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/keys"
)

// The bytes of the records of the world.
func TestGoldenRecords(t *testing.T) {
	const ms = 1767355200000
	headOf := func(h head) golden.Record {
		h.Name, h.Deployment, h.Created, h.Updated, h.Last, h.Input = "workflow//./src/order//order", "blue", ms, ms+5, ms+5, 1
		return golden.Record{Key: keys.World("wrun_1"), Version: version, Value: &h, Empty: func() any { return new(head) }}
	}
	eventOf := func(e event) golden.Record {
		e.Created, e.Low = ms, 1<<40-1
		return golden.Record{Key: keys.WorldEvent("wrun_1", 3), Version: version, Value: &e, Empty: func() any { return new(event) }}
	}
	stepOf := func(s step) golden.Record {
		s.Name, s.Created, s.Updated, s.Input = "step//./src/order//pay", ms, ms+5, 3
		return golden.Record{Key: keys.WorldEntity("wrun_1", kindStep, "step_1"), Version: version, Value: &s, Empty: func() any { return new(step) }}
	}
	records := map[string]golden.Record{
		"head":           headOf(head{Status: Pending, Spec: 5, Seq: 1, SeqInBand: 1}),
		"head-running":   headOf(head{Status: Running, Spec: 5, Started: ms + 1, Seq: 7, SeqInBand: 6, OutOfBand: ms + 4, Hooks: 2}),
		"head-completed": headOf(head{Status: Completed, Spec: 5, Started: ms + 1, Ended: ms + 5, Seq: 9, SeqInBand: 9, Outcome: 9}),
		"head-failed":    headOf(head{Status: Failed, Spec: 3, Started: ms + 1, Ended: ms + 5, Seq: 9, SeqInBand: 9, Outcome: 9}),
		"head-cancelled": headOf(head{Status: Cancelled, Spec: 1, Ended: ms + 5, Seq: 2, SeqInBand: 2, Outcome: 2}),
		"head-removed":   headOf(head{Status: Completed, Spec: 5, Started: ms + 1, Ended: ms + 5, Seq: 9, SeqInBand: 9, Outcome: 9, Removed: ms + 9000}),
		"event-resume":   eventOf(event{Type: HookReceived, Correlation: "hook_1", Spec: 5, Data: []byte{0xa1, 0x67, 'p', 'a', 'y', 'l', 'o', 'a', 'd', 0x01}, Occurred: ms - 1, Request: "req_1", Resume: "res_1"}),
		"event-failure":  eventOf(event{Type: StepFailed, Correlation: "step_1", Spec: 3, Error: `{"message":"declined"}`}),
		"step":           stepOf(step{Status: Pending}),
		"step-running":   stepOf(step{Status: Running, Attempt: 2, Started: ms + 1, Failure: 5}),
		"step-retrying":  stepOf(step{Status: Pending, Attempt: 1, Started: ms + 1, RetryAfter: ms + 9000, Failure: 5}),
		"step-completed": stepOf(step{Status: Completed, Attempt: 1, Started: ms + 1, Ended: ms + 5, Output: 5}),
		"hook":           {Key: keys.WorldEntity("wrun_1", kindHook, "hook_1"), Version: version, Value: &hook{Token: "invoice/7", Created: ms, Event: 4, Webhook: true, System: true}, Empty: func() any { return new(hook) }},
		"hook-disposed":  {Key: keys.WorldEntity("wrun_1", kindHook, "hook_1"), Version: version, Value: &hook{Token: "invoice/7", Created: ms, Event: 4, Disposed: ms + 5}, Empty: func() any { return new(hook) }},
		"wait":           {Key: keys.WorldEntity("wrun_1", kindWait, "wait_1"), Version: version, Value: &wait{Status: Waiting, Created: ms, Updated: ms, Resume: ms + 1000}, Empty: func() any { return new(wait) }},
		"wait-completed": {Key: keys.WorldEntity("wrun_1", kindWait, "wait_1"), Version: version, Value: &wait{Status: Completed, Created: ms, Updated: ms + 1000, Resume: ms + 1000, Ended: ms + 1000}, Empty: func() any { return new(wait) }},
		"owner":          {Key: keys.WorldToken(keys.TokenHash("invoice/7")), Version: version, Value: &owner{Run: "wrun_1", Hook: "hook_1"}, Empty: func() any { return new(owner) }},
		"resumed":        {Key: keys.WorldEntity("wrun_1", kindResumed, "res_1"), Version: version, Value: &resumed{Event: 6}, Empty: func() any { return new(resumed) }},
		"attributes":     {Key: keys.WorldAttributes("wrun_1"), Version: version, Value: &attributes{All: map[string]string{"team": "a", "$rootRunId": "wrun_0"}}, Empty: func() any { return new(attributes) }},
		"mark":           {Key: keys.WorldListed("status", "running", "wrun_1"), Version: version, Value: &mark{}, Empty: func() any { return new(mark) }},
	}
	for _, e := range []EventType{RunCreated, RunStarted, RunCompleted, RunFailed, RunCancelled, AttrSet, StepCreated, StepStarted, StepCompleted, StepRetrying, HookCreated, HookDisposed, HookConflict, WaitCreated, WaitCompleted} {
		records["event-"+string(e)] = eventOf(event{Type: e, Spec: 5})
	}
	golden.Check(t, "testdata/v1", records)
}
