package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
)

type watch struct {
	ID       string        `arg:"" help:"The id of the workflow."`
	Interval time.Duration `default:"1s" placeholder:"DURATION" help:"Look this often (default 1s)."`
}

func (w *watch) Run(e *env) error {
	if w.Interval <= 0 {
		return misuse("the interval %v is not positive", w.Interval)
	}
	return e.reading(func(c *client) error { return w.follow(e, c) })
}

// follow describes the workflow before it reads its history, so that the history is complete
// if the workflow has ended.
func (w *watch) follow(e *env, c *client) error {
	var printed uint64
	var waiting []string
	for {
		began := time.Now()
		i, err := c.Describe(e, w.ID)
		if err == nil {
			printed, err = e.printEvents(c, w.ID, printed)
		}
		if err != nil {
			return err
		}
		if !e.JSON && !slices.Equal(i.Waiting, waiting) {
			for _, what := range i.Waiting {
				fmt.Fprintf(e.out, "%s  waits for %s\n", exactly(time.Now()), text(what))
			}
		}
		waiting = i.Waiting
		if err := e.out.Flush(); err != nil {
			return err
		}
		if i.Status.Terminal() {
			return w.ended(e, c, i)
		}
		pause := time.NewTimer(max(w.Interval, 10*time.Since(began))) // a long history is read less often
		select {
		case <-pause.C:
		case <-e.Done():
			pause.Stop()
			return fmt.Errorf("workflow %q is %s and goes on: %w", w.ID, i.Status, context.Cause(e))
		}
	}
}

// ended prints the result, or returns why there is none.
func (w *watch) ended(e *env, c *client, i weft.Info) error {
	if i.Status != checkpoint.StatusCompleted {
		if err := c.Result(e, w.ID, "", nil); err != nil {
			return err
		}
		return fmt.Errorf("workflow %q is %s", w.ID, i.Status)
	}
	out, why := c.outcome(e, i)
	if !e.JSON {
		fmt.Fprintf(e.out, "result: %s\n", or(shown(out, why)))
	}
	return nil
}
