package crashtest

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/weft-go/weft/internal/torture"
)

// TestFound runs the test of the careless shop, and checks that its failure says which
// card was charged twice, and where the process died.
func TestFound(t *testing.T) {
	torture.Slow(t)
	out, err := exec.Command("go", "test", "-count=1", "-tags", "careless", "-run", "Careless", ".").CombinedOutput()
	if _, failed := err.(*exec.ExitError); !failed {
		t.Fatalf("go test: %v\n%s", err, out)
	}
	t.Logf("%s", out)
	for _, want := range []string{
		"--- FAIL: TestCareless",
		"order-42 (charge settled), before it was written:\n",
		"\"card charged\" happened 2 times, undisturbed once\n",
		"order-42  charge  operation 2  attempt 1  before the crash\n",
		"order-42  charge  operation 2  attempt 2  after it\n",
		"charge has no IdempotencyKey: it runs at least once.",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("it does not say %q", want)
		}
	}
}
