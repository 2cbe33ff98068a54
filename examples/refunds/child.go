package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// childEnv is the variable that makes this program the service. It contains the plan.
const childEnv = "WEFT_REFUNDS_CHILD"

// A plan tells the service where everything is.
type plan struct{ Store, Where, Provider string }

// place makes a place for a store: a file, or a server. remove removes it.
func place(store string) (where string, remove func(), err error) {
	switch store {
	case "sqlite":
		dir, err := os.MkdirTemp("", "weft-refunds-")
		return filepath.Join(dir, "refunds.db"), func() { os.RemoveAll(dir) }, err
	case "postgres":
		server, stop, err := pgtest.Launch()
		if err != nil {
			return "", nil, err
		}
		return server.URL("postgres"), stop, nil
	}
	return "", nil, fmt.Errorf("no store %q; there are sqlite and postgres", store)
}

// child is the service, until it is killed or its parent has ended.
func child(ctx context.Context) error {
	var p plan
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &p); err != nil {
		return err
	}
	store, db, err := open(ctx, p)
	if err != nil {
		return err
	}
	defer store.Close()
	defer db.close()
	quiet := slog.New(slog.DiscardHandler)
	// The lease matters on PostgreSQL, where others must find out that a process is dead.
	ledger, err := idempotency.New(idempotency.Config{Storage: store, Logger: quiet, Lease: time.Second})
	if err != nil {
		return err
	}
	defer ledger.Close()
	eng, err := engine.New(engine.Config{Storage: store, Workflows: []engine.Definition{goods}, Logger: quiet})
	if err != nil {
		return err
	}
	handler, err := newService(ledger, eng, db, client{p.Provider})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	ctx, stop := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent
		stop()
	}()
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	err = eng.Run(ctx)
	return errors.Join(err, server.Close())
}

// open opens the store, and the database that it is in.
func open(ctx context.Context, p plan) (storage.Storage, database, error) {
	if p.Store == "postgres" {
		store, err := postgres.Open(ctx, p.Where, nil)
		if err != nil {
			return nil, nil, err
		}
		pool, err := pgxpool.New(ctx, p.Where)
		if err == nil {
			_, err = pool.Exec(ctx, createVouchers)
		}
		return store, &onPostgres{store, pool}, err
	}
	store, err := sqlite.Open(p.Where, nil)
	if err != nil {
		return nil, nil, err
	}
	db, err := sql.Open("sqlite", "file:"+p.Where+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err == nil {
		_, err = db.ExecContext(ctx, createVouchers)
	}
	return store, &onSQLite{store, db}, err
}

// A running is the service as its parent sees it.
type running struct {
	cmd *exec.Cmd
	url string
}

// start starts the service.
func start(ctx context.Context, p plan) (*running, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the service does not start: %w", errors.Join(err, cmd.Wait()))
	}
	return &running{cmd, strings.TrimSpace(url)}, nil
}

// kill kills the service with SIGKILL.
func (r *running) kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}
