package control_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

func limited(n int) func(*control.Config) { return func(c *control.Config) { c.RateLimit = n } }

// HTTP-84, HTTP-85, HTTP-87 to HTTP-89: 120 requests pass in a minute of the clock, the next does not, and keys
// share nothing.
func TestRateLimit(t *testing.T) {
	virtual(t, func(t *testing.T) {
		namesake := control.Key{ID: "reader", Project: "acme", Environment: "prod", Secret: newSecret, Scopes: []string{"runs:read"}}
		x := planeOn(t, new(memory.Store), withKeys(namesake), limited(0)) // the default
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 30*time.Second)))
		next := time.Now().Truncate(time.Minute).Add(time.Minute)
		for i := range 120 {
			r := x.do("GET", "/v1/runs", readerSecret, nil).is(200)
			for name, want := range map[string]string{
				"X-RateLimit-Limit": "120", "X-RateLimit-Remaining": strconv.Itoa(119 - i), "X-RateLimit-Reset": strconv.FormatInt(next.Unix(), 10),
			} {
				if got := r.header.Get(name); got != want {
					t.Fatalf("request %d: got %s %s, want %s", i+1, name, got, want)
				}
			}
		}
		r := x.do("GET", "/v1/runs", readerSecret, nil).fails(429, "rate_limited").says("Rate limit exceeded")
		if r.header.Get("Retry-After") != "30" || r.header.Get("X-RateLimit-Remaining") != "0" || r.object()["retry"] != "same-key" {
			t.Errorf("got %v %s", r.header, r.body)
		}
		x.do("GET", "/v1/runs", adminSecret, nil).is(200)
		x.do("GET", "/v1/runs", otherSecret, nil).is(200)
		x.do("GET", "/v1/runs", newSecret, nil).is(200) // of the same name in another project
		x.do("GET", "/v1/health", "", nil).is(200)

		time.Sleep(30*time.Second - time.Millisecond)
		if r := x.do("GET", "/v1/runs", readerSecret, nil).is(429); r.header.Get("Retry-After") != "1" {
			t.Errorf("just before the end: got Retry-After %s, want 1", r.header.Get("Retry-After"))
		}
		time.Sleep(time.Millisecond)
		if r := x.do("GET", "/v1/runs", readerSecret, nil).is(200); r.header.Get("X-RateLimit-Remaining") != "119" {
			t.Errorf("the next window: got %s left, want 119", r.header.Get("X-RateLimit-Remaining"))
		}
	})
}

// HTTP-86, HTTP-105: all processes on a store together let as many pass as one: exactly the limit, however
// many come at once.
func TestRateLimitOfProcesses(t *testing.T) {
	control.EachStore(t, func(t *testing.T, s storage.Storage) {
		const limit = 120
		sites := []*site{serve(t, s, limited(limit)), serve(t, s, limited(limit))}
		var mu sync.Mutex
		passed, refused := map[string]int{}, map[string]int{} // by the end of the window
		var all sync.WaitGroup
		work := make(chan int, 2*limit)
		for i := range 2 * limit {
			work <- i
		}
		close(work)
		for range 8 {
			all.Go(func() {
				for i := range work {
					q, err := http.NewRequest("GET", sites[i%2].url+"/v1/runs", nil)
					if err != nil {
						t.Error(err)
						return
					}
					q.Header.Set("Authorization", "Bearer "+readerSecret)
					r, err := sites[i%2].client.Do(q)
					if err != nil {
						t.Error(err)
						return
					}
					r.Body.Close()
					mu.Lock()
					switch window := r.Header.Get("X-RateLimit-Reset"); r.StatusCode {
					case 200:
						passed[window]++
					case 429:
						refused[window]++
					default:
						t.Errorf("got %s", r.Status)
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		for window, n := range passed {
			if all := n + refused[window]; n != min(all, limit) {
				t.Errorf("in the window until %s %d of %d passed, want %d", window, n, all, min(all, limit))
			}
		}
		for window := range refused {
			if passed[window] != limit {
				t.Errorf("in the window until %s %d passed and %d were refused", window, passed[window], refused[window])
			}
		}
	})
}

// A refusal takes no permit, and asks no store.
func TestRefusalsTakeNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &counted{Storage: new(memory.Store)}
		x := planeOn(t, s, limited(2))
		x.do("GET", "/v1/runs", readerSecret, nil).is(200)
		x.do("GET", "/v1/runs", readerSecret, nil).is(200)
		x.do("GET", "/v1/runs", readerSecret, nil).is(429)
		time.Sleep(time.Second) // until the audit is written
		commits := s.commits.Load()
		for range 100 {
			x.do("GET", "/v1/runs", readerSecret, nil).is(429)
		}
		if n := s.commits.Load() - commits; n != 0 {
			t.Errorf("100 refusals were %d commits, want 0", n)
		}
	})
}

// A counted store counts commits.
type counted struct {
	storage.Storage
	commits atomic.Int64
}

func (c *counted) Unwrap() storage.Storage { return c.Storage }

func (c *counted) Commit(ctx context.Context, b storage.Batch) error {
	c.commits.Add(1)
	return c.Storage.Commit(ctx, b)
}

// A request of a token that nobody knows is refused after ten in a second, before the store is asked. Tokens
// that were accepted before are not concerned.
func TestUnknownTokens(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := planeOn(t, new(memory.Store))
		x.do("GET", "/v1/runs", readerSecret, nil).is(200)
		for i := range 10 {
			x.do("GET", "/v1/runs", fmt.Sprint("unknown-", i), nil).is(401)
		}
		x.do("GET", "/v1/runs", "unknown-10", nil).fails(429, "rate_limited")
		x.do("GET", "/v1/runs", adminSecret, nil).fails(429, "rate_limited") // not accepted yet
		x.do("GET", "/v1/runs", readerSecret, nil).is(200)
		time.Sleep(time.Second)
		x.do("GET", "/v1/runs", adminSecret, nil).is(200)
		for range 20 {
			x.do("GET", "/v1/runs", adminSecret, nil).is(200)
		}
		time.Sleep(20 * time.Second)
		rows := x.do("GET", "/v1/audit?result=failure", adminSecret, nil).data()
		if len(rows) != 2 { // of 401 and of 429
			t.Errorf("got %d rows, want 2: %v", len(rows), rows)
		}
		for _, row := range rows {
			if c := row["metadata"].(map[string]any)["count"]; !strings.Contains("10 2", fmt.Sprint(c)) {
				t.Errorf("got %v", row)
			}
		}
	})
}

// HTTP-7: the token of a key that was revoked is unknown. So it is one of a stranger, of whom ten are let pass in a second,
// also if it was accepted before.
func TestARevokedTokenIsUnknown(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := planeOn(t, new(memory.Store))
		x.do("GET", "/v1/runs", readerSecret, nil).is(200)
		x.do("DELETE", "/v1/keys/reader", adminSecret, nil).is(204)
		for range 11 {
			x.do("GET", "/v1/runs", readerSecret, nil).is(401)
		}
		x.do("GET", "/v1/runs", readerSecret, nil).fails(429, "rate_limited")
		x.do("GET", "/v1/runs", adminSecret, nil).is(200)
	})
}

// A client that invents X-Forwarded-For gets no new allowance of unknown tokens: the address of its connection counts, and of
// what it sends through a trusted proxy the element that the proxy has written. Clients behind the proxy each have their own.
func TestForgedProxiesGetNoNewAllowance(t *testing.T) {
	virtual(t, func(t *testing.T) {
		send := func(x *site, forwarded string) int {
			return x.do("GET", "/v1/runs", "unknown", nil, "X-Forwarded-For", forwarded).status
		}
		direct := planeOn(t, new(memory.Store))
		for i := range 12 {
			if got := send(direct, fmt.Sprint("203.0.113.", i)); i < 10 && got != 401 || i >= 10 && got != 429 {
				t.Errorf("request %d, without a proxy: got %d", i, got)
			}
		}
		proxied := planeOn(t, new(memory.Store), func(c *control.Config) {
			c.Proxies = control.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Hops: 1}
		})
		for i := range 12 { // what stands before the element of the proxy is the client's word
			if got := send(proxied, fmt.Sprintf("203.0.113.%d, 198.51.100.7", i)); i < 10 && got != 401 || i >= 10 && got != 429 {
				t.Errorf("request %d by the proxy: got %d", i, got)
			}
		}
		if got := send(proxied, "198.51.100.8"); got != 401 {
			t.Errorf("another client of the proxy: got %d, want 401", got)
		}
	})
}
