package place

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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

// SyncFolderOf syncs the folder of the file, behind links. A process that was killed may have created the file and not have
// synced its name.
func SyncFolderOf(file string) error {
	file, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(file))
	if errors.Is(err, fs.ErrPermission) {
		return nil // a process may use a file in a folder that it may not read
	}
	if err != nil {
		return err
	}
	defer d.Close()
	return SyncRead(d)
}
