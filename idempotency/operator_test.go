package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/storage"
)

// whole returns key with the Effect's Action, as operators spell it.
func whole(k idempotency.Key) idempotency.Key {
	k.Action = "refund"
	return k
}

// brings makes a key have a state.
func brings(t testing.TB, l *idempotency.Ledger, k idempotency.Key, to idempotency.State) {
	t.Helper()
	end := map[idempotency.State]error{
		idempotency.StateReleased: activity.NoEffect(errBroke), idempotency.StateFailed: activity.NoEffect(activity.Permanent(errBroke)), idempotency.StateIndeterminate: errBroke,
	}[to]
	g := &target{fail: func(int) error { return end }}
	g.effect().Do(t.Context(), l, k, one)
	if got := state(t, l, k); got != to {
		t.Fatalf("the key is %s, want %s", got, to)
	}
}

// Section 2, List: each filter, alone and together, in the order of tenant, source type and source id; one tenant's list has no other's keys (FEN-10).
func TestList(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l := ledger(t, s)
		states := []idempotency.State{idempotency.StateSealed, idempotency.StateReleased, idempotency.StateFailed, idempotency.StateIndeterminate}
		want := map[string]idempotency.State{}
		for i, tenant := range []string{"", "a", "a:b", "a%b"} {
			for j, source := range []string{"s", "s:", "s%3a"} {
				for n, id := range []string{"", "1", "1:2"} {
					k := idempotency.Key{Tenant: tenant, SourceType: source, SourceID: id, IndexHash: "ix", Action: "refund"}
					brings(t, l, k, states[(i+j+n)%4])
					want[k.Hash()] = states[(i+j+n)%4]
				}
			}
		}
		for _, c := range []struct {
			f idempotency.Filter
			n int
		}{
			{idempotency.Filter{}, 36},
			{idempotency.Filter{Tenant: "a"}, 9},
			{idempotency.Filter{Tenant: "a:b"}, 9},
			{idempotency.Filter{Tenant: "a%b", SourceType: "s:"}, 3},
			{idempotency.Filter{SourceType: "s"}, 3}, // of no tenant
			{idempotency.Filter{Tenant: "a", SourceType: "s%3a", SourceID: "1:2"}, 1},
			{idempotency.Filter{Tenant: "a", SourceType: "s", SourceID: "1"}, 1},
			{idempotency.Filter{Tenant: "nobody"}, 0},
			{idempotency.Filter{State: idempotency.StateSealed}, 9},
			{idempotency.Filter{Tenant: "a", State: idempotency.StateFailed}, 2},
			{idempotency.Filter{State: idempotency.StateInProgress}, 0},
			{idempotency.Filter{Lapsed: true}, 0},
		} {
			seen, last := map[string]bool{}, ""
			for i, err := range l.List(t.Context(), c.f) {
				if err != nil {
					t.Fatal(err)
				}
				if c.f.Tenant != "" && i.Key.Tenant != c.f.Tenant || c.f.SourceType != "" && (i.Key.SourceType != c.f.SourceType || i.Key.Tenant != c.f.Tenant) ||
					c.f.SourceID != "" && i.Key.SourceID != c.f.SourceID || c.f.State != "" && i.State != c.f.State {
					t.Errorf("%+v selects %+v", c.f, i)
				}
				if i.State != want[i.Hash] || i.Hash != i.Key.Hash() || i.EffectID == "" || i.Attempt != 1 || i.Epoch == 0 || i.FirstSeen.IsZero() || i.Updated.IsZero() ||
					i.SealedAt.IsZero() == (i.State == idempotency.StateSealed) || i.Expires.IsZero() != (i.State == idempotency.StateIndeterminate) ||
					(i.Failure != "") != (i.State == idempotency.StateFailed || i.State == idempotency.StateIndeterminate) || i.Err != nil || i.Lapsed {
					t.Errorf("%+v", i)
				}
				at := string(storage.AppendKey(nil, i.Key.Tenant, i.Key.SourceType, i.Key.SourceID, i.Hash))
				if seen[i.Hash] || at <= last {
					t.Errorf("%q after %q", at, last)
				}
				seen[i.Hash], last = true, at
			}
			if len(seen) != c.n {
				t.Errorf("%+v selects %d keys, want %d", c.f, len(seen), c.n)
			}
		}
		for range l.List(t.Context(), idempotency.Filter{}) {
			break // a list may be left
		}
		must(t, l.Close()) // and does not keep the ledger open
	})
}

// Section 2, List: keys under way, and those that have lapsed.
func TestListLapsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{}
		s := crashed(t, p)
		l := ledger(t, s)
		k := key
		k.Revision = "alive"
		release := make(chan bool)
		p.run = func(context.Context) error { <-release; return nil }
		c := start(t.Context(), l, p.effect(), k, one)
		synctest.Wait()
		for _, f := range []struct {
			f    idempotency.Filter
			want string
		}{
			{idempotency.Filter{State: idempotency.StateInProgress}, " true alive false"},
			{idempotency.Filter{Lapsed: true}, " true"},
			{idempotency.Filter{Lapsed: true, State: idempotency.StateSealed}, ""},
		} {
			var got []string
			for i, err := range l.List(t.Context(), f.f) {
				must(t, err)
				got = append(got, fmt.Sprintf("%s %v", i.Key.Revision, i.Lapsed))
			}
			slices.Sort(got)
			if strings.Join(got, " ") != f.want {
				t.Errorf("%+v: %q, want %q", f.f, strings.Join(got, " "), f.want)
			}
		}
		close(release)
		<-c
	})
}

// stored returns where the record of a key is, and the record.
func stored(t testing.TB, s storage.Storage, k idempotency.Key) storage.Entry {
	t.Helper()
	for e, err := range storage.All(context.Background(), s, storage.Prefix([]byte("idem:"))) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(string(e.Key), k.Hash()) {
			return e
		}
	}
	t.Fatal("nothing is stored")
	return storage.Entry{}
}

// damages are what a record may have become.
func damages(e, other storage.Entry) map[string][]byte {
	flipped := slices.Clone(e.Value)
	flipped[len(flipped)/2] ^= 1
	return map[string][]byte{
		"a bit is wrong":                       flipped,
		"cut":                                  e.Value[:len(e.Value)/2],
		"empty":                                {},
		"of a newer release":                   golden.Envelope(e.Key, 2, e.Value[7:]),
		"of another key":                       other.Value,
		"another key's, sealed for this place": golden.Envelope(e.Key, 1, other.Value[7:]),
		"no record":                            golden.Envelope(e.Key, 1, []byte{0xa0}),
	}
}

// Section 3: "a damaged or newer record is an error, and nothing runs". List shows it, and goes on; Resolve refuses it; Forget removes it, and then the
// key runs.
func TestDamagedRecords(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l := ledger(t, s)
		k, other := key, key
		other.SourceID = "zz"
		brings(t, l, k, idempotency.StateSealed)
		brings(t, l, other, idempotency.StateSealed)
		whole, good, foreign := whole(k), stored(t, s, whole(k)), stored(t, s, whole(other))
		all := damages(good, foreign)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			damage := all[name]
			t.Run(name, func(t *testing.T) {
				must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(good.Key, damage)}}))
				want := storage.ErrCorrupt
				if name == "of a newer release" {
					want = storage.ErrFutureFormat
				}
				g := new(target)
				e := g.effect()
				e.OnAbandoned = idempotency.TakeOver
				if r, err := e.Do(t.Context(), l, k, one); !errors.Is(err, want) || r.Decision != "" {
					t.Errorf("Do: %+v, %v", r, err)
				}
				if _, err := e.Lookup(t.Context(), l, k); !errors.Is(err, want) {
					t.Errorf("Lookup: %v", err)
				}
				if err := l.Resolve(t.Context(), whole, 0, activity.NotCompleted[string](), by); !errors.Is(err, want) {
					t.Errorf("Resolve: %v", err)
				}
				for _, f := range []idempotency.Filter{{}, {Tenant: key.Tenant}, {State: idempotency.StateSealed}, {Lapsed: true}} {
					n, bad := 0, 0
					for i, err := range l.List(t.Context(), f) {
						must(t, err)
						n++
						if i.Err != nil {
							bad++
							if !errors.Is(i.Err, want) || i.Hash != whole.Hash() || i.Key != (idempotency.Key{Tenant: key.Tenant, SourceType: key.SourceType, SourceID: key.SourceID}) {
								t.Errorf("%+v", i)
							}
						}
					}
					if wanted := map[bool]int{false: 2, true: 1}[f.Lapsed]; n != wanted || bad != 1 {
						t.Errorf("%+v: %d keys, %d damaged", f, n, bad)
					}
				}
				if g.count() != 0 || string(stored(t, s, whole).Value) != string(damage) {
					t.Error("it was run, or overwritten")
				}
				must(t, l.Forget(t.Context(), whole, by))
				if r, err := e.Do(t.Context(), l, k, one); err != nil || r.Decision != idempotency.DecidedNew || g.count() != 1 {
					t.Errorf("then: %+v, %v", r, err)
				}
			})
		}
	})
}

// Section 3, the table: Resolve decides what has lapsed or is indeterminate, with each answer, audited; its seal has the reserved id.
func TestResolve(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer activity.Answer
		state  idempotency.State
		then   idempotency.Decision
		is     error
	}{
		{"completed", activity.CompletedWithResult("found"), idempotency.StateSealed, idempotency.DecidedDuplicate, nil},
		{"result lost", activity.CompletedResultUnavailable[string](), idempotency.StateSealed, idempotency.DecidedDuplicate, idempotency.ErrResultUnavailable},
		{"not completed", activity.NotCompleted[string](), idempotency.StateReleased, idempotency.DecidedNew, nil},
		{"failed", activity.Failed("no such payment"), idempotency.StateFailed, idempotency.DecidedFailed, idempotency.ErrFailed},
	} {
		for _, lapsed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, lapsed %v", c.name, lapsed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var s storage.Storage = exclusiveStore()
					if lapsed {
						s = crashed(t, &provider{})
					}
					l := ledger(t, s)
					if !lapsed {
						brings(t, l, key, idempotency.StateIndeterminate)
					}
					before := info(t, l, key)
					must(t, l.Resolve(t.Context(), whole(key), 0, c.answer, by))
					i := info(t, l, key)
					if i.State != c.state || i.By != by || i.EffectID != before.EffectID || i.Attempt != before.Attempt || !i.FirstSeen.Equal(before.FirstSeen) || i.Expires.IsZero() || !i.Updated.After(before.Updated) {
						t.Errorf("before %+v, after %+v", before, i)
					}
					r, err := new(target).effect().Do(t.Context(), l, key, one)
					if !errors.Is(err, c.is) || c.is == nil && err != nil || r.Decision != c.then || r.EffectID != before.EffectID {
						t.Errorf("then: %+v, %v", r, err)
					}
					if c.name == "completed" && r.Result != "found" || c.name == "failed" && !strings.Contains(err.Error(), "no such payment") {
						t.Errorf("then: %+v, %v", r, err)
					}
					if err := l.Resolve(t.Context(), whole(key), 0, c.answer, by); !errors.Is(err, idempotency.ErrNotApplicable) {
						t.Errorf("again: %v", err)
					}
				})
			})
		}
	}
}

// Section 2: what Resolve refuses, and that it writes nothing then.
func TestResolveRefuses(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l := ledger(t, s, func(c *idempotency.Config) { c.MaxResult = 10 })
		no := activity.NotCompleted[string]()
		for _, st := range []idempotency.State{idempotency.StateSealed, idempotency.StateReleased, idempotency.StateFailed} {
			k := key
			k.Revision = string(st)
			g := &target{fail: func(int) error {
				return map[idempotency.State]error{idempotency.StateReleased: activity.NoEffect(errBroke), idempotency.StateFailed: activity.NoEffect(activity.Permanent(errBroke))}[st]
			}}
			g.effect().Do(t.Context(), l, k, one)
			if err := l.Resolve(t.Context(), whole(k), 0, no, by); !errors.Is(err, idempotency.ErrNotApplicable) {
				t.Errorf("%s: %v", st, err)
			}
		}
		unknown := key
		unknown.SourceID = "unknown"
		if err := l.Resolve(t.Context(), whole(unknown), 0, no, by); !errors.Is(err, idempotency.ErrNotFound) {
			t.Errorf("unknown: %v", err)
		}
		brings(t, l, key, idempotency.StateIndeterminate)
		before := dump(t, s)
		var nobody *activity.Verdict
		for name, c := range map[string]struct {
			k  idempotency.Key
			a  activity.Answer
			by idempotency.Actor
		}{
			"no key":           {idempotency.Key{}, no, by},
			"nil":              {whole(key), nil, by},
			"nil pointer":      {whole(key), nobody, by},
			"no answer":        {whole(key), activity.Verification[string]{}, by},
			"indeterminate":    {whole(key), activity.Indeterminate[string]("?"), by},
			"large result":     {whole(key), activity.CompletedWithResult("more than ten bytes"), by},
			"no JSON":          {whole(key), activity.CompletedWithResult(func() {}), by},
			"nobody":           {whole(key), no, idempotency.Actor{Reason: "r"}},
			"no reason":        {whole(key), no, idempotency.Actor{Name: "ann", Reason: " \t"}},
			"long reason":      {whole(key), no, idempotency.Actor{Name: "ann", Reason: strings.Repeat("x", 4096)}},
			"not UTF-8":        {whole(key), no, idempotency.Actor{Name: "ann", Reason: "\xff"}},
			"reason not UTF-8": {whole(key), no, idempotency.Actor{Name: "\xff", Reason: "r"}},
		} {
			if err := l.Resolve(t.Context(), c.k, 0, c.a, c.by); !errors.Is(err, idempotency.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
			if c.a == no {
				if err := l.Forget(t.Context(), c.k, c.by); !errors.Is(err, idempotency.ErrInvalid) {
					t.Errorf("Forget, %s: %v", name, err)
				}
			}
		}
		if after := dump(t, s); after != before {
			t.Errorf("it has written: %s", after)
		}
	})
}

// Section 3: neither Resolve nor Forget touches a live claim. A claim that was resolved does not come back: its late end is refused.
func TestOperatorsAndLiveClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharedStore()
		l, other := ledger(t, s, lease(time.Second)), ledger(t, s.another(), lease(time.Second))
		release := make(chan bool)
		e := &idempotency.Effect[refund, string]{Name: "refund", Run: func(context.Context, refund) (string, error) { <-release; return "late", nil }}
		c := start(t.Context(), l, e, key, one)
		synctest.Wait()
		for name, l := range map[string]*idempotency.Ledger{"its own": l, "another": other} {
			var busy *idempotency.InProgressError
			if err := l.Resolve(t.Context(), whole(key), 0, activity.NotCompleted[string](), by); !errors.As(err, &busy) || busy.EffectID == "" || busy.RetryAfter <= 0 {
				t.Errorf("%s: Resolve: %v", name, err)
			}
			if err := l.Forget(t.Context(), whole(key), by); !errors.As(err, &busy) {
				t.Errorf("%s: Forget: %v", name, err)
			}
		}
		s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
			if renews(b) {
				return errDown
			}
			return apply()
		})
		for !info(t, other, key).Lapsed {
			time.Sleep(100 * time.Millisecond)
		}
		must(t, other.Resolve(t.Context(), whole(key), 0, activity.CompletedWithResult("resolved"), by))
		close(release)
		if a := <-c; !errors.Is(a.err, idempotency.ErrFenceLost) || a.Result != "resolved" {
			t.Errorf("the late seal: %+v", a)
		}
		if i := info(t, other, key); i.State != idempotency.StateSealed || i.By != by {
			t.Errorf("%+v", i)
		}
		s.onCommit(nil)
	})
}

// Section 3: Forget removes a key of any state but a live claim, all of it; the next call runs; it is logged, with who and why. Unknown keys are ErrNotFound.
func TestForget(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		var j journal
		l := ledger(t, s, logTo(&j))
		for _, st := range []idempotency.State{idempotency.StateSealed, idempotency.StateReleased, idempotency.StateFailed, idempotency.StateIndeterminate} {
			brings(t, l, key, st)
			must(t, l.Forget(t.Context(), whole(key), by))
			if left := dump(t, s); left != "" {
				t.Errorf("%s: left %s", st, left)
			}
			if err := l.Forget(t.Context(), whole(key), by); !errors.Is(err, idempotency.ErrNotFound) {
				t.Errorf("%s, again: %v", st, err)
			}
			g := new(target)
			if r, err := g.effect().Do(t.Context(), l, key, refund{"another", 1}); err != nil || g.count() != 1 {
				t.Errorf("%s, then: %+v, %v", st, r, err)
			}
			must(t, l.Forget(t.Context(), whole(key), by))
		}
		all := j.of("idempotency: a key was forgotten")
		if len(all) != 8 {
			t.Errorf("%d logs", len(all))
		}
		for _, r := range all {
			if r.level != slog.LevelWarn || r.attrs["idempotency_key"] != whole(key).Hash() || r.attrs["source_id"] != key.SourceID || r.attrs["source_type"] != key.SourceType || r.attrs["by"] != "ann" || r.attrs["reason"] != "asked the bank" {
				t.Errorf("%+v", r)
			}
		}
	})
}

// FEN-12, FEN-53: Lookup returns what is sealed and nothing else, writes nothing, and does not wait.
func TestLookup(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l, g := ledger(t, s), new(target)
		if _, err := g.effect().Lookup(t.Context(), l, key); !errors.Is(err, idempotency.ErrNotSealed) {
			t.Errorf("unknown: %v", err)
		}
		for _, st := range []idempotency.State{idempotency.StateReleased, idempotency.StateFailed, idempotency.StateIndeterminate} {
			k := key
			k.Revision = string(st)
			brings(t, l, k, st)
			if r, err := g.effect().Lookup(t.Context(), l, k); !errors.Is(err, idempotency.ErrNotSealed) || r.Result != "" {
				t.Errorf("%s: %+v, %v", st, r, err)
			}
		}
		during := &idempotency.Effect[refund, string]{Name: "refund", Run: func(ctx context.Context, _ refund) (string, error) {
			if _, err := g.effect().Lookup(ctx, l, key); !errors.Is(err, idempotency.ErrNotSealed) {
				t.Errorf("in progress: %v", err)
			}
			return "done", nil
		}}
		want, err := during.Do(t.Context(), l, key, one)
		must(t, err)
		before := dump(t, s)
		want.Decision = idempotency.DecidedDuplicate
		if r, err := g.effect().Lookup(t.Context(), l, key); err != nil || r != want {
			t.Errorf("sealed: %+v, %v, want %+v", r, err, want)
		}
		if dump(t, s) != before || g.count() != 0 {
			t.Error("Lookup has written or run")
		}
		for name, c := range map[string]struct {
			e *idempotency.Effect[refund, string]
			k idempotency.Key
		}{"no definition": {new(idempotency.Effect[refund, string]), key}, "no key": {g.effect(), idempotency.Key{}}} {
			if _, err := c.e.Lookup(t.Context(), l, c.k); !errors.Is(err, idempotency.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
