package main

import (
	"fmt"
	"sync"
	"time"
)

// A broker delivers each message until it is acknowledged or rejected. It loses every third
// acknowledgement. A real one is another process.
type broker struct {
	topic string
	queue chan *message
	open  sync.WaitGroup // messages that are neither acknowledged nor rejected

	mu                          sync.Mutex // guards the fields below
	published, deliveries, lost int
	acks                        int
	dead                        []*message
}

// A message is delivered to workers, to several at once if it was published twice.
type message struct {
	broker    *broker
	topic, id string
	order     Order
	why       error // it was rejected
}

func newBroker(topic string) *broker { return &broker{topic: topic, queue: make(chan *message, 1000)} }

// publish adds a message. Its id is that of the order, so that a second one is known to be the same.
func (b *broker) publish(o Order) {
	b.published++
	b.open.Add(1)
	b.queue <- &message{broker: b, topic: b.topic, id: fmt.Sprint("msg-", o.ID), order: o}
}

// deliver has workers handle deliveries until no message is left.
func (b *broker) deliver(workers int, handle func(*message)) {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for m := range b.queue {
				b.count(&b.deliveries)
				handle(m)
			}
		})
	}
	b.open.Wait()
	close(b.queue)
	all.Wait()
}

func (b *broker) count(n *int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	*n++
	return *n
}

func (m *message) ack() {
	if m.broker.count(&m.broker.acks)%3 == 0 {
		m.broker.count(&m.broker.lost)
		m.nack(0) // not heard of it: it is delivered again
		return
	}
	m.broker.open.Done()
}

// nack delivers again, later. A real broker waits as long as it is told; this one has no time.
func (m *message) nack(after time.Duration) {
	time.AfterFunc(min(after, 20*time.Millisecond), func() { m.broker.queue <- m })
}

func (m *message) reject(why error) {
	m.why = why
	m.broker.mu.Lock()
	m.broker.dead = append(m.broker.dead, m)
	m.broker.mu.Unlock()
	m.broker.open.Done()
}
