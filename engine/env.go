package engine

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/storage"
)

// An env is the part of an engine that never changes. Whatever works on the same store for
// the same engine has a copy of it. A Tx and a replay have one that differs in a few fields.
type env struct {
	settings
	store      storage.Storage
	workflows  map[string]*definition
	activities []activity.Definition // of Config.Activities
	codecs     codecs
	log        *slog.Logger
	now        func() time.Time          // reads the wall clock; with read, the only access to it
	read       func() checkpoint.Reading // reads the wall clock and the monotonic clock
	newID      func() string             // returns a ULID; the only place that makes one
	base       context.Context           // of calls to the store for which no caller waits

	maxPayload int // bytes of one payload
	maxBytes   int // of a checkpoint's events, not counting the last
	maxOps     int // operations and conditions of a batch

	rehearsing bool          // only workflow functions are run
	closing    chan struct{} // closed by Close
}

// Settings are the fields of Config that are plain values, with their defaults.
type settings struct {
	ownership          Ownership
	engineName         string
	deployment         string
	served             []Queue // Config.Queues
	maxRunsInMemory    int
	parkAfter          time.Duration
	pollInterval       time.Duration
	leaseTTL           time.Duration
	stopTimeout        time.Duration
	signalIDRetention  time.Duration
	tombstoneRetention time.Duration
	events             Events
}

// refused returns ErrClosed after Close.
func (e *env) refused() error {
	if closed(e.closing) {
		return ErrClosed
	}
	return nil
}

// types returns the names of the workflows that e has, sorted.
func (e *env) types() []string { return slices.Sorted(maps.Keys(e.workflows)) }

// fits returns the definition with which this engine may execute wf, a claimed run or one
// to be started. If the engine may not execute it, fits returns nil and the reason.
func (e *env) fits(wf *checkpoint.Workflow) (def *definition, why string) {
	if def = e.workflows[wf.Type]; def == nil {
		return nil, "this engine has no workflow of this name"
	}
	if wf.Deployment != "" && wf.Deployment != e.deployment {
		return nil, fmt.Sprintf("it stays on deployment %q", wf.Deployment)
	}
	return def, ""
}

// mayDrive reports whether this engine may claim wf in its current state.
func (e *env) mayDrive(wf *checkpoint.Workflow) bool {
	def, _ := e.fits(wf)
	return def != nil && !wf.Waits && e.serves(wf.Queue)
}

// perTTL is how many times per LeaseTTL a lease is renewed.
const perTTL = 3

// serves reports whether e executes runs of a queue.
func (e *env) serves(queue string) bool {
	return queue == "" || slices.ContainsFunc(e.served, func(q Queue) bool { return q.Name == queue })
}

// queues returns the names of the queues that e serves, sorted.
func (e *env) queues() (names []string) {
	for _, q := range e.served {
		names = append(names, q.Name)
	}
	slices.Sort(names)
	return names
}

// snap returns a snapshot of v, or nil if v needs none, and the digest of v's plaintext. An
// error means that there is no digest. An error in taking the snapshot is in s.err, and is
// returned to whoever uses the snapshot.
func (e *env) snap(v any) (s *snapshot, sum [sha256.Size]byte, err error) {
	t := reflect.TypeOf(v)
	if t == nil || !shares(t) {
		sum, err = digestOf(v)
		return nil, sum, err
	}
	s = &snapshot{of: t, copy: copier(t)}
	if s.copy != nil {
		s.value = s.copied(reflect.ValueOf(v))
		sum, err = digestOf(v)
		return s, sum, err
	}
	if s.encoded, s.err = e.codecs.copied(e.base, v); s.err != nil {
		return s, sum, s.err
	}
	if s.encoded.codec == "" {
		return s, sha256.Sum256(s.encoded.data), nil
	}
	sum, err = digestOf(v)
	return s, sum, err
}
