package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/weft-go/weft/fence"
	"github.com/weft-go/weft/internal/pgtest"
	_ "github.com/weft-go/weft/storage/sqlite" // has the driver
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// A target is a database as both kinds of guard use it.
type target struct {
	// in runs f in a transaction, which is committed if f returns nil.
	in func(t testing.TB, f func(guard func(resource string, token uint64) error, exec func(sql string) error) error) error
	// one returns the result of a query for one number.
	one func(t testing.TB, query string) int64
}

func targets(t *testing.T) map[string]target {
	return map[string]target{"sqlite": onSQLite(t), "postgres": onPostgres(t)}
}

func onSQLite(t *testing.T) target {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "target.db")+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for _, s := range []string{fence.Schema, fence.Schema, effects} {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	return target{
		in: func(t testing.TB, f func(func(string, uint64) error, func(string) error) error) error {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := f(func(resource string, token uint64) error {
				return fence.Guard(t.Context(), tx, resource, token)
			}, func(sql string) error {
				_, err := tx.ExecContext(t.Context(), sql)
				return err
			}); err != nil {
				return err
			}
			return tx.Commit()
		},
		one: func(t testing.TB, query string) (n int64) {
			if err := db.QueryRow(query).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		},
	}
}

const effects = `CREATE TABLE effects (n bigint)`

func onPostgres(t *testing.T) target {
	pool := pgtest.Pool(t, pgtest.URL(t))
	for _, s := range []string{fence.Schema, fence.Schema, effects} {
		if _, err := pool.Exec(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	return target{
		in: func(t testing.TB, f func(func(string, uint64) error, func(string) error) error) error {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				return err
			}
			defer tx.Rollback(context.Background())
			if err := f(func(resource string, token uint64) error {
				return fence.GuardPgx(t.Context(), tx, resource, token)
			}, func(sql string) error {
				_, err := tx.Exec(t.Context(), sql)
				return err
			}); err != nil {
				return err
			}
			return tx.Commit(t.Context())
		},
		one: func(t testing.TB, query string) (n int64) {
			if err := pool.QueryRow(context.Background(), query).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		},
	}
}

// A token below the highest is refused, for its resource alone. What was refused or
// rolled back has no effect.
func TestStaleTokenIsRefused(t *testing.T) {
	for name, db := range targets(t) {
		t.Run(name, func(t *testing.T) {
			rolledBack := errors.New("rolled back")
			for i, step := range []struct {
				resource string
				token    uint64
				undo     bool
				stale    bool
			}{
				{"order-1", 57, false, false},
				{"order-1", 57, false, false}, // the same attempt, again
				{"order-1", 56, false, true},
				{"order-2", 3, false, false}, // another resource
				{"order-1", 90, true, false}, // is rolled back
				{"order-1", 58, false, false},
				{"order-1", 57, false, true},
				{"order-2", 1<<63 - 1, false, false},
				{"order-2", 4, false, true},
			} {
				was := db.one(t, `SELECT count(*) FROM effects`)
				err := db.in(t, func(guard func(string, uint64) error, exec func(string) error) error {
					if err := guard(step.resource, step.token); err != nil {
						return err
					}
					if err := exec(`INSERT INTO effects VALUES (1)`); err != nil {
						return err
					}
					if step.undo {
						return rolledBack
					}
					return nil
				})
				stood := db.one(t, `SELECT count(*) FROM effects`) - was
				switch {
				case errors.Is(err, fence.ErrStale) != step.stale:
					t.Errorf("step %d, %s %d: %v, want stale: %v", i, step.resource, step.token, err, step.stale)
				case stood == 1 == (step.stale || step.undo):
					t.Errorf("step %d, %s %d: %d effects stand; %v", i, step.resource, step.token, stood, err)
				}
			}
			if got := db.one(t, `SELECT token FROM weft_fence WHERE resource = 'order-1'`); got != 58 {
				t.Errorf("the guard has seen %d, want 58", got)
			}
		})
	}
}

// However owners compete for a resource, the tokens of those that are admitted rise.
func TestTokensRiseInARace(t *testing.T) {
	for name, db := range targets(t) {
		t.Run(name, func(t *testing.T) {
			const owners = 16
			var race sync.WaitGroup
			var mu sync.Mutex
			in, stale := 0, 0
			for i := range owners {
				race.Go(func() {
					for j := range 5 {
						err := db.in(t, func(guard func(string, uint64) error, exec func(string) error) error {
							token := uint64((i*7+j*5)%owners + 1)
							if err := guard("order-1", token); err != nil {
								return err
							}
							// Only the holder of the lock knows the highest token before it.
							return exec(fmt.Sprintf(`INSERT INTO effects SELECT CASE WHEN max(n) > %d THEN -1 ELSE %d END FROM effects`, token, token))
						})
						mu.Lock()
						switch {
						case err == nil:
							in++
						case errors.Is(err, fence.ErrStale):
							stale++
						default:
							t.Error(err)
						}
						mu.Unlock()
					}
				})
			}
			race.Wait()
			if n := db.one(t, `SELECT count(*) FROM effects WHERE n = -1`); n > 0 {
				t.Errorf("%d effects came after one with a higher token", n)
			}
			if in == 0 || stale == 0 || db.one(t, `SELECT max(n) FROM effects`) != owners {
				t.Errorf("%d were let in and %d refused: too few to mean anything", in, stale)
			}
		})
	}
}

// An invalid resource or token is an error of its own.
func TestGuardAtTheDoor(t *testing.T) {
	for name, db := range targets(t) {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				resource string
				token    uint64
			}{{"", 1}, {"order-1", 0}, {"order-1", 1 << 63}} {
				err := db.in(t, func(guard func(string, uint64) error, _ func(string) error) error { return guard(c.resource, c.token) })
				if err == nil || errors.Is(err, fence.ErrStale) {
					t.Errorf("guard %q %d: %v, want an error, and not ErrStale", c.resource, c.token, err)
				}
			}
			if n := db.one(t, `SELECT count(*) FROM weft_fence`); n != 0 {
				t.Errorf("%d guards were left", n)
			}
		})
	}
}
