package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"runtime"
	"slices"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// Config is what an Engine is made of. Storage is required; zero durations and
// numbers mean the default given.
type Config struct {
	// Storage is where everything is kept. It is not closed by the engine.
	Storage storage.Storage

	// Workflows are what this engine runs. With none it starts, signals and
	// inspects what others run.
	Workflows []Definition

	// Activities are checked by New, and tell Engine.Resolve the types of their results.
	// They need not be here to be used: a workflow names what it uses.
	Activities []activity.Definition

	// Ownership says how two owners of one workflow are kept apart.
	Ownership Ownership

	// Name is a label of this engine, for people. Empty is the host's name.
	Name string

	// Deployment names this build, and may be empty: a release, the hash of a commit.
	// All engines that run the same code have the same, and no others do: runs of a
	// Pinned workflow are driven by engines of one deployment only.
	Deployment string

	// Queues are those that this engine serves, beside what waits in none.
	Queues []Queue

	// MaxRuns is how many runs are in memory at a time: 1,000. Further ones wait
	// in the store until there is room. From three quarters on, a run that only
	// waits leaves memory at once.
	MaxRuns int

	// MaxActivities is how many attempts of activities and steps are under way
	// at a time: 100 for each of GOMAXPROCS, and 1,000 at most. Further ones wait,
	// first come, first served. While goroutines wait long for a processor, only
	// a few begin, whatever this says.
	MaxActivities int

	// ParkAfter is the time after which a run that only waits leaves memory: 5 s;
	// a negative one is at once. It comes back, by a replay, when there is
	// something new: a signal that it waits for, a due time, the end of a child.
	// One whose replay takes long stays for twenty times as long.
	ParkAfter time.Duration

	// PollInterval is the time within which work is found that nobody told this
	// engine of: 1 s. Only what an engine wrote that has been dead for a LeaseTTL when it
	// lands may take longer: ten of these, or a LeaseTTL if that is shorter.
	PollInterval time.Duration

	// LeaseTTL is the time after which an engine on a Shared store that does not
	// renew its lease is succeeded by others: 15 s, and at least 100 ms. Other stores need no leases.
	LeaseTTL time.Duration

	// StopTimeout is how long activities may go on when Run is told to stop: 10 s.
	StopTimeout time.Duration

	// SignalMemory is how long an accepted signal ID is remembered: 24 h.
	SignalMemory time.Duration

	// PurgeMemory is how long the numbers of a purged id are remembered: 30 days.
	PurgeMemory time.Duration

	// Codec encodes what is stored from now on: JSON. Codecs decode what was
	// encoded earlier.
	Codec  Codec
	Codecs []Codec

	// Logger gets what people should know: slog.Default().
	Logger *slog.Logger

	// Events are told what metrics count.
	Events Events
}

// Ownership is a mode of keeping two owners of one workflow apart. The zero
// value is the safe one; unknown values are refused.
type Ownership uint8

const (
	// CASRequired needs a store with ConditionalBatch: every write holds only if
	// nobody else wrote meanwhile.
	CASRequired Ownership = iota

	// SingleOwner is a constraint on deployment: exactly one engine, in one
	// process, has the store, and everything goes through it. It needs
	// AtomicBatch only. A store that it has worked on is refused to CASRequired,
	// and the other way round.
	SingleOwner
)

func (o Ownership) String() string {
	switch o {
	case CASRequired:
		return "cas-required"
	case SingleOwner:
		return "single-owner"
	}
	return fmt.Sprintf("unknown(%d)", uint8(o))
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		if c.Name, _ = os.Hostname(); checkName("", c.Name, keys.MaxName) != nil {
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
		{&c.SignalMemory, 24 * time.Hour},
		{&c.PurgeMemory, 30 * 24 * time.Hour},
	} {
		if *d.field == 0 {
			*d.field = d.preset
		}
	}
	if c.MaxRuns == 0 {
		c.MaxRuns = 1000
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

// leastLease is the shortest LeaseTTL. It is renewed in a third of it: a shorter one is
// lost whenever a processor or the store is busy for a moment.
const leastLease = 100 * time.Millisecond

// check returns all that is wrong with c but the store's abilities, joined.
func (c Config) check() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, &ConfigError{field, fmt.Sprintf(format, args...)})
	}
	if isNil(c.Storage) {
		wrong("Storage", "is nil")
	}
	if c.Ownership > SingleOwner {
		wrong("Ownership", "is unknown: %d", c.Ownership)
	}
	if err := checkName("", c.Name, keys.MaxName); err != nil {
		wrong("Name", "must be 1 to %d bytes of UTF-8", keys.MaxName)
	}
	if c.Deployment != "" && checkName("", c.Deployment, keys.MaxName) != nil {
		wrong("Deployment", "must be at most %d bytes of UTF-8", keys.MaxName)
	}
	for name, d := range map[string]time.Duration{
		"PollInterval": c.PollInterval, "StopTimeout": c.StopTimeout, "LeaseTTL": c.LeaseTTL,
		"SignalMemory": c.SignalMemory, "PurgeMemory": c.PurgeMemory,
	} {
		if d < 0 {
			wrong(name, "is negative: %v", d)
		}
	}
	if c.LeaseTTL >= 0 && c.LeaseTTL < leastLease {
		wrong("LeaseTTL", "is %v, at least %v: a renewal must come in time on a busy machine too", c.LeaseTTL, leastLease)
	}
	for name, n := range map[string]int{"MaxRuns": c.MaxRuns, "MaxActivities": c.MaxActivities} {
		if n < 0 {
			wrong(name, "is negative: %d", n)
		}
	}
	c.checkWorkflows(wrong)
	c.checkQueues(wrong)
	for i, a := range c.Activities {
		if isNil(a) {
			wrong(fmt.Sprintf("Activities[%d]", i), "is nil")
		} else if err := a.Check(); err != nil {
			errs = append(errs, fmt.Errorf("engine: config: Activities[%d]: %w", i, err))
		}
	}
	codecs := append([]Codec{c.Codec}, c.Codecs...)
	for i, codec := range codecs {
		switch {
		case isNil(codec):
			wrong(fmt.Sprintf("Codecs[%d]", i-1), "is nil")
		case checkName("", codec.Name(), keys.MaxName) != nil:
			wrong("Codec", "has a name that is not 1 to %d bytes of UTF-8", keys.MaxName)
		case codec.Name() == JSON.Name() && codec != JSON:
			wrong("Codec", "has the name %q, which belongs to engine.JSON", codec.Name())
		case codec != JSON && slices.ContainsFunc(codecs[:i], func(other Codec) bool { return !isNil(other) && other.Name() == codec.Name() }):
			wrong(fmt.Sprintf("Codecs[%d]", i-1), "has the name %q, as one before it", codec.Name())
		}
	}
	return errors.Join(errs...)
}

func (c Config) checkWorkflows(wrong func(field, format string, args ...any)) {
	seen := map[string]int{}
	for i, w := range c.Workflows {
		field := fmt.Sprintf("Workflows[%d]", i)
		if isNil(w) {
			wrong(field, "is nil")
			continue
		}
		d := w.define()
		if err := checkName("name", d.name, keys.MaxName); err != nil {
			wrong(field+".Name", "must be 1 to %d bytes of UTF-8: %q", keys.MaxName, d.name)
		}
		if d.run == nil {
			wrong(field+".Func", "is nil")
		}
		if d.pinned && c.Deployment == "" {
			wrong(field+".Pinned", "needs a Config.Deployment to stay on")
		}
		texts := map[string]bool{}
		for _, err := range d.errors {
			switch {
			case err == nil:
				wrong(field+".Errors", "has a nil")
			case texts[err.Error()]:
				wrong(field+".Errors", "has two with the text %q", err.Error())
			default:
				texts[err.Error()] = true
			}
		}
		if first, ok := seen[d.name]; ok {
			wrong(field+".Name", "%q is that of Workflows[%d] too", d.name, first)
		}
		seen[d.name] = i
	}
}

// isNil also finds a nil pointer in an interface, which a caller easily makes.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}
