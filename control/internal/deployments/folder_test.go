package deployments

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

const (
	digestOfBuild = "fba65ed3d960d2763dd46cef8ffa4d2adee87d23a4b6bd5c67d1a3e7e27b9d1a" // not of anything
	build         = "the bytes of a build"
)

func dir(t *testing.T) (*Folder, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "artifacts")
	f, err := OpenFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	return f, path
}

func TestDirKeepsBytesByDigest(t *testing.T) {
	ctx := t.Context()
	d, path := dir(t)
	digest, size, err := d.Put(ctx, strings.NewReader(build))
	if err != nil || size != int64(len(build)) || !isDigest(digest) {
		t.Fatalf("got %q, %d, %v", digest, size, err)
	}
	again, _, err := d.Put(ctx, strings.NewReader(build))
	if err != nil || again != digest {
		t.Errorf("the same bytes are %q, %v; want %q", again, err, digest)
	}
	r, err := d.Open(ctx, digest)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); string(got) != build || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if names, err := os.ReadDir(path); err != nil || len(names) != 1 {
		t.Errorf("the folder has %v, %v; want one file", names, err)
	}
}

// A name that is no digest is never opened, also if there is such a file.
func TestDirOpensDigestsOnly(t *testing.T) {
	d, path := dir(t)
	if err := os.WriteFile(filepath.Join(path, "..", "secret"), []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../secret", "secret", "", ".", strings.ToUpper(digestOfBuild), digestOfBuild, digestOfBuild + "/../../secret"} {
		if _, err := d.Open(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Open(%q): %v, want fs.ErrNotExist", name, err)
		}
	}
}

func TestDirKeepsNothingOfAnUploadThatFails(t *testing.T) {
	d, path := dir(t)
	cut := errors.New("cut off")
	_, _, err := d.Put(t.Context(), io.MultiReader(strings.NewReader(build), iotest.ErrReader(cut)))
	if !errors.Is(err, cut) {
		t.Errorf("got %v, want the reader's error", err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(cut)
	if _, _, err := d.Put(ended, strings.NewReader(build)); !errors.Is(err, cut) {
		t.Errorf("got %v, want the cause of the context's end", err)
	}
	if names, err := os.ReadDir(path); err != nil || len(names) != 0 {
		t.Errorf("the folder has %v, %v; want nothing", names, err)
	}
}

// What a deployment gets while a sweep is under way stays.
func TestDirKeeps(t *testing.T) {
	ctx := t.Context()
	d, path := dir(t)
	digest, _, err := d.Put(ctx, strings.NewReader(build))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	age := func() {
		if err := os.Chtimes(d.file(digest), now, now.Add(-25*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	age()
	before := now.Add(-artifactKept)
	if err := errors.Join(d.Keep(ctx, digest), d.remove(digest, before)); err != nil { // kept between look and removal
		t.Fatal(err)
	}
	if _, err := os.Stat(d.file(digest)); err != nil {
		t.Error("what was kept is removed:", err)
	}
	if err := os.Rename(d.file(digest), filepath.Join(path, swept+digest)); err != nil { // a process dies there
		t.Fatal(err)
	}
	if err := errors.Join(d.Keep(ctx, digest), d.Keep(ctx, "../x"), d.Sweep(ctx, before, func(string) bool { return true })); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.file(digest)); err != nil {
		t.Error("it is not back:", err)
	}
	age()
	if err := d.Sweep(ctx, before, func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(path); err != nil || len(left) != 0 {
		t.Error(left, err)
	}
}

// What no deployment has goes after a day. What is put again is new again.
func TestDirSweeps(t *testing.T) {
	ctx := t.Context()
	d, path := dir(t)
	put := func(s string) string {
		digest, _, err := d.Put(ctx, strings.NewReader(s))
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	now := time.Now()
	used, unused, again, young := put("used"), put("unused"), put("again"), put("young")
	rest, other := filepath.Join(path, upload+"1"), filepath.Join(path, "README")
	for _, f := range []string{rest, other} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{d.file(used), d.file(unused), d.file(again), rest, other} {
		if err := os.Chtimes(f, now, now.Add(-25*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	put("again")
	if err := d.Sweep(ctx, now.Add(-artifactKept), func(digest string) bool { return digest == used }); err != nil {
		t.Fatal(err)
	}
	for f, want := range map[string]bool{d.file(used): true, d.file(unused): false, d.file(again): true, d.file(young): true, rest: false, other: true} {
		if _, err := os.Stat(f); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", filepath.Base(f), err == nil, want)
		}
	}
}
