// Package w5 reaches outside.
package w5

import (
	"archive/zip"
	"context"
	"crypto/tls"
	"database/sql"
	"fmt"
	html "html/template"
	"io"
	"log/syslog"
	"net"
	"net/http"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"text/template"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/client"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/stream"
)

func requests(run *engine.Run) (*http.Response, error) {
	return http.Get("http://example.com") // want `http.Get in workflow code: a replay does it again and may get another answer; do it in an activity or an engine.Step \(W5\)`
}

func httpClient(run *engine.Run, c *http.Client, r *http.Request) (*http.Response, error) {
	return c.Do(r) // want `http.Client.Do in workflow code`
}

func dials(run *engine.Run) (net.Conn, error) {
	return net.Dial("tcp", "example.com:80") // want `net.Dial in workflow code`
}

func resolves(run *engine.Run, r *net.Resolver) ([]string, error) {
	return r.LookupHost(nil, "example.com") // want `net.Resolver.LookupHost in workflow code`
}

func reads(run *engine.Run) ([]byte, error) {
	return os.ReadFile("config") // want `os.ReadFile in workflow code`
}

func writes(run *engine.Run, f *os.File) error {
	_, err := f.WriteString("done") // want `os.File.WriteString in workflow code`
	return err
}

func executes(run *engine.Run) ([]byte, error) {
	return exec.Command("date").Output() // want `exec.Command in workflow code`
}

func queries(run *engine.Run, db *sql.DB) (n int, err error) {
	row := db.QueryRow("SELECT 1") // want `sql.DB.QueryRow in workflow code`
	return n, row.Scan(&n)         // want `sql.Row.Scan in workflow code`
}

func environment(run *engine.Run) string {
	return os.Getenv("REGION") // want `os.Getenv in workflow code: it may differ where the run is replayed; read it in an engine.Step, or before the engine starts`
}

func host(run *engine.Run) (string, error) {
	return os.Hostname() // want `os.Hostname in workflow code`
}

func args(run *engine.Run) string {
	return os.Args[1] // want `os.Args in workflow code`
}

func processors(run *engine.Run) int {
	return runtime.NumCPU() // want `runtime.NumCPU in workflow code`
}

func globs(run *engine.Run) ([]string, error) {
	return filepath.Glob("*.csv") // want `filepath.Glob in workflow code`
}

func templates(run *engine.Run) error {
	t, err := template.ParseFiles("a.tmpl") // want `template.ParseFiles in workflow code`
	if err != nil {
		return err
	}
	if _, err := t.ParseGlob("*.tmpl"); err != nil { // want `template.Template.ParseGlob in workflow code`
		return err
	}
	_, err = html.ParseFiles("a.html") // want `template.ParseFiles in workflow code`
	return err
}

func archives(run *engine.Run) (*zip.ReadCloser, error) {
	return zip.OpenReader("a.zip") // want `zip.OpenReader in workflow code`
}

func certificates(run *engine.Run) (tls.Certificate, error) {
	return tls.LoadX509KeyPair("a.crt", "a.key") // want `tls.LoadX509KeyPair in workflow code`
}

func talks(run *engine.Run) (*textproto.Conn, error) {
	return textproto.Dial("tcp", "example.com:25") // want `textproto.Dial in workflow code`
}

func logs(run *engine.Run, w *syslog.Writer) error {
	return w.Info("a") // want `syslog.Writer.Info in workflow code`
}

func asks(run *engine.Run) (s string, err error) {
	_, err = fmt.Scanln(&s) // want `fmt.Scanln in workflow code`
	return s, err
}

func exits(run *engine.Run) {
	os.Exit(1) // want `os.Exit in workflow code`
}

var (
	paid  = &signal.Signal[int]{Name: "paid"}
	other = &engine.Workflow[int, int]{Name: "other", Func: func(run *engine.Run, n int) (int, error) { return n, nil }}
)

// A client in a workflow acts beside the history.
func clients(run *engine.Run, eng *engine.Engine) error {
	h, err := other.Start(context.Background(), eng, "other-1", 1) // want `engine.Workflow.Start in workflow code: it acts beside the history`
	if err != nil {
		return err
	}
	if _, err := h.Result(context.Background()); err != nil { // want `engine.Handle.Result in workflow code`
		return err
	}
	_, err = paid.Send(context.Background(), eng, "x", 1, nil) // want `signal.Signal.Send in workflow code`
	return err
}

func remote(run *engine.Run, c *client.Client) error {
	return c.Terminate(context.Background(), "x", engine.Actor{}) // want `client.Client.Terminate in workflow code: it acts beside the history`
}

var words = &stream.Stream[string]{Name: "words"}

func readsStream(run *engine.Run, eng *engine.Engine) (s string) {
	for c := range words.Read(context.Background(), eng, "x", 0) { // want `stream.Stream.Read in workflow code`
		s += c.Data
	}
	return s
}

func once(run *engine.Run, e *idempotency.Effect[int, int], l *idempotency.Ledger, k idempotency.Key) error {
	_, err := e.Do(context.Background(), l, k, 1) // want `idempotency.Effect.Do in workflow code`
	return err
}

func closes(run stream.Runner) string {
	return os.Getenv("REGION") // want `os.Getenv in workflow code`
}

// A function with a context that the workflow calls itself.
func callsDirectly(run *engine.Run) (string, error) { return fetch(context.Background()) }

func fetch(ctx context.Context) (string, error) {
	r, err := http.Get("http://example.com") // want `http.Get in workflow code \(callsDirectly calls fetch\)`
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return string(b), err
}

var region = os.Getenv("REGION")

func variable(run *engine.Run) string {
	return region // want `region, whose value uses os.Getenv \(fault.go:\d+\), in workflow code: it may differ`
}

func reached(run *engine.Run) string { return regionOf() }

func regionOf() string {
	return region // want `region, whose value uses os.Getenv .* \(reached calls regionOf\)`
}

// The name of a definition is compared, and the id of a child.
var (
	regional = &activity.Activity[int, int]{Name: "charge-" + os.Getenv("REGION")}
	child1   = other.AsChild(engine.ChildOptions{ID: os.Getenv("CHILD")})
	plain    = &activity.Activity[int, int]{Name: "charge"}
	keyed    = plain.With(activity.Options{IdempotencyKey: "shop-" + os.Getenv("REGION")})
	built    = &engine.Workflow[int, int]{Name: "built", Func: buildFor(os.Getenv("MODE"))}
)

func buildFor(mode string) func(*engine.Run, int) (int, error) {
	return func(*engine.Run, int) (int, error) { return len(mode), nil }
}

func computedKey(run *engine.Run) (int, error) {
	return keyed.Do(run, 1) // want `keyed, whose value uses os.Getenv`
}

func computedFunc(run *engine.Run) (int, error) {
	return built.Do(run, 1) // want `built, whose value uses os.Getenv`
}

func computedName(run *engine.Run) (int, error) {
	return regional.Do(run, 1) // want `regional, whose value uses os.Getenv`
}

func computedID(run *engine.Run) (int, error) {
	return child1.Do(run, 1) // want `child1, whose value uses os.Getenv`
}

func localTime(run *engine.Run) bool {
	return run.Now().Local().Hour() < 8 // want `time.Time.Local in workflow code: each machine has a time zone of its own; use UTC, or a zone with a name \(W5\)`
}

func localDate(run *engine.Run) time.Time {
	return time.Date(2026, 1, 1, 8, 0, 0, 0, time.Local) // want `time.Local in workflow code`
}
