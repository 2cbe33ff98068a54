package lease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// renewals is how often a lease is renewed in its time.
const renewals = 6

// present has the holders of this process. An exclusive store is open in one process, so there a holder
// of the present opening that is not among them is dead, even if its lease could not be removed.
var present sync.Map

// A Holder has the claims of a ledger.
type Holder struct {
	ID   string
	raw  []byte             // the lease as it is stored; of renew
	lost context.Context    // ends when the lease is lost
	lose context.CancelFunc // ends lost

	mu   sync.Mutex // guards runs
	runs map[context.Context]context.CancelCauseFunc
}

// IsLost says whether h does not trust its lease any more.
func (h *Holder) IsLost() bool { return h.lost.Err() != nil }

// Current returns the holder that Own has registered last; nil if it has registered none.
func (hs *Holders) Current() *Holder { return hs.own.Load() }

// Own returns the present holder of this ledger. It registers a new one if there is none.
func (hs *Holders) Own(ctx context.Context) (*Holder, error) {
	if h := hs.Current(); h != nil && !h.IsLost() {
		return h, nil
	}
	select {
	case hs.registering <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-hs.registering }()
	if h := hs.Current(); h != nil && !h.IsLost() {
		return h, nil
	}
	h := &Holder{ID: hs.NewID(), runs: map[context.Context]context.CancelCauseFunc{}}
	h.lost, h.lose = context.WithCancel(hs.Life)
	context.AfterFunc(h.lost, h.cutOff)
	put, err := hs.lease(h)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	present.Store(h.ID, true)
	b := storage.Batch{If: []storage.Condition{storage.Absent(put.Key)}, Ops: []storage.Op{put}, Urgent: true}
	if err := settle.Commit(ctx, hs.Store, b, nil, settle.Stored(hs.Store, put)); err != nil {
		present.Delete(h.ID)
		h.lose()
		return nil, fmt.Errorf("idempotency: register a holder of claims: %w", err)
	}
	h.raw = put.Value
	hs.own.Store(h)
	if hs.Opening == "" {
		hs.Go(func() { hs.renew(h, sent) })
	}
	return h, nil
}

// lease returns the record of h, with a new nonce.
func (hs *Holders) lease(h *Holder) (storage.Op, error) {
	key := keys.Holder(h.ID)
	r := &Lease{Opening: hs.Opening, Nonce: rand.Text(), Clock: hs.Clock.Now().UnixMicro()}
	if hs.Opening == "" {
		r.TTL = hs.TTL.Microseconds()
	}
	raw, err := record.Seal(key, version, r, nil)
	return storage.Put(key, raw), err
}

// renew renews the lease of h, which was sent at a time, until the ledger is closed or the lease is
// lost. A timer ends it in time even if the store blocks.
func (hs *Holders) renew(h *Holder, sent time.Time) {
	trusted := sent.Add(hs.TTL)
	end := time.AfterFunc(time.Until(trusted), h.lose)
	defer end.Stop()
	for {
		select {
		case <-h.lost.Done():
			if hs.Life.Err() == nil {
				hs.Logger.Error("idempotency: the lease is lost; claims may be taken over", "holder", h.ID)
			}
			return
		case <-time.After(time.Until(sent.Add(hs.TTL / renewals))):
		}
		sent = time.Now()
		ctx, cancel := context.WithDeadline(h.lost, trusted)
		put, err := hs.lease(h)
		if err == nil {
			b := storage.Batch{If: []storage.Condition{storage.Equal(put.Key, h.raw)}, Ops: []storage.Op{put}, Urgent: true}
			err = settle.Commit(ctx, hs.Store, b, nil, settle.Stored(hs.Store, put))
		}
		cancel()
		if err != nil || !end.Stop() {
			h.lose()
			continue
		}
		h.raw = put.Value
		trusted = sent.Add(hs.TTL)
		end.Reset(time.Until(trusted))
	}
}

// Retire removes the lease of the present holder, which has no claims any more. If that fails,
// others find out as if it had died. It is called when Config.Life has ended, and all goroutines that Config.Go
// started have.
func (hs *Holders) Retire(ctx context.Context) {
	h := hs.Current()
	if h == nil {
		return
	}
	present.Delete(h.ID)
	key := keys.Holder(h.ID)
	err := hs.Store.Commit(ctx, storage.Batch{
		If:  []storage.Condition{storage.Equal(key, h.raw)},
		Ops: []storage.Op{storage.Delete(key)},
	})
	if err != nil && !errors.Is(err, storage.ErrConflict) {
		hs.Logger.Warn("idempotency: the lease was not removed; it will run out", "holder", h.ID, "error", err)
	}
}

// Condition says that the lease of h is there. A claim of h is committed under it.
func (h *Holder) Condition() storage.Condition { return storage.Present(keys.Holder(h.ID)) }

// Confirm loses h if its lease was removed: it was found dead.
func (hs *Holders) Confirm(ctx context.Context, h *Holder) {
	if _, err := hs.Store.Get(ctx, keys.Holder(h.ID)); errors.Is(err, storage.ErrNotFound) {
		h.lose()
	}
}

// WhileHeld returns a context that also ends, with activity.ErrLeaseLost, when h is lost.
func (h *Holder) WhileHeld(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.IsLost() {
		cancel(activity.ErrLeaseLost)
	}
	h.runs[ctx] = cancel
	return ctx, func() {
		h.mu.Lock()
		delete(h.runs, ctx)
		h.mu.Unlock()
		cancel(nil)
	}
}

// cutOff ends the Runs of h, which is lost.
func (h *Holder) cutOff() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, cancel := range h.runs {
		cancel(activity.ErrLeaseLost)
	}
}
