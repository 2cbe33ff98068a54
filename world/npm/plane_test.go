package npm_test

import (
	"net/http/httptest"
	"testing"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/world"
)

// The client and its worker, behind a control plane: that answers some of their calls itself.
func TestBehindAControlPlane(t *testing.T) {
	needNPM(t)
	eng, err := engine.New(engine.Config{Storage: new(memory.Store)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { eng.Close() })
	w, err := world.Open(eng.Store(), &world.Options{Deployment: eng.ActiveDeployment})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	const secret = "a-secret-of-a-key-of-this-test"
	plane, err := control.New(control.Config{Engine: eng, World: w, Keys: []control.Key{{ID: "app", Secret: secret, Scopes: []string{"admin"}}}})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(plane)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		if err := plane.Close(); err != nil {
			t.Error(err)
		}
	})
	if got := vitest(t, "test/plane.test.js", "WEFT_WORLD_URL="+srv.URL, "WEFT_WORLD_TOKEN="+secret); got != 1 {
		t.Errorf("%d tests passed, want 1", got)
	}
}
