// Package weftvet finds what a workflow function must not do: code that does something else
// when it is replayed, and code that uses the engine wrongly.
//
// Workflow code is every function with a *engine.Run parameter, and what it calls in the
// modules of the user. What a Step, a Transact or an activity is given is not workflow code. It
// is known by its context.Context, which workflow code does not have: a literal with one and
// without a Run, or a named function that is passed on and not called. If a wrapper of Step
// takes functions without a context, and calls them in the step only, these are not workflow code
// either. No registration of a workflow is looked for.
//
// A finding in a function of the same package is reported where it is. If the function is in
// another package, its summary is a fact, and the finding is reported at the call. Modules
// with a version, which are those of others, are not looked into; -modules names the
// exceptions. Calls of function values and of interface methods are not followed.
//
// The files: scope says which packages and types count, known what may not be used (W1, W2,
// W3, W5), and wrappers what callers must know of a function. walk goes through the code of a
// package. maps (W4), variables (W6, W7) and operations (W8 to W11) check what needs more than
// a table. reach finds what workflow code calls, and ignore reads the directives.
package weftvet

import (
	"cmp"
	"fmt"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"

	"golang.org/x/tools/go/analysis"
)

// Analyzer reports the codes W1 to W11.
var Analyzer = &analysis.Analyzer{
	Name: "weftvet",
	Doc: `find code in workflow functions that a replay does not repeat

A workflow function is run again from its beginning and must then do the same. weftvet
reports the clock (W1), random numbers (W2), goroutines, channels and locks (W3), the order of
maps (W4), the outside world (W5), package variables that change (W6), variables assigned in
a step (W7), a Run outside its branch (W8), futures and Runs that are kept (W9), dropped errors of
operations (W10), and computed names and == with sentinel errors (W11).

A finding is suppressed by a comment at the end of its line, or alone on the line above:

	//weft:ignore W4 the order does not matter here`,
	URL:       "https://github.com/weft-go/weft/blob/main/docs/guides/testing.md#does-it-do-the-same-in-a-replay",
	Run:       run,
	FactTypes: []analysis.Fact{new(summary), new(variable)},
}

// modules is the value of -modules.
var modules string

func init() {
	Analyzer.Flags.StringVar(&modules, "modules", "",
		"prefixes of the paths of further modules whose functions are workflow code if a workflow calls them, separated by commas; default: only modules without a version")
}

// A code is the number of a kind of finding: 4 is W4.
type code uint8

const codes = 11

func (c code) String() string { return fmt.Sprintf("W%d", c) }

// A fault is a finding. If it is scoped, it counts only in code that a workflow reaches, and
// the message says so.
type fault struct {
	code   code
	pos    token.Pos
	what   string
	why    string // why it is wrong, and what to use instead
	scoped bool
	from   *Hazard // of another package, which a call reaches
}

func run(pass *analysis.Pass) (any, error) {
	if !ofUser(pass) {
		return nil, nil
	}
	c := &checker{
		pass:      pass,
		info:      pass.TypesInfo,
		ignored:   ignores(pass),
		functions: map[*types.Func]*function{},
		wrappers:  map[*types.Func]*wrapper{},
	}
	c.prepare()
	c.walkAll()
	c.steps()
	c.variables()
	c.reach()
	c.report()
	return nil, nil
}

// report reports at most one finding of a code on a line.
func (c *checker) report() {
	slices.SortStableFunc(c.found, func(a, b finding) int { return cmp.Compare(a.pos, b.pos) })
	type line struct {
		file string
		line int
		code code
	}
	seen := map[line]bool{}
	for _, f := range c.found {
		at := c.pass.Fset.Position(f.pos)
		key := line{at.Filename, at.Line, f.code}
		if seen[key] {
			continue
		}
		seen[key] = true
		c.pass.Report(analysis.Diagnostic{
			Pos:      f.pos,
			Category: f.code.String(),
			Message:  fmt.Sprintf("%s (%s)", f.text, f.code),
		})
	}
}

type finding struct {
	pos  token.Pos
	code code
	text string
}

// place names a position without the path of this machine, so that facts are the same on all.
func (c *checker) place(pos token.Pos) string {
	at := c.pass.Fset.Position(pos)
	return fmt.Sprintf("%s:%d", filepath.Base(at.Filename), at.Line)
}
