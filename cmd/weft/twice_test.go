package main_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// ask makes a request, and returns the status and the body of the answer.
func (x *planeShell) ask(secret, method, path, idempotencyKey, body string) (status int, text string, header http.Header) {
	x.t.Helper()
	q, err := http.NewRequest(method, x.url+path, strings.NewReader(body))
	if err != nil {
		x.t.Error(err)
		return 0, "", nil
	}
	q.Header.Set("Authorization", "Bearer "+secret)
	if body != "" {
		q.Header.Set("Content-Type", "application/json")
	}
	if idempotencyKey != "" {
		q.Header.Set("Idempotency-Key", idempotencyKey)
	}
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		x.t.Error(err)
		return 0, "", nil
	}
	defer a.Body.Close()
	data, err := io.ReadAll(a.Body)
	if err != nil {
		x.t.Error(err)
	}
	return a.StatusCode, string(data), a.Header
}

// Two processes serve one store at the same time, as they do during a release. 64 equal starts at once, 32 at each, make
// one run, and have equal answers. A key that one of them has revoked is refused by the next request to the other.
// Both together let as many requests of a key pass as one alone. HTTP-7, HTTP-49, HTTP-86
func TestTwoServers(t *testing.T) {
	for _, name := range []string{"sqlite", "postgres"} {
		t.Run(name, func(t *testing.T) {
			const limit = 80
			const first, second = "weft_sk_0123456789abcdef0123456789", "weft_sk_abcdef01234567890123456789"
			s := shell{t: t, program: program(t), store: newKind(t, name).store}
			keys := filepath.Join(t.TempDir(), "keys.json")
			text := fmt.Sprintf(`[{"id":"shop","secret":%q,"scopes":["admin"]},{"id":"reader","secret":%q,"scopes":["runs:read"]}]`, first, second)
			if err := os.WriteFile(keys, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			var servers [2]*planeShell
			for i := range servers {
				servers[i] = &planeShell{shell: s, keys: keys, log: new(bytes.Buffer)}
				servers[i].begin(nil, "--deployment", "shop-1", "--rate-limit", fmt.Sprint(limit))
			}
			// each has so many clients call f n times, at once, one half of them at each server.
			each := func(clients, n int, f func(x *planeShell)) {
				var all sync.WaitGroup
				defer all.Wait()
				begin := make(chan struct{})
				for i := range clients {
					all.Go(func() {
						<-begin
						for range n / clients {
							f(servers[i%2])
						}
					})
				}
				close(begin)
			}
			var mu sync.Mutex

			answers, replayed := map[string]int{}, 0
			each(64, 64, func(x *planeShell) {
				status, text, header := x.ask(first, "POST", "/v1/runs", "order-42", `{"workflowName":"checkout","input":{"cents":4900}}`)
				mu.Lock()
				defer mu.Unlock()
				answers[fmt.Sprint(status, " ", text)]++
				if header.Get("Idempotent-Replayed") == "true" {
					replayed++
				}
			})
			if len(answers) != 1 || !strings.HasPrefix(fmt.Sprint(answers), "map[201 ") || replayed != 63 {
				t.Errorf("the answers to 64 equal starts are %v, and %d say that they were given before, want 63", answers, replayed)
			}
			for _, x := range servers {
				if got := x.done("runs", "list", "--json"); strings.Count(got, "\n") != 0 || !strings.Contains(got, `"deployment":"shop-1"`) {
					t.Errorf("the runs are %s", got)
				}
			}

			passed, refused := map[string]int{}, map[string]int{} // by the end of the window
			each(16, limit+48, func(x *planeShell) {
				status, text, header := x.ask(second, "GET", "/v1/runs", "", "")
				mu.Lock()
				defer mu.Unlock()
				switch window := header.Get("X-RateLimit-Reset"); status {
				case http.StatusOK:
					passed[window]++
				case http.StatusTooManyRequests:
					refused[window]++
				default:
					t.Errorf("answered %d %s", status, text)
				}
			})
			for window, n := range passed { // a minute may have ended meanwhile
				if want := min(n+refused[window], limit); n != want {
					t.Errorf("in the window until %s %d passed and %d were refused, want %d to pass", window, n, refused[window], want)
				}
			}

			made := servers[0].done("keys", "create", "spare", "--scope", "runs:read")
			for i, x := range servers { // each has seen it
				if status, text, _ := x.ask(made, "GET", "/v1/runs", "", ""); status != http.StatusOK {
					t.Errorf("server %d with a new key: %d %s", i, status, text)
				}
			}
			servers[0].done("keys", "revoke", "spare")
			for i, x := range []*planeShell{servers[1], servers[0]} {
				if status, text, _ := x.ask(made, "GET", "/v1/runs", "", ""); status != http.StatusUnauthorized {
					t.Errorf("with a revoked key, server %d: %d %s", 1-i, status, text)
				}
			}
			for _, x := range servers {
				x.stop()
			}
		})
	}
	http.DefaultClient.CloseIdleConnections()
}
