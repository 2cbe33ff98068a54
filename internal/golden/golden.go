// Package golden compares records with the bytes that an earlier release wrote. It is for
// tests. Golden bytes are never rewritten: a change of the format adds files. Check fails if a
// field, a kind of record, or a value of a stored string type has no golden bytes.
package golden

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weft-go/weft/internal/record"
)

var update = flag.Bool("update", false, "create golden files that are missing; those that are there stay")

// A Record is a record that has golden bytes.
type Record struct {
	Key     []byte
	Version byte
	Value   any        // to be sealed
	Empty   func() any // returns a pointer to open a record into
}

// Check seals each record and compares it with dir/{name}; then it opens the file and seals it
// again. Every file in dir must have a record. Together, the files must contain each field of
// every struct that the package in the working directory stores, with a value that is not
// zero, and each constant of the string types of those fields.
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
			t.Errorf("%s is not read by any test: a format that was ever written must remain readable", filepath.Join(dir, f.Name()))
		}
	}
	for _, missing := range uncovered(t, ".", records) {
		t.Errorf("%s has no golden bytes. Add to %s, called from golden_test.go or a test beside it, a record "+
			"under a new name that has it, and no other change; create its file with\n"+
			"\tgo test -run '^%[2]s$' . -update\n"+
			"in this directory, and commit that file, %s/{name}. Files that are there stay as they are: never change "+
			"a record that has one", missing, t.Name(), dir)
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
		t.Fatalf("%v. A new record needs its file: create it with\n\tgo test -run '^%s$' . -update\nin this directory, and commit it", err, strings.Split(t.Name(), "/")[0])
	}
	if !bytes.Equal(mine, theirs) {
		t.Errorf("%q is sealed as\n%x, was\n%x: stored records would be misread, or would never compare as equal. "+
			"New fields have new numbers and omitempty; golden files stay as they are", r.Key, mine, theirs)
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

// Envelope returns body as a record of a version that is stored under key, with a right checksum, whatever body is.
func Envelope(key []byte, version byte, body []byte) []byte {
	sum := crc32.Checksum(slices.Concat(key, []byte{version}, body), crc32.MakeTable(crc32.Castagnoli))
	return slices.Concat(binary.BigEndian.AppendUint32([]byte{'W', 'f', version}, sum), body)
}
