package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/weft-go/weft/internal/ids"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// The defaults of a Config.
const (
	DefaultWindow     = 5 * time.Second
	DefaultVisibility = 30 * time.Second
)

// The most that a message may have, in bytes.
const (
	maxName    = 1000
	maxHeaders = 12 << 10 // with the colon, the blank and the line feed of each; a server of Node takes 16 KiB, in which others are, too
)

// Errors to test with errors.Is.
var (
	// ErrInvalid means that an argument is not acceptable. Nothing was written.
	ErrInvalid = errors.New("queue: invalid")

	// ErrLost means that a message is not held by this delivery any more: its time was over, and
	// another consumer may have it. Nothing was written.
	ErrLost = errors.New("queue: the delivery does not hold its message any more")

	// ErrClosed is returned after Close.
	ErrClosed = errors.New("queue: closed")
)

// A Config is what a Queue needs.
type Config struct {
	Storage storage.Storage
	IDs     *ids.Source

	// Window is how long a key suppresses other messages with it; zero means DefaultWindow.
	Window time.Duration

	// Visibility is how long a consumer holds a message, unless it extends that; zero means
	// DefaultVisibility.
	Visibility time.Duration

	// Now is the wall clock; nil means time.Now.
	Now func() time.Time

	// Overdue is called by Run with a queue whose first message has been due for a minute or longer;
	// nil means that nobody wants to know.
	Overdue func(queue string, since time.Time)

	// Damaged is called with the key of a record that cannot be read, or that the store has no room to change, and
	// why. Its message is passed over; nil means that nobody wants to know.
	Damaged func(key string, err error)

	// Failed is called by Run with an error of the store, because of which keys were not removed or queues not looked at;
	// nil means that nobody wants to know.
	Failed func(err error)
}

// A Queue is one process's view of the queues in a store. Its methods are safe for concurrent use.
type Queue struct {
	Config

	life context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup // goroutines that Close waits for

	keyed    atomic.Int64 // messages published with a key
	sweeping atomic.Bool
	swept    reads.Places

	mu     sync.Mutex // guards the fields below
	closed bool
	lines  map[string]*line
}

// New returns the view of a store's queues. Call Close at the end. A store without conditional batches is
// refused with a *storage.CapabilityError.
func New(c Config) (*Queue, error) {
	if err := storage.Require(c.Storage, "a queue", "conditionalBatch"); err != nil {
		return nil, err
	}
	c.Window = cmp.Or(c.Window, DefaultWindow)
	c.Visibility = cmp.Or(c.Visibility, DefaultVisibility)
	if c.Window < 0 || c.Visibility < 0 {
		return nil, fmt.Errorf("%w: a window of %v and a visibility of %v: neither may be negative", ErrInvalid, c.Window, c.Visibility)
	}
	if c.IDs == nil {
		c.IDs = new(ids.Source)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Damaged == nil {
		c.Damaged = func(string, error) {}
	}
	if c.Failed == nil {
		c.Failed = func(error) {}
	}
	q := &Queue{Config: c, lines: map[string]*line{}}
	q.life, q.end = context.WithCancel(context.Background())
	return q, nil
}

// Close ends calls of Receive with ErrClosed, and waits for what was begun. It does not close the store.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.end()
	q.work.Wait()
}

// begin starts a goroutine that Close waits for. It reports whether it did: not after Close.
func (q *Queue) begin(f func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.work.Go(f)
	return true
}

// now returns the time as records have it.
func (q *Queue) now() time.Time { return q.Now().Truncate(time.Microsecond) }

// A Message is what is published.
type Message struct {
	Queue   string            // the deployment that gets it
	Name    string            // where there, for the consumer
	Body    []byte            // as the consumer gets it
	Headers map[string]string // likewise; HTTP has to carry them
	Key     string            // if not empty, it suppresses others with the same key for a while
	Delay   time.Duration     // before the first delivery

	// Request names the call, if it has a key. If Retry is set, an earlier call with this name and key may have been answered
	// already, and is answered again, for a minute at least.
	Request string
	Retry   bool
}

func (m *Message) check() error {
	size, fit := 0, true
	for k, v := range m.Headers {
		size += len(k) + len(v) + len(": \r\n")
		fit = fit && carried(k, v)
	}
	switch {
	case !utf8.ValidString(m.Queue) || !utf8.ValidString(m.Name) || !utf8.ValidString(m.Key) || !utf8.ValidString(m.Request): // no record can have it
		return fmt.Errorf("%w: publish to %q: its name, the message's name, its key and the call's name must be valid UTF-8", ErrInvalid, m.Queue)
	case m.Queue == "" || len(m.Queue) > keys.MaxName:
		return fmt.Errorf("%w: publish: the name of a queue has 1 to %d bytes, got %d", ErrInvalid, keys.MaxName, len(m.Queue))
	case m.Name == "" || len(m.Name) > maxName:
		return fmt.Errorf("%w: publish to %q: the name of a message has 1 to %d bytes, got %d", ErrInvalid, m.Queue, maxName, len(m.Name))
	case len(m.Key) > keys.MaxQueueKey:
		return fmt.Errorf("%w: publish to %q: a key has at most %d bytes, got %d", ErrInvalid, m.Queue, keys.MaxQueueKey, len(m.Key))
	case len(m.Request) > keys.MaxRequestID:
		return fmt.Errorf("%w: publish to %q: the name of a call has at most %d bytes, got %d", ErrInvalid, m.Queue, keys.MaxRequestID, len(m.Request))
	case !fit:
		return fmt.Errorf("%w: publish to %q: a header has a name or a value that HTTP does not carry", ErrInvalid, m.Queue)
	case size > maxHeaders:
		return fmt.Errorf("%w: publish to %q: headers have at most %d bytes, got %d", ErrInvalid, m.Queue, maxHeaders, size)
	case m.Delay < 0:
		return fmt.Errorf("%w: publish to %q: a delay of %v is negative", ErrInvalid, m.Queue, m.Delay)
	}
	return nil
}

// Publish adds a message and returns its id. It waits for no consumer. If a message with the same key
// was published within the Window before or after now, or by the same call, nothing is added, and the id is that message's.
//
// The error wraps ErrInvalid if m is not acceptable or too large for the store. After any other error the
// message may have been published or not.
func (q *Queue) Publish(ctx context.Context, m Message) (id string, err error) {
	id, added, err := q.publish(ctx, q.Storage, m)
	if added {
		q.nudge(m.Queue)
		if m.Key != "" && q.keyed.Add(1)%sweepAfter == 0 {
			q.begin(func() { _, _ = q.sweep(q.life, 0) }) // Run reports what fails
		}
	}
	return id, err
}

// PublishIn is Publish in a transaction of the host: the message is there if and only if the host commits. A
// consumer in this process finds it at its next look.
func (q *Queue) PublishIn(ctx context.Context, tx storage.Tx, m Message) (id string, err error) {
	id, _, err = q.publish(ctx, tx, m)
	return id, err
}

func (q *Queue) publish(ctx context.Context, s storage.Storage, m Message) (id string, added bool, err error) {
	if err := m.check(); err != nil {
		return "", false, err
	}
	id = q.IDs.New(ids.Message, q.now())
	for {
		before, err := readUsed(ctx, s, m.Queue, m.Key)
		if err != nil {
			return "", false, fmt.Errorf("queue: publish to %q: %w", m.Queue, err)
		}
		now := q.now()
		if before != nil && (before.suppresses(now, q.Window) || m.Retry && m.Request != "" && m.Request == before.Request) {
			return before.Message, false, nil
		}
		add, b, err := publishing(m, id, now, q.Window, before)
		if err != nil {
			return "", false, fmt.Errorf("queue: publish to %q: %w", m.Queue, err)
		}
		limit := s.Capabilities().MaxBatch
		err = b.Check(limit)
		if err == nil && !add.fits(limit.Bytes) {
			err = fmt.Errorf("a delivery writes it twice, with %d bytes in all, and a batch has at most %d", add.change(), limit.Bytes)
		}
		if err != nil {
			return "", false, fmt.Errorf("%w: publish to %q: the message is too large for the store: %w", ErrInvalid, m.Queue, err)
		}
		err = settle.Commit(ctx, s, b, nil, func(ctx context.Context) (bool, error) { return published(ctx, s, m, id) })
		if errors.Is(err, storage.ErrConflict) {
			continue // somebody else has published with the key
		}
		if err != nil {
			return "", false, fmt.Errorf("queue: publish to %q: %w", m.Queue, err)
		}
		return id, true, nil
	}
}

// suppresses reports whether another message with the key is not published at a time. A time of publication
// that is ahead of the clock by more than the window is of a wrong clock, and suppresses nothing.
func (u *used) suppresses(now time.Time, window time.Duration) bool {
	return now.Sub(time.UnixMicro(u.At)).Abs() <= window
}

// publishing returns the message that m becomes, and the batch that publishes it. before is what is recorded of its key, or nil.
func publishing(m Message, id string, now time.Time, window time.Duration, before *used) (add *message, b storage.Batch, err error) {
	add = &message{Name: m.Name, Body: m.Body, Headers: m.Headers, Published: now.UnixMicro(), At: now.Add(m.Delay).UnixMicro(), queue: m.Queue, id: id}
	b.If = append(b.If, storage.Absent(add.key()))
	if add.raw, err = record.Seal(add.key(), version, add, nil); err != nil {
		return nil, b, err
	}
	b.Ops = append(b.Ops, storage.Put(add.key(), add.raw))
	if err := put(&b, add.entry(), &mark{}); err != nil || m.Key == "" {
		return add, b, err
	}
	at := keys.QueueKey(m.Queue, m.Key)
	kept := window
	if m.Request != "" { // clients make a call again for 20 s
		kept = max(window, sweepLeast)
	}
	u := &used{Message: id, At: now.UnixMicro(), Until: now.Add(kept).UnixMicro(), Request: m.Request}
	past := keys.QueueKeyPast(time.UnixMicro(u.Until), m.Queue, m.Key)
	if before == nil {
		b.If = append(b.If, storage.Absent(at))
	} else {
		b.If = append(b.If, storage.Equal(at, before.raw))
		u.unknown = before.unknown
		if former := keys.QueueKeyPast(time.UnixMicro(before.Until), m.Queue, m.Key); string(former) != string(past) {
			b.Ops = append(b.Ops, storage.Delete(former))
		}
	}
	raw, err := record.Seal(at, version, u, u.unknown)
	b.Ops = append(b.Ops, storage.Put(at, raw))
	return add, b, errors.Join(err, put(&b, past, &mark{}))
}

// published reports whether the message with this id was published. The record of the key stays when the message
// is acknowledged, and the message when another one has the key.
func published(ctx context.Context, s storage.Storage, m Message, id string) (bool, error) {
	u, err := readUsed(ctx, s, m.Queue, m.Key)
	if err != nil || u != nil && u.Message == id {
		return err == nil, err
	}
	_, err = s.Get(ctx, keys.QueueMessage(m.Queue, id))
	return err == nil, absent(err)
}

// readUsed returns what is recorded of a key, or nil.
func readUsed(ctx context.Context, s storage.Storage, queue, key string) (*used, error) {
	if key == "" {
		return nil, nil
	}
	raw, err := s.Get(ctx, keys.QueueKey(queue, key))
	if err != nil {
		return nil, absent(err)
	}
	return openUsed(queue, key, raw)
}

// absent returns nil for storage.ErrNotFound, and other errors as they are.
func absent(err error) error {
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	return err
}
