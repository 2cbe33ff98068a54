package sqlite

import (
	"context"
	"database/sql"
)

// TxOf is the transaction of a function that Store.Transact has called with ctx.
func TxOf(ctx context.Context) *sql.Tx { return ctx.Value(txKey{}).(*transaction).Tx }
