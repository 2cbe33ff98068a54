package enginetest

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
)

const (
	year    = 365 * 24 * time.Hour
	century = 100 * year
)

// watch fails the test and closes the engine if no run has changed for a century of virtual
// time. Time advances only while everything waits, and at once to the next time that anything
// waits for. So a century without a change means that nothing is going to happen.
func watch(t *testing.T, eng *engine.Engine, over <-chan struct{}) {
	var before []engine.Info
	for {
		select {
		case <-over:
			return
		case <-time.After(century):
		}
		now, err := unfinished(t, eng)
		if err == nil && before != nil && reflect.DeepEqual(now, before) {
			t.Error(quiet(now, blocked(allStacks())))
			eng.Close() // calls that wait return, so that the test ends
			return
		}
		before = now
	}
}

// unfinished returns the runs that have not ended. It is not nil.
func unfinished(t *testing.T, eng *engine.Engine) ([]engine.Info, error) {
	runs := []engine.Info{}
	for i, err := range eng.List(t.Context(), engine.Filter{}) {
		if err == nil && !i.Status.Terminal() {
			i, err = eng.Describe(t.Context(), i.ID)
			runs = append(runs, i)
		}
		if err != nil {
			return runs, err
		}
	}
	return runs, nil
}

// quiet says what these runs wait for, and where functions block.
func quiet(runs []engine.Info, blocked []string) string {
	var b strings.Builder
	b.WriteString("nothing can happen any more: the test waits, and no run has anything to do or a time to wait for.")
	if len(runs) == 0 {
		b.WriteString(" All runs have ended.")
	}
	for _, i := range runs {
		fmt.Fprintf(&b, "\n    %s (%s)", i.ID, i.Workflow)
		switch {
		case len(i.Waiting) > 0:
			fmt.Fprintf(&b, " waits for %v", i.Waiting)
		default:
			fmt.Fprintf(&b, " is %s", i.Status)
		}
		for _, a := range i.Attention {
			detail, _, _ := strings.Cut(a.Detail, "\n")
			fmt.Fprintf(&b, "; %s: %s", a.Reason, detail)
		}
	}
	if len(blocked) > 0 {
		b.WriteString("\nFunctions that block on something outside the engine:")
	}
	for _, place := range blocked {
		b.WriteString("\n    " + place)
	}
	return b.String()
}

func allStacks() string {
	for size := 1 << 20; ; size *= 2 {
		all := make([]byte, size)
		if n := runtime.Stack(all, true); n < size {
			return string(all[:n])
		}
	}
}

// internal is how the engine's own functions begin in a stack.
const internal = "github.com/weft-go/weft/internal/"

// blocked returns the places at which workflow functions, activities and steps of this bubble
// block. These are goroutines that the engine has begun and that do not wait in the engine. The
// first of the stacks is the caller's own.
func blocked(stacks string) (places []string) {
	goroutines := strings.Split(stacks, "\n\n")
	_, bubble, ok := strings.Cut(goroutines[0], "synctest bubble ")
	if !ok {
		return nil
	}
	bubble, _, _ = strings.Cut(bubble, "]")
	for _, g := range goroutines[1:] {
		header, frames, _ := strings.Cut(g, "\n")
		if !strings.Contains(header, "synctest bubble "+bubble+"]") || !strings.Contains(frames, "\n"+internal+"run.") {
			continue
		}
		if place := firstCaller(strings.Split(frames, "\n")); place != "" && !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	return places
}

// firstCaller returns the first function of a stack that did not come with Go, and its line. It
// returns "" if the function is the engine's.
func firstCaller(frames []string) string {
	for i := 0; i+1 < len(frames); i += 2 {
		name := frames[i]
		switch {
		case strings.HasPrefix(name, internal):
			return ""
		case slices.ContainsFunc(waitsInside, func(p string) bool { return strings.HasPrefix(name, p) }):
			continue
		}
		if j := strings.LastIndex(name, "("); j > 0 {
			name = name[:j] // without its arguments
		}
		line, _, _ := strings.Cut(strings.TrimSpace(frames[i+1]), " +0x")
		return name + " at " + line
	}
	return ""
}

// waitsInside are packages of Go in which goroutines wait.
var waitsInside = []string{"runtime.", "internal/", "sync.", "time.", "context.", "io.", "bufio.", "net.", "net/http.", "os.", "database/sql."}
