// Package childproc runs child processes that are killed, for the example programs that show what
// survives that. A parent tells its child what to do by a plan, a line of JSON on its standard input,
// and reads lines from its standard output.
package childproc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"
)

// A Child is a process to run.
type Child struct {
	Program string // its executable file
	Env     string // the variable that tells the program that it is the child
	Plan    any

	// Hear is called with each line that the child prints. With kill set, the child is killed with
	// SIGKILL after that time.
	Hear func(line string) (after time.Duration, kill bool)

	// Stall is how long the child may run without printing anything. It is ended then, which is an error.
	Stall time.Duration
}

// Run runs the child until it ends. killed reports that this was because Hear had asked for it. The
// error has what the child has printed on its standard error, unless it has ended by itself with status 0.
func (c *Child) Run(ctx context.Context) (killed bool, _ error) {
	plan, err := json.Marshal(c.Plan)
	if err != nil {
		return false, err
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Program)
	cmd.Env = append(os.Environ(), c.Env+"=1")
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe() // stays open: a child that loses it has lost its parent
	if err != nil {
		return false, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	if _, err := stdin.Write(append(plan, '\n')); err != nil {
		return false, err
	}
	var struck atomic.Bool
	watchdog := time.AfterFunc(c.Stall, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	for lines := bufio.NewReader(stdout); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // an incomplete line does not count
		}
		watchdog.Reset(c.Stall)
		if after, kill := c.Hear(strings.TrimSuffix(line, "\n")); kill {
			fuse := time.AfterFunc(after, func() { struck.Store(true); _ = cmd.Process.Kill() })
			defer fuse.Stop()
		}
	}
	err = cmd.Wait()
	if struck.Load() {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w\n%s", err, stderr.Bytes())
	}
	return false, nil
}

// Main is the main function of the child: it reads its plan from in into plan, a pointer, and calls f.
// The process ends when its parent has ended. Main returns the exit status.
func Main(in io.Reader, plan any, f func(ctx context.Context) error) int {
	stdin := bufio.NewReader(in)
	line, err := stdin.ReadBytes('\n')
	if err = errors.Join(err, json.Unmarshal(line, plan)); err == nil {
		go func() {
			_, _ = io.Copy(io.Discard, stdin)
			os.Exit(1) // the parent has ended
		}()
		err = f(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
