package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/weft-go/weft/internal/group"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// The raw limits: what the driver does without Weft, at the same durability. A
// row is a key of 30 and a value of 70 bytes, and keys rise.
var (
	rawOne     = &Workload{Name: "one", Title: "Raw limit: one row in a transaction, one writer", Parts: only(rawRows(1))}
	rawHundred = &Workload{Name: "hundred", Title: "Raw limit: 100 rows in a transaction", Parts: only(rawRows(100))}
	rawGrouped = &Workload{Name: "grouped", Title: "Grouped raw limit: the rows of 100 steps of Weft in a transaction", Parts: only(rawGroups("steps/s", 100, recordSteps))}
	rawEffects = &Workload{Name: "effects", Title: "Grouped raw limit: the rows of 100 effects of the ledger in a transaction", Parts: only(rawGroups("effects/s", 100, recordEffects))}
	rawCommits = &Workload{Name: "claims", Title: "Grouped raw limit: the rows of 100 effects of the ledger in two transactions, as claims have to be stored before effects happen", Parts: only(rawGroups("effects/s", 50, recordEffects))}

	rawPeer = &Peer{
		Name:      "raw",
		Stores:    []Store{{Name: "sqlite", Mode: "FULL"}, {Name: "bolt"}, {Name: "pebble"}, {Name: "postgres"}},
		Workloads: []*Workload{rawOne, rawHundred, rawGrouped, rawEffects, rawCommits},
	}
)

// A raw writes operations in one transaction, by one connection. Put replaces
// what is there.
type raw interface {
	Write(ctx context.Context, ops []storage.Op) error
	io.Closer
}

// raws open a store for a writer; the second on a site is one more connection.
var raws = map[string]func(ctx context.Context, s Site) (raw, error){
	"sqlite":   openRawSQLite,
	"bolt":     openRawBolt,
	"pebble":   openRawPebble,
	"postgres": openRawPostgres,
}

func rawRows(each int) func(context.Context, *Child) error {
	return func(ctx context.Context, c *Child) error {
		speed, err := rawSpeed(ctx, c, each, 1)
		if err != nil {
			return err
		}
		c.report("rows/s", speed)
		if c.site.Store != "postgres" || each > 1 {
			return nil
		}
		speed, err = rawSpeed(ctx, c, each, 16)
		if err == nil {
			c.report("rows/s, 16 connections", speed)
		}
		return err
	}
}

// rawSpeed is the rows a second that so many writers write.
func rawSpeed(ctx context.Context, c *Child, rows, writers int) (float64, error) {
	var mu sync.Mutex
	sum := 0.0
	err := each(ctx, writers, writers, func(i int) error {
		w, err := raws[c.site.Store](ctx, c.site)
		if err != nil {
			return err
		}
		defer w.Close()
		next := newRows(fmt.Sprintf("%02d-%02d", writers, i), rows)
		if _, _, err := repeat(c.Warm, func() error { return w.Write(ctx, next()) }); err != nil {
			return err
		}
		n, took, err := repeat(c.Load/2, func() error { return w.Write(ctx, next()) })
		mu.Lock()
		defer mu.Unlock()
		sum += float64(n*rows) / took.Seconds()
		return err
	})
	return sum, err
}

func repeat(d time.Duration, f func() error) (n int, took time.Duration, err error) {
	began := time.Now()
	for took < d {
		if err := f(); err != nil {
			return n, took, err
		}
		n++
		took = time.Since(began)
	}
	return n, took, nil
}

// newRows returns what makes the next puts.
func newRows(prefix string, n int) func() []storage.Op {
	ops, row := make([]storage.Op, n), uint64(0)
	for i := range ops {
		ops[i] = storage.Put(make([]byte, 30), make([]byte, 70))
		copy(ops[i].Key, prefix)
	}
	return func() []storage.Op {
		for i := range ops {
			binary.BigEndian.PutUint64(ops[i].Key[22:], row)
			row++
		}
		return ops
	}
}

// rawGroups writes what Weft writes for so many of something in one transaction, without
// conditions. It does so again and again, under keys with another prefix. record returns
// what is written for so many; keys have room for a number before them.
func rawGroups(metric string, size int, record func(ctx context.Context, hundreds, size int) ([][]storage.Op, error)) func(context.Context, *Child) error {
	return func(ctx context.Context, c *Child) error {
		groups, err := record(ctx, max(c.Recorded/10, 1), size)
		if err != nil {
			return err
		}
		site := c.site
		site.Recorded = true
		w, err := raws[site.Store](ctx, site)
		if err != nil {
			return err
		}
		defer w.Close()
		n := 0
		next := func() error {
			ops := groups[n%len(groups)]
			for _, o := range ops {
				binary.BigEndian.PutUint32(o.Key, uint32(n/len(groups)))
			}
			n++
			return w.Write(ctx, ops)
		}
		if _, _, err := repeat(c.Warm, next); err != nil {
			return err
		}
		done, took, err := repeat(c.Load/2, next)
		if err == nil {
			c.report(metric, float64(done*size)/took.Seconds())
		}
		return err
	}
}

// recordSteps runs workflows as w1c200 does, in memory.
func recordSteps(ctx context.Context, hundreds, size int) ([][]storage.Op, error) {
	workflows := hundreds * 100 / stepsEach
	rec := newRecorder(new(memory.Store))
	sys, err := runWeft(ctx, rec, nil, Site{Probe: new(Probe)})
	if err != nil {
		return nil, err
	}
	defer sys.Close()
	err = each(ctx, workflows, crowd, func(i int) error {
		id := fmt.Sprintf("w-%d", i)
		if err := sys.Start(ctx, id, Shape{Steps: stepsEach}); err != nil {
			return err
		}
		return sys.Wait(ctx, id)
	})
	if err != nil {
		return nil, err
	}
	return rec.groups(ctx, hundreds*100/size)
}

// groups returns what was written, in so many parts.
func (r *recorder) groups(ctx context.Context, n int) (groups [][]storage.Op, err error) {
	var batches [][]storage.Op
	err = r.queue.Do(ctx, func() error { batches = r.batches; return nil }) // between groups
	for ; n > 0 && err == nil; n-- {
		share := len(batches) / n
		groups = append(groups, joined(batches[:share]))
		batches = batches[share:]
	}
	return groups, err
}

// joined is what a transaction of these batches comes to: the last operation on
// each key.
func joined(batches [][]storage.Op) (ops []storage.Op) {
	at := map[string]int{}
	for _, b := range batches {
		for _, o := range b {
			key := string(o.Key)
			i, again := at[key]
			if !again {
				i = len(ops)
				at[key], ops = i, append(ops, storage.Op{})
			}
			ops[i] = o
		}
	}
	return ops
}

// A recorder keeps what is written. It takes a moment for each group of commits,
// as a disk does: without that a workflow would take all of its steps in one go,
// and its rows would be side by side as they never are in W1 c200.
type recorder struct {
	storage.Storage
	queue   *group.Queue
	batches [][]storage.Op
}

func newRecorder(s storage.Storage) *recorder {
	r := &recorder{Storage: s}
	r.queue = group.New(s.Capabilities().MaxBatch, r.apply)
	return r
}

func (r *recorder) Unwrap() storage.Storage { return r.Storage }

func (r *recorder) Commit(ctx context.Context, b storage.Batch) error { return r.queue.Commit(ctx, b) }

func (r *recorder) apply(batches []storage.Batch, verdicts []error) error {
	time.Sleep(time.Millisecond)
	for i, b := range batches {
		if verdicts[i] = r.Storage.Commit(context.Background(), b); verdicts[i] == nil {
			r.batches = append(r.batches, copied(b.Ops))
		}
	}
	return nil
}

// copied are operations whose keys have room for a number before them.
func copied(from []storage.Op) (ops []storage.Op) {
	for _, o := range from {
		if o.Kind != storage.DeleteRangeOp {
			o.Key = append(make([]byte, 4), o.Key...)
			o.Value = append([]byte{}, o.Value...)
			ops = append(ops, o)
		}
	}
	return ops
}
