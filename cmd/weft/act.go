package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	remote "github.com/weft-go/weft/client"
	"github.com/weft-go/weft/signal"
)

// Verbs that change the store. Each operator's verb is a type with an actor, whose Run calls
// act: a new one is added beside them, and to command.

// starting is what is to be started, here or over a control plane.
type starting struct {
	Workflow   string   `arg:"" help:"The name of the workflow."`
	ID         string   `arg:"" optional:"" help:"Its id. By default one is generated, and a start that is repeated is another workflow."`
	Input      string   `default:"null" placeholder:"JSON" help:"The input: JSON, @FILE, or - for standard input (default null)."`
	Queue      string   `placeholder:"NAME" help:"The queue in which it waits."`
	Deployment string   `placeholder:"ID" help:"The deployment that executes it and its children, whichever is active."`
	Label      []string `sep:"none" placeholder:"NAME=VALUE" help:"A label by which weft list finds it. Repeat it for several."`
}

// request reads the input and the labels.
func (s *starting) request(e *env) (*weft.StartRequest, error) {
	input, err := e.payload("input", s.Input)
	if err != nil {
		return nil, err
	}
	labels, err := labelsOf(s.Label)
	if err != nil {
		return nil, err
	}
	options := weft.StartOptions{Queue: s.Queue, Deployment: s.Deployment, Labels: labels}
	return &weft.StartRequest{Workflow: s.Workflow, ID: s.ID, Input: input, Options: options}, nil
}

// started prints the id of what was started.
func (e *env) started(i weft.Info) error {
	if e.JSON {
		return printJSON(e.out, workflowOf(i))
	}
	_, err := fmt.Fprintln(e.out, word(i.ID))
	return err
}

type start struct{ starting }

func (s *start) Run(e *env) error {
	r, err := s.request(e)
	if err != nil {
		return err
	}
	return e.writing(func(c *client) error {
		i, err := c.StartWorkflow(e, r)
		if err != nil {
			return err
		}
		if !e.JSON {
			c.warn(e, i)
		}
		return e.started(i)
	})
}

// warn says if no living engine executes what was started.
func (c *client) warn(e *env, i weft.Info) {
	all, err := c.Engines(e)
	if err != nil {
		return
	}
	has, alive := c.workflows(all)
	switch {
	case alive && !slices.Contains(has, i.Workflow):
		e.note("no living engine has a workflow %s; they have: %s", word(i.Workflow), or(names(has)))
	case alive && i.Deployment != "" && !slices.ContainsFunc(all, func(g weft.EngineInfo) bool { return c.mayLive(g) && g.Deployment == i.Deployment }):
		e.note("no living engine is of deployment %s: it waits for one", word(i.Deployment))
	}
}

// sending is a signal that is to be sent, here or over a control plane.
type sending struct {
	Workflow string `arg:"" name:"id" help:"The id of the workflow."`
	Name     string `arg:"" help:"The name of the signal."`
	ID       string `name:"id" placeholder:"ID" help:"The id of the signal. The same id again is accepted once. By default one is generated."`
	Payload  string `default:"null" placeholder:"JSON" help:"The payload: JSON, @FILE, or - for standard input (default null)."`
}

// message reads the payload.
func (s *sending) message(e *env) (signal.Message, error) {
	payload, err := e.payload("payload", s.Payload)
	m := signal.Message{WorkflowID: s.Workflow, Name: s.Name, Payload: payload}
	if s.ID != "" {
		m.ID = &s.ID
	}
	return m, err
}

// send sends a signal by a client, and prints its id. A signal without an ID gets one here: so the same signal can be sent
// again if nobody knows whether it was accepted.
func (e *env) send(m signal.Message, client func(context.Context, signal.Message) (signal.Accepted, error)) error {
	if m.ID == nil {
		id := "sig_" + rand.Text()
		m.ID = &id
	}
	a, err := client(e, m)
	if err != nil {
		return e.again(err, "--id "+word(*m.ID))
	}
	if e.JSON {
		return printJSON(e.out, a)
	}
	_, err = fmt.Fprintln(e.out, word(a.SignalID))
	return err
}

type send struct{ sending }

func (s *send) Run(e *env) error {
	m, err := s.message(e)
	if err != nil {
		return err
	}
	return e.writing(func(c *client) error { return e.send(m, c.SendSignal) })
}

// again returns err. If nobody knows whether the call took effect, it notes the flags with which a repetition is the same call.
func (e *env) again(err error, flags string) error {
	interrupted, _ := errors.AsType[*weft.InterruptedError](err)
	failed, _ := errors.AsType[*remote.Error](err)
	if interrupted != nil && interrupted.Unknown || failed != nil && failed.Unknown {
		e.note("to make the same call again, repeat this with %s", flags)
	}
	return err
}

// payload returns JSON that was given as a flag, in a file or on standard input.
func (e *env) payload(what, given string) (json.RawMessage, error) {
	raw, err := []byte(given), error(nil)
	if given == "-" {
		raw, err = io.ReadAll(io.LimitReader(e.in, weft.MaxPayload+1))
	} else if file, ok := strings.CutPrefix(given, "@"); ok {
		raw, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, misuse("read the %s: %w", what, err)
	}
	if !json.Valid(raw) {
		return nil, misuse("the %s is not JSON: a string needs double quotes within the quotes of the shell", what)
	}
	return raw, nil
}

// actor is who acts, and why.
type actor struct {
	By     string `default:"${user}" placeholder:"NAME" help:"Who acts (default ${default})."`
	Reason string `required:"" placeholder:"TEXT" help:"Why. The history keeps it."`
}

func (a actor) actor() weft.Actor { return weft.Actor{Name: a.By, Reason: a.Reason} }

// onWorkflow is what an operator's verb needs to know that is about a whole workflow.
type onWorkflow struct {
	ID string `arg:"" help:"The id of the workflow."`
	actor
}

// act calls do with a client that can write, and prints that it is done.
func (e *env) act(id, done string, a actor, do func(c *client, by weft.Actor) error) error {
	if strings.TrimSpace(a.By) == "" || strings.TrimSpace(a.Reason) == "" {
		return misuse("%s needs a --by and a --reason that are not empty", e.verb)
	}
	return e.writing(func(c *client) error {
		if err := do(c, a.actor()); err != nil {
			return err
		}
		return e.done(id, done)
	})
}

// done prints that a verb about id has done something.
func (e *env) done(id, what string) error {
	if e.JSON {
		return printJSON(e.out, struct {
			ID   string `json:"id"`
			Done string `json:"done"`
		}{id, e.verb})
	}
	_, err := fmt.Fprintf(e.out, "%s: %s\n", word(id), what)
	return err
}

type cancelRun struct{ onWorkflow }

func (x *cancelRun) Run(e *env) error {
	return e.act(x.ID, "is asked to stop", x.actor, func(c *client, by weft.Actor) error {
		if err := c.Cancel(e, x.ID, by); err != nil {
			return err
		}
		i, err := c.Describe(e, x.ID)
		waits := slices.ContainsFunc(i.Attention, func(a weft.Attention) bool { return a.Reason == weft.ReasonUnregistered })
		if err == nil && (waits || slices.Contains(i.Waiting, noEngine)) {
			e.note("no engine executes it, so it does not stop before one does; weft terminate ends it at once")
		}
		return nil
	})
}

type terminate struct{ onWorkflow }

func (x *terminate) Run(e *env) error {
	return e.act(x.ID, "is terminated", x.actor, func(c *client, by weft.Actor) error {
		if err := c.Terminate(e, x.ID, by); err != nil {
			return err
		}
		v := newView()
		_, v.resets, _ = c.preamble(e, x.ID)
		v.learnAll(e, c, x.ID, func(error) {}) // it may have been purged meanwhile
		for _, o := range v.operations {
			if o.State == givenUp && o.Of == "activity" && o.Key != "" {
				e.note("operation %s (%s) was in progress, and may have happened: ask the other system about key %s", text(o.Operation), text(o.Name), word(o.Key))
			}
		}
		return nil
	})
}

type resume struct{ onWorkflow }

func (x *resume) Run(e *env) error {
	return e.act(x.ID, "continues", x.actor, func(c *client, by weft.Actor) error { return c.Resume(e, x.ID, by) })
}

// before is where a reset goes back to.
type before struct {
	Before string `arg:"" help:"The operation, such as 3 or 3.1, as the history shows it, or start."`
}

// operation returns the operation for the engine, to which the start is none. An empty argument is
// a mistake, such as a variable of a script that is not set.
func (b before) operation() (string, error) {
	switch b.Before {
	case "":
		return "", misuse("the operation to go back to is empty: name one that weft history shows, or start")
	case "start":
		return "", nil
	}
	return b.Before, nil
}

type resetRun struct {
	onWorkflow
	before
}

func (x *resetRun) Run(e *env) error {
	op, err := x.operation()
	if err != nil {
		return err
	}
	return e.act(x.ID, "is reset", x.actor, func(c *client, by weft.Actor) error { return c.Reset(e, x.ID, op, by) })
}

type purge struct{ onWorkflow }

func (x *purge) Run(e *env) error {
	return e.act(x.ID, "is purged", x.actor, func(c *client, by weft.Actor) error { return c.Purge(e, x.ID, by) })
}

type protect struct{ onWorkflow }

func (x *protect) Run(e *env) error {
	return e.act(x.ID, "is protected", x.actor, func(c *client, by weft.Actor) error { return c.Protect(e, x.ID, by) })
}

type unprotect struct{ onWorkflow }

func (x *unprotect) Run(e *env) error {
	return e.act(x.ID, "is not protected", x.actor, func(c *client, by weft.Actor) error { return c.Unprotect(e, x.ID, by) })
}

type deleteRun struct{ onWorkflow }

func (x *deleteRun) Run(e *env) error {
	return e.act(x.ID, "is deleted", x.actor, func(c *client, by weft.Actor) error { return c.Delete(e, x.ID, by) })
}

type relabel struct {
	ID     string   `arg:"" help:"The id of the workflow."`
	Labels []string `arg:"" name:"label" help:"NAME=VALUE sets a label, and NAME= removes one. Several may be given."`
	actor
}

func (x *relabel) Run(e *env) error {
	set, gone := []string{}, map[string]bool{}
	for _, l := range x.Labels {
		if name, removed := strings.CutSuffix(l, "="); removed && name != "" && !strings.Contains(name, "=") {
			gone[name] = true
			continue
		}
		set = append(set, l)
	}
	changes, err := labelsOf(set)
	if err != nil {
		return err
	}
	if changes == nil {
		changes = map[string]string{}
	}
	for name := range gone {
		if _, both := changes[name]; both {
			return misuse("the label %s is both set and removed", word(name))
		}
		changes[name] = ""
	}
	return e.act(x.ID, "is labelled", x.actor, func(c *client, by weft.Actor) error { return c.Label(e, x.ID, changes, by) })
}

type clearSignal struct {
	ID       string `arg:"" help:"The id of the workflow."`
	Name     string `arg:"" help:"The name of the signal."`
	SignalID string `arg:"" help:"The id of the signal."`
	actor
}

func (x *clearSignal) Run(e *env) error {
	return e.act(x.ID, "the signal is removed", x.actor, func(c *client, by weft.Actor) error {
		return c.ClearSignal(e, x.ID, x.Name, x.SignalID, by)
	})
}

type resolve struct {
	ID        string `arg:"" help:"The id of the workflow."`
	Operation string `arg:"" help:"The operation that its attention names, such as 3, or 3.undo."`
	As        string `required:"" enum:"completed,result-lost,not-completed,failed" placeholder:"OUTCOME" help:"What happened. completed: the effect happened; give its --result, except for an undo. result-lost: it happened and its result is lost. not-completed: it did not happen; it is attempted again. failed: it did not happen and is not attempted again."`
	Result    string `placeholder:"JSON" help:"The result of the activity: JSON, @FILE, or - for standard input."`
	actor
}

func (x *resolve) Run(e *env) error {
	undo := strings.HasSuffix(x.Operation, ".undo")
	switch {
	case x.As == "completed" && !undo && x.Result == "":
		return misuse("--as completed needs the --result of the activity, such as null; without one say --as result-lost")
	case x.Result != "" && (x.As != "completed" || undo):
		return misuse("--result goes with --as completed only, and not with an undo")
	}
	answer, err := x.answer(e, undo)
	if err != nil {
		return err
	}
	return e.act(x.ID, "operation "+text(x.Operation)+" is resolved", x.actor, func(c *client, by weft.Actor) error {
		err := c.Resolve(e, x.ID, x.Operation, answer, by)
		if err == nil && x.Result != "" {
			e.note("the engine that executes it decodes the result, and asks again if it cannot: see weft describe")
		}
		return err
	})
}

func (x *resolve) answer(e *env, undo bool) (activity.Answer, error) {
	switch {
	case x.As == "result-lost":
		return activity.CompletedResultUnavailable[any](), nil
	case x.As == "not-completed":
		return activity.NotCompleted[any](), nil
	case x.As == "failed":
		return activity.Failed(x.Reason), nil
	case undo:
		return activity.CompletedWithResult[any](nil), nil
	}
	result, err := e.payload("result", x.Result)
	return activity.CompletedWithResult(result), err
}
