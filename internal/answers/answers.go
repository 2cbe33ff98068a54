// Package answers is for tests of what a control plane answers. Tests of this module serve a plane by [Handler], which
// keeps the answers in the folder that WEFT_ANSWERS names. A test of the module internal/apitest, which has the tools,
// compares them with the document.
package answers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Folder is the variable of the environment that names the folder. Without it nothing is kept.
const Folder = "WEFT_ANSWERS"

// An Answer is one request and what it was answered.
type Answer struct {
	Method string
	URL    string
	Type   string // the media type of the request
	Sent   []byte // what was read of its body, see keep
	Status int
	Header http.Header // as it was sent
	Body   []byte
	Seen   int // how many answers this process had seen by then
}

// Tap returns a handler that tells got of each request and answer of next.
func Tap(next http.Handler, got func(r *http.Request, a *Answer)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &capture{ResponseWriter: w}
		var sent bytes.Buffer
		if r.Body != nil {
			r.Body = &tee{r.Body, r.Header.Get("Content-Type"), &sent}
		}
		a := &Answer{Method: r.Method, URL: r.URL.String(), Type: r.Header.Get("Content-Type")}
		next.ServeHTTP(c, r)
		if c.status == 0 {
			c.status, c.header = http.StatusOK, w.Header().Clone()
		}
		a.Sent, a.Status, a.Header, a.Body = sent.Bytes(), c.status, c.header, c.body.Bytes()
		got(r, a)
	})
}

// Handler returns a handler that keeps the answers of next.
func Handler(next http.Handler) http.Handler {
	folder := os.Getenv(Folder)
	if folder == "" {
		return next
	}
	return Tap(next, func(_ *http.Request, a *Answer) { kept.add(folder, a) })
}

// Proxy returns the address of a server that keeps the answers of the one at address, or the address if nothing is kept.
func Proxy(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" || os.Getenv(Folder) == "" {
		return address
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(u) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // as if the server were gone
	}
	s := httptest.NewServer(Handler(proxy))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		transport.CloseIdleConnections()
	})
	return s.URL
}

// alike is how many answers of one shape are kept.
const alike = 20

var kept keeper

// A keeper writes answers to a file of this process.
type keeper struct {
	mu     sync.Mutex // guards what follows
	file   *os.File
	seen   int
	shapes map[string]int
}

func (k *keeper) add(folder string, a *Answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.shapes == nil {
		k.shapes = map[string]int{}
	}
	k.seen++
	a.Seen = k.seen
	shape := a.shape()
	if k.shapes[shape]++; k.shapes[shape] > alike {
		return
	}
	if err := k.write(folder, a); err != nil {
		panic(fmt.Sprintf("answers: %v", err))
	}
}

func (k *keeper) write(folder string, a *Answer) (err error) {
	if k.file == nil {
		if err := os.MkdirAll(folder, 0o777); err != nil {
			return err
		}
		// It is open until the process ends.
		if k.file, err = os.CreateTemp(folder, filepath.Base(os.Args[0])+"-*.jsonl"); err != nil {
			return err
		}
	}
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = k.file.Write(append(line, '\n'))
	return err
}

// shape is the same for answers of which some are enough.
func (a *Answer) shape() string {
	path, _, _ := strings.Cut(a.URL, "?")
	var v any
	s := fmt.Sprint(a.Method, " ", path, " ", a.Status, " ", a.Header.Get("Content-Type"), " ")
	if json.Unmarshal(a.Body, &v) != nil {
		return s + fmt.Sprint(len(a.Body) > 0)
	}
	return s + skeleton(v)
}

// skeleton returns the names of members and the kinds of values. Of an array, each kind of item counts once.
func skeleton(v any) string {
	var parts []string
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if name == "code" || name == "method" {
				name = fmt.Sprint(name, "=", value)
			}
			parts = append(parts, name+":"+skeleton(value))
		}
	case []any:
		for _, item := range v {
			parts = append(parts, skeleton(item))
		}
	default:
		return fmt.Sprintf("%T", v)
	}
	slices.Sort(parts)
	return "{" + strings.Join(slices.Compact(parts), ",") + "}"
}

// Read calls each with the answers of a folder.
func Read(folder string, each func(file string, a *Answer)) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	if err != nil {
		return err
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		for d := json.NewDecoder(f); ; {
			a := new(Answer)
			if err := d.Decode(a); err == io.EOF {
				break
			} else if err != nil {
				f.Close()
				return fmt.Errorf("%s: %w", file, err)
			}
			each(file, a)
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// beginning is how much is kept of a body that is not JSON. To keep a large file takes time, for which the client would wait.
const beginning = 64 << 10

// keep adds a part of a body of a media type to what is kept of it.
func keep(b *bytes.Buffer, media string, part []byte) {
	media, _, _ = strings.Cut(media, ";")
	if !strings.HasSuffix(media, "json") && media != "text/event-stream" {
		part = part[:min(len(part), max(beginning-b.Len(), 0))]
	}
	b.Write(part)
}

// A tee is a body that keeps what is read.
type tee struct {
	io.ReadCloser
	media string
	read  *bytes.Buffer
}

func (t *tee) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	keep(t.read, t.media, p[:n])
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
	if c.status == 0 && status >= 200 {
		c.status, c.header = status, c.Header().Clone()
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *capture) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	keep(&c.body, c.header.Get("Content-Type"), b)
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
