package postgres_test

import (
	"testing"

	"github.com/weft-go/weft/internal/inturn"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

func openTwo(t testing.TB, url string) storage.Storage {
	return inturn.New(url, open(t, url, nil), open(t, url, nil))
}

// The suite on two stores, as in two processes.
func TestStorageOfTwo(t *testing.T) {
	storagetest.Run(t, storagetest.Adapter{
		Open:   func(t testing.TB) storage.Storage { return openTwo(t, pgtest.URL(t)) },
		Reopen: func(t testing.TB, s storage.Storage) storage.Storage { return openTwo(t, s.(*inturn.Stores).Name) },
	})
}
