package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/internal/pgtest"
)

func TestMain(m *testing.M) { leaks.Main(pgtest.Tests{M: m}) }

const secret = "weft_sk_a-secret-that-nobody-may-see"

// A roundTrip is a transport without a network. It answers by a function, so that a test may be in
// virtual time.
type roundTrip func(*http.Request) (*http.Response, error)

func (w roundTrip) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Body != nil {
		data, err := io.ReadAll(q.Body)
		if err != nil {
			return nil, err
		}
		q.Body.Close()
		q.Body = io.NopCloser(bytes.NewReader(data))
	}
	a, err := w(q)
	if a != nil {
		a.Request = q
	}
	return a, err
}

// answer is an answer of a control plane.
func answer(status int, body string, header ...string) *http.Response {
	h := http.Header{"Content-Type": {"application/json"}, correlationHeader: {"c-0"}}
	if status >= 300 {
		h.Set("Content-Type", "application/problem+json")
	}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

// gateway is an answer of what is in front of a control plane, which answers as one as far as the body.
func gateway(status int, body string) *http.Response {
	a := answer(status, body)
	a.Header.Del(correlationHeader)
	return a
}

func over(t *testing.T, w roundTrip) *Client {
	t.Helper()
	c, err := New("https://shop.internal/weft/", secret, &Options{Transport: w})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func writing() *request {
	return &request{what: "start workflow \"order\"", method: "POST", path: "/v1/runs", body: map[string]any{"a": 1}, keyed: true, writes: true}
}

// All attempts of a call are the same request: key, body, path. Another call has another key.
func TestAttemptsShareTheirKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		c := over(t, func(q *http.Request) (*http.Response, error) {
			body, _ := io.ReadAll(q.Body)
			seen = append(seen, fmt.Sprintf("%s %s %s %s %s", q.Method, q.URL, q.Header.Get("Idempotency-Key"), q.Header.Get("Authorization"), body))
			if len(seen)%3 != 0 {
				return nil, io.ErrUnexpectedEOF
			}
			return answer(201, `{"runId":"r"}`), nil
		})
		var out struct{ RunID string }
		for range 2 {
			if a, err := c.call(t.Context(), writing(), &out); err != nil || a.status != 201 || out.RunID != "r" {
				t.Fatal(a, out, err)
			}
		}
		if len(seen) != 6 || seen[0] != seen[1] || seen[1] != seen[2] || seen[3] != seen[5] || seen[0] == seen[3] {
			t.Errorf("the requests were %q", seen)
		}
		if !strings.HasPrefix(seen[0], "POST https://shop.internal/weft/v1/runs ") || !strings.HasSuffix(seen[0], " Bearer "+secret+` {"a":1}`) {
			t.Errorf("the request was %q", seen[0])
		}
	})
}

// A caller may give the key, and only such a one as a header can have.
func TestAKeyOfTheCaller(t *testing.T) {
	sent := ""
	c := over(t, func(q *http.Request) (*http.Response, error) {
		sent = q.Header.Get("Idempotency-Key")
		return answer(200, `{}`), nil
	})
	for key, want := range map[string]string{"order-42": "order-42", `a,"b\`: `"a,\"b\\"`, strings.Repeat("k", 255): strings.Repeat("k", 255)} {
		if _, err := c.call(WithIdempotencyKey(t.Context(), key), writing(), nil); err != nil || sent != want {
			t.Errorf("%q was sent as %q, %v; want %q", key, sent, err, want)
		}
	}
	for _, key := range []string{"", "a b", "a\r\nX: y", "é", strings.Repeat("k", 256)} {
		sent = "nothing"
		if _, err := c.call(WithIdempotencyKey(t.Context(), key), writing(), nil); !errors.Is(err, weft.ErrInvalid) || sent != "nothing" {
			t.Errorf("%q: %v, and sent was %q", key, err, sent)
		}
	}
	read := writing()
	read.keyed = false
	if _, err := c.call(WithIdempotencyKey(t.Context(), "k"), read, nil); err != nil || sent != "" {
		t.Errorf("a call without a key has sent %q, %v", sent, err)
	}
}

// After five retries the call ends with the last answer.
func TestAttemptsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c := over(t, func(*http.Request) (*http.Response, error) {
			n++
			return answer(503, `{"code":"store_unavailable","message":"The store is down.","retry":"same-key"}`, "Retry-After", "2", "X-Workflow-Correlation-Id", "c-1"), nil
		})
		began := time.Now()
		_, err := c.call(t.Context(), writing(), nil)
		e, ok := errors.AsType[*Error](err)
		if !ok || n != 6 || e.Status != 503 || e.Code != "store_unavailable" || e.CorrelationID != "c-1" || e.RetryAfter != 2*time.Second || e.Retry != "same-key" || e.Unknown {
			t.Errorf("after %d attempts: %+v", n, err)
		}
		if want := `client: start workflow "order": 503 store_unavailable: The store is down. (c-1)`; err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
		if took := time.Since(began); took < 10*time.Second {
			t.Errorf("it took %v, and the answers have asked for 10 s", took)
		}
	})
}

// An attempt without an answer ends after 10 s, and later if the server is asked to wait.
func TestAttemptsTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, wait := range []time.Duration{0, 30 * time.Second} {
			n := 0
			c := over(t, func(q *http.Request) (*http.Response, error) {
				n++
				began := time.Now()
				<-q.Context().Done()
				if took := time.Since(began); took != 10*time.Second+wait {
					t.Errorf("an attempt took %v", took)
				}
				return nil, q.Context().Err()
			})
			r := writing()
			r.wait = wait
			_, err := c.call(t.Context(), r, nil)
			e, ok := errors.AsType[*Error](err)
			if !ok || n != 6 || e.Status != 0 || e.Code != CodeNoAnswer || !e.Unknown || !strings.Contains(err.Error(), "https://shop.internal/weft has not answered within 10s, outcome unknown") {
				t.Errorf("after %d attempts: %v", n, err)
			}
		}
	})
}

// If the context ends, the error says whether the call may have taken effect. A pause that the
// deadline would cut off is not begun.
func TestContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := func(q *http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }
		late := func(q *http.Request) (*http.Response, error) { <-q.Context().Done(); return nil, q.Context().Err() }
		busy := func(*http.Request) (*http.Response, error) {
			return answer(429, `{"code":"rate_limited","message":"Rate limit exceeded"}`, "Retry-After", "60"), nil
		}
		for _, c := range []struct {
			name    string
			w       roundTrip
			writes  bool
			unknown bool
			took    time.Duration // at most
		}{
			{"lost", lost, true, true, 5 * time.Second},
			{"late", late, true, true, 5 * time.Second},
			{"late, a read", late, false, false, 5 * time.Second},
			{"too many", busy, true, false, 0},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			r := writing()
			r.writes = c.writes
			client, began := over(t, c.w), time.Now()
			client.random = func(below time.Duration) time.Duration { return below }
			_, err := client.call(ctx, r, nil)
			cancel()
			e, ok := errors.AsType[*weft.InterruptedError](err)
			if !ok || e.Unknown != c.unknown || e.ReadOnly == c.writes || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > c.took {
				t.Errorf("%s: after %v: %v", c.name, time.Since(began), err)
			}
			if last, ok := errors.AsType[*Error](err); ok == (c.name[:3] == "lat") || ok && !strings.Contains(err.Error(), "after "+last.answer()) {
				t.Errorf("%s: the last answer is in the error: %v: %v", c.name, ok, err)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("the shop closes")
		cancel(why)
		if _, err := over(t, late).call(ctx, writing(), nil); !errors.Is(err, why) || !errors.Is(err, context.Canceled) {
			t.Errorf("its cause is missing: %v", err)
		}
	})
}

// A repetition that finds nothing to remove has removed it before.
func TestRemovedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, firstLost := range []bool{true, false} {
			n := 0
			c := over(t, func(*http.Request) (*http.Response, error) {
				if n++; n == 1 && firstLost {
					return nil, io.ErrUnexpectedEOF
				}
				return answer(404, `{"code":"not_found","message":"Run \"r\" not found"}`), nil
			})
			r := &request{what: "purge", method: "DELETE", path: "/v1/runs/r", writes: true, goneIsDone: true}
			if _, err := c.call(t.Context(), r, nil); (err == nil) != firstLost || err != nil && !errors.Is(err, weft.ErrNotFound) {
				t.Errorf("the first answer is lost: %v: %v", firstLost, err)
			}
		}
	})
}

// What is in front of a control plane and finds nothing says nothing about what an attempt before has removed, and
// neither does a control plane at another path. Nothing says so of the revocation of a key, which can be repeated.
func TestNothingSaysThatItIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const noPath, noRun = `{"code":"not_found","message":"Path not found"}`, `{"code":"not_found","message":"Run \"r\" not found"}`
		purge := func(c *Client) error { return c.Purge(t.Context(), "r", weft.Actor{}) }
		revoke := func(c *Client) error { return c.RevokeKey(t.Context(), "k", "", "") }
		for _, c := range []struct {
			name    string
			second  *http.Response
			do      func(*Client) error
			unknown bool
		}{
			{"purge, a proxy", gateway(404, `<html>`), purge, true},
			{"purge, a gateway", gateway(404, noRun), purge, true},
			{"purge, another path", answer(404, noPath), purge, true},
			{"revoke, a proxy", gateway(404, `<html>`), revoke, true},
			{"revoke", answer(404, `{"code":"not_found","message":"Key not found"}`), revoke, false},
		} {
			n := 0
			err := c.do(over(t, func(*http.Request) (*http.Response, error) {
				if n++; n == 1 {
					return gateway(502, `{}`), nil
				}
				return c.second, nil
			}))
			if e, ok := errors.AsType[*Error](err); !ok || e.Status != 404 || e.Unknown != c.unknown {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	})
}

// Only a control plane says what became of a call: a problem with the header that each of its answers has. A gateway may
// answer JSON with a code, too.
func TestAProblemOfAnybodyIsNone(t *testing.T) {
	const body = `{"code":"busy","message":"m","retry":"never"}`
	plain := answer(503, body, "Content-Type", "application/json")
	for _, c := range []struct {
		name string
		a    *http.Response
		ok   bool
	}{
		{"a problem", answer(503, body), true},
		{"a problem, and its charset", answer(503, body, "Content-Type", "application/problem+json; charset=utf-8"), true},
		{"a problem without the header", gateway(503, body), false},
		{"JSON that is no problem", plain, false},
		{"a problem without a code", answer(503, `{"message":"m"}`), false},
		{"no JSON", answer(503, `{`), false},
	} {
		r, err := readReply(c.a)
		if err != nil {
			t.Fatal(err)
		}
		o, failed := outcomeOf(writing(), r)
		if o.ofPlane() != c.ok || o.leaves(false) == c.ok || c.ok != (failed.Retry == "never") || c.ok != (failed.Message == "m") {
			t.Errorf("%s: %+v, %v", c.name, o, failed)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		key := func(c *Client) error { _, err := c.RotateKey(t.Context(), "k", wire.RotateKey{}); return err }
		start := func(c *Client) error {
			_, err := c.StartWorkflow(t.Context(), &weft.StartRequest{Workflow: "w", ID: "o"})
			return err
		}
		for _, c := range []struct {
			name     string
			answers  []*http.Response // nil: the answer is lost
			do       func(*Client) error
			attempts int
			unknown  bool
		}{
			{"503 of a gateway", []*http.Response{gateway(503, `{"code":"busy"}`)}, key, 1, true},
			{"lost, 409 of a gateway", []*http.Response{nil, gateway(409, `{"code":"run_exists"}`)}, start, 2, true},
			{"lost, 409", []*http.Response{nil, answer(409, `{"code":"run_exists"}`)}, start, 2, false},
			{"lost, another path", []*http.Response{nil, answer(404, `{"code":"not_found","message":"Path not found"}`)}, start, 2, true},
		} {
			n := 0
			err := c.do(over(t, func(*http.Request) (*http.Response, error) {
				if n++; n > len(c.answers) || c.answers[n-1] == nil {
					return nil, io.ErrUnexpectedEOF
				}
				return c.answers[n-1], nil
			}))
			if e, ok := errors.AsType[*Error](err); !ok || n != c.attempts || e.Unknown != c.unknown {
				t.Errorf("%s: after %d attempts: %v", c.name, n, err)
			}
		}
	})
}

// Redirects are not followed: the key is for one server.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var followed atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Store(true) }))
	defer other.Close()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/?token="+secret, http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	c, err := New(s.URL, secret, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.call(t.Context(), writing(), nil)
	if e, ok := errors.AsType[*Error](err); !ok || e.Status != 307 || followed.Load() || !strings.Contains(err.Error(), "redirects to 127.0.0.1") || strings.Contains(err.Error(), secret) {
		t.Errorf("followed: %v; %v", followed.Load(), err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// An answer has at most 32 MiB.
func TestLargeAnswers(t *testing.T) {
	n := 0
	c := over(t, func(*http.Request) (*http.Response, error) {
		n++
		a := answer(200, "")
		a.Body = io.NopCloser(endless{})
		return a, nil
	})
	_, err := c.call(t.Context(), writing(), nil)
	if e, ok := errors.AsType[*Error](err); !ok || !errors.Is(err, errTooLarge) || n != 1 || !e.Unknown {
		t.Errorf("after %d attempts: %v", n, err)
	}
}

// Only an answer of a control plane is a success: one without content, or JSON. What else has a status of success, such as the page of a
// proxy, says nothing about a call that writes.
func TestASuccessOfAnybodyIsNone(t *testing.T) {
	for _, c := range []struct {
		status     int
		kind, body string
		ok         bool
	}{
		{204, "", "", true},
		{200, "application/json", "{}", true},
		{202, "application/json; charset=utf-8", "{}", true},
		{200, "text/html", "<html>", false},
		{200, "text/html", "{}", false},
		{202, "", "{}", false},
		{201, "application/json", "", false},
		{200, "", "", false},
	} {
		for _, writes := range []bool{true, false} {
			for _, out := range []any{nil, &struct{}{}} {
				n := 0
				client := over(t, func(*http.Request) (*http.Response, error) {
					n++
					return answer(c.status, c.body, "Content-Type", c.kind), nil
				})
				r := writing()
				r.writes = writes
				_, err := client.call(t.Context(), r, out)
				e, failed := errors.AsType[*Error](err)
				if n != 1 || failed == c.ok || failed && (e.Status != c.status || e.Code != CodeBadAnswer || e.Unknown != writes || e.Retry != "never" || e.Body != nil) {
					t.Errorf("%d %q %q, writes %v, %d attempts: %#v", c.status, c.kind, c.body, writes, n, err)
				}
			}
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// The secret is in no error, and in nothing that prints a client.
func TestTheSecretIsNotPrinted(t *testing.T) {
	var printed strings.Builder
	synctest.Test(t, func(t *testing.T) {
		for _, w := range []roundTrip{
			func(*http.Request) (*http.Response, error) { return nil, io.EOF },
			func(*http.Request) (*http.Response, error) { return answer(401, `{"code":"unauthorized"}`), nil },
			func(*http.Request) (*http.Response, error) {
				return answer(502, "<html>", "Content-Type", "text/html"), nil
			},
			func(*http.Request) (*http.Response, error) { return answer(200, `{`), nil },
		} {
			c := over(t, w)
			_, err := c.call(t.Context(), writing(), &struct{}{})
			if err == nil {
				t.Error("no error")
			}
			fmt.Fprintf(&printed, "%v %+v %#v %+v %#v %v", err, err, err, c, c, *c)
			slog.New(slog.NewTextHandler(&printed, nil)).Info("a call", "client", c, "err", err)
			slog.New(slog.NewJSONHandler(&printed, nil)).Info("a call", "client", c, "err", err)
		}
		for _, bad := range []string{secret + "\n", secret + "é", secret + " x"} {
			_, err := New("https://shop.internal", bad, nil)
			fmt.Fprint(&printed, err)
		}
		for _, bad := range []string{"https://" + secret + "@shop.internal", "https://shop.internal?key=" + secret, secret, "https://shop\x00" + secret} {
			_, err := New(bad, secret, nil)
			fmt.Fprint(&printed, err)
		}
	})
	if strings.Contains(printed.String(), secret) {
		t.Error(printed.String())
	}
}

// New refuses an address over which the key would be read by others, and a key that is none.
func TestNew(t *testing.T) {
	for _, c := range []struct {
		address, key string
		plain, ok    bool
	}{
		{"https://shop.internal", "k", false, true},
		{"https://shop.internal:8443/weft/", "k", false, true},
		{"http://localhost:8080", "k", false, true},
		{"http://127.0.0.1:8080", "k", false, true},
		{"http://[::1]:8080", "k", false, true},
		{"http://shop.internal", "k", false, false},
		{"http://localhost.shop.internal", "k", false, false},
		{"http://shop.internal", "k", true, true},
		{"ftp://shop.internal", "k", false, false},
		{"shop.internal", "k", false, false},
		{"https://", "k", false, false},
		{"https://ann@shop.internal", "k", false, false},
		{"https://shop.internal?a=b", "k", false, false},
		{"https://shop.internal#a", "k", false, false},
		{"https://shop.internal", "", false, false},
		{"https://shop.internal", "a b", false, false},
		{"https://shop.internal", "a\r\nb", false, false},
	} {
		made, err := New(c.address, c.key, &Options{PlainHTTP: c.plain})
		if (err == nil) != c.ok || err != nil && !errors.Is(err, weft.ErrInvalid) || c.ok && made.Address() != strings.TrimSuffix(c.address, "/") {
			t.Errorf("%q, %q, plain %v: %v", c.address, c.key, c.plain, err)
		}
	}
}
