//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sqlite

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weft-go/weft/storage"
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
			if shared {
				return fmt.Errorf("%w, that has it for itself: %s is locked; each must set Options.Shared", storage.ErrInUse, f.Name())
			}
			return fmt.Errorf("%w: %s is locked; stop that one, or set Options.Shared in each, which lets several processes open it", storage.ErrInUse, f.Name())
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
