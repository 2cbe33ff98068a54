//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pebble

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A store that was closed can be opened at once, although a process that the host is just starting has copies of its
// descriptors.
func TestCloseUnlocksWhileAProcessIsStarted(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := unix.Dup(int(s.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(copied)
	if other, err := Open(dir, nil); err == nil {
		other.Close()
		t.Fatal("opened twice")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}
