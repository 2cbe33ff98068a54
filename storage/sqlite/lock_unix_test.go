//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sqlite

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A store that was closed can be opened at once, although a process that the host is just starting has copies of its
// descriptors.
func TestCloseUnlocksWhileAProcessIsStarted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := unix.Dup(int(s.lock.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(copied)
	if other, err := Open(path, nil); err == nil {
		other.Close()
		t.Fatal("opened twice")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}
