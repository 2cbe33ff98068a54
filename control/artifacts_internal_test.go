package control

import (
	"testing"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// What is uploaded is bounded by MaxArtifact.
func TestArtifactsAreBounded(t *testing.T) {
	e, err := engine.New(engine.Config{Storage: new(memory.Store)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	p, err := New(Config{Engine: e})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if got := p.deployments.MostArtifact; got != MaxArtifact {
		t.Errorf("an artifact may have %d bytes, want %d", got, MaxArtifact)
	}
}
