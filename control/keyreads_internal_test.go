package control

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A slowStore answers a Get when the test says so, with what was stored when the Get began.
type slowStore struct {
	storage.Storage
	answers chan error // one for each Get: nil, or the error

	mu    sync.Mutex
	reads int
}

func (s *slowStore) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.mu.Lock()
	s.reads++
	s.mu.Unlock()
	value, err := s.Storage.Get(ctx, key)
	select {
	case e := <-s.answers:
		return value, errors.Join(err, e)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// A keyRig has key reads of one secret on a slow store, in virtual time.
type keyRig struct {
	*testing.T
	store *slowStore
	reads keyReads
	hash  []byte
}

func newKeyRig(t *testing.T) *keyRig {
	s := &slowStore{Storage: new(memory.Store), answers: make(chan error)}
	r := &keyRig{T: t, store: s, reads: keyReads{store: s}, hash: secretHash("a secret of twenty-four bytes")}
	r.put(false)
	return r
}

// put stores the key, revoked or not.
func (r *keyRig) put(revoked bool) {
	r.Helper()
	c := &keyChange{}
	k := &keyRecord{ID: "shop", Hash: r.hash}
	if revoked {
		k.RevokedAt = 1
	}
	c.putSecret(k)
	if c.err != nil {
		r.Fatal(c.err)
	}
	if err := r.store.Commit(r.Context(), storage.Batch{Ops: c.Ops}); err != nil {
		r.Fatal(err)
	}
}

// A keyAnswer is what a request has got.
type keyAnswer struct {
	key *keyRecord
	err error
}

// ask begins n requests for the key, and returns when all of them wait.
func (r *keyRig) ask(ctx context.Context, n int) <-chan keyAnswer {
	answers := make(chan keyAnswer, n)
	for range n {
		go func() {
			k, err := r.reads.read(ctx, r.hash)
			answers <- keyAnswer{k, err}
		}()
	}
	synctest.Wait()
	return answers
}

// want checks that n requests have an answer now: all of them that the key is revoked, or none.
func (r *keyRig) want(answers <-chan keyAnswer, n int, revoked bool) {
	r.Helper()
	synctest.Wait()
	if len(answers) != n {
		r.Fatalf("%d requests have an answer, want %d", len(answers), n)
	}
	for range n {
		switch a := <-answers; {
		case a.err != nil:
			r.Fatal(a.err)
		case a.key == nil || a.key.valid(time.Now()) == revoked:
			r.Fatalf("got %+v, want one that is revoked: %v", a.key, revoked)
		}
	}
}

func (r *keyRig) wantReads(n int) {
	r.Helper()
	synctest.Wait()
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if r.store.reads != n {
		r.Fatalf("the store was read %d times, want %d", r.store.reads, n)
	}
}

// HTTP-7: requests that come together share a read of their key, which began after they had come: they see that it was
// revoked, also if the read that was under way when they came does not.
func TestKeyReadsBeginAfterTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newKeyRig(t)
		first := r.ask(t.Context(), 1)
		r.put(true)
		later := r.ask(t.Context(), 64)
		r.wantReads(1)
		r.store.answers <- nil
		r.want(first, 1, false)
		r.want(later, 0, true)
		r.wantReads(2)
		r.put(false)
		last := r.ask(t.Context(), 64) // while that of the others is under way
		r.store.answers <- nil
		r.want(later, 64, true)
		r.store.answers <- nil
		r.want(last, 64, false)
		r.wantReads(3)
		if len(r.reads.last) != 0 {
			t.Errorf("%d reads are kept", len(r.reads.last))
		}
	})
}

// A request that ends takes no other with it, whether its read has begun or not.
func TestKeyReadsOfRequestsThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newKeyRig(t)
		ended := func(answers <-chan keyAnswer) {
			t.Helper()
			synctest.Wait()
			if len(answers) != 1 {
				t.Fatal("the request waits on")
			}
			if a := <-answers; !errors.Is(a.err, context.Canceled) {
				t.Fatalf("got %v, %v, want that it was cancelled", a.key, a.err)
			}
		}
		first := r.ask(t.Context(), 1)
		ctx, cancel := context.WithCancel(t.Context())
		waits := r.ask(ctx, 1) // it will read for those that follow
		others := r.ask(t.Context(), 8)
		joined, leave := context.WithCancel(t.Context())
		joiner := r.ask(joined, 1)
		leave()
		ended(joiner)
		cancel()
		ended(waits)
		r.wantReads(2) // one of the others reads at once, and then one for the rest
		for range 3 {
			r.store.answers <- nil
		}
		r.want(first, 1, false)
		r.want(others, 8, false)
		r.wantReads(3)

		first = r.ask(t.Context(), 1)
		ctx, cancel = context.WithCancel(t.Context())
		reads := r.ask(ctx, 1)
		others = r.ask(t.Context(), 8)
		r.store.answers <- nil
		r.want(first, 1, false)
		r.wantReads(5)
		cancel() // while it reads
		ended(reads)
		r.store.answers <- nil
		r.store.answers <- nil
		r.want(others, 8, false)
		r.wantReads(7)
	})
}

// What the store fails with is the answer of all who share the read, so that none of them asks it again.
func TestKeyReadsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newKeyRig(t)
		first := r.ask(t.Context(), 1)
		later := r.ask(t.Context(), 8)
		r.store.answers <- nil
		r.want(first, 1, false)
		down := errors.New("the store is down")
		r.store.answers <- down
		r.wantReads(2)
		if len(later) != 8 {
			t.Fatalf("%d requests have an answer, want 8", len(later))
		}
		for range 8 {
			if a := <-later; !errors.Is(a.err, down) {
				t.Errorf("got %v, %v", a.key, a.err)
			}
		}
	})
}

// Each secret is read for itself.
func TestKeyReadsOfOtherSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newKeyRig(t)
		first := r.ask(t.Context(), 1)
		mine := r.hash
		r.hash = bytes.Repeat([]byte{1}, len(mine))
		other := r.ask(t.Context(), 1)
		r.wantReads(2)
		r.store.answers <- nil
		r.store.answers <- nil
		r.want(first, 1, false)
		if a := <-other; a.key != nil || a.err != nil {
			t.Errorf("got %v, %v, want no key", a.key, a.err)
		}
	})
}
