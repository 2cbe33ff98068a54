package world

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/queue"
	"github.com/weft-go/weft/internal/told"
	log "github.com/weft-go/weft/internal/world"
	"github.com/weft-go/weft/internal/worldhttp"
	"github.com/weft-go/weft/internal/worldstream"
	"github.com/weft-go/weft/storage"
)

// Defaults of Options.
const (
	DefaultWindow     = queue.DefaultWindow
	DefaultVisibility = queue.DefaultVisibility
	DefaultMaxEvents  = log.DefaultMaxEvents
	DefaultMaxHooks   = log.DefaultMaxHooks
)

// Options are settings of a World. Zero fields mean the defaults.
type Options struct {
	// Deployment returns the id of the active deployment: it gets messages that name none. "" means that none is
	// active, and so do weft.ErrNoActiveDeployment and a nil Deployment. Then each message has to name its deployment. With an
	// engine on the store it may be Engine.ActiveDeployment.
	Deployment func(context.Context) (string, error)

	// Retention is how long a run is kept after its end, with its events and streams. [World.Run] removes it then. Its id is
	// kept for 400 days more, so that a message that a runtime has delayed does not start it again. Zero keeps runs for ever.
	Retention time.Duration

	// Window is how long the key of a message suppresses other messages with the same key. The default is
	// DefaultWindow.
	Window time.Duration

	// Visibility is how long a consumer holds a message, unless it extends that. If the consumer dies, another one gets
	// the message within twice this time. The default is DefaultVisibility.
	Visibility time.Duration

	MaxEvents int // of a run, but for those that end it. The default is DefaultMaxEvents

	// MaxHooks is how many hooks of a run may be open. The end of a run disposes all of them in one batch, so a store with
	// small batches has a lower limit. The default is DefaultMaxHooks.
	MaxHooks int

	// Logger is told of queues that nobody empties and of damaged records. The default is slog.Default().
	Logger *slog.Logger
}

// A World is one process's view of the world in a store. Its methods are safe for concurrent use.
type World struct {
	log        *log.World
	streams    *worldstream.Streams
	queue      *queue.Queue
	deployment func(context.Context) (string, error)
	logger     *slog.Logger
	store      storage.Storage

	in      bool // of In: the fields below are set
	tx      storage.Tx
	refused error
}

// ErrOtherStore is returned by the methods of a World that In returned, if the transaction is on another store than the world.
// Nothing was written.
var ErrOtherStore = errors.New("world: the transaction is on another store than the world")

// Open returns the world in a store. A store without conditional batches is refused with a
// *storage.CapabilityError. Call Close at the end.
func Open(s storage.Storage, o *Options) (*World, error) {
	if o == nil {
		o = &Options{}
	}
	w := &World{deployment: o.Deployment, logger: o.Logger, store: s}
	if w.deployment == nil {
		w.deployment = func(context.Context) (string, error) { return "", nil }
	}
	if w.logger == nil {
		w.logger = slog.Default()
	}
	var reported told.Set
	damaged := func(key string, err error) {
		if reported.First(key, mostTold) {
			w.logger.Error("a record of the world cannot be read, and is passed over", "key", key, "error", err)
		}
	}
	settings := &log.Options{MaxEvents: o.MaxEvents, MaxHooks: o.MaxHooks, Retention: o.Retention, Damaged: damaged}
	var err error
	if w.log, err = log.Open(s, settings); err != nil {
		return nil, err
	}
	w.queue, err = queue.New(queue.Config{
		Storage: s, Window: o.Window, Visibility: o.Visibility, Damaged: damaged,
		Overdue: func(queue string, since time.Time) {
			w.logger.Warn("nobody takes the messages of a queue", "deployment", queue, "since", since)
		},
		Failed: func(err error) {
			w.logger.Warn("the queues of the world could not be looked at", "error", err)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("world: open: %w", err)
	}
	if w.streams, err = worldstream.Open(s, settings); err != nil {
		w.queue.Close()
		return nil, err
	}
	return w, nil
}

// mostTold is how many damaged records are remembered to have been reported.
const mostTold = 1000

// Close ends waiting calls, and waits for what was begun. It does not close the store. Of a World of In it does nothing.
func (w *World) Close() {
	if w.in {
		return
	}
	w.queue.Close()
	w.streams.Close()
}

// sweepEvery is how often Run looks for runs to remove.
const sweepEvery = time.Minute

// Run removes runs that ended longer ago than the Retention, and keys of messages whose window is over, until ctx is done. It
// returns nil then. Several processes may do so at once. What fails is tried again in a minute.
func (w *World) Run(ctx context.Context) error {
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { _ = w.queue.Run(ctx) }) // it ends with ctx, or with Close
	for {
		if _, err := w.log.Sweep(ctx); err != nil && ctx.Err() == nil {
			w.logger.Warn("runs of the world that have expired could not be removed", "error", err)
		}
		if !backoff.Wait(ctx, sweepEvery) {
			return nil
		}
	}
}

// Handler returns the handler of the paths below /v1/world/, which the npm package @weft-go/world calls. It does not
// authenticate anybody.
func (w *World) Handler() http.Handler {
	return worldhttp.New(worldhttp.Config{World: w.log, Streams: w.streams, Queue: w.queue, Deployment: w.deployment})
}

// In returns the world inside tx, a transaction of the host on the same store. What Publish and Resume write there is
// there if and only if the host commits. A consumer in this process finds it at its next look, within a second. If tx is on another
// store, they return ErrOtherStore.
func (w *World) In(tx storage.Tx) *World {
	in := *w
	in.in, in.tx, in.log = true, tx, w.log.In(tx)
	if tx == nil || storage.Innermost(tx.Base()) != storage.Innermost(w.store) {
		in.refused = ErrOtherStore
	}
	return &in
}

// A Message is what Publish publishes.
type Message struct {
	Deployment string            // whose queue gets it; "" means the active one
	QueueName  string            // of the runtime, such as __wkf_workflow_{name}
	Body       []byte            // CBOR
	Headers    map[string]string // for the consumer: such as HTTP carries, at most 12 KiB
	Key        string            // if not empty, it suppresses others with the same key within the Window
	Delay      time.Duration     // before the first delivery
}

// A Published is what became of a message.
type Published struct {
	MessageID string
}

// Publish adds a message to the queue of a deployment. It waits for no consumer. If a message with the same key was published
// within the Window, nothing is added, and the answer is that message's.
//
// An *Error refuses it, and nothing was written. After any other error it may have been published or not.
func (w *World) Publish(ctx context.Context, m Message) (Published, error) {
	if w.refused != nil {
		return Published{}, w.refused
	}
	if err := worldhttp.Wellformed(m.Body); err != nil {
		return Published{}, &Error{Status: http.StatusBadRequest, Code: log.CodeInvalid, Message: "The message is no CBOR: " + err.Error()}
	}
	deployment, err := worldhttp.ActiveOr(ctx, m.Deployment, w.deployment)
	if err != nil {
		return Published{}, public(err)
	}
	q := queue.Message{Queue: deployment, Name: m.QueueName, Body: m.Body, Headers: m.Headers, Key: m.Key, Delay: m.Delay}
	var p Published
	if w.in {
		p.MessageID, err = w.queue.PublishIn(ctx, w.tx, q)
	} else {
		p.MessageID, err = w.queue.Publish(ctx, q)
	}
	return p, public(err)
}

// workflowQueue is what the names of the queues begin with that have a runtime go on with a run.
const workflowQueue = "__wkf_workflow_"

// Resume has the runtime look at a run: it publishes the message that a runtime publishes itself when something has happened to
// the run, with headers. An *Error refuses it: with status 404 if there is no such run, and with 409 if it has ended.
func (w *World) Resume(ctx context.Context, runID string, headers map[string]string) (Published, error) {
	if w.refused != nil {
		return Published{}, w.refused
	}
	r, err := w.log.Run(ctx, runID, log.ResolveNone)
	if err != nil {
		return Published{}, public(err)
	}
	if r.Status.Ended() {
		return Published{}, &Error{Status: http.StatusConflict, Code: log.CodeRunTerminal, Message: fmt.Sprintf("Run %s is %s", runID, r.Status)}
	}
	body, err := cbor.Marshal(map[string]string{"runId": runID})
	if err != nil {
		return Published{}, err
	}
	return w.Publish(ctx, Message{Deployment: r.DeploymentID, QueueName: workflowQueue + r.WorkflowName, Body: body, Headers: headers})
}

// An Error is an answer that refuses a call. Any other error is one of the store, or of the call's context.
type Error struct {
	Status     int    // as in HTTP
	Code       string // for programs
	Message    string // for people
	RetryAfter time.Duration
}

func (e *Error) Error() string { return "world: " + e.Message }

// public returns an error as this package returns it.
func public(err error) error {
	if err == nil {
		return nil
	}
	if e := worldhttp.Refusal(err); e.Status < http.StatusInternalServerError {
		return &Error{Status: e.Status, Code: e.Code, Message: e.Message, RetryAfter: e.RetryAfter}
	}
	if errors.Is(err, queue.ErrClosed) {
		return fmt.Errorf("world: %w", storage.ErrClosed)
	}
	return err
}
