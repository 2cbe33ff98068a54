package control

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/world"
)

// pollMemory is how much memory a thousand long polls may take (§10.5 of the specification).
const pollMemory = 40 << 20

// manyPolls returns how many long polls a test has: as many as a key may have. With the race detector, which makes all
// of this several times slower, they are fewer; then the other places of the key count as taken.
func (s *site) manyPolls() int {
	n := operation.MaxWaiting
	if torture.Raced() && os.Getenv("WEFT_TORTURE") == "" {
		n /= 5
	}
	for range operation.MaxWaiting - n {
		s.plane.env.Polls.Enter("default/default/root", operation.MaxWaiting, 0)
	}
	return n
}

// A thousand long polls of one key take little memory. Other requests are answered meanwhile, and so are all of
// the polls when their runs have ended. One more poll of the key is answered at once.
func TestManyPolls(t *testing.T) {
	const runs = 10
	s := open(t, nil)
	for i := range runs {
		s.start(home, "wait", fmt.Sprint("r", i), nil)
	}
	s.call(home, "GET", at("r0", "result"), nil).is(t, 202, "")
	n := s.manyPolls()
	goroutines, before := runtime.NumGoroutine(), inUse()
	polls := s.poll(n, func(i int) string { return fmt.Sprint("r", i%runs) })
	most := int64(pollMemory) * int64(n) / operation.MaxWaiting
	if torture.Raced() {
		most *= 2 // frames are larger
	}
	if more := int64(inUse()) - int64(before); more > most {
		t.Errorf("%d polls take %d bytes, want %d at most", n, more, most)
	} else {
		t.Logf("%d polls take %d KiB", n, more>>10)
	}

	began := time.Now()
	s.call(home, "GET", at("r0", "result")+"?wait=60", nil).is(t, 202, "") // one too many
	for i := range 20 {
		s.call(home, "GET", at(fmt.Sprint("r", i%runs)), nil).is(t, 200, "")
		s.start(acme, "echo", fmt.Sprint("e", i), i)
		s.call(acme, "GET", at(fmt.Sprint("e", i), "result")+"?wait=30", nil).is(t, 200, "")
	}
	if took := time.Since(began); took > 50*time.Second { // the one too many would wait for 60 s
		t.Errorf("other requests took %v beside the polls", took)
	}
	if got := s.plane.env.Polls.Count(); got != operation.MaxWaiting {
		t.Errorf("%d polls wait, want %d", got, operation.MaxWaiting)
	}

	for i := range runs {
		s.call(home, "POST", at(fmt.Sprint("r", i), "signals", "go"), fmt.Sprintf(`{"payload":%d}`, i)).is(t, 200, "")
	}
	answered := 0
	for i, c := range polls {
		a, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("poll %d: %v", i, err)
		}
		body, err := io.ReadAll(a.Body)
		if want := fmt.Sprintf(`"result":%d`, i%runs); err != nil || a.StatusCode != 200 || !strings.Contains(string(body), want) {
			t.Fatalf("poll %d: got %d %s, %v, want %s", i, a.StatusCode, body, err, want)
		}
		answered++
		c.Close()
	}
	if answered != n {
		t.Errorf("%d polls were answered, want %d", answered, n)
	}
	s.left(operation.MaxWaiting-n, goroutines)
}

// Nothing is left of a thousand long polls whose clients have gone away.
func TestPollsOfClientsThatLeave(t *testing.T) {
	s := open(t, nil)
	s.start(home, "wait", "r", nil)
	s.call(home, "GET", at("r", "result"), nil).is(t, 202, "")
	n, goroutines := s.manyPolls(), runtime.NumGoroutine()
	for _, c := range s.poll(n, func(int) string { return "r" }) {
		c.Close()
	}
	s.left(operation.MaxWaiting-n, goroutines)
	s.call(home, "GET", at("r"), nil).is(t, 200, "")
}

// Calls of the world that wait count as polls of their key, also when their number is reached. Others do not.
func TestManyCallsOfTheWorld(t *testing.T) {
	s := idle(t, nil, func(c *Config, ec *engine.Config) {
		w, err := world.Open(ec.Storage, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		c.World = w
	})
	const receive, body = "/v1/world/queue/receive", `{"deploymentId":"blue","max":1}`
	for range operation.MaxWaiting - 1 {
		s.plane.env.Polls.Enter("default/default/root", operation.MaxWaiting, 0)
	}
	for range 2 { // the first one leaves its place
		s.call(home, "POST", receive, body).is(t, 200, "")
	}
	s.plane.env.Polls.Enter("default/default/root", operation.MaxWaiting, 0)
	s.call(home, "POST", receive, body).is(t, 503, "busy")
	s.call(home, "POST", "/v1/world/streams/read", `{"runId":"r","name":"words"}`).is(t, 503, "busy")
	s.call(home, "POST", "/v1/world/queue/settle", `{"deploymentId":"blue","settlements":[{"messageId":"m","receipt":"r","as":"done"}]}`).is(t, 400, "invalid")
}

// poll begins n long polls, each on a connection of its own, and returns when all of them wait. A connection has
// no goroutine and no buffer on the side of the client, so what it takes is the server's.
func (s *site) poll(n int, runID func(i int) string) []net.Conn {
	s.t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { c.Close() })
		if _, err := fmt.Fprintf(c, "GET %s?wait=60 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", at(runID(i), "result"), home); err != nil {
			s.t.Fatal(err)
		}
		conns[i] = c
	}
	s.await(fmt.Sprint(n, " polls"), func() bool { return s.plane.env.Polls.Count() == operation.MaxWaiting })
	return conns
}

// left waits until so many polls are left, and not more goroutines.
func (s *site) left(polls, goroutines int) {
	s.t.Helper()
	s.await("the end of all polls", func() bool { return s.plane.env.Polls.Count() == polls })
	s.await(fmt.Sprintf("the end of their goroutines: %d are to be left", goroutines), func() bool { return runtime.NumGoroutine() <= goroutines })
}

// inUse returns how many bytes of memory are in use, after the garbage is collected.
func inUse() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
