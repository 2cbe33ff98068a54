package apitest

import (
	"net/http"
	"sync"
	"testing"

	"github.com/weft-go/weft/internal/answers"
)

// A recorder is a handler in front of a plane. It compares every answer with the document, and counts which
// ones have occurred.
type recorder struct {
	t        testing.TB
	document *document
	next     http.Handler
}

func (rec *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answers.Tap(rec.next, func(r *http.Request, a *answers.Answer) {
		op, problems := rec.document.compare(a)
		if op != nil {
			occurred.add(pair{op.id, a.Status}, rec.t.Name())
		}
		for _, problem := range problems {
			rec.t.Errorf("%s %s was answered %d: %s\n%.2000s\n%.2000s", a.Method, a.URL, a.Status, problem, a.Sent, a.Body)
		}
	}).ServeHTTP(w, r)
}

// A pair is an operation and a status of it.
type pair struct {
	operation string
	status    int
}

// pairs are those that have occurred, and in which tests.
type pairs struct {
	mu    sync.Mutex // guards seen
	seen  map[pair]map[string]bool
	began map[string]bool // tests that have used a server
}

var occurred = pairs{seen: map[pair]map[string]bool{}, began: map[string]bool{}}

func (p *pairs) add(at pair, test string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen[at] == nil {
		p.seen[at] = map[string]bool{}
	}
	p.seen[at][topLevel(test)] = true
}
