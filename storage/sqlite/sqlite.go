// Package sqlite implements a store in one table of an SQLite database.
//
// The host may have its own tables in the same database. A Store is exclusive by
// default: a lock file beside the database keeps a second opener out, so engines of an
// earlier opening are certainly dead. [Options.Shared] lets several processes of one
// machine open the database; their engines then use leases. [Options.ReadOnly] opens
// the store for reading while an engine has it open.
//
// # Caveats
//
//   - Back up with VACUUM INTO or SQLite's backup API. A process that has the database
//     open through SQLite must not open and close its files itself: that drops SQLite's
//     locks on them.
//   - Within this process, open the database only with modernc.org/sqlite, the driver of this
//     package. Another SQLite in the process drops its locks too, and it drops those of the other:
//     the database is then damaged. [Store.WithTx] refuses a transaction of another one.
//   - Do not set PRAGMA synchronous = OFF on other connections to the database. They would checkpoint commits of
//     the store without a sync, and a power loss could undo them. [Store.WithTx] refuses such a connection.
//   - Do not use a network file system: its file locks are not reliable.
//   - Only one of the processes that share a store can write at a time. If a process is
//     suspended while it writes, all others are blocked until it continues or is killed.
//   - Do not open one database under two hard links: each name has its own log and its
//     own lock file.
//   - If a sync fails, the store gives up: every call returns storage.ErrFailed. First close all other
//     connections to the database, those of other processes too, and then the store: another that is
//     closed last removes the log, which may have the only good copy. Then open it again. The host's
//     own connections checkpoint the log by themselves, and SQLite ignores a failed sync there: the
//     store does not learn of it. Leave PRAGMA wal_autocheckpoint on them as it is all the same: the
//     store does not see what they write, and the log would grow without limit.
//   - Leave the files alone while the store is open: the database, its -wal, -shm and
//     .lock. If one of them is deleted, renamed or replaced, every call returns
//     storage.ErrMoved and no commit is confirmed. Overwriting a file in place is not
//     detected.
package sqlite

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql/driver"
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

// Options configure a store. The zero value is the default.
type Options struct {
	// Table is the name of the table: letters, digits and underscores. Default:
	// "weft". Open creates the table if it does not exist.
	Table string

	// Relaxed does not sync on commit. A single writer is about eight times as fast,
	// but a power loss can undo the latest commits; a crash of the process cannot.
	// The store does not claim Durable. Set it in each process that has the database
	// open, also with ReadOnly, or in none: one without it claims Durable, and shows
	// commits of the others that a power loss can undo.
	Relaxed bool

	// Shared lets several processes on the same machine open the store, if all of
	// them set it. The store claims Shared: its engines use leases, and find what
	// other processes write by polling.
	Shared bool

	// TransactLimit is the time limit of a Transact function. SQLite has one writer, so
	// nothing else is committed until the function returns. When the time is up, the
	// transaction is rolled back and the step fails. Default: 30 s. Leases are renewed
	// by writing, so an engine on a Shared store lowers the limit to a third of its
	// Config.LeaseTTL, which is 5 s by default.
	TransactLimit time.Duration

	// ForeignKeys has the database enforce foreign keys for what Transact functions write. By default, SQLite does not.
	// It is for them what PRAGMA foreign_keys is for the host's own connections, which keep their own setting.
	ForeignKeys bool

	// ReadOnly opens an existing store for reading, even while an engine has it
	// open. Commit returns errors.ErrUnsupported. SQLite may create its -wal and
	// -shm files beside the database; nothing else is written.
	ReadOnly bool
}

// A Store is a storage.Storage in a table of an SQLite database.
type Store struct {
	path    string
	options Options
	opening string
	lock    *lock        // nil if read-only
	files   *place.Files // the files that must not move while the store is open
	library string       // the SQLite of the driver
	queue   *group.Queue // in front of the writer
	writer  *writer      // nil if read-only
	readers chan *reader // maxReaders slots; a nil reader is not connected yet
	closed  chan struct{}
	close   sync.Once
}

var _ storage.Exclusive = (*Store)(nil)

// maxReaders is the number of reading connections. One connection reads a page at a
// time. More connections than processors gain nothing.
const maxReaders = 4

var maxBatch = storage.Size{Ops: 10_000, Bytes: 64 << 20}

// Open opens the store at path and creates it if it does not exist. A nil o means
// the defaults. The files that it creates are for the user of this process only, with mode 0600. For
// others, change the mode of the database while it is closed, or create an empty file before: SQLite
// gives its -wal and -shm the same mode. The .lock is for those who write.
//
// Errors: storage.ErrInUse, storage.ErrCorrupt. Others say what is wrong with the path, the options or the file.
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
		return nil, fmt.Errorf("the table name %q must consist of letters, digits and underscores, and not begin with a digit", s.options.Table)
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
		if s.lock, err = acquire(file+lockSuffix, s.options.Shared); err != nil {
			return nil, err
		}
		if s.writer, err = newWriter(file, s.options, s.readers); err != nil {
			return nil, err
		}
		s.queue = group.New(maxBatch, s.writer.apply)
	}
	r, err := newReader(file, s.options) // fail now rather than at the first read
	if err != nil {
		return nil, err
	}
	<-s.readers
	s.readers <- r
	if s.options.ReadOnly && !s.options.Relaxed {
		if err := syncLog(file); err != nil {
			return nil, err
		}
	}
	err = r.query(library, nil, 1, func(row []driver.Value) error {
		s.library = fmt.Sprint(row[0])
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.path = file
	if s.files, err = s.place(path); err != nil {
		return nil, err
	}
	if s.writer != nil {
		s.writer.files = s.files
	}
	return s, nil
}

// place records the files that must not move while the store is open. The log exists
// from the first read until the last connection is closed. The caller's name is checked
// too, as it may contain links, and these may change.
func (s *Store) place(name string) (*place.Files, error) {
	name, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	if s.options.ReadOnly { // an engine that stops removes the log
		return place.Of(name)
	}
	names := []string{name, s.path + "-wal", s.path + "-shm", s.lock.file.Name()}
	if name != s.path {
		names = append(names, s.path)
	}
	return place.Of(names...)
}

// Commit applies b, grouped with concurrent commits.
func (s *Store) Commit(ctx context.Context, b storage.Batch) error {
	if s.options.ReadOnly {
		return s.error("commit", errReadOnly)
	}
	return s.error("commit", s.queue.Commit(ctx, b))
}

// Capabilities returns all capabilities, with these exceptions: Shared only if the
// option is set, not Durable if Relaxed, and no batches if read-only.
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

// Opening identifies this opening of the database. It is empty if the store is Shared.
func (s *Store) Opening() string { return s.opening }

// Close waits for reads and the commit in progress, checkpoints the log into the
// database, and releases the lock. It must not be called in a function of Transact, for which it would wait.
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

// failure returns why the store has failed, if it has.
func (s *Store) failure() error {
	if s.writer == nil {
		return nil
	}
	return s.writer.failure()
}

// release closes the readers, then the writer, which checkpoints the log, and then
// the lock.
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
