package idempotency

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency/internal/entry"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// List returns what is known of the keys that f selects, ordered by tenant, source type, source id
// and hash. An entry that is damaged is an Info whose Err says so. If the store fails, the last pair
// has the error.
func (l *Ledger) List(ctx context.Context, f Filter) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if err := l.enter(ctx); err != nil {
			yield(Info{}, err)
			return
		}
		defer l.leave()
		if err := f.check(); err != nil {
			yield(Info{}, err)
			return
		}
		var parts []string
		switch {
		case f.SourceID != "":
			parts = []string{f.Tenant, f.SourceType, f.SourceID}
		case f.SourceType != "":
			parts = []string{f.Tenant, f.SourceType}
		case f.Tenant != "":
			parts = []string{f.Tenant}
		}
		for stored, err := range storage.All(ctx, l.on, keys.Claims(parts...)) {
			if err != nil {
				yield(Info{}, fmt.Errorf("idempotency: list: %w", err))
				return
			}
			info, err := l.inspect(ctx, stored)
			if err != nil {
				yield(Info{}, fmt.Errorf("idempotency: list: %w", err))
				return
			}
			if info.Err == nil && (f.State != "" && info.State != f.State || f.Lapsed && !info.Lapsed) {
				continue
			}
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (f Filter) check() error {
	switch f.State {
	case "", StateInProgress, StateReleased, StateSealed, StateFailed, StateIndeterminate:
	default:
		return fmt.Errorf("%w: Filter.State %q is no state", ErrInvalid, f.State)
	}
	if f.SourceID != "" && f.SourceType == "" {
		return fmt.Errorf("%w: Filter.SourceID is set, and SourceType is not", ErrInvalid)
	}
	return nil
}

// inspect returns what is told of a stored entry.
func (l *Ledger) inspect(ctx context.Context, stored storage.Entry) (Info, error) {
	tenant, sourceType, sourceID, hash, err := keys.ClaimNames(stored.Key)
	if err != nil {
		return Info{Err: err}, nil
	}
	e, err := entry.OpenAt(stored.Key, hash, stored.Value)
	if err != nil {
		return Info{Key: Key{Tenant: tenant, SourceType: sourceType, SourceID: sourceID}, Hash: hash, Err: err}, nil
	}
	info := infoOf(e, hash)
	if e.State == entry.InProgress {
		v, _, err := l.vitality(ctx, e, 0)
		if err != nil && !record.Damaged(err) {
			return info, err
		}
		info.Lapsed, info.Err = v != entry.Living, err
	}
	return info, nil
}

// infoOf returns what is told of e.
func infoOf(e *entry.Entry, hash string) Info {
	return Info{
		Key: Key(e.Key), Hash: hash, State: State(e.State),
		EffectID: e.EffectID, Attempt: e.Attempt, Epoch: e.Epoch,
		FirstSeen: entry.Time(e.FirstSeen), Updated: entry.Time(e.Updated), SealedAt: entry.Time(e.SealedAt), Expires: entry.Time(e.Expires),
		Failure: e.Failure, Unavailable: e.Unavailable,
		By: Actor{Name: e.By, Reason: e.Why},
	}
}

// Resolve sets the outcome of a key that has lapsed or is indeterminate, as an operator has found it
// out. a is one of activity.CompletedWithResult, CompletedResultUnavailable, NotCompleted (then the next
// call runs) and Failed. A result must be of the type of the Effect's: the Ledger does not know it. k is
// the whole key, Action included.
//
// attempt is the attempt whose outcome that is, as an Info and an *IndeterminateError tell it. If there
// was another one since then, the operator has examined too little, and nothing changes. Zero means the
// last one, whichever it is; then only one operator at a time may be at it.
//
// Errors: ErrInvalid, ErrNotFound, ErrNotApplicable, *InProgressError while the holder lives, and the
// store's.
func (l *Ledger) Resolve(ctx context.Context, k Key, attempt int, a activity.Answer, by Actor) error {
	if err := errors.Join(k.Check(), checkActor(by)); err != nil {
		return err
	}
	if payload.IsNil(a) {
		return fmt.Errorf("%w: the answer is nil", ErrInvalid)
	}
	v := a.Verdict()
	var r entry.Result
	switch v.State {
	case activity.StateNotCompleted, activity.StateFailed:
	case activity.StateCompletedResultUnavailable:
		r.Unavailable = "the operator says that it is lost"
	case activity.StateCompletedWithResult:
		if r = l.result(ctx, v.Result); r.Unavailable != "" {
			return fmt.Errorf("%w: the result: %s", ErrInvalid, r.Unavailable)
		}
	default:
		return fmt.Errorf("%w: the answer %v cannot be an outcome", ErrInvalid, v.State)
	}
	return l.operate(ctx, k, func(e *entry.Entry) (*entry.Entry, error) {
		if e.State != entry.InProgress && e.State != entry.Indeterminate {
			return nil, fmt.Errorf("%w: the key is %s", ErrNotApplicable, e.State)
		}
		if attempt != 0 && attempt != e.Attempt {
			return nil, fmt.Errorf("%w: the answer is about attempt %d, and the last one is %d", ErrNotApplicable, attempt, e.Attempt)
		}
		now := l.time()
		var next *entry.Entry
		switch v.State {
		case activity.StateNotCompleted:
			next = e.Released(now)
		case activity.StateFailed:
			next = e.Failed(now, payload.Recordable(v.Reason), "")
		default:
			next = e.Sealed(now, "", r)
		}
		next.Owner = nil // the attempt's own end is refused from now on
		next.By, next.Why = by.Name, by.Reason
		return next, nil
	})
}

// Forget removes all that is known of a key, also of one that is damaged: the next call runs. k is the
// whole key, Action included. It is logged.
//
// Errors: ErrInvalid, ErrNotFound, *InProgressError while the holder lives, and the store's.
func (l *Ledger) Forget(ctx context.Context, k Key, by Actor) error {
	if err := errors.Join(k.Check(), checkActor(by)); err != nil {
		return err
	}
	err := l.operate(ctx, k, func(*entry.Entry) (*entry.Entry, error) { return nil, nil })
	if errors.Is(err, errUnreadable) {
		err = l.forgetDamaged(ctx, k)
	}
	if err == nil {
		l.config.Logger.Warn("idempotency: a key was forgotten", "idempotency_key", k.Hash(), "source_type", k.SourceType, "source_id", k.SourceID, "by", by.Name, "reason", by.Reason)
	}
	return err
}

var errUnreadable = errors.New("the record of the key cannot be read")

// operate replaces the entry of a key by what change returns, unless its holder lives.
func (l *Ledger) operate(ctx context.Context, k Key, change func(*entry.Entry) (*entry.Entry, error)) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave()
	hash := k.Hash()
	for {
		e, err := l.get(ctx, k, hash)
		if record.Damaged(err) {
			return fmt.Errorf("%w: %w", errUnreadable, err)
		}
		if err != nil {
			return err
		}
		if e == nil {
			return fmt.Errorf("%w: %s", ErrNotFound, hash)
		}
		if e.State == entry.InProgress {
			v, _, err := l.vitality(ctx, e, 0)
			if err != nil {
				return err
			}
			if v == entry.Living {
				return &InProgressError{EffectID: e.EffectID, RetryAfter: l.goesOn(e)}
			}
		}
		next, err := change(e)
		if err != nil {
			return err
		}
		err = l.replace(ctx, k, hash, e, next)
		if !errors.Is(err, storage.ErrConflict) {
			return err
		}
	}
}

// replace commits next in the place of e, and what follows for the order of its source.
func (l *Ledger) replace(ctx context.Context, k Key, hash string, e, next *entry.Entry) error {
	c, err := entry.Changing(entry.Key(k), hash, e, next)
	if err != nil {
		return err
	}
	if e.OrderSource != "" {
		src, err := readSource(ctx, l.on, k.Tenant, k.SourceType, e.OrderSource)
		switch {
		case errors.Is(err, storage.ErrCorrupt) && next == nil: // it is forgotten, too
			src.Sequence = entry.Sequence{SlotHash: hash}
		case err != nil:
			return err
		}
		if to, changed := src.Without(next, hash); changed {
			if err := src.Become(c, to); err != nil {
				return err
			}
		}
	}
	return settle.Commit(ctx, l.on, c.Batch, nil, func(ctx context.Context) (bool, error) {
		raw, err := l.on.Get(ctx, c.Key)
		if errors.Is(err, storage.ErrNotFound) {
			return next == nil, nil
		}
		return err == nil && next != nil && bytes.Equal(raw, next.Raw), err
	})
}

// forgetDamaged removes what is stored for a key, whatever it is. Its entry in the list of what expires
// is removed when it is due. The record does not say which order it has, so all of its source type are read.
func (l *Ledger) forgetDamaged(ctx context.Context, k Key) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave()
	hash := k.Hash()
	for {
		at := entry.Key(k).Place(hash)
		raw, err := l.on.Get(ctx, at)
		if err != nil {
			return err
		}
		c := &entry.Change{Batch: storage.Batch{If: []storage.Condition{storage.Equal(at, raw)}, Ops: []storage.Op{storage.Delete(at)}}}
		if err := l.leaveOrders(ctx, c, k, hash); err != nil {
			return err
		}
		err = settle.Commit(ctx, l.on, c.Batch, nil, func(ctx context.Context) (bool, error) {
			_, err := l.on.Get(ctx, at)
			if errors.Is(err, storage.ErrNotFound) {
				return true, nil
			}
			return false, err
		})
		if !errors.Is(err, storage.ErrConflict) {
			return err
		}
		if now, err := l.on.Get(ctx, at); err != nil || !bytes.Equal(now, raw) {
			return cmp.Or(err, error(storage.ErrConflict)) // it is not what was damaged
		}
	}
}

// leaveOrders has c also remove a key from the orders that name it.
func (l *Ledger) leaveOrders(ctx context.Context, c *entry.Change, k Key, hash string) error {
	for e, err := range storage.All(ctx, l.on, keys.Orders(k.Tenant, k.SourceType)) {
		if err != nil {
			return err
		}
		src, err := entry.OpenSource(e.Key, e.Value)
		if record.Damaged(err) {
			continue // Forget of a key that names it removes it
		}
		if err != nil {
			return err
		}
		if to, changed := src.Without(nil, hash); changed {
			if err := src.Become(c, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxActor is the most bytes of an Actor's fields together.
const maxActor = 4096

func checkActor(a Actor) error {
	switch {
	case strings.TrimSpace(a.Name) == "" || strings.TrimSpace(a.Reason) == "":
		return fmt.Errorf("%w: the Actor has no Name or no Reason", ErrInvalid)
	case len(a.Name)+len(a.Reason) > maxActor:
		return fmt.Errorf("%w: the Actor has %d bytes, at most %d are allowed", ErrInvalid, len(a.Name)+len(a.Reason), maxActor)
	case !utf8.ValidString(a.Name) || !utf8.ValidString(a.Reason):
		return fmt.Errorf("%w: the Actor is not valid UTF-8", ErrInvalid)
	}
	return nil
}
