package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/weft-go/weft/storage"
)

// foreign is the driver of another SQLite. It answers each query with one row.
type foreign struct {
	driver.Conn
	written *[]string
}

func (f foreign) Connect(context.Context) (driver.Conn, error) { return f, nil }
func (f foreign) Driver() driver.Driver                        { return nil }
func (f foreign) Begin() (driver.Tx, error)                    { return f, nil }
func (f foreign) Commit() error                                { return nil }
func (f foreign) Rollback() error                              { return nil }
func (f foreign) Close() error                                 { return nil }

func (f foreign) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return &foreignRows{}, nil
}

func (f foreign) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	*f.written = append(*f.written, query)
	return driver.RowsAffected(0), nil
}

type foreignRows struct{ read bool }

func (r *foreignRows) Columns() []string { return []string{""} }
func (r *foreignRows) Close() error      { return nil }

func (r *foreignRows) Next(row []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read = true
	row[0] = "2025-01-01 another"
	return nil
}

// Two builds of SQLite in one process drop each other's locks on a file.
func TestTransactionOfAnotherSQLiteIsRefused(t *testing.T) {
	var written []string
	db := sql.OpenDB(foreign{written: &written})
	defer db.Close()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	err = open(t, newPath(t), nil).WithTx(tx).Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte("a"), nil)}})
	if !errors.Is(err, storage.ErrAborted) || !strings.Contains(err.Error(), "only with modernc.org/sqlite") {
		t.Errorf("got %v, want ErrAborted and what to do", err)
	}
	if len(written) > 0 {
		t.Errorf("written: %q", written)
	}
}
