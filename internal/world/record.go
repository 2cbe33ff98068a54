package world

import (
	"fmt"
	"time"

	"github.com/weft-go/weft/internal/ids"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// version is the version of the records of this package.
const version = 1

// Kinds of entities, as in keys.
const (
	kindStep    = "st"
	kindHook    = "hk"
	kindWait    = "wt"
	kindResumed = "rs"
	kindLive    = "live"
)

// A Status is that of a run, a step or a wait.
type Status string

// The statuses. Of a wait there are Waiting and Completed.
const (
	Pending   Status = "pending"
	Running   Status = "running"
	Completed Status = "completed"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
	Waiting   Status = "waiting"
)

// Ended reports whether a status is final.
func (s Status) Ended() bool { return s == Completed || s == Failed || s == Cancelled }

// An EventType says what an event does.
type EventType string

// The types of events. HookConflict is written by the world alone.
const (
	RunCreated    EventType = "run_created"
	RunStarted    EventType = "run_started"
	RunCompleted  EventType = "run_completed"
	RunFailed     EventType = "run_failed"
	RunCancelled  EventType = "run_cancelled"
	AttrSet       EventType = "attr_set"
	StepCreated   EventType = "step_created"
	StepStarted   EventType = "step_started"
	StepCompleted EventType = "step_completed"
	StepFailed    EventType = "step_failed"
	StepRetrying  EventType = "step_retrying"
	HookCreated   EventType = "hook_created"
	HookReceived  EventType = "hook_received"
	HookDisposed  EventType = "hook_disposed"
	HookConflict  EventType = "hook_conflict"
	WaitCreated   EventType = "wait_created"
	WaitCompleted EventType = "wait_completed"
)

// All times in records are in milliseconds since 1970, as those of the runtime. 0 is none.

// A head is the record world:{run}.
type head struct {
	Status     Status `cbor:"1,keyasint"`
	Name       string `cbor:"2,keyasint"`
	Deployment string `cbor:"3,keyasint"`
	Spec       int    `cbor:"4,keyasint"`
	Created    int64  `cbor:"5,keyasint"`
	Updated    int64  `cbor:"6,keyasint"`
	Started    int64  `cbor:"7,keyasint,omitempty"` // first
	Ended      int64  `cbor:"8,keyasint,omitempty"`
	Seq        uint64 `cbor:"9,keyasint"`            // number of the last event
	SeqInBand  uint64 `cbor:"10,keyasint"`           // number of the last event that did not come from outside the run
	OutOfBand  int64  `cbor:"11,keyasint,omitempty"` // time of the last one that did
	Last       int64  `cbor:"12,keyasint"`           // time of the last event
	Hooks      int    `cbor:"13,keyasint,omitempty"` // that are open
	Input      uint64 `cbor:"14,keyasint"`           // number of the event that has it
	Outcome    uint64 `cbor:"15,keyasint,omitempty"` // likewise
	Removed    int64  `cbor:"16,keyasint,omitempty"` // then nothing else is left of the run, or will be

	unknown record.Unknown
	run     string
	raw     []byte
}

// An event is the record world:{run}:ev:{n}.
type event struct {
	Type        EventType `cbor:"1,keyasint"`
	Correlation string    `cbor:"2,keyasint,omitempty"`
	Spec        int       `cbor:"3,keyasint,omitempty"`
	Created     int64     `cbor:"4,keyasint"`
	Occurred    int64     `cbor:"5,keyasint,omitempty"` // by the clock of the client
	Low         uint64    `cbor:"6,keyasint"`           // random, the lower 40 bits of its id
	Data        []byte    `cbor:"7,keyasint,omitempty"` // CBOR, as it came
	Error       string    `cbor:"8,keyasint,omitempty"` // of a runtime up to 4.x: a StructuredError, as JSON
	Request     string    `cbor:"9,keyasint,omitempty"` // names the call that wrote it
	Resume      string    `cbor:"10,keyasint,omitempty"`

	run string
	n   uint64
	pos bool // the id of the event is its position
	raw []byte
}

// positionSpec is the lowest spec of runs whose events have their position as id.
const positionSpec = 6

// id returns the id of the event.
func (e *event) id() string {
	if e.pos {
		return positionID(e.n)
	}
	return ids.Numbered(ids.Event, time.UnixMilli(e.Created), e.n, e.Low)
}

// positionID returns the id that says nothing but the number of an event.
func positionID(n uint64) string { return fmt.Sprintf("%s%026d", ids.Event, n) }

// A step is the record world:{run}:st:{id}.
type step struct {
	Name       string `cbor:"1,keyasint"`
	Status     Status `cbor:"2,keyasint"`
	Attempt    int    `cbor:"3,keyasint,omitempty"`
	Created    int64  `cbor:"4,keyasint"`
	Updated    int64  `cbor:"5,keyasint"`
	Started    int64  `cbor:"6,keyasint,omitempty"` // first
	Ended      int64  `cbor:"7,keyasint,omitempty"`
	RetryAfter int64  `cbor:"8,keyasint,omitempty"`
	Input      uint64 `cbor:"9,keyasint"` // numbers of events
	Output     uint64 `cbor:"10,keyasint,omitempty"`
	Failure    uint64 `cbor:"11,keyasint,omitempty"` // the last one

	unknown record.Unknown
	id      string
}

// A hook is the record world:{run}:hk:{id}.
type hook struct {
	Token    string `cbor:"1,keyasint"`
	Created  int64  `cbor:"2,keyasint"`
	Event    uint64 `cbor:"3,keyasint"`           // number of the event that created it
	Disposed int64  `cbor:"4,keyasint,omitempty"` // 0: it is open
	Webhook  bool   `cbor:"5,keyasint,omitempty"`
	System   bool   `cbor:"6,keyasint,omitempty"`

	unknown record.Unknown
	id      string
}

// A wait is the record world:{run}:wt:{id}.
type wait struct {
	Status  Status `cbor:"1,keyasint"`
	Created int64  `cbor:"2,keyasint"`
	Updated int64  `cbor:"3,keyasint"`
	Resume  int64  `cbor:"4,keyasint,omitempty"`
	Ended   int64  `cbor:"5,keyasint,omitempty"`

	unknown record.Unknown
	id      string
}

// An owner is the record wtok:{hash} or whk:{hook}: which open hook of which run it is.
type owner struct {
	Run  string `cbor:"1,keyasint"`
	Hook string `cbor:"2,keyasint"`

	raw []byte
}

// A resumed is the record world:{run}:rs:{resume id}.
type resumed struct {
	Event uint64 `cbor:"1,keyasint"`
}

// An attributes is the record world:{run}:at.
type attributes struct {
	All map[string]string `cbor:"1,keyasint,omitempty"`

	unknown record.Unknown
}

// A mark is the record of an entry whose key says everything.
type mark struct{}

// PutMark adds to b an entry that has nothing but its key.
func PutMark(b *storage.Batch, key []byte) error { return put(b, key, &mark{}, nil) }

func openHead(run string, raw []byte) (h *head, err error) {
	h = &head{run: run, raw: raw}
	h.unknown, err = record.Open(keys.World(run), raw, version, h)
	return h, err
}

func openEvent(h *head, n uint64, raw []byte) (*event, error) {
	e := &event{run: h.run, n: n, pos: h.Spec >= positionSpec, raw: raw}
	_, err := record.Open(keys.WorldEvent(h.run, n), raw, version, e) // an event is never written again
	return e, err
}

func openStep(run, id string, raw []byte) (s *step, err error) {
	s = &step{id: id}
	s.unknown, err = record.Open(keys.WorldEntity(run, kindStep, id), raw, version, s)
	return s, err
}

func openHook(run, id string, raw []byte) (h *hook, err error) {
	h = &hook{id: id}
	h.unknown, err = record.Open(keys.WorldEntity(run, kindHook, id), raw, version, h)
	return h, err
}

func openWait(run, id string, raw []byte) (w *wait, err error) {
	w = &wait{id: id}
	w.unknown, err = record.Open(keys.WorldEntity(run, kindWait, id), raw, version, w)
	return w, err
}

func openOwner(key, raw []byte) (*owner, error) {
	o := &owner{raw: raw}
	_, err := record.Open(key, raw, version, o) // an owner is never changed
	return o, err
}

// put adds to b that v is stored under key, with what a later release has stored there.
func put(b *storage.Batch, key []byte, v any, unknown record.Unknown) error {
	raw, err := record.Seal(key, version, v, unknown)
	b.Ops = append(b.Ops, storage.Put(key, raw))
	return err
}
