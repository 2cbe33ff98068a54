package weft_test

import (
	"bytes"
	"os"
	"path"
	"strings"
	"testing"
)

// mostLines is how many lines the files of a package may have together, without tests.
const mostLines = 3500

// large are the packages that may have more. internal/run is one concern, in files that each have a kind
// of operation.
var large = map[string]int{
	"internal/run": 11_392,
}

// TestSizes fails if a package of the library has outgrown what a reader can hold: then it has more than one
// concern. See docs/decisions/0033-rooms.md for how packages were cut.
func TestSizes(t *testing.T) {
	lines := map[string]int{}
	for file := range goFiles(t) {
		dir := path.Dir(file)
		top, _, _ := strings.Cut(dir, "/")
		if strings.HasSuffix(file, "_test.go") || top == "cmd" || top == "benchmarks" || top == "examples" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines[dir] += bytes.Count(text, []byte("\n"))
	}
	for dir, n := range lines {
		most := mostLines
		if more, ok := large[dir]; ok {
			most = more
		}
		if n > most {
			t.Errorf("package %s has %d lines, at most %d: cut it where the fewest calls cross", dir, n, most)
		}
	}
	for dir := range large {
		if lines[dir] <= mostLines {
			t.Errorf("package %s has %d lines, so it needs no exception", dir, lines[dir])
		}
	}
}
