package w6

import "testing"

func TestReplaced(t *testing.T) {
	retries = 1
	t.Cleanup(func() { retries = 3 })
}
