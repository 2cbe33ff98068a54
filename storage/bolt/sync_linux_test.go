package bolt

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-go/weft/storage"
)

// TestFailedSyncIsTheEnd makes the disk fail. The map may then show data that never reached
// it.
func TestFailedSyncIsTheEnd(t *testing.T) {
	s := openInside(t)
	if err := s.Commit(t.Context(), batch("a", []byte("1"))); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(s.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	null, err := os.Open("/dev/null") // opened for reading, so writes fail
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := unix.Dup3(int(null.Fd()), int(s.file.Fd()), 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), batch("a", []byte("2"))); err == nil {
		t.Fatal("got nil from a disk that fails")
	}
	if err := unix.Dup3(fd, int(s.file.Fd()), unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), batch("a", []byte("3"))); !errors.Is(err, storage.ErrFailed) {
		t.Errorf("commit: got %v, want ErrFailed", err)
	}
	if _, err := s.Get(t.Context(), []byte("a")); !errors.Is(err, storage.ErrFailed) {
		t.Errorf("get: got %v, want ErrFailed", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Open(s.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if v, err := r.Get(t.Context(), []byte("a")); err != nil || string(v) != "1" {
		t.Errorf("opened again: got %q and error %v, want 1", v, err)
	}
}
