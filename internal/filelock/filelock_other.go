//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package filelock

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// Lock returns an error that wraps errors.ErrUnsupported.
func Lock(*os.File, bool) error {
	return fmt.Errorf("lock: not on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Unlock does nothing: nothing is locked.
func Unlock(*os.File) error { return nil }
