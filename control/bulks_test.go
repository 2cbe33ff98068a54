package control

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// bulkPath returns the path of a bulk, with segments behind it.
func bulkPath(bulkID string, segments ...string) string {
	path := "/v1/bulks/" + url.PathEscape(bulkID)
	for _, s := range segments {
		path += "/" + s
	}
	return path
}

// endOfBulk waits until a bulk has ended.
func (s *site) endOfBulk(key, bulkID string) reply {
	s.t.Helper()
	var r reply
	s.await("the end of bulk "+bulkID, func() bool {
		r = s.call(key, "GET", bulkPath(bulkID), nil).is(s.t, 200, "")
		return r.body["endedAt"] != nil
	})
	return r
}

// OPS-10: a bulk over HTTP does to the runs of its namespace that fit what the operation on one run does, and to no other's,
// whatever their ids and labels are. Nobody sees a bulk of another namespace, and none is in its way.
func TestBulksTouchOnlyTheirNamespace(t *testing.T) {
	EachStore(t, func(t *testing.T, store storage.Storage) {
		s := open(t, store)
		all := []string{home, acme, acmeTest, other}
		for _, key := range all {
			for _, id := range []string{"a", "b", "c"} {
				s.start(key, "wait", id, nil)
				s.awaitStatus(key, id, checkpoint.StatusRunning)
			}
			s.call(key, "POST", at("a", "signals", "go"), `{"payload":"early"}`).is(t, 200, "")
			s.awaitStatus(key, "a", checkpoint.StatusCompleted)
		}
		statuses := func(key string) string {
			var now []string
			for _, id := range []string{"a", "b", "c"} {
				now = append(now, s.call(key, "GET", at(id), nil).text("status"))
			}
			return fmt.Sprint(now)
		}
		want := map[string]string{}
		for _, key := range all {
			want[key] = "[completed running running]"
		}
		for key, filter := range map[string]string{acme: `{"status":"running"}`, acmeTest: `{"workflow":"wait"}`, home: `{"before":"2100-01-01T00:00:00Z"}`} {
			s.call(key, "POST", bulkPath("stop"), `{"do":"cancel","filter":`+filter+`,"reason":"they left"}`).is(t, 200, "")
			r := s.endOfBulk(key, "stop")
			if r.body["done"] != 2.0 || r.body["refused"] != 0.0 || r.text("do") != "cancel" || r.text("reason") != "they left" || r.text("bulkId") != "stop" || !strings.Contains("b c", r.text("last")) {
				t.Errorf("got %s", r.raw)
			}
			if strings.Contains(string(r.raw), "@") || strings.Contains(string(r.raw), "weft.") {
				t.Errorf("it shows how the store has it: %s", r.raw)
			}
			want[key] = "[completed cancelled cancelled]"
			for _, key := range all {
				s.await("the runs to end", func() bool { return statuses(key) == want[key] || !strings.Contains(want[key], "cancelled") })
				if got := statuses(key); got != want[key] {
					t.Errorf("%s: got %s, want %s", key, got, want[key])
				}
			}
			run := s.call(key, "GET", at("b"), nil).is(t, 200, "")
			if raw := string(run.raw); !strings.Contains(raw, `they left (bulk \"stop\" of `) && key == home || strings.Contains(raw, "@") {
				t.Errorf("the run shows %s", raw)
			}
		}
		// A run that names a parent elsewhere is not reached, and what belongs to others is absent.
		s.call(other, "POST", bulkPath("kids"), `{"do":"purge","filter":{"parent":"a"},"reason":"r"}`).is(t, 200, "")
		if r := s.endOfBulk(other, "kids"); r.body["done"] != 0.0 {
			t.Errorf("got %s", r.raw)
		}
		for _, key := range []string{acmeTest, other, home} {
			for _, id := range []string{"stop", "@acme/prod/stop", "@acme%2Fprod%2Fstop"} {
				if id == "stop" && key != other {
					continue
				}
				if r := s.call(key, "GET", bulkPath(id), nil); r.status != 404 && r.status != 400 {
					t.Errorf("%s sees %q: %s", key, id, r.raw)
				}
				if r := s.call(key, "POST", bulkPath(id, "stop"), nil); r.status != 404 && r.status != 400 {
					t.Errorf("%s stops %q: %s", key, id, r.raw)
				}
			}
		}
		for key, want := range map[string]string{home: "[stop]", acme: "[stop]", acmeTest: "[stop]", other: "[kids]"} {
			var ids []string
			for _, b := range s.call(key, "GET", "/v1/bulks", nil).is(t, 200, "").data() {
				ids = append(ids, b["bulkId"].(string))
			}
			if fmt.Sprint(ids) != want {
				t.Errorf("%s: listed %v, want %s", key, ids, want)
			}
		}
	})
}

// OPS-10: a run whose record is damaged is refused by a bulk of its own namespace, and none of another one.
func TestBulksAndDamage(t *testing.T) {
	s := open(t, nil)
	all := []string{home, acme, other}
	for _, key := range all {
		for _, id := range []string{"a", "b"} {
			s.start(key, "wait", id, nil)
			s.awaitStatus(key, id, checkpoint.StatusRunning)
		}
	}
	if err := s.store.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(keys.Workflow("@other/prod/a"), []byte("damaged"))}}); err != nil {
		t.Fatal(err)
	}
	for i, filter := range []string{`{"workflow":"wait"}`, `{"workflow":"wait","status":"running"}`, `{"labels":{"a":"b"}}`, `{"attention":true}`, `{"before":"2100-01-01T00:00:00Z"}`} {
		for _, key := range all {
			id := fmt.Sprint("b", i)
			s.call(key, "POST", bulkPath(id), `{"do":"reset","before":"77","filter":`+filter+`,"reason":"r"}`).is(t, 200, "")
			r := s.endOfBulk(key, id)
			refusals := fmt.Sprint(r.body["refusals"])
			own := strings.Contains(refusals, "damaged") || strings.Contains(refusals, "record")
			if strings.Contains(refusals, "@") || own && key != other {
				t.Errorf("%s, %s: %s", key, filter, r.raw)
			}
			if want := 2.0; (i == 0 || i == 1 || i == 4) && r.body["refused"] != want {
				t.Errorf("%s, %s: %v refused, want %v: %s", key, filter, r.body["refused"], want, r.raw)
			}
		}
	}
	// A bulk that cannot be read keeps nobody from the others.
	if err := s.store.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(keys.Bulk("@other/prod/b2"), []byte("damaged"))}}); err != nil {
		t.Fatal(err)
	}
	for _, key := range all {
		want := 5
		if key == other {
			want = 4
		}
		for _, order := range []string{"asc", "desc"} {
			if list := s.call(key, "GET", "/v1/bulks?sortOrder="+order, nil).is(t, 200, "").data(); len(list) != want {
				t.Errorf("%s, %s: %d bulks are listed, want %d", key, order, len(list), want)
			}
		}
	}
}

// OPS-10: each operation that HTTP has for one run is one that a bulk can do, and what it could not do is listed with the reason.
func TestBulkVerbs(t *testing.T) {
	s := open(t, nil)
	do := func(id, body string) reply {
		t.Helper()
		s.call(acme, "POST", bulkPath(id), body).is(t, 200, "")
		return s.endOfBulk(acme, id)
	}
	for _, id := range []string{"w1", "w2"} {
		s.start(acme, "wait", id, nil)
		s.start(acme, "fail", "f"+id, nil)
		s.awaitStatus(acme, id, checkpoint.StatusRunning)
		s.awaitStatus(acme, "f"+id, checkpoint.StatusFailed)
	}
	if r := do("tell", `{"do":"signal","signal":{"name":"go","payload":{"a":1}},"filter":{"workflow":"wait"},"reason":"r"}`); r.body["done"] != 2.0 || r.text("signal") != "go" {
		t.Errorf("signal: %s", r.raw)
	}
	if r := s.call(acme, "GET", at("w1", "result")+"?wait=20", nil); !strings.Contains(string(r.raw), `"result":{"a":1}`) {
		t.Errorf("signal: %s", r.raw)
	}
	s.awaitStatus(acme, "w2", checkpoint.StatusCompleted)
	if r := do("back", `{"do":"reset","before":"1","filter":{"workflow":"wait","status":"completed"},"rate":{"count":100,"perSeconds":1},"reason":"r"}`); r.body["done"] != 2.0 || r.body["before"] != "1" || fmt.Sprint(r.body["rate"]) != "map[count:100 perSeconds:1]" {
		t.Errorf("reset: %s", r.raw)
	}
	events := ""
	s.await("the run to receive it again", func() bool {
		events = string(s.call(acme, "GET", at("w1", "events"), nil).raw)
		return strings.Contains(events, `"operation":"1~1"`)
	})
	if strings.Contains(events, "@acme") {
		t.Errorf("reset: %s", events)
	}
	if r := do("again", `{"do":"resume","filter":{"status":"failed"},"reason":"r"}`); r.body["done"] != 2.0 {
		t.Errorf("resume: %s", r.raw)
	}
	s.await("they fail again", func() bool { return len(s.call(acme, "GET", "/v1/runs?status=failed", nil).data()) == 2 })
	r := do("vain", `{"do":"reset","before":"77","filter":{"workflow":"fail"},"reason":"r"}`)
	refusals := fmt.Sprint(r.body["refusals"])
	if r.body["done"] != 0.0 || r.body["refused"] != 2.0 || !strings.Contains(refusals, "runId:fw1") || !strings.Contains(refusals, `has no operation "77"`) || strings.Contains(string(r.raw), "@acme") {
		t.Errorf("reset in vain: %s", r.raw)
	}
	if r := do("gone", `{"do":"purge","filter":{"workflow":"fail"},"reason":"r"}`); r.body["done"] != 2.0 {
		t.Errorf("purge: %s", r.raw)
	}
	s.call(acme, "GET", at("fw1"), nil).is(t, 404, "not_found")
	s.start(acme, "paying", "held", "no number")
	s.start(other, "paying", "held", "no number")
	s.awaitAttention(acme, "held", engine.ReasonUndecodable)
	s.awaitAttention(other, "held", engine.ReasonUndecodable)
	if r := do("end", `{"do":"terminate","filter":{"attention":true},"reason":"wrong input"}`); r.body["done"] != 1.0 {
		t.Errorf("terminate: %s", r.raw)
	}
	if r := s.call(acme, "GET", at("held"), nil); r.text("status") != "cancelled" || !strings.Contains(string(r.raw), `"terminated":true`) || !strings.Contains(string(r.raw), "wrong input") {
		t.Errorf("terminate: %s", r.raw)
	}
	if r := s.call(other, "GET", at("held"), nil); r.text("status") != "running" {
		t.Errorf("terminate: of another namespace: %s", r.raw)
	}
	list := s.call(acme, "GET", "/v1/bulks?limit=2&sortOrder=asc", nil).is(t, 200, "")
	next := s.call(acme, "GET", "/v1/bulks?limit=10&sortOrder=asc&cursor="+list.text("tail"), nil).is(t, 200, "")
	var ids []string
	for _, b := range append(list.data(), next.data()...) {
		ids = append(ids, b["bulkId"].(string))
		if b["refusals"] != nil {
			t.Errorf("listed with its refusals: %v", b)
		}
	}
	if fmt.Sprint(ids) != "[again back end gone tell vain]" {
		t.Errorf("listed %v", ids)
	}
}

// A bulk has an id: the same again changes nothing, another one is refused. An idempotency key has its first answer. The
// audit log has who did it, in the same commit, and a stop is one.
func TestBulksAreStartedOnce(t *testing.T) {
	EachStore(t, func(t *testing.T, store storage.Storage) {
		s := idle(t, store)
		const body = `{"do":"cancel","filter":{"workflow":"wait","labels":{"a":"b"},"after":"2026-01-02T03:04:05Z"},"rate":{"count":1,"perSeconds":60},"reason":"the first"}`
		first := s.call(acme, "POST", bulkPath("b"), body, "Idempotency-Key", "k").is(t, 200, "")
		if string(first.raw) != `{"accepted":true}` {
			t.Errorf("got %s", first.raw)
		}
		if again := s.call(acme, "POST", bulkPath("b"), body, "Idempotency-Key", "k").is(t, 200, ""); again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("got %v", again.header)
		}
		s.call(acme, "POST", bulkPath("b"), body).is(t, 200, "")
		s.call(acme, "POST", bulkPath("c"), body, "Idempotency-Key", "k").is(t, 409, "idempotency_conflict")
		s.call(acme, "POST", bulkPath("b"), `{"do":"cancel","filter":{"workflow":"wait"},"reason":"r"}`).is(t, 409, "bulk_exists")
		r := s.call(acme, "GET", bulkPath("b"), nil).is(t, 200, "")
		if r.text("reason") != "the first" || r.text("by") != "shop" || r.body["endedAt"] != nil || fmt.Sprint(r.body["filter"]) != "map[after:2026-01-02T03:04:05Z labels:map[a:b] workflow:wait]" {
			t.Errorf("got %s", r.raw)
		}
		rpc := s.rpc(acme, "1", "bulks.get", `{"bulkId":"b"}`).result(t)
		if rpc != string(r.raw) {
			t.Errorf("by JSON-RPC: %s, by REST %s", rpc, r.raw)
		}
		s.rpc(acme, "2", "bulks.start", `{"bulkId":"by rpc","do":"purge","filter":{"status":"failed"},"reason":"r"}`).result(t)
		if all := s.call(acme, "GET", "/v1/bulks", nil).is(t, 200, "").data(); len(all) != 2 {
			t.Errorf("listed %v", all)
		}
		s.call(acme, "POST", bulkPath("b", "stop"), `{"reason":"enough"}`).is(t, 200, "")
		s.call(acme, "POST", bulkPath("b", "stop"), nil).is(t, 200, "")
		s.call(acme, "POST", bulkPath("none", "stop"), nil).is(t, 404, "not_found")
		r = s.call(acme, "GET", bulkPath("b"), nil).is(t, 200, "")
		if fmt.Sprint(r.body["stopped"]) != "map[by:shop reason:enough]" || r.body["endedAt"] == nil {
			t.Errorf("got %s", r.raw)
		}
		s.plane.env.Auditor.Flush(t.Context())
		rows := s.call(acme, "GET", "/v1/audit?action=bulks.start&result=success", nil).is(t, 200, "")
		if got := rows.data(); len(got) != 4 || got[len(got)-1]["resource"] != "/v1/bulks/b" {
			t.Errorf("audit: %s", rows.raw)
		}
		rows = s.call(acme, "GET", "/v1/audit?action=bulks.stop", nil).is(t, 200, "")
		if len(rows.data()) != 3 || !strings.Contains(string(rows.raw), "enough") {
			t.Errorf("audit: %s", rows.raw)
		}
	})
}

// Who may not do something to one run may not do it to all: beside runs:operate a bulk needs the scope of its operation.
func TestScopesOfBulks(t *testing.T) {
	secretOf := func(scopes ...string) string { return "secret-with-" + strings.Join(scopes, "-") + "-and-no-other" }
	s := idle(t, nil, func(c *Config, _ *engine.Config) {
		c.Keys = c.Keys[:len(c.Keys):len(c.Keys)]
		for _, scopes := range [][]string{{"runs:operate"}, {"runs:operate", "runs:write"}, {"runs:operate", "signals:write"}, {"runs:write", "signals:write", "runs:read"}} {
			c.Keys = append(c.Keys, Key{ID: fmt.Sprint("k", len(c.Keys)), Project: "acme", Environment: "prod", Secret: secretOf(scopes...), Scopes: scopes})
		}
	})
	n := 0
	for do, want := range map[string]string{"cancel": "runs:write", "resume": "runs:write", "signal": "signals:write", "terminate": "", "reset": "", "purge": ""} {
		body := `{"do":"` + do + `","filter":{"status":"failed"},"reason":"r"` + map[string]string{"signal": `,"signal":{"name":"go"}`, "reset": `,"before":""`}[do] + `}`
		for _, scopes := range [][]string{{"runs:operate"}, {"runs:operate", "runs:write"}, {"runs:operate", "signals:write"}} {
			n++
			r := s.call(secretOf(scopes...), "POST", bulkPath(fmt.Sprint("b", n)), body)
			if may := strings.Contains(strings.Join(scopes, " "), want); may != (r.status == 200) || !may && fmt.Sprint(r.body["required"]) != "["+want+"]" {
				t.Errorf("%s with %v: %d %s", do, scopes, r.status, r.raw)
			}
		}
		r := s.call(secretOf("runs:write", "signals:write", "runs:read"), "POST", bulkPath("x"), body).is(t, 403, "missing_scope")
		if fmt.Sprint(r.body["required"]) != "[runs:operate]" {
			t.Errorf("%s: %s", do, r.raw)
		}
	}
}

// A bulk that cannot be, or that the client has not thought through, is refused before anything is stored.
func TestInvalidBulks(t *testing.T) {
	s := idle(t, nil)
	long := strings.Repeat("x", 1100)
	for path, bodies := range map[string][]string{
		"/filter":          {`{"do":"cancel","reason":"r"}`, `{"do":"cancel","filter":{},"reason":"r"}`, `{"do":"cancel","filter":{"labels":{}},"reason":"r"}`, `{"do":"cancel","filter":{"attention":false},"reason":"r"}`, `{"do":"cancel","filter":{"before":"0001-01-01T01:00:00+01:00"},"reason":"r"}`},
		"/filter/status":   {`{"do":"cancel","filter":{"status":"lost"},"reason":"r"}`},
		"/filter/labels":   {`{"do":"cancel","filter":{"labels":{"weft.namespace":"other/prod"}},"reason":"r"}`},
		"/filter/parent":   {`{"do":"cancel","filter":{"parent":"@other/prod/a"},"reason":"r"}`},
		"/filter/idPrefix": {`{"do":"cancel","filter":{"idPrefix":"@other"},"reason":"r"}`},
		"/do":              {`{"filter":{"status":"failed"},"reason":"r"}`, `{"do":"delete","filter":{"status":"failed"},"reason":"r"}`, `{"do":"unprotect","filter":{"status":"failed"},"reason":"r"}`},
		"/reason":          {`{"do":"cancel","filter":{"status":"failed"}}`, `{"do":"cancel","filter":{"status":"failed"},"reason":" "}`, `{"do":"cancel","filter":{"status":"failed"},"reason":"` + long + `"}`},
		"/before":          {`{"do":"reset","filter":{"status":"failed"},"reason":"r"}`, `{"do":"cancel","before":"1","filter":{"status":"failed"},"reason":"r"}`},
		"/signal":          {`{"do":"signal","filter":{"status":"failed"},"reason":"r"}`, `{"do":"cancel","signal":{"name":"go"},"filter":{"status":"failed"},"reason":"r"}`},
		"/signal/name":     {`{"do":"signal","signal":{"name":""},"filter":{"status":"failed"},"reason":"r"}`},
		"/rate/count":      {`{"do":"cancel","filter":{"status":"failed"},"rate":{"count":0,"perSeconds":1},"reason":"r"}`},
		"/rate/perSeconds": {`{"do":"cancel","filter":{"status":"failed"},"rate":{"count":1,"perSeconds":86401},"reason":"r"}`},
		"":                 {`{"do":"reset","before":"` + long + `","filter":{"status":"failed"},"reason":"r"}`, `{"do":"cancel","filter":{"after":"1900-01-01T00:00:00Z"},"reason":"r"}`, `{"do":"signal","signal":{"name":"go","payload":"` + strings.Repeat("x", 65<<10) + `"},"filter":{"status":"failed"},"reason":"r"}`},
	} {
		for _, body := range bodies {
			r := s.call(acme, "POST", bulkPath("b"), body).is(t, 400, "invalid_request")
			if path != "" && !strings.Contains(string(r.raw), `"path":"`+path+`"`) {
				t.Errorf("%s: %s", body, r.raw)
			}
		}
	}
	good := `{"do":"cancel","filter":{"status":"failed"},"reason":"r"}`
	for _, id := range []string{"@b", strings.Repeat("x", 129), "%00"} {
		if r := s.call(acme, "POST", "/v1/bulks/"+id, good); r.status != 400 && r.status != 404 {
			t.Errorf("%q: %s", id, r.raw)
		}
	}
	if n := recordsOf(t, s.store, "bulk:"); n != 0 {
		t.Errorf("%d bulks were stored", n)
	}
	s.call(acme, "POST", bulkPath(strings.Repeat("x", 128)), good).is(t, 200, "")
	s.call(acme, "GET", "/v1/bulks?cursor=x", nil).is(t, 400, "invalid_request")
}

// What a host has started in its program, with what only it can, is shown as far as the document has it.
func TestBulksOfTheHost(t *testing.T) {
	s := idle(t, nil)
	b := engine.Bulk{Do: engine.BulkTerminate, Filter: engine.Filter{IDPrefix: "o", TopLevel: true, Before: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}}
	if err := s.engine.StartBulk(t.Context(), "b", b, engine.Actor{Name: "ann", Reason: "why not"}); err != nil {
		t.Fatal(err)
	}
	r := s.call(home, "GET", bulkPath("b"), nil).is(t, 200, "")
	if r.text("do") != "terminate" || r.text("by") != "ann" || fmt.Sprint(r.body["filter"]) != "map[before:2026-01-02T03:04:05Z]" || r.body["rate"] != nil {
		t.Errorf("got %s", r.raw)
	}
	s.call(home, "POST", bulkPath("b", "stop"), nil).is(t, 200, "")
	s.call(acme, "GET", bulkPath("b"), nil).is(t, 404, "not_found")
}
