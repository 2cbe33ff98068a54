package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// W7 and W8 are of Weft alone: what its engines do after each other, and beside each
// other.
var (
	killed = &Workload{
		Name:   "w7",
		Title:  "W7: the process dies with workflows in an activity; then a restart",
		Stores: []string{"sqlite", "bolt", "pebble", "postgres"}, // which know that the process is dead before its lease ends
		Parts:  []func(context.Context, *Child) error{dieInFlight, driveAgain},
	}
	pair = &Workload{
		Name:   "w8",
		Title:  "W8: two processes on one store, against one",
		Stores: []string{"postgres"},
		Parts:  only(oneAndTwo),
		Beside: work,
	}
)

// dieInFlight dies without a word when all activities are under way.
func dieInFlight(ctx context.Context, c *Child) error {
	c.site.Room = 2 * c.Parked
	sys, err := c.open(ctx)
	if err != nil {
		return err
	}
	err = each(ctx, c.Parked, crowd, func(i int) error {
		return sys.Start(ctx, fmt.Sprintf("flying-%d", i), Shape{Steps: 1, Busy: time.Hour})
	})
	if err == nil {
		err = until(ctx, func() bool { return c.probe.steps.Load() == int64(c.Parked) })
	}
	if err != nil {
		return err
	}
	os.Exit(0)
	return nil
}

// driveAgain measures from the opening of the store on.
func driveAgain(ctx context.Context, c *Child) error {
	c.site.Room = 2 * c.Parked
	began := time.Now()
	if _, err := c.open(ctx); err != nil {
		return err
	}
	for _, n := range []int{1, min(1000, c.Parked), c.Parked} {
		if err := until(ctx, func() bool { return c.probe.steps.Load() >= int64(n) }); err != nil {
			return err
		}
		c.report(fmt.Sprintf("restart to %d under way again, ms", n), milliseconds(time.Since(began)))
	}
	os.Exit(0) // the activities would be waited for
	return nil
}

// A share is what each of several processes does in W8: so many workflows at once, in an
// engine with room for no more of them.
type share struct {
	Shape
	At     int
	Prefix string
}

// A turnout is what a share came to.
type turnout struct {
	Workflows int64
	Took      time.Duration
}

// oneAndTwo has one process and two processes do the same, in turn.
func oneAndTwo(ctx context.Context, c *Child) error {
	for _, s := range []struct {
		of string
		share
	}{
		// What bounds an engine is its room: 16 activities at a time.
		{"activities of 5 ms", share{Shape: Shape{Steps: stepsEach, Busy: 5 * time.Millisecond}, At: 16}},
		// The processors are the bound.
		{"activities of nothing", share{Shape: Shape{Steps: stepsEach}, At: crowd}},
	} {
		var rates [3]float64
		for turn, n := range []int{1, 2, 2, 1} {
			rate, err := c.crew(ctx, n, turn, s.share)
			if err != nil {
				return err
			}
			rates[n] += rate / 2
		}
		c.report(s.of+": steps/s of one", rates[1])
		c.report(s.of+": steps/s of two", rates[2])
		c.report(s.of+": two to one", rates[2]/rates[1])
	}
	return nil
}

// crew has n processes do a share each, all at the same time, and returns their steps
// per second.
func (c *Child) crew(ctx context.Context, n, turn int, s share) (rate float64, err error) {
	hands := make([]*hand, n)
	defer func() {
		for _, h := range hands {
			if h != nil {
				err = errors.Join(err, h.dismiss())
			}
		}
	}()
	for i := range hands {
		s.Prefix = fmt.Sprintf("%v-%d-%d", s.Busy, turn, i)
		if hands[i], err = c.hire(ctx, s); err != nil {
			return 0, err
		}
	}
	for _, h := range hands {
		if err := h.ready(); err != nil {
			return 0, err
		}
	}
	turnouts := make([]turnout, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i, h := range hands {
		wg.Go(func() {
			if _, errs[i] = io.WriteString(h.in, "go\n"); errs[i] == nil {
				errs[i] = json.NewDecoder(h.out).Decode(&turnouts[i])
			}
		})
	}
	wg.Wait()
	for _, t := range turnouts {
		rate += float64(t.Workflows) * float64(s.Steps) / t.Took.Seconds()
	}
	return rate, errors.Join(errs...)
}

// A hand is another process, which does the Beside of the workload.
type hand struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

// hire starts a process that does a share, which is encoded as JSON.
func (c *Child) hire(ctx context.Context, share any) (*hand, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	t := c.task
	t.Profile = ""
	if t.Share, err = json.Marshal(share); err != nil {
		return nil, err
	}
	argument, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	h := &hand{command: exec.CommandContext(ctx, self, "child", string(argument))}
	h.command.Stderr = os.Stderr
	if h.in, err = h.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := h.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	h.out = bufio.NewReader(out)
	return h, h.command.Start()
}

// ready waits until the process says that it is ready.
func (h *hand) ready() error {
	_, err := h.out.ReadBytes('\n')
	return err
}

// untilDismissed returns a context that ends when the process that hired this one wants it to end.
func untilDismissed(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

// dismiss has the process end, and waits for that.
func (h *hand) dismiss() error {
	h.in.Close()
	return h.command.Wait()
}

// work does a share, in a process of its own: it says when it is ready, begins when it
// is told to, and stays until its input ends.
func work(ctx context.Context, c *Child) error {
	var s share
	if err := json.Unmarshal(c.task.Share, &s); err != nil {
		return err
	}
	c.site.Room = s.At
	sys, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer sys.Close()
	if _, _, err := load(ctx, sys, counted("warm-"+s.Prefix), s.At, c.Warm, s.Shape); err != nil {
		return err
	}
	fmt.Println("ready")
	told := bufio.NewReader(os.Stdin)
	if _, err := told.ReadString('\n'); err != nil {
		return err
	}
	var done turnout
	if done.Workflows, done.Took, err = load(ctx, sys, counted(s.Prefix), s.At, c.Load, s.Shape); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(done); err != nil {
		return err
	}
	_, err = told.ReadString('\n')
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}
