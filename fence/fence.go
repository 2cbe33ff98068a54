// Package fence lets an SQL database refuse late writes of a workflow's former owner.
//
// If an engine is stopped for longer than its lease, by a debugger, a hypervisor or a
// garbage collector, another engine takes over. When the first engine resumes, it can
// no longer commit to its store. But its activity may be about to write to a database
// of yours, which the store does not know of, and then writes after its successor has.
//
// Each attempt of an activity has a fencing token, [activity.Info.FencingToken], which
// rises with every attempt and every owner. A guard remembers the highest that it has
// seen for a resource, in the same database, and refuses a lower one:
//
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	info := activity.InfoFrom(ctx)
//	err = fence.Guard(ctx, tx, info.WorkflowID+"/"+info.Operation, info.FencingToken)
//	if errors.Is(err, fence.ErrStale) {
//		err = activity.NoEffect(err) // a later attempt was here, and tx is rolled back
//	}
//	if err != nil {
//		return err
//	}
//	tx.ExecContext(ctx, `UPDATE stock SET reserved = reserved + 1 WHERE item = $1`, item)
//	...
//	return tx.Commit()
//
// It works on PostgreSQL, SQLite and databases compatible with their SQL, in a table
// that [Schema] creates.
//
// # Caveats
//
//   - Call the guard in the same transaction as the writes that it protects, and before
//     them: it locks the resource until the transaction ends.
//   - Tokens rise within one workflow. Those of two workflows cannot be compared, so
//     the name of the resource must begin with the workflow's id. If several operations
//     of one workflow run at once, give each a resource of its own: WorkflowID and
//     Operation.
//   - The token of a context that is not an attempt's is 0, which a guard refuses. A test makes the
//     context with activity.NewContext.
//   - The table has a row for each resource, and nothing deletes it. Delete the rows of a workflow when it has
//     ended and no process that has executed it can still run, such as when its tombstone is gone
//     (engine.Config.TombstoneRetention). Keep the highest token of the table: after a restore
//     engine.Engine.Restored needs it.
//   - It keeps a former owner out as soon as its successor has called it, and not
//     before. If a verifier calls Guard and commits before it looks, an effect that it
//     does not find can no longer happen: see activity.Activity.VerifyFences.
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

// ErrStale says that a higher token was here before.
var ErrStale = errors.New("fence: stale token")

// Schema is the statement that creates the table of the guards. It may be run again.
const Schema = `CREATE TABLE IF NOT EXISTS weft_fence (resource text PRIMARY KEY, token bigint NOT NULL)`

// raise changes no row if the token is lower than the stored one. On PostgreSQL it
// waits for other transactions on the resource and then compares with their result.
const raise = `INSERT INTO weft_fence (resource, token) VALUES ($1, $2)
	ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE weft_fence.token <= excluded.token`

// Guard raises the token of a resource in tx, or refuses with ErrStale: then do not
// commit tx. The same token is accepted again, because it is the same attempt. Other
// errors are the database's.
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
