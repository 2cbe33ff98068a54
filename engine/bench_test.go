package engine_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/sqlite"
)

// ten is the workload W1: a workflow of ten sequential activities that do
// nothing.
var (
	noop = &activity.Activity[int, string]{Name: "noop", Run: func(context.Context, int) (string, error) { return "done", nil }}
	ten  = &engine.Workflow[int, string]{Name: "ten", Func: func(run *engine.Run, n int) (s string, err error) {
		for i := range n {
			if s, err = noop.Do(run, i); err != nil {
				return "", err
			}
		}
		return s, nil
	}}
)

// benchStores are the stores of the benchmarks.
var benchStores = map[string]func(b *testing.B) storage.Storage{
	"memory": func(b *testing.B) storage.Storage { return new(memory.Store) },
	"sqlite": func(b *testing.B) storage.Storage {
		return opened[*sqlite.Store](b)(sqlite.Open(filepath.Join(b.TempDir(), "s"), nil))
	},
	"bolt": func(b *testing.B) storage.Storage {
		return opened[*bolt.Store](b)(bolt.Open(filepath.Join(b.TempDir(), "s"), nil))
	},
}

func opened[S storage.Storage](b *testing.B) func(s S, err error) storage.Storage {
	return func(s S, err error) storage.Storage {
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { s.Close() })
		return s
	}
}

// BenchmarkSteps measures durable steps: one workflow after the other (c1), and
// 200 at once (c200).
func BenchmarkSteps(b *testing.B) {
	for name, open := range benchStores {
		for _, at := range []int{1, 200} {
			b.Run(fmt.Sprintf("%s/c%d", name, at), func(b *testing.B) { benchSteps(b, open(b), at) })
		}
	}
}

func benchSteps(b *testing.B, s storage.Storage, at int) {
	eng, stop := running(b, s, ten)
	defer stop()
	b.ReportAllocs()
	b.ResetTimer()
	ids := make(chan int)
	var wg sync.WaitGroup
	for range at {
		wg.Go(func() {
			for i := range ids {
				h, err := ten.Start(b.Context(), eng, fmt.Sprintf("w-%d", i), 10)
				if err == nil {
					_, err = h.Result(b.Context())
				}
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range (b.N + 9) / 10 {
		ids <- i
	}
	close(ids)
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "steps/s")
}

// running is an engine at work on s.
func running(tb testing.TB, s storage.Storage, w ...engine.Definition) (eng *engine.Engine, stop func()) {
	eng, err := engine.New(engine.Config{Storage: s, Workflows: w, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- eng.Run(ctx) }()
	return eng, func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
		eng.Close()
	}
}

// BenchmarkAgainstRaw runs one workflow of sequential steps on SQLite (FULL) and,
// in turn with it, single-row commits of the bare driver on the same disk. The
// ratio is that of the medians of the rounds.
func BenchmarkAgainstRaw(b *testing.B) {
	const n = 1000
	raw := rawRows(b)
	eng, stop := running(b, benchStores["sqlite"](b), ten)
	defer stop()
	var rows, steps []float64
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		for j := range n {
			raw(i*n + j)
		}
		rows = append(rows, n/time.Since(began).Seconds())

		began = time.Now()
		h, err := ten.Start(b.Context(), eng, fmt.Sprintf("w-%d", i), n)
		if err == nil {
			_, err = h.Result(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
		steps = append(steps, n/time.Since(began).Seconds())
	}
	slices.Sort(rows)
	slices.Sort(steps)
	b.ReportMetric(rows[len(rows)/2], "raw/s")
	b.ReportMetric(steps[len(steps)/2], "steps/s")
	b.ReportMetric(steps[len(steps)/2]/rows[len(rows)/2], "ratio")
}

// rawRows writes a row of a key and a value of 100 bytes in a transaction of its
// own.
func rawRows(b *testing.B) func(i int) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "raw")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("CREATE TABLE t (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID"); err != nil {
		b.Fatal(err)
	}
	insert, err := db.Prepare("INSERT INTO t VALUES (?, ?)")
	if err != nil {
		b.Fatal(err)
	}
	value := make([]byte, 100)
	return func(i int) {
		if _, err := insert.Exec(fmt.Appendf(nil, "%0100d", i), value); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInputs measures what the input of a step costs: one that is copied as it is,
// and one that is encoded, with 200 workflows of ten steps at once (c200) and with
// workflows of one step, one after the other (w6).
func BenchmarkInputs(b *testing.B) {
	type plain struct {
		ID       string
		Cents, N int
	}
	type slice struct {
		ID    string
		Cents int
		Items []string
	}
	for name, open := range benchStores {
		b.Run(name+"/int", func(b *testing.B) { benchInputs(b, open, func(i int) int { return i }) })
		b.Run(name+"/struct", func(b *testing.B) {
			benchInputs(b, open, func(i int) plain { return plain{"order-42", 4900, i} })
		})
		b.Run(name+"/slice", func(b *testing.B) {
			benchInputs(b, open, func(i int) slice { return slice{"order-42", i, []string{"book", "lamp"}} })
		})
	}
}

func benchInputs[In any](b *testing.B, open func(b *testing.B) storage.Storage, input func(i int) In) {
	a := &activity.Activity[In, string]{Name: "noop", Run: func(context.Context, In) (string, error) { return "done", nil }}
	wf := &engine.Workflow[int, string]{Name: "w", Func: func(run *engine.Run, n int) (s string, err error) {
		for i := range n {
			if s, err = a.Do(run, input(i)); err != nil {
				return "", err
			}
		}
		return s, nil
	}}
	for _, load := range []struct {
		name      string
		at, steps int
	}{{"c200", 200, 10}, {"w6", 1, 1}} {
		b.Run(load.name, func(b *testing.B) {
			eng, stop := running(b, open(b), wf)
			defer stop()
			b.ReportAllocs()
			b.ResetTimer()
			ids := make(chan int)
			var wg sync.WaitGroup
			for range load.at {
				wg.Go(func() {
					for i := range ids {
						h, err := wf.Start(b.Context(), eng, fmt.Sprintf("w-%d", i), load.steps)
						if err == nil {
							_, err = h.Result(b.Context())
						}
						if err != nil {
							b.Error(err)
						}
					}
				})
			}
			for i := range (b.N + load.steps - 1) / load.steps {
				ids <- i
			}
			close(ids)
			wg.Wait()
		})
	}
}
