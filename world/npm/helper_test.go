package npm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/world"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(serverEnv); text != "" {
		fmt.Fprintln(os.Stderr, serveAlways(text))
		os.Exit(1)
	}
	os.Exit(pgtest.Main(m))
}

// needNPM skips a test if the npm packages are not installed. In CI it fails.
func needNPM(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts Node")
	}
	if _, err := os.Stat(filepath.Join("node_modules", ".package-lock.json")); err == nil {
		return
	}
	const missing = "the npm packages are not installed: npm ci --ignore-scripts in world/npm"
	if os.Getenv("CI") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

func torturing() bool { return os.Getenv("WEFT_TORTURE") != "" }

func onSQLite(t *testing.T, f func(t *testing.T, s storage.Storage)) {
	t.Run("sqlite", func(t *testing.T) {
		s, err := sqlite.Open(filepath.Join(t.TempDir(), "store"), nil)
		f(t, opened(t, s, err))
	})
}

// onSome runs a test on SQLite, and with WEFT_TORTURE on each adapter.
func onSome(t *testing.T, f func(t *testing.T, s storage.Storage)) {
	if torturing() {
		onAdapters(t, f)
	} else {
		onSQLite(t, f)
	}
}

// onAdapters runs a test on a new store of each adapter.
func onAdapters(t *testing.T, f func(t *testing.T, s storage.Storage)) {
	onSQLite(t, f)
	t.Run("bolt", func(t *testing.T) {
		s, err := bolt.Open(filepath.Join(t.TempDir(), "store"), nil)
		f(t, opened(t, s, err))
	})
	t.Run("postgres", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), pgtest.URL(t), nil)
		f(t, opened(t, s, err))
	})
}

func opened[S storage.Storage](t *testing.T, s S, err error) storage.Storage {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// A server serves a world.
type server struct {
	URL     string
	handler http.Handler
	active  atomic.Value // the deployment that is active
	close   func()
}

// newServer returns a server of the world in s, whose messages are held for visibility.
func newServer(s storage.Storage, o world.Options) (*server, error) {
	v := &server{}
	v.active.Store("blue")
	o.Deployment = func(context.Context) (string, error) { return v.active.Load().(string), nil }
	w, err := world.Open(s, &o)
	if err != nil {
		return nil, err
	}
	v.close = w.Close
	m := http.NewServeMux()
	m.Handle("/", w.Handler())
	m.HandleFunc("POST /test/activate/{deployment}", func(_ http.ResponseWriter, r *http.Request) { v.active.Store(r.PathValue("deployment")) })
	v.handler = m
	return v, nil
}

// serve serves the world in s until the test ends.
func serve(t *testing.T, s storage.Storage, o world.Options) *server {
	t.Helper()
	v, err := newServer(s, o)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(v.handler)
	t.Cleanup(func() {
		srv.CloseClientConnections() // of those who wait for messages
		srv.Close()
		v.close()
	})
	v.URL = srv.URL
	return v
}

// vitest runs the tests in a file and returns how many have passed. A test that has not fails t.
func vitest(t *testing.T, file string, env ...string) (passed int) {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.json")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join("node_modules", ".bin", "vitest"), "run", "--reporter=default", "--reporter=json", "--outputFile.json="+report, file)
	c.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	c.WaitDelay = time.Second
	err := c.Run()
	raw, readErr := os.ReadFile(report)
	if err != nil || readErr != nil {
		t.Errorf("vitest %s: %v, %v\n%s", file, err, readErr, out.Bytes())
	}
	var got struct{ NumPassedTests int }
	if json.Unmarshal(raw, &got) != nil {
		t.Errorf("vitest %s: the report cannot be read: %s", file, raw)
	}
	return got.NumPassedTests
}
