package world

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/weft-go/weft/internal/ids"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// Searched is how many events are searched for an earlier answer to a call.
const Searched = 256

// A Request asks for an event of a run.
type Request struct {
	RunID       string // empty, of a run_created: the world mints it
	Type        EventType
	Correlation string // the id of the step, hook or wait that the event is about
	Spec        int    // the version of the interface that wrote the event
	Data        Value  // the fields of the event, a CBOR map; nil if it has none

	ClientSpec int       // the version of the interface that the client has; 0: any
	OccurredAt time.Time // when it happened by the client's clock; zero: not told
	Resolve    Resolve   // of the events in the answer

	// RequestID names the call. If Retry is set, an earlier call with this name may have been
	// answered already, and is answered again.
	RequestID string
	Retry     bool
	since     uint64 // that of the earlier call is sought among the events behind this number

	// What the client knew of the run. The request is refused, and nothing is written, if SeqInBand is not the number of the
	// run's last event in band, or if an event has come from outside after StateUpdatedAt, in milliseconds since 1970. The
	// client is told of the events after the first EventCount.
	SeqInBand      *uint64
	StateUpdatedAt int64
	EventCount     *uint64
	SinceCursor    string // it gets the events behind this one; "" is none
	SkipPreload    bool   // of a run_started: it does not want the log

	ResumeID   string // of a hook_received: it is written once for each
	OnConflict string // of a hook_created, "error": no event hook_conflict
}

// An Answered is what became of a Request.
type Answered struct {
	Event *Event `json:"event,omitempty"`
	Run   *Run   `json:"run,omitempty"`
	Step  *Step  `json:"step,omitempty"`
	Hook  *Hook  `json:"hook,omitempty"`
	Wait  *Wait  `json:"wait,omitempty"`

	StepCreated bool `json:"stepCreated,omitempty"` // the request has created the step that it started
	MaxEvents   int  `json:"maxEvents,omitempty"`

	// Events of the log that the client does not know, if it asked for them.
	Events  []Event `json:"events,omitempty"`
	Cursor  *string `json:"cursor,omitempty"`
	HasMore *bool   `json:"hasMore,omitempty"`
}

func (r *Request) check() (data, error) {
	switch {
	case r.RunID == "" && r.Type != RunCreated:
		return nil, Invalid("runId is required")
	case len(r.RunID) > keys.MaxID, len(r.Correlation) > keys.MaxID, len(r.ResumeID) > keys.MaxID:
		return nil, Invalid("An id has at most %d bytes", keys.MaxID)
	case len(r.RequestID) > keys.MaxRequestID:
		return nil, Invalid("The id of a request has at most %d bytes", keys.MaxRequestID)
	case !utf8.ValidString(r.RunID), !utf8.ValidString(r.Correlation), !utf8.ValidString(r.ResumeID), !utf8.ValidString(r.RequestID):
		return nil, Invalid("An id must be valid UTF-8: one of the run, the correlation, the resumption or the request is not")
	case r.Spec < 0 || r.Spec > 1000:
		return nil, Invalid("specVersion is %d", r.Spec)
	case r.Correlation == "" && r.Type.correlated():
		return nil, Invalid("%s needs a correlationId", r.Type)
	}
	if r.SinceCursor != "" {
		if _, err := placeOf(r.SinceCursor); err != nil {
			return nil, err
		}
	}
	d, err := openData(r.Data)
	if err != nil {
		return nil, Invalid("eventData: %v", err)
	}
	return d, r.Resolve.check()
}

// correlated reports whether events of a type are about a step, a hook or a wait.
func (t EventType) correlated() bool {
	switch t {
	case StepCreated, StepStarted, StepCompleted, StepFailed, StepRetrying, HookCreated, HookReceived, HookDisposed, WaitCreated, WaitCompleted:
		return true
	}
	return false
}

// creates reports whether a request is to create a step, a hook or a wait. decide has it, and the token of a hook, absent
// as conditions.
func (r *Request) creates(fields data) bool {
	return r.Type == StepCreated || r.Type == StepStarted && fields.has("input") || r.Type == HookCreated || r.Type == WaitCreated
}

// Create appends an event to the log of a run, and changes what it is about, in one commit. An *Error refuses it, and then
// nothing was written. After any other error it may have been written or not: call again with the same RequestID and Retry.
func (w *World) Create(ctx context.Context, r Request) (*Answered, error) {
	fields, err := r.check()
	if err != nil {
		return nil, err
	}
	if r.RunID == "" {
		r.RunID = w.ids.New(ids.Run, w.now())
	}
	r.Data = slices.Clone(r.Data)
	if w.lines == nil { // in a transaction
		return w.create(ctx, &r, fields)
	}
	return w.inLine(ctx, &r, fields)
}

// create creates the event of a request that is acceptable.
//
// At first it presumes some of what it would have to read. A decision to write has all of that among the conditions of its
// commit. Any other decision counts only if it was made on what was read since the request came.
//
// If the commit is refused, the client may have made the call again meanwhile, at another process.
func (w *World) create(ctx context.Context, r *Request, fields data) (*Answered, error) {
	for presume := w.presumes && !r.Retry; ; presume = false {
		s, err := w.state(ctx, r, fields, presume)
		if s.presumed && err != nil {
			continue
		}
		if err != nil {
			return nil, w.failed(r, err)
		}
		switch {
		case s.head == nil || s.head.Removed > 0:
		case !r.Retry:
			r.since = s.head.Seq
		case r.RequestID != "":
			earlier, err := w.earlier(ctx, s)
			if earlier != nil || err != nil {
				return earlier, w.failed(r, err)
			}
		}
		d, err := s.decide()
		if s.presumed && (err != nil || d.answered) {
			continue
		}
		if err != nil {
			return nil, w.failed(r, err)
		}
		if d.answered {
			a, err := w.answer(ctx, d)
			return a, w.failed(r, err)
		}
		if err := d.batch.Check(w.store.Capabilities().MaxBatch); err != nil {
			if s.presumed {
				continue
			}
			return nil, &Error{Status: 413, Code: CodeInvalid, Message: fmt.Sprintf("%s of run %s is too large for the store", r.Type, r.RunID)}
		}
		e := d.events[0] // it has random bits
		err = w.commit(ctx, d.batch, storage.Put(keys.WorldEvent(r.RunID, e.n), e.raw))
		w.heads.keep(r.RunID, s.head, &d.head, err)
		switch {
		case errors.Is(err, storage.ErrConflict): // the run has changed, or a token has
			r.Retry = true
			continue
		case err != nil:
			return nil, w.failed(r, err)
		}
		a, err := w.answer(ctx, d)
		return a, w.failed(r, err)
	}
}

// commit commits a batch until the outcome is certain. What event puts is in no other batch.
func (w *World) commit(ctx context.Context, b storage.Batch, event storage.Op) error {
	return settle.New(ctx, w.store, b, func(ctx context.Context) (bool, error) {
		raw, err := w.get(ctx, event.Key)
		return string(raw) == string(event.Value), err
	})
}

// failed says what an error that is not an Error is about.
func (w *World) failed(r *Request, err error) error {
	if _, ok := errors.AsType[*Error](err); ok || err == nil {
		return err
	}
	return fmt.Errorf("world: create %s of run %q: %w", r.Type, r.RunID, err)
}

// state reads what a request is decided on. What belongs to the run is read after its head: if it changes in
// between, so does the head, and the commit is refused. If presume is true, the head is that which this process wrote
// last, and what the request creates is absent, without a look.
func (w *World) state(ctx context.Context, r *Request, fields data, presume bool) (*state, error) {
	s := &state{Request: r, data: fields, low: random(), limits: w.limits}
	var err error
	if presume {
		s.head = w.heads.last(r.RunID)
		s.presumed = s.head != nil || r.Type == RunCreated
	}
	if !s.presumed {
		if s.head, err = w.headOf(ctx, r.RunID); err != nil {
			return s, err
		}
	}
	s.now = max(w.now().UnixMilli(), 1)
	if s.head == nil || s.head.Removed > 0 {
		return s, nil
	}
	entity := func(kind, id string, open func(raw []byte) error) {
		if err != nil {
			return
		}
		var raw []byte
		if raw, err = w.get(ctx, keys.WorldEntity(r.RunID, kind, id)); raw != nil {
			err = open(raw)
		}
	}
	if presume && r.creates(fields) {
		s.presumed = true
		return s, nil
	}
	switch r.Type {
	case RunCreated:
		s.input, err = w.eventAt(ctx, s.head, s.head.Input)
	case RunCompleted, RunFailed, RunCancelled:
		if s.head.Hooks > 0 {
			s.live, err = w.liveHooks(ctx, r.RunID)
		}
	case StepCreated, StepStarted, StepCompleted, StepFailed, StepRetrying:
		entity(kindStep, r.Correlation, func(raw []byte) (err error) { s.step, err = openStep(r.RunID, r.Correlation, raw); return err })
	case HookCreated, HookReceived, HookDisposed:
		entity(kindHook, r.Correlation, func(raw []byte) (err error) { s.hook, err = openHook(r.RunID, r.Correlation, raw); return err })
		if token, bad := fields.text("token"); r.Type == HookCreated && bad == nil && err == nil {
			if s.holder, err = w.holderOf(ctx, token); err == nil && s.hook == nil {
				s.namesake, err = w.ownerAt(ctx, keys.WorldHookRun(r.Correlation))
			}
		}
		if r.ResumeID != "" {
			var first resumed
			entity(kindResumed, r.ResumeID, func(raw []byte) error {
				if _, err := record.Open(keys.WorldEntity(r.RunID, kindResumed, r.ResumeID), raw, version, &first); err != nil {
					return err
				}
				s.resumed, err = w.eventAt(ctx, s.head, first.Event)
				return err
			})
		}
	case WaitCreated, WaitCompleted:
		entity(kindWait, r.Correlation, func(raw []byte) (err error) { s.wait, err = openWait(r.RunID, r.Correlation, raw); return err })
	case AttrSet:
		if r.Correlation != "" {
			list := keys.WorldCorrelations(r.Correlation, r.RunID)
			list.Limit = 1
			var page []storage.Entry
			page, err = w.store.Scan(ctx, list)
			s.correlated = len(page) > 0
		}
		if err == nil {
			s.attributes, err = w.attributesOf(ctx, r.RunID)
		}
	}
	return s, err
}

// holderOf returns which open hook has a token, or nil.
func (w *World) holderOf(ctx context.Context, token string) (*owner, error) {
	return w.ownerAt(ctx, keys.WorldToken(keys.TokenHash(token)))
}

// ownerAt returns the record of an open hook under a key, or nil.
func (w *World) ownerAt(ctx context.Context, key []byte) (*owner, error) {
	raw, err := w.get(ctx, key)
	if raw == nil {
		return nil, err
	}
	return openOwner(key, raw)
}

func (w *World) attributesOf(ctx context.Context, run string) (*attributes, error) {
	at := keys.WorldAttributes(run)
	raw, err := w.get(ctx, at)
	if raw == nil {
		return nil, err
	}
	a := &attributes{}
	a.unknown, err = record.Open(at, raw, version, a)
	return a, err
}

// liveHooks returns the open hooks of a run.
func (w *World) liveHooks(ctx context.Context, run string) ([]*hook, error) {
	var open []string
	var at [][]byte
	for e, err := range storage.All(ctx, w.store, keys.WorldEntities(run, kindLive)) {
		if err != nil {
			return nil, err
		}
		id, err := keys.Last(e.Key)
		if err != nil {
			return nil, err
		}
		open, at = append(open, id), append(at, keys.WorldEntity(run, kindHook, id))
	}
	raws, err := reads.Get(ctx, w.store, at)
	if err != nil {
		return nil, err
	}
	all := make([]*hook, len(open))
	for i, id := range open {
		if all[i], err = openLive(run, id, raws[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// liveHook returns a hook that a run has in its list of open ones.
func (w *World) liveHook(ctx context.Context, run, id string) (*hook, error) {
	raw, err := w.get(ctx, keys.WorldEntity(run, kindHook, id))
	if err != nil {
		return nil, err
	}
	return openLive(run, id, raw)
}

func openLive(run, id string, raw []byte) (*hook, error) {
	if raw == nil {
		return nil, fmt.Errorf("%w: run %q has no record of its open hook %q", storage.ErrCorrupt, run, id)
	}
	return openHook(run, id, raw)
}

// earlier returns the answer to an earlier call with the same name, or nil.
func (w *World) earlier(ctx context.Context, s *state) (_ *Answered, err error) {
	list, last := keys.WorldEvents(s.RunID), keys.WorldEvent(s.RunID, s.since)
	if s.Correlation != "" {
		list, last = keys.WorldCorrelations(s.Correlation, s.RunID), keys.WorldCorrelated(s.Correlation, s.RunID, s.since)
	}
	list.Start, list.Reverse, list.Limit = append(last, 0), true, keys.PayloadPage
	d := &decision{state: s, head: *s.head, step: s.step, hook: s.hook, wait: s.wait, answered: true}
	for left := Searched; left > 0; left -= list.Limit {
		page, err := w.store.Scan(ctx, list)
		if err != nil {
			return nil, err
		}
		events, err := reads.Gather(page, func(entry storage.Entry) (*event, error) {
			n, err := keys.Number(entry.Key)
			switch {
			case err != nil:
				return nil, err
			case s.Correlation != "":
				return w.eventAt(ctx, s.head, n)
			}
			return openEvent(s.head, n, entry.Value)
		})
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			switch {
			case e.Request != s.RequestID:
			case e.Type == StepCreated && s.Type == StepStarted:
				d.stepCreated = true
			case e.Type == s.Type || e.Type == HookConflict && s.Type == HookCreated:
				d.first = e.n
			}
		}
		if len(page) < list.Limit {
			break
		}
		list.End = page[len(page)-1].Key
	}
	if d.first == 0 {
		return nil, nil
	}
	if s.Type == AttrSet || s.Type == RunCreated {
		if d.attributes, err = w.attributesOf(ctx, s.RunID); err != nil {
			return nil, err
		}
	}
	return w.answer(ctx, d)
}

// answer returns the answer of a decision that was committed, or that changes nothing.
func (w *World) answer(ctx context.Context, d *decision) (*Answered, error) {
	s := d.state
	a := &Answered{StepCreated: d.stepCreated}
	v := view{w: w, resolve: s.Resolve, spec: s.ClientSpec}
	var e *event
	var err error
	switch {
	case !d.answered:
		e = d.events[len(d.events)-1]
	case d.first > 0:
		if e, err = w.eventAt(ctx, &d.head, d.first); err != nil {
			return nil, err
		}
	}
	if e != nil {
		if a.Event, err = v.event(e); err != nil {
			return nil, err
		}
	}
	d.head.run = s.RunID
	v.known = map[uint64]*event{} // so that they are not read again
	for _, e := range d.events {
		v.known[e.n] = e
	}
	switch s.Type {
	case RunCreated, RunStarted, RunCompleted, RunFailed, RunCancelled, AttrSet:
		a.Run, err = v.run(ctx, &d.head)
		a.MaxEvents = w.limits.events
	case StepCreated, StepStarted, StepCompleted, StepFailed, StepRetrying:
		a.Step, err = v.step(ctx, &d.head, d.step)
	case HookCreated, HookReceived, HookDisposed:
		if d.hook != nil {
			a.Hook, err = v.hook(ctx, &d.head, d.hook)
		}
	case WaitCreated, WaitCompleted:
		if d.wait != nil {
			a.Wait = v.wait(&d.head, d.wait)
		}
	}
	if err != nil {
		return nil, err
	}
	return a, w.tell(ctx, d, a)
}

// tell adds to an answer the events that the client does not know.
func (w *World) tell(ctx context.Context, d *decision, a *Answered) error {
	s := d.state
	var after uint64
	switch {
	case s.SinceCursor != "":
		var err error
		if after, err = placeOf(s.SinceCursor); err != nil {
			return err
		}
	case s.EventCount != nil && !d.answered && *s.EventCount+uint64(len(d.events)) < d.head.Seq:
		after = *s.EventCount
	case s.Type == RunStarted && !s.SkipPreload:
	default:
		return nil
	}
	page, err := w.eventsAfter(ctx, &d.head, after, Page{Limit: maxLimit, Cursor: s.SinceCursor, Order: Ascending}, view{w: w, resolve: s.Resolve, spec: s.ClientSpec})
	if err != nil {
		return err
	}
	a.Events, a.HasMore = page.Data, &page.HasMore
	if page.Tail != "" {
		a.Cursor = &page.Tail
	}
	return nil
}

// random returns 40 random bits.
func random() uint64 {
	var b [8]byte
	rand.Read(b[3:])
	return binary.BigEndian.Uint64(b[:])
}

// absent returns nil for storage.ErrNotFound, and other errors as they are.
func absent(err error) error {
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	return err
}
