package memory_test

import (
	"testing"

	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestStorage(t *testing.T) {
	storagetest.Run(t, storagetest.Adapter{
		Open: func(testing.TB) storage.Storage { return new(memory.Store) },
		Want: &storage.Capabilities{ // CAP-10
			ConditionalBatch: true,
			AtomicBatch:      true,
			ReadAfterWrite:   true,
			ScanConsistency:  storage.Snapshot,
			MaxBatch:         storage.Size{Ops: 10_000, Bytes: 64 << 20},
		},
	})
}
