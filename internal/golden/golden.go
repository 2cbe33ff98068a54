// Package golden compares records with the bytes that a release before wrote.
// It is for tests. Golden bytes are never rewritten: whoever changes a format
// adds files of a new version.
package golden

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/weft-go/weft/internal/record"
)

var update = flag.Bool("update", false, "create golden files that are missing; those that are there stay")

// A Record is one that has golden bytes.
type Record struct {
	Key     []byte
	Version byte
	Value   any        // as it is sealed
	Empty   func() any // a pointer to open one into
}

// Check seals each record and compares it with dir/{name}; then opens what is
// there and seals it again. No file in dir may be without a record.
func Check(t *testing.T, dir string, records map[string]Record) {
	t.Helper()
	for name, r := range records {
		t.Run(name, func(t *testing.T) { r.check(t, filepath.Join(dir, name)) })
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if _, ok := records[f.Name()]; !ok {
			t.Errorf("%s is read by no test: a format that was written once must be readable for ever", filepath.Join(dir, f.Name()))
		}
	}
}

func (r Record) check(t *testing.T, file string) {
	mine, err := record.Seal(r.Key, r.Version, r.Value, nil)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && *update {
		theirs, err = mine, errors.Join(os.MkdirAll(filepath.Dir(file), 0o777), os.WriteFile(file, mine, 0o666))
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(mine, theirs) {
		t.Errorf("%q is sealed as\n%x, was\n%x", r.Key, mine, theirs)
	}
	v := r.Empty()
	unknown, err := record.Open(r.Key, theirs, r.Version, v)
	if err != nil {
		t.Fatalf("Open %q: %v", r.Key, err)
	}
	if again, err := record.Seal(r.Key, r.Version, v, unknown); err != nil || !bytes.Equal(again, theirs) {
		t.Errorf("%q is, opened and sealed again,\n%x (%v), was\n%x", r.Key, again, err, theirs)
	}
}
