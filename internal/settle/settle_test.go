package settle_test

import (
	"testing"

	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// What a refused batch would have put is there only if all of it is, with the same bytes.
func TestStored(t *testing.T) {
	s := new(memory.Store)
	if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte("a"), []byte("1")), storage.Put([]byte("b"), nil)}}); err != nil {
		t.Fatal(err)
	}
	put := func(key, value string) storage.Op { return storage.Put([]byte(key), []byte(value)) }
	for _, c := range []struct {
		ops  []storage.Op
		want bool
	}{
		{[]storage.Op{put("a", "1")}, true},
		{[]storage.Op{put("a", "1"), put("b", "")}, true},
		{[]storage.Op{put("a", "2")}, false},
		{[]storage.Op{put("a", "1"), put("c", "1")}, false},
	} {
		if got, err := settle.Stored(s, c.ops...)(t.Context()); err != nil || got != c.want {
			t.Errorf("%v: got %v and error %v, want %v", c.ops, got, err, c.want)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := settle.Stored(s, put("a", "1"))(t.Context()); got || err == nil {
		t.Errorf("a closed store: got %v and error %v", got, err)
	}
}
