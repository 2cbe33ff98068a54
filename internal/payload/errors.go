package payload

import (
	"fmt"

	"github.com/weft-go/weft"
)

// Invalid returns an error that wraps weft.ErrInvalid.
func Invalid(what, value, problem string) error {
	if len(value) > 40 {
		value = value[:40] + "…"
	}
	return fmt.Errorf("%w: %s %q %s", weft.ErrInvalid, what, value, problem)
}

// NotFound returns an error that wraps weft.ErrNotFound.
func NotFound(id string) error { return fmt.Errorf("%w: %q", weft.ErrNotFound, id) }
