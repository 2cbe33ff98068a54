package weft_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestLogTable compares the tables of messages and attributes in docs/guides/monitoring.md with
// what the code logs. So every message is a constant.
func TestLogTable(t *testing.T) {
	logTable(t, "What is logged", "weft: ", 50, 20, "engine", "internal", "storage", "activity", "signal", "fence", "future", "checkpoint")
	logTable(t, "What a control plane and a world log", "", 12, 10, "control", "world")
}

// logTable compares the tables of a section with what some directories log. Each message begins with prefix, which the table
// leaves out. It fails if there are fewer messages or attributes in the code than there must be.
func logTable(t *testing.T, heading, prefix string, leastMessages, leastKeys int, dirs ...string) {
	t.Helper()
	guide, err := os.ReadFile("docs/guides/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(guide), "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	documented, attributes := map[string]bool{}, map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (Debug|Info|Warn|Error) \\| `([^`]*)` \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(section, -1) {
		if documented[row[1]+" "+row[2]] {
			t.Errorf("the table has two rows for %q", row[2])
		}
		documented[row[1]+" "+row[2]] = true
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z_`, ]*)` \\| [^|]+ \\|$").FindAllStringSubmatch(section, -1) {
		for _, key := range strings.Split(row[1], "`, `") {
			attributes[key] = true
		}
	}
	messages, keys := map[string]bool{}, map[string]bool{}
	for _, dir := range dirs {
		err := fs.WalkDir(os.DirFS("."), dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || path.Ext(p) != ".go" || strings.HasSuffix(p, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			f, err := parser.ParseFile(files, p, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "With" && isLogger(f.X) {
					for i := 0; i < len(call.Args); i += 2 {
						key, _ := text(call.Args[i])
						keys[key] = true
					}
				}
				if !logs(call) {
					return true
				}
				level := call.Fun.(*ast.SelectorExpr).Sel.Name
				message, ok := text(call.Args[0])
				rest, prefixed := strings.CutPrefix(message, prefix)
				if !ok || !prefixed {
					t.Errorf("%s: the message of a log call is not a constant that begins with %q", files.Position(call.Pos()), prefix)
				}
				messages[level+" "+rest] = true
				for _, key := range attributesOf(call) {
					keys[key] = true
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(messages) < leastMessages || len(keys) < leastKeys {
		t.Fatalf("found %d messages and %d attributes in %v", len(messages), len(keys), dirs)
	}
	differ(t, "message", messages, documented)
	differ(t, "attribute", keys, attributes)
}

func differ(t *testing.T, what string, code, guide map[string]bool) {
	t.Helper()
	for _, s := range slices.Sorted(maps.Keys(code)) {
		if !guide[s] {
			t.Errorf("%s in the code, and not in docs/guides/monitoring.md: %s", what, s)
		}
	}
	for _, s := range slices.Sorted(maps.Keys(guide)) {
		if !code[s] {
			t.Errorf("%s in docs/guides/monitoring.md, and not in the code: %s", what, s)
		}
	}
}

// logs reports whether a call logs: it calls a method that is named like a level, of something
// that is named like a logger.
func logs(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, f.Sel.Name) || len(call.Args) == 0 {
		return false
	}
	return isLogger(f.X)
}

func isLogger(e ast.Expr) bool {
	if call, ok := e.(*ast.CallExpr); ok {
		e = call.Fun
	}
	switch e := e.(type) {
	case *ast.Ident:
		return strings.HasPrefix(strings.ToLower(e.Name), "log")
	case *ast.SelectorExpr:
		return strings.HasPrefix(strings.ToLower(e.Sel.Name), "log") || e.Sel.Name == "With" && isLogger(e.X)
	}
	return false
}

// attributesOf returns the keys of the attributes that a call passes: those after its message,
// and those that it appends to others.
func attributesOf(call *ast.CallExpr) (keys []string) {
	args := call.Args[1:]
	if call.Ellipsis.IsValid() {
		more, ok := args[len(args)-1].(*ast.CallExpr)
		if !ok {
			return nil
		}
		args = more.Args[1:]
	}
	for i := 0; i < len(args); i += 2 {
		key, _ := text(args[i])
		keys = append(keys, key)
	}
	return keys
}

func text(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}
