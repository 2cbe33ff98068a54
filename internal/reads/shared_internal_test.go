package reads

import (
	"context"
	"testing"
)

// A Shared keeps nothing of keys that nobody reads.
func TestSharedForgets(t *testing.T) {
	var s Shared[int, int]
	for i := range 100 {
		if _, err := s.Get(t.Context(), i, func(context.Context) (int, error) { return i, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.busy) > 0 {
		t.Errorf("%d keys are kept", len(s.busy))
	}
}
