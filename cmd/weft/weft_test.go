package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	os.RemoveAll(built.dir)
	os.Exit(code)
}

var built struct {
	sync.Once
	dir string
	err error
}

// program builds the command once and returns its path. With -short it skips the test.
func program(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short builds no programs")
	}
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "weft"); built.err != nil {
			return
		}
		if out, err := exec.Command("go", "build", "-o", filepath.Join(built.dir, "weft"), ".").CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "weft")
}

// A shell runs the command with WEFT_STORE set.
type shell struct {
	t       *testing.T
	program string
	store   string
	input   string
}

func (s shell) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.program, args...)
	cmd.Env = append(os.Environ(), "WEFT_STORE="+s.store)
	cmd.Stdin = strings.NewReader(s.input)
	return cmd
}

// run returns what the command prints and its exit code.
func (s shell) run(args ...string) (out, notes string, code int) {
	s.t.Helper()
	cmd := s.command(args...)
	var o, n bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &n
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	return o.String(), n.String(), cmd.ProcessState.ExitCode()
}

// done returns what the command prints. It must succeed and say nothing else.
func (s shell) done(args ...string) string {
	s.t.Helper()
	out, notes, code := s.run(args...)
	if code != 0 || notes != "" {
		s.t.Fatalf("weft %q: exit code %d: %s", args, code, notes)
	}
	return out
}

// noted is done for a command that also says words on the standard error.
func (s shell) noted(words string, args ...string) string {
	s.t.Helper()
	out, notes, code := s.run(args...)
	if code != 0 || !strings.HasPrefix(notes, "weft: ") || !strings.Contains(notes, words) {
		s.t.Fatalf("weft %q: exit code %d: %q, want a note with %q", args, code, notes, words)
	}
	return out
}

// fails expects an exit code, nothing on the standard output, and words on the one line of
// the error.
func (s shell) fails(want int, words string, args ...string) {
	s.t.Helper()
	out, notes, code := s.run(args...)
	if code != want || out != "" || !strings.Contains(notes, words) || !strings.HasPrefix(notes, "weft: ") || strings.Count(notes, "\n") != 1 {
		s.t.Errorf("weft %q: exit code %d, output %q, error %q; want %d, none, one line with %q", args, code, out, notes, want, words)
	}
}

// A kind is a kind of store: its address, and how a service opens it.
type kind struct {
	store string
	open  func() (storage.Storage, error)
}

func onKinds(t *testing.T, f func(t *testing.T, s shell, k kind)) {
	weft := program(t)
	for _, name := range []string{"sqlite", "bolt", "postgres"} {
		t.Run(name, func(t *testing.T) {
			k := newKind(t, name)
			f(t, shell{t: t, program: weft, store: k.store}, k)
		})
	}
}

func newKind(t *testing.T, name string) kind {
	path := filepath.Join(t.TempDir(), "orders")
	switch name {
	case "sqlite":
		return kind{"sqlite:" + path, func() (storage.Storage, error) { return sqlite.Open(path, nil) }}
	case "bolt":
		return kind{"bolt:" + path, func() (storage.Storage, error) { return bolt.Open(path, nil) }}
	}
	url := pgtest.URL(t)
	return kind{url, func() (storage.Storage, error) { return postgres.Open(context.Background(), url, nil) }}
}

// with opens the store as a service does, while f is called.
func (k kind) with(t *testing.T, f func(storage.Storage)) {
	t.Helper()
	s, err := k.open()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f(s)
}

func (k kind) filled(t *testing.T) {
	t.Helper()
	k.with(t, func(s storage.Storage) { fill(t, s) })
}

var differs = []struct {
	pattern *regexp.Regexp
	fixed   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z`), "2006-01-02 15:04:05.000Z"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`), "2006-01-02 15:04:05Z"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "2006-01-02T15:04:05Z"},
	{regexp.MustCompile(`shop-[0-9A-Z]{26}`), "shop-01ARZ3NDEKTSV4RRFFQ69G5FAV"},
	{regexp.MustCompile(`wrun_[0-9a-z]{32}`), "wrun_abcdefghijklmnopqrstuvwxyz234567"},
	{regexp.MustCompile(`"generation":"[0-9A-Z]{26}"`), `"generation":"01ARZ3NDEKTSV4RRFFQ69G5FAV"`},
	{regexp.MustCompile(`\b\d{16}\b`), "1234567890123456"},
	{regexp.MustCompile(`"leaseTTL":"15s",`), ""},                  // of PostgreSQL
	{regexp.MustCompile(`: handed over|,"why":"handed over"`), ""}, // if a poll found it before its start was noticed
}

// golden compares what was printed with a file, except for times and generated names.
func golden(t *testing.T, file, got string) {
	t.Helper()
	for _, d := range differs {
		got = d.pattern.ReplaceAllString(got, d.fixed)
	}
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); if it should be so: go test -run TestOutput -update ./cmd/weft\n%s", file, diff)
	}
}

// A read is a command whose output is in a golden file.
type read struct {
	file string
	args []string
}

// reads are the verbs that write nothing.
var reads = []read{
	{"list.txt", []string{"list"}},
	{"list.json", []string{"list", "--json"}},
	{"attention.txt", []string{"list", "--attention"}},
	{"running.txt", []string{"list", "--status", "running", "--workflow", "order"}},
	{"children.txt", []string{"list", "--parent", "order-42"}},
	{"labelled.txt", []string{"list", "--label", "region=north", "--oldest-first"}},
	{"count.txt", []string{"count", "--label", "region=north", "--status", "failed"}},
	{"order.txt", []string{"describe", "order-42"}},
	{"order.json", []string{"describe", "order-42", "--json"}},
	{"values.txt", []string{"values", "order-42"}},
	{"values.json", []string{"values", "order-42", "--json"}},
	{"late.txt", []string{"describe", "late"}},
	{"bad.txt", []string{"describe", "bad"}},
	{"odd.txt", []string{"describe", odd}},
	{"odd-history.txt", []string{"history", odd}},
	{"odd-history.json", []string{"history", odd, "--json"}},
	{"odd-export.json", []string{"export", odd}},
	{"odd-watch.txt", []string{"watch", odd}},
	{"queues.txt", []string{"queues"}},
	{"queues.json", []string{"queues", "--json"}},
	{"engines.txt", []string{"engines", "--all"}},
	{"engines.json", []string{"engines", "--all", "--json"}},
}

// Engines that have ended and own nothing are left out, which is said.
func TestEnginesOfThePast(t *testing.T) {
	onKinds(t, func(t *testing.T, s shell, k kind) {
		k.filled(t)
		for _, json := range []bool{false, true} {
			args := []string{"engines"}
			if json {
				args = append(args, "--json")
			}
			out, notes, code := s.run(args...)
			if code != 0 || strings.Contains(out, "stopped") || notes != "weft: left out are engines that have ended and own no runs: 1; --all lists them\n" {
				t.Errorf("weft %q: exit code %d, %q, %q", args, code, out, notes)
			}
		}
	})
}

// The output is the same on every store. It is not changed by what is stored: nothing in it
// moves the cursor of a terminal.
func TestOutput(t *testing.T) {
	onKinds(t, func(t *testing.T, s shell, k kind) {
		k.filled(t)
		for _, r := range reads {
			out := s.done(r.args...)
			golden(t, r.file, out)
			if strings.ContainsFunc(out, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
				t.Errorf("weft %q prints control characters: %q", r.args, out)
			}
			if filepath.Ext(r.file) == ".json" {
				for line := range strings.Lines(out) {
					if !json.Valid([]byte(line)) || strings.Contains(line, "0001-01-01") {
						t.Errorf("weft %q prints %s", r.args, line)
					}
				}
			}
		}
	})
}

// A page says with which cursor the list goes on. Pages have what a list without a limit has, in
// either order.
func TestPages(t *testing.T) {
	onKinds(t, func(t *testing.T, s shell, k kind) {
		k.filled(t)
		lines := func(args ...string) []string {
			return slices.Collect(strings.Lines(s.done(append([]string{"list", "--json", "--limit", "0"}, args...)...)))
		}
		for _, flags := range [][]string{
			{}, {"--oldest-first"}, {"--workflow", "hello"}, {"--status", "completed", "--oldest-first"}, {"--label", "region=north"},
			{"--since", "1h", "--until", "0s", "--status", "running"}, {"--since", "1h"}, {"--until", "0s"}, {"--top-level"}, {"--id-prefix", "o"},
			{"--since", "2020-01-01T00:00:00Z", "--until", "2120-01-01 00:00:00Z"},
		} {
			all := lines(flags...)
			if len(all) == 0 {
				t.Errorf("%q: none", flags)
			}
			var paged []string
			for args := append([]string{"list", "--json", "--limit", "1"}, flags...); ; {
				out, notes, code := s.run(args...)
				if code != 0 {
					t.Fatalf("weft %q: %s", args, notes)
				}
				paged = append(paged, slices.Collect(strings.Lines(out))...)
				if notes == "" {
					break
				}
				cursor, ok := strings.CutPrefix(notes, "weft: there may be more: continue with --cursor ")
				if !ok || len(paged) > len(all) {
					t.Fatalf("weft %q: %s", args, notes)
				}
				args = append(args[:4+len(flags):4+len(flags)], "--cursor", strings.TrimSpace(cursor))
			}
			if diff := cmp.Diff(all, paged); diff != "" {
				t.Errorf("%q: (-all +paged)\n%s", flags, diff)
			}
		}
		newest, oldest := lines(), lines("--oldest-first")
		slices.Reverse(oldest)
		if diff := cmp.Diff(newest, oldest); diff != "" {
			t.Errorf("(-newest first +oldest first, reversed)\n%s", diff)
		}
		if got := lines("--until", "1h"); len(got) > 0 {
			t.Errorf("until an hour ago: %q", got)
		}
		if got := lines("--top-level"); len(got) != len(newest)-1 {
			t.Errorf("without children: %q", got)
		}
		if got := lines("--label", "team=tea & more", "--label", "region=north"); len(got) != 1 || !strings.Contains(got[0], `"id":"order-42"`) {
			t.Errorf("with two labels: %q", got)
		}
		_, notes, _ := s.run("list", "--limit", "1", "--status", "running", "--since", "1h")
		words := strings.Fields(notes)
		cursor := words[len(words)-1]
		s.fails(2, "is not of a page with this filter", "list", "--status", "failed", "--since", "1h", "--cursor", cursor)
		s.fails(2, "does not belong to this --since and --until", "list", "--status", "running", "--cursor", cursor)
		s.fails(2, "does not belong to this --since and --until", "list", "--status", "running", "--until", "1h", "--cursor", cursor)
		s.fails(2, "does not belong to this --since and --until", "list", "--status", "running", "--since", "1h", "--cursor", "x..y")
		s.fails(2, "is not of a page with this filter", "list", "--cursor", "gone")
	})
}

// Workflows are counted by the flags with which they are listed, up to a limit.
func TestCount(t *testing.T) {
	onKinds(t, func(t *testing.T, s shell, k kind) {
		k.filled(t)
		for _, c := range []struct {
			args []string
			want string
		}{
			{nil, "6\n"},
			{[]string{"--most", "6"}, "6\n"},
			{[]string{"--most", "5"}, "at least 5\n"},
			{[]string{"--most", "5", "--json"}, `{"count":5,"all":false}` + "\n"},
			{[]string{"--json"}, `{"count":6,"all":true}` + "\n"},
			{[]string{"--status", "running"}, "2\n"},
			{[]string{"--label", "region=north"}, "2\n"},
			{[]string{"--label", "region=north", "--status", "failed"}, "1\n"},
			{[]string{"--attention"}, "1\n"},
			{[]string{"--parent", "order-42"}, "1\n"},
			{[]string{"--top-level", "--workflow", "hello"}, "2\n"},
			{[]string{"--since", "1h"}, "6\n"},
			{[]string{"--until", "1h"}, "0\n"},
			{[]string{"--id-prefix", "order-"}, "1\n"},
		} {
			if out := s.done(append([]string{"count"}, c.args...)...); out != c.want {
				t.Errorf("weft count %q: %q, want %q", c.args, out, c.want)
			}
		}
	})
}

// No byte of a store changes because of a verb that reads, and a role that may only read
// suffices. Nothing is made where no store is.
func TestReadingWritesNothing(t *testing.T) {
	onKinds(t, func(t *testing.T, s shell, k kind) {
		if strings.HasPrefix(k.store, "postgres:") {
			server := pgtest.Shared(t)
			s.fails(1, "there is no table", "list")
			s.fails(1, "there is no table", "start", "hello", "--write")
			k.with(t, func(storage.Storage) {})
			s.fails(1, "no engine has used the store", "list")
			k.filled(t)
			u, err := url.Parse(k.store)
			if err != nil {
				t.Fatal(err)
			}
			database := strings.TrimPrefix(u.Path, "/")
			server.Exec(t, database, `CREATE ROLE looks_`+database+` LOGIN`, `GRANT USAGE ON SCHEMA weft TO looks_`+database, `GRANT SELECT ON weft.store TO looks_`+database)
			t.Cleanup(func() { server.Exec(t, database, `DROP OWNED BY looks_`+database, `DROP ROLE looks_`+database) })
			u.User = url.User("looks_" + database)
			s.store = u.String()
			for _, r := range reads {
				s.done(r.args...)
			}
			s.fails(1, "permission denied", "cancel", "order-42", "--reason", "x", "--write", "--timeout", "10s")
			return
		}
		path := k.store[strings.Index(k.store, ":")+1:]
		s.fails(1, "there is no store at ", "list")
		s.fails(1, "there is no store at ", "start", "hello", "--write")
		if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) > 0 {
			t.Errorf("it made %v", entries)
		}
		k.with(t, func(storage.Storage) {})
		before := files(t, path)
		s.fails(1, "no engine has used the store", "list")
		s.fails(1, "no engine has used the store", "start", "hello", "--write")
		if diff := cmp.Diff(before, files(t, path)); diff != "" {
			t.Errorf("the new store was changed: %s", diff)
		}
		k.filled(t)
		before = files(t, path)
		for _, r := range reads {
			s.done(r.args...)
			s.done(append(r.args, "--write")...)
		}
		if diff := cmp.Diff(before, files(t, path)); diff != "" {
			t.Errorf("the store was changed: %s", diff)
		}
	})
}

// files returns the contents of the files of a store, without SQLite's shared memory and
// without a log that is empty.
func files(t *testing.T, path string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(filepath.Dir(path), e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(e.Name(), "-shm") || strings.HasSuffix(e.Name(), "-wal") && len(content) == 0 {
			continue
		}
		all[e.Name()] = string(content)
	}
	return all
}

// While a service has a store for itself, SQLite is read and not written, and bbolt is
// neither. The errors say what to do.
func TestStoreInUse(t *testing.T) {
	weft := program(t)
	cancel := []string{"cancel", "order-42", "--reason", "x", "--write"}
	t.Run("sqlite", func(t *testing.T) {
		k := newKind(t, "sqlite")
		s := shell{t: t, program: weft, store: k.store}
		k.filled(t)
		k.with(t, func(store storage.Storage) {
			serve(t, store)
			if out := s.done("list", "--attention"); !strings.Contains(out, "order-42") {
				t.Errorf("list: %s", out)
			}
			for _, args := range [][]string{{"describe", "order-42"}, {"describe", "late", "--json"}, {"list", "--json"}} {
				if out := s.done(args...); strings.Contains(out, "none runs") || !strings.Contains(out, "a service may have the store open") {
					t.Errorf("weft %q: %s", args, out)
				}
			}
			if out := s.done("engines", "--all"); strings.Count(out, " unknown ") != 1 || strings.Count(out, " stopped ") != 1 {
				t.Errorf("engines: %s", out)
			}
			s.fails(1, "is open in a service that does not share it: to read, leave out --write; to write, stop the service", cancel...)
		})
		s.noted("no engine executes it", cancel...)
	})
	t.Run("sqlite that is shared", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "orders")
		k := kind{"sqlite:" + path, func() (storage.Storage, error) { return sqlite.Open(path, &sqlite.Options{Shared: true}) }}
		s := shell{t: t, program: weft, store: k.store}
		k.with(t, func(store storage.Storage) {
			fill(t, store)
			v := serve(t, store)
			seen := regexp.MustCompile(` seen \d+s ago `)
			if out := s.done("engines", "--all"); strings.Contains(out, "alive") || len(seen.FindAllString(out, -1)) != 1 {
				t.Errorf("engines: %s", out)
			}
			s.done("start", "hello", "new", "--input", `"eve"`, "--write")
			if out := s.done("watch", "new", "--interval", "20ms"); !strings.HasSuffix(out, "result: \"hello, eve\"\n") {
				t.Errorf("watch: %s", out)
			}
			v.stop()
		})
	})
	t.Run("bolt", func(t *testing.T) {
		k := newKind(t, "bolt")
		s := shell{t: t, program: weft, store: k.store}
		k.filled(t)
		k.with(t, func(storage.Storage) {
			s.fails(1, "is open in another process, and bbolt admits only one: stop the service that has it open", "list")
			s.fails(1, "is open in another process, and bbolt admits only one: stop the service that has it open", cancel...)
		})
		s.noted("no engine executes it, so it does not stop before one does; weft terminate ends it at once", cancel...)
	})
}

// A store of a single owner is read and not written.
func TestSingleOwner(t *testing.T) {
	k := newKind(t, "sqlite")
	s := shell{t: t, program: program(t), store: k.store}
	k.with(t, func(store storage.Storage) {
		eng, err := newSingleOwner(store)
		if err != nil {
			t.Fatal(err)
		}
		defer eng.Close()
		if _, err := eng.StartWorkflow(t.Context(), &weft.StartRequest{Workflow: "hello", ID: "one"}); err != nil {
			t.Fatal(err)
		}
	})
	if out := s.done("list"); !strings.Contains(out, "one") {
		t.Errorf("list: %s", out)
	}
	s.fails(1, "belongs to a single owner, and everything must go through its engine", "cancel", "one", "--reason", "x", "--write")
}

// OPS-8: what the verbs have written is what the next service finds. A reset to nothing, and to what there is not, is refused.
func TestVerbs(t *testing.T) {
	onKinds(t, func(t *testing.T, s shell, k kind) {
		k.filled(t)
		say := []string{"--by", "ann", "--reason", "told so", "--write"}
		ask := func(args ...string) string { return s.done(append(args, say...)...) }

		if out := s.done("start", "hello", "again", "--write"); out != "again\n" {
			t.Errorf("start: %q", out)
		}
		s.done("start", "hello", "again", "--write") // the same start
		s.fails(1, "give another id", "start", "hello", "again", "--input", "1", "--write")
		s.input = `"from a pipe"`
		if out := s.done("start", "hello", odd+"2", "--input", "-", "--write"); !strings.HasPrefix(out, `$'a b:%\n\x1b[31mred`) {
			t.Errorf("start of an odd id: %q", out)
		}
		id := strings.TrimSpace(s.done("start", "hello", "--queue", "night", "--write"))
		if out := s.done("signal", "order-42", "approved", "--id", "click 2", "--payload", `"bob"`, "--write"); out != "'click 2'\n" {
			t.Errorf("signal: %q", out)
		}
		if out := s.noted("asks again if it cannot", append([]string{"resolve", "order-42", "2", "--as", "completed", "--result", `"receipt-7"`}, say...)...); out != "order-42: operation 2 is resolved\n" {
			t.Errorf("resolve: %q", out)
		}
		if out := s.noted("no engine executes it", append([]string{"cancel", "late"}, say...)...); out != "late: is asked to stop\n" {
			t.Errorf("cancel: %q", out)
		}
		s.done("start", "hello", "on-shop-8", "--deployment", "shop-8", "--write")
		if out := s.done("describe", "on-shop-8", "--json"); !strings.Contains(out, `"deployment":"shop-8"`) {
			t.Errorf("start on a deployment: %s", out)
		}
		s.done("start", "hello", "doomed", "--label", "team=red", "--label", "a=b=c", "--write")
		if out := s.done("list", "--label", "a=b=c", "--label", "team=red"); !strings.Contains(out, "doomed") {
			t.Errorf("list: %s", out)
		}
		if out := ask("label", "doomed", "team=", "region=a=b", "size=1"); out != "doomed: is labelled\n" {
			t.Errorf("label: %q", out)
		}
		if out := s.done("describe", "doomed"); strings.Contains(out, "team=") || !strings.Contains(out, "region=a=b") || !strings.Contains(out, "size=1") {
			t.Errorf("describe of a workflow with other labels: %s", out)
		}
		if out := ask("terminate", "doomed"); out != "doomed: is terminated\n" {
			t.Errorf("terminate: %q", out)
		}
		s.fails(1, "has ended", append([]string{"terminate", "doomed"}, say...)...)
		if out := ask("protect", "doomed"); out != "doomed: is protected\n" {
			t.Errorf("protect: %q", out)
		}
		if out := s.done("describe", "doomed"); !strings.Contains(out, "protected") {
			t.Errorf("describe of a workflow that is protected: %s", out)
		}
		for _, verb := range []string{"purge", "delete"} {
			s.fails(1, "workflow is protected", append([]string{verb, "doomed"}, say...)...)
		}
		if out := ask("unprotect", "doomed"); out != "doomed: is not protected\n" {
			t.Errorf("unprotect: %q", out)
		}
		s.done("start", "hello", "unwanted", "--write")
		if out := ask("delete", "unwanted"); out != "unwanted: is deleted\n" {
			t.Errorf("delete: %q", out)
		}
		s.fails(1, "not found", "describe", "unwanted")
		if out := ask("clear-signal", "order-42", "other", "click 1", "--json"); out != `{"id":"order-42","done":"clear-signal"}`+"\n" {
			t.Errorf("clear-signal: %q", out)
		}
		ask("purge", odd)
		ask("resume", "bad")
		s.fails(1, `no operation "77": see the ids with weft list, and the operations of a workflow with weft history`, append([]string{"reset", "bad", "77"}, say...)...)
		s.fails(2, "the operation to go back to is empty", append([]string{"reset", "bad", ""}, say...)...)
		if out := ask("reset", "bad", "start"); out != "bad: is reset\n" {
			t.Errorf("reset: %q", out)
		}
		s.fails(1, "not found", "describe", odd)
		s.fails(1, "has ended", append([]string{"cancel", strings.TrimSpace(firstChild(t, s))}, say...)...)

		k.with(t, func(store storage.Storage) {
			v := serve(t, store)
			for _, id := range []string{"again", odd + "2", id, "order-42", "late"} {
				v.until(t, id, terminal)
			}
			v.until(t, "bad", func(i weft.Info) bool { return terminal(i) })
			v.stop()
		})
		for id, want := range map[string]string{
			"again":    `"result":"hello, "`,
			odd + "2":  `"result":"hello, from a pipe"`,
			"order-42": `"result":"receipt-7, approved by bob"`,
			"late":     `"status":"cancelled"`,
			"doomed":   `"status":"cancelled"`,
			"bad":      `"error":"no such article"`,
		} {
			if out := s.done("describe", id, "--json"); !strings.Contains(out, want) {
				t.Errorf("%q: %s, want %s", id, out, want)
			}
		}
		if out := s.done("describe", "bad"); !strings.Contains(out, "ann did: reset to the start") {
			t.Errorf("the history does not say who reset it: %s", out)
		}
		ask("reset", "again", "1")
		if out := s.done("describe", "again"); !regexp.MustCompile(`\n +1 .* passed over `).MatchString(out) || !strings.Contains(out, "again is running") {
			t.Errorf("describe of a workflow that was reset: %s", out)
		}
		if out := s.done("describe", "order-42"); !strings.Contains(out, "ann did: resolve 2") || !strings.Contains(out, "told so") {
			t.Errorf("the history does not say who acted and why: %s", out)
		}
		out, notes, code := s.run("watch", "late")
		if code != 1 || !strings.Contains(out, "asked to stop by ann: told so") || !strings.Contains(notes, `workflow cancelled: "late"`) {
			t.Errorf("watch of a cancelled one: %d, %s%s", code, out, notes)
		}
	})
}

func firstChild(t *testing.T, s shell) string {
	t.Helper()
	var child struct{ ID string }
	if err := json.Unmarshal([]byte(s.done("list", "--parent", "order-42", "--json")), &child); err != nil {
		t.Fatal(err)
	}
	return child.ID
}

// A workflow is watched while an engine executes it. The watch ends with it, or by a signal.
func TestWatch(t *testing.T) {
	k := newKind(t, "postgres")
	s := shell{t: t, program: program(t), store: k.store}
	k.with(t, func(store storage.Storage) {
		fill(t, store)
		v := serve(t, store)
		cmd := s.command("watch", "order-42", "--interval", "20ms")
		var out, notes bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &notes
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		say := []string{"--reason", "x", "--write"}
		s.noted("asks again if it cannot", append([]string{"resolve", "order-42", "2", "--as", "completed", "--result", `"paid"`}, say...)...)
		s.done("signal", "order-42", "approved", "--payload", `"bob"`, "--write")
		if err := cmd.Wait(); err != nil || !strings.HasSuffix(out.String(), "result: \"paid, approved by bob\"\n") {
			t.Errorf("%v: %s%s", err, out.String(), notes.String())
		}
		// Each event once, as in the history.
		var watched strings.Builder
		for line := range strings.Lines(out.String()) {
			if !strings.Contains(line, "  waits for ") && !strings.HasPrefix(line, "result: ") {
				watched.WriteString(line)
			}
		}
		if diff := cmp.Diff(s.done("history", "order-42"), watched.String()); diff != "" {
			t.Errorf("(-history +watched)\n%s", diff)
		}

		cmd = s.command("watch", "late")
		lines, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		notes.Reset()
		cmd.Stderr = &notes
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := lines.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(notes.String(), `workflow "late" is running and goes on: interrupt`) {
			t.Errorf("after an interrupt: exit code %d, %q", code, notes.String())
		}
		if _, notes, code := s.run("watch", "late", "--timeout", "50ms", "--interval", "10ms"); code != 1 || !strings.Contains(notes, "give more time with --timeout") {
			t.Errorf("after a timeout: exit code %d, %q", code, notes)
		}
		v.stop()
	})
}

// Each mistake in a command line has its message, and exit code 2.
func TestMisuse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.db")
	s := shell{t: t, program: program(t), store: "sqlite:" + path}
	kind{s.store, func() (storage.Storage, error) { return sqlite.Open(path, nil) }}.filled(t)
	say := []string{"--reason", "x"}
	for _, c := range []struct {
		store string
		words string
		args  []string
	}{
		{"", "no store is named: give --store sqlite:FILE, bolt:FILE or postgres://URL, or set WEFT_STORE", []string{"list"}},
		{"orders.db", "the store is not sqlite:FILE, bolt:FILE or postgres://URL", []string{"list"}},
		{"sqlite:", "the store is not sqlite:FILE", []string{"list"}},
		{"mysql://u:secret@h/db", "the store is not sqlite:FILE", []string{"list"}},
		{s.store, "unexpected argument lst", []string{"lst"}},
		{s.store, "unknown flag --colour", []string{"list", "--colour"}},
		{s.store, `--status must be one of "any","pending","running"`, []string{"list", "--status", "done"}},
		{s.store, "the limit -1 is negative", []string{"list", "--limit=-1"}},
		{s.store, "unknown flag --after", []string{"list", "--after", "late"}},
		{s.store, "--most 0 is less than 1", []string{"count", "--most", "0"}},
		{s.store, "the label ann is not NAME=VALUE", []string{"list", "--label", "ann"}},
		{s.store, "the label region= is not NAME=VALUE", []string{"count", "--label", "region="}},
		{s.store, "--label has two values for region, and a workflow has one: north and south", []string{"list", "--label", "region=north", "--label", "region=south"}},
		{s.store, "the label =x is not NAME=VALUE", append([]string{"label", "late", "=x", "--write"}, say...)},
		{s.store, "the label a is both set and removed", append([]string{"label", "late", "a=1", "a=", "--write"}, say...)},
		{s.store, `expected "<label> ..."`, append([]string{"label", "late", "--write"}, say...)},
		{s.store, "which is reserved", append([]string{"label", "late", "weft.x=1", "--write"}, say...)},
		{s.store, "label changes the store, which is opened for reading: add --write", append([]string{"label", "late", "a=1"}, say...)},
		{s.store, "the label ann is not NAME=VALUE", []string{"start", "hello", "--label", "ann", "--write"}},
		{s.store, "begins with weft., which is reserved", []string{"start", "hello", "--label", "weft.x=y", "--write"}},
		{s.store, "--since yesterday is neither a time such as 2026-07-29T10:00:00Z nor how long ago, such as 2h", []string{"list", "--since", "yesterday"}},
		{s.store, "--until -2h is neither", []string{"count", "--until=-2h"}},
		{s.store, "--until 2h is not after --since 1h", []string{"list", "--since", "1h", "--until", "2h"}},
		{s.store, "--parent selects children, and --top-level those that are none", []string{"list", "--parent", "order-42", "--top-level"}},
		{s.store, "workflow name", []string{"list", "--workflow", strings.Repeat("x", 101)}},
		{s.store, "is not of a page with this filter", []string{"list", "--cursor", "x"}},
		{s.store, "the timeout -1s is negative", []string{"list", "--timeout=-1s"}},
		{s.store, "the interval 0s is not positive", []string{"watch", "x", "--interval", "0s"}},
		{s.store, `expected "<id>"`, []string{"describe"}},
		{s.store, `workflow id ""`, []string{"describe", ""}},
		{s.store, "cancel changes the store, which is opened for reading: add --write", append([]string{"cancel", "late"}, say...)},
		{s.store, "start changes the store", []string{"start", "hello"}},
		{s.store, "missing flags: --reason=TEXT", []string{"cancel", "late", "--write"}},
		{s.store, "cancel needs a --by and a --reason that are not empty", []string{"cancel", "late", "--reason", "", "--write"}},
		{s.store, "the input is not JSON", []string{"start", "hello", "--input", "ann", "--write"}},
		{s.store, "read the input: open /no/such/file", []string{"start", "hello", "--input", "@/no/such/file", "--write"}},
		{s.store, "the payload is not JSON", []string{"signal", "late", "approved", "--payload", "ann", "--write"}},
		{s.store, "--as completed needs the --result", append([]string{"resolve", "order-42", "2", "--as", "completed", "--write"}, say...)},
		{s.store, "--result goes with --as completed only", append([]string{"resolve", "order-42", "2", "--as", "failed", "--result", "1", "--write"}, say...)},
		{s.store, "--as", append([]string{"resolve", "order-42", "2", "--as", "done", "--write"}, say...)},
		{s.store, "--as completed needs the --result", []string{"runs", "resolve", "order-42", "3", "--as", "completed", "--reason", "seen at the bank"}},
		{s.store, "no control plane is named", []string{"runs", "resolve", "order-42", "3", "--as", "completed", "--result", "null", "--reason", "seen at the bank"}},
		{s.store, "no control plane is named", []string{"runs", "resolve", "order-42", "3.undo", "--as", "completed", "--reason", "seen at the bank"}},
		{s.store, `must be one of "bash"`, []string{"completion", "fish"}},
		{s.store, "workflow id", []string{"start", "hello", strings.Repeat("x", 5000), "--write"}},
	} {
		s.store = c.store
		s.fails(2, c.words, c.args...)
		if _, notes, _ := s.run(c.args...); strings.Contains(notes, "secret") {
			t.Errorf("weft %q shows a password: %s", c.args, notes)
		}
	}
	s.store = "sqlite:" + path
	for _, c := range []struct {
		words string
		args  []string
	}{
		{`workflow not found: "gone": see the ids with weft list`, []string{"describe", "gone"}},
		{"not found", []string{"history", "gone"}},
		{"not found", []string{"export", "gone"}},
		{"not found", []string{"watch", "gone"}},
		{"not found", []string{"signal", "gone", "approved", "--write"}},
		{"has not ended", append([]string{"purge", "late", "--write"}, say...)},
		{"has no idempotency key", append([]string{"resolve", "late", "1", "--as", "failed", "--write"}, say...)},
		{"not applicable", append([]string{"resume", "late", "--write"}, say...)},
		{"no signal", append([]string{"clear-signal", "late", "approved", "1", "--write"}, say...)},
		{"the table name", []string{"list", "--table", "1"}},
	} {
		s.fails(1, c.words, c.args...)
	}
	if _, notes, _ := (shell{t: t, program: s.program, store: "postgres://ann:secret@127.0.0.1:1/shop"}).run("list"); strings.Contains(notes, "secret") || notes == "" {
		t.Errorf("it shows a password, or nothing: %s", notes)
	}
}

// An id that begins with a hyphen comes after two. An output that cannot be written is an
// error.
func TestEdges(t *testing.T) {
	k := newKind(t, "sqlite")
	s := shell{t: t, program: program(t), store: k.store}
	k.filled(t)
	s.done("start", "hello", "--write", "--", "-x")
	if out := s.done("describe", "--", "-x"); !strings.HasPrefix(out, "-x is pending\n") {
		t.Errorf("describe: %s", out)
	}
	if out := s.done(); !strings.Contains(out, "Exit codes: 0 done, 1 failed, 2 the command line is wrong") {
		t.Errorf("help: %s", out)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range [][]string{{"list"}, {"list", "--json"}, {"describe", "late"}, {"history", "late"}, {"export", "late"}, {"engines", "--all"}, {"queues"}} {
		cmd := s.command(args...)
		cmd.Stdout = full
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("weft %q to a full disk: %v", args, err)
		}
	}
}

// A workflow that cannot be read does not hide the others, and a damaged history not the rest of
// a workflow.
func TestDamage(t *testing.T) {
	k := newKind(t, "bolt")
	s := shell{t: t, program: program(t), store: k.store}
	k.filled(t)
	k.with(t, func(store storage.Storage) {
		order, err := journal.Load(t.Context(), store, "order-42")
		if err != nil {
			t.Fatal(err)
		}
		for prefix, i := range map[string]int{"wf:late": 0, string(order.Log().Prefix()): 5} {
			page, err := store.Scan(t.Context(), storage.Prefix([]byte(prefix)))
			if err != nil || len(page) <= i {
				t.Fatal(page, err)
			}
			if err := store.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(page[i].Key, []byte("x"))}}); err != nil {
				t.Fatal(err)
			}
		}
	})
	out, notes, code := s.run("list")
	if code != 1 || !strings.Contains(notes, "workflows that could not be read: 1") || !strings.Contains(out, "unreadable") || !strings.Contains(out, "order-42") {
		t.Errorf("list: exit code %d: %s%s", code, out, notes)
	}
	out, notes, code = s.run("queues")
	if code != 1 || !strings.Contains(notes, "could not be read") || !strings.Contains(out, "day") {
		t.Errorf("queues: exit code %d: %s%s", code, out, notes)
	}
	out, notes, code = s.run("describe", "order-42")
	if code != 1 || !strings.Contains(notes, "corrupt") || strings.Count(notes, "\n") != 1 ||
		!strings.Contains(out, "order-42 is running") || !strings.Contains(out, "child hello") || !strings.Contains(out, "click 1") {
		t.Errorf("describe: exit code %d: %s%s", code, out, notes)
	}
}

// Bash completes verbs, flags and the values of flags.
func TestCompletion(t *testing.T) {
	s := shell{t: t, program: program(t)}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	script := filepath.Join(t.TempDir(), "weft.bash")
	if err := os.WriteFile(script, []byte(s.done("completion", "bash")), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ line, want string }{
		{"weft re", "resume reset resolve"},
		{"weft --store sqlite:x li", "list"},
		{"weft list --st", "--status --store"},
		{"weft count --to", "--top-level"},
		{"weft list --status c", "completed cancelled"},
		{"weft resolve order-42 2 --as f", "failed"},
		{"weft cancel x --re", "--reason"},
		{"weft describe orde", ""},
		{"weft runs re", "result resume reset resolve"},
		{"weft deployments activate x --exp", "--expect --expect-none"},
		{"weft keys list ro", ""},
		{"weft signals send --ur", "--url"},
		// Flags of one name have the values of their verb.
		{"weft resolve order-42 2 --as r", "result-lost"},
		{"weft runs resolve order-42 2 --as r", "result-unavailable"},
		{"weft runs --json resolve order-42 2 --as r", "result-unavailable"},
		{"weft resolve order-42 2 --result s", ""},
		{"weft --url http://x audit --result s", "success"},
		{"weft runs list --status ", "pending running completed failed cancelled"},
		{"weft runs resolve x 2 --status ", ""},
	} {
		out, err := exec.Command(bash, "-c", `source "$0"; COMP_WORDS=($1); [[ $1 == *" " ]] && COMP_WORDS+=(""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _weft; echo "${COMPREPLY[*]}"`, script, c.line).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != c.want {
			t.Errorf("%s: %q, want %q; %v", c.line, out, c.want, err)
		}
	}
}

// The guide shows what the command prints.
func TestGuideShowsRealOutput(t *testing.T) {
	if *update {
		t.Skip("the golden files are not what the guide says")
	}
	guide, err := os.ReadFile("../../docs/guides/the-command.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, m := range regexp.MustCompile("(?s)```\n\\$ weft ([^\n]*)\n(.*?)```\n").FindAllStringSubmatch(string(guide), -1) {
		i := slices.IndexFunc(reads, func(r read) bool { return strings.Join(r.args, " ") == m[1] })
		if i < 0 {
			t.Errorf("no test runs weft %s, which the guide shows", m[1])
			continue
		}
		golden(t, reads[i].file, m[2])
		shown++
	}
	if shown < 2 {
		t.Errorf("the guide shows the output of %d commands", shown)
	}
}

// What a verb leaves undone is said.
func TestNotes(t *testing.T) {
	k := newKind(t, "postgres")
	s := shell{t: t, program: program(t), store: k.store}
	k.with(t, func(store storage.Storage) {
		fill(t, store)
		v := serve(t, store)
		defer v.stop()
		s.noted("no living engine has a workflow helo; they have: broken, hello, order, patient", "start", "helo", "typo", "--write")
		s.done("start", "hello", "known", "--write")
		s.noted("no living engine is of deployment shop-8: it waits for one", "start", "hello", "next", "--deployment", "shop-8", "--write")
		if out := s.done("list", "--attention"); !strings.Contains(out, "typo") || !strings.Contains(out, "unregistered") {
			t.Errorf("list --attention: %s", out)
		}
		s.noted("weft terminate ends it at once", "cancel", "typo", "--reason", "x", "--write")
		s.noted("operation 2 (charge) was in progress, and may have happened: ask the other system about key ", "terminate", "order-42", "--reason", "x", "--write")
		s.fails(2, "needs a --by and a --reason", "terminate", "late", "--reason", " ", "--write")
	})
	s.done("start", "helo", "another", "--write") // no engine is alive that could tell
}
