package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// realPath resolves all links in path, so that every name of a file has the same
// result. The file need not exist.
func realPath(path string) (string, error) {
	if path == "" || path == ":memory:" {
		return "", errors.New("a database in memory cannot be opened: use package memory")
	}
	if strings.ContainsRune(path, 0) {
		return "", errors.New("the path contains a zero byte")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for range 100 { // follow links to a file that does not exist yet
		real, err := filepath.EvalSymlinks(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return real, err
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, filepath.Base(path))
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil
		}
		if filepath.IsAbs(target) {
			path = target
		} else {
			path = filepath.Join(dir, target)
		}
	}
	return "", fmt.Errorf("%w: too many links", fs.ErrInvalid)
}

// dsn returns the driver's name for a file with pragmas. More parameters may follow the mode. The driver ends the path at
// the first question mark; the URL escapes those within the path.
func dsn(file, mode string, pragmas []pragma) string {
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(file)}
	q, err := url.ParseQuery("mode=" + mode)
	if err != nil {
		panic(err)
	}
	q.Set("_txlock", "immediate")
	for _, p := range pragmas {
		if p.value != "" {
			q.Add("_pragma", p.name+"("+p.value+")")
		}
	}
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // SQLite does not know + for a space
	return u.String()
}
