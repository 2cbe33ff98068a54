package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync/atomic"
	"time"
)

// A parent kills its children.
type parent struct {
	options
	random  *rand.Rand
	ledger  *ledger
	startup time.Duration // how long a child took until it was ready, last
	span    time.Duration // how long a child works at most: see nextSpan
}

func newParent(o options) *parent {
	return &parent{options: o, random: rand.New(rand.NewPCG(o.seed, 1)), ledger: newLedger(), startup: 50 * time.Millisecond, span: o.span}
}

// stall is how long a child may print nothing.
const stall = time.Minute

// torture runs children until the kills are done and enough of them have found an effect in
// flight, and lets the last one finish. Until the span is right for the machine, that may take more kills.
func (p *parent) torture(ctx context.Context) error {
	for p.ledger.kills < p.kills || !p.ledger.enough(p.kills) && p.ledger.kills < 2*p.kills {
		if err := p.life(ctx, false); err != nil {
			return err
		}
		if len(p.ledger.violations) > 0 {
			return nil // further kills would not help
		}
	}
	return p.life(ctx, true)
}

// A moment is where a child's remaining time begins.
type moment int

const (
	atStart moment = iota // of the process: it is killed while it opens the store
	atReady               // its clients have begun: it is killed while it takes over what a dead child owned
	atWork                // it executes an order
)

// fuse says when the child is killed: of eight, one while it opens the store, and two while it
// takes over orders, which on a shared store waits until the lease of the child before has expired.
// The others execute orders by then. The first child works in any case, so that, if two builds
// alternate, the other build has created the store.
func (p *parent) fuse() (from moment, d time.Duration) {
	switch n := p.random.IntN(8); {
	case p.ledger.life == 0 || n > 2:
		return atWork, p.upTo(p.span)
	case n > 0:
		return atReady, p.upTo(p.span)
	default:
		return atStart, p.upTo(p.startup + p.startup/2)
	}
}

// nextSpan is how long the next child works at most, after one that worked for up to span was
// killed. A kill that hit, which is one that found an effect in flight, shortens the span, and one
// that did not lengthens it, within once and thirty times least. So a quarter of these kills
// hit, however slow the store is, and more if the least span is long enough.
func nextSpan(span, least time.Duration, hit bool) time.Duration {
	if hit {
		span = span / 5 * 4
	} else {
		span = span / 100 * 108
	}
	return min(max(span, least), 30*least)
}

func (p *parent) upTo(d time.Duration) time.Duration {
	return time.Duration(p.random.Int64N(int64(d) + 1))
}

// life is one process, from its start to its death or, if it may finish, its end.
func (p *parent) life(ctx context.Context, finish bool) error {
	began := time.Now()
	var stderr bytes.Buffer
	cmd, stdout, err := p.spawn(ctx, finish, &stderr)
	if err != nil {
		return err
	}
	var killed, stalled atomic.Bool
	watchdog := time.AfterFunc(stall, func() { stalled.Store(true); _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	kill := time.AfterFunc(time.Hour, func() { killed.Store(true); _ = cmd.Process.Kill() })
	defer kill.Stop()
	from, d := p.fuse()
	lit := finish
	light := func(at moment) {
		if at == from && !lit {
			lit = true
			kill.Reset(d)
		}
	}
	light(atStart)
	p.ledger.begin()
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			break // an incomplete line does not count
		}
		if err != nil {
			return err
		}
		watchdog.Reset(stall)
		if line == "ready\n" {
			p.startup = time.Since(began)
			continue
		}
		p.ledger.read(line)
		light(atReady)
		if p.ledger.worked {
			light(atWork)
		}
	}
	err = cmd.Wait()
	p.ledger.ended(stderr.Bytes())
	switch {
	case stalled.Load():
		p.ledger.violate("the child said nothing for %v", stall)
	case killed.Load() && err != nil:
		hits := p.ledger.hits
		p.ledger.killed()
		if p.ledger.worked {
			p.span = nextSpan(p.span, max(p.options.span, 2*p.startup), p.ledger.hits > hits)
		}
	case !finish || err != nil:
		return fmt.Errorf("the child ended by itself: %v\n%s", err, last(stderr.Bytes(), 4096))
	}
	return nil
}

// spawn starts a child and gives it its plan. Its stdin stays open: a child that
// loses it has lost its parent and ends.
func (p *parent) spawn(ctx context.Context, finish bool, stderr io.Writer) (*exec.Cmd, io.Reader, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	if p.other != "" && !finish && p.ledger.life%2 == 0 {
		program = p.other
		p.ledger.others++
		p.ledger.foreign = true
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	plan, err := json.Marshal(p.ledger.plan(p.options, finish))
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	_, err = stdin.Write(append(plan, '\n'))
	return cmd, stdout, err
}

// last is the end of b.
func last(b []byte, n int) []byte { return b[max(0, len(b)-n):] }
