package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weft-go/weft/storage"
)

func wrap(action string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("postgres: %s: %w", action, err)
}

// An unknownError is the error of a COMMIT, or of a statement sent along with it, that leaves the outcome unknown.
type unknownError struct{ error }

func (e *unknownError) Error() string { return "outcome unknown: " + e.error.Error() }

func (e *unknownError) Unwrap() error { return e.error }

// SafeToRetry hides the method of pgconn's errors, which reports true for some COMMITs that took place.
func (e *unknownError) SafeToRetry() bool { return false }

// SafeToRetry does the same, so that it is false for every error of Commit.
func (e *lostError) SafeToRetry() bool { return false }

// An undoneError is the server's error for a read, or for a statement before COMMIT: nothing was written.
type undoneError struct{ *pgconn.PgError }

func (e *undoneError) Unwrap() error { return e.PgError }

// Is reports whether what the statement needs is damaged.
func (e *undoneError) Is(target error) bool {
	return target == storage.ErrCorrupt && damaged(e.Code)
}

func damaged(code string) bool { return code == dataCorrupted || code == indexCorrupted }

// readError returns the error of a read. One of damage is a storage.ErrCorrupt.
func readError(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && damaged(e.Code) {
		return &undoneError{e}
	}
	return err
}

// A lostError means that the connection was lost before COMMIT was sent: nothing was written, nor will be.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

var (
	// errMoved: a row was inserted or deleted while others were being locked.
	errMoved = errors.New("other transactions keep inserting or deleting rows that the batch needs")

	// errWithdrawn: the caller's context ended while the batch was in a group that did not judge it.
	errWithdrawn = errors.New("withdrawn")

	// errBusy: nothing was written.
	errBusy = errors.New("timed out: rows of the batch, or of batches ahead of it, are locked by other transactions")
)

// cut reports whether err means that an established connection was lost, or closed by a read
// because it was to a standby. A pooler sends only one of the two severity fields.
func cut(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return false
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return cmp.Or(e.SeverityUnlocalized, e.Severity) == "FATAL"
	}
	_, broken := errors.AsType[*net.OpError](err)
	return broken || err == errRecovering || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// A remedy is what to do about a group that was not applied.
type remedy uint8

const (
	fail  remedy = iota // return the error for all batches
	retry               // retry the whole group with fresh reads
	split               // apply it in halves, as a single batch may be the cause
)

// SQLSTATE codes of the server.
const (
	uniqueViolation  = "23505"
	lockNotAvailable = "55P03"
	invalidText      = "22P02"
	dataCorrupted    = "XX001"
	indexCorrupted   = "XX002"

	// The classes of errors that concern all batches: the server is read-only, lacks the
	// table or a right to it, has no room, or its operator or a timeout interferes.
	ofAll = "25 42 53 57"
)

func remedyOf(err error) remedy {
	if _, lost := errors.AsType[*lostError](err); lost || err == errMoved {
		return retry
	}
	undone, ok := errors.AsType[*undoneError](err)
	if !ok {
		return fail
	}
	switch code := undone.Code; {
	case code == uniqueViolation, rolledBack(code): // caused by others, so fresh reads will differ
		return retry
	case strings.Contains(ofAll, code[:min(2, len(code))]):
		return fail
	}
	return split
}

// rolledBack reports whether a code says that the server has rolled back. Of its class, one says that it does not know.
func rolledBack(code string) bool {
	const statementCompletionUnknown = "40003"
	return strings.HasPrefix(code, "40") && code != statementCompletionUnknown
}
