package control_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/internal/answers"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A pipes is a listener without a network, so that deadlines of connections are in virtual time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours
}

// protocols returns HTTP/2, which works on pipes without TLS, and HTTP/1 if first.
func protocols(first bool) *http.Protocols {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	p.SetHTTP1(first)
	return &p
}

// byHTTP2 makes a request of the admin by HTTP/2. The answer ends with the test.
func (p *pipes) byHTTP2(t *testing.T, method, path, body string, header ...string) *http.Response {
	t.Helper()
	client := &http.Transport{Protocols: protocols(false), DialContext: func(context.Context, string, string) (net.Conn, error) { return p.dial(), nil }}
	q, err := http.NewRequestWithContext(t.Context(), method, "http://plane"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+adminSecret)
	for i := 0; i < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	a, err := client.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Body.Close(); client.CloseIdleConnections() })
	if a.ProtoMajor != 2 || a.StatusCode > 299 {
		t.Fatalf("%s: got %+v", path, a)
	}
	return a
}

// piped serves a plane without a network, by a server with short limits of its own.
func piped(t *testing.T, x *site) *pipes {
	p := newPipes()
	srv := &http.Server{Handler: answers.Handler(x.plane), WriteTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, Protocols: protocols(true)}
	done := make(chan struct{})
	go func() { defer close(done); srv.Serve(p) }()
	t.Cleanup(func() { srv.Close(); <-done; synctest.Wait() })
	return p
}

// §8: a body has 30 s, whatever the server's limits are, and then the answer is 408.
func TestASlowBody(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := piped(t, planeOn(t, new(memory.Store)))
		// post sends a body, one byte a second, and returns the answer and how long it took.
		post := func(body string) (status int, answer string, took time.Duration) {
			c := p.dial()
			var writing sync.WaitGroup
			defer writing.Wait()
			defer c.Close()
			writing.Go(func() {
				fmt.Fprintf(c, "POST /v1/keys HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", adminSecret, len(body))
				for i := range len(body) {
					time.Sleep(time.Second)
					if _, err := io.WriteString(c, body[i:i+1]); err != nil {
						return
					}
				}
			})
			began := time.Now()
			a, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(a.Body)
			return a.StatusCode, string(text), time.Since(began)
		}
		const body = `{"scopes":["runs:read"]}`
		if status, text, took := post(body); status != 201 {
			t.Errorf("24 s: got %d %s after %v, want 201", status, text, took)
		}
		if status, text, took := post(body + strings.Repeat(" ", 50)); status != 408 || !strings.Contains(text, `"request_timeout"`) || !strings.Contains(text, `"retry":"same-key"`) || took != 30*time.Second {
			t.Errorf("got %d %s after %v, want 408 after 30 s", status, text, took)
		}
	})
}

// A webhook that is refused, and a call of the world, do not wait for a body that does not come.
func TestARefusedBodyIsNotWaitedFor(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := piped(t, planeOn(t, new(memory.Store)))
		for _, path := range []string{"/v1/webhooks/acme", "/v1/world/events/create"} {
			c := p.dial()
			go fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n", path, adminSecret)
			began := time.Now()
			a, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); a.StatusCode != 501 || took > 2*time.Second {
				t.Errorf("%s: got %d after %v, want 501 within 2 s", path, a.StatusCode, took)
			}
			c.Close()
		}
	})
}

// After a refusal the connection ends within a second, also if a part of the body was read: a client that stays
// silent then holds nothing.
func TestARefusedConnectionEnds(t *testing.T) {
	for name, c := range map[string]struct {
		sent   string
		status int
	}{
		"a body that does not come":  {"Content-Length: 100\r\n\r\n{", 408},
		"chunks that are too large":  {"Transfer-Encoding: chunked\r\n\r\n100001\r\n{" + strings.Repeat(" ", 1<<20) + "\r\n", 413},
		"a length that is too large": {"Content-Length: 1048577\r\n\r\n{", 413},
		"another encoding":           {"Content-Encoding: gzip\r\nContent-Length: 100\r\n\r\n{", 415},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				conn := piped(t, planeOn(t, new(memory.Store))).dial()
				var writing sync.WaitGroup
				defer writing.Wait()
				defer conn.Close()
				writing.Go(func() {
					fmt.Fprintf(conn, "POST /v1/keys HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%s", adminSecret, c.sent)
				})
				r := bufio.NewReader(conn)
				a, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				if a.StatusCode != c.status {
					t.Errorf("got %d, want %d", a.StatusCode, c.status)
				}
				conn.SetReadDeadline(time.Now().Add(5 * time.Second))
				if _, err := io.Copy(io.Discard, r); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("the connection stays open after the refusal")
				}
			})
		})
	}
}

// upload makes a deployment with an artifact of so many bytes.
func (x *site) upload(id string, size int) {
	x.t.Helper()
	x.do("POST", "/v1/deployments", adminSecret, uploaded(id, size), "Content-Type", "multipart/form-data; boundary=b").is(201)
}

// uploaded is the body of an upload.
func uploaded(id string, size int) string {
	const part = "--b\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n"
	return fmt.Sprintf(part, "manifest", `{"deploymentId":"`+id+`"}`) + fmt.Sprintf(part, "artifact", strings.Repeat("x", size)) + "--b--\r\n"
}

// Close ends an upload and a download whose client is slow. They are not waited for.
func TestCloseEndsArtifacts(t *testing.T) {
	virtual(t, func(t *testing.T) {
		dir, err := control.Dir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		x := planeOn(t, new(memory.Store), func(c *control.Config) { c.Artifacts = dir })
		p := piped(t, x)
		const multipart = "POST /v1/deployments HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: multipart/form-data; boundary=b\r\n%sContent-Length: %d\r\n\r\n"
		made, body := p.dial(), uploaded("d1", 1<<20)
		defer made.Close()
		go fmt.Fprintf(made, multipart+"%s", adminSecret, "", len(body), body)
		if a, err := http.ReadResponse(bufio.NewReader(made), nil); err != nil || a.StatusCode != 201 {
			t.Fatalf("got %+v, %v", a, err)
		}
		down := p.dial()
		defer down.Close()
		go fmt.Fprintf(down, "GET /v1/deployments/d1/artifact HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", adminSecret)
		if _, err := io.ReadFull(down, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		up := p.dial()
		defer up.Close()
		go fmt.Fprintf(up, multipart, adminSecret, "Expect: 100-continue\r\n", 1_000_000)
		answers := bufio.NewReader(up)
		if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100") { // the plane reads the body
			t.Fatal(line, err)
		}
		answers.ReadString('\n')
		began := time.Now()
		closed := make(chan time.Duration, 1)
		go func() {
			x.plane.Close()
			closed <- time.Since(began)
		}()
		if a, err := http.ReadResponse(answers, nil); err != nil || a.StatusCode != 503 {
			t.Errorf("the upload: got %v, %v, want 503", a, err)
		}
		if took := <-closed; took > 0 {
			t.Errorf("Close took %v", took)
		}
	})
}

// §8: a client that does not read its answer has 10 s.
func TestASlowReader(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := piped(t, planeOn(t, new(memory.Store)))
		c := p.dial()
		defer c.Close()
		fmt.Fprintf(c, "GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
		time.Sleep(11 * time.Second)
		n, err := io.Copy(io.Discard, c)
		if n > 64<<10 || err != nil {
			t.Errorf("after 11 s: read %d bytes, %v, want the end of the connection", n, err)
		}
	})
}

// §8: a client that does not read its events any more has 10 s from the next one that comes.
func TestASlowReaderOfEvents(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := piped(t, planeOn(t, new(memory.Store)))
		const run = `{"workflowName":"w","runId":"r"}`
		first := p.dial()
		defer first.Close()
		go fmt.Fprintf(first, "POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", adminSecret, len(run), run)
		if a, err := http.ReadResponse(bufio.NewReader(first), nil); err != nil || a.StatusCode != 201 {
			t.Fatalf("got %+v, %v", a, err)
		}
		c := p.dial()
		defer c.Close()
		go fmt.Fprintf(c, "GET /v1/runs/r/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\n\r\n", adminSecret)
		r := bufio.NewReader(c)
		a, err := http.ReadResponse(r, nil)
		if err != nil || a.StatusCode != 200 {
			t.Fatalf("got %+v, %v", a, err)
		}
		if text, err := bufio.NewReader(a.Body).ReadString('\n'); text != ": \n" || err != nil {
			t.Fatalf("got %q, %v", text, err)
		}
		time.Sleep(26 * time.Second) // a comment comes every 15 s
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := io.Copy(io.Discard, c); n > 64 || err != nil {
			t.Errorf("11 s after the next comment: read %d bytes, %v, want the end of the connection", n, err)
		}
	})
}

// §8: a client that does not read an artifact any more has 10 s.
func TestASlowReaderOfArtifacts(t *testing.T) {
	dir, err := control.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, artifacts := new(memory.Store), func(c *control.Config) { c.Artifacts = dir }
	serve(t, s, artifacts).upload("d1", 1<<20)
	virtual(t, func(t *testing.T) {
		p := piped(t, planeOn(t, s, artifacts))
		c := p.dial()
		defer c.Close()
		go fmt.Fprintf(c, "GET /v1/deployments/d1/artifact HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", adminSecret)
		if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := io.Copy(io.Discard, c); n > 256<<10 || err != nil {
			t.Errorf("after 11 s: read %d bytes, %v, want the end of the connection", n, err)
		}
	})
}

// A stream in which nothing happens stays, over HTTP/2, too: there a limit for a write that has passed ends an answer also
// while nothing is written.
func TestQuietStreamsOverHTTP2(t *testing.T) {
	for _, path := range []string{"/v1/runs/r/events", "/v1/runs/r/streams/words"} {
		virtual(t, func(t *testing.T) {
			p := piped(t, planeOn(t, new(memory.Store)))
			p.byHTTP2(t, "POST", "/v1/runs", `{"workflowName":"w","runId":"r"}`, "Content-Type", "application/json", "Idempotency-Key", "k")
			stream := p.byHTTP2(t, "GET", path, "", "Accept", "text/event-stream")
			begun, lines, comments := time.Now(), bufio.NewScanner(stream.Body), 0
			for comments < 5 && lines.Scan() {
				if lines.Text() == ":" || lines.Text() == ": " {
					comments++
				}
			}
			if took := time.Since(begun); comments != 5 || took != time.Minute {
				t.Errorf("%s: %d comments in %v, then %v; want 5 in a minute", path, comments, took, lines.Err())
			}
		})
	}
}

// So does an artifact whose bytes the store of artifacts has not got at once.
func TestSlowArtifactsOverHTTP2(t *testing.T) {
	dir, err := control.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, size := new(memory.Store), 1<<20
	serve(t, s, func(c *control.Config) { c.Artifacts = dir }).upload("d1", size)
	virtual(t, func(t *testing.T) {
		p := piped(t, planeOn(t, s, func(c *control.Config) { c.Artifacts = slowArtifacts{dir} }))
		a := p.byHTTP2(t, "GET", "/v1/deployments/d1/artifact", "")
		if n, err := io.Copy(io.Discard, a.Body); n != int64(size) || err != nil {
			t.Errorf("read %d bytes, %v, want %d", n, err, size)
		}
	})
}

// slowArtifacts takes 15 s for each read.
type slowArtifacts struct{ control.Artifacts }

func (s slowArtifacts) Open(ctx context.Context, digest string) (io.ReadSeekCloser, error) {
	r, err := s.Artifacts.Open(ctx, digest)
	return slowReader{r}, err
}

type slowReader struct{ io.ReadSeekCloser }

func (r slowReader) Read(p []byte) (int, error) {
	time.Sleep(15 * time.Second)
	return r.ReadSeekCloser.Read(p)
}

// HTTP-6: a record counts only if it is of this very secret.
func TestTheHashIsCompared(t *testing.T) {
	s := new(memory.Store)
	x := serve(t, s)
	x.do("GET", "/v1/runs", readerSecret, nil).is(200)
	// Damage that has a valid checksum: the record of one secret under the key of another one.
	at := func(secret string) []byte {
		sum := sha256.Sum256([]byte(secret))
		return keys.ControlKey(hex.EncodeToString(sum[:]))
	}
	value, err := s.Get(context.Background(), at(adminSecret))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(context.Background(), storage.Batch{Ops: []storage.Op{storage.Put(at("stranger"), value)}}); err != nil {
		t.Fatal(err)
	}
	x.do("GET", "/v1/runs", "stranger", nil).fails(500, "damaged")
}

// §8: secrets are nowhere but with their clients: not in the store, not in the log.
func TestSecretsAreNowhere(t *testing.T) {
	s := new(memory.Store)
	x := serve(t, s, withKeys(control.Key{ID: "shop", Secret: newSecret, Scopes: []string{"runs:read"}}))
	made := x.do("POST", "/v1/keys", adminSecret, map[string]any{"keyId": "k", "scopes": []string{"runs:read"}}).is(201).object()["secret"].(string)
	x.do("GET", "/v1/runs?token="+made, made, nil).is(400)
	x.do("GET", "/v1/keys/"+made, made, nil)
	x.do("GET", "/v1/runs", made+"x", nil).is(401)
	x.do("POST", "/v1/rpc", adminSecret, `{"jsonrpc":"2.0","id":1,"method":"keys.rotate","params":{"id":"k"}}`).is(200)
	cfg, _ := configOf(t, s)
	cfg.Keys = []control.Key{{ID: "shop", Secret: made, Scopes: []string{"runs:write"}}}
	if _, err := control.New(cfg); err == nil || strings.Contains(err.Error(), made) {
		t.Errorf("the secret of another key: got %v", err)
	}
	x.audit(adminSecret, "result=failure", 2)
	x.plane.Close()
	for _, secret := range []string{adminSecret, readerSecret, otherSecret, newSecret, made} {
		if has(t, s, secret) {
			t.Errorf("the store has %q", secret)
		}
		if strings.Contains(x.log.String(), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}

// §8: what waits ends within 10 s of the revocation of its key, and is told so.
func TestRevokedWhileItWaits(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := planeOn(t, new(memory.Store))
		p := piped(t, x)
		secret := x.do("POST", "/v1/keys", adminSecret, map[string]any{"keyId": "shop", "scopes": []string{"runs:read"}}).is(201).object()["secret"].(string)
		x.do("POST", "/v1/runs", adminSecret, `{"workflowName":"w","runId":"r"}`, "Idempotency-Key", "k").is(201)
		ask := func() (int, time.Duration) {
			c := p.dial()
			defer c.Close()
			began := time.Now()
			go fmt.Fprintf(c, "GET /v1/runs/r/result?wait=60 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", secret)
			a, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			return a.StatusCode, time.Since(began)
		}
		if status, took := ask(); status != 202 || took != time.Minute { // the server's own limit is 5 s
			t.Errorf("got %d after %v, want 202 after a minute", status, took)
		}
		time.AfterFunc(12*time.Second, func() { x.do("DELETE", "/v1/keys/shop", adminSecret, nil).is(204) })
		if status, took := ask(); status != 401 || took < 12*time.Second || took > 22*time.Second {
			t.Errorf("revoked after 12 s: got %d after %v, want 401 within 10 s", status, took)
		}
	})
}

// A readCounter counts reads of keys.
type readCounter struct {
	storage.Storage
	keys atomic.Int64
}

func (s *readCounter) Unwrap() storage.Storage { return s.Storage }

func (s *readCounter) Get(ctx context.Context, key []byte) ([]byte, error) {
	if strings.HasPrefix(string(key), "ctl:key:") {
		s.keys.Add(1)
	}
	return s.Storage.Get(ctx, key)
}

// However many calls of a key wait, the store is asked for the key once in five seconds.
func TestWhatWaitsAsksOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &readCounter{Storage: new(memory.Store)}
		x := planeOn(t, s)
		p := piped(t, x)
		x.do("POST", "/v1/runs", adminSecret, `{"workflowName":"w","runId":"r"}`, "Idempotency-Key", "k").is(201)
		for _, secret := range []string{adminSecret, readerSecret} {
			for range 20 {
				c := p.dial()
				defer c.Close()
				fmt.Fprintf(c, "GET /v1/runs/r/result?wait=60 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", secret)
			}
		}
		synctest.Wait()
		before := s.keys.Load()
		time.Sleep(21 * time.Second)
		if n := s.keys.Load() - before; n < 8 || n > 10 {
			t.Errorf("40 polls of 2 keys have asked for them %d times in 21 s, want 8", n)
		}
	})
}

// §8: where middleware hides the connection's deadlines, a wait is at most 5 s.
func TestAWaitBehindMiddleware(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := planeOn(t, new(memory.Store)) // a recorder has no deadlines
		x.do("POST", "/v1/runs", adminSecret, `{"workflowName":"w","runId":"r"}`, "Idempotency-Key", "k").is(201)
		began := time.Now()
		if x.do("GET", "/v1/runs/r/result?wait=60", adminSecret, nil).is(202); time.Since(began) != 5*time.Second {
			t.Errorf("got the answer after %v, want 5 s", time.Since(began))
		}
	})
}

// A store that does not take audit rows does not keep Close for longer than 10 s.
func TestCloseDoesNotWaitForTheAudit(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &stuckAudit{Storage: new(memory.Store)}
		x := planeOn(t, s)
		for range 500 {
			x.do("GET", "/v1/keys", adminSecret, nil).is(200)
		}
		began := time.Now()
		x.plane.Close()
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("Close took %v, want 10 s at most", took)
		}
		if !strings.Contains(x.log.String(), "audit rows are lost") {
			t.Errorf("the log says nothing of lost rows: %s", x.log)
		}
	})
}

// A stuckAudit takes no audit rows.
type stuckAudit struct{ storage.Storage }

func (s *stuckAudit) Unwrap() storage.Storage { return s.Storage }

func (s *stuckAudit) Commit(ctx context.Context, b storage.Batch) error {
	for _, o := range b.Ops {
		if strings.HasPrefix(string(o.Key), "ctl:audit:") {
			return errors.New("the disk is full")
		}
	}
	return s.Storage.Commit(ctx, b)
}
