package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
)

func TestWatch(t *testing.T) {
	server := pgtest.Shared(t)
	url := server.Database(t)
	mine, theirs := open(t, url, nil), open(t, url, nil)
	ctx, cancel := context.WithCancel(t.Context())
	woken := make(chan struct{}, 100)
	var all sync.WaitGroup
	all.Go(func() {
		err := mine.Watch(ctx, []byte("wake:me:"), func() { woken <- struct{}{} })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Watch: got %v, want Canceled", err)
		}
	})
	wait := func(what string) {
		t.Helper()
		select {
		case <-woken:
		case <-time.After(time.Minute):
			t.Errorf("%s: not woken", what)
		}
	}
	drain := func() {
		for quiet := false; !quiet; {
			select {
			case <-woken:
			case <-time.After(300 * time.Millisecond):
				quiet = true
			}
		}
	}
	commits := 0
	commit := func(s *postgres.Store, key string, urgent bool) {
		t.Helper()
		commits++ // so that each changes the value
		must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put(key, fmt.Sprint(commits))}, Urgent: urgent}))
	}
	wakes := func(what, key string) {
		t.Helper()
		drain()
		for began := time.Now(); time.Since(began) < time.Minute; {
			commit(theirs, key, false) // again if the machine stood still: a notification that is late is not sent
			select {
			case <-woken:
				return
			case <-time.After(10 * time.Second):
			}
		}
		t.Errorf("%s: not woken", what)
	}
	// On a busy machine a wake of before may come later than drain waits for it. What must not wake is then done again.
	lets := func(what string, do func()) {
		t.Helper()
		for again := 0; ; again++ {
			do()
			select {
			case <-woken:
			case <-time.After(200 * time.Millisecond):
				return
			}
			if again == 3 {
				t.Errorf("%s: woken, want not", what)
				return
			}
			t.Logf("%s: woken, perhaps by what was before", what)
			drain()
		}
	}
	wait("at the beginning")
	wakes("a change under the prefix", "wake:me:1")
	drain()
	lets("a change elsewhere", func() { commit(theirs, "wake:you:1", false) })
	lets("a change of the same store", func() { commit(mine, "wake:me:1", false) })
	lets("a change by an urgent batch", func() { commit(theirs, "wake:me:1", true) })

	server.Exec(t, "postgres", `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'`)
	wait("after the connection was cut")
	wakes("a change after that", "wake:me:2")
	cancel()
	all.Wait()
}

func TestWatchEnds(t *testing.T) {
	for _, o := range []*postgres.Options{nil, {NoListen: true}} {
		s := open(t, pgtest.URL(t), o)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := s.Watch(ctx, nil, func() {}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want DeadlineExceeded", err)
		}
		cancel()
		s.Close()
		if err := s.Watch(t.Context(), nil, func() {}); !errors.Is(err, storage.ErrClosed) {
			t.Errorf("after Close: got %v, want ErrClosed", err)
		}
	}
}

// WLD-69: a notification has the beginnings of keys, which are ids. Values are never in it: who is told reads them.
func TestNotificationsHaveIDsOnly(t *testing.T) {
	ctx := t.Context()
	url := pgtest.URL(t)
	s := open(t, url, nil)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(ctx, `LISTEN `+s.Channel()); err != nil {
		t.Fatal(err)
	}
	const id, data = "chat-7", "a word that nobody else may see"
	for n := range 3 {
		head, chunk := keys.Stream(id, "words"), keys.Chunk(keys.ChunksOf(id, "words"), uint64(n))
		b := storage.Batch{Ops: []storage.Op{storage.Put(chunk, []byte(data)), storage.Put(head, fmt.Append(nil, data, n))}}
		if err := s.Commit(ctx, b); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		told, err := conn.WaitForNotification(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if _, heads, _ := strings.Cut(told.Payload, "\n"); heads != "chunk:"+id+":\nstream:"+id+":" {
			t.Errorf("notification %d is %q", n, told.Payload)
		}
	}
}
