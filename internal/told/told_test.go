package told

import "testing"

func TestFirst(t *testing.T) {
	var s Set
	for i, c := range []struct {
		what  string
		first bool
	}{{"a", true}, {"a", false}, {"b", true}, {"a", false}, {"c", true}, {"c", false}, {"a", true}, {"b", true}} {
		if got := s.First(c.what, 2); got != c.first {
			t.Errorf("call %d, with %s: %v", i, c.what, got)
		}
	}
}
