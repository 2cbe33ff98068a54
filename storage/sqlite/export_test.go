package sqlite

import (
	"context"
	"database/sql"
)

// TxOf returns the transaction from the context of a function in Store.Transact.
func TxOf(ctx context.Context) *sql.Tx { return ctx.Value(txKey{}).(*transaction).Tx }
