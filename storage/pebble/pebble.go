// Package pebble implements a store in a folder of files, a log-structured merge tree of
// github.com/cockroachdb/pebble.
//
// It is the embedded store for many commits per second. It is a module of its own, so that a
// program which does not use it does not depend on pebble. The folder belongs to the store
// alone. One opener at a time is admitted: a second one fails at once, and engines of an
// earlier opening are certainly dead. While no engine has it open, several processes may read
// it with [Options.ReadOnly].
//
// # Caveats
//
//   - A read never returns what is not yet on the disk. It reads the state after the last
//     commit that was synced, and does not wait for the one in progress.
//   - After an I/O error it is unknown which data has reached the disk. The store then returns
//     storage.ErrFailed until it is closed and opened again. This does not apply to a full disk:
//     reads continue, and commits continue within a second of when there is room again. That needs
//     about as much room as the log has.
//   - Leave the folder alone while the store is open. If it is deleted, renamed or replaced, or
//     if the file with the last commits is, every call returns storage.ErrMoved and no commit
//     is confirmed.
//   - The lock of the store is on the folder, and pebble's own tools do not see it. Use them
//     while the store is closed, or on a backup.
//   - Do not use a network file system: its file locks are not reliable.
//
// Back up with [Store.Backup].
package pebble

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weft-go/weft/internal/filelock"
	"github.com/weft-go/weft/internal/group"
	"github.com/weft-go/weft/internal/known"
	"github.com/weft-go/weft/internal/place"
	"github.com/weft-go/weft/storage"
)

// Options configure a store. The zero value is the default.
type Options struct {
	// CacheSize is the size in bytes of the cache of blocks that were read from files.
	// Default: 16 MiB.
	CacheSize int64

	// MemTableSize is the size in bytes of a table in memory. New data is kept in such a
	// table, and in the log, until the table is full and is written to a file. There are at
	// most four at a time. Larger ones make a busy store faster, and make it open more
	// slowly after a crash. Default: 16 MiB. The minimum is 1 MiB, the maximum 1 GiB.
	MemTableSize int

	// ReadOnly opens an existing store for reading. Several processes may do so at once,
	// but none while an engine has the store open, and no engine can open it meanwhile.
	// Commit returns errors.ErrUnsupported. Nothing is written.
	ReadOnly bool
}

const (
	cacheSize    = 16 << 20
	memTableSize = 16 << 20
)

// A Store is a storage.Storage in a folder.
type Store struct {
	path    string
	options Options
	opening string
	fs      vfs.FS       // below the disk
	dir     string       // path without links
	lock    *os.File     // dir, locked; nil if fs is in memory
	files   *place.Files // the place of dir; nil if fs is in memory
	queue   *group.Queue

	// Of the leader of a group:
	known   known.Keys // what the store contains
	written written    // keys of the group
	stuck   bool       // pebble panicked in a commit, and may hold its locks
	tried   time.Time  // when the last attempt to open the database again ended

	pace time.Duration // between two such attempts

	calls  sync.RWMutex // read-locked by reads and Backup, locked by Close and reopen
	db     *database    // guarded by calls; the leader may read it, since only it replaces it
	closed bool         // guarded by calls

	backups atomic.Int32 // in progress
}

var _ storage.Exclusive = (*Store)(nil)

var maxBatch = storage.Size{Ops: 10_000, Bytes: 64 << 20}

// Open opens the store in the folder at path and creates it if it does not exist. The folder
// above must exist. A nil o means the defaults.
//
// A folder that Open creates has the mode 0700. One that exists keeps its mode, which alone protects
// the files in it: whoever may read the folder may also read most of the files, and may lock the
// folder so that it cannot be opened. Give it the mode 0700.
func Open(path string, o *Options) (*Store, error) {
	s := &Store{path: path, fs: vfs.Default, pace: time.Second}
	if o != nil {
		s.options = *o
	}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("pebble: open %q: %w", path, err)
	}
	return s, nil
}

func (s *Store) open() (err error) {
	o := &s.options
	if o.CacheSize < 0 {
		return fmt.Errorf("the CacheSize of %d bytes is negative", o.CacheSize)
	}
	o.CacheSize = cmp.Or(o.CacheSize, cacheSize)
	o.MemTableSize = cmp.Or(o.MemTableSize, memTableSize)
	if o.MemTableSize < 1<<20 || o.MemTableSize > 1<<30 {
		return fmt.Errorf("the MemTableSize of %d bytes is not between 1 MiB and 1 GiB", o.MemTableSize)
	}
	if s.fs == vfs.Default {
		if err := s.take(); err != nil {
			return err
		}
	} else {
		s.dir = s.path
	}
	if s.db, err = s.openDatabase(); err != nil {
		return errors.Join(err, s.release())
	}
	s.opening = rand.Text()
	s.queue = group.New(maxBatch, s.apply)
	return nil
}

func (s *Store) release() error {
	if s.lock == nil {
		return nil
	}
	return errors.Join(filelock.Unlock(s.lock), s.lock.Close())
}

// Capabilities returns all capabilities but Shared, and no batches if read-only.
func (s *Store) Capabilities() storage.Capabilities {
	return storage.Capabilities{
		ConditionalBatch: !s.options.ReadOnly,
		AtomicBatch:      !s.options.ReadOnly,
		ReadAfterWrite:   true,
		ScanConsistency:  storage.Snapshot,
		Durable:          true,
		MaxBatch:         maxBatch,
	}
}

// Opening identifies this opening of the folder.
func (s *Store) Opening() string { return s.opening }

// Commit applies b, grouped with concurrent commits.
func (s *Store) Commit(ctx context.Context, b storage.Batch) error {
	if s.options.ReadOnly {
		return s.error("commit", fmt.Errorf("opened read-only: %w", errors.ErrUnsupported))
	}
	return s.error("commit", s.queue.Commit(ctx, b))
}

// Backup writes a copy of the store to a new folder, while commits continue. The copy
// contains everything that was acknowledged before the call. It is a store: open it, or put
// it in the place of the one that was lost. If dir exists, Backup returns an error that wraps
// fs.ErrExist.
//
// Only the user of this process may read the folder. Until the copy is whole, its name is that
// of dir, a random text and ".tmp". A process that dies leaves such a folder: remove it.
//
// On the same file system the copy shares most of its files with the store, as hard links,
// and takes a moment. Then copy it to another disk.
//
// If the disk of the store becomes full meanwhile, Backup returns that error, and nothing is
// committed until it has returned.
func (s *Store) Backup(dir string) error {
	return s.error("back up", s.backup(dir))
}

func (s *Store) backup(dir string) error {
	s.calls.RLock()
	defer s.calls.RUnlock()
	s.backups.Add(1) // before the disk is checked: see usable
	defer s.backups.Add(-1)
	if s.closed {
		return storage.ErrClosed
	}
	if s.options.ReadOnly {
		return fmt.Errorf("opened read-only: copy the folder: %w", errors.ErrUnsupported)
	}
	disk := s.db.disk
	if err := disk.check(); err != nil {
		return err
	}
	dir = filepath.Clean(dir)
	if _, err := s.fs.Stat(dir); err == nil {
		return fmt.Errorf("%q: %w", dir, fs.ErrExist)
	}
	// The copy has another name until it is whole. To rename a folder to one that exists fails.
	part := dir + "." + rand.Text() + ".tmp"
	err := guarded(func() error { return s.db.Checkpoint(part) })
	if err == nil {
		err = disk.failure() // what pebble has written meanwhile may not be in its files
	}
	if err == nil {
		err = s.fs.Rename(part, dir)
	}
	if err != nil {
		return errors.Join(err, s.fs.RemoveAll(part))
	}
	return syncFolder(s.fs, filepath.Dir(dir))
}

// Close waits for reads and the commit in progress, and closes the files.
func (s *Store) Close() error {
	s.queue.Close()
	s.calls.Lock()
	defer s.calls.Unlock()
	if s.closed {
		return storage.ErrClosed
	}
	s.closed = true
	if s.stuck {
		return s.error("close", s.release()) // pebble would wait forever
	}
	return s.error("close", errors.Join(s.db.close(), s.release()))
}

// error adds the action and the folder to err. It leaves the contract's own errors
// unchanged, as they are not about the folder.
func (s *Store) error(action string, err error) error {
	if w, ok := errors.AsType[*storage.WithdrawnError](err); ok {
		w.Last = s.error(action, w.Last)
	}
	switch {
	case err == nil, errors.Is(err, storage.ErrConflict), errors.Is(err, storage.ErrInvalidBatch),
		errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("pebble: %s %q: %w", action, s.path, err)
}
