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

// TestLogTable compares the tables of messages and attributes in the guides with
// what the code logs. So every message is a constant.
func TestLogTable(t *testing.T) {
	const monitoring = "docs/guides/monitoring.md"
	logTable(t, monitoring, "What is logged", "weft: ", 50, 20, "engine", "internal", "storage", "activity", "signal", "fence", "future", "checkpoint")
	logTable(t, monitoring, "What a control plane and a world log", "", 12, 10, "control", "world")
	logTable(t, "docs/guides/idempotency.md", "Metrics and logs", "", 17, 15, "idempotency")
}

// logTable compares the tables of a section of a guide with what some directories log. Each message begins with prefix, which the table
// leaves out. It fails if there are fewer messages or attributes in the code than there must be.
func logTable(t *testing.T, file, heading, prefix string, leastMessages, leastKeys int, dirs ...string) {
	t.Helper()
	guide, err := os.ReadFile(file)
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
				level, args := logs(call)
				if level == "" {
					return true
				}
				message, ok := text(args[0])
				rest, prefixed := strings.CutPrefix(message, prefix)
				if !ok || !prefixed {
					t.Errorf("%s: the message of a log call is not a constant that begins with %q", files.Position(call.Pos()), prefix)
				}
				messages[level+" "+rest] = true
				for _, key := range attributesOf(args[1:], call.Ellipsis.IsValid()) {
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
	differ(t, file, "message", messages, documented)
	differ(t, file, "attribute", keys, attributes)
}

func differ(t *testing.T, file, what string, code, guide map[string]bool) {
	t.Helper()
	for _, s := range slices.Sorted(maps.Keys(code)) {
		if !guide[s] {
			t.Errorf("%s in the code, and not in %s: %s", what, file, s)
		}
	}
	for _, s := range slices.Sorted(maps.Keys(guide)) {
		if !code[s] {
			t.Errorf("%s in %s, and not in the code: %s", what, file, s)
		}
	}
}

// logs returns the level of a call that logs, and its arguments from the message on. Such a call is that of a method which is
// named like a level, with or without Context, of something that is named like a logger. Of another call the level is "".
func logs(call *ast.CallExpr) (level string, args []ast.Expr) {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !isLogger(f.X) {
		return "", nil
	}
	level, withContext := strings.CutSuffix(f.Sel.Name, "Context")
	if args = call.Args; withContext && len(args) > 0 {
		args = args[1:]
	}
	if !slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, level) || len(args) == 0 {
		return "", nil
	}
	return level, args
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
// and those that it appends to others, if it passes a slice.
func attributesOf(args []ast.Expr, slice bool) (keys []string) {
	if slice {
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
