package main

import (
	"errors"
	"fmt"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/storage"
)

type list struct {
	Workflow  string `placeholder:"NAME" help:"Only those of this workflow."`
	Status    string `enum:"any,pending,running,completed,failed,cancelled" default:"any" placeholder:"STATUS" help:"Only those with this status: pending, running, completed, failed or cancelled."`
	Attention bool   `help:"Only those that need an operator."`
	Parent    string `placeholder:"ID" help:"Only the children of this workflow."`
	Limit     int    `default:"50" placeholder:"N" help:"Show at most N (default 50). 0 shows all."`
	After     string `placeholder:"ID" help:"Continue after this workflow, the last one of the page before."`
}

func (l *list) Run(e *env) error {
	if l.Limit < 0 {
		return misuse("the limit %d is negative", l.Limit)
	}
	return e.reading(func(c *client) error { return l.print(e, c) })
}

// print filters here and not in List, because the page begins after a workflow that the filter
// may not select any more.
func (l *list) print(e *env, c *client) error {
	t := newList(e)
	shown, unreadable, begun, last := 0, 0, l.After == "", ""
	for i, err := range c.List(e, weft.Filter{}) {
		switch {
		case err != nil && !damaged(err):
			return err
		case !begun:
			begun = i.ID == l.After
			continue
		case err == nil && !l.selects(i):
			continue
		case l.Limit > 0 && shown == l.Limit:
			t.end()
			fmt.Fprintf(e.notes, "weft: there are more: continue with --after %s\n", word(last))
			return unread(unreadable)
		}
		if err != nil {
			unreadable++
		}
		t.add(i, err)
		shown, last = shown+1, i.ID
	}
	t.end()
	if !begun {
		return fmt.Errorf("workflow %q of --after is not there any more: begin again without it", l.After)
	}
	return unread(unreadable)
}

func (l *list) selects(i weft.Info) bool {
	return (l.Workflow == "" || l.Workflow == i.Workflow) &&
		(l.Status == "any" || checkpoint.Status(l.Status) == i.Status) &&
		(l.Parent == "" || l.Parent == i.Parent) &&
		(!l.Attention || len(i.Attention) > 0)
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

func (l *listing) add(i weft.Info, err error) {
	w := workflowOf(i)
	if err != nil {
		w.Error = err.Error()
	}
	if l.e.JSON {
		_ = printJSON(l.e.out, w) // an error of the output is returned when it is flushed
		return
	}
	status := or(w.Status)
	if err != nil {
		status = "unreadable"
	}
	l.t.row(word(i.ID), or(text(i.Workflow)), status, at(i.CreatedAt), or(detail(i, err)))
}

func (l *listing) end() {
	if !l.e.JSON {
		l.t.end()
	}
}

// detail says what matters most about a workflow.
func detail(i weft.Info, err error) string {
	const most = 80
	switch {
	case err != nil:
		return cut(text(err.Error()), most)
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
