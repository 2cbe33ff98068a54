package place

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-go/weft/storage"
)

func created(t testing.TB, dir string, names ...string) (paths []string) {
	t.Helper()
	for _, name := range names {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	return paths
}

// A file that is back at its path may have been away, with another in its place.
func TestWhatMovedStaysMoved(t *testing.T) {
	paths := created(t, t.TempDir(), "a", "b")
	f, err := Of(paths...)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Check(); err != nil {
		t.Errorf("before: got %v, want nil", err)
	}
	away := paths[1] + ".away"
	if err := os.Rename(paths[1], away); err != nil {
		t.Fatal(err)
	}
	if err := f.Check(); !errors.Is(err, storage.ErrMoved) {
		t.Errorf("away: got %v, want ErrMoved", err)
	}
	if err := os.Rename(away, paths[1]); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"Check": f.Check(), "Moved": f.Moved(), "Glance": f.Glance()} {
		if !errors.Is(err, storage.ErrMoved) {
			t.Errorf("%s when it is back: got %v, want ErrMoved", what, err)
		}
	}
}

// If a path cannot be checked, that says nothing about the file. Once it can be checked again,
// Check succeeds.
func TestWhatCannotBeSeenHasNotMoved(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	paths := created(t, dir, "a")
	if err := os.Symlink(paths[0], link); err != nil {
		t.Fatal(err)
	}
	f, err := Of(link)
	if err != nil {
		t.Fatal(err)
	}
	relink := func(target string) {
		t.Helper()
		if err := errors.Join(os.Remove(link), os.Symlink(target, link)); err != nil {
			t.Fatal(err)
		}
	}
	relink(link) // too many links
	if err := f.Check(); err == nil || errors.Is(err, storage.ErrMoved) {
		t.Errorf("got %v, want an error that is not ErrMoved", err)
	}
	relink(paths[0])
	if err := f.Check(); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	relink(created(t, dir, "b")[0])
	if err := f.Check(); !errors.Is(err, storage.ErrMoved) {
		t.Errorf("a link that leads elsewhere: got %v, want ErrMoved", err)
	}
}

func TestGlanceLooksOnceInAnInterval(t *testing.T) {
	paths := created(t, t.TempDir(), "a")
	f, err := Of(paths...)
	if err != nil {
		t.Fatal(err)
	}
	f.epoch = f.epoch.Add(-time.Hour)
	if err := f.Glance(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(paths[0]); err != nil {
		t.Fatal(err)
	}
	f.seen.Store(int64(time.Since(f.epoch) + time.Hour)) // as if the clock went back, which happens in a synctest bubble
	if err := f.Glance(); !errors.Is(err, storage.ErrMoved) {
		t.Errorf("got %v, want ErrMoved", err)
	}
}

func BenchmarkCheck(b *testing.B) {
	f, err := Of(created(b, b.TempDir(), "store.db", "store.db-wal", "store.db-shm", "store.db.lock")...)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Check(); err != nil {
			b.Fatal(err)
		}
	}
}
