package natstest

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/consumer"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/sqlite"
)

func openLedger(t *testing.T, s storage.Storage) *idempotency.Ledger {
	t.Helper()
	l, err := idempotency.New(idempotency.Config{Storage: s, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// next returns the next delivery.
func next(t *testing.T, b *broker) jetstream.Msg {
	t.Helper()
	c, err := b.js.Consumer(t.Context(), topic, topic)
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Next(jetstream.FetchMaxWait(safetyNet))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// FEN-29, FEN-41: a message whose acknowledgement was lost is delivered again after the ack wait. It is a
// duplicate, and is acknowledged.
func TestDeliveredAgainAfterAckWait(t *testing.T) {
	torture.Slow(t)
	b := startBroker(t)
	c := startCarrier(t, b.nc, nil)
	l := openLedger(t, new(memory.Store))
	defer l.Close()
	b.publish("1")
	ship := shipping(b.nc, func(string) {})
	for delivery, want := range []idempotency.Decision{idempotency.DecidedNew, idempotency.DecidedDuplicate} {
		m := next(t, b)
		meta, err := m.Metadata()
		if err != nil || meta.NumDelivered != uint64(delivery+1) {
			t.Fatalf("delivery %d: %+v, %v", delivery+1, meta, err)
		}
		o := consumer.Do(t.Context(), l, ship, consumer.Message{Topic: topic, DedupeID: m.Headers().Get(dedupeID)}, Order{"1"})
		if o.Next != consumer.Ack || o.Decision != want {
			t.Fatalf("delivery %d: %v %q %v, want ack %q", delivery+1, o.Next, o.Decision, o.Err, want)
		}
		if delivery == 1 { // the first acknowledgement is lost
			if err := m.DoubleAck(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.drained(safetyNet, nil)
	if c.stopped(); c.parcels["1"] != 1 {
		t.Errorf("%d parcels, want 1", c.parcels["1"])
	}
}

// FEN-40, FEN-44: a message whose effect takes longer than the ack wait is delivered again meanwhile. It is not
// acknowledged before the seal.
func TestEffectLongerThanAckWait(t *testing.T) {
	torture.Slow(t)
	b := startBroker(t)
	finish := make(chan bool)
	c := startCarrier(t, b.nc, func(int) { <-finish })
	l := openLedger(t, new(memory.Store))
	defer l.Close()
	b.publish("1")
	ship := shipping(b.nc, func(string) {})
	do := func(m jetstream.Msg) consumer.Outcome {
		return consumer.Do(context.Background(), l, ship, consumer.Message{Topic: topic, DedupeID: m.Headers().Get(dedupeID)}, Order{"1"})
	}
	slow := next(t, b)
	first := make(chan consumer.Outcome)
	go func() { first <- do(slow) }()
	again := next(t, b) // only after the ack wait
	if o := do(again); o.Next != consumer.Retry || o.Decision != idempotency.DecidedInProgress {
		t.Errorf("while the effect is in progress: %v %q, want retry", o.Next, o.Decision)
	} else if err := again.NakWithDelay(o.After); err != nil {
		t.Fatal(err)
	}
	if n := b.info().NumAckPending; n != 1 {
		t.Errorf("%d messages are not acknowledged, want 1", n)
	}
	finish <- true
	if o := <-first; o.Next != consumer.Ack || o.Decision != idempotency.DecidedNew {
		t.Errorf("the first delivery: %v %q %v, want ack", o.Next, o.Decision, o.Err)
	}
	last := next(t, b)
	if o := do(last); o.Next != consumer.Ack || o.Decision != idempotency.DecidedDuplicate {
		t.Errorf("after the seal: %v %q %v, want ack", o.Next, o.Decision, o.Err)
	} else if err := last.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.drained(safetyNet, nil)
	if c.stopped(); c.parcels["1"] != 1 {
		t.Errorf("%d parcels, want 1", c.parcels["1"])
	}
}

// FEN-61: a consumer that is killed with SIGKILL at any step of a delivery, and its successor: one effect, and the
// message is acknowledged in the end.
func TestConsumerDiesAtEachStep(t *testing.T) {
	torture.Slow(t)
	for n, after := range [][]string{
		{"1 ack new"},
		{"1 ack new"},
		{"1 ack new"}, // the verifier has found the parcel
		{"1 ack duplicate"},
		nil,
	} {
		t.Run(steps[n], func(t *testing.T) {
			b := startBroker(t)
			c := startCarrier(t, b.nc, nil)
			b.publish("1")
			p := plan{URL: b.url, Store: filepath.Join(t.TempDir(), "ledger.db"), Workers: 4, DieAt: steps[n]}
			start(t, p).killed()
			if p.DieAt = ""; n < 4 && b.info().NumAckPending != 1 {
				t.Error("the message was acknowledged")
			}
			successor := start(t, p)
			b.drained(safetyNet, successor.ended)
			printed := successor.end()
			if lines := withoutRepeats(printed); !slices.Equal(lines, after) {
				t.Errorf("the successor printed %q, want %q", printed, after)
			}
			c.stopped()
			asked := 0
			if steps[n] == "claimed" || steps[n] == "shipped" {
				asked = 1
			}
			if c.parcels["1"] != 1 || c.questions != asked {
				t.Errorf("%d parcels and %d questions, want 1 and %d", c.parcels["1"], c.questions, asked)
			}
			if sealed := sealedIn(t, p.Store); len(sealed) != 1 {
				t.Errorf("%d keys are sealed, want 1", len(sealed))
			}
		})
	}
}

// withoutRepeats returns lines without those of a message that the server has delivered once more while it was handled: a
// consumer may need longer than the ack wait.
func withoutRepeats(lines []string) (all []string) {
	acked := slices.Contains(lines, "1 ack new")
	for _, line := range lines {
		repeat := line == "1 retry in_progress" || line == "1 ack duplicate" && acked
		acked = acked || line == "1 ack duplicate"
		if !repeat {
			all = append(all, line)
		}
	}
	return all
}

// sealedIn returns the source ids of all keys of a store. All of them must be sealed, or in progress if their
// holder was killed.
func sealedIn(t *testing.T, path string) map[string]bool {
	t.Helper()
	s, err := sqlite.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := openLedger(t, s)
	defer l.Close()
	sealed := map[string]bool{}
	for i, err := range l.List(t.Context(), idempotency.Filter{}) {
		if err != nil || i.Err != nil {
			t.Fatal(err, i.Err)
		}
		switch {
		case i.State == idempotency.StateSealed:
			sealed[i.Key.SourceID] = true
		case i.State != idempotency.StateInProgress || !i.Lapsed:
			t.Errorf("%s is %s (lapsed: %t)", i.Key.SourceID, i.State, i.Lapsed)
		}
	}
	return sealed
}

// FEN-27, FEN-29, FEN-44, FEN-61: each message is published three times, and the consumer is killed 20 times, at
// moments spread over all messages, with many deliveries in progress. Each has one effect, at a target that is not
// killed and repeats whatever it is told. What was acknowledged is sealed, after each kill.
func TestEachMessageHasOneEffect(t *testing.T) {
	torture.Slow(t)
	messages, kills := 2500, 20
	if os.Getenv("WEFT_TORTURE") != "" {
		messages = 10_000
	}
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("WEFT_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("WEFT_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))

	b := startBroker(t)
	reached := make(chan int, messages)
	c := startCarrier(t, b.nc, func(parcels int) { reached <- parcels })
	var copies [][]string // of each message two that are handled at once, and one sooner or later
	for n := range messages {
		id := strconv.Itoa(n)
		copies = append(copies, []string{id, id}, []string{id})
	}
	r.Shuffle(len(copies), func(i, j int) { copies[i], copies[j] = copies[j], copies[i] })
	ids := slices.Concat(copies...)
	b.publish(ids...)

	begun := time.Now()
	p := plan{URL: b.url, Store: filepath.Join(t.TempDir(), "ledger.db"), Workers: 64}
	acked := 0
	for kill := 1; kill <= kills; kill++ {
		l := start(t, p)
		for n := 0; n < messages*kill/(kills+1); {
			select {
			case n = <-reached:
			case err := <-l.ended:
				t.Fatalf("the consumer has ended: %v\n%s", err, l.said.Bytes())
			case <-time.After(safetyNet):
				t.Fatalf("no effect in a minute, after %d", n)
			}
		}
		if err := l.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		l.killed()
		heard := b.heard()
		sealed := sealedIn(t, p.Store)
		for _, seq := range heard[acked:] {
			if id := ids[seq-1]; !sealed["::msg-"+id] {
				t.Errorf("message %d (order %s) was acknowledged, and is not sealed", seq, id)
			}
		}
		acked = len(heard)
	}
	l := start(t, p)
	b.drained(10*safetyNet, l.ended)
	l.end()
	took := time.Since(begun)

	c.stopped()
	for n := range messages {
		if parcels := c.parcels[strconv.Itoa(n)]; parcels != 1 {
			t.Errorf("order %d: %d parcels, want 1", n, parcels)
		}
	}
	if n := len(sealedIn(t, p.Store)); n != messages {
		t.Errorf("%d keys are sealed, want %d", n, messages)
	}
	deliveries := b.info().Delivered.Consumer
	if acked == 0 || c.questions == 0 || deliveries <= uint64(len(ids)) {
		t.Errorf("nothing was put to the test: %d acknowledged before the last kill, %d questions, %d deliveries", acked, c.questions, deliveries)
	}
	t.Logf("%d messages, %d published, %d deliveries, %d acknowledged before the last kill, %d kills: %d effects, %d duplicates, %d questions after a death, %d late requests refused, in %v",
		messages, len(ids), deliveries, acked, kills, c.total(), c.total()-messages, c.questions, c.refused, took.Round(time.Millisecond))
}
