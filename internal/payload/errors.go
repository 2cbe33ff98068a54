package payload

import (
	"errors"
	"fmt"

	"github.com/weft-go/weft"
)

// Invalid returns an error that wraps weft.ErrInvalid.
func Invalid(what, value, problem string) error {
	if len(value) > 40 {
		value = value[:40] + "…"
	}
	return &invalid{fmt.Sprintf("%s %q %s", what, value, problem)}
}

type invalid struct{ why string }

func (e *invalid) Error() string { return weft.ErrInvalid.Error() + ": " + e.why }
func (e *invalid) Unwrap() error { return weft.ErrInvalid }

// Why returns what is invalid, for an error that says so of a larger thing: the text of an error of Invalid without
// that of weft.ErrInvalid, and the whole text of any other.
func Why(err error) string {
	if e, ok := errors.AsType[*invalid](err); ok {
		return e.why
	}
	return err.Error()
}

// NotFound returns an error that wraps weft.ErrNotFound.
func NotFound(id string) error { return fmt.Errorf("%w: %q", weft.ErrNotFound, id) }
