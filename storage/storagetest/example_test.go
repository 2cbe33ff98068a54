package storagetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// This call tests what one process can see of an adapter. What remains is in CONTRIBUTING.md.
func ExampleRun() {
	_ = func(t *testing.T) {
		storagetest.Run(t, storagetest.Adapter{
			Open: func(t testing.TB) storage.Storage { return new(memory.Store) },
			Want: &storage.Capabilities{
				ConditionalBatch: true,
				AtomicBatch:      true,
				ReadAfterWrite:   true,
				ScanConsistency:  storage.Snapshot,
				MaxBatch:         storage.Size{Ops: 10_000, Bytes: 64 << 20},
			},
		})
	}
}

// The process crashes after its second commit. Its successor finds both writes.
func ExampleFaulty() {
	ctx := context.Background()
	disk := new(memory.Store)
	commits := 0
	process := storagetest.NewFaulty(disk, func(c storagetest.Call) storagetest.Fault {
		if c.Method == "Commit" {
			commits++
		}
		if commits == 2 {
			return storagetest.CrashAfter
		}
		return storagetest.None
	})
	for _, order := range []string{"order:1", "order:2", "order:3"} {
		err := process.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put([]byte(order), []byte("paid"))}})
		fmt.Println(order, "crashed:", errors.Is(err, storagetest.ErrCrashed))
	}

	next := storagetest.NewFaulty(disk, nil)
	page, err := next.Scan(ctx, storage.Range{})
	fmt.Println(len(page), "orders,", err)
	// Output:
	// order:1 crashed: false
	// order:2 crashed: true
	// order:3 crashed: true
	// 2 orders, <nil>
}

// A feature that needs conditions reports a missing capability before it starts.
func ExampleNoConditions() {
	store := storagetest.NoConditions(new(memory.Store))
	fmt.Println(storage.Require(store, "signal idempotency", "conditionalBatch"))
	// Output:
	// storage: signal idempotency needs conditionalBatch, which *memory.Store does not have
}
