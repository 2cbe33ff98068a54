package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage"
)

// audit compares the store with what was reported.
func (l *ledger) audit(ctx context.Context, open opener, dir string) error {
	store, err := open(dir)
	if err != nil {
		return err
	}
	defer store.Close()
	eng, err := engine.New(engine.Config{Storage: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	for _, n := range slices.Sorted(maps.Keys(l.orders)) {
		if err := l.auditOrder(ctx, eng, l.orders[n]); err != nil {
			return err
		}
	}
	return errors.Join(l.auditLeftovers(ctx, store), l.auditLists(ctx, eng), eng.Close())
}

// auditLists checks that each order that has completed is listed as that, once. If an earlier
// release has executed some, an engine of this one adds what is missing.
func (l *ledger) auditLists(ctx context.Context, eng *engine.Engine) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- eng.Run(ctx) }()
	want := map[string]bool{}
	for _, e := range l.orders {
		info, err := eng.Describe(ctx, orderID(e.n))
		if err == nil && info.Status == checkpoint.StatusCompleted {
			want[info.ID] = true
		}
	}
	completed := engine.Filter{Workflow: "order", Status: checkpoint.StatusCompleted}
	for {
		listed, n := map[string]bool{}, 0
		r := engine.PageRequest{Limit: 1000}
		for more := true; more; {
			page, err := eng.Page(ctx, completed, r)
			if err != nil {
				return errors.Join(err, <-ran)
			}
			for _, info := range page.Data {
				listed[info.ID] = true
				n++
			}
			r.Cursor, more = page.Next, page.HasMore
		}
		switch {
		case n != len(listed):
			l.violate("%d orders are listed as completed %d times", len(listed), n)
		case maps.Equal(listed, want):
		case ctx.Err() == nil && len(listed) < len(want):
			time.Sleep(100 * time.Millisecond)
			continue
		default:
			l.violate("%d orders are listed as completed, want %d", len(listed), len(want))
		}
		stop()
		return <-ran
	}
}

// auditLeftovers checks that no work is left: no engine owns a run, no signal and no update waits.
func (l *ledger) auditLeftovers(ctx context.Context, store storage.Storage) error {
	for _, family := range []string{"held:", "sig:", "inbox:", "upd:"} {
		for e, err := range storage.All(ctx, store, storage.Prefix([]byte(family))) {
			if err != nil {
				return err
			}
			l.violate("%s is left over", e.Key)
		}
	}
	return nil
}

func (l *ledger) auditOrder(ctx context.Context, eng *engine.Engine, e *entry) error {
	info, err := eng.Describe(ctx, orderID(e.n))
	switch {
	case errors.Is(err, engine.ErrNotFound):
		if e.started != "" {
			l.violate("order-%d: its start was acknowledged, and it is lost", e.n)
		}
		return nil
	case err != nil:
		return err
	}
	l.acknowledged(e, "start", &e.started, strconv.FormatInt(info.CreatedAt.UnixMicro(), 10))
	if info.Status != checkpoint.StatusCompleted {
		l.violate("order-%d: is %s, %v", e.n, info.Status, info.Attention)
		return nil
	}
	var result string
	if err := eng.Result(ctx, info.ID, "order", &result); err != nil {
		return err
	}
	l.acknowledged(e, "result", &e.result, result)
	if want := e.learnt["reserve"] + "+" + e.learnt["charge"] + "+" + e.learnt["ship"]; result != want {
		l.violate("order-%d: result is %s, its workflow had learnt %s", e.n, result, want)
	}
	if e.updated != e.learnt["note"] {
		l.violate("order-%d: its update was answered with %s, its workflow had learnt %s", e.n, e.updated, e.learnt["note"])
	}
	return l.auditHistory(ctx, eng, e)
}

// auditHistory checks that each operation has one outcome in the history, that the update
// was accepted and answered once, and that the approval that was acknowledged is the one that was received.
func (l *ledger) auditHistory(ctx context.Context, eng *engine.Engine, e *entry) error {
	var got []string
	claims, inARow := 0, 0
	for c, err := range eng.History(ctx, orderID(e.n)) {
		if err != nil {
			return err
		}
		for _, ev := range c.Events {
			if inARow++; ev.Kind != checkpoint.KindClaimed {
				inARow = 0
			}
			l.fruitless = max(l.fruitless, inARow-1)
			switch ev.Kind {
			case checkpoint.KindClaimed:
				claims++
			case checkpoint.KindSettled, checkpoint.KindFired, checkpoint.KindEnded:
				got = append(got, string(ev.Kind)+ev.Name)
			case checkpoint.KindAccepted, checkpoint.KindAnswered:
				got = append(got, string(ev.Kind)+ev.Key)
			case checkpoint.KindReceived:
				got = append(got, string(ev.Kind)+ev.SignalID)
			}
		}
	}
	l.handovers += claims - 1
	l.steps += len(got) - 1
	noted := []string{}
	if e.updated != "" {
		noted = []string{"accepted" + noteID, "settlednote", "answered" + noteID}
	}
	if want := slices.Concat([]string{"settledreserve"}, noted, []string{"received" + approvalID, "settledcharge", "fired", "settledship", "endedcompleted"}); !slices.Equal(got, want) {
		l.violate("order-%d: its history is %v, want %v", e.n, got, want)
	}
	return nil
}

// enough is whether an eighth of so many kills have found an effect in flight.
func (l *ledger) enough(kills int) bool { return l.hits*8 >= kills }

// verdict reports errors.
func (l *ledger) verdict(kills int) error {
	switch {
	case len(l.violations) > 0:
		return fmt.Errorf("%d violations", len(l.violations))
	case l.kills < kills:
		return fmt.Errorf("%d kills, %d were asked for", l.kills, kills)
	case !l.enough(kills):
		return fmt.Errorf("%d of %d kills found an effect in flight: too few to mean anything", l.hits, l.kills)
	}
	return nil
}

// print prints the table.
func (l *ledger) print(w io.Writer, took time.Duration) {
	var started, updated, sent, results, completed, effects int
	for _, e := range l.orders {
		if e.started != "" {
			started++
		}
		if e.updated != "" {
			updated++
		}
		if e.sent != "" {
			sent++
		}
		if e.result != "" {
			results++
		}
		for _, f := range e.effects {
			effects += f.times
		}
	}
	completed = len(l.orders) - len(l.open)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, n int, words string, args ...any) {
		fmt.Fprintf(t, "%s\t%d\t%s\n", name, n, fmt.Sprintf(words, args...))
	}
	row("kills", l.kills, "%d found an effect in flight, %d a start, an update or a signal, %d nothing yet begun", l.hits, l.requests, l.openings)
	if l.others > 0 {
		row("other build", l.others, "of the children were of it")
	}
	row("workflows", len(l.orders), "%d completed; they changed hands %d times, at most %d times in a row without progress", completed, l.handovers, l.fruitless)
	row("steps", l.steps, "in their histories, each once")
	row("acknowledged", started+updated+sent+results, "%d starts, %d updates, %d signals, %d results", started, updated, sent, results)
	row("effects", effects, "and %d attempts that were refused and tried again", l.refusals)
	row("seen more than once", len(l.repeated), "all of them in flight at a kill, or at one of %d lost leases, unless listed below", l.deposed)
	row("held", l.held, "taken for what kills the process, and driven again by an operator's verb")
	row("violations", len(l.violations), "in %v", took.Round(time.Second/10))
	t.Flush()
	for i, v := range l.violations {
		if i == 20 {
			fmt.Fprintf(w, "  and %d more\n", len(l.violations)-i)
			break
		}
		fmt.Fprintln(w, "  "+v)
	}
}
