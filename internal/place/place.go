// Package place tells whether the files that a store has open are still where it
// opened them.
//
// A process keeps what it has open, also when somebody deletes it, renames it or puts
// another file in its place. What it then writes nobody will find, and another process
// may open the path meanwhile.
package place

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft/storage"
)

// Files are files, each with the path at which it was.
type Files struct {
	files []file
	moved atomic.Pointer[error] // what Check answers from now on
	seen  atomic.Int64          // when Glance looked last, after epoch; 0: never
	epoch time.Time
}

type file struct {
	path string
	id   id
}

// Of notes which files are at paths now. A caller that may change its directory passes
// absolute ones.
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

// Check looks whether each path leads to the file that was there. If one does not, it
// answers an error that wraps storage.ErrMoved, and so do all later calls: somebody may
// have had the path meanwhile. Another error says that nobody can tell.
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

// Moved is what an earlier Check found, without looking again.
func (f *Files) Moved() error {
	if err := f.moved.Load(); err != nil {
		return *err
	}
	return nil
}

// Interval is for how long Glance believes what it saw.
const Interval = 10 * time.Millisecond

// Glance is Check for calls that come often: it looks if it has not for an Interval.
func (f *Files) Glance() error {
	now, seen := int64(time.Since(f.epoch)), f.seen.Load()
	if since := now - seen; seen != 0 && 0 <= since && since < int64(Interval) {
		return f.Moved()
	}
	f.seen.Store(now)
	return f.Check()
}
