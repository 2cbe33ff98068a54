package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
)

func TestWithTx(t *testing.T) {
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprint("host commits: ", commits), func(t *testing.T) {
			url := pgtest.URL(t)
			s := open(t, url, nil)
			must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("wf", "1"), put("gone", "1")}}))
			tx := host(t, url)
			exec(t, tx, `CREATE TABLE orders (id int)`)
			in := s.WithTx(tx)
			if in.Base() != storage.Storage(s) {
				t.Errorf("Base: got %v, want the store", in.Base())
			}
			must(t, in.Commit(t.Context(), storage.Batch{
				If:  []storage.Condition{storage.Equal([]byte("wf"), []byte("1")), storage.Absent([]byte("new")), storage.Present([]byte("gone"))},
				Ops: []storage.Op{put("wf", "2"), put("new", "1"), storage.Delete([]byte("gone")), storage.Delete([]byte("never"))},
			}))
			for _, c := range []storage.Condition{
				storage.Equal([]byte("wf"), []byte("1")), storage.Absent([]byte("new")), storage.Present([]byte("gone")),
			} {
				err := in.Commit(t.Context(), storage.Batch{If: []storage.Condition{c}, Ops: []storage.Op{storage.Put(c.Key, []byte("x")), put("other", "x")}})
				if !errors.Is(err, storage.ErrConflict) {
					t.Errorf("%+v: got %v, want ErrConflict", c, err)
				}
			}
			err := in.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.DeleteRange(storage.Range{})}})
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("DeleteRange: got %v, want ErrUnsupported", err)
			}
			for want, read := range map[string]storage.Storage{"[new=1 wf=2]": in, "[gone=1 wf=1]": s} {
				if got := all(t, read); got != want {
					t.Errorf("before the end: got %s, want %s", got, want)
				}
			}
			want := "[gone=1 wf=1]"
			if commits {
				must(t, tx.Commit(t.Context()))
				want = "[new=1 wf=2]"
			} else {
				must(t, tx.Rollback(t.Context()))
			}
			if got := all(t, s); got != want {
				t.Errorf("after it: got %s, want %s", got, want)
			}
			if _, err := in.Get(t.Context(), []byte("wf")); !errors.Is(err, storage.ErrAborted) {
				t.Errorf("Get after the end: got %v, want ErrAborted", err)
			}
			if err := in.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("a", "1")}}); !errors.Is(err, storage.ErrAborted) {
				t.Errorf("Commit after the end: got %v, want ErrAborted", err)
			}
		})
	}
}

func all(t *testing.T, s storage.Storage) string {
	t.Helper()
	page, err := s.Scan(t.Context(), storage.Range{})
	must(t, err)
	got := []string{}
	for _, e := range page {
		v, err := s.Get(t.Context(), e.Key)
		must(t, err)
		got = append(got, fmt.Sprintf("%s=%s", e.Key, v))
	}
	return fmt.Sprint(got)
}

// If two transactions stage the same new key, the second waits, then finds that it exists,
// and can continue.
func TestStagedTwice(t *testing.T) {
	url := pgtest.URL(t)
	s := open(t, url, nil)
	b := storage.Batch{If: []storage.Condition{storage.Absent([]byte("new"))}, Ops: []storage.Op{put("new", "1")}}
	one, two := host(t, url), host(t, url)
	must(t, s.WithTx(one).Commit(t.Context(), b))
	answer := make(chan error)
	go func() { answer <- s.WithTx(two).Commit(t.Context(), b) }()
	time.Sleep(50 * time.Millisecond)
	must(t, one.Commit(t.Context()))
	if err := <-answer; !errors.Is(err, storage.ErrConflict) {
		t.Errorf("got %v, want ErrConflict", err)
	}
	must(t, s.WithTx(two).Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("other", "1")}}))
	must(t, two.Commit(t.Context()))
	if got := all(t, s); got != "[new=1 other=1]" {
		t.Errorf("got %s", got)
	}
}

// Two hosts stage a change of the same row, and their batches also compare a row before it. The second waits, then
// finds the change, and can continue. A lock that both can hold would make them wait for each other.
func TestStagedBehindWhatIsCompared(t *testing.T) {
	url := pgtest.URL(t)
	s := open(t, url, nil)
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("log", ""), put("wf", "0")}}))
	change := func(from, to string) storage.Batch {
		return storage.Batch{If: []storage.Condition{exists("log"), equal("wf", from)}, Ops: []storage.Op{put("wf", to)}}
	}
	third, looking := host(t, url), host(t, url)
	exec(t, third, `SELECT FROM weft.store WHERE k = 'wf' FOR SHARE`) // until both wait
	ended := make(chan error)
	for _, tx := range []pgx.Tx{host(t, url), host(t, url)} {
		go func() {
			err := s.WithTx(tx).Commit(t.Context(), change("0", "1"))
			if errors.Is(err, storage.ErrConflict) {
				err = s.WithTx(tx).Commit(t.Context(), change("1", "2"))
			}
			ended <- errors.Join(err, tx.Commit(context.WithoutCancel(t.Context())))
		}()
	}
	eventually(t, func() bool {
		var waiting int
		must(t, looking.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted AND
			pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())`).Scan(&waiting))
		return waiting == 2
	})
	must(t, third.Rollback(t.Context()))
	for range 2 {
		must(t, <-ended)
	}
	if got := all(t, s); got != "[log= wf=2]" {
		t.Errorf("got %s, want what the second has written", got)
	}
}

type runner struct{ s *postgres.Store }

func (r runner) TransactStep(name string, result any, f func(context.Context) error) error {
	return r.s.Transact(context.Background(), func(ctx context.Context) (storage.Batch, error) {
		err := f(ctx)
		return storage.Batch{If: []storage.Condition{storage.Absent([]byte(name))}, Ops: []storage.Op{put(name, fmt.Sprint(*result.(*int)))}}, err
	})
}

func TestTransact(t *testing.T) {
	direct := pgtest.URL(t)
	p, url := proxied(t, direct)
	s := open(t, url, nil)
	tx := host(t, direct)
	exec(t, tx, `CREATE TABLE seats (n int)`)
	must(t, tx.Commit(t.Context()))
	book := func(name string, n int, fail error) error {
		got, err := postgres.Transact(runner{s}, name, func(ctx context.Context, tx pgx.Tx) (int, error) {
			if _, err := tx.Exec(ctx, `INSERT INTO seats VALUES ($1)`, n); err != nil {
				return 0, err
			}
			return n, fail
		})
		if err == nil && got != n {
			t.Errorf("%s: got %d, want %d", name, got, n)
		}
		return err
	}
	seats := func(want string) {
		t.Helper()
		tx := host(t, direct)
		rows, _ := tx.Query(t.Context(), `SELECT n FROM seats ORDER BY n`)
		got, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("seats: got %v and error %v, want %s", got, err, want)
		}
	}
	must(t, book("one", 1, nil))
	seats("[1]")
	if err := book("one", 2, nil); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("again: got %v, want ErrConflict", err)
	}
	mine := errors.New("sold out")
	if err := book("two", 2, mine); err != mine {
		t.Errorf("an error of the function: got %v, want %v", err, mine)
	}
	seats("[1]")
	p.on(func(m message) action {
		if m.kind == 'Q' && string(m.body) == "commit\x00" {
			return loseReply
		}
		return pass
	})
	if err := book("three", 3, nil); err == nil || errors.Is(err, storage.ErrConflict) {
		t.Errorf("the reply of COMMIT lost: got %v, want an unknown outcome", err)
	}
	p.on(nil)
	seats("[1 3]")
	if v, err := get(s, "three"); v != "3" || err != nil {
		t.Errorf("got %q and error %v, want 3", v, err)
	}
	if got := all(t, s); got != "[one=1 three=3]" {
		t.Errorf("got %s", got)
	}
}

// The function of a Transact runs without the store's timeouts, and with the planner's settings of the database. The store's
// timeouts hold again while its batch is applied.
func TestSettingsOfTransact(t *testing.T) {
	url := pgtest.URL(t)
	s := open(t, url, nil)
	tx := host(t, url)
	exec(t, tx, `CREATE FUNCTION weft.tell() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN NEW.v := convert_to(concat_ws('' '', current_setting(''statement_timeout''), current_setting(''lock_timeout'')), ''UTF8''); RETURN NEW; END'`)
	exec(t, tx, `CREATE TRIGGER tell BEFORE INSERT ON weft.store FOR EACH ROW EXECUTE FUNCTION weft.tell()`)
	must(t, tx.Commit(t.Context()))
	const settings = `SELECT concat_ws(' ', current_setting('statement_timeout'), current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'),
		current_setting('plan_cache_mode'), current_setting('enable_seqscan'), current_setting('jit'))`
	var want, got string
	must(t, host(t, url).QueryRow(t.Context(), settings).Scan(&want))
	_, err := postgres.Transact(runner{s}, "step", func(ctx context.Context, tx pgx.Tx) (int, error) {
		return 1, tx.QueryRow(ctx, settings).Scan(&got)
	})
	must(t, err)
	if got != want {
		t.Errorf("the settings of the function are %q, want %q", got, want)
	}
	if v, err := get(s, "step"); v != "10s 7s" || err != nil {
		t.Errorf("the timeouts of the batch are %q and the error is %v, want 10s 7s", v, err)
	}
}
