package queue_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/ids"
	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/queue"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

func TestMain(m *testing.M) { leaks.Main(pgtest.Tests{M: m}) }

// onAllStores runs a test on a new store of each kind, with two openings of it: those of two processes. Where
// only one process may have the store open, they are the same.
func onAllStores(t *testing.T, f func(t *testing.T, one, two storage.Storage)) {
	t.Run("memory", func(t *testing.T) {
		s := new(memory.Store)
		f(t, s, s)
	})
	t.Run("bolt", func(t *testing.T) {
		s, err := bolt.Open(filepath.Join(t.TempDir(), "store"), nil)
		one := opened(t, s, err)
		f(t, one, one)
	})
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "store")
		s, err := sqlite.Open(path, &sqlite.Options{Shared: true})
		one := opened(t, s, err)
		s, err = sqlite.Open(path, &sqlite.Options{Shared: true})
		f(t, one, opened(t, s, err))
	})
	t.Run("postgres", func(t *testing.T) {
		url := pgtest.URL(t)
		s, err := postgres.Open(t.Context(), url, nil)
		one := opened(t, s, err)
		s, err = postgres.Open(t.Context(), url, nil)
		f(t, one, opened(t, s, err))
	})
}

func opened[S storage.Storage](t *testing.T, s S, err error) storage.Storage {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// open returns a process's view of the queues, which is closed with the test.
func open(t testing.TB, s storage.Storage, change ...func(*queue.Config)) *queue.Queue {
	t.Helper()
	c := queue.Config{Storage: s, IDs: new(ids.Source), Damaged: func(key string, err error) { t.Errorf("%s is damaged: %v", key, err) }}
	for _, f := range change {
		f(&c)
	}
	q, err := queue.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Close)
	return q
}

// clock sets the wall clock of a process.
func clock(now func() time.Time) func(*queue.Config) { return func(c *queue.Config) { c.Now = now } }

// off has the wall clock of a process differ by d.
func off(d time.Duration) func(*queue.Config) {
	return clock(func() time.Time { return time.Now().Add(d) })
}

func visible(d time.Duration) func(*queue.Config) {
	return func(c *queue.Config) { c.Visibility = d }
}

func publish(t testing.TB, q *queue.Queue, key, body string) (id string) {
	t.Helper()
	id, err := q.Publish(context.Background(), queue.Message{Queue: "blue", Name: "flow", Body: []byte(body), Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// receive takes at most n messages, and waits for a minute at most for the first.
func receive(t testing.TB, q *queue.Queue, n int) []queue.Delivery {
	t.Helper()
	got, err := q.Receive(context.Background(), "blue", n, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// one receives a message, and fails if there is none for a minute.
func one(t testing.TB, q *queue.Queue) queue.Delivery {
	t.Helper()
	got := receive(t, q, 1)
	if len(got) != 1 {
		t.Fatalf("got %d messages, want 1", len(got))
	}
	return got[0]
}

// none fails if a message is there now.
func none(t testing.TB, q *queue.Queue) {
	t.Helper()
	if got, err := q.Receive(context.Background(), "blue", 1, 0); err != nil || len(got) != 0 {
		t.Errorf("got %+v, %v, want no message", got, err)
	}
}

func settle(q *queue.Queue, d queue.Delivery, as queue.Outcome) error {
	return q.Settle(context.Background(), "blue", queue.Settlement{ID: d.ID, Receipt: d.Receipt, As: as})[0]
}

// drain takes and acknowledges all messages that are due, and returns how often it got each.
func drain(t testing.TB, q *queue.Queue) map[string]int {
	t.Helper()
	got := map[string]int{}
	for {
		some, err := q.Receive(context.Background(), "blue", 10, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(some) == 0 {
			return got
		}
		for _, d := range some {
			got[d.ID]++
			if err := settle(q, d, queue.Acknowledge); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// left returns the keys that a store has.
func left(t testing.TB, s storage.Storage) (all []string) {
	t.Helper()
	for e, err := range storage.All(context.Background(), s, storage.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(e.Key))
	}
	return all
}

func count(t testing.TB, s storage.Storage, prefix string) int {
	t.Helper()
	page, err := s.Scan(context.Background(), storage.Prefix([]byte(prefix)))
	if err != nil {
		t.Fatal(err)
	}
	return len(page)
}
