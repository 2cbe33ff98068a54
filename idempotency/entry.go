package idempotency

import (
	"bytes"
	"fmt"
	"time"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// version is the version of the records of this package.
const version = 1

// An entry is the record of a key: idem:{tenant}:{source type}:{source id}:{hash}.
type entry struct {
	Tenant     string `cbor:"1,keyasint,omitempty"`
	SourceType string `cbor:"2,keyasint"`
	SourceID   string `cbor:"3,keyasint,omitempty"`
	Revision   string `cbor:"4,keyasint,omitempty"`
	IndexHash  string `cbor:"5,keyasint,omitempty"`
	Action     string `cbor:"6,keyasint,omitempty"`

	State       State  `cbor:"7,keyasint"`
	Fingerprint string `cbor:"8,keyasint"`
	Request     []byte `cbor:"9,keyasint,omitempty"`  // what Fingerprint is of, canonical; none if it is larger than maxRequest
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

	Keep int64 `cbor:"32,keyasint,omitempty"` // how long its end is kept, in microseconds

	OrderSource  string `cbor:"30,keyasint,omitempty"` // "": it has no order
	OrderVersion string `cbor:"31,keyasint,omitempty"`

	UnknownFields record.Unknown `cbor:"-"`

	raw []byte // as it is stored
}

func (e *entry) key() Key {
	return Key{e.Tenant, e.SourceType, e.SourceID, e.Revision, e.IndexHash, e.Action}
}

// open reads the entry of a key.
func open(k Key, hash string, raw []byte) (*entry, error) {
	at := k.stored(hash)
	e, err := decodeEntry(at, raw)
	if err == nil && e.key() != k {
		return nil, otherKey(at, e)
	}
	return e, err
}

// openAt reads the entry that is stored at a place, whose key is not known otherwise.
func openAt(at []byte, hash string, raw []byte) (*entry, error) {
	e, err := decodeEntry(at, raw)
	if err != nil {
		return nil, err
	}
	if k := e.key(); k.Hash() != hash || !bytes.Equal(k.stored(hash), at) {
		return nil, otherKey(at, e)
	}
	return e, nil
}

func decodeEntry(at, raw []byte) (*entry, error) {
	e := &entry{raw: raw}
	var err error
	if e.UnknownFields, err = record.Open(at, raw, version, e); err != nil {
		return nil, err
	}
	var ends bool
	switch e.State {
	case StateSealed, StateReleased, StateFailed:
		ends = true
	case StateInProgress, StateIndeterminate:
	default:
		return nil, fmt.Errorf("%w: record %q has the state %q", storage.ErrCorrupt, at, e.State)
	}
	if ends != (e.Expires > 0) {
		return nil, fmt.Errorf("%w: record %q is %s and expires at %d", storage.ErrCorrupt, at, e.State, e.Expires)
	}
	return e, nil
}

func otherKey(at []byte, e *entry) error {
	return fmt.Errorf("%w: record %q is of another key: %+v", storage.ErrCorrupt, at, e.key())
}

// stored returns where the entry of k is.
func (k Key) stored(hash string) []byte { return keys.Claim(k.Tenant, k.SourceType, k.SourceID, hash) }

func (k Key) expires(hash string, at int64) []byte {
	return keys.ExpiringClaim(time.UnixMicro(at), k.Tenant, k.SourceType, k.SourceID, hash)
}

// A change is a batch, and the entry as it leaves it; nil if it removes the entry.
type change struct {
	storage.Batch
	key      []byte
	after    *entry
	sequence *sequence // if it also changes that
}

// changing returns the change that replaces before by after. Either may be nil. It is refused
// unless what is stored is before, byte for byte.
func changing(k Key, hash string, before, after *entry) (*change, error) {
	c := &change{key: k.stored(hash), after: after}
	var expired, expires []byte
	if before == nil {
		c.If = append(c.If, storage.Absent(c.key))
	} else {
		c.If = append(c.If, storage.Equal(c.key, before.raw))
		if before.Expires != 0 {
			expired = k.expires(hash, before.Expires)
		}
	}
	if after == nil {
		c.Ops = append(c.Ops, storage.Delete(c.key))
	} else {
		raw, err := record.Seal(c.key, version, after, after.UnknownFields)
		if err != nil {
			return nil, err
		}
		after.raw = raw
		c.Ops = append(c.Ops, storage.Put(c.key, raw))
		if after.Expires != 0 {
			expires = k.expires(hash, after.Expires)
			c.Ops = append(c.Ops, storage.Put(expires, nil))
		}
	}
	if expired != nil && !bytes.Equal(expired, expires) {
		c.Ops = append(c.Ops, storage.Delete(expired))
	}
	return c, nil
}

// next returns a copy of e to be changed, which is written at a time.
func (e *entry) next(now time.Time) *entry {
	n := *e
	n.raw = nil
	n.Updated = max(now.UnixMicro(), e.Updated+1)
	return &n
}

// unheld returns e as nobody's.
func (e *entry) unheld(now time.Time, s State) *entry {
	n := e.next(now)
	n.State = s
	n.Result, n.ResultWith, n.Unavailable, n.Failure, n.Sentinel = nil, "", "", "", ""
	return n
}

// sealed returns e with its result.
func (e *entry) sealed(now time.Time, id string, r result) *entry {
	n := e.unheld(now, StateSealed)
	n.Result, n.ResultWith, n.Unavailable = r.data, r.codec, r.unavailable
	n.Doubt = false
	if id != "" {
		n.EffectID = id
	}
	n.SealedAt = n.Updated
	n.Expires = n.expiry()
	return n
}

// released returns e so that the next call runs.
func (e *entry) released(now time.Time) *entry {
	n := e.unheld(now, StateReleased)
	n.Doubt = false
	n.Expires = n.expiry()
	return n
}

// failed returns e so that no call runs.
func (e *entry) failed(now time.Time, message, sentinel string) *entry {
	n := e.unheld(now, StateFailed)
	n.Doubt = false
	n.Failure, n.Sentinel = message, sentinel
	n.Expires = n.expiry()
	return n
}

// indeterminate returns e as that of which nobody knows what happened.
func (e *entry) indeterminate(now time.Time, why string) *entry {
	n := e.unheld(now, StateIndeterminate)
	n.Failure = why
	return n
}

// expiry returns when e, which has just ended, may be forgotten.
func (e *entry) expiry() int64 {
	const last = 9_999_999_999_999_999 // that a key can have
	return max(min(e.Updated+min(e.Keep, last), last), 1)
}

// A result is an encoded result, or why there is none.
type result struct {
	data        []byte
	codec       string
	unavailable string
}

// info returns what is told of e.
func (e *entry) info(hash string) Info {
	return Info{
		Key: e.key(), Hash: hash, State: e.State,
		EffectID: e.EffectID, Attempt: e.Attempt, Epoch: e.Epoch,
		FirstSeen: micro(e.FirstSeen), Updated: micro(e.Updated), SealedAt: micro(e.SealedAt), Expires: micro(e.Expires),
		Failure: e.Failure, Unavailable: e.Unavailable,
		By: Actor{Name: e.By, Reason: e.Why},
	}
}

func micro(t int64) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMicro(t)
}
