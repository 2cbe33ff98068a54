package world_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/world"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(followsEnv); url != "" {
		if err := followAsAProcess(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaks.Main(pgtest.Tests{M: m})
}

// onAllStores runs a test on a new store of each kind, with two openings of it: those of two processes. Where
// only one process may have the store open, they are the same.
func onAllStores(t *testing.T, f func(t *testing.T, one, two *client)) {
	t.Run("memory", func(t *testing.T) {
		s := new(memory.Store)
		f(t, open(t, s), open(t, s))
	})
	t.Run("bolt", func(t *testing.T) {
		s, err := bolt.Open(filepath.Join(t.TempDir(), "store"), nil)
		one := opened(t, s, err)
		f(t, open(t, one), open(t, one))
	})
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "store")
		s, err := sqlite.Open(path, &sqlite.Options{Shared: true})
		one := opened(t, s, err)
		s, err = sqlite.Open(path, &sqlite.Options{Shared: true})
		f(t, open(t, one), open(t, opened(t, s, err)))
	})
	t.Run("postgres", func(t *testing.T) {
		url := pgtest.URL(t)
		s, err := postgres.Open(t.Context(), url, nil)
		one := opened(t, s, err)
		s, err = postgres.Open(t.Context(), url, nil)
		f(t, open(t, one), open(t, opened(t, s, err)))
	})
}

func opened[S storage.Storage](t *testing.T, s S, err error) storage.Storage {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// A client calls a world.
type client struct {
	*world.World
	t     testing.TB
	store storage.Storage
	ctx   context.Context
	spec  int // of what it creates
}

func open(t testing.TB, s storage.Storage, change ...func(*world.Options)) *client {
	t.Helper()
	o := &world.Options{}
	for _, f := range change {
		f(o)
	}
	w, err := world.Open(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return &client{w, t, s, context.Background(), 5}
}

// clock has a world see the time that it points to, in milliseconds since 1970.
func clock(now *int64) func(*world.Options) {
	return func(o *world.Options) { o.Now = func() time.Time { return time.UnixMilli(*now) } }
}

// fields are those of an event.
type fields map[string]any

// asTheClient encodes dates as cbor-x does.
var asTheClient, _ = cbor.EncOptions{Sort: cbor.SortBytewiseLexical, Time: cbor.TimeUnixDynamic, TimeTag: cbor.EncTagRequired}.EncMode()

func value(t testing.TB, v any) world.Value {
	t.Helper()
	raw, err := asTheClient.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// create creates an event. change changes its request.
func (c *client) create(run string, e world.EventType, correlation string, f fields, change ...func(*world.Request)) (*world.Answered, error) {
	r := world.Request{RunID: run, Type: e, Correlation: correlation, Spec: c.spec}
	if f != nil {
		r.Data = value(c.t, f)
	}
	for _, g := range change {
		g(&r)
	}
	return c.Create(c.ctx, r)
}

// must creates an event that is not refused.
func (c *client) must(run string, e world.EventType, correlation string, f fields, change ...func(*world.Request)) *world.Answered {
	c.t.Helper()
	a, err := c.create(run, e, correlation, f, change...)
	if err != nil {
		c.t.Fatalf("%s of %s: %v", e, run, err)
	}
	return a
}

// refused creates an event that is refused with a status, a code, and text in its message.
func (c *client) refused(status int, text string, run string, e world.EventType, correlation string, f fields, change ...func(*world.Request)) *world.Error {
	c.t.Helper()
	before := c.log(run)
	a, err := c.create(run, e, correlation, f, change...)
	refused(c.t, err, status, text)
	if after := c.log(run); after != before {
		c.t.Errorf("%s of %s: refused, and answered %+v; the log is %s, was %s", e, run, a, after, before)
	}
	got, _ := errors.AsType[*world.Error](err)
	return got
}

func refused(t testing.TB, err error, status int, text string) {
	t.Helper()
	got, ok := errors.AsType[*world.Error](err)
	if !ok || got.Status != status || !strings.Contains(got.Message, text) || got.Code == "" {
		t.Errorf("got %+v (%v), want %d with %q", got, err, status, text)
	}
}

var order = fields{"workflowName": "order", "deploymentId": "blue", "input": []byte("in")}

// begin begins a run.
func (c *client) begin(run string) {
	c.t.Helper()
	c.must(run, world.RunCreated, "", order)
	c.must(run, world.RunStarted, "", nil)
}

// log returns the types of the events of a run.
func (c *client) log(run string) string {
	c.t.Helper()
	var all []string
	l, err := c.Events(c.ctx, run, world.Page{Limit: 1000, Order: world.Ascending}, world.ResolveAll)
	if e, ok := errors.AsType[*world.Error](err); ok && e.Status == 404 {
		return ""
	}
	if err != nil {
		c.t.Fatal(err)
	}
	for i, e := range l.Data {
		all = append(all, string(e.EventType))
		if i > 0 && (e.EventID <= l.Data[i-1].EventID || e.CreatedAt.Before(l.Data[i-1].CreatedAt)) {
			c.t.Errorf("%s: event %s of %v follows %s of %v", run, e.EventID, e.CreatedAt, l.Data[i-1].EventID, l.Data[i-1].CreatedAt)
		}
	}
	return strings.Join(all, " ")
}

func (c *client) run(run string) *world.Run {
	c.t.Helper()
	r, err := c.Run(c.ctx, run, world.ResolveAll)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

func (c *client) step(run, id string) *world.Step {
	c.t.Helper()
	s, err := c.Step(c.ctx, run, id, world.ResolveAll)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

func (c *client) count(prefix string) int {
	c.t.Helper()
	n := 0
	for _, err := range storage.All(c.ctx, c.store, storage.Prefix([]byte(prefix))) {
		if err != nil {
			c.t.Fatal(err)
		}
		n++
	}
	return n
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("%s: got %s, want %s", what, g, w)
	}
}
