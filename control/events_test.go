package control

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/internal/runs"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/answers"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A received is one server-sent event, or a comment.
type received struct{ id, event, data string }

// follow follows the events of a run until the end of the test.
func (s *site) follow(key, runID, last string) (*http.Response, <-chan received) {
	s.t.Helper()
	return s.receive(key, at(runID, "events"), last)
}

// receive opens a stream of server-sent events, which ends with the test.
func (s *site) receive(key, path, last string) (*http.Response, <-chan received) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	events := make(chan received, 1000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(events)
		defer resp.Body.Close()
		var e received
		lines := bufio.NewScanner(resp.Body)
		for lines.Buffer(nil, 16<<20); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "id":
				e.id = value
			case "event":
				e.event = value
			case "data":
				e.data = value
			case "":
				if e != (received{}) {
					events <- e
				}
				e = received{}
			}
		}
	}()
	s.t.Cleanup(func() { cancel(); <-done })
	return resp, events
}

// next returns the next event, or fails.
func next(t *testing.T, events <-chan received) received {
	t.Helper()
	select {
	case e, ok := <-events:
		if !ok {
			t.Fatal("the stream has ended")
		}
		return e
	case <-time.After(time.Minute):
		t.Fatal("no event")
	}
	return received{}
}

func kindOfEvent(t *testing.T, e received) string {
	t.Helper()
	var b struct{ EventID, Kind string }
	if err := json.Unmarshal([]byte(e.data), &b); err != nil || b.EventID != e.id {
		t.Fatalf("got %+v, %v", e, err)
	}
	return b.Kind
}

// SSE: the history, then what happens, then the end. Last-Event-ID continues behind an event; at the
// end there is nothing left, and 204 stops an EventSource.
func TestFollowEvents(t *testing.T) {
	EachStore(t, func(t *testing.T, store storage.Storage) {
		s := open(t, store)
		s.start(acme, "wait", "w", nil)
		s.awaitStatus(acme, "w", checkpoint.StatusRunning)
		resp, events := s.follow(acme, "w", "")
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("got %d %v", resp.StatusCode, resp.Header)
		}
		first := next(t, events)
		if kind := kindOfEvent(t, first); kind != "claimed" {
			t.Errorf("the first is %s", kind)
		}
		s.call(acme, "POST", at("w", "signals", "go"), `{"payload":1}`).is(t, 200, "")
		all := []received{first}
		for {
			e := next(t, events)
			if e.event == "end" {
				break
			}
			all = append(all, e)
		}
		if _, more := <-events; more {
			t.Error("the stream goes on after the end")
		}
		page := s.call(acme, "GET", at("w", "events")+"?sortOrder=asc", nil).data()
		if len(page) != len(all) {
			t.Fatalf("%d events were sent, and the page has %d", len(all), len(page))
		}
		for i, e := range all {
			if page[i]["eventId"] != e.id {
				t.Errorf("event %d is %s, in the page %v", i, e.id, page[i]["eventId"])
			}
		}
		for i, e := range all[:len(all)-1] {
			_, rest := s.follow(acme, "w", e.id)
			for _, want := range all[i+1:] {
				if got := next(t, rest); got != want {
					t.Fatalf("behind %d: got %v, want %v", i, got, want)
				}
			}
			if got := next(t, rest); got.event != "end" {
				t.Errorf("got %v, want the end", got)
			}
		}
		r := s.call(acme, "GET", at("w", "events"), nil, "Accept", "text/event-stream", "Last-Event-ID", all[len(all)-1].id).is(t, 204, "")
		if len(r.raw) != 0 {
			t.Errorf("got %s", r.raw)
		}
		s.call(acme, "GET", at("w", "events"), nil, "Accept", "text/event-stream", "Last-Event-ID", "x").is(t, 400, "invalid_request")
		s.call(other, "GET", at("w", "events"), nil, "Accept", "text/event-stream").is(t, 404, "not_found")
	})
}

// After a purge, the runId may be of another run. Its events are all new to a client that continues.
func TestFollowAnotherLife(t *testing.T) {
	s := open(t, nil)
	last := ""
	for life := range 2 {
		s.start(acme, "wait", "w", nil)
		s.awaitStatus(acme, "w", checkpoint.StatusRunning)
		s.call(acme, "POST", at("w", "signals", "go"), `{"payload":1}`).is(t, 200, "")
		s.awaitStatus(acme, "w", checkpoint.StatusCompleted)
		page := s.call(acme, "GET", at("w", "events")+"?sortOrder=asc", nil).data()
		if life == 0 {
			last = fmt.Sprint(page[len(page)-1]["eventId"])
			s.call(acme, "DELETE", at("w"), nil).is(t, 204, "")
			continue
		}
		// The checkpoints of the two lives may have the same numbers. Then their times tell them apart.
		alike := strings.Repeat("0", 10) + fmt.Sprint(page[len(page)-2]["eventId"])[10:] // a ULID begins with its time
		for _, id := range []string{last, alike} {
			_, events := s.follow(acme, "w", id)
			for i, want := range page {
				if got := next(t, events); got.id != want["eventId"] {
					t.Fatalf("behind %s, event %d is %v, want %v", id, i, got, want["eventId"])
				}
			}
		}
	}
}

// So it is with pages: if the event of a cursor is not there any more, nothing of the history counts as passed over. A cursor
// of a release that wrote no ID is a place.
func TestPagesOfAnotherLife(t *testing.T) {
	s := open(t, nil)
	s.start(acme, "wait", "w", nil)
	s.awaitStatus(acme, "w", checkpoint.StatusRunning)
	s.call(acme, "POST", at("w", "signals", "go"), `{"payload":1}`).is(t, 200, "")
	s.awaitStatus(acme, "w", checkpoint.StatusCompleted)
	all := s.call(acme, "GET", at("w", "events")+"?sortOrder=asc", nil).data()
	id := fmt.Sprint(all[0]["eventId"])
	place, ok := journal.EventPlace(id)
	if !ok {
		t.Fatalf("no place in %s", id)
	}
	alike := strings.Repeat("0", 10) + id[10:] // of the same number, at another time: a ULID begins with its time
	for _, c := range []struct {
		of    string
		order string
		id    string
		want  int
	}{
		{"this run", "asc", id, len(all) - 1},
		{"another history", "asc", alike, len(all)},
		{"another history", "desc", alike, 0},
		{"an earlier release", "asc", "", len(all) - 1},
	} {
		type cursor struct {
			Checkpoint uint64 `cbor:"1,keyasint"`
			Position   int    `cbor:"2,keyasint"`
			ID         string `cbor:"3,keyasint,omitempty"`
		}
		sealed, err := operation.SealCursor(fmt.Sprintf("events:%s:%v", "@acme/prod/w", c.order == "asc"), &cursor{place.Checkpoint, place.Event, c.id})
		if err != nil {
			t.Fatal(err)
		}
		got := s.call(acme, "GET", at("w", "events")+"?sortOrder="+c.order+"&cursor="+sealed, nil).is(t, 200, "").data()
		if len(got) != c.want {
			t.Errorf("behind a cursor of %s, %s: %d of %d events, want %d", c.of, c.order, len(got), len(all), c.want)
		}
	}
}

// A stream ends when the plane closes. The client is not told that the run has ended: it connects again.
func TestStreamsEnd(t *testing.T) {
	s := open(t, nil)
	s.start(home, "wait", "w", nil)
	s.awaitStatus(home, "w", checkpoint.StatusRunning)
	_, events := s.follow(home, "w", "")
	next(t, events)
	s.plane.Close()
	for e := range events { // its end
		if e.event == "end" {
			t.Error("the plane closes, and the client was told that the run has ended")
		}
	}
	if n := s.plane.runs.Streams.Count(); n != 0 {
		t.Errorf("%d streams are counted", n)
	}
}

// A key has 8 streams at most. The ninth is refused until one of them ends.
func TestStreamsOfAKey(t *testing.T) {
	s := open(t, nil)
	s.start(home, "wait", "w", nil)
	s.start(acme, "wait", "w", nil)
	for range runs.MostKeyStreams {
		_, events := s.follow(home, "w", "")
		next(t, events)
	}
	r := s.call(home, "GET", at("w", "events"), nil, "Accept", "text/event-stream").is(t, 429, "rate_limited")
	if r.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	_, events := s.follow(acme, "w", "")
	next(t, events)
}

// A recorder of a stream in virtual time.
type recorder struct {
	header http.Header
	chunks chan string
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) WriteHeader(int)     {}
func (r *recorder) Write(p []byte) (int, error) {
	r.chunks <- string(p)
	return len(p), nil
}
func (r *recorder) Flush()                           {}
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }
func (r *recorder) SetReadDeadline(time.Time) error  { return nil }

// A long poll whose key is revoked ends within 10 s, as one with an unknown key.
func TestAPollEndsWithItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := boot(t, new(memory.Store))
		defer p.close()
		if w := p.post("/v1/runs", "k", `{"workflowName":"wait","runId":"w"}`); w.Code != 201 {
			t.Fatal(w.Body)
		}
		got := make(chan *httptest.ResponseRecorder)
		go func() {
			r := httptest.NewRequest("GET", "/v1/runs/w/result?wait=60", nil)
			r.Header.Set("Authorization", "Bearer "+home)
			out := &patient{ResponseRecorder: httptest.NewRecorder()}
			answers.Handler(p.plane).ServeHTTP(out, r)
			got <- out.ResponseRecorder
		}()
		synctest.Wait()
		if w := p.post("/v1/rpc", "", `{"jsonrpc":"2.0","id":1,"method":"keys.revoke","params":{"id":"root"}}`); w.Code != 200 || strings.Contains(w.Body.String(), "error") {
			t.Fatal(w.Body)
		}
		revoked := time.Now()
		if w := <-got; w.Code != 401 {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
		if took := time.Since(revoked); took > 10*time.Second {
			t.Errorf("the poll ended %v after the revocation of its key", took)
		}
	})
}

// A patient recorder takes the deadlines of a connection.
type patient struct{ *httptest.ResponseRecorder }

func (*patient) SetWriteDeadline(time.Time) error { return nil }
func (*patient) SetReadDeadline(time.Time) error  { return nil }

// Where middleware hides the deadlines of the connection, nothing waits for more than 5 s.
func TestHiddenDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := boot(t, new(memory.Store))
		defer p.close()
		if w := p.post("/v1/runs", "k", `{"workflowName":"wait","runId":"w"}`); w.Code != 201 {
			t.Fatal(w.Body)
		}
		for _, c := range []struct{ path, accept string }{{"/v1/runs/w/result?wait=60", "*/*"}, {"/v1/runs/w/events", "text/event-stream"}, {"/v1/runs/w/streams/words", "text/event-stream"}} {
			r := httptest.NewRequest("GET", c.path, nil)
			r.Header.Set("Authorization", "Bearer "+home)
			r.Header.Set("Accept", c.accept)
			begun := time.Now()
			answers.Handler(p.plane).ServeHTTP(httptest.NewRecorder(), r)
			if took := time.Since(begun); took != 5*time.Second {
				t.Errorf("%s took %v, want 5 s", c.path, took)
			}
		}
	})
}

// While nothing happens, a comment comes every 15 s. A key that is revoked ends the stream within 10 s.
func TestQuietStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := boot(t, new(memory.Store))
		defer p.close()
		if w := p.post("/v1/runs", "k", `{"workflowName":"wait","runId":"w"}`); w.Code != 201 {
			t.Fatal(w.Body)
		}
		r := following(t, home, "/v1/runs/w/events")
		out := &recorder{http.Header{}, make(chan string, 100)}
		next := func() string {
			select {
			case c := <-out.chunks:
				return c
			case <-time.After(time.Minute):
				return "nothing"
			}
		}
		done := make(chan struct{})
		begun := time.Now()
		go func() {
			defer close(done)
			answers.Handler(p.plane).ServeHTTP(out, r)
		}()
		for i := range 4 {
			if c := next(); c != ": \n\n" || time.Since(begun) != time.Duration(i)*15*time.Second {
				t.Errorf("got %q after %v", c, time.Since(begun))
			}
		}
		if w := p.post("/v1/rpc", "", `{"jsonrpc":"2.0","id":1,"method":"keys.revoke","params":{"id":"root"}}`); w.Code != 200 || strings.Contains(w.Body.String(), "error") {
			t.Fatal(w.Body)
		}
		revoked := time.Now()
		<-done
		if took := time.Since(revoked); took > 10*time.Second {
			t.Errorf("the stream ended %v after the revocation of its key", took)
		}
	})
}

// Events are in pages, in both orders, with results or without.
func TestPagesOfEvents(t *testing.T) {
	s := open(t, nil)
	s.start(acme, "parent", "p", "kid")
	s.await("the child", func() bool { return s.call(acme, "GET", at("kid"), nil).status == 200 })
	s.call(acme, "POST", at("kid", "signals", "go"), `{"payload":{"k":1}}`).is(t, 200, "")
	s.awaitStatus(acme, "p", checkpoint.StatusCompleted)
	whole := s.call(acme, "GET", at("p", "events")+"?sortOrder=asc", nil).is(t, 200, "")
	if strings.Contains(string(whole.raw), "@acme") || strings.Contains(string(whole.raw), "site-") {
		t.Errorf("the engine's names show: %s", whole.raw)
	}
	if !strings.Contains(string(whole.raw), `"childId":"kid"`) || !strings.Contains(string(whole.raw), `"result":{"k":1}`) {
		t.Errorf("got %s", whole.raw)
	}
	if meta := s.call(acme, "GET", at("p", "events")+"?resolveData=none", nil).is(t, 200, ""); strings.Contains(string(meta.raw), `"result"`) {
		t.Errorf("got %s", meta.raw)
	}
	all := whole.data()
	for _, order := range []string{"asc", "desc"} {
		for limit := 1; limit <= len(all)+1; limit++ {
			var got []string
			cursor := ""
			for more := true; more; {
				r := s.call(acme, "GET", fmt.Sprintf("%s?limit=%d&sortOrder=%s&cursor=%s", at("p", "events"), limit, order, url.QueryEscape(cursor)), nil).is(t, 200, "")
				for _, e := range r.data() {
					got = append(got, fmt.Sprint(e["eventId"]))
				}
				cursor, more = r.text("tail"), r.body["hasMore"] == true
			}
			if len(got) != len(all) {
				t.Fatalf("%s, %d at a time: %d events, want %d", order, limit, len(got), len(all))
			}
			for i := range got {
				j := i
				if order == "desc" {
					j = len(all) - 1 - i
				}
				if got[i] != all[j]["eventId"] {
					t.Errorf("%s, %d at a time: event %d is %s", order, limit, i, got[i])
				}
			}
			// Nothing follows, and the tail stays.
			r := s.call(acme, "GET", fmt.Sprintf("%s?sortOrder=%s&cursor=%s", at("p", "events"), order, url.QueryEscape(cursor)), nil).is(t, 200, "")
			if len(r.data()) != 0 || r.text("tail") != cursor {
				t.Errorf("got %s", r.raw)
			}
		}
	}
	cursor := s.call(acme, "GET", at("p", "events")+"?limit=1", nil).text("cursor")
	for _, path := range []string{at("kid", "events") + "?cursor=" + cursor, at("p", "events") + "?sortOrder=asc&cursor=" + cursor, at("p", "events") + "?cursor=x"} {
		s.call(acme, "GET", path, nil).is(t, 400, "invalid_request")
	}
	for _, bad := range []string{"limit=0", "limit=1001", "limit=x", "sortOrder=up", "resolveData=x", "more=1"} {
		s.call(acme, "GET", at("p", "events")+"?"+bad, nil).is(t, 400, "invalid_request")
	}
}

// Runs are in pages, and selected by what they are.
func TestListRuns(t *testing.T) {
	s := open(t, nil, func(_ *Config, e *engine.Config) {})
	for i := range 5 {
		s.call(acme, "POST", "/v1/runs", map[string]any{"workflowName": "wait", "runId": fmt.Sprint("w", i), "labels": map[string]string{"n": fmt.Sprint(i % 2), "a:b": "c"}}, "Idempotency-Key", fresh()).is(t, 201, "")
	}
	s.start(acme, "echo", "e", nil)
	s.awaitStatus(acme, "e", checkpoint.StatusCompleted)
	s.start(acme, "parent", "p", "kid")
	s.await("the child", func() bool { return s.call(acme, "GET", at("kid"), nil).status == 200 })
	for query, want := range map[string]int{
		"":                            8,
		"workflow=wait":               6,
		"workflow=none":               0,
		"status=completed":            1,
		"label=n:0":                   3,
		"label=a%253Ab:c":             5, // the name is a:b
		"label=a:b:c":                 0, // the name is a
		"label=n:0&workflow=echo":     0,
		"label=n:0&label=x:y":         0,
		"attention=true":              0,
		"parent=p":                    1,
		"parent=@acme/prod/p":         0,
		"deployment=v1":               0,
		"after=2000-01-01T00:00:00Z":  8,
		"before=2000-01-01T00:00:00Z": 0,
	} {
		got := 0
		for cursor, more := "", true; more; {
			r := s.call(acme, "GET", "/v1/runs?limit=2&"+query+"&cursor="+url.QueryEscape(cursor), nil).is(t, 200, "")
			if strings.Contains(string(r.raw), "weft.") || strings.Contains(string(r.raw), `"@`) {
				t.Errorf("%s: %s", query, r.raw)
			}
			got += len(r.data())
			cursor, more = r.text("tail"), r.body["hasMore"] == true
		}
		if got != want {
			t.Errorf("%s: %d runs, want %d", query, got, want)
		}
	}
	for _, bad := range []string{"status=x", "label=n", "label=weft.namespace:other/prod", "label=n:0&label=n:1", "label=100%25:x", "after=yesterday", "before=1", "attention=1", "limit=0", "x=1", "parent=", "status=failed&status=failed", "cursor=x"} {
		s.call(acme, "GET", "/v1/runs?"+bad, nil).is(t, 400, "invalid_request")
	}
	cursor := s.call(acme, "GET", "/v1/runs?limit=1", nil).text("cursor")
	for _, who := range []string{home, other, acmeTest} {
		s.call(who, "GET", "/v1/runs?cursor="+cursor, nil).is(t, 400, "invalid_request")
	}
}
