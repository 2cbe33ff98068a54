// Package sqlite keeps a store in one table of an SQLite database.
//
// The database may hold tables of the host beside it. A Store is exclusive: a
// lock file beside the database keeps a second opener out, so the engines that
// worked under an earlier opening are certainly dead. [Options.Shared] lets several
// processes of one machine have it open; then their engines keep leases.
// [Options.ReadOnly] opens the store for reading while an engine has it.
//
// # Caveats
//
//   - Back up with VACUUM INTO or SQLite's backup API. A process that opens and
//     closes the files of a database which it also has open through SQLite drops
//     SQLite's locks on them.
//   - Not for network file systems, whose locks do not hold.
//   - Of the processes that share a store one writes at a time. One that is stopped
//     while it writes keeps all others from writing until it goes on or is killed.
//   - Do not give one database two names by a hard link: each name has its own
//     log, and its own lock file.
//   - Leave the files alone while the store is open: the database, its -wal, -shm and
//     .lock. If one of them is deleted, renamed or replaced, nothing is acknowledged
//     any more: every call answers storage.ErrMoved. What is copied over a file, in
//     its place, shows to nobody.
package sqlite

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/weft-go/weft/internal/group"
	"github.com/weft-go/weft/internal/place"
	"github.com/weft-go/weft/storage"
)

// Options of a store. The zero value is the default.
type Options struct {
	// Table is the name of the table, letters, digits and underscores. Default:
	// "weft". It is created if it is not there.
	Table string

	// Relaxed does not sync at a commit: about eight times as quick for one
	// writer, and a power loss takes back the latest commits. A crash of the
	// process does not. The store no longer claims Durable.
	Relaxed bool

	// Shared lets other processes on the same machine open the store too, if they ask
	// for the same; nobody has it who does not. The store claims Shared: engines on it
	// keep leases, and what one process writes others find by polling.
	Shared bool

	// TransactLimit is how long the function of a Transact may take: SQLite has one
	// writer, and until the function returns nothing else is committed. When the time
	// is up its transaction is rolled back, and its step has failed. Default: 30 s. An
	// engine on a Shared store lowers it to a third of its Config.LeaseTTL, which is
	// 5 s by default: leases are renewed by writing.
	TransactLimit time.Duration

	// ReadOnly opens a store that exists, for reading, also while an engine has
	// it open. Commit answers errors.ErrUnsupported. SQLite may put its -wal and
	// -shm files beside the database; nothing else is written.
	ReadOnly bool
}

// A Store is a storage.Storage in a table.
type Store struct {
	path    string
	options Options
	opening string
	lock    *lock        // nil if read-only
	files   *place.Files // those that this opening depends on
	queue   *group.Queue // of the writer
	writer  *writer      // nil if read-only
	readers chan *reader // one slot per reader; nil in it: not connected yet
	closed  chan struct{}
	close   sync.Once
}

var _ storage.Exclusive = (*Store)(nil)

// A page is read by one connection. More of them at once than the machine has
// processors for gain nothing.
const maxReaders = 4

var maxBatch = storage.Size{Ops: 10_000, Bytes: 64 << 20}

// Open opens the store at path, and creates it if it is not there. A nil o is
// the default.
func Open(path string, o *Options) (*Store, error) {
	s, err := open(path, o)
	if err != nil {
		return nil, fmt.Errorf("sqlite: open %q: %w", path, err)
	}
	return s, nil
}

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func open(path string, o *Options) (_ *Store, err error) {
	s := &Store{
		path:    path,
		readers: make(chan *reader, maxReaders),
		closed:  make(chan struct{}),
	}
	if o != nil {
		s.options = *o
	}
	if !s.options.Shared {
		s.opening = rand.Text()
	}
	if s.options.Table == "" {
		s.options.Table = "weft"
	}
	if s.options.TransactLimit < 0 {
		return nil, fmt.Errorf("the TransactLimit of %v is negative", s.options.TransactLimit)
	}
	s.options.TransactLimit = cmp.Or(s.options.TransactLimit, transactLimit)
	if !tableName.MatchString(s.options.Table) {
		return nil, fmt.Errorf("the table name %q is not one of letters, digits and underscores", s.options.Table)
	}
	file, err := realPath(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	for range maxReaders {
		s.readers <- nil
	}
	if !s.options.ReadOnly {
		if s.lock, err = acquire(file+".lock", s.options.Shared); err != nil {
			return nil, err
		}
		if s.writer, err = newWriter(file, s.options, s.readers); err != nil {
			return nil, err
		}
		s.queue = group.New(maxBatch, s.writer.apply)
	}
	r, err := newReader(file, s.options) // shows now what would fail later
	if err != nil {
		return nil, err
	}
	<-s.readers
	s.readers <- r
	s.path = file
	if s.files, err = s.place(path); err != nil {
		return nil, err
	}
	if s.writer != nil {
		s.writer.files = s.files
	}
	return s, nil
}

// place notes which files this opening depends on. The log is there from the first
// read until the last connection has gone. The name that the caller knows may lead over
// links that somebody changes.
func (s *Store) place(name string) (*place.Files, error) {
	name, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	if s.options.ReadOnly { // an engine that stops takes the log along
		return place.Of(name)
	}
	names := []string{name, s.path + "-wal", s.path + "-shm", s.lock.file.Name()}
	if name != s.path {
		names = append(names, s.path)
	}
	return place.Of(names...)
}

// Commit applies b together with what others commit at the same time.
func (s *Store) Commit(ctx context.Context, b storage.Batch) error {
	if s.options.ReadOnly {
		return s.error("commit", fmt.Errorf("opened read-only: %w", errors.ErrUnsupported))
	}
	return s.error("commit", s.queue.Commit(ctx, b))
}

// Capabilities of a Store: all, but Shared only if it was opened to be. A Relaxed one
// is not Durable, a read-only one takes no batches.
func (s *Store) Capabilities() storage.Capabilities {
	return storage.Capabilities{
		ConditionalBatch: !s.options.ReadOnly,
		AtomicBatch:      !s.options.ReadOnly,
		ReadAfterWrite:   true,
		ScanConsistency:  storage.Snapshot,
		Durable:          !s.options.Relaxed,
		Shared:           s.options.Shared,
		MaxBatch:         maxBatch,
	}
}

// Opening identifies this opening of the database. It is empty if that is Shared.
func (s *Store) Opening() string { return s.opening }

// Close waits for the reads and the commit that are going on, writes the log
// back into the database, and gives up the lock.
func (s *Store) Close() error {
	err := storage.ErrClosed
	s.close.Do(func() {
		close(s.closed)
		if s.queue != nil {
			s.queue.Close()
		}
		err = s.error("close", s.release())
	})
	return err
}

// release closes what is open, the writer last, whose end empties the log, and
// then the lock.
func (s *Store) release() error {
	var errs []error
	for range cap(s.readers) {
		if r := <-s.readers; r != nil {
			errs = append(errs, r.close())
		}
	}
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.release())
	}
	return errors.Join(errs...)
}
