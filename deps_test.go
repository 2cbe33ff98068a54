package weft_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/weft-go/weft"

// arrows says which packages of this module, and which of others, a package may
// import. To add one is a decision, and this is where it is made. "..." stands
// for everything below.
var arrows = map[string][]string{
	".":                                  {"activity", "checkpoint", "signal", "internal/cron", "internal/jsontext"},
	"internal/cron":                      {"github.com/netresearch/go-cron"},
	"internal/bulk":                      {".", "storage", "checkpoint", "activity", "signal", "internal/acceptance", "internal/admin", "internal/inspect", "internal/backoff", "internal/digest", "internal/intake", "internal/worker", "internal/run", "internal/payload", "internal/waiting", "internal/keys", "internal/lock", "internal/namespace", "internal/reads", "internal/record", "internal/saturate", "internal/journal", "internal/settle"},
	"internal/schedule":                  {".", "storage", "checkpoint", "internal/admin", "internal/cron", "internal/digest", "internal/intake", "internal/worker", "internal/run", "internal/payload", "internal/waiting", "internal/keys", "internal/lock", "internal/reads", "internal/record", "internal/saturate", "internal/journal", "internal/settle", "internal/told"},
	"codec/cbor":                         {".", "internal/payload", "github.com/fxamacker/cbor/v2"},
	"future":                             {},
	"fence":                              {},
	"storage":                            {},
	"storage/memory":                     {"storage"},
	"storage/bolt":                       {"storage", "internal/filelock", "internal/group", "internal/known", "internal/place", "go.etcd.io/bbolt", "go.etcd.io/bbolt/errors", "golang.org/x/sys/unix"},
	"storage/sqlite":                     {"storage", "internal/backoff", "internal/filelock", "internal/group", "internal/known", "internal/place", "internal/stack", "modernc.org/sqlite", "modernc.org/sqlite/lib", "golang.org/x/sys/unix"},
	"storage/postgres":                   {"storage", "storage/postgres/internal/claims", "storage/postgres/internal/observed", "storage/postgres/internal/pooled", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgconn", "github.com/jackc/pgx/v5/pgxpool"},
	"storage/postgres/internal/claims":   {},
	"storage/postgres/internal/observed": {"storage", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgconn"},
	"storage/postgres/internal/pooled":   {"github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgconn"},
	"storage/storagetest":                {"storage", "internal/inturn", "github.com/google/go-cmp/cmp", "pgregory.net/rapid"},
	"internal/filelock":                  {"storage", "golang.org/x/sys/unix"},
	"internal/group":                     {"storage"},
	"internal/known":                     {"storage"},
	"internal/pgtest":                    {"internal/freeport", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgxpool"},
	"internal/keys":                      {"storage"},
	"idempotency":                        {".", "storage", "activity", "idempotency/internal/clock", "idempotency/internal/entry", "idempotency/internal/lease", "internal/backoff", "internal/canon", "internal/ids", "internal/keys", "internal/payload", "internal/reads", "internal/reconcile", "internal/record", "internal/saturate", "internal/settle"},
	"idempotency/internal/clock":         {},
	"idempotency/internal/entry":         {"storage", "internal/keys", "internal/record"},
	"idempotency/internal/lease":         {"storage", "activity", "idempotency/internal/clock", "internal/keys", "internal/record", "internal/saturate", "internal/settle", "internal/reads"},
	"internal/canon":                     {"github.com/go-json-experiment/json", "github.com/go-json-experiment/json/jsontext", "github.com/go-json-experiment/json/v1", "github.com/wI2L/jsondiff"},
	"internal/place":                     {"storage", "golang.org/x/sys/unix"},
	"internal/backoff":                   {},
	"internal/settle":                    {"storage", "internal/backoff"},
	"internal/fifo":                      {},
	"internal/reads":                     {"storage", "internal/backoff", "internal/settle", "internal/told"},
	"internal/saturate":                  {},
	"internal/told":                      {},
	"internal/record":                    {"storage", "github.com/fxamacker/cbor/v2"},
	"checkpoint":                         {},
	"signal":                             {"future"},
	"activity":                           {"future", "internal/keys"},
	"stream":                             {"activity", "future"},
	"internal/chunks":                    {"storage", "internal/follow", "internal/keys", "internal/lock", "internal/record", "internal/settle"},
	"engine":                             {".", "storage", "checkpoint", "signal", "activity", "future", "internal/admin", "internal/admission", "internal/inspect", "internal/bulk", "internal/follow", "internal/intake", "internal/schedule", "internal/upkeep", "internal/worker", "internal/run", "internal/payload", "internal/waiting", "internal/ids", "internal/keys", "internal/limits", "internal/lock", "internal/retention", "internal/journal", "internal/meta", "internal/chunks", "stream", "github.com/oklog/ulid/v2"},
	"idempotency/idemhttp":               {"idempotency", "activity", "internal/canon", "internal/httpheader", "github.com/dunglas/httpsfv"},
	"internal/httpheader":                {"github.com/dunglas/httpsfv"},
	"idempotency/webhook":                {"idempotency", "github.com/standard-webhooks/standard-webhooks/libraries/go"},
	"idempotency/consumer":               {"idempotency", "activity", "storage"},
	"control":                            {".", "control/internal/audit", "control/internal/deployments", "control/internal/forwarded", "control/internal/keyring", "control/internal/operation", "control/internal/records", "control/internal/runs", "control/wire", "engine", "idempotency", "internal/backoff", "internal/httpheader", "internal/keys", "internal/lock", "internal/record", "internal/settle", "internal/stage", "internal/worldhttp", "storage", "world", "github.com/creachadair/jrpc2", "github.com/go-json-experiment/json", "github.com/go-json-experiment/json/jsontext"},
	"control/internal/forwarded":         {},
	"control/internal/rpcfuzz":           {}, // a fuzz test
	"control/internal/operation":         {".", "activity", "control/internal/audit", "engine", "idempotency", "internal/backoff", "internal/canon", "internal/httpheader", "internal/ids", "internal/keys", "internal/lock", "internal/namespace", "internal/record", "internal/settle", "internal/stage", "signal", "storage", "github.com/go-json-experiment/json", "github.com/go-json-experiment/json/jsontext"},
	"control/internal/audit":             {"control/internal/records", "internal/backoff", "internal/keys", "internal/lock", "internal/record", "storage", "github.com/oklog/ulid/v2"},
	"control/internal/records":           {"internal/record", "storage"},
	"control/internal/keyring":           {".", "control/internal/operation", "control/internal/records", "control/wire", "internal/backoff", "internal/httpheader", "internal/ids", "internal/keys", "internal/lock", "internal/reads", "internal/record", "internal/settle", "storage"},
	"control/internal/deployments":       {".", "control/internal/operation", "control/wire", "engine", "internal/canon", "internal/deployment", "internal/journal", "internal/keys", "internal/lock", "internal/payload", "internal/record", "internal/run", "internal/stage", "storage"},
	"control/internal/runs":              {".", "activity", "checkpoint", "control/internal/deployments", "control/internal/operation", "control/wire", "engine", "internal/acceptance", "internal/bulk", "internal/chunks", "internal/inspect", "internal/journal", "internal/ids", "internal/keys", "internal/payload", "internal/record", "internal/run", "internal/stage", "signal", "storage", "stream", "world"},
	"internal/namespace":                 {},
	"internal/ids":                       {"github.com/oklog/ulid/v2"},
	"internal/queue":                     {"storage", "internal/backoff", "internal/ids", "internal/keys", "internal/reads", "internal/record", "internal/settle"},
	"world/npm":                          {"github.com/fxamacker/cbor/v2"}, // tests alone: of a package on npm
	"world":                              {"storage", "internal/backoff", "internal/queue", "internal/world", "internal/worldstream", "internal/worldhttp", "github.com/fxamacker/cbor/v2", "internal/told"},
	"internal/worldhttp":                 {".", "storage", "internal/queue", "internal/world", "internal/worldstream", "github.com/fxamacker/cbor/v2"},
	"internal/world":                     {"storage", "internal/backoff", "internal/chunks", "internal/stage", "internal/ids", "internal/keys", "internal/lock", "internal/reads", "internal/record", "internal/settle", "github.com/fxamacker/cbor/v2"},
	"internal/worldstream":               {"storage", "internal/backoff", "internal/chunks", "internal/follow", "internal/ids", "internal/keys", "internal/lock", "internal/settle", "internal/world"},
	"internal/deployment":                {"storage", "internal/journal", "internal/keys", "internal/record"},
	"internal/inspect":                   {".", "storage", "checkpoint", "stream", "internal/worker", "internal/run", "internal/membership", "internal/payload", "internal/waiting", "internal/export", "internal/follow", "internal/keys", "internal/record", "internal/saturate", "internal/acceptance", "internal/journal", "internal/meta", "internal/namespace", "internal/chunks", "github.com/oklog/ulid/v2"},
	"internal/admin":                     {".", "storage", "checkpoint", "activity", "signal", "internal/inspect", "internal/worker", "internal/run", "internal/deployment", "internal/payload", "internal/waiting", "internal/backoff", "internal/keys", "internal/record", "internal/acceptance", "internal/journal", "internal/meta", "internal/reconcile", "internal/settle", "internal/chunks"},
	"internal/upkeep":                    {"storage", "internal/admin", "internal/worker", "internal/run", "internal/acceptance", "internal/journal", "internal/keys", "internal/lock", "internal/membership", "internal/meta", "internal/reads", "internal/record", "internal/saturate", "internal/settle"},
	"internal/retention":                 {".", "storage", "checkpoint", "internal/admin", "internal/inspect", "internal/backoff", "internal/worker", "internal/run", "internal/acceptance", "internal/journal", "internal/keys", "internal/lock", "internal/reads", "internal/record", "internal/saturate"},
	"internal/intake":                    {".", "storage", "checkpoint", "signal", "internal/worker", "internal/run", "internal/payload", "internal/waiting", "internal/backoff", "internal/keys", "internal/lock", "internal/acceptance", "internal/journal", "internal/settle"},
	"internal/admission":                 {".", "storage", "activity", "internal/journal", "internal/keys", "internal/lock", "internal/record"},
	"internal/meta":                      {".", "storage", "internal/journal", "internal/keys", "internal/record", "internal/settle"},
	"internal/worker":                    {".", "storage", "checkpoint", "activity", "internal/run", "internal/admission", "internal/membership", "internal/trail", "internal/payload", "internal/backoff", "internal/keys", "internal/lock", "internal/reads", "internal/record", "internal/saturate", "internal/stack", "internal/journal", "internal/meta", "internal/settle", "internal/told"},
	"internal/run":                       {".", "storage", "checkpoint", "signal", "activity", "future", "internal/digest", "internal/payload", "internal/waiting", "internal/limits", "internal/export", "internal/backoff", "internal/keys", "internal/lock", "internal/record", "internal/saturate", "internal/acceptance", "internal/journal", "internal/reconcile", "internal/settle", "internal/namespace", "internal/chunks", "stream", "internal/told", "internal/reads", "internal/fifo"},
	"internal/journal":                   {"checkpoint", "storage", "internal/backoff", "internal/digest", "internal/keys", "internal/record", "internal/saturate", "internal/settle", "internal/namespace", "github.com/oklog/ulid/v2", "internal/chunks"},
	"internal/acceptance":                {"signal", "storage", "internal/digest", "internal/keys", "internal/record", "internal/saturate"},
	"internal/reconcile":                 {"activity", "storage", "internal/keys", "internal/record", "internal/saturate"},
	"internal/membership":                {"checkpoint", "internal/lock", "internal/record", "internal/saturate", "internal/journal"},
	"internal/trail":                     {"internal/lock", "internal/saturate"},
	"internal/follow":                    {"storage", "internal/lock"},
	"internal/waiting":                   {".", "storage", "internal/backoff", "internal/lock", "internal/settle"},
	"internal/payload":                   {".", "internal/digest", "internal/jsontext", "internal/keys", "internal/journal"},
	"internal/jsontext":                  {},
	"internal/digest":                    {"internal/canon"},
	"internal/lock":                      {},
	"internal/stack":                     {},
	"internal/limits":                    {"internal/lock"},
	"internal/export":                    {"storage", "checkpoint", "internal/journal"},
	"internal/stage":                     {"storage"},
	"internal/sweep":                     {"storage", "storage/storagetest", "checkpoint", "engine", "internal/integrity", "internal/keys", "internal/journal"},
	"internal/integrity":                 {"internal/world", "checkpoint", "storage", "internal/bulk", "internal/deployment", "internal/schedule", "internal/acceptance", "internal/journal", "internal/keys", "internal/reconcile", "internal/record", "internal/chunks"},
	"enginetest":                         {"engine", "activity", "checkpoint", "storage", "storage/memory", "storage/storagetest", "internal/sweep", "internal/run", "internal/journal", "internal/chunks", "internal/keys"},
	"internal/programs":                  {"engine", "activity", "future", "signal", "checkpoint", "storage", "storage/memory", "storage/storagetest", "internal/sweep"},
	"internal/golden":                    {"internal/record"},
	"internal/storebench":                {"storage"},
	"internal/inturn":                    {"storage"},
	"internal/linear":                    {"internal/torture", "storage", "storage/storagetest", "github.com/anishathalye/porcupine"},
	"internal/etcdtest":                  {"internal/freeport"},
	"internal/freeport":                  {},
	"internal/answers":                   {}, // for tests
	"internal/exampletest":               {},
	"internal/childproc":                 {},
	"internal/torture":                   {"internal/leaks", "storage", "golang.org/x/sys/unix"},
	"internal/leaks":                     {"go.uber.org/goleak"},
	"control/wire":                       {},
	"client":                             {".", "stream", "engine", "activity", "checkpoint", "signal", "storage", "control/wire", "internal/backoff"},
	"cmd/weft":                           {".", "stream", "engine", "activity", "checkpoint", "signal", "client", "control", "control/wire", "storage", "storage/bolt", "storage/postgres", "storage/sqlite", "github.com/alecthomas/kong"},
	"examples/crash":                     {"engine", "activity", "signal", "checkpoint", "storage", "storage/...", "internal/childproc", "internal/pgtest"},
	"examples/cluster":                   {"engine", "activity", "signal", "checkpoint", "fence", "storage", "storage/...", "internal/pgtest", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgxpool", "internal/journal"},
	"examples/payment":                   {"engine", "activity", "storage", "storage/...", "internal/childproc", "internal/pgtest"},
	"examples/crashtest":                 {"engine", "activity", "enginetest"},
	"examples/webhook":                   {"engine", "activity", "signal", "storage", "storage/...", "idempotency", "idempotency/webhook", "github.com/standard-webhooks/standard-webhooks/libraries/go"},
	"examples/consumer":                  {"activity", "storage/...", "idempotency", "idempotency/consumer"},
	"examples/ingest":                    {"storage", "storage/...", "idempotency"},
	"examples/refunds":                   {"engine", "activity", "storage", "storage/...", "idempotency", "idempotency/idemhttp", "internal/pgtest", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgxpool"},
	"examples/once":                      {"activity", "storage", "storage/...", "idempotency", "internal/pgtest", "internal/keys", "internal/record", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgxpool"},
	"examples/world":                     {"storage", "storage/...", "world", "internal/pgtest"},
	"examples/chat":                      {"engine", "activity", "stream", "storage/sqlite"},
	"examples/http":                      {"engine", "signal", "client", "control", "storage", "storage/..."},
	"examples/subscription":              {"engine", "activity", "signal", "storage", "storage/...", "internal/childproc", "internal/pgtest"},
	"examples/restarts":                  {".", "engine", "checkpoint", "signal", "client", "control/wire", "internal/freeport", "internal/pgtest"},
	"examples/...":                       {"engine", "activity", "signal", "future", "checkpoint", "storage", "storage/..."},
}

// testModules are what tests may import beyond what their package may.
var testModules = []string{
	"github.com/google/go-cmp",
	"pgregory.net/rapid",
	"github.com/anishathalye/porcupine",
	"github.com/fxamacker/cbor/v2", // to look at what is stored
	"github.com/jackc/pgx/v5",      // for transactions of the host
}

// TestArrows reads the imports of every package. Tests of a package may import
// any package of this module, and testModules.
func TestArrows(t *testing.T) {
	seen := map[string]bool{}
	for file, imports := range goFiles(t) {
		dir := path.Dir(file)
		row, allowed, ok := rowOf(dir)
		if !ok {
			t.Errorf("%s: package %s is not in the table of arrows", file, dir)
			continue
		}
		seen[row] = true
		for _, imported := range imports {
			inside, isInside := strings.CutPrefix(imported, module+"/")
			if imported == module {
				inside, isInside = ".", true
			}
			if isInside {
				imported = inside
			}
			if first, _, _ := strings.Cut(imported, "/"); !isInside && !strings.Contains(first, ".") {
				continue // the standard library
			}
			if slices.ContainsFunc(allowed, func(a string) bool { return matches(a, imported) }) {
				continue
			}
			if strings.HasSuffix(file, "_test.go") && (isInside || slices.ContainsFunc(testModules, func(m string) bool { return imported == m || strings.HasPrefix(imported, m+"/") })) {
				continue
			}
			t.Errorf("%s imports %s: there is no such arrow", file, imported)
		}
	}
	for row := range arrows {
		if !seen[row] {
			t.Errorf("the table of arrows has %s, and there is no such package", row)
		}
	}
}

// rowOf finds the row of a package: its own before one that it is below.
func rowOf(dir string) (row string, allowed []string, ok bool) {
	if allowed, ok = arrows[dir]; ok {
		return dir, allowed, true
	}
	for row, allowed := range arrows {
		if matches(row, dir) {
			return row, allowed, true
		}
	}
	return "", nil, false
}

func matches(pattern, p string) bool {
	if below, ok := strings.CutSuffix(pattern, "..."); ok {
		return strings.HasPrefix(p, below)
	}
	return pattern == p
}

// goFiles returns the imports of all Go files of this module, by path.
func goFiles(t *testing.T) map[string][]string {
	files := map[string][]string{}
	err := fs.WalkDir(os.DirFS("."), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != ".":
			_, err := os.Stat(filepath.Join(p, "go.mod"))
			if name := d.Name(); err == nil || name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
				return fs.SkipDir
			}
		case path.Ext(p) == ".go":
			f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			files[p] = []string{}
			for _, i := range f.Imports {
				imported, err := strconv.Unquote(i.Path.Value)
				if err != nil {
					return err
				}
				files[p] = append(files[p], imported)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
