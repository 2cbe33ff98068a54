package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
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

// An access is how a file is opened, in parameters of the URI: mode, and modeof for a file that SQLite creates.
type access = url.Values

var (
	readWrite = access{"mode": {"rw"}}
	readOnly  = access{"mode": {"ro"}}
)

// dsn returns the driver's name for a file with pragmas. The driver ends the path at
// the first question mark; the URL escapes those within the path.
func dsn(file string, how access, pragmas []pragma) string {
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(file)}
	q := maps.Clone(how)
	q.Set("_txlock", "immediate")
	for _, p := range pragmas {
		if p.value != "" {
			q.Add("_pragma", p.name+"("+p.value+")")
		}
	}
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // SQLite does not know + for a space
	return u.String()
}
