package sqlite

import (
	"errors"
	"fmt"
	"os"

	"github.com/weft-go/weft/internal/filelock"
	"github.com/weft-go/weft/storage"
)

// A lock is held by one opener of a file at a time, also within one process, or by
// several that share it. The file is never removed: removing it while another process holds
// the lock would let a third one in. Its content is ignored.
type lock struct{ file *os.File }

// lockSuffix follows the name of the database in that of its lock file.
const lockSuffix = ".lock"

// acquire locks the file at path and creates it if it does not exist. It does not wait.
// If the file was removed between opening and locking it, it tries again.
func acquire(path string, shared bool) (*lock, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // os adds O_CLOEXEC
		if err != nil {
			return nil, err
		}
		opened, err := f.Stat()
		if err == nil {
			err = locked(f, shared)
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		if there, err := os.Stat(path); err == nil && os.SameFile(opened, there) {
			return &lock{f}, nil
		}
		f.Close()
	}
}

// locked locks a file, or says what to do instead.
func locked(f *os.File, shared bool) error {
	err := filelock.Lock(f, shared)
	switch {
	case err != storage.ErrInUse:
		return err
	case shared:
		return fmt.Errorf("%w, that has it for itself: %s is locked; each must set Options.Shared", err, f.Name())
	}
	return fmt.Errorf("%w: %s is locked; stop that one, or set Options.Shared in each, which lets several processes open it", err, f.Name())
}

// release gives the lock back.
func (l *lock) release() error { return errors.Join(filelock.Unlock(l.file), l.file.Close()) }
