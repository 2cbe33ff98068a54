// World is a server for TypeScript workflows: a back end for the npm package workflow, on a store of Weft.
//
//	WEFT_WORLD_TOKEN=secret go run ./examples/world -store sqlite:w.db
//
// The README of world/npm says how an app is connected to it: by the package @weft-go/world, a call at its start, and
// variables in its environment. docs/guides/world.md has more of the server.
//
// The store is memory:, sqlite:FILE, bolt:FILE or postgres://URL. Several servers may share a PostgreSQL database, or with
// -shared a SQLite file. On SIGINT or SIGTERM the server answers what it is asked, and stops.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/world"
)

// settings are those of a server.
type settings struct {
	store      string
	shared     bool
	listen     string
	deployment string
	retention  time.Duration
	token      string
}

func main() {
	s := settings{token: os.Getenv("WEFT_WORLD_TOKEN")}
	flag.StringVar(&s.store, "store", "sqlite:world.db", "where everything is kept: memory:, sqlite:FILE, bolt:FILE or postgres://URL")
	flag.BoolVar(&s.shared, "shared", false, "other processes may have the SQLite file open, too")
	flag.StringVar(&s.listen, "listen", "127.0.0.1:4650", "the address")
	flag.StringVar(&s.deployment, "deployment", "local", "the active deployment, whose queue gets messages that name none")
	flag.DurationVar(&s.retention, "retention", 0, "how long runs are kept after their end; 0 means for ever")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "world: %q is no flag: the store is given as -store %s\n", flag.Arg(0), flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.serve(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "world:", err)
		os.Exit(1)
	}
}

// serve serves a world until ctx is done. It says on out where.
func (s settings) serve(ctx context.Context, out io.Writer) (err error) {
	if s.token == "" {
		return errors.New("the variable WEFT_WORLD_TOKEN is empty: set it to a secret that the clients know, too, such as WEFT_WORLD_TOKEN=secret")
	}
	store, err := s.open(ctx)
	if errors.Is(err, storage.ErrInUse) && strings.HasPrefix(s.store, "sqlite:") {
		return fmt.Errorf("%w; here: -shared for each server", err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	w, err := world.Open(store, &world.Options{
		Deployment: func(context.Context) (string, error) { return s.deployment, nil },
		Retention:  s.retention,
	})
	if err != nil {
		return err
	}
	defer w.Close()
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}

	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	running.Go(func() { _ = w.Run(ctx) }) // it ends with ctx, without an error

	server := &http.Server{Handler: guarded(s.token, w.Handler()), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	running.Go(func() { served <- server.Serve(listener) })
	fmt.Fprintf(out, "The world is at http://%s\n", listener.Addr())
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	w.Close() // ends calls that wait for messages or chunks
	ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return server.Shutdown(ended)
}

// open opens the store.
func (s settings) open(ctx context.Context) (storage.Storage, error) {
	kind, place, _ := strings.Cut(s.store, ":")
	switch {
	case kind == "memory" && place == "":
		return new(memory.Store), nil
	case kind == "sqlite" && place != "":
		return sqlite.Open(place, &sqlite.Options{Shared: s.shared})
	case kind == "bolt" && place != "":
		return bolt.Open(place, nil)
	case kind == "postgres" || kind == "postgresql":
		return postgres.Open(ctx, s.store, nil)
	}
	return nil, fmt.Errorf("the store is memory:, sqlite:FILE, bolt:FILE or postgres://URL, got %q", s.store)
}

// guarded serves those who know the token.
func guarded(token string, h http.Handler) http.Handler {
	want := sha256.Sum256([]byte("Bearer " + token))
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			rw.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(rw, "The token is missing or wrong.", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(rw, r)
	})
}
