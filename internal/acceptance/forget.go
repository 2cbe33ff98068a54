package acceptance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/storage"
)

// Forget decides what to do with an accepted response that has expired, by the entry
// that says so. If it is unchanged since it was read and its signal was consumed, it is
// deleted. While the response exists nothing can be accepted under its ID, so the
// payload does not come back. While the signal waits, the response is kept and checked
// again after another such time. Otherwise sending the signal again would find a
// payload without an acceptance.
func Forget(ctx context.Context, s storage.Storage, entry []byte, now time.Time) (storage.Batch, error) {
	return outlived(ctx, s, entry, now, false)
}

// Remember is Forget for an entry whose time cannot be right: the accepted response is
// kept, and checked again after another such time.
func Remember(ctx context.Context, s storage.Storage, entry []byte, now time.Time) (storage.Batch, error) {
	return outlived(ctx, s, entry, now, true)
}

func outlived(ctx context.Context, s storage.Storage, entry []byte, now time.Time, keep bool) (storage.Batch, error) {
	b := storage.Batch{Ops: []storage.Op{storage.Delete(entry)}}
	key, again, err := expiring(entry)
	if err != nil {
		return b, err
	}
	raw, err := s.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return b, nil // purged
	}
	if err != nil {
		return b, err
	}
	var a accepted
	if _, err := record.Open(key, raw, version, &a); err != nil {
		return b, err
	}
	if a.ExpiresAt > now.UnixMicro() {
		return b, nil // of a later acceptance, which has its own entry
	}
	b.If = append(b.If, storage.Equal(key, raw))
	_, err = s.Get(ctx, keys.Signal(a.WorkflowID, a.SignalName, a.SignalID))
	switch {
	case errors.Is(err, storage.ErrNotFound) && !keep:
		b.Ops = append(b.Ops, storage.Delete(key))
	case err != nil && !errors.Is(err, storage.ErrNotFound):
		return b, err
	default:
		later := now.Add(max(saturate.Times(a.ExpiresAt-a.AcceptedAt, time.Microsecond), time.Minute))
		b.Ops = append(b.Ops, storage.Put(again(later), nil))
	}
	return b, nil
}

// expiring returns the key of the accepted response that an entry is about, and how the entry is put
// off.
func expiring(entry []byte) (key []byte, again func(at time.Time) []byte, err error) {
	kind, names, err := keys.Expiring(entry)
	switch {
	case err != nil:
		return nil, nil, err
	case kind == "sig" && len(names) == 3:
		id, name, signalID := names[0], names[1], names[2]
		return keys.Accepted(id, name, signalID), func(at time.Time) []byte { return keys.ExpiringSignal(at, id, name, signalID) }, nil
	case kind == "hres" && len(names) == 2:
		hash, signalID := names[0], names[1]
		return keys.Resumed(hash, signalID), func(at time.Time) []byte { return keys.ExpiringResumed(at, hash, signalID) }, nil
	}
	return nil, nil, fmt.Errorf("%w: key %q", storage.ErrCorrupt, entry)
}

// Remembers reports whether an accepted response of a signal of the workflow has not expired yet.
func Remembers(ctx context.Context, s storage.Storage, workflowID string, now time.Time) (bool, error) {
	for e, err := range storage.All(ctx, s, keys.AcceptedOf(workflowID)) {
		if err != nil {
			return false, err
		}
		var a accepted
		if _, err := record.Open(e.Key, e.Value, version, &a); err != nil {
			return false, err
		}
		if a.ExpiresAt > now.UnixMicro() {
			return true, nil
		}
	}
	return false, nil
}
