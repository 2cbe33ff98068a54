package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // so that the command knows the zones of schedules on every machine

	"github.com/weft-go/weft"
)

// schedules are the verbs about the schedules of a store.
type schedules struct {
	List    schedulesList    `cmd:"" help:"List schedules, in the order of their ids."`
	Show    schedulesShow    `cmd:"" help:"Show a schedule and its next times."`
	Trigger schedulesTrigger `cmd:"" help:"Start one workflow of a schedule now. Prints its id."`
	Pause   schedulesPause   `cmd:"" help:"Have a schedule start nothing until it is resumed."`
	Resume  schedulesResume  `cmd:"" help:"Have a paused schedule continue with its next time."`
	Delete  schedulesDelete  `cmd:"" help:"Remove a schedule. Its workflows stay."`
}

type scheduleJSON struct {
	ID         string          `json:"id"`
	Workflow   string          `json:"workflow,omitempty"`
	Input      json.RawMessage `json:"input,omitempty"`
	Queue      string          `json:"queue,omitempty"`
	Deployment string          `json:"deployment,omitempty"`
	Cron       []string        `json:"cron,omitempty"`
	Zone       string          `json:"zone,omitempty"`
	Every      string          `json:"every,omitempty"`
	Offset     string          `json:"offset,omitempty"`
	From       time.Time       `json:"from,omitzero"`
	Until      time.Time       `json:"until,omitzero"`
	Overlap    string          `json:"overlap,omitempty"`
	Missed     string          `json:"missedTimes,omitempty"`
	Next       []time.Time     `json:"next,omitempty"`
	Last       string          `json:"last,omitempty"` // the id of the workflow that was started last
	LastAt     time.Time       `json:"lastStarted,omitzero"`
	Started    int64           `json:"started"`
	Skipped    int64           `json:"skipped"`
	MissedN    int64           `json:"missed"`
	Triggered  []string        `json:"triggered,omitempty"`
	Paused     *actedJSON      `json:"paused,omitempty"`
	Problem    string          `json:"problem,omitempty"`
	Since      time.Time       `json:"since,omitzero"`
	Error      string          `json:"error,omitempty"` // why it cannot be read
}

type actedJSON struct {
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// scheduleOf returns what --json prints of a schedule, with up to so many of its next times.
func scheduleOf(i weft.ScheduleInfo, times int) scheduleJSON {
	s := i.Schedule
	j := scheduleJSON{
		ID: s.ID, Cron: s.Cron, Zone: s.Zone, From: s.From, Until: s.Until, Overlap: string(s.Overlap), Missed: string(s.Missed),
		Started: i.Started, Skipped: i.Skipped, MissedN: i.Missed, Triggered: i.Triggered, Problem: i.Problem, Since: i.Since,
	}
	if s.Start != nil {
		j.Workflow, j.Queue, j.Deployment = s.Start.Workflow, s.Start.Options.Queue, s.Start.Options.Deployment
		j.Input, _ = s.Start.Input.(json.RawMessage)
	}
	if s.Every > 0 {
		j.Every = s.Every.String()
	}
	if s.Offset > 0 {
		j.Offset = s.Offset.String()
	}
	if !i.Next.IsZero() {
		j.Next, _ = s.Next(i.Next.Add(-1), times)
	}
	if l := i.Last; l != nil {
		j.Last, j.LastAt = l.ID, l.StartedAt.UTC()
	}
	if p := i.Paused; p != nil {
		j.Paused = &actedJSON{p.By, p.Reason, p.At.UTC()}
	}
	return j
}

type schedulesList struct {
	Prefix string `arg:"" optional:"" help:"Only those whose ids begin with this."`
}

func (x *schedulesList) Run(e *env) error {
	return e.reading(func(c *client) error {
		var t table
		if !e.JSON {
			t = newTable(e.out, "ID", "WORKFLOW", "TIMES", "NEXT", "LAST STARTED", "STARTED", "SKIPPED", "MISSED", "DETAIL")
		}
		var unreadable []error
		for i, err := range c.Schedules(e, x.Prefix) {
			if err != nil && !damaged(err) {
				return err
			}
			j := scheduleOf(i, 1)
			if err != nil {
				j.Error = err.Error()
				unreadable = append(unreadable, err)
			}
			if e.JSON {
				if err := printJSON(e.out, j); err != nil {
					return err
				}
				continue
			}
			t.row(word(j.ID), or(word0(j.Workflow)), or(timesOf(j)), at(i.Next), at(j.LastAt), fmt.Sprint(j.Started), fmt.Sprint(j.Skipped), fmt.Sprint(j.MissedN), cut(text(detailOf(j)), mostDetail))
		}
		if !e.JSON {
			t.end()
		}
		if n := len(unreadable); n > 0 {
			return fmt.Errorf("schedules that could not be read: %d; their lines say why", n)
		}
		return nil
	})
}

// mostDetail is how many characters of a problem a list shows.
const mostDetail = 80

// word0 is word for a name that may be unknown.
func word0(s string) string {
	if s == "" {
		return ""
	}
	return word(s)
}

// timesOf says in short when a schedule has its times.
func timesOf(j scheduleJSON) string {
	if j.Every != "" {
		return "every " + j.Every
	}
	return text(strings.TrimSpace(strings.Join(j.Cron, ", ") + " " + j.Zone))
}

// detailOf says what is to be known of a schedule besides.
func detailOf(j scheduleJSON) string {
	switch {
	case j.Error != "":
		return j.Error
	case j.Problem != "":
		return j.Problem
	case j.Paused != nil:
		return fmt.Sprintf("paused by %s: %s", j.Paused.By, j.Paused.Reason)
	case len(j.Triggered) > 0:
		return fmt.Sprintf("%d triggered workflows wait", len(j.Triggered))
	case len(j.Next) == 0:
		return "has no more times"
	}
	return ""
}

type schedulesShow struct {
	ID string `arg:"" help:"The id of the schedule."`
}

func (x *schedulesShow) Run(e *env) error {
	return e.reading(func(c *client) error {
		i, err := c.schedule(e, x.ID)
		if err != nil {
			return err
		}
		j := scheduleOf(i, 5)
		if e.JSON {
			return printJSON(e.out, j)
		}
		fmt.Fprintf(e.out, "%s\n\n", word(j.ID))
		line := func(name, value string) {
			if value != "" {
				fmt.Fprintf(e.out, "  %-10s %s\n", name, value)
			}
		}
		line("workflow", word0(j.Workflow))
		line("input", text(string(j.Input)))
		line("queue", word0(j.Queue))
		line("times", timesOf(j))
		line("overlap", j.Overlap)
		line("missed", j.Missed)
		for _, t := range j.Next {
			line("next", at(t))
		}
		if j.Last != "" {
			line("last", word(j.Last)+", started "+at(j.LastAt))
		}
		line("counts", fmt.Sprintf("%d started, %d skipped, %d missed", j.Started, j.Skipped, j.MissedN))
		for _, id := range j.Triggered {
			line("triggered", word(id)+", waits for the end of the last one")
		}
		if p := j.Paused; p != nil {
			line("paused", fmt.Sprintf("since %s by %s: %s", at(p.At), text(p.By), text(p.Reason)))
		}
		if j.Problem != "" {
			line("problem", text(j.Problem))
		}
		return nil
	})
}

// schedule returns the state of one schedule.
func (c *client) schedule(e *env, id string) (weft.ScheduleInfo, error) {
	for i, err := range c.Schedules(e, id) {
		if i.Schedule.ID == id || err != nil && !damaged(err) {
			return i, err
		}
	}
	return weft.ScheduleInfo{}, fmt.Errorf("schedule %s: %w", word(id), errNoSchedule)
}

var errNoSchedule = errors.New("there is none with this id: see the ids with weft schedules list")

// onSchedule is what an operator's verb needs to know that is about a schedule.
type onSchedule struct {
	ID string `arg:"" help:"The id of the schedule."`
	actor
}

type schedulesTrigger struct{ onSchedule }

func (x *schedulesTrigger) Run(e *env) error {
	if strings.TrimSpace(x.By) == "" || strings.TrimSpace(x.Reason) == "" {
		return misuse("%s needs a --by and a --reason that are not empty", e.verb)
	}
	return e.writing(func(c *client) error {
		i, err := c.Trigger(e, x.ID, x.actor.actor())
		if err != nil {
			return err
		}
		if e.JSON {
			return printJSON(e.out, workflowOf(i))
		}
		for _, w := range i.Waiting {
			if i.CreatedAt.IsZero() {
				e.note("it is started after %s", text(w))
			}
		}
		_, err = fmt.Fprintln(e.out, word(i.ID))
		return err
	})
}

type schedulesPause struct{ onSchedule }

func (x *schedulesPause) Run(e *env) error {
	return e.act(x.ID, "is paused", x.actor, func(c *client, by weft.Actor) error { return c.PauseSchedule(e, x.ID, by) })
}

type schedulesResume struct{ onSchedule }

func (x *schedulesResume) Run(e *env) error {
	return e.act(x.ID, "continues", x.actor, func(c *client, by weft.Actor) error { return c.ResumeSchedule(e, x.ID, by) })
}

type schedulesDelete struct{ onSchedule }

func (x *schedulesDelete) Run(e *env) error {
	return e.act(x.ID, "is deleted", x.actor, func(c *client, by weft.Actor) error { return c.DeleteSchedule(e, x.ID, by) })
}
