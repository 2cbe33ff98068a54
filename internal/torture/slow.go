package torture

import "testing"

// Slow skips a test that takes long or starts processes, if tests are run with -short.
func Slow(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out with -short")
	}
}
