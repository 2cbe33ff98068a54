package sqlite

import (
	"database/sql/driver"
	"os"
	"time"
)

// A log is the write-ahead log of a database.
//
// SQLite checkpoints a log that has grown, and restarts it when no reader uses it. If
// there is always a reader, the log is never restarted and grows without limit.
// keepShort prevents that.
type log struct {
	database string
	pragmas  []pragma
	readers  chan *reader // the store's
	limit    int64
	next     time.Time // of the next check
}

const (
	logLimit    = 64 << 20
	logInterval = time.Second
	logPatience = 250 * time.Millisecond // how long commits wait for readers to finish
)

// keepShort truncates a log above its limit, if the readers finish in time. If they do
// not, or truncating fails, the log keeps growing until the next attempt: a long log is
// slow but correct. Attempts take at most a tenth of the time.
//
// It checks the file seldom. On Linux, the first write after a stat updates the file's
// time with nanosecond precision, which the next sync must write too. That makes a
// commit slower by a third.
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

func (l *log) connect() (*conn, error) { return connect(l.database, "rw", l.pragmas) }

func (l *log) truncate() error {
	c, err := l.connect()
	if err != nil {
		return err
	}
	defer c.close()
	return c.query("PRAGMA wal_checkpoint(TRUNCATE)", nil, 3, func([]driver.Value) error { return nil })
}
