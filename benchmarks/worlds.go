package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-go/weft/internal/ids"
	"github.com/weft-go/weft/internal/queue"
	"github.com/weft-go/weft/internal/world"
	"github.com/weft-go/weft/storage"
	public "github.com/weft-go/weft/world"
)

// W14 and W15 are what a runtime of TypeScript workflows asks of a world: messages in its queue, and
// events of its runs. They compare with single raw rows and with a hundred in a transaction.
var (
	queued = &Workload{Name: "w14", Title: "W14: a queue of the world, messages of 100 bytes", Stores: []string{"sqlite", "bolt", "pebble", "postgres"}, Parts: only(messages), Beside: receiveBeside}
	worlds = &Workload{Name: "w15", Title: "W15: events of runs of the world", Stores: []string{"sqlite", "bolt", "pebble", "postgres"}, Parts: only(events)}
)

const batch = 100 // of deliveries

var message = bytes.Repeat([]byte("m"), 100)

func messages(ctx context.Context, c *Child) error {
	s, err := openStore(ctx, c.site)
	if err != nil {
		return err
	}
	defer s.Close()
	publish := func(q *queue.Queue, to string) error {
		_, err := q.Publish(ctx, queue.Message{Queue: to, Name: "q", Body: message})
		return err
	}
	q, err := queueOn(s)
	if err != nil {
		return err
	}
	defer q.Close()

	one := func() error { return publish(q, "one") }
	if _, _, err := repeat(c.Warm, one); err != nil {
		return err
	}
	n, took, err := repeat(c.Load/2, one)
	if err != nil {
		return err
	}
	c.report("messages/s, published one at a time", float64(n)/took.Seconds())
	n, took, err = crowded(ctx, c.Load/2, crowd, func(int) error { return publish(q, "many") })
	if err != nil {
		return err
	}
	c.report("messages/s, published 200 at once", float64(n)/took.Seconds())

	for _, n := range []int{1, 8} {
		rate, err := through(ctx, c, q, fmt.Sprint("for-", n), slices.Repeat([]receiver{receiverOn(s)}, n))
		if err != nil {
			return err
		}
		c.report(fmt.Sprintf("messages/s, published to acknowledged, %d receiving", n), rate)
	}
	if !s.Capabilities().Shared {
		return nil
	}
	var rates []float64
	for _, n := range []int{1, 8} {
		rate, err := throughProcesses(ctx, c, q, n)
		if err != nil {
			return err
		}
		c.report(fmt.Sprintf("messages/s, published to acknowledged, receiving processes: %d", n), rate)
		rates = append(rates, rate)
	}
	c.report("published to acknowledged, eight processes to one", rates[1]/rates[0])
	return nil
}

func queueOn(s storage.Storage) (*queue.Queue, error) {
	return queue.New(queue.Config{Storage: s, IDs: new(ids.Source)})
}

// A receiver receives messages of a queue by the hundred and acknowledges them, until ctx is done. It calls got with how many
// those were.
type receiver func(ctx context.Context, name string, got func(n int)) error

// receiverOn returns a receiver with a view of the queues of its own, as a process has it.
func receiverOn(s storage.Storage) receiver {
	return func(ctx context.Context, name string, got func(n int)) error {
		q, err := queueOn(s)
		if err != nil {
			return err
		}
		defer q.Close()
		for ctx.Err() == nil {
			n, err := acknowledge(ctx, q, name)
			got(n)
			if err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	}
}

// through returns how many messages a second are published, received and acknowledged.
func through(ctx context.Context, c *Child, q *queue.Queue, name string, receivers []receiver) (rate float64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ahead := make(chan struct{}, 20*batch) // what is not acknowledged: it is not measured how a queue grows
	awake := make(chan struct{})           // closed when somebody has received the first message
	wake := sync.OnceFunc(func() { close(awake) })
	var wg sync.WaitGroup
	for _, r := range receivers {
		wg.Go(func() {
			err := r(ctx, name, func(n int) {
				for range n {
					<-ahead
				}
				if n > 0 {
					wake()
				}
			})
			if err != nil {
				cancel(err)
			}
		})
	}
	publish := func(int) error {
		select {
		case ahead <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		_, err := q.Publish(ctx, queue.Message{Queue: name, Name: "q", Body: message})
		return err
	}
	if err = publish(0); err == nil {
		select {
		case <-awake:
		case <-ctx.Done():
		}
		began, n := time.Now(), 0
		if n, _, err = crowded(ctx, c.Load, crowd, publish); err == nil {
			err = until(ctx, func() bool { return len(ahead) == 0 })
		}
		rate = float64(n) / time.Since(began).Seconds()
	}
	cancel(nil)
	wg.Wait()
	if cause := context.Cause(ctx); cause != context.Canceled {
		err = cause
	}
	return rate, err
}

// throughProcesses is through with receivers in n other processes.
func throughProcesses(ctx context.Context, c *Child, q *queue.Queue, n int) (rate float64, err error) {
	name := fmt.Sprint("processes-", n)
	var receivers []receiver
	for range n {
		h, err := c.hire(ctx, name)
		if err != nil {
			return 0, err
		}
		defer func() { _ = h.dismiss() }()
		receivers = append(receivers, h.receive)
		if err := h.ready(); err != nil {
			return 0, err
		}
	}
	return through(ctx, c, q, name, receivers)
}

// receive passes on what another process has received.
func (h *hand) receive(ctx context.Context, _ string, got func(n int)) error {
	defer context.AfterFunc(ctx, func() { h.in.Close() })()
	for lines := json.NewDecoder(h.out); ; {
		var n int
		if err := lines.Decode(&n); err != nil {
			if ctx.Err() != nil && errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("a receiving process: %w", err)
		}
		got(n)
	}
}

// receiveBeside receives messages of the queue that its share names.
func receiveBeside(ctx context.Context, c *Child) error {
	var name string
	if err := json.Unmarshal(c.task.Share, &name); err != nil {
		return err
	}
	s, err := openStore(ctx, c.site)
	if err != nil {
		return err
	}
	defer s.Close()
	out := json.NewEncoder(os.Stdout)
	fmt.Println("ready")
	return receiverOn(s)(untilDismissed(ctx), name, func(n int) {
		_ = out.Encode(n) // without that, nobody counts it
	})
}

// acknowledge takes some messages of a queue, and acknowledges them.
func acknowledge(ctx context.Context, q *queue.Queue, name string) (n int, err error) {
	got, err := q.Receive(ctx, name, batch, time.Second)
	if err != nil {
		return 0, err
	}
	var all []queue.Settlement
	for _, d := range got {
		all = append(all, queue.Settlement{ID: d.ID, Receipt: d.Receipt, As: queue.Acknowledge})
	}
	return len(got), errors.Join(q.Settle(ctx, name, all...)...)
}

// crowded calls f from so many goroutines until the time is over, and returns how many calls that were.
func crowded(ctx context.Context, d time.Duration, at int, f func(i int) error) (n int, took time.Duration, err error) {
	var calls atomic.Int64
	began := time.Now()
	err = each(ctx, at, at, func(i int) error {
		for time.Since(began) < d {
			if err := f(i); err != nil {
				return err
			}
			calls.Add(1)
		}
		return nil
	})
	return int(calls.Load()), time.Since(began), err
}

// A fields is the data of an event.
type fields map[string]any

func event(run string, kind world.EventType, correlation string, data fields) (world.Request, error) {
	raw, err := cbor.Marshal(data)
	return world.Request{RunID: run, Type: kind, Correlation: correlation, Spec: 5, Data: raw}, err
}

// A worldRun is a run of a world, to which events are added.
type worldRun struct {
	id string
	n  atomic.Int64 // of events
}

func begin(ctx context.Context, w *world.World, name string) (*worldRun, error) {
	r := &worldRun{id: "wrun_" + name}
	create, err := event(r.id, world.RunCreated, "", fields{"workflowName": "w", "deploymentId": "d", "input": "in"})
	if err == nil {
		_, err = w.Create(ctx, create)
	}
	if err != nil {
		return nil, err
	}
	start, err := event(r.id, world.RunStarted, "", nil)
	if err == nil {
		_, err = w.Create(ctx, start)
	}
	return r, err
}

// step is the next event of a run: a step that begins.
func (r *worldRun) step() (world.Request, error) {
	return event(r.id, world.StepCreated, fmt.Sprintf("step_%08d", r.n.Add(1)), fields{"stepName": "pay", "input": "0123456789"})
}

func (r *worldRun) hook() (world.Request, error) {
	n := r.n.Add(1)
	return event(r.id, world.HookCreated, fmt.Sprintf("hook_%s_%08d", r.id, n), fields{"token": fmt.Sprint(r.id, "-", n)})
}

func events(ctx context.Context, c *Child) error {
	s, err := openStore(ctx, c.site)
	if err != nil {
		return err
	}
	defer s.Close()
	one, err := world.Open(s, &world.Options{MaxEvents: 1_000_000})
	if err != nil {
		return err
	}
	two, err := world.Open(s, &world.Options{MaxEvents: 1_000_000})
	if err != nil {
		return err
	}
	add := func(w *world.World, next func() (world.Request, error)) error {
		e, err := next()
		if err == nil {
			_, err = w.Create(ctx, e)
		}
		return err
	}

	r, err := begin(ctx, one, "alone")
	if err != nil {
		return err
	}
	if _, _, err := repeat(c.Warm, func() error { return add(one, r.step) }); err != nil {
		return err
	}
	n, took, err := repeat(c.Load/2, func() error { return add(one, r.step) })
	if err != nil {
		return err
	}
	c.report("creates/s", float64(n)/took.Seconds())
	if r, err = begin(ctx, one, "two"); err != nil {
		return err
	}
	n, took, err = crowded(ctx, c.Load/2, 2, func(i int) error { return add([]*world.World{one, two}[i], r.step) })
	if err != nil {
		return err
	}
	c.report("creates/s, from two servers", float64(n)/took.Seconds())
	if err := c.worldOverHTTP(ctx, s, one); err != nil {
		return err
	}

	for _, size := range []struct {
		of   string
		n    int
		next func(r *worldRun) (world.Request, error)
	}{{"events", 10_000, (*worldRun).step}, {"hooks", 1000, (*worldRun).hook}} {
		r, err := begin(ctx, one, size.of)
		if err != nil {
			return err
		}
		var parts [10]time.Duration
		for i := range parts {
			began := time.Now()
			for range size.n / len(parts) {
				if err := add(one, func() (world.Request, error) { return size.next(r) }); err != nil {
					return err
				}
			}
			parts[i] = time.Since(began)
		}
		c.report(fmt.Sprintf("time of the last tenth of %d %s, of the first tenth's", size.n, size.of), parts[9].Seconds()/parts[0].Seconds())
		began := time.Now()
		n, err := countEvents(ctx, one, r.id)
		if err != nil || n != size.n+2 {
			return fmt.Errorf("%d events of %d: %w", n, size.n+2, err)
		}
		c.report(fmt.Sprintf("list of a run with %d %s, without data, ms", size.n, size.of), milliseconds(time.Since(began)))
	}

	var ends []time.Duration
	for i := range c.Repeat {
		r, err := begin(ctx, one, fmt.Sprint("ends-", i))
		if err != nil {
			return err
		}
		for range 250 {
			if err := add(one, r.hook); err != nil {
				return err
			}
		}
		end, err := event(r.id, world.RunCompleted, "", fields{"output": 1})
		if err != nil {
			return err
		}
		began := time.Now()
		if _, err := one.Create(ctx, end); err != nil {
			return err
		}
		ends = append(ends, time.Since(began))
	}
	c.reportLatency("end of a run with 250 hooks", ends)
	return nil
}

// countEvents returns how many events of a run there are. It asks for pages of the most items.
func countEvents(ctx context.Context, w *world.World, run string) (n int, err error) {
	page := world.Page{Limit: 1000, Order: world.Ascending}
	for {
		l, err := w.Events(ctx, run, page, world.ResolveNone)
		if err != nil {
			return n, err
		}
		n += len(l.Data)
		if !l.HasMore {
			return n, nil
		}
		page.Cursor = l.Tail
	}
}

// worldOverHTTP measures events of one run, one at a time, from a client of a server on the loopback interface.
func (c *Child) worldOverHTTP(ctx context.Context, s storage.Storage, w *world.World) error {
	r, err := begin(ctx, w, "over-http")
	if err != nil {
		return err
	}
	served, err := public.Open(s, &public.Options{MaxEvents: 1_000_000})
	if err != nil {
		return err
	}
	defer served.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: served.Handler()}
	go srv.Serve(listener)
	defer srv.Close()
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	create := func() error {
		e, err := r.step()
		if err != nil {
			return err
		}
		body, err := cbor.Marshal(fields{"runId": e.RunID, "data": fields{
			"eventType": e.Type, "correlationId": e.Correlation, "specVersion": e.Spec, "eventData": cbor.RawMessage(e.Data),
		}})
		if err != nil {
			return err
		}
		q, err := http.NewRequestWithContext(ctx, "POST", "http://"+listener.Addr().String()+"/v1/world/events/create", bytes.NewReader(body))
		if err != nil {
			return err
		}
		q.Header.Set("Content-Type", "application/cbor")
		a, err := transport.RoundTrip(q)
		if err != nil {
			return err
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		if err == nil && a.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d: %s", a.StatusCode, text)
		}
		return err
	}
	if _, _, err := repeat(c.Warm, create); err != nil {
		return err
	}
	n, took, err := repeat(c.Load/2, create)
	if err == nil {
		c.report("creates/s, over HTTP", float64(n)/took.Seconds())
	}
	return err
}
