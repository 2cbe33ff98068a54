package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/weft-go/weft/storage"
)

// Families are what keys have that only this release writes: what they begin with, such as "sch:", or, within
// families that both releases know, a component, such as ":pub:".
type families []string

// literal is what package keys makes keys of.
var literal = regexp.MustCompile(`"(:?[a-z]+:)[a-z:]*"`)

// added returns the families that package keys in the folder now has, and that in the folder before has not.
func added(before, now string) (families, error) {
	old, err := familiesIn(before)
	if err != nil {
		return nil, err
	}
	all, err := familiesIn(now)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(all, func(f string, _ bool) bool { return old[f] })
	if len(old) == 0 || len(all) == 0 {
		return nil, fmt.Errorf("package keys of the release before has %d families of keys, and this one %d more", len(old), len(all))
	}
	return slices.Sorted(maps.Keys(all)), nil
}

func familiesIn(dir string) (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		code, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range literal.FindAllSubmatch(code, -1) {
			found[string(m[1])] = true
		}
	}
	return found, nil
}

// of returns the family of a key, or "" if the release before knows the key.
func (fs families) of(key []byte) (family string) {
	for _, f := range fs {
		switch {
		case f[0] != ':' && bytes.HasPrefix(key, []byte(f)):
			return f
		case f[0] == ':' && bytes.Contains(key, []byte(f)):
			family = f
		}
	}
	return family
}

// read returns the records that the release before does not know.
func (fs families) read(ctx context.Context, s storage.Storage) (map[string]string, error) {
	records := map[string]string{}
	for e, err := range storage.All(ctx, s, storage.Range{}) {
		if err != nil {
			return nil, err
		}
		if fs.of(e.Key) != "" {
			records[string(e.Key)] = string(e.Value)
		}
	}
	return records, nil
}

// plant puts a record into each family, or deletes these. Those of components are what has expired. An engine of
// this release would not understand some of them, so they are there only while the release before has its turn.
func (fs families) plant(ctx context.Context, s storage.Storage, there bool) error {
	var b storage.Batch
	for _, f := range fs {
		key := []byte(f + "planted")
		if f[0] == ':' {
			key = []byte("exp:0000000000000000" + f + "planted:planted") // whatever a clock says
		}
		if there {
			b.Ops = append(b.Ops, storage.Put(key, []byte("only the next release reads this")))
		} else {
			b.Ops = append(b.Ops, storage.Delete(key))
		}
	}
	return s.Commit(ctx, b)
}

// changes says what differs between the records before and after a turn.
func changes(before, after map[string]string) (lines []string) {
	for key, value := range before {
		switch now, ok := after[key]; {
		case !ok:
			lines = append(lines, fmt.Sprintf("%s is gone", key))
		case now != value:
			lines = append(lines, fmt.Sprintf("%s is changed", key))
		}
	}
	for key := range after {
		if _, ok := before[key]; !ok {
			lines = append(lines, fmt.Sprintf("%s is new", key))
		}
	}
	slices.SortFunc(lines, cmp.Compare)
	return lines
}
