package sqlite

import (
	"cmp"
	"database/sql/driver"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	code "modernc.org/sqlite/lib"

	"github.com/weft-go/weft/internal/group"
	"github.com/weft-go/weft/internal/known"
	"github.com/weft-go/weft/internal/place"
	"github.com/weft-go/weft/internal/stack"
	"github.com/weft-go/weft/storage"
)

// A writer is the one connection that writes. Only the leader of a group calls its
// methods, so calls do not overlap.
type writer struct {
	*conn
	file    string
	pragmas []pragma
	sql     statements
	log     log
	files   *place.Files // the store's

	known   known.Keys // what the store contained when no other connection had committed since version
	version int64      // this connection's; it changes when another one commits
	trusted bool       // no other has: known is what the store contains

	failed atomic.Pointer[error] // why the store must be opened again, or nil

	// Reused to save allocations; forget clears them.
	conditions []storage.Condition
	args       []driver.Value
}

// busyTimeout is how long a statement waits for a lock, such as one held by the host's
// own connections.
const busyTimeout = 5 * time.Second

// beginTimeout is how long one attempt of a group waits for the lock. Between attempts,
// callers whose contexts have ended withdraw.
const beginTimeout = 100 * time.Millisecond

func newWriter(file string, o Options, readers chan *reader) (*writer, error) {
	w := &writer{
		file: file,
		sql:  newStatements(o.Table),
		log:  log{database: file, readers: readers, frames: logFrames, limit: logLimit},
	}
	sync := pragma{"synchronous", "FULL", "2"}
	if o.Relaxed {
		sync = pragma{"synchronous", "NORMAL", "1"}
	}
	w.pragmas = []pragma{
		busy(busyTimeout), // first, because setting the journal mode needs a lock
		{"journal_mode", "WAL", "wal"},
		sync,
		fullSync,
		{"cache_size", "-4096", "-4096"}, // KiB; SQLite walks the whole cache after pages were split
		{"wal_autocheckpoint", "0", "0"}, // see checkpoint
	}
	how := readWrite
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		// Not for an empty file of the host's: its mode would change. SQLite creates the file with the mode of another,
		// which is 0600. To create it here would drop, at its close, the locks that others in this process have on it by then.
		like, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".new-*")
		if err != nil {
			return nil, err
		}
		defer os.Remove(like.Name())
		if err := like.Close(); err != nil {
			return nil, err
		}
		how = access{"mode": {"rwc"}, "modeof": {like.Name()}}
	}
	if err := w.connect(how); err != nil {
		return nil, err
	}
	if err := w.createTable(o.Table); err != nil {
		w.close()
		return nil, err
	}
	if !o.Relaxed {
		// A process that was killed may have left a commit that it had not synced. It must be durable before anyone reads it.
		// A checkpoint begins with a sync of the log, too, but does nothing while another connection is at one.
		if err := syncLog(file); err != nil {
			w.close()
			return nil, err
		}
		w.checkpoint("PASSIVE") // some systems sync nothing that is open for reading
	}
	if err := cmp.Or(w.failure(), w.shortenTimeout()); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// fullSync makes each sync on macOS flush the drive's cache. Otherwise a power loss there could
// undo what is synced, or keep what was written later. It changes nothing elsewhere.
var fullSync = pragma{"fullfsync", "1", "1"}

// waiting returns pragmas with another time to wait for a lock.
func waiting(pragmas []pragma, d time.Duration) []pragma {
	pragmas = slices.Clone(pragmas)
	pragmas[0] = busy(d)
	return pragmas
}

func busy(d time.Duration) pragma {
	ms := strconv.FormatInt(d.Milliseconds(), 10)
	return pragma{"busy_timeout", ms, ms}
}

// connect connects.
func (w *writer) connect(how access) (err error) {
	w.version = noVersion // a connection counts from where it began
	w.conn, err = connect(w.file, how, w.pragmas)
	return err
}

// shortenTimeout makes later statements wait for a lock no longer than beginTimeout. Only
// the statement that begins a transaction has to wait for one.
func (w *writer) shortenTimeout() error {
	_, err := w.exec("PRAGMA busy_timeout = " + busy(beginTimeout).value)
	return err
}

func (w *writer) close() error {
	if w.conn == nil {
		return nil
	}
	return w.conn.close()
}

// apply is a group.Apply. It commits nothing if the files are not at their paths.
func (w *writer) apply(batches []storage.Batch, verdicts []error) error {
	if err := w.files.Moved(); err != nil {
		return err
	}
	stack.Grow()
	err := w.try(batches, verdicts)
	if err == nil {
		return nil
	}
	if moved := w.files.Check(); moved != nil { // it may be why
		return moved
	}
	return err
}

// try applies a group. If a statement before COMMIT fails, the group is rolled back. If
// COMMIT fails, the outcome is unknown.
func (w *writer) try(batches []storage.Batch, verdicts []error) error {
	if err := w.ready(); err != nil {
		return err
	}
	finished := false
	defer func() {
		if !finished && w.conn != nil { // a panic, in an open transaction
			w.drop()
		}
		w.forget()
	}()
	err := w.transaction(batches, verdicts)
	finished = true
	return err
}

func (w *writer) transaction(batches []storage.Batch, verdicts []error) error {
	if _, err := w.exec(w.sql.begin); err != nil {
		if primary(err) == code.SQLITE_BUSY {
			return group.NotBegun(err)
		}
		w.drop()
		return err
	}
	w.log.wrote(batches) // also if the disk is full: a log that begins again needs no room
	if err := w.notice(len(batches)); err != nil {
		w.rollback(err)
		return err
	}
	// Here, because nothing can delay the commit from now on, and before COMMIT, because after
	// a sync the check takes several times as long. If the files are moved during a commit, the
	// effect is the same as if they are moved just after it.
	if err := w.files.Check(); err != nil {
		w.rollback(err)
		return err
	}
	for i := range batches {
		ok, err := w.batch(&batches[i])
		if err != nil {
			w.rollback(err)
			return group.Undone(err)
		}
		if !ok {
			verdicts[i] = storage.ErrConflict
		}
	}
	if _, err := w.exec(w.sql.commit); err != nil {
		w.rollback(err)
		return cmp.Or(w.failure(), err)
	}
	return nil
}

// fewBatches is how many batches a group has for which it costs more to see whether another
// connection has committed than their conditions do.
const fewBatches = 4

// noVersion is the version of a connection that was not asked for one.
const noVersion = -1

// notice forgets what is known if another connection has committed since. Its caller has begun
// a transaction for a group, so that from now on none can.
func (w *writer) notice(group int) error {
	if w.trusted = group > fewBatches; !w.trusted {
		return nil
	}
	return w.query("PRAGMA data_version", nil, 1, func(row []driver.Value) error {
		version, ok := row[0].(int64)
		if !ok || version != w.version {
			w.known.Forget()
		}
		w.version = version
		return nil
	})
}

// ready reconnects if the connection was dropped, and tends the log. It returns an error if the
// store has failed.
func (w *writer) ready() error {
	if err := w.failure(); err != nil {
		return err
	}
	if w.conn == nil {
		if err := w.connect(readWrite); err != nil {
			return err
		}
		if err := w.files.Check(); err != nil { // the connection may be to another file
			w.drop()
			return err
		}
		if err := w.shortenTimeout(); err != nil {
			w.drop()
			return err
		}
	}
	return w.tend()
}

// rollback ends a transaction that failed. If ROLLBACK itself fails, SQLite may have
// ended the transaction already; the connection is dropped, in case it is broken.
func (w *writer) rollback(why error) {
	w.known.Forget()
	w.check(why)
	if _, err := w.exec(w.sql.rollback); err != nil && w.failure() == nil {
		w.drop()
	}
}

// forget clears references to the callers' bytes.
func (w *writer) forget() {
	const keep = 64
	if cap(w.conditions) > keep || cap(w.args) > keep {
		w.conditions, w.args = nil, nil
	}
	clear(w.conditions[:cap(w.conditions)])
	clear(w.args[:cap(w.args)])
	if w.conn != nil {
		clear(w.conn.args[:cap(w.conn.args)])
	}
}

// drop closes the connection. The next group connects again.
func (w *writer) drop() {
	w.known.Forget()
	w.conn.close()
	w.conn = nil
}
