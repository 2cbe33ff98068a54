package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/storagetest"
)

// counter receives numbers until a negative one comes.
func counter() *engine.Workflow[int, int] {
	return &engine.Workflow[int, int]{Name: "counter", Func: func(run *engine.Run, n int) (int, error) {
		for {
			switch m, err := added.Receive(run); {
			case err != nil || m < 0:
				return n, err
			default:
				n += m
			}
		}
	}}
}

// give sends numbers to a workflow.
func give(t testing.TB, e *engine.Engine, id string, numbers ...int) {
	t.Helper()
	for _, n := range numbers {
		if _, err := added.Send(ctx, e, id, n, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// flat are the events of a history, one by one.
func flat(cs []checkpoint.Checkpoint) (all []engine.Event) {
	for _, c := range cs {
		for _, e := range c.Events {
			all = append(all, engine.Event{Checkpoint: c.Number, Time: c.Time, Event: e})
		}
	}
	return all
}

// without returns events without their ids, after it has checked that these rise.
func without(t testing.TB, events []engine.Event) (all []engine.Event) {
	t.Helper()
	last := ""
	for _, e := range events {
		if e.ID <= last || len(e.ID) != 26 {
			t.Errorf("event %q comes after %q", e.ID, last)
		}
		last, e.ID = e.ID, ""
		all = append(all, e)
	}
	return all
}

// ids are those of events.
func ids(events []engine.Event) (all []string) {
	for _, e := range events {
		all = append(all, e.ID)
	}
	return all
}

// eventsOf reads all events, so many at a time.
func eventsOf(t testing.TB, e *engine.Engine, id string, limit int, ascending bool) (all []engine.Event) {
	t.Helper()
	r := engine.PageRequest{Limit: limit, Ascending: ascending}
	for {
		p, err := e.Events(ctx, id, r)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Data) > limit || p.HasMore && len(p.Data) < limit || len(p.Data) > 0 && p.Next != p.Data[len(p.Data)-1].ID || len(p.Data) == 0 && (p.Next != r.Cursor || r.Cursor != "") {
			t.Fatalf("behind %q: a page of %d, at most %d, next is %q", r.Cursor, len(p.Data), limit, p.Next)
		}
		if r.Cursor != "" && (p.Next == r.Cursor || p.Next > r.Cursor != ascending) {
			t.Fatalf("behind %q: next is %q", r.Cursor, p.Next)
		}
		all, r.Cursor = append(all, p.Data...), p.Next
		if !p.HasMore {
			return all
		}
	}
}

// followed reads a sequence to its end.
func followed(events iter.Seq2[engine.Event, error]) (all []engine.Event, err error) {
	for e, err := range events {
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

// WLD-22, WLD-23, WLD-24, WLD-25: pages of events have what the history has, the newest first unless they
// are to ascend. Behind a cursor is what comes strictly after it in the order.
func TestPagesOfEvents(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		w := counter()
		p := boot(t, s, w)
		h := start(t, w, p, "c", 0)
		give(t, p.Engine, "c", 1, 2, 3, -1)
		if _, err := soon(h); err != nil {
			t.Fatal(err)
		}
		want := flat(historyOf(t, p.Engine, "c"))
		all := eventsOf(t, p.Engine, "c", 1000, true)
		if diff := cmp.Diff(want, without(t, all)); diff != "" || len(all) < 6 {
			t.Fatalf("not the history: %s", diff)
		}
		for _, ascending := range []bool{true, false} {
			inOrder := slices.Clone(all)
			if !ascending {
				slices.Reverse(inOrder)
			}
			for limit := 1; limit <= len(all)+1; limit++ {
				if got := eventsOf(t, p.Engine, "c", limit, ascending); !slices.Equal(ids(got), ids(inOrder)) {
					t.Errorf("%d at a time, ascending %v: %v, want %v", limit, ascending, ids(got), ids(inOrder))
				}
			}
			for i, e := range inOrder {
				p, err := p.Events(ctx, "c", engine.PageRequest{Cursor: e.ID, Ascending: ascending})
				if err != nil || !slices.Equal(ids(p.Data), ids(inOrder[i+1:])) || p.HasMore {
					t.Errorf("behind event %d, ascending %v: %v, %v", i, ascending, ids(p.Data), err)
				}
			}
		}
	})
}

// WLD-21, WLD-26, WLD-28: a page has 100 events unless it says how many. Its JSON has a cursor only if more
// follows, and the tail in any case.
func TestAPageOfEvents(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := counter()
		p := boot(t, fresh(t), w)
		h := start(t, w, p, "c", 0)
		give(t, p.Engine, "c", append(numbers(150), -1)...)
		result(t, h)
		for _, c := range []struct {
			engine.PageRequest
			n    int
			more bool
		}{{n: 100, more: true}, {PageRequest: engine.PageRequest{Limit: 1000}, n: len(flat(historyOf(t, p.Engine, "c")))}} {
			page, err := p.Events(ctx, "c", c.PageRequest)
			if err != nil || len(page.Data) != c.n || page.HasMore != c.more {
				t.Fatalf("%+v: %d events, more: %v, %v", c, len(page.Data), page.HasMore, err)
			}
			raw, err := json.Marshal(page)
			var got struct {
				Data []struct {
					ID, Kind   string
					Checkpoint uint64
					Time       time.Time
				}
				Cursor  *string
				HasMore *bool
				Tail    string
			}
			if err := errors.Join(err, json.Unmarshal(raw, &got)); err != nil {
				t.Fatal(err)
			}
			last := page.Data[c.n-1]
			if got.HasMore == nil || *got.HasMore != c.more || (got.Cursor != nil) != c.more || c.more && *got.Cursor != last.ID || got.Tail != last.ID || len(got.Data) != c.n {
				t.Errorf("%+v: %.300s", c, raw)
			}
			if e := got.Data[c.n-1]; e.ID != last.ID || e.Kind != string(last.Kind) || e.Checkpoint != last.Checkpoint || !e.Time.Equal(last.Time) {
				t.Errorf("%+v: got %+v", last, e)
			}
		}
	})
}

// WLD-27: a page is one scan, wherever it is. It reads the event of its cursor, and one more than it has.
func TestPagesOfEventsCostTheSame(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &metered{Storage: fresh(t)}
		w := counter()
		p := boot(t, s, w)
		h := start(t, w, p, "c", 0)
		give(t, p.Engine, "c", append(numbers(500), -1)...)
		result(t, h)
		p.stop(t)
		e := made(t, s, w)
		defer e.Close()
		for _, ascending := range []bool{true, false} {
			for r := (engine.PageRequest{Limit: 10, Ascending: ascending}); ; {
				rows, scans, gets := s.rows.Load(), s.scans.Load(), s.gets.Load()
				page, err := e.Events(ctx, "c", r)
				rows, scans, gets = s.rows.Load()-rows, s.scans.Load()-scans, s.gets.Load()-gets
				if err != nil || scans != 1 || rows > 12 || gets > 2 {
					t.Fatalf("behind %q: %d rows, %d scans, %d gets, %v", r.Cursor, rows, scans, gets, err)
				}
				if !page.HasMore {
					break
				}
				r.Cursor = page.Next
			}
		}
	})
}

// WLD-20: what cannot be a limit or a cursor is refused, and so is an event that the history does not have.
func TestEventsRefuse(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := counter()
		p := boot(t, fresh(t), w)
		for _, id := range []string{"a", "b"} {
			h := start(t, w, p, id, 0)
			give(t, p.Engine, id, 1, -1)
			result(t, h)
			time.Sleep(time.Minute)
		}
		a := eventsOf(t, p.Engine, "a", 100, true)
		first := a[0].ID
		for _, c := range []struct {
			r    engine.PageRequest
			want error
		}{
			{engine.PageRequest{Limit: -1}, engine.ErrInvalid},
			{engine.PageRequest{Limit: 1001}, engine.ErrInvalid},
			{engine.PageRequest{Cursor: "x"}, engine.ErrInvalid},
			{engine.PageRequest{Cursor: strings.ToLower(first)}, engine.ErrInvalid},
			{engine.PageRequest{Cursor: first + "0"}, engine.ErrInvalid},
			{engine.PageRequest{Cursor: strings.Repeat("0", 26)}, engine.ErrInvalid}, // no checkpoint has the number 0
		} {
			for _, c.r.Ascending = range []bool{true, false} {
				if _, err := p.Events(ctx, "a", c.r); !errors.Is(err, c.want) {
					t.Errorf("%+v: %v, want %v", c.r, err, c.want)
				}
			}
			if c.r.Limit != 0 {
				continue
			}
			if _, err := followed(p.Follow(ctx, "a", c.r.Cursor)); !errors.Is(err, c.want) {
				t.Errorf("follow behind %q: %v, want %v", c.r.Cursor, err, c.want)
			}
		}
		for _, cursor := range []string{
			first[:25] + "1", // a position that the checkpoint does not have
			eventsOf(t, p.Engine, "b", 100, true)[0].ID, // of another workflow
			strings.Repeat("0", 10) + first[10:],        // of another time
			strings.Repeat("7", 26),
		} {
			gone := (*engine.EventsGoneError)(nil)
			for _, ascending := range []bool{true, false} {
				if _, err := p.Events(ctx, "a", engine.PageRequest{Cursor: cursor, Ascending: ascending}); !errors.As(err, &gone) || gone.After != cursor || gone.WorkflowID != "a" {
					t.Errorf("behind %s, ascending %v: %v", cursor, ascending, err)
				}
			}
			if got, err := followed(p.Follow(ctx, "a", cursor)); !errors.As(err, &gone) || len(got) > 0 {
				t.Errorf("follow behind %s: %v, %v", cursor, got, err)
			}
		}
		for id, want := range map[string]error{"gone": engine.ErrNotFound, "": engine.ErrInvalid} {
			if _, err := p.Events(ctx, id, engine.PageRequest{}); !errors.Is(err, want) {
				t.Errorf("events of %q: %v, want %v", id, err, want)
			}
			if _, err := followed(p.Follow(ctx, id, "")); !errors.Is(err, want) {
				t.Errorf("follow %q: %v, want %v", id, err, want)
			}
		}
		p.Close()
		if _, err := p.Events(ctx, "a", engine.PageRequest{}); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("events by a closed engine: %v", err)
		}
		if _, err := followed(p.Follow(ctx, "a", "")); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("follow by a closed engine: %v", err)
		}
	})
}

// A page of large events is short, and has one at least.
func TestPagesOfLargeEvents(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const n = 12
		w := flow("large", func(run *engine.Run) (string, error) {
			for range n {
				if _, err := engine.Step(run, "s", func(context.Context) (string, error) { return strings.Repeat("x", 800_000), nil }); err != nil {
					return "", err
				}
			}
			return "", nil
		})
		p := boot(t, fresh(t), w)
		result(t, start(t, w, p, "l", ""))
		for _, ascending := range []bool{true, false} {
			var got []string
			pages := 0
			for r := (engine.PageRequest{Ascending: ascending}); ; pages++ {
				page, err := p.Events(ctx, "l", r)
				if err != nil || len(page.Data) == 0 || len(page.Data) > 7 {
					t.Fatalf("a page of %d, %v", len(page.Data), err)
				}
				got = append(got, ids(page.Data)...)
				if r.Cursor = page.Next; !page.HasMore {
					break
				}
			}
			want := len(flat(historyOf(t, p.Engine, "l")))
			if len(got) != want || pages < 2 {
				t.Errorf("%d events in %d pages, want %d", len(got), pages, want)
			}
			// Without payloads they are in one page, with the same ids.
			page, err := p.Events(ctx, "l", engine.PageRequest{Ascending: ascending, NoData: true})
			if err != nil || page.HasMore || !slices.Equal(ids(page.Data), got) {
				t.Errorf("without data: %d events, %v, want %d", len(page.Data), err, want)
			}
			for _, e := range page.Data {
				if e.Result != nil || e.Codec != "" {
					t.Errorf("%s, without data, has a result of %d bytes and the codec %q", e.Kind, len(e.Result), e.Codec)
				}
			}
		}
	})
}

// A follower gets what there is, and then what comes, to the end: from the engine that executes the run, and from
// another one. Whoever goes on behind an event gets what follows it.
func TestFollow(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		w := counter()
		p := boot(t, s, w)
		other := made(t, s, w)
		defer other.Close()
		h := start(t, w, p, "c", 0)
		var all [2][]engine.Event
		var following sync.WaitGroup
		for i, e := range []*engine.Engine{p.Engine, other} {
			following.Go(func() {
				limited, stop := context.WithTimeout(ctx, time.Minute)
				defer stop()
				var err error
				if all[i], err = followed(e.Follow(limited, "c", "")); err != nil {
					t.Error(err)
				}
			})
		}
		for n := range 5 {
			give(t, p.Engine, "c", n)
			time.Sleep(10 * time.Millisecond)
		}
		give(t, p.Engine, "c", -1)
		if _, err := soon(h); err != nil {
			t.Fatal(err)
		}
		following.Wait()
		want := flat(historyOf(t, p.Engine, "c"))
		for _, got := range all {
			if diff := cmp.Diff(want, without(t, got)); diff != "" {
				t.Errorf("not the history: %s", diff)
			}
		}
		for i, e := range all[0] {
			if got, err := followed(p.Follow(ctx, "c", e.ID)); err != nil || !slices.Equal(ids(got), ids(all[0][i+1:])) {
				t.Errorf("behind event %d: %v, %v", i, ids(got), err)
			}
		}
	})
}

// An event of the same engine is there at once, whatever the PollInterval is. To wait for one costs a look
// now and then.
func TestFollowWaits(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &metered{Storage: fresh(t)}
		w := counter()
		p := boot(t, s, w, func(c *engine.Config) { c.PollInterval = time.Hour })
		start(t, w, p, "c", 0)
		give(t, p.Engine, "c", 1)
		next, stop := iter.Pull2(p.Follow(ctx, "c", ""))
		defer stop()
		for e, err, ok := next(); e.Kind != checkpoint.KindReceived; e, err, ok = next() {
			if err != nil || !ok {
				t.Fatal(err, ok)
			}
		}
		time.Sleep(time.Minute)
		var given sync.WaitGroup
		given.Go(func() {
			time.Sleep(59 * time.Minute)
			give(t, p.Engine, "c", 2)
		})
		began := time.Now()
		e, err, ok := next()
		given.Wait()
		if err != nil || !ok || e.Kind != checkpoint.KindReceived || time.Since(began) != 59*time.Minute || !e.Time.Equal(time.Now().Truncate(time.Microsecond)) {
			t.Errorf("got %+v of %v after %v, %v", e.Kind, e.Time, time.Since(began), err)
		}

		// Nothing happens in ten hours, without an engine.
		e2 := made(t, s, w, func(c *engine.Config) { c.PollInterval = time.Minute })
		defer e2.Close()
		p.kill()
		limited, cancel := context.WithTimeout(ctx, 10*time.Hour)
		defer cancel()
		scans, gets := s.scans.Load(), s.gets.Load()
		_, err = followed(e2.Follow(limited, "c", e.ID))
		scans, gets = s.scans.Load()-scans, s.gets.Load()-gets
		if interrupted := (*engine.InterruptedError)(nil); !errors.As(err, &interrupted) || !errors.Is(err, context.DeadlineExceeded) || interrupted.WaitedFor != "the next event" {
			t.Errorf("%v", err)
		}
		if scans > 610 || gets > 610 || scans < 500 {
			t.Errorf("%d scans and %d reads in ten hours", scans, gets)
		}
	})
}

// The end of the context, of the loop and of the engine end a follower that waits, at once.
func TestFollowIsEnded(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := counter()
		p := boot(t, fresh(t), w, func(c *engine.Config) { c.PollInterval = time.Hour })
		start(t, w, p, "c", 0)
		time.Sleep(time.Second)
		for name, end := range map[string]func(context.CancelFunc) error{
			"context": func(cancel context.CancelFunc) error { cancel(); return context.Canceled },
			"engine":  func(context.CancelFunc) error { p.Close(); return engine.ErrClosed },
		} {
			if name == "engine" {
				defer func() {
					if _, err := followed(p.Follow(ctx, "c", "")); !errors.Is(err, engine.ErrClosed) {
						t.Error(err)
					}
				}()
			}
			e := p.Engine
			if name == "context" {
				e = made(t, p.store, w)
				defer e.Close()
			}
			limited, cancel := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() {
				_, err := followed(e.Follow(limited, "c", ""))
				ended <- err
			}()
			time.Sleep(30 * time.Minute)
			synctest.Wait()
			began := time.Now()
			want := end(cancel)
			if err := <-ended; !errors.Is(err, want) || time.Since(began) != 0 {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
			cancel()
		}
		for range made(t, fresh(t), w).Follow(ctx, "c", "") {
			break
		}
	})
}

// A recording store notes what is appended to the history of a run, in order.
type recording struct {
	storage.Storage
	id string

	mu  sync.Mutex
	all []engine.Event
}

func (r *recording) Unwrap() storage.Storage { return r.Storage }

// Commit is serial, so that the order of the notes is that of the commits.
func (r *recording) Commit(ctx context.Context, b storage.Batch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.Storage.Commit(ctx, b)
	if err != nil {
		return err
	}
	for _, a := range journal.AppendedBy(b) {
		if a.Workflow.ID != r.id {
			continue
		}
		for _, e := range a.Entry.Events {
			r.all = append(r.all, engine.Event{Checkpoint: a.Entry.Number, Time: a.Entry.Time, Event: e})
		}
	}
	return nil
}

func (r *recording) events() []engine.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// A follower beside the engine gets every event of every life once, although the history of a life is removed
// in the commit that begins the next one.
func TestFollowThroughLives(t *testing.T) {
	onAllStores(t, func(t *testing.T, inner storage.Storage) {
		s := &recording{Storage: inner, id: "a"}
		w := adder(3)
		p := boot(t, s, w)
		rounds := torture.Rounds(2000, 200, 60)
		h := start(t, w, p, "a", sum{})
		var following sync.WaitGroup
		begun := make(chan struct{})
		for from := range 3 {
			following.Go(func() {
				limited, stop := context.WithTimeout(ctx, 5*time.Minute)
				defer stop()
				got, err := followed(func(yield func(engine.Event, error) bool) {
					begins := from == 0
					for e, err := range p.Follow(limited, "a", "") {
						if begins {
							close(begun)
							begins = false
						}
						if !yield(e, err) {
							return
						}
					}
				})
				want := s.events()
				if err != nil || from == 0 && len(got) != len(want) {
					t.Errorf("%d events, want %d, %v", len(got), len(want), err)
				}
				if diff := cmp.Diff(want[max(len(want)-len(got), 0):], without(t, got)); diff != "" {
					t.Errorf("not what was written: %s", diff)
				}
			})
		}
		select {
		case <-begun: // else the first life may be gone before
		case <-time.After(time.Minute):
			t.Fatal("the first follower gets nothing")
		}
		for i := range rounds {
			give(t, p.Engine, "a", i)
		}
		give(t, p.Engine, "a", -1)
		if got, err := soon(h); err != nil || got.Lives != rounds/3+1 {
			t.Fatalf("%+v, %v", got, err)
		}
		following.Wait()
	})
}

// A follower that is behind gets nothing with a gap: neither one of another process, nor one who goes on with
// an event of a life that is over.
func TestFollowBehindALife(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		w := adder(3)
		p := boot(t, s, w)
		start(t, w, p, "a", sum{})
		give(t, p.Engine, "a", 1, 1)
		time.Sleep(time.Second)
		other := made(t, s, w)
		defer other.Close()
		limited, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		next, stop := iter.Pull2(other.Follow(limited, "a", ""))
		defer stop()
		first, err, _ := next()
		if err != nil {
			t.Fatal(err)
		}
		former := eventsOf(t, p.Engine, "a", 10, true)
		give(t, p.Engine, "a", 1, 1, 1, 1)
		time.Sleep(time.Second)
		if describe(t, p, "a").Life != 2 {
			t.Fatal("it has not continued")
		}
		gone := (*engine.EventsGoneError)(nil)
		last := first
		for {
			e, err, ok := next()
			if err == nil && ok {
				last = e
				continue
			}
			if !errors.As(err, &gone) || gone.After != last.ID || last.ID > former[len(former)-1].ID {
				t.Errorf("behind %s: %v", last.ID, err)
			}
			break
		}
		for _, e := range former {
			if _, err := followed(other.Follow(ctx, "a", e.ID)); !errors.As(err, &gone) || gone.After != e.ID {
				t.Errorf("follow behind %s: %v", e.ID, err)
			}
			for _, ascending := range []bool{true, false} {
				if _, err := other.Events(ctx, "a", engine.PageRequest{Cursor: e.ID, Ascending: ascending}); !errors.As(err, &gone) {
					t.Errorf("events behind %s: %v", e.ID, err)
				}
			}
		}
		give(t, p.Engine, "a", -1)
		got, err := followed(other.Follow(ctx, "a", ""))
		if err != nil || got[0].Kind != checkpoint.KindContinued || got[len(got)-1].Kind != checkpoint.KindEnded {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// A follower of another process who waits before a run has begun is told if the first life is over before it looks.
func TestFollowWhatHasNotBegun(t *testing.T) {
	for _, here := range []bool{true, false} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			w := adder(1)
			if add := w.Func; here {
				w.Func = func(run *engine.Run, s sum) (sum, error) { // the follower sees each life begin
					if err := run.Sleep(time.Second); err != nil {
						return s, err
					}
					return add(run, s)
				}
			}
			p := made(t, s, w, func(c *engine.Config) { c.PollInterval = time.Hour })
			defer p.Close()
			e := p
			if !here {
				e = made(t, s, w, func(c *engine.Config) { c.PollInterval = time.Hour })
				defer e.Close()
			}
			start(t, w, p, "a", sum{})
			give(t, p, "a", 1, 1, -1)
			ended := make(chan error, 1)
			var got []engine.Event
			go func() {
				var err error
				got, err = followed(e.Follow(ctx, "a", ""))
				ended <- err
			}()
			time.Sleep(time.Second)
			running, stop := context.WithCancel(ctx)
			done := make(chan error, 1)
			go func() { done <- p.Run(running) }()
			err := <-ended
			gone := (*engine.EventsGoneError)(nil)
			if here && (err != nil || got[0].Kind != checkpoint.KindClaimed || got[len(got)-1].Kind != checkpoint.KindEnded) || !here && (!errors.As(err, &gone) || gone.After != "" || len(got) > 0) {
				t.Errorf("the same engine %v: %+v, %v", here, got, err)
			}
			stop()
			<-done
		})
	}
}

// A retry and a reset take no event back. A follower gets what follows, also if the run had ended before and he
// had not seen that, and behind the end with the id of the last one.
func TestFollowPastARetryAndAReset(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		var broken tally
		w := flow("w", func(run *engine.Run) (string, error) {
			if _, err := yes.Receive(run); err != nil {
				return "", err
			}
			if broken.add("call") == 1 {
				return "", errBroke
			}
			return yes.Receive(run)
		})
		p := boot(t, s, w)
		start(t, w, p, "w", "")
		slow, stop := iter.Pull2(p.Follow(ctx, "w", ""))
		defer stop()
		before, err, _ := slow() // and it reads no more for now
		if err != nil {
			t.Fatal(err)
		}
		tell(t, yes, p, "w", "one")
		ended, err := followed(p.Follow(ctx, "w", ""))
		if err != nil || ended[len(ended)-1].Kind != checkpoint.KindEnded || ended[0].ID != before.ID {
			t.Fatalf("%+v, %v", ended, err)
		}
		if err := p.Resume(ctx, "w", audit); err != nil {
			t.Fatal(err)
		}
		tell(t, yes, p, "w", "two")
		behind, err := followed(p.Follow(ctx, "w", ended[len(ended)-1].ID))
		if err != nil || behind[0].Kind != checkpoint.KindActed || behind[len(behind)-1].Kind != checkpoint.KindEnded {
			t.Fatalf("%+v, %v", behind, err)
		}
		if err := p.Reset(ctx, "w", "2", audit); err != nil {
			t.Fatal(err)
		}
		reset, err := followed(p.Follow(ctx, "w", behind[len(behind)-1].ID))
		if err != nil || reset[0].Kind != checkpoint.KindActed || reset[len(reset)-1].Kind != checkpoint.KindEnded {
			t.Fatalf("%+v, %v", reset, err)
		}
		all := slices.Concat(ended, behind, reset)
		if diff := cmp.Diff(flat(historyOf(t, p.Engine, "w")), without(t, all)); diff != "" {
			t.Errorf("not the history: %s", diff)
		}
		got := []engine.Event{before}
		for e, err, ok := slow(); ok; e, err, ok = slow() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e)
		}
		if !slices.Equal(ids(got), ids(all)) {
			t.Errorf("the slow one got %v, want %v", ids(got), ids(all))
		}
	})
}

// Whoever has got the end of a run need not know that it was purged. Whoever has not is told, also if the id
// has a new run by then, whose events are none of his.
func TestFollowWhatIsPurged(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		for _, again := range []bool{false, true} {
			id := fmt.Sprint("c", again)
			w := counter()
			p := boot(t, s, w)
			h := start(t, w, p, id, 0)
			give(t, p.Engine, id, 1)
			limited, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			next, stop := iter.Pull2(p.Follow(limited, id, ""))
			defer stop()
			if _, err, _ := next(); err != nil {
				t.Fatal(err)
			}
			seen := make(chan struct{})
			purged := make(chan struct{})
			done := make(chan error, 1)
			go func() {
				for e, err := range p.Follow(limited, id, "") {
					if err != nil {
						done <- err
						return
					}
					if e.Kind == checkpoint.KindEnded {
						close(seen)
						<-purged
					}
				}
				done <- nil
			}()
			give(t, p.Engine, id, -1)
			if _, err := soon(h); err != nil {
				t.Fatal(err)
			}
			<-seen
			if err := p.Purge(ctx, id, audit); err != nil {
				t.Fatal(err)
			}
			if again {
				start(t, w, p, id, 0)
			}
			close(purged)
			if err := <-done; err != nil {
				t.Errorf("started again %v: after the end: %v", again, err)
			}
			last := engine.Event{}
			for {
				e, err, ok := next()
				if !ok || err != nil {
					if !errors.Is(err, engine.ErrNotFound) || last.Kind == checkpoint.KindEnded {
						t.Errorf("started again %v: before the end, after %v: %v", again, last.Kind, err)
					}
					break
				}
				last = e
			}
			p.kill()
		}
	})
}

// A checkpoint that is missing or damaged is said to be: nothing is passed over.
func TestEventsOfADamagedHistory(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := counter()
		s := fresh(t)
		p := boot(t, s, w)
		h := start(t, w, p, "c", 0)
		give(t, p.Engine, "c", 1, 2, 3, -1)
		result(t, h)
		p.stop(t)
		cs := historyOf(t, made(t, s, w), "c")
		for i := range cs[:len(cs)-1] {
			key := logOf(t, s, "c").Checkpoint(cs[i].Number)
			for _, damage := range []storage.Op{storage.Delete(key), storage.Put(key, []byte("damaged"))} {
				broken := snapshot(t, s)
				if err := broken.Commit(ctx, storage.Batch{Ops: []storage.Op{damage}}); err != nil {
					t.Fatal(err)
				}
				e := made(t, broken, w)
				for _, ascending := range []bool{true, false} {
					if _, err := e.Events(ctx, "c", engine.PageRequest{Ascending: ascending}); !errors.Is(err, storage.ErrCorrupt) {
						t.Errorf("checkpoint %d, ascending %v: %v", i, ascending, err)
					}
				}
				if got, err := followed(e.Follow(ctx, "c", "")); !errors.Is(err, storage.ErrCorrupt) || len(got) > 0 && got[len(got)-1].Checkpoint >= cs[i].Number {
					t.Errorf("checkpoint %d: %d events were given, %v", i, len(got), err)
				}
				e.Close()
			}
		}
	})
}

// A read that fails ends the sequence. Whoever goes on behind the last event gets all events once, whichever
// read it is: of a run that has ended, and of one in progress.
func TestFollowThoughReadsFail(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := counter()
		s := fresh(t)
		p := boot(t, s, w)
		for n := 1; ; n++ {
			id := fmt.Sprint("c", n)
			start(t, w, p, id, 0)
			give(t, p.Engine, id, 1, 2)
			time.Sleep(time.Second)
			var calls atomic.Int64
			calls.Store(-1_000_000)
			e := made(t, storagetest.NewFaulty(s, func(storagetest.Call) storagetest.Fault {
				if calls.Add(1) == int64(n) {
					return storagetest.ErrorBefore
				}
				return storagetest.None
			}), w)
			calls.Store(0)
			go func() {
				time.Sleep(10 * time.Second)
				give(t, p.Engine, id, 3, -1)
			}()
			var got []engine.Event
			after, failed := "", 0
			for ended := false; !ended; {
				more, err := followed(e.Follow(ctx, id, after))
				if got = append(got, more...); len(got) > 0 {
					after = got[len(got)-1].ID
				}
				if interrupted := (*engine.InterruptedError)(nil); err != nil && (!errors.Is(err, storagetest.ErrInjected) || !errors.As(err, &interrupted) || interrupted.Unknown) {
					t.Fatalf("call %d: %v", n, err)
				}
				if ended = err == nil; !ended {
					failed++
				}
			}
			if diff := cmp.Diff(flat(historyOf(t, p.Engine, id)), without(t, got)); diff != "" {
				t.Errorf("call %d: not the history: %s", n, diff)
			}
			_, err := e.Events(ctx, id, engine.PageRequest{})
			done := int(calls.Load()) < n
			e.Close()
			switch {
			case done && n < 6:
				t.Errorf("%d calls are all", n)
			case done:
				return
			case failed+btoi(err != nil) != 1:
				t.Errorf("call %d: it failed %d times, and the page with %v", n, failed, err)
			}
		}
	})
}

// btoi returns 1 for true.
func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Followers beside a run that continues as new, is killed, fails and is resumed: each gets what was written,
// once and in order, though it stops and goes on elsewhere; or it is told.
func TestFollowersOfAnything(t *testing.T) {
	for round := range torture.Rounds(400, 40, 10) {
		virtual(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(round)))
			s := &recording{Storage: fresh(t), id: "a"}
			w := adder(1 + r.IntN(5))
			p := boot(t, s, w)
			other := made(t, s, w)
			defer other.Close()
			h := start(t, w, p, "a", sum{})
			var following sync.WaitGroup
			ended := make(chan struct{})
			follow := func(r *rand.Rand, engines func() *engine.Engine) {
				var got []engine.Event
				after := ""
				restart := func() { got, after = nil, "" }
				for {
					limited, stop := context.WithTimeout(ctx, time.Duration(r.IntN(5000))*time.Millisecond)
					var err error
					var e engine.Event
					n := r.IntN(12)
					for e, err = range engines().Follow(limited, "a", after) {
						if err != nil {
							break
						}
						got, after = append(got, e), e.ID
						if r.IntN(4) == 0 {
							time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
						}
						if n--; n < 0 {
							break
						}
					}
					stop()
					all := s.events()
					begin := len(all)
					if len(got) > 0 {
						begin = slices.IndexFunc(all, func(e engine.Event) bool { return e.Checkpoint == got[0].Checkpoint })
					}
					if diff := cmp.Diff(append([]engine.Event(nil), all[begin:min(begin+len(got), len(all))]...), without(t, got)); diff != "" {
						t.Errorf("round %d: not what was written: %s", round, diff)
						return
					}
					gone := (*engine.EventsGoneError)(nil)
					switch {
					case err == nil && n >= 0: // the end
						if len(got) > 0 && got[len(got)-1].Kind != checkpoint.KindEnded {
							t.Errorf("round %d: the last is %s", round, got[len(got)-1].Kind)
						}
						select {
						case <-ended:
						default:
							t.Errorf("round %d: the sequence has ended, and the run has not", round)
						}
						return
					case err == nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, engine.ErrClosed), errors.Is(err, storagetest.ErrCrashed):
						time.Sleep(time.Millisecond)
					case errors.As(err, &gone) && gone.After == after:
						restart()
					default:
						t.Errorf("round %d: %v", round, err)
						return
					}
				}
			}
			var mu sync.Mutex
			here := func() *engine.Engine {
				mu.Lock()
				defer mu.Unlock()
				return p.Engine
			}
			for i := range 4 {
				engines := here
				if i%2 == 1 {
					engines = func() *engine.Engine { return other }
				}
				following.Go(func() { follow(rand.New(rand.NewPCG(2, uint64(10*round+i))), engines) })
			}
			for i := range 30 {
				give(t, here(), "a", i)
				switch r.IntN(10) {
				case 0:
					p.kill()
					next := boot(t, s, w)
					mu.Lock()
					p = next
					mu.Unlock()
					h = w.Handle(p, "a")
				case 1, 2, 3:
					time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
				}
			}
			close(ended) // it may end from now on
			give(t, here(), "a", -1)
			result(t, h)
			following.Wait()
		})
	}
}

// The store says that another process has written something.
func TestFollowAnotherProcess(t *testing.T) {
	url := pgtest.URL(t)
	var stores []storage.Storage
	for range 2 {
		s, err := postgres.Open(ctx, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		stores = append(stores, s)
	}
	w := counter()
	p := boot(t, stores[0], w)
	other := made(t, stores[1], w, func(c *engine.Config) { c.PollInterval = time.Hour })
	defer other.Close()
	start(t, w, p, "c", 0)
	limited, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	n := 0
	for e, err := range other.Follow(limited, "c", "") {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case e.Kind == checkpoint.KindReceived && n == 20:
			n++
			give(t, p.Engine, "c", -1)
		case e.Kind == checkpoint.KindReceived && n < 20 || n == 0:
			n++
			give(t, p.Engine, "c", n)
		}
	}
	if n != 21 {
		t.Errorf("%d numbers were sent, want 20 and the last one", n)
	}
	p.kill()
}

// Who begins to follow a workflow while it continues as new gets the life that there is then: nothing was given before.
func TestFollowBeginsBesideAContinuation(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		w := again("w", 100, hearsYes)
		p := boot(t, s, w)
		start(t, w, p, "w", 0)
		reader := made(t, &between{Storage: s, get: "wf:w", happens: func() {
			tell(t, yes, p, "w", "1")
			waitFor(t, "the next life", func() bool { return describe(t, p, "w").Life == 1 })
		}}, w)
		defer reader.Close()
		for e, err := range reader.Follow(ctx, "w", "") {
			if err != nil || e.Kind != checkpoint.KindContinued {
				t.Errorf("%+v, %v, want the beginning of the second life", e, err)
			}
			break
		}
		p.stop(t)
	})
}

// A heeded store can tell of what other processes commit. It notes what it was asked to tell of.
type heeded struct {
	storage.Storage
	prefix atomic.Pointer[string]
}

func (w *heeded) Unwrap() storage.Storage { return w.Storage }

func (w *heeded) Watch(ctx context.Context, prefix []byte, wake func()) error {
	w.prefix.CompareAndSwap(nil, new(string(prefix)))
	<-ctx.Done()
	return ctx.Err()
}

// Who follows a workflow is woken by what any process appends to its history.
func TestFollowWatchesTheHistory(t *testing.T) {
	s := fresh(t)
	wf := flow("w", func(run *engine.Run) (string, error) { return yes.Receive(run) })
	p := boot(t, s, wf)
	start(t, wf, p, "o", "")
	w := &heeded{Storage: s}
	reader := made(t, w)
	defer reader.Close()
	done := make(chan error, 1)
	go func() {
		_, err := followed(reader.Follow(ctx, "o", ""))
		done <- err
	}()
	eventually(t, "it watches", func() bool { return w.prefix.Load() != nil })
	send(t, yes, p, "o", "go", "a")
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got, want := *w.prefix.Load(), string(logOf(t, s, "o").Prefix()); got != want {
		t.Errorf("watched %q, want %q", got, want)
	}
	p.stop(t)
}
