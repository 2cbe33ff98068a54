package postgres_test

import (
	"fmt"
	"testing"

	"github.com/weft-go/weft/internal/inturn"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/storagetest"
)

func openTwo(t testing.TB, url, schema string) storage.Storage {
	o := &postgres.Options{Schema: schema}
	return inturn.New(schema, open(t, url, o), open(t, url, o))
}

// The suite on two stores, as in two processes.
func TestStorageOfTwo(t *testing.T) {
	url, n := pgtest.URL(t), 0
	storagetest.Run(t, storagetest.Adapter{
		Open: func(t testing.TB) storage.Storage {
			n++
			return openTwo(t, url, fmt.Sprint("store", n))
		},
		Reopen: func(t testing.TB, s storage.Storage) storage.Storage { return openTwo(t, url, s.(*inturn.Stores).Name) },
	})
}
