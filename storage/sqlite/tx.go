package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/weft-go/weft/storage"
)

// WithTx returns a view of s inside tx, a transaction that the host began on its own
// connection to the same database, with the driver modernc.org/sqlite. A batch committed to
// the view is staged: it takes effect if and only if tx commits.
//
// SQLite has one writer: from the first staged batch until tx ends, the store's own
// commits wait. So stage last and commit soon. If SQLite has ended tx by itself, nothing is staged. Put _txlock=immediate in the host's DSN;
// otherwise SQLite may refuse to let a transaction write after it has read, and the host
// must start it again. The host's connection decides how durable the commit is: on macOS, it also needs
// PRAGMA fullfsync = 1.
func (s *Store) WithTx(tx *sql.Tx) storage.Tx {
	return s.view(tx, false)
}

// view returns a view. ours says that tx is on a connection that the store has made.
func (s *Store) view(tx *sql.Tx, ours bool) *view {
	return &view{base: s, tx: tx, sql: newStatements(s.options.Table), ours: ours}
}

// A view is a store inside a transaction.
type view struct {
	base *Store
	tx   *sql.Tx
	sql  statements
	ours bool // tx was begun with the SQLite of this store, on a connection that syncs
}

func (v *view) Base() storage.Storage              { return v.base }
func (v *view) Capabilities() storage.Capabilities { return v.base.Capabilities() }

// Close does nothing: the host ends the transaction.
func (v *view) Close() error { return nil }

func (v *view) Get(ctx context.Context, key []byte) ([]byte, error) {
	var value []byte
	err := v.tx.QueryRowContext(ctx, v.sql.get, key).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, storage.ErrNotFound
	}
	if err != nil {
		return nil, v.aborted("get", err)
	}
	return value, nil
}

func (v *view) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	limit := r.Limit
	if limit <= 0 {
		limit = storage.DefaultLimit
	}
	rows, err := v.tx.QueryContext(ctx, v.sql.scan(r), anys(append(bounds(r), int64(limit)))...)
	if err != nil {
		return nil, v.aborted("scan", err)
	}
	defer rows.Close()
	var page []storage.Entry
	for rows.Next() {
		var e storage.Entry
		if err := rows.Scan(&e.Key, &e.Value); err != nil {
			return nil, v.aborted("scan", err)
		}
		page = append(page, e)
	}
	if err := rows.Err(); err != nil {
		return nil, v.aborted("scan", err)
	}
	return page, nil
}

// Commit stages b in a savepoint, and rolls the savepoint back if a condition fails.
func (v *view) Commit(ctx context.Context, b storage.Batch) error {
	if v.base.options.ReadOnly {
		return v.aborted("stage", errReadOnly)
	}
	if err := b.Check(maxBatch); err != nil {
		return err
	}
	if err := cmp.Or(v.base.failure(), v.base.files.Check()); err != nil { // the host's connection may be to another file
		return v.aborted("stage", err)
	}
	if err := v.check(ctx); err != nil {
		return v.aborted("stage", err)
	}
	if err := v.open(ctx); err != nil {
		return v.aborted("stage", err)
	}
	if err := v.exec(ctx, "SAVEPOINT weft"); err != nil {
		return err
	}
	// Write first: this takes the write lock, so what is read next cannot change.
	if err := v.exec(ctx, v.sql.delete, []byte{}); err != nil {
		return err
	}
	for _, c := range b.If {
		holds, err := v.holds(ctx, c)
		if err != nil {
			return err
		}
		if !holds {
			if err := v.exec(ctx, "ROLLBACK TO weft"); err != nil {
				return err
			}
			if err := v.exec(ctx, "RELEASE weft"); err != nil {
				return err
			}
			return storage.ErrConflict
		}
	}
	for _, o := range b.Ops {
		var err error
		switch o.Kind {
		case storage.PutOp:
			err = v.exec(ctx, v.sql.put, o.Key, blob(o.Value))
		case storage.DeleteOp:
			err = v.exec(ctx, v.sql.delete, o.Key)
		case storage.DeleteRangeOp:
			err = v.exec(ctx, v.sql.deleteRange(o.Range), anys(bounds(o.Range))...)
		}
		if err != nil {
			return err
		}
	}
	return v.exec(ctx, "RELEASE weft")
}

// library returns what identifies a build of SQLite. Two drivers may have the same version of it. The query reads
// no table, and pragma_compile_options is one: a deferred transaction would begin to read.
const library = `WITH RECURSIVE about(i, it) AS (
	SELECT 0, sqlite_source_id() UNION ALL SELECT i + 1, sqlite_compileoption_get(i) FROM about WHERE it IS NOT NULL
) SELECT group_concat(it) FROM about`

// check returns an error if the host has begun the transaction with another SQLite than that of this
// store. Neither of the two would know of the locks of the other: closing a file releases those
// that the process has on it. It also returns one if the host's connection does not sync: its checkpoints would not either,
// and the store overwrites a log that was checkpointed.
func (v *view) check(ctx context.Context) error {
	if v.ours {
		return nil
	}
	var theirs string
	if err := v.tx.QueryRowContext(ctx, library).Scan(&theirs); err != nil {
		return err
	}
	if theirs != v.base.library {
		return errors.New("the transaction was begun with another SQLite: in this process, open the database only with modernc.org/sqlite")
	}
	var sync int
	if err := v.tx.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&sync); err != nil {
		return err
	}
	if sync == 0 && !v.base.options.Relaxed {
		return errors.New("the transaction has a connection with PRAGMA synchronous = OFF, which could lose what the store has committed: set it to NORMAL or FULL")
	}
	v.ours = true
	return nil
}

// errEnded means that what the host believes to be a transaction is none any more.
var errEnded = errors.New("SQLite has ended the transaction, as it does when the context of a statement that writes ends, or by ON CONFLICT ROLLBACK: " +
	"roll back, and begin again")

// open returns an error if SQLite has ended the transaction by itself, which database/sql does not notice. A savepoint would
// be a transaction of its own, and so committed.
func (v *view) open(ctx context.Context) error {
	_, err := v.tx.ExecContext(ctx, "BEGIN")
	if err == nil {
		_, err = v.tx.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return cmp.Or(err, errEnded)
	}
	if strings.Contains(err.Error(), "within a transaction") {
		return nil
	}
	return err
}

func (v *view) holds(ctx context.Context, c storage.Condition) (bool, error) {
	value, err := v.Get(ctx, c.Key)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return c.Kind == storage.IsAbsent, nil
	case err != nil:
		return false, err
	case c.Kind == storage.IsEqual:
		return string(value) == string(c.Value), nil
	}
	return c.Kind == storage.IsPresent, nil
}

func (v *view) exec(ctx context.Context, query string, args ...any) error {
	if _, err := v.tx.ExecContext(ctx, query, args...); err != nil {
		return v.aborted("stage", err)
	}
	return nil
}

func (v *view) aborted(action string, err error) error {
	return fmt.Errorf("%w: %w", storage.ErrAborted, v.base.error(action, translate(err)))
}

func anys(values []driver.Value) []any {
	out := make([]any, len(values))
	for i, x := range values {
		out[i] = x
	}
	return out
}
