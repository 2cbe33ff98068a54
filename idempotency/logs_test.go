package idempotency_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
)

// FEN-30, FEN-54, FEN-55: each decision is logged once, under its name, with the five fields and the winner's effect id; conflict, stale,
// indeterminate and fence_lost as Warn. Config.Observe is told the same.
func TestDecisionsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		var reports []idempotency.Report
		s := sharedStore()
		l := ledger(t, s, logTo(&j), lease(time.Second), func(c *idempotency.Config) {
			c.Observe = func(_ context.Context, r idempotency.Report) { reports = append(reports, r) }
		})
		other := ledger(t, s.another(), lease(time.Second))
		check := func(k idempotency.Key, d idempotency.Decision, level slog.Level, id string) idempotency.Report {
			t.Helper()
			all := j.of("idempotency: decided")
			if len(all) != 1 || len(reports) != 1 {
				t.Fatalf("%s: %d logs, %d reports: %+v", d, len(all), len(reports), all)
			}
			r, o := all[0], reports[0]
			if r.level != level || len(r.attrs) != 5 || r.attrs["idempotency_key"] != k.Hash() || r.attrs["decision"] != string(d) || r.attrs["source_type"] != k.SourceType || r.attrs["source_id"] != k.SourceID {
				t.Errorf("%s: %+v", d, r)
			}
			if r.attrs["effect_id"] != id {
				t.Errorf("%s: logged with the effect %q, want %q", d, r.attrs["effect_id"], id)
			}
			if o.Key != k || o.Hash != k.Hash() || o.Decision != d || o.EffectID != r.attrs["effect_id"] || (o.ToSeal > 0) != (d == idempotency.DecidedNew) || (o.DiffBytes > 0) != (d == idempotency.DecidedConflict) {
				t.Errorf("%s: %+v", d, o)
			}
			j.reset()
			reports = nil
			return o
		}
		k := whole(key)
		g := new(target)
		slow := &idempotency.Effect[refund, string]{Name: "refund", Run: func(ctx context.Context, r refund) (string, error) {
			time.Sleep(3 * time.Second)
			return g.run(ctx, r)
		}}
		r, _ := slow.Do(t.Context(), l, key, one)
		if o := check(k, "new", slog.LevelInfo, r.EffectID); o.ToSeal != 3*time.Second || o.Attempt != 1 || o.FirstSeen.IsZero() {
			t.Errorf("%+v", o)
		}
		g.effect().Do(t.Context(), l, key, one)
		check(k, "duplicate", slog.LevelInfo, r.EffectID)
		g.effect().Do(t.Context(), l, key, refund{"p1", 200})
		check(k, "conflict", slog.LevelWarn, r.EffectID)

		k.Revision = "released"
		g.fail = func(int) error { return activity.NoEffect(errBroke) }
		r, _ = g.effect().Do(t.Context(), l, k, one)
		check(k, "released", slog.LevelInfo, r.EffectID)
		k.Revision = "failed"
		g.fail = func(int) error { return activity.NoEffect(activity.Permanent(errBroke)) }
		r, _ = g.effect().Do(t.Context(), l, k, one)
		check(k, "failed", slog.LevelInfo, r.EffectID)
		k.Revision = "indeterminate"
		g.fail = func(int) error { return errBroke }
		for range 2 {
			r, _ = g.effect().Do(t.Context(), l, k, one)
			check(k, "indeterminate", slog.LevelWarn, r.EffectID)
		}

		k.Revision = "in progress"
		g.fail = nil
		c := start(t.Context(), other, slow, k, one)
		synctest.Wait()
		e := g.effect()
		e.Wait = -1
		r, _ = e.Do(t.Context(), l, k, one)
		check(k, "in_progress", slog.LevelInfo, r.EffectID)
		if r.EffectID == "" {
			t.Error("in progress: no effect id")
		}
		<-c

		unrenewed := func(_ context.Context, b storage.Batch, apply func() error) error {
			if renews(b) {
				return errDown
			}
			return apply()
		}
		k.Revision = "fence lost"
		release := make(chan bool)
		blocked := &idempotency.Effect[refund, string]{Name: "refund", Run: func(context.Context, refund) (string, error) { <-release; return "late", nil }}
		c = start(t.Context(), l, blocked, k, one)
		synctest.Wait()
		s.onCommit(unrenewed)
		e = g.effect()
		e.OnAbandoned = idempotency.TakeOver
		winner, err := e.Do(t.Context(), other, k, one)
		must(t, err)
		close(release)
		if a := <-c; !errors.Is(a.err, idempotency.ErrFenceLost) {
			t.Errorf("%+v", a)
		}
		s.onCommit(nil)
		check(k, "fence_lost", slog.LevelWarn, winner.EffectID)

		k.Revision = "fence lost, and the winner runs"
		release = make(chan bool)
		c = start(t.Context(), l, blocked, k, one)
		synctest.Wait()
		s.onCommit(unrenewed)
		begun, finish := make(chan bool), make(chan bool)
		e.Run = func(context.Context, refund) (string, error) { close(begun); <-finish; return "first", nil }
		won := start(t.Context(), other, e, k, one)
		<-begun
		close(release)
		if a := <-c; !errors.Is(a.err, idempotency.ErrFenceLost) {
			t.Errorf("%+v", a)
		}
		s.onCommit(nil)
		close(finish)
		a := <-won
		must(t, a.err)
		check(k, "fence_lost", slog.LevelWarn, a.EffectID)
	})
}

// FEN-30: what is stale, or a conflict because of another event of the same version, is logged with the id of the event that won.
func TestOrderDecisionsAreLogged(t *testing.T) {
	var j journal
	l, m := ledger(t, exclusiveStore(), logTo(&j)), new(mirror)
	newest := event{"e2", "a", "2"}
	winner, err := m.effect(idempotency.VerifyOrHold).Do(t.Context(), l, keyOf(newest), newest)
	must(t, err)
	for i, v := range []event{{"e1", "a", "1"}, {"e2b", "a", "2"}} {
		m.effect(idempotency.VerifyOrHold).Do(t.Context(), l, keyOf(v), v)
		want := []string{"stale", "conflict"}[i]
		r := j.of("idempotency: decided")[i+1]
		if r.level != slog.LevelWarn || r.attrs["decision"] != want || r.attrs["source_id"] != v.ID || r.attrs["effect_id"] != winner.EffectID {
			t.Errorf("%s: %+v, want the effect %s", want, r, winner.EffectID)
		}
	}
}

// What is settled in the background is logged as well, and observed: its callers are gone.
func TestBackgroundDecisionsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		var reports atomic.Int64
		l := ledger(t, exclusiveStore(), logTo(&j), func(c *idempotency.Config) {
			c.Observe = func(context.Context, idempotency.Report) { reports.Add(1) }
		})
		var found atomic.Bool
		p := &provider{run: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		p.answer = func(context.Context) (activity.Verification[string], error) {
			if found.Load() {
				return activity.CompletedWithResult("found"), nil
			}
			return activity.NotCompleted[string](), nil
		}
		p.effect().Do(t.Context(), l, key, one)
		found.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := state(t, l, key); got != idempotency.StateSealed {
			t.Fatalf("the key is %s", got)
		}
		var decided []string
		for _, r := range j.of("idempotency: decided") {
			decided = append(decided, r.attrs["decision"])
		}
		if got := strings.Join(decided, " "); got != "in_progress new" || reports.Load() != 2 {
			t.Errorf("logged %s, %d reports", got, reports.Load())
		}
	})
}

// Calls that were refused decide nothing; an Observe that panics does no harm.
func TestObserve(t *testing.T) {
	var j journal
	calls := 0
	l := ledger(t, exclusiveStore(), logTo(&j), func(c *idempotency.Config) {
		c.Observe = func(context.Context, idempotency.Report) { calls++; panic("boom") }
	})
	g := new(target)
	if _, err := g.effect().Do(t.Context(), l, idempotency.Key{}, one); !errors.Is(err, idempotency.ErrInvalid) || calls != 0 || len(j.all()) != 0 {
		t.Errorf("%v, %d calls, %+v", err, calls, j.all())
	}
	if r, err := g.effect().Do(t.Context(), l, key, one); err != nil || r.Result != "refunded p1" || calls != 1 {
		t.Errorf("%+v, %v, %d calls", r, err, calls)
	}
	if n := len(j.of("idempotency: Config.Observe panicked")); n != 1 {
		t.Errorf("%d logs of the panic", n)
	}
}
