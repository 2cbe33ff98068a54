package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/weft-go/weft/internal/filelock"
	"github.com/weft-go/weft/internal/place"
	"github.com/weft-go/weft/storage"
)

// mapSize is how much of the file is mapped initially. To map more, a writer must wait for
// all readers, so it should be a size that a store seldom exceeds. It uses address space,
// not memory.
const mapSize = 256 << 20

var errInUse = fmt.Errorf("%w; stop that one: one process at a time can open a bbolt file, or several with Options.ReadOnly", storage.ErrInUse)

func (s *Store) open(mapSize int) error {
	if s.path == "" {
		return errors.New("no path")
	}
	if !s.readOnly {
		if err := create(s.path, s.bucket); err != nil {
			return err
		}
	}
	if err := s.openFile(mapSize); err != nil {
		if s.file != nil {
			s.file.Close() // bbolt does not close it if it panicked
		}
		return err
	}
	return nil
}

func (s *Store) openFile(mapSize int) error {
	if s.readOnly {
		mapSize = 0
	}
	o := options(mapSize)
	o.ReadOnly = s.readOnly
	o.OpenFile = func(path string, flag int, mode os.FileMode) (*os.File, error) {
		f, err := os.OpenFile(path, flag, mode)
		if err != nil {
			return nil, err
		}
		s.file = f
		// bbolt will take the same lock a moment later. It is taken here so that nobody writes during the check. Where filelock has
		// none, bbolt's has to do.
		switch err := filelock.Lock(f, s.readOnly); {
		case err == storage.ErrInUse:
			return nil, errInUse
		case err != nil && !errors.Is(err, errors.ErrUnsupported):
			return nil, err
		}
		if err := s.place(path); err != nil {
			return nil, err
		}
		// A process that was killed may have written what it did not sync, and what is read is said to be durable.
		sync := (*os.File).Sync
		if s.readOnly {
			sync = place.SyncRead
		}
		if err := sync(f); err != nil {
			return nil, err
		}
		if !s.readOnly {
			if err := syncAbove(path); err != nil {
				return nil, err
			}
		}
		return f, check(f, s.bucket)
	}
	err := guarded(func() (err error) {
		s.db, err = bbolt.Open(s.path, 0o600, o)
		return err
	})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return errInUse
	case errors.Is(err, berrors.ErrVersionMismatch):
		return fmt.Errorf("%w: %w", storage.ErrFutureFormat, err)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum):
		return fmt.Errorf("%w: not a bbolt file: %w", storage.ErrCorrupt, err)
	case err != nil:
		return err
	}
	err = guarded(s.createBucket)
	if err != nil && !errors.Is(err, storage.ErrCorrupt) { // after a panic, Close might wait forever
		s.db.Close()
	}
	return err
}

// place records the path of the file, which is locked, and checks that the file is still
// there: it may have been replaced before it was locked.
func (s *Store) place(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if s.files, err = place.Of(path); err != nil {
		return err
	}
	opened, err := s.file.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(path)
	if err == nil && os.SameFile(opened, there) {
		return nil
	}
	return fmt.Errorf("%w: another file is at %q", storage.ErrMoved, path)
}

func options(mapSize int) *bbolt.Options {
	return &bbolt.Options{
		Timeout:         time.Nanosecond, // tries once; zero would wait forever
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: mapSize,
		NoStatistics:    true,
	}
}

// createBucket creates the bucket, and writes only if it does not exist. In a store that is
// read-only it must exist.
func (s *Store) createBucket() error {
	there := false
	if err := s.db.View(func(tx *bbolt.Tx) error {
		there = tx.Bucket(s.bucket) != nil
		return nil
	}); err != nil || there {
		return err
	}
	if s.readOnly {
		return fmt.Errorf("there is no bucket %q", s.bucket)
	}
	return s.db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(s.bucket)
		return err
	})
}

// create creates the file if it does not exist. It writes a temporary file and links it to
// path when it is complete, so that a crash leaves no partial file where there are hard links.
func create(path string, bucket []byte) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := f.Close(); err != nil {
		return err
	}
	db, err := bbolt.Open(f.Name(), 0o600, options(0))
	if err != nil {
		return err
	}
	s := Store{db: db, bucket: bucket}
	if err := errors.Join(s.createBucket(), db.Close()); err != nil {
		return err
	}
	err = link(f.Name(), path)
	if err == nil || errors.Is(err, fs.ErrExist) { // another process created it meanwhile
		return nil
	}
	// This file system has no hard links. Then the file begins empty, and whoever locks it first fills it. To move the temporary
	// file there might replace a store that another process has created, and written to.
	if f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600); errors.Is(err, fs.ErrExist) {
		return nil
	} else if err != nil {
		return err
	}
	return f.Close()
}

// link is a variable for tests.
var link = os.Link

// syncAbove is a variable for tests.
var syncAbove = place.SyncFolderOf
