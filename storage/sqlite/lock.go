package sqlite

import (
	"errors"
	"os"
)

// A lock is held by one opener of a file at a time, also within one process, or by
// several that share it. The operating system releases it when the process ends. The
// file is never removed: removing it while another process holds the lock would let a
// third one in. Its content is ignored.
type lock struct{ file *os.File }

// acquire locks the file at path and creates it if it does not exist. It does not wait.
// If the file was removed between opening and locking it, it tries again.
func acquire(path string, shared bool) (*lock, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644) // os adds O_CLOEXEC
		if err != nil {
			return nil, err
		}
		opened, err := f.Stat()
		if err == nil {
			err = flock(f, shared)
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

// release gives the lock back. To close the file is not enough: a process that this one is just starting, for whatever purpose,
// has a copy of its descriptors until it executes its program, and would hold the lock as long.
func (l *lock) release() error { return errors.Join(funlock(l.file), l.file.Close()) }
