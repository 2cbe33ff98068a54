package run

import (
	"strings"
	"testing"
)

// A path of branches is another one if any of its names is.
func TestPathsOfBranches(t *testing.T) {
	long := strings.Repeat("a", 100)
	seen := map[string][]string{}
	for _, names := range [][]string{
		{"a"}, {"b"}, {"a", "b"}, {"a/b"}, {"b", "a"}, {"a", "b", "c"}, {"a/b", "c"}, {"a", "b/c"}, {"#a"}, {"a", "#b"},
		{long}, {long[1:]}, {long, "a"}, {long[1:], "a"}, {"a", long}, {"b", long}, {long, long}, {long, long[1:]},
	} {
		path := ""
		for _, name := range names {
			path = within(path, name)
		}
		if other, taken := seen[path]; taken || path == "" || len(path) > 2*mostWords {
			t.Errorf("%.20q has the path %q, as %.20q", names, path, other)
		}
		seen[path] = names
	}
	for _, s := range []string{"#a", long, "\xff"} {
		if w := word(s); w == s || len(w) > mostWords || word(s) != w {
			t.Errorf("%.20q is recorded as %q", s, w)
		}
	}
	if word("order-42") != "order-42" {
		t.Error("a short id is recorded as it is")
	}
}
