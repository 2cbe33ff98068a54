package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/etcd"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/pebble"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

var weftPeer = &Peer{
	Name: "weft",
	Stores: []Store{
		{Name: "sqlite", Mode: "FULL"},
		{Name: "bolt"},
		{Name: "pebble"},
		{Name: "postgres"},
		{Name: "etcd", Mode: "3 members"},
		{Name: "memory", Mode: "not durable", Volatile: true},
	},
	Workloads: slices.Concat(workloads, []*Workload{stepsUUID, killed, pair, listed, retained, scheduled, continued, updated, streamed, queued, worlds, bursts, sizes, overHTTP}, ledgerWorkloads),
	Open:      openWeft,
}

func openWeft(ctx context.Context, s Site) (System, error) {
	store, err := openStore(ctx, s)
	if err != nil {
		return nil, err
	}
	sys, err := runWeft(ctx, store, store.Close, s)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return sys, nil
}

func openStore(ctx context.Context, s Site) (storage.Storage, error) {
	switch s.Store {
	case "sqlite":
		return sqlite.Open(filepath.Join(s.Dir, "weft.db"), nil)
	case "bolt":
		return bolt.Open(filepath.Join(s.Dir, "weft.bolt"), nil)
	case "pebble":
		return pebble.Open(filepath.Join(s.Dir, "weft.pebble"), nil)
	case "postgres":
		return postgres.Open(ctx, s.URL, nil)
	case "etcd":
		prefix, members, _ := strings.Cut(s.URL, " ")
		return etcd.Open(ctx, clientv3.Config{Endpoints: strings.Fields(members)}, &etcd.Options{Prefix: prefix})
	case "memory":
		return new(memory.Store), nil
	}
	return nil, fmt.Errorf("weft has no store %q", s.Store)
}

// A weft is an engine at work.
type weft struct {
	engine *engine.Engine
	shaped *engine.Workflow[Shape, string]
	store  *counter
	stop   func() error
}

// runWeft runs an engine on store, with the defaults but for what s says. closeStore
// may be nil.
func runWeft(ctx context.Context, store storage.Storage, closeStore func() error, s Site) (*weft, error) {
	w := &weft{shaped: shapedWorkflow(s.Probe), store: &counter{Storage: store}}
	var err error
	w.engine, err = engine.New(engine.Config{
		Storage:   w.store,
		Workflows: []engine.Definition{w.shaped},

		MaxRunsInMemory: s.Room,
		MaxActivities:   s.Room,

		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- w.engine.Run(ctx) }()
	w.stop = func() error {
		cancel()
		err := errors.Join(<-ended, w.engine.Close())
		if closeStore != nil {
			err = errors.Join(err, closeStore())
		}
		return err
	}
	return w, nil
}

// shapedWorkflow does what its Shape says.
func shapedWorkflow(p *Probe) *engine.Workflow[Shape, string] {
	noop := &activity.Activity[int, string]{Name: "noop", Run: func(context.Context, int) (string, error) {
		p.Step()
		return "done", nil
	}}
	busy := &activity.Activity[time.Duration, string]{Name: "busy", Timeout: 2 * time.Hour, Run: func(ctx context.Context, d time.Duration) (string, error) {
		p.Step()
		select {
		case <-time.After(d):
			return "done", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}}
	sized := &activity.Activity[int, string]{Name: "sized", Run: func(_ context.Context, n int) (string, error) {
		p.Step()
		return letters(n), nil
	}}
	goAhead := &signal.Signal[string]{Name: "go ahead"}
	return &engine.Workflow[Shape, string]{Name: "shaped", Func: func(run *engine.Run, s Shape) (out string, err error) {
		p.Enter()
		for i := range s.Steps {
			switch {
			case s.Busy > 0:
				out, err = busy.Do(run, s.Busy)
			case s.Bytes > 0:
				out = "done"
				_, err = sized.Do(run, s.Bytes)
			default:
				out, err = noop.Do(run, i)
			}
			if err != nil {
				return "", err
			}
		}
		var begun []*future.Future[string]
		for i := range s.Parallel {
			begun = append(begun, noop.Go(run, i))
		}
		for _, f := range begun {
			if out, err = f.Get(run); err != nil {
				return "", err
			}
		}
		if s.Signal {
			p.Park()
			return goAhead.Receive(run)
		}
		return out, nil
	}}
}

func (w *weft) Start(ctx context.Context, id string, s Shape) error {
	_, err := w.shaped.Start(ctx, w.engine, id, s)
	return err
}

func (w *weft) Signal(ctx context.Context, id string) error {
	_, err := (&signal.Signal[string]{Name: "go ahead"}).Send(ctx, w.engine, id, "done", nil)
	return err
}

func (w *weft) Wait(ctx context.Context, id string) error {
	out, err := w.shaped.Handle(w.engine, id).Result(ctx)
	if err == nil && out != "done" {
		err = fmt.Errorf("weft: result of %q is %q", id, out)
	}
	return err
}

func (w *weft) Commits() int64 { return w.store.commits.Load() }

func (w *weft) Close() error { return w.stop() }

// A counter counts the batches that are committed.
type counter struct {
	storage.Storage
	commits atomic.Int64
}

func (c *counter) Unwrap() storage.Storage { return c.Storage }

func (c *counter) Commit(ctx context.Context, b storage.Batch) error {
	c.commits.Add(1)
	return c.Storage.Commit(ctx, b)
}
