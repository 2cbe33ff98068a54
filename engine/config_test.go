package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// A named codec is JSON under another name.
type named struct {
	engine.Codec
	name string
}

func (n *named) Name() string { return n.name }

func codec(name string) engine.Codec { return &named{engine.JSON, name} }

// New names every mistake, joined. OWN-27: an unknown ownership is one.
func TestConfigMistakesAreAllNamed(t *testing.T) {
	ok := flow("ok", func(*engine.Run) (string, error) { return "", nil })
	act := &activity.Activity[string, string]{Name: "act", Run: func(context.Context, string) (string, error) { return "", nil }}
	for _, c := range []struct {
		name   string
		change func(*engine.Config)
		fields []string
	}{
		{"storage nil", func(c *engine.Config) { c.Storage = nil }, []string{"Storage"}},
		{"storage typed nil", func(c *engine.Config) { c.Storage = (*memory.Store)(nil) }, []string{"Storage"}},
		{"ownership", func(c *engine.Config) { c.Ownership = 7 }, []string{"Ownership"}},
		{"name too long", func(c *engine.Config) { c.Name = strings.Repeat("n", 101) }, []string{"Name"}},
		{"name not UTF-8", func(c *engine.Config) { c.Name = "\xff" }, []string{"Name"}},
		{"deployment too long", func(c *engine.Config) { c.Deployment = strings.Repeat("d", 101) }, []string{"Deployment"}},
		{"deployment not UTF-8", func(c *engine.Config) { c.Deployment = "\xff" }, []string{"Deployment"}},
		{"pinned to nothing", func(c *engine.Config) {
			w := *ok
			w.Pinned = true
			c.Workflows = []engine.Definition{&w}
		}, []string{"Workflows[0].Pinned"}},
		{"durations", func(c *engine.Config) {
			c.PollInterval, c.StopTimeout, c.SignalIDRetention, c.TombstoneRetention = -1, -1, -1, -1
		}, []string{"PollInterval", "StopTimeout", "SignalIDRetention", "TombstoneRetention"}},
		{"queues", func(c *engine.Config) {
			c.Queues = []engine.Queue{
				{}, {Name: "a", Concurrency: -1}, {Name: "a", Concurrency: 10_001}, {Name: strings.Repeat("q", 101)}, {Name: "\xff"},
				{Name: "b", Rate: activity.Rate{Count: -1, Per: 1}}, {Name: "c", Rate: activity.Rate{Count: 1}},
				{Name: "d", Rate: activity.Rate{Per: 1}}, {Name: "e", Rate: activity.Rate{Count: 1_001, Per: 1}},
				{Name: "f", Concurrency: 10_000, Rate: activity.Rate{Count: 1_000, Per: 1}}, {Name: "g"},
			}
		}, []string{
			"Queues[0].Name", "Queues[1].Concurrency", "Queues[2].Name", "Queues[2].Concurrency", "Queues[3].Name", "Queues[4].Name",
			"Queues[5].Rate", "Queues[6].Rate", "Queues[7].Rate", "Queues[8].Rate",
		}},
		{"workflow nil", func(c *engine.Config) { c.Workflows = []engine.Definition{nil} }, []string{"Workflows[0]"}},
		{"workflow typed nil", func(c *engine.Config) {
			c.Workflows = []engine.Definition{ok, (*engine.Workflow[int, int])(nil)}
		}, []string{"Workflows[1]"}},
		{"workflow empty", func(c *engine.Config) { c.Workflows = []engine.Definition{&engine.Workflow[int, int]{}} },
			[]string{"Workflows[0].Name", "Workflows[0].Func"}},
		{"workflow's name too long", func(c *engine.Config) {
			c.Workflows = []engine.Definition{flow(strings.Repeat("n", 101), func(*engine.Run) (string, error) { return "", nil })}
		}, []string{"Workflows[0].Name"}},
		{"workflow twice", func(c *engine.Config) { c.Workflows = []engine.Definition{ok, ok} }, []string{"Workflows[1].Name"}},
		{"workflow's errors", func(c *engine.Config) {
			w := *ok
			w.Errors = []error{errBroke, nil}
			c.Workflows = []engine.Definition{&w}
		}, []string{"Workflows[0].Errors"}},
		{"workflow's error without a text", func(c *engine.Config) {
			w := *ok
			w.Errors = []error{errors.New("")}
			c.Workflows = []engine.Definition{&w}
		}, []string{"Workflows[0].Errors"}},
		{"workflow's errors of one text", func(c *engine.Config) {
			w := *ok
			w.Errors = []error{errBroke, errors.New("broke")}
			c.Workflows = []engine.Definition{&w}
		}, []string{"Workflows[0].Errors"}},
		{"activity nil", func(c *engine.Config) {
			c.Activities = []activity.Definition{act, nil, (*activity.Activity[int, int])(nil)}
		}, []string{"Activities[1]", "Activities[2]"}},
		{"codec typed nil", func(c *engine.Config) { c.Codecs = []engine.Codec{(*named)(nil)} }, []string{"Codecs[0]"}},
		{"codec without a name", func(c *engine.Config) { c.Codec = codec("") }, []string{"Codec"}},
		{"codec called json", func(c *engine.Config) { c.Codec = codec("json") }, []string{"Codec"}},
		{"codecs of one name", func(c *engine.Config) { c.Codec, c.Codecs = codec("a"), []engine.Codec{codec("a")} }, []string{"Codecs[0]"}},
		{"many", func(c *engine.Config) { c.Storage, c.Ownership, c.PollInterval = nil, 9, -time.Second }, []string{"Storage", "Ownership", "PollInterval"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := engine.Config{Storage: new(memory.Store), Logger: quiet}
			c.change(&cfg)
			_, err := engine.New(cfg)
			var got []string
			for _, e := range leaves(err) {
				var ce *engine.ConfigError
				if !errors.As(e, &ce) {
					t.Errorf("%v is no *ConfigError", e)
					continue
				}
				got = append(got, ce.Field)
			}
			slices.Sort(got)
			slices.Sort(c.fields)
			if !slices.Equal(got, c.fields) {
				t.Errorf("fields %q, want %q; error: %v", got, c.fields, err)
			}
		})
	}
}

func leaves(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range j.Unwrap() {
			all = append(all, leaves(e)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// A mistake in an activity is named with its place and its type.
func TestActivitiesAreChecked(t *testing.T) {
	_, err := engine.New(engine.Config{Storage: new(memory.Store), Activities: []activity.Definition{&activity.Activity[int, int]{Name: "charge"}}})
	var d *activity.DefinitionError
	if !errors.As(err, &d) || d.Activity != "charge" || d.Field != "Run" || !strings.Contains(err.Error(), "Activities[0]") {
		t.Errorf("got %v, want a *activity.DefinitionError about Activities[0]", err)
	}
}

// OWN-5, OWN-10, OWN-11, OWN-12, OWN-13, OWN-14, OWN-15, OWN-16, OWN-17, OWN-18,
// OWN-19, OWN-23, CAP-1, CAP-3, CAP-4, CAP-5, CAP-6: a store without conditional
// batches is refused before anything is done to it, and that is the default.
func TestCASRequiredRefusesAStoreWithoutConditions(t *testing.T) {
	f := storagetest.NewFaulty(storagetest.NoConditions(new(memory.Store)), nil)
	e, err := engine.New(engine.Config{Storage: f, Workflows: []engine.Definition{flow("w", nil2)}, Logger: quiet})
	var c *engine.CheckpointOwnershipCapabilityError
	if !errors.As(err, &c) {
		t.Fatalf("New = %v, want a *CheckpointOwnershipCapabilityError", err)
	}
	if want := (engine.CheckpointOwnershipCapabilityError{Capability: "conditionalBatch", Mode: engine.OwnershipCASRequired, Adapter: "*memory.Store"}); *c != want {
		t.Errorf("got %+v, want %+v", *c, want)
	}
	for _, word := range []string{"conditionalBatch", "cas-required", "*memory.Store"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the text %q does not name %s", err, word)
		}
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v does not wrap errors.ErrUnsupported", err)
	}
	if f.Calls() != 0 || e != nil {
		t.Errorf("%d calls to the store and engine %v, want none", f.Calls(), e)
	}
}

func nil2(*engine.Run) (string, error) { return "", nil }

// A lacking store lacks what it is told to lack.
type lacking struct {
	storage.Storage
	lack func(*storage.Capabilities)
}

func (l lacking) Capabilities() storage.Capabilities {
	c := l.Storage.Capabilities()
	l.lack(&c)
	return c
}
func (l lacking) Unwrap() storage.Storage { return l.Storage }

// CAP-7, CAP-8, CAP-9, OWN-4, OWN-5, OWN-11, OWN-24: what each mode needs of a store. What a
// store does not claim is not taken from what it wraps, or from the mode.
func TestModesNeedCapabilities(t *testing.T) {
	for _, c := range []struct {
		name   string
		lack   func(*storage.Capabilities)
		needed map[engine.Ownership]bool
	}{
		{"conditionalBatch", func(c *storage.Capabilities) { c.ConditionalBatch = false }, map[engine.Ownership]bool{engine.OwnershipCASRequired: true}},
		{"atomicBatch", func(c *storage.Capabilities) { c.AtomicBatch = false }, map[engine.Ownership]bool{engine.OwnershipCASRequired: true, engine.OwnershipSingleOwner: true}},
		{"readAfterWrite", func(c *storage.Capabilities) { c.ReadAfterWrite = false }, map[engine.Ownership]bool{engine.OwnershipCASRequired: true}},
		{"scanConsistency", func(c *storage.Capabilities) { c.ScanConsistency = storage.BestEffort }, map[engine.Ownership]bool{engine.OwnershipCASRequired: true}},
	} {
		for _, mode := range []engine.Ownership{engine.OwnershipCASRequired, engine.OwnershipSingleOwner} {
			_, err := engine.New(engine.Config{Storage: lacking{new(memory.Store), c.lack}, Ownership: mode, Logger: quiet})
			var ce *engine.CheckpointOwnershipCapabilityError
			if refused := errors.As(err, &ce); refused != c.needed[mode] || refused && (ce.Capability != c.name || ce.Mode != mode) {
				t.Errorf("%s without %s: %v, want it refused: %v", mode, c.name, err, c.needed[mode])
			}
		}
	}
}

// A store is either Shared or has an Opening. Engines of other processes would not be found dead without one of them,
// and would be taken for dead with both.
func TestStoreIsSharedOrExclusive(t *testing.T) {
	for what, s := range map[string]storage.Storage{
		"neither": struct{ storage.Storage }{new(memory.Store)},
		"both":    lacking{new(memory.Store), func(c *storage.Capabilities) { c.Shared = true }},
	} {
		f := storagetest.NewFaulty(s, nil)
		_, err := engine.New(engine.Config{Storage: f, Logger: quiet})
		var wrong *engine.ConfigError
		if !errors.As(err, &wrong) || wrong.Field != "Storage" || f.Calls() != 0 {
			t.Errorf("%s: %v after %d calls, want a *ConfigError about Storage and none", what, err, f.Calls())
		}
		if _, err := engine.New(engine.Config{Storage: s, Logger: quiet, Ownership: engine.OwnershipSingleOwner}); err != nil {
			t.Errorf("%s, with a single owner: %v, want it taken", what, err)
		}
	}
}

// a store belongs to one mode.
func TestOwnershipModeIsStamped(t *testing.T) {
	single := func(c *engine.Config) { c.Ownership = engine.OwnershipSingleOwner }
	cas := func(c *engine.Config) { c.Ownership = engine.OwnershipCASRequired }
	for _, c := range []struct {
		first, second      func(*engine.Config)
		configured, stored engine.Ownership
	}{
		{single, cas, engine.OwnershipCASRequired, engine.OwnershipSingleOwner},
		{cas, single, engine.OwnershipSingleOwner, engine.OwnershipCASRequired},
	} {
		s := new(memory.Store)
		made(t, s, c.first)
		made(t, s, c.first)
		cfg := engine.Config{Storage: s, Logger: quiet}
		c.second(&cfg)
		_, err := engine.New(cfg)
		var m *engine.OwnershipModeError
		if !errors.As(err, &m) || m.Configured != c.configured || m.Stored != c.stored {
			t.Errorf("mode %s on a store of %s: %v, want an *OwnershipModeError", c.configured, c.stored, err)
		}
	}
}
