package sqlite_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/sqlite"
)

// No length of a value takes several times the room that others take. A row of a little more
// than 2 KiB has a page of 4 KiB for itself: that is the worst.
func TestRoomOfValues(t *testing.T) {
	const total = 1 << 20
	for length := 100; length <= 64<<10; length += length/torture.Rounds(7, 7, 2) + 1 {
		path := newPath(t)
		s := open(t, path, &sqlite.Options{Relaxed: true})
		value, n := make([]byte, length), total/length
		for i := 0; i < n; {
			var b storage.Batch
			for ; i < n && len(b.Ops) < 500; i++ {
				b.Ops = append(b.Ops, storage.Put(fmt.Appendf(nil, "log:01JGZ3Q8X%017d:00000000000000000001", i), value))
			}
			if err := s.Commit(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		s.Close()
		file, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		// A row also has its key twice.
		if most := int64(n)*(19*int64(length)/10+150) + 32<<10; file.Size() > most {
			t.Errorf("%d values of %d bytes take %d bytes, want at most %d", n, length, file.Size(), most)
		}
	}
}
