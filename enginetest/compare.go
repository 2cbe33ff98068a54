package enginetest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
)

// A finding is one problem, in words. Findings about the same thing are reported once.
type finding struct {
	about string
	lines []string
}

// counts are how often each thing happened.
func counts(effects []Effect) map[string]int {
	n := map[string]int{}
	for _, e := range effects {
		n[e.Name]++
	}
	return n
}

// differs reports how two plays without failures differ, and excludes results that
// differ from the comparison.
func (p *played) differs(again *played) (fs []finding) {
	if one, two := counts(p.effects), counts(again.effects); !maps.Equal(one, two) {
		fs = append(fs, finding{"story", []string{
			fmt.Sprintf("the effects were %v and then %v.", one, two),
			"Plays can be compared only if the scenario does the same each time.",
		}})
	}
	for _, id := range slices.Sorted(maps.Keys(p.ends)) {
		one, two := p.ends[id], again.ends[id]
		switch {
		case two.status == "":
			advice := "Start it with an id of yours: then a client that tries again does not start another."
			if d, ok := p.words.names.starter(id); ok {
				advice = fmt.Sprintf("The run of %s has chosen this id, in operation %s. Derive it from the run's input and id, or choose none.", p.words.names.of(d.run), d.operation)
			}
			fs = append(fs, finding{"id", []string{fmt.Sprintf("workflow %s is there only the first time.", id), advice}})
		case one.status != two.status:
			fs = append(fs, finding{"end of " + id, []string{fmt.Sprintf("%s ended as %v, and then as %v.", id, one, two)}})
		case one.result != two.result:
			p.ends[id] = end{status: one.status, result: unstable}
		}
	}
	p.varying = map[writer]bool{}
	for w, written := range p.chunks {
		p.varying[w] = !slices.Equal(written, again.chunks[w])
	}
	return fs
}

// unstable is a result that is not compared.
const unstable = "\x00"

// beside reports how p differs from calm, the play without failures.
func (p *played) beside(calm *played) []finding {
	fs := p.trouble
	one, two := counts(calm.effects), counts(p.effects)
	names := maps.Clone(one)
	maps.Copy(names, two)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if two[name] < one[name] || two[name] > one[name] && !p.may[name] {
			fs = append(fs, p.effect(name, one[name], two[name]))
		}
	}
	fs = append(fs, p.ended(calm, len(fs) > 0)...)
	if len(fs) == 0 { // other problems would explain these
		fs = p.streams(calm)
	}
	return fs
}

// effect is the finding that an effect happened too often or not often enough.
func (p *played) effect(name string, calm, now int) finding {
	f := finding{about: "effect " + name}
	f.lines = append(f.lines, fmt.Sprintf("%q happened %s, undisturbed %s", name, times(now), times(calm)))
	var table [][]string
	who := map[doer]bool{}
	for _, e := range p.telling(name) {
		row := []string{"    outside of any activity", "", "", ""}
		if e.WorkflowID != "" {
			d := doer{e.Activity, e.Phase == activity.PhaseCompensate}
			row = []string{"    " + e.WorkflowID, d.String(), "operation " + e.Operation, fmt.Sprintf("attempt %d", e.Attempt)}
			who[d] = true
		}
		switch {
		case p.deaths == 0:
		case p.deaths > 1:
			row = append(row, fmt.Sprintf("process %d", e.Life))
		case e.Life == 1:
			row = append(row, "before the crash")
		default:
			row = append(row, "after it")
		}
		table = append(table, row)
	}
	f.lines = append(f.lines, aligned(table)...)
	if now > calm {
		doers := slices.SortedFunc(maps.Keys(who), func(a, b doer) int { return strings.Compare(a.String(), b.String()) })
		f.lines = append(f.lines, p.remedies(name, doers)...)
	}
	return f
}

// mostRows is how often an effect may have happened that is shown each time.
const mostRows = 20

// telling are the effects to show of those with a name: if they are many, those that one operation had
// several times.
func (p *played) telling(name string) []Effect {
	named := slices.DeleteFunc(slices.Clone(p.effects), func(e Effect) bool { return e.Name != name })
	if len(named) <= mostRows {
		return named
	}
	times := map[doing]int{}
	for _, e := range named {
		times[doing{e.WorkflowID, e.Operation}]++
	}
	repeated := slices.DeleteFunc(slices.Clone(named), func(e Effect) bool { return times[doing{e.WorkflowID, e.Operation}] == 1 })
	if len(repeated) == 0 {
		repeated = named
	}
	return repeated[:min(mostRows, len(repeated))]
}

// A doer had an effect: an activity, or its Compensate.
type doer struct {
	activity string
	undoes   bool
}

func (d doer) String() string {
	if d.undoes {
		return "Compensate of " + d.activity
	}
	return d.activity
}

// remedies say how to fix an effect that happened too often. doers had it; there are
// none if it happened outside of activities.
func (p *played) remedies(effect string, doers []doer) (lines []string) {
	if len(doers) == 0 {
		return []string{"Drive is called again after a crash: what it does outside must bear that."}
	}
	for _, d := range doers {
		switch {
		case d.undoes:
			lines = append(lines,
				d.String()+" runs at least once. If the process dies after the effect and before the record of it, it",
				"runs again: undo what is undone already without an effect. activity.InfoFrom tells what names the call.")
		case p.keyed[d.activity]:
			lines = append(lines,
				d.activity+" has an IdempotencyKey, and was run again with it. Hand the key to the other side, and let that take the",
				"second for the first; or let Verify find the first.")
		default:
			lines = append(lines,
				d.activity+" has no IdempotencyKey: it runs at least once. If the process dies after the effect and before the record",
				"of it, it runs again. Give it a key, and a Verify that asks the other side what became of the first. (A step",
				"has neither: make it an activity.)")
		}
	}
	return append(lines, fmt.Sprintf("If a second does no harm, put %q into Scenario.MayRepeat.", effect))
}

// ended reports differences in how workflows ended. explained says that there are other
// problems, which may explain another result.
func (p *played) ended(calm *played, explained bool) (fs []finding) {
	wrong := func(id string, lines ...string) { fs = append(fs, finding{"end of " + id, lines}) }
	for _, id := range slices.Sorted(maps.Keys(calm.ends)) {
		was, is := calm.ends[id], p.ends[id]
		if was.status == is.status && (was.result == unstable || p.agrees(is.result, calm, was.result)) {
			continue
		}
		switch {
		case is.status == "":
			wrong(id, id+" is not there; undisturbed it ended as "+shown(was))
		case strings.HasPrefix(is.status, held):
			fs = append(fs, isHeld(id, is))
		case was.status == is.status:
			what := "result"
			if is.status == string(checkpoint.StatusFailed) {
				what = "error"
			}
			lines := []string{what + " of " + id + " differs:", "    here         " + cut(is.result), "    undisturbed  " + cut(was.result)}
			if !explained {
				lines = append(lines, "What a workflow returns must come from its input, its *engine.Run and the outcomes of what it began.")
			}
			wrong(id, lines...)
		default:
			wrong(id, id+" ended otherwise:", "    here         "+shown(is), "    undisturbed  "+shown(was))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.ends)) {
		if _, ok := calm.ends[id]; !ok {
			wrong(id, id+" is there ("+shown(p.ends[id])+"), and undisturbed it is not")
		}
	}
	return fs
}

// held reports the runs that are held.
func (p *played) held() (fs []finding) {
	for _, id := range slices.Sorted(maps.Keys(p.ends)) {
		if e := p.ends[id]; strings.HasPrefix(e.status, held) {
			fs = append(fs, isHeld(id, e))
		}
	}
	return fs
}

func isHeld(id string, e end) finding {
	lines := []string{id + " is " + e.String()}
	if e.status == held+string(engine.ReasonNonDeterminism) {
		lines = append(lines,
			"The workflow function did something else when it was replayed. Time, chance and the world must come",
			"to it through its *engine.Run, an activity, a step or a signal.")
	}
	return finding{"end of " + id, lines}
}

var number = regexp.MustCompile(`\d+`)

// agrees reports whether two results are the same except for the numbers of attempts, which
// count the processes that died: each number that differs is that of the last attempt of one
// operation that failed, in both plays.
func (p *played) agrees(result string, calm *played, undisturbed string) bool {
	here, there := number.FindAllString(result, -1), number.FindAllString(undisturbed, -1)
	if number.ReplaceAllString(result, "0") != number.ReplaceAllString(undisturbed, "0") {
		return false
	}
	for i, n := range here {
		if n != there[i] && !p.attempted(n, calm, there[i]) {
			return false
		}
	}
	return true
}

// attempted reports whether an operation failed in attempt n, and undisturbed in attempt m.
func (p *played) attempted(n string, calm *played, m string) bool {
	for d, last := range p.attempts {
		if was, ok := calm.attempts[d]; ok && strconv.Itoa(last) == n && strconv.Itoa(was) == m {
			return true
		}
	}
	return false
}

func shown(e end) string {
	if e.result == unstable {
		return e.status
	}
	return cut(e.String())
}

// cut shortens s if it is too long to read.
func cut(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s... (%d bytes)", s[:most], len(s))
}

func times(n int) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// aligned are the rows of a table as lines.
func aligned(table [][]string) (lines []string) {
	width := map[int]int{}
	for _, row := range table {
		for i, s := range row {
			width[i] = max(width[i], len(s))
		}
	}
	for _, row := range table {
		line := ""
		for i, s := range row {
			if width[i] > 0 {
				line += fmt.Sprintf("%-*s  ", width[i], s)
			}
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

func indented(lines []string) (in []string) {
	for _, l := range lines {
		in = append(in, "    "+l)
	}
	return in
}
