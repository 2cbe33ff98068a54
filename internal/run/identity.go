package run

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/payload"
)

// Kinds of timers. They are recorded, and compared on replay.
const (
	ofSleep = "sleep" // of Sleep or After
	ofLimit = "limit" // of WithTimeout: ends a scope
)

// mostWords is the maximum length in bytes of a text that is recorded to be compared. A
// longer text is replaced by its digest.
const mostWords = 32

// word returns s as it is recorded to be compared.
func word(s string) string {
	if len(s) <= mostWords && utf8.ValidString(s) && !strings.HasPrefix(s, "#") {
		return s
	}
	return hashed(s)
}

func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return fmt.Sprintf("#%x", sum[:8])
}

// within returns the path of a branch inside another one: "a/b".
func within(outer, name string) string {
	path := name
	if outer != "" {
		path = outer + "/" + name
	}
	if len(path) > mostWords || strings.ContainsAny(name, "/#") {
		return hashed(path + "/") // differs from the digest of any name
	}
	return path
}

// event returns an event about o, with what identifies o and the fingerprint of its input.
func (o *operation) event(kind checkpoint.Kind) checkpoint.Event {
	e := checkpoint.Event{Kind: kind, Operation: o.id, Of: o.kind.name, Name: o.name, Branch: o.branch, Which: o.which}
	if o.digest != (payload.Fingerprint{}) {
		e.Input = o.digest[:]
	}
	return e
}

// compare returns a *NonDeterminismError if e was recorded for an operation that differs
// from o. If only the input differs, it reports that. Earlier releases recorded less; what
// is not recorded is not compared.
func (o *operation) compare(e logged) error {
	recorded := func() string { return describe(e.Of, e.Name) }
	asked := func() string { return describe(o.kind.name, o.name) }
	var was, is string
	switch {
	case o.kind.name != e.Of || o.name != e.Name:
		was, is = recorded(), asked()
	case e.Branch != "" && e.Branch != o.branch:
		was, is = inBranch(recorded(), e.Branch), inBranch(asked(), o.branch)
	case e.Which != "" && e.Which != o.which:
		was, is = besides(recorded(), e.Of, e.Which), besides(asked(), o.kind.name, o.which)
	case e.Child != "" && o.child != nil && e.Child != o.child.starting.Workflow.ID:
		was, is = withID(recorded(), e.Child), withID(asked(), o.child.starting.Workflow.ID)
	case e.Kind == checkpoint.KindMissed && (o.wait == nil || o.wait.Within == nil):
		was, is = recorded()+" that came to its time limit", asked()+" without one"
	default:
		if e.old && len(e.Input) == len(o.digest) && o.digest != (payload.Fingerprint{}) && !bytes.Equal(e.Input, o.digest[:]) {
			o.x.anotherInput(o)
		}
		return nil
	}
	return &weft.NonDeterminismError{WorkflowID: o.x.ID, Operation: e.Operation, Recorded: was, Asked: is}
}

// describe describes an operation: "activity charge".
func describe(of, name string) string {
	if name == "" {
		return of
	}
	return of + " " + name
}

func inBranch(what, path string) string {
	if strings.HasPrefix(path, "#") {
		return fmt.Sprintf("%s in the branch with the digest %s", what, path)
	}
	return fmt.Sprintf("%s in the branch %q", what, path)
}

func withID(what, id string) string { return fmt.Sprintf("%s with the id %q", what, id) }

func besides(what, of, which string) string {
	switch {
	case of == ofTimer.name && which == ofLimit:
		return what + " of WithTimeout"
	case of == ofTimer.name:
		return what + " of Sleep or After"
	}
	return fmt.Sprintf("%s to %q", what, which)
}

// mostChanged is how many operations with a different input are listed by name.
const mostChanged = 100

// anotherInput reports that o's input differs from the one in the history. That does not stop
// the run: a field that was added to a struct changes the input, too.
func (x *Execution) anotherInput(o *operation) {
	what := o.id + " (" + describe(o.kind.name, o.name) + ")"
	if len(x.Changed) < mostChanged && !slices.Contains(x.Changed, what) { // each recorded attempt is compared
		x.Changed = append(x.Changed, what)
	}
	if !x.host.tellsOfInput(x.Hold.Workflow.Generation) {
		return
	}
	x.host.Log.Warn("weft: in a replay, an operation was started with an input that differs from the recorded one; the run continues", "workflow", x.ID, "type", x.Definition.Name, "operation", o.id, "what", describe(o.kind.name, o.name))
	if f := x.host.Events.InputChanged; f != nil {
		f(weft.InputChangedEvent{WorkflowID: x.ID, Operation: o.id})
	}
}

// MostTold is how many runs with changed input an engine remembers to have reported.
const MostTold = 10_000

// tellsOfInput reports whether a changed input of this run is to be reported. It returns true
// only the first time, because a run is replayed each time it comes back from parking.
func (e *Host) tellsOfInput(generation string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.changed[generation] {
		return false
	}
	if e.changed == nil || len(e.changed) >= MostTold {
		e.changed = map[string]bool{}
	}
	e.changed[generation] = true
	return true
}
