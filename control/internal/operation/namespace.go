package operation

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/namespace"
)

// A Namespace is an environment of a project: what a key belongs to, and with it runs, idempotency keys, rates and audit rows.
type Namespace struct {
	Project     string // 1 to 40 of A-Z a-z 0-9 _ -
	Environment string // 1 to 20 of the same
}

var (
	projectPattern     = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`)
	environmentPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,20}$`)
)

// Check returns the problems of a namespace, each with the name of its field.
func (n Namespace) Check() (issues []Issue) {
	if !projectPattern.MatchString(n.Project) {
		issues = append(issues, Issue{Path: "/project", Problem: "must be 1 to 40 of A-Z a-z 0-9 _ -"})
	}
	if !environmentPattern.MatchString(n.Environment) {
		issues = append(issues, Issue{Path: "/environment", Problem: "must be 1 to 20 of A-Z a-z 0-9 _ -"})
	}
	return issues
}

// Tenant is the namespace as text.
func (n Namespace) Tenant() string { return n.Project + "/" + n.Environment }

// The engine's id of a run of a namespace is @project/environment/runId. Those of the home namespace
// are the host's own runs, whose ids do not begin with @. Clients know runs by their runId alone.
// A run of another namespace has no runId: for the caller it is not there.

// A Principal is whose request it is.
type Principal struct {
	ID string
	Namespace
	Scopes []string
	Home   bool   // it is of the namespace of the host
	Hash   []byte // of the secret it came with
}

// Has reports whether the principal has a scope. admin has all.
func (k *Principal) Has(scope string) bool {
	return k != nil && (slices.Contains(k.Scopes, scope) || slices.Contains(k.Scopes, ScopeAdmin))
}

// maxRunID is the length of the longest runId in bytes.
const maxRunID = 128

// namespaceMark is how the ids of runs of namespaces begin.
const namespaceMark = "@"

// Prefix is how the engine's ids of the runs of k begin.
func (k *Principal) Prefix() string {
	if k.Home {
		return ""
	}
	return namespace.Prefix(k.Tenant())
}

// Restrict has a filter select only runs that k may see.
func (k *Principal) Restrict(f *engine.Filter) {
	if k.Home {
		f.NoNamespace = true
		return
	}
	if f.Labels == nil {
		f.Labels = map[string]string{}
	}
	f.Labels[namespace.Label] = k.Tenant()
}

// EngineID returns the engine's id of a run. It is false if no run has this runId.
func (k *Principal) EngineID(runID string) (string, bool) {
	if RunIDProblem(runID) != "" {
		return "", false
	}
	return k.Prefix() + runID, true
}

// RunID returns the runId of a run. It is false if k may not see the run.
func (k *Principal) RunID(engineID string) (string, bool) {
	if k.Home {
		return engineID, !strings.HasPrefix(engineID, namespaceMark)
	}
	return strings.CutPrefix(engineID, k.Prefix())
}

// Visible returns a text of the engine as k may see it: ids in it are as k knows them.
func (k *Principal) Visible(text string) string {
	if k.Home || text == "" {
		return text
	}
	return strings.ReplaceAll(text, k.Prefix(), "")
}

// RunIDProblem says what is wrong with a runId that a client chose, or "".
func RunIDProblem(id string) string {
	switch {
	case id == "":
		return "is empty"
	case len(id) > maxRunID:
		return "has more than 128 bytes"
	case !utf8.ValidString(id):
		return "is not UTF-8"
	case strings.ContainsRune(id, 0):
		return "contains NUL" // many proxies refuse a path that does
	case strings.HasPrefix(id, namespaceMark):
		return "begins with @"
	case id == "." || id == "..":
		return "is a path segment with a meaning of its own"
	}
	return ""
}

// Token returns the engine's token for one that a client has. It is false for one of another namespace.
func (k *Principal) Token(t string) (string, bool) {
	if !strings.HasPrefix(t, namespaceMark) {
		return k.Prefix() + t, true
	}
	return t, !k.Home && strings.HasPrefix(t, k.Prefix())
}

// Operates reports whether k may know which engines there are.
func (k *Principal) Operates() bool { return k.Home && k.Has(ScopeOpsRead) }
