package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/weft-go/weft/storage"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	open := func() *os.File {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	a, b := open(), open()
	for _, c := range []struct {
		first, second bool // shared
		want          error
	}{{true, true, nil}, {true, false, storage.ErrInUse}, {false, true, storage.ErrInUse}, {false, false, storage.ErrInUse}} {
		if err := Lock(a, c.first); err != nil {
			t.Fatal(err)
		}
		if err := Lock(b, c.second); !errors.Is(err, c.want) {
			t.Errorf("shared %v, then %v: got %v, want %v", c.first, c.second, err, c.want)
		}
		for _, f := range []*os.File{a, b} {
			if err := Unlock(f); err != nil {
				t.Error(err)
			}
		}
	}
	a.Close()
	if err := Lock(a, false); err == nil || errors.Is(err, storage.ErrInUse) {
		t.Errorf("got %v for a file that is closed", err)
	}
}
