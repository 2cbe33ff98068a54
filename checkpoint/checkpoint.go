package checkpoint

import (
	"time"
)

// A Checkpoint is one commit of a run: the events that it made durable, in order.
type Checkpoint struct {
	Number uint64
	Time   time.Time // never before that of the checkpoint before
	Owner  string    // the incarnation that wrote it
	Epoch  uint64    // the number of the checkpoint by which it claimed the run
	Events []Event
}

// An Event is something that a run learned.
type Event struct {
	Kind      Kind   `cbor:"1,keyasint" json:"kind"`
	Operation string `cbor:"2,keyasint,omitempty" json:"operation,omitempty"` // its place in the workflow: "3"
	Of        string `cbor:"3,keyasint,omitempty" json:"of,omitempty"`        // what the operation is: "activity", "step", "transaction", "timer", "receive", "send", "branch", "child", "detached", "compensation", "hook", "disposal", "closing", "update"
	Name      string `cbor:"4,keyasint,omitempty" json:"name,omitempty"`
	Attempt   int    `cbor:"5,keyasint,omitempty" json:"attempt,omitempty"`
	Result    []byte `cbor:"6,keyasint,omitempty" json:"result,omitempty"` // encoded by Codec
	Codec     string `cbor:"7,keyasint,omitempty" json:"codec,omitempty"`  // "" is JSON
	Error     string `cbor:"8,keyasint,omitempty" json:"error,omitempty"`
	Stack     string `cbor:"9,keyasint,omitempty" json:"stack,omitempty"`     // of a panic
	Sentinel  string `cbor:"10,keyasint,omitempty" json:"sentinel,omitempty"` // text of the user's sentinel that the error is
	Due       int64  `cbor:"11,keyasint,omitempty" json:"due,omitempty"`      // of the next attempt, in microseconds since 1970
	SignalID  string `cbor:"12,keyasint,omitempty" json:"signalID,omitempty"`
	By        string `cbor:"13,keyasint,omitempty" json:"by,omitempty"`
	Why       string `cbor:"14,keyasint,omitempty" json:"why,omitempty"`
	Child     string `cbor:"15,keyasint,omitempty" json:"child,omitempty"`    // the id of a workflow that was started, or that has the token of a hook
	Key       string `cbor:"16,keyasint,omitempty" json:"key,omitempty"`      // idempotency key of an attempt that leaves; the ID of an update or of a hook
	Input     []byte `cbor:"17,keyasint,omitempty" json:"input,omitempty"`    // digest of its input's plaintext, or of another operation's the first 8 bytes
	Category  string `cbor:"18,keyasint,omitempty" json:"category,omitempty"` // of a failure: an activity.Category
	Other     string `cbor:"19,keyasint,omitempty" json:"other,omitempty"`    // of a contradiction, the second observation
	Branch    string `cbor:"20,keyasint,omitempty" json:"branch,omitempty"`   // the names of the operation's branch and of those around it: "a/b"; "" is the main one
	Which     string `cbor:"21,keyasint,omitempty" json:"which,omitempty"`    // of a signal, the workflow it is sent to; of a timer, "sleep" or "limit"
	Version   int    `cbor:"22,keyasint,omitempty" json:"version,omitempty"`  // of the change Name, by which the run goes on
	Seq       uint64 `cbor:"23,keyasint,omitempty" json:"seq,omitempty"`      // of a received signal, its place in the order of acceptance
	Was       []byte `cbor:"24,keyasint,omitempty" json:"-"`                  // of a hook, its record before; none: there was none
}

// A Kind is the kind of an event.
type Kind string

const (
	KindClaimed    Kind = "claimed"    // an engine took the run: By
	KindSkipped    Kind = "skipped"    // the numbers up to the next checkpoint's are not used
	KindDispatched Kind = "dispatched" // an attempt of an activity with a key leaves
	KindNoted      Kind = "noted"      // something of it that is no outcome: Why
	KindStarted    Kind = "started"    // a workflow: Child
	KindAttempted  Kind = "attempted"  // an attempt failed and another is due; of a compensation also if none is
	KindSettled    Kind = "settled"    // an activity or a step has its outcome
	KindFired      Kind = "fired"      // a timer was due
	KindReceived   Kind = "received"   // a signal was consumed
	KindMissed     Kind = "missed"     // no signal came in time
	KindAsked      Kind = "asked"      // to stop: By, Why
	KindActed      Kind = "acted"      // an operator did Name to it: By, Why
	KindHeld       Kind = "held"       // needs a person: Name is the reason
	KindSurvived   Kind = "survived"   // a suspect has shown that it does not kill its process, or not soon
	KindGivenUp    Kind = "given up"   // was under way when the workflow's function returned
	KindParked     Kind = "parked"     // put aside until there is something new
	KindVersioned  Kind = "versioned"  // the run goes on by Version of the change Name
	KindCameBack   Kind = "came back"  // the function, or the attempt of Operation, that needed a person
	KindAccepted   Kind = "accepted"   // an update, with the input Result: Operation executes it
	KindAnswered   Kind = "answered"   // an update is executed; if Error is set, it failed
	KindEnded      Kind = "ended"      // Name is the status
	KindOpened     Kind = "opened"     // a hook: Result has its id and its token
	KindDisposed   Kind = "disposed"   // of a hook: its token is free
	KindClosed     Kind = "closed"     // a stream: Name
	KindContinued  Kind = "continued"  // as new: a life of the run begins, and By has ended the one before

	// KindCompensating: the function ended without success, and its effects are now being
	// undone. Name is the final status to come, and Error the reason.
	KindCompensating Kind = "compensating"
)

// Why a KindNoted without an Operation was recorded: to store values that the function has set.
const (
	AllValues  = "values are stored"
	SomeValues = "values are stored, and more follow"
)

// Why a run was claimed from an owner that shut down cleanly. Otherwise the owner crashed.
const (
	HandedOver = "handed over" // with nothing under way
	CutOff     = "cut off"     // with attempts that nobody waited for
)
