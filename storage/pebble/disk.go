package pebble

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weft-go/weft/internal/place"
	"github.com/weft-go/weft/storage"
)

// A disk is the file system that a database writes to.
//
// Pebble ends the process when it cannot write its log or its manifest, in the middle of its
// critical sections. A disk does not let it notice. At the first such error the disk fails:
// what pebble writes from then on goes to memory or nowhere, as if the power had gone, and
// every call succeeds. Who has committed asks for the failure before anything is acknowledged.
// So pebble can always finish what it does, can be read, and can be closed. The files are those
// of a crash at the moment of the failure.
type disk struct {
	vfs.FS
	dir    string
	files  *place.Files // the place of dir; nil if FS is in memory
	failed atomic.Pointer[error]
	log    atomic.Pointer[place.Files] // the place of the log
	last   atomic.Pointer[file]        // the log that was created last

	creating sync.RWMutex // read-locked while a file is created

	mu    sync.Mutex
	fresh []string // tables of flushes, created since the manifest was written, so that it has none of them; guarded by mu

	memory  *vfs.MemFS    // has what is created after the failure
	waiting chan struct{} // closed by abandon
	once    sync.Once
}

func newDisk(below vfs.FS, dir string, files *place.Files) *disk {
	d := &disk{FS: below, dir: dir, files: files, memory: vfs.NewMem(), waiting: make(chan struct{})}
	d.memory.MkdirAll(dir, 0o700)
	return d
}

// fail makes err the failure, unless there is one. A full disk passes, so any other failure replaces that one.
func (d *disk) fail(err error) {
	if !full(err) && !errors.Is(err, storage.ErrMoved) && !errors.Is(err, storage.ErrFailed) {
		err = fmt.Errorf("%w: %w", storage.ErrFailed, err)
	}
	for {
		last := d.failed.Load()
		if last != nil && (full(err) || !full(*last)) || d.failed.CompareAndSwap(last, &err) {
			return
		}
	}
}

func (d *disk) failure() error {
	if err := d.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// full reports whether err says that there is no room.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// check returns the failure. It fails if the folder or the log has moved.
func (d *disk) check() error { return d.look((*place.Files).Check) }

// readable is check for reads. They can continue when the disk is full.
func (d *disk) readable() error {
	err := d.look((*place.Files).Glance)
	if full(err) {
		return nil
	}
	return err
}

func (d *disk) look(look func(*place.Files) error) error {
	failure := d.failure()
	if d.files == nil || failure != nil && !full(failure) {
		return failure
	}
	err := look(d.files)
	if log := d.log.Load(); err == nil && log != nil {
		err = look(log)
		if errors.Is(err, storage.ErrMoved) && d.log.Load() != log {
			return d.look(look) // pebble has replaced the log, and may have removed that one
		}
	}
	if errors.Is(err, storage.ErrMoved) {
		d.fail(err)
		return err
	}
	return cmp.Or(failure, err)
}

// releaseLog has the log not looked at until restore is called, so that it may be removed. If it
// was, it is not looked at any more.
func (d *disk) releaseLog() (restore func()) {
	log := d.log.Swap(nil)
	return func() {
		if log != nil && !errors.Is(log.Check(), storage.ErrMoved) {
			d.log.Store(log)
		}
	}
}

// abandon ends the waiting of compactions, before the database is closed.
func (d *disk) abandon() { d.once.Do(func() { close(d.waiting) }) }

// pause keeps pebble from trying a compaction again at once.
func (d *disk) pause() {
	again := time.NewTimer(time.Second)
	defer again.Stop()
	select {
	case <-again.C:
	case <-d.waiting:
	}
}

// created notes a table of a flush.
func (d *disk) created(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fresh = append(d.fresh, name)
}

// listed has no table removed that was created until now, since the manifest may have it.
func (d *disk) listed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fresh = nil
}

// seal waits until no file is being created, and has no table removed any more. After it, another
// database may be opened in the folder, and give its files the same names: a disk that has failed
// creates none.
func (d *disk) seal() {
	d.creating.Lock()
	defer d.creating.Unlock()
	d.listed()
}

// discard removes the tables of a flush that failed with err, if the disk is full: what they
// have is in the log, too, and the next attempt needs the room. Pebble writes to the manifest
// only after all calls to all tables of a flush have succeeded.
func (d *disk) discard(err error) {
	if !full(err) || d.files != nil && d.files.Check() != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range d.fresh {
		d.FS.Remove(name) // if it stays, the next success removes it
	}
	d.fresh = nil
}

// mine reports whether name is a file of the database, and not of a backup.
func (d *disk) mine(name string) bool { return filepath.Dir(name) == d.dir }

// A kind of file says what follows from an error.
type kind int

const (
	vital   kind = iota // the log, the manifest and so on: the disk fails, and pebble does not notice
	flushed             // a table with what was in memory: the disk fails, and pebble tries again
	merged              // a table that a compaction writes: pebble tries again
)

func kindOf(name string, c vfs.DiskWriteCategory) kind {
	switch {
	case !strings.HasSuffix(name, ".sst"):
		return vital
	case c == "pebble-memtable-flush":
		return flushed
	}
	return merged
}

func (d *disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.create(name, kindOf(name, c), func() (vfs.File, error) { return d.FS.Create(name, c) })
}

func (d *disk) ReuseForWrite(last, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.create(name, kindOf(name, c), func() (vfs.File, error) { return d.FS.ReuseForWrite(last, name, c) })
}

func (d *disk) create(name string, k kind, create func() (vfs.File, error)) (vfs.File, error) {
	f, err := d.tryToCreate(name, k, create)
	switch {
	case err == nil || !d.mine(name):
		return f, err
	case k == merged:
		d.pause()
		return nil, err
	case k == flushed:
		d.discard(err)
	case !strings.HasSuffix(name, ".log"):
		d.listed() // a manifest in memory has tables, too, which are read
	}
	d.fail(err)
	return d.memory.Create(name, vfs.WriteCategoryUnspecified)
}

// tryToCreate creates a file, unless the disk has failed.
func (d *disk) tryToCreate(name string, k kind, create func() (vfs.File, error)) (vfs.File, error) {
	d.creating.RLock()
	defer d.creating.RUnlock()
	if err := d.check(); err != nil {
		return nil, err
	}
	if !d.mine(name) {
		return create()
	}
	if strings.HasPrefix(filepath.Base(name), "marker.") {
		// A marker names a file that pebble has created, and pebble syncs the folder after both.
		// A power loss might leave the marker without the file.
		if err := d.syncDir(); err != nil {
			return nil, err
		}
	}
	f, err := create()
	if err != nil {
		return nil, err
	}
	w := &file{File: f, disk: d, kind: k, name: name}
	if k == flushed {
		d.created(name)
	}
	if strings.HasSuffix(name, ".log") {
		d.last.Store(w)
		if d.files != nil {
			if log, err := place.Of(name); err == nil {
				d.log.Store(log)
			} else {
				d.fail(err)
			}
		}
	}
	return w, nil
}

func (d *disk) syncDir() error { return syncFolder(d.FS, d.dir) }

func syncFolder(below vfs.FS, dir string) error {
	f, err := below.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// MkdirAll creates the folder of a backup. The mode of the folder protects the files in it.
func (d *disk) MkdirAll(dir string, _ fs.FileMode) error { return d.FS.MkdirAll(dir, 0o700) }

func (d *disk) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	f, err := d.FS.OpenReadWrite(name, c, o...)
	if err != nil || !d.mine(name) {
		return f, err
	}
	return &file{File: f, disk: d, kind: kindOf(name, c)}, nil
}

func (d *disk) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	if d.inMemory(name) {
		return d.memory.Open(name, o...)
	}
	f, err := d.FS.Open(name, o...)
	if w := d.last.Load(); err == nil && w != nil && w.name == name {
		return &prefix{f, io.LimitReader(f, w.written.Load())}, nil
	}
	return f, err
}

// A prefix is what a log had when it was opened to be copied. Without it, a copy could have a
// block that was read before it was written and a later one that was read after that, which
// pebble takes for damage: https://github.com/cockroachdb/pebble/issues/5142.
type prefix struct {
	vfs.File
	part io.Reader
}

func (p *prefix) Read(b []byte) (int, error) { return p.part.Read(b) }

func (d *disk) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	if err != nil || name != d.dir {
		return f, err
	}
	return &file{File: f, disk: d, kind: vital}, nil
}

func (d *disk) Stat(name string) (vfs.FileInfo, error) {
	if d.inMemory(name) {
		return d.memory.Stat(name)
	}
	return d.FS.Stat(name)
}

// inMemory reports whether name was created after the failure.
func (d *disk) inMemory(name string) bool {
	if d.failure() == nil || !d.mine(name) {
		return false
	}
	_, err := d.memory.Stat(name)
	return err == nil
}

func (d *disk) Remove(name string) error {
	switch {
	case !d.mine(name) || d.check() == nil:
		return d.FS.Remove(name)
	case d.inMemory(name):
		return d.memory.Remove(name)
	}
	return nil
}

func (d *disk) RemoveAll(name string) error {
	if d.mine(name) || name == d.dir {
		if err := d.check(); err != nil {
			return err
		}
	}
	return d.FS.RemoveAll(name)
}

func (d *disk) Rename(last, name string) error {
	if d.inMemory(last) {
		return d.memory.Rename(last, name)
	}
	if err := d.check(); err != nil {
		return err
	}
	err := d.FS.Rename(last, name)
	if err != nil && d.mine(name) {
		d.fail(err)
	}
	return err
}

func (d *disk) Link(last, name string) error {
	if err := d.check(); err != nil {
		return err
	}
	return d.FS.Link(last, name)
}

// Lock returns a lock without effect: the store has locked the folder.
func (d *disk) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (d *disk) Unwrap() vfs.FS { return d.FS }

// A file is one that pebble writes.
type file struct {
	vfs.File
	disk    *disk
	kind    kind
	name    string       // "" if it existed
	written atomic.Int64 // how many bytes, from the start
	once    sync.Once    // pauses
}

// do writes or syncs.
func (f *file) do(write func() error) error {
	err := f.disk.failure()
	if err == nil {
		if err = write(); err == nil {
			return nil
		}
		if f.kind == flushed {
			f.disk.discard(err) // before a commit sees the failure
		}
		if f.kind != merged {
			f.disk.fail(err)
		}
	}
	switch f.kind {
	case vital:
		return nil
	case merged:
		f.once.Do(f.disk.pause)
	}
	return err
}

// note notes what is about to be written to the manifest, or to a file that may be it.
func (f *file) note() {
	if f.kind == vital && !strings.HasSuffix(f.name, ".log") {
		f.disk.listed()
	}
}

func (f *file) Write(p []byte) (n int, err error) {
	n = len(p)
	f.note()
	err = f.do(func() error {
		n, err = f.File.Write(p)
		f.written.Add(int64(n))
		return err
	})
	if err == nil {
		n = len(p)
	}
	return n, err
}

func (f *file) WriteAt(p []byte, at int64) (n int, err error) {
	n = len(p)
	f.note()
	err = f.do(func() error {
		n, err = f.File.WriteAt(p, at)
		return err
	})
	if err == nil {
		n = len(p)
	}
	return n, err
}

func (f *file) Sync() error     { return f.do(f.File.Sync) }
func (f *file) SyncData() error { return f.do(f.File.SyncData) }

func (f *file) SyncTo(n int64) (whole bool, err error) {
	err = f.do(func() error {
		whole, err = f.File.SyncTo(n)
		return err
	})
	return whole, err
}

// Preallocate is an optimization, and need not succeed.
func (f *file) Preallocate(at, n int64) error {
	if f.disk.failure() == nil {
		f.File.Preallocate(at, n)
	}
	return nil
}

// Close closes the file also after a failure.
func (f *file) Close() error {
	err := f.File.Close()
	if err == nil {
		return nil
	}
	return f.do(func() error { return err })
}

// A logger receives what pebble says before it would end the process.
type logger struct{ disk *disk }

func (logger) Infof(string, ...any)  {}
func (logger) Errorf(string, ...any) {}

func (l logger) Fatalf(format string, args ...any) { l.disk.fail(fmt.Errorf(format, args...)) }
