package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
)

type describe struct {
	ID string `arg:"" help:"The id of the workflow."`
}

func (d *describe) Run(e *env) error {
	return e.reading(func(c *client) error {
		x, err := d.look(e, c)
		if err != nil {
			return err
		}
		if e.JSON {
			return errors.Join(printJSON(e.out, x.json()), x.unread)
		}
		x.print(e)
		return x.unread
	})
}

// A view is what there is to say about a workflow.
type view struct {
	info       weft.Info
	input      json.RawMessage
	resets     []reset
	result     json.RawMessage
	why        string // it has no result
	operations []*operation
	byName     map[string]*operation
	acts       []string // of people
	signals    []weft.SignalInfo
	children   []childJSON
	unread     error // what could not be read
}

// States of operations that are looked for.
const (
	held    = "needs an operator"
	givenUp = "given up" // nobody asks about it any more
)

func newView() *view { return &view{byName: map[string]*operation{}} }

// An operation is what the events of one say.
type operation struct {
	operationJSON
	result string // for a reader
	ended  bool   // it has completed
}

// look reads what there is. If a record is damaged, the rest is shown nevertheless: that is when
// somebody looks.
func (d *describe) look(e *env, c *client) (*view, error) {
	info, err := c.Describe(e, d.ID)
	if err != nil {
		return nil, err
	}
	v := newView()
	v.info = info
	missed := func(err error) {
		if err != nil && (v.unread == nil || v.unread.Error() != err.Error()) {
			v.unread = errors.Join(v.unread, err)
		}
	}
	v.input, v.resets, err = c.preamble(e, d.ID)
	missed(err)
	if info.Status.Terminal() {
		v.result, v.why = c.outcome(e, info)
	}
	v.learnAll(e, c, d.ID, missed)
	for s, err := range c.Signals(e, d.ID) {
		if missed(err); err == nil {
			v.signals = append(v.signals, s)
		}
	}
	missed(v.findChildren(e, c))
	for _, o := range v.operations {
		if o.State == held && info.Status.Terminal() {
			o.State = "unfinished"
		}
	}
	return v, nil
}

// A reset says which events a workflow passes over: those behind an event of a checkpoint, up to
// another checkpoint.
type reset struct {
	Checkpoint uint64
	Event      int
	To         uint64
}

// covers reports whether the workflow passes over an event of a checkpoint.
func (r reset) covers(checkpoint uint64, event int) bool {
	return checkpoint <= r.To && (checkpoint > r.Checkpoint || checkpoint == r.Checkpoint && event > r.Event)
}

// preamble returns the input of a workflow from the first line of its exported history, or nil if
// it is not JSON, and its resets.
func (c *client) preamble(e *env, id string) (json.RawMessage, []reset, error) {
	var first firstLine
	if err := c.Export(e, id, &first); err != nil && !errors.Is(err, errEnough) {
		return nil, nil, err
	}
	var p struct {
		Input  json.RawMessage
		Resets []reset
	}
	if first.line == nil {
		return nil, nil, errors.New("the input could not be exported")
	}
	err := json.Unmarshal(first.line, &p)
	return p.Input, p.Resets, err
}

// A firstLine keeps the first line that is written to it, and refuses the rest.
type firstLine struct{ line []byte }

var errEnough = errors.New("the first line is complete")

func (f *firstLine) Write(p []byte) (int, error) {
	line, _, complete := bytes.Cut(p, []byte("\n"))
	f.line = append(f.line, line...)
	if complete {
		return len(line), errEnough
	}
	return len(p), nil
}

// outcome returns the result of a workflow that has ended, or why there is none to show.
func (c *client) outcome(e *env, i weft.Info) (result json.RawMessage, why string) {
	if err := c.Result(e, i.ID, "", &result); err != nil {
		if failed, ok := errors.AsType[*weft.WorkflowError](err); ok {
			return nil, failed.Message
		}
		return nil, err.Error()
	}
	return result, ""
}

// shown returns a result, or why there is none, for a reader.
func shown(result json.RawMessage, why string) string {
	if why != "" {
		return cut(text(why), most)
	}
	return payload(result, "", most)
}

// learnAll adds the events of a workflow. It calls missed with what could not be read, and with nil.
func (v *view) learnAll(e *env, c *client, id string, missed func(error)) {
	for p, err := range c.History(e, id) {
		missed(err)
		for i, ev := range p.Events {
			v.learn(p, ev, slices.ContainsFunc(v.resets, func(r reset) bool { return r.covers(p.Number, i) }))
		}
	}
}

// passedOver is the state of an operation from behind the point to which the workflow was reset.
const passedOver = "passed over"

// learn adds an event to what is known of its operation. Of one that is passed over only that it has
// been is known.
func (v *view) learn(c checkpoint.Checkpoint, e checkpoint.Event, passed bool) {
	if e.By != "" && (e.Kind == checkpoint.KindActed || e.Kind == checkpoint.KindAsked) {
		v.acts = append(v.acts, at(c.Time)+"  "+happened(e))
	}
	if e.Operation == "" {
		return
	}
	o := v.byName[e.Operation]
	if o == nil {
		o = &operation{operationJSON: operationJSON{Operation: e.Operation}}
		v.byName[e.Operation] = o
		v.operations = append(v.operations, o)
		if passed {
			o.State, o.Of, o.Name, o.Time = passedOver, e.Of, e.Name, c.Time.UTC()
		}
	}
	if passed {
		return
	}
	if state := o.learn(e); state != "" {
		o.State = state
	}
	o.Time = c.Time.UTC()
	if e.Of != "" {
		o.Of = e.Of
	}
	if e.Name != "" && e.Kind != checkpoint.KindHeld {
		o.Name = e.Name
	}
	o.Attempts = max(o.Attempts, e.Attempt)
	if e.Key != "" {
		o.Key = e.Key
	}
	if e.Child != "" {
		o.Child = e.Child
	}
	if e.SignalID != "" {
		o.SignalID = e.SignalID
	}
}

// learn returns the state that follows from an event, or "" if it stays.
func (o *operation) learn(e checkpoint.Event) string {
	o.Next = time.Time{}
	switch e.Kind {
	case checkpoint.KindDispatched:
		o.Error, o.ended = "", false
		return "in progress"
	case checkpoint.KindAttempted:
		o.Error = e.Error
		if e.Due == 0 {
			return "failed"
		}
		o.Next = time.UnixMicro(e.Due).UTC()
		return "waits to retry"
	case checkpoint.KindSettled, checkpoint.KindReceived:
		o.payloadJSON, o.result, o.Error = payloadOf(e.Result, e.Codec), "", e.Error
		o.ended = e.Error == "" && e.Category == ""
		if e.Result != nil {
			o.result = payload(e.Result, e.Codec, most)
		}
		switch {
		case e.Kind == checkpoint.KindReceived:
			return "received"
		case e.Error == "" && e.Category == "":
			return "completed"
		case e.Category != "":
			return e.Category
		}
		return "failed"
	case checkpoint.KindStarted:
		return "started"
	case checkpoint.KindFired:
		return "due"
	case checkpoint.KindMissed:
		return "timed out"
	case checkpoint.KindHeld:
		if o.ended {
			return "" // what it has done remains visible
		}
		o.Error = e.Error
		return held
	case checkpoint.KindCameBack:
		o.Error = ""
		return "returned"
	case checkpoint.KindGivenUp:
		return givenUp
	}
	if o.State == "" {
		return string(e.Kind)
	}
	return ""
}

func (v *view) findChildren(e *env, c *client) error {
	for _, o := range v.operations {
		if o.Child == "" || o.Of == "hook" { // of a hook it is the workflow that has the token
			continue
		}
		child := childJSON{ID: o.Child, Operation: o.Operation}
		i, err := c.Describe(e, o.Child)
		switch {
		case err == nil:
			child.Workflow, child.Status = i.Workflow, string(i.Status)
		case !errors.Is(err, weft.ErrNotFound):
			return err
		}
		v.children = append(v.children, child)
	}
	return nil
}

func (v *view) json() descriptionJSON {
	j := descriptionJSON{workflowJSON: workflowOf(v.info), Input: v.input, Result: v.result, Children: v.children}
	j.Error = v.why
	for _, o := range v.operations {
		j.Operations = append(j.Operations, o.operationJSON)
	}
	for _, s := range v.signals {
		j.Signals = append(j.Signals, signalJSON{s.Name, s.ID, s.AcceptedAt.UTC(), s.Bytes, s.Indeterminate})
	}
	return j
}

func (v *view) print(e *env) {
	i := v.info
	fmt.Fprintf(e.out, "%s is %s\n\n", word(i.ID), i.Status)
	v.printFacts(e)
	if len(i.Attention) > 0 {
		fmt.Fprintf(e.out, "\nNeeds attention:\n")
		for _, a := range i.Attention {
			fmt.Fprintf(e.out, "  %s\n    %s\n", attentionLine(a), advice(i.ID, a))
		}
	}
	v.printOperations(e)
	if len(v.signals) > 0 {
		fmt.Fprintf(e.out, "\nSignals that it has not received:\n")
		t := newTable(e.out, "  NAME", "ID", "ACCEPTED", "BYTES")
		for _, s := range v.signals {
			accepted := at(s.AcceptedAt)
			if s.Indeterminate {
				accepted = "indeterminate"
			}
			t.row("  "+text(s.Name), word(s.ID), accepted, fmt.Sprint(s.Bytes))
		}
		t.end()
	}
	if len(v.children) > 0 {
		fmt.Fprintf(e.out, "\nChildren:\n")
		t := newTable(e.out, "  ID", "WORKFLOW", "STATUS", "OPERATION")
		for _, c := range v.children {
			status := c.Status
			if status == "" {
				status = "purged"
			}
			t.row("  "+word(c.ID), or(text(c.Workflow)), status, text(c.Operation))
		}
		t.end()
	}
	if len(v.acts) > 0 {
		fmt.Fprintf(e.out, "\nWhat people did:\n")
		for _, act := range v.acts {
			fmt.Fprintf(e.out, "  %s\n", act)
		}
	}
}

// printFacts prints what is known of the workflow as a whole.
func (v *view) printFacts(e *env) {
	i := v.info
	t := newTable(e.out)
	fact := func(name, value string) {
		if value != "" && value != "-" {
			t.row("  "+name, value)
		}
	}
	fact("workflow", text(i.Workflow))
	fact("created", at(i.CreatedAt))
	fact("started", at(i.StartedAt))
	if i.Life > 0 {
		fact("life", fmt.Sprintf("%d, since %s", i.Life, at(i.LifeAt)))
	}
	fact("ended", at(i.EndedAt))
	if i.Parent != "" {
		fact("parent", word(i.Parent))
	}
	fact("queue", text(i.Queue))
	for _, name := range sortedKeys(i.Labels) {
		fact("label", word(name+"="+i.Labels[name]))
	}
	fact("deployment", text(i.Deployment))
	if i.Owner != "" {
		fact("owner", fmt.Sprintf("%s, epoch %d", text(i.Owner), i.Epoch))
	}
	if v.input != nil {
		fact("input", payload(v.input, "", most))
	}
	switch {
	case v.why != "":
		fact("error", shown(nil, v.why))
	case v.result != nil:
		fact("result", shown(v.result, ""))
	}
	if c := i.Cancel; c != nil {
		fact("stop", stopped(*c))
	}
	if p := i.Protected; p != nil {
		fact("protected", fmt.Sprintf("since %s by %s", at(p.At), text(p.By))+because(p.Reason))
	}
	for _, what := range i.Waiting {
		fact("waits for", text(what))
	}
	t.end()
}

// stopped says who has asked a workflow to stop, or has ended it.
func stopped(c weft.Cancellation) string {
	s := "asked " + at(c.At)
	if c.Terminated {
		s = "terminated " + at(c.At)
	}
	if c.By != "" {
		s += " by " + text(c.By)
	}
	return s + because(c.Reason)
}

func (v *view) printOperations(e *env) {
	if len(v.operations) == 0 {
		return
	}
	fmt.Fprintf(e.out, "\nOperations:\n")
	t := newTable(e.out, "  OPERATION", "WHAT", "STATE", "ATTEMPTS", "TIME", "DETAIL")
	for _, o := range v.operations {
		attempts, detail := "-", o.result
		if o.Attempts > 0 {
			attempts = fmt.Sprint(o.Attempts)
		}
		if o.Error != "" {
			detail = cut(text(o.Error), most)
		}
		if !o.Next.IsZero() {
			detail = "next at " + at(o.Next) + because(o.Error)
		}
		t.row("  "+text(o.Operation), title(o.Of, o.Name), text(o.State), attempts, at(o.Time), or(detail))
	}
	t.end()
}

func attentionLine(a weft.Attention) string {
	s := text(string(a.Reason))
	if a.Operation != "" {
		s += " at operation " + text(a.Operation)
	}
	if a.Name != "" {
		s += " (" + text(a.Name) + ")"
	}
	s += " since " + at(a.Since)
	if a.Detail != "" {
		s += ": " + text(a.Detail) // whole: it says what to do
	}
	return s
}

// advice says what an operator can do.
func advice(id string, a weft.Attention) string {
	switch a.Reason {
	case weft.ReasonIndeterminate:
		return "find out what happened, and say so: weft resolve " + word(id) + " " + word(a.Operation) + " --as ... --reason ... --write"
	case weft.ReasonUncompensated:
		return "undo it by hand, and say so: weft resolve " + word(id) + " " + word(a.Operation) + " --as ... --reason ... --write; or fix the cause, and have it attempted again: weft resume " + word(id) + " --reason ... --write"
	case weft.ReasonNoProgress:
		return "fix what kills the process, and then: weft resume " + word(id) + " --reason ... --write"
	case weft.ReasonNonDeterminism:
		return "deploy code that agrees with its history; it then continues by itself"
	case weft.ReasonUndecodable:
		return "deploy code that can decode it; or remove the signal that cannot be decoded: weft clear-signal; or end the workflow: weft terminate"
	case weft.ReasonUnregistered:
		return "start an engine whose code has what is missing"
	case weft.ReasonNewerRelease:
		return "start an engine of the newer release"
	case weft.ReasonBadInput:
		return "deploy code that calls the activity with an input that can be encoded and decoded; it then continues by itself"
	case weft.ReasonBadDefinition:
		return "fix the definition and deploy; it then continues by itself"
	case weft.ReasonDamaged:
		return "check the disk, and restore the store from a backup; or end the workflow: weft terminate " + word(id) + " --reason ... --write"
	case weft.ReasonStuck, weft.ReasonUnresponsive:
		return "look at the process that executes it; this ends by itself when the call returns"
	}
	return "see the documentation of weft.Reason"
}
