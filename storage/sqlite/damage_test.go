package sqlite_test

import (
	"os"
	"testing"

	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage/sqlite"
)

func TestDamagedFile(t *testing.T) {
	torture.Damage(t, 1000, openRelaxed, func(path string) {
		s := open(t, path, nil)
		torture.Fill(t, s)
		s.Close()
		os.Remove(path + ".lock")
	})
}

// TestDamagedLog damages the files that a crash leaves: the database and its log.
func TestDamagedLog(t *testing.T) {
	torture.Damage(t, 200, openRelaxed, func(path string) {
		live := newPath(t)
		torture.Fill(t, open(t, live, nil))
		copyFile(t, live, path)
		copyFile(t, live+"-wal", path+"-wal")
	})
}

// A process that is killed may leave a commit in the log that it had not synced. Nobody may read it before
// it is durable.
func TestLogOfACrashIsSynced(t *testing.T) {
	live := newPath(t)
	torture.Fill(t, open(t, live, nil))
	for _, relaxed := range []bool{false, true} {
		path := newPath(t)
		copyFile(t, live, path)
		copyFile(t, live+"-wal", path+"-wal")
		before, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		open(t, path, &sqlite.Options{Relaxed: relaxed})
		after, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		// A checkpoint syncs the log first.
		if copied := after.Size() > before.Size(); copied == relaxed {
			t.Errorf("relaxed %v: the database has grown from %d to %d bytes", relaxed, before.Size(), after.Size())
		}
	}
}

// copyFile reads a file that SQLite has open, which drops SQLite's locks on it. In this
// test nobody needs them.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
