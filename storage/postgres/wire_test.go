package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
)

// A group of 100 batches takes two round trips: the client waits for the server twice.
func TestTwoRoundTrips(t *testing.T) {
	p, url := proxied(t, pgtest.URL(t))
	s := open(t, url, &postgres.Options{NoListen: true})
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("shared", "1")}}))
	warm(t, s)

	// Commits are blocked until all batches have arrived.
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	var stopped, trips atomic.Int32
	p.on(func(m message) action {
		if m.kind == 'S' && trips.Add(1) <= int32(postgres.Committers) {
			stopped.Add(1)
			p.mu.Unlock()
			<-released
			p.mu.Lock()
		}
		return pass
	})
	var all sync.WaitGroup
	commit := func(i, ops int) {
		all.Go(func() {
			key := fmt.Sprintf("key%03d", i)
			b := storage.Batch{
				If:  []storage.Condition{storage.Equal([]byte("shared"), []byte("1")), storage.Absent([]byte(key))},
				Ops: []storage.Op{put(key, "1")},
			}
			for n := 1; n < ops; n++ {
				b.Ops = append(b.Ops, put(fmt.Sprint(key, "too", n), "1"))
			}
			if err := s.Commit(t.Context(), b); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range postgres.Committers {
		commit(1000+i, postgres.QuickMost+1) // which takes two round trips
		eventually(t, func() bool { return stopped.Load() == int32(i+1) })
	}
	for i := range 100 {
		commit(i, 2)
	}
	eventually(t, func() bool { return s.Waiting() == 100 })
	before := trips.Load()
	release()
	all.Wait()
	if got := trips.Load() - before - int32(postgres.Committers); got != 2 { // each of the held was in its first
		t.Errorf("100 batches took %d round trips, want 2", got)
	}
}

// An urgent batch that replaces one value with another, like a lease renewal, takes one
// round trip, also after a time without traffic. If it did not find the value, two more
// round trips read it and release the locks.
func TestSwapIsOneRoundTrip(t *testing.T) {
	p, url := proxied(t, pgtest.URL(t))
	s := open(t, url, &postgres.Options{NoListen: true})
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("lease", "0")}, Urgent: true}))
	var trips atomic.Int32
	p.on(func(m message) action {
		if m.kind == 'S' {
			trips.Add(1)
		}
		return pass
	})
	time.Sleep(1100 * time.Millisecond)
	for _, c := range []struct {
		was, is string
		want    error
		trips   int32
	}{
		{"0", "1", nil, 1},
		{"0", "2", storage.ErrConflict, 3},
		{"", "2", storage.ErrConflict, 3},
		{"1", "", nil, 1},
		{"", "", nil, 1},
		{"1", "2", storage.ErrConflict, 3},
		{"", "3", nil, 1},
	} {
		before := trips.Load()
		value := func(s string) []byte {
			if s == "" {
				return nil
			}
			return []byte(s)
		}
		err := s.Commit(t.Context(), storage.Batch{
			If:     []storage.Condition{storage.Equal([]byte("lease"), value(c.was))},
			Ops:    []storage.Op{storage.Put([]byte("lease"), value(c.is))},
			Urgent: true,
		})
		if !errors.Is(err, c.want) {
			t.Errorf("%q for %q: got error %v, want %v", c.is, c.was, err, c.want)
		}
		if got := trips.Load() - before; got != c.trips {
			t.Errorf("%q for %q: got %d round trips, want %d", c.is, c.was, got, c.trips)
		}
	}
	if v, err := get(s, "lease"); v != "3" || err != nil {
		t.Errorf("got %q and error %v, want 3", v, err)
	}
}

// warm makes every committer connect.
func warm(t *testing.T, s *postgres.Store) {
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put(fmt.Sprint("warm", i), "1")}}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// The reply to a COMMIT is lost. The outcome is unknown, SafeToRetry is false, and committing
// the same batch again reveals the outcome.
func TestLostCommits(t *testing.T) {
	direct := pgtest.URL(t)
	p, url := proxied(t, direct)
	s := open(t, url, nil)
	var commits, lost, unknown atomic.Int64
	want := int64(torture.Rounds(200, 200, 60))
	if testing.Short() {
		want = 20
	}
	p.on(func(m message) action {
		if m.commits() && commits.Add(1)%3 == 0 {
			lost.Add(1)
			return loseReply
		}
		return pass
	})
	const workers = 6
	totals := make([]int, workers)
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			for n := 0; lost.Load() < want && !t.Failed(); n++ {
				count(t, s, i, n, &unknown)
				totals[i] = n + 1
			}
		})
	}
	all.Wait()
	p.on(nil)
	if unknown.Load() < want {
		t.Errorf("got %d unknown outcomes of %d lost commits, want no fewer", unknown.Load(), lost.Load())
	}
	counted(t, open(t, direct, nil), totals)
}

// count commits step n of a counter, following the one rule for unknown outcomes: commit
// again and look.
func count(t *testing.T, s storage.Storage, counter, n int, unknown *atomic.Int64) {
	key, log := fmt.Sprintf("count%d", counter), fmt.Sprintf("log%d:%06d", counter, n)
	b := storage.Batch{
		If:  []storage.Condition{storage.Absent([]byte(log))},
		Ops: []storage.Op{put(log, "1")},
	}
	if n == 0 {
		b.If = append(b.If, storage.Absent([]byte(key)))
	} else {
		b.If = append(b.If, storage.Equal([]byte(key), fmt.Append(nil, n)))
	}
	if n == 0 || n%2 == 1 { // other steps also compare a row that they do not write
		b.Ops = append(b.Ops, put(key, fmt.Sprint(n+1)))
	} else {
		b.If = append(b.If, storage.Present(fmt.Appendf(nil, "log%d:%06d", counter, n-1)))
		b.Ops = append(b.Ops, put(key, fmt.Sprint(n+1)))
	}
	commit(t, s, b, log, unknown)
}

// commit commits b, which puts mine, until it is known to be committed.
func commit(t *testing.T, s storage.Storage, b storage.Batch, mine string, unknown *atomic.Int64) {
	doubt := false
	for end := time.Now().Add(time.Minute); ; {
		err := s.Commit(context.Background(), b)
		switch {
		case err == nil:
			return
		case errors.Is(err, storage.ErrConflict):
			_, err := get(s, mine)
			if !doubt || err != nil {
				t.Errorf("%s: a conflict with nobody: doubt %t, Get %v", mine, doubt, err)
			}
			return
		case pgconn.SafeToRetry(err):
			t.Errorf("%s: pgconn calls it safe to retry: %v", mine, err)
			return
		case time.Now().After(end):
			t.Errorf("%s: %v", mine, err)
			return
		}
		doubt = true
		unknown.Add(1)
	}
}

// get retries for up to a minute until a read succeeds.
func get(s storage.Storage, key string) (string, error) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		v, err := s.Get(context.Background(), []byte(key))
		if err == nil || errors.Is(err, storage.ErrNotFound) || time.Now().After(end) {
			return string(v), err
		}
	}
}

// counted compares the counters with the acknowledged steps.
func counted(t *testing.T, s storage.Storage, totals []int) {
	t.Helper()
	for i, want := range totals {
		got, err := get(s, fmt.Sprintf("count%d", i))
		if err != nil || got != fmt.Sprint(want) {
			t.Errorf("counter %d: got %q and error %v, want %d", i, got, err, want)
		}
		n := 0
		for _, err := range storage.All(t.Context(), s, storage.Prefix(fmt.Appendf(nil, "log%d:", i))) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != want {
			t.Errorf("log of counter %d: got %d entries, want %d", i, n, want)
		}
	}
}

// The connections of the pool are cut while they are idle, by the network or by the server,
// which says so. The next reads do not fail, even if many arrive at once.
func TestReadsOutliveConnections(t *testing.T) {
	server := pgtest.Shared(t)
	direct := server.Database(t)
	p, url := proxied(t, direct)
	pool := pgtest.Pool(t, url)
	hosted, err := postgres.New(t.Context(), pool, &postgres.Options{NoListen: true})
	must(t, err)
	defer hosted.Close()
	for name, s := range map[string]*postgres.Store{"of ours": open(t, url, &postgres.Options{NoListen: true}), "of the host": hosted} {
		t.Run(name, func(t *testing.T) {
			must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("a", "1")}}))
			for round := range 50 {
				var all sync.WaitGroup
				for i := range 16 {
					all.Go(func() {
						if i%2 == 0 {
							if v, err := s.Get(t.Context(), []byte("a")); string(v) != "1" || err != nil {
								t.Errorf("Get: got %q and error %v, want 1", v, err)
							}
							return
						}
						if page, err := s.Scan(t.Context(), storage.Prefix([]byte("a"))); len(page) != 1 || err != nil {
							t.Errorf("Scan: got %d entries and error %v, want 1", len(page), err)
						}
					})
				}
				all.Wait()
				if round%2 == 0 {
					p.cutAll()
				} else {
					server.Exec(t, "postgres", `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '`+database(t, direct)+`'`)
				}
			}
		})
	}
}

// database returns the name of the database at url.
func database(t *testing.T, url string) string {
	c, err := pgx.ParseConfig(url)
	must(t, err)
	return c.Database
}

// A read whose connection was cut, and which the server then refuses, fails at once. It does
// not try to connect again and again.
func TestRefusedReadFailsAtOnce(t *testing.T) {
	server := pgtest.Shared(t)
	direct := server.Database(t)
	p, url := proxied(t, direct)
	s := open(t, url, &postgres.Options{NoListen: true})
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("a", "1")}}))
	_, err := s.Get(t.Context(), []byte("a"))
	must(t, err)
	server.Exec(t, "postgres", `ALTER DATABASE `+database(t, direct)+` ALLOW_CONNECTIONS false`)
	p.cutAll()
	var logins atomic.Int32
	p.on(func(m message) action {
		if m.kind == 0 && bytes.Equal(m.body[:4], []byte{0, 3, 0, 0}) { // otherwise it is a cancel request for a connection that was cut
			logins.Add(1)
		}
		return pass
	})
	if v, err := s.Get(t.Context(), []byte("a")); err == nil {
		t.Errorf("got %q, want an error", v)
	}
	if n := logins.Load(); n != 1 {
		t.Errorf("got %d logins, want one", n)
	}
	server.Exec(t, "postgres", `ALTER DATABASE `+database(t, direct)+` ALLOW_CONNECTIONS true`)
	p.on(nil)
	if v, err := s.Get(t.Context(), []byte("a")); string(v) != "1" || err != nil {
		t.Errorf("when it lets us in: got %q and error %v, want 1", v, err)
	}
}

// TestEveryMessageCut cuts the connection at every message of every kind of transaction,
// before the server receives it and after. Of the messages that prepare a session's
// statements, it cuts at every tenth. With the race detector it cuts at a third of all, which are drawn.
func TestEveryMessageCut(t *testing.T) {
	direct := pgtest.URL(t)
	p, url := proxied(t, direct)
	check := open(t, direct, nil)
	var unknown atomic.Int64
	total := 1
	stride := torture.Rounds(1, 1, 3)
	if testing.Short() {
		stride = 21
	}
	for do := cutBefore; do <= cutAfter; do++ {
		for at := 1; at <= total; at += 1 + rand.IntN(2*stride-1) {
			seen, preparing := 0, 0
			p.on(func(m message) action {
				if m.kind == 'P' || m.kind == 'D' {
					if preparing++; preparing%10 != 0 {
						return pass
					}
				}
				if seen++; seen == at {
					return do
				}
				return pass
			})
			s, err := postgres.Open(t.Context(), url, &postgres.Options{NoListen: true})
			if err != nil {
				s = open(t, url, &postgres.Options{NoListen: true})
			}
			everyKind(t, s, check, fmt.Sprintf("run%d:%d:", do, at), &unknown)
			s.Close()
			p.on(nil)
			total = max(total, seen)
		}
	}
	t.Logf("%d messages; %d unknown outcomes", total, unknown.Load())
}

// everyKind runs one transaction of every kind.
func everyKind(t *testing.T, s, check storage.Storage, run string, unknown *atomic.Int64) {
	key := func(name string) []byte { return []byte(run + name) }
	step := func(name string, urgent bool, conditions []storage.Condition, ops ...storage.Op) {
		b := storage.Batch{
			If:     append(conditions, storage.Absent(key("did:"+name))),
			Ops:    append(ops, storage.Put(key("did:"+name), nil)),
			Urgent: urgent,
		}
		commit(t, s, b, run+"did:"+name, unknown)
	}
	step("begin", false, nil, storage.Put(key("n"), []byte("1")))
	step("insert", false, []storage.Condition{storage.Equal(key("n"), []byte("1"))})
	step("update", false, []storage.Condition{storage.Equal(key("n"), []byte("1"))}, storage.Put(key("n"), []byte("2")), storage.Put(key("r:1"), nil))
	step("delete", false, []storage.Condition{storage.Present(key("did:insert"))}, storage.Delete(key("r:1")), storage.Put(key("r:2"), nil))
	step("range", false, []storage.Condition{storage.Equal(key("n"), []byte("2"))}, storage.DeleteRange(storage.Prefix(key("r:"))), storage.Put(key("n"), []byte("3")))
	step("urgent", true, []storage.Condition{storage.Equal(key("n"), []byte("3"))}, storage.Put(key("n"), []byte("4")))
	commit(t, s, storage.Batch{
		If:     []storage.Condition{storage.Equal(key("n"), []byte("4"))},
		Ops:    []storage.Op{storage.Put(key("n"), []byte("5"))},
		Urgent: true,
	}, run+"n", unknown)
	page, err := check.Scan(t.Context(), storage.Prefix(key("")))
	var got []string
	for _, e := range page {
		got = append(got, string(e.Key[len(run):])+"="+string(e.Value))
	}
	want := "[did:begin= did:delete= did:insert= did:range= did:update= did:urgent= n=5]"
	if err != nil || fmt.Sprint(got) != want {
		t.Errorf("%s: got %v and error %v, want %s", run, got, err, want)
	}
}

func put(key, value string) storage.Op { return storage.Put([]byte(key), []byte(value)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t testing.TB, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come to that")
		}
	}
}
