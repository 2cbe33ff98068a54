package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/idempotency/internal/clock"
	"github.com/weft-go/weft/idempotency/internal/entry"
	"github.com/weft-go/weft/idempotency/internal/lease"
	"github.com/weft-go/weft/internal/canon"
	"github.com/weft-go/weft/internal/ids"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/storage"
)

// A Codec encodes what a Ledger stores of requests and results. It may encrypt. It is the Codec of engines.
type Codec = weft.Codec

// An Actor is who resolves or forgets a key, and why. Both fields are required.
type Actor = weft.Actor

// A Change is one difference between two requests: an operation of RFC 6902 and a path of RFC 6901.
type Change = canon.Change

// Config configures a Ledger. Storage is required. Zero values select the defaults.
type Config struct {
	// Storage is where records are kept. Ledgers and engines may share a store. The store must support
	// conditionalBatch, atomicBatch and readAfterWrite. The Ledger does not close it.
	Storage storage.Storage

	// Policies are the rules of a file. Zero values are the defaults of DefaultPolicies.
	Policies Policies

	// Lease is how long a holder that gives no sign of life keeps its claims, on a store that several processes share. The
	// default is 30 s, the least 1 s. It is renewed every sixth of that. On an exclusive store nobody has to wait for it.
	Lease time.Duration

	// MaxResult is the largest encoded result in bytes that is stored. The default is 1 MiB, the most
	// a quarter of the store's MaxBatch. A larger result is sealed without the result.
	MaxResult int

	// Codec encodes; the default is weft.JSON. Codecs are those that were used earlier.
	Codec  Codec
	Codecs []Codec

	// Logger gets each decision. The default is slog.Default().
	Logger *slog.Logger

	// Observe, if not nil, is called after each call, in its goroutine; after one whose Run was cut off, perhaps later again in another.
	Observe func(ctx context.Context, r Report)
}

// A Report is what Config.Observe is told of one call of Do.
type Report struct {
	Key       Key
	Hash      string
	Decision  Decision
	EffectID  string
	Attempt   int
	FirstSeen time.Time
	ToSeal    time.Duration // from FirstSeen until the seal, if this call sealed; or zero
	DiffBytes int           // of a conflict
}

// An Info is what is known of a key.
type Info struct {
	Key         Key
	Hash        string
	State       State
	Lapsed      bool // in progress, and its holder is known to be dead
	EffectID    string
	Attempt     int
	Epoch       uint64 // the last fencing token
	FirstSeen   time.Time
	Updated     time.Time
	SealedAt    time.Time
	Expires     time.Time // when it may be forgotten; zero: never
	Failure     string
	Unavailable string // why there is no result, although it is sealed
	By          Actor  // who resolved it
	Err         error  // the record is damaged, or of a newer release; then only Key's Tenant, SourceType and SourceID, and Hash are set
}

// A State is the state of a key.
type State string

const (
	StateInProgress    State = "in_progress"
	StateReleased      State = "released"
	StateSealed        State = "sealed"
	StateFailed        State = "failed"
	StateIndeterminate State = "indeterminate"
)

// A Filter selects keys. Zero fields select all. With SourceType set, Tenant is compared even if
// it is empty; with SourceID set, so are both.
type Filter struct {
	Tenant, SourceType, SourceID string
	State                        State
	Lapsed                       bool // only those in progress whose holder is known to be dead
}

// Defaults and limits of a Config.
const (
	DefaultLease     = 30 * time.Second
	minLease         = time.Second
	DefaultMaxResult = 1 << 20

	maxRequest = 64 << 10 // a larger request is not stored, only its fingerprint
	maxData    = 64 << 10 // of a Reservation
	maxID      = 200      // bytes of an effect's id
)

// A Ledger records effects in a store. Its methods are safe for concurrent use, except for those of
// a Ledger that In returned.
type Ledger struct {
	*core
	on      storage.Storage // the store, or the transaction
	tx      bool
	refused error
}

// A core is what a Ledger and those in transactions have in common.
type core struct {
	config  Config
	store   storage.Storage
	codecs  payload.Codecs
	clock   *clock.Clock
	holders *lease.Holders

	life       context.Context // ends when the ledger is closed
	end        context.CancelFunc
	background sync.WaitGroup

	owing atomic.Int64  // bytes of results that the store has not taken yet
	debts atomic.Int64  // how many in the background have something to write
	turn  chan struct{} // has a token while one of them takes a claim back
	takes atomic.Bool   // the store has taken a claim back since a commit of it failed
	swept reads.Places  // of the keys that are due

	mu      sync.Mutex // guards the fields below
	closed  bool
	calls   sync.WaitGroup // Add only while closed is false
	latches map[string]*latch
	late    reads.Shared[string, *entry.Entry] // of those who came to a latch too late for its entry
	asked   map[string]*asking
}

// New returns a Ledger. Close it when nothing uses it any more. The error joins *ConfigErrors and
// *storage.CapabilityErrors.
func New(c Config) (*Ledger, error) {
	var errs []error
	bad := func(field, problem string, args ...any) {
		errs = append(errs, &ConfigError{"Config." + field, fmt.Sprintf(problem, args...)})
	}
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	if c.Lease < minLease {
		bad("Lease", "is %v, at least %v is needed", c.Lease, minLease)
	}
	if c.Codec == nil {
		c.Codec = weft.JSON
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if payload.IsNil(c.Storage) {
		bad("Storage", "is nil")
	} else {
		for _, needed := range []string{"conditionalBatch", "atomicBatch", "readAfterWrite"} {
			errs = append(errs, storage.Require(c.Storage, "package idempotency", needed))
		}
		switch shared, exclusive := c.Storage.Capabilities().Shared, opening(c.Storage) != ""; {
		case !shared && !exclusive:
			bad("Storage", "is neither Shared nor a storage.Exclusive, so nobody can tell which holders are dead")
		case shared && exclusive:
			bad("Storage", "is Shared and has an Opening, so holders in other processes would be taken for dead")
		}
		most := weft.MaxPayload
		if b := c.Storage.Capabilities().MaxBatch.Bytes; b > 0 {
			most = min(most, b/4)
		}
		switch c.MaxResult = cmp.Or(c.MaxResult, min(DefaultMaxResult, most)); {
		case c.MaxResult < 0:
			bad("MaxResult", "is negative")
		case c.MaxResult > most:
			bad("MaxResult", "is %d, at most %d bytes are possible on this store", c.MaxResult, most)
		}
	}
	codecs := payload.Codecs{Own: c.Codec, ByName: map[string]weft.Codec{weft.JSON.Name(): weft.JSON}}
	for _, codec := range append([]Codec{c.Codec}, c.Codecs...) {
		switch {
		case codec == nil:
			bad("Codecs", "contains nil")
		case codec.Name() == "":
			bad("Codec", "%T has no name", codec)
		default:
			codecs.ByName[codec.Name()] = codec
		}
	}
	errs = append(errs, c.Policies.Check())
	c.Policies = c.Policies.WithDefaults()
	if shortest := min(c.Policies.Webhook(), c.Policies.API()); shortest <= c.Lease {
		bad("Lease", "is %v, it must be shorter than each retention of the Policies, of which one is %v", c.Lease, shortest)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return start(context.Background(), c, codecs, time.Now), nil
}

// opening identifies this opening of an exclusive store. It is empty for any other store.
func opening(s storage.Storage) string {
	if x, ok := storage.As[storage.Exclusive](s); ok {
		return x.Opening()
	}
	return ""
}

// start returns a Ledger that has begun to sweep. ctx is for what runs in the background; wall reads the wall clock.
func start(ctx context.Context, c Config, codecs payload.Codecs, wall func() time.Time) *Ledger {
	core := &core{
		config: c, store: c.Storage, codecs: codecs, clock: &clock.Clock{Wall: wall},
		turn:    make(chan struct{}, 1),
		latches: map[string]*latch{},
		asked:   map[string]*asking{},
	}
	core.life, core.end = context.WithCancel(ctx)
	holders := lease.Config{
		Store: c.Storage, Opening: opening(c.Storage), TTL: c.Lease, Clock: core.clock, Logger: c.Logger,
		NewID: func() string { return ids.ULID(core.time()) },
		Life:  core.life, Go: core.background.Go,
	}
	core.holders = lease.New(holders)
	core.time() // so that a jump is noticed from now on
	l := &Ledger{core: core, on: c.Storage}
	core.background.Go(l.sweeps)
	return l
}

// Close waits for the calls in progress, and ends what runs in the background. Later calls return
// ErrClosed. It does not close the store. It must not be called inside a call, such as in Effect.Run, in Config.Observe or
// in a loop over List, for which it would wait.
func (l *Ledger) Close() error {
	l.mu.Lock()
	was := l.closed
	l.closed = true
	l.mu.Unlock()
	l.calls.Wait()
	l.settleDebts()
	l.end()
	l.background.Wait()
	if !was {
		ctx, cancel := context.WithTimeout(context.Background(), retirePatience)
		defer cancel()
		l.holders.Retire(ctx)
	}
	return nil
}

// owe has f, which has something to write, run in the background.
func (l *core) owe(f func()) {
	l.debts.Add(1)
	l.background.Go(func() {
		defer l.debts.Add(-1)
		f()
	})
}

// settleDebts waits a while for what has something to write.
func (l *core) settleDebts() {
	for end := time.Now().Add(closePatience); l.debts.Load() > 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
}

// closePatience is how long Close waits for a store that does not take what the ledger has to write.
const closePatience = 5 * time.Second

// retirePatience is how long Close tries to remove the lease.
const retirePatience = 5 * time.Second

// Policies returns the policies with their defaults filled in.
func (l *Ledger) Policies() Policies { return l.config.Policies.WithDefaults() }

// Lease returns the lease of the Ledger's claims. Retentions must be longer.
func (l *Ledger) Lease() time.Duration { return l.config.Lease }

// Logger returns where the Ledger logs, for packages on top of it.
func (l *Ledger) Logger() *slog.Logger { return l.config.Logger }

// enter begins a call, which leave ends.
func (l *Ledger) enter(ctx context.Context) error {
	if l.refused != nil {
		return l.refused
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	l.calls.Add(1)
	return nil
}

func (l *Ledger) leave() { l.calls.Done() }

// get returns the entry of a key, or nil.
func (l *Ledger) get(ctx context.Context, k Key, hash string) (*entry.Entry, error) {
	raw, err := l.on.Get(ctx, entry.Key(k).Place(hash))
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("idempotency: read %s: %w", hash, err)
	}
	e, err := entry.Open(entry.Key(k), hash, raw)
	if err != nil {
		return nil, fmt.Errorf("idempotency: read %s: %w", hash, err)
	}
	return e, nil
}

// find returns the entry that is stored at a place and has this hash, or nil.
func (l *Ledger) find(ctx context.Context, at []byte, hash string) (*entry.Entry, error) {
	raw, err := l.on.Get(ctx, at)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return entry.OpenAt(at, hash, raw)
}
