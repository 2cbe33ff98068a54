package torture

import (
	"errors"
	"sync"
	"testing"

	"github.com/weft-go/weft/storage"
)

// RangeAndPut commits {DeleteRange r:, Put x=1} and {if x=0, Put r:2} concurrently. A store that
// merges operations by kind could leave both x=1 and r:2, which no serial order of the two
// explains.
func RangeAndPut(t *testing.T, s storage.Storage) {
	put := func(k, v string) storage.Op { return storage.Put([]byte(k), []byte(v)) }
	for range 100 {
		if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{
			storage.DeleteRange(storage.Prefix([]byte("r:"))), put("r:1", "1"), put("x", "0"),
		}}); err != nil {
			t.Fatal(err)
		}
		var first, second error
		var wg sync.WaitGroup
		for i := range 20 { // the two and eighteen others, so that there are groups
			wg.Go(func() {
				switch i {
				case 7:
					first = s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.DeleteRange(storage.Prefix([]byte("r:"))), put("x", "1")}})
				case 13:
					second = s.Commit(t.Context(), storage.Batch{
						If:  []storage.Condition{storage.Equal([]byte("x"), []byte("0"))},
						Ops: []storage.Op{put("r:2", "2")},
					})
				default:
					if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("neighbour"+string(rune('a'+i)), "")}}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if first != nil || second != nil && !errors.Is(second, storage.ErrConflict) {
			t.Fatalf("got %v and %v", first, second)
		}
		page, err := s.Scan(t.Context(), storage.Prefix([]byte("r:")))
		if err != nil || len(page) != 0 {
			t.Fatalf("got %q and error %v, want nothing: r:2 comes before the DeleteRange or is in conflict", page, err)
		}
		if x, err := s.Get(t.Context(), []byte("x")); err != nil || string(x) != "1" {
			t.Fatalf("x: got %q and error %v, want 1", x, err)
		}
	}
}
