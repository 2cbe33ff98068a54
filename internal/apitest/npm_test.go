package apitest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// npmFolder has what is needed of npm, and clients in TypeScript.
const npmFolder = "npm"

var install = sync.OnceValues(func() (string, error) {
	folder, err := filepath.Abs(npmFolder)
	if err != nil {
		return "", err
	}
	lock, err := os.ReadFile(filepath.Join(folder, "package-lock.json"))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(lock)
	want := hex.EncodeToString(sum[:])
	done := filepath.Join(folder, "node_modules", ".installed") // the lock that was installed
	if got, err := os.ReadFile(done); err == nil && string(got) == want {
		return folder, nil
	}
	c := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	c.Dir = folder
	if out, err := c.CombinedOutput(); err != nil {
		return "", &commandError{c, out, err}
	}
	return folder, os.WriteFile(done, []byte(want), 0o644)
})

type commandError struct {
	c   *exec.Cmd
	out []byte
	err error
}

func (e *commandError) Error() string {
	return e.c.String() + ": " + e.err.Error() + "\n" + string(e.out)
}

// npm returns the folder of what is installed from npm, and installs it the first time.
func npm(t testing.TB) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is needed, and is not here: apt-get install nodejs npm", program)
		}
	}
	folder, err := install()
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// tool runs a program that is installed from npm, or node, and returns what it printed on its standard output.
func tool(t testing.TB, env []string, name string, args ...string) string {
	t.Helper()
	folder := npm(t)
	path := name
	if name != "node" {
		path = filepath.Join(folder, "node_modules", ".bin", name)
	}
	return run(t, folder, env, path, args...)
}

// run runs a command, and returns what it printed on its standard output.
func run(t testing.TB, folder string, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = folder
	c.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		t.Fatal(&commandError{c, append(errs.Bytes(), out.Bytes()...), err})
	}
	return out.String()
}

// Redocly's strict rules find nothing in the document.
func TestLint(t *testing.T) {
	t.Parallel() // with TestEveryBodyComesInTime, which waits for half a minute
	file, err := filepath.Abs(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	tool(t, []string{"REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true"}, "redocly", "lint", "--config", "redocly.yaml", file)
}
