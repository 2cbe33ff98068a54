package world_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/integrity"
	"github.com/weft-go/weft/internal/world"
	"github.com/weft-go/weft/internal/worldstream"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// sound reports what is wrong with the records of a store.
func sound(t testing.TB, s storage.Storage) {
	t.Helper()
	for _, p := range world.Check(t.Context(), s) {
		t.Error(p)
	}
}

// Check finds each record that is missing or does not belong where it is.
func TestCheck(t *testing.T) {
	populated := func() storage.Storage {
		s := new(memory.Store)
		c := open(t, s)
		c.full("wrun_1", streams(t, s), 2)
		c.full("wrun_2", streams(t, s), 1)
		c.must("wrun_2", world.RunCompleted, "", fields{"output": 1})
		if _, err := streams(t, s).Write(c.ctx, worldstream.Write{RunID: "wrun_3", Name: "early", Chunks: texts("x")}); err != nil {
			t.Fatal(err)
		}
		return s
	}
	sound(t, populated())
	for _, p := range integrity.Check(t.Context(), populated(), time.Time{}) {
		t.Errorf("of the store as a whole: %s", p)
	}
	for prefix, want := range map[string]string{
		"world:wrun_1:ev:00000000000000000002": "it follows event 1", "world:wrun_1:hk:hook_wrun_1": "there is no such hook",
		"world:wrun_1:live:hook_wrun_1": "no open hook has this token", "wtok:": "is missing", "whk:": "is missing", "wcor:": "is missing", "wix:all:": "is missing", "wix:name:": "is missing", "wix:status:": "is missing",
		"wexp:run:": "is missing", "wexp:stream:": "nothing has it removed", "wsname:a:wrun_1": "is missing", "wstream:wrun_1:b": "there is no such stream",
		"wchunk:wrun_1:a:00000000000000000001": "it follows chunk 0", "wchunk:wrun_1:a:00000000000000000005": "it counts 6 chunks, and there are 5",
	} {
		s := populated()
		removed := 0
		for e, err := range storage.All(t.Context(), s, storage.Prefix([]byte(prefix))) {
			if err == nil && removed == 0 {
				removed++
				err = s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Delete(e.Key)}})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Join(world.Check(t.Context(), s), "\n"); removed != 1 || !strings.Contains(got, want) {
			t.Errorf("without %s (%d records): %q, want %q", prefix, removed, got, want)
		}
	}
}
