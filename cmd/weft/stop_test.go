package main_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-go/weft/storage"
)

// A talk is a connection on which one request is made by hand.
type talk struct {
	net.Conn
	in *bufio.Reader
}

// talkTo sends the head of a request, and what follows it.
func (x *planeShell) talkTo(head string, args ...any) *talk {
	x.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(x.url, "http://"))
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		x.t.Fatal(err)
	}
	method, more, _ := strings.Cut(fmt.Sprintf(head, args...), "\r\n")
	if _, err := fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: weft\r\nAuthorization: Bearer %s\r\n%s\r\n", method, x.secret(), more); err != nil {
		x.t.Fatal(err)
	}
	return &talk{c, bufio.NewReader(c)}
}

// answer reads the answer.
func (c *talk) answer(t *testing.T) (status int, body string) {
	t.Helper()
	a, err := http.ReadResponse(c.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(text)
}

// expect reads lines until one has this text.
func (c *talk) expect(t *testing.T, text string) {
	t.Helper()
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			t.Fatalf("no line with %q: %v", text, err)
		}
		if strings.Contains(line, text) {
			return
		}
	}
}

// SIGTERM: a request whose body is still coming is answered, long polls and streams end, and nobody else gets in.
// The process ends with status 0 and has closed its store. Started again, it has all that was answered.
func TestServeIsTerminated(t *testing.T) {
	onKinds(t, func(t *testing.T, s shell, k kind) {
		x := s.serveWith(nil, "--demo")
		x.done("runs", "start", "checkout", "waiting", "--input", `{"cents":49000}`)

		const body = `{"workflowName":"checkout","runId":"late","input":{"cents":49000}}`
		stream := x.talkTo("GET /v1/runs/waiting/events\r\nAccept: text/event-stream\r\n")
		stream.expect(t, "id: ")
		poll := x.talkTo("GET /v1/runs/waiting/result?wait=60")
		create := x.talkTo("POST /v1/runs\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n", len(body))
		create.expect(t, "100 Continue") // it is in the handler
		create.expect(t, "")
		x.done("runs", "get", "waiting") // and so is what came before

		if err := x.process.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if status, text := poll.answer(t); status != http.StatusAccepted {
			t.Errorf("the poll is answered %d %s, want 202", status, text)
		}
		if _, err := io.Copy(io.Discard, stream.in); err != nil {
			t.Errorf("the stream: %v", err)
		}
		for end := time.Now().Add(time.Minute); ; { // nobody listens any more
			c, err := net.Dial("tcp", strings.TrimPrefix(x.url, "http://"))
			if errors.Is(err, syscall.ECONNREFUSED) {
				break
			}
			if err == nil {
				c.Close()
			}
			if time.Now().After(end) {
				t.Fatalf("a connection after SIGTERM: %v", err)
			}
		}
		if _, err := io.WriteString(create, body); err != nil {
			t.Fatal(err)
		}
		if status, text := create.answer(t); status != http.StatusCreated {
			t.Errorf("the start is answered %d %s, want 201", status, text)
		}
		x.ends()
		k.with(t, func(storage.Storage) {}) // nobody has it open

		x.begin(nil, "--demo")
		again := x.talkTo("POST /v1/runs\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", len(body))
		if _, err := io.WriteString(again, body); err != nil {
			t.Fatal(err)
		}
		if status, text := again.answer(t); status != http.StatusCreated || !strings.Contains(text, `"runId":"late"`) {
			t.Errorf("the start is repeated: %d %s, want 201", status, text)
		}
		for _, id := range []string{"waiting", "late"} {
			x.done("signals", "send", id, "approved", "--payload", `"ann"`)
			if got := x.done("runs", "result", id); !strings.Contains(got, `"approvedBy":"ann"`) {
				t.Errorf("the result of %s is %s", id, got)
			}
		}
		x.stop()
	})
}

// SIGTERM: a request whose body does not come is waited for as long as --stop-timeout says. Then its connection ends,
// and so does the process, well.
func TestServeWaitsForNoSlowBody(t *testing.T) {
	x := shell{t: t, program: program(t), store: newKind(t, "sqlite").store}.serveWith(nil, "--demo", "--stop-timeout", "1s")
	create := x.talkTo("POST /v1/runs\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n")
	create.expect(t, "100 Continue") // it is in the handler, which gives a body 30 s
	create.expect(t, "")
	began := time.Now()
	if err := x.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for ended := false; !ended; {
		if _, err := io.WriteString(create, " "); err != nil {
			break
		}
		select {
		case <-x.ended:
			ended = true
		case <-time.After(100 * time.Millisecond):
			if time.Since(began) > 25*time.Second {
				t.Fatal("a slow body is waited for")
			}
		}
	}
	x.ends()
	if took := time.Since(began); took < time.Second || took > 25*time.Second {
		t.Errorf("it took %v, want 1 s", took)
	}
}
