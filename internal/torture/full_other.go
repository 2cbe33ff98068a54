//go:build !(linux || darwin)

package torture

import "testing"

// Full needs a limit to the size of files.
func Full(t *testing.T, _ Open) { t.Skip("no limit to the size of files here") }

// LimitFiles needs one too.
func LimitFiles(t *testing.T, _ uint64) { t.Skip("no limit to the size of files here") }
