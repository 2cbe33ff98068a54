package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/storebench"
	"github.com/weft-go/weft/storage"
)

func BenchmarkCommit(b *testing.B) { storebench.Commit(b, benchStore) }
func BenchmarkRaw(b *testing.B)    { storebench.Raw(b, raw) }
func BenchmarkRatio(b *testing.B)  { storebench.Ratio(b, benchStore, raw) }

func benchStore(t testing.TB) storage.Storage { return open(t, pgtest.URL(t), nil) }

// raw uses the driver on one connection, without a store.
func raw(t testing.TB) func([]storage.Entry) error {
	ctx := context.Background()
	c, err := pgx.Connect(ctx, pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(ctx) })
	if _, err := c.Exec(ctx, `CREATE TABLE t (k bytea PRIMARY KEY, v bytea NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	return func(rows []storage.Entry) error {
		if len(rows) == 1 {
			_, err := c.Exec(ctx, `INSERT INTO t VALUES ($1, $2)`, rows[0].Key, rows[0].Value)
			return err
		}
		keys, values := make([][]byte, len(rows)), make([][]byte, len(rows))
		for i, r := range rows {
			keys[i], values[i] = r.Key, r.Value
		}
		_, err := c.Exec(ctx, `INSERT INTO t SELECT * FROM unnest($1::bytea[], $2::bytea[])`, keys, values)
		return err
	}
}
