package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weft-go/weft/internal/answers"
)

// A document is what a test needs of control/openapi.json.
type document struct {
	raw        any
	operations []*operation
	schemas    *jsonschema.Compiler
	mu         sync.Mutex // guards schemas, compiled
	compiled   map[string]*jsonschema.Schema
}

// An operation is one of the document's.
type operation struct {
	id, method, path string
	scopes           []string
	lane, key        string
	public           bool // no key is needed
	home             bool
	rpc              bool
	body             map[string]string // media type: the place of its schema in the document
	query            map[string]bool   // the parameters that there are
	responses        map[int]response
}

// A response is a documented answer of an operation.
type response struct {
	headers map[string]header
	content map[string]string // media type: the place of its schema in the document
	event   string            // the place of the schema of a server-sent event
}

type header struct {
	required, integer bool
}

const documentURL = "openapi.json"

var theDocument = sync.OnceValues(readDocument)

func loadDocument(t testing.TB) *document {
	t.Helper()
	d, err := theDocument()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func readDocument() (*document, error) {
	data, err := os.ReadFile(jsonFile)
	if err != nil {
		return nil, err
	}
	raw, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", jsonFile, err)
	}
	d := &document{raw: raw, schemas: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}}
	d.schemas.DefaultDraft(jsonschema.Draft2020)
	d.schemas.AssertFormat()
	if err := d.schemas.AddResource(documentURL, raw); err != nil {
		return nil, err
	}
	for path, item := range object(raw, "paths") {
		for method, o := range item.(map[string]any) {
			if method == "parameters" {
				continue
			}
			d.operations = append(d.operations, d.operation(strings.ToUpper(method), path, o.(map[string]any)))
		}
	}
	slices.SortFunc(d.operations, func(a, b *operation) int { return strings.Compare(a.id, b.id) })
	return d, nil
}

func (d *document) operation(method, path string, o map[string]any) *operation {
	op := &operation{method: method, path: path, scopes: []string{}, rpc: o["x-weft-rpc"] != false, responses: map[int]response{}}
	op.id, _ = o["operationId"].(string)
	op.lane, _ = o["x-weft-lane"].(string)
	op.key, _ = o["x-weft-key"].(string)
	op.home, _ = o["x-weft-home"].(bool)
	if security, ok := o["security"].([]any); ok {
		op.public = len(security) == 0
	}
	scopes, _ := o["x-weft-scope"].([]any)
	for _, s := range scopes {
		op.scopes = append(op.scopes, s.(string))
	}
	place := "/paths/" + escape(path) + "/" + strings.ToLower(method)
	if body, ok := o["requestBody"].(map[string]any); ok {
		op.body = map[string]string{}
		for media := range object(body, "content") {
			op.body[media] = place + "/requestBody/content/" + escape(media) + "/schema"
		}
	}
	op.query = map[string]bool{}
	parameters, _ := o["parameters"].([]any)
	for _, p := range parameters {
		if _, p := d.follow("", p.(map[string]any)); p["in"] == "query" {
			op.query[p["name"].(string)] = true
		}
	}
	for status, r := range object(o, "responses") {
		n, err := strconv.Atoi(status)
		if err != nil {
			continue // redocly's rules refuse it
		}
		place, found := d.follow(place+"/responses/"+status, r.(map[string]any))
		res := response{headers: map[string]header{}, content: map[string]string{}}
		for name, h := range object(found, "headers") {
			_, h := d.follow("", h.(map[string]any))
			res.headers[name] = header{h["required"] == true, object(h, "schema")["type"] == "integer"}
		}
		for media := range object(found, "content") {
			res.content[media] = place + "/content/" + escape(media) + "/schema"
			if media == eventStream {
				res.event = place + "/content/" + escape(media) + "/x-weft-event"
			}
		}
		op.responses[n] = res
	}
	return op
}

// follow returns what a reference refers to, and its place.
func (d *document) follow(place string, o map[string]any) (string, map[string]any) {
	ref, ok := o["$ref"].(string)
	if !ok {
		return place, o
	}
	place = strings.TrimPrefix(ref, "#")
	at := d.raw
	for _, name := range strings.Split(place, "/")[1:] {
		at = at.(map[string]any)[name]
	}
	return place, at.(map[string]any)
}

func object(o any, name string) map[string]any {
	m, _ := o.(map[string]any)[name].(map[string]any)
	return m
}

// escape makes a name a part of a JSON pointer in a URL.
func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(name)
}

// find returns the operation of a request, or nil. A path without parameters goes before one with.
func (d *document) find(method, path string) (found *operation) {
	for _, o := range d.operations {
		if o.method == method && matches(o.path, path) && (found == nil || strings.Count(o.path, "{") < strings.Count(found.path, "{")) {
			found = o
		}
	}
	return found
}

func matches(template, path string) bool {
	want, got := strings.Split(template, "/"), strings.Split(path, "/")
	return slices.EqualFunc(want, got, func(w, g string) bool {
		name, err := url.PathUnescape(g)
		clean := err == nil && name != "" && name != "." && name != ".."
		return w == g || strings.HasPrefix(w, "{") && clean
	})
}

func (d *document) byID(id string) *operation {
	for _, o := range d.operations {
		if o.id == id {
			return o
		}
	}
	return nil
}

// check says what is wrong with an answer to an operation, or to a request that is of none: nil.
func (d *document) check(op *operation, status int, h http.Header, body []byte) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"} {
		if got := h.Get(name); got != want {
			bad("%s is %q, want %q", name, got, want)
		}
	}
	var res response
	switch {
	case op != nil:
		var ok bool
		if res, ok = op.responses[status]; !ok {
			bad("status %d is not documented", status)
			return problems
		}
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed:
		res.headers = map[string]header{"x-workflow-correlation-id": {required: true}, "Allow": {required: status == http.StatusMethodNotAllowed}}
		res.content = map[string]string{"application/problem+json": "/components/schemas/Problem"}
	default:
		bad("status %d of no operation", status)
		return problems
	}
	for name, want := range res.headers {
		value, given := h.Get(name), len(h.Values(name)) > 0
		if want.required && !given {
			bad("header %s is missing", name)
		}
		if _, err := strconv.Atoi(value); given && want.integer && err != nil {
			bad("header %s is %q, want a number", name, value)
		}
	}
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	if len(res.content) == 0 {
		if len(body) > 0 {
			bad("there is a body, of %q", media)
		}
		return problems
	}
	place, ok := res.content[media]
	if !ok {
		bad("the media type %q is not documented", media)
		return problems
	}
	if media == eventStream {
		return append(problems, d.checkEvents(res.event, string(body))...)
	}
	if !strings.HasSuffix(media, "json") {
		return problems
	}
	if err := d.validate(place, body); err != nil {
		bad("%v", err)
	}
	return problems
}

// eventStream is the media type of server-sent events.
const eventStream = "text/event-stream"

// checkEvents says what is wrong with server-sent events whose data has the schema at a place. The last one may have been
// cut.
func (d *document) checkEvents(place, body string) (problems []string) {
	all := strings.Split(body, "\n\n")
	for _, event := range all[:len(all)-1] {
		kind, data := "", ""
		for line := range strings.SplitSeq(event, "\n") {
			switch name, value, _ := strings.Cut(line, ": "); name {
			case "event":
				kind = value
			case "data":
				data = value
			case "id", "":
			default:
				problems = append(problems, fmt.Sprintf("the line %q of an event", line))
			}
		}
		switch {
		case kind == "end" && data == "{}", kind == "" && data == "": // a comment, or an id
		case kind != "":
			problems = append(problems, fmt.Sprintf("the event %q with %q", kind, data))
		default:
			if err := d.validate(place, []byte(data)); err != nil {
				problems = append(problems, err.Error())
			}
		}
	}
	return problems
}

// compare says what is wrong with an answer, and with a request that was accepted. The operation is nil if there is none.
func (d *document) compare(a *answers.Answer) (op *operation, problems []string) {
	u, err := url.ParseRequestURI(a.URL)
	if err != nil {
		return nil, []string{err.Error()}
	}
	op = d.find(a.Method, u.EscapedPath())
	if op != nil && a.Status < 300 {
		for _, problem := range d.checkRequest(op, u.Query(), a.Type, a.Sent) {
			problems = append(problems, "it was accepted: "+problem)
		}
	}
	return op, append(problems, d.check(op, a.Status, a.Header, a.Body)...)
}

// checkRequest says what the document does not allow of a request.
func (d *document) checkRequest(op *operation, query url.Values, contentType string, body []byte) (problems []string) {
	if op.id != "webhooks.receive" { // its query is the provider's
		for name := range query {
			if !op.query[name] {
				problems = append(problems, fmt.Sprintf("the parameter %s is not documented", name))
			}
		}
	}
	media, _, _ := strings.Cut(contentType, ";")
	switch place, ok := op.body[media]; {
	case len(body) == 0:
	case !ok:
		problems = append(problems, fmt.Sprintf("the media type %q is not documented", media))
	case strings.HasSuffix(media, "json") && op.id != "rpc": // a batch may have bad requests
		if err := d.validate(place, body); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return problems
}

// validate says how a body differs from the schema at a place of the document.
func (d *document) validate(place string, body []byte) error {
	schema, err := d.schema(place)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	return schema.Validate(v)
}

func (d *document) schema(place string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.compiled[place]; s != nil {
		return s, nil
	}
	s, err := d.schemas.Compile(documentURL + "#" + place)
	if err != nil {
		return nil, err
	}
	d.compiled[place] = s
	return s, nil
}

// The document is one of OpenAPI 3.1, and each of its schemas can be compiled.
func TestDocument(t *testing.T) {
	data, err := os.ReadFile(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := libopenapi.NewDocument(data)
	if err != nil {
		t.Fatal(err)
	}
	v, errs := validator.NewValidator(parsed)
	for _, err := range errs {
		t.Fatal(err)
	}
	defer v.Release()
	if ok, problems := v.ValidateDocument(); !ok {
		for _, p := range problems {
			t.Errorf("%s: %s", p.Message, p.Reason)
		}
	}
	d := loadDocument(t)
	for _, o := range d.operations {
		if len(o.responses) == 0 || o.lane == "" || o.key == "" {
			t.Errorf("%s has no responses, no lane or no key rule", o.id)
		}
		for status, r := range o.responses {
			for _, place := range r.content {
				if _, err := d.schema(place); err != nil {
					t.Errorf("%s, %d: %v", o.id, status, err)
				}
			}
		}
	}
}

// The checker finds what it is there to find.
func TestChecker(t *testing.T) {
	d := loadDocument(t)
	op := d.byID("runs.cancel")
	good := http.Header{
		"Content-Type": {"application/json"}, "X-Content-Type-Options": {"nosniff"}, "Cache-Control": {"no-store"},
		"X-Workflow-Correlation-Id": {"c"}, "X-Ratelimit-Limit": {"120"}, "X-Ratelimit-Remaining": {"119"}, "X-Ratelimit-Reset": {"1"},
	}
	body := []byte(`{"accepted":true,"status":"running"}`)
	if problems := d.check(op, 202, good, body); problems != nil {
		t.Errorf("a good answer: %q", problems)
	}
	without := func(name string) http.Header {
		h := good.Clone()
		h.Del(name)
		return h
	}
	with := func(name, value string) http.Header {
		h := good.Clone()
		h.Set(name, value)
		return h
	}
	problem := func(code string) []byte {
		b, err := json.Marshal(map[string]any{"type": "about:blank", "title": "Conflict", "status": 409, "detail": "d", "code": code, "message": "d", "retry": "never", "correlationId": "c"})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, c := range map[string]struct {
		op     *operation
		status int
		h      http.Header
		body   []byte
	}{
		"another status":           {op, 206, good, body},
		"another media type":       {op, 202, with("Content-Type", "text/plain"), body},
		"no correlation id":        {op, 202, without("X-Workflow-Correlation-Id"), body},
		"no number":                {op, 202, with("X-Ratelimit-Limit", "many"), body},
		"nosniff":                  {op, 202, without("X-Content-Type-Options"), body},
		"no-store":                 {op, 202, without("Cache-Control"), body},
		"an unknown member":        {op, 202, good, []byte(`{"accepted":true,"status":"running","more":1}`)},
		"a missing member":         {op, 202, good, []byte(`{"accepted":true}`)},
		"another value":            {op, 202, good, []byte(`{"accepted":false,"status":"running"}`)},
		"no JSON":                  {op, 202, good, []byte(`{`)},
		"a code of another":        {op, 409, with("Content-Type", "application/problem+json"), problem("run_exists")},
		"a body of 204":            {d.byID("runs.purge"), 204, good, body},
		"no operation":             {nil, 200, good, body},
		"405 without Allow":        {nil, 405, with("Content-Type", "application/problem+json"), problem("method_not_allowed")},
		"429 without Retry-After":  {op, 429, with("Content-Type", "application/problem+json"), problem("rate_limited")},
		"a bad event":              {d.byID("runs.stream"), 200, with("Content-Type", "text/event-stream"), []byte("id: 0\ndata: {\"index\":0}\n\n")},
		"an event of another kind": {d.byID("runs.events"), 200, with("Content-Type", "text/event-stream"), []byte("event: more\ndata: {}\n\n")},
	} {
		if problems := d.check(c.op, c.status, c.h, c.body); problems == nil {
			t.Errorf("%s is not found", name)
		}
	}
	if problems := d.check(op, 409, with("Content-Type", "application/problem+json"), problem("run_terminal")); problems != nil {
		t.Errorf("a good problem: %q", problems)
	}
	for body, good := range map[string]bool{`{"reason":"r"}`: true, ``: true, `{"why":"r"}`: false, `{"reason":1}`: false} {
		const json = "application/json; charset=utf-8"
		if problems := d.checkRequest(op, nil, json, []byte(body)); (problems == nil) != good {
			t.Errorf("the body %s: %q", body, problems)
		}
		if d.checkRequest(op, url.Values{"more": {"1"}}, json, []byte(body)) == nil {
			t.Error("an unknown parameter is not found")
		}
	}
	for path, want := range map[string]string{"/v1/runs/resume": "runs.resume", "/v1/runs/x/cancel": "runs.cancel", "/v1/runs": "runs.create"} {
		if got := d.find("POST", path); got == nil || got.id != want {
			t.Errorf("POST %s is %v, want %s", path, got, want)
		}
	}
	for path, want := range map[string]string{"/v1/runs/resume": "runs.get", "/v1/deployments/active": "deployments.active", "/v1/deployments/x": "deployments.get"} {
		if got := d.find("GET", path); got == nil || got.id != want {
			t.Errorf("GET %s is %v, want %s", path, got, want)
		}
	}
}
