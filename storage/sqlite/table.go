package sqlite

import (
	"database/sql/driver"
	"fmt"
	"slices"
)

// createTable creates the table if it does not exist.
//
// Rows are stored in the order in which they were written, and an index has their keys. The table of
// earlier releases is WITHOUT ROWID, so that rows are in the order of their keys. There, a
// value of a kilobyte takes a page of its own, and rows with random keys change a page each.
func (c *conn) createTable(name string) error {
	if _, err := c.exec(`CREATE TABLE IF NOT EXISTS "` + name + `" (k BLOB PRIMARY KEY NOT NULL, v BLOB NOT NULL)`); err != nil {
		return err
	}
	return c.checkTable(name)
}

// checkTable returns an error if the table does not exist or has other columns. The table of an
// earlier release, see createTable, is a Weft table too.
func (c *conn) checkTable(name string) error {
	var kind string
	err := c.query(`SELECT type FROM pragma_table_list(?) WHERE schema = 'main'`,
		[]driver.Value{name}, 1, func(row []driver.Value) error {
			kind = fmt.Sprint(row[0])
			return nil
		})
	if err != nil {
		return err
	}
	if kind == "" {
		return fmt.Errorf("table %q does not exist", name)
	}
	var columns []string
	err = c.query(`SELECT name || ' ' || type || ' ' || pk || ' ' || "notnull" FROM pragma_table_xinfo(?)`,
		[]driver.Value{name}, 1, func(row []driver.Value) error {
			columns = append(columns, fmt.Sprint(row[0]))
			return nil
		})
	if err != nil {
		return err
	}
	if kind != "table" || !slices.Equal(columns, []string{"k BLOB 1 1", "v BLOB 0 1"}) {
		return fmt.Errorf("table %q is not a Weft table: it is a %s with the columns %q", name, kind, columns)
	}
	return nil
}
