package engine

import (
	"fmt"
)

func invalid(what, value, problem string) error {
	if len(value) > 40 {
		value = value[:40] + "…"
	}
	return fmt.Errorf("%w: %s %q %s", ErrInvalid, what, value, problem)
}

func notFound(id string) error { return fmt.Errorf("%w: %q", ErrNotFound, id) }
