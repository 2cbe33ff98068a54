package engine

import (
	"cmp"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/record"
)

// A registration is the record of an incarnation: eng:{incarnation}.
type registration struct {
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

	unknown record.Unknown
}

func openRegistration(key, raw []byte) (*registration, error) {
	r := new(registration)
	var err error
	r.unknown, err = record.Open(key, raw, checkpoint.Version, r)
	return r, err
}

// latest returns the latest wall clock time of its incarnation that r records.
func (r *registration) latest() time.Time { return checkpoint.Time(max(r.Since, r.Stopped, r.Clock)) }

// last returns the wall clock time of its incarnation when r was written.
func (r *registration) last() time.Time { return checkpoint.Time(cmp.Or(r.Clock, r.Stopped, r.Since)) }

// A vitality is the state of an incarnation.
type vitality uint8

const (
	alive         vitality = iota
	dead                   // it did not shut down cleanly
	shutDown               // it shut down cleanly
	shutDownEarly          // it shut down cleanly, but interrupted attempts
)

// why returns how an incarnation ended, as a claim of its runs records it.
func (v vitality) why() string {
	switch v {
	case shutDown:
		return checkpoint.HandedOver
	case shutDownEarly:
		return checkpoint.CutOff
	}
	return ""
}
