package journal

import (
	"bytes"
	"testing"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/keys"
)

// FMT-1, FMT-2, FMT-3, FMT-21, FMT-22: the bytes of each record.
func TestGoldenRecords(t *testing.T) {
	wf := func(w Workflow) golden.Record {
		return golden.Record{Key: keys.Workflow("order-42"), Version: 1, Value: &w, Empty: func() any { return new(Workflow) }}
	}
	ckpt := func(s stored) golden.Record {
		return golden.Record{Key: keys.LogUnder("order-42").Checkpoint(7), Version: 1, Value: &s, Empty: func() any { return new(stored) }}
	}
	const gen = "01JGZ3Q8X0000000000000000A"
	digest := bytes.Repeat([]byte{0xd1}, 32)
	running := Workflow{
		Generation: gen, Type: "checkout", Status: checkpoint.StatusRunning, Owner: "host-01JGZ", Claim: 1856226398208001, Base: 1856226398208000,
		CreatedAt: 1767355200000000, StartedAt: 1767355200000001, Digest: digest,
	}
	pending := Workflow{
		Generation: gen, Type: "checkout", Status: checkpoint.StatusPending, Base: 1856226398208000, CreatedAt: 1767355200000000,
		Digest: digest, Todo: keys.Todo(0, noon, "order-42", gen),
	}
	waiting, admitted := pending, running
	waiting.Queue, waiting.Waits, waiting.Todo = "print", true, keys.Line("print", noon, "order-42")
	admitted.Queue, admitted.Slot = "print", 3
	askedBy, asked, held, suspect, alone, completed, failed, cancelled := running, running, running, running, running, running, running, running
	askedBy.State, askedBy.Cancel = 1, &Request{Reason: "customer called", At: 1767355200000002, By: "ann"}
	asked.State, asked.Cancel = 1, &Request{Reason: "customer called", At: 1767355200000002}
	held.Attention = []Attention{{Reason: "non-determinism", Operation: "3", Name: "charge", Detail: "was a timer", Since: 1767355200000003}}
	held.Verbs = []Verb{{Name: "retry", By: "ann", Why: "mended"}}
	suspect.Deaths = 4
	alone.Deaths, alone.Alone = 9, 2
	parked := running
	parked.Owner, parked.Awaits, parked.Heard, parked.Facing = "", []string{"approved"}, 3, []string{"signal approved"}
	versioned := running
	versioned.Choose(Choice{Change: "fraud-check", Version: 1}, Choice{Change: "ship-late", Version: 2, From: Place{Checkpoint: 1856226398208001, Event: 2}})
	labelled := running
	labelled.Labels = map[string]string{"team": "blue", "customer": "42"}
	canonical := running
	canonical.Canonical = bytes.Repeat([]byte{0xd2}, 32)
	needing := running
	needing.Needs = []string{"reset"}
	pinned := running
	pinned.Deployment = "2026-07-29"
	keeping := pending
	keeping.Needs = nil
	keeping.StartOn("2026-07-29")
	child, retried, compensated := running, running, running
	child.Parent = &Parent{ID: "order-41", Generation: "01JGZ3Q8X0000000000000000B", Operation: "2.1"}
	retried.Retries = []Retry{{Quiet: Place{Checkpoint: 1856226398208001, Event: 2}, End: 1856226398208003, At: 1767355200000005}}
	compensated.Status, compensated.EndedAt, compensated.Compensated = checkpoint.StatusFailed, 1767355200000004, true
	quiet := compensated
	quiet.Compensated, quiet.Quiet = false, &Place{Checkpoint: 1856226398208001, Event: 2}
	completed.Status, completed.EndedAt = checkpoint.StatusCompleted, 1767355200000004
	failed.Status, failed.EndedAt = checkpoint.StatusFailed, 1767355200000004
	untold := failed
	untold.Parent, untold.Untold = child.Parent, true
	cancelled.Status, cancelled.EndedAt, cancelled.Cancel = checkpoint.StatusCancelled, 1767355200000004, asked.Cancel

	terminated := cancelled
	terminated.Cancel = &Request{Reason: "stuck", At: 1767355200000002, By: "ann", Terminated: true}

	later := running
	later.Base, later.Claim, later.Life, later.First, later.LifeAt = running.Base+7, running.Base+7, 3, 12, 1767355200000009
	later.Resumed, later.Needs = 1767355200000005, []string{"lives"}
	reset := running
	reset.Resets, reset.Needs = []Reset{{Before: "3", Point: Place{Checkpoint: 1856226398208001, Event: 2}, To: 1856226398208009, At: 1767355200000007}}, []string{"resets"}
	updated := parked
	updated.Handles, updated.Updates = []string{"move"}, 4
	updated.Update()
	protected := completed
	protected.Protect(Protection{By: "law", Reason: "case 7", At: 1767355200000006})
	delayed := pending
	delayed.Needs = nil
	delayed.Delay(noon)
	ofSchedule := pending
	ofSchedule.Schedule = "report"

	hooked := running
	hooked.OpensHook()
	streamed := running
	streamed.Stream()
	byGeneration := running
	byGeneration.ByGeneration = true

	golden.Check(t, "testdata/v1", map[string]golden.Record{
		"workflow-generation":  wf(byGeneration),
		"workflow-hooked":      wf(hooked),
		"workflow-streamed":    wf(streamed),
		"workflow-protected":   wf(protected),
		"workflow-delayed":     wf(delayed),
		"workflow-scheduled":   wf(ofSchedule),
		"row":                  {Key: keys.Index(gen), Version: 1, Value: &Row{ID: "order-42"}, Empty: func() any { return new(Row) }},
		"workflow-labelled":    wf(labelled),
		"workflow-versioned":   wf(versioned),
		"workflow-canonical":   wf(canonical),
		"workflow-life":        wf(later),
		"workflow-updated":     wf(updated),
		"workflow-pending":     wf(pending),
		"workflow-running":     wf(running),
		"workflow-asked":       wf(asked),
		"workflow-asked-by":    wf(askedBy),
		"workflow-held":        wf(held),
		"workflow-suspect":     wf(suspect),
		"workflow-alone":       wf(alone),
		"workflow-parked":      wf(parked),
		"workflow-needing":     wf(needing),
		"workflow-completed":   wf(completed),
		"workflow-failed":      wf(failed),
		"workflow-cancelled":   wf(cancelled),
		"workflow-terminated":  wf(terminated),
		"workflow-pinned":      wf(pinned),
		"workflow-deployment":  wf(keeping),
		"workflow-waiting":     wf(waiting),
		"workflow-admitted":    wf(admitted),
		"workflow-child":       wf(child),
		"workflow-retried":     wf(retried),
		"workflow-untold":      wf(untold),
		"workflow-reset":       wf(reset),
		"workflow-compensated": wf(compensated),
		"workflow-quiet":       wf(quiet),
		"hook": {
			Key: keys.Hook("order-42", "hook_01JGZ3Q8X0000000000000000B"), Version: 1, Empty: func() any { return new(Hook) },
			Value: &Hook{Generation: gen, TokenHash: keys.TokenHash("invoice/7"), Name: "paid", Operation: "2.1"},
		},
		"hook-address": {
			Key: keys.HookAddress(keys.TokenHash("invoice/7")), Version: 1, Empty: func() any { return new(HookAddress) },
			Value: &HookAddress{WorkflowID: "order-42", Generation: gen, HookID: "hook_01JGZ3Q8X0000000000000000B"},
		},
		"child": {
			Key: keys.Child("order-41", "2.1"), Version: 1, Empty: func() any { return new(Child) },
			Value: &Child{Parent: gen, ID: "order-42"},
		},
		"child-awaited": {
			Key: keys.Child("order-41", "2.1"), Version: 1, Empty: func() any { return new(Child) },
			Value: &Child{Parent: gen, ID: "order-42", OnEnd: 2},
		},
		"child-ended": {
			Key: keys.Child("order-41", "2.1"), Version: 1, Empty: func() any { return new(Child) },
			Value: &Child{Parent: gen, ID: "order-42", End: &Output{
				Generation: "01JGZ3Q8X0000000000000000B", Status: checkpoint.StatusFailed, Error: "card declined", Stack: "goroutine 1", Sentinel: "declined",
			}},
		},
		"published": {
			Key: keys.Published("order-42", "progress"), Version: 1, Empty: func() any { return new(Published) },
			Value: &Published{Generation: gen, Codec: "cbor", Data: []byte{0x18, 0x32}, At: 1767355200000006},
		},
		"slot": {
			Key: keys.Slot("print", 3), Version: 1, Empty: func() any { return new(Slot) },
			Value: &Slot{ID: "order-42", Generation: gen},
		},
		"workflow-tombstone": wf(Workflow{Generation: gen, Next: 1856226398208009, PurgedAt: 1767355200000005}),
		"input": {
			Key: keys.Input("order-42"), Version: 1, Empty: func() any { return new(Input) },
			Value: &Input{Generation: gen, Codec: "cbor", Data: []byte(`{"Cents":4900}`)},
		},
		"input-headers": {
			Key: keys.Input("order-42"), Version: 1, Empty: func() any { return new(Input) },
			Value: &Input{Generation: gen, Data: []byte(`{"Cents":4900}`), Headers: map[string]string{"tracestate": "a=1", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}},
		},
		"input-life": {
			Key: keys.Input("order-42"), Version: 1, Empty: func() any { return new(Input) },
			Value: &Input{Generation: gen, Data: []byte(`{"Cents":4900}`), Life: 3},
		},
		"output": {
			Key: keys.Output("order-42"), Version: 1, Empty: func() any { return new(Output) },
			Value: &Output{Generation: gen, Status: checkpoint.StatusCompleted, Codec: "cbor", Data: []byte(`{"ChargeID":"ch_1"}`)},
		},
		"output-failed": {
			Key: keys.Output("order-42"), Version: 1, Empty: func() any { return new(Output) },
			Value: &Output{Generation: gen, Status: checkpoint.StatusFailed, Error: "card declined", Stack: "goroutine 1", Sentinel: "declined"},
		},
		"checkpoint": ckpt(stored{
			Generation: gen, Commit: bytes.Repeat([]byte{0xc0}, 16), Time: 1767355200000006,
			Events: []checkpoint.Event{
				{Kind: checkpoint.KindClaimed, By: "host-01JGZ", Why: checkpoint.HandedOver},
				{Kind: checkpoint.KindAttempted, Operation: "1", Of: "activity", Name: "charge", Attempt: 1, Error: "busy", Sentinel: "busy", Due: 1767355201000006},
				{Kind: checkpoint.KindSettled, Operation: "1", Of: "activity", Name: "charge", Attempt: 2, Result: []byte(`"ch_1"`), Codec: "cbor"},
				{Kind: checkpoint.KindSettled, Operation: "2", Of: "step", Name: "note", Attempt: 1, Error: "panic: nil", Stack: "goroutine 1"},
				{Kind: checkpoint.KindFired, Operation: "3", Of: "timer"},
				{Kind: checkpoint.KindReceived, Operation: "4", Of: "receive", Name: "approved", Result: []byte(`"bob"`), SignalID: "evt_1"},
				{Kind: checkpoint.KindMissed, Operation: "5", Of: "receive", Name: "approved"},
				{Kind: checkpoint.KindAsked, Why: "customer called"},
				{Kind: checkpoint.KindHeld, Operation: "6", Name: "non-determinism", Error: "was a timer"},
				{Kind: checkpoint.KindSurvived},
				{Kind: checkpoint.KindActed, Name: "retry", By: "ann", Why: "mended"},
				{Kind: checkpoint.KindEnded, Name: "completed"},
			},
		}),
		"checkpoint-generation": {
			Key: keys.LogOf(gen).Checkpoint(7), Version: 1, Empty: func() any { return new(stored) },
			Value: &stored{Generation: gen, Commit: bytes.Repeat([]byte{0xc1}, 16), Time: 1767355200000006, Events: []checkpoint.Event{{Kind: checkpoint.KindFired, Operation: "3", Of: "timer"}}},
		},
		"checkpoint-continued": ckpt(stored{
			Generation: gen, Commit: bytes.Repeat([]byte{0xc8}, 16), Time: 1767355200000009,
			Events: []checkpoint.Event{
				{Kind: checkpoint.KindGivenUp, Operation: "11", Of: "activity", Name: "charge", Attempt: 1},
				{Kind: checkpoint.KindContinued, By: "host-01JGZ"},
				{Kind: checkpoint.KindClaimed, By: "host-01JGZ", Why: checkpoint.HandedOver},
			},
		}),
		"checkpoint-keyed": ckpt(stored{
			Generation: gen, Commit: bytes.Repeat([]byte{0xc3}, 16), Time: 1767355200000008,
			Events: []checkpoint.Event{
				{Kind: checkpoint.KindDispatched, Operation: "1", Of: "activity", Name: "charge", Attempt: 1, Key: "order/42", Input: digest},
				{Kind: checkpoint.KindNoted, Operation: "1", Of: "activity", Name: "charge", Attempt: 1, Why: "attempt 1 returned a result after its time was up"},
				{Kind: checkpoint.KindSettled, Operation: "1", Of: "activity", Name: "charge", Attempt: 1, Error: "it returned", Other: "it did not complete", Category: "contradiction"},
				{Kind: checkpoint.KindGivenUp, Operation: "2", Of: "activity", Name: "charge", Attempt: 1},
			},
		}),
		"checkpoint-updates": ckpt(stored{
			Generation: gen, Commit: []byte("0123456789abcdef"), Time: 1767355200000000,
			Events: []checkpoint.Event{
				{Kind: checkpoint.KindAccepted, Operation: "u1", Of: "update", Name: "move", Key: "click-7", Result: []byte(`"home"`)},
				{Kind: checkpoint.KindAnswered, Operation: "u1", Of: "update", Name: "move", Key: "click-7", Error: "shipped"},
			},
		}),
		"checkpoint-lives": ckpt(stored{
			Generation: gen, Commit: bytes.Repeat([]byte{0xc4}, 16), Time: 1767355200000009,
			Events: []checkpoint.Event{
				{Kind: checkpoint.KindStarted, Operation: "1", Of: "child", Name: "ship", Child: "order-42/1"},
				{Kind: checkpoint.KindParked},
				{Kind: checkpoint.KindCameBack, Operation: "2", Attempt: 1},
				{Kind: checkpoint.KindCompensating, Name: "failed", Error: "card declined", Sentinel: "declined"},
			},
		}),
		"checkpoint-identified": ckpt(stored{
			Generation: gen, Commit: bytes.Repeat([]byte{0xc5}, 16), Time: 1767355200000010,
			Events: []checkpoint.Event{
				{Kind: checkpoint.KindSettled, Operation: "1.2", Of: "activity", Name: "charge", Attempt: 1, Result: []byte(`1`), Input: []byte{1, 2, 3, 4, 5, 6, 7, 8}, Branch: "stay"},
				{Kind: checkpoint.KindFired, Operation: "2", Of: "timer", Which: "sleep"},
			},
		}),
		"checkpoint-place": ckpt(stored{
			Generation: gen, Commit: bytes.Repeat([]byte{0xc7}, 16), Time: 1767355200000012,
			Events: []checkpoint.Event{{Kind: checkpoint.KindReceived, Operation: "4", Of: "receive", Name: "approved", Result: []byte(`"bob"`), SignalID: "evt_1", Seq: 17}},
		}),
		"checkpoint-versioned": ckpt(stored{
			Generation: gen, Commit: bytes.Repeat([]byte{0xc6}, 16), Time: 1767355200000011,
			Events: []checkpoint.Event{{Kind: checkpoint.KindVersioned, Name: "fraud-check", Version: 2}},
		}),
		"checkpoint-hooks": ckpt(stored{
			Generation: gen, Commit: bytes.Repeat([]byte{0xc9}, 16), Time: 1767355200000012,
			Events: []checkpoint.Event{
				{Kind: checkpoint.KindOpened, Operation: "1", Of: "hook", Name: "paid", Result: []byte(`{"id":"hook_01JGZ3Q8X0000000000000000B","token":"invoice/7"}`), Input: []byte{1, 2, 3, 4, 5, 6, 7, 8}},
				{Kind: checkpoint.KindSettled, Operation: "2", Of: "hook", Name: "paid", Error: "token is taken", Child: "order-41"},
				{Kind: checkpoint.KindDisposed, Operation: "3", Of: "disposal", Name: "paid"},
			},
		}),
		"checkpoint-streams": ckpt(stored{
			Generation: gen, Commit: bytes.Repeat([]byte{0xca}, 16), Time: 1767355200000012,
			Events: []checkpoint.Event{{Kind: checkpoint.KindClosed, Operation: "3", Of: "closing", Name: "words"}},
		}),
		"checkpoint-ahead": ckpt(stored{
			Generation: gen, Commit: bytes.Repeat([]byte{0xc5}, 16), Time: 1767355200000010, Events: []checkpoint.Event{{Kind: checkpoint.KindFired, Operation: "3", Of: "timer"}}, Ahead: 3600000000,
		}),
		"checkpoint-values": ckpt(stored{
			Generation: gen, Commit: bytes.Repeat([]byte{0xc6}, 16), Time: 1767355200000011,
			Events: []checkpoint.Event{{Kind: checkpoint.KindNoted, Why: checkpoint.SomeValues}, {Kind: checkpoint.KindNoted, Why: checkpoint.AllValues}},
		}),
		"checkpoint-skip": ckpt(stored{
			Generation: gen, Commit: bytes.Repeat([]byte{0xc1}, 16), Time: 1767355200000007, Events: []checkpoint.Event{{Kind: checkpoint.KindSkipped}}, Skip: 1856226398208100,
		}),
	})
}

// A checkpoint is unchanged by sealing and opening it.
func TestCheckpointRoundTrip(t *testing.T) {
	in := Entry{Checkpoint: checkpoint.Checkpoint{Number: 7, Time: noon, Events: []checkpoint.Event{{Kind: checkpoint.KindFired, Operation: "1"}}}, generation: "G", commit: NewCommitID(), skip: 9}
	key := keys.LogOf("G").Checkpoint(7)
	raw, err := in.seal(key, new(stored))
	if err != nil {
		t.Fatal(err)
	}
	out, err := open(key, 7, raw)
	if err != nil {
		t.Fatal(err)
	}
	if out.Number != 7 || !out.Time.Equal(noon) || len(out.Events) != 1 || out.Events[0].Kind != checkpoint.KindFired ||
		out.generation != "G" || out.commit != in.commit || out.skip != 9 {
		t.Errorf("got %+v, want %+v", out, in)
	}
}
