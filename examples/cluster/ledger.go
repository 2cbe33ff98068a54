package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/weft-go/weft/checkpoint"
)

// A ledger is what the processes reported, what was done to them, what the store has
// kept, and which of it is inconsistent.
type ledger struct {
	mu         sync.Mutex
	processes  map[string]*fate
	started    map[string]bool
	commits    []written
	refused    []written
	effects    map[string][]written // by order and operation
	deposed    map[string]bool      // incarnations that reported the loss of their lease
	histories  map[string]history
	fresh      map[string]int // takeovers that were not reported yet
	counts     map[string]int // of lines, by their first word
	violations []string

	repeats map[why]int // of effects
	deaths  map[why]int // of owners, as their successors recorded
	handed  int         // claims beyond the first
	fenced  int         // checkpoints of a former owner that were refused
}

// A fate is what was done to a process.
type fate struct {
	killed time.Time
	stops  []span
}

type span struct{ from, to time.Time }

// A written is a checkpoint, or an effect with its token.
type written struct {
	process string
	order   string
	number  uint64
	owner   string // according to the writer
	name    string
}

// A why is the reason for a takeover.
type why string

const (
	byKill  why = "kill"
	byPause why = "pause"
	bySloth why = "sloth" // it reported the loss of its lease: the machine is slow
	unclear why = ""
)

func newLedger() *ledger {
	return &ledger{
		processes: map[string]*fate{},
		started:   map[string]bool{},
		effects:   map[string][]written{},
		deposed:   map[string]bool{},
		histories: map[string]history{},
		fresh:     map[string]int{},
		counts:    map[string]int{},
		repeats:   map[why]int{},
		deaths:    map[why]int{},
	}
}

func (l *ledger) violate(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong(format, args...)
}

func (l *ledger) wrong(format string, args ...any) {
	l.violations = append(l.violations, fmt.Sprintf(format, args...))
}

func (l *ledger) began(process string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.processes[process] = &fate{}
}

func (l *ledger) killed(process string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.processes[process].killed = at
}

func (l *ledger) stopped(process string, from, to time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.processes[process]
	f.stops = append(f.stops, span{from, to})
}

// read records a line that a process printed.
func (l *ledger) read(process, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	word := append(strings.Fields(line), "", "", "", "", "")
	l.counts[word[0]]++
	switch word[0] {
	case "started":
		l.started[word[1]] = true
	case "commit":
		l.commits = append(l.commits, written{process, word[1], number(word[2]), word[3], ""})
	case "refused":
		l.refused = append(l.refused, written{process, word[1], number(word[2]), word[3], ""})
	case "effect":
		operation := word[1] + "/" + word[2]
		l.effects[operation] = append(l.effects[operation], written{process, word[1], number(word[4]), "", word[3]})
	case "deposed":
		l.deposed[word[1]] = true
	case "takeover":
		l.fresh[nameOf(word[3])+" takes over from "+nameOf(word[2])]++
	case "frozen":
		l.counts["frozen "+word[1]]++
		l.counts["frozen inside "+word[2]]++
	case "booked", "stale", "result", "lostrace", "fenced", "unknown", "trouble":
	default:
		l.wrong("%s said %q", process, line)
	}
}

func number(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}

// nameOf is the process of an incarnation.
func nameOf(incarnation string) string {
	name, _, _ := strings.Cut(incarnation, "-")
	return name
}

// news are the takeovers since the last call.
func (l *ledger) news() (words []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(l.fresh)) {
		words = append(words, fmt.Sprintf("%s: %d", what, l.fresh[what]))
	}
	clear(l.fresh)
	return words
}

// A history is what the store has kept of an order.
type history struct {
	numbers  map[uint64]bool
	claims   []claim
	outcomes map[string]int
	ended    int
}

// A claim is the period of one owner.
type claim struct {
	from  uint64
	at    time.Time
	owner string
	death bool // the previous owner did not shut down cleanly
}

func (h *history) take(c checkpoint.Checkpoint) {
	if h.numbers == nil {
		h.numbers, h.outcomes = map[uint64]bool{}, map[string]int{}
	}
	h.numbers[c.Number] = true
	for _, e := range c.Events {
		switch e.Kind {
		case checkpoint.KindClaimed:
			h.claims = append(h.claims, claim{c.Number, c.Time, e.By, len(h.claims) > 0 && e.Why != checkpoint.HandedOver})
		case checkpoint.KindSettled, checkpoint.KindFired, checkpoint.KindReceived:
			h.outcomes[e.Operation]++
		case checkpoint.KindEnded:
			h.ended++
		}
	}
}

// at is the index of the claim in force at a number, or -1.
func (h *history) at(number uint64) int {
	i, exact := slices.BinarySearchFunc(h.claims, number, func(c claim, n uint64) int { return cmp.Compare(c.from, n) })
	if exact {
		return i
	}
	return i - 1
}

func (l *ledger) kept(order string, h history) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.histories[order] = h
}

// judge compares everything.
func (l *ledger) judge(bookings []booking) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for order := range l.started {
		if _, ok := l.histories[order]; !ok {
			l.wrong("%s: its start was acknowledged, and it is lost", order)
		}
	}
	for order, h := range l.histories {
		l.judgeHistory(order, h)
	}
	for _, c := range l.commits {
		l.judgeCommit(c)
	}
	for _, c := range l.refused {
		h := l.histories[c.order]
		if i := h.at(c.number); i >= 0 && c.owner != "" && h.claims[i].owner != c.owner {
			l.fenced++
		}
	}
	for operation, effects := range l.effects {
		l.judgeEffects(operation, effects)
	}
	l.judgeBookings(bookings)
}

func (l *ledger) judgeHistory(order string, h history) {
	for operation, n := range h.outcomes {
		if n > 1 {
			l.wrong("%s: operation %s has %d outcomes", order, operation, n)
		}
	}
	if h.ended > 1 {
		l.wrong("%s has ended %d times", order, h.ended)
	}
	for i, c := range h.claims {
		if i > 0 {
			l.handed++
		}
		if c.death {
			w := l.explain(h.claims[i-1].owner, c.at)
			if l.deaths[w]++; w == unclear {
				l.wrong("%s: %s was succeeded by %s at %v; it was neither killed nor stopped, and did not lose its lease", order, h.claims[i-1].owner, c.owner, c.at)
			}
		}
	}
}

// explain returns the reason for a takeover at a time.
func (l *ledger) explain(owner string, at time.Time) why {
	f := l.processes[nameOf(owner)]
	switch {
	case f == nil:
		return unclear
	case !f.killed.IsZero() && f.killed.Before(at):
		return byKill
	}
	for _, s := range f.stops {
		if s.from.Before(at) && at.Before(s.to.Add(2*time.Second)) {
			return byPause
		}
	}
	if l.deposed[owner] || !f.killed.IsZero() { // it may have died before it could report
		return bySloth
	}
	return unclear
}

// judgeCommit checks that the owner of an acknowledged checkpoint was the owner by the
// claim in force at its number.
func (l *ledger) judgeCommit(c written) {
	h, ok := l.histories[c.order]
	i := h.at(c.number)
	switch {
	case !ok || !h.numbers[c.number]:
		l.wrong("%s: checkpoint %d was acknowledged to %s, and is lost", c.order, c.number, c.process)
	case i < 0 || h.claims[i].owner != c.owner || nameOf(c.owner) != c.process:
		l.wrong("%s: checkpoint %d was acknowledged to %s, which wrote as %q; the owner was %+v", c.order, c.number, c.process, c.owner, h.claims)
	}
}

// judgeEffects checks that each effect of an operation was by the owner at its token,
// and that every repetition had a reason.
func (l *ledger) judgeEffects(operation string, effects []written) {
	slices.SortStableFunc(effects, func(a, b written) int { return cmp.Compare(a.number, b.number) })
	before := -1
	for n, e := range effects {
		h := l.histories[e.order]
		i := h.at(e.number)
		switch {
		case i < 0 || nameOf(h.claims[i].owner) != e.process:
			l.wrong("%s of %s by %s, with the token %d of %+v", e.name, operation, e.process, e.number, h.claims)
			return
		case n > 0 && i == before:
			l.wrong("%s of %s twice by %s, under one claim", e.name, operation, e.process)
		case n > 0:
			w := unclear
			for j := before + 1; j <= i && w == unclear; j++ {
				if h.claims[j].death {
					w = l.explain(h.claims[j-1].owner, h.claims[j].at)
				}
			}
			if l.repeats[w]++; w == unclear {
				l.wrong("%s of %s twice, and nothing explains it: %+v", e.name, operation, h.claims)
			}
		}
		before = i
	}
}

// judgeBookings checks that the tokens of a resource rise, in the order in which the
// target admitted them, and that each order is booked.
func (l *ledger) judgeBookings(bookings []booking) {
	last, booked := map[string]uint64{}, map[string]bool{}
	for _, b := range bookings {
		if b.token <= last[b.resource] {
			l.wrong("%s: token %d was let in after %d", b.resource, b.token, last[b.resource])
		}
		last[b.resource] = b.token
		order, _, _ := strings.Cut(b.resource, "/")
		booked[order] = true
	}
	l.counts["let in"] = len(bookings)
	for order, h := range l.histories {
		if h.ended > 0 && !booked[order] {
			l.wrong("%s: was never booked", order)
		}
	}
}

// totals counts what was done.
func (l *ledger) totals() (kills, pauses int) {
	for _, f := range l.processes {
		pauses += len(f.stops)
		if !f.killed.IsZero() {
			kills++
		}
	}
	return kills, pauses
}

// errTooFew means that too little has happened to prove anything. On a slow machine, engines
// lose their leases before they are stopped or killed.
var errTooFew = errors.New("too few to mean anything")

// verdict reports errors.
func (l *ledger) verdict(o options) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	kills, pauses := l.totals()
	done := kills + pauses
	switch {
	case len(l.violations) > 0:
		return fmt.Errorf("%d violations", len(l.violations))
	case kills < o.kills || pauses < o.pauses:
		return fmt.Errorf("%d kills and %d pauses; %d and %d were asked for", kills, pauses, o.kills, o.pauses)
	}
	inside, stale := 0, pauses/24
	if o.inside { // an activity is seldom stopped there before it books
		inside, stale = max(1, pauses/5), 0
	}
	cuts := pauses
	if o.store == "sqlite" { // which has no connections to cut
		cuts = 0
	}
	for _, least := range []struct {
		what string
		n, c int
	}{
		{"takeovers", l.counts["takeover"], done / 2},
		{"stops inside a commit", l.counts["frozen inside"], inside},
		{"stops inside a commit that was then refused", l.counts["frozen inside refused"], inside / 10},
		{"owners found dead after a kill", l.deaths[byKill], kills / 3},
		{"owners found dead in a pause", l.deaths[byPause], pauses / 3},
		{"repeated effects", l.repeats[byKill] + l.repeats[byPause], done / 12},
		{"refused checkpoints of former owners", l.fenced, pauses / 40},
		{"commits of unknown outcome", l.counts["unknown"], cuts / 40},
		{"stale tokens at the target", l.counts["stale"], stale},
	} {
		if least.n < least.c {
			return fmt.Errorf("%w: %d %s, want at least %d", errTooFew, least.n, least.what, least.c)
		}
	}
	return nil
}

// print prints the table.
func (l *ledger) print(w io.Writer, o options, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kills, pauses := l.totals()
	effects := 0
	for _, e := range l.effects {
		effects += len(e)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, n int, words string, args ...any) {
		fmt.Fprintf(t, "%s\t%d\t%s\n", name, n, fmt.Sprintf(words, args...))
	}
	fmt.Fprintln(w)
	row("kills", kills, "and %d pauses of 1.2 to 3 leases of %v", pauses, o.ttl)
	row("orders", len(l.histories), "all of them looked at; they changed hands %d times", l.handed)
	row("takeovers", l.counts["takeover"], "and %d lost races for a claim", l.counts["lostrace"])
	row("owners found dead", l.deaths[byKill]+l.deaths[byPause]+l.deaths[bySloth], "%d after a kill, %d in a pause, %d that lost their lease on a slow machine", l.deaths[byKill], l.deaths[byPause], l.deaths[bySloth])
	row("checkpoints", len(l.commits), "acknowledged, each to the owner of the time")
	row("fenced", l.fenced, "checkpoints of former owners, which were refused")
	row("unknown", l.counts["unknown"], "commits of which nobody knew at first whether they were done")
	if o.inside {
		row("stops inside", l.counts["frozen inside"], "a commit: of these %d were done, %d refused and %d of unknown outcome; %d stops came after it",
			l.counts["frozen inside done"], l.counts["frozen inside refused"], l.counts["frozen inside unknown"], l.counts["frozen outside"])
	}
	row("effects", effects, "of them repeated: %d after a kill, %d after a pause, %d after a lost lease", l.repeats[byKill], l.repeats[byPause], l.repeats[bySloth])
	row("bookings", l.counts["let in"], "let in, with rising tokens; %d stale ones were refused", l.counts["stale"])
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
