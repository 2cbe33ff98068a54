package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/admission"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/storage"
)

// Config configures an Engine. Storage is required. A zero duration or number
// selects the default.
type Config struct {
	// Storage is the store. The engine does not close it.
	Storage storage.Storage

	// Workflows are those that this engine executes. An engine without any can
	// start, signal and inspect workflows that other engines execute.
	Workflows []Definition

	// Activities are checked by New, and Engine.Resolve gets the types of their
	// results from them. A workflow may also use activities that are not listed.
	Activities []activity.Definition

	// Ownership is how the engine prevents two owners of one workflow from both
	// writing. The default is OwnershipCASRequired.
	Ownership Ownership

	// Name is a label of this engine for operators. The default is the host name.
	Name string

	// Deployment names this build, such as a release or the hash of a commit. It may
	// be empty. All engines that run the same code have the same name, and no others
	// have it. A run of a Pinned workflow is executed by engines of one deployment only.
	Deployment string

	// Queues are those that this engine serves. It always serves runs without a queue.
	Queues []Queue

	// MaxRunsInMemory is the maximum number of runs in memory. The default is 1,000. Further
	// runs wait in the store. When more than three quarters are in use, a run that
	// only waits is parked at once.
	MaxRunsInMemory int

	// MaxActivities is the maximum number of attempts of activities and steps in
	// progress, and of signals that workflows are sending. The default is 100 times
	// GOMAXPROCS, but at most 1,000. Further attempts wait, first come, first served.
	// While the machine is overloaded, so that goroutines wait long for a processor,
	// only a few attempts start, whatever this limit is.
	MaxActivities int

	// ParkAfter is the time after which a run that only waits is removed from memory.
	// The default is 5 s. A negative value means at once. When something happens that
	// the run waits for, such as a signal, a due time or the end of a child, a replay
	// brings it back. A run waits in memory for at least twenty times as long as its
	// replay took, unless more than three quarters of MaxRunsInMemory are in use.
	ParkAfter time.Duration

	// PollInterval is the time within which this engine finds work that it was not
	// notified of. The default is 1 s. A write that takes effect only when its
	// engine has been dead for a LeaseTTL may be found later: after ten PollIntervals
	// or a LeaseTTL, whichever is shorter.
	PollInterval time.Duration

	// LeaseTTL is the time after which other engines on a Shared store take over from
	// an engine that does not renew its lease. The default is 15 s, the minimum is
	// 100 ms. Other stores need no leases. A store that is a storage.Prover, such as
	// PostgreSQL, may prove sooner that an engine is dead.
	LeaseTTL time.Duration

	// StopTimeout is how long activities may continue after the context of Run has
	// ended. The default is 10 s.
	StopTimeout time.Duration

	// SignalIDRetention is how long an accepted signal ID, and the answer to an update, are
	// remembered. The default is 24 h.
	SignalIDRetention time.Duration

	// TombstoneRetention is how long the numbers of a purged id are remembered. The default
	// is 30 days.
	TombstoneRetention time.Duration

	// Retention is how long workflows are kept after they have ended. The default is for ever.
	// Workflow.Retention may differ. Engines remove the workflows of their Workflows, by their own
	// configuration: where that differs, the shortest time applies. See docs/guides/retention.md.
	Retention Retention

	// Archive gets each workflow that is about to be removed, by Retention or by Engine.Purge, with
	// what Engine.Export writes of it. If it returns an error, the workflow stays, and is archived
	// again later.
	//
	// It also gets each life of a run that is about to continue as new, because the history of that
	// life is deleted then. Info.Status is running, and Info.Life says which life it is. If it
	// returns an error, the run does not continue until a later call has returned nil. If the history
	// is damaged, the run is held with ReasonDamaged.
	//
	// The same workflow may be archived several times, also after Archive has returned nil: if the
	// process dies, or the workflow was changed meanwhile. What was archived last is what is
	// removed. Archive is called by several goroutines at once, and each run that continues waits for
	// it. If it ignores the end of its context for StopTimeout, it is abandoned. Engine.Delete does
	// not call it.
	Archive func(ctx context.Context, i Info, history io.Reader) error

	// Codec encodes what this engine stores. The default is JSON. Codecs decode what
	// other codecs encoded earlier.
	Codec  Codec
	Codecs []Codec

	// Logger gets messages for operators. The default is slog.Default().
	Logger *slog.Logger

	// Events are callbacks for metrics and traces.
	Events Events

	// Propagator carries values of the context of a start, such as those of a trace, to the
	// attempts of the run. The default is none.
	Propagator Propagator
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		if c.Name, _ = os.Hostname(); payload.CheckName("", c.Name, keys.MaxName) != nil {
			c.Name = "weft"
		}
	}
	for _, d := range []struct {
		field  *time.Duration
		preset time.Duration
	}{
		{&c.ParkAfter, 5 * time.Second},
		{&c.PollInterval, time.Second},
		{&c.LeaseTTL, 15 * time.Second},
		{&c.StopTimeout, 10 * time.Second},
		{&c.SignalIDRetention, 24 * time.Hour},
		{&c.TombstoneRetention, 30 * 24 * time.Hour},
	} {
		if *d.field == 0 {
			*d.field = d.preset
		}
	}
	if c.MaxRunsInMemory == 0 {
		c.MaxRunsInMemory = 1000
	}
	if c.MaxActivities == 0 {
		c.MaxActivities = min(100*runtime.GOMAXPROCS(0), 1000)
	}
	if c.Codec == nil {
		c.Codec = JSON
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// leastLease is the minimum LeaseTTL. A lease is renewed after a third of it: a shorter
// one would be lost whenever a processor or the store is busy for a moment.
const leastLease = 100 * time.Millisecond

// check returns all problems of c, joined. It does not check the store's capabilities.
func (c Config) check() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, &ConfigError{Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	if payload.IsNil(c.Storage) {
		wrong("Storage", "is nil")
	}
	if c.Ownership > OwnershipSingleOwner {
		wrong("Ownership", "is unknown: %d", c.Ownership)
	}
	if err := payload.CheckName("", c.Name, keys.MaxName); err != nil {
		wrong("Name", "must be 1 to %d bytes of UTF-8", keys.MaxName)
	}
	if c.Deployment != "" && payload.CheckName("", c.Deployment, keys.MaxName) != nil {
		wrong("Deployment", "must be at most %d bytes of UTF-8", keys.MaxName)
	}
	for name, d := range map[string]time.Duration{
		"PollInterval": c.PollInterval, "StopTimeout": c.StopTimeout, "LeaseTTL": c.LeaseTTL,
		"SignalIDRetention": c.SignalIDRetention, "TombstoneRetention": c.TombstoneRetention,
		"Retention.Completed": c.Retention.Completed, "Retention.Failed": c.Retention.Failed, "Retention.Cancelled": c.Retention.Cancelled,
	} {
		switch {
		case d >= 0:
		case strings.HasPrefix(name, "Retention."):
			wrong(name, "is negative: %v; 0 is for ever", d)
		default:
			wrong(name, "is negative: %v", d)
		}
	}
	if c.LeaseTTL >= 0 && c.LeaseTTL < leastLease {
		wrong("LeaseTTL", "is %v, at least %v: renewals must be in time on a busy machine too", c.LeaseTTL, leastLease)
	}
	for name, n := range map[string]int{"MaxRunsInMemory": c.MaxRunsInMemory, "MaxActivities": c.MaxActivities} {
		if n < 0 {
			wrong(name, "is negative: %d", n)
		}
	}
	c.checkWorkflows(wrong)
	c.checkQueues(wrong)
	titles := map[string]int{}
	for i, a := range c.Activities {
		if payload.IsNil(a) {
			wrong(fmt.Sprintf("Activities[%d]", i), "is nil")
			continue
		}
		if err := a.Check(); err != nil {
			errs = append(errs, fmt.Errorf("engine: config: Activities[%d]: %w", i, err))
			continue
		}
		if first, ok := titles[a.Title()]; ok {
			wrong(fmt.Sprintf("Activities[%d].Name", i), "%q is already the name of Activities[%d]", a.Title(), first)
			continue
		}
		titles[a.Title()] = i
	}
	codecs := append([]Codec{c.Codec}, c.Codecs...)
	for i, codec := range codecs {
		switch {
		case payload.IsNil(codec):
			wrong(fmt.Sprintf("Codecs[%d]", i-1), "is nil")
		case payload.CheckName("", codec.Name(), keys.MaxName) != nil:
			wrong("Codec", "has a name that is not 1 to %d bytes of UTF-8", keys.MaxName)
		case codec.Name() == JSON.Name() && codec != JSON:
			wrong("Codec", "has the name %q, which belongs to engine.JSON", codec.Name())
		case codec != JSON && slices.ContainsFunc(codecs[:i], func(other Codec) bool { return !payload.IsNil(other) && other.Name() == codec.Name() }):
			wrong(fmt.Sprintf("Codecs[%d]", i-1), "has the same name as an earlier codec: %q", codec.Name())
		}
	}
	return errors.Join(errs...)
}

func (c Config) checkWorkflows(wrong func(field, format string, args ...any)) {
	seen := map[string]int{}
	for i, w := range c.Workflows {
		field := fmt.Sprintf("Workflows[%d]", i)
		if payload.IsNil(w) {
			wrong(field, "is nil")
			continue
		}
		d := w.define()
		if err := payload.CheckName("name", d.Name, keys.MaxName); err != nil {
			wrong(field+".Name", "must be 1 to %d bytes of UTF-8: %q", keys.MaxName, d.Name)
		}
		if d.Run == nil {
			wrong(field+".Func", "is nil")
		}
		if err := payload.CheckType(c.Codec, d.In); err != nil {
			wrong(field, "%q: its input cannot be stored as it is: %v", d.Name, err)
		}
		if err := payload.CheckType(c.Codec, d.Out); err != nil {
			wrong(field, "%q: its result cannot be stored as it is: %v", d.Name, err)
		}
		if d.Pinned && c.Deployment == "" {
			wrong(field+".Pinned", "needs a Config.Deployment")
		}
		checkVersions(field+".Versions", d.Versions, wrong)
		texts := map[string]bool{}
		for _, err := range d.Errors {
			switch {
			case err == nil:
				wrong(field+".Errors", "contains nil")
			case err.Error() == "":
				wrong(field+".Errors", "has an error without a text, by which errors are recorded")
			case texts[err.Error()]:
				wrong(field+".Errors", "has two errors with the text %q", err.Error())
			default:
				texts[err.Error()] = true
			}
		}
		if first, ok := seen[d.Name]; ok {
			wrong(field+".Name", "%q is already the name of Workflows[%d]", d.Name, first)
		}
		seen[d.Name] = i
	}
}

// Limits of Workflow.Versions.
const (
	mostChanges   = 32
	mostChangeLen = 64
)

func checkVersions(field string, versions map[string]int, wrong func(field, format string, args ...any)) {
	if n := len(versions); n > mostChanges {
		wrong(field, "has %d changes, at most %d", n, mostChanges)
	}
	for _, change := range slices.Sorted(maps.Keys(versions)) {
		switch n := versions[change]; {
		case payload.CheckName("", change, mostChangeLen) != nil:
			wrong(field, "has a change whose name is not 1 to %d bytes of UTF-8: %q", mostChangeLen, change)
		case n < 1:
			wrong(field, "has version %d of the change %q: versions are counted from 1", n, change)
		}
	}
}

// settings returns the plain values of c.
func (c Config) settings() run.Settings {
	return run.Settings{
		Ownership:          c.Ownership,
		EngineName:         c.Name,
		Deployment:         c.Deployment,
		Served:             c.Queues,
		MaxRunsInMemory:    c.MaxRunsInMemory,
		ParkAfter:          c.ParkAfter,
		PollInterval:       c.PollInterval,
		LeaseTTL:           c.LeaseTTL,
		StopTimeout:        c.StopTimeout,
		SignalIDRetention:  c.SignalIDRetention,
		TombstoneRetention: c.TombstoneRetention,
		Retention:          c.Retention,
		Archive:            c.Archive,
		Events:             run.Guarded(c.Events, c.Logger),
		Propagator:         c.Propagator,
	}
}

func (c Config) checkQueues(wrong func(field, format string, args ...any)) {
	for i, q := range c.Queues {
		field := fmt.Sprintf("Queues[%d]", i)
		if err := payload.CheckName("", q.Name, keys.MaxName); err != nil {
			wrong(field+".Name", "must be 1 to %d bytes of UTF-8: %q", keys.MaxName, q.Name)
		}
		if first := slices.IndexFunc(c.Queues, func(other Queue) bool { return other.Name == q.Name }); first < i {
			wrong(field+".Name", "%q is also the name of Queues[%d]", q.Name, first)
		}
		if q.Concurrency < 0 || q.Concurrency > admission.MostSlots {
			wrong(field+".Concurrency", "must be 0 to %d: %d", admission.MostSlots, q.Concurrency)
		}
		switch r := q.Rate; {
		case r.Count < 0 || r.Per < 0:
			wrong(field+".Rate", "is negative")
		case (r.Count == 0) != (r.Per == 0):
			wrong(field+".Rate", "needs a Count and a Per")
		case r.Count > admission.MostRate:
			wrong(field+".Rate", "has a Count of %d, at most %d", r.Count, admission.MostRate)
		}
	}
}

// QueuesOf returns the queues in which runs of these workflows wait by default, without
// limits. It is for package enginetest, not for users.
func QueuesOf(workflows []Definition) (qs []Queue) {
	for _, w := range workflows {
		if payload.IsNil(w) {
			continue // New returns an error for it
		}
		name := w.define().Queue
		if name != "" && !slices.ContainsFunc(qs, func(q Queue) bool { return q.Name == name }) {
			qs = append(qs, Queue{Name: name})
		}
	}
	return qs
}
