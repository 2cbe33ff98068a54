package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
)

// A filter is the flags that say which workflows a verb is about.
type filter struct {
	Workflow  string   `placeholder:"NAME" help:"Only those of this workflow."`
	Status    string   `enum:"any,pending,running,completed,failed,cancelled" default:"any" placeholder:"STATUS" help:"Only those with this status: pending, running, completed, failed or cancelled."`
	Attention bool     `help:"Only those that need an operator."`
	Parent    string   `placeholder:"ID" help:"Only the children of this workflow."`
	TopLevel  bool     `help:"Only those without a parent."`
	Label     []string `sep:"none" placeholder:"NAME=VALUE" help:"Only those with this label. Repeat it for several: a workflow has all of them."`
	IDPrefix  string   `name:"id-prefix" placeholder:"TEXT" help:"Only those whose ids begin with this, in the order of their ids."`
	Since     string   `placeholder:"TIME" help:"Only from this time on: 2026-07-29T10:00:00Z, or 2h for two hours ago. With --workflow, --status or --label it is the time since which a workflow has its status. Otherwise, and with --parent, --attention or --id-prefix, it is that of its creation."`
	Until     string   `placeholder:"TIME" help:"Only before this time, as for --since."`
}

// selects returns the filter that the flags describe. What is wrong with them is found before
// anything is read.
func (f *filter) selects(now time.Time) (weft.Filter, error) {
	s := weft.Filter{Workflow: f.Workflow, Attention: f.Attention, Parent: f.Parent, TopLevel: f.TopLevel, IDPrefix: f.IDPrefix}
	if f.Status != "any" {
		s.Status = checkpoint.Status(f.Status)
	}
	if f.Parent != "" && f.TopLevel {
		return s, misuse("--parent selects children, and --top-level those that are none: give one of them")
	}
	var err error
	if s.Labels, err = labelsOf(f.Label); err != nil {
		return s, err
	}
	if s.After, err = timeOf("since", f.Since, now); err != nil {
		return s, err
	}
	if s.Before, err = timeOf("until", f.Until, now); err != nil {
		return s, err
	}
	if !s.After.IsZero() && !s.Before.IsZero() && !s.After.Before(s.Before) {
		return s, misuse("--until %s is not after --since %s", word(f.Until), word(f.Since))
	}
	return s, nil
}

// labelsOf returns labels as --label has them.
func labelsOf(flags []string) (labels map[string]string, _ error) {
	for _, l := range flags {
		name, value, found := strings.Cut(l, "=")
		if !found || name == "" || value == "" {
			return nil, misuse("the label %s is not NAME=VALUE", word(l))
		}
		if had, twice := labels[name]; twice && had != value {
			return nil, misuse("--label has two values for %s, and a workflow has one: %s and %s", word(name), word(had), word(value))
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[name] = value
	}
	return labels, nil
}

// timeOf returns a time as a flag has it: a point in time, also as lists print it, or how long
// before now it is.
func timeOf(flag, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, strings.Replace(s, " ", "T", 1)); err == nil {
		return t.UTC(), nil
	}
	ago, err := time.ParseDuration(s)
	if err != nil || ago < 0 {
		return time.Time{}, misuse("--%s %s is neither a time such as 2026-07-29T10:00:00Z nor how long ago, such as 2h", flag, word(s))
	}
	return now.Add(-ago).Truncate(time.Microsecond).UTC(), nil
}

// cursorOf returns what continues a list at next. A cursor is of one filter. So it has the times
// that --since and --until meant if they were durations: "SINCE.UNTIL.NEXT", in microseconds.
func (f *filter) cursorOf(s weft.Filter, next string) string {
	if !isAgo(f.Since) && !isAgo(f.Until) {
		return next
	}
	micro := func(flag string, t time.Time) string {
		if !isAgo(flag) {
			return ""
		}
		return strconv.FormatInt(t.UnixMicro(), 10)
	}
	return fmt.Sprintf("%s.%s.%s", micro(f.Since, s.After), micro(f.Until, s.Before), next)
}

// resume is the opposite of cursorOf: it sets the times in s to those of the cursor, and returns
// the cursor of the list.
func (f *filter) resume(s *weft.Filter, c string) (next string, err error) {
	wrong := misuse("the cursor %s does not belong to this --since and --until: repeat the flags of the page before, or begin again without it", word(c))
	parts := strings.Split(c, ".")
	if len(parts) == 1 && !isAgo(f.Since) && !isAgo(f.Until) {
		return c, nil
	}
	if len(parts) != 3 {
		return "", wrong
	}
	for i, b := range []struct {
		flag string
		to   *time.Time
	}{{f.Since, &s.After}, {f.Until, &s.Before}} {
		if isAgo(b.flag) != (parts[i] != "") {
			return "", wrong
		}
		if parts[i] == "" {
			continue
		}
		micro, err := strconv.ParseInt(parts[i], 10, 64)
		if err != nil {
			return "", wrong
		}
		*b.to = time.UnixMicro(micro).UTC()
	}
	return parts[2], nil
}

// isAgo reports whether a flag with a time says how long ago it is.
func isAgo(s string) bool {
	_, err := time.ParseDuration(s)
	return err == nil
}
