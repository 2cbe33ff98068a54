package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// River is a queue of jobs. A sequence of activities is a chain of jobs there:
// one transaction completes a job and inserts the next, which makes it as
// durable as a step. It has no workflows beyond that.
var riverPeer = &Peer{
	Name:      "river",
	Stores:    []Store{{Name: "postgres"}},
	Workloads: []*Workload{stepsOne, stepsMany, latency, riverJobs},
	Open:      openRiver,
}

var riverJobs = &Workload{Name: "jobs", Title: "Jobs that do nothing: inserted in bulk, then worked, until the database has all of them as completed", Parts: only(workJobs)}

// riverClient is set as River's own benchmark sets it, for throughput: by
// default it looks for jobs ten times a second.
func riverClient(pool *pgxpool.Pool, workers *river.Workers) (*river.Client[pgx.Tx], error) {
	return river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}},
		Workers:           workers,
		Logger:            slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
}

// riverPool connects and makes River's tables.
func riverPool(ctx context.Context, s Site) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(s.URL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// A chain is a System of chains of jobs.
type chain struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	ended  sync.Map // chan struct{} by id
}

func openRiver(ctx context.Context, s Site) (System, error) {
	pool, err := riverPool(ctx, s)
	if err != nil {
		return nil, err
	}
	c := &chain{pool: pool}
	workers := river.NewWorkers()
	if err = river.AddWorkerSafely(workers, &linkWorker{chain: c, probe: s.Probe}); err == nil {
		c.client, err = riverClient(pool, workers)
	}
	if err == nil {
		err = c.client.Start(context.WithoutCancel(ctx))
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return c, nil
}

func (c *chain) Close() error {
	err := c.client.Stop(context.Background())
	c.pool.Close()
	return err
}

func (c *chain) Start(ctx context.Context, id string, s Shape) error {
	if s.Parallel > 0 || s.Signal {
		return errors.ErrUnsupported
	}
	c.ended.Store(id, make(chan struct{}))
	_, err := c.client.Insert(ctx, link{ID: id, Of: s.Steps}, nil)
	return err
}

func (c *chain) Wait(ctx context.Context, id string) error {
	ended, ok := c.ended.Load(id)
	if !ok {
		return fmt.Errorf("river: no chain %q", id)
	}
	select {
	case <-ended.(chan struct{}):
		c.ended.Delete(id)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *chain) Signal(context.Context, string) error { return errors.ErrUnsupported }

// A link is a job of a chain.
type link struct {
	ID string `json:"id"`
	N  int    `json:"n"`
	Of int    `json:"of"`
}

func (link) Kind() string { return "link" }

type linkWorker struct {
	river.WorkerDefaults[link]
	chain *chain
	probe *Probe
}

// Work completes the job and inserts the next. Who waits is told when that is
// durable.
func (w *linkWorker) Work(ctx context.Context, job *river.Job[link]) error {
	w.probe.Step()
	next := job.Args
	next.N++
	err := pgx.BeginFunc(ctx, w.chain.pool, func(tx pgx.Tx) error {
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		if err == nil && next.N < next.Of {
			_, err = w.chain.client.InsertTx(ctx, tx, next, nil)
		}
		return err
	})
	if err != nil || next.N < next.Of {
		return err
	}
	if ended, ok := w.chain.ended.Load(next.ID); ok {
		close(ended.(chan struct{}))
	}
	return nil
}

// An idle job does nothing.
type idle struct{}

func (idle) Kind() string { return "idle" }

type idleWorker struct{ river.WorkerDefaults[idle] }

func (idleWorker) Work(context.Context, *river.Job[idle]) error { return nil }

func workJobs(ctx context.Context, c *Child) error {
	pool, err := riverPool(ctx, c.site)
	if err != nil {
		return err
	}
	defer pool.Close()
	workers := river.NewWorkers()
	river.AddWorker(workers, idleWorker{})
	client, err := riverClient(pool, workers)
	if err != nil {
		return err
	}
	batch := make([]river.InsertManyParams, 5000)
	for i := range batch {
		batch[i].Args = idle{}
	}
	began := time.Now()
	for left := c.Jobs; left > 0; left -= len(batch) {
		if _, err := client.InsertManyFast(ctx, batch[:min(left, len(batch))]); err != nil {
			return err
		}
	}
	c.report("inserted/s", float64(c.Jobs)/time.Since(began).Seconds())

	done, cancel := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: c.Jobs, Kinds: []river.EventKind{river.EventKindJobCompleted}})
	defer cancel()
	began = time.Now()
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	for range c.Jobs { // told of a job when the database has it as completed
		select {
		case <-done:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), client.Stop(context.Background()))
		}
	}
	c.report("jobs/s", float64(c.Jobs)/time.Since(began).Seconds())
	return client.Stop(context.Background())
}
