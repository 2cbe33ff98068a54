package w5

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing/fstest"
	"text/template"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/postgres"
)

func status(run *engine.Run) string { return http.StatusText(http.StatusNotFound) }

func parsesIP(run *engine.Run, s string) bool { return net.ParseIP(s).IsLoopback() }

func joins(run *engine.Run) string { return net.JoinHostPort("a", "1") }

func address(run *engine.Run, s string) (netip.Addr, error) { return netip.ParseAddr(s) }

func parsesURL(run *engine.Run, s string) (*url.URL, error) { return url.Parse(s) }

func header(run *engine.Run) string {
	h := http.Header{}
	h.Set("a", "b")
	return h.Get("a")
}

func notExist(run *engine.Run, err error) bool {
	return errors.Is(err, os.ErrNotExist) || os.IsNotExist(err)
}

func paths(run *engine.Run, p string) string { return filepath.Join(filepath.Base(p), "x") }

func formats(run *engine.Run) string { return fmt.Sprint("a") }

func readsMemory(run *engine.Run) ([]byte, error) { return io.ReadAll(strings.NewReader("a")) }

func buffers(run *engine.Run) string {
	var b bytes.Buffer
	b.WriteString("a")
	return b.String()
}

func fills(run *engine.Run, w io.Writer, files fstest.MapFS) error {
	t, err := template.New("a").Parse("{{.}}")
	if err != nil {
		return err
	}
	if t, err = t.ParseFS(files, "*.tmpl"); err != nil {
		return err
	}
	return t.Execute(w, 1)
}

func null(run *engine.Run, s sql.NullString) bool { return s.Valid && errors.Is(nil, sql.ErrNoRows) }

func inStep(run *engine.Run) (string, error) {
	return engine.Step(run, "region", func(context.Context) (string, error) { return os.Getenv("REGION"), nil })
}

func inTransaction(run *engine.Run) (int64, error) {
	return postgres.Transact(run, "insert", func(ctx context.Context, tx pgx.Tx) (int64, error) {
		r, err := tx.Exec(ctx, "INSERT INTO t VALUES (1)")
		if err != nil {
			return 0, err
		}
		return r.RowsAffected(), nil
	})
}

var fetches = &activity.Activity[string, string]{Name: "fetch", Run: func(ctx context.Context, u string) (string, error) {
	r, err := http.Get(u)
	if err != nil {
		return "", err
	}
	return r.Status, r.Body.Close()
}}

func inActivity(run *engine.Run) (string, error) { return fetches.Do(run, "http://example.com") }

var writes2 = &activity.Activity[string, string]{Name: "write", Run: func(ctx context.Context, s string) (string, error) {
	w := words.Writer(ctx)
	return s, w.Write(s)
}}

func writesStream(run *engine.Run) error {
	if _, err := writes2.Do(run, "a"); err != nil {
		return err
	}
	return words.Close(run)
}

func child(run *engine.Run) (int, error) { return other.Do(run, 1) }

func forwards(run *engine.Run) error { return paid.SendFrom(run, "x", 1) }

// No replay compares what a definition has beside its name.
var (
	limited = &activity.Activity[string, string]{Name: "limited", Timeout: seconds(os.Getenv("TIMEOUT"))}
	made    = fetcher(os.Getenv("URL"))
	all     = map[string]*activity.Activity[string, string]{"quick": limited.With(activity.Options{Timeout: seconds(os.Getenv("QUICK"))})}
)

func seconds(s string) time.Duration {
	d, _ := time.ParseDuration(s + "s")
	return d
}

func fetcher(base string) *activity.Activity[string, string] {
	return &activity.Activity[string, string]{Name: "fetcher", Run: func(ctx context.Context, path string) (string, error) { return base + path, nil }}
}

func definition(run *engine.Run) (string, error) { return limited.Do(run, "a") }

func madeByFunction(run *engine.Run) (string, error) { return made.Do(run, "a") }

func definitions(run *engine.Run) (string, error) { return all["quick"].Do(run, "a") }

var berlin, _ = time.LoadLocation("Europe/Berlin")

func zoned(run *engine.Run) (int, time.Time) {
	return run.Now().In(berlin).Hour(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
}

func main() {
	eng, err := engine.New(engine.Config{})
	if err != nil {
		os.Exit(1)
	}
	if _, err := other.Start(context.Background(), eng, "a", 1); err != nil {
		os.Exit(1)
	}
}
