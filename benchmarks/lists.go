package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/future"
)

// listed measures pages of 100 workflows, and the few that run among many that have ended.
var listed = &Workload{Name: "w9", Title: "W9: a page of 100 workflows, of few and of many", Stores: []string{"sqlite", "bolt", "pebble", "postgres"}, Parts: only(lists)}

// fewListed is how many workflows there are at first.
const fewListed = 1000

// mostListed returns how many there are at the end: WEFT_LISTED, or as many as the size says.
func mostListed(s Size) int {
	if n, err := strconv.Atoi(os.Getenv("WEFT_LISTED")); err == nil {
		return n
	}
	return s.Listed
}

func lists(ctx context.Context, c *Child) (err error) {
	s, err := openStore(ctx, c.site)
	if err != nil {
		return err
	}
	defer s.Close()
	quick := &engine.Workflow[string, string]{Name: "quick", Func: func(*engine.Run, string) (string, error) { return "", nil }}
	waits := &engine.Workflow[string, string]{Name: "waits", Func: func(run *engine.Run, _ string) (string, error) {
		return "", run.Sleep(24 * time.Hour)
	}}
	parent := &engine.Workflow[int, string]{Name: "parent", Func: func(run *engine.Run, n int) (string, error) {
		var begun []*future.Future[string]
		for i := range n {
			begun = append(begun, waits.AsChild(engine.ChildOptions{ID: fmt.Sprint("child-", i), OnParentEnd: engine.ParentEndAbandon}).Go(run, ""))
		}
		for _, f := range begun {
			if _, err := f.Get(run); err != nil {
				return "", err
			}
		}
		return "", nil
	}}
	e, err := engine.New(engine.Config{Storage: s, Workflows: []engine.Definition{quick, waits, parent}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer e.Close()
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- e.Run(running) }()
	defer func() { stop(); <-ended }()
	const children = 120
	h, err := parent.Start(ctx, e, "parent", children)
	if err != nil {
		return err
	}
	started := 0
	fill := func(n int) error {
		first := started
		if err := each(ctx, n-first, crowd, func(i int) error {
			labelled := quick.With(engine.StartOptions{Labels: map[string]string{"team": fmt.Sprint(i % 5)}})
			h, err := labelled.Start(ctx, e, fmt.Sprintf("run-%09d", first+i), "")
			if err != nil {
				return err
			}
			_, err = h.Result(ctx)
			return err
		}); err != nil {
			return err
		}
		started = n
		return nil
	}
	filters := []struct {
		name string
		f    engine.Filter
	}{
		{"all", engine.Filter{}},
		{"a type", engine.Filter{Workflow: "quick"}},
		{"a status", engine.Filter{Status: checkpoint.StatusCompleted}},
		{"the running", engine.Filter{Status: checkpoint.StatusRunning}},
		{"a type and a status", engine.Filter{Workflow: "quick", Status: checkpoint.StatusCompleted}},
		{"a label", engine.Filter{Labels: map[string]string{"team": "3"}}},
		{"a label and a status", engine.Filter{Labels: map[string]string{"team": "3"}, Status: checkpoint.StatusCompleted}},
		{"a parent", engine.Filter{Parent: h.ID()}},
		{"ids", engine.Filter{IDPrefix: "run-0000"}},
		{"Attention", engine.Filter{Attention: true}},
	}
	measure := func(n int) error {
		for _, f := range filters {
			page := func(cursor string) (engine.Page[engine.Info], error) {
				return e.Page(ctx, f.f, engine.PageRequest{Cursor: cursor})
			}
			first, err := page("")
			if err != nil {
				return err
			}
			var took []time.Duration
			for range c.Repeat {
				began := time.Now()
				if _, err := page(""); err != nil {
					return err
				}
				took = append(took, time.Since(began))
				if first.HasMore { // the second page, too
					began := time.Now()
					if _, err := page(first.Next); err != nil {
						return err
					}
					took = append(took, time.Since(began))
				}
			}
			slices.Sort(took)
			c.report(fmt.Sprintf("%s, of %d, ms", f.name, n), milliseconds(took[len(took)/2]))
		}
		return nil
	}
	for _, n := range []int{fewListed, mostListed(c.Size)} {
		if err := fill(n); err != nil {
			return err
		}
		if err := measure(n); err != nil {
			return err
		}
	}
	return nil
}
