package observed

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weft-go/weft/storage"
)

// Refused returns the error of a COMMIT after which nothing is written. It is a storage.ErrTransactionRefused if it is about what
// the function did: about data, constraints, privileges and names, or from RAISE. Other classes of errors are about other
// transactions, or the state of a server.
func Refused(err error) error { return blame(err, "22", "23", "27", "42", "44", "P0") }

// Forbidden returns the error of a statement behind the function. It is a storage.ErrTransactionRefused if the function has made the
// transaction read-only.
func Forbidden(err error) error { return blame(err, "25006") }

// blame returns err, as a storage.ErrTransactionRefused if it is the server's and its code begins with one of these.
func blame(err error, codes ...string) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !slices.ContainsFunc(codes, func(code string) bool { return strings.HasPrefix(e.Code, code) }) {
		return err
	}
	return fmt.Errorf("%w: %w", storage.ErrTransactionRefused, err)
}
