package run

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/storage"
)

// An Env is the part of an engine that never changes. Whatever works on the same store for
// the same engine has a copy of it. A Tx and a replay have one that differs in a few fields.
type Env struct {
	Settings
	Store      storage.Storage
	Workflows  map[string]*Definition
	Activities []activity.Definition // of Config.Activities
	Codecs     payload.Codecs
	Log        *slog.Logger
	Now        func() time.Time       // reads the wall clock; with Read, the only access to it
	Read       func() journal.Reading // reads the wall clock and the monotonic clock
	NewID      func() string          // returns a ULID; the only place that makes one
	Base       context.Context        // of calls to the store for which no caller waits

	MaxPayload int // bytes of one payload
	MaxBytes   int // of a checkpoint's events, not counting the last
	MaxOps     int // operations and conditions of a batch

	ByGeneration bool          // new workflows have their checkpoints under their generations, see meta.SettleMode
	Opening      string        // identifies this opening of an exclusive store; "": the store is shared
	Rehearsing   bool          // only workflow functions are run
	Closing      chan struct{} // closed by Close; nil: this is part of a transaction, and never closed

	// Staged: Store is a transaction of the host, who may roll it back. Nothing that is done is told
	// or logged, and what a call rests on when it writes nothing is a condition of the transaction.
	Staged bool
}

// Settings are the fields of Config that are plain values, with their defaults.
type Settings struct {
	Ownership          weft.Ownership
	EngineName         string
	Deployment         string
	Served             []weft.Queue // Config.Queues
	MaxRunsInMemory    int
	ParkAfter          time.Duration
	PollInterval       time.Duration
	LeaseTTL           time.Duration
	StopTimeout        time.Duration
	SignalIDRetention  time.Duration
	TombstoneRetention time.Duration
	Retention          weft.Retention
	Archive            func(ctx context.Context, i weft.Info, history io.Reader) error // nil: workflows are not archived
	Events             weft.Events                                                     // see Guarded
	Propagator         weft.Propagator
}

// Refused returns ErrClosed after Close.
func (e *Env) Refused() error {
	if waiting.Closed(e.Closing) {
		return weft.ErrClosed
	}
	return nil
}

// Rests has the transaction of the host, if e is part of one, depend on conditions: a call
// succeeds without a write because of them. storage.ErrConflict means that they do not hold any
// more. Outside of a transaction nothing can be built on the answer, and Rests does nothing.
func (e *Env) Rests(ctx context.Context, conditions ...storage.Condition) error {
	if !e.Staged {
		return nil
	}
	return e.Store.Commit(ctx, storage.Batch{If: conditions})
}

// Types returns the names of the workflows that e has, sorted.
func (e *Env) Types() []string { return slices.Sorted(maps.Keys(e.Workflows)) }

// Versions returns the newest versions of changes that e has, by workflow and change.
func (e *Env) Versions() map[string]map[string]int {
	var all map[string]map[string]int
	for name, def := range e.Workflows {
		if len(def.Versions) > 0 {
			if all == nil {
				all = map[string]map[string]int{}
			}
			all[name] = def.Versions
		}
	}
	return all
}

// Fits returns the definition with which this engine may execute wf, a claimed run or one
// to be started. If the engine may not execute it, Fits returns nil and the reason.
func (e *Env) Fits(wf *journal.Workflow) (def *Definition, why string) {
	if need := wf.Unmet(); need != "" {
		return nil, fmt.Sprintf("a newer release has used %q in it", need)
	}
	if def = e.Workflows[wf.Type]; def == nil {
		return nil, "this engine has no workflow of this name"
	}
	if wf.Deployment != "" && wf.Deployment != e.Deployment {
		return nil, fmt.Sprintf("it stays on deployment %q", wf.Deployment)
	}
	if unknown := def.Unknown(wf); unknown != nil {
		return nil, unknown.Problem()
	}
	return def, ""
}

// MayDrive reports whether this engine may claim wf in its current state.
func (e *Env) MayDrive(wf *journal.Workflow) bool {
	def, _ := e.Fits(wf)
	return def != nil && !wf.Waits && !wf.Delayed() && e.Serves(wf.Queue)
}

// PerTTL is how many times per LeaseTTL a lease is renewed.
const PerTTL = 3

// Serves reports whether e executes runs of a queue.
func (e *Env) Serves(queue string) bool {
	return queue == "" || slices.ContainsFunc(e.Served, func(q weft.Queue) bool { return q.Name == queue })
}

// Queues returns the names of the queues that e serves, sorted.
func (e *Env) Queues() (names []string) {
	for _, q := range e.Served {
		names = append(names, q.Name)
	}
	slices.Sort(names)
	return names
}

// snap returns a snapshot of v, or nil if v needs none, and the digest of v's plaintext. An error means that there is no
// digest. An error in taking the snapshot is in s.Err, and is returned to whoever uses the snapshot.
func (e *Env) snap(v any) (s *payload.Snapshot, sum [sha256.Size]byte, err error) {
	t := reflect.TypeOf(v)
	if t == nil || !payload.Shares(t) {
		sum, err = payload.DigestOf(v)
		return nil, sum, err
	}
	s = &payload.Snapshot{Of: t, Copy: payload.Copier(t)}
	if s.Copy != nil {
		s.Value = s.Copied(reflect.ValueOf(v))
		sum, err = payload.DigestOf(v)
		return s, sum, err
	}
	if s.Encoded, s.Err = e.Codecs.Copied(e.Base, v); s.Err != nil {
		return s, sum, s.Err
	}
	if s.Encoded.Codec == "" {
		return s, sha256.Sum256(s.Encoded.Data), nil
	}
	sum, err = payload.DigestOf(v)
	return s, sum, err
}
