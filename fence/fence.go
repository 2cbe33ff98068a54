// Package fence lets an SQL database refuse what a workflow's former owner writes to
// it.
//
// An engine that was stopped for longer than its lease, by a debugger, a hypervisor
// or a garbage collector, is succeeded by another. When it goes on it finds that it
// may commit nothing to its store. But its activity may stand just before a write to
// a database of yours, of which the store knows nothing, and makes that write after
// its successor has made its own.
//
// Each attempt of an activity has a fencing token, [activity.Info.FencingToken], which
// rises with every attempt and every owner. A guard remembers the highest that it has
// seen for a resource, in the same database, and refuses a lower one:
//
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	info := activity.InfoFrom(ctx)
//	if err := fence.Guard(ctx, tx, info.WorkflowID, info.FencingToken); err != nil {
//		return err // ErrStale: the transaction is rolled back
//	}
//	tx.ExecContext(ctx, `UPDATE stock SET reserved = reserved + 1 WHERE item = $1`, item)
//	...
//	return tx.Commit()
//
// It works on PostgreSQL, SQLite and what speaks their SQL, in a table that [Schema]
// creates.
//
// # Caveats
//
//   - The guard and what it guards are one transaction, of which the guard comes
//     first: it locks the resource until the transaction ends.
//   - Tokens rise within one workflow. Those of two workflows say nothing of each
//     other, so the name of the resource begins with the workflow's id. If several
//     operations of one workflow are under way at once, each has a resource of its
//     own: WorkflowID and Operation.
//   - It keeps a former owner out as soon as its successor was here, and not before.
//     A verifier that calls Guard and commits, before it looks, makes sure that what
//     it does not find never comes: see activity.Activity.VerifyFences.
//
// [activity.Info.FencingToken]: https://pkg.go.dev/github.com/weft-go/weft/activity#Info
package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
)

// ErrStale: somebody with a higher token was here before.
var ErrStale = errors.New("fence: stale token")

// Schema is the statement that creates the table of the guards. It may be run again.
const Schema = `CREATE TABLE IF NOT EXISTS weft_fence (resource text PRIMARY KEY, token bigint NOT NULL)`

// raise changes no row if the token is lower than the one that is there. On
// PostgreSQL it waits for whoever is at the resource and then compares with what that
// one has left.
const raise = `INSERT INTO weft_fence (resource, token) VALUES ($1, $2)
	ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE weft_fence.token <= excluded.token`

// Guard raises the token of a resource in tx, or refuses with ErrStale: then nothing
// that follows in tx may be committed. The same token is let in again, as it is the
// same attempt. Other errors are the database's.
func Guard(ctx context.Context, tx *sql.Tx, resource string, token uint64) error {
	return guard(resource, token, func(args ...any) (int64, error) {
		r, err := tx.ExecContext(ctx, raise, args...)
		if err != nil {
			return 0, err
		}
		return r.RowsAffected()
	})
}

// A PgxTx is a pgx.Tx.
type PgxTx[Tag interface{ RowsAffected() int64 }] interface {
	Exec(ctx context.Context, sql string, args ...any) (Tag, error)
	Commit(ctx context.Context) error
}

// GuardPgx is Guard in a transaction of the native pgx driver.
func GuardPgx[Tag interface{ RowsAffected() int64 }](ctx context.Context, tx PgxTx[Tag], resource string, token uint64) error {
	return guard(resource, token, func(args ...any) (int64, error) {
		tag, err := tx.Exec(ctx, raise, args...)
		if err != nil {
			return 0, err
		}
		return tag.RowsAffected(), nil
	})
}

func guard(resource string, token uint64, exec func(args ...any) (int64, error)) error {
	if resource == "" || token == 0 || token > math.MaxInt64 {
		return fmt.Errorf("fence: guard %q: token %d: both must be given", resource, token)
	}
	rows, err := exec(resource, int64(token))
	switch {
	case err != nil:
		return fmt.Errorf("fence: guard %q: %w", resource, err)
	case rows == 0:
		return fmt.Errorf("%w: %d at %q", ErrStale, token, resource)
	}
	return nil
}
