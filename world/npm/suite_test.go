package npm_test

import (
	"testing"
	"time"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/world"
)

// rounds is how often the runtime's suite runs on each adapter.
func rounds() int {
	if torturing() {
		return 3
	}
	return 1
}

// The runtime's own suite, unchanged: all of its tests pass.
func TestSuite(t *testing.T) {
	needNPM(t)
	onAdapters(t, func(t *testing.T, s storage.Storage) {
		srv := serve(t, s, world.Options{})
		for n := range rounds() {
			began := time.Now()
			got := vitest(t, "test/suite.test.js", "WEFT_WORLD_URL="+srv.URL)
			took := time.Since(began)
			t.Logf("round %d: %d of 12 have passed in %v", n+1, got, took)
			if got != 12 {
				t.Errorf("%d tests have passed, want 12", got)
			}
			if took > 150*time.Second && torturing() { // other tests beside it may need the machine
				t.Errorf("the suite took %v, want at most 150 s", took)
			}
		}
	})
}
