package torture

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

const aloneEnv = "WEFT_TEST_ALONE"

// Alone runs the test in a separate process, and reports whether it did, so that this process
// has nothing left to do. Otherwise, settings of the whole process, such as a limit on file
// sizes, would affect what go test writes at the same time.
func Alone(t *testing.T) (elsewhere bool) {
	t.Helper()
	if os.Getenv(aloneEnv) == t.Name() {
		return false
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.v")
	child.Env = append(os.Environ(), aloneEnv+"="+t.Name())
	out, err := child.CombinedOutput()
	if err != nil {
		t.Errorf("in a separate process: %v", err)
	}
	t.Logf("%s", out)
	return true
}
