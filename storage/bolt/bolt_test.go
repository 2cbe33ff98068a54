package bolt_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/storagetest"
)

func TestMain(m *testing.M) { torture.Main(m, openDefault) }

func openDefault(path string) (storage.Storage, error) {
	s, err := bolt.Open(path, nil)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func open(t testing.TB, path string, o *bolt.Options) *bolt.Store {
	t.Helper()
	s, err := bolt.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "store.db") }

func TestStorage(t *testing.T) {
	paths := map[storage.Storage]string{}
	at := func(t testing.TB, path string) storage.Storage {
		s := open(t, path, nil)
		paths[s] = path
		return s
	}
	storagetest.Run(t, storagetest.Adapter{
		Open:   func(t testing.TB) storage.Storage { return at(t, newPath(t)) },
		Reopen: func(t testing.TB, s storage.Storage) storage.Storage { return at(t, paths[s]) },
		Want: &storage.Capabilities{
			ConditionalBatch: true,
			AtomicBatch:      true,
			ReadAfterWrite:   true,
			ScanConsistency:  storage.Snapshot,
			Durable:          true,
			MaxBatch:         storage.Size{Ops: 10_000, Bytes: 64 << 20},
		},
	})
}

func TestAcknowledgedSurvivesKill(t *testing.T) { torture.Kill(t, openDefault) }

func TestFullDiskIsAnErrorAndPasses(t *testing.T) { torture.Full(t, openDefault) }

func TestRangeAndPutHaveAnOrder(t *testing.T) { torture.RangeAndPut(t, open(t, newPath(t), nil)) }

func TestDamagedFile(t *testing.T) {
	torture.Damage(t, 1000, openDefault, func(path string) {
		s := open(t, path, nil)
		torture.Fill(t, s)
		s.Close()
		cutToSize(t, path)
	})
}

// cutToSize removes the space that bbolt reserved at the end of a file, where damage would
// have no effect.
func cutToSize(t *testing.T, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	var size int64
	db.View(func(tx *bbolt.Tx) error {
		size = tx.Size()
		return nil
	})
	if err := errors.Join(db.Close(), os.Truncate(path, size)); err != nil {
		t.Fatal(err)
	}
}

// What is acknowledged must be in the file that others open.
func TestNothingIsAcknowledgedOfAFileThatMoved(t *testing.T) { torture.Moved(t, openDefault) }
