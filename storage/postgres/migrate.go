package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/storage"
)

// format is the format that this release writes. It follows stamp in the comment on the
// table.
const (
	format = 1
	stamp  = "weft store, format "
)

// Migrations returns the statements that create the store of o, in order. Open runs the missing ones itself, in one transaction
// and under an advisory lock. If the host's role may not create tables, run them beforehand, once and in one transaction: a
// second time they fail, because the table exists. Open then needs only SELECT, INSERT, UPDATE and DELETE on the table and USAGE on the schema.
func Migrations(o *Options) []string {
	full := withDefaults(o)
	return append([]string{createSchema(full)}, createTable(full)...)
}

func createSchema(o Options) string {
	return `CREATE SCHEMA IF NOT EXISTS ` + pgx.Identifier{o.Schema}.Sanitize()
}

// createTable leaves free space in pages, because records of running workflows are
// rewritten: if the new row fits on the same page, the index need not change.
func createTable(o Options) []string {
	return []string{
		`CREATE TABLE ` + o.quoted() + ` (k bytea PRIMARY KEY, v bytea NOT NULL) WITH (fillfactor = 90)`,
		`COMMENT ON TABLE ` + o.quoted() + ` IS '` + stamp + strconv.Itoa(format) + `'`,
	}
}

// migrate creates the table if it does not exist, and refuses a table that is not ours.
func migrate(ctx context.Context, c *pgx.Conn, o Options) error {
	there, err := checkTable(ctx, c, o)
	if there || err != nil {
		return err
	}
	return pgx.BeginTxFunc(ctx, c, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(o.lock("migrate "))); err != nil {
			return err
		}
		there, err := checkTable(ctx, tx, o) // another process may have created it
		if there || err != nil {
			return err
		}
		var schemas int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM pg_namespace WHERE nspname = $1`, o.Schema).Scan(&schemas); err != nil {
			return err
		}
		todo := createTable(o)
		if schemas == 0 { // creating a schema needs a privilege, even if it exists
			todo = Migrations(&o)
		}
		for _, sql := range todo {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkTable reports whether the table exists, and returns an error if it is not ours.
func checkTable(ctx context.Context, q querier, o Options) (there bool, err error) {
	var kind, persistence, comment string
	var columns []string
	err = q.QueryRow(ctx, `
		SELECT c.relkind::text, c.relpersistence::text, coalesce(obj_description(c.oid, 'pg_class'), ''), array(
			SELECT a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
				|| CASE WHEN EXISTS (SELECT 1 FROM pg_index i
					WHERE i.indrelid = c.oid AND i.indisprimary AND i.indnatts = 1 AND i.indkey[0] = a.attnum) THEN ' primary key' ELSE '' END
			FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = $2`, o.Schema, o.Table).Scan(&kind, &persistence, &comment, &columns)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	number, stamped := strings.CutPrefix(comment, stamp)
	version, err := strconv.Atoi(number)
	if !stamped || err != nil {
		return true, fmt.Errorf("%s is not one of our tables: its comment is %q and not %q and a number", o.quoted(), comment, stamp)
	}
	if version > format {
		return true, fmt.Errorf("%s has format %d, and this release knows %d: %w", o.quoted(), version, format, storage.ErrFutureFormat)
	}
	// Later formats may add columns elsewhere, but must keep these.
	want := []string{"k bytea not null primary key", "v bytea not null"}
	if kind+persistence != "rp" || !slices.Equal(columns, want) {
		return true, fmt.Errorf("%s is not one of our tables: it is of the kind %q and has the columns %q", o.quoted(), kind+persistence, columns)
	}
	return true, nil
}
