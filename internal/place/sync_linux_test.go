package place

import (
	"errors"
	"io/fs"
	"os"
	"testing"
)

// What cannot be synced by its nature is no error. Any other error is one.
func TestSyncRead(t *testing.T) {
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err == nil {
		t.Fatal("the file can be synced, want one that cannot")
	}
	if err := SyncRead(f); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	f.Close()
	if err := SyncRead(f); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("closed: got %v, want ErrClosed", err)
	}
}
