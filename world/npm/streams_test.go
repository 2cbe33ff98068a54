package npm_test

import (
	"path/filepath"
	"testing"

	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/world"
)

// Readers of streams whose connections are cut go on where they were.
func TestReaders(t *testing.T) {
	needNPM(t)
	s, err := sqlite.Open(filepath.Join(t.TempDir(), "store"), nil)
	srv := serve(t, opened(t, s, err), world.Options{})
	vitest(t, "test/streams.test.js", "WEFT_WORLD_URL="+srv.URL)
}
