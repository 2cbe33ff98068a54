// Package pooled finds out whether a pooler between a client and a PostgreSQL server shares the server's sessions.
package pooled

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Tells reports whether e can only come from a pooler that shares sessions. A
// new session of our own has no prepared statements, and keeps those that it gets. PgBouncer's
// statement mode refuses transactions, with a code that it uses for other errors too.
func Tells(e *pgconn.PgError) bool {
	const duplicatePrepared, missingPrepared, protocolViolation = "42P05", "26000", "08P01"
	return e.Code == duplicatePrepared || e.Code == missingPrepared || e.Code == protocolViolation && strings.Contains(e.Message, "statement pooling")
}

// Shared reports whether c changes its session from one statement to the next, or while other is
// in a transaction. A pooler that shares sessions gives other the session that was used last,
// or each statement the one that was unused for longest. Another client of the pooler may
// come between, so it asks several times.
func Shared(ctx context.Context, c, other *pgx.Conn) (bool, error) {
	first, err := backend(ctx, c.PgConn())
	if err != nil {
		return false, err
	}
	for range 3 {
		next, err := backend(ctx, c.PgConn())
		if err != nil {
			return false, err
		}
		tx, err := other.Begin(ctx)
		if err != nil {
			return false, err
		}
		meanwhile, err := backend(ctx, c.PgConn())
		if err := errors.Join(err, tx.Rollback(ctx)); err != nil {
			return false, err
		}
		if next != first || meanwhile != first {
			return true, nil
		}
	}
	return false, nil
}

// backend returns the process ID of the server process that answers.
func backend(ctx context.Context, c *pgconn.PgConn) (string, error) {
	results, err := c.Exec(ctx, `SELECT pg_backend_pid()`).ReadAll()
	if err != nil {
		return "", err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return "", errors.New("the server returned no row")
	}
	return string(results[0].Rows[0][0]), nil
}
