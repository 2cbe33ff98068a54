package reads_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// The first key that can be read counts, and the others are told.
func TestFirst(t *testing.T) {
	s := numbered(t, 5)
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		from  int // the first that can be read
		want  string
		told  int
		reads int
	}{
		"the first one": {0, "k:0000", 0, 1},
		"the third":     {2, "k:0002", 2, 2},
		"none":          {5, "", 5, 2},
	} {
		told, scans := 0, 0
		counted := storagetest.NewFaulty(s, func(storagetest.Call) storagetest.Fault { scans++; return storagetest.None })
		got, ok, err := reads.First(t.Context(), counted, storage.Prefix([]byte("k:")), func(key []byte) (string, error) {
			if string(key) < fmt.Sprintf("k:%04d", c.from) {
				return "", broken
			}
			return string(key), nil
		}, func(_ []byte, err error) {
			if told++; !errors.Is(err, broken) {
				t.Errorf("%s: told %v", name, err)
			}
		})
		if got != c.want || ok != (c.want != "") || err != nil || told != c.told || scans != c.reads {
			t.Errorf("%s: %q, %v, %v; %d told in %d reads", name, got, ok, err, told, scans)
		}
	}
	away := storagetest.NewFaulty(s, func(storagetest.Call) storagetest.Fault { return storagetest.ErrorBefore })
	if _, ok, err := reads.First(t.Context(), away, storage.Prefix([]byte("k:")), func([]byte) (int, error) { return 0, nil }, nil); ok || !errors.Is(err, storagetest.ErrInjected) {
		t.Errorf("the store cannot be read: %v, %v", ok, err)
	}
}

// An entry that fails keeps no other from its turn. Several in a row, and the end of the context, end it: then the store fails.
func TestEach(t *testing.T) {
	s := numbered(t, 20)
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		fails func(i int) bool
		calls int
		first string // the key in the error
	}{
		"none":          {func(int) bool { return false }, 20, ""},
		"one":           {func(i int) bool { return i == 7 }, 20, "k:0007"},
		"two of three":  {func(i int) bool { return i%3 > 0 }, 20, "k:0001"},
		"all":           {func(int) bool { return true }, 3, "k:0000"},
		"from some on":  {func(i int) bool { return i > 10 }, 14, "k:0011"},
		"the last ones": {func(i int) bool { return i > 17 }, 20, "k:0018"},
	} {
		calls := 0
		err := new(reads.Places).Each(t.Context(), s, storage.Prefix([]byte("k:")), func(e storage.Entry) error {
			if want := fmt.Sprintf("k:%04d", calls); string(e.Key) != want {
				t.Errorf("%s: %s, want %s", name, e.Key, want)
			}
			calls++
			if c.fails(calls - 1) {
				return broken
			}
			return nil
		})
		if calls != c.calls || errors.Is(err, broken) != (c.first != "") || err != nil && !strings.Contains(err.Error(), c.first) {
			t.Errorf("%s: %d calls, %v; want %d, and an error of %q", name, calls, err, c.calls, c.first)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := new(reads.Places).Each(ctx, s, storage.Prefix([]byte("k:")), func(storage.Entry) error { calls++; cancel(); return ctx.Err() })
	if calls != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("the context ends: %d calls, %v", calls, err)
	}
	away := storagetest.NewFaulty(s, func(storagetest.Call) storagetest.Fault { return storagetest.ErrorBefore })
	if err := new(reads.Places).Each(t.Context(), away, storage.Prefix([]byte("k:")), nil); !errors.Is(err, storagetest.ErrInjected) {
		t.Errorf("the store cannot be read: %v", err)
	}
}

// Behind several in a row that fail, the next call goes on, and the one after that begins again. Another range has another place.
func TestEachGoesOnBehindWhatFails(t *testing.T) {
	s := numbered(t, 9)
	var places reads.Places
	for call, want := range []string{"0 1 2 3", "4 5 6 7 8", "0 1 2 3", "4 5 6 7 8"} {
		for _, all := range []bool{true, false} {
			r, want := storage.Prefix([]byte("k:")), want
			if !all {
				r.Start, want = []byte("k:0005"), "5 6 7 8"
			}
			var got []string
			err := places.Each(t.Context(), s, r, func(e storage.Entry) error {
				got = append(got, string(e.Key[len(e.Key)-1:]))
				if n := e.Key[len(e.Key)-1] - '0'; n >= 1 && n <= 3 {
					return errors.New("broken")
				}
				return nil
			})
			if strings.Join(got, " ") != want || (err != nil) != strings.HasPrefix(want, "0") {
				t.Errorf("call %d: %q, %v; want %s", call, got, err, want)
			}
		}
	}
}
