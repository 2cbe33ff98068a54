package weft_test

import (
	"fmt"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// TestPrograms vets every Go example in the Markdown files, each of which is a
// whole file, and the one in engine/doc.go. It runs the program on the front page, which is
// that in doc.go, twice: it answers the same.
func TestPrograms(t *testing.T) {
	front := programs(t, "README.md")
	if len(front) != 1 {
		t.Fatalf("README.md has %d programs, want 1", len(front))
	}
	vet(t, "engine/doc.go", docProgram(t, "engine/doc.go"))
	if got := docProgram(t, "doc.go"); got != front[0] {
		t.Errorf("the program in doc.go is not that in README.md:\n%s", got)
	}
	built := filepath.Join(t.TempDir(), "program")
	if out, err := exec.Command("go", "build", "-o", built, vet(t, "README.md", front[0])).CombinedOutput(); err != nil {
		t.Fatalf("build the program in README.md: %v\n%s", err, out)
	}
	dir := t.TempDir()
	for range 2 {
		run := exec.Command(built)
		run.Dir = dir
		out, err := run.Output()
		if got, want := string(out), "hello, ann\n"; err != nil || got != want {
			t.Errorf("the program in README.md printed %q, want %q; %v", got, want, err)
		}
	}
	for _, file := range markdown(t) {
		if file != "README.md" {
			for _, p := range programs(t, file) {
				vet(t, file, p)
			}
		}
	}
}

// vet checks an example, in a file outside the module's tree, and returns its
// path.
func vet(t *testing.T, from, program string) string {
	t.Helper()
	name := "main.go"
	if !strings.HasPrefix(program, "package main\n") {
		name = "main_test.go"
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gofmt", "-l", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("an example in %s is not formatted: %s %v\n%s", from, out, err, program)
	}
	if out, err := exec.Command("go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("an example in %s: go vet: %v\n%s\n%s", from, err, out, program)
	}
	return file
}

var fence = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// programs are the Go examples in a Markdown file.
func programs(t *testing.T, file string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		found = append(found, m[1])
	}
	return found
}

func markdown(t *testing.T) (files []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS("."), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(p) == ".md" {
			files = append(files, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// docProgram is the program in the package comment in a file.
func docProgram(t *testing.T, file string) string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range new(comment.Parser).Parse(f.Doc.Text()).Content {
		if code, ok := block.(*comment.Code); ok && strings.HasPrefix(code.Text, "package main\n") {
			return code.Text
		}
	}
	t.Fatalf("%s has no program", file)
	return ""
}

// TestAdapterTable compares the table of stores in README.md with what the
// adapters claim, which storagetest proves. CAP-10
func TestAdapterTable(t *testing.T) {
	dir := t.TempDir()
	open := func(s storage.Storage, err error) storage.Storage {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	sq, err := sqlite.Open(filepath.Join(dir, "a.db"), nil)
	durable := open(sq, err)
	sq, err = sqlite.Open(filepath.Join(dir, "b.db"), &sqlite.Options{Relaxed: true})
	relaxed := open(sq, err)
	sq, err = sqlite.Open(filepath.Join(dir, "d.db"), &sqlite.Options{Shared: true})
	shared := open(sq, err)
	b, err := bolt.Open(filepath.Join(dir, "c.bolt"), nil)
	bo := open(b, err)
	pg, err := postgres.Open(t.Context(), pgtest.URL(t), nil)

	var want strings.Builder
	want.WriteString("| store | conditional batch | atomic batch | read after write | scan | durable | shared | largest batch |\n|---|---|---|---|---|---|---|---|\n")
	for _, row := range []struct {
		name  string
		store storage.Storage
	}{
		{"`storage/sqlite`", durable},
		{"`storage/sqlite`, `Relaxed`", relaxed},
		{"`storage/sqlite`, `Shared`", shared},
		{"`storage/bolt`", bo},
		{"`storage/postgres`", open(pg, err)},
		{"`storage/memory`", new(memory.Store)},
	} {
		c := row.store.Capabilities()
		fmt.Fprintf(&want, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", row.name,
			yes(c.ConditionalBatch), yes(c.AtomicBatch), yes(c.ReadAfterWrite), c.ScanConsistency, yes(c.Durable), yes(c.Shared), size(c.MaxBatch))
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "<!-- adapters")
	_, rest, _ = strings.Cut(rest, "-->\n")
	got, _, ok := strings.Cut(rest, "<!-- end -->")
	if !ok || strings.TrimSpace(got) != strings.TrimSpace(want.String()) {
		t.Errorf("the table of stores in README.md is not what the adapters claim. It should be:\n%s", want.String())
	}
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func size(s storage.Size) string {
	if s == (storage.Size{}) {
		return "any"
	}
	return fmt.Sprintf("%d, %d MiB", s.Ops, s.Bytes>>20)
}

// OWN-1, OWN-4, OWN-8, OWN-20, FMT-14: the classes of deployment are documented, which bytes
// a commit compares, what a single owner promises, and what an operator sees to before engines
// of another release may have the store.
func TestDeploymentsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("docs/guides/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{
		"**Safe CAS.**", "**Fail fast.**", "**Single owner.**",
		"CheckpointOwnershipCapabilityError", "OwnershipModeError",
		"the workflow's record is, byte for byte, what the owner has read", "exactly one engine, in one process, uses the store",
		"## Upgrade and downgrade of Weft", "**Drain**", "**Keep them out**", "recovers by itself", "lease your deployment tool has",
	} {
		if !strings.Contains(string(text), words) {
			t.Errorf("docs/guides/operating.md does not say %q", words)
		}
	}
}

// ACT-55: the documents say that Weft alone does not make an external effect happen
// exactly once, and what a user must give to the external system.
func TestNoBlanketPromise(t *testing.T) {
	for _, file := range []string{"README.md", "docs/guides/activities.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, words := range []string{"External effects are not exactly once", "key", "fencing token", "at least once"} {
			if !strings.Contains(string(text), words) {
				t.Errorf("%s does not say %q", file, words)
			}
		}
	}
}
