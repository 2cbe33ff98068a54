package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// An opener opens a store that is kept in a directory.
type opener func(dir string) (storage.Storage, error)

// stores are the values of -store.
var stores = map[string]opener{
	"bolt":     func(dir string) (storage.Storage, error) { return bolt.Open(filepath.Join(dir, "crash.bolt"), nil) },
	"sqlite":   func(dir string) (storage.Storage, error) { return sqlite.Open(filepath.Join(dir, "crash.db"), nil) },
	"postgres": openPostgres,
}

func storeNames() string { return strings.Join(slices.Sorted(maps.Keys(stores)), ", ") }

// postgresURL is a file in the directory: where the server is.
const postgresURL = "postgres.url"

func openPostgres(dir string) (storage.Storage, error) {
	url, err := os.ReadFile(filepath.Join(dir, postgresURL))
	if err != nil {
		return nil, err
	}
	return postgres.Open(context.Background(), string(url), nil)
}

// servers start what the store in a directory needs: a server at an address, or a private one if
// that is empty, which ends with the program.
var servers = map[string]func(dir, url string) (stop func(), err error){"postgres": servePostgres}

// serve starts a server for the store in dir, if it needs one.
func serve(store, dir, url string) (stop func(), err error) {
	if start, ok := servers[store]; ok {
		return start(dir, url)
	}
	return func() {}, nil
}

func servePostgres(dir, url string) (stop func(), err error) {
	stop = func() {}
	if url == "" {
		var server *pgtest.Server
		if server, stop, err = pgtest.Launch(); err != nil {
			return nil, fmt.Errorf("%w; name a server with -pg", err)
		}
		url = server.URL("postgres")
	}
	return stop, os.WriteFile(filepath.Join(dir, postgresURL), []byte(url), 0o600)
}
