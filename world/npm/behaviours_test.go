package npm_test

import (
	"testing"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/world"
)

// What a runtime relies on holds for each version of the interface: 55 behaviours of three versions.
func TestBehaviours(t *testing.T) {
	needNPM(t)
	onAdapters(t, func(t *testing.T, s storage.Storage) {
		if got := vitest(t, "test/behaviours.test.js", "WEFT_WORLD_URL="+serve(t, s, world.Options{MaxHooks: 3}).URL); got != 3*55 {
			t.Errorf("%d behaviours hold, want 3 x 55", got)
		}
	})
}
