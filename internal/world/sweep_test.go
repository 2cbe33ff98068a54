package world_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/world"
	"github.com/weft-go/weft/internal/worldstream"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// left returns the keys of what is in a store.
func left(t *testing.T, s storage.Storage) (all []string) {
	t.Helper()
	for e, err := range storage.All(t.Context(), s, storage.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(e.Key))
	}
	return all
}

// full begins a run with all that a run may have, and n steps.
func (c *client) full(run string, s *worldstream.Streams, n int) {
	c.t.Helper()
	c.begin(run)
	for i := range n {
		step := fmt.Sprint("step_", i)
		c.must(run, world.StepStarted, step, fields{"stepName": "pay", "input": i})
		c.must(run, world.StepCompleted, step, fields{"result": i})
	}
	c.must(run, world.HookCreated, "hook_"+run, fields{"token": run})
	c.must(run, world.HookCreated, "hook_2"+run, fields{"token": "2" + run})
	c.must(run, world.HookReceived, "hook_"+run, fields{"payload": 1}, func(r *world.Request) { r.ResumeID = "resume" })
	c.must(run, world.WaitCreated, "wait_1", fields{"resumeAt": 1})
	c.must(run, world.AttrSet, "", fields{"changes": []map[string]any{{"key": "a", "value": "1"}}, "writer": map[string]string{"type": "step"}})
	for _, name := range []string{"a", "b"} {
		for range n {
			if _, err := s.Write(c.ctx, worldstream.Write{RunID: run, Name: name, Chunks: texts("1", "2", "3")}); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

const day = 24 * time.Hour

// A run is removed when it ended longer ago than the retention, with all that it has. What is left tells that it was removed, for as
// long as a message may be delayed that starts the run. One that has not ended stays.
func TestRetention(t *testing.T) {
	now := time.Now().UnixMilli()
	sweep := func(c *client, want int) {
		t.Helper()
		n, err := c.Sweep(c.ctx)
		if n != want || err != nil {
			t.Errorf("removed %d runs, %v, want %d", n, err, want)
		}
	}
	after := func(d time.Duration) { now += d.Milliseconds() }
	for what, max := range map[string]storage.Size{"": {}, "small batches": {Ops: 40}} {
		store := &small{Storage: new(memory.Store), max: max}
		c := open(t, store, clock(&now), func(o *world.Options) { o.Retention = 7 * day })
		s := streams(t, store)
		c.begin("wrun_0")
		c.must("wrun_0", world.HookCreated, "hook_0", fields{"token": "t"})
		stays := len(left(t, store))
		c.full("wrun_1", s, 40)
		c.must("wrun_1", world.RunCompleted, "", fields{"output": 1})
		all := len(left(t, store))
		after(7*day - time.Minute)
		sweep(c, 0)
		same(t, "what is left before", len(left(t, store)), all)
		after(2 * time.Minute)
		sweep(open(t, store, clock(&now)), 0) // without a retention runs are kept for ever
		same(t, "what is left without a retention", len(left(t, store)), all)
		sweep(c, 1)
		sweep(c, 0)
		if got := len(left(t, store)); got != stays+2 {
			t.Errorf("%s: %d records are left, want two of the run: %q", what, got-stays, left(t, store))
		}
		for path, f := range map[string]func() error{
			"run":    func() error { _, err := c.Run(c.ctx, "wrun_1", world.ResolveAll); return err },
			"events": func() error { _, err := c.Events(c.ctx, "wrun_1", world.Page{}, world.ResolveAll); return err },
			"stream": func() error { _, err := s.Info(c.ctx, "wrun_1", "a"); return err },
			"reader": func() error {
				_, err := s.Read(c.ctx, "wrun_1", "a", 0, func(uint64, []worldstream.Chunk) error { return nil })
				return err
			},
			"writer": func() error {
				_, err := s.Write(c.ctx, worldstream.Write{RunID: "wrun_1", Name: "a", Chunks: texts("late")})
				return err
			},
			"writer of another stream": func() error {
				_, err := streams(t, store).Write(c.ctx, worldstream.Write{RunID: "wrun_1", Name: "c", Chunks: texts("late")})
				return err
			},
			"step": func() error {
				_, err := c.create("wrun_1", world.StepCreated, "step_1", fields{"stepName": "pay", "input": 1})
				return err
			},
		} {
			err := f()
			if got, ok := errors.AsType[*world.Error](err); !ok || got.Status != 404 || got.Message != "Run not found: wrun_1" {
				t.Errorf("%s of a removed run: %v", path, err)
			}
		}
		c.refused(409, "was removed", "wrun_1", world.RunCreated, "", order)
		for _, retry := range []bool{false, true} {
			e := c.refused(409, "was removed", "wrun_1", world.RunStarted, "", order, func(r *world.Request) { r.RequestID, r.Retry = "r", retry })
			same(t, "code", e.Code, world.CodeRunTerminal)
		}
		runs, err := c.Runs(c.ctx, world.RunFilter{}, world.Page{}, world.ResolveAll)
		if err != nil || len(runs.Data) != 1 {
			t.Errorf("%d runs are listed, %v", len(runs.Data), err)
		}
		for _, d := range []time.Duration{day + time.Minute, world.MostDelay} { // a message was delayed while the run was there
			after(d)
			sweep(c, 0)
			same(t, what+": what is left of a run later", len(left(t, store)), stays+2)
			sound(t, store)
			if e := c.refused(409, "was removed", "wrun_1", world.RunStarted, "", order); e != nil {
				same(t, "code", e.Code, world.CodeRunTerminal)
			}
		}
		after(34 * day)
		sweep(c, 0)
		same(t, what+": what is left of a run in the end", len(left(t, store)), stays)
		c.begin("wrun_1") // the id may be used again
	}
}

// Whatever becomes of a call to the store while runs are removed, all of them are gone in the end, and nothing else.
func TestEachCallOfASweepMayFail(t *testing.T) {
	faults := 0
	for _, fault := range []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter, storagetest.CrashBefore, storagetest.CrashAfter} {
		for call := 1; ; call++ {
			now := time.Now().UnixMilli()
			inner := new(memory.Store)
			c, s := open(t, inner, clock(&now)), streams(t, inner)
			c.begin("wrun_0")
			stays := len(left(t, inner))
			c.full("wrun_1", s, 2)
			c.must("wrun_1", world.RunFailed, "", fields{"error": "no"})
			c.full("wrun_2", s, 1)
			c.must("wrun_2", world.RunCancelled, "", nil)
			calls := 0
			faulty := storagetest.NewFaulty(&small{Storage: inner, max: storage.Size{Ops: 25}}, func(storagetest.Call) storagetest.Fault {
				if calls++; calls == call {
					return fault
				}
				return storagetest.None
			})
			sweeper := open(t, faulty, clock(&now), func(o *world.Options) { o.Retention = day })
			now += 2 * day.Milliseconds()
			_, _ = sweeper.Sweep(t.Context())
			first := calls >= call
			sound(t, inner)
			now += 2 * day.Milliseconds()
			_, _ = sweeper.Sweep(t.Context())
			met := calls >= call
			after := open(t, inner, clock(&now), func(o *world.Options) { o.Retention = day })
			for range 2 {
				if _, err := after.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
				sound(t, inner)
				now += 2 * world.MostDelay.Milliseconds()
			}
			if got := left(t, inner); len(got) != stays {
				t.Fatalf("call %d (in the first sweep: %v), fault %d: left: %q", call, first, fault, got)
			}
			if !met {
				break
			}
			faults++
		}
	}
	if faults < 60 {
		t.Errorf("%d faults were met, want 60 or more", faults)
	}
}

// Who reads a stream while it is removed gets a 404, also while some of it is left. Another missing chunk is damage, and an error of
// the store is that.
func TestAStreamIsReadWhileItIsRemoved(t *testing.T) {
	now := time.Now().UnixMilli()
	store := new(memory.Store)
	c := open(t, store, clock(&now), func(o *world.Options) { o.Retention = day })
	cut := false // the head of the run cannot be read behind the chunks
	scans := 0
	s := streams(t, storagetest.NewFaulty(store, func(call storagetest.Call) storagetest.Fault {
		if call.Method == "Scan" {
			scans++
		}
		if cut && scans > 0 && call.Method == "Get" && string(call.Key) == "world:wrun_1" {
			return storagetest.ErrorBefore
		}
		return storagetest.None
	}))
	c.begin("wrun_1")
	if _, err := s.Write(c.ctx, worldstream.Write{RunID: "wrun_1", Name: "words", Chunks: texts("1", "2", "3")}); err != nil {
		t.Fatal(err)
	}
	c.must("wrun_1", world.RunCompleted, "", fields{"output": 1})
	read := map[string]func() error{
		"a reader": func() error {
			_, err := s.Read(c.ctx, "wrun_1", "words", 0, func(uint64, []worldstream.Chunk) error { return nil })
			return err
		},
		"a page": func() error { _, err := s.Chunks(c.ctx, "wrun_1", "words", world.Page{}); return err },
	}
	head, err := store.Get(c.ctx, keys.WorldStream("wrun_1", "words"))
	if err != nil {
		t.Fatal(err)
	}
	do := func(op storage.Op) {
		t.Helper()
		if err := store.Commit(c.ctx, storage.Batch{Ops: []storage.Op{op}}); err != nil {
			t.Fatal(err)
		}
	}
	do(storage.Delete(keys.Chunk(keys.WorldChunksOf("wrun_1", "words"), 0)))
	for what, f := range read {
		if err := f(); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s of a damaged stream: %v", what, err)
		}
	}
	for what, f := range read {
		cut, scans = true, 0
		if err := f(); !errors.Is(err, storagetest.ErrInjected) {
			t.Errorf("%s of a damaged stream, whose run cannot be read: %v", what, err)
		}
		cut = false
	}
	now += 2 * day.Milliseconds()
	if n, err := c.Sweep(c.ctx); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	do(storage.Put(keys.WorldStream("wrun_1", "words"), head)) // as if the sweep had not come so far
	for _, f := range read {
		refused(t, f(), 404, "Run not found: wrun_1")
	}
}

// A hook with the same id as one of a removed run stays. A chunk that came while its run was removed goes a day
// later. A stream whose run never came is removed after a day, and one whose run came is not.
func TestWhatASweepLeavesAndFinds(t *testing.T) {
	now := time.Now().UnixMilli()
	store := new(memory.Store)
	c := open(t, store, clock(&now), func(o *world.Options) { o.Retention = day })
	at := func() *worldstream.Streams {
		s, err := worldstream.Open(store, &world.Options{Now: func() time.Time { return time.UnixMilli(now) }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	s := at()
	sweep := func() {
		t.Helper()
		if _, err := c.Sweep(c.ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, run := range []string{"wrun_1", "wrun_2"} {
		c.begin(run)
		c.must(run, world.HookCreated, "hook_1", fields{"token": run})
		if run == "wrun_1" {
			c.must(run, world.RunCompleted, "", fields{"output": 1})
		}
	}
	for _, run := range []string{"wrun_early", "wrun_never"} {
		if _, err := s.Write(c.ctx, worldstream.Write{RunID: run, Name: "words", Chunks: texts("x")}); err != nil {
			t.Fatal(err)
		}
	}
	c.begin("wrun_early")
	// An append that was decided on before the tombstone: its batch is committed after the sweep.
	var late storage.Batch
	caught := storagetest.NewFaulty(store, func(call storagetest.Call) storagetest.Fault {
		if call.Method == "Commit" {
			late = call.Batch
			return storagetest.CrashBefore
		}
		return storagetest.None
	})
	gone, end := context.WithCancel(c.ctx)
	go func() { defer end(); <-caught.Crashed() }()
	_, _ = streams(t, caught).Write(gone, worldstream.Write{RunID: "wrun_1", Name: "words", Chunks: texts("late")})
	now += 2 * day.Milliseconds()
	sweep()
	if _, err := c.Hook(c.ctx, "hook_1", world.ResolveAll); err != nil {
		t.Errorf("the hook of another run: %v", err)
	}
	info, err := s.Info(c.ctx, "wrun_early", "words")
	if err != nil || info.TailIndex != 0 {
		t.Errorf("the stream of a run that came later: %+v, %v", info, err)
	}
	_, err = s.Info(c.ctx, "wrun_never", "words")
	refused(t, err, 404, "wrun_never")
	if err := store.Commit(c.ctx, late); err != nil || c.count("wchunk:wrun_1:") != 1 {
		t.Fatalf("%d late chunks, %v", c.count("wchunk:wrun_1:"), err)
	}
	now += 2 * day.Milliseconds()
	sweep()
	same(t, "chunks of the removed run", c.count("wchunk:wrun_1:"), 0)
	now += 2 * world.MostDelay.Milliseconds()
	sweep()
	same(t, "records of the removed run, and of the one that never came", c.count("wchunk:wrun_1:")+c.count("wstream:wrun_1:")+c.count("wsname:words:wrun_1")+c.count("world:wrun_1")+c.count("wchunk:wrun_never:")+c.count("wexp:"), 0)
}

// Several runs in a row that cannot be read hold up those behind them only until the next sweep.
func TestSweepGoesOnBehindRunsThatCannotBeRead(t *testing.T) {
	now := time.Now().UnixMilli()
	store := new(memory.Store)
	c := open(t, store, clock(&now))
	for _, run := range []string{"wrun_1", "wrun_2", "wrun_3", "wrun_4"} {
		c.begin(run)
		c.must(run, world.RunCompleted, "", fields{"output": 1})
		now++
	}
	faulty := storagetest.NewFaulty(store, func(call storagetest.Call) storagetest.Fault {
		if key := string(call.Key); key == "world:wrun_1" || key == "world:wrun_2" || key == "world:wrun_3" {
			return storagetest.ErrorBefore
		}
		return storagetest.None
	})
	sweeper := open(t, faulty, clock(&now), func(o *world.Options) { o.Retention = day })
	now += 2 * day.Milliseconds()
	removed := 0
	for range 2 {
		n, err := sweeper.Sweep(c.ctx)
		if removed += n; n == 0 && !errors.Is(err, storagetest.ErrInjected) {
			t.Errorf("what cannot be read is not told: %v", err)
		}
	}
	same(t, "removed runs", removed, 1)
	_, err := c.Run(c.ctx, "wrun_4", world.ResolveAll)
	refused(t, err, 404, "wrun_4")
}

// A scale notes the most that one scan has read.
type scale struct {
	storage.Storage
	most int
}

func (s *scale) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	page, err := s.Storage.Scan(ctx, r)
	size := 0
	for _, e := range page {
		size += len(e.Key) + len(e.Value)
	}
	s.most = max(s.most, size)
	return page, err
}

// Large events are read a few at a time when their run is removed, and when one of them may be the answer to a call.
func TestLargeEventsAreReadAFewAtATime(t *testing.T) {
	now := time.Now().UnixMilli()
	store := &scale{Storage: new(memory.Store)}
	c := open(t, store, clock(&now), func(o *world.Options) { o.Retention = day })
	c.begin("wrun_1")
	input := make([]byte, 1_000_000)
	for i := range 40 {
		c.must("wrun_1", world.StepCreated, fmt.Sprint("step_", i), fields{"stepName": "pay", "input": input})
	}
	end := func(r *world.Request) { r.RequestID, r.Retry = "end", true }
	first := c.must("wrun_1", world.RunCompleted, "", fields{"output": 1}, end)
	again := c.must("wrun_1", world.RunCompleted, "", fields{"output": 1}, end)
	same(t, "the same call again", again.Event.EventID, first.Event.EventID)
	now += 2 * day.Milliseconds()
	if n, err := c.Sweep(c.ctx); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	same(t, "what is left", len(left(t, store)), 2)
	if store.most > 16<<20 {
		t.Errorf("one scan has read %d bytes", store.most)
	}
}
