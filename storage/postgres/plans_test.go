package postgres_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
)

// The server makes its plans while the table has one row, according to its statistics. After
// the table has grown they must still look up keys rather than scan the table.
func TestPlansSurviveGrowth(t *testing.T) {
	for _, ours := range []bool{true, false} {
		t.Run(fmt.Sprint("our pool: ", ours), func(t *testing.T) {
			url := pgtest.URL(t)
			s := open(t, url, nil)
			must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("a", "1")}}))
			must(t, s.Close())
			c, err := pgx.Connect(t.Context(), url)
			must(t, err)
			defer c.Close(t.Context())
			_, err = c.Exec(t.Context(), `ALTER TABLE weft.store SET (autovacuum_enabled = off)`)
			must(t, err)
			_, err = c.Exec(t.Context(), `VACUUM ANALYZE weft.store`)
			must(t, err)
			pool, err := pgxpool.New(t.Context(), url)
			must(t, err)
			defer pool.Close()
			if s, err = postgres.New(t.Context(), pool, nil); ours {
				must(t, s.Close())
				s, err = postgres.Open(t.Context(), url, nil)
			}
			must(t, err)
			defer s.Close()
			for range 10 { // so that reads have plans too
				get(s, "a")
				s.Scan(t.Context(), storage.Range{Limit: 1})
			}
			const workers, each = 50, 40
			var all sync.WaitGroup
			for w := range workers {
				all.Go(func() {
					for n := range each {
						k, urgent := fmt.Sprintf("key:%d:%d", w, n), w < 10
						for _, b := range []storage.Batch{
							{If: []storage.Condition{storage.Absent([]byte(k))}, Ops: []storage.Op{put(k, "1")}},
							{If: []storage.Condition{storage.Equal([]byte(k), []byte("1"))}, Ops: []storage.Op{put(k, "2")}},
							{If: []storage.Condition{storage.Present([]byte(k))}, Ops: []storage.Op{put(k+"too", "2")}},
							{Ops: []storage.Op{storage.Delete([]byte(k + "too")), storage.Delete([]byte(k + "never"))}},
						} {
							b.Urgent = urgent
							if err := s.Commit(t.Context(), b); err != nil {
								t.Error(err)
							}
						}
						get(s, k)
						s.Scan(t.Context(), storage.Range{Start: []byte(k), Limit: 1})
						if w == 1 {
							must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.DeleteRange(storage.Prefix([]byte(k + "too")))}}))
						}
					}
				})
			}
			all.Wait()
			must(t, s.Close())
			pool.Close()
			var read int64
			eventually(t, func() bool { // the server updates its counters late
				time.Sleep(50 * time.Millisecond)
				must(t, c.QueryRow(t.Context(), `SELECT coalesce(seq_tup_read + idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = 'store'`).Scan(&read))
				return read > workers*each*5
			})
			// A table of a few pages may well be scanned as a whole. If one of the six
			// cached plans did so to the end, that would be 150 rows a call.
			if calls := int64(workers * each * 6); read > calls*50 {
				t.Errorf("%d calls read %d rows, want a few for each", calls, read)
			}
		})
	}
}
