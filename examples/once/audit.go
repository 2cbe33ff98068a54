package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weft-go/weft/idempotency"
)

func (d *desk) hire(worker string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.came[worker] = make(chan struct{})
}

// killed notes that a worker is about to be killed. What it says from now on, nobody hears.
func (d *desk) killed(worker string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead[worker] = true
	d.counts["kills"]++
	delete(d.traps, worker)
}

// hit notes that a refund is in flight at a kill or a stop.
func (d *desk) hit(k Kind) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hits[k]++
}

func (d *desk) count(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts[what]++
}

func (d *desk) failed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.wrong) > 0
}

// finish begins no more refunds.
func (d *desk) finish() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.finishing, d.progress = true, time.Now()
}

// stuck says whether nobody was answered for long.
func (d *desk) stuck() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.progress) > stall
}

func (d *desk) inFlight() (n int) {
	for _, hits := range d.hits {
		n += hits
	}
	return n
}

// enough says whether a third of the kills, and all stops, have found a refund in flight, and a quarter of
// the stops have cost a claim.
func (d *desk) enough() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lacks() == ""
}

// lacks says what there was too little of.
func (d *desk) lacks() string {
	switch {
	case d.kills > 0 && 3*d.inFlight() < d.kills:
		return fmt.Sprintf("%d of %d kills found a refund in flight", d.inFlight(), d.counts["kills"])
	case d.pauses > 0 && 4*d.counts[idempotency.ErrFenceLost.Error()] < d.pauses:
		return fmt.Sprintf("%d of %d stops cost a claim", d.counts[idempotency.ErrFenceLost.Error()], d.counts["stops"])
	}
	if d.kills < 50 {
		return ""
	}
	for _, k := range d.kinds {
		if d.hits[k] == 0 {
			return fmt.Sprintf("no kill found a refund of the kind %q in flight", k)
		}
	}
	for _, what := range []string{"questions", "resolved", "known to be the same", "conflicts"} {
		if d.counts[what] == 0 {
			return fmt.Sprintf("%s: none", what)
		}
	}
	return ""
}

// audit compares the books with the store.
func (d *desk) audit(ctx context.Context, p place, o options) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	store, h, err := p.open(ctx, o.where)
	if err != nil {
		return err
	}
	defer store.Close()
	rows := map[string]int{}
	if h != nil {
		defer h.close()
		if rows, err = h.rows(ctx); err != nil {
			return err
		}
	}
	l, err := idempotency.New(idempotency.Config{Storage: store, Lease: o.lease, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer l.Close()
	found := map[string]idempotency.Info{}
	for info, err := range l.List(ctx, idempotency.Filter{Tenant: "shop"}) {
		if err != nil {
			return err
		}
		found[info.Hash] = info
	}
	books := slices.SortedFunc(maps.Values(d.books), func(a, b *book) int { return cmp.Compare(a.refund.N, b.refund.N) })
	for _, b := range books {
		effects := len(b.numbers)
		if b.kind == inTx {
			effects = rows[b.hash]
		}
		for _, wrong := range b.wrong(found[b.hash], effects) {
			d.violate(b, "%s", wrong)
		}
	}
	return nil
}

// wrong returns what is wrong with a refund that happened so many times, whose record is i.
func (b *book) wrong(i idempotency.Info, effects int) (wrong []string) {
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	switch {
	case i.Err != nil:
		bad("the record: %v", i.Err)
	case i.State != idempotency.StateSealed:
		bad("stuck: it is %q (%s), and %d callers were told that it is sealed", i.State, i.Failure, b.told)
	case b.told < callers:
		bad("stuck: %d of %d callers were answered", b.told, callers)
	case *b.first != receipt{i.EffectID, b.first.Result, i.Attempt, i.FirstSeen.UnixMicro(), i.SealedAt.UnixMicro()}:
		bad("callers were told %+v, the record is %+v", *b.first, i)
	}
	switch {
	case effects > 1:
		bad("duplicate: it happened %d times", effects)
	case effects == 0 && b.first != nil:
		bad("lost: callers were told that it happened")
	}
	if b.news > 1 {
		bad("second seal: %d callers were told that theirs is new", b.news)
	}
	for epoch, n := range b.seals {
		if n > 1 || epoch != i.Epoch {
			bad("second seal: the store has confirmed %d with token %d, the record is of %d", n, epoch, i.Epoch)
		}
	}
	if b.claimed > i.Epoch {
		bad("a seal over a taken claim: token %d was claimed, the record is of %d", b.claimed, i.Epoch)
	}
	return wrong
}

// verdict reports errors.
func (d *desk) verdict(o options) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch lacks := d.lacks(); {
	case len(d.wrong) > 0:
		return fmt.Errorf("violations at %d refunds", len(d.wrong))
	case d.counts["kills"] < o.kills || d.counts["stops"] < o.pauses:
		return fmt.Errorf("%d kills and %d stops", d.counts["kills"], d.counts["stops"])
	case lacks != "":
		return fmt.Errorf("too little happened: %s", lacks)
	}
	return nil
}

// print prints the table.
func (d *desk) print(w io.Writer, took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	seals, takeovers := 0, 0
	for _, b := range d.books {
		for _, n := range b.seals {
			seals += n
		}
		if b.first != nil && b.first.Attempt > 1 {
			takeovers++
		}
	}
	var hits []string
	for _, k := range d.kinds {
		hits = append(hits, fmt.Sprintf("%d %s", d.hits[k], k))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, n int, words string, args ...any) {
		fmt.Fprintf(t, "%s\t%d\t%s\n", name, n, fmt.Sprintf(words, args...))
	}
	row("kills", d.counts["kills"], "and %d stops; %d found a refund in flight for certain: %s", d.counts["stops"], d.inFlight(), strings.Join(hits, ", "))
	row("keys", len(d.books), "asked for by %d callers each; %d took more than one attempt", callers, takeovers)
	row("refunds", d.counts["refunds"], "made by the provider, beside rows; %d requests, %d questions", d.counts["requests"], d.counts["questions"])
	row("seals", seals, "seen to be confirmed")
	row("violations", len(d.wrong), "in %v", took.Round(time.Second/10))
	t.Flush()
	for _, what := range slices.Sorted(maps.Keys(d.counts)) {
		if !slices.Contains([]string{"kills", "stops", "refunds", "requests", "questions"}, what) {
			fmt.Fprintf(w, "  %d: %s\n", d.counts[what], what)
		}
	}
	for i, b := range d.wrong {
		if i == 10 {
			fmt.Fprintf(w, "and %d more\n", len(d.wrong)-i)
			break
		}
		fmt.Fprintf(w, "%s %d:\n  %s\n  - %s\n", b.kind, b.refund.N, strings.Join(b.violations, "\n  "), strings.Join(b.story, "\n  - "))
	}
}
