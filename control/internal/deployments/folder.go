package deployments

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// OpenFolder returns a folder of artifacts, which it makes if there is none.
func OpenFolder(path string) (*Folder, error) {
	path, err := filepath.Abs(path)
	if err == nil {
		err = os.MkdirAll(path, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("control: folder of artifacts: %w", err)
	}
	return &Folder{path}, nil
}

// A Folder keeps artifacts. Each is a file whose name is its digest. No other name is ever opened.
type Folder struct{ path string }

// upload is how the names of files begin that are not complete.
const upload = "upload-"

// Put implements control.Artifacts, as do Open, Keep and Sweep.
func (f *Folder) Put(ctx context.Context, r io.Reader) (digest string, size int64, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("control: store artifact: %w", err)
		}
	}()
	file, err := os.CreateTemp(f.path, upload)
	if err != nil {
		return "", 0, err
	}
	defer os.Remove(file.Name()) // it is not there any more if it was renamed
	defer file.Close()
	sum := sha256.New()
	if size, err = io.Copy(io.MultiWriter(file, sum), untilEnd{ctx, r}); err != nil {
		return "", 0, err
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return "", 0, err
	}
	digest = hex.EncodeToString(sum.Sum(nil))
	if err := os.Rename(file.Name(), f.file(digest)); err != nil {
		return "", 0, err
	}
	return digest, size, f.sync()
}

// sync makes the names in the folder durable.
func (f *Folder) sync() error {
	d, err := os.Open(f.path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (f *Folder) Open(_ context.Context, digest string) (io.ReadSeekCloser, error) {
	if !isDigest(digest) {
		return nil, fmt.Errorf("control: open artifact: %w", fs.ErrNotExist)
	}
	file, err := os.Open(f.file(digest))
	if err != nil {
		return nil, fmt.Errorf("control: open artifact: %w", err)
	}
	return file, nil
}

func (f *Folder) Keep(_ context.Context, digest string) error {
	if !isDigest(digest) {
		return nil
	}
	now := time.Now()
	if err := os.Chtimes(f.file(digest), now, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("control: keep artifact: %w", err)
	}
	return nil
}

func (f *Folder) Sweep(ctx context.Context, before time.Time, used func(digest string) bool) error {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return fmt.Errorf("control: sweep artifacts: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		name := e.Name()
		if digest, ok := strings.CutPrefix(name, swept); ok && isDigest(digest) { // left by a process that died
			if err := os.Rename(filepath.Join(f.path, name), f.file(digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("control: sweep artifacts: %w", err))
			}
			continue // until the next time
		}
		incomplete := strings.HasPrefix(name, upload)
		if !incomplete && (!isDigest(name) || used(name)) {
			continue
		}
		if info, err := e.Info(); err != nil || !info.ModTime().Before(before) {
			continue // another process has removed it, or has put it again
		}
		if err := f.remove(name, before); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("control: sweep artifacts: %w", err))
		}
	}
	return errors.Join(errs...)
}

// swept is how the names of files begin that are about to be removed.
const swept = "swept-"

// remove removes a file, unless it has been put or kept since it was looked at. It is renamed first: from
// then on Keep does not find it, so that what it says of the time is final.
func (f *Folder) remove(name string, before time.Time) error {
	file, away := filepath.Join(f.path, name), filepath.Join(f.path, swept+name)
	if err := os.Rename(file, away); err != nil {
		return err
	}
	info, err := os.Stat(away)
	if err != nil {
		return err
	}
	if !info.ModTime().Before(before) {
		return os.Rename(away, file)
	}
	return os.Remove(away)
}

func (f *Folder) file(digest string) string { return filepath.Join(f.path, digest) }

// isDigest reports whether s is a SHA-256 as Artifacts names them.
func isDigest(s string) bool {
	return len(s) == 2*sha256.Size && !strings.ContainsFunc(s, func(c rune) bool { return (c < '0' || c > '9') && (c < 'a' || c > 'f') })
}

// untilEnd is a reader that ends with its context.
type untilEnd struct {
	ctx context.Context
	io.Reader
}

func (r untilEnd) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}
