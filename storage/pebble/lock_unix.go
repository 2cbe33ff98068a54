//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pebble

import (
	"os"

	"golang.org/x/sys/unix"
)

// flock locks the folder. The operating system releases the lock when the process ends.
func flock(f *os.File, readOnly bool) error {
	how := unix.LOCK_EX
	if readOnly {
		how = unix.LOCK_SH
	}
	for {
		switch err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err {
		case nil:
			return nil
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			return errInUse
		default:
			return &os.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
	}
}

func funlock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		return &os.PathError{Op: "unlock", Path: f.Name(), Err: err}
	}
	return nil
}
