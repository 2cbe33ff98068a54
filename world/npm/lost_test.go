package npm_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/world"
)

// Answers are lost after the commit, and the calls are made again: everything is there once.
func TestAnswersAreLost(t *testing.T) {
	needNPM(t)
	onSome(t, func(t *testing.T, s storage.Storage) {
		// Half of all answers are cut, so one call in a hundred is made more than seven times. That takes longer than the default.
		srv := serve(t, s, world.Options{Window: time.Minute})
		var calls, cut, reads atomic.Int64
		proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			out, err := http.NewRequestWithContext(r.Context(), r.Method, srv.URL+r.URL.Path, r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			out.Header = r.Header
			answer, err := http.DefaultTransport.RoundTrip(out)
			if err != nil {
				rw.WriteHeader(http.StatusBadGateway)
				return
			}
			defer answer.Body.Close()
			changes := strings.HasSuffix(r.URL.Path, "/create") || strings.HasSuffix(r.URL.Path, "/write") || strings.HasSuffix(r.URL.Path, "/publish")
			if changes && calls.Add(1)%2 == 1 {
				cut.Add(1)
				panic(http.ErrAbortHandler)
			}
			rw.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
			rw.WriteHeader(answer.StatusCode)
			if strings.HasSuffix(r.URL.Path, "/read") && reads.Add(1) <= 3 {
				_, _ = io.CopyN(rw, answer.Body, 250) // some chunks, the last of which is not whole
				_ = http.NewResponseController(rw).Flush()
				panic(http.ErrAbortHandler)
			}
			if _, err := io.Copy(rw, answer.Body); err != nil {
				panic(http.ErrAbortHandler)
			}
		}))
		defer proxy.Close()
		vitest(t, "test/cut.test.js", "WEFT_WORLD_URL="+proxy.URL)
		if n, r := cut.Load(), reads.Load(); n < 500 || r < 4 {
			t.Errorf("%d answers were cut, and a stream was read by %d calls, want 500 and 4 or more", n, r)
		}
	})
}
