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
	wait := func(what string, want bool) {
		t.Helper()
		limit := time.Minute
		if !want {
			limit = 200 * time.Millisecond
		}
		select {
		case <-woken:
			if !want {
				t.Errorf("%s: woken, want not", what)
			}
		case <-time.After(limit):
			if want {
				t.Errorf("%s: not woken", what)
			}
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
	commit := func(s *postgres.Store, key string) {
		t.Helper()
		must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put(key, "1")}}))
	}
	wait("at the beginning", true)
	drain()
	commit(theirs, "wake:me:1")
	wait("a change under the prefix", true)
	drain()
	commit(theirs, "wake:you:1")
	wait("a change elsewhere", false)
	commit(mine, "wake:me:1")
	wait("a change of the same store", false)
	must(t, theirs.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("wake:me:1", "2")}, Urgent: true}))
	wait("a change by an urgent batch", false)

	server.Exec(t, "postgres", `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'`)
	wait("after the connection was cut", true)
	drain()
	commit(theirs, "wake:me:2")
	wait("a change after that", true)
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
