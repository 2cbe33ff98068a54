package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-go/weft"
)

type engines struct {
	All bool `help:"List also those that have ended and own no runs."`
}

func (x engines) Run(e *env) error {
	return e.reading(func(c *client) error {
		all, err := c.Engines(e)
		var t table
		if !e.JSON {
			t = newTable(e.out, "ENGINE", "STATE", "RUNS", "SINCE", "DEPLOYMENT", "QUEUES", "WORKFLOWS")
		}
		past := 0
		for _, i := range all {
			if !x.All && i.Runs == 0 && !c.mayLive(i) {
				past++
				continue
			}
			if e.JSON {
				if err := printJSON(e.out, c.engineOf(i)); err != nil {
					return err
				}
				continue
			}
			t.row(word(i.Incarnation), c.stateText(i, time.Now()), fmt.Sprint(i.Runs), at(i.Since), or(text(i.Deployment)), or(names(i.Queues)), or(names(i.Workflows)))
		}
		if !e.JSON {
			t.end()
		}
		if past > 0 {
			e.note("left out are engines that have ended and own no runs: %d; --all lists them", past)
		}
		return err
	})
}

func names(all []string) string { return text(strings.Join(all, ", ")) }

// workflows returns the names of the workflows of the engines that may be alive, and whether there
// are any such engines.
func (c *client) workflows(all []weft.EngineInfo) (names []string, alive bool) {
	for _, i := range all {
		if c.mayLive(i) {
			names, alive = append(names, i.Workflows...), true
		}
	}
	slices.Sort(names)
	return slices.Compact(names), alive
}

func (c *client) mayLive(i weft.EngineInfo) bool {
	state := c.state(i)
	return state == "alive" || state == "seen" || state == "unknown"
}

// state says whether an engine is alive. Of one with a lease that is known only to who watches whether the lease is
// renewed. The command looks once: it has seen a renewal, which may be long ago. An engine that has a SQLite file for itself shows
// that by its lock only, which a reader must not take: it would keep an engine from starting. Who
// may write has the lock, so no engine has it.
func (c *client) state(i weft.EngineInfo) string {
	switch {
	case i.Alive && !i.Renewed.IsZero():
		return "seen"
	case i.Alive:
		return "alive"
	case !i.Stopped.IsZero():
		return "stopped"
	case c.place.kind == "sqlite" && i.LeaseTTL == 0 && !i.Since.IsZero() && !c.writes:
		return "unknown"
	}
	return "dead"
}

// stateText is state for a reader.
func (c *client) stateText(i weft.EngineInfo, now time.Time) string {
	state := c.state(i)
	if state == "seen" {
		return fmt.Sprintf("seen %v ago", max(now.Sub(i.Renewed), 0).Truncate(time.Second))
	}
	return state
}

// Describe is that of the engine, and says nothing about engines that it cannot see.
func (c *client) Describe(ctx context.Context, id string) (weft.Info, error) {
	i, err := c.Engine.Describe(ctx, id)
	return honest(i, func() unseen { return c.unseen(ctx) }), err
}

// List is that of the engine, and says nothing about engines that it cannot see.
func (c *client) List(ctx context.Context, f weft.Filter) iter.Seq2[weft.Info, error] {
	return func(yield func(weft.Info, error) bool) {
		others := sync.OnceValue(func() unseen { return c.unseen(ctx) })
		for i, err := range c.Engine.List(ctx, f) {
			i = honest(i, others)
			if err == nil && f.Attention && len(i.Attention) == 0 {
				continue
			}
			if !yield(i, err) {
				return
			}
		}
	}
}

// Page is that of the engine, and says nothing about engines that it cannot see.
func (c *client) Page(ctx context.Context, f weft.Filter, r weft.PageRequest) (weft.Page[weft.Info], error) {
	p, err := c.Engine.Page(ctx, f, r)
	others := sync.OnceValue(func() unseen { return c.unseen(ctx) })
	for n, i := range p.Data {
		p.Data[n] = honest(i, others)
	}
	if f.Attention {
		p.Data = slices.DeleteFunc(p.Data, func(i weft.Info) bool { return len(i.Attention) == 0 })
	}
	return p, err
}

const (
	noEngine   = "an engine: none runs"
	someEngine = "an engine, or is executed: a service may have the store open"
)

// unseen are engines that may be alive, although the command cannot see it.
type unseen struct {
	engines []weft.EngineInfo
	unknown bool // which there are
}

func (c *client) unseen(ctx context.Context) unseen {
	all, err := c.Engines(ctx)
	return unseen{slices.DeleteFunc(all, func(e weft.EngineInfo) bool { return c.state(e) != "unknown" }), err != nil}
}

func (u unseen) none() bool { return len(u.engines) == 0 && !u.unknown }

// mayExecute reports whether one of them may execute i.
func (u unseen) mayExecute(i weft.Info) bool {
	return u.unknown || slices.ContainsFunc(u.engines, func(e weft.EngineInfo) bool {
		return slices.Contains(e.Workflows, i.Workflow) && (i.Deployment == "" || i.Deployment == e.Deployment)
	})
}

// honest does not say that none runs, or that none has the workflow, if an engine may be alive that the command
// cannot see.
func honest(i weft.Info, others func() unseen) weft.Info {
	alone := func(a weft.Attention) bool { return a.Reason == weft.ReasonUnregistered }
	if slices.ContainsFunc(i.Attention, alone) && others().mayExecute(i) {
		i.Attention = slices.DeleteFunc(slices.Clone(i.Attention), alone)
	}
	if at := slices.Index(i.Waiting, noEngine); at >= 0 && !others().none() {
		i.Waiting = slices.Clone(i.Waiting)
		i.Waiting[at] = someEngine
	}
	return i
}

func (c *client) engineOf(i weft.EngineInfo) engineJSON {
	j := engineJSON{
		Incarnation: i.Incarnation, Name: i.Name, State: c.state(i), Deployment: i.Deployment, Workflows: i.Workflows, Queues: i.Queues,
		Runs: i.Runs, Since: i.Since.UTC(), Stopped: i.Stopped.UTC(),
		Takeovers: i.Takeovers, LostRaces: i.LostRaces, Fenced: i.Fenced, Unknown: i.Unknown,
	}
	if j.State == "seen" {
		j.Renewed = i.Renewed.UTC()
	}
	if i.LeaseTTL != 0 {
		j.LeaseTTL = i.LeaseTTL.String()
	}
	return j
}

type queues struct{}

func (queues) Run(e *env) error {
	return e.reading(func(c *client) error {
		all, err := c.queues(e)
		if e.JSON {
			for _, q := range all {
				err = errors.Join(err, printJSON(e.out, q))
			}
			return err
		}
		t := newTable(e.out, "QUEUE", "ENGINES", "WAITING", "ADMITTED")
		for _, q := range all {
			t.row(word(q.Queue), fmt.Sprint(q.Engines), fmt.Sprint(q.Waiting), fmt.Sprint(q.Admitted))
		}
		t.end()
		return err
	})
}

// queues counts what engines serve and where workflows are. An engine that may be alive
// counts.
func (c *client) queues(e *env) ([]*queueJSON, error) {
	byName := map[string]*queueJSON{}
	of := func(name string) *queueJSON {
		if byName[name] == nil {
			byName[name] = &queueJSON{Queue: name}
		}
		return byName[name]
	}
	serving, err := c.Engines(e)
	if err != nil {
		return nil, err
	}
	for _, i := range serving {
		if !c.mayLive(i) {
			continue
		}
		for _, name := range i.Queues {
			of(name).Engines++
		}
	}
	unreadable := 0
	for i, err := range c.List(e, weft.Filter{}) {
		switch {
		case damaged(err):
			unreadable++
		case err != nil:
			return nil, err
		case i.Queue == "" || i.Status.Terminal():
		case len(i.Waiting) > 0 && strings.HasPrefix(i.Waiting[0], "admission to queue "):
			of(i.Queue).Waiting++
		default:
			of(i.Queue).Admitted++
		}
	}
	all := slices.SortedFunc(maps.Values(byName), func(a, b *queueJSON) int { return cmp.Compare(a.Queue, b.Queue) })
	if unreadable > 0 {
		return all, fmt.Errorf("workflows that could not be read, and do not count: %d; weft list says why", unreadable)
	}
	return all, nil
}
