package torture

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

const aloneEnv = "WEFT_TEST_ALONE"

// Alone runs the test in a process of its own and says whether this one has nothing left to
// do. What a test does to its whole process, such as a limit to the size of files, would
// otherwise meet what go test writes beside it.
func Alone(t *testing.T) (elsewhere bool) {
	t.Helper()
	if os.Getenv(aloneEnv) == t.Name() {
		return false
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.v")
	child.Env = append(os.Environ(), aloneEnv+"="+t.Name())
	out, err := child.CombinedOutput()
	if err != nil {
		t.Errorf("in a process of its own: %v", err)
	}
	t.Logf("%s", out)
	return true
}
