package control_test

import (
	"bytes"
	"context"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weft-go/weft/storage"
)

// A keyCounting store counts the reads of keys, each of which other requests may meet.
type keyCounting struct {
	storage.Storage
	reads atomic.Int64
}

func (s *keyCounting) Unwrap() storage.Storage { return s.Storage }

func (s *keyCounting) Get(ctx context.Context, key []byte) ([]byte, error) {
	if bytes.HasPrefix(key, []byte("ctl:key:")) {
		s.reads.Add(1)
		runtime.Gosched()
	}
	return s.Storage.Get(ctx, key)
}

// HTTP-7: requests share reads of their key, and none of those that come after the revocation was answered is accepted.
func TestSharedReadsSeeARevocation(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		counting := &keyCounting{Storage: s}
		x := planeOn(t, counting)
		var (
			clients                   sync.WaitGroup
			revoked                   atomic.Bool
			requests, before, refused atomic.Int64
		)
		for range 32 {
			clients.Go(func() {
				for after := 0; after < 10; {
					late := revoked.Load()
					status := x.do("GET", "/v1/deployments/active", readerSecret, nil).status
					requests.Add(1)
					switch {
					case late && status != http.StatusUnauthorized:
						t.Errorf("a request that came after the revocation was answered with %d", status)
					case late:
						after++
					case status == http.StatusUnauthorized:
						refused.Add(1)
					default:
						before.Add(1)
					}
				}
			})
		}
		x.until(func() bool { return before.Load() > 500 }, "500 requests")
		x.do("DELETE", "/v1/keys/reader", adminSecret, nil).is(http.StatusNoContent)
		revoked.Store(true)
		clients.Wait()
		shared := requests.Load() - counting.reads.Load()
		t.Logf("%d requests, of which %d shared a read; %d were refused before the revocation was answered", requests.Load(), shared, refused.Load())
		if shared < 100 {
			t.Errorf("%d of %d requests shared a read", shared, requests.Load())
		}
	})
}
