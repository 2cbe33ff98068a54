// Package torture kills processes that write to a store, damages its files, and makes its disk
// full. It is for the tests of adapters that keep their store in files.
//
// A test binary must call [Main] in TestMain, so that it can start itself as a child process.
package torture

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/storage"
)

// Open opens the store at a path and creates it if it does not exist.
type Open func(path string) (storage.Storage, error)

const (
	roleVar = "WEFT_CHILD"
	pathVar = "WEFT_CHILD_PATH"
)

// Main runs the tests, or the role for which this process was started.
func Main(m *testing.M, open Open) {
	switch role := os.Getenv(roleVar); role {
	case "":
		leaks.Main(m)
	case "opener":
		openAndSay(open, os.Getenv(pathVar))
	case "writer":
		writeAndSay(open, os.Getenv(pathVar))
	default:
		panic("no role " + role)
	}
}

// child starts this binary in a role.
func child(t testing.TB, role, path string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), roleVar+"="+role, pathVar+"="+path)
	c.Stderr = os.Stderr
	return c
}

// OpenElsewhere opens and closes the store at path in another process, and returns its error as
// text.
func OpenElsewhere(t testing.TB, path string) string {
	t.Helper()
	out, err := child(t, "opener", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func openAndSay(open Open, path string) {
	s, err := open(path)
	if err != nil {
		fmt.Print(err)
		return
	}
	s.Close()
}

// seeded returns a random source that is repeatable with WEFT_SEED.
func seeded(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("WEFT_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("WEFT_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// count returns the value of the environment variable, or n.
func count(variable string, n int) int {
	if v, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return v
	}
	return n
}
