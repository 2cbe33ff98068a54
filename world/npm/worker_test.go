package npm_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/world"
)

// The worker and the client, on a server that has messages held for 2 s.
func TestWorker(t *testing.T) {
	needNPM(t)
	s, err := sqlite.Open(filepath.Join(t.TempDir(), "store"), nil)
	srv := serve(t, opened(t, s, err), world.Options{Visibility: 2 * time.Second})
	vitest(t, "test/worker.test.js", "WEFT_WORLD_URL="+srv.URL)
}
