package sqlite

import (
	"database/sql/driver"
	"os"
	"time"
)

// A log is the write-ahead log of a database.
//
// SQLite writes it back by itself when it has grown, and begins again at its
// start when no reader is in it. Where readers are always in it that moment
// never comes, and the log grows for ever. Hence keepShort.
type log struct {
	database string
	readers  chan *reader // the store's
	limit    int64
	next     time.Time // when it is looked at again
}

const (
	logLimit    = 64 << 20
	logInterval = time.Second
	logPatience = 250 * time.Millisecond // for which commits wait until readers leave
)

// keepShort truncates a log that is above its limit, if readers leave it in
// time. If they do not, or it fails, the log goes on growing until the next
// attempt: a long log is slow and not wrong. Attempts take at most a tenth of
// the time.
//
// It looks at the file seldom. On Linux the first write after a look changes the
// file's time to the nanosecond, and its sync then has that to write too, which
// makes a commit slower by a third.
func (l *log) keepShort() {
	start := time.Now()
	if start.Before(l.next) {
		return
	}
	if info, err := os.Stat(l.database + "-wal"); err == nil && info.Size() > l.limit {
		resume := l.pauseReaders()
		l.truncate()
		resume()
	}
	l.next = time.Now().Add(max(logInterval, 10*time.Since(start)))
}

// pauseReaders keeps the store's own readers out, until resume.
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

func (l *log) truncate() error {
	c, err := connect(l.database, "rw", []pragma{busy(logPatience / 5)})
	if err != nil {
		return err
	}
	defer c.close()
	return c.query("PRAGMA wal_checkpoint(TRUNCATE)", nil, 3, func([]driver.Value) error { return nil })
}
