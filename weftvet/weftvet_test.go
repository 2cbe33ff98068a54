package weftvet_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/weft-go/weft/weftvet"
)

// The corpus in testdata is a module of its own, on the real packages of Weft. So it does not compile
// when their API changes, and no stub can differ from it; and this module needs no replace,
// with which it could not be installed. After a change of the root's go.mod: go mod tidy in testdata.
//
// VET-1: each code finds the faults in fault.go, and is silent on at least ten functions in
// alike.go that resemble them.
// VET-2: none of them is registered with an engine.
// VET-3: w7 has changed fields of variables, parameters and receivers.
// VET-5: it ends on types and functions that use themselves, and on templates, in generic.
// VET-6: w1 measures with time.Since how long the run waits.
//
// Package facts calls functions of another package, which are known by their summaries. In
// ignore are findings that are suppressed, and directives that say nothing.
func TestCorpus(t *testing.T) {
	// analysistest loads without the network.
	download := exec.Command("go", "mod", "download")
	download.Dir = "testdata"
	if out, err := download.CombinedOutput(); err != nil {
		t.Fatalf("go mod download in testdata: %v\n%s", err, out)
	}
	results := analysistest.Run(diagnosticsOnly{t}, analysistest.TestData(), weftvet.Analyzer, "example.com/corpus/...")
	analysed := map[string]bool{}
	for _, r := range results {
		analysed[r.Action.Package.PkgPath] = true
	}
	for _, p := range []string{"facts", "clock", "ignore", "generic"} {
		if !analysed["example.com/corpus/"+p] {
			t.Errorf("package %s is missing", p)
		}
	}
	for code := 1; code <= 11; code++ {
		name := fmt.Sprintf("w%d", code)
		if !analysed["example.com/corpus/"+name] {
			t.Errorf("package %s is missing", name)
		}
		fault, alike := filepath.Join("testdata", name, "fault.go"), filepath.Join("testdata", name, "alike.go")
		if n := wants(t, fault); n < 10 {
			t.Errorf("%s has %d faults, want at least 10", fault, n)
		}
		if n := wants(t, alike); n != 0 {
			t.Errorf("%s expects %d findings, want none", alike, n)
		}
		if n := functions(t, alike); n < 10 {
			t.Errorf("%s has %d workflow functions, want at least 10", alike, n)
		}
	}
}

// diagnosticsOnly does without an expectation for each fact. What facts do is seen in the
// packages that import them.
type diagnosticsOnly struct{ testing.TB }

func (t diagnosticsOnly) Errorf(format string, args ...any) {
	t.Helper()
	if text := fmt.Sprintf(format, args...); !strings.Contains(text, ": unexpected fact: ") {
		t.TB.Error(text)
	}
}

func wants(t *testing.T, file string) int {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "// want ")
}

// functions counts the functions of a file that are workflow code by themselves.
func functions(t *testing.T, file string) (n int) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		d, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		for _, p := range d.Type.Params.List {
			if s, ok := p.Type.(*ast.StarExpr); ok {
				if s, ok := s.X.(*ast.SelectorExpr); ok && s.Sel.Name == "Run" {
					n++
				}
			}
		}
	}
	return n
}

// VET-4: there is no finding in the modules of this repository. One that is planted among them
// is found.
func TestRepository(t *testing.T) {
	tool := build(t)
	for _, dir := range []string{"..", "../benchmarks", "."} {
		if out, err := vet(tool, dir, "./..."); err != nil {
			t.Errorf("%s: %v\n%s", dir, err, out)
		}
	}

	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	planted := filepath.Join(t.TempDir(), "planted.go")
	source := "package main\n\nimport (\n\t\"time\"\n\n\t\"github.com/weft-go/weft/engine\"\n)\n\nfunc planted(run *engine.Run) time.Time { return time.Now() }\n"
	if err := os.WriteFile(planted, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	replace := fmt.Sprintf(`{"Replace": {%q: %q}}`, filepath.Join(root, "examples", "children", "planted.go"), planted)
	if err := os.WriteFile(overlay, []byte(replace), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := vet(tool, "..", "-overlay="+overlay, "./examples/children")
	if err == nil || strings.Count(out, "time.Now in workflow code") != 1 || strings.Count(out, " (W") != 1 {
		t.Errorf("with time.Now in examples/children: %v\n%s", err, out)
	}
}

// The command works by itself and as a tool of go vet. There a package is analysed in a process of
// its own, and facts come from files.
func TestCommand(t *testing.T) {
	tool := build(t)
	const want = "clock.Stamp, which uses time.Now (clock.go:15), in workflow code: a replay gets another time; use run.Now (W1)"
	if out, err := vet(tool, "testdata", "./facts"); err == nil || !strings.Contains(out, want) {
		t.Errorf("go vet: %v, want a finding %q:\n%s", err, want, out)
	}
	alone := exec.Command(tool, "./facts")
	alone.Dir = "testdata"
	if out, err := alone.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
		t.Errorf("alone: %v, want a finding %q:\n%s", err, want, out)
	}
}

// build returns the command.
func build(t *testing.T) string {
	t.Helper()
	tool := filepath.Join(t.TempDir(), "weftvet")
	if out, err := exec.Command("go", "build", "-o", tool, "./cmd/weftvet").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return tool
}

func vet(tool, dir string, args ...string) (string, error) {
	cmd := exec.Command("go", append([]string{"vet", "-vettool=" + tool}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}
