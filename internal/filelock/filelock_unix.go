//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filelock

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/weft-go/weft/storage"
)

// Lock locks the file for this opening of it alone, or together with others that share it. It does not wait: if another
// opening, also one in the same process, holds a lock that excludes this one, it returns storage.ErrInUse.
func Lock(f *os.File, shared bool) error {
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
			return storage.ErrInUse
		default:
			return &os.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
	}
}

// Unlock releases the lock. Closing the file is not enough: a process that this one is starting just then, for whatever
// purpose, has a copy of its descriptors until it executes its program, and would hold the lock as long.
func Unlock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		return &os.PathError{Op: "unlock", Path: f.Name(), Err: err}
	}
	return nil
}
