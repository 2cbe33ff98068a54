package membership

import (
	"cmp"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/record"
)

// A Registration is the record of an incarnation: eng:{incarnation}.
type Registration struct {
	Name    string `cbor:"1,keyasint"`
	Opening string `cbor:"2,keyasint,omitempty"` // of an exclusive store
	Since   int64  `cbor:"3,keyasint"`
	Stopped int64  `cbor:"4,keyasint,omitempty"` // when it shut down cleanly
	Nonce   string `cbor:"5,keyasint,omitempty"` // of the last renewal
	TTL     int64  `cbor:"6,keyasint,omitempty"` // how long a renewal is valid, in microseconds
	Dead    bool   `cbor:"7,keyasint,omitempty"` // declared dead by another incarnation
	Cut     bool   `cbor:"8,keyasint,omitempty"` // it shut down cleanly, but interrupted attempts

	Workflows []string `cbor:"9,keyasint,omitempty"` // the types that it runs

	Queues []string `cbor:"15,keyasint,omitempty"` // that it serves

	// Counters at the time of writing. See EngineInfo.
	Takeovers uint64 `cbor:"10,keyasint,omitempty"`
	LostRaces uint64 `cbor:"11,keyasint,omitempty"`
	Fenced    uint64 `cbor:"12,keyasint,omitempty"`
	Unknown   uint64 `cbor:"13,keyasint,omitempty"`

	Deployment string `cbor:"14,keyasint,omitempty"`

	// Clock is the incarnation's wall clock when this was written, Proven the certain
	// time. See witness.
	Clock  int64 `cbor:"16,keyasint,omitempty"`
	Proven int64 `cbor:"17,keyasint,omitempty"`

	// Lists: it keeps all lists of workflows. Earlier releases keep only that of all.
	Lists bool `cbor:"18,keyasint,omitempty"`

	// Session is the proof of its session: see storage.Prover.
	Session string `cbor:"19,keyasint,omitempty"`

	// Versions are the newest versions of changes, by workflow and change, that it has.
	Versions map[string]map[string]int `cbor:"20,keyasint,omitempty"`

	UnknownFields record.Unknown `cbor:"-"`
}

// OpenRegistration reads a registration as it is stored under key.
func OpenRegistration(key, raw []byte) (*Registration, error) {
	r := new(Registration)
	var err error
	r.UnknownFields, err = record.Open(key, raw, journal.Version, r)
	return r, err
}

// Latest returns the latest wall clock time of its incarnation that r records.
func (r *Registration) Latest() time.Time { return journal.Time(max(r.Since, r.Stopped, r.Clock)) }

// Last returns the wall clock time of its incarnation when r was written.
func (r *Registration) Last() time.Time { return journal.Time(cmp.Or(r.Clock, r.Stopped, r.Since)) }

// A Vitality is the state of an incarnation.
type Vitality uint8

const (
	Alive         Vitality = iota
	Dead                   // it did not shut down cleanly
	ShutDown               // it shut down cleanly
	ShutDownEarly          // it shut down cleanly, but interrupted attempts
)

// Why returns how an incarnation ended, as a claim of its runs records it.
func (v Vitality) Why() string {
	switch v {
	case ShutDown:
		return checkpoint.HandedOver
	case ShutDownEarly:
		return checkpoint.CutOff
	}
	return ""
}
