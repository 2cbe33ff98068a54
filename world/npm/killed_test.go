package npm_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/freeport"
	"github.com/weft-go/weft/internal/ids"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/world"
)

// node starts a program of Node, which is killed when the test ends. Its lines come by the channel.
func node(t *testing.T, file string, env ...string) (kill func(), lines <-chan string) {
	t.Helper()
	c := exec.Command("node", file)
	c.Env = append(os.Environ(), env...)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	c.Stderr = &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	all := make(chan string, 10_000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := bufio.NewScanner(out); s.Scan(); {
			all <- s.Text()
		}
		close(all)
		_ = c.Wait() // it is killed
	}()
	kill = func() {
		_ = c.Process.Kill() // it may have ended
		<-done
	}
	t.Cleanup(func() {
		kill()
		if t.Failed() {
			t.Logf("%s has written:\n%s", file, stderr.Bytes())
		}
	})
	return kill, all
}

type object = map[string]any

// post makes a call in JSON, and returns its answer.
func post(ctx context.Context, url string, in any) (out object, _ error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, "POST", url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != 200 {
		return nil, fmt.Errorf("%s: HTTP %d: %s", url, answer.StatusCode, raw)
	}
	return out, json.Unmarshal(raw, &out)
}

// A worker that is killed loses no message: others get all that it held, as a second attempt.
func TestWorkerIsKilled(t *testing.T) {
	needNPM(t)
	const visibility = 10 * time.Second
	s, err := sqlite.Open(filepath.Join(t.TempDir(), "store"), nil)
	srv := serve(t, opened(t, s, err), world.Options{Visibility: visibility})
	type message struct {
		ID      string
		Attempt int
	}
	// next returns the next message that a worker has got; none when it begins.
	next := func(lines <-chan string) (m message) {
		t.Helper()
		select {
		case line := <-lines:
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		case <-time.After(time.Minute):
			t.Fatal("no message for a minute")
		}
		return m
	}
	env := []string{"WEFT_WORLD_URL=" + srv.URL}
	kill, first := node(t, "test/app.js", env...)
	next(first)
	held := map[string]bool{}
	for i := range 50 {
		if _, err := post(t.Context(), srv.URL+"/v1/world/queue/publish", object{"queueName": "__wkf_workflow_order", "message": object{"runId": fmt.Sprint(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 50 {
		m := next(first)
		if m.Attempt != 1 || held[m.ID] {
			t.Errorf("message %s comes with attempt %d", m.ID, m.Attempt)
		}
		held[m.ID] = true
	}
	_, second := node(t, "test/app.js", env...)
	next(second)
	select {
	case line := <-second:
		t.Errorf("the second worker gets %s while the first one is alive", line)
	case <-time.After(visibility + visibility/2):
	}
	kill()
	for len(held) > 0 {
		m := next(second)
		if m.Attempt != 2 || !held[m.ID] {
			t.Errorf("message %s comes with attempt %d", m.ID, m.Attempt)
		}
		delete(held, m.ID)
	}
}

const (
	serverEnv = "WEFT_NPM_SERVER" // makes this program a server
	serving   = "serving"         // it prints that when it does
)

// A plan says what a server process serves.
type plan struct{ Kind, At, Address string }

func (p plan) open(ctx context.Context) (storage.Storage, error) {
	switch p.Kind {
	case "sqlite":
		return sqlite.Open(p.At, nil)
	case "bolt":
		return bolt.Open(p.At, nil)
	default:
		return postgres.Open(ctx, p.At, nil)
	}
}

// serveAlways serves a world until the process is killed.
func serveAlways(text string) error {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	s, err := p.open(context.Background())
	if err != nil {
		return err
	}
	v, err := newServer(s, world.Options{Visibility: 2 * time.Second})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", p.Address)
	if err != nil {
		return err
	}
	fmt.Println(serving)
	return http.Serve(l, v.handler)
}

// start starts a server process, and returns how to kill it.
func (p plan) start(t *testing.T) (kill func()) {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), serverEnv+"="+string(text))
		var stderr bytes.Buffer
		c.Stderr = &stderr
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err == nil && strings.TrimSpace(line) == serving {
			return func() {
				_ = c.Process.Kill()
				_ = c.Wait()
			}
		}
		_ = c.Wait()
		if time.Now().After(deadline) {
			t.Fatalf("the server does not start: %s", stderr.Bytes())
		}
	}
}

// The server is killed again and again while workflows of the runtime's suite run: every run ends, and its log is dense.
func TestServerIsKilled(t *testing.T) {
	needNPM(t)
	kills, kinds := 4, []string{"sqlite"}
	if torturing() {
		kills, kinds = 50, []string{"sqlite", "bolt", "postgres"}
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			port, err := freeport.Find()
			if err != nil {
				t.Fatal(err)
			}
			p := plan{Kind: kind, At: filepath.Join(t.TempDir(), "store"), Address: freeport.Address(port)}
			if kind == "postgres" {
				p.At = pgtest.URL(t)
			}
			serverIsKilled(t, p, kills)
		})
	}
}

// suiteApp starts the app of the runtime's suite, and returns its URL.
func suiteApp(t *testing.T, world string) (url string) {
	t.Helper()
	_, lines := node(t, "node_modules/@workflow/world-testing/dist/src/server.mjs", "WORKFLOW_TARGET_WORLD=./index.js", "WEFT_WORLD_URL="+world, "PORT=0")
	for line := range lines {
		if m := regexp.MustCompile(`listening on .*:(\d+)$`).FindStringSubmatch(line); m != nil {
			url = "http://localhost:" + m[1]
		}
		if strings.Contains(line, "background tasks started") {
			break
		}
	}
	go func() {
		for range lines { // nobody reads the rest
		}
	}()
	return url
}

func serverIsKilled(t *testing.T, p plan, kills int) {
	kill := p.start(t)
	t.Cleanup(func() { kill() })
	app := suiteApp(t, "http://"+p.Address)
	workflows := []object{
		{"file": "workflows/addition.ts", "workflow": "addition", "args": []int{1, 2}},
		{"file": "workflows/inline-execution.ts", "workflow": "sequentialStepsWorkflow", "args": []int{10}},
		{"file": "workflows/inline-execution.ts", "workflow": "sequentialStepsWithStreamWorkflow", "args": []int{}},
		{"file": "workflows/inline-execution.ts", "workflow": "parallelStepsWorkflow", "args": []int{}},
		{"file": "workflows/inline-execution.ts", "workflow": "sleepWorkflow", "args": []int{}},
		{"file": "workflows/lineage.ts", "workflow": "chainRoot", "args": []int{}},
	}
	started := 0
	for n := range kills {
		for _, w := range workflows {
			if _, err := post(t.Context(), app+"/invoke", w); err != nil {
				t.Logf("a run may have been started or not: %v", err) // the server was away for too long
			} else {
				started++
			}
			if w["workflow"] == workflows[n%len(workflows)]["workflow"] { // at another place each time
				kill()
				kill = p.start(t)
			}
		}
	}
	world := "http://" + p.Address + "/v1/world/"
	deadline := time.Now().Add(2 * time.Minute)
	var all []any
	for {
		var open []string
		all = nil
		page := object{"limit": 1000}
		got, err := post(t.Context(), world+"runs/list", object{"pagination": page, "resolveData": "none"})
		if err != nil {
			t.Fatal(err)
		}
		all = got["data"].([]any)
		for _, r := range all {
			if r := r.(object); r["status"] != "completed" {
				open = append(open, fmt.Sprint(r["runId"], " ", r["status"], " ", r["workflowName"]))
			}
		}
		if len(open) == 0 && len(all) >= started {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d runs have not completed: %q", len(open), len(all), open)
		}
		time.Sleep(100 * time.Millisecond)
	}
	events := 0
	for _, r := range all {
		id := r.(object)["runId"]
		got, err := post(t.Context(), world+"events/list", object{"runId": id, "pagination": object{"limit": 1000, "sortOrder": "asc"}})
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range got["data"].([]any) {
			n, err := ids.Number(ids.Event, e.(object)["eventId"].(string))
			if err != nil || n != uint64(i+1) {
				t.Errorf("run %v: event %d has the number %d, %v", id, i+1, n, err)
			}
			events++
		}
	}
	t.Logf("%d kills, %d runs, %d events", kills, len(all), events)
}
