//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package bolt

import "os"

// flock leaves it to bbolt to lock the file.
func flock(*os.File, bool) error { return nil }
