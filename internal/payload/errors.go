package payload

import (
	"fmt"

	"github.com/weft-go/weft"
)

func Invalid(what, value, problem string) error {
	if len(value) > 40 {
		value = value[:40] + "…"
	}
	return fmt.Errorf("%w: %s %q %s", weft.ErrInvalid, what, value, problem)
}

func NotFound(id string) error { return fmt.Errorf("%w: %q", weft.ErrNotFound, id) }
