package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A weighed store has the number of bytes of the largest page that was read.
type weighed struct {
	storage.Storage
	largest atomic.Int64
}

func (w *weighed) Unwrap() storage.Storage { return w.Storage }

func (w *weighed) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	page, err := w.Storage.Scan(ctx, r)
	size := 0
	for _, e := range page {
		size += len(e.Value)
	}
	w.largest.Store(max(w.largest.Load(), int64(size)))
	return page, err
}

// atMost checks that no page was larger since the last check.
func (w *weighed) atMost(t *testing.T, bytes int64, what string) {
	t.Helper()
	if n := w.largest.Swap(0); n > bytes {
		t.Errorf("%s: a page has %d KiB, want %d at most", what, n>>10, bytes>>10)
	}
}

// Records of a run that are large are read a few at a time: updates that wait, their answers, and the
// results of activities.
func TestLargeRecordsAreReadAFewAtATime(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const records = 40
		large := strings.Repeat("x", 1<<20)
		echo := &engine.Update[string, string]{Name: "echo"}
		fetch := &activity.Activity[int, string]{
			Name:           "fetch",
			IdempotencyKey: func(n int) string { return sprint("n", n) },
			Run:            func(context.Context, int) (string, error) { return large, nil },
		}
		wf := flow("w", func(run *engine.Run) (string, error) {
			for i := range records {
				if _, err := fetch.Do(run, i); err != nil {
					return "", err
				}
			}
			if _, err := approved.Receive(run); err != nil {
				return "", err
			}
			if err := echo.Handle(run, nil, func(_ *engine.Run, in string) (string, error) { return in, nil }); err != nil {
				return "", err
			}
			return approved.Receive(run)
		})
		s := &weighed{Storage: new(memory.Store)}
		p := boot(t, s, wf, rareLeases)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		few := func(what string) { t.Helper(); s.atMost(t, 20<<20, what) }
		few("the run")
		for i := range records {
			if _, err := echo.Call(patient(t, time.Second), p, "o", large, by(sprint("u", i))); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("update %d: %v, want it to wait", i, err)
			}
		}
		few("calls of updates")
		send(t, approved, p, "o", "handle them", "")
		if got, err := echo.Call(ctx, p, "o", large, by("last")); err != nil || got != large {
			t.Fatalf("the last update: %d bytes, %v", len(got), err)
		}
		few("the run that answers them")
		if err := p.Resolve(ctx, "o", "1", activity.NotCompleted[string](), audit); !errors.Is(err, engine.ErrNotApplicable) {
			t.Errorf("resolve of what is completed: %v, want ErrNotApplicable", err)
		}
		few("Resolve")
		if err := p.Terminate(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		few("Terminate")
		answers, updates := len(entries(t, s.Storage, "upr:")), len(entries(t, s.Storage, "upd:"))
		if answers != records+1 || updates != 0 {
			t.Errorf("%d answers, and %d updates that wait, want %d and none", answers, updates, records+1)
		}
		now := time.Now()
		if remembers, err := acceptance.RemembersAnswers(ctx, s, "o", now, now.Add(24*time.Hour*365), time.Hour); err != nil || remembers {
			t.Errorf("answers are remembered for a year: %v, %v", remembers, err)
		}
		few("retention")
	})
}

// A short past whose checkpoints are large is not kept in memory for the claim. It is read a few checkpoints at a time, then
// and when the run goes on, also if the first ones are small. So it is by whoever reads its history or its events.
func TestLargePast(t *testing.T) {
	for _, c := range []struct {
		small, large int
		most         int64 // of large ones that are read at once
	}{{0, 4, 4}, {0, 100, 16}, {20, 100, 32}, {120, 100, 64}} {
		t.Run(sprint(c.small, "small ones and", c.large), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := &weighed{Storage: new(memory.Store)}
				large := strings.Repeat("x", 1<<19)
				wf := flow("w", func(run *engine.Run) (string, error) {
					for i := range c.small + c.large {
						out := ""
						if i >= c.small {
							out = large
						}
						if _, err := engine.Step(run, "s", func(context.Context) (string, error) { return out, nil }); err != nil {
							return "", err
						}
					}
					return "done", run.Sleep(time.Hour)
				})
				p := boot(t, s, wf)
				start(t, wf, p, "o", "")
				time.Sleep(time.Second)
				p.kill()
				record, err := journal.Load(ctx, s, "o")
				if err != nil {
					t.Fatal(err)
				}
				s.largest.Store(0)
				hold, past, err := journal.FindPast(ctx, s, record)
				if err != nil || past != nil {
					t.Errorf("a past of %d large checkpoints: %v, %v", c.large, past != nil, err)
				}
				s.atMost(t, 17<<19, "the claim")
				p = boot(t, s, wf)
				time.Sleep(time.Second)
				s.atMost(t, (c.most+1)<<19, "the replay")
				if cs := historyOf(t, p.Engine, "o"); hold == nil || hold.Head == 0 || cs[len(cs)-1].Number < hold.Head {
					t.Error("the head was not found")
				}
				if got := result(t, wf.Handle(p, "o")); got != "done" {
					t.Errorf("result %q", got)
				}
				if i := describe(t, p, "o"); i.Status != checkpoint.StatusCompleted {
					t.Errorf("%s", i.Status)
				}
				n := 0
				for _, cp := range historyOf(t, p.Engine, "o") {
					n += len(cp.Events)
				}
				s.atMost(t, (c.most+1)<<19, "History")
				for _, r := range []engine.PageRequest{{Ascending: true}, {}, {Ascending: true, NoData: true}, {NoData: true}} {
					got := 0
					for r.Limit = 1000; ; {
						page, err := p.Events(ctx, "o", r)
						if err != nil {
							t.Fatal(err)
						}
						got, r.Cursor = got+len(page.Data), page.Next
						if !page.HasMore {
							break
						}
					}
					if got != n {
						t.Errorf("%+v: %d events, want %d", r, got, n)
					}
					s.atMost(t, (c.most+1)<<19, sprint("Events", r.Ascending, r.NoData))
				}
				if es, err := followed(p.Follow(ctx, "o", "")); err != nil || len(es) != n {
					t.Errorf("Follow: %d events, want %d: %v", len(es), n, err)
				}
				s.atMost(t, (c.most+1)<<19, "Follow")
			})
		})
	}
}

// What children came to, which a parent has not read yet, is read a few at a time by whoever ends it, and by itself.
func TestLargeEndsOfChildrenAreReadAFewAtATime(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const children = 40
		large := strings.Repeat("x", 1<<19)
		sub := flow("sub", func(run *engine.Run) (string, error) { return large, run.Sleep(time.Minute) })
		wf := flow("parent", func(run *engine.Run) (string, error) {
			var all []*future.Future[string]
			for range children {
				all = append(all, sub.Go(run, ""))
			}
			n := 0
			for _, f := range all {
				out, err := f.Get(run)
				if err != nil {
					return "", err
				}
				n += len(out)
			}
			return sprint(n), nil
		})
		s := &weighed{Storage: new(memory.Store)}
		both := boot(t, s, wf, sub, rareLeases)
		for _, id := range []string{"terminated", "reset", "goes on"} {
			start(t, wf, both, id, "")
		}
		time.Sleep(10 * time.Second)
		both.kill()
		one := boot(t, s, sub, rareLeases) // knows the children's type only
		time.Sleep(5 * time.Minute)
		if n := len(entries(t, s.Storage, "kid:")); n != 3*children {
			t.Fatalf("%d records of children, want %d", n, 3*children)
		}
		few := func(what string) { t.Helper(); s.atMost(t, 10<<20, what) }
		s.largest.Store(0)
		if err := one.Terminate(ctx, "terminated", audit); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		few("Terminate")
		if err := one.Reset(ctx, "reset", "", audit); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		few("Reset")
		one.stop(t)
		both = boot(t, s, wf, sub, rareLeases)
		if got := result(t, wf.Handle(both, "goes on")); got != sprint(children<<19) {
			t.Errorf("the parent has %s", got)
		}
		few("the parent")
	})
}
