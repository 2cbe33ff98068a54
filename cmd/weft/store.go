package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// A client is an engine that does not run, on a store.
type client struct {
	*engine.Engine
	place  place
	writes bool // it may write: on a store for one process it is alone
}

// reading calls f with a client that cannot write.
func (e *env) reading(f func(c *client) error) error {
	p, err := parsePlace(e.Store, e.Table)
	if err != nil {
		return err
	}
	return p.with(e, false, f)
}

// writing calls f with a client that can write. It first opens the store for reading: the
// command makes no store, and leaves one alone that has a single owner.
func (e *env) writing(f func(c *client) error) error {
	if !e.Write {
		return misuse("%s changes the store, which is opened for reading: add --write", e.verb)
	}
	p, err := parsePlace(e.Store, e.Table)
	if err != nil {
		return err
	}
	if e.Timeout == 0 { // otherwise a call tries again for as long as the store cannot be written
		limited, cancel := context.WithTimeout(e.Context, 30*time.Second)
		defer cancel()
		e.Context = limited
	}
	if err := p.with(e, true, func(*client) error { return nil }); err != nil {
		return err
	}
	s, err := p.open(e, true)
	if err != nil {
		return err
	}
	defer s.Close()
	c, err := p.client(s, weft.OwnershipCASRequired)
	if err != nil {
		return err
	}
	defer c.Close()
	c.writes = true
	return f(c)
}

// A place is where a store is.
type place struct {
	kind  string // "sqlite", "bolt" or "postgres"
	at    string // the file or the URL
	table string
}

func parsePlace(store, table string) (place, error) {
	const forms = "sqlite:FILE, bolt:FILE or postgres://URL"
	kind, at, found := strings.Cut(store, ":")
	switch {
	case store == "":
		return place{}, misuse("no store is named: give --store %s, or set WEFT_STORE", forms)
	case found && (kind == "postgres" || kind == "postgresql"):
		return place{"postgres", store, table}, nil
	case found && at != "" && (kind == "sqlite" || kind == "bolt"):
		return place{kind, at, table}, nil
	}
	return place{}, misuse("the store is not %s", forms) // it may contain a password
}

// String names the store without its password.
func (p place) String() string {
	if p.kind != "postgres" {
		return p.kind + ":" + word(p.at)
	}
	u, err := url.Parse(p.at)
	if err != nil {
		return "postgres"
	}
	return "postgres://" + u.Host + u.EscapedPath()
}

// with calls f with a client that reads. If write is set, the store is to be written next.
func (p place) with(e *env, write bool, f func(c *client) error) error {
	s, err := p.open(e, false)
	if err != nil {
		return err
	}
	defer s.Close()
	c, err := p.client(readOnly{s}, weft.OwnershipCASRequired)
	if mode, ok := errors.AsType[*weft.OwnershipModeError](err); ok {
		if write {
			return fmt.Errorf("%s belongs to a single owner, and everything must go through its engine: have the service do this", p)
		}
		c, err = p.client(readOnly{s}, mode.Stored)
	}
	if errors.Is(err, errReadOnly) {
		return fmt.Errorf("no engine has used the store at %s yet: check the path and --table, or start the service first", p)
	}
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

func (p place) client(s storage.Storage, mode weft.Ownership) (*client, error) {
	eng, err := engine.New(engine.Config{Storage: s, Ownership: mode, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p, err)
	}
	return &client{Engine: eng, place: p}, nil
}

// open opens the store, which must exist.
func (p place) open(e *env, write bool) (storage.Storage, error) {
	s, err := p.adapter(e, write)
	switch {
	case err == nil:
		return s, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no store at %s, and this command makes none: check the path, or start the service first", p)
	case errors.Is(err, storage.ErrInUse) && p.kind == "bolt":
		return nil, fmt.Errorf("%s is open in another process, and bbolt admits only one: stop the service that has it open, or have it do this", p)
	case errors.Is(err, storage.ErrInUse):
		return nil, fmt.Errorf("%s is open in a service that does not share it: to read, leave out --write; to write, stop the service, or have it open the store with sqlite.Options.Shared", p)
	}
	return nil, err
}

// adapter opens a SQLite store for writing as one that is shared. So it can be opened while
// services share it, but not while one has it for itself. A server that may lose data has been
// accepted by the service that made the store.
func (p place) adapter(e *env, write bool) (storage.Storage, error) {
	if p.kind != "postgres" {
		if _, err := os.Stat(p.at); err != nil {
			return nil, err
		}
	}
	switch p.kind {
	case "sqlite":
		return opened(sqlite.Open(p.at, &sqlite.Options{Table: p.table, Shared: true, ReadOnly: !write}))
	case "bolt":
		return opened(bolt.Open(p.at, &bolt.Options{Bucket: p.table, ReadOnly: !write}))
	}
	o := p.postgresOptions()
	o.FsyncOff, o.NoListen, o.ReadOnly = true, !write, !write
	return opened(postgres.Open(e, p.at, o))
}

// postgresOptions returns options with the table of p.
func (p place) postgresOptions() *postgres.Options {
	if schema, table, ok := strings.Cut(p.table, "."); ok {
		return &postgres.Options{Schema: schema, Table: table}
	}
	return &postgres.Options{Table: p.table}
}

// opened returns no store if there is an error, and not one that is a nil pointer.
func opened[S storage.Storage](s S, err error) (storage.Storage, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// readOnly is a store that was opened for reading, as engine.New takes it. It claims batches
// because engine.New requires them, and refuses each. So nothing can be written, not even by
// mistake.
type readOnly struct{ storage.Storage }

var errReadOnly = errors.New("the store is opened for reading")

func (s readOnly) Unwrap() storage.Storage { return s.Storage }

func (s readOnly) Commit(context.Context, storage.Batch) error { return errReadOnly }

func (s readOnly) Capabilities() storage.Capabilities {
	c := s.Storage.Capabilities()
	c.ConditionalBatch, c.AtomicBatch = true, true
	return c
}
