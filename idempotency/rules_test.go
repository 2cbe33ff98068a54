package idempotency_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// FEN-30: each decision is logged once, with the id of the effect that counts. What somebody should look at is a
// warning.
func TestLevelsOfDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := exclusiveStore(), new(journal)
		l := ledger(t, s, logTo(log))
		end := error(nil)
		e := &idempotency.Effect[event, string]{
			Name: "apply",
			Run: func(ctx context.Context, v event) (string, error) {
				if v.Version == "slow" {
					time.Sleep(time.Second)
				}
				return "", end
			},
			EffectID: func(v event, _ string) string { return "final " + v.ID + v.Version },
			Wait:     -1,
		}
		do := func(of *idempotency.Effect[event, string], id, version string) {
			of.Do(t.Context(), l, idempotency.Key{SourceType: "acme", SourceID: id}, event{ID: id, Account: "a", Version: version})
		}
		want := func(decision idempotency.Decision, level slog.Level, effect string) {
			t.Helper()
			lines := log.of("idempotency: decided")
			log.records = nil
			if len(lines) != 1 {
				t.Fatalf("%s: %d decisions are logged, want 1", decision, len(lines))
			}
			line := lines[0]
			if line.level != level || line.attrs["decision"] != string(decision) || !strings.HasPrefix(line.attrs["effect_id"], effect) || line.attrs["effect_id"] == "" && effect != "" {
				t.Errorf("%v of %q at %v, want %s of %q at %v", line.attrs["decision"], line.attrs["effect_id"], line.level, decision, effect, level)
			}
		}
		do(e, "e1", "1")
		want(idempotency.DecidedNew, slog.LevelInfo, "final e11")
		do(e, "e1", "1")
		want(idempotency.DecidedDuplicate, slog.LevelInfo, "final e11")
		do(e, "e1", "2")
		want(idempotency.DecidedConflict, slog.LevelWarn, "final e11")

		end = activity.NoEffect(errBroke)
		do(e, "e2", "1")
		want(idempotency.DecidedReleased, slog.LevelInfo, "eff_")
		end = activity.NoEffect(activity.Permanent(errBroke))
		do(e, "e3", "1")
		want(idempotency.DecidedFailed, slog.LevelInfo, "eff_")
		end = errBroke
		for range 2 {
			do(e, "e4", "1")
			want(idempotency.DecidedIndeterminate, slog.LevelWarn, "eff_")
		}
		end = nil

		done := make(chan bool)
		go func() { do(e, "e5", "slow"); close(done) }()
		synctest.Wait()
		do(e, "e5", "slow")
		want(idempotency.DecidedInProgress, slog.LevelInfo, "eff_")
		<-done
		want(idempotency.DecidedNew, slog.LevelInfo, "final e5slow")

		ordered := *e
		ordered.Order = &idempotency.Order[event]{
			Source:  func(v event) string { return v.Account },
			Version: func(v event) string { return v.Version }, Compare: idempotency.CompareInt,
		}
		do(&ordered, "e6", "2")
		want(idempotency.DecidedNew, slog.LevelInfo, "final e62")
		do(&ordered, "e7", "1")
		want(idempotency.DecidedStale, slog.LevelWarn, "")

		robbed := *e
		robbed.Run = func(ctx context.Context, _ event) (string, error) { // as if somebody had taken it over and ended it
			a := idempotency.AttemptFrom(ctx)
			return "", s.inner.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Delete(storage.AppendKey(nil, "idem", a.Key.Tenant, a.Key.SourceType, a.Key.SourceID, a.Hash))}})
		}
		do(&robbed, "e8", "1")
		want(idempotency.DecidedFenceLost, slog.LevelWarn, "")
	})
}

// FEN-14: a retention that is not longer than the Lease is refused, of an Effect and of the Policies, and nothing is run.
func TestRetentionIsLongerThanTheLease(t *testing.T) {
	s := sharedStore()
	l := ledger(t, s, lease(time.Minute))
	g := new(target)
	for _, c := range []struct {
		retention time.Duration
		ok        bool
	}{{time.Second, false}, {time.Minute, false}, {time.Minute + 1, true}} {
		e := g.effect()
		e.Retention = c.retention
		_, err := e.Do(t.Context(), l, key, one)
		var problem *idempotency.ConfigError
		if (err == nil) != c.ok || !c.ok && (!errors.As(err, &problem) || problem.Field != "Effect.Retention") {
			t.Errorf("a Retention of %v: %v", c.retention, err)
		}
		if (g.count() == 1) != c.ok {
			t.Errorf("a Retention of %v: %d effects", c.retention, g.count())
		}
	}
	for _, c := range []struct {
		lease time.Duration
		ok    bool
	}{{48 * time.Hour, false}, {48*time.Hour - 1, true}} {
		l, err := idempotency.New(idempotency.Config{Storage: new(memory.Store), Logger: discard, Lease: c.lease})
		if err == nil {
			l.Close()
		}
		if (err == nil) != c.ok || !c.ok && !errors.Is(err, idempotency.ErrInvalid) {
			t.Errorf("a Lease of %v: %v", c.lease, err)
		}
	}
}

// FEN-20, FEN-62: an Effect's Retention is at least twice as long as callers may repeat a request.
func TestRetentionIsTwoHorizons(t *testing.T) {
	for _, c := range []struct {
		retention, horizon time.Duration
		ok                 bool
	}{
		{time.Hour, time.Hour / 2, true},
		{time.Hour - 1, time.Hour / 2, false},
		{0, 24 * time.Hour, true}, // the default is 48 h
		{0, 24*time.Hour + 1, false},
		{1<<63 - 1, 1<<63 - 1, false},
	} {
		e := new(target).effect()
		e.Retention, e.RetryHorizon = c.retention, c.horizon
		if err := e.Check(); (err == nil) != c.ok {
			t.Errorf("a Retention of %v for a RetryHorizon of %v: %v", c.retention, c.horizon, err)
		}
	}
}

// A lesser store lacks something.
type lesser struct {
	exclusive
	lack func(*storage.Capabilities)
}

func (s lesser) Capabilities() storage.Capabilities {
	c := s.exclusive.Capabilities()
	s.lack(&c)
	return c
}

// FEN-24: stores.fence is only a name: any store that can do what a Ledger needs will do, and New refuses every other.
func TestStoresThatCannotBeUsed(t *testing.T) {
	for capability, lack := range map[string]func(*storage.Capabilities){
		"":                 func(*storage.Capabilities) {},
		"conditionalBatch": func(c *storage.Capabilities) { c.ConditionalBatch = false },
		"atomicBatch":      func(c *storage.Capabilities) { c.AtomicBatch = false },
		"readAfterWrite":   func(c *storage.Capabilities) { c.ReadAfterWrite = false },
	} {
		named := idempotency.Policies{Stores: idempotency.StoresPolicy{Fence: "payments-db"}}
		l, err := idempotency.New(idempotency.Config{Storage: lesser{exclusiveStore(), lack}, Policies: named, Logger: discard})
		if err == nil {
			l.Close()
		}
		var problem *storage.CapabilityError
		if (err == nil) != (capability == "") || err != nil && (!errors.As(err, &problem) || problem.Capability != capability) {
			t.Errorf("a store without %q: %v", capability, err)
		}
	}
}

// FEN-12, FEN-27, FEN-59: two processes read that nothing is known of a key. The claim of the slower one is refused, even
// if the other's effect is sealed by then, and it returns the other's receipt.
func TestClaimsAtOnce(t *testing.T) {
	s := sharedStore()
	other := s.another()
	slow, quick := ledger(t, s), ledger(t, other)
	g := new(target)
	var first idempotency.Receipt[string]
	s.onCommit(func(ctx context.Context, b storage.Batch, apply func() error) error {
		if claims(b) && first.EffectID == "" {
			var err error
			first, err = g.effect().Do(t.Context(), quick, key, one)
			must(t, err)
		}
		return apply()
	})
	r, err := g.effect().Do(t.Context(), slow, key, one)
	if err != nil || r.Decision != idempotency.DecidedDuplicate || r.EffectID != first.EffectID || r.Result != first.Result || g.count() != 1 {
		t.Errorf("%+v, %v after %d effects, want a duplicate of %+v", r, err, g.count(), first)
	}
}
