package control

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/namespace"
)

// A space is a namespace: what a key belongs to, and with it runs, idempotency keys, rates and audit rows.
type space struct {
	Project     string // 1 to 40 of A-Z a-z 0-9 _ -
	Environment string // 1 to 20 of the same
}

var (
	projectPattern     = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`)
	environmentPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,20}$`)
)

// check returns the problems of a namespace, each with the name of its field.
func (n space) check() (issues []issue) {
	if !projectPattern.MatchString(n.Project) {
		issues = append(issues, issue{Path: "/project", Problem: "must be 1 to 40 of A-Z a-z 0-9 _ -"})
	}
	if !environmentPattern.MatchString(n.Environment) {
		issues = append(issues, issue{Path: "/environment", Problem: "must be 1 to 20 of A-Z a-z 0-9 _ -"})
	}
	return issues
}

// tenant is the namespace as text.
func (n space) tenant() string { return n.Project + "/" + n.Environment }

// The engine's id of a run of a namespace is @project/environment/runId. Those of the home namespace
// are the host's own runs, whose ids do not begin with @. Clients know runs by their runId alone.
// A run of another namespace has no runId: for the caller it is not there.

// A principal is whose request it is.
type principal struct {
	id string
	space
	scopes []string
	home   bool   // it is of the namespace of the host
	hash   []byte // of the secret it came with
}

// has reports whether the principal has a scope. admin has all.
func (k *principal) has(scope string) bool {
	return k != nil && (slices.Contains(k.scopes, scope) || slices.Contains(k.scopes, "admin"))
}

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

// token returns the engine's token for one that a client has. It is false for one of another namespace.
func (k *principal) token(t string) (string, bool) {
	if !strings.HasPrefix(t, namespaceMark) {
		return k.prefix() + t, true
	}
	return t, !k.home && strings.HasPrefix(t, k.prefix())
}

// operates reports whether k may know which engines there are.
func (k *principal) operates() bool { return k.home && k.has(scopeOpsRead) }
