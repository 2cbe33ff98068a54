// Package exampletest runs the example programs as their readers do: it builds them, reads their
// output, kills them and starts them again.
package exampletest

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Build builds the program of the test's own directory and returns its path. With -short it skips
// the test.
func Build(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short builds and kills no programs")
	}
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

// A Play is one process of a program.
type Play struct {
	t     testing.TB
	cmd   *exec.Cmd
	lines chan string
}

// Start starts the program. It is killed when the test ends.
func Start(t testing.TB, program string, args ...string) *Play {
	t.Helper()
	p := &Play{t: t, cmd: exec.Command(program, args...), lines: make(chan string, 1000)}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = p.cmd.Stdout
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	return p
}

// Until reads the output up to a line that contains words. It returns the output since the last
// call, including that line.
func (p *Play) Until(words string) (printed string) {
	p.t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("it ended without %q; it printed:\n%s", words, printed)
			}
			p.t.Log(line)
			printed += line + "\n"
			if strings.Contains(line, words) {
				return printed
			}
		case <-late:
			p.t.Fatalf("no %q in a minute; it printed:\n%s", words, printed)
		}
	}
}

// UntilNumber reads the output up to the line that says how to kill the process, by its number,
// which is not that of "go run".
func (p *Play) UntilNumber() (printed string) {
	p.t.Helper()
	return p.Until(fmt.Sprintf("kill -9 %d", p.cmd.Process.Pid))
}

// Kill kills the process with SIGKILL. It returns the output since the last call of Until.
func (p *Play) Kill() (printed string) {
	_ = p.cmd.Process.Kill()
	printed = p.rest()
	_ = p.cmd.Wait()
	return printed
}

// End waits for the program to exit with status 0, and returns the output since the last call
// of Until.
func (p *Play) End() (printed string) {
	p.t.Helper()
	printed = p.rest()
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("exit: %v", err)
	}
	return printed
}

func (p *Play) rest() (printed string) {
	for line := range p.lines {
		p.t.Log(line)
		printed += line + "\n"
	}
	return printed
}
