package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft"
)

// streamed answers server-sent events. Then the connection is as after says: io.EOF, or another error; nil: silent.
func streamed(ctx context.Context, text string, after error) *http.Response {
	a := answer(200, "", "Content-Type", "text/event-stream")
	a.Body = io.NopCloser(io.MultiReader(strings.NewReader(text), readFunc(func([]byte) (int, error) {
		if after == nil {
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return 0, after
	})))
	return a
}

// endlessEvent returns what reads one event, of lines of 1 MiB, without an end. It ends after twice of what an event may have.
func endlessEvent() readFunc {
	line := []byte("data: " + strings.Repeat("x", 1<<20) + "\n")
	rest, left := []byte(nil), 2*mostBody
	return func(p []byte) (int, error) {
		if len(rest) == 0 {
			rest = line
		}
		n := copy(p, rest)
		if rest, left = rest[n:], left-n; left <= 0 {
			return n, errors.New("more is read than an event may have")
		}
		return n, nil
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// event is an event as a control plane streams it.
func event(id string) string { return fmt.Sprintf("id: %s\ndata: {\"eventId\":%q}\n\n", id, id) }

// collect follows the run o behind an event, and returns the ids of the events and the error.
func collect(ctx context.Context, c *Client, after string) (ids []string, err error) {
	for e, failed := range c.Follow(ctx, "o", after) {
		if failed != nil {
			return ids, failed
		}
		ids = append(ids, e.EventID)
	}
	return ids, nil
}

// Follow goes on behind the last event after all that may happen to a connection, and ends with the run.
func TestFollowGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		began := time.Now()
		var at []time.Duration
		c := over(t, func(q *http.Request) (*http.Response, error) {
			asked, at = append(asked, q.Header.Get("Last-Event-ID")), append(at, time.Since(began))
			if got := q.Method + " " + q.URL.RequestURI() + " " + q.Header.Get("Accept") + " " + q.Header.Get("Authorization"); got != "GET /weft/v1/runs/o/events text/event-stream, application/problem+json Bearer "+secret {
				t.Errorf("the request was %s", got)
			}
			switch len(asked) {
			case 1:
				return streamed(q.Context(), ": \n\n"+event("B")+"id: C\ndata: {\"even", io.ErrUnexpectedEOF), nil
			case 2: // after the connection broke within an event
				return nil, io.ErrUnexpectedEOF
			case 3:
				return answer(503, `{"code":"closing","message":"m","retry":"same-key"}`, "Retry-After", "3"), nil
			case 4: // silent for ever
				return streamed(q.Context(), event("C"), nil), nil
			case 5, 6: // a plane that closes
				return streamed(q.Context(), ": \n\n", io.EOF), nil
			case 7:
				return streamed(q.Context(), "event: later\ndata: {}\n\n"+": \n\n"+event("D")+"event: end\ndata: {}\n\n"+event("E"), nil), nil
			}
			return nil, errors.New("too many requests")
		})
		c.random = func(time.Duration) time.Duration { return 0 }
		ids, err := collect(t.Context(), c, "A")
		if err != nil || !slices.Equal(ids, []string{"B", "C", "D"}) {
			t.Errorf("got %q, %v", ids, err)
		}
		if want := []string{"A", "B", "B", "B", "C", "C", "C"}; !slices.Equal(asked, want) {
			t.Errorf("it was asked for what follows %q, want %q", asked, want)
		}
		s := time.Second
		if want := []time.Duration{0, 0, 0, 3 * s, 48 * s, 49 * s, 50 * s}; !slices.Equal(at, want) {
			t.Errorf("it connected after %v, want %v", at, want)
		}
	})
}

// Errors of Follow, and the end of a run of which nothing is left.
func TestFollowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		var next func(q *http.Request) (*http.Response, error)
		c := over(t, func(q *http.Request) (*http.Response, error) {
			if n++; n > 100 {
				return nil, errors.New("too many requests")
			}
			return next(q)
		})
		for _, x := range []struct {
			what     string
			next     func(q *http.Request) (*http.Response, error)
			requests int
			is       error
			code     string
		}{
			{"nothing is left", func(*http.Request) (*http.Response, error) { return answer(204, ""), nil }, 1, nil, ""},
			{"no such run", func(*http.Request) (*http.Response, error) { return answer(404, `{"code":"not_found"}`), nil }, 1, weft.ErrNotFound, "not_found"},
			{"no such event", func(*http.Request) (*http.Response, error) { return answer(400, `{"code":"invalid_request"}`), nil }, 1, weft.ErrInvalid, "invalid_request"},
			{"no stream", func(*http.Request) (*http.Response, error) { return answer(200, `<html>`), nil }, 1, nil, CodeBadAnswer},
			{"an event without an end", func(q *http.Request) (*http.Response, error) {
				a := streamed(q.Context(), "", nil)
				a.Body = io.NopCloser(endlessEvent())
				return a, nil
			}, 1, errTooLarge, CodeBadAnswer},
			{"no event", func(q *http.Request) (*http.Response, error) { return streamed(q.Context(), "data: x\n\n", nil), nil }, 1, nil, CodeBadAnswer},
			{"no answer", func(q *http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }, 6, nil, CodeNoAnswer},
			{"an answer that hangs", func(q *http.Request) (*http.Response, error) { <-q.Context().Done(); return nil, q.Context().Err() }, 6, nil, CodeNoAnswer},
		} {
			n, next = 0, x.next
			ids, err := collect(t.Context(), c, "")
			e, _ := errors.AsType[*Error](err)
			if x.code == "" && err != nil || x.code != "" && (e == nil || e.Code != x.code) || x.is != nil && !errors.Is(err, x.is) || len(ids) > 0 || n != x.requests {
				t.Errorf("%s: got %q, %v after %d requests", x.what, ids, err, n)
			}
		}
		for _, bad := range []string{"a b", "a\r\nX: y", "é"} {
			n = 0
			if _, err := collect(t.Context(), c, bad); !errors.Is(err, weft.ErrInvalid) || n > 0 {
				t.Errorf("behind %q: %v", bad, err)
			}
		}
		next = func(q *http.Request) (*http.Response, error) {
			return streamed(q.Context(), event("A")+event("B"), nil), nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ids, err := collect(ctx, c, "")
		if i, ok := errors.AsType[*weft.InterruptedError](err); !ok || !i.ReadOnly || !errors.Is(err, context.DeadlineExceeded) || len(ids) < 2 {
			t.Errorf("after the context has ended: %q, %v", ids, err)
		}
		n = 0
		for e, err := range c.Follow(t.Context(), "o", "") {
			if err != nil || e.EventID != "A" {
				t.Errorf("got %+v, %v", e, err)
			}
			break // the stream is not read on
		}
		if n != 1 {
			t.Errorf("there were %d requests, want 1", n)
		}
	})
}

// ReadStream goes on behind the last chunk. Counted from the end, it goes on where the first answer has said that it
// begins, also if no chunk has come.
func TestReadStreamGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chunk := func(n int) string {
			return fmt.Sprintf("id: %d\ndata: {\"index\":%d,\"chunkId\":\"c\",\"data\":\"word\"}\n\n", n, n)
		}
		for _, x := range []struct {
			at      int64
			answers []string
			asked   []string // the query, and Last-Event-ID
			want    []int64
		}{
			{0, []string{": \n\n", chunk(0) + "id: 1\ndata: {", chunk(1), "event: end\ndata: {}\n\n"}, []string{" ", " ", " 0", " 1"}, []int64{0, 1}},
			{7, []string{": \n\n", chunk(7) + "event: end\ndata: {}\n\n"}, []string{" 6", " 6"}, []int64{7}},
			{-2, []string{": \n\nid: 3\n\n", chunk(4), chunk(5) + "event: end\ndata: {}\n\n"}, []string{"at=-2 ", "at=-2 3", "at=-2 4"}, []int64{4, 5}},
			{-1, []string{": \n\nid: -1\n\n", "event: end\ndata: {}\n\n"}, []string{"at=-1 ", "at=-1 -1"}, nil},
		} {
			var asked []string
			c := over(t, func(q *http.Request) (*http.Response, error) {
				if q.URL.EscapedPath() != "/weft/v1/runs/o/streams/a%2Fb" || len(asked) == len(x.answers) {
					return nil, errors.New("another request")
				}
				asked = append(asked, q.URL.RawQuery+" "+q.Header.Get("Last-Event-ID"))
				return streamed(q.Context(), x.answers[len(asked)-1], io.EOF), nil
			})
			c.random = func(time.Duration) time.Duration { return 0 }
			var got []int64
			for b, err := range c.ReadStream(t.Context(), "o", "a/b", x.at) {
				var word string
				if err == nil {
					err = c.DecodeChunk(t.Context(), b, &word)
				}
				if err != nil || word != "word" {
					t.Fatalf("from %d: %q, %v", x.at, word, err)
				}
				got = append(got, b.Index)
			}
			if !slices.Equal(got, x.want) || !slices.Equal(asked, x.asked) {
				t.Errorf("from %d: got %d of %d, asked %q of %q", x.at, got, x.want, asked, x.asked)
			}
		}
		c := over(t, func(*http.Request) (*http.Response, error) { return answer(404, `{"code":"not_found"}`), nil })
		for _, err := range c.ReadStream(t.Context(), "o", "s", 0) {
			if !errors.Is(err, weft.ErrNotFound) {
				t.Errorf("got %v", err)
			}
		}
	})
}
