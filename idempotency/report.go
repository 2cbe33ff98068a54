package idempotency

import (
	"context"
	"log/slog"

	"github.com/weft-go/weft/idempotency/internal/entry"
)

// report logs a decision and tells Config.Observe of it. Calls that were refused or failed before
// there was a decision are not decisions.
func (l *Ledger) report(ctx context.Context, j *job, o outcome) {
	if o.decision == "" {
		return
	}
	r := Report{Key: j.key, Hash: j.hash, Decision: o.decision, EffectID: o.effectID, DiffBytes: o.diff}
	if lost, ok := o.err.(*FenceLostError); ok {
		r.EffectID = lost.EffectID // of this call, as long as the winner has not sealed its own
	}
	if e := o.entry; e != nil {
		r.EffectID, r.Attempt, r.FirstSeen = e.EffectID, e.Attempt, entry.Time(e.FirstSeen)
		if o.sealed {
			r.ToSeal = entry.Time(e.SealedAt).Sub(r.FirstSeen)
		}
	}
	if level := o.decision.level(); l.config.Logger.Enabled(ctx, level) {
		l.config.Logger.LogAttrs(ctx, level, "idempotency: decided", l.config.Policies.Logging.attrs(r)...)
	}
	if l.config.Observe == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			l.config.Logger.Error("idempotency: Config.Observe panicked", "panic", p)
		}
	}()
	l.config.Observe(ctx, r)
}

// level returns the level at which a decision is logged. FEN-30.
func (d Decision) level() slog.Level {
	switch d {
	case DecidedConflict, DecidedStale, DecidedIndeterminate, DecidedFenceLost:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
