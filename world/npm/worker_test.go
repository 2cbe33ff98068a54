package npm_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/world"
)

// The worker and the client, on a server that has messages held for 6 s.
func TestWorker(t *testing.T) {
	needNPM(t)
	s, err := sqlite.Open(filepath.Join(t.TempDir(), "store"), nil)
	srv := serve(t, opened(t, s, err), world.Options{Visibility: 6 * time.Second})
	stranger := httptest.NewUnstartedServer(http.NotFoundHandler()) // Node does not accept its certificate
	stranger.Config.ErrorLog = log.New(io.Discard, "", 0)
	stranger.StartTLS()
	defer stranger.Close()
	vitest(t, "test/worker.test.js", "WEFT_WORLD_URL="+srv.URL, "WEFT_STRANGER_URL="+stranger.URL)
}
