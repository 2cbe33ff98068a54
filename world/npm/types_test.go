package npm_test

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// The types hold: what createWorld returns is a world of each version of the interface.
func TestTypes(t *testing.T) {
	needNPM(t)
	out, err := exec.CommandContext(t.Context(), filepath.Join("node_modules", ".bin", "tsc"), "-p", ".").CombinedOutput()
	if err != nil {
		t.Errorf("tsc: %v\n%s", err, out)
	}
}
