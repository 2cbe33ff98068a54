package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/integrity"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/membership"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// unlisted removes from s what a release without these lists does not write. Of meta:lists it
// leaves what the store had if keep.
func unlisted(t testing.TB, s storage.Storage, keep bool) {
	t.Helper()
	families := []string{"ls:", "ll:", "lp:", "la:"}
	if !keep {
		families = append(families, "meta:lists")
	}
	for _, family := range families {
		for _, key := range entries(t, s, family) {
			if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Delete([]byte(key))}}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// missing are the problems of the store with lists.
func missing(s storage.Storage) (problems []string) {
	for _, p := range integrity.Check(ctx, s, time.Time{}) {
		if strings.Contains(p, "list") {
			problems = append(problems, p)
		}
	}
	return problems
}

// endedAt returns when a workflow ended, a whole microsecond.
func endedAt(t testing.TB, p *process, id string) time.Time {
	t.Helper()
	time.Sleep(time.Second)
	return describe(t, p, id).EndedAt
}

// LST-2: After is included and Before is not, to the nanosecond in a list in the order of
// statuses; in the order of creation to the millisecond. A page and a count agree.
func TestPageAtTheEdgesOfTimes(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", nil2)
		p := boot(t, s, wf)
		time.Sleep(time.Second)
		start(t, wf.With(engine.StartOptions{Labels: map[string]string{"team": "blue"}}), p, "o", "")
		at := endedAt(t, p, "o")
		made := describe(t, p, "o").CreatedAt.Truncate(time.Millisecond)
		none := time.Time{}
		far := time.Date(292277, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, f := range []engine.Filter{{Workflow: "wf"}, {Status: checkpoint.StatusCompleted}, {Labels: map[string]string{"team": "blue"}}, {}, {IDPrefix: "o"}} {
			unit, at := time.Nanosecond, at
			if f.IDPrefix != "" || f.Workflow == "" && f.Status == "" && f.Labels == nil {
				unit, at = time.Millisecond, made
			}
			for _, c := range []struct {
				after, before time.Time
				want          int
			}{
				{none, none, 1}, {at, none, 1}, {at.Add(1), none, 0}, {at.Add(unit), none, 0}, {at.Add(-1), none, 1},
				{none, at, 0}, {none, at.Add(1), 1}, {none, at.Add(unit), 1}, {none, at.Add(-1), 0},
				{at, at.Add(unit), 1}, {at.Add(unit), at, 0}, {at, at, 0},
				{time.Unix(-1<<40, 0), far, 1}, {far, none, 0}, {none, time.Unix(-1<<40, 0), 0},
			} {
				f.After, f.Before = c.after, c.before
				for _, ascending := range []bool{false, true} {
					if got := paged(t, p.Engine, f, 10, ascending); len(got) != c.want {
						t.Errorf("%+v: a page of %d, want %d", f, len(got), c.want)
					}
				}
				if n, all, err := p.Count(ctx, f, 10); n != c.want || !all || err != nil {
					t.Errorf("%+v: a count of %d, %v, %v, want %d", f, n, all, err, c.want)
				}
			}
		}
		p.stop(t)
	})
}

// LST-1: a page has what was started and ended at the very moment at which it is read, in both
// orders.
func TestPageOfThisMoment(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", nil2)
		p := boot(t, s)
		for i := range 3 {
			start(t, wf, p, sprint("o", i), "")
			for _, ascending := range []bool{false, true} {
				if got := paged(t, p.Engine, engine.Filter{Workflow: "wf"}, 10, ascending); len(got) != i+1 {
					t.Errorf("ascending %v: %q, want %d", ascending, idsOf(got), i+1)
				}
			}
			if err := p.Terminate(ctx, sprint("o", i), audit); err != nil {
				t.Fatal(err)
			}
			for _, ascending := range []bool{false, true} {
				if got := paged(t, p.Engine, engine.Filter{Status: checkpoint.StatusCancelled}, 10, ascending); len(got) != i+1 {
					t.Errorf("ascending %v: ended are %q, want %d", ascending, idsOf(got), i+1)
				}
			}
		}
		p.stop(t)
	})
}

// LST-4: a cursor is of an instant, and not of the place where the clock hangs.
func TestCursorOfAnotherTimeZone(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", nil2)
		p := boot(t, s, wf)
		now := time.Now()
		for i := range 3 {
			time.Sleep(time.Millisecond)
			start(t, wf, p, sprint("o", i), "")
		}
		page, err := p.Page(ctx, engine.Filter{After: now}, engine.PageRequest{Limit: 2})
		if err != nil || !page.HasMore {
			t.Fatalf("%+v, %v", page, err)
		}
		for _, again := range []time.Time{now.UTC(), now.Round(0), now.In(time.FixedZone("x", 3600))} {
			rest, err := p.Page(ctx, engine.Filter{After: again}, engine.PageRequest{Cursor: page.Next})
			if err != nil || len(rest.Data) != 1 {
				t.Errorf("%v: %+v, %v", again, rest, err)
			}
		}
		if _, err := p.Page(ctx, engine.Filter{After: now.Add(1)}, engine.PageRequest{Cursor: page.Next}); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("another time: %v, want ErrInvalid", err)
		}
		p.stop(t)
	})
}

// LST-10: while lists are not complete, times select by what they are of: not by the creation,
// where the list is by status.
func TestTimesWhileListsAreIncomplete(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Hour) })
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Hour + time.Second)
		p.kill()
		unlisted(t, s, false)
		e := made(t, s)
		defer e.Close()
		f := engine.Filter{Workflow: "wf", After: time.Now().Add(-time.Minute)}
		if got := paged(t, e, f, 10, false); len(got) != 1 {
			t.Errorf("ended within the last minute: %q, want 1", idsOf(got))
		}
		if n, all, err := e.Count(ctx, f, 10); n != 1 || !all || err != nil {
			t.Errorf("count: %d, %v, %v", n, all, err)
		}
		f.After, f.Before = time.Time{}, time.Now().Add(-time.Minute)
		if got := paged(t, e, f, 10, true); len(got) != 0 {
			t.Errorf("ended before: %q, want none", idsOf(got))
		}
	})
}

// LST-3: the time in a list never goes back, whatever the clocks of engines say.
func TestListsAfterAClockThatIsAhead(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var ahead wall
		ahead.jump(time.Hour)
		failing := flow("wf", func(run *engine.Run) (string, error) { return "", errors.Join(run.Sleep(time.Millisecond), errBroke) })
		since := func() (at int64) {
			wf, err := journal.Load(ctx, s, "o")
			if err != nil {
				t.Fatal(err)
			}
			return wf.Since()
		}
		p := bootAt(t, s, &ahead, failing, leases)
		start(t, failing, p, "o", "")
		time.Sleep(time.Second)
		failed := since()
		p.stop(t)
		q := boot(t, s, failing, leases)
		if err := q.Resume(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		if again := since(); again < failed {
			t.Errorf("resumed %v before its end", time.Duration(failed-again)*time.Microsecond)
		}
		time.Sleep(time.Second)
		if again := since(); again < failed {
			t.Errorf("ended again %v before its first end", time.Duration(failed-again)*time.Microsecond)
		}
		q.stop(t)
	})
}

// LST-10: a damaged record of how far lists are complete is not the end of them: it is written
// anew. That of a later release stays.
func TestDamagedRecordOfLists(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", nil2)
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		p.stop(t)
		key := keys.Meta("lists")
		put(t, s, key, []byte("damaged"))
		e := made(t, s)
		defer e.Close()
		f := engine.Filter{Status: checkpoint.StatusCompleted}
		if got := paged(t, e, f, 10, false); len(got) != 1 {
			t.Errorf("%q, want 1", idsOf(got))
		}
		q := boot(t, s, wf)
		time.Sleep(time.Minute)
		q.stop(t)
		if raw := get(t, s, key); string(raw) == "damaged" {
			t.Error("it is still damaged")
		}
		later, err := record.Seal(key, journal.Version+1, &struct{}{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, key, later)
		q = boot(t, s, wf)
		time.Sleep(time.Minute)
		q.stop(t)
		if raw := get(t, s, key); !bytes.Equal(raw, later) {
			t.Error("what a later release wrote was replaced")
		}
	})
}

// earlierRelease makes the registrations in s those of an engine of a release without these lists, which
// ended at a time, or was killed after it had renewed its lease last at that time.
func earlierRelease(t testing.TB, s storage.Storage, change func(r *membership.Registration)) {
	t.Helper()
	for _, key := range entries(t, s, "eng:") {
		r, err := membership.OpenRegistration([]byte(key), get(t, s, []byte(key)))
		if err != nil {
			t.Fatal(err)
		}
		r.Lists = false
		change(r)
		raw, err := record.Seal([]byte(key), journal.Version, r, nil)
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, []byte(key), raw)
	}
}

// LST-10: what an engine of a release without these lists did after they had been completed is
// added, however that engine ended, and however long ago it began. Its record does not stay.
func TestListsAfterAnEarlierRelease(t *testing.T) {
	for name, change := range map[string]func(r *membership.Registration){
		"stopped":                    func(*membership.Registration) {},
		"killed, and began long ago": func(r *membership.Registration) { r.Stopped, r.Dead, r.Since = 0, true, 1 },
		"its last renewal was before": func(r *membership.Registration) {
			r.Stopped, r.Dead = 0, true
			r.Clock -= 61_000_000
			r.Since = r.Clock
		},
		"killed, and its clock was ahead by years": func(r *membership.Registration) {
			r.Stopped, r.Dead = 0, true
			r.Clock += decade.Microseconds()
		},
		"stopped, and its clock is slow": func(r *membership.Registration) { r.Stopped -= 90_000_000; r.Clock, r.Since = r.Stopped, r.Stopped },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := fresh(t)
				wf := flow("wf", nil2)
				time.Sleep(30 * 24 * time.Hour)
				old := boot(t, s, wf, rareLeases)
				unlisted(t, s, false)
				p := boot(t, s, wf, rareLeases)
				time.Sleep(time.Minute)
				p.stop(t)
				start(t, wf, old, "o", "")
				time.Sleep(time.Millisecond)
				old.stop(t)
				unlisted(t, s, true)
				earlierRelease(t, s, change)
				q := boot(t, s, wf, rareLeases)
				time.Sleep(3 * time.Hour)
				if got := paged(t, q.Engine, engine.Filter{Workflow: "wf"}, 10, false); len(got) != 1 {
					t.Errorf("%q, want 1", idsOf(got))
				}
				if m := missing(s); len(m) > 0 {
					t.Errorf("%q", m)
				}
				time.Sleep(48 * time.Hour)
				if left := entries(t, s, "eng:"); len(left) != 1 {
					t.Errorf("two days later: %q, want the engine that runs: as long as the others are there, passes are made", left)
				}
				q.stop(t)
			})
		})
	}
}

// LST-10: the mark of an earlier release stays until its work is listed, though the store fails
// meanwhile.
func TestListsAreCompletedAfterTheStoreFailed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", nil2)
		time.Sleep(30 * 24 * time.Hour)
		old := boot(t, s, wf, leases)
		start(t, wf, old, "o", "")
		time.Sleep(time.Second)
		old.stop(t)
		unlisted(t, s, true)
		earlierRelease(t, s, func(r *membership.Registration) { r.Stopped, r.Dead, r.Since, r.Clock = 0, true, 1, 1 })
		var fails atomic.Bool
		fails.Store(true)
		q := bootOn(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Commit" && touches(c.Batch, "meta:lists") && fails.Load() {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		}), wf, leases)
		time.Sleep(2 * time.Hour)
		q.stop(t)
		unlisted(t, s, true)
		fails.Store(false)
		q = boot(t, s, wf, leases)
		time.Sleep(3 * time.Hour)
		if m := missing(s); len(m) > 0 {
			t.Errorf("%q", m)
		}
		q.stop(t)
	})
}

// LST-5: keys that are no keys of a list are passed over, too.
func TestPageWithDamagedKeys(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", nil2)
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		for _, key := range []string{"ls:%", "ls:", "ls::completed:x", "ls:a%zz:b", "ls:wf", "ls:wf:completed", "ls:zz", "ls:zz:completed:0:%", "todo:000:-%", "op:x", "held:x", "ix:%", "la:%"} {
			put(t, s, []byte(key), []byte("damaged"))
		}
		done := make(chan bool)
		for _, f := range []engine.Filter{{}, {Status: checkpoint.StatusCompleted}, {Workflow: "wf"}, {Attention: true}} {
			go func() {
				defer func() { done <- true }()
				got := 0
				r := engine.PageRequest{Limit: 2}
				for range 100 {
					page, err := p.Page(ctx, f, r)
					if err != nil {
						t.Errorf("%+v: %v", f, err)
						return
					}
					for _, i := range page.Data {
						if i.ID == "o" {
							got++
						}
						if i.ID != "o" && i.Damaged == "" {
							t.Errorf("%+v: %+v", f, i)
						}
					}
					if !page.HasMore {
						break
					}
					r.Cursor = page.Next
				}
				if want := 1; got != want && !f.Attention {
					t.Errorf("%+v: %d times, want %d", f, got, want)
				}
			}()
			select {
			case <-done:
			case <-time.After(time.Hour):
				t.Fatalf("%+v: no end", f)
			}
		}
		p.kill()
	})
}

// LST-2: ids that begin alike and have whatever characters are told apart by a prefix, and none
// is passed over.
func TestPageByPrefixOfIDs(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		act := counting(new(tally), "act")
		wf := flow("wf", func(run *engine.Run) (string, error) {
			for i := range 3 {
				if _, err := act.Do(run, sprint(i)); err != nil {
					return "", err
				}
			}
			return "", nil
		})
		p := boot(t, s, wf)
		long := strings.Repeat("é:", 66) + "%\x00"
		ids := []string{"a", "a1", "a:", "a:b", "a:ckpt", "a:in", "a%", "a%3A", "a\x00", "a-", "a~", "aa", "ab", "b", ":", ":a", "%", "\x00", "\x00\x00", "é", "\xf4\x8f\xbf\xbf", long, long[:199] + "x"}
		for _, id := range ids {
			start(t, wf, p, id, "")
		}
		time.Sleep(time.Second)
		prefixes := []string{"none"}
		for _, id := range ids {
			for n := range id {
				if n > 0 && n < 8 {
					prefixes = append(prefixes, id[:n])
				}
			}
			prefixes = append(prefixes, id)
		}
		for _, prefix := range prefixes {
			var want []string
			for _, id := range ids {
				if strings.HasPrefix(id, prefix) {
					want = append(want, id)
				}
			}
			slices.SortFunc(want, func(a, b string) int { return bytes.Compare(keys.Workflow(a), keys.Workflow(b)) })
			for _, limit := range []int{1, 2, 100} {
				if got := idsOf(paged(t, p.Engine, engine.Filter{IDPrefix: prefix}, limit, false)); !slices.Equal(got, want) {
					t.Errorf("%q by %d: %q, want %q", prefix, limit, got, want)
				}
			}
			if n, all, err := p.Count(ctx, engine.Filter{IDPrefix: prefix}, 1000); n != len(want) || !all || err != nil {
				t.Errorf("%q: count is %d, %v, %v", prefix, n, all, err)
			}
		}
		p.stop(t)
	})
}

// widest are 16 labels of together 1 KiB, all of whose characters are escaped in keys.
func widest() map[string]string {
	labels := map[string]string{}
	for i := range 16 {
		labels[fmt.Sprintf("%02d:%%", i)] = strings.Repeat("\x00", 60)
	}
	return labels
}

// LST-2, LST-8: names, ids and labels of the greatest lengths, all escaped, are found.
func TestPageOfTheLongestNames(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		name, id := strings.Repeat(":", keys.MaxName), strings.Repeat("%", keys.MaxID)
		value := strings.Repeat("\x00", 128)
		labels := map[string]string{strings.Repeat(":", 64): value}
		wf := flow(name, nil2)
		e := made(t, s)
		defer e.Close()
		start(t, wf.With(engine.StartOptions{Labels: labels}), e, id, "")
		start(t, wf.With(engine.StartOptions{Labels: widest()}), e, id[1:], "")
		for _, f := range []engine.Filter{{Workflow: name}, {Status: checkpoint.StatusPending}, {Workflow: name, Status: checkpoint.StatusPending}, {Labels: labels}, {IDPrefix: id}} {
			got := paged(t, e, f, 1, false)
			if !slices.Contains(idsOf(got), id) {
				t.Errorf("%.30v: %d", f, len(got))
			}
		}
		if got := paged(t, e, engine.Filter{Labels: widest()}, 1, false); len(got) != 1 {
			t.Errorf("by 16 labels: %d", len(got))
		}
		if m := missing(s); len(m) > 0 {
			t.Errorf("%.200q", m)
		}
	})
}

// LST-5: a page removes only some of many outdated entries, so that it does not take longer than
// reading, and the pages after it the others. What changes meanwhile stays.
func TestPageRemovesOutdatedEntriesLittleByLittle(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", nil2)
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		for i := range 500 {
			row, err := journal.PutRow(keys.Listed("wf", "failed", time.Now(), sprint("G", i)), "o")
			if err != nil {
				t.Fatal(err)
			}
			put(t, s, row.Key, row.Value)
		}
		f := engine.Filter{Status: checkpoint.StatusFailed}
		for left := 500; left > 0; {
			if page, err := p.Page(ctx, f, engine.PageRequest{}); err != nil || len(page.Data) > 0 || page.HasMore {
				t.Fatalf("%+v, %v", page, err)
			}
			n := len(entries(t, s, "ls:wf:failed:"))
			if n >= left || left-n > 100 {
				t.Fatalf("a page has removed %d of %d", left-n, left)
			}
			left = n
		}
		p.stop(t)
	})
}

// LST-5: an outdated entry that became the workflow's own again, or whose workflow is started
// meanwhile, is not removed.
func TestPageKeepsWhatIsListedAgain(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &hooked{Storage: fresh(t)}
		wf := flow("wf", func(*engine.Run) (string, error) { return "", errBroke })
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		real := entries(t, s, "ls:")
		if len(real) != 1 {
			t.Fatalf("%q", real)
		}
		record, err := journal.Load(ctx, s, "o")
		if err != nil {
			t.Fatal(err)
		}
		running := *record // as if it was not ended yet
		running.Status, running.EndedAt = checkpoint.StatusRunning, 0
		ops, err := journal.Replace(nil, record, &running)
		if err != nil {
			t.Fatal(err)
		}
		row := get(t, s, []byte(real[0]))
		if err := s.Commit(ctx, storage.Batch{Ops: ops}); err != nil {
			t.Fatal(err)
		}
		put(t, s, []byte(real[0]), row) // outdated
		met := false
		s.beforeCommit = func(b storage.Batch) {
			if met || len(b.Ops) == 0 || string(b.Ops[0].Key) != real[0] {
				return
			}
			met = true // now it ends
			after, err := journal.Load(ctx, s.Storage, "o")
			if err != nil {
				t.Fatal(err)
			}
			ops, err := journal.Replace(nil, after, record)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Storage.Commit(ctx, storage.Batch{Ops: ops}); err != nil {
				t.Fatal(err)
			}
		}
		if got := paged(t, p.Engine, engine.Filter{Status: checkpoint.StatusFailed}, 10, false); len(got) > 0 {
			t.Errorf("%q", idsOf(got))
		}
		if !met {
			t.Fatal("nothing was removed")
		}
		if m := missing(s); len(m) > 0 {
			t.Errorf("%q", m)
		}
		p.kill()
	})
}

// Of a store that fails, or a context that has ended, a page says so.
func TestPageOfAStoreThatFails(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		p, _ := many(t, s)
		p.kill()
		var fail atomic.Int64
		var calls atomic.Int64
		f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if n := fail.Load(); n > 0 && calls.Add(1) == n {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		e := made(t, f)
		defer e.Close()
		for _, filter := range []engine.Filter{{}, {Status: checkpoint.StatusCompleted}, {Attention: true}, {IDPrefix: "q"}, {Labels: map[string]string{"team": "blue"}}} {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			if page, err := e.Page(ended, filter, engine.PageRequest{}); !errors.Is(err, context.Canceled) || len(page.Data) > 0 {
				t.Errorf("%+v: %+v, %v, want context.Canceled", filter, page, err)
			}
			if _, _, err := e.Count(ended, filter, 10); !errors.Is(err, context.Canceled) {
				t.Errorf("%+v: %v, want context.Canceled", filter, err)
			}
			for n := int64(1); ; n++ {
				calls.Store(0)
				fail.Store(n)
				page, err := e.Page(ctx, filter, engine.PageRequest{})
				if calls.Load() < n {
					break
				}
				if !errors.Is(err, storagetest.ErrInjected) || len(page.Data) > 0 {
					t.Fatalf("%+v, call %d: %+v, %v", filter, n, page, err)
				}
			}
			fail.Store(0)
		}
	})
}

// LST-5: a count agrees with the pages: what is damaged is one of them.
func TestCountOfDamagedRecords(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", nil2)
		p := boot(t, s, wf)
		for i := range 3 {
			start(t, wf, p, sprint("o", i), "")
		}
		time.Sleep(time.Second)
		put(t, s, keys.Workflow("o1"), []byte("damaged"))
		for _, f := range []engine.Filter{{}, {Workflow: "wf"}, {IDPrefix: "o"}, {TopLevel: true}} {
			n, all, err := p.Count(ctx, f, 10)
			if err != nil || !all || n != len(paged(t, p.Engine, f, 10, false)) {
				t.Errorf("%+v: %d, %v, %v", f, n, all, err)
			}
		}
		p.kill()
	})
}

// LST-11: a list of what needs an operator has what waits in vain in a line, and what is due and
// nobody executes, each once, while others come and go.
func TestPageOfWhatWaitsInVain(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		known := flow("known", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Hour) })
		unknown := flow("unknown", nil2)
		asks := flow("asks", func(run *engine.Run) (string, error) { return puzzling(new(atomic.Bool)).Do(run, "x") })
		queue := func(c *engine.Config) { c.Queues = []engine.Queue{{Name: "served", Concurrency: 1}} }
		p := boot(t, s, known, asks, queue)
		for i := range 3 {
			start(t, known.With(engine.StartOptions{Queue: "served"}), p, sprint("k", i), "")
			start(t, unknown.With(engine.StartOptions{Queue: "served"}), p, sprint("uq", i), "")
			start(t, unknown, p, sprint("u", i), "")
			start(t, asks, p, sprint("a", i), "")
		}
		time.Sleep(time.Minute)
		for _, limit := range []int{1, 2, 100} {
			got := idsOf(paged(t, p.Engine, engine.Filter{Attention: true}, limit, false))
			slices.Sort(got)
			if want := []string{"a0", "a1", "a2", "u0", "u1", "u2", "uq0", "uq1", "uq2"}; !slices.Equal(got, want) {
				t.Errorf("by %d: %q, want %q", limit, got, want)
			}
		}
		if n, all, err := p.Count(ctx, engine.Filter{Attention: true}, 100); n != 9 || !all || err != nil {
			t.Errorf("count: %d, %v, %v", n, all, err)
		}
		// To an engine that knows none of them, also those that p executes are nobody's.
		e := made(t, s, flow("other", nil2))
		defer e.Close()
		got := idsOf(paged(t, e, engine.Filter{Attention: true}, 2, false))
		slices.Sort(got)
		if want := []string{"a0", "a1", "a2", "k0", "k1", "k2", "u0", "u1", "u2", "uq0", "uq1", "uq2"}; !slices.Equal(got, want) {
			t.Errorf("of another engine: %q, want %q", got, want)
		}
		p.kill()
	})
}

// A readMeter counts what is read of it.
type readMeter struct {
	storage.Storage
	read  atomic.Int64  // records, and scans that found none
	delay time.Duration // of each read
}

func (m *readMeter) Unwrap() storage.Storage { return m.Storage }

func (m *readMeter) Get(ctx context.Context, key []byte) ([]byte, error) {
	m.read.Add(1)
	time.Sleep(m.delay)
	return m.Storage.Get(ctx, key)
}

func (m *readMeter) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	time.Sleep(m.delay)
	page, err := m.Storage.Scan(ctx, r)
	m.read.Add(int64(max(len(page), 1)))
	return page, err
}

// LST-2, LST-6: how much a page reads depends on its size, and not on how many workflows there
// are or how long their histories are. A count stops at what is asked for.
func TestPageReadsLittle(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", func(run *engine.Run) (string, error) {
			for range 30 {
				if err := run.Sleep(time.Minute); err != nil {
					return "", err
				}
			}
			return "", errBroke
		})
		sub := flow("sub", nil2)
		parent := flow("parent", func(run *engine.Run) (string, error) {
			for i := range 200 {
				sub.AsChild(engine.ChildOptions{ID: sprint("c", i)}).Go(run, "")
			}
			return "", run.Sleep(24 * time.Hour)
		})
		held := flow("held", func(run *engine.Run) (string, error) { return puzzling(new(atomic.Bool)).Do(run, "x") })
		p := boot(t, s, wf, sub, parent, held)
		blue := map[string]string{"team": "blue"}
		for i := range 200 {
			start(t, wf.With(engine.StartOptions{Labels: blue}), p, sprint("o", i), "")
			start(t, held, p, sprint("h", i), "")
		}
		start(t, parent, p, "p", "")
		time.Sleep(time.Hour)
		p.stop(t)
		for i := range 200 {
			for n := range uint64(50) { // where an earlier release had them
				put(t, s, keys.LogUnder(sprint("o", i)).Checkpoint(n), []byte("a checkpoint"))
			}
		}
		m := &readMeter{Storage: s}
		e := made(t, m, wf, sub, parent, held)
		defer e.Close()
		if _, err := e.Page(ctx, engine.Filter{}, engine.PageRequest{Limit: 1}); err != nil { // what an engine reads once
			t.Fatal(err)
		}
		now := time.Now()
		for _, f := range []engine.Filter{
			{}, {Workflow: "wf"}, {Status: checkpoint.StatusFailed}, {Workflow: "wf", Status: checkpoint.StatusFailed}, {Labels: blue},
			{Labels: blue, Status: checkpoint.StatusFailed}, {Parent: "p"}, {Attention: true}, {IDPrefix: "o"}, {IDPrefix: "o1"},
			{After: now.Add(-24 * time.Hour)}, {Before: now}, {Workflow: "wf", After: now.Add(-24 * time.Hour), Before: now},
		} {
			for _, ascending := range []bool{false, true} {
				r := engine.PageRequest{Limit: 3, Ascending: ascending}
				for n := range 4 {
					m.read.Store(0)
					page, err := e.Page(ctx, f, r)
					if err != nil || len(page.Data) != 3 || !page.HasMore {
						t.Fatalf("%+v, page %d: %d, %v, %v", f, n, len(page.Data), page.HasMore, err)
					}
					if read := m.read.Load(); read > 100 {
						t.Errorf("%+v, ascending %v, page %d: %d records read", f, ascending, n, read)
					}
					r.Cursor = page.Next
				}
			}
		}
		m.read.Store(0)
		n, all, err := e.Count(ctx, engine.Filter{TopLevel: true}, 5)
		if n != 5 || all || err != nil || m.read.Load() > 1100 {
			t.Errorf("a count up to 5: %d, %v, %v, %d records read", n, all, err, m.read.Load())
		}
		// Many records are read at once: on a server that takes hardly longer than one.
		m.delay = time.Millisecond
		for _, f := range []engine.Filter{{}, {Status: checkpoint.StatusFailed}, {Parent: "p"}, {Attention: true}} {
			began := time.Now()
			page, err := e.Page(ctx, f, engine.PageRequest{})
			if err != nil || len(page.Data) != 100 {
				t.Fatalf("%+v: %d, %v", f, len(page.Data), err)
			}
			if took := time.Since(began); took > 20*time.Millisecond {
				t.Errorf("%+v: a page took as long as %v reads", f, took/m.delay)
			}
		}
	})
}

// LST-10: workflows start and end while lists are completed, and engines die: no entry is missing
// or outdated afterwards, an engine goes on where another has come to, and lists are answered by
// reading all workflows until the end.
func TestListsAreCompletedBesideWork(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", func(run *engine.Run) (string, error) { return approved.Receive(run) })
		p := boot(t, s, wf)
		for i := range 450 {
			start(t, wf.With(engine.StartOptions{Labels: map[string]string{"team": "blue"}}), p, fmt.Sprintf("o%03d", i), "")
		}
		time.Sleep(time.Second)
		p.kill()
		unlisted(t, s, false)
		listed := func() int { return len(entries(t, s, "ls:wf:")) }
		whole := func(when string, e *engine.Engine, want int) {
			t.Helper()
			f := engine.Filter{Labels: map[string]string{"team": "blue"}}
			if got := paged(t, e, f, 100, false); len(got) != want {
				t.Errorf("%s: a list of %d, want %d", when, len(got), want)
			}
		}
		// The first engine dies when it has come to a place.
		marks := 0
		f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Commit" && touches(c.Batch, "meta:lists") {
				if marks++; marks == 2 {
					return storagetest.CrashBefore
				}
			}
			return storagetest.None
		})
		bootOn(t, f, wf)
		time.Sleep(time.Minute)
		if n := listed(); n < 200 || n >= 450 {
			t.Fatalf("%d are listed by the engine that died", n)
		}
		client := made(t, s)
		defer client.Close()
		whole("half complete", client, 450)
		// The second goes on. While it adds entries, workflows end just before each commit.
		between := &hooked{Storage: s}
		var looked, ended atomic.Int64
		between.afterGet = func(key []byte) {
			if bytes.HasPrefix(key, []byte("ls:")) {
				looked.Add(1)
			}
		}
		between.beforeCommit = func(b storage.Batch) {
			if len(b.If) != 1 || touches(b, "wf:") || !touches(b, "ls:wf:running:") {
				return
			}
			if ended.Add(1) > 20 {
				return
			}
			if err := client.Terminate(ctx, string(b.If[0].Key[len("wf:"):]), audit); err != nil {
				t.Error(err)
			}
		}
		q := boot(t, between, wf)
		time.Sleep(time.Minute)
		if looked.Load() < 250 || looked.Load() > 300 || ended.Load() <= 20 {
			t.Errorf("it has looked at the entries of %d workflows, and added those of %d", looked.Load(), ended.Load())
		}
		if m := missing(s); len(m) > 0 {
			t.Errorf("%d: %.500q", len(m), m)
		}
		whole("complete", client, 450)
		q.kill()
	})
}

// LST-12: with 16 labels no batch is larger than 256 operations: neither a start with its signal,
// nor those of children, nor a checkpoint with many results, nor an end with much unfinished, nor
// a retry.
func TestBatchesWithLabelsAreBounded(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const most = 256
		s := &hooked{Storage: fresh(t), max: storage.Size{Ops: most}}
		var mu sync.Mutex
		largest := 0
		s.beforeCommit = func(b storage.Batch) {
			mu.Lock()
			defer mu.Unlock()
			largest = max(largest, b.Size().Ops)
		}
		var fail atomic.Bool
		fail.Store(true)
		all := func(run *engine.Run, act *activity.Activity[string, int]) (fs []*future.Future[int]) {
			for i := range 400 {
				fs = append(fs, act.Go(run, sprint(i)))
			}
			return fs
		}
		act := counting(new(tally), "act")
		act.IdempotencyKey = func(s string) string { return s }
		never := &activity.Activity[string, int]{Name: "never", IdempotencyKey: func(s string) string { return s }, Run: func(ctx context.Context, _ string) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}}
		sub := flow("sub", nil2)
		wf := flow("wf", func(run *engine.Run) (string, error) {
			for i := range 15 {
				if err := run.SetLabel(fmt.Sprintf("%02d:%%", i), "set"); err != nil {
					return "", err
				}
			}
			if _, err := approved.Receive(run); err != nil {
				return "", err
			}
			kids := []*future.Future[string]{}
			for range 300 {
				kids = append(kids, sub.Go(run, ""))
			}
			for _, f := range all(run, act) {
				if _, err := f.Get(run); err != nil {
					return "", err
				}
			}
			for _, kid := range kids {
				if _, err := kid.Get(run); err != nil {
					return "", err
				}
			}
			all(run, never)
			for range 40 { // more cannot be retried with so small batches
				flow("waits", nil2).AsChild(engine.ChildOptions{OnParentEnd: engine.ParentEndCancel}).Go(run, "")
			}
			if err := run.Sleep(time.Minute); err != nil {
				return "", err
			}
			if fail.Load() {
				return "", errBroke
			}
			return "done", nil
		})
		p := boot(t, s, wf, sub, func(c *engine.Config) { leases(c); c.MaxRunsInMemory = 5000 })
		labelled := wf.With(engine.StartOptions{Labels: widest()})
		if _, err := approved.SendWithStart(ctx, p, labelled.Request("o", ""), "v", &signal.Options{ID: "1"}); err != nil {
			t.Fatal(err)
		}
		h := wf.Handle(p, "o")
		if _, err := outcome(h); !errors.Is(err, errBroke) && err == nil {
			t.Errorf("the first end: %v", err)
		}
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusFailed || len(i.Labels) != 16 {
			t.Errorf("%s with %d labels, %v", i.Status, len(i.Labels), i.Attention)
		}
		fail.Store(false)
		if err := p.Resume(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		if got := result(t, h); got != "done" {
			t.Errorf("%q", got)
		}
		if m := missing(s); len(m) > 0 {
			t.Errorf("%.500q", m)
		}
		p.stop(t)
		mu.Lock()
		defer mu.Unlock()
		t.Logf("the largest batch has %d operations and conditions", largest)
		if largest > most {
			t.Errorf("a batch has %d operations and conditions, at most %d", largest, most)
		}
	})
}

// LST-12, LST-7: after each commit the entries of each workflow in lists are those that follow
// from its record, whatever changes it.
func TestListsFollowEachVerb(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &hooked{Storage: fresh(t)}
		var mu sync.Mutex
		met := map[string]bool{}
		s.afterCommit = func(b storage.Batch) error {
			mu.Lock()
			defer mu.Unlock()
			for _, o := range b.Ops {
				if family, _, _ := strings.Cut(string(o.Key), ":"); family == "ls" || family == "ll" || family == "lp" || family == "la" {
					met[fmt.Sprint(o.Kind, family)] = true
				}
			}
			if m := missing(s.Storage); len(m) > 0 {
				return fmt.Errorf("after %q: %q", b.Ops[0].Key, m)
			}
			return nil
		}
		known := new(atomic.Bool)
		asks := flow("asks", func(run *engine.Run) (string, error) { return puzzling(known).Do(run, "x") })
		fails := new(atomic.Bool)
		fails.Store(true)
		wf := flow("wf", func(run *engine.Run) (string, error) {
			asks.Go(run, "")
			if err := run.SetLabel("stage", "begun"); err != nil {
				return "", err
			}
			if err := run.Sleep(time.Hour); err != nil {
				return "", err
			}
			if fails.Load() {
				return "", errBroke
			}
			return approved.Receive(run)
		})
		p := boot(t, s, wf, asks, parking)
		blue := engine.StartOptions{Labels: map[string]string{"team": "blue"}}
		done := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			time.Sleep(2 * time.Minute)
		}
		held := func(id string) string {
			t.Helper()
			i := describe(t, p, id)
			if len(i.Attention) == 0 {
				t.Fatalf("%q is not held: %+v", id, i)
			}
			return i.Attention[0].Operation
		}
		start(t, wf.With(blue), p, "o", "")
		start(t, asks.With(blue), p, "a", "")
		start(t, asks.With(blue), p, "b", "")
		time.Sleep(2 * time.Minute)
		done("label", p.Label(ctx, "a", map[string]string{"team": "red"}, audit))
		held("a")
		done("cancel of what is held", p.Cancel(ctx, "a", engine.Actor{}))
		done("terminate of what is held", p.Terminate(ctx, "b", audit))
		time.Sleep(2 * time.Hour)
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusFailed {
			t.Fatalf("%+v", i)
		}
		fails.Store(false)
		done("retry", p.Resume(ctx, "o", audit))
		time.Sleep(2 * time.Hour)
		done("label of a parked run", p.Label(ctx, "o", map[string]string{"team": "red", "stage": ""}, audit))
		for i := range 2 {
			if _, err := approved.Send(ctx, p, "o", "v", &signal.Options{ID: sprint(i)}); err != nil && !errors.Is(err, engine.ErrTerminal) {
				t.Error(err)
			}
		}
		time.Sleep(time.Hour)
		start(t, asks.With(blue), p, "c", "")
		time.Sleep(2 * time.Minute)
		held("c")
		known.Store(true)
		done("resume of what is held", p.Resume(ctx, "c", audit))
		done("terminate", func() error {
			if err := p.Terminate(ctx, "o", audit); !errors.Is(err, engine.ErrTerminal) {
				return err
			}
			return nil
		}())
		done("purge", p.Purge(ctx, "o", audit))
		for _, kind := range []storage.OpKind{storage.PutOp, storage.DeleteOp} {
			for _, family := range []string{"ls", "ll", "la"} {
				if !met[fmt.Sprint(kind, family)] {
					t.Errorf("no %v of %s", kind, family)
				}
			}
		}
		p.stop(t)
		if m := missing(s.Storage); len(m) > 0 {
			t.Errorf("%q", m)
		}
	})
}

// LST-1, LST-5, LST-10, LST-12: whatever call to the store goes wrong while pages are read, outdated
// entries are removed and lists are completed, and whoever dies of it: lists are right afterwards.
func TestEveryCallForListsMayFail(t *testing.T) {
	blue := map[string]string{"team": "blue"}
	var known *memory.Store // with workflows of all kinds
	outdated := func(t *testing.T, s storage.Storage) {
		for i := range 3 {
			row, err := journal.PutRow(keys.Listed("quick", "failed", time.Now(), sprint("G", i)), []string{"q-0", "nobody", "w-2"}[i])
			if err != nil {
				t.Fatal(err)
			}
			put(t, s, row.Key, row.Value)
		}
	}
	read := func(e *engine.Engine) (all string, _ error) {
		for _, f := range []engine.Filter{{Status: checkpoint.StatusFailed}, {Labels: blue}, {Attention: true}, {IDPrefix: "q"}, {Parent: "p-20"}} {
			r := engine.PageRequest{Limit: 4}
			for more := true; more; {
				page, err := e.Page(ctx, f, r)
				if err != nil {
					return "", err
				}
				all += fmt.Sprint(idsOf(page.Data))
				more, r.Cursor = page.HasMore, page.Next
			}
		}
		n, whole, err := e.Count(ctx, engine.Filter{Labels: blue}, 100)
		return all + fmt.Sprint(n, whole), err
	}
	// every plays part, with each fault at each call to the store, until it makes no more.
	every := func(t *testing.T, prepare func(t *testing.T, s storage.Storage), part func(t *testing.T, f *storagetest.Faulty, calm bool), after func(t *testing.T, s storage.Storage)) {
		faults := append(slices.Clone(sweep.Faults), storagetest.None)
		for n, last := 1, 1; n <= last; n += torture.Rounds(1, 1, 1+rand.IntN(7)) {
			for _, fault := range faults {
				s := snapshot(t, known)
				prepare(t, s)
				var calls atomic.Int64
				f := storagetest.NewFaulty(s, func(storagetest.Call) storagetest.Fault {
					if calls.Add(1) == int64(n) {
						return fault
					}
					return storagetest.None
				})
				part(t, f, fault == storagetest.None)
				if fault == storagetest.None {
					last = int(calls.Load())
				}
				after(t, s)
				if t.Failed() {
					t.Fatalf("%s call %d", sweep.Names[fault], n)
				}
			}
		}
	}
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		p, _ := many(t, s)
		p.stop(t)
		known = snapshot(t, s)
		e := made(t, s)
		want, err := read(e)
		if err != nil || !strings.Contains(want, "f-1") {
			t.Fatal(want, err)
		}
		e.Close()
		every(t, outdated, func(t *testing.T, f *storagetest.Faulty, calm bool) {
			e, err := engine.New(engine.Config{Storage: f, Logger: quiet})
			if err != nil {
				if calm {
					t.Error(err)
				}
				return
			}
			defer e.Close()
			if got, err := read(e); err == nil && got != want || err != nil && calm {
				t.Errorf("read %q, %v, want %q", got, err, want)
			}
		}, func(t *testing.T, s storage.Storage) {
			e := made(t, s)
			defer e.Close()
			for range 2 { // what could not be removed, is at the next time
				if got, err := read(e); got != want || err != nil {
					t.Errorf("read %q, %v, want %q", got, err, want)
				}
			}
			if m := missing(s); len(m) > 0 {
				t.Errorf("%.500q", m)
			}
		})
	})
}

// LST-10, LST-12: whatever call to the store goes wrong while an engine completes lists, whether
// it dies of it or not, they are complete in the end.
func TestEveryCallOfTheCompletionMayFail(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		p, _ := many(t, s)
		p.stop(t)
		unlisted(t, s, false)
		known := snapshot(t, s)
		of := func(c storagetest.Call) bool { // a call for lists
			return string(c.Key) == "meta:lists" || bytes.HasPrefix(c.Key, []byte("l")) || bytes.HasPrefix(c.Range.Start, []byte("ix:")) ||
				c.Method == "Commit" && !touches(c.Batch, "wf:") && (touches(c.Batch, "meta:lists") || touches(c.Batch, "l"))
		}
		for n, last := 1, 1; n <= last; n += torture.Rounds(1, 1, 1+rand.IntN(7)) {
			for _, fault := range append(slices.Clone(sweep.Faults), storagetest.None) {
				s := snapshot(t, known)
				var calls atomic.Int64
				f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
					if of(c) && calls.Add(1) == int64(n) {
						return fault
					}
					return storagetest.None
				})
				p := bootOn(t, f, leases)
				time.Sleep(70 * time.Second)
				if fault == storagetest.None {
					last = int(calls.Load())
				}
				p.kill()
				if fault == storagetest.CrashBefore || fault == storagetest.CrashAfter {
					q := boot(t, s, leases)
					time.Sleep(70 * time.Second)
					q.kill()
				}
				if m := missing(s); len(m) > 0 {
					t.Fatalf("%s call %d of %d: %.500q", sweep.Names[fault], n, last, m)
				}
			}
		}
	})
}
