package control

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// Stores opens a new store of each kind.
var Stores = map[string]func(t *testing.T) (storage.Storage, error){
	"memory": func(*testing.T) (storage.Storage, error) { return new(memory.Store), nil },
	"sqlite": func(t *testing.T) (storage.Storage, error) {
		return sqlite.Open(filepath.Join(t.TempDir(), "store"), nil)
	},
	"bolt": func(t *testing.T) (storage.Storage, error) {
		return bolt.Open(filepath.Join(t.TempDir(), "store"), nil)
	},
	"postgres": func(t *testing.T) (storage.Storage, error) {
		return postgres.Open(context.Background(), pgtest.URL(t), nil)
	},
}

// EachStore runs f on a new store of each kind.
func EachStore(t *testing.T, f func(t *testing.T, s storage.Storage)) {
	t.Helper()
	for name, open := range Stores {
		t.Run(name, func(t *testing.T) {
			s, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() }) // after those of f
			f(t, s)
		})
	}
}
