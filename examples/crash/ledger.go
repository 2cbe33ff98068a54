package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A ledger is what was reported to the parent, and which of it is inconsistent.
type ledger struct {
	life       int // of the child, from 1
	kills      int
	hits       int  // kills that found an effect in flight
	requests   int  // kills that found a start, an update or a signal in flight
	openings   int  // kills before the child had done anything
	deposed    int  // leases that a child lost, being too slow
	others     int  // lives of another build
	foreign    bool // this life is one of those; an earlier release does not report a lost lease
	lines      int  // printed in this life
	worked     bool // in this life: it has executed an order
	next       int  // the first order number that is free
	orders     map[int]*entry
	open       map[int]*entry // those without a result
	repeated   []string       // effects that were seen more than once
	refusals   int
	held       int // runs held because they seemed to kill the process
	steps      int // in the audited histories
	handovers  int // claims beyond the first
	fruitless  int // the most consecutive owners of one order that died without progress
	violations []string
	doubts     []string // violations unless a lease was lost in this life, which is of another build
}

// An entry is an order as it was reported.
type entry struct {
	n       int
	asked   int               // the last life in which a client started with it
	started string            // when it was created, as first acknowledged
	updated string            // the answer to its update, as first acknowledged
	sent    string            // when the approval was accepted, as first acknowledged
	result  string            // as first acknowledged
	learnt  map[string]string // what its workflow function has seen
	effects map[string]*effect
	said    []string // the lines about it, and leases that were lost meanwhile
}

// An effect is one operation of an order that cannot be undone.
type effect struct {
	times    int
	life     int // the last in which it started
	attempt  int // the last
	token    uint64
	inFlight bool // at the kill that ended that life, or when a lease was lost
}

func newLedger() *ledger {
	return &ledger{next: 1, orders: map[int]*entry{}, open: map[int]*entry{}}
}

func (l *ledger) violate(format string, args ...any) {
	l.violations = append(l.violations, fmt.Sprintf(format, args...))
}

// accuse records a violation of an order, and all that was said about the order until then.
func (l *ledger) accuse(e *entry, format string, args ...any) {
	l.violate("order-%d: %s\n    %s", e.n, fmt.Sprintf(format, args...), strings.Join(e.said, "\n    "))
}

// plan is what the next child is to do.
func (l *ledger) plan(o options, finish bool) plan {
	p := plan{Store: o.store, Dir: o.dir, Clients: o.clients, Next: l.next, Finish: finish, Updates: o.other == ""}
	for _, e := range l.open {
		p.Open = append(p.Open, task{e.n, e.started != "", e.updated != "", e.sent != ""})
	}
	slices.SortFunc(p.Open, func(a, b task) int { return cmp.Compare(a.N, b.N) })
	return p
}

// begin begins the next life.
func (l *ledger) begin() {
	l.life++
	l.lines, l.worked = 0, false
}

// ended ends a life. said is what the child has logged, in which another build says that it has lost a lease.
func (l *ledger) ended(said []byte) {
	switch {
	case !l.foreign:
	case bytes.Contains(said, []byte("lease is lost")):
		l.deposed++
	default:
		l.violations = append(l.violations, l.doubts...)
	}
	l.doubts, l.foreign = nil, false
}

// interrupted records what is in flight when the owner of it has ended: that may be repeated. It returns
// how many effects that are.
func (l *ledger) interrupted() (effects int) {
	for _, e := range l.open {
		for name, f := range e.effects {
			if f.life == l.life && e.learnt[name] == "" {
				f.inFlight = true
				effects++
			}
		}
	}
	return effects
}

// killed ends a life by a kill, and records what was in flight.
func (l *ledger) killed() {
	l.kills++
	effects, requests := l.interrupted(), 0
	for _, e := range l.open {
		if e.asked == l.life && (e.started == "" || e.sent == "") {
			requests++
		}
	}
	if effects > 0 {
		l.hits++
	}
	if requests > 0 {
		l.requests++
	}
	if l.lines == 0 {
		l.openings++
	}
}

// read records a line that the child printed.
func (l *ledger) read(line string) {
	l.lines++
	word := strings.Fields(line)
	if len(word) == 1 && word[0] == "deposed" { // the process was too slow for its lease, and goes on as another owner
		l.deposed++
		l.interrupted()
		for _, e := range l.open {
			e.said = append(e.said, "deposed")
		}
		return
	}
	n := 0
	if len(word) > 1 {
		n, _ = strconv.Atoi(strings.TrimPrefix(word[1], "order-"))
	}
	if n == 0 {
		l.violate("the child said %q", line)
		return
	}
	e := l.orders[n]
	if e == nil {
		e = &entry{n: n, learnt: map[string]string{}, effects: map[string]*effect{}}
		l.orders[n], l.open[n] = e, e
		l.next = max(l.next, n+1)
	}
	e.said = append(e.said, fmt.Sprintf("%d: %s", l.life, strings.TrimSpace(line)))
	l.worked = l.worked || word[0] == "learnt" || word[0] == "effect" || word[0] == "refused"
	switch {
	case word[0] == "open":
		e.asked = l.life
	case word[0] == "stray" && len(word) == 3:
		l.accuse(e, "%s began when its owner had lost its lease", word[2])
	case word[0] == "held":
		l.held++
	case word[0] == "started" && len(word) == 3:
		l.acknowledged(e, "start", &e.started, word[2])
	case word[0] == "updated" && len(word) == 3:
		l.acknowledged(e, "update", &e.updated, word[2])
	case word[0] == "sent" && len(word) == 3:
		l.acknowledged(e, "approval", &e.sent, word[2])
	case word[0] == "result" && len(word) == 3:
		l.acknowledged(e, "result", &e.result, word[2])
		delete(l.open, n)
	case word[0] == "learnt" && len(word) == 4:
		l.learn(e, word[2], word[3])
	case (word[0] == "effect" || word[0] == "refused") && len(word) == 5, word[0] == "effect" && len(word) == 6 && word[5] == "late":
		attempt, _ := strconv.Atoi(word[3])
		token, _ := strconv.ParseUint(word[4], 10, 64)
		l.attempt(e, word[2], attempt, token, word[0] == "effect")
		if len(word) == 6 { // the attempt had begun before the lease was lost
			e.effects[word[2]].inFlight = true
		}
	default:
		l.violate("the child said %q", strings.TrimSpace(line))
	}
}

// acknowledged records the first answer; every later one must be the same.
func (l *ledger) acknowledged(e *entry, what string, first *string, answer string) {
	if *first == "" {
		*first = answer
	}
	if *first != answer {
		l.accuse(e, "its %s was acknowledged as %s, and later as %s", what, *first, answer)
	}
}

// learn records what a workflow function saw. What it sees is durable: it sees the same
// in each life, and it sees no outcome of an effect that did not start.
func (l *ledger) learn(e *entry, what, value string) {
	if seen := e.learnt[what]; seen != "" && seen != value {
		l.accuse(e, "learnt %s %s, and later %s", what, seen, value)
	}
	e.learnt[what] = value
	f := e.effects[what]
	if effectful(what) && (f == nil || !strings.HasPrefix(value, fmt.Sprintf("%s.%d.", what, f.attempt))) {
		l.accuse(e, "learnt %s %s, of an attempt that was not begun last", what, value)
	}
}

func effectful(what string) bool {
	return what == "reserve" || what == "note" || what == "charge" || what == "ship"
}

// attempt records an attempt. One that is refused has no effect.
func (l *ledger) attempt(e *entry, name string, attempt int, token uint64, happens bool) {
	f := e.effects[name]
	if f == nil {
		f = &effect{}
		e.effects[name] = f
	}
	if attempt <= f.attempt {
		l.accuse(e, "%s: attempt %d after attempt %d", name, attempt, f.attempt)
	}
	if token <= f.token {
		l.accuse(e, "%s: fencing token %d after %d", name, token, f.token)
	}
	f.attempt, f.token = attempt, token
	if !happens {
		l.refusals++
		return
	}
	if f.times++; f.times > 1 {
		l.repeat(e, name, f)
	}
	f.life, f.inFlight = l.life, false
}

// repeat checks an effect that was seen before.
func (l *ledger) repeat(e *entry, name string, f *effect) {
	l.repeated = append(l.repeated, fmt.Sprintf("order-%d %s: in lives %d and %d", e.n, name, f.life, l.life))
	switch {
	case e.learnt[name] != "":
		l.accuse(e, "%s was repeated after its outcome had been learnt", name)
	case f.life == l.life && !f.inFlight:
		before := len(l.violations)
		l.accuse(e, "%s was repeated in one life of the process", name)
		if l.foreign {
			l.doubts, l.violations = append(l.doubts, l.violations[before:]...), l.violations[:before]
		}
	case !f.inFlight:
		l.accuse(e, "%s was repeated and had not been in flight at a kill", name)
	}
}
