package place

import (
	"errors"
	"io/fs"
	"syscall"
)

// SyncRead syncs f, which is open for reading: a process that was killed may have left what it had not synced. Some
// systems sync only what is open for writing, and some file systems, such as those that cannot be written, nothing.
func SyncRead[F interface{ Sync() error }](f F) error {
	err := f.Sync()
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EROFS) {
		return nil
	}
	return err
}
