// Package entry has the records of a ledger: an [Entry] for each key, and a [Sequence] for each source of events
// that have an order. Methods return what an entry and a sequence become, a [Change] is the batch that stores it,
// and [Decide] says what a call for a key does next. Nothing here reads or writes a store.
package entry

import (
	"bytes"
	"fmt"
	"time"

	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// version is the version of the records of this package.
const version = 1

// A State is the state of a key. See idempotency.State, which converts to it.
type State string

const (
	InProgress    State = "in_progress"
	Released      State = "released"
	Sealed        State = "sealed"
	Failed        State = "failed"
	Indeterminate State = "indeterminate"
)

// An Entry is the record of a key: idem:{tenant}:{source type}:{source id}:{hash}.
type Entry struct {
	Key

	State       State  `cbor:"7,keyasint"`
	Fingerprint string `cbor:"8,keyasint"`
	Request     []byte `cbor:"9,keyasint,omitempty"`  // what Fingerprint is of, canonical; none if it is too large to be kept
	RequestWith string `cbor:"10,keyasint,omitempty"` // codec of Request; "": none, it is plain

	FirstSeen int64 `cbor:"11,keyasint"` // times are in microseconds since 1970
	Updated   int64 `cbor:"12,keyasint"` // rises with each write, so that no two are of equal bytes
	SealedAt  int64 `cbor:"13,keyasint,omitempty"`
	Expires   int64 `cbor:"14,keyasint,omitempty"` // also the time in its ExpiringClaim key; 0: there is none

	Owner   []byte `cbor:"15,keyasint,omitempty"` // random, of the last claim
	Holder  string `cbor:"16,keyasint,omitempty"` // of the last claim
	Opening string `cbor:"17,keyasint,omitempty"` // of the exclusive store, at the last claim
	Epoch   uint64 `cbor:"18,keyasint"`           // fencing token of the last claim
	Attempt int    `cbor:"19,keyasint"`
	Doubt   bool   `cbor:"20,keyasint,omitempty"` // an attempt before the last may have had its effect

	EffectID string `cbor:"21,keyasint"` // reserved; final once it is sealed
	Data     []byte `cbor:"22,keyasint,omitempty"`

	Result      []byte `cbor:"23,keyasint,omitempty"`
	ResultWith  string `cbor:"24,keyasint,omitempty"` // codec of Result; "": JSON
	Unavailable string `cbor:"25,keyasint,omitempty"` // why a sealed entry has no result

	Failure  string `cbor:"26,keyasint,omitempty"` // of a failed entry; of an indeterminate one: why
	Sentinel string `cbor:"27,keyasint,omitempty"`

	By  string `cbor:"28,keyasint,omitempty"` // who resolved it
	Why string `cbor:"29,keyasint,omitempty"`

	Keep  int64 `cbor:"32,keyasint,omitempty"` // how long its end is kept, in microseconds
	Again bool  `cbor:"33,keyasint,omitempty"` // the last claim was made under TakeOver: a repetition does no harm

	OrderSource  string `cbor:"30,keyasint,omitempty"` // "": it has no order
	OrderVersion string `cbor:"31,keyasint,omitempty"`

	UnknownFields record.Unknown `cbor:"-"`

	Raw []byte `cbor:"-"` // as it is stored
}

// Open reads the entry of a key.
func Open(k Key, hash string, raw []byte) (*Entry, error) {
	at := k.Place(hash)
	e, err := decode(at, raw)
	if err == nil && e.Key != k {
		return nil, otherKey(at, e)
	}
	return e, err
}

// OpenAt reads the entry that is stored at a place, whose key is not known otherwise.
func OpenAt(at []byte, hash string, raw []byte) (*Entry, error) {
	e, err := decode(at, raw)
	if err != nil {
		return nil, err
	}
	if k := e.Key; k.Hash() != hash || !bytes.Equal(k.Place(hash), at) {
		return nil, otherKey(at, e)
	}
	return e, nil
}

func decode(at, raw []byte) (*Entry, error) {
	e := &Entry{Raw: raw}
	var err error
	if e.UnknownFields, err = record.Open(at, raw, version, e); err != nil {
		return nil, err
	}
	var ends bool
	switch e.State {
	case Sealed, Released, Failed:
		ends = true
	case InProgress, Indeterminate:
	default:
		return nil, fmt.Errorf("%w: record %q has the state %q", storage.ErrCorrupt, at, e.State)
	}
	if ends != (e.Expires > 0) {
		return nil, fmt.Errorf("%w: record %q is %s and expires at %d", storage.ErrCorrupt, at, e.State, e.Expires)
	}
	return e, nil
}

func otherKey(at []byte, e *Entry) error {
	return fmt.Errorf("%w: record %q is of another key: %+v", storage.ErrCorrupt, at, e.Key)
}

// next returns a copy of e to be changed, which is written at a time.
func (e *Entry) next(now time.Time) *Entry {
	n := *e
	n.Raw = nil
	n.Updated = max(now.UnixMicro(), e.Updated+1)
	return &n
}

// Claimed returns the entry of a claim in the place of before, which is nil if there is none. step says why the key is
// claimed, and fingerprint for which request. The caller sets the request, the owner and the order.
func Claimed(k Key, before *Entry, step Step, fingerprint string, now time.Time) *Entry {
	e := &Entry{Key: k, FirstSeen: now.UnixMicro(), Updated: now.UnixMicro()}
	if b := before; b != nil {
		e = b.next(now)
		e.SealedAt, e.Expires, e.Failure, e.Sentinel, e.By, e.Why = 0, 0, "", "", "", ""
		if b.Fingerprint != fingerprint && b.State == Released {
			e.FirstSeen, e.EffectID, e.Data = e.Updated, "", nil // and Attempt counts on
		}
	}
	e.State = InProgress
	e.Attempt++
	e.Doubt = before != nil && before.State != Released && (e.Doubt || step == StepTakeOver || step == StepEvict)
	return e
}

// unheld returns e as nobody's.
func (e *Entry) unheld(now time.Time, s State) *Entry {
	n := e.next(now)
	n.State = s
	n.Result, n.ResultWith, n.Unavailable, n.Failure, n.Sentinel = nil, "", "", "", ""
	return n
}

// Sealed returns e with its result.
func (e *Entry) Sealed(now time.Time, id string, r Result) *Entry {
	n := e.unheld(now, Sealed)
	n.Result, n.ResultWith, n.Unavailable = r.Data, r.Codec, r.Unavailable
	n.Doubt = false
	if id != "" {
		n.EffectID = id
	}
	n.SealedAt = n.Updated
	n.Expires = n.expiry()
	return n
}

// Released returns e so that the next call runs.
func (e *Entry) Released(now time.Time) *Entry {
	n := e.unheld(now, Released)
	n.Doubt = false
	n.Expires = n.expiry()
	return n
}

// Failed returns e so that no call runs.
func (e *Entry) Failed(now time.Time, message, sentinel string) *Entry {
	n := e.unheld(now, Failed)
	n.Doubt = false
	n.Failure, n.Sentinel = message, sentinel
	n.Expires = n.expiry()
	return n
}

// Indeterminate returns e as that of which nobody knows what happened.
func (e *Entry) Indeterminate(now time.Time, why string) *Entry {
	n := e.unheld(now, Indeterminate)
	n.Failure = why
	return n
}

// expiry returns when e, which has just ended, may be forgotten.
func (e *Entry) expiry() int64 {
	const last = 9_999_999_999_999_999 // that a key can have
	return max(min(e.Updated+min(e.Keep, last), last), 1)
}

// A Result is an encoded result, or why there is none.
type Result struct {
	Data        []byte
	Codec       string
	Unavailable string
}

// WhyUnknown says why nobody knows what became of e.
func (e *Entry) WhyUnknown() string {
	if e.State == InProgress {
		return "its holder died, or lost its lease, before the outcome was recorded"
	}
	return e.Failure
}

// Time returns a time of a record, in microseconds since 1970. Zero is no time.
func Time(micro int64) time.Time {
	if micro == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micro)
}
