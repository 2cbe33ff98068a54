// Package plugin makes weftvet a linter of golangci-lint, by its module plugin system: name
// this package as the import of a plugin in .custom-gcl.yml, and enable the custom linter weftvet
// with the type module.
package plugin

import (
	"github.com/golangci/plugin-module-register/register"
	"golang.org/x/tools/go/analysis"

	"github.com/weft-go/weft/weftvet"
)

func init() {
	register.Plugin("weftvet", func(any) (register.LinterPlugin, error) { return linter{}, nil })
}

type linter struct{}

func (linter) BuildAnalyzers() ([]*analysis.Analyzer, error) {
	return []*analysis.Analyzer{weftvet.Analyzer}, nil
}

func (linter) GetLoadMode() string { return register.LoadModeTypesInfo }
