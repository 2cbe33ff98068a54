package sqlite_test

import (
	"context"
	"database/sql/driver"
	"path/filepath"
	"testing"

	modernc "modernc.org/sqlite"

	"github.com/weft-go/weft/internal/storebench"
	"github.com/weft-go/weft/storage"
)

func BenchmarkCommit(b *testing.B) { storebench.Commit(b, benchStore) }
func BenchmarkRaw(b *testing.B)    { storebench.Raw(b, raw) }
func BenchmarkRatio(b *testing.B)  { storebench.Ratio(b, benchStore, raw) }

func benchStore(t testing.TB) storage.Storage {
	return open(t, filepath.Join(t.TempDir(), "store.db"), nil)
}

// raw uses the driver as the store does, but without a store.
func raw(t testing.TB) func([]storage.Entry) error {
	c, err := (&modernc.Driver{}).Open("file:" + filepath.Join(t.TempDir(), "raw.db") +
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	prepare := func(sql string) driver.StmtExecContext {
		s, err := c.Prepare(sql)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s.(driver.StmtExecContext)
	}
	run := func(s driver.StmtExecContext, args ...driver.NamedValue) {
		if _, err := s.ExecContext(context.Background(), args); err != nil {
			t.Fatal(err)
		}
	}
	run(prepare(`CREATE TABLE t (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID`))
	begin, insert, commit := prepare(`BEGIN IMMEDIATE`), prepare(`INSERT INTO t VALUES (?, ?)`), prepare(`COMMIT`)
	return func(rows []storage.Entry) error {
		if len(rows) > 1 {
			run(begin)
			defer run(commit)
		}
		for _, r := range rows {
			run(insert, driver.NamedValue{Ordinal: 1, Value: r.Key}, driver.NamedValue{Ordinal: 2, Value: r.Value})
		}
		return nil
	}
}
