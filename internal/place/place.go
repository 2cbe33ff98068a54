// Package place checks whether the files that a store has open are still at the paths where
// it opened them.
//
// A process can keep using an open file after it was deleted, renamed or replaced. But nobody
// will find what it then writes, and another process may open the path meanwhile.
package place

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft/storage"
)

// Files are files and their original paths.
type Files struct {
	files []file
	moved atomic.Pointer[error] // what Check returns from now on
	seen  atomic.Int64          // time of Glance's last check, since epoch; 0: never
	epoch time.Time
}

type file struct {
	path string
	id   id
}

// Of records which files are at paths now. Paths must be absolute if the process may change
// its working directory.
func Of(paths ...string) (*Files, error) {
	f := &Files{epoch: time.Now()}
	for _, p := range paths {
		id, err := look(p)
		if err != nil {
			return nil, err
		}
		f.files = append(f.files, file{p, id})
	}
	return f, nil
}

// Check checks that each path still leads to the same file. If one does not, this call and all
// later ones return an error that wraps storage.ErrMoved, even if the file comes back: others
// may have used the path meanwhile. Any other error means that it could not be determined.
func (f *Files) Check() error {
	if err := f.Moved(); err != nil {
		return err
	}
	for i := range f.files {
		x := &f.files[i]
		id, err := look(x.path)
		switch {
		case err == nil && id.is(x.id):
			continue
		case err == nil:
			err = fmt.Errorf("%w: another file is at %q", storage.ErrMoved, x.path)
		case errors.Is(err, fs.ErrNotExist):
			err = fmt.Errorf("%w: nothing is at %q", storage.ErrMoved, x.path)
		default:
			return err
		}
		f.moved.CompareAndSwap(nil, &err)
		return f.Moved()
	}
	return nil
}

// Moved returns the result of earlier checks, without checking again.
func (f *Files) Moved() error {
	if err := f.moved.Load(); err != nil {
		return *err
	}
	return nil
}

// Interval is how long Glance relies on its last check.
const Interval = 10 * time.Millisecond

// Glance is Check for frequent calls: it checks only if Interval has passed since its last check.
func (f *Files) Glance() error {
	now, seen := int64(time.Since(f.epoch)), f.seen.Load()
	if since := now - seen; seen != 0 && 0 <= since && since < int64(Interval) {
		return f.Moved()
	}
	f.seen.Store(now)
	return f.Check()
}
