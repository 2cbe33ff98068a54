package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/signal"
)

// bulks are the verbs about bulk operations.
type bulks struct {
	Start bulkStart `cmd:"" help:"Do one operation to every workflow that the flags select. An engine that runs on the store does it."`
	List  bulkList  `cmd:"" help:"List bulk operations: those that go on, and those that ended lately."`
	Stop  bulkStop  `cmd:"" help:"End a bulk operation. What it has done stays."`
}

type bulkStart struct {
	ID   string `arg:"" help:"The id of the bulk. Starting the same again with this id does nothing; a --since or --until that says how long ago is another time then."`
	Verb string `arg:"" enum:"cancel,terminate,signal,resume,reset,purge,delete,protect,unprotect" help:"What is done to each: cancel, terminate, signal, resume, reset, purge, delete, protect or unprotect."`
	filter
	doing
	actor
}

// doing says what a bulk does, beside its verb.
type doing struct {
	Before  string `placeholder:"OPERATION" help:"With reset: the operation, such as 3, or start."`
	Signal  string `placeholder:"NAME" help:"With signal: the name of the signal."`
	Payload string `default:"null" placeholder:"JSON" help:"With signal: the payload: JSON, @FILE, or - for standard input (default null)."`
	Rate    string `placeholder:"N/DURATION" help:"At most so many in this time, such as 10/1s. By default one after the other without a limit."`
}

// bulk returns the bulk that the flags describe.
func (x *doing) bulk(e *env, verb string, f weft.Filter) (_ weft.Bulk, err error) {
	b := weft.Bulk{Do: weft.Verb(verb), Filter: f}
	switch {
	case (x.Before != "") != (b.Do == weft.BulkReset):
		return b, misuse("reset needs --before OPERATION, or --before start; no other verb has it")
	case (x.Signal != "") != (b.Do == weft.BulkSignal):
		return b, misuse("signal needs --signal NAME; no other verb has it")
	case b.Do == weft.BulkReset:
		if b.Before, err = (before{x.Before}).operation(); err != nil {
			return b, err
		}
	case b.Do == weft.BulkSignal:
		var payload json.RawMessage
		if payload, err = e.payload("payload", x.Payload); err != nil {
			return b, err
		}
		b.Signal = signal.Message{Name: x.Signal, Payload: payload}
	}
	if x.Rate != "" {
		count, per, found := strings.Cut(x.Rate, "/")
		n, err1 := strconv.Atoi(count)
		d, err2 := time.ParseDuration(per)
		if !found || err1 != nil || err2 != nil || n <= 0 || d <= 0 {
			return b, misuse("the rate %s is not like 10/1s", word(x.Rate))
		}
		b.Rate = activity.Rate{Count: n, Per: d}
	}
	return b, nil
}

func (x *bulkStart) Run(e *env) error {
	f, err := x.selects(time.Now())
	if err != nil {
		return err
	}
	b, err := x.bulk(e, x.Verb, f)
	if err != nil {
		return err
	}
	return e.act(x.ID, "is started", x.actor, func(c *client, by weft.Actor) error {
		return e.sameBulk(c.StartBulk(e, x.ID, b, by), x.Since, x.Until, b.Filter, func() (weft.BulkInfo, error) { return c.Bulk(e, x.ID) })
	})
}

// sameBulk returns err, of the start of a bulk. How long ago something is, is another time in each start. So it notes the times with
// which a repetition is the same bulk: those of f if nobody knows whether it was started, and those of the bulk that there is
// if that is another one.
func (e *env) sameBulk(err error, since, until string, f weft.Filter, there func() (weft.BulkInfo, error)) error {
	flags := absolute(since, until, f)
	if flags == "" {
		return err
	}
	if errors.Is(err, weft.ErrMismatch) {
		if i, failed := there(); failed == nil {
			if flags := absolute(since, until, i.Bulk.Filter); flags != "" {
				e.note("each start means another time by how long ago something is: for the bulk that there is, repeat this with %s", flags)
			}
		}
	}
	return e.again(err, flags)
}

// absolute returns the flags --since and --until with the times in f, as far as they say how long ago these are; "": they do not,
// or f has no such time.
func absolute(since, until string, f weft.Filter) string {
	var flags []string
	for _, x := range []struct {
		name, given string
		at          time.Time
	}{{"--since ", since, f.After}, {"--until ", until, f.Before}} {
		switch {
		case !isAgo(x.given):
		case x.at.IsZero():
			return ""
		default:
			flags = append(flags, x.name+x.at.UTC().Format(time.RFC3339Nano))
		}
	}
	return strings.Join(flags, " ")
}

type bulkStop struct {
	ID string `arg:"" help:"The id of the bulk."`
	actor
}

func (x *bulkStop) Run(e *env) error {
	return e.act(x.ID, "is stopped", x.actor, func(c *client, by weft.Actor) error { return c.StopBulk(e, x.ID, by) })
}

type bulkJSON struct {
	ID        string        `json:"id"`
	Verb      string        `json:"verb,omitempty"`
	Before    string        `json:"before,omitempty"`
	Signal    string        `json:"signal,omitempty"`
	Filter    *filterJSON   `json:"filter,omitempty"`
	Rate      string        `json:"rate,omitempty"`
	By        string        `json:"by,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	Began     time.Time     `json:"began,omitzero"`
	EndedAt   time.Time     `json:"endedAt,omitzero"`
	StoppedBy *weft.Actor   `json:"stoppedBy,omitempty"`
	Done      int64         `json:"done"`
	Refused   int64         `json:"refused"`
	Refusals  []refusalJSON `json:"refusals,omitempty"`
	Last      string        `json:"last,omitempty"`
	Engine    string        `json:"engine,omitempty"`
	Error     string        `json:"error,omitempty"` // why it cannot be read

	remote bool // of a control plane, which does not say what engine carries it out
}

type filterJSON struct {
	Workflow    string            `json:"workflow,omitempty"`
	Status      string            `json:"status,omitempty"`
	Attention   bool              `json:"attention,omitempty"`
	Parent      string            `json:"parent,omitempty"`
	TopLevel    bool              `json:"topLevel,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	IDPrefix    string            `json:"idPrefix,omitempty"`
	Deployment  string            `json:"deployment,omitempty"`
	NoNamespace bool              `json:"noNamespace,omitempty"`
	Since       time.Time         `json:"since,omitzero"`
	Until       time.Time         `json:"until,omitzero"`
}

func filterOf(f weft.Filter) *filterJSON {
	return &filterJSON{
		Workflow: f.Workflow, Status: string(f.Status), Attention: f.Attention, Parent: f.Parent, TopLevel: f.TopLevel, Labels: f.Labels,
		IDPrefix: f.IDPrefix, Deployment: f.Deployment, NoNamespace: f.NoNamespace, Since: f.After, Until: f.Before,
	}
}

type refusalJSON struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

func bulkOf(i weft.BulkInfo) bulkJSON {
	b := i.Bulk
	j := bulkJSON{
		ID: i.ID, Verb: string(b.Do), Before: b.Before, Signal: b.Signal.Name, Filter: filterOf(b.Filter), By: i.By.Name, Reason: i.By.Reason,
		Began: i.Began.UTC(), EndedAt: i.EndedAt.UTC(), StoppedBy: i.Stopped, Done: i.Done, Refused: i.Refused, Last: i.Last, Engine: i.Engine,
	}
	if b.Rate.Count > 0 {
		j.Rate = fmt.Sprintf("%d/%v", b.Rate.Count, b.Rate.Per)
	}
	for _, x := range i.Refusals {
		j.Refusals = append(j.Refusals, refusalJSON(x))
	}
	return j
}

// state says in a word how far a bulk is.
func (j bulkJSON) state() string {
	switch {
	case j.Error != "":
		return "unreadable"
	case j.StoppedBy != nil:
		return "stopped"
	case !j.EndedAt.IsZero():
		return "ended"
	case j.Engine == "" && !j.remote:
		return "waiting"
	}
	return "running"
}

type bulkList struct {
	ID string `arg:"" optional:"" help:"Only this one, with the workflows that it has refused."`
}

func (x *bulkList) Run(e *env) error {
	return e.reading(func(c *client) error {
		var t table
		if !e.JSON && x.ID == "" {
			t = newTable(e.out, bulkColumns...)
		}
		unreadable, found := 0, x.ID == ""
		for i, err := range c.Bulks(e) {
			if err != nil && !damaged(err) {
				return err
			}
			if x.ID != "" && i.ID != x.ID {
				continue
			}
			found = true
			j := bulkOf(i)
			if err != nil {
				j = bulkJSON{ID: i.ID, Error: err.Error()}
				unreadable++
			}
			switch {
			case e.JSON:
				if err := printJSON(e.out, j); err != nil {
					return err
				}
			case x.ID != "":
				j.print(e)
			default:
				t.row(j.row()...)
			}
		}
		if !e.JSON && x.ID == "" {
			t.end()
		}
		switch {
		case !found:
			return fmt.Errorf("bulk %s: there is none with this id, or it ended long ago: see the ids with weft bulk list", word(x.ID))
		case unreadable > 0:
			return fmt.Errorf("bulks that could not be read: %d; their lines say why", unreadable)
		}
		return nil
	})
}

var bulkColumns = []string{"ID", "VERB", "STATE", "BEGAN", "ENDED", "DONE", "REFUSED", "BY", "REASON"}

func (j bulkJSON) row() []string {
	return []string{word(j.ID), or(word0(j.Verb)), j.state(), at(j.Began), at(j.EndedAt), fmt.Sprint(j.Done), fmt.Sprint(j.Refused), or(word0(j.By)), cut(text(j.Reason+j.Error), mostDetail)}
}

// print prints a bulk with what it has refused.
func (j bulkJSON) print(e *env) {
	fmt.Fprintf(e.out, "%s %s: %s, %d done, %d refused\n", word(j.ID), text(j.Verb), j.state(), j.Done, j.Refused)
	if j.Error != "" {
		fmt.Fprintf(e.out, "  %s\n", text(j.Error))
		return
	}
	fmt.Fprintf(e.out, "  started %s by %s: %s\n", at(j.Began), text(j.By), text(j.Reason))
	if s := j.StoppedBy; s != nil {
		fmt.Fprintf(e.out, "  stopped %s by %s: %s\n", at(j.EndedAt), text(s.Name), text(s.Reason))
	}
	if len(j.Refusals) == 0 {
		return
	}
	fmt.Fprintln(e.out)
	t := newTable(e.out, "REFUSED", "REASON")
	for _, x := range j.Refusals {
		t.row(word(x.ID), text(x.Reason))
	}
	t.end()
}
