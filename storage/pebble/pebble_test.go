package pebble_test

import (
	"path/filepath"
	"testing"

	"github.com/weft-go/weft/internal/linear"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/pebble"
	"github.com/weft-go/weft/storage/storagetest"
)

func TestMain(m *testing.M) { torture.Main(m, openDefault) }

func openDefault(path string) (storage.Storage, error) {
	s, err := pebble.Open(path, nil)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func open(t testing.TB, path string, o *pebble.Options) *pebble.Store {
	t.Helper()
	s, err := pebble.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "store") }

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

func TestLinearizable(t *testing.T) { linear.Check(t, open(t, newPath(t), nil)) }

func TestAcknowledgedSurvivesKill(t *testing.T) { torture.Kill(t, openDefault) }

func TestFullDiskIsAnErrorAndPasses(t *testing.T) { torture.Full(t, openDefault) }

func TestRangeAndPutHaveAnOrder(t *testing.T) { torture.RangeAndPut(t, open(t, newPath(t), nil)) }

// What is acknowledged must be in the folder that others open.
func TestNothingIsAcknowledgedOfAFolderThatMoved(t *testing.T) { torture.Moved(t, openDefault) }
