// Package bolt implements a store in one bucket of a bbolt file.
//
// The host may have its own buckets in the same file. bbolt allows one opener at a
// time: a second opener fails at once, and engines of an earlier opening are certainly
// dead. While no engine has it open, several processes may read it with
// [Options.ReadOnly].
//
// # Caveats
//
//   - bbolt maps the file into memory. Damage to the file may therefore cause a fault in
//     the middle of an operation, which is returned as storage.ErrCorrupt.
//   - After an I/O error in a commit it is unknown which of the data in memory has
//     reached the disk. The store then returns storage.ErrFailed until it is closed and opened
//     again. This does not apply to a full disk.
//   - Leave the file alone while the store is open. If it is deleted, renamed or replaced,
//     every call returns storage.ErrMoved and no commit is confirmed. Overwriting the
//     file in place is not detected.
//   - Do not use a network file system: its file locks are not reliable.
package bolt

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"github.com/weft-go/weft/internal/group"
	"github.com/weft-go/weft/internal/known"
	"github.com/weft-go/weft/internal/place"
	"github.com/weft-go/weft/storage"
)

// Options configure a store. The zero value is the default.
type Options struct {
	// Bucket is the name of the bucket. Default: "weft". Open creates it if it does
	// not exist.
	Bucket string

	// ReadOnly opens an existing store for reading. Several processes may do so at once,
	// but none while an engine has the store open, and no engine can open it meanwhile.
	// Commit returns errors.ErrUnsupported. Nothing is written.
	ReadOnly bool
}

// A Store is a storage.Storage in a bucket of a bbolt file.
type Store struct {
	path     string
	bucket   []byte
	readOnly bool
	opening  string
	db       *bbolt.DB
	file     *os.File     // the file of db
	files    *place.Files // the place of file
	queue    *group.Queue
	known    known.Keys // of the leader of a group: what the bucket contains

	begin    sync.Mutex            // held while a transaction begins
	flushing atomic.Pointer[flush] // the commit in progress
	broken   atomic.Pointer[error] // the error of all calls after giveUp
	stuck    atomic.Bool           // bbolt panicked with its locks held

	calls  sync.RWMutex // read-locked by reads, locked by Close
	closed bool         // guarded by calls
}

var _ storage.Exclusive = (*Store)(nil)

var maxBatch = storage.Size{Ops: 10_000, Bytes: 64 << 20}

// Open opens the store at path and creates it if it does not exist. A nil o means the
// defaults. Errors: storage.ErrInUse, storage.ErrCorrupt, storage.ErrFutureFormat. Others say what is wrong
// with the path or the file.
func Open(path string, o *Options) (*Store, error) {
	var options Options
	if o != nil {
		options = *o
	}
	return open(path, options, mapSize)
}

func open(path string, o Options, mapSize int) (*Store, error) {
	s := &Store{path: path, bucket: []byte(cmp.Or(o.Bucket, "weft")), readOnly: o.ReadOnly, opening: rand.Text()}
	if err := s.open(mapSize); err != nil {
		return nil, fmt.Errorf("bolt: open %q: %w", path, err)
	}
	s.queue = group.New(maxBatch, s.apply)
	return s, nil
}

// Capabilities returns all capabilities but Shared, and no batches if read-only.
func (s *Store) Capabilities() storage.Capabilities {
	return storage.Capabilities{
		ConditionalBatch: !s.readOnly,
		AtomicBatch:      !s.readOnly,
		ReadAfterWrite:   true,
		ScanConsistency:  storage.Snapshot,
		Durable:          true,
		MaxBatch:         maxBatch,
	}
}

// Opening identifies this opening of the file.
func (s *Store) Opening() string { return s.opening }

// Commit applies b, grouped with concurrent commits.
func (s *Store) Commit(ctx context.Context, b storage.Batch) error {
	if s.readOnly {
		return s.error("commit", fmt.Errorf("opened read-only: %w", errors.ErrUnsupported))
	}
	return s.error("commit", s.queue.Commit(ctx, b))
}

// Close waits for reads and the commit in progress, and closes the file.
func (s *Store) Close() error {
	s.queue.Close()
	s.calls.Lock()
	defer s.calls.Unlock()
	if s.closed {
		return storage.ErrClosed
	}
	s.closed = true
	if s.stuck.Load() {
		return s.error("close", s.file.Close()) // this also releases the lock
	}
	return s.error("close", guarded(s.db.Close))
}

// error adds the action and the file to err. It leaves the contract's own errors
// unchanged, as they are not about the file.
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
