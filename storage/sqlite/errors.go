package sqlite

import (
	"context"
	"errors"
	"fmt"

	driver "modernc.org/sqlite"
	code "modernc.org/sqlite/lib"

	"github.com/weft-go/weft/storage"
)

var errReadOnly = fmt.Errorf("opened read-only: %w", errors.ErrUnsupported)

// error adds the action and the file to err. It leaves the contract's own errors
// unchanged, as they are not about the file.
func (s *Store) error(action string, err error) error {
	if w, ok := errors.AsType[*storage.WithdrawnError](err); ok {
		w.Last = s.error(action, w.Last)
	}
	switch {
	case err == nil, errors.Is(err, storage.ErrConflict), errors.Is(err, storage.ErrInvalidBatch),
		errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("sqlite: %s %q: %w", action, s.path, err)
}

// translate maps the driver's errors for a damaged file to storage.ErrCorrupt.
func translate(err error) error {
	switch primary(err) {
	case code.SQLITE_CORRUPT, code.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	return err
}

// primary returns SQLite's result code without its extension, or 0.
func primary(err error) int {
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}
