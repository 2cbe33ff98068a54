package sqlite

import (
	"database/sql/driver"
	"fmt"
	"slices"
)

func (c *conn) createTable(name string) error {
	if _, err := c.exec(`CREATE TABLE IF NOT EXISTS "` + name + `" (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID`); err != nil {
		return err
	}
	return c.checkTable(name)
}

// checkTable returns an error if the table does not exist or has other columns.
func (c *conn) checkTable(name string) error {
	var kind string
	err := c.query(`SELECT type || CASE WHEN wr THEN ' without rowid' ELSE '' END FROM pragma_table_list(?) WHERE schema = 'main'`,
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
	if kind != "table without rowid" || !slices.Equal(columns, []string{"k BLOB 1 1", "v BLOB 0 1"}) {
		return fmt.Errorf("table %q is not a Weft table: it is a %s with the columns %q", name, kind, columns)
	}
	return nil
}
