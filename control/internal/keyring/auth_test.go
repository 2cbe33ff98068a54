package keyring

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/storage/memory"
)

// slow is a store whose reads take a while. What they return is of their beginning.
type slow struct {
	*memory.Store
	reads atomic.Int64
}

func (s *slow) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.reads.Add(1)
	value, err := s.Store.Get(ctx, key)
	time.Sleep(20 * time.Millisecond)
	return value, err
}

// Requests with one key that come at once share a read of its record. None of those that come after the key was
// revoked is accepted, also if an earlier request is still reading. Requests with another key have their own record.
func TestRequestsAtOnceShareAReadOfTheirKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Store: new(memory.Store)}
		r := New(s, slog.New(slog.DiscardHandler), operation.Namespace{Project: "default", Environment: "default"}, 120)
		ask := func(secret string) (status int) {
			who, bad := r.Authenticate(t.Context(), http.Header{"Authorization": {"Bearer " + secret}}, netip.MustParseAddr("192.0.2.1"))
			if bad != nil {
				return bad.Status
			}
			if who.ID != secret {
				t.Errorf("a request with %q is taken for one of %q", secret, who.ID)
			}
			return http.StatusOK
		}
		for _, secret := range []string{"one", "other"} { // strangers are asked for one by one
			putRecord(t, s, secret, keyRecord{ID: secret, Hash: secretHash(secret)})
			if got := ask(secret); got != http.StatusOK {
				t.Fatalf("%s: got %d", secret, got)
			}
		}
		s.reads.Store(0)
		var asked sync.WaitGroup
		asks := func(n int, secret string, want int) {
			for range n {
				asked.Go(func() {
					if got := ask(secret); got != want {
						t.Errorf("%s: got %d, want %d", secret, got, want)
					}
				})
			}
			synctest.Wait()
		}
		asks(1, "one", http.StatusOK)
		putRecord(t, s, "one", keyRecord{ID: "one", Hash: secretHash("one"), RevokedAt: time.Now().UnixMicro()})
		asks(20, "one", http.StatusUnauthorized)
		asks(20, "other", http.StatusOK)
		asked.Wait()
		if n := s.reads.Load(); n != 4 {
			t.Errorf("41 requests have read %d times, want 4: two for each key", n)
		}
	})
}
