package run

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"path"
	"regexp"
	"runtime"
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

// differs returns what identifies the operation that e was recorded for, and o, if these are not
// the same. Earlier releases recorded less; what is not recorded is not compared.
func (o *operation) differs(e logged) (was, is string) {
	recorded := func() string { return describe(e.Of, e.Name) }
	asked := func() string { return describe(o.kind.name, o.name) }
	switch {
	case o.kind.name != e.Of || o.name != e.Name:
		return recorded(), asked()
	case e.Branch != "" && e.Branch != o.branch:
		return inBranch(recorded(), e.Branch), inBranch(asked(), o.branch)
	case e.Which != "" && e.Which != o.which:
		return besides(recorded(), e.Of, e.Which), besides(asked(), o.kind.name, o.which)
	case e.Child != "" && o.child != nil && e.Child != o.child.starting.Workflow.ID:
		return withID(recorded(), e.Child), withID(asked(), o.child.starting.Workflow.ID)
	case e.Kind == checkpoint.KindMissed && (o.wait == nil || o.wait.Within == nil):
		return recorded() + " that came to its time limit", asked() + " without one"
	}
	return "", ""
}

// compareInput reports an input that differs from the recorded one.
func (o *operation) compareInput(e logged) {
	if e.old && len(e.Input) == len(o.digest) && o.digest != (payload.Fingerprint{}) && !bytes.Equal(e.Input, o.digest[:]) {
		o.x.anotherInput(o)
	}
}

// mostCallers is how many calls are noted of an operation's start. Between the user's code and the engine there are a few.
const mostCallers = 16

// callers returns the calls that lead to the start of an operation.
func callers() []uintptr {
	var calls [mostCallers]uintptr
	return slices.Clone(calls[:runtime.Callers(3, calls[:])])
}

// ours matches the functions of this module that stand between the user's code and the engine.
var ours = regexp.MustCompile(`^github\.com/weft-go/weft/(engine|internal/run|activity|signal|future|storage/\w+)\.`)

// line returns the place in the user's code that started o, such as "shop/order.go:42", or "".
func (o *operation) line() string { return lineOf(o.started) }

func lineOf(calls []uintptr) string {
	if len(calls) == 0 {
		return ""
	}
	frames := runtime.CallersFrames(calls)
	for {
		f, more := frames.Next()
		if !ours.MatchString(f.Function) {
			return fmt.Sprintf("%s/%s:%d", path.Base(path.Dir(f.File)), path.Base(f.File), f.Line)
		}
		if !more {
			return ""
		}
	}
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
	o.logger().Warn("weft: in a replay, an operation was started with an input that differs from the recorded one; the run continues")
	if f := x.host.Events.InputChanged; f != nil {
		f(weft.InputChangedEvent{WorkflowID: x.ID, Operation: o.id})
	}
}

// MostTold is how many runs with changed input an engine remembers to have reported.
const MostTold = 10_000

// tellsOfInput reports whether a changed input of this run is to be reported. It returns true
// only the first time, because a run is replayed each time it comes back from parking.
func (e *Host) tellsOfInput(generation string) bool {
	return e.changed.First(generation, MostTold)
}
