package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
)

func equal(key, value string) storage.Condition { return storage.Equal([]byte(key), []byte(value)) }
func missing(key string) storage.Condition      { return storage.Absent([]byte(key)) }
func exists(key string) storage.Condition       { return storage.Present([]byte(key)) }
func remove(key string) storage.Op              { return storage.Delete([]byte(key)) }

// A trail counts the ways in which a store commits through a proxy.
type trail struct {
	admin       *pgx.Conn // directly to the database
	quick, slow atomic.Int32
	// done is how many of the quick were certainly done: on their connection, the next was quick too, and
	// not the transaction that follows if one statement was not enough.
	done  atomic.Int32
	tried map[*wire]bool // the last of a connection was quick; guarded by proxy.mu
}

// trailed opens a store on the database at url, through a proxy.
func trailed(t *testing.T, direct, role string) (*trail, *proxy, *postgres.Store) {
	admin, err := pgx.Connect(t.Context(), direct)
	must(t, err)
	t.Cleanup(func() { admin.Close(context.Background()) })
	c := &trail{admin: admin, tried: map[*wire]bool{}}
	p, through := proxied(t, direct)
	p.on(c.see)
	if role != "" {
		u, err := url.Parse(through)
		must(t, err)
		u.User = url.User(role)
		through = u.String()
	}
	return c, p, open(t, through, &postgres.Options{NoListen: true})
}

func (c *trail) see(m message) action {
	switch {
	case m.binds("weft_insertIf"), m.binds("weft_replaceIf"):
		c.quick.Add(1)
		if c.tried[m.conn] {
			c.done.Add(1)
		}
		c.tried[m.conn] = true
	case m.binds("weft_begin"):
		c.slow.Add(1)
		c.tried[m.conn] = false
	}
	return pass
}

// alone writes the rows a to e and then calls commit, which commits one batch on s. It reports whether
// that took one statement only. If the connection had been idle for too long to try that one
// statement, it does all of this again.
func (c *trail) alone(t *testing.T, s storage.Storage, commit func() error) (quick bool, err error) {
	t.Helper()
	for range 100 {
		for i := range postgres.Committers {
			must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put(fmt.Sprint("warm", i), "")}}))
		}
		c.exec(t, `DELETE FROM weft.store; INSERT INTO weft.store VALUES ('a', '1'), ('b', '2'), ('c', '3'), ('e', '')`)
		c.quick.Store(0)
		c.slow.Store(0)
		err = commit()
		if c.quick.Load() > 0 {
			return c.slow.Load() == 0, err
		}
	}
	t.Fatal("no batch was tried in one statement")
	return false, nil
}

func (c *trail) exec(t *testing.T, sql string) {
	t.Helper()
	_, err := c.admin.Exec(t.Context(), sql)
	must(t, err)
}

// sees returns the answer of the server to a question.
func (c *trail) sees(t *testing.T, question string) (yes bool) {
	t.Helper()
	must(t, c.admin.QueryRow(t.Context(), `SELECT `+question).Scan(&yes))
	return yes
}

// A batch that replaces and deletes rows, and inserts others, is one statement if its conditions hold.
// If not, or if it is not as the statement assumes, the answer is the same, and nothing of a
// batch is written that is refused.
func TestQuickIsOneStatement(t *testing.T) {
	c, _, s := trailed(t, pgtest.URL(t), "")
	const same = "[a=1 b=2 c=3 e=]"
	for _, test := range []struct {
		name  string
		If    []storage.Condition
		ops   []storage.Op
		quick bool
		want  error
		after string
	}{
		{"one inserted", []storage.Condition{equal("a", "1"), missing("n")}, []storage.Op{put("n", "1")}, true, nil, "[a=1 b=2 c=3 e= n=1]"},
		{"one replaced", []storage.Condition{equal("a", "1")}, []storage.Op{put("a", "9")}, true, nil, "[a=9 b=2 c=3 e=]"},
		{"one replaced, one inserted", []storage.Condition{equal("a", "1"), missing("n")}, []storage.Op{put("n", "1"), put("a", "9")}, true, nil, "[a=9 b=2 c=3 e= n=1]"},
		{"two replaced, two inserted, two compared", []storage.Condition{equal("b", "2"), exists("e"), equal("c", "3"), equal("a", "1")},
			[]storage.Op{put("n2", "2"), put("b", "8"), put("a", "9"), put("n1", "1")}, true, nil, "[a=9 b=8 c=3 e= n1=1 n2=2]"},
		{"of any value", []storage.Condition{exists("a")}, []storage.Op{put("a", "9")}, true, nil, "[a=9 b=2 c=3 e=]"},
		{"of an empty value", []storage.Condition{equal("e", "")}, []storage.Op{put("e", "5")}, true, nil, "[a=1 b=2 c=3 e=5]"},
		{"with an empty value", []storage.Condition{equal("a", "1")}, []storage.Op{storage.Put([]byte("a"), nil), storage.Put([]byte("n"), nil)}, true, nil, "[a= b=2 c=3 e= n=]"},
		{"three deleted", []storage.Condition{equal("a", "1"), exists("b")}, []storage.Op{remove("c"), remove("b"), remove("a")}, true, nil, "[e=]"},
		{"all of them", []storage.Condition{equal("a", "1"), equal("b", "2"), missing("n")}, []storage.Op{put("a", "9"), remove("b"), put("n", "1"), remove("e"), put("m", "1")}, true, nil, "[a=9 c=3 m=1 n=1]"},

		{"replaced has another value", []storage.Condition{equal("a", "2"), missing("n")}, []storage.Op{put("a", "9"), put("n", "1"), remove("b")}, false, storage.ErrConflict, same},
		{"replaced has a longer value", []storage.Condition{equal("e", "\x00")}, []storage.Op{put("e", "9"), put("n", "1")}, false, storage.ErrConflict, same},
		{"one of two replaced has another value", []storage.Condition{equal("a", "1"), equal("b", "1")}, []storage.Op{put("a", "9"), put("b", "9"), put("n", "1")}, false, storage.ErrConflict, same},
		{"values exchanged", []storage.Condition{equal("a", "2"), equal("b", "1")}, []storage.Op{put("a", "9"), put("b", "9")}, false, storage.ErrConflict, same},
		{"replaced does not exist", []storage.Condition{equal("x", ""), equal("a", "1")}, []storage.Op{put("a", "9"), put("x", "9"), remove("b")}, false, storage.ErrConflict, same},
		{"replaced of any value does not exist", []storage.Condition{exists("x")}, []storage.Op{put("x", "9"), put("n", "1"), remove("b")}, false, storage.ErrConflict, same},
		{"deleted has another value", []storage.Condition{equal("a", "1"), equal("b", "1")}, []storage.Op{put("a", "9"), remove("b"), put("n", "1")}, false, storage.ErrConflict, same},
		{"deleted must exist and does not", []storage.Condition{exists("x")}, []storage.Op{remove("x"), remove("a"), put("n", "1")}, false, storage.ErrConflict, same},
		{"compared has another value", []storage.Condition{equal("c", "4"), equal("a", "1")}, []storage.Op{put("a", "9"), put("n", "1"), remove("b")}, false, storage.ErrConflict, same},
		{"compared does not exist", []storage.Condition{exists("x"), equal("a", "1")}, []storage.Op{put("a", "9"), put("n", "1"), remove("b")}, false, storage.ErrConflict, same},
		{"inserted exists", []storage.Condition{equal("a", "1"), missing("c")}, []storage.Op{put("a", "9"), put("c", "1"), remove("b"), put("n", "1")}, false, storage.ErrConflict, same},

		{"deleted may be missing", []storage.Condition{equal("a", "1")}, []storage.Op{put("a", "9"), remove("x"), remove("b"), put("n", "1")}, false, nil, "[a=9 c=3 e= n=1]"},
		{"put may exist", []storage.Condition{equal("a", "1")}, []storage.Op{put("a", "9"), put("b", "9"), put("n", "1")}, false, nil, "[a=9 b=9 c=3 e= n=1]"},
	} {
		quick, err := c.alone(t, s, func() error { return s.Commit(t.Context(), storage.Batch{If: test.If, Ops: test.ops}) })
		if quick != test.quick || !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
			t.Errorf("%s: got one statement %t and error %v, want %t and %v", test.name, quick, err, test.quick, test.want)
		}
		if got := all(t, s); got != test.after {
			t.Errorf("%s: got %s, want %s", test.name, got, test.after)
		}
	}
	// One statement cannot delete a key that must be absent.
	for _, test := range []struct {
		key, after string
		want       error
	}{{"n", "[a=9 b=2]", nil}, {"b", "[a=1 b=2]", storage.ErrConflict}} {
		for i := range postgres.Committers {
			must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put(fmt.Sprint("warm", test.key, i), "")}}))
		}
		c.exec(t, `DELETE FROM weft.store; INSERT INTO weft.store VALUES ('a', '1'), ('b', '2')`)
		err := s.Commit(t.Context(), storage.Batch{If: []storage.Condition{equal("a", "1"), missing(test.key)}, Ops: []storage.Op{put("a", "9"), remove(test.key)}})
		if got := all(t, s); got != test.after || !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
			t.Errorf("%s must be absent and is deleted: got %s and error %v, want %s and %v", test.key, got, err, test.after, test.want)
		}
	}
}

// Others change a row after the statement's snapshot, and before the statement locks it. It is judged as it
// is then, and not as it is in the snapshot; also if only then it has the expected value.
//
// The statement is stopped in between by a policy of the table, which calls a function for each
// row that the statement finds.
func TestQuickJudgesTheNewest(t *testing.T) {
	direct := pgtest.URL(t)
	must(t, open(t, direct, nil).Close())
	admin := host(t, direct)
	role := "limited_" + database(t, direct)
	exec(t, admin, `CREATE ROLE `+role+` LOGIN`)
	exec(t, admin, `GRANT USAGE ON SCHEMA weft TO `+role)
	exec(t, admin, `GRANT SELECT, INSERT, UPDATE, DELETE ON weft.store TO `+role)
	exec(t, admin, `ALTER TABLE weft.store ENABLE ROW LEVEL SECURITY`)
	exec(t, admin, `CREATE FUNCTION weft.gate() RETURNS bool LANGUAGE plpgsql AS $$
		BEGIN
			IF EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 77) THEN
				PERFORM pg_advisory_xact_lock_shared(78);
				WHILE EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 77) LOOP
					PERFORM pg_sleep(0.001);
				END LOOP;
			END IF;
			RETURN true;
		END $$`)
	exec(t, admin, `CREATE POLICY gated ON weft.store USING (weft.gate()) WITH CHECK (true)`)
	must(t, admin.Commit(t.Context()))
	c, _, s := trailed(t, direct, role)
	defer c.exec(t, `DROP OWNED BY `+role+`; DROP ROLE `+role)

	// The batch compares a, replaces b, deletes c and inserts n.
	const done, refused = "[a=1 b=9 e= n=1]", ""
	for _, test := range []struct {
		name, seed, meanwhile string
		quick                 bool
		after                 string // "": it is refused
	}{
		{"nothing changes", ``, ``, true, done},
		{"compared changes", ``, `UPDATE weft.store SET v = 'other' WHERE k = 'a'`, false, refused},
		{"replaced changes", ``, `UPDATE weft.store SET v = 'other' WHERE k = 'b'`, false, refused},
		{"deleted changes", ``, `UPDATE weft.store SET v = 'other' WHERE k = 'c'`, false, refused},
		{"compared is deleted", ``, `DELETE FROM weft.store WHERE k = 'a'`, false, refused},
		{"replaced is deleted", ``, `DELETE FROM weft.store WHERE k = 'b'`, false, refused},
		{"deleted is deleted", ``, `DELETE FROM weft.store WHERE k = 'c'`, false, refused},
		{"inserted is inserted", ``, `INSERT INTO weft.store VALUES ('n', 'other')`, false, refused},
		{"compared becomes as expected", `UPDATE weft.store SET v = 'other' WHERE k = 'a'`, `UPDATE weft.store SET v = '1' WHERE k = 'a'`, true, done},
		{"replaced becomes as expected", `UPDATE weft.store SET v = 'other' WHERE k = 'b'`, `UPDATE weft.store SET v = '2' WHERE k = 'b'`, true, done},
		{"deleted becomes as expected", `UPDATE weft.store SET v = 'other' WHERE k = 'c'`, `UPDATE weft.store SET v = '3' WHERE k = 'c'`, true, done},
		{"all are written, with the same values", ``, `UPDATE weft.store SET v = v WHERE k IN ('a', 'b', 'c')`, true, done},
		{"replaced is deleted and inserted", ``, `WITH gone AS (DELETE FROM weft.store WHERE k = 'b') SELECT; INSERT INTO weft.store VALUES ('b', '2')`, false, done},
	} {
		var before string
		quick, err := c.alone(t, s, func() error {
			c.exec(t, test.seed)
			c.exec(t, `SELECT pg_advisory_lock(77)`)
			answer := make(chan error, 1)
			go func() {
				answer <- s.Commit(t.Context(), storage.Batch{
					If:  []storage.Condition{equal("a", "1"), equal("b", "2"), equal("c", "3"), missing("n")},
					Ops: []storage.Op{put("b", "9"), remove("c"), put("n", "1")},
				})
			}()
			eventually(t, func() bool {
				return c.sees(t, `EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 78)`)
			})
			c.exec(t, test.meanwhile)
			must(t, c.admin.QueryRow(t.Context(), `SELECT '[' || string_agg(convert_from(k, 'UTF8') || '=' || convert_from(v, 'UTF8'), ' ' ORDER BY k) || ']' FROM weft.store`).Scan(&before))
			c.exec(t, `SELECT pg_advisory_unlock(77)`)
			return <-answer
		})
		want := test.after
		if want == refused {
			want = before
		}
		if quick != test.quick || test.after != refused && err != nil || test.after == refused && !errors.Is(err, storage.ErrConflict) {
			t.Errorf("%s: got one statement %t and error %v", test.name, quick, err)
		}
		if got := all(t, s); got != want {
			t.Errorf("%s: got %s, want %s", test.name, got, want)
		}
	}
}

// Another transaction has inserted a key that the batch requires to be absent, and has not committed yet.
// Then the batch writes all or nothing, whether it learns the end of it in its one statement, or
// has to wait for longer.
func TestQuickInsertsAllOrNothing(t *testing.T) {
	direct := pgtest.URL(t)
	c, _, s := trailed(t, direct, "")
	met := map[bool]int{}
	for round := 0; round < 100 && (round < 10 || met[true] == 0 || met[false] == 0); round++ {
		commits := round%2 == 0
		quick, err := c.alone(t, s, func() error {
			tx := host(t, direct) // a new one each time
			exec(t, tx, `INSERT INTO weft.store VALUES ('n', 'theirs')`)
			answer := make(chan error, 1)
			go func() {
				answer <- s.Commit(t.Context(), storage.Batch{
					If:  []storage.Condition{equal("a", "1"), missing("n")},
					Ops: []storage.Op{put("a", "9"), remove("b"), put("m", "1"), put("n", "1")},
				})
			}()
			eventually(t, func() bool { return c.sees(t, `EXISTS (SELECT FROM pg_locks WHERE NOT granted)`) || s.InLanes() > 0 })
			if commits {
				must(t, tx.Commit(t.Context()))
			} else {
				must(t, tx.Rollback(t.Context()))
			}
			return <-answer
		})
		met[quick]++
		want := "[a=9 c=3 e= m=1 n=1]"
		if commits {
			want = "[a=1 b=2 c=3 e= n=theirs]"
		}
		if got := all(t, s); got != want || commits != errors.Is(err, storage.ErrConflict) || !commits && err != nil {
			t.Fatalf("host commits %t: got %s and error %v, want %s", commits, got, err, want)
		}
	}
	t.Logf("%d of one statement, %d of more", met[true], met[false])
	if met[true] == 0 || met[false] == 0 {
		t.Errorf("got %d of one statement and %d of more, want some of both", met[true], met[false])
	}
}

// While others hold a row that the batch compares, replaces or deletes, its one statement does not
// wait for them, because other batches would wait behind it. The batch waits in a lane.
func TestQuickWaitsForNoRow(t *testing.T) {
	direct := pgtest.URL(t)
	c, _, s := trailed(t, direct, "")
	for _, key := range []string{"a", "b", "c"} {
		_, err := c.alone(t, s, func() error {
			tx := host(t, direct) // a new one each time
			exec(t, tx, `SELECT FROM weft.store WHERE k = $1 FOR UPDATE`, []byte(key))
			answer := make(chan error, 1)
			go func() {
				answer <- s.Commit(t.Context(), storage.Batch{
					If:  []storage.Condition{equal("a", "1"), equal("b", "2"), missing("n")},
					Ops: []storage.Op{put("b", "9"), remove("c"), put("n", "1")},
				})
			}()
			eventually(t, func() bool {
				if c.sees(t, `EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'WITH %')`) {
					t.Fatalf("the statement waits for %s", key)
				}
				return s.InLanes() > 0
			})
			must(t, tx.Rollback(t.Context()))
			return <-answer
		})
		if got, want := all(t, s), "[a=1 b=9 e= n=1]"; err != nil || got != want {
			t.Errorf("%s was locked: got %s and error %v, want %s", key, got, err, want)
		}
	}
}

// The connection is cut before the server receives the statement, or its answer is lost. Both
// times the outcome is unknown, and so it is neither a conflict nor tried again. It does not matter that an earlier try had
// skipped the batch.
func TestQuickLost(t *testing.T) {
	direct := pgtest.URL(t)
	c, p, s := trailed(t, direct, "")
	check := open(t, direct, nil)
	for i, do := range []action{cutBefore, loseReply, cutBefore, loseReply} {
		commit := s.Commit
		if i > 1 {
			commit = s.CommitSkipped
		}
		p.on(c.see)
		_, err := c.alone(t, s, func() error {
			p.on(func(m message) action {
				c.see(m)
				if m.binds("weft_replaceIf") && c.quick.Load() == 1 {
					return do
				}
				return pass
			})
			defer p.on(nil)
			return commit(t.Context(), storage.Batch{
				If:  []storage.Condition{equal("a", "1"), missing("n")},
				Ops: []storage.Op{put("a", "9"), remove("b"), put("n", "1")},
			})
		})
		want := map[action]string{cutBefore: "[a=1 b=2 c=3 e=]", loseReply: "[a=9 c=3 e= n=1]"}[do]
		if err == nil || errors.Is(err, storage.ErrConflict) || c.quick.Load()+c.slow.Load() != 1 {
			t.Fatalf("%d, %v: got error %v after %d tries, want an unknown outcome after one", i, do, err, c.quick.Load()+c.slow.Load())
		}
		eventually(t, func() bool { return all(t, check) == want }) // the server may still be at it
	}
}

// Several processes and a host's transactions replace the same row, delete the mark beside it and
// insert the next, and add to a log. One of the processes writes too much for one statement. Readers
// see each batch whole, and no two of them replace the same value.
func TestQuickRaces(t *testing.T) {
	direct := pgtest.URL(t)
	c, _, a := trailed(t, direct, "")
	d, _, b := trailed(t, direct, "")
	large := open(t, direct, &postgres.Options{NoListen: true})
	must(t, a.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("r:count", "0"), put("r:mark:0", ""), put("shared", "1")}}))

	// next reads the rows, and returns the batch that follows.
	next := func(s storage.Storage, more int) (n int, b storage.Batch, err error) {
		page, err := s.Scan(t.Context(), storage.Prefix([]byte("r:")))
		if err != nil {
			return 0, b, err
		}
		count, mark := string(page[0].Value), string(page[len(page)-1].Key)
		if n = len(page) - 1; count != fmt.Sprint(n-1) || mark != "r:mark:"+count {
			return 0, b, fmt.Errorf("read %s as the count, %s and %d entries of the log", count, mark, n-1)
		}
		log := fmt.Sprint("r:log:", n)
		b.If = []storage.Condition{equal("r:count", count), equal("shared", "1"), missing(log)}
		b.Ops = []storage.Op{put("r:count", fmt.Sprint(n)), put(log, ""), remove(mark), put(fmt.Sprint("r:mark:", n), "")}
		for i := range more {
			b.Ops = append(b.Ops, put(fmt.Sprint("more", i), count))
		}
		return n, b, nil
	}
	var won, refused atomic.Int32
	write := func(s storage.Storage, more int) {
		_, batch, err := next(s, more)
		if err == nil {
			err = s.Commit(t.Context(), batch)
		}
		switch {
		case err == nil:
			won.Add(1)
		case errors.Is(err, storage.ErrConflict):
			refused.Add(1)
		default:
			t.Error(err)
		}
	}
	var writers sync.WaitGroup
	for s, more := range map[*postgres.Store]int{a: 0, b: 0, large: 20} {
		writers.Go(func() {
			for range 100 {
				write(s, more)
			}
		})
	}
	writers.Go(func() {
		conn, err := pgx.Connect(t.Context(), direct)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(context.Background())
		for range 50 {
			tx, err := conn.Begin(t.Context())
			if err == nil {
				write(a.WithTx(tx), 0)
				err = tx.Commit(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	writers.Wait()
	n, _, err := next(a, 0)
	must(t, err)
	if n != int(won.Load())+1 {
		t.Errorf("got %d batches, want the %d that were not refused", n-1, won.Load())
	}
	one := c.done.Load() + d.done.Load()
	t.Logf("%d batches won, at least %d of them in one statement; %d were refused", won.Load(), one, refused.Load())
	if one < 10 || refused.Load() < 10 {
		t.Error("it met too little to prove anything")
	}
}
