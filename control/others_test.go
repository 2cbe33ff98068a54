package control

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/answers"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// An ask is a request for what belongs to another namespace, as its name or as a cursor.
type ask struct {
	params string // of JSON-RPC. ID stands for the name of what belongs to others, and CURSOR for a cursor that they got
	status int    // by REST. 404: whatever the name is, the answer is the one for a name that nobody has
}

// asks has the ways to ask each operation for what belongs to another namespace. What is made has another name in
// each, because it is there then.
var asks = map[string][]ask{
	"runs.create": {
		{`{"runId":"ID1","workflowName":"echo"}`, 201},
		{`{"runId":"ID","workflowName":"echo","deploymentId":"d"}`, 403},
		{`{"runId":"ID","workflowName":"echo","queue":"q"}`, 403},
	},
	"runs.list": {
		{`{}`, 200}, {`{"parent":"ID"}`, 200}, {`{"cursor":"CURSOR","limit":1}`, 400}, {`{"cursor":"CURSOR","limit":1,"parent":"ID"}`, 400},
		{`{"label":["weft.namespace:other/prod"]}`, 400}, {`{"workflow":"owner"}`, 200}, {`{"label":["whose:their-label"]}`, 200},
	},
	"runs.get":       {{`{"runId":"ID"}`, 404}, {`{"runId":"ID","resolveData":"none"}`, 404}},
	"runs.result":    {{`{"runId":"ID"}`, 404}, {`{"runId":"ID","wait":60}`, 404}},
	"runs.events":    {{`{"runId":"ID"}`, 404}, {`{"runId":"ours","cursor":"CURSOR"}`, 400}},
	"runs.stream":    {{`{"runId":"ID","name":"words"}`, 404}, {`{"runId":"ID","name":"words","at":-1}`, 404}, {`{"runId":"ours","name":"words","cursor":"CURSOR"}`, 400}},
	"runs.cancel":    {{`{"runId":"ID"}`, 404}},
	"runs.terminate": {{`{"runId":"ID","reason":"r"}`, 404}},
	"runs.resume":    {{`{"runId":"ID"}`, 404}, {`{"runId":"ID","payload":1}`, 404}},
	"runs.reset":     {{`{"runId":"ID","before":""}`, 404}},
	"runs.resolve":   {{`{"runId":"ID","op":"1","answer":"failed","reason":"r"}`, 404}},
	"runs.purge":     {{`{"runId":"ID"}`, 404}},
	"bulks.list":     {{`{}`, 200}, {`{"cursor":"CURSOR"}`, 400}},
	"bulks.start":    {{`{"bulkId":"ID1","do":"cancel","filter":{"parent":"ID"},"reason":"r"}`, 200}},
	"bulks.get":      {{`{"bulkId":"ID"}`, 404}},
	"bulks.stop":     {{`{"bulkId":"ID"}`, 404}},
	"signals.send": {
		{`{"runId":"ID","name":"go"}`, 404},
		{`{"runId":"ours","name":"go","signalId":"ID"}`, 200},
		{`{"runId":"ID2","name":"go","signalId":"s","start":{"workflowName":"wait"}}`, 200},
	},
	"signals.list":  {{`{"runId":"ID"}`, 404}, {`{"runId":"ours","cursor":"CURSOR"}`, 400}},
	"signals.clear": {{`{"runId":"ID","name":"go","signalId":"ID"}`, 404}, {`{"runId":"ours","name":"go","signalId":"none-ID"}`, 409}},
	"hooks.resume":  {{`{"token":"ID"}`, 404}, {`{"token":"ID","resumeId":"evt"}`, 404}},
	"updates.call":  {{`{"runId":"ID","name":"move"}`, 404}},
	"values.list":   {{`{"runId":"ID"}`, 404}, {`{"runId":"ours","cursor":"CURSOR"}`, 400}},
	"values.get":    {{`{"runId":"ID","name":"moves"}`, 404}, {`{"runId":"ID","name":"moves","wait":60}`, 404}},
	"keys.create": {
		{`{"keyId":"ID1","scopes":["runs:read"]}`, 201},
		{`{"keyId":"ID","scopes":["runs:read"],"project":"other"}`, 403},
		{`{"keyId":"ID","scopes":["runs:read"],"environment":"test"}`, 403},
	},
	"keys.list":   {{`{}`, 200}, {`{"project":"other"}`, 403}, {`{"environment":"test"}`, 403}, {`{"cursor":"CURSOR"}`, 400}},
	"keys.rotate": {{`{"id":"ID"}`, 404}, {`{"id":"ID","project":"other"}`, 403}, {`{"id":"ID","environment":"test"}`, 403}},
	"keys.revoke": {{`{"id":"ID"}`, 404}, {`{"id":"ID","project":"other"}`, 403}, {`{"id":"ID","environment":"test"}`, 403}},
	"audit.list":  {{`{"runId":"ID9"}`, 200}, {`{"keyId":"ID"}`, 200}, {`{"cursor":"CURSOR"}`, 400}},

	// What is the store's, and no namespace's, is for keys of the home namespace.
	"deployments.create":    {{`{"manifest":{"deploymentId":"ID"}}`, 403}},
	"deployments.list":      {{`{}`, 403}, {`{"cursor":"CURSOR"}`, 403}},
	"deployments.get":       {{`{"id":"ID"}`, 403}},
	"deployments.artifact":  {{`{"id":"ID"}`, 403}},
	"deployments.activate":  {{`{"id":"ID"}`, 403}},
	"deployments.active":    {{`{}`, 409}}, // but everybody may ask which is active
	"engines.list":          {{`{}`, 403}, {`{"cursor":"CURSOR"}`, 403}},
	"diagnostics.ownership": {{`{}`, 403}},
	"world.deployment_id":   {{`{}`, 403}},
	"world.queue.publish":   {{`{"queueName":"q","message":{}}`, 403}},
	"world.call":            {{`{"area":"runs","action":"get"}`, 403}},
}

// naming are the parameters by which something of another namespace can be named.
var naming = []string{"runId", "bulkId", "id", "keyId", "parent", "token", "cursor", "project", "environment", "signalId"}

// owner is a workflow that opens a hook, publishes a value and writes to a stream.
var owner = &engine.Workflow[string, json.RawMessage]{Name: "owner", Func: func(run *engine.Run, token string) (json.RawMessage, error) {
	if _, err := (&signal.Hook[json.RawMessage]{Name: "paid"}).Open(run, &signal.HookOptions{Token: token}); err != nil {
		return nil, err
	}
	if err := moves.Set(run, json.RawMessage(`"their-value"`)); err != nil {
		return nil, err
	}
	if _, err := engine.Step(run, "talk", func(ctx context.Context) (int, error) {
		return 0, words.Writer(ctx).Write(json.RawMessage(`"their-chunk"`))
	}); err != nil {
		return nil, err
	}
	return proceed.Receive(run)
}}

// own gives a namespace something of each kind that is named theirs, and what asks would make there, too.
func (s *site) own(key string) {
	s.t.Helper()
	for _, name := range []string{"theirs", "theirs1", "theirs2", "theirs9"} {
		s.call(key, "POST", "/v1/runs", map[string]any{"workflowName": "owner", "runId": name, "input": name, "labels": map[string]string{"whose": "their-label"}},
			"Idempotency-Key", name).is(s.t, 201, "")
	}
	for _, name := range []string{"theirs", "theirs1"} {
		s.call(key, "POST", bulkPath(name), map[string]any{"do": "cancel", "filter": map[string]any{"status": "failed"}, "reason": "their-reason"}, "Idempotency-Key", name).is(s.t, 200, "")
		s.call(key, "POST", "/v1/keys", map[string]any{"keyId": name, "scopes": []string{"runs:read"}}).is(s.t, 201, "")
	}
	s.await("a value", func() bool { return s.call(key, "GET", at("theirs", "values", "moves"), nil).status == 200 })
	s.await("a chunk", func() bool { return len(s.call(key, "GET", at("theirs", "streams", "words"), nil).data()) > 0 })
	s.call(key, "POST", at("theirs", "signals", "other"), map[string]any{"signalId": "theirs", "payload": "their-payload"}).is(s.t, 200, "")
}

// What differs between two requests that are answered alike: times, random ids and secrets, and hashes of the name.
var differs = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z|[0-9A-HJKMNP-TV-Z]{26}|weft_sk_[A-Za-z0-9_-]+|[0-9a-f]{64}|[A-Za-z0-9_-]{43}|\d{12,}|eyJ[A-Za-z0-9_-]+`)

// alike returns a text of an answer or a trace without that, and without the name.
func alike(text, name string) string {
	return differs.ReplaceAllString(strings.ReplaceAll(text, name, "NAME"), "*")
}

// requestOf returns the path and the body of an operation's REST request with these parameters.
func requestOf(t *testing.T, o *operation.Operation, params string) (path string, body []byte) {
	t.Helper()
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(params), &all); err != nil {
		t.Fatal(o.Name, err)
	}
	path = o.Path
	query, members := url.Values{}, map[string]json.RawMessage{}
	if o.Name == "world.call" {
		return strings.NewReplacer("{area}", "runs", "{action}", "get").Replace(path), []byte("{}")
	}
	for name, raw := range all {
		f := o.Field(name)
		if f == nil {
			t.Fatalf("%s has no parameter %s", o.Name, name)
		}
		var text any
		if err := json.Unmarshal(raw, &text); err != nil {
			t.Fatal(o.Name, err)
		}
		switch list, many := text.([]any); {
		case f.In == "path":
			path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(fmt.Sprint(text)))
		case f.In == "body":
			members[name] = raw
		case many:
			for _, v := range list {
				query.Add(name, fmt.Sprint(v))
			}
		default:
			query.Set(name, fmt.Sprint(text))
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	if o.TakesBody() {
		var err error
		if body, err = json.Marshal(members); err != nil {
			t.Fatal(o.Name, err)
		}
	}
	return path, body
}

// send makes the request of an operation by REST or JSON-RPC, without a network. The idempotency key is a name.
func (s *site) send(t *testing.T, key string, o *operation.Operation, params, name string, rpc bool) *httptest.ResponseRecorder {
	t.Helper()
	method, path := o.Method, "/v1/rpc"
	var body []byte
	if rpc {
		if o.Key != operation.KeyUnused {
			params = strings.TrimSuffix(params, "}") + fmt.Sprintf(`,"idempotencyKey":%q}`, name)
		}
		method, body = "POST", fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, o.Name, params)
	} else {
		path, body = requestOf(t, o, params)
	}
	r := httptest.NewRequest(method, path, bytes.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("X-Workflow-Correlation-Id", "c")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if o.Key != operation.KeyUnused && !rpc {
		r.Header.Set("Idempotency-Key", name)
	}
	w := httptest.NewRecorder()
	answers.Handler(s.plane).ServeHTTP(w, r)
	return w
}

// §8: by every operation, over REST and JSON-RPC, what belongs to another project or environment is as what nobody has:
// the answer has the same bytes but for the name, after the same calls of the store, so that it takes as long. The store
// is asked for nothing of others, and nothing of theirs changes. A new operation, and a new parameter by which it names
// something, needs an ask.
func TestOtherNamespacesAreAbsent(t *testing.T) {
	EachStore(t, func(t *testing.T, store storage.Storage) {
		with := func(_ *Config, c *engine.Config) { c.Workflows = append(c.Workflows, owner) }
		t.Run("owners", func(t *testing.T) { // their engine has stopped when others ask
			s := open(t, store, with)
			for _, key := range []string{home, acmeTest, other} {
				s.own(key)
			}
			s.call(acme, "POST", "/v1/runs", `{"workflowName":"owner","runId":"ours","input":"ours"}`, "Idempotency-Key", "ours").is(t, 201, "")
			s.awaitStatus(acme, "ours", checkpoint.StatusRunning)
		})
		if t.Failed() {
			return
		}
		before := theirs(t, store)
		x := &asker{t: t}
		x.site = idle(t, storagetest.NewFaulty(store, x.note), with)
		_, x.everyForm = store.(*memory.Store)
		// The first list, and the first start, read what the plane then knows.
		x.call(acme, "GET", "/v1/runs", nil).is(t, 200, "")
		for range 2 {
			x.start(acme, "echo", "", nil)
		}
		for _, making := range []bool{false, true} { // what is made would be in the lists
			for _, o := range operations() {
				if o.Scopes == nil || o.Name == "rpc" {
					continue // without a key, or only a frame for others
				}
				for _, a := range asksOf(t, o) {
					if makes := o.Method != "GET" && a.status < 300; makes == making {
						x.ask(o, a)
					}
				}
			}
		}
		x.plane.Close()
		if !maps.Equal(before, theirs(t, store)) {
			t.Error("what belongs to others has changed")
		}
	})
}

// asksOf returns the asks of an operation. There is one for each parameter by which it names something.
func asksOf(t *testing.T, o *operation.Operation) []ask {
	t.Helper()
	mine, ok := asks[o.Name]
	if !ok {
		t.Errorf("%s: add to asks how it is asked for what belongs to another namespace", o.Name)
	}
	for _, f := range o.Do.Fields {
		if slices.Contains(naming, f.Name) && !slices.ContainsFunc(mine, func(a ask) bool { return strings.Contains(a.params, `"`+f.Name+`":`) }) {
			t.Errorf("%s: add to asks how its parameter %s names what belongs to another namespace", o.Name, f.Name)
		}
	}
	return mine
}

// An asker asks a site, whose store it watches.
type asker struct {
	*site
	t         *testing.T
	everyForm bool // names are given in all forms, and by both transports

	mu    sync.Mutex
	calls []string // of the store since the last answer
}

// note notes a call of the store, but for the audit and the rates, which are written at any time.
func (x *asker) note(c storagetest.Call) storagetest.Fault {
	line := c.Method
	add := func(what string, key []byte) {
		if k := string(key); !strings.HasPrefix(k, "ctl:audit:") && !strings.HasPrefix(k, "ctl:rate:") {
			line += " " + what + k
		}
	}
	switch c.Method {
	case "Get":
		add("", c.Key)
	case "Scan":
		add("", c.Range.Start)
	default:
		for _, on := range c.Batch.If {
			add("if:", on.Key)
		}
		for _, op := range c.Batch.Ops {
			add("", op.Key)
		}
	}
	if line != c.Method {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.calls = append(x.calls, line)
	}
	return storagetest.None
}

// answer returns what acme is answered that asks about a name, and which calls of the store that took.
func (x *asker) answer(o *operation.Operation, a ask, name, form, cursor string, rpc bool) (text, calls string, status int) {
	x.t.Helper()
	params := strings.NewReplacer("ID", fmt.Sprintf(form, name), "CURSOR", cursor).Replace(a.params)
	x.mu.Lock()
	x.calls = nil
	x.mu.Unlock()
	w := x.send(x.t, acme, o, params, fmt.Sprint(name, "-", rpc), rpc)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, line := range x.calls {
		for _, key := range strings.Fields(line)[1:] {
			if strings.Contains(key, name) && !strings.Contains(key, "acme%2Fprod") {
				x.t.Errorf("%s %s asks the store for %s", o.Name, params, key)
			}
		}
	}
	asked := strings.Split(alike(strings.Join(x.calls, "\n"), name), "\n")
	slices.Sort(asked) // a list reads several runs at once
	return fmt.Sprint(w.Code, alike(strings.ReplaceAll(w.Body.String(), quotedTwice(x.t, form, name), quotedTwice(x.t, "%s", name)), name)), strings.Join(asked, "\n"), w.Code
}

// quotedTwice returns how a message has a name that was asked about in a form: quoted, in JSON.
func quotedTwice(t *testing.T, form, name string) string {
	t.Helper()
	var asked string
	if err := json.Unmarshal([]byte(`"`+fmt.Sprintf(form, name)+`"`), &asked); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(fmt.Sprintf("%q", asked))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw[1 : len(raw)-1])
}

// ask compares what is answered about names of others with what is answered about those that nobody has.
func (x *asker) ask(o *operation.Operation, a ask) {
	x.t.Helper()
	cursor := ""
	if strings.Contains(a.params, "CURSOR") && a.status == http.StatusBadRequest {
		cursor = x.cursorOf(o)
	}
	forms := []string{"%s"}
	if x.everyForm && a.status >= 300 && strings.Contains(a.params, "ID") {
		forms = []string{"%s", "@other/prod/%s", "@acme/test/%s", "@default/default/%s", "@acme/prod/%s", "../test/%s", `%s\r\nx: y`}
	}
	for _, rpc := range []bool{false, true} {
		if rpc && (o.RestOnly || !x.everyForm) {
			continue
		}
		var plain string // about a name that nobody has
		for _, form := range forms {
			want, wanted, status := x.answer(o, a, "nobody", form, cursor, rpc)
			if form == "%s" {
				if plain = want; !rpc && status != a.status {
					x.t.Errorf("%s %s: got %s, want %d", o.Name, a.params, want, a.status)
				}
			}
			got, calls, _ := x.answer(o, a, "theirs", form, cursor, rpc)
			if got != want || a.status == http.StatusNotFound && got != plain {
				x.t.Errorf("%s %s of %s: got %s, want %s", o.Name, a.params, form, got, want)
			}
			if calls != wanted {
				x.t.Errorf("%s %s of %s calls the store for\n%s\nand of what nobody has for\n%s", o.Name, a.params, form, calls, wanted)
			}
			if strings.Contains(got, "their") {
				x.t.Errorf("%s %s tells of others: %s", o.Name, a.params, got)
			}
		}
	}
}

// cursorOf returns a cursor of a list that another namespace gets.
func (x *asker) cursorOf(o *operation.Operation) string {
	x.t.Helper()
	params := `{"limit":1}`
	if f := o.Field("runId"); f != nil && f.In == "path" {
		params = `{"limit":1,"runId":"theirs"}`
	}
	if f := o.Field("name"); f != nil && f.In == "path" {
		params = `{"limit":1,"runId":"theirs","name":"words"}`
	}
	var page struct{ Cursor, Tail string }
	w := x.send(x.t, other, o, params, "", false)
	if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || cmp.Or(page.Cursor, page.Tail) == "" {
		x.t.Fatalf("%s has no cursor: %s, %v", o.Name, w.Body, err)
	}
	return cmp.Or(page.Cursor, page.Tail)
}

// theirs returns the records that name something of others, without the audit.
func theirs(t *testing.T, store storage.Storage) map[string]string {
	t.Helper()
	all := written(t, store)
	maps.DeleteFunc(all, func(key, _ string) bool {
		return strings.Contains(key, "acme%2Fprod") || !strings.Contains(key, "theirs")
	})
	return all
}
