package control

import (
	"strings"
	"testing"
)

func TestRunIDs(t *testing.T) {
	for id, ok := range map[string]bool{
		"a": true, "a@b": true, "...": true, "a/b": true, "%2F": true, "ä": true, strings.Repeat("a", 128): true,
		"": false, "@": false, "@a/b/c": false, ".": false, "..": false, "\xff": false, "a\x00b": false, strings.Repeat("a", 129): false,
	} {
		if got := runIDProblem(id) == ""; got != ok {
			t.Errorf("%q is a runId: %v, want %v", id, got, ok)
		}
	}
}

// A run has a runId in one namespace only.
func TestNamespacesAreApart(t *testing.T) {
	who := map[string]*principal{
		"home":  {space: space{"default", "default"}, home: true},
		"acme":  {space: space{"acme", "prod"}},
		"test":  {space: space{"acme", "test"}},
		"acme2": {space: space{"acme2", "prod"}},
		"short": {space: space{"acme", "pro"}},
	}
	for _, id := range []string{"order-1", "a/b", "acme/prod/x", "x@acme/prod/y"} {
		for name, k := range who {
			engine, ok := k.engineID(id)
			if !ok {
				t.Fatalf("%s has no run %q", name, id)
			}
			for other, o := range who {
				got, ok := o.runID(engine)
				if want := other == name; ok != want || ok && got != id {
					t.Errorf("%q of %s is %q, %v for %s", id, name, got, ok, other)
				}
			}
		}
	}
	for _, id := range []string{"@acme/prod/x", "..", ""} {
		for name, k := range who {
			if got, ok := k.engineID(id); ok {
				t.Errorf("%s: %q is the run %q", name, id, got)
			}
		}
	}
	if got := who["acme"].visible(`child "@acme/prod/a" of "@acme/prod/b"`); got != `child "a" of "b"` {
		t.Errorf("got %s", got)
	}
}
