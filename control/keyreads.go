package control

import (
	"context"

	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/storage"
)

// keyReads reads the records of secrets for requests. Requests with the same secret that come together share one read,
// but it is no cache (HTTP-7): a request only gets what a read found that began after the request had come. So it sees every
// revocation that was acknowledged before it was sent. A read that is under way may have missed that, so nobody joins it:
// who comes meanwhile waits for the next one.
type keyReads struct {
	store storage.Storage

	mu   lock.Mutex
	last map[[32]byte]*keyRead // of each hash of a secret, while it is not done
}

// A keyRead is one read of the record of a secret.
type keyRead struct {
	begun bool          // nobody may join it any more; guarded by keyReads.mu
	done  chan struct{} // closed when the fields below are set

	key       *keyRecord // nil: there is none. It is shared, so nobody changes it
	err       error
	abandoned bool // the request that was to read has ended: its error says nothing about the store
}

// read returns the record of a secret, or nil.
func (r *keyReads) read(ctx context.Context, hash []byte) (*keyRecord, error) {
	for {
		mine, before, joined := r.enter([32]byte(hash))
		if !joined {
			return r.lead(ctx, hash, mine, before)
		}
		select {
		case <-mine.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if !mine.abandoned {
			return mine.key, mine.err
		}
	}
}

// enter returns the read that gives the caller its answer. Either the caller joins one that has not begun, or the read is
// the caller's to make, after the one before it, if there is one.
func (r *keyReads) enter(secret [32]byte) (mine, before *keyRead, joined bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.last[secret]
	if last != nil && !last.begun {
		return last, nil, true
	}
	if r.last == nil {
		r.last = map[[32]byte]*keyRead{}
	}
	mine = &keyRead{begun: last == nil, done: make(chan struct{})}
	r.last[secret] = mine
	return mine, last, false
}

// lead makes a read for all who have joined it until it begins.
func (r *keyReads) lead(ctx context.Context, hash []byte, mine, before *keyRead) (*keyRecord, error) {
	defer func() { // also if the store panics
		r.mu.Lock()
		if r.last[[32]byte(hash)] == mine {
			delete(r.last, [32]byte(hash))
		}
		r.mu.Unlock()
		close(mine.done)
	}()
	mine.abandoned = true
	if before != nil {
		select {
		case <-before.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		r.mu.Lock()
		mine.begun = true
		r.mu.Unlock()
	}
	key, err := readKey(ctx, r.store, hash)
	if err == nil || ctx.Err() == nil {
		mine.key, mine.err, mine.abandoned = key, err, false
	}
	return key, err
}
