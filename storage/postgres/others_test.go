package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
)

// host opens a transaction on the store's table, as a host may.
func host(t *testing.T, url string) pgx.Tx {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { c.Close(context.Background()) })
	tx, err := c.Begin(t.Context())
	must(t, err)
	return tx
}

func exec(t *testing.T, tx pgx.Tx, sql string, args ...any) {
	t.Helper()
	_, err := tx.Exec(t.Context(), sql, args...)
	must(t, err)
}

// Interleaving 1: while a batch waits for a row, a key that it requires to be absent is
// inserted. The snapshot of its statement is older. It must be a conflict nevertheless.
func TestAbsentIsJudgedAfterTheWait(t *testing.T) {
	for _, c := range []struct {
		what string
		do   []string
		want error
	}{
		{"inserted meanwhile", []string{`INSERT INTO weft.store VALUES ('accepted', 'theirs')`}, storage.ErrConflict},
		{"nothing", nil, nil},
		{"row deleted and inserted again, as it was", []string{
			`DELETE FROM weft.store WHERE k = 'wf'`, `INSERT INTO weft.store VALUES ('wf', '1')`}, nil},
		{"row deleted and inserted again, otherwise", []string{
			`DELETE FROM weft.store WHERE k = 'wf'`, `INSERT INTO weft.store VALUES ('wf', '2')`}, storage.ErrConflict},
		{"row deleted", []string{`DELETE FROM weft.store WHERE k = 'wf'`}, storage.ErrConflict},
		{"row changed", []string{`UPDATE weft.store SET v = '2' WHERE k = 'wf'`}, storage.ErrConflict},
	} {
		for _, update := range []bool{false, true} {
			t.Run(fmt.Sprint(c.what, ", update ", update), func(t *testing.T) {
				url := pgtest.URL(t)
				s := open(t, url, nil)
				must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("wf", "1")}}))
				tx := host(t, url)
				exec(t, tx, `SELECT FROM weft.store WHERE k = 'wf' FOR UPDATE`)
				b := storage.Batch{
					If:  []storage.Condition{storage.Equal([]byte("wf"), []byte("1")), storage.Absent([]byte("accepted"))},
					Ops: []storage.Op{put("accepted", "mine")},
				}
				if update {
					b.Ops = append(b.Ops, put("wf", "1"))
				}
				answer := make(chan error)
				go func() { answer <- s.Commit(t.Context(), b) }()
				eventually(t, func() bool { return s.InLanes() > 0 })
				time.Sleep(20 * time.Millisecond)
				for _, sql := range c.do {
					exec(t, tx, sql)
				}
				must(t, tx.Commit(t.Context()))
				if err := <-answer; !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Errorf("got %v, want %v", err, c.want)
				}
			})
		}
	}
}

// Interleaving 1: if two processes accept or start the same thing, exactly one succeeds.
func TestOneAcceptsOfTwo(t *testing.T) {
	url := pgtest.URL(t)
	stores := []*postgres.Store{open(t, url, nil), open(t, url, nil)}
	must(t, stores[0].Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("wf", "1")}}))
	for round := range 200 {
		key := fmt.Sprint("accepted", round)
		var winners atomic.Int32
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				err := stores[i%2].Commit(t.Context(), storage.Batch{
					If:  []storage.Condition{storage.Equal([]byte("wf"), []byte("1")), storage.Absent([]byte(key))},
					Ops: []storage.Op{put(key, fmt.Sprint(i)), put("wf", "1")},
				})
				if err == nil {
					winners.Add(1)
				} else if !errors.Is(err, storage.ErrConflict) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := winners.Load(); n != 1 {
			t.Fatalf("round %d: %d accepted, want 1", round, n)
		}
	}
}

// Interleaving 17: {DeleteRange r:, Put x=1} and {if x=0, Put r:2} have the result of one
// after the other, so without r:2, in one process and in two.
func TestDeleteRangeIsSerial(t *testing.T) {
	url := pgtest.URL(t)
	a, b := open(t, url, nil), open(t, url, nil)
	for round := range 100 {
		one, two := a, a
		if round%2 == 0 {
			two = b
		}
		x, r := fmt.Sprintf("x%d", round), fmt.Sprintf("r%d:", round)
		must(t, a.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put(x, "0"), put(r+"1", "")}}))
		var all sync.WaitGroup
		all.Go(func() {
			if err := one.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.DeleteRange(storage.Prefix([]byte(r))), put(x, "1")}}); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			err := two.Commit(t.Context(), storage.Batch{
				If: []storage.Condition{storage.Equal([]byte(x), []byte("0"))}, Ops: []storage.Op{put(r+"2", "")}})
			if err != nil && !errors.Is(err, storage.ErrConflict) {
				t.Error(err)
			}
		})
		all.Wait()
		if page, err := a.Scan(t.Context(), storage.Prefix([]byte(r))); err != nil || len(page) != 0 {
			t.Fatalf("round %d: got %d rows in the range that was deleted and error %v, want none", round, len(page), err)
		}
	}
}

// A batch that rewrites one row of a range and inserts another is deleted as a whole or not
// at all.
func TestDeleteRangeTakesBatchesWhole(t *testing.T) {
	url := pgtest.URL(t)
	a, b := open(t, url, nil), open(t, url, nil)
	for round := range 150 {
		r := fmt.Sprintf("r%d:", round)
		must(t, a.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put(r+"1", "old")}}))
		var all sync.WaitGroup
		for _, batch := range []storage.Batch{
			{Ops: []storage.Op{put(r+"1", "new"), put(r+"2", "new")}},
			{Ops: []storage.Op{storage.DeleteRange(storage.Prefix([]byte(r)))}},
		} {
			s := a
			if batch.HasDeleteRange() {
				s = b
			}
			all.Go(func() {
				if err := s.Commit(t.Context(), batch); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if page, err := a.Scan(t.Context(), storage.Prefix([]byte(r))); err != nil || len(page) == 1 {
			t.Fatalf("round %d: got one half of a batch and error %v, want all or none", round, err)
		}
	}
}

// Each of two processes commits a batch that deletes a missing key which the other's batch
// puts. The result must be that of a serial order.
func TestMissingStaysMissing(t *testing.T) {
	url := pgtest.URL(t)
	a, b := open(t, url, nil), open(t, url, nil)
	for _, kind := range []string{"delete", "range", "both"} {
		for round := range 100 {
			x, y := fmt.Sprintf("%s%d:x", kind, round), fmt.Sprintf("%s%d:y", kind, round)
			remove := func(key string, alsoRange bool) storage.Op {
				if kind == "range" || kind == "both" && alsoRange {
					return storage.DeleteRange(storage.Prefix([]byte(key)))
				}
				return storage.Delete([]byte(key))
			}
			var all sync.WaitGroup
			all.Go(func() {
				if err := a.Commit(t.Context(), storage.Batch{Ops: []storage.Op{remove(y, true), put(x, "1")}}); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				if err := b.Commit(t.Context(), storage.Batch{Ops: []storage.Op{remove(x, false), put(y, "1")}}); err != nil {
					t.Error(err)
				}
			})
			all.Wait()
			if page, err := a.Scan(t.Context(), storage.Prefix([]byte(x[:len(x)-1]))); err != nil || len(page) != 1 {
				t.Fatalf("%s, round %d: got %d keys and error %v, want the one of whoever came last", kind, round, len(page), err)
			}
		}
	}
}

// Interleaving 18: keys of the maximum length are accepted, even if they are incompressible.
// Batch.Check refuses longer ones.
func TestLongestKeys(t *testing.T) {
	s := open(t, pgtest.URL(t), nil)
	for range 20 {
		key := make([]byte, storage.MaxKey)
		rand.Read(key)
		must(t, s.Commit(t.Context(), storage.Batch{If: []storage.Condition{storage.Absent(key)}, Ops: []storage.Op{storage.Put(key, key)}}))
		must(t, s.Commit(t.Context(), storage.Batch{If: []storage.Condition{storage.Equal(key, key)}, Ops: []storage.Op{storage.Put(key, nil)}}))
	}
}

// Interleaving 32: a host has inserted the same new key in a transaction that it leaves open.
// Neither the other batches of the group nor urgent batches wait for it.
func TestOpenTransactionOfHost(t *testing.T) {
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprint("host commits: ", commits), func(t *testing.T) {
			url := pgtest.URL(t)
			s := open(t, url, nil)
			warm(t, s)
			tx := host(t, url)
			exec(t, tx, `INSERT INTO weft.store VALUES ('new', 'theirs')`)
			blocked := make(chan error, 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // who waits for the host waits for longer
			defer cancel()
			var all sync.WaitGroup
			for i := range 200 {
				key := fmt.Sprint("key", i)
				if i == 77 {
					key = "new"
				}
				b := storage.Batch{If: []storage.Condition{storage.Absent([]byte(key))}, Ops: []storage.Op{put(key, "mine")}}
				if key == "new" {
					go func() { blocked <- s.Commit(t.Context(), b) }()
					continue
				}
				all.Go(func() {
					if err := s.Commit(ctx, b); err != nil {
						t.Error(err)
					}
				})
			}
			for range 20 {
				must(t, s.Commit(ctx, storage.Batch{Ops: []storage.Op{put("lease", "1")}, Urgent: true}))
			}
			all.Wait()
			eventually(t, func() bool { return s.InLanes() > 0 })
			select {
			case err := <-blocked:
				t.Fatalf("before the host was done: got %v", err)
			case <-time.After(100 * time.Millisecond):
			}
			if commits {
				must(t, tx.Commit(t.Context()))
			} else {
				must(t, tx.Rollback(t.Context()))
			}
			if err := <-blocked; commits != errors.Is(err, storage.ErrConflict) || !commits && err != nil {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A host has locked the row of a lease when the lease is renewed. The renewal waits, and
// then reports what it finds. A row that was deleted and inserted again counts as the same.
func TestSwapWaitsForHost(t *testing.T) {
	for _, c := range []struct {
		name string
		host []string
		want error
	}{
		{"leaves it", []string{`SELECT FROM weft.store WHERE k = 'lease' FOR UPDATE`}, nil},
		{"changes it", []string{`UPDATE weft.store SET v = 'theirs' WHERE k = 'lease'`}, storage.ErrConflict},
		{"removes it", []string{`DELETE FROM weft.store WHERE k = 'lease'`}, storage.ErrConflict},
		{"removes it and puts another", []string{`DELETE FROM weft.store WHERE k = 'lease'`, `INSERT INTO weft.store VALUES ('lease', 'theirs')`}, storage.ErrConflict},
		{"removes it and puts the same", []string{`DELETE FROM weft.store WHERE k = 'lease'`, `INSERT INTO weft.store VALUES ('lease', '1')`}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := pgtest.URL(t)
			s := open(t, url, nil)
			must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("lease", "1")}}))
			tx := host(t, url)
			for _, sql := range c.host {
				exec(t, tx, sql)
			}
			renewed := make(chan error, 1)
			go func() {
				renewed <- s.Commit(t.Context(), storage.Batch{
					If:     []storage.Condition{storage.Equal([]byte("lease"), []byte("1"))},
					Ops:    []storage.Op{put("lease", "2")},
					Urgent: true,
				})
			}()
			select {
			case err := <-renewed:
				t.Fatalf("before the host was done: got %v", err)
			case <-time.After(100 * time.Millisecond):
			}
			must(t, tx.Commit(t.Context()))
			if err := <-renewed; !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if v, err := get(s, "lease"); (v == "2") != (c.want == nil) {
				t.Errorf("got %q and error %v", v, err)
			}
		})
	}
}

// A batch that waits in a lane is withdrawn when its context ends.
func TestWithdrawnFromLane(t *testing.T) {
	url := pgtest.URL(t)
	s := open(t, url, nil)
	warm(t, s)
	tx := host(t, url)
	exec(t, tx, `SELECT FROM weft.store WHERE k IN ('warm1', 'warm2') FOR UPDATE`)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{put("warm1", fmt.Sprint(i))}})
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	time.Sleep(500 * time.Millisecond)
	must(t, tx.Rollback(t.Context()))
	all.Wait()
	eventually(t, func() bool { return s.InLanes() == 0 })
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("warm1", "after")}}))
}

// Interleaving 16: a process is suspended between the two round trips of a group, holding
// locks on its rows. Batches for other rows proceed. Those for the same rows proceed when
// the server closes the connection of the suspended process.
func TestStoppedHolder(t *testing.T) {
	t.Run("between the round trips", func(t *testing.T) { stoppedHolder(t, 10, "weft_change") })
	t.Run("in the middle of the second", func(t *testing.T) { stoppedHolder(t, 10_000, "weft_commit") })
}

// stoppedHolder suspends a committer that writes values of a given size before it sends a
// statement.
func stoppedHolder(t *testing.T, size int, statement string) {
	t.Parallel()
	for again := 0; !heldByStopped(t, size, statement, again == 3); again++ {
	}
}

// heldByStopped plays it once. It returns false, unless it is the last time, if the machine was too slow for it: the row is
// locked for five seconds, who waits for it is refused two seconds later, and the server ends this process's own transactions,
// too, if it stands still in one.
func heldByStopped(t *testing.T, size int, statement string, last bool) bool {
	direct := pgtest.URL(t)
	s := open(t, direct, nil)
	warm(t, s)
	p, url := proxied(t, direct)
	stopped := open(t, url, &postgres.Options{NoListen: true})
	var holds atomic.Bool
	p.on(func(m message) action {
		if m.binds(statement) {
			holds.Store(true)
			return swallow
		}
		return pass
	})
	b := storage.Batch{}
	for i := range 100 {
		b.Ops = append(b.Ops, storage.Put(fmt.Appendf(nil, "warm%d", i), make([]byte, size)))
	}
	answer := make(chan error)
	go func() { answer <- stopped.Commit(context.Background(), b) }()
	eventually(t, holds.Load)
	round := time.Now()
	conn, err := pgx.Connect(t.Context(), direct)
	must(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	locked := func() (yes bool) {
		must(t, conn.QueryRow(t.Context(), `SELECT NOT EXISTS (SELECT FROM weft.store WHERE k = 'warm50' FOR UPDATE SKIP LOCKED)`).Scan(&yes))
		return yes
	}
	mine := make(chan error, 1)
	go func() { mine <- s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("warm50", "mine")}}) }()
	beside := 0 // commits that were answered while the row was locked
	var failed, refused error
	var longest time.Duration // of its rounds
	for n, done := 0, false; !done && failed == nil; n++ {
		failed = s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put(fmt.Sprint("warm", 100+n%100), "other")}})
		if failed == nil && locked() {
			beside++
		}
		select {
		case refused = <-mine: // who waits for longer than the server lets the stopped one hold its rows gets an error
			done = true
		default:
		}
		longest, round = max(longest, time.Since(round)), time.Now()
	}
	p.cutAll()
	if err := <-answer; err == nil {
		t.Error("the stopped one's batch: got nil, and it was never sent")
	}
	if longest > time.Second && (failed != nil || refused != nil || beside < 3) && !last {
		t.Logf("again, because of a round of %v: %v, %v, %d commits", longest, failed, refused, beside)
		return false
	}
	must(t, failed)
	if refused != nil {
		t.Errorf("one who wants a row of the stopped: got %v", refused)
	}
	if beside < 3 {
		t.Errorf("%d commits to other rows were answered while the stopped one held its own, want 3 and more", beside)
	}
	if v, err := get(s, "warm50"); v != "mine" || err != nil {
		t.Errorf("got %q and error %v, want mine", v, err)
	}
	return true
}

// Two processes write the same rows concurrently, in any order. There is no deadlock, and no
// update is lost.
func TestNoDeadlock(t *testing.T) {
	server := pgtest.Shared(t)
	url := server.Database(t)
	stores := []*postgres.Store{open(t, url, nil), open(t, url, nil)}
	const keys, committers = 12, 64
	var b storage.Batch
	for i := range keys {
		b.Ops = append(b.Ops, put(fmt.Sprint("n", i), "0"))
	}
	must(t, stores[0].Commit(t.Context(), b))
	var added, refused atomic.Int64
	var all sync.WaitGroup
	for i := range committers {
		all.Go(func() {
			s := stores[i%2]
			rnd := mrand.New(mrand.NewPCG(1, uint64(i)))
			for range 20 {
				var b storage.Batch
				for _, k := range rnd.Perm(keys)[:4] {
					key := fmt.Sprint("n", k)
					v, err := get(s, key)
					if err != nil {
						t.Error(err)
						return
					}
					var n int
					fmt.Sscan(v, &n)
					b.If = append(b.If, storage.Equal([]byte(key), []byte(v)))
					b.Ops = append(b.Ops, put(key, fmt.Sprint(n+1)))
				}
				b.Urgent = i%16 == 0
				switch err := s.Commit(t.Context(), b); {
				case err == nil:
					added.Add(4)
				case errors.Is(err, storage.ErrConflict):
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	sum := int64(0)
	for i := range keys {
		v, _ := get(stores[0], fmt.Sprint("n", i))
		var n int64
		fmt.Sscan(v, &n)
		sum += n
	}
	if sum != added.Load() {
		t.Errorf("got a sum of %d, want %d", sum, added.Load())
	}
	time.Sleep(time.Second) // until the server's statistics are updated
	c, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer c.Close(t.Context())
	var deadlocks int
	must(t, c.QueryRow(t.Context(), `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&deadlocks))
	if deadlocks != 0 {
		t.Errorf("got %d deadlocks, want none", deadlocks)
	}
	t.Logf("%d conflicts, sum %d", refused.Load(), sum)
}
