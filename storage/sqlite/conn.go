package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"

	"modernc.org/sqlite"
)

// A conn is one connection, for one goroutine at a time. It uses the driver without
// database/sql, whose locks, conversions and pools cost as much as the statements. No
// statement gets a context that can end: the driver would interrupt the statement, and
// the outcome of an interrupted COMMIT is unknown.
type conn struct {
	driver driver.Conn
	stmts  map[string]*stmt
	args   []driver.NamedValue
}

// A pragma is set to value, unless value is "". When read back, SQLite must report
// effective.
type pragma struct{ name, value, effective string }

// connect opens a connection to file. It uses its own driver value, so hooks and
// functions that the host registers do not apply. It sets the pragmas through the DSN
// and reads them back, because SQLite silently ignores pragmas that it does not know or
// cannot apply.
func connect(file string, how access, pragmas []pragma) (*conn, error) {
	d, err := (&sqlite.Driver{}).Open(dsn(file, how, pragmas))
	if err != nil {
		return nil, translate(err)
	}
	c := &conn{driver: d, stmts: map[string]*stmt{}}
	if err := c.verify(pragmas); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *conn) verify(pragmas []pragma) error {
	for _, p := range pragmas {
		var got string
		err := c.query("PRAGMA "+p.name, nil, 1, func(row []driver.Value) error {
			got = fmt.Sprint(row[0])
			return nil
		})
		if err != nil {
			return err
		}
		if got != p.effective {
			return fmt.Errorf("pragma %s has the value %q instead of %q", p.name, got, p.effective)
		}
	}
	return nil
}

func (c *conn) close() error {
	for _, s := range c.stmts {
		s.Close()
	}
	return c.driver.Close()
}

type stmt struct {
	driver.Stmt
	exec  driver.StmtExecContext
	query driver.StmtQueryContext
}

// maxStmts limits the prepared statements of a connection.
const maxStmts = 100

func (c *conn) prepare(sql string) (*stmt, error) {
	if s := c.stmts[sql]; s != nil {
		return s, nil
	}
	d, err := c.driver.Prepare(sql)
	if err != nil {
		return nil, translate(err)
	}
	if len(c.stmts) >= maxStmts {
		for _, s := range c.stmts {
			s.Close()
		}
		clear(c.stmts)
	}
	s := &stmt{d, d.(driver.StmtExecContext), d.(driver.StmtQueryContext)}
	c.stmts[sql] = s
	return s, nil
}

// exec runs a statement and returns the number of rows that it changed. The number
// means something only for statements that change rows.
func (c *conn) exec(sql string, args ...driver.Value) (int64, error) {
	s, err := c.prepare(sql)
	if err != nil {
		return 0, err
	}
	r, err := s.exec.ExecContext(context.Background(), c.named(args))
	if err != nil {
		return 0, translate(err)
	}
	return r.RowsAffected()
}

// query runs a statement and calls visit for each row of the given number of columns,
// until visit returns an error. visit may keep the values, but not the row.
func (c *conn) query(sql string, args []driver.Value, columns int, visit func(row []driver.Value) error) error {
	s, err := c.prepare(sql)
	if err != nil {
		return err
	}
	rows, err := s.query.QueryContext(context.Background(), c.named(args))
	if err != nil {
		return translate(err)
	}
	row := make([]driver.Value, columns)
	for {
		err := rows.Next(row)
		if err == io.EOF {
			return translate(rows.Close())
		}
		if err == nil {
			err = visit(row)
		}
		if err != nil {
			rows.Close()
			return translate(err)
		}
	}
}

func (c *conn) named(args []driver.Value) []driver.NamedValue {
	c.args = c.args[:0]
	for i, v := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	return c.args
}

// blob returns b as an argument. The driver would treat a nil slice as NULL.
func blob(b []byte) driver.Value {
	if b == nil {
		return []byte{}
	}
	return b
}

// unblob returns the bytes of a driver value. The driver returns an empty blob as nil.
func unblob(v driver.Value) []byte {
	if b, _ := v.([]byte); b != nil {
		return b
	}
	return []byte{}
}
