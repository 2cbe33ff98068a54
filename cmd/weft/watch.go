package main

import (
	"context"
	"errors"
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

// follow describes the workflow before it reads the events, so that they are complete if the workflow has ended.
func (w *watch) follow(e *env, c *client) error {
	var last string // the id of the event that was printed last
	var waiting []string
	for {
		i, err := c.Describe(e, w.ID)
		if err == nil {
			last, err = w.printNew(e, c, last)
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
		pause := time.NewTimer(w.Interval)
		select {
		case <-pause.C:
		case <-e.Done():
			pause.Stop()
			return fmt.Errorf("workflow %q is %s and goes on: %w", w.ID, i.Status, context.Cause(e))
		}
	}
}

// printNew prints the events behind the one whose id is last, and returns the id of the last one that it printed. If the
// workflow has continued as new, it goes on with the present life.
func (w *watch) printNew(e *env, c *client, last string) (string, error) {
	for r := (weft.PageRequest{Limit: 1000, Cursor: last, Ascending: true}); ; {
		page, err := c.Events(e, w.ID, r)
		if _, gone := errors.AsType[*weft.EventsGoneError](err); gone && r.Cursor != "" {
			r.Cursor = ""
			continue
		}
		if err != nil {
			return r.Cursor, err
		}
		for _, ev := range page.Data {
			if err := e.printEvent(ev.ID, checkpoint.Checkpoint{Number: ev.Checkpoint, Time: ev.Time}, ev.Event); err != nil {
				return r.Cursor, err
			}
		}
		if r.Cursor = page.Next; !page.HasMore {
			return r.Cursor, nil
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
