//go:build !linux

package place

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// An id identifies a file by what the system reports about it.
type id struct{ info os.FileInfo }

func (a id) is(b id) bool { return os.SameFile(a.info, b.info) }

func look(path string) (id, error) {
	info, err := os.Stat(path)
	if errors.Is(err, syscall.ENOTDIR) {
		err = &os.PathError{Op: "stat", Path: path, Err: fs.ErrNotExist}
	}
	return id{info}, err
}
