// Package bolt keeps a store in one bucket of a bbolt file.
//
// The file may hold buckets of the host beside it, but bbolt lets in one opener
// at a time: a second one is told so at once, and the engines that worked under
// an earlier opening are certainly dead.
//
// # Caveats
//
//   - bbolt maps the file into memory. What is wrong with the file then shows as
//     a fault in the middle of an operation, which is answered as
//     storage.ErrCorrupt.
//   - After an I/O error in a commit nobody knows which of what is in memory is
//     on the disk too. The store then refuses everything until it was closed and
//     opened again. A full disk is no such error.
//   - Leave the file alone while the store is open. If it is deleted, renamed or
//     replaced, nothing is acknowledged any more: every call answers
//     storage.ErrMoved. What is copied over the file, in its place, shows to nobody.
//   - Not for network file systems, whose locks do not hold.
package bolt

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"github.com/weft-go/weft/internal/group"
	"github.com/weft-go/weft/internal/place"
	"github.com/weft-go/weft/storage"
)

// Options of a store. The zero value is the default.
type Options struct {
	// Bucket is the name of the bucket. Default: "weft". It is created if it is
	// not there.
	Bucket string
}

// A Store is a storage.Storage in a bucket.
type Store struct {
	path    string
	bucket  []byte
	opening string
	db      *bbolt.DB
	file    *os.File     // db's
	files   *place.Files // of file
	queue   *group.Queue

	begin  sync.Mutex            // held while a transaction begins
	broken atomic.Pointer[error] // why nothing is done any more
	stuck  atomic.Bool           // bbolt panicked with its locks held

	calls  sync.RWMutex // read-locked by those who read, locked by Close
	closed bool         // guarded by calls
}

var _ storage.Exclusive = (*Store)(nil)

var maxBatch = storage.Size{Ops: 10_000, Bytes: 64 << 20}

// Open opens the store at path, and creates it if it is not there. A nil o is
// the default.
func Open(path string, o *Options) (*Store, error) {
	bucket := "weft"
	if o != nil && o.Bucket != "" {
		bucket = o.Bucket
	}
	return open(path, bucket, mapSize)
}

func open(path, bucket string, mapSize int) (*Store, error) {
	s := &Store{path: path, bucket: []byte(bucket), opening: rand.Text()}
	if err := s.open(mapSize); err != nil {
		return nil, fmt.Errorf("bolt: open %q: %w", path, err)
	}
	s.queue = group.New(maxBatch, s.apply)
	return s, nil
}

// Capabilities of a Store: all but Shared.
func (s *Store) Capabilities() storage.Capabilities {
	return storage.Capabilities{
		ConditionalBatch: true,
		AtomicBatch:      true,
		ReadAfterWrite:   true,
		ScanConsistency:  storage.Snapshot,
		Durable:          true,
		MaxBatch:         maxBatch,
	}
}

// Opening identifies this opening of the file.
func (s *Store) Opening() string { return s.opening }

// Commit applies b together with what others commit at the same time.
func (s *Store) Commit(ctx context.Context, b storage.Batch) error {
	return s.error("commit", s.queue.Commit(ctx, b))
}

// Close waits for the reads and the commit that are going on, and closes the
// file.
func (s *Store) Close() error {
	s.queue.Close()
	s.calls.Lock()
	defer s.calls.Unlock()
	if s.closed {
		return storage.ErrClosed
	}
	s.closed = true
	if s.stuck.Load() {
		return s.error("close", s.file.Close()) // which ends the lock on it, too
	}
	return s.error("close", guarded(s.db.Close))
}

// error adds to err what was done to which file. The contract's own answers are
// left as they are: they say nothing about the file.
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
	return fmt.Errorf("bolt: %s %q: %w", action, s.path, err)
}
