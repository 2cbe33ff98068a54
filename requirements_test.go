package weft_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// requirements are the groups of requirements, and how many each has.
var requirements = map[string]int{"ACT": 55, "SIG": 53, "OWN": 27, "FMT": 26, "CAP": 10, "UPG": 10, "FEN": 63, "LST": 12, "HTTP": 105, "QRY": 6, "RET": 10, "SCH": 16, "OPS": 10, "STA": 1, "VER": 11, "CAN": 12, "UPD": 12, "WLD": 75}

// TestRequirements checks the table of what shows that each requirement holds,
// testdata/requirements.txt. A requirement is proved if a test that names it fails when a
// patch in testdata/mutants takes the rule out. (The gate runs every test, and make mutants
// runs every patch.) Or a decision says why the requirement does not hold, or does not apply.
func TestRequirements(t *testing.T) {
	table, err := os.ReadFile("testdata/requirements.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	tests := testsByPackage(t)
	for n, line := range strings.Split(strings.TrimSuffix(string(table), "\n"), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		wrong := func(format string, args ...any) {
			t.Errorf("testdata/requirements.txt:%d: %s", n+1, fmt.Sprintf(format, args...))
		}
		columns := strings.Split(line, " | ")
		if len(columns) != 3 {
			wrong("%d columns, want 3: %q", len(columns), line)
			continue
		}
		name := strings.TrimSpace(columns[0])
		if rows[name] {
			wrong("%s has two rows", name)
		}
		rows[name] = true
		if page, decided := strings.CutPrefix(columns[1], "decided: "); decided {
			text, err := os.ReadFile(path.Join("docs/decisions", page))
			if err != nil || !strings.Contains(string(text), name) {
				wrong("docs/decisions/%s does not decide %s: %v", page, name, err)
			}
			continue
		}
		proofs := strings.Split(columns[1], ", ")
		for _, problem := range unproved(tests, proofs, strings.Split(columns[2], ", ")) {
			wrong("%s", problem)
		}
		for _, proof := range proofs {
			if source, exists := tests[proof]; exists && !names(source, name) {
				wrong("%s does not name %s", proof, name)
			}
		}
	}
	whole := 0
	for group, last := range requirements {
		for n := 1; n <= last; n++ {
			name := fmt.Sprintf("%s-%d", group, n)
			if !rows[name] {
				t.Errorf("testdata/requirements.txt has no %s", name)
			}
		}
		whole += last
	}
	if len(rows) != whole {
		t.Errorf("testdata/requirements.txt has %d requirements, want %d", len(rows), whole)
	}
}

// unproved says what is wrong with a row whose tests find its faults: a test that does not exist or may be skipped, and a
// fault that does not exist or that none of the tests finds.
func unproved(tests map[string]string, proofs, faults []string) (problems []string) {
	for _, proof := range proofs {
		switch source, exists := tests[proof]; {
		case !exists:
			problems = append(problems, "there is no test "+proof)
		case regexp.MustCompile(`\bSkip(f|Now)?\(`).MatchString(source):
			problems = append(problems, proof+" may be skipped")
		}
	}
	for _, fault := range faults {
		finders, err := findersOf(fault)
		if err != nil {
			problems = append(problems, err.Error())
		} else if !slices.ContainsFunc(proofs, func(proof string) bool { return slices.Contains(finders, proof) }) {
			problems = append(problems, fmt.Sprintf("fault %s is found by %v, and by none of the row's tests", fault, finders))
		}
	}
	return problems
}

// TestAttacks checks the table of attacks on the control plane, control/testdata/attacks.txt. An attack is played by tests that
// find a fault which would let it succeed.
func TestAttacks(t *testing.T) {
	table, err := os.ReadFile("control/testdata/attacks.txt")
	if err != nil {
		t.Fatal(err)
	}
	tests := testsByPackage(t)
	others, err := filepath.Glob("internal/apitest/*_test.go") // of a module of its own
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range others {
		testsOf(t, file, tests)
	}
	rows := 0
	for n, line := range strings.Split(strings.TrimSuffix(string(table), "\n"), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		rows++
		columns := strings.Split(line, " | ")
		if len(columns) != 4 || slices.Contains(columns, "") {
			t.Errorf("attacks.txt:%d: want an attack, tests, faults and an answer: %q", n+1, line)
			continue
		}
		for _, problem := range unproved(tests, strings.Split(columns[1], ", "), strings.Split(columns[2], ", ")) {
			t.Errorf("attacks.txt:%d: %s", n+1, problem)
		}
	}
	if rows < 20 {
		t.Errorf("attacks.txt has %d attacks", rows)
	}
}

// names reports whether a test names a requirement: itself, or in a range like ACT-12 to
// ACT-19.
func names(source, requirement string) bool {
	if regexp.MustCompile(`\b` + requirement + `\b`).MatchString(source) {
		return true
	}
	group, number, _ := strings.Cut(requirement, "-")
	var want int
	fmt.Sscan(number, &want)
	for _, m := range regexp.MustCompile(group+`-(\d+) to `+group+`-(\d+)`).FindAllStringSubmatch(source, -1) {
		var from, to int
		fmt.Sscan(m[1], &from)
		fmt.Sscan(m[2], &to)
		if from <= want && want <= to {
			return true
		}
	}
	return false
}

// testsByPackage returns the source of each test with its comment, by package and name, such as
// "engine.TestMessages". Those of the root package are "weft.TestAPI".
func testsByPackage(t *testing.T) map[string]string {
	found := map[string]string{}
	for file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			testsOf(t, file, found)
		}
	}
	return found
}

// testsOf adds the tests of a file to found.
func testsOf(t *testing.T, file string, found map[string]string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && (strings.HasPrefix(d.Name.Name, "Test") || strings.HasPrefix(d.Name.Name, "Fuzz")) {
			source := text[d.Pos()-f.FileStart : d.End()-f.FileStart]
			found[testName(path.Dir(file), d.Name.Name)] = d.Doc.Text() + string(source)
		}
	}
}

func testName(dir, test string) string {
	if dir == "." {
		dir = "weft"
	}
	return dir + "." + test
}

// findersOf returns the tests that find a fault of testdata/mutants.
func findersOf(fault string) (finders []string, err error) {
	patch, err := os.ReadFile(path.Join("testdata/mutants", fault+".patch"))
	if err != nil {
		return nil, err
	}
	field := func(name string) string {
		_, after, _ := strings.Cut(string(patch), "\n"+name+": ")
		value, _, _ := strings.Cut(after, "\n")
		return value
	}
	for dir := range strings.FieldsSeq(field("packages")) {
		for test := range strings.SplitSeq(field("tests"), "|") {
			finders = append(finders, testName(path.Clean(dir), test))
		}
	}
	return finders, nil
}
