package apitest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/answers"
	"github.com/weft-go/weft/storage/memory"
)

// serving are the packages whose tests serve a plane, and how many answers each must have kept.
var serving = map[string]int{"control": 3000, "client": 100, "weft": 100}

// Every answer that a test of the packages in serving got is one of the document. The gate runs those tests with
// WEFT_ANSWERS before this one. Without it, some of them run here.
func TestEveryAnswerOfOtherTests(t *testing.T) {
	folder, least := os.Getenv(answers.Folder), serving
	if folder == "" {
		folder, least = t.TempDir(), map[string]int{"control": 100}
		c := exec.Command("go", "test", "-count=1", "-short", "-run", "Stream|Events|Paths|RPC|Keys|Updates|Values", "./control")
		c.Dir = "../.."
		c.Env = append(os.Environ(), answers.Folder+"="+folder)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	d := loadDocument(t)
	kept, seen := map[string]int{}, map[string]int{}
	told, others := map[string]bool{}, 0
	if err := answers.Read(folder, func(file string, a *answers.Answer) {
		name, _, _ := strings.Cut(filepath.Base(file), ".test-")
		kept[name]++
		seen[file] = a.Seen
		op, problems := d.compare(a)
		if op != nil && op.id == "webhooks.receive" && !strings.HasSuffix(a.Header.Get("Content-Type"), "json") {
			others++ // a handler of the test has answered
			return
		}
		for _, problem := range problems {
			id := "no operation"
			if op != nil {
				id = op.id
			}
			if key := fmt.Sprint(name, id, a.Status, problem); !told[key] {
				told[key] = true
				t.Errorf("a test of %s: %s %s (%s) was answered %d: %s\n%.500q\n%.500q", name, a.Method, a.URL, id, a.Status, problem, a.Sent, a.Body)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	all := 0
	for _, n := range seen {
		all += n
	}
	t.Logf("validated %v answers, of %d; %d of them are a webhook's own", kept, all, others)
	for name, n := range least {
		if kept[name] < n {
			t.Errorf("%d answers of the tests of %s were kept, want at least %d", kept[name], name, n)
		}
	}
}

// An answer that is not of the document is kept, and found.
func TestABadAnswerIsFound(t *testing.T) {
	folder := t.TempDir()
	t.Setenv(answers.Folder, folder)
	eng, err := engine.New(engine.Config{Storage: new(memory.Store)})
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	plane, err := control.New(control.Config{Engine: eng, Keys: []control.Key{{ID: "admin", Secret: admin, Scopes: []string{"admin"}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer plane.Close()
	get := func(h http.Handler, path string) {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("Authorization", "Bearer "+admin)
		answers.Handler(h).ServeHTTP(httptest.NewRecorder(), r)
	}
	get(plane, "/v1/runs")
	get(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		plane.ServeHTTP(w, r)
		fmt.Fprint(w, " more")
	}), "/v1/keys")
	d, found := loadDocument(t), map[string]bool{}
	if err := answers.Read(folder, func(_ string, a *answers.Answer) {
		_, problems := d.compare(a)
		found[a.URL] = problems != nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(found) != 2 || found["/v1/runs"] || !found["/v1/keys"] {
		t.Errorf("got %v", found)
	}
}

// The tests of the packages in serving serve a plane by answers.Handler, and in no other way.
func TestAnswersAreKept(t *testing.T) {
	served := regexp.MustCompile(`(httptest\.NewServer|httptest\.NewUnstartedServer|\.ServeHTTP)\(|\bHandler: +`)
	files := 0
	for _, dir := range []string{"control", "client", "cmd/weft"} {
		all, err := filepath.Glob("../../" + dir + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range all {
			files++
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for n, line := range strings.Split(string(text), "\n") {
				if served.MatchString(line) && !strings.Contains(line, "answers.Handler(") && !elsewhere.MatchString(line) {
					t.Errorf("%s:%d: serve a plane by answers.Handler: %s", file, n+1, strings.TrimSpace(line))
				}
			}
		}
	}
	if files < 30 {
		t.Errorf("%d files", files)
	}
}

// elsewhere are lines that serve no plane: a handler around the host's, another server, an example.
var elsewhere = regexp.MustCompile(`\bh\.ServeHTTP\(|next\.ServeHTTP\(|http\.HandlerFunc\(|httptest\.NewServer\(plane\)`)
