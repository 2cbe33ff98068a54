package sqlite_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/sqlite"
)

// A commit that waits for the lock while the files are moved is not acknowledged: its
// transaction begins afterwards.
func TestCommitThatWaitsWhileTheFilesAreMoved(t *testing.T) {
	for _, isShared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared=%v", isShared), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "folder")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "store.db")
			s, err := sqlite.Open(path, &sqlite.Options{Shared: isShared})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			other, err := host(t, path).Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			if _, err := other.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
				t.Fatal(err)
			}
			committed := make(chan error, 1)
			go func() {
				committed <- s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte("a"), nil)}})
			}()
			time.Sleep(50 * time.Millisecond) // it waits now; if not yet, the answer is the same
			if err := os.Rename(dir, dir+".old"); err != nil {
				t.Fatal(err)
			}
			if _, err := other.ExecContext(t.Context(), "ROLLBACK"); err != nil {
				t.Fatal(err)
			}
			if err := <-committed; !errors.Is(err, storage.ErrMoved) {
				t.Errorf("got %v, want ErrMoved", err)
			}
		})
	}
}
