// Package namespace says which workflows belong together. A namespace is an environment of a
// project, such as acme/prod. The ids of its workflows are @acme/prod/{id}. All other ids are of
// the host itself, also those that begin with '@' and are not of this form.
package namespace

import "strings"

// Label is the name of the label that each workflow of a namespace has. Its value is the name of
// the namespace.
const Label = "weft.namespace"

// Need is the ability that a run of a namespace needs: its engine puts the ids that the run names
// into the namespace.
const Need = "namespace"

// Maximum lengths in bytes.
const (
	MaxProject     = 40
	MaxEnvironment = 20
)

// Name returns the name of the namespace of an environment of a project, and false if there can be
// none: both are made of letters, digits, underscores and hyphens, and are not too long.
func Name(project, environment string) (name string, ok bool) {
	return project + "/" + environment, valid(project, MaxProject) && valid(environment, MaxEnvironment)
}

func valid(s string, most int) bool {
	for _, c := range []byte(s) {
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return s != "" && len(s) <= most
}

// Prefix returns how the ids of the workflows of a namespace begin.
func Prefix(name string) string { return "@" + name + "/" }

// Split returns the namespace that an id is of, and the id in it. It returns false for an id of
// the host.
func Split(id string) (name, in string, ok bool) {
	rest, ok := strings.CutPrefix(id, "@")
	if !ok {
		return "", "", false
	}
	project, rest, _ := strings.Cut(rest, "/")
	environment, in, _ := strings.Cut(rest, "/")
	name, ok = Name(project, environment)
	if !ok || in == "" {
		return "", "", false
	}
	return name, in, true
}

// Within returns the id that the code of a run of a namespace means: one that does not begin with
// '@' is of the same namespace. It returns false for an id that begins with '@' and is not.
func Within(name, id string) (full string, ok bool) {
	if !strings.HasPrefix(id, "@") {
		return Prefix(name) + id, true
	}
	of, _, ok := Split(id)
	return id, ok && of == name
}
