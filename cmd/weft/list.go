package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/storage"
)

type list struct {
	filter
	Limit       int    `default:"50" placeholder:"N" help:"Show at most N (default 50). 0 shows all."`
	Cursor      string `placeholder:"CURSOR" help:"Continue where a page ended. The page before says with which cursor. Repeat the other flags as they were."`
	OldestFirst bool   `help:"List the oldest first."`
}

// mostPage is the most workflows that the engine reads at once.
const mostPage = 1000

func (l *list) Run(e *env) error {
	if l.Limit < 0 {
		return misuse("the limit %d is negative", l.Limit)
	}
	f, err := l.selects(time.Now())
	if err != nil {
		return err
	}
	p := paged{Limit: l.Limit, OldestFirst: l.OldestFirst}
	if l.Cursor != "" {
		if p.Cursor, err = l.resume(&f, l.Cursor); err != nil {
			return err
		}
	}
	return e.reading(func(c *client) error {
		return listed(e, p, func(r weft.PageRequest) (weft.Page[weft.Info], error) { return c.Page(e, f, r) },
			func(next string) string { return l.cursorOf(f, next) })
	})
}

// listed prints pages of workflows. If some could not be read, they are printed, and it returns an error.
func listed(e *env, p paged, read func(weft.PageRequest) (weft.Page[weft.Info], error), cursor func(next string) string) error {
	t, unreadable := newList(e), 0
	show := func(i weft.Info) error {
		if i.Damaged != "" {
			unreadable++
		}
		t.add(i)
		return nil
	}
	if err := pages(e, p, read, show, t.end, cursor); err != nil {
		return err
	}
	return unread(unreadable)
}

type count struct {
	filter
	Most int `default:"10000" placeholder:"N" help:"Stop at N (default 10000)."`
}

func (n *count) Run(e *env) error {
	if n.Most < 1 {
		return misuse("--most %d is less than 1", n.Most)
	}
	f, err := n.selects(time.Now())
	if err != nil {
		return err
	}
	return e.reading(func(c *client) error {
		found, all, err := c.Count(e, f, n.Most)
		switch {
		case err != nil:
			return err
		case e.JSON:
			return printJSON(e.out, countJSON{found, all})
		case !all:
			_, err = fmt.Fprintln(e.out, "at least", found)
		default:
			_, err = fmt.Fprintln(e.out, found)
		}
		return err
	})
}

// damaged reports whether an error of List is about one workflow, and others follow.
func damaged(err error) bool {
	return errors.Is(err, storage.ErrCorrupt) || errors.Is(err, storage.ErrFutureFormat)
}

func unread(n int) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("workflows that could not be read: %d; their lines say why", n)
}

// A listing prints workflows as a table or as JSON.
type listing struct {
	e *env
	t table
}

func newList(e *env) *listing {
	l := &listing{e: e}
	if !e.JSON {
		l.t = newTable(e.out, "ID", "WORKFLOW", "STATUS", "CREATED", "DETAIL")
	}
	return l
}

func (l *listing) add(i weft.Info) {
	w := workflowOf(i)
	w.Error = i.Damaged
	if l.e.JSON {
		_ = printJSON(l.e.out, w) // an error of the output is returned when it is flushed
		return
	}
	status := or(text(w.Status))
	if i.Damaged != "" {
		status = "unreadable"
	}
	l.t.row(word(i.ID), or(text(i.Workflow)), status, at(i.CreatedAt), or(detail(i)))
}

func (l *listing) end() {
	if !l.e.JSON {
		l.t.end()
	}
}

// detail says what matters most about a workflow.
func detail(i weft.Info) string {
	const most = 80
	switch {
	case i.Damaged != "":
		return cut(text(i.Damaged), most)
	case len(i.Attention) > 0:
		a := i.Attention[0]
		s := "needs an operator: " + string(a.Reason)
		if a.Operation != "" {
			s += " at " + a.Operation
		}
		return cut(text(s), most)
	case i.Status.Terminal():
		return "ended " + at(i.EndedAt)
	case i.Cancel != nil:
		return "is asked to stop"
	case len(i.Waiting) > 0:
		return cut(text("waits for "+i.Waiting[0]), most)
	}
	return ""
}
