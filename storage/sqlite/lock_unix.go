//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sqlite

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func flock(f *os.File, shared bool) error {
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	for {
		switch err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err {
		case nil:
			return nil
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			return fmt.Errorf("%w: %s is locked", errLocked, f.Name())
		default:
			return &os.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
	}
}
