package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
)

func TestMain(m *testing.M) { leaks.Main(pgtest.Tests{M: m}) }

// started starts a server and returns its address, and what stops it.
func started(t *testing.T, store string) (url string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := settings{store: store, listen: "127.0.0.1:0", deployment: "local", token: "secret"}.serve(ctx, write)
		write.CloseWithError(io.EOF)
		ended <- err
	}()
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v, %v", store, err, <-ended)
	}
	_, url, _ = strings.Cut(strings.TrimSpace(line), "at ")
	return url, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", store, err)
		}
	}
}

// call makes a call in JSON, and returns the answer as JSON.
func call(t *testing.T, url, path, token, body string) (int, string) {
	t.Helper()
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url+"/v1/world/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// The server serves who knows the token. What it answered is there after a restart, and a stop ends who waits.
func TestServer(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	dir := t.TempDir()
	for kind, store := range map[string]string{"memory": "memory:", "sqlite": "sqlite:" + filepath.Join(dir, "w.db"), "bolt": "bolt:" + filepath.Join(dir, "w.bolt"), "postgres": pgtest.URL(t)} {
		t.Run(kind, func(t *testing.T) {
			url, stop := started(t, store)
			if status, _ := call(t, url, "deployment-id", "other", ""); status != http.StatusUnauthorized {
				t.Errorf("with another token: %d", status)
			}
			if status, body := call(t, url, "deployment-id", "secret", ""); status != 200 || body != `{"deploymentId":"local"}` {
				t.Errorf("the deployment: %d %s", status, body)
			}
			for path, body := range map[string]string{
				"events/create": `{"runId":"wrun_1","data":{"eventType":"run_created","specVersion":3,"eventData":{"workflowName":"order","deploymentId":"local","input":[1]}}}`,
				"streams/write": `{"runId":"wrun_1","name":"words","chunks":["a"]}`,
				"queue/publish": `{"queueName":"__wkf_workflow_order","message":{"runId":"wrun_1"}}`,
			} {
				if status, text := call(t, url, path, "secret", body); status != 200 {
					t.Errorf("%s: %d %s", path, status, text)
				}
			}
			if kind == "memory" {
				stop()
				return
			}
			stop()
			url, stop = started(t, store)
			_, text := call(t, url, "runs/get", "secret", `{"id":"wrun_1"}`)
			var run struct{ Status, WorkflowName string }
			if err := json.Unmarshal([]byte(text), &run); err != nil || run.Status != "pending" || run.WorkflowName != "order" {
				t.Errorf("after a restart: %s, %v", text, err)
			}
			if _, text := call(t, url, "queue/receive", "secret", `{"max":1}`); !strings.Contains(text, `"runId":"wrun_1"`) {
				t.Errorf("after a restart: %s", text)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/world/streams/read", strings.NewReader(`{"runId":"wrun_1","name":"words","startIndex":1}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer secret")
			r.Header.Set("Content-Type", "application/json")
			answer, err := http.DefaultClient.Do(r) // its head comes before there is a chunk
			if err != nil || answer.StatusCode != 200 {
				t.Fatalf("%+v, %v", answer, err)
			}
			defer answer.Body.Close()
			begun := time.Now()
			stop()
			if rest, _ := io.ReadAll(answer.Body); len(rest) > 0 || time.Since(begun) > 9*time.Second { // the server would wait 10 s for it
				t.Errorf("a reader that waits at the stop got %x after %v", rest, time.Since(begun))
			}
		})
	}
	if err := (settings{store: "memory:"}).serve(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "WEFT_WORLD_TOKEN") {
		t.Errorf("without a token: %v", err)
	}
	sqlite := "sqlite:" + filepath.Join(dir, "taken.db")
	_, stop := started(t, sqlite)
	if err := (settings{store: sqlite, token: "t"}).serve(t.Context(), io.Discard); !errors.Is(err, storage.ErrInUse) || !strings.Contains(err.Error(), "-shared") {
		t.Errorf("a second server on one file: %v", err)
	}
	stop()
	if err := (settings{store: "other:", token: "t"}).serve(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "the store is") {
		t.Errorf("with an unknown store: %v", err)
	}
}
