package sqlite

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"modernc.org/sqlite"
	code "modernc.org/sqlite/lib"

	"github.com/weft-go/weft/internal/place"
	"github.com/weft-go/weft/storage"
)

// A log is the write-ahead log of a database.
//
// The writer copies a log that has grown into the database, which is a checkpoint. SQLite then restarts
// the log when no reader uses it. If there is always a reader, the log is never restarted and grows
// without limit. keepShort prevents that.
type log struct {
	database string
	readers  chan *reader // the store's
	frames   int64        // a log that has so many pages is copied
	written  int          // about how many bytes since the last look at the number of frames
	limit    int64
	next     time.Time // of the next check
}

const (
	logFrames   = 4000    // 16 MiB: pages that many successive commits change are written back once
	logLook     = 1 << 20 // to look costs a fifth of a commit without a sync
	logLimit    = 64 << 20
	logInterval = time.Second
	logPatience = 250 * time.Millisecond // how long commits wait for readers to finish
)

// Variables for tests.
var (
	syncRead     = place.SyncRead[*os.File]
	syncFolderOf = place.SyncFolderOf
)

// syncLog syncs the log of a database that is opened, and its name. A process that was killed may have left a commit that it
// had not synced, in a log that it had created, and what is read is said to be durable. The first connection shows such a commit, so one must be there before:
// later ones show only what was synced. SQLite has no locks on the log, which closing it would drop.
func syncLog(database string) error {
	f, err := os.Open(database + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syncRead(f); err != nil {
		return err
	}
	return syncFolderOf(f.Name())
}

// wrote counts a group of batches.
func (l *log) wrote(batches []storage.Batch) {
	l.written += 64 << 10
	for i := range batches {
		l.written += batches[i].Size().Bytes
	}
}

// tend copies the log if it has grown, and truncates it above its limit.
func (w *writer) tend() error {
	if w.log.written >= logLook {
		w.log.written = 0
		if w.checkpoint("NOOP") >= w.log.frames {
			w.checkpoint("PASSIVE")
		}
	}
	w.log.keepShort(func() { w.checkpoint("TRUNCATE") })
	return w.failure()
}

// checkpoint copies the log into the database, or with NOOP does nothing, and returns how many frames
// the log has. SQLite could do it by itself after each commit, but then its errors are lost. An error
// that is not the end of the store is ignored: the log keeps growing, which is slow but correct.
//
// It must be the writer's connection: what another one could not sync is an error for each that had
// the file open before, and for no later one.
func (w *writer) checkpoint(mode string) (frames int64) {
	err := w.query("PRAGMA wal_checkpoint("+mode+")", nil, 3, func(row []driver.Value) error {
		frames, _ = row[1].(int64)
		return nil
	})
	w.check(err)
	return frames
}

// check gives up if err is that of a sync. The kernel may then have dropped what it could not write, so
// that the next sync succeeds without it. What is in the database may be lost, so the last connection
// must not remove the log: the next opener copies all of it again.
func (w *writer) check(err error) {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok || e.Code() != code.SQLITE_IOERR_FSYNC && e.Code() != code.SQLITE_IOERR_DIR_FSYNC {
		return
	}
	err = fmt.Errorf("%w; first close all other connections to the database, then the store: %w", storage.ErrFailed, err)
	if w.failed.CompareAndSwap(nil, &err) && w.conn != nil {
		w.conn.driver.(sqlite.FileControl).FileControlPersistWAL("main", 1)
	}
}

// failure returns why the store has failed, if it has.
func (w *writer) failure() error {
	if why := w.failed.Load(); why != nil {
		return *why
	}
	return nil
}

// keepShort truncates a log above its limit, if the readers finish in time. If they do
// not, or truncating fails, the log keeps growing until the next attempt: a long log is
// slow but correct. Attempts take at most a tenth of the time.
//
// It checks the file seldom. On Linux, the first write after a stat updates the file's
// time with nanosecond precision, which the next sync must write too. That makes a
// commit slower by a third.
func (l *log) keepShort(truncate func()) {
	start := time.Now()
	if start.Before(l.next) {
		return
	}
	if info, err := os.Stat(l.database + "-wal"); err == nil && info.Size() > l.limit {
		resume := l.pauseReaders()
		truncate()
		resume()
	}
	l.next = time.Now().Add(max(logInterval, 10*time.Since(start)))
}

// pauseReaders takes the store's readers, as many as it can within logPatience, until
// resume is called.
func (l *log) pauseReaders() (resume func()) {
	patience := time.NewTimer(logPatience)
	defer patience.Stop()
	var paused []*reader
	for len(paused) < cap(l.readers) {
		select {
		case r := <-l.readers:
			paused = append(paused, r)
			continue
		case <-patience.C:
		}
		break
	}
	return func() {
		for _, r := range paused {
			l.readers <- r
		}
	}
}
