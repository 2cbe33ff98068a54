package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weft-go/weft/checkpoint"
)

type history struct {
	ID string `arg:"" help:"The id of the workflow."`
}

func (h *history) Run(e *env) error {
	return e.reading(func(c *client) error {
		for p, err := range c.History(e, h.ID) {
			if err != nil {
				return err
			}
			for _, ev := range p.Events {
				if err := e.printEvent("", p, ev); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// printEvent prints an event of a checkpoint. Its id may be "".
func (e *env) printEvent(id string, p checkpoint.Checkpoint, ev checkpoint.Event) error {
	if e.JSON {
		j := eventOf(p, ev)
		j.ID = id
		return printJSON(e.out, j)
	}
	_, err := fmt.Fprintln(e.out, eventLine(p, ev))
	return err
}

// eventLine returns an event for a reader: time, number of the checkpoint, operation, and what
// happened.
func eventLine(c checkpoint.Checkpoint, e checkpoint.Event) string {
	return strings.TrimRight(fmt.Sprintf("%s  %d  %-6s  %s", exactly(c.Time), c.Number, text(e.Operation), happened(e)), " ")
}

// most is how much of a payload or an error is shown.
const most = 200

// happened says what an event is.
func happened(e checkpoint.Event) string {
	what := title(e.Of, e.Name)
	switch e.Kind {
	case checkpoint.KindClaimed:
		return "claimed by " + text(e.By) + because(e.Why)
	case checkpoint.KindSkipped:
		return "numbers were skipped"
	case checkpoint.KindDispatched:
		return fmt.Sprintf("%s: attempt %d starts with key %s%s", what, e.Attempt, word(e.Key), because(e.Why))
	case checkpoint.KindNoted:
		if e.Operation == "" {
			return cut(text(e.Why), most)
		}
		return what + ": " + cut(text(e.Why), most)
	case checkpoint.KindStarted:
		return what + ": started as " + word(e.Child)
	case checkpoint.KindAttempted:
		s := fmt.Sprintf("%s: attempt %d failed: %s", what, e.Attempt, cut(text(e.Error), most))
		if e.Due != 0 {
			s += ", next at " + exactly(time.UnixMicro(e.Due))
		}
		return s
	case checkpoint.KindSettled:
		return what + ": " + settled(e)
	case checkpoint.KindFired:
		return what + ": due"
	case checkpoint.KindReceived:
		return fmt.Sprintf("%s: received %s: %s", what, word(e.SignalID), payload(e.Result, e.Codec, most))
	case checkpoint.KindAccepted:
		return fmt.Sprintf("%s: accepted %s: %s", what, word(e.Key), payload(e.Result, e.Codec, most))
	case checkpoint.KindAnswered:
		return fmt.Sprintf("%s: answered %s%s", what, word(e.Key), because(e.Error))
	case checkpoint.KindMissed:
		return what + ": no signal in time"
	case checkpoint.KindAsked:
		s := "asked to stop"
		if e.By != "" {
			s += " by " + text(e.By)
		}
		return s + because(e.Why)
	case checkpoint.KindActed:
		verb := text(e.Name)
		if verb == "retry" { // as it is recorded
			verb = "resume"
		}
		return text(e.By) + " did: " + verb + because(e.Why)
	case checkpoint.KindHeld:
		return "needs an operator: " + text(e.Name) + because(e.Error)
	case checkpoint.KindSurvived:
		return "has passed where its process died"
	case checkpoint.KindGivenUp:
		return what + ": given up"
	case checkpoint.KindParked:
		return "parked until something happens"
	case checkpoint.KindCameBack:
		return "returned, and needs no operator any more"
	case checkpoint.KindEnded:
		return text(e.Name) + because(e.Error)
	case checkpoint.KindCompensating:
		return "undoes its calls before it ends " + text(e.Name) + because(e.Error)
	}
	return text(string(e.Kind)) // of a newer release
}

// settled says how an operation ended.
func settled(e checkpoint.Event) string {
	if e.Error == "" && e.Category == "" {
		if e.Result == nil {
			return "completed"
		}
		return "completed: " + payload(e.Result, e.Codec, most)
	}
	s := "failed"
	if e.Attempt > 1 {
		s = fmt.Sprintf("failed after %d attempts", e.Attempt)
	}
	if e.Category != "" {
		s += ", " + text(e.Category)
	}
	return s + because(e.Error)
}

func title(of, name string) string {
	if name == "" {
		return or(text(of))
	}
	return strings.TrimSpace(text(of) + " " + text(name))
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + cut(text(why), most)
}

type export struct {
	ID string `arg:"" help:"The id of the workflow."`
}

func (x *export) Run(e *env) error {
	return e.reading(func(c *client) error { return c.Export(e, x.ID, io.Writer(e.out)) })
}
