package natstest

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	topic      = "orders"      // of the stream, its subject and its consumer
	dedupeID   = "X-Dedupe-Id" // header of what the producer publishes; JetStream does not look at it
	ackWait    = time.Second
	safetyNet  = time.Minute
	ackPending = 5000
)

// An Order is the body of a message.
type Order struct{ ID string }

// A broker is a JetStream server with a stream and a consumer.
type broker struct {
	t         *testing.T
	url       string
	nc        *nats.Conn
	js        jetstream.JetStream
	published uint64

	mu    sync.Mutex
	acked []uint64 // sequence numbers of the messages that were acknowledged, as the server reports them
}

func startBroker(t *testing.T) *broker {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(safetyNet) {
		t.Fatal("the server did not start")
	}
	b := &broker{t: t, url: s.ClientURL()}
	if b.nc, err = nats.Connect(b.url, nats.Timeout(safetyNet)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.nc.Close)
	if b.js, err = jetstream.New(b.nc); err != nil {
		t.Fatal(err)
	}
	if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: topic, Subjects: []string{topic}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.js.CreateConsumer(t.Context(), topic, jetstream.ConsumerConfig{
		Durable: topic, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: ackPending,
		SampleFrequency: "100%", // report each acknowledgement
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.nc.Subscribe("$JS.EVENT.METRIC.CONSUMER.ACK."+topic+"."+topic, b.hear); err != nil {
		t.Fatal(err)
	}
	return b
}

// hear notes what was acknowledged.
func (b *broker) hear(m *nats.Msg) {
	var report server.JSConsumerAckMetric
	if err := json.Unmarshal(m.Data, &report); err != nil {
		panic(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acked = append(b.acked, report.StreamSeq)
}

func (b *broker) heard() []uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.acked)
}

// publish publishes orders, and returns when all of them are stored.
func (b *broker) publish(ids ...string) {
	b.t.Helper()
	for _, id := range ids {
		body, err := json.Marshal(Order{id})
		if err != nil {
			b.t.Fatal(err)
		}
		m := &nats.Msg{Subject: topic, Data: body, Header: nats.Header{dedupeID: {"msg-" + id}}}
		if _, err := b.js.PublishMsgAsync(m, jetstream.WithStallWait(safetyNet)); err != nil {
			b.t.Fatal(err)
		}
	}
	select {
	case <-b.js.PublishAsyncComplete():
	case <-time.After(safetyNet):
		b.t.Fatal("the messages were not stored")
	}
	b.published += uint64(len(ids))
}

func (b *broker) info() *jetstream.ConsumerInfo {
	b.t.Helper()
	c, err := b.js.Consumer(b.t.Context(), topic, topic)
	if err != nil {
		b.t.Fatal(err)
	}
	i, err := c.Info(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return i
}

// drained waits until all messages are acknowledged. ended says that this cannot happen any more.
func (b *broker) drained(limit time.Duration, ended <-chan error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), limit)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		i := b.info()
		if i.AckFloor.Stream == b.published {
			return
		}
		select {
		case <-look.C:
		case err := <-ended:
			b.t.Fatalf("the consumer has ended: %v", err)
		case <-ctx.Done():
			b.t.Fatalf("of %d messages %d are not delivered and %d not acknowledged", b.published, i.NumPending, i.NumAckPending)
		}
	}
}
