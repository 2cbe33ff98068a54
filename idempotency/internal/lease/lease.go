// Package lease says which holders of claims are alive. A [Holder] has claims. On a store that several processes
// share, its lease is renewed, and whoever sees the same bytes of the lease for its whole time, by his own
// monotonic clock, removes it: the holder is dead. The holder itself trusts its lease for that time from when
// it sent the renewal that was stored, which is before anyone could read it. No two clocks are compared. A
// claim can only be committed while the lease of its holder is there, so whoever was found dead claims
// nothing more.
//
// On an exclusive store a lease is of one opening of the store, and dies with it.
package lease

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft/idempotency/internal/clock"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// version is the version of the records of this package.
const version = 1

// A Lease is the record of a holder: idemown:{holder}.
type Lease struct {
	Opening string `cbor:"1,keyasint,omitempty"` // of an exclusive store; "": it is renewed
	Nonce   string `cbor:"2,keyasint"`
	TTL     int64  `cbor:"3,keyasint,omitempty"` // how long a renewal is valid, in microseconds
	Clock   int64  `cbor:"4,keyasint"`           // the holder's wall clock when it was written, in microseconds since 1970

	UnknownFields record.Unknown `cbor:"-"`
}

// Open reads the lease that is stored under a key.
func Open(key, raw []byte) (*Lease, error) {
	l := new(Lease)
	var err error
	l.UnknownFields, err = record.Open(key, raw, version, l)
	return l, err
}

// Config is what Holders need of the ledger. All fields are required, except Opening.
type Config struct {
	Store   storage.Storage
	Opening string        // of an exclusive store; "": it is shared
	TTL     time.Duration // how long a renewal is valid; on a shared store
	Clock   *clock.Clock
	NewID   func() string // names a holder
	Logger  *slog.Logger

	Life context.Context // ends when the ledger is closed: then leases are no longer renewed
	Go   func(f func())  // calls f in a goroutine, which the ledger waits for when it is closed
}

// Holders are those of the claims in a store: the one of this ledger, and what it knows of the others. Its
// methods are safe for concurrent use, but for Retire.
type Holders struct {
	Config
	begun time.Time // when the ledger was opened

	registering chan struct{} // has one element while a holder is registered
	own         atomic.Pointer[Holder]

	mu        sync.Mutex // guards the fields below
	sightings map[string]sighting
	dead      map[string]time.Time // holders that were found dead, and when
}

// New returns the Holders in a store. It neither reads nor writes anything.
func New(c Config) *Holders {
	return &Holders{
		Config: c, begun: time.Now(),
		registering: make(chan struct{}, 1),
		sightings:   map[string]sighting{},
		dead:        map[string]time.Time{},
	}
}
