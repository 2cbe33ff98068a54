package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

func wrap(action string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("postgres: %s: %w", action, err)
}

// An unknownError is the error of a COMMIT, or of what was sent along with one,
// after which nobody knows whether it took place.
type unknownError struct{ error }

func (e *unknownError) Error() string { return "outcome unknown: " + e.error.Error() }

func (e *unknownError) Unwrap() error { return e.error }

// SafeToRetry hides the method of an error of pgconn, which calls a COMMIT that
// took place safe to retry.
func (e *unknownError) SafeToRetry() bool { return false }

// SafeToRetry is the same for all that Commit answers.
func (e *lostError) SafeToRetry() bool { return false }

// An undoneError is the server's answer to a statement before COMMIT: nothing
// was written.
type undoneError struct{ *pgconn.PgError }

func (e *undoneError) Unwrap() error { return e.PgError }

// A lostError is that of a connection that was lost before COMMIT was sent:
// nothing was written, nor can be.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

var (
	// errMoved: a row came while others were being locked.
	errMoved = errors.New("rows keep coming in and going")

	// errWithdrawn: the caller left while the batch was in a group that did not
	// judge it.
	errWithdrawn = errors.New("withdrawn")

	// errBusy: certainly not written.
	errBusy = errors.New("other transactions hold the rows of the batch, or of those before it, for too long")
)

// cut says that err is of a connection that was there and is no more. A pooler says
// how severe it is in one way only.
func cut(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return false
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return cmp.Or(e.SeverityUnlocalized, e.Severity) == "FATAL"
	}
	_, broken := errors.AsType[*net.OpError](err)
	return broken || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// A remedy is what to do about a group that was not applied.
type remedy uint8

const (
	give  remedy = iota // the error to everybody
	again               // all of it anew, with fresh reads
	split               // in halves, as one of them may be to blame
)

// What the server calls them.
const (
	uniqueViolation  = "23505"
	lockNotAvailable = "55P03"

	duplicatePrepared = "42P05"
	protocolViolation = "08P01"
)

func remedyOf(err error) remedy {
	if _, lost := errors.AsType[*lostError](err); lost || err == errMoved {
		return again
	}
	undone, ok := errors.AsType[*undoneError](err)
	if !ok {
		return give
	}
	switch code := undone.Code; {
	case code == uniqueViolation, strings.HasPrefix(code, "40"): // by others, so a fresh read shows it
		return again
	case code == lockNotAvailable, strings.HasPrefix(code, "22"), strings.HasPrefix(code, "54"):
		return split
	}
	return give
}
