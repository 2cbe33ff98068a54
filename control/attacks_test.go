package control

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/storage"
)

// placeholder is a parameter of a path.
var placeholder = regexp.MustCompile(`\{[a-zA-Z]+\}`)

// Every operation with a body reads exactly one JSON document, strictly: what another parser might read otherwise is
// refused, and nothing is written.
func TestEveryBodyIsStrictJSON(t *testing.T) {
	s := idle(t, nil)
	before := written(t, s.store)
	seen := 0
	for _, o := range operations() {
		if !o.TakesBody() || o.Unread || o.Batch {
			continue
		}
		seen++
		for what, body := range map[string]string{
			"nothing":                   " ",
			"a byte order mark":         "\ufeff{}",
			"two documents":             "{}{}",
			"trailing bytes":            "{} x",
			"trailing NUL":              "{}\x00",
			"a doubled member":          `{"reason":"a","reason":"b"}`,
			"a doubled member, escaped": `{"reason":"a","\u0072eason":"b"}`,
			"a doubled member inside":   `{"payload":{"a":1,"a":2}}`,
			"another case":              `{"RunId":"x"}`,
			"a lone surrogate":          `{"reason":"\ud800"}`,
			"surrogates, reversed":      `{"reason":"\udc00\ud800"}`,
			"bad UTF-8":                 "{\"reason\":\"\xff\"}",
			"an overlong NUL":           "{\"reason\":\"\xc0\x80\"}",
			"a raw NUL":                 "{\"reason\":\"a\x00b\"}",
			"a raw line break":          "{\"reason\":\"a\r\nb\"}",
			"10,000 arrays":             `{"payload":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + "}",
			"10,000 open objects":       strings.Repeat(`{"payload":`, 10_000),
			"a comment":                 "{/* x */}",
			"no number":                 `{"payload":NaN}`,
		} {
			r := s.call(home, o.Method, placeholder.ReplaceAllString(o.Path, "x"), body, "Idempotency-Key", fresh())
			if r.status != 400 || r.code() != "invalid_request" && r.code() != "invalid_manifest" {
				t.Errorf("%s of %s: got %d %s, want 400", what, o.Name, r.status, r.raw)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d operations have a body", seen)
	}
	if after := written(t, s.store); !maps.Equal(before, after) {
		t.Error("something was written")
	}
}

// written returns what a store has beside the audit and rates.
func written(t *testing.T, s storage.Storage) map[string]string {
	t.Helper()
	all := map[string]string{}
	for e, err := range storage.All(t.Context(), s, storage.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if k := string(e.Key); !strings.HasPrefix(k, "ctl:audit:") && !strings.HasPrefix(k, "ctl:rate:") {
			all[k] = string(e.Value)
		}
	}
	return all
}

// Numbers keep all their digits: those around 2^53, which are equal as float64, are different requests, and come back
// as they were.
func TestNumbersKeepTheirDigits(t *testing.T) {
	s := open(t, nil)
	numbers := []string{"9007199254740991", "9007199254740992", "9007199254740993", "-9007199254740993", "0.1000000000000000055511151231257827"}
	for i, n := range numbers {
		id := fmt.Sprint("n", i)
		s.call(home, "POST", "/v1/runs", `{"workflowName":"echo","runId":"`+id+`","input":{"n":`+n+`}}`, "Idempotency-Key", id).is(t, 201, "")
		s.call(home, "POST", "/v1/runs", `{"workflowName":"wait","runId":"w`+id+`"}`, "Idempotency-Key", "w"+id).is(t, 201, "")
		s.call(home, "POST", at("w"+id, "signals", "go"), `{"signalId":"s","payload":`+n+`}`).is(t, 200, "")
		for j, m := range numbers {
			if i == j {
				continue
			}
			s.call(home, "POST", "/v1/runs", `{"workflowName":"echo","runId":"`+id+`","input":{"n":`+m+`}}`, "Idempotency-Key", id).is(t, 409, "idempotency_conflict")
			s.call(home, "POST", at("w"+id, "signals", "go"), `{"signalId":"s","payload":`+m+`}`).is(t, 409, "SignalPayloadConflict")
			if r := s.rpc(home, "1", "runs.create", `{"workflowName":"echo","runId":"`+id+`","input":{"n":`+m+`},"idempotencyKey":"`+id+`"}`); !strings.Contains(string(r.raw), "idempotency_conflict") {
				t.Errorf("%s after %s: %s", m, n, r.raw)
			}
		}
		s.awaitStatus(home, id, checkpoint.StatusCompleted)
		s.awaitStatus(home, "w"+id, checkpoint.StatusCompleted)
		for path, want := range map[string]string{at(id, "result"): `"result":{"n":` + n + `}`, at(id): `"input":{"n":` + n + `}`, at("w"+id, "result"): `"result":` + n} {
			if r := s.call(home, "GET", path, nil).is(t, 200, ""); !strings.Contains(string(r.raw), want) {
				t.Errorf("%s: got %s, want %s", path, r.raw, want)
			}
		}
	}
}

// A number that is too large to be compared is refused by operations with an idempotency key.
func TestNumbersThatAreTooLarge(t *testing.T) {
	s := idle(t, nil)
	before := written(t, s.store)
	for _, n := range []string{"1e10000", "-1e10000", "1e-10000", "1e999999999999"} {
		r := s.call(home, "POST", "/v1/runs", `{"workflowName":"echo","input":[`+n+`]}`, "Idempotency-Key", fresh())
		if r.is(t, 400, "invalid_request"); !strings.Contains(string(r.raw), `{"path":"/input/0",`) {
			t.Errorf("%s: the answer does not say where it is: %s", n, r.raw)
		}
		s.call(home, "POST", "/v1/deployments", `{"manifest":{"deploymentId":"d","n":`+n+`}}`, "Idempotency-Key", fresh()).is(t, 400, "invalid_manifest")
		if r := s.rpc(home, "1", "runs.create", `{"workflowName":"echo","input":`+n+`,"idempotencyKey":"k"}`); !strings.Contains(string(r.raw), `"code":-32602`) {
			t.Errorf("%s: %s", n, r.raw)
		}
	}
	if !maps.Equal(before, written(t, s.store)) {
		t.Error("something was written")
	}
}

// The parameters of a request may be as deep by JSON-RPC, also in a batch, as by REST.
func TestDepthIsTheSameByEveryTransport(t *testing.T) {
	s := idle(t, nil)
	for depth, ok := range map[int]bool{operation.MaxDepth - 1: true, operation.MaxDepth: false} { // the object around the input is one more
		input := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		status, code := 400, `"code":-32700`
		if ok {
			status, code = 201, `"result"`
		}
		if r := s.call(home, "POST", "/v1/runs", `{"workflowName":"echo","input":`+input+`}`, "Idempotency-Key", fresh()); r.status != status {
			t.Errorf("%d levels: got %d %s, want %d", depth, r.status, r.raw, status)
		}
		one := `{"jsonrpc":"2.0","id":1,"method":"runs.create","params":{"workflowName":"echo","idempotencyKey":"` + fresh() + `","input":` + input + `}}`
		for _, body := range []string{one, " \n[" + one + "]"} {
			if r := s.call(home, "POST", "/v1/rpc", body); !strings.Contains(string(r.raw), code) {
				t.Errorf("%d levels: got %s, want %s", depth, r.raw, code)
			}
		}
	}
}

// raw sends the head of a request as it is, and a body, and returns the answer; nil: the connection ended.
func (s *site) raw(t *testing.T, head, body string) *http.Response {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "%s\r\n\r\n%s", head, body)
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil
	}
	return a
}

// CR, LF, NUL and other control characters in whatever a client may choose do not get into a header, nor into an audit
// row: a reason, ids, the user agent, the correlation id.
func TestControlCharacters(t *testing.T) {
	s := idle(t, nil)
	const evil = `a\r\nSet-Cookie: x\u0000\u001b[31m\u007f\u0085\u2028b`
	s.start(home, "wait", "r", nil)
	s.call(home, "POST", at("r", "signals", "go"), `{"signalId":"`+evil+`"}`).is(t, 200, "")
	s.call(home, "POST", at("r", "cancel"), `{"reason":"`+evil+`"}`).is(t, 202, "")
	s.call(home, "POST", "/v1/runs", `{"workflowName":"wait","runId":"a\r\nSet-Cookie: x"}`, "Idempotency-Key", "crlf").is(t, 201, "")
	s.call(home, "POST", "/v1/runs", `{"workflowName":"wait","runId":"a\u0000b"}`, "Idempotency-Key", "nul").is(t, 400, "invalid_request")
	s.call(home, "POST", "/v1/keys", `{"keyId":"a\r\nb","scopes":["runs:read"]}`).is(t, 400, "invalid_request")
	s.call(home, "POST", "/v1/deployments", `{"manifest":{"deploymentId":"a\r\nb"}}`).is(t, 400, "invalid_deployment_id")
	s.rpc(home, "1", "runs.cancel", `{"runId":"r","reason":"`+evil+`","idempotencyKey":"a\r\nb"}`).is(t, 200, "")
	authorized := "Authorization: Bearer " + home + "\r\nHost: x\r\n"
	for what, head := range map[string]string{
		"a NUL in the user agent":             "User-Agent: a\x00b",
		"an escape in the user agent":         "User-Agent: a\x1b[31mb",
		"a folded user agent":                 "User-Agent: a\r\n X-Forwarded-For: 203.0.113.9",
		"a bare CR in the user agent":         "User-Agent: a\rb",
		"a bare LF in the user agent":         "User-Agent: a\nX-Workflow-Run-Id: forged",
		"a NUL in the correlation id":         "X-Workflow-Correlation-Id: a\x00b",
		"a folded correlation id":             "X-Workflow-Correlation-Id: a\r\n b",
		"a NUL in the run it is on behalf of": "X-Workflow-Run-Id: a\x00b",
	} {
		a := s.raw(t, "GET /v1/keys HTTP/1.1\r\n"+authorized+head, "")
		if a == nil {
			continue
		}
		if a.StatusCode != 200 && a.StatusCode != 400 {
			t.Errorf("%s: got %d", what, a.StatusCode)
		}
		if got := a.Header.Get("X-Workflow-Correlation-Id"); strings.ContainsAny(got, "\x00 ") {
			t.Errorf("%s: got the correlation id %q", what, got)
		}
	}
	s.plane.env.Auditor.Flush(t.Context())
	rows := s.call(home, "GET", "/v1/audit?limit=1000", nil).is(t, 200, "")
	if !strings.Contains(string(rows.raw), "Set-Cookie") {
		t.Error("the audit has none of the texts")
	}
	for _, control := range []string{`\r`, `\n`, `\u00`, "\x7f"} {
		if strings.Contains(string(rows.raw), control) {
			t.Errorf("the audit has %q: %s", control, rows.raw)
		}
	}
	for _, row := range rows.data() {
		if row["ip"] != "127.0.0.1" && row["ip"] != "::1" {
			t.Errorf("an address was forged: %v", row)
		}
	}
	for _, path := range []string{at("r"), at("r", "events"), at("r", "signals"), at("a\r\nSet-Cookie: x")} {
		r := s.call(home, "GET", path, nil).is(t, 200, "")
		if r.header.Get("Set-Cookie") != "" || strings.ContainsAny(string(r.raw), "\r\x00\x1b") {
			t.Errorf("%s: got %v %q", path, r.header, r.raw)
		}
	}
}

// A header field that counts once and comes twice is refused, or counts as none: proxies differ in which one they mean.
func TestDoubledHeaders(t *testing.T) {
	s := idle(t, nil)
	s.start(home, "wait", "r", nil)
	for what, c := range map[string]struct {
		request, fields, body string
		status                int
	}{
		"Authorization":              {"GET /v1/keys", "Authorization: Bearer " + home, "", 401},
		"Authorization, another one": {"GET /v1/keys", "authorization: Bearer " + acme, "", 401},
		"Host":                       {"GET /v1/keys", "Host: y", "", 400},
		"Content-Length":             {"POST /v1/runs/r/cancel", "Content-Type: application/json\r\nContent-Length: 0\r\nContent-Length: 2", "{}", 400},
		"Content-Type":               {"POST /v1/runs/r/cancel", "Content-Type: application/json\r\nContent-Type: text/plain\r\nContent-Length: 2", "{}", 415},
		"Content-Encoding":           {"POST /v1/runs/r/cancel", "Content-Type: application/json\r\nContent-Encoding: identity\r\nContent-Encoding: gzip\r\nContent-Length: 2", "{}", 415},
		"Transfer-Encoding":          {"POST /v1/runs/r/cancel", "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "0\r\n\r\n", 501},
		"Idempotency-Key":            {"POST /v1/runs/r/cancel", "Content-Length: 0\r\nIdempotency-Key: a\r\nIdempotency-Key: b", "", 400},
		"Last-Event-ID":              {"GET /v1/runs/r/events", "Accept: text/event-stream\r\nLast-Event-ID: a\r\nLast-Event-ID: a", "", 400},
		"Last-Event-ID of a stream":  {"GET /v1/runs/r/streams/s", "Accept: text/event-stream\r\nLast-Event-ID: 1\r\nLast-Event-ID: 1", "", 400},
		"X-Workflow-Run-Id":          {"GET /v1/keys", "X-Workflow-Run-Id: forged\r\nX-Workflow-Run-Id: forged", "", 200},
		"X-Workflow-Correlation-Id":  {"GET /v1/keys", "X-Workflow-Correlation-Id: forged\r\nX-Workflow-Correlation-Id: forged", "", 200},
	} {
		a := s.raw(t, c.request+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+home+"\r\n"+c.fields, c.body)
		if a == nil || a.StatusCode != c.status {
			t.Errorf("%s: got %+v, want %d", what, a, c.status)
		} else if a.Header.Get("X-Workflow-Correlation-Id") == "forged" {
			t.Errorf("%s: one of them counts", what)
		}
	}
	s.plane.env.Auditor.Flush(t.Context())
	if r := s.call(home, "GET", "/v1/audit?limit=1000", nil).is(t, 200, ""); strings.Contains(string(r.raw), "forged") {
		t.Errorf("the audit has %s", r.raw)
	}
	if r := s.call(home, "GET", at("r"), nil).is(t, 200, ""); r.body["cancel"] != nil {
		t.Errorf("a request that is refused was executed: %s", r.raw)
	}
}
