package plugin

import (
	"testing"

	"github.com/golangci/plugin-module-register/register"

	"github.com/weft-go/weft/weftvet"
)

// golangci-lint finds the linter by its name, and gets the analyser with types.
func TestLinter(t *testing.T) {
	newLinter, err := register.GetPlugin("weftvet")
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLinter(nil)
	if err != nil {
		t.Fatal(err)
	}
	analyzers, err := l.BuildAnalyzers()
	if err != nil || len(analyzers) != 1 || analyzers[0] != weftvet.Analyzer || l.GetLoadMode() != register.LoadModeTypesInfo {
		t.Errorf("got %v, %q, %v", analyzers, l.GetLoadMode(), err)
	}
}
