package namespace_test

import (
	"strings"
	"testing"

	"github.com/weft-go/weft/internal/namespace"
)

func TestNamesOfNamespaces(t *testing.T) {
	for _, c := range []struct {
		project, environment string
		ok                   bool
	}{
		{"acme", "prod", true},
		{"A-c_9", "x", true},
		{strings.Repeat("p", 40), strings.Repeat("e", 20), true},
		{strings.Repeat("p", 41), "e", false},
		{"p", strings.Repeat("e", 21), false},
		{"", "prod", false},
		{"acme", "", false},
		{"a/b", "prod", false},
		{"acme", "pr/od", false},
		{"ácme", "prod", false},
		{"acme", "pro d", false},
		{"@acme", "prod", false},
	} {
		name, ok := namespace.Name(c.project, c.environment)
		if ok != c.ok || ok && name != c.project+"/"+c.environment {
			t.Errorf("%q, %q: got %q, %v, want %v", c.project, c.environment, name, ok, c.ok)
		}
	}
}

func TestSplitFindsTheNamespaceOfAnID(t *testing.T) {
	for id, want := range map[string][2]string{
		"@acme/prod/order":      {"acme/prod", "order"},
		"@acme/prod/a/b@c":      {"acme/prod", "a/b@c"},
		"@acme/prod/@other/x/y": {"acme/prod", "@other/x/y"},
		"order":                 {},
		"":                      {},
		"@":                     {},
		"@alice":                {},
		"@acme/prod":            {},
		"@acme/prod/":           {},
		"@/prod/x":              {},
		"@acme//x":              {},
		"@ac me/prod/x":         {},
		"x@acme/prod/x":         {},
		"@acme/" + strings.Repeat("e", 21) + "/x": {},
	} {
		name, in, ok := namespace.Split(id)
		if name != want[0] || in != want[1] || ok != (want[0] != "") {
			t.Errorf("%q: got %q, %q, %v, want %q", id, name, in, ok, want)
		}
		if ok && namespace.Prefix(name)+in != id {
			t.Errorf("%q is put together as %q", id, namespace.Prefix(name)+in)
		}
	}
}

func TestWithinIsOfTheSameNamespace(t *testing.T) {
	for id, want := range map[string]string{
		"order":              "@acme/prod/order",
		"a/b":                "@acme/prod/a/b",
		"@acme/prod/order":   "@acme/prod/order",
		"@acme/test/order":   "",
		"@acme/prod/":        "",
		"@acme/prod":         "",
		"@acme/production/x": "",
		"@alice":             "",
		"@":                  "",
	} {
		full, ok := namespace.Within("acme/prod", id)
		if ok != (want != "") || ok && full != want {
			t.Errorf("%q: got %q, %v, want %q", id, full, ok, want)
		}
	}
}
