package sqlite

import (
	"database/sql/driver"
	"strconv"
	"time"

	code "modernc.org/sqlite/lib"

	"github.com/weft-go/weft/internal/group"
	"github.com/weft-go/weft/internal/place"
	"github.com/weft-go/weft/storage"
)

// A writer is the one connection that writes. Its methods are called by the
// leader of a group, so never two at once.
type writer struct {
	*conn
	file    string
	pragmas []pragma
	sql     statements
	log     log
	files   *place.Files // the store's

	// Kept for their memory, and emptied by forget.
	conditions []storage.Condition
	args       []driver.Value
}

// busyTimeout is how long a statement waits for a lock, such as one of the
// host's own connections may hold.
const busyTimeout = 5 * time.Second

// beginTimeout is how long a group waits for the lock at a time. In between callers whose
// contexts have ended give up.
const beginTimeout = 100 * time.Millisecond

func newWriter(file string, o Options, readers chan *reader) (*writer, error) {
	w := &writer{
		file: file,
		sql:  newStatements(o.Table),
		log:  log{database: file, readers: readers, limit: logLimit},
	}
	sync := pragma{"synchronous", "FULL", "2"}
	if o.Relaxed {
		sync = pragma{"synchronous", "NORMAL", "1"}
	}
	w.pragmas = []pragma{
		busy(busyTimeout), // first: to set the journal's mode needs a lock
		{"journal_mode", "WAL", "wal"},
		sync,
		{"cache_size", "-4096", "-4096"}, // KiB; SQLite walks all of it when pages were split
		// 16 MiB: pages that many commits in a row change are written back once.
		{"wal_autocheckpoint", "4000", "4000"},
	}
	if err := w.connect("rwc"); err != nil {
		return nil, err
	}
	if err := w.createTable(o.Table); err != nil {
		w.close()
		return nil, err
	}
	if err := w.hurry(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func busy(d time.Duration) pragma {
	ms := strconv.FormatInt(d.Milliseconds(), 10)
	return pragma{"busy_timeout", ms, ms}
}

// connect connects; mode "rwc" creates the file if it is not there.
func (w *writer) connect(mode string) (err error) {
	w.conn, err = connect(w.file, mode, w.pragmas)
	return err
}

// hurry has the statements to come wait for a lock no longer than beginTimeout. Only the
// one that begins a transaction meets one.
func (w *writer) hurry() error {
	_, err := w.exec("PRAGMA busy_timeout = " + busy(beginTimeout).value)
	return err
}

func (w *writer) close() error {
	if w.conn == nil {
		return nil
	}
	return w.conn.close()
}

// apply is a group.Apply. What was written to a file that is not at its path any more
// is not acknowledged.
func (w *writer) apply(batches []storage.Batch, verdicts []error) error {
	if err := w.files.Moved(); err != nil {
		return err
	}
	err := w.try(batches, verdicts)
	if moved := w.files.Check(); moved != nil {
		return moved
	}
	return err
}

// try applies a group. A statement that fails before COMMIT undoes all of it; one that
// fails in COMMIT leaves its outcome unknown.
func (w *writer) try(batches []storage.Batch, verdicts []error) error {
	if err := w.ready(); err != nil {
		return err
	}
	defer w.forget()
	if _, err := w.exec(w.sql.begin); err != nil {
		if primary(err) == code.SQLITE_BUSY {
			return group.NotBegun(err)
		}
		w.drop()
		return err
	}
	for i := range batches {
		ok, err := w.batch(&batches[i])
		if err != nil {
			w.rollback()
			return group.Undone(err)
		}
		if !ok {
			verdicts[i] = storage.ErrConflict
		}
	}
	if _, err := w.exec(w.sql.commit); err != nil {
		w.rollback()
		return err
	}
	return nil
}

// ready connects again where the connection was dropped, and keeps the log short.
func (w *writer) ready() error {
	if w.conn == nil {
		if err := w.connect("rw"); err != nil {
			return err
		}
		if err := w.files.Check(); err != nil { // it may be another file's connection
			w.drop()
			return err
		}
		if err := w.hurry(); err != nil {
			w.drop()
			return err
		}
		return nil
	}
	w.log.keepShort()
	return nil
}

// rollback ends a transaction that failed. SQLite may have ended it already,
// which the failure of ROLLBACK tells; then whatever else is wrong with the
// connection ends with it.
func (w *writer) rollback() {
	if _, err := w.exec(w.sql.rollback); err != nil {
		w.drop()
	}
}

// forget lets go of the callers' bytes.
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

// drop makes the next group connect again.
func (w *writer) drop() {
	w.conn.close()
	w.conn = nil
}
