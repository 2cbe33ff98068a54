package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(senderEnv); url != "" {
		if err := sendForOthers(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if orders := os.Getenv(chargerEnv); orders != "" {
		var c charger
		err := json.Unmarshal([]byte(orders), &c)
		if err == nil {
			err = c.run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if orders := os.Getenv(killerEnv); orders != "" {
		var h doomed
		err := json.Unmarshal([]byte(orders), &h)
		if err == nil {
			err = h.run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if orders := os.Getenv(busyEnv); orders != "" {
		var b busy
		err := json.Unmarshal([]byte(orders), &b)
		if err == nil {
			err = b.run()
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if orders := os.Getenv(builderEnv); orders != "" {
		var b builder
		err := json.Unmarshal([]byte(orders), &b)
		if err == nil {
			err = b.run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := pgtest.Main(m)
	for _, f := range afterAll {
		f()
	}
	os.Exit(leaks.Check(code))
}

// afterAll is called after the last test, for stores that adapters in modules of their own add.
var afterAll []func()

var (
	ctx   = context.Background()
	quiet = slog.New(slog.NewTextHandler(io.Discard, nil))
	audit = engine.Actor{Name: "ann", Reason: "test"}
)

// A process is one life of a host service on a store that outlives it.
type process struct {
	*engine.Engine
	store *storagetest.Faulty // its opening of the store
	end   context.CancelFunc
	done  chan error
	once  sync.Once
}

// made is an engine on s that does not run.
func made(t testing.TB, s storage.Storage, options ...any) *engine.Engine {
	t.Helper()
	c := engine.Config{Storage: s, Name: "host", Logger: quiet, ParkAfter: 10 * 365 * 24 * time.Hour}
	for _, o := range options {
		switch o := o.(type) {
		case engine.Definition:
			c.Workflows = append(c.Workflows, o)
		case func(*engine.Config):
			o(&c)
		default:
			t.Fatalf("no option: %T", o)
		}
	}
	e, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// boot starts a process. Options are workflows, and changes of the Config.
func boot(t testing.TB, inner storage.Storage, options ...any) *process {
	t.Helper()
	return bootOn(t, storagetest.NewFaulty(inner, nil), options...)
}

// bootOn starts a process whose opening of the store is f.
func bootOn(t testing.TB, f *storagetest.Faulty, options ...any) *process {
	t.Helper()
	p := &process{Engine: made(t, f, options...), store: f}
	p.run()
	t.Cleanup(p.kill)
	return p
}

// run returns when the engine drives what is started, or does not for a second: a
// start before that is found by a poll, and is another story. It sleeps before it looks: in
// virtual time the first poll is over then, and the test acts between two polls.
func (p *process) run() {
	ctx, cancel := context.WithCancel(context.Background())
	p.end, p.done = cancel, make(chan error, 1)
	go func() { p.done <- p.Engine.Run(ctx) }()
	for range 1000 {
		time.Sleep(time.Millisecond)
		if engine.IsOpen(p.Engine) || len(p.done) > 0 {
			return
		}
	}
}

// rewrite replaces the record of a workflow with what change makes of it, and returns both.
func rewrite(t testing.TB, s storage.Storage, id string, change func(*journal.Workflow)) (was, is *journal.Workflow) {
	t.Helper()
	was, err := journal.Load(ctx, s, id)
	if err != nil {
		t.Fatal(err)
	}
	next := *was
	change(&next)
	ops, err := journal.Replace(nil, was, &next)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, storage.Batch{Ops: ops}); err != nil {
		t.Fatal(err)
	}
	return was, &next
}

// kept returns b for later: after Commit, the caller uses its slices for something else.
func kept(b storage.Batch) storage.Batch {
	b.If, b.Ops = slices.Clone(b.If), slices.Clone(b.Ops)
	return b
}

// puzzling is an activity that fails, and of which a person is asked what became of it
// until its verifier knows.
func puzzling(known *atomic.Bool) *activity.Activity[string, string] {
	return &activity.Activity[string, string]{
		Name:            "pay",
		IdempotencyKey:  func(s string) string { return s },
		OnIndeterminate: activity.AwaitOperator,
		Run:             func(context.Context, string) (string, error) { return "", errBroke },
		Verify: func(context.Context, string) (activity.Verification[string], error) {
			if known.Load() {
				return activity.CompletedWithResult("paid"), nil
			}
			return activity.Indeterminate[string]("no idea"), nil
		},
	}
}

// stop is a SIGTERM: the engine stops gently.
func (p *process) stop(t testing.TB) {
	t.Helper()
	p.once.Do(func() {
		p.end()
		if err := <-p.done; err != nil {
			t.Errorf("Run, told to stop: %v", err)
		}
		p.Close()
	})
}

// close stops the engine at once.
func (p *process) close() {
	p.once.Do(func() {
		p.Close()
		<-p.done
		p.end()
	})
}

// kill is a SIGKILL: the store hears no more of this process, at once.
func (p *process) kill() {
	p.once.Do(func() {
		p.store.Crash()
		p.Close()
		p.end()
		<-p.done
	})
}

// virtual runs f in virtual time.
func virtual(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// flow is a workflow without types to speak of.
func flow(name string, f func(run *engine.Run) (string, error)) *engine.Workflow[string, string] {
	return &engine.Workflow[string, string]{Name: name, Func: func(run *engine.Run, _ string) (string, error) { return f(run) }}
}

func start[In, Out any](t testing.TB, w *engine.Workflow[In, Out], c engine.Client, id string, in In) *engine.Handle[Out] {
	t.Helper()
	h, err := w.Start(ctx, c, id, in)
	if err != nil {
		t.Fatalf("start %q: %v", id, err)
	}
	return h
}

// result waits, for an hour of virtual time at most, for what must be there.
func result[Out any](t testing.TB, h *engine.Handle[Out]) Out {
	t.Helper()
	out, err := outcome(h)
	if err != nil {
		t.Fatalf("result of %q: %v", h.ID(), err)
	}
	return out
}

func outcome[Out any](h *engine.Handle[Out]) (Out, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	return h.Result(ctx)
}

func describe(t testing.TB, c engine.Client, id string) engine.Info {
	t.Helper()
	i, err := c.Describe(ctx, id)
	if err != nil {
		t.Fatalf("describe %q: %v", id, err)
	}
	return i
}

func historyOf(t testing.TB, e *engine.Engine, id string) (cs []checkpoint.Checkpoint) {
	t.Helper()
	for c, err := range e.History(ctx, id) {
		if err != nil {
			t.Fatalf("history of %q: %v", id, err)
		}
		cs = append(cs, c)
	}
	return cs
}

// kinds are the events of a history, in order.
func kinds(cs []checkpoint.Checkpoint) (ks []checkpoint.Kind) {
	for _, c := range cs {
		for _, e := range c.Events {
			ks = append(ks, e.Kind)
		}
	}
	return ks
}

// heldFor says whether a run needs a person for this reason.
func heldFor(i engine.Info, r engine.Reason) bool {
	return slices.ContainsFunc(i.Attention, func(a engine.Attention) bool { return a.Reason == r })
}

// A tally counts what happened, by name.
type tally struct {
	mu sync.Mutex
	n  map[string]int
	in []string
}

func (c *tally) add(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
	c.in = append(c.in, name)
	return c.n[name]
}

func (c *tally) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

func (c *tally) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.in)
}

// counting is an activity that counts its runs and returns how many there were.
func counting(c *tally, name string) *activity.Activity[string, int] {
	return &activity.Activity[string, int]{Name: name, Run: func(context.Context, string) (int, error) { return c.add(name), nil }}
}

// entries are the keys of a store with a prefix.
func entries(t testing.TB, s storage.Storage, prefix string) (ks []string) {
	t.Helper()
	for e, err := range storage.All(ctx, s, storage.Prefix([]byte(prefix))) {
		if err != nil {
			t.Fatal(err)
		}
		ks = append(ks, string(e.Key))
	}
	return ks
}

// logOf returns where the checkpoints of a workflow are.
func logOf(t testing.TB, s storage.Storage, id string) keys.Log {
	t.Helper()
	wf, err := journal.Load(ctx, s, id)
	if err != nil {
		t.Fatal(err)
	}
	return wf.Log()
}

// logged returns the keys of the checkpoints of a workflow.
func logged(t testing.TB, s storage.Storage, id string) []string {
	t.Helper()
	return entries(t, s, string(logOf(t, s, id).Prefix()))
}

// recordsOfRuns returns the keys of the records of all workflows, with their checkpoints.
func recordsOfRuns(t testing.TB, s storage.Storage) []string {
	t.Helper()
	return append(entries(t, s, "wf:"), entries(t, s, "log:")...)
}

// isOf reports whether b writes a record or a checkpoint of a workflow.
func isOf(b storage.Batch, id string) bool {
	return touches(b, "wf:"+id) || appendsTo(b, id)
}

// appendsTo reports whether b appends a checkpoint to a workflow.
func appendsTo(b storage.Batch, id string) bool {
	return slices.ContainsFunc(journal.AppendedBy(b), func(a journal.Appended) bool { return a.Workflow.ID == id })
}

func put(t testing.TB, s storage.Storage, key, value []byte) {
	t.Helper()
	if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(key, value)}}); err != nil {
		t.Fatal(err)
	}
}

// seedToPlay returns the seed that WEFT_SEED chooses, or another one each time if it is not set.
func seedToPlay(t testing.TB) (seed uint64, chosen bool) {
	t.Helper()
	text := os.Getenv("WEFT_SEED")
	if text == "" {
		return rand.Uint64(), false
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal("WEFT_SEED:", err)
	}
	return seed, true
}

func get(t testing.TB, s storage.Storage, key []byte) []byte {
	t.Helper()
	v, err := s.Get(ctx, key)
	if err != nil {
		t.Fatalf("get %q: %v", key, err)
	}
	return v
}

// snapshot copies a store.
func snapshot(t testing.TB, s storage.Storage) *memory.Store {
	t.Helper()
	c := new(memory.Store)
	for e, err := range storage.All(ctx, s, storage.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		put(t, c, e.Key, e.Value)
	}
	return c
}

// lines is a log that can be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(word string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.b.Bytes(), []byte(word))
}

func (l *lines) logger() func(*engine.Config) {
	return func(c *engine.Config) { c.Logger = slog.New(slog.NewTextHandler(l, nil)) }
}

// eventually waits in virtual time.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 1000 {
		if ok() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("in vain: %s", what)
}

var errBroke = errors.New("broke")

func sprint(v ...any) string { return fmt.Sprint(v...) }
