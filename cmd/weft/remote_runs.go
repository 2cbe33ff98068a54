package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	remote "github.com/weft-go/weft/client"
	"github.com/weft-go/weft/control/wire"
)

// runs are the verbs about runs of a control plane.
type runs struct {
	List      runsList      `cmd:"" help:"List runs, a page at a time, newest first."`
	Get       runsGet       `cmd:"" help:"Show a run, with its input and its result."`
	Start     runsStart     `cmd:"" help:"Start a run. Prints its id."`
	Result    runsResult    `cmd:"" help:"Wait until a run has ended, and print its result. Fails unless it completes."`
	Events    runsEvents    `cmd:"" help:"Show the events of a run, oldest first."`
	Stream    runsStream    `cmd:"" help:"Print the chunks of a stream of a run as they come, until the stream is closed or the run ends."`
	Values    runsValues    `cmd:"" help:"Show the values that a run has published, such as how far it is."`
	Update    runsUpdate    `cmd:"" help:"Ask a run to do something, and print its answer. Fails if the run refuses it."`
	Cancel    runsCancel    `cmd:"" help:"Ask a run to stop."`
	Terminate runsTerminate `cmd:"" help:"End a run at once, without asking it and without undoing anything."`
	Resume    runsResume    `cmd:"" help:"Continue a run that has failed, or that is held for an operator."`
	Reset     runsReset     `cmd:"" help:"Take a run back to before an operation of its history, from where it runs again."`
	Resolve   runsResolve   `cmd:"" help:"Set the outcome of an operation that nobody knows."`
	Purge     runsPurge     `cmd:"" help:"Remove a run that has ended."`
}

// paged are the flags of a list.
type paged struct {
	Limit       int    `default:"50" placeholder:"N" help:"Show at most N (default 50). 0 shows all."`
	Cursor      string `placeholder:"CURSOR" help:"Continue where a page ended. Repeat the other flags as they were."`
	OldestFirst bool   `help:"List the oldest first."`
}

// pages calls read for one page after the other, and show for each item, up to the limit. cursor is what the user continues with.
func pages[T any](e *env, p paged, read func(weft.PageRequest) (weft.Page[T], error), show func(T) error, end func(), cursor func(next string) string) error {
	if p.Limit < 0 {
		return misuse("the limit %d is negative", p.Limit)
	}
	r, shown := weft.PageRequest{Cursor: p.Cursor, Ascending: p.OldestFirst}, 0
	for more := true; more; {
		r.Limit = mostPage
		if p.Limit > 0 {
			r.Limit = min(p.Limit-shown, mostPage)
		}
		found, err := read(r)
		if err != nil {
			return err
		}
		for _, item := range found.Data {
			if err := show(item); err != nil {
				return err
			}
		}
		shown += len(found.Data)
		r.Cursor, more = found.Next, found.HasMore
		if more && p.Limit > 0 && shown == p.Limit {
			end()
			e.note("there may be more: continue with --cursor %s", cursor(found.Next))
			return nil
		}
	}
	end()
	return nil
}

// tabled prints the items of pages as a table, or as JSON.
func tabled[T any](e *env, p paged, columns []string, read func(weft.PageRequest) (weft.Page[T], error), cells func(T) []string) error {
	var t table
	if !e.JSON {
		t = newTable(e.out, columns...)
	}
	return pages(e, p, read, func(item T) error {
		if e.JSON {
			return printJSON(e.out, item)
		}
		t.row(cells(item)...)
		return nil
	}, func() {
		if !e.JSON {
			t.end()
		}
	}, word)
}

type runsList struct {
	plane
	paged
	selecting
}

// selecting are the flags that select runs of a control plane.
type selecting struct {
	Workflow   string   `placeholder:"NAME" help:"Only runs of this workflow."`
	Status     string   `enum:",pending,running,completed,failed,cancelled" default:"" placeholder:"STATUS" help:"Only runs with this status: pending, running, completed, failed or cancelled."`
	Label      []string `sep:"none" placeholder:"NAME=VALUE" help:"Only runs with this label. Repeat it for several."`
	Attention  bool     `help:"Only runs that need an operator."`
	Parent     string   `placeholder:"ID" help:"Only the children of this run."`
	Deployment string   `placeholder:"ID" help:"Only runs that are bound to this deployment."`
}

func (s *selecting) selects() (weft.Filter, error) {
	labels, err := labelsOf(s.Label)
	return weft.Filter{Workflow: s.Workflow, Status: checkpoint.Status(s.Status), Labels: labels, Attention: s.Attention, Parent: s.Parent, Deployment: s.Deployment}, err
}

func (l *runsList) Run(e *env) error {
	f, err := l.selects()
	if err != nil {
		return err
	}
	return e.remotely(l.plane, func(c *remote.Client) error {
		return listed(e, l.paged, func(r weft.PageRequest) (weft.Page[weft.Info], error) { return c.Page(e, f, r) }, word)
	})
}

// oneRun is what a verb needs to know that is about a run.
type oneRun struct {
	plane
	ID string `arg:"" help:"The id of the run."`
}

type runsGet struct{ oneRun }

func (x *runsGet) Run(e *env) error {
	return e.remotely(x.plane, func(c *remote.Client) error {
		r, err := c.Get(e, x.ID)
		if err != nil {
			return err
		}
		if e.JSON {
			return printJSON(e.out, r)
		}
		fmt.Fprintf(e.out, "%s is %s\n\n", word(r.RunID), text(r.Status))
		t := newTable(e.out)
		row := func(name, value string) {
			if value != "" && value != "-" {
				t.row("  "+name, value)
			}
		}
		row("workflow", text(r.WorkflowName))
		row("deployment", text(r.DeploymentID))
		row("queue", text(r.Queue))
		row("created", at(r.CreatedAt))
		row("started", at(r.StartedAt))
		row("ended", at(r.EndedAt))
		for _, name := range sortedKeys(r.Labels) {
			row("label", word(name+"="+r.Labels[name]))
		}
		row("input", shownJSON(r.Input))
		row("result", shownJSON(r.Output))
		if r.Error != nil {
			row("error", text(r.Error.Message))
		}
		if c := r.Cancel; c != nil {
			row("stop", stopped(weft.Cancellation{By: c.By, Reason: c.Reason, At: c.At, Terminated: c.Terminated}))
		}
		for _, w := range r.Waiting {
			row("waits for", text(w))
		}
		for _, a := range r.Attention {
			row("attention", text(strings.TrimSpace(a.Reason+" "+a.Operation+" "+a.Detail)))
		}
		t.end()
		return nil
	})
}

// shownJSON returns JSON for a reader, or "" if there is none.
func shownJSON(data json.RawMessage) string {
	if len(data) == 0 {
		return ""
	}
	return payload(data, "", 1000)
}

type runsStart struct {
	plane
	starting
	IdempotencyKey string `placeholder:"KEY" help:"The same key again, with the same arguments, starts nothing and prints the same id."`
}

func (s *runsStart) Run(e *env) error {
	r, err := s.request(e)
	if err != nil {
		return err
	}
	key := s.IdempotencyKey
	if key == "" {
		key = rand.Text()
	}
	return e.remotely(s.plane, func(c *remote.Client) error {
		i, err := c.StartWorkflow(remote.WithIdempotencyKey(e, key), r)
		if err != nil {
			return e.again(err, "--idempotency-key "+word(key))
		}
		return e.started(i)
	})
}

type runsResult struct{ oneRun }

func (x *runsResult) Run(e *env) error {
	return e.remotely(x.plane, func(c *remote.Client) error {
		var result json.RawMessage
		if err := c.Result(e, x.ID, "", &result); err != nil {
			return err
		}
		return printJSON(e.out, result)
	})
}

type runsEvents struct {
	plane
	ID     string `arg:"" help:"The id of the run."`
	Limit  int    `default:"0" placeholder:"N" help:"Show at most N. By default all."`
	Cursor string `placeholder:"CURSOR" help:"Continue where a page ended."`
}

func (x *runsEvents) Run(e *env) error {
	return e.remotely(x.plane, func(c *remote.Client) error {
		return tabled(e, paged{Limit: x.Limit, Cursor: x.Cursor, OldestFirst: true}, []string{"TIME", "EVENT", "OPERATION", "WHAT", "DETAIL"},
			func(r weft.PageRequest) (weft.Page[wire.Event], error) { return c.Events(e, x.ID, r) },
			func(v wire.Event) []string {
				return []string{exactly(v.CreatedAt), or(text(v.Kind)), or(text(v.Operation)), or(text(strings.TrimSpace(v.Of + " " + v.Name))), or(eventDetail(v))}
			})
	})
}

// eventDetail says who did what an event tells, why, and what came of it.
func eventDetail(v wire.Event) string {
	detail := shownJSON(v.Result)
	if v.Error != nil {
		detail = text(v.Error.Message)
	}
	all := []string{cut(text(v.Reason), most), cut(detail, 80)}
	if v.By != "" {
		all = append([]string{"by " + text(v.By)}, all...)
	}
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), ": ")
}

type runsValues struct{ oneRun }

func (x *runsValues) Run(e *env) error {
	return e.remotely(x.plane, func(c *remote.Client) error { return e.listValues(c.Values(e, x.ID)) })
}

type runsUpdate struct {
	oneRun
	Name     string `arg:"" help:"The name of the update."`
	UpdateID string `name:"id" placeholder:"ID" help:"The id of the update. The same id again is the same update and gets the same answer. By default one is generated."`
	Input    string `default:"null" placeholder:"JSON" help:"The input: JSON, @FILE, or - for standard input (default null)."`
}

func (x *runsUpdate) Run(e *env) error {
	input, err := e.payload("input", x.Input)
	if err != nil {
		return err
	}
	id := x.UpdateID
	if id == "" {
		id = "upd_" + rand.Text()
	}
	return e.remotely(x.plane, func(c *remote.Client) error {
		var answer json.RawMessage
		if err := c.CallUpdate(e, &weft.UpdateRequest{WorkflowID: x.ID, Update: x.Name, ID: &id, Input: input}, &answer); err != nil {
			return e.again(err, "--id "+word(id))
		}
		return printJSON(e.out, answer)
	})
}

// An action is a verb about a run that only needs to know why.
type action struct {
	oneRun
	sure
}

// do calls f, and prints that it is done.
func (x *action) do(e *env, done string, f func(c *remote.Client, by weft.Actor) error) error {
	return e.remotely(x.plane, func(c *remote.Client) error {
		if err := f(c, x.by()); err != nil {
			return err
		}
		return e.done(x.ID, done)
	})
}

type runsCancel struct{ action }

func (x *runsCancel) Run(e *env) error {
	return x.do(e, "is asked to stop", func(c *remote.Client, by weft.Actor) error { return c.Cancel(e, x.ID, by) })
}

type runsTerminate struct {
	oneRun
	Reason string `required:"" placeholder:"TEXT" help:"Why. The history and the audit trail keep it."`
}

func (x *runsTerminate) Run(e *env) error {
	return e.remotely(x.plane, func(c *remote.Client) error {
		if err := c.Terminate(e, x.ID, weft.Actor{Reason: x.Reason}); err != nil {
			return err
		}
		return e.done(x.ID, "is terminated")
	})
}

type runsResume struct{ action }

func (x *runsResume) Run(e *env) error {
	return x.do(e, "continues", func(c *remote.Client, by weft.Actor) error { return c.Resume(e, x.ID, by) })
}

type runsReset struct {
	action
	before
}

func (x *runsReset) Run(e *env) error {
	op, err := x.operation()
	if err != nil {
		return err
	}
	return x.do(e, "is reset", func(c *remote.Client, by weft.Actor) error { return c.Reset(e, x.ID, op, by) })
}

type runsPurge struct{ action }

func (x *runsPurge) Run(e *env) error {
	return x.do(e, "is purged", func(c *remote.Client, by weft.Actor) error { return c.Purge(e, x.ID, by) })
}

type runsResolve struct {
	oneRun
	Operation string `arg:"" help:"The operation that its attention names, such as 3, or 3.undo."`
	As        string `required:"" enum:"completed,result-unavailable,not-completed,failed" placeholder:"OUTCOME" help:"What happened: completed, with its --result, except for an undo; result-unavailable; not-completed, so that it is attempted again; failed, so that it is not."`
	Result    string `placeholder:"JSON" help:"The result: JSON, @FILE, or - for standard input."`
	Reason    string `required:"" placeholder:"TEXT" help:"Why. The history and the audit trail keep it."`
}

func (x *runsResolve) Run(e *env) error {
	a := remote.Answer{Outcome: remote.Outcome(x.As)}
	switch {
	case a.Outcome == remote.Completed && x.Result == "" && !strings.HasSuffix(x.Operation, ".undo"):
		return misuse("--as completed needs the --result of the activity, such as null; without one say --as result-unavailable")
	case a.Outcome != remote.Completed && x.Result != "":
		return misuse("--result goes with --as completed only")
	}
	if x.Result != "" {
		result, err := e.payload("result", x.Result)
		if err != nil {
			return err
		}
		a.Result = result
	}
	if a.Outcome == remote.Failed {
		a.Error = x.Reason
	}
	return e.remotely(x.plane, func(c *remote.Client) error {
		if err := c.Resolve(e, x.ID, x.Operation, a, weft.Actor{Reason: x.Reason}); err != nil {
			return err
		}
		return e.done(x.ID, "operation "+text(x.Operation)+" is resolved")
	})
}

// signals are the verbs about signals of runs of a control plane.
type signals struct {
	Send  signalsSend  `cmd:"" help:"Send a signal to a run. Prints the id of the signal."`
	List  signalsList  `cmd:"" help:"List the signals that a run has not received."`
	Clear signalsClear `cmd:"" help:"Remove a signal that a run has not received."`
}

type signalsSend struct {
	plane
	sending
}

func (s *signalsSend) Run(e *env) error {
	m, err := s.message(e)
	if err != nil {
		return err
	}
	return e.remotely(s.plane, func(c *remote.Client) error { return e.send(m, c.SendSignal) })
}

type signalsList struct {
	oneRun
	paged
}

func (x *signalsList) Run(e *env) error {
	return e.remotely(x.plane, func(c *remote.Client) error {
		return tabled(e, x.paged, []string{"NAME", "ID", "ACCEPTED", "BYTES", "DETAIL"},
			func(r weft.PageRequest) (weft.Page[weft.SignalInfo], error) { return c.Signals(e, x.ID, r) },
			func(s weft.SignalInfo) []string {
				detail := ""
				if s.Indeterminate {
					detail = "its acceptance is indeterminate"
				}
				return []string{word(s.Name), word(s.ID), at(s.AcceptedAt), fmt.Sprint(s.Bytes), or(detail)}
			})
	})
}

type signalsClear struct {
	action
	Name     string `arg:"" help:"The name of the signal."`
	SignalID string `arg:"" help:"The id of the signal."`
}

func (x *signalsClear) Run(e *env) error {
	return x.do(e, "the signal is removed", func(c *remote.Client, by weft.Actor) error {
		return c.ClearSignal(e, x.ID, x.Name, x.SignalID, by)
	})
}

// audit lists the audit trail.
type audit struct {
	plane
	paged
	Action string `placeholder:"OPERATION" help:"Only rows of this operation, such as runs.create."`
	Result string `enum:",success,failure" default:"" placeholder:"RESULT" help:"Only rows with this result: success or failure."`
	KeyID  string `name:"key-id" placeholder:"ID" help:"Only rows of this key."`
	RunID  string `name:"run" placeholder:"ID" help:"Only rows about this run."`
	Since  string `placeholder:"TIME" help:"Only rows of this time or later: a time such as 2026-07-29T10:00:00Z, or how long ago, such as 2h."`
	Until  string `placeholder:"TIME" help:"Only rows before this time."`
}

func (x *audit) Run(e *env) error {
	now := time.Now()
	from, err := timeOf("since", x.Since, now)
	if err != nil {
		return err
	}
	to, err := timeOf("until", x.Until, now)
	if err != nil {
		return err
	}
	f := remote.AuditFilter{Action: x.Action, Result: x.Result, KeyID: x.KeyID, RunID: x.RunID, From: from, To: to}
	return e.remotely(x.plane, func(c *remote.Client) error {
		return tabled(e, x.paged, []string{"TIME", "KEY", "OPERATION", "RESULT", "RESOURCE", "DETAIL"},
			func(r weft.PageRequest) (weft.Page[wire.AuditRow], error) { return c.Audit(e, f, r) },
			func(a wire.AuditRow) []string {
				return []string{exactly(a.CreatedAt), or(word(a.KeyID)), or(text(a.Action)), or(text(a.Result)), or(text(a.Resource)), or(auditDetail(a.Metadata))}
			})
	})
}

// auditDetail says what matters most about a row.
func auditDetail(m wire.AuditMetadata) string {
	var all []string
	if m.Code != "" {
		all = append(all, m.Code)
	}
	if m.Deduped {
		all = append(all, "deduped")
	}
	if m.Count > 1 {
		all = append(all, fmt.Sprintf("%d times", m.Count))
	}
	if m.Reason != "" {
		all = append(all, m.Reason)
	}
	return cut(text(strings.Join(all, ", ")), 80)
}

// validateOwnership asks for the diagnostics of the control plane. HTTP-104
type validateOwnership struct {
	plane
	Strict bool `help:"Exit with 2 if there are warnings."`
}

func (x *validateOwnership) Run(e *env) error {
	return e.remotely(x.plane, func(c *remote.Client) error {
		o, err := c.Ownership(e)
		if err != nil {
			return err
		}
		if e.JSON {
			err = printJSON(e.out, o)
		} else {
			_, err = fmt.Fprintf(e.out, "ownership: %s: %d unexpected requests, %d of them within 15 minutes\n", text(o.Status), o.LifetimeUnexpectedHits, o.UnexpectedHitsLast15M)
		}
		if err != nil {
			return err
		}
		return ownershipExit(o.Status, x.Strict)
	})
}

// ownershipExit returns the exit code for a status.
func ownershipExit(status string, strict bool) error {
	switch {
	case status == "pass", status == "warn" && !strict:
		return nil
	case status == "warn":
		return exitCode(exitWarned)
	}
	return exitCode(exitFailed)
}
