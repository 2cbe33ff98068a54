package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weft-go/weft/storage"
)

// A freezer stops its own process with SIGSTOP in the middle of a commit: at a random
// time after the store was given the batch and, most times, before it has answered.
type freezer struct {
	least time.Duration // the minimum length of a stop
	say   func(string, ...any)
	armed atomic.Bool  // stop in the next commit
	usual atomic.Int64 // nanoseconds that a commit takes: a moving average
}

// commit commits b to s, and reports whether a stop happened during that, and the
// result.
func (f *freezer) commit(ctx context.Context, s storage.Storage, b storage.Batch) error {
	began := time.Now()
	if !f.armed.CompareAndSwap(true, false) {
		err := s.Commit(ctx, b)
		f.usual.Store((7*f.usual.Load() + int64(time.Since(began))) / 8)
		return err
	}
	span := f.usual.Load() / 4
	if rand.IntN(2) == 0 { // before anything is sent to the store, or shortly after
		span = min(span, int64(100*time.Microsecond))
	}
	after := time.Duration(rand.Int64N(span + 1))
	stopped := make(chan time.Time, 1)
	go func() {
		for time.Since(began) < after { // a sleep is too coarse
			runtime.Gosched()
		}
		stopped <- time.Now()
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}()
	err := s.Commit(ctx, b)
	answered := time.Now()
	switch at := <-stopped; {
	case answered.Sub(at) < f.least:
		f.say("frozen outside")
	case err == nil:
		f.say("frozen inside done")
	case errors.Is(err, storage.ErrConflict):
		f.say("frozen inside refused")
	default:
		f.say("frozen inside unknown")
	}
	return err
}

// freeze makes a process stop itself inside a commit, and waits until it has.
func (p *process) freeze(ctx context.Context) error {
	p.order("freeze")
	for end := time.Now().Add(stall); time.Now().Before(end); {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			return err
		}
		name := strings.LastIndexByte(string(stat), ')')
		if state := strings.TrimSpace(string(stat[name+1:])); strings.HasPrefix(state, "T") {
			return nil
		}
		if !sleep(ctx, time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("%s has committed nothing in %v", p.name, stall)
}
