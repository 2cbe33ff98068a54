package worldhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/queue"
	"github.com/weft-go/weft/internal/world"
	"github.com/weft-go/weft/internal/worldstream"
	"github.com/weft-go/weft/storage"
)

// maxBody is the most bytes that a call may have.
const maxBody = 32 << 20

// mostWait is how long a call waits for messages. Whoever wants to wait longer asks again.
const mostWait = time.Minute

// writePatience is within what time a client must take an answer, or some chunks of a stream.
var writePatience = time.Minute

// A Config is what a handler serves.
type Config struct {
	World   *world.World
	Streams *worldstream.Streams
	Queue   *queue.Queue

	// Deployment returns the active deployment: whose queue is meant if a call names none.
	Deployment func(context.Context) (string, error)
}

// New returns the handler of the routes of a world.
func New(c Config) http.Handler {
	s := &server{c}
	m := http.NewServeMux()
	for path, f := range map[string]func(*call) (any, error){
		"events/create":              s.create,
		"events/get":                 s.event,
		"events/list":                s.events,
		"events/list-by-correlation": s.correlated,
		"runs/get":                   s.run,
		"runs/list":                  s.runs,
		"steps/get":                  s.step,
		"steps/list":                 s.steps,
		"hooks/get":                  s.hook,
		"hooks/by-token":             s.hookByToken,
		"hooks/list":                 s.hooks,
		"streams/write":              s.write,
		"streams/close":              s.closeStream,
		"streams/list":               s.streams,
		"streams/chunks":             s.chunks,
		"streams/info":               s.info,
		"queue/publish":              s.publish,
		"queue/receive":              s.receive,
		"queue/settle":               s.settle,
	} {
		m.HandleFunc("POST /v1/world/"+path, serve(f))
	}
	m.HandleFunc("POST /v1/world/streams/read", s.readStream)
	m.HandleFunc("GET /v1/world/deployment-id", serve(s.deployment))
	m.HandleFunc("POST /v1/world/", func(rw http.ResponseWriter, r *http.Request) {
		respond(rw, r, nil, &world.Error{Status: http.StatusNotFound, Code: world.CodeNotFound, Message: "There is no such call."})
	})
	return m
}

type server struct{ Config }

// A call is a request to a world.
type call struct {
	context.Context
	body    []byte // CBOR
	spec    int    // of the client
	request string
	retry   bool
}

// serve answers a call with what f returns.
func serve(f func(*call) (any, error)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		c, err := read(rw, r)
		var answer any
		if err == nil {
			answer, err = f(c)
		}
		respond(rw, r, answer, err)
	}
}

// respond answers a call with answer, or with why it is refused.
func respond(rw http.ResponseWriter, r *http.Request, answer any, err error) {
	status := http.StatusOK
	if err != nil {
		e := Refusal(err)
		status = e.Status
		if e.RetryAfter > 0 {
			rw.Header().Set("Retry-After", strconv.FormatFloat(math.Ceil(e.RetryAfter.Seconds()), 'f', 0, 64))
		}
		answer = problem{Code: e.Code, Message: e.Message, RetryAfter: e.RetryAfter.Seconds()}
	}
	body, err := encoder.Marshal(answer)
	kind := "application/cbor"
	accept := r.Header.Get("Accept")
	if err == nil && (strings.Contains(accept, "application/json") || isJSON(r) && !strings.Contains(accept, "application/cbor")) {
		kind = "application/json"
		body, err = toJSON(body)
	}
	if err != nil {
		http.Error(rw, "The answer could not be encoded.", http.StatusInternalServerError)
		return
	}
	rw.Header().Set("Content-Type", kind)
	hurry(rw)
	rw.WriteHeader(status)
	_, _ = rw.Write(body) // who is gone calls again
}

// hurry has what is written next fail if the client does not take it. Otherwise a client that reads nothing would keep the
// server from stopping.
func hurry(rw http.ResponseWriter) {
	_ = http.NewResponseController(rw).SetWriteDeadline(time.Now().Add(writePatience)) // some have no deadlines
}

// unhurry ends what hurry began, before an answer waits for more to write. In HTTP/2 a deadline ends an answer also while
// nothing is written.
func unhurry(rw http.ResponseWriter) {
	_ = http.NewResponseController(rw).SetWriteDeadline(time.Time{})
}

// isJSON reports whether a call is JSON. Else it is CBOR.
func isJSON(r *http.Request) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // what cannot be read is CBOR
	return kind == "application/json"
}

// A problem is the answer to a call that is refused.
type problem struct {
	Code       string  `json:"code"`
	Message    string  `json:"message"`
	RetryAfter float64 `json:"retryAfter,omitempty"` // seconds
}

// Refusal returns what answers a call that failed with err.
func Refusal(err error) *world.Error {
	switch {
	case errors.Is(err, queue.ErrInvalid):
		return &world.Error{Status: 400, Code: world.CodeInvalid, Message: err.Error()}
	case errors.Is(err, queue.ErrLost):
		return &world.Error{Status: 409, Code: "lost", Message: err.Error()}
	case errors.Is(err, queue.ErrClosed), errors.Is(err, storage.ErrClosed), errors.Is(err, context.Canceled): // else nobody reads it
		return &world.Error{Status: 503, Code: "closed", Message: "The server is shutting down."}
	}
	return world.Answer(err)
}

func invalid(format string, args ...any) *world.Error {
	return &world.Error{Status: 400, Code: world.CodeInvalid, Message: fmt.Sprintf(format, args...)}
}

// read reads a call.
func read(rw http.ResponseWriter, r *http.Request) (*call, error) {
	c := &call{Context: r.Context(), request: r.Header.Get("Weft-Request"), retry: r.Header.Get("Weft-Retry") != ""}
	if spec := r.Header.Get("Weft-Spec"); spec != "" {
		var err error
		if c.spec, err = strconv.Atoi(spec); err != nil || c.spec < 1 {
			return nil, invalid("Weft-Spec is a version, got %q", spec)
		}
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return c, nil
	}
	var err error
	if c.body, err = io.ReadAll(http.MaxBytesReader(rw, r.Body, maxBody)); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, &world.Error{Status: 413, Code: world.CodeInvalid, Message: fmt.Sprintf("A call has at most %d bytes", maxBody)}
		}
		return nil, invalid("The body could not be read: %v", err)
	}
	if isJSON(r) {
		if c.body, err = FromJSON(c.body); err != nil {
			return nil, invalid("The body is no JSON: %v", err)
		}
	}
	if err := decoder.Wellformed(c.body); err != nil {
		return nil, invalid("The body is no CBOR: %v", err)
	}
	return c, nil
}

// into decodes the call into v.
func (c *call) into(v any) error { return c.with(decoder, v) }

// with decodes the call into v with a decoder.
func (c *call) with(d cbor.DecMode, v any) error {
	if err := d.Unmarshal(c.body, v); err != nil {
		return invalid("The body does not have the fields of this call: %v", err)
	}
	return nil
}

// Numbers of JavaScript may come as floats, so they are read as such.

type createCall struct {
	RunID string `json:"runId"`
	Data  struct {
		EventType     world.EventType `json:"eventType"`
		CorrelationID string          `json:"correlationId"`
		SpecVersion   float64         `json:"specVersion"`
		EventData     cbor.RawMessage `json:"eventData"`
	} `json:"data"`
	Params struct {
		ResolveData    world.Resolve   `json:"resolveData"`
		OccurredAt     cbor.RawMessage `json:"occurredAt"`
		SeqInBand      *float64        `json:"seqInBand"`
		StateUpdatedAt float64         `json:"stateUpdatedAt"`
		EventCount     *float64        `json:"eventCount"`
		SinceCursor    string          `json:"sinceCursor"`
		SkipPreload    bool            `json:"skipPreload"`
		ResumeID       string          `json:"resumeId"`
		OnConflict     string          `json:"onConflict"`
	} `json:"params"`
}

func (s *server) create(c *call) (any, error) {
	var in createCall
	if err := c.into(&in); err != nil {
		return nil, err
	}
	r := world.Request{
		RunID: in.RunID, Type: in.Data.EventType, Correlation: in.Data.CorrelationID, Spec: int(in.Data.SpecVersion), Data: in.Data.EventData,
		ClientSpec: c.spec, Resolve: in.Params.ResolveData, RequestID: c.request, Retry: c.retry,
		SinceCursor: in.Params.SinceCursor, SkipPreload: in.Params.SkipPreload, ResumeID: in.Params.ResumeID, OnConflict: in.Params.OnConflict,
	}
	var err error
	if r.SeqInBand, err = count("seqInBand", in.Params.SeqInBand); err != nil {
		return nil, err
	}
	if r.EventCount, err = count("eventCount", in.Params.EventCount); err != nil {
		return nil, err
	}
	updated, err := count("stateUpdatedAt", &in.Params.StateUpdatedAt)
	if err != nil {
		return nil, err
	}
	r.StateUpdatedAt = int64(*updated)
	var ok bool
	if r.OccurredAt, ok = world.TimeOf(in.Params.OccurredAt); !ok {
		return nil, invalid("params.occurredAt is no time")
	}
	return s.World.Create(c, r)
}

// count returns a number that counts.
func count(name string, f *float64) (*uint64, error) {
	if f == nil {
		return nil, nil
	}
	n := uint64(max(*f, 0))
	if *f < 0 || *f > 1<<52 || float64(n) != *f {
		return nil, invalid("params.%s is no number that counts: %v", name, *f)
	}
	return &n, nil
}

type readCall struct {
	ID            string        `json:"id"`
	RunID         string        `json:"runId"`
	Name          string        `json:"name"` // of a stream
	Token         string        `json:"token"`
	CorrelationID string        `json:"correlationId"`
	WorkflowName  string        `json:"workflowName"`
	Status        world.Status  `json:"status"`
	ResolveData   world.Resolve `json:"resolveData"`
	Pagination    struct {
		Limit     *float64    `json:"limit"`
		Cursor    string      `json:"cursor"`
		SortOrder world.Order `json:"sortOrder"`
	} `json:"pagination"`
}

// reads decodes a call that reads, and its page.
func reads(c *call) (in readCall, p world.Page, err error) {
	if err := c.into(&in); err != nil {
		return in, p, err
	}
	p = world.Page{Cursor: in.Pagination.Cursor, Order: in.Pagination.SortOrder}
	if l := in.Pagination.Limit; l != nil {
		if p.Limit = int(*l); float64(p.Limit) != *l || p.Limit == 0 {
			p.Limit = -1 // which is refused
		}
	}
	return in, p, nil
}

// page gives a client the place of a page: runtimes of 5.x follow a list by its cursor.
func page[T any](c *call, l *world.Listed[T], err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if c.spec >= 4 && l.Tail != "" {
		l.Cursor = &l.Tail
	}
	return l, nil
}

func (s *server) event(c *call) (any, error) {
	in, _, err := reads(c)
	if err != nil {
		return nil, err
	}
	return s.World.Event(c, in.RunID, in.ID, in.ResolveData)
}

func (s *server) events(c *call) (any, error) {
	in, p, err := reads(c)
	if err != nil {
		return nil, err
	}
	l, err := s.World.Events(c, in.RunID, p, in.ResolveData)
	return page(c, l, err)
}

func (s *server) correlated(c *call) (any, error) {
	in, p, err := reads(c)
	if err != nil {
		return nil, err
	}
	l, err := s.World.Correlated(c, in.CorrelationID, in.RunID, p, in.ResolveData)
	return page(c, l, err)
}

func (s *server) run(c *call) (any, error) {
	in, _, err := reads(c)
	if err != nil {
		return nil, err
	}
	return s.World.Run(c, in.ID, in.ResolveData)
}

func (s *server) runs(c *call) (any, error) {
	in, p, err := reads(c)
	if err != nil {
		return nil, err
	}
	l, err := s.World.Runs(c, world.RunFilter{WorkflowName: in.WorkflowName, Status: in.Status}, p, in.ResolveData)
	return page(c, l, err)
}

func (s *server) step(c *call) (any, error) {
	in, _, err := reads(c)
	if err != nil {
		return nil, err
	}
	return s.World.Step(c, in.RunID, in.ID, in.ResolveData)
}

func (s *server) steps(c *call) (any, error) {
	in, p, err := reads(c)
	if err != nil {
		return nil, err
	}
	l, err := s.World.Steps(c, in.RunID, p, in.ResolveData)
	return page(c, l, err)
}

func (s *server) hook(c *call) (any, error) {
	in, _, err := reads(c)
	if err != nil {
		return nil, err
	}
	return s.World.Hook(c, in.ID, in.ResolveData)
}

func (s *server) hookByToken(c *call) (any, error) {
	in, _, err := reads(c)
	if err != nil {
		return nil, err
	}
	return s.World.HookByToken(c, in.Token, in.ResolveData)
}

func (s *server) hooks(c *call) (any, error) {
	in, p, err := reads(c)
	if err != nil {
		return nil, err
	}
	l, err := s.World.Hooks(c, in.RunID, p, in.ResolveData)
	return page(c, l, err)
}

type publishCall struct {
	QueueName string          `json:"queueName"`
	Message   cbor.RawMessage `json:"message"`
	Opts      struct {
		DeploymentID   string          `json:"deploymentId"`
		IdempotencyKey string          `json:"idempotencyKey"`
		Headers        cbor.RawMessage `json:"headers"`
		DelaySeconds   float64         `json:"delaySeconds"`
	} `json:"opts"`
}

func (s *server) publish(c *call) (any, error) {
	var in publishCall
	if err := c.into(&in); err != nil {
		return nil, err
	}
	deployment, err := s.of(c, in.Opts.DeploymentID)
	if err != nil {
		return nil, err
	}
	delay, err := seconds("opts.delaySeconds", in.Opts.DelaySeconds)
	if err != nil {
		return nil, err
	}
	var headers map[string]string
	if in.Opts.Headers != nil {
		if err := few.Unmarshal(in.Opts.Headers, &headers); err != nil {
			return nil, invalid("opts.headers: %v", err)
		}
	}
	id, err := s.Queue.Publish(c, queue.Message{Queue: deployment, Name: in.QueueName, Body: in.Message, Headers: headers, Key: in.Opts.IdempotencyKey, Delay: delay, Request: c.request, Retry: c.retry})
	return map[string]string{"messageId": id}, err
}

type receiveCall struct {
	DeploymentID string  `json:"deploymentId"`
	Max          float64 `json:"max"`
	WaitSeconds  float64 `json:"waitSeconds"`
}

// A delivery is a message that a consumer gets.
type delivery struct {
	MessageID string            `json:"messageId"`
	QueueName string            `json:"queueName"`
	Message   cbor.RawMessage   `json:"message"`
	Headers   map[string]string `json:"headers,omitempty"`
	Attempt   int               `json:"attempt"`
	Receipt   string            `json:"receipt"`
	Until     time.Time         `json:"until"`
	heldFor
}

// heldFor says how long a message is held from the answer on. A client must not take that from Until: it may have another clock.
type heldFor struct {
	HeldSeconds float64 `json:"heldSeconds"`
}

func (s *server) receive(c *call) (any, error) {
	var in receiveCall
	if err := c.into(&in); err != nil {
		return nil, err
	}
	deployment, err := s.of(c, in.DeploymentID)
	if err != nil {
		return nil, err
	}
	wait, err := seconds("waitSeconds", in.WaitSeconds)
	if err != nil {
		return nil, err
	}
	got, err := s.Queue.Receive(c, deployment, int(in.Max), min(wait, mostWait))
	if err != nil {
		return nil, err
	}
	out := make([]delivery, len(got))
	for i, d := range got {
		held := min(max(0, d.Until.Sub(s.Queue.Now())), s.Queue.Visibility) // its clock may have been set since
		out[i] = delivery{d.ID, d.Name, d.Body, d.Headers, d.Attempt, d.Receipt, d.Until, heldFor{held.Seconds()}}
	}
	return map[string]any{"messages": out}, nil
}

type settleCall struct {
	DeploymentID string `json:"deploymentId"`
	Settlements  []struct {
		MessageID    string        `json:"messageId"`
		Receipt      string        `json:"receipt"`
		As           queue.Outcome `json:"as"`
		AfterSeconds float64       `json:"afterSeconds"`
		Uncounted    bool          `json:"uncounted"`
	} `json:"settlements"`
}

// settle settles deliveries. Its answer has a heldFor for each that is extended, null for each that is settled otherwise, and a
// problem for each that is not. If there is one alone, the status is that of its problem.
func (s *server) settle(c *call) (any, error) {
	var in settleCall
	if err := c.with(few, &in); err != nil {
		return nil, err
	}
	deployment, err := s.of(c, in.DeploymentID)
	if err != nil {
		return nil, err
	}
	if len(in.Settlements) == 0 || len(in.Settlements) > mostItems {
		return nil, invalid("A call settles 1 to 1,000 deliveries, got %d", len(in.Settlements))
	}
	all := make([]queue.Settlement, len(in.Settlements))
	for i, one := range in.Settlements {
		after, err := seconds("afterSeconds", one.AfterSeconds)
		if err != nil {
			return nil, err
		}
		all[i] = queue.Settlement{ID: one.MessageID, Receipt: one.Receipt, As: one.As, After: after, Uncounted: one.Uncounted}
	}
	results := make([]any, len(all))
	for i, err := range s.Queue.Settle(c, deployment, all...) {
		if err != nil && len(all) == 1 {
			return nil, err
		}
		switch {
		case err != nil:
			e := Refusal(err)
			results[i] = problem{Code: e.Code, Message: e.Message}
		case all[i].As == queue.Extend:
			results[i] = heldFor{cmp.Or(all[i].After, s.Queue.Visibility).Seconds()}
		}
	}
	return map[string]any{"results": results}, nil
}

func (s *server) deployment(c *call) (any, error) {
	id, err := s.of(c, "")
	return map[string]string{"deploymentId": id}, err
}

// of returns the deployment that a call names, or the active one.
func (s *server) of(c *call, id string) (string, error) { return ActiveOr(c, id, s.Deployment) }

// ActiveOr returns id or, if that is empty, the active deployment. There may be none.
func ActiveOr(ctx context.Context, id string, active func(context.Context) (string, error)) (string, error) {
	if id != "" {
		return id, nil
	}
	id, err := active(ctx)
	if errors.Is(err, weft.ErrNoActiveDeployment) || err == nil && id == "" {
		err = &world.Error{Status: 409, Code: "no_active_deployment", Message: "No active deployment. Activate a deployment before triggering runs."}
	}
	return id, err
}

// seconds returns a duration. It is at most a year.
func seconds(name string, f float64) (time.Duration, error) {
	if !(f >= 0 && f <= world.MostDelay.Seconds()) {
		return 0, invalid("%s is 0 to a year, got %v", name, f)
	}
	return time.Duration(f * float64(time.Second)), nil
}
