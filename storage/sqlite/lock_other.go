//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package sqlite

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

func flock(*os.File, bool) error {
	return fmt.Errorf("lock: not on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func funlock(*os.File) error { return nil }
