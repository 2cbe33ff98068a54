package idemhttp

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"path"
	"reflect"
	"strings"
)

// maxEndpoint is the most bytes that a Key's SourceType has.
const maxEndpoint = 200

// safe says that a method asks for no effect (RFC 9110, section 9.2.1). All others are writes, also
// those that nobody knows.
func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// A route is where a request goes.
type route struct {
	pattern string       // the last one on the way; empty: there is none
	name    string       // made of the patterns on the way; empty: there are none
	own     http.Handler // of a ServeMux itself, which answers 404, 405 or a redirect; nil: the request reaches a handler
}

var redirects = reflect.TypeOf(http.RedirectHandler("/", http.StatusTemporaryRedirect))

// routeOf asks h, and any ServeMux directly inside it, where r goes. One around the guard has set r.Pattern. The outer
// patterns tell parts of a service apart that have equal ones inside, such as behind StripPrefix; "/" tells nothing.
// A RedirectHandler has no effect, so it does not matter who made it.
func routeOf(h http.Handler, r *http.Request) route {
	outer, pattern := "", r.Pattern
	mux, ok := h.(*http.ServeMux)
	for ok {
		if pattern != "" && pattern != "/" {
			outer += pattern + " > "
		}
		var inner http.Handler
		if inner, pattern = mux.Handler(r); pattern == "" || reflect.TypeOf(inner) == redirects {
			return route{own: inner}
		}
		mux, ok = inner.(*http.ServeMux)
	}
	return route{pattern: pattern, name: outer + pattern}
}

// endpoint returns the name of what r asks for. The name that its patterns give may be empty.
func (g *guard) endpoint(name string, r *http.Request) string {
	if g.Endpoint != nil {
		name = cmp.Or(g.Endpoint(r), name)
	}
	if name == "" {
		name = r.Method + " " + r.URL.EscapedPath()
	}
	return shorten(name)
}

// shorten returns a name of at most maxEndpoint bytes. Different names stay different.
func shorten(name string) string {
	if len(name) <= maxEndpoint {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	tail := "~" + hex.EncodeToString(sum[:])
	return strings.ToValidUTF8(name[:maxEndpoint-len(tail)], "") + tail
}

// exemptions are requests that pass without a key. A nil mux has none.
type exemptions struct{ mux *http.ServeMux }

// An exemption is what exemptions has for a pattern, unlike what the ServeMux makes itself.
type exemption struct{}

func (exemption) ServeHTTP(http.ResponseWriter, *http.Request) {}

func newExemptions(patterns []string) (exemptions, error) {
	if len(patterns) == 0 {
		return exemptions{}, nil
	}
	e := exemptions{http.NewServeMux()}
	for _, p := range patterns {
		if err := e.add(p); err != nil {
			return exemptions{}, err
		}
	}
	return e, nil
}

// add leaves it to the ServeMux to say what a pattern is: it panics.
func (e exemptions) add(pattern string) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = problemOfField("Exempt", "has %.200q: %v", pattern, problem)
		}
	}()
	e.mux.Handle(pattern, exemption{})
	return nil
}

// has says that r is exempt. A path with "..", "//" or the like, escaped or not, or with an escaped slash never
// is: routers disagree on where it leads.
func (e exemptions) has(r *http.Request) bool {
	if e.mux == nil {
		return false
	}
	h, _ := e.mux.Handler(r)
	_, ok := h.(exemption)
	return ok && clean(r.URL.Path) && strings.Count(r.URL.EscapedPath(), "/") == strings.Count(r.URL.Path, "/")
}

func clean(p string) bool {
	q := path.Clean(p)
	return p == q || q != "/" && p == q+"/"
}
