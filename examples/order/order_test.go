package main

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A play is the program, run on a file.
type play struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
}

func start(t *testing.T, program, db string) *play {
	p := &play{t: t, cmd: exec.Command(program, "-db", db, "-pace", "200ms"), lines: make(chan string, 1000)}
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

// until reads up to a line with all of words and returns what came before.
func (p *play) until(words string) (before string) {
	p.t.Helper()
	late := time.After(30 * time.Second)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("it ended without %q; it printed:\n%s", words, before)
			}
			p.t.Log(line)
			if strings.Contains(line, words) {
				return before
			}
			before += line + "\n"
		case <-late:
			p.t.Fatalf("no %q in 30 s; it printed:\n%s", words, before)
		}
	}
}

func (p *play) kill() {
	_ = p.cmd.Process.Kill()
	for range p.lines {
	}
	_ = p.cmd.Wait()
}

func (p *play) end() {
	p.t.Helper()
	for line := range p.lines {
		p.t.Log(line)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("exit: %v", err)
	}
}

// TestOrderGoesOnAfterKill kills the program where it charges and where it
// sleeps, and lets it end; the next one finds the order done.
func TestOrderGoesOnAfterKill(t *testing.T) {
	dir := t.TempDir()
	program, db := filepath.Join(dir, "order"), filepath.Join(dir, "order.db")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}

	p := start(t, program, db)
	p.until("charge: charging")
	p.kill()

	p = start(t, program, db)
	p.until("order-1 was under way")
	p.until("(recorded) nobody has approved in time")
	again := p.until("charge: charging")
	if strings.Contains(again, "reserve:") {
		t.Errorf("reserve was done again:\n%s", again)
	}
	p.until("to think it over")
	p.kill()

	p = start(t, program, db)
	p.until("(recorded) charge")
	before := p.until("order-1 is done: approved by itself")
	if strings.Contains(before, "charge: charging") {
		t.Errorf("charge was done again:\n%s", before)
	}
	p.end()

	p = start(t, program, db)
	p.until("order-1 was done already")
	p.until("order-2 is done")
	p.end()
}
