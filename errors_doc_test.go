package weft_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestErrorsAreDocumented compares docs/errors.md with the code: each exported error of a
// public package, and each Reason, has one row, and each row is about one that exists. So is
// everything else that the page names like an error or a Reason.
func TestErrorsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	exist := exportedErrors(t)
	rows := map[string]int{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z]+\\.[A-Z]\\w*)` \\|(.*)\\|$").FindAllStringSubmatch(string(text), -1) {
		rows[row[1]]++
		if cells := strings.Split(row[2], "|"); len(cells) != 3 || slices.ContainsFunc(cells, func(s string) bool { return strings.TrimSpace(s) == "" }) {
			t.Errorf("docs/errors.md: the row of %s has an empty cell, or not four of them", row[1])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(exist)) {
		if rows[name] != 1 {
			t.Errorf("docs/errors.md has %d rows for %s, want 1", rows[name], name)
		}
	}
	named := maps.Clone(rows)
	for _, word := range regexp.MustCompile(`\b[a-z]+\.(Err[A-Z]\w*|Reason[A-Z]\w*|\w*Error)\b`).FindAllString(string(text), -1) {
		named[word]++
	}
	delete(named, "errors.ErrUnsupported") // of the standard library
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if !exist[name] {
			t.Errorf("docs/errors.md names %s, and there is no such error or reason", name)
		}
	}
}

// TestCodesAreDocumented compares the codes of the tables in docs/guides/http.md and docs/guides/world.md with those that a
// control plane and a world answer.
func TestCodesAreDocumented(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var document struct {
		Components struct {
			Schemas struct{ Code struct{ Enum []string } }
		}
	}
	if err := json.Unmarshal([]byte(read("control/openapi.json")), &document); err != nil {
		t.Fatal(err)
	}
	var world []string
	for _, m := range regexp.MustCompile(`Code(?:\w* += |: )"([a-z_]+)"`).FindAllStringSubmatch(read("internal/world/errors.go")+read("internal/worldhttp/handler.go"), -1) {
		world = append(world, m[1])
	}
	for _, at := range []struct {
		page, heading string
		codes         []string
		least         int
	}{
		{"docs/guides/http.md", "Errors", document.Components.Schemas.Code.Enum, 40},
		{"docs/guides/world.md", "What is refused", world, 13},
	} {
		_, section, _ := strings.Cut(read(at.page), "\n## "+at.heading+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		code, page := map[string]bool{}, map[string]bool{}
		for _, c := range at.codes {
			code[c] = true
		}
		for _, cell := range regexp.MustCompile(`(?m)^\| \d+ ([^|]+) \|`).FindAllStringSubmatch(section, -1) {
			for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(cell[1], -1) {
				page[m[1]] = true
			}
		}
		if len(code) < at.least {
			t.Fatalf("found %d codes for %s", len(code), at.page)
		}
		for c := range code {
			if !page[c] {
				t.Errorf("%s has no row for %s", at.page, c)
			}
		}
		for c := range page {
			if !code[c] {
				t.Errorf("%s has a row for %s, which nothing answers", at.page, c)
			}
		}
	}
}

// exportedErrors are the exported errors of the public packages, and the Reasons, by the names
// that users write. Those of package weft count under their names in package engine.
func exportedErrors(t *testing.T) map[string]bool {
	found := map[string]bool{}
	aliases := map[string]bool{}
	for file := range goFiles(t) {
		if dir := "/" + path.Dir(file) + "/"; strings.HasSuffix(file, "_test.go") || strings.Contains(dir, "/internal/") || strings.HasPrefix(dir, "/examples/") || strings.HasPrefix(dir, "/cmd/") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		into, prefix := found, f.Name.Name+"."
		switch prefix {
		case "engine.": // aliases, and nothing of its own
			into = aliases
		case "weft.":
			prefix = "engine."
		}
		for _, name := range errorsIn(f) {
			into[prefix+name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if strings.HasPrefix(name, "engine.") != aliases[name] {
			t.Errorf("%s: an error or Reason of package weft has an alias in package engine, and nothing else is one", name)
		}
	}
	for name := range aliases {
		found[name] = true
	}
	if len(found) < 50 {
		t.Fatalf("only %d errors were found: is this the root of the module?", len(found))
	}
	return found
}

// errorsIn are the names of what f exports: variables that are errors, types with a method
// Error, constants of type Reason, and aliases of these.
func errorsIn(f *ast.File) (names []string) {
	add := func(id *ast.Ident) {
		if id.IsExported() {
			names = append(names, id.Name)
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.Name == "Error" && d.Recv != nil {
				add(receiver(d.Recv.List[0].Type))
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if _, alias := s.Type.(*ast.SelectorExpr); alias && s.Assign.IsValid() && strings.HasSuffix(s.Name.Name, "Error") {
						add(s.Name)
					}
				case *ast.ValueSpec:
					for i, id := range s.Names {
						if isError(d.Tok, s, i) {
							add(id)
						}
					}
				}
			}
		}
	}
	return names
}

// receiver is the type of a method.
func receiver(of ast.Expr) *ast.Ident {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of
	}
	return ast.NewIdent("_")
}

// isError reports whether the name at place i of s is a Reason, or a variable that is an error:
// by its name, or because errors.New or fmt.Errorf made it.
func isError(tok token.Token, s *ast.ValueSpec, i int) bool {
	name := s.Names[i].Name
	if tok == token.CONST {
		of, typed := s.Type.(*ast.Ident)
		return typed && of.Name == "Reason" || !typed && strings.HasPrefix(name, "Reason")
	}
	if strings.HasPrefix(name, "Err") {
		return true
	}
	if i >= len(s.Values) {
		return false
	}
	call, made := s.Values[i].(*ast.CallExpr)
	if !made {
		return false
	}
	by, _ := call.Fun.(*ast.SelectorExpr)
	return by != nil && (by.Sel.Name == "Errorf" || by.Sel.Name == "New" && isPackage(by.X, "errors"))
}

func isPackage(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}
