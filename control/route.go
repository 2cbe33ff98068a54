package control

import (
	"net/url"
	"slices"
	"strings"

	"github.com/weft-go/weft/control/internal/operation"
)

// A router finds the operation of a path and a method.
type router struct {
	routes []route // those with fewer parameters first
	byName map[string]*operation.Operation
}

type route struct {
	op       *operation.Operation
	segments []string
	names    []string // "" for a segment that is as it is
}

func newRouter(operations []*operation.Operation) *router {
	t := &router{byName: map[string]*operation.Operation{}}
	for _, o := range operations {
		r := route{op: o, segments: strings.Split(o.Path[1:], "/")}
		for _, s := range r.segments {
			name := ""
			if strings.HasPrefix(s, "{") {
				name = s[1 : len(s)-1]
			}
			r.names = append(r.names, name)
		}
		t.routes = append(t.routes, r)
		t.byName[o.Name] = o
	}
	slices.SortStableFunc(t.routes, func(a, b route) int { return a.parameters() - b.parameters() })
	return t
}

func (r *route) parameters() (n int) {
	for _, name := range r.names {
		if name != "" {
			n++
		}
	}
	return n
}

// find returns the operation, and the parameters of its path. If the path is there and the method is
// not, the operation is nil, and allowed has the methods that are.
func (t *router) find(method string, u *url.URL) (op *operation.Operation, path map[string]string, allowed []string) {
	segments, ok := segmentsOf(u)
	if !ok {
		return nil, nil, nil
	}
	for i := range t.routes {
		r := &t.routes[i]
		if !r.matches(segments) {
			continue
		}
		if r.op.Method != method {
			if !slices.Contains(allowed, r.op.Method) {
				allowed = append(allowed, r.op.Method)
			}
			continue
		}
		path = map[string]string{}
		for i, name := range r.names {
			if name != "" {
				path[name] = segments[i]
			}
		}
		return r.op, path, nil
	}
	slices.Sort(allowed)
	return nil, nil, allowed
}

func (r *route) matches(segments []string) bool {
	if len(segments) != len(r.segments) {
		return false
	}
	for i, name := range r.names {
		if name == "" && segments[i] != r.segments[i] {
			return false
		}
	}
	return true
}

// segmentsOf returns the segments of a clean path, decoded. A path is clean if no segment is empty,
// "." or "..", also not when it is decoded. What is in a segment is up to the operation: Gather refuses what is not UTF-8.
func segmentsOf(u *url.URL) ([]string, bool) {
	escaped := u.EscapedPath()
	if !strings.HasPrefix(escaped, "/") {
		return nil, false
	}
	segments := strings.Split(escaped[1:], "/")
	for i, s := range segments {
		d, err := url.PathUnescape(s)
		if err != nil || d == "" || d == "." || d == ".." {
			return nil, false
		}
		segments[i] = d
	}
	return segments, true
}
