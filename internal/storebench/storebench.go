// Package storebench measures stores with the batches that an engine commits. For comparison it
// measures the maximum speed of the driver. The benchmarks have the same names for all adapters.
package storebench

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/storage"
)

// Commit commits steps of workflows, with 1 goroutine (c1) and with 200 (c200). Each benchmark
// opens its own store.
func Commit(b *testing.B, open func(testing.TB) storage.Storage) {
	for _, workers := range []int{1, 200} {
		b.Run(fmt.Sprintf("c%d", workers), func(b *testing.B) {
			c := newCommitters(open(b), workers)
			b.ReportAllocs()
			b.ResetTimer()
			c.run(b, b.N)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
		})
	}
}

// Raw writes the same rows in the fastest way that the driver offers, one in a transaction (one)
// and a hundred (group100). The function returned by begin writes the rows of one transaction.
func Raw(b *testing.B, begin func(testing.TB) func(rows []storage.Entry) error) {
	for name, size := range map[string]int{"one": 1, "group100": 100} {
		b.Run(name, func(b *testing.B) {
			t := newTransactions(begin(b), size)
			b.ReportAllocs()
			b.ResetTimer()
			t.run(b, b.N)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
		})
	}
}

// Ratio alternates between a store and the driver, so that other load on the machine affects
// both. It reports their median speeds and the ratio of these: one goroutine compared to one row
// in a transaction (c1), and 200 goroutines compared to a hundred rows (c200).
func Ratio(b *testing.B, open func(testing.TB) storage.Storage, begin func(testing.TB) func(rows []storage.Entry) error) {
	for _, size := range []struct{ workers, rows, turn, warmUp int }{
		{1, 1, 20, 2000}, // the warm-up is long because syncing a log that still grows is slow
		{200, 100, 4000, 8000},
	} {
		b.Run(fmt.Sprintf("c%d", size.workers), func(b *testing.B) {
			ours, raw := newCommitters(open(b), size.workers), newTransactions(begin(b), size.rows)
			ours.run(b, size.warmUp)
			raw.run(b, size.warmUp)
			var speeds, raws []float64
			for b.Loop() {
				speeds = append(speeds, speed(b, size.turn, ours.run))
				raws = append(raws, speed(b, size.turn, raw.run))
			}
			b.ReportMetric(median(speeds), "commits/s")
			b.ReportMetric(median(raws), "raw/s")
			b.ReportMetric(median(speeds)/median(raws), "ratio")
		})
	}
}

func speed(b *testing.B, n int, run func(*testing.B, int)) float64 {
	start := time.Now()
	run(b, n)
	return float64(n) / time.Since(start).Seconds()
}

func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}

// committers are goroutines that commit steps to a store.
type committers struct {
	store storage.Storage
	flows []workflow // one for each goroutine
	ids   atomic.Int64
}

func newCommitters(s storage.Storage, n int) *committers {
	return &committers{store: s, flows: make([]workflow, n)}
}

func (c *committers) run(b *testing.B, steps int) {
	var left atomic.Int64
	left.Store(int64(steps))
	var wg sync.WaitGroup
	for i := range c.flows {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := c.store.Commit(b.Context(), c.flows[i].step(&c.ids)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// transactions write the rows of as many workflows as fit in one transaction.
type transactions struct {
	write func([]storage.Entry) error
	flows []workflow
	rows  []storage.Entry
	ids   atomic.Int64
}

func newTransactions(write func([]storage.Entry) error, size int) *transactions {
	return &transactions{write: write, flows: make([]workflow, size), rows: make([]storage.Entry, size)}
}

func (t *transactions) run(b *testing.B, steps int) {
	for ; steps > 0; steps -= len(t.rows) {
		for i := range t.flows {
			put := t.flows[i].step(&t.ids).Ops[0]
			t.rows[i] = storage.Entry{Key: put.Key, Value: put.Value}
		}
		if err := t.write(t.rows); err != nil {
			b.Fatal(err)
		}
	}
}

// A workflow commits a record and then ten steps, one after the other. Then it continues as the
// next workflow.
type workflow struct {
	id   string
	next int
}

const steps = 10

var (
	record = make([]byte, 200)
	result = make([]byte, 150)
)

func (w *workflow) step(ids *atomic.Int64) storage.Batch {
	if w.id == "" || w.next > steps {
		w.id, w.next = fmt.Sprintf("order-%09d", ids.Add(1)), 1
		return storage.Batch{
			If:  []storage.Condition{storage.Absent(w.head())},
			Ops: []storage.Op{storage.Put(w.head(), record), storage.Put(w.checkpoint(0), result)},
		}
	}
	n := w.next
	w.next++
	at := w.checkpoint(n)
	return storage.Batch{
		If:  []storage.Condition{storage.Equal(w.head(), record), storage.Present(w.checkpoint(n - 1)), storage.Absent(at)},
		Ops: []storage.Op{storage.Put(at, result)},
	}
}

func (w *workflow) head() []byte { return storage.AppendKey(nil, "wf", w.id) }

func (w *workflow) checkpoint(n int) []byte {
	key := storage.AppendKey(make([]byte, 0, 32), "ck", w.id)
	return append(key, ':', '0', '0', '0', byte('0'+n/10), byte('0'+n%10))
}
