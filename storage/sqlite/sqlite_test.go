package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/storage/storagetest"
)

func TestMain(m *testing.M) { torture.Main(m, openDefault) }

func openDefault(path string) (storage.Storage, error) {
	s, err := sqlite.Open(path, nil)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// openRelaxed is for tests that do not depend on durability and open a store often.
func openRelaxed(path string) (storage.Storage, error) {
	s, err := sqlite.Open(path, &sqlite.Options{Relaxed: true})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func open(t testing.TB, path string, o *sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "store.db") }

func TestStorage(t *testing.T) {
	durable := storage.Capabilities{
		ConditionalBatch: true,
		AtomicBatch:      true,
		ReadAfterWrite:   true,
		ScanConsistency:  storage.Snapshot,
		Durable:          true,
		MaxBatch:         storage.Size{Ops: 10_000, Bytes: 64 << 20},
	}
	relaxed := durable
	relaxed.Durable = false
	t.Run("full", func(t *testing.T) { runSuite(t, newPath, nil, durable) })
	t.Run("relaxed", func(t *testing.T) { runSuite(t, newPath, &sqlite.Options{Relaxed: true}, relaxed) })
	t.Run("earlier table", func(t *testing.T) { runSuite(t, newEarlier, &sqlite.Options{Relaxed: true}, relaxed) })
}

// newEarlier returns the path of a new file with the table of earlier releases.
func newEarlier(t testing.TB) string {
	t.Helper()
	path := newPath(t)
	db := host(t, path)
	exec(t, db, `CREATE TABLE weft (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func runSuite(t *testing.T, newPath func(testing.TB) string, o *sqlite.Options, want storage.Capabilities) {
	paths := map[storage.Storage]string{}
	at := func(t testing.TB, path string) storage.Storage {
		s := open(t, path, o)
		paths[s] = path
		return s
	}
	storagetest.Run(t, storagetest.Adapter{
		Open:   func(t testing.TB) storage.Storage { return at(t, newPath(t)) },
		Reopen: func(t testing.TB, s storage.Storage) storage.Storage { return at(t, paths[s]) },
		Want:   &want,
	})
}

func TestAcknowledgedSurvivesKill(t *testing.T) { torture.Kill(t, openDefault) }

func TestRelaxedSurvivesKill(t *testing.T) { torture.Kill(t, openRelaxed) }

func TestFullDiskIsAnErrorAndPasses(t *testing.T) { torture.Full(t, openDefault) }

func TestRangeAndPutHaveAnOrder(t *testing.T) { torture.RangeAndPut(t, open(t, newPath(t), nil)) }

// What is acknowledged must be in the file that others open.
func TestNothingIsAcknowledgedOfAFileThatMoved(t *testing.T) { torture.Moved(t, openDefault) }

func TestNothingIsAcknowledgedOfASharedFileThatMoved(t *testing.T) {
	torture.Moved(t, func(path string) (storage.Storage, error) { return sqlite.Open(path, shared) })
}
