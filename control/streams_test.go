package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/internal/runs"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/answers"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/stream"
)

var words = &stream.Stream[json.RawMessage]{Name: "words"}

// A line is what the workflow talk does next.
type line struct {
	Stream string // "": words
	Chunks []json.RawMessage
	Large  int // the size of one more chunk, a string
	Close  bool
}

// talk writes what it is told by the signal say, until it is told to go.
var (
	say  = &signal.Signal[line]{Name: "say"}
	talk = &engine.Workflow[json.RawMessage, string]{Name: "talk", Func: func(run *engine.Run, _ json.RawMessage) (string, error) {
		for {
			l, err := say.Receive(run)
			if err != nil || l.Stream == "end" {
				return "", err
			}
			to := &stream.Stream[json.RawMessage]{Name: l.Stream}
			if l.Stream == "" {
				to = words
			}
			if _, err := engine.Step(run, "write", func(ctx context.Context) (int, error) {
				w := to.Writer(ctx)
				for _, c := range l.Chunks {
					if err := w.Write(c); err != nil {
						return 0, err
					}
				}
				if l.Large > 0 {
					if err := w.Write(json.RawMessage(`"` + strings.Repeat("x", l.Large-2) + `"`)); err != nil {
						return 0, err
					}
				}
				return 0, w.Flush()
			}); err != nil {
				return "", err
			}
			if l.Close {
				if err := to.Close(run); err != nil {
					return "", err
				}
			}
		}
	}}
)

// talking returns a site with a run of talk, named r.
func talking(t *testing.T, store storage.Storage, key string) *site {
	t.Helper()
	s := open(t, store, func(_ *Config, e *engine.Config) { e.Workflows = append(e.Workflows, talk) })
	s.start(key, "talk", "r", nil)
	return s
}

// say has the run r write, and waits until that is stored.
func (s *site) say(key string, l line) {
	s.t.Helper()
	name := l.Stream
	if name == "" {
		name = "words"
	}
	count := func() int {
		n := 0
		for range storage.All(s.t.Context(), s.store, storage.Prefix(keys.ChunksOf(s.id(key, "r"), name))) {
			n++
		}
		return n
	}
	want := count() + len(l.Chunks)
	if l.Large > 0 {
		want++
	}
	s.call(key, "POST", at("r", "signals", "say"), map[string]any{"payload": l}).is(s.t, 200, "")
	s.await("the chunks", func() bool { return count() >= want })
	if l.Close {
		s.await("the end of the stream", func() bool { return s.call(key, "GET", at("r", "streams", name), nil).body["closed"] == true })
	}
}

// id returns the engine's id of a run.
func (s *site) id(key, runID string) string {
	if key == home {
		return runID
	}
	return "@acme/prod/" + runID
}

// end has the run r return.
func (s *site) end(key string) {
	s.t.Helper()
	s.call(key, "POST", at("r", "signals", "say"), map[string]any{"payload": line{Stream: "end"}}).is(s.t, 200, "")
	s.awaitStatus(key, "r", checkpoint.StatusCompleted)
}

// raws are chunks.
func raws(all ...string) (chunks []json.RawMessage) {
	for _, c := range all {
		chunks = append(chunks, json.RawMessage(c))
	}
	return chunks
}

// chunk reads a chunk that was sent.
func chunk(t *testing.T, e received) (index int, data string) {
	t.Helper()
	var b struct {
		Index     int
		ChunkID   string
		CreatedAt time.Time
		Operation string
		Attempt   int
		Data      json.RawMessage
	}
	if err := json.Unmarshal([]byte(e.data), &b); err != nil || fmt.Sprint(b.Index) != e.id || b.ChunkID == "" || b.CreatedAt.IsZero() || b.Operation == "" || b.Attempt < 1 {
		t.Fatalf("got %+v, %v", e, err)
	}
	return b.Index, string(b.Data)
}

// are checks the data of a page of chunks, which begins with an index.
func are(t *testing.T, r reply, from int, want ...string) {
	t.Helper()
	var page struct {
		Data []struct {
			Index int
			Data  json.RawMessage
		}
	}
	if err := json.Unmarshal(r.is(t, 200, "").raw, &page); err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, c := range page.Data {
		if got = append(got, string(c.Data)); c.Index != from+i {
			t.Errorf("chunk %d has the index %d, want %d", i, c.Index, from+i)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %.300q, want %.300q", got, want)
	}
}

// A stream is followed by server-sent events: the chunks that there are, and then those that come. Last-Event-ID goes on
// behind a chunk. When the workflow closes the stream, the end comes, and then 204, although the run goes on.
func TestFollowStream(t *testing.T) {
	EachStore(t, func(t *testing.T, store storage.Storage) {
		s := talking(t, store, acme)
		path := at("r", "streams", "words")
		resp, early := s.receive(acme, path, "") // there is no such stream yet
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("got %d %v", resp.StatusCode, resp.Header)
		}
		s.say(acme, line{Chunks: raws(`"a"`, `{"b":9007199254740993}`)})
		_, late := s.receive(acme, path, "")
		want := []string{`"a"`, `{"b":9007199254740993}`, `"c"`, `null`}
		for i, c := range want {
			if i == 2 {
				s.say(acme, line{Chunks: raws(`"c"`, `null`), Close: true})
			}
			for _, events := range []<-chan received{early, late} {
				if index, data := chunk(t, next(t, events)); index != i || data != c {
					t.Errorf("chunk %d: got %d %s, want %s", i, index, data, c)
				}
			}
		}
		for _, events := range []<-chan received{early, late} {
			if e := next(t, events); e.event != "end" {
				t.Errorf("got %v, want the end", e)
			}
			if e, more := <-events; more {
				t.Errorf("%v comes after the end", e)
			}
		}
		for last := -1; last < len(want)-1; last++ {
			_, rest := s.receive(acme, path, fmt.Sprint(last))
			for i := last + 1; i < len(want); i++ {
				if index, _ := chunk(t, next(t, rest)); index != i {
					t.Errorf("behind %d: got %d, want %d", last, index, i)
				}
			}
			if e := next(t, rest); e.event != "end" {
				t.Errorf("behind %d: got %v, want the end", last, e)
			}
		}
		sse := []string{"Accept", "text/event-stream"}
		for _, last := range []string{"3", "4", "1000"} {
			if r := s.call(acme, "GET", path, nil, append(sse, "Last-Event-ID", last)...).is(t, 204, ""); len(r.raw) != 0 {
				t.Errorf("behind %s: got %s", last, r.raw)
			}
		}
		for _, last := range []string{"x", "-2", "1.5", "9223372036854775807", "9223372036854775808"} {
			s.call(acme, "GET", path, nil, append(sse, "Last-Event-ID", last)...).is(t, 400, "invalid_request")
		}
		for _, key := range []string{other, home, acmeTest} {
			for _, accept := range []string{"*/*", "text/event-stream"} {
				s.call(key, "GET", path, nil, "Accept", accept).is(t, 404, "not_found")
			}
		}
		s.call(acme, "GET", at("nobody", "streams", "words"), nil, sse...).is(t, 404, "not_found")
	})
}

// The end of the run ends its streams: those that it has not closed, and those that it has never written to.
func TestStreamsEndWithTheRun(t *testing.T) {
	EachStore(t, func(t *testing.T, store storage.Storage) {
		s := talking(t, store, acme)
		s.say(acme, line{Chunks: raws("1")})
		_, written := s.receive(acme, at("r", "streams", "words"), "")
		chunk(t, next(t, written))
		_, never := s.receive(acme, at("r", "streams", "never"), "")
		r := s.call(acme, "GET", at("r", "streams", "never"), nil)
		if are(t, r, 0); r.body["closed"] != false || r.body["hasMore"] != false {
			t.Errorf("got %s", r.raw)
		}
		s.end(acme)
		for what, events := range map[string]<-chan received{"a stream": written, "one without chunks": never} {
			if e := next(t, events); e.event != "end" {
				t.Errorf("%s: got %v, want the end", what, e)
			}
		}
		r = s.call(acme, "GET", at("r", "streams", "words"), nil)
		if are(t, r, 0, "1"); r.body["closed"] != true {
			t.Errorf("got %s", r.raw)
		}
		s.call(acme, "GET", at("r", "streams", "never"), nil, "Accept", "text/event-stream").is(t, 204, "")
	})
}

// Chunks are in pages, from the first one on, from an index on, or counted from the end. The tail of the last page leads
// to what is written afterwards.
func TestPagesOfChunks(t *testing.T) {
	EachStore(t, func(t *testing.T, store storage.Storage) {
		s := talking(t, store, acme)
		var all []string
		for i := range 7 {
			all = append(all, fmt.Sprint(i))
		}
		s.say(acme, line{Chunks: raws(all...)})
		path := at("r", "streams", "words")
		tail := ""
		for limit := 1; limit <= len(all)+1; limit++ {
			cursor := ""
			for from, more := 0, true; more; from += limit {
				r := s.call(acme, "GET", fmt.Sprintf("%s?limit=%d&cursor=%s", path, limit, url.QueryEscape(cursor)), nil)
				are(t, r, from, all[from:min(from+limit, len(all))]...)
				cursor, more = r.text("tail"), r.body["hasMore"] == true
				if want := any(cursor); more != (from+limit < len(all)) || more && r.body["cursor"] != want || !more && r.body["cursor"] != nil || r.body["closed"] != false {
					t.Fatalf("%d at a time, from %d: got %s", limit, from, r.raw)
				}
			}
			tail = cursor
		}
		for n, want := range map[int]int{-1: 6, -3: 4, -7: 0, -100: 0, 0: 0, 5: 5, 7: 7} {
			are(t, s.call(acme, "GET", fmt.Sprintf("%s?at=%d", path, n), nil), want, all[want:]...)
		}
		are(t, s.call(acme, "GET", path+"?at=9", nil), 9)
		are(t, s.call(acme, "GET", path+"?at=9223372036854775807", nil), 0)
		are(t, s.call(acme, "GET", path+"?at=-9223372036854775808&limit=1", nil), 0, "0")
		s.say(acme, line{Chunks: raws("7")})
		are(t, s.call(acme, "GET", path+"?at=2&cursor="+tail, nil), 7, "7") // the cursor goes before at
		if r := s.rpc(acme, "1", "runs.stream", `{"runId":"r","name":"words","at":-2,"limit":1}`); !strings.Contains(string(r.raw), `"data":6,"index":6`) {
			t.Errorf("got %s", r.raw)
		}
		s.say(acme, line{Stream: "more", Chunks: raws("1", "2")})
		s.call(acme, "GET", at("r", "streams", "more")+"?cursor="+tail, nil).is(t, 400, "invalid_request")
		for _, bad := range []string{"limit=0", "limit=1001", "limit=x", "at=x", "at=1.5", "at=9223372036854775808", "cursor=x", "sortOrder=asc", "more=1"} {
			s.call(acme, "GET", path+"?"+bad, nil).is(t, 400, "invalid_request")
		}
	})
}

// A reader that counts from the end is told where it begins. So it misses nothing if it connects again before the first
// chunk has come.
func TestFollowStreamFromItsEnd(t *testing.T) {
	s := talking(t, nil, acme)
	path := at("r", "streams", "words")
	_, events := s.receive(acme, path+"?at=-1", "")
	if e := next(t, events); e != (received{id: "-1"}) {
		t.Errorf("of an empty stream: got %v", e)
	}
	s.say(acme, line{Chunks: raws("0", "1", "2")})
	_, events = s.receive(acme, path+"?at=-1", "-1") // as an EventSource that connects again
	for i := range 3 {
		if index, _ := chunk(t, next(t, events)); index != i {
			t.Errorf("got %d, want %d", index, i)
		}
	}
	_, events = s.receive(acme, path+"?at=-2", "")
	if e := next(t, events); e != (received{id: "0"}) {
		t.Errorf("got %v", e)
	}
	if index, _ := chunk(t, next(t, events)); index != 1 {
		t.Errorf("got %d, want 1", index)
	}
}

// Names of streams are escaped in a path. A name that no stream can have is refused, or is no path.
func TestNamesOfStreams(t *testing.T) {
	s := talking(t, nil, acme)
	for i, name := range []string{"a/b", "100%", "%2F", "a b?c#d", "ß", "x:y", "a\x00b", strings.Repeat("n", 100)} {
		s.say(acme, line{Stream: name, Chunks: raws(fmt.Sprint(i))})
		are(t, s.call(acme, "GET", at("r", "streams", name), nil), 0, fmt.Sprint(i))
		_, events := s.receive(acme, at("r", "streams", name), "")
		if _, data := chunk(t, next(t, events)); data != fmt.Sprint(i) {
			t.Errorf("%q has %s, want %d", name, data, i)
		}
	}
	for name, status := range map[string]int{"": 404, "a\xffb": 400, "..": 404, strings.Repeat("n", 101): 400} {
		for _, accept := range []string{"*/*", "text/event-stream"} {
			if r := s.call(acme, "GET", at("r", "streams", name), nil, "Accept", accept); r.status != status {
				t.Errorf("%.20q: got %d %s, want %d", name, r.status, r.raw, status)
			}
		}
	}
	s.call(acme, "GET", at("r")+"/streams/a/b", nil).is(t, 404, "not_found")
	for _, name := range []string{"", strings.Repeat("n", 101)} {
		if r := s.rpc(acme, "1", "runs.stream", fmt.Sprintf(`{"runId":"r","name":%q}`, name)); !strings.Contains(string(r.raw), `"code":-32602`) || !strings.Contains(string(r.raw), `"path":"/name"`) {
			t.Errorf("%.20q: got %s", name, r.raw)
		}
	}
}

// A chunk of a MiB is sent as a whole. A page ends before it is larger than 4 MiB.
func TestLargeChunks(t *testing.T) {
	s := talking(t, nil, acme)
	for range 6 {
		s.say(acme, line{Large: stream.MaxChunk})
	}
	path := at("r", "streams", "words")
	cursor, pages := "", 0
	for n, more := 0, true; more; pages++ {
		r := s.call(acme, "GET", path+"?cursor="+cursor, nil).is(t, 200, "")
		cursor, more = r.text("tail"), r.body["hasMore"] == true
		n += len(r.data())
		if len(r.raw) > operation.MaxPageBytes+4096 || len(r.data()) == 0 || !more && n != 6 {
			t.Fatalf("page %d has %d bytes, %d chunks; %d in all", pages, len(r.raw), len(r.data()), n)
		}
	}
	if pages != 2 {
		t.Errorf("%d pages, want 2", pages)
	}
	_, events := s.receive(acme, path, "4")
	if index, data := chunk(t, next(t, events)); index != 5 || len(data) != stream.MaxChunk {
		t.Errorf("chunk %d has %d bytes", index, len(data))
	}
}

// A damaged chunk is not passed over: what is before it is answered, and then 500, also to an EventSource, which stops.
func TestADamagedChunk(t *testing.T) {
	EachStore(t, func(t *testing.T, store storage.Storage) {
		s := talking(t, store, acme)
		s.say(acme, line{Chunks: raws("0", "1", "2", "3"), Close: true})
		prefix := keys.ChunksOf("@acme/prod/r", "words")
		b := storage.Batch{Ops: []storage.Op{storage.Put(keys.Chunk(prefix, 2), []byte("damaged"))}}
		if err := store.Commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		path := at("r", "streams", "words")
		r := s.call(acme, "GET", path, nil)
		if are(t, r, 0, "0", "1"); r.body["hasMore"] != true {
			t.Errorf("got %s", r.raw)
		}
		s.call(acme, "GET", path+"?cursor="+r.text("tail"), nil).is(t, 500, "damaged")
		_, events := s.receive(acme, path, "")
		for i := range 2 {
			if index, _ := chunk(t, next(t, events)); index != i {
				t.Errorf("got %d, want %d", index, i)
			}
		}
		if e, more := <-events; more {
			t.Errorf("got %v, want that the connection ends", e)
		}
		s.call(acme, "GET", path, nil, "Accept", "text/event-stream", "Last-Event-ID", "1").is(t, 500, "damaged")
		are(t, s.call(acme, "GET", path+"?at=3", nil), 3, "3")
		b = storage.Batch{Ops: []storage.Op{storage.Put(keys.Stream("@acme/prod/r", "words"), []byte("damaged"))}}
		if err := store.Commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		s.call(acme, "GET", path, nil).is(t, 500, "damaged")
		s.call(acme, "GET", path, nil, "Accept", "text/event-stream").is(t, 500, "damaged")
	})
}

// A stream whose run is purged before all of it was sent has not ended: who connects again gets 404.
func TestAStreamThatIsPurged(t *testing.T) {
	s := talking(t, nil, acme)
	var all []string
	for i := range 100 {
		all = append(all, fmt.Sprint(i))
	}
	s.say(acme, line{Chunks: raws(all...)})
	s.end(acme)
	path := at("r", "streams", "words")
	cursor := s.call(acme, "GET", path+"?limit=1", nil).text("tail")
	r := following(t, acme, path)
	out := &recorder{http.Header{}, make(chan string)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		answers.Handler(s.plane).ServeHTTP(out, r)
	}()
	<-out.chunks
	s.call(acme, "DELETE", at("r"), nil).is(t, 204, "")
	sent := 0
	for over := false; !over; {
		select {
		case c := <-out.chunks:
			if sent++; strings.Contains(c, "end") {
				t.Errorf("after %d writes: got %s", sent, c)
			}
		case <-done:
			over = true
		}
	}
	if sent >= len(all) {
		t.Errorf("all %d chunks were sent", sent)
	}
	s.call(acme, "GET", path+"?cursor="+cursor, nil).is(t, 404, "not_found")
	s.call(acme, "GET", path, nil, "Accept", "text/event-stream", "Last-Event-ID", "0").is(t, 404, "not_found")
}

// Streams share the limits of runs.events: 8 a key, whichever of the two they follow.
func TestStreamsAndEventsShareTheirLimit(t *testing.T) {
	s := talking(t, nil, home)
	s.say(home, line{Chunks: raws("0")})
	for i := range runs.MostKeyStreams {
		path := at("r", "streams", "words")
		if i%2 == 0 {
			path = at("r", "events")
		}
		_, events := s.receive(home, path, "")
		next(t, events)
	}
	for _, path := range []string{at("r", "streams", "words"), at("r", "events")} {
		s.call(home, "GET", path, nil, "Accept", "text/event-stream").is(t, 429, "rate_limited")
	}
	are(t, s.call(home, "GET", at("r", "streams", "words"), nil), 0, "0")
	s.plane.Close()
	s.await("the end of the streams", func() bool {
		return s.plane.runs.Streams.Count() == 0
	})
}

// While no chunk comes, a comment does, every 15 s. A key that is revoked ends the stream within 10 s, and so does Close,
// without saying that the stream has ended.
func TestQuietStreamsOfChunks(t *testing.T) {
	for _, end := range []string{"a revoked key", "Close"} {
		synctest.Test(t, func(t *testing.T) {
			p := boot(t, new(memory.Store))
			defer p.close()
			if w := p.post("/v1/runs", "k", `{"workflowName":"wait","runId":"w"}`); w.Code != 201 {
				t.Fatal(w.Body)
			}
			r := following(t, home, "/v1/runs/w/streams/words")
			out := &recorder{http.Header{}, make(chan string, 100)}
			done := make(chan struct{})
			go func() {
				defer close(done)
				answers.Handler(p.plane).ServeHTTP(out, r)
			}()
			time.Sleep(46 * time.Second)
			synctest.Wait()
			if n := len(out.chunks); n != 4 {
				t.Errorf("%d writes in 46 s, want 4", n)
			}
			began := time.Now()
			if end == "Close" {
				go p.plane.Close()
			} else if w := p.post("/v1/rpc", "", `{"jsonrpc":"2.0","id":1,"method":"keys.revoke","params":{"id":"root"}}`); w.Code != 200 || strings.Contains(w.Body.String(), "error") {
				t.Fatal(w.Body)
			}
			<-done
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s: the stream ended after %v", end, took)
			}
			close(out.chunks)
			for c := range out.chunks {
				if c != ": \n\n" {
					t.Errorf("%s: got %q", end, c)
				}
			}
		})
	}
}

// A client that does not read a chunk has ten seconds. Then its connection ends, and its place is free.
func TestASlowReaderOfChunks(t *testing.T) {
	store := new(memory.Store)
	s := talking(t, store, home)
	s.say(home, line{Large: stream.MaxChunk})
	s.end(home)
	synctest.Test(t, func(t *testing.T) {
		p := boot(t, store)
		defer p.close()
		r := following(t, home, "/v1/runs/r/streams/words")
		out := &stalled{header: http.Header{}, after: 1}
		began := time.Now()
		answers.Handler(p.plane).ServeHTTP(out, r)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it took %v, want 10 s", took)
		}
		if strings.Contains(out.written.String(), "end") || p.plane.runs.Streams.Count() != 0 {
			t.Errorf("got %.100q; %d streams", out.written.String(), p.plane.runs.Streams.Count())
		}
	})
}

// A stalled connection takes so many writes, and none afterwards until the deadline.
type stalled struct {
	header   http.Header
	written  bytes.Buffer
	after    int
	deadline time.Time
}

func (w *stalled) Header() http.Header { return w.header }
func (w *stalled) WriteHeader(int)     {}
func (w *stalled) Write(p []byte) (int, error) {
	if w.after--; w.after >= 0 {
		return w.written.Write(p)
	}
	if w.deadline.IsZero() {
		w.deadline = time.Now().Add(time.Hour)
	}
	time.Sleep(time.Until(w.deadline))
	return 0, io.ErrShortWrite
}
func (w *stalled) Flush()                              {}
func (w *stalled) SetWriteDeadline(at time.Time) error { w.deadline = at; return nil }
func (w *stalled) SetReadDeadline(time.Time) error     { return nil }
