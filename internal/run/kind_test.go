package run

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/storage"
)

// A kind that this release has and does not know would hold its own runs as those of a newer
// release.
func TestOwnKindsAreKnown(t *testing.T) {
	made := 0
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		made += len(matches(t, f, `= &kind\{name: "([a-z]+)"`))
	}
	if made == 0 || made != len(kinds) {
		t.Errorf("there are %d kinds of operations, and %d are known: %v", made, len(kinds), kinds)
	}
	x := &Execution{ID: "o"}
	events := matches(t, "../../checkpoint/checkpoint.go", `Kind[A-Z]\w+ +Kind += "([a-z ]+)"`)
	if len(events) < 19 {
		t.Errorf("found %q, want all kinds of events", events)
	}
	for _, kind := range events {
		c := checkpoint.Checkpoint{Events: []checkpoint.Event{{Kind: checkpoint.Kind(kind), Of: "step"}}}
		if err := x.understands(c); err != nil {
			t.Errorf("events of kind %q: %v", kind, err)
		}
	}
	for _, e := range []checkpoint.Event{{Kind: "rewound"}, {Kind: checkpoint.KindFired, Of: "wish"}} {
		if err := x.understands(checkpoint.Checkpoint{Events: []checkpoint.Event{e}}); !errors.Is(err, storage.ErrFutureFormat) {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

func matches(t *testing.T, file, pattern string) (found []string) {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(src, -1) {
		found = append(found, string(m[1]))
	}
	return found
}
