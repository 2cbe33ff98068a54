package observed

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weft-go/weft/storage"
)

// ofFunction are the classes of errors that are about what a function did: those of data, constraints, privileges and names, and
// those of RAISE. Others are about other transactions, or the state of a server.
const ofFunction = "22 23 27 42 44 P0"

// Refused returns the error of a COMMIT after which nothing is written. It is a storage.ErrTransactionRefused if it is about what
// the function did.
func Refused(err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !strings.Contains(ofFunction, e.Code[:min(2, len(e.Code))]) {
		return err
	}
	return fmt.Errorf("%w: %w", storage.ErrTransactionRefused, err)
}

// Forbidden returns the error of a statement behind the function. It is a storage.ErrTransactionRefused if the function has made the
// transaction read-only.
func Forbidden(err error) error {
	const readOnly = "25006"
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == readOnly {
		return fmt.Errorf("%w: %w", storage.ErrTransactionRefused, err)
	}
	return err
}
