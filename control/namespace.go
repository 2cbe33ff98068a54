package control

import (
	"strings"
	"unicode/utf8"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/namespace"
)

// The engine's id of a run of a namespace is @project/environment/runId. Those of the home namespace
// are the host's own runs, whose ids do not begin with @. Clients know runs by their runId alone.
// A run of another namespace has no runId: for the caller it is not there.

// maxRunID is the length of the longest runId in bytes.
const maxRunID = 128

// namespaceMark is how the ids of runs of namespaces begin.
const namespaceMark = "@"

// prefix is how the engine's ids of the runs of k begin.
func (k *principal) prefix() string {
	if k.home {
		return ""
	}
	return namespace.Prefix(k.tenant())
}

// restrict has a filter select only runs that k may see.
func (k *principal) restrict(f *engine.Filter) {
	if k.home {
		f.NoNamespace = true
		return
	}
	if f.Labels == nil {
		f.Labels = map[string]string{}
	}
	f.Labels[namespace.Label] = k.tenant()
}

// engineID returns the engine's id of a run. It is false if no run has this runId.
func (k *principal) engineID(runID string) (string, bool) {
	if runIDProblem(runID) != "" {
		return "", false
	}
	return k.prefix() + runID, true
}

// runID returns the runId of a run. It is false if k may not see the run.
func (k *principal) runID(engineID string) (string, bool) {
	if k.home {
		return engineID, !strings.HasPrefix(engineID, namespaceMark)
	}
	return strings.CutPrefix(engineID, k.prefix())
}

// visible returns a text of the engine as k may see it: ids in it are as k knows them.
func (k *principal) visible(text string) string {
	if k.home || text == "" {
		return text
	}
	return strings.ReplaceAll(text, k.prefix(), "")
}

// runIDProblem says what is wrong with a runId that a client chose, or "".
func runIDProblem(id string) string {
	switch {
	case id == "":
		return "is empty"
	case len(id) > maxRunID:
		return "has more than 128 bytes"
	case !utf8.ValidString(id):
		return "is not UTF-8"
	case strings.ContainsRune(id, 0):
		return "contains NUL" // no path may
	case strings.HasPrefix(id, namespaceMark):
		return "begins with @"
	case id == "." || id == "..":
		return "is a path segment with a meaning of its own"
	}
	return ""
}
