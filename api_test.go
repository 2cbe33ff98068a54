package weft_test

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write api.txt anew")

// TestAPI compares what go doc tells of every public package with api.txt, so
// that a change of the public API is seen by whoever reads the change.
func TestAPI(t *testing.T) {
	dirs := map[string]bool{}
	for file := range goFiles(t) {
		dir := path.Dir(file)
		if !strings.Contains("/"+dir+"/", "/internal/") && !strings.HasPrefix(dir, "examples/") && !strings.HasSuffix(file, "_test.go") {
			dirs[dir] = true
		}
	}
	packages := slices.Sorted(maps.Keys(dirs))

	docs := make([]bytes.Buffer, len(packages))
	var wg sync.WaitGroup
	for i, p := range packages {
		wg.Go(func() {
			docs[i].WriteString("\n==== " + p + "\n\n")
			cmd := exec.Command("go", "doc", "-all", "./"+p)
			cmd.Stdout, cmd.Stderr = &docs[i], &docs[i]
			if err := cmd.Run(); err != nil {
				t.Errorf("go doc %s: %v", p, err)
			}
		})
	}
	wg.Wait()
	got := "The public API, as go doc -all prints it. Write it anew with: go test -run TestAPI -update .\n"
	for i := range docs {
		got += docs[i].String()
	}
	if *update {
		if err := os.WriteFile("api.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile("api.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("the public API is not that of api.txt (-want +got); if it should be: go test -run TestAPI -update .\n%s", diff)
	}
}
