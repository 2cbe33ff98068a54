package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"

	"github.com/weft-go/weft/internal/filelock"
	"github.com/weft-go/weft/internal/place"
	"github.com/weft-go/weft/storage"
)

// format is the version of pebble's files. It has checksums of all blocks and footers, and
// the log tells a torn end from damage. A higher one is a decision: a release before could not
// open the store any more.
const format = pebble.FormatTableFormatV6

// memTables is how many tables may be in memory until one of them is written.
const memTables = 4

// take creates the folder if it does not exist, and locks it. Pebble syncs the folder above at each opening for writing.
func (s *Store) take() error {
	if s.path == "" {
		return errors.New("no path")
	}
	path, err := filepath.Abs(s.path)
	if err != nil {
		return err
	}
	if !s.options.ReadOnly {
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if s.dir, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	if s.lock, err = os.Open(s.dir); err != nil {
		return err
	}
	if err := s.locked(path); err != nil {
		return errors.Join(err, s.lock.Close())
	}
	return nil
}

// locked locks the folder and records its place. It may have been replaced before it was
// locked.
func (s *Store) locked(path string) error {
	opened, err := s.lock.Stat()
	if err != nil {
		return err
	}
	if !opened.IsDir() {
		return fmt.Errorf("a file is there, and the store needs a folder")
	}
	switch err := filelock.Lock(s.lock, s.options.ReadOnly); {
	case err == storage.ErrInUse:
		return fmt.Errorf("%w; stop that one: one process at a time can open the folder, or several with Options.ReadOnly", err)
	case err != nil:
		return err
	}
	if s.files, err = place.Of(path, s.dir); err != nil {
		return err
	}
	if there, err := os.Stat(s.dir); err != nil || !os.SameFile(opened, there) {
		return fmt.Errorf("%w: another folder is at %q", storage.ErrMoved, s.dir)
	}
	return nil
}

// A database is a pebble database and what it wrote to. After a full disk, the store opens
// another one.
type database struct {
	*pebble.DB
	disk *disk

	mu   sync.Mutex
	view *view // guarded by mu
}

// openDatabase opens the database in the folder. One that is new, or that a release before has
// written, is opened twice: the first time it has the new format only after pebble has created
// its log, and damage in a log of an old format looks like its end.
func (s *Store) openDatabase() (*database, error) {
	version, err := s.inspect()
	if err != nil {
		return nil, err
	}
	if s.options.ReadOnly {
		if err := s.syncLogs(); err != nil {
			return nil, err
		}
	} else if version < format {
		first, err := s.openOnce()
		if err != nil {
			return nil, err
		}
		if err := first.close(); err != nil {
			return nil, err
		}
	}
	return s.openOnce()
}

// syncLogs syncs the logs. A process that was killed may have left commits there that it had not synced, and what is read is
// said to be durable. Of a store that is opened for writing, pebble writes them to a table, and syncs that.
func (s *Store) syncLogs() error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".log") {
			continue
		}
		f, err := s.fs.Open(s.fs.PathJoin(s.dir, name))
		if err != nil {
			return err
		}
		if err := errors.Join(place.SyncRead(f), f.Close()); err != nil {
			return err
		}
	}
	d, err := s.fs.OpenDir(s.dir)
	if err != nil {
		return err
	}
	return errors.Join(place.SyncRead(d), d.Close())
}

func (s *Store) openOnce() (*database, error) {
	d := &database{disk: newDisk(s.fs, s.dir, s.files)}
	err := guarded(func() (err error) {
		d.DB, err = pebble.Open(s.dir, s.pebbleOptions(d.disk))
		return err
	})
	if d.disk.failure() != nil {
		if d.DB != nil {
			d.close()
		}
		return nil, d.disk.failure() // it may have become another one until the database was closed
	}
	switch {
	case errors.Is(err, pebble.ErrDBNotPristine), err != nil && strings.Contains(err.Error(), "object size mismatch"):
		return nil, fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	case err != nil:
		return nil, translate(err)
	}
	d.advance()
	return d, nil
}

func (s *Store) pebbleOptions(d *disk) *pebble.Options {
	o := &pebble.Options{
		FS:                          d,
		Logger:                      logger{d},
		EventListener:               &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}}, // the read has the error
		FormatMajorVersion:          format,
		CacheSize:                   s.options.CacheSize + memTables*int64(s.options.MemTableSize), // pebble takes the tables from it
		MemTableSize:                uint64(s.options.MemTableSize),
		MemTableStopWritesThreshold: memTables,
		L0StopWritesThreshold:       1000, // a commit must not wait until there is room for a compaction
		ReadOnly:                    s.options.ReadOnly,
	}
	// One compaction at a time: the next one is found when it is done. Pebble's default looks for
	// one ten times a second also in a store that nobody uses.
	o.CompactionConcurrencyRange = func() (lower, upper int) { return 1, 1 }
	o.Experimental.CompactionScheduler = pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // most conditions ask whether a new key is absent
	}
	return o
}

// ours are the names of files of which a database that is being created has some.
var ours = regexp.MustCompile(`^(marker\..*|MANIFEST-\d+|OPTIONS-\d+|\d+\.log|.*\.dbtmp|LOCK)$`)

// inspect returns the version of the format in the folder, 0 if it is to be created. It refuses a
// folder with anything else than a store of this format, before pebble changes anything in it.
func (s *Store) inspect() (pebble.FormatMajorVersion, error) {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return 0, err
	}
	version, err := atomicfs.ReadMarker(s.fs, s.dir, "format-version")
	if err != nil {
		return 0, fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	manifest, err := atomicfs.ReadMarker(s.fs, s.dir, "manifest")
	if err != nil {
		return 0, fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	if version == "" {
		if s.options.ReadOnly {
			return 0, fmt.Errorf("there is no store in the folder: %w", fs.ErrNotExist)
		}
		for _, name := range names {
			if strings.HasSuffix(name, ".sst") {
				return 0, fmt.Errorf("%w: the file with the format's version is missing", storage.ErrCorrupt)
			}
			if !ours.MatchString(name) {
				return 0, fmt.Errorf("the folder has another file, %q: give the store a folder of its own", name)
			}
		}
		return 0, nil
	}
	n, err := strconv.ParseUint(version, 10, 32)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: the format's version is %q", storage.ErrCorrupt, version)
	case n > uint64(format):
		return 0, fmt.Errorf("%w: pebble's format %d, this release knows %d", storage.ErrFutureFormat, n, format)
	case manifest == "":
		return 0, fmt.Errorf("%w: the file that names the manifest is missing", storage.ErrCorrupt)
	}
	return pebble.FormatMajorVersion(n), nil
}

func (d *database) close() error {
	d.disk.abandon()
	if d.view != nil {
		d.view.release()
	}
	err := guarded(d.DB.Close)
	if d.disk.failure() != nil {
		return nil // it was returned to those who called
	}
	return err
}

// A view is a snapshot of everything that is synced.
type view struct {
	*pebble.Snapshot
	uses atomic.Int32
}

// advance makes everything visible that is applied, and must be synced.
func (d *database) advance() {
	next := &view{Snapshot: d.NewSnapshot()}
	next.uses.Store(1)
	d.mu.Lock()
	last := d.view
	d.view = next
	d.mu.Unlock()
	if last != nil {
		last.release()
	}
}

// current returns the view of what is synced. The caller releases it.
func (d *database) current() *view {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.view.uses.Add(1)
	return d.view
}

func (v *view) release() {
	if v.uses.Add(-1) == 0 {
		v.Close()
	}
}

// guarded runs f, which calls pebble, and returns a panic in it as an error: pebble panics on
// some damaged files.
func guarded(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", storage.ErrCorrupt, r)
		}
	}()
	return f()
}

// translate maps pebble's errors for damaged and missing files to storage.ErrCorrupt.
func translate(err error) error {
	if err != nil && !errors.Is(err, storage.ErrCorrupt) && (pebble.IsCorruptionError(err) || errors.Is(err, fs.ErrNotExist)) {
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	return err
}
