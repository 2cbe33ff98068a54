package enginetest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// A way is how a call to the store fails.
type way struct {
	fault         storagetest.Fault
	before, after string // the description before and after that of the call
	writes        bool   // only what writes can fail so
}

// ways are all ways. A read that fails is the same before and after it.
var ways = []way{
	{storagetest.CrashBefore, "crash at", "before it was written", false},
	{storagetest.CrashAfter, "crash at", "after it was written", true},
	{storagetest.ErrorBefore, "error of", "which was not written", false},
	{storagetest.ErrorAfter, "error of", "which was written all the same", true},
	{storagetest.CancelMiddle, "context cancelled in", "", false},
}

// transaction describes the transaction of a step. What it writes is not known when it begins.
const transaction = "transaction"

// A place is where a play was disturbed, in words: "crash at store call 7 of 9, commit
// of checkpoint 2 of order-42 (charge settled), before it was written".
type place struct {
	words   string
	telling bool // it is a step of a workflow, and not another call of the engine
}

func (w way) place(call, calls int, what string, write bool) place {
	s := fmt.Sprintf("%s store call %d of %d, %s", w.before, call, calls, what)
	if write && w.after != "" {
		s += ", " + w.after
	}
	return place{s, what == transaction || strings.HasPrefix(what, "commit of checkpoint")}
}

// A reader describes calls to the store in words. It remembers the first checkpoint of
// each workflow, to count from 1, and which run has started which.
type reader struct {
	first map[string]uint64
	names names
}

// read describes c: "commit of checkpoint 2 of order-42 (charge settled)".
func (r *reader) read(c storagetest.Call) string {
	appended := journal.AppendedBy(c.Batch)
	r.names.learn(c.Batch, appended)
	return r.names.replace(r.words(c, appended))
}

func (r *reader) words(c storagetest.Call, appended []journal.Appended) string {
	switch c.Method {
	case "Get":
		return "read of " + r.record(c.Key)
	case "Scan":
		return "search for " + r.list(c.Range.Start)
	case "Transact":
		return transaction
	}
	step, deed := "", ""
	for _, a := range appended {
		step = "commit of " + r.checkpoint(a) // the last one: a claim may skip numbers before it
	}
	for _, o := range c.Batch.Ops {
		if s := asked(o); s != "" {
			deed = s
		}
	}
	switch {
	case deed != "": // its commit may claim the workflow too
		return deed
	case step != "":
		return step
	}
	if len(c.Batch.Ops) == 0 {
		return "empty commit"
	}
	o := c.Batch.Ops[0]
	if o.Kind != storage.PutOp {
		return "removal of " + r.record(o.Key)
	}
	return "commit of " + r.record(o.Key)
}

// asked describes what a client did, if o is the part of its batch that shows it.
func asked(o storage.Op) string {
	parts, err := storage.SplitKey(o.Key)
	switch {
	case err != nil || o.Kind != storage.PutOp:
	case len(parts) == 3 && parts[0] == "wf" && parts[2] == "in":
		return "start of " + parts[1]
	case len(parts) == 4 && parts[0] == "sig":
		return fmt.Sprintf("acceptance of signal %s to %s", parts[2], parts[1])
	}
	return ""
}

// checkpoint says which checkpoint was appended.
func (r *reader) checkpoint(a journal.Appended) string {
	id, n := a.Workflow.ID, a.Entry.Number
	if r.first == nil {
		r.first = map[string]uint64{}
	}
	if r.first[id] == 0 {
		r.first[id] = n
	}
	return fmt.Sprintf("checkpoint %d of %s (%s)", n-r.first[id]+1, id, events(a.Entry.Events))
}

// events are events in words.
func events(all []checkpoint.Event) string {
	var words []string
	for _, e := range all {
		words = append(words, event(e))
	}
	if most := 3; len(words) > most {
		words = append(words[:most], fmt.Sprintf("and %d more", len(words)-most))
	}
	return strings.Join(words, ", ")
}

func event(e checkpoint.Event) string {
	name := e.Name
	if name == "" {
		name = e.Of
	}
	if e.Of == "compensation" {
		name = "undoing " + name
	}
	switch e.Kind {
	case checkpoint.KindClaimed, checkpoint.KindSkipped, checkpoint.KindSurvived, checkpoint.KindParked, checkpoint.KindCameBack, checkpoint.KindCompensating:
		return string(e.Kind)
	case checkpoint.KindAttempted:
		return fmt.Sprintf("%s attempt %d failed", name, e.Attempt)
	case checkpoint.KindMissed:
		return "no " + name + " in time"
	case checkpoint.KindAsked:
		return "asked to stop"
	case checkpoint.KindEnded:
		return name
	case checkpoint.KindHeld:
		return "held for " + name
	}
	return name + " " + string(e.Kind)
}

// record is what is under a key, in words.
func (r *reader) record(key []byte) string {
	parts, err := storage.SplitKey(key)
	if err != nil || len(parts) < 2 {
		return fmt.Sprintf("%q", key)
	}
	switch {
	case parts[0] == "wf" && len(parts) == 2:
		return "workflow " + parts[1]
	case parts[0] == "wf" && parts[2] == "in":
		return "the input of " + parts[1]
	case parts[0] == "wf" && parts[2] == "out":
		return "the result of " + parts[1]
	case parts[0] == "log":
		return "a checkpoint of " + r.names.ofLog(parts[1])
	case parts[0] == "wf" && len(parts) == 4 && parts[2] == "pub":
		return fmt.Sprintf("the value %s of %s", parts[3], parts[1])
	case parts[0] == "sig" && len(parts) > 2, parts[0] == "sigres" && len(parts) > 2:
		return fmt.Sprintf("signal %s to %s", parts[2], parts[1])
	case parts[0] == "sigseq", parts[0] == "inbox":
		return "the inbox of " + parts[1]
	case parts[0] == "act" && len(parts) > 3:
		return fmt.Sprintf("the record of %s, operation %s of %s", parts[2], parts[3], parts[1])
	case parts[0] == "kid":
		return "a child of " + parts[1]
	case parts[0] == "eng":
		return "the engine's own record"
	case parts[0] == "meta":
		return "the store's stamp"
	case parts[0] == "held", parts[0] == "wake", parts[0] == "todo":
		return "a " + parts[0] + " entry"
	}
	return fmt.Sprintf("%q", key)
}

// list is what a scan from start looks for.
func (r *reader) list(start []byte) string {
	family, rest, _ := bytes.Cut(start, []byte(":"))
	id, _, _ := bytes.Cut(rest, []byte(":"))
	switch string(family) {
	case "held", "wake", "todo":
		return "work (" + string(family) + ")"
	case "wf":
		return "records of " + string(id)
	case "log":
		return "checkpoints of " + r.names.ofLog(string(id))
	case "inbox", "sig", "sigres":
		return "signals to " + string(id)
	case "act":
		return "activities of " + string(id)
	case "kid":
		return "children of " + string(id)
	case "eng":
		return "engines"
	case "exp":
		return "what has expired"
	case "ix":
		return "all workflows"
	}
	return fmt.Sprintf("%q", start)
}
