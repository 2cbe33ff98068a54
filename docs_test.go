package weft_test

import (
	"bufio"
	"fmt"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// TestPrograms vets every Go example in the Markdown files, each of which is a
// whole file, and the one in engine/doc.go. It runs the program on the front page, which is
// that in doc.go, twice: it answers the same. Files of the programs that TestSessions runs have
// a name, and are vetted there.
func TestPrograms(t *testing.T) {
	front := programs(t, "README.md")
	if len(front) != 1 {
		t.Fatalf("README.md has %d programs, want 1", len(front))
	}
	if got := docProgram(t, "doc.go"); got != front[0] {
		t.Errorf("the program in doc.go is not that in README.md:\n%s", got)
	}
	dir := t.TempDir()
	source, built := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	write(t, "README.md", source, front[0])
	if out, err := exec.Command("go", "build", "-o", built, source).CombinedOutput(); err != nil {
		t.Fatalf("build the program in README.md: %v\n%s", err, out)
	}
	for range 2 {
		run := exec.Command(built)
		run.Dir = dir
		out, err := run.Output()
		if got, want := string(out), "hello, ann <nil>\n"; err != nil || got != want {
			t.Errorf("the program in README.md printed %q, want %q; %v", got, want, err)
		}
	}

	all := map[string][]string{"engine/doc.go": {docProgram(t, "engine/doc.go")}}
	for _, file := range markdown(t) {
		all[file] = programs(t, file)
	}
	vet(t, all)
}

// TestTables checks that each table in the Markdown files follows an empty line or a comment. Behind a line of text, some
// renderers show it as text.
func TestTables(t *testing.T) {
	tables := 0
	for _, file := range markdown(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before := ""
		for line := range strings.SplitSeq(fence.ReplaceAllString(string(text), ""), "\n") {
			if strings.HasPrefix(line, "|") && !strings.HasPrefix(before, "|") {
				tables++
				if before != "" && !strings.HasSuffix(before, "-->") {
					t.Errorf("%s: no empty line before the table %s", file, line)
				}
			}
			before = line
		}
	}
	if tables < 50 {
		t.Errorf("found %d tables, want 50 or more", tables)
	}
}

// TestTourReleasesItsRooms cancels the tour of the guide to workflow functions when everything but its guide is there.
func TestTourReleasesItsRooms(t *testing.T) {
	testProgram(t, "docs/guides/workflows.md", `package tours

import (
	"errors"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/enginetest"
)

func TestCancel(t *testing.T) {
	enginetest.Run(t, []engine.Definition{hire, book}, func(t *testing.T, eng *engine.Engine) {
		h, err := book.Start(t.Context(), eng, "tour-1", Tour{Stays: []string{"Aurora", "Borea"}, Guide: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := confirmed.Send(t.Context(), eng, "tour-1", "yes", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := h.Cancel(t.Context(), engine.Actor{Name: "ann", Reason: "rain"}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Result(t.Context()); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("the tour: %v", err)
		}
		released := 0
		for c, err := range eng.History(t.Context(), "tour-1") {
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range c.Events {
				if e.Kind == "settled" && e.Of == "compensation" {
					released++
				}
			}
		}
		if released != 2 {
			t.Errorf("%d rooms were released, want 2", released)
		}
	})
}
`)
}

// TestRehearsalStopsTheDeploy calls the function of the guide to changing workflows that says which errors of a rehearsal stop
// a deploy.
func TestRehearsalStopsTheDeploy(t *testing.T) {
	testProgram(t, "docs/guides/changing-workflows.md", `package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage"
)

func TestHolds(t *testing.T) {
	input, bad := &engine.InputChangedError{}, errors.New("an activity without a name")
	for _, c := range []struct {
		err   error
		holds bool
	}{
		{&engine.NonDeterminismError{}, true},
		{&engine.DecodeError{}, true},
		{bad, true},
		{input, false},
		{errors.Join(input), false},
		{errors.Join(&engine.NonDeterminismError{}, input), true},
		{errors.Join(bad, input), true},
		{&engine.UnknownVersionError{}, false},
		{fmt.Errorf("read: %w", storage.ErrFutureFormat), false},
		{fmt.Errorf("read: %w", storage.ErrCorrupt), false},
		{engine.ErrBusy, false},
	} {
		if got := holds(c.err); got != c.holds {
			t.Errorf("%T %v: %v, want %v", c.err, c.err, got, c.holds)
		}
	}
}
`)
}

// testProgram runs a test of the first program of a guide.
func testProgram(t *testing.T, guide, test string) {
	t.Helper()
	dir := shop(t)
	write(t, guide, filepath.Join(dir, "program.go"), programs(t, guide)[0])
	write(t, "this test", filepath.Join(dir, "program_test.go"), test)
	if out, err := command(dir, "go", "test", ".").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// vet checks examples by the files that they are from: each is a package of its own, in a module that uses this one or
// otelweft.
func vet(t *testing.T, all map[string][]string) {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	ours, traced := t.TempDir(), t.TempDir()
	moduleLike(t, ours, here)
	moduleLike(t, traced, filepath.Join(here, "otelweft"))
	n := 0
	for from, programs := range all {
		for i, program := range programs {
			n++
			dir, name := ours, "main.go"
			if !strings.HasPrefix(program, "package main\n") {
				name = "main_test.go"
			}
			if strings.Contains(program, module+"/otelweft") {
				dir = traced
			}
			at := fmt.Sprintf("example-%d-of-%s", i+1, strings.NewReplacer("/", "-", ".", "-").Replace(from))
			write(t, from, filepath.Join(dir, at, name), program)
		}
	}
	for _, dir := range []string{ours, traced} {
		if out, err := command(dir, "go", "vet", "./...").CombinedOutput(); err != nil {
			t.Errorf("examples: go vet: %v\n%s", err, out)
		}
	}
	t.Logf("%d examples", n)
	if n < 30 {
		t.Errorf("found %d examples, want 30 or more", n)
	}
}

// write writes a file of an example, and checks the format of one in Go.
func write(t *testing.T, from, file, program string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	if filepath.Ext(file) != ".go" {
		return
	}
	if out, err := exec.Command("gofmt", "-l", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("an example in %s is not formatted: %s %v\n%s", from, out, err, program)
	}
}

// A block is a code block of a Markdown file. Its name follows the language.
type block struct{ language, name, text string }

var fence = regexp.MustCompile("(?ms)^```([^\\s`]*)(?: ([^\n]+))?\n(.*?)^```$")

func blocks(t *testing.T, file string) (found []block) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		found = append(found, block{m[1], m[2], m[3]})
	}
	return found
}

// programs are the Go examples in a Markdown file that have no name.
func programs(t *testing.T, file string) (found []string) {
	t.Helper()
	for _, b := range blocks(t, file) {
		if b.language == "go" && b.name == "" {
			found = append(found, b.text)
		}
	}
	return found
}

func markdown(t *testing.T) (files []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS("."), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "node_modules": // what npm has installed for internal/apitest
			return fs.SkipDir
		case filepath.Ext(p) == ".md":
			files = append(files, p)
		}
		return nil
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

// TestAdapterTable compares the table of stores in docs/guides/stores.md with what the
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
	// It is a module of its own, whose test has the same.
	etcd := storage.Capabilities{ConditionalBatch: true, AtomicBatch: true, ReadAfterWrite: true, ScanConsistency: storage.Snapshot,
		Durable: true, Shared: true, MaxBatch: storage.Size{Ops: 127, Bytes: 1 << 20}}

	var want strings.Builder
	want.WriteString("| store | conditional batch | atomic batch | read after write | scan | durable | shared | largest batch |\n|---|---|---|---|---|---|---|---|\n")
	for _, row := range []struct {
		name string
		c    storage.Capabilities
	}{
		{"`storage/sqlite`", durable.Capabilities()},
		{"`storage/sqlite`, `Relaxed`", relaxed.Capabilities()},
		{"`storage/sqlite`, `Shared`", shared.Capabilities()},
		{"`storage/bolt`", bo.Capabilities()},
		{"`storage/postgres`", open(pg, err).Capabilities()},
		{"`storage/etcd`", etcd},
		{"`storage/memory`", new(memory.Store).Capabilities()},
	} {
		c := row.c
		fmt.Fprintf(&want, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", row.name,
			yes(c.ConditionalBatch), yes(c.AtomicBatch), yes(c.ReadAfterWrite), c.ScanConsistency, yes(c.Durable), yes(c.Shared), size(c.MaxBatch))
	}
	guide, err := os.ReadFile("docs/guides/stores.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(guide), "<!-- adapters")
	_, rest, _ = strings.Cut(rest, "-->\n")
	got, _, ok := strings.Cut(rest, "<!-- end -->")
	// Its module compares it: this one does not depend on pebble.
	got = regexp.MustCompile("(?m)^\\| `storage/pebble` .*\n").ReplaceAllString(got, "")
	if !ok || strings.TrimSpace(got) != strings.TrimSpace(want.String()) {
		t.Errorf("the table of stores in docs/guides/stores.md is not what the adapters claim. It should be:\n%s", want.String())
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
	for file, all := range map[string][]string{
		"docs/guides/stores.md": {
			"**Safe CAS.**", "**Fail fast.**", "**Single owner.**",
			"CheckpointOwnershipCapabilityError", "OwnershipModeError",
			"the workflow's record is, byte for byte, what the owner has read", "exactly one engine, in one process, uses the store",
		},
		"docs/guides/operating.md": {
			"## Upgrade and downgrade of Weft", "**Drain**", "**Keep them out**", "recovers by itself", "lock deployments in your deployment tool",
		},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, words := range all {
			if !strings.Contains(string(text), words) {
				t.Errorf("%s does not say %q", file, words)
			}
		}
	}
}

// ACT-55: the documents say that Weft alone does not make an external effect happen
// exactly once, and what a user must give to the external system.
func TestNoBlanketPromise(t *testing.T) {
	for _, file := range []string{"README.md", "docs/guarantees.md", "docs/guides/activities.md"} {
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

// TestSessions does what the Markdown files tell their readers to do. A block with a name, such as
// "```go main.go", is a file of the page's program, and replaces one with that name. A block "```console" is a session:
// commands, each after "$ ", and what they print. A program whose output ends with "signal: killed"
// is killed a second after it has printed the lines before.
//
// The programs take real time: a machine that stands still for a second changes what some of them print. So a page that
// printed something else is repeated from its beginning, in an empty folder. In one of the attempts, all of it must be
// what the page shows.
func TestSessions(t *testing.T) {
	torture.Slow(t)
	pages := 0
	for _, page := range markdown(t) {
		all := blocks(t, page)
		if !slices.ContainsFunc(all, block.isOfSession) {
			continue
		}
		pages++
		t.Run(page, func(t *testing.T) {
			t.Parallel() // they mostly wait
			const attempts = 5
			for n := range attempts {
				err := follow(t, page, all)
				if err == nil {
					return
				}
				t.Logf("attempt %d of %d: %v", n+1, attempts, err)
			}
			t.Errorf("%s: no attempt printed what the page shows", page)
		})
	}
	if pages < 13 {
		t.Errorf("found %d pages with sessions", pages)
	}
}

// follow does what a page says, in a folder of its own. It stops at the first command that prints something else than the
// page shows, and returns that as an error.
func follow(t *testing.T, page string, all []block) error {
	t.Helper()
	dir, named, run := shop(t), 0, 0
	for _, b := range all {
		switch {
		case b.language == "console":
			if err := session(t, page, dir, b.text); err != nil {
				return err
			}
			run = named
		case b.name != "":
			write(t, page, filepath.Join(dir, b.name), b.text)
			named++
		}
	}
	if run < named {
		t.Errorf("%s has a file after its last session: nothing runs it", page)
	}
	return again(t, page, dir, all)
}

// isOfSession reports whether b is a session, or a file that one uses.
func (b block) isOfSession() bool { return b.language == "console" || b.name != "" }

// shop makes a folder with a module that is called shop and uses this one.
func shop(t *testing.T) (dir string) {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	moduleLike(t, dir, here)
	return dir
}

// moduleLike makes a folder a module that is called shop, and uses the module in a folder of this tree and
// all that this one uses.
func moduleLike(t *testing.T, dir, used string) {
	t.Helper()
	mod, err := os.ReadFile(filepath.Join(used, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join(used, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(strings.SplitN(string(mod), "\n", 2)[0], "module ")
	text := strings.Replace(string(mod), "module "+name, "module shop", 1) + "\nrequire " + name + " v0.0.0\n\nreplace " + name + " => " + used + "\n"
	text = strings.Replace(text, "=> ../\n", "=> "+filepath.Dir(used)+"\n", 1)
	for name, data := range map[string]string{"go.mod": text, "go.sum": string(sum)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// varying is what is not compared: durations, and lines of this module's code.
var varying = regexp.MustCompile(`\d+\.\d+s|\(cached\)|\breplay\.go:\d+`)

// session runs the commands of a session and compares what they print with what the page shows. Its error is the first
// difference.
func session(t *testing.T, page, dir, text string) error {
	t.Helper()
	if out, err := command(dir, "go", "vet", ".").CombinedOutput(); err != nil {
		t.Fatalf("%s: go vet: %v\n%s", page, err, out)
	}
	program := filepath.Join(t.TempDir(), "program")
	if strings.Contains(text, "$ go run . ") {
		if out, err := command(dir, "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
			t.Fatalf("%s: go build: %v\n%s", page, err, out)
		}
	}
	for _, part := range strings.Split("\n"+text, "\n$ ")[1:] {
		lines := strings.Split(strings.TrimSuffix(part, "\n"), "\n")
		line, want := lines[0], lines[1:]
		var cmd *exec.Cmd
		if args, ok := strings.CutPrefix(line, "go run . "); ok && !strings.Contains(args, ">") {
			cmd = command(dir, program, strings.Fields(args)...)
		} else {
			cmd = command(dir, "sh", "-c", line)
		}
		got := play(t, cmd, want)
		for i := range got {
			got[i] = varying.ReplaceAllString(strings.TrimRight(got[i], " "), "N")
		}
		for i := range want {
			want[i] = varying.ReplaceAllString(want[i], "N")
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("%s: %s\nprints:\n%s\n\nthe page shows:\n%s", page, line, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	return nil
}

// again runs the program of a page's last session once more, if it keeps something in a file. What the program finds
// there from the first time neither fails it, which is the error, nor has it wait for ever.
func again(t *testing.T, page, dir string, all []block) error {
	t.Helper()
	var last string
	keeps := false
	for _, b := range all {
		if b.language == "console" {
			last = b.text
		}
		keeps = keeps || b.name != "" && strings.Contains(b.text, "sqlite.Open(")
	}
	line, _, _ := strings.Cut(strings.TrimPrefix(last, "$ "), "\n")
	variables, ok := strings.CutSuffix(line, "go run . 2>/dev/null")
	if !ok || !keeps {
		return nil
	}
	program := filepath.Join(t.TempDir(), "program")
	if out, err := command(dir, "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%s: go build: %v\n%s", page, err, out)
	}
	cmd := command(dir, program)
	cmd.Env = append(os.Environ(), strings.Fields(variables)...)
	limit := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	out, err := cmd.CombinedOutput()
	if !limit.Stop() {
		t.Fatalf("%s: the second run of its program takes longer than a minute: %v\n%s", page, err, out)
	}
	if err != nil {
		return fmt.Errorf("%s: the second run of its program: %w\n%s", page, err, out)
	}
	return nil
}

func command(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	return cmd
}

const killed = "signal: killed"

// play runs cmd and returns the lines that it prints, and how it ended if it did not end well, as
// "go run" does. A shell says that itself.
func play(t *testing.T, cmd *exec.Cmd, want []string) (got []string) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := func() { _ = cmd.Process.Kill() }
	limit := time.AfterFunc(10*time.Minute, kill) // it may have to compile first
	doomed := len(want) > 0 && want[len(want)-1] == killed
	for lines := bufio.NewScanner(out); lines.Scan(); {
		got = append(got, lines.Text())
		if doomed && len(got) == len(want)-1 {
			defer time.AfterFunc(time.Second, kill).Stop()
		}
	}
	err = cmd.Wait()
	if !limit.Stop() {
		t.Fatalf("%s takes longer than 10 minutes: %v\n%s", cmd, err, strings.Join(got, "\n"))
	}
	if err != nil && filepath.Base(cmd.Path) == "program" {
		got = append(got, err.Error())
	}
	return got
}

var (
	code    = regexp.MustCompile("`[^`]+`")
	link    = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)

	// mention is how Go code and text name a page.
	mention = regexp.MustCompile(`\bdocs/[\w/-]+\.md(?:#[\w-]+)?`)
	section = regexp.MustCompile(`(docs/[\w/-]+\.md) says what to do under "([^"]+)"`)
)

// TestLinks checks that each relative link in the Markdown files leads to a file or a heading, and
// each page that they or the code name exists. Every page under docs can be reached from
// README.md; of the decisions, their folder.
func TestLinks(t *testing.T) {
	anchors, links := map[string]map[string]bool{}, map[string][]string{}
	for _, page := range markdown(t) {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text := fence.ReplaceAllString(string(data), "")
		anchors[page] = map[string]bool{}
		for _, m := range heading.FindAllStringSubmatch(text, -1) {
			anchors[page][anchor(m[1])] = true
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, "code"), -1) {
			if !strings.Contains(m[1], ":") { // not of another site
				links[page] = append(links[page], m[1])
			}
		}
	}
	// resolve returns the page that a link on another leads to.
	resolve := func(from, to string) string {
		file, anchor, anchored := strings.Cut(to, "#")
		target := path.Join(path.Dir(from), file)
		if file == "" {
			target = from
		}
		info, err := os.Stat(target)
		if err != nil {
			t.Errorf("%s names %s: %v", from, to, err)
			return ""
		}
		if info.IsDir() && anchors[path.Join(target, "README.md")] != nil {
			target = path.Join(target, "README.md")
		}
		if anchored && !anchors[target][anchor] {
			t.Errorf("%s names %s: there is no such heading", from, to)
		}
		return target
	}
	reached, queue := map[string]bool{"README.md": true}, []string{"README.md"}
	for len(queue) > 0 {
		page := queue[0]
		queue = queue[1:]
		for _, to := range links[page] {
			if target := resolve(page, to); !reached[target] {
				reached[target] = true
				queue = append(queue, target)
			}
		}
	}
	for page := range anchors {
		if reached[page] {
			continue
		}
		for _, to := range links[page] {
			resolve(page, to)
		}
		if strings.HasPrefix(page, "docs/") && !strings.HasPrefix(page, "docs/decisions/") {
			t.Errorf("no link leads from README.md to %s", page)
		}
	}
	if !reached["docs/decisions"] {
		t.Error("no link leads from README.md to docs/decisions")
	}
	named := 0
	for _, file := range append(markdown(t), slices.Collect(maps.Keys(goFiles(t)))...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mention.FindAllString(string(text), -1) {
			resolve("", m)
			named++
		}
		for _, m := range section.FindAllStringSubmatch(string(text), -1) {
			resolve("", m[1]+"#"+anchor(m[2]))
		}
	}
	if len(reached) < 20 || named < 10 {
		t.Errorf("reached %d pages, and found the names of %d", len(reached), named)
	}
}

// anchor is what GitHub makes of a heading.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}
