package apitest

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"testing"
)

// A recorder is a handler in front of a plane. It compares every answer with the document, and counts which
// ones have occurred.
type recorder struct {
	t        testing.TB
	document *document
	next     http.Handler
}

func (rec *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &capture{ResponseWriter: w}
	var sent bytes.Buffer
	r.Body = &tee{r.Body, &sent}
	rec.next.ServeHTTP(c, r)
	if c.status == 0 {
		c.status, c.header = http.StatusOK, w.Header().Clone()
	}
	op := rec.document.find(r.Method, r.URL.EscapedPath())
	id := "no operation"
	if op != nil {
		id = op.id
		occurred.add(pair{op.id, c.status}, rec.t.Name())
	}
	if op != nil && c.status < 300 { // what is accepted is documented, too
		for _, problem := range rec.document.checkRequest(op, r, sent.Bytes()) {
			rec.t.Errorf("%s %s (%s) was accepted: %s\n%.2000s", r.Method, r.URL, id, problem, sent.Bytes())
		}
	}
	for _, problem := range rec.document.check(op, c.status, c.header, c.body.Bytes()) {
		rec.t.Errorf("%s %s (%s) was answered %d: %s\n%.2000s", r.Method, r.URL, id, c.status, problem, c.body.Bytes())
	}
}

// A tee is a body that keeps what is read.
type tee struct {
	io.ReadCloser
	read *bytes.Buffer
}

func (t *tee) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	t.read.Write(p[:n])
	return n, err
}

// A capture is a ResponseWriter that keeps what is written.
type capture struct {
	http.ResponseWriter
	status int
	header http.Header // as it was sent
	body   bytes.Buffer
}

func (c *capture) WriteHeader(status int) {
	if c.status == 0 {
		c.status, c.header = status, c.Header().Clone()
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *capture) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	c.body.Write(b)
	return c.ResponseWriter.Write(b)
}

// FlushError is Flush of an http.ResponseController.
func (c *capture) FlushError() error {
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// Unwrap is for an http.ResponseController.
func (c *capture) Unwrap() http.ResponseWriter { return c.ResponseWriter }

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
