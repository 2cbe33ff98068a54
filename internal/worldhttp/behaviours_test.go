package worldhttp_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/internal/queue"
	"github.com/weft-go/weft/internal/world"
	"github.com/weft-go/weft/internal/worldhttp"
	"github.com/weft-go/weft/internal/worldstream"
	"github.com/weft-go/weft/storage/memory"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// A client calls a world over HTTP, as a runtime of a spec does, in CBOR or in JSON.
type client struct {
	t    *testing.T
	h    http.Handler
	spec int
	json bool
}

type object = map[string]any

var (
	encoder, _ = cbor.EncOptions{Time: cbor.TimeUnixDynamic, TimeTag: cbor.EncTagRequired}.EncMode()
	decoder, _ = cbor.DecOptions{DefaultMapType: reflect.TypeFor[object](), MaxNestedLevels: 1000}.DecMode()
)

func serve(t *testing.T) http.Handler {
	h, _ := serveStreams(t)
	return h
}

func serveStreams(t *testing.T) (http.Handler, *worldstream.Streams) {
	s := new(memory.Store)
	w, err := world.Open(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	q, err := queue.New(queue.Config{Storage: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Close)
	streams, err := worldstream.Open(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(streams.Close)
	return worldhttp.New(worldhttp.Config{World: w, Streams: streams, Queue: q, Deployment: func(context.Context) (string, error) { return "blue", nil }}), streams
}

// call makes a call and returns its status and answer.
func (c *client) call(path string, in any, headers ...string) (int, object) {
	c.t.Helper()
	body, err := encoder.Marshal(in)
	kind := "application/cbor"
	if c.json {
		kind = "application/json"
		body, err = json.Marshal(in)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/v1/world/"+path, bytes.NewReader(body))
	r.Header.Set("Content-Type", kind)
	r.Header.Set("Weft-Spec", fmt.Sprint(c.spec))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rw := httptest.NewRecorder()
	c.h.ServeHTTP(rw, r)
	if got := rw.Header().Get("Content-Type"); got != kind {
		c.t.Fatalf("%s is answered as %s with %d: %s", path, got, rw.Code, rw.Body)
	}
	out := object{}
	if c.json {
		err = json.Unmarshal(rw.Body.Bytes(), &out)
	} else {
		err = decoder.Unmarshal(rw.Body.Bytes(), &out)
	}
	if err != nil {
		c.t.Fatalf("%s is answered with %d: %q: %v", path, rw.Code, rw.Body, err)
	}
	return rw.Code, out
}

// ok makes a call that is not refused.
func (c *client) ok(path string, in any, headers ...string) object {
	c.t.Helper()
	status, out := c.call(path, in, headers...)
	if status != 200 {
		c.t.Fatalf("%s: got %d: %v", path, status, out)
	}
	return out
}

// not makes a call that is refused with a status, and text in its message.
func (c *client) not(status int, text string, path string, in any) object {
	c.t.Helper()
	got, out := c.call(path, in)
	if message, _ := out["message"].(string); got != status || !strings.Contains(message, text) || out["code"] == "" {
		c.t.Errorf("%s: got %d: %v, want %d with %q", path, got, out, status, text)
	}
	return out
}

// stream reads a stream to its end, from an index on, and returns its chunks.
func (c *client) stream(in object) (all []string) {
	c.t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		c.t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/v1/world/streams/read", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	rw := httptest.NewRecorder()
	c.h.ServeHTTP(rw, r)
	if got := rw.Header().Get("Content-Type"); got != "application/cbor-seq" || rw.Code != 200 {
		c.t.Fatalf("a stream is answered as %s with %d: %s", got, rw.Code, rw.Body)
	}
	next, err := strconv.ParseUint(rw.Header().Get("Weft-Start-Index"), 10, 64)
	if err != nil {
		c.t.Fatal(err)
	}
	for rest := rw.Body.Bytes(); len(rest) > 0; {
		var item [2]any
		if rest, err = decoder.UnmarshalFirst(rest, &item); err != nil {
			c.t.Fatal(err)
		}
		index, _ := item[0].(uint64)
		if index != next {
			c.t.Errorf("item %d comes instead of %d", index, next)
		}
		next = index + 1
		data, isBytes := item[1].([]byte)
		switch {
		case isBytes:
			all = append(all, string(data))
		case item[1] == nil && len(rest) == 0:
			return all
		default:
			c.t.Fatalf("item %d is %v", index, item[1])
		}
	}
	c.t.Error("the stream has no end")
	return all
}

// written begins a run, writes chunks to a stream of it, each by a call of its own, closes it, and returns what is read.
func (c *client) written(all ...any) []string {
	c.t.Helper()
	c.begin("wrun_1", 1)
	for _, chunk := range all {
		c.ok("streams/write", object{"runId": "wrun_1", "name": "words", "chunks": []any{chunk}})
	}
	c.ok("streams/close", object{"runId": "wrun_1", "name": "words"})
	return c.stream(object{"runId": "wrun_1", "name": "words"})
}

func event(run any, kind, correlation string, data any, spec int) object {
	d := object{"eventType": kind, "specVersion": spec}
	if correlation != "" {
		d["correlationId"] = correlation
	}
	if data != nil {
		d["eventData"] = data
	}
	return object{"runId": run, "data": d}
}

func (c *client) create(run any, kind, correlation string, data any) object {
	c.t.Helper()
	return c.ok("events/create", event(run, kind, correlation, data, c.spec))
}

func (c *client) refused(status int, text string, run any, kind, correlation string, data any) object {
	c.t.Helper()
	return c.not(status, text, "events/create", event(run, kind, correlation, data, c.spec))
}

func (c *client) begin(run string, input any) {
	c.t.Helper()
	c.create(run, "run_created", "", object{"workflowName": "order", "deploymentId": "blue", "input": input})
	c.create(run, "run_started", "", nil)
}

// same compares what came out with what went in. Numbers are numbers, and in JSON bytes are objects.
func (c *client) same(what string, got, want any) {
	c.t.Helper()
	if g, w := c.plain(got), c.plain(want); g != w {
		c.t.Errorf("%s: got %s, want %s", what, g, w)
	}
}

func (c *client) plain(v any) string {
	switch v := v.(type) {
	case object:
		if v["__type"] == "Uint8Array" {
			raw, err := base64.StdEncoding.DecodeString(v["data"].(string))
			if err != nil {
				c.t.Error(err)
			}
			return fmt.Sprintf("%x", raw)
		}
		keys := []string{}
		for k, e := range v {
			keys = append(keys, k+":"+c.plain(e))
		}
		slices.Sort(keys)
		return "{" + strings.Join(keys, " ") + "}"
	case []any:
		all := []string{}
		for _, e := range v {
			all = append(all, c.plain(e))
		}
		return "[" + strings.Join(all, " ") + "]"
	case []byte:
		return fmt.Sprintf("%x", v)
	case time.Time:
		return v.UTC().Round(time.Millisecond).Format("2006-01-02T15:04:05.000Z")
	}
	return fmt.Sprint(v)
}

// bytes are bytes as the client sends them.
func (c *client) bytes(b string) any {
	if c.json {
		return object{"__type": "Uint8Array", "data": base64.StdEncoding.EncodeToString([]byte(b))}
	}
	return []byte(b)
}

// date is a date as the client sends it.
func (c *client) date(ms int64) any {
	if c.json {
		return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	return time.UnixMilli(ms)
}

// behaviours are what a runtime relies on, as each of its versions calls.
var behaviours = map[string]func(c *client){
	"log: the client's id of a run": func(c *client) {
		a := c.create("wrun_1", "run_created", "", object{"workflowName": "order", "deploymentId": "blue", "input": 1})
		c.same("runId", a["run"].(object)["runId"], "wrun_1")
		c.same("status", a["run"].(object)["status"], "pending")
		minted := c.create(nil, "run_created", "", object{"workflowName": "order", "deploymentId": "blue", "input": 1})["run"].(object)["runId"].(string)
		if !strings.HasPrefix(minted, "wrun_") || len(minted) != 31 {
			c.t.Errorf("minted %q", minted)
		}
	},
	"log: other events need a run": func(c *client) {
		c.refused(400, "runId is required", nil, "run_started", "", nil)
		c.refused(400, "runId is required", "", "step_created", "step_1", object{"stepName": "pay", "input": 1})
	},
	"log: events of steps need a correlation": func(c *client) {
		c.begin("wrun_1", 1)
		c.refused(400, "correlationId", "wrun_1", "step_created", "", object{"stepName": "pay", "input": 1})
	},
	"log: a second cancellation is answered": func(c *client) {
		c.begin("wrun_1", 1)
		first := c.create("wrun_1", "run_cancelled", "", nil)
		again := c.create("wrun_1", "run_cancelled", "", nil)
		c.same("the event", again["event"].(object)["eventId"], first["event"].(object)["eventId"])
		c.same("status", again["run"].(object)["status"], "cancelled")
	},
	"log: a start after the end": func(c *client) {
		c.begin("wrun_1", 1)
		c.create("wrun_1", "run_completed", "", object{"output": 1})
		c.same("code", c.refused(409, "terminal state", "wrun_1", "run_started", "", nil)["code"], "run_terminal")
	},
	"log: a step that is created after the end": func(c *client) {
		c.begin("wrun_1", 1)
		c.create("wrun_1", "run_failed", "", object{"error": "no"})
		c.refused(409, "terminal run", "wrun_1", "step_created", "step_1", object{"stepName": "pay", "input": 1})
	},
	"log: a hook that is created after the end": func(c *client) {
		c.begin("wrun_1", 1)
		c.create("wrun_1", "run_completed", "", object{"output": 1})
		c.refused(409, "terminal run", "wrun_1", "hook_created", "hook_1", object{"token": "t"})
	},
	"log: a step that has ended is started": func(c *client) {
		c.begin("wrun_1", 1)
		c.create("wrun_1", "step_created", "step_1", object{"stepName": "pay", "input": 1})
		c.create("wrun_1", "step_started", "step_1", nil)
		c.create("wrun_1", "step_completed", "step_1", object{"result": 1})
		c.refused(409, "completed", "wrun_1", "step_started", "step_1", nil)
	},
	"log: a step that is started too early": func(c *client) {
		c.begin("wrun_1", 1)
		c.create("wrun_1", "step_created", "step_1", object{"stepName": "pay", "input": 1})
		c.create("wrun_1", "step_started", "step_1", nil)
		c.create("wrun_1", "step_retrying", "step_1", object{"error": "no", "retryAfter": c.date(time.Now().Add(time.Hour).UnixMilli())})
		if left, _ := c.refused(425, "retried", "wrun_1", "step_started", "step_1", nil)["retryAfter"].(float64); left < 3590 || left > 3600 {
			c.t.Errorf("retry after %v s, want an hour", left)
		}
	},
	"log: an unknown hook is disposed": func(c *client) {
		c.begin("wrun_1", 1)
		c.refused(404, "Hook not found: hook_1", "wrun_1", "hook_disposed", "hook_1", nil)
	},
	"log: without data": func(c *client) {
		c.begin("wrun_1", c.bytes("in"))
		c.create("wrun_1", "step_created", "step_1", object{"stepName": "pay", "input": c.bytes("a")})
		c.create("wrun_1", "hook_created", "hook_1", object{"token": "t", "metadata": c.bytes("m")})
		for _, read := range []object{
			c.ok("runs/get", object{"id": "wrun_1", "resolveData": "none"}),
			c.ok("runs/list", object{"resolveData": "none"})["data"].([]any)[0].(object),
			c.ok("steps/get", object{"runId": "wrun_1", "id": "step_1", "resolveData": "none"}),
			c.ok("steps/list", object{"runId": "wrun_1", "resolveData": "none"})["data"].([]any)[0].(object),
		} {
			if output, there := read["output"]; there || c.plain(read["input"]) != "[]" {
				c.t.Errorf("got input %v and output %v", read["input"], output)
			}
		}
		if m, there := c.ok("hooks/get", object{"id": "hook_1", "resolveData": "none"})["metadata"]; there {
			c.t.Errorf("a hook has the metadata %v", m)
		}
		list := c.ok("events/list", object{"runId": "wrun_1", "resolveData": "none"})["data"].([]any)
		one := c.ok("events/get", object{"runId": "wrun_1", "id": list[0].(object)["eventId"], "resolveData": "none"})
		for _, e := range append(list, one) {
			if d, there := e.(object)["eventData"]; there {
				c.t.Errorf("an event has the data %v", d)
			}
		}
	},
	"log: a legacy run": func(c *client) {
		c.ok("events/create", event("wrun_1", "run_created", "", object{"workflowName": "order", "deploymentId": "blue", "input": 1}, 1))
		c.refused(409, "not supported for legacy runs", "wrun_1", "run_started", "", nil)
		c.create("wrun_1", "hook_received", "hook_1", object{"payload": 1})
		c.create("wrun_1", "run_cancelled", "", nil)
	},
	"log: a run of a later spec": func(c *client) {
		c.same("code", c.not(409, "spec version", "events/create", event("wrun_1", "run_created", "", object{"workflowName": "order", "deploymentId": "blue", "input": 1}, c.spec+1))["code"], "run_not_supported")
	},
	"log: pages": func(c *client) {
		c.begin("wrun_1", 1)
		for i := range 3 {
			c.create("wrun_1", "step_created", fmt.Sprint("step_", i), object{"stepName": "pay", "input": 1})
		}
		a := c.ok("events/list", object{"runId": "wrun_1", "pagination": object{"limit": 2, "sortOrder": "asc"}})
		b := c.ok("events/list", object{"runId": "wrun_1", "pagination": object{"limit": 3, "sortOrder": "asc", "cursor": a["cursor"]}})
		c.same("pages", fmt.Sprint(len(a["data"].([]any)), a["hasMore"], len(b["data"].([]any)), b["hasMore"]), "2 true 3 false")
		if tail := b["data"].([]any)[2].(object)["eventId"]; b["tail"] != tail || (b["cursor"] == tail) != (c.spec >= 4) {
			c.t.Errorf("the last page has the cursor %v and the tail %v, want the tail %v", b["cursor"], b["tail"], tail)
		}
		c.not(400, "limit", "events/list", object{"runId": "wrun_1", "pagination": object{"limit": 0}})
		c.not(400, "limit", "events/list", object{"runId": "wrun_1", "pagination": object{"limit": 1.5}})
		c.not(400, "no id", "events/list", object{"runId": "wrun_1", "pagination": object{"cursor": "x"}})
	},
	"hooks: gone after completion":   func(c *client) { c.ends("run_completed", object{"output": 1}) },
	"hooks: gone after a failure":    func(c *client) { c.ends("run_failed", object{"error": "no"}) },
	"hooks: gone after cancellation": func(c *client) { c.ends("run_cancelled", nil) },
	"hooks: the token again": func(c *client) {
		c.ends("run_completed", object{"output": 1})
		c.begin("wrun_2", 1)
		c.same("the event", c.create("wrun_2", "hook_created", "hook_3", object{"token": "t1"})["event"].(object)["eventType"], "hook_created")
	},
	"hooks: a conflict": func(c *client) {
		c.begin("wrun_1", 1)
		c.begin("wrun_2", 1)
		c.create("wrun_1", "hook_created", "hook_1", object{"token": "t"})
		e := c.create("wrun_2", "hook_created", "hook_2", object{"token": "t"})["event"].(object)
		c.same("the event", e["eventType"], "hook_conflict")
		c.same("its data", e["eventData"], object{"token": "t", "conflictingRunId": "wrun_1"})
	},
	"hooks: by token": func(c *client) {
		c.begin("wrun_1", 1)
		c.create("wrun_1", "hook_created", "hook_1", object{"token": "t", "metadata": c.bytes("m")})
		h := c.ok("hooks/by-token", object{"token": "t"})
		c.same("the hook", fmt.Sprint(h["runId"], h["hookId"], h["token"], c.plain(h["metadata"])), "wrun_1hook_1t6d")
		c.not(404, "t", "hooks/by-token", object{"token": "other"})
	},
	"hooks: only a webhook is one": func(c *client) { // a runtime takes what is not told for a webhook, which anybody may call
		c.begin("wrun_1", 1)
		for i, data := range []object{{"token": "t0"}, {"token": "t1", "isWebhook": false}, {"token": "t2", "isWebhook": true, "isSystem": true}} {
			id, want := fmt.Sprint("hook_", i), fmt.Sprint(i == 2, i == 2)
			created := c.create("wrun_1", "hook_created", id, data)["hook"]
			listed := c.ok("hooks/list", object{"runId": "wrun_1"})["data"].([]any)[0] // the newest
			for _, got := range []any{created, listed, c.ok("hooks/get", object{"id": id}), c.ok("hooks/by-token", object{"token": data["token"]})} {
				h := got.(object)
				c.same(fmt.Sprint("isWebhook, isSystem of ", h["hookId"]), fmt.Sprint(h["isWebhook"], h["isSystem"]), want)
			}
		}
	},
	"outputs": func(c *client) {
		for i, v := range []any{42, object{"a": 1}, object{"a": object{"b": []any{1, object{}}}}, "text", []any{1, "b", nil}, true, false, nil, 0, "", c.bytes("\x00\xff")} {
			run := fmt.Sprint("wrun_", i)
			c.begin(run, v)
			c.create(run, "step_started", "step_1", object{"stepName": "pay", "input": v})
			c.create(run, "step_completed", "step_1", object{"result": v})
			c.create(run, "run_completed", "", object{"output": v})
			r, s := c.ok("runs/get", object{"id": run}), c.ok("steps/get", object{"runId": run, "id": "step_1"})
			for what, got := range map[string]any{"the input of a run": r["input"], "its output": r["output"], "the input of a step": s["input"], "its output ": s["output"]} {
				c.same(what, got, v)
			}
		}
	},
	"outputs of three steps": func(c *client) {
		c.begin("wrun_1", []any{"a", 2})
		for i := range 3 {
			id := fmt.Sprint("step_", i)
			c.create("wrun_1", "step_created", id, object{"stepName": "pay", "input": []any{i, "x"}})
			c.create("wrun_1", "step_started", id, nil)
			c.create("wrun_1", "step_completed", id, object{"result": i})
		}
		for i, s := range c.ok("steps/list", object{"runId": "wrun_1", "pagination": object{"sortOrder": "asc"}})["data"].([]any) {
			c.same("a step", c.plain(s.(object)["input"])+c.plain(s.(object)["output"]), fmt.Sprintf("[%d x]%d", i, i))
		}
	},
	"values": func(c *client) {
		now := int64(1767355200123)
		deep := any("deep")
		for range 100 {
			deep = []any{deep}
		}
		v := object{"date": c.date(now), "null": nil, "nested": deep, "list": []any{c.date(now), object{"a": nil}}}
		c.begin("wrun_1", v)
		c.create("wrun_1", "step_started", "step_1", object{"stepName": "pay", "input": v})
		c.create("wrun_1", "step_completed", "step_1", object{"result": v})
		c.create("wrun_1", "hook_created", "hook_1", object{"token": "t", "metadata": v})
		c.create("wrun_1", "hook_received", "hook_1", object{"payload": v})
		w := c.create("wrun_1", "wait_created", "wait_1", object{"resumeAt": c.date(now)})["wait"].(object)
		c.same("a wait", w["resumeAt"], time.UnixMilli(now))
		c.same("the input of a run", c.ok("runs/get", object{"id": "wrun_1"})["input"], v)
		s := c.ok("steps/get", object{"runId": "wrun_1", "id": "step_1"})
		c.same("a step", []any{s["input"], s["output"]}, []any{v, v})
		c.same("metadata", c.ok("hooks/get", object{"id": "hook_1"})["metadata"], v)
		e := c.ok("events/list-by-correlation", object{"correlationId": "hook_1", "pagination": object{"limit": 1}})["data"].([]any)[0].(object)
		c.same("eventData", e["eventData"], object{"payload": v})
	},
	"streams: text": func(c *client) { c.same("the stream", c.written("é", "", "b"), []string{"é", "", "b"}) },
	"streams: bytes": func(c *client) {
		c.same("the stream", c.written(c.bytes("\xff\x80"), c.bytes("")), []string{"\xff\x80", ""})
	},
	"streams: NUL": func(c *client) {
		c.same("the stream", c.written("a\x00b", c.bytes("\x00")), []string{"a\x00b", "\x00"})
	},
	"streams: order": func(c *client) {
		c.begin("wrun_1", 1)
		var want []string
		for i := range 20 {
			var calls []any
			for j := range 20 {
				calls = append(calls, fmt.Sprint(i, ".", j))
				want = append(want, fmt.Sprint(i, ".", j))
			}
			c.same("a write", c.ok("streams/write", object{"runId": "wrun_1", "name": "words", "chunks": calls}), object{"index": 20 * i})
		}
		c.ok("streams/close", object{"runId": "wrun_1", "name": "words"})
		c.ok("streams/close", object{"runId": "wrun_1", "name": "words"})
		c.same("a write after the end", c.ok("streams/write", object{"runId": "wrun_1", "name": "words", "chunks": []any{"x"}}), object{"index": 400, "closed": true})
		c.same("the stream", c.stream(object{"runId": "wrun_1", "name": "words"}), want)
		c.same("the stream by name", c.stream(object{"name": "words"}), want)
		c.same("its end", c.stream(object{"runId": "wrun_1", "name": "words", "startIndex": 397}), want[397:])
		c.same("its last", c.stream(object{"runId": "wrun_1", "name": "words", "startIndex": -2}), want[398:])
		c.same("nothing", c.stream(object{"runId": "wrun_1", "name": "words", "startIndex": 400}), []string(nil))
		c.not(400, "whole number", "streams/read", object{"runId": "wrun_1", "name": "words", "startIndex": 1.5})
	},
	"streams: names apart": func(c *client) {
		c.begin("wrun_1", 1)
		c.begin("wrun_2", 1)
		for i, at := range [][2]string{{"wrun_1", "a"}, {"wrun_1", "b"}, {"wrun_2", "a"}} {
			c.ok("streams/write", object{"runId": at[0], "name": at[1], "chunks": []any{fmt.Sprint(i)}})
			c.ok("streams/close", object{"runId": at[0], "name": at[1]})
		}
		for i, at := range [][2]string{{"wrun_1", "a"}, {"wrun_1", "b"}, {"wrun_2", "a"}} {
			c.same("a stream", c.stream(object{"runId": at[0], "name": at[1]}), []string{fmt.Sprint(i)})
		}
		c.same("the newest run's", c.stream(object{"name": "a"}), []string{"2"})
		c.not(404, "Run not found: wrun_3", "streams/read", object{"runId": "wrun_3", "name": "a"})
		c.not(400, "name", "streams/read", object{"runId": "wrun_1"})
		c.not(400, "runId", "streams/write", object{"name": "a", "chunks": []any{"x"}})
		c.not(400, "neither text nor bytes", "streams/write", object{"runId": "wrun_1", "name": "a", "chunks": []any{1}})
		c.not(400, "1 to 1000 chunks", "streams/write", object{"runId": "wrun_1", "name": "a"})
	},
	"streams: of a run": func(c *client) {
		c.begin("wrun_1", 1)
		c.same("no streams", c.ok("streams/list", object{"runId": "wrun_1"})["data"], []any{})
		c.same("no stream", c.ok("streams/info", object{"runId": "wrun_1", "name": "b"}), object{"tailIndex": -1, "done": false})
		for _, name := range []string{"b", "a", "c:d"} {
			c.ok("streams/write", object{"runId": "wrun_1", "name": name, "chunks": []any{"1", "2", "3"}})
		}
		c.ok("streams/close", object{"runId": "wrun_1", "name": "b"})
		list := c.ok("streams/list", object{"runId": "wrun_1", "pagination": object{"sortOrder": "asc"}})
		c.same("streams", fmt.Sprint(list["data"], list["hasMore"], list["tail"]), "[a b c:d] falsec:d")
		two := c.ok("streams/list", object{"runId": "wrun_1", "pagination": object{"sortOrder": "asc", "limit": 2}})
		c.same("two streams", fmt.Sprint(two["data"], two["hasMore"], two["cursor"]), "[a b] trueb")
		c.same("an open stream", c.ok("streams/info", object{"runId": "wrun_1", "name": "a"}), object{"tailIndex": 2, "done": false})
		c.same("a closed stream", c.ok("streams/info", object{"runId": "wrun_1", "name": "b"}), object{"tailIndex": 2, "done": true})
		for _, path := range []string{"streams/list", "streams/info", "streams/chunks"} {
			c.not(404, "Run not found: wrun_9", path, object{"runId": "wrun_9", "name": "a"})
		}
	},
	"streams: pages": func(c *client) {
		c.written("0", "1", c.bytes("2"), "3", "")
		var got []string
		var cursor any
		for more := true; more; {
			a := c.ok("streams/chunks", object{"runId": "wrun_1", "name": "words", "pagination": object{"limit": 2, "cursor": cursor}})
			for _, chunk := range a["data"].([]any) {
				c.same("an index", chunk.(object)["index"], len(got))
				got = append(got, c.plain(chunk.(object)["data"]))
			}
			c.same("done", a["done"], true)
			more, cursor = a["hasMore"].(bool), a["cursor"]
		}
		c.same("chunks", strings.Join(got, ","), "30,31,32,33,")
		c.same("a cursor", cursor, nil)
		c.not(400, "limit", "streams/chunks", object{"runId": "wrun_1", "name": "words", "pagination": object{"limit": 1001}})
		c.not(400, "cursor", "streams/chunks", object{"runId": "wrun_1", "name": "words", "pagination": object{"cursor": "x"}})
	},
	"queue: the deployment": func(c *client) {
		rw := httptest.NewRecorder()
		c.h.ServeHTTP(rw, httptest.NewRequest("GET", "/v1/world/deployment-id", nil))
		var out object
		if err := decoder.Unmarshal(rw.Body.Bytes(), &out); err != nil || rw.Code != 200 || out["deploymentId"] != "blue" {
			c.t.Errorf("got %d, %v, %v", rw.Code, out, err)
		}
	},
	"queue: times": func(c *client) { // whoever holds a message learns for how long, without comparing clocks
		held := func(v any) float64 { f, _ := v.(object)["heldSeconds"].(float64); return f }
		for range 2 {
			c.ok("queue/publish", object{"queueName": "__wkflow_flow_order", "message": object{"runId": "wrun_1"}, "opts": object{}})
		}
		var all []object
		for _, m := range c.ok("queue/receive", object{"max": 10})["messages"].([]any) {
			if s := held(m); s <= 0 || s > 30 {
				c.t.Errorf("a delivery is held for %v s: %v", s, m)
			}
			all = append(all, object{"messageId": m.(object)["messageId"], "receipt": m.(object)["receipt"], "as": "extend"})
		}
		all[1]["afterSeconds"] = 7.5
		lost := object{"messageId": all[0]["messageId"], "receipt": "other", "as": "extend"}
		var got []float64
		for _, r := range c.ok("queue/settle", object{"settlements": append(all, lost)})["results"].([]any) {
			got = append(got, held(r))
		}
		c.same("how long they are held", fmt.Sprint(got), "[30 7.5 0]")
	},
	"queue: keys": func(c *client) {
		publish := func(key string) string {
			opts := object{}
			if key != "" {
				opts["idempotencyKey"] = key
			}
			return c.ok("queue/publish", object{"queueName": "__wkflow_flow_order", "message": object{"runId": "wrun_1"}, "opts": opts})["messageId"].(string)
		}
		a, b, d := publish("k"), publish("k"), publish("other")
		none, again := publish(""), publish("")
		if a != b || a == d || !strings.HasPrefix(a, "msg_") || none == again {
			c.t.Errorf("got %s, %s with the same key, %s with another one", a, b, d)
		}
		got := c.ok("queue/receive", object{"max": 10})["messages"].([]any)
		if len(got) != 4 {
			c.t.Fatalf("got %v", got)
		}
		var all []object
		for _, m := range got {
			m := m.(object)
			c.same("a message", fmt.Sprint(m["queueName"], c.plain(m["message"]), m["attempt"]), "__wkflow_flow_order{runId:wrun_1}1")
			all = append(all, object{"messageId": m["messageId"], "receipt": m["receipt"], "as": "acknowledge"})
		}
		lost := object{"messageId": all[0]["messageId"], "receipt": "other", "as": "extend"}
		c.same("code", c.not(409, "does not hold", "queue/settle", object{"settlements": []object{lost}})["code"], "lost")
		for i, r := range c.ok("queue/settle", object{"settlements": append([]object{{"messageId": "msg_1", "receipt": "r", "as": "drop"}}, all...)})["results"].([]any) {
			if (r == nil) != (i > 0) {
				c.t.Errorf("settlement %d: %v", i, r)
			}
		}
		if got := c.ok("queue/receive", object{"max": 10})["messages"].([]any); len(got) != 0 {
			c.t.Errorf("got %v", got)
		}
	},
}

// ends begins a run with two hooks, and ends it.
func (c *client) ends(kind string, data any) {
	c.t.Helper()
	c.begin("wrun_1", 1)
	c.create("wrun_1", "hook_created", "hook_1", object{"token": "t1"})
	c.create("wrun_1", "hook_created", "hook_2", object{"token": "t2"})
	c.same("open hooks", len(c.ok("hooks/list", object{"runId": "wrun_1"})["data"].([]any)), 2)
	c.create("wrun_1", kind, "", data)
	c.same("open hooks", len(c.ok("hooks/list", object{"runId": "wrun_1"})["data"].([]any)), 0)
	for _, id := range []string{"hook_1", "hook_2"} {
		c.not(404, "Hook not found: "+id, "hooks/get", object{"id": id})
	}
	c.not(404, "t1", "hooks/by-token", object{"token": "t1"})
}

// The behaviours that runtimes rely on, for those of spec 3, 5 and 7, in CBOR and in JSON.
func TestBehaviours(t *testing.T) {
	for name, c := range map[string]client{"CBOR/3": {spec: 3}, "CBOR/5": {spec: 5}, "CBOR/7": {spec: 7}, "JSON/5": {spec: 5, json: true}} {
		for behaviour, f := range behaviours {
			t.Run(name+"/"+behaviour, func(t *testing.T) { f(&client{t, serve(t), c.spec, c.json}) })
		}
	}
}

// What is no call is refused, and a call that is sent again is answered again.
func TestCalls(t *testing.T) {
	c := &client{t: t, h: serve(t), spec: 5}
	c.begin("wrun_1", 1)
	for body, kind := range map[string]string{"\xa1": "application/cbor", "{": "application/json", "{}{}": "application/json", "[]": "application/json", `{"a":1,"a":2}`: "application/json"} {
		r := httptest.NewRequest("POST", "/v1/world/runs/get", strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		rw := httptest.NewRecorder()
		if c.h.ServeHTTP(rw, r); rw.Code != 400 {
			t.Errorf("%q as %s: got %d, want 400", body, kind, rw.Code)
		}
	}
	r := httptest.NewRequest("POST", "/v1/world/runs/get", io.LimitReader(zeros{}, 40<<20))
	rw := httptest.NewRecorder()
	if c.h.ServeHTTP(rw, r); rw.Code != 413 {
		t.Errorf("40 MiB: got %d, want 413", rw.Code)
	}
	for _, params := range []object{{"seqInBand": -1}, {"eventCount": 1.5}, {"occurredAt": "yesterday"}, {"resolveData": "some"}} {
		in := event("wrun_1", "step_created", "step_1", object{"stepName": "pay", "input": 1}, 5)
		in["params"] = params
		c.not(400, "", "events/create", in)
	}
	in := event("wrun_1", "step_started", "step_1", object{"stepName": "pay", "input": 1}, 5)
	in["params"] = object{"occurredAt": time.UnixMilli(1767355200123), "seqInBand": 2.0, "sinceCursor": nil}
	first := c.ok("events/create", in, "Weft-Request", "r1")
	again := c.ok("events/create", in, "Weft-Request", "r1", "Weft-Retry", "1")
	c.same("again", again["event"].(object)["eventId"], first["event"].(object)["eventId"])
	c.same("stepCreated", again["stepCreated"], true)
	c.same("occurredAt", again["event"].(object)["occurredAt"], time.UnixMilli(1767355200123))
	c.refused(409, "exists", "wrun_1", "step_created", "step_1", object{"stepName": "pay", "input": 1})
}

// HEAD is answered as GET is.
func TestHead(t *testing.T) {
	rw := httptest.NewRecorder()
	if serve(t).ServeHTTP(rw, httptest.NewRequest("HEAD", "/v1/world/deployment-id", nil)); rw.Code != 200 {
		t.Errorf("got %d, want 200", rw.Code)
	}
}

// A publication that is made again, behind the window of its key, gets the first answer.
func TestAPublicationIsMadeAgain(t *testing.T) {
	q, err := queue.New(queue.Config{Storage: new(memory.Store), Window: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	c := &client{t: t, h: worldhttp.New(worldhttp.Config{Queue: q}), spec: 5}
	publish := func(headers ...string) any {
		time.Sleep(time.Millisecond)
		return c.ok("queue/publish", object{"queueName": "q", "message": 1, "opts": object{"deploymentId": "blue", "idempotencyKey": "k"}}, headers...)["messageId"]
	}
	first := publish("Weft-Request", "r1")
	c.same("made again", publish("Weft-Request", "r1", "Weft-Retry", "1"), first)
	if again := publish("Weft-Request", "r1"); again == first {
		t.Error("it does not say that it is made again, and was suppressed")
	}
}

// Each write of an answer has a time limit: a client that reads nothing must not keep the server from stopping.
func TestAnswersHaveATimeLimit(t *testing.T) {
	c := &client{t: t, h: serve(t), spec: 5}
	c.written("a", "b")
	for path, most := range map[string]int{"runs/get": 1, "streams/read": 3} { // its head, its chunks, its end
		r := httptest.NewRequest("POST", "/v1/world/"+path, strings.NewReader(`{"id":"wrun_1","runId":"wrun_1","name":"words"}`))
		r.Header.Set("Content-Type", "application/json")
		rw := &limited{ResponseRecorder: httptest.NewRecorder()}
		c.h.ServeHTTP(rw, r)
		if rw.Code != 200 || rw.set != most || rw.unlimited > 0 {
			t.Errorf("%s: %d: %d limits, and %d writes without one", path, rw.Code, rw.set, rw.unlimited)
		}
	}
}

// readStream begins to read a stream, and returns when the answer has begun.
func readStream(ctx context.Context, t *testing.T, server *httptest.Server, call string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", server.URL+"/v1/world/streams/read", strings.NewReader(call))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := server.Client().Do(r)
	if err != nil || answer.StatusCode != 200 {
		t.Fatalf("a reader got no head of an answer: %+v, %v", answer, err)
	}
	return answer
}

// A stream may be idle for longer than a client has to take a chunk, also in HTTP/2.
func TestIdleStreamIsNotCut(t *testing.T) {
	h, streams := serveStreams(t)
	(&client{t: t, h: h, spec: 5}).begin("wrun_1", 1)
	defer worldhttp.SetWritePatience(5 * time.Second)()
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for i := range 2 { // the first waits for the first chunk, the second for another one
		r := readStream(t.Context(), t, server, `{"runId":"wrun_1","name":"words"}`)
		if r.ProtoMajor != 2 {
			t.Fatalf("got %+v, want HTTP/2", r)
		}
		time.Sleep(6 * time.Second)
		if _, err := streams.Write(t.Context(), worldstream.Write{RunID: "wrun_1", Name: "words", Chunks: [][]byte{{'a' + byte(i)}}}); err != nil {
			t.Fatal(err)
		}
		chunks := cbor.NewDecoder(r.Body)
		for n := range i + 1 {
			var chunk []any
			if err := chunks.Decode(&chunk); err != nil || chunk[0] != uint64(n) {
				t.Fatalf("reader %d: got %v, %v, want chunk %d", i, chunk, err, n)
			}
		}
		r.Body.Close()
	}
}

// A limited is a connection that knows which writes have a time limit of their own.
type limited struct {
	*httptest.ResponseRecorder
	set, unlimited int
	has            bool
}

func (l *limited) SetWriteDeadline(at time.Time) error {
	l.has = !at.IsZero() && time.Until(at) <= time.Minute
	if !at.IsZero() {
		l.set++
	}
	return nil
}

func (l *limited) Write(b []byte) (int, error) {
	if !l.has {
		l.unlimited++
	}
	l.has = false
	return l.ResponseRecorder.Write(b)
}

// A zeros is a reader of zeros.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// JSON and CBOR of the same value, in both directions.
func TestJSON(t *testing.T) {
	h := serve(t)
	cborClient, jsonClient := &client{t: t, h: h, spec: 5}, &client{t: t, h: h, spec: 5, json: true}
	for i, text := range []string{
		`{"z":1,"a":[true,false,null,"é\"<&\u2028"],"m":{"b":{},"a":[]}}`, `-1`, `9223372036854775807`, `1.5`, `1e+300`, `""`, `[[[]]]`,
		`{"__type":"Uint8Array","data":"AP8="}`, `{"__type":"Uint8Array","data":"AP8=","more":1}`, `{"__type":"Other","data":"AP8="}`,
	} {
		run := fmt.Sprint("wrun_", i)
		jsonClient.begin(run, json.RawMessage(text))
		r := httptest.NewRequest("POST", "/v1/world/runs/get", strings.NewReader(fmt.Sprintf(`{"id":%q}`, run)))
		r.Header.Set("Content-Type", "application/json")
		rw := httptest.NewRecorder()
		h.ServeHTTP(rw, r)
		if !strings.Contains(rw.Body.String(), `"input":`+text+`,`) && !strings.Contains(rw.Body.String(), `"input":`+text+`}`) {
			t.Errorf("%s came back in %s", text, rw.Body)
		}
	}
	got := cborClient.ok("runs/get", object{"id": "wrun_7"})["input"]
	if b, ok := got.([]byte); !ok || string(b) != "\x00\xff" {
		t.Errorf("bytes of JSON are %v in CBOR", got)
	}
	cborClient.begin("wrun_c", cbor.RawMessage{0x84, 0xf7, 0xfb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0, 0xa1, 0x61, 'a', 0xf7, 0xd9, 0x01, 0x02, 0x81, 0x01})
	jsonClient.same("what JSON does not have", jsonClient.ok("runs/get", object{"id": "wrun_c"})["input"], []any{nil, nil, object{}, []any{1}})
}

// A value that a client in CBOR may store can be read in JSON: else one call would make lists unreadable.
func TestWhatIsStoredCanBeReadInJSON(t *testing.T) {
	deep := func(n int) cbor.RawMessage {
		return append(bytes.Repeat([]byte{0x81}, n), 0x01)
	}
	for what, v := range map[string]cbor.RawMessage{
		"text that is no UTF-8": {0x61, 0xff}, "a key that is no UTF-8": {0xa1, 0x61, 0xff, 0x01}, "no finite number": {0xf9, 0x7e, 0x00},
		"a key that is a list": {0xa1, 0x81, 0x01, 0x01}, "a key that is a map": {0xa1, 0xa1, 0x01, 0x01, 0x01}, "a key that is null": {0xa1, 0xf6, 0x01},
		"a key that is a tag": {0xa1, 0xc1, 0x01, 0x01}, "a date that is none": {0xc0, 0x61, 'x'}, "a date of bytes": {0xc1, 0x41, 0x01}, "a date far off": {0xc1, 0xfb, 0x7f, 0xef, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"a number of text": {0xc2, 0x61, 'x'}, "one key twice": {0xa2, 0x61, 'a', 0x01, 0x61, 'a', 0x02}, "text in parts": {0x7f, 0x61, 'a', 0x61, 0xff, 0xff}, "a simple value": {0xf8, 0xff},
		"a number below the int64s": {0x3b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, "a number above them": {0x1b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"100 levels": deep(100), "994 levels": deep(994), "996 levels": deep(996), "5000 levels": deep(5000),
	} {
		h := serve(t)
		inJSON := &client{t: t, h: h, spec: 5, json: true}
		inJSON.begin("wrun_1", 1)
		body, err := encoder.Marshal(object{"runId": "wrun_1", "data": object{"eventType": "step_created", "correlationId": "step_1", "specVersion": 5, "eventData": object{"stepName": "pay", "input": []byte("here")}}, "params": object{"resolveData": "none"}})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("POST", "/v1/world/events/create", bytes.NewReader(bytes.Replace(body, []byte("\x44here"), v, 1)))
		rw := httptest.NewRecorder()
		if h.ServeHTTP(rw, r); rw.Code != 200 && rw.Code != 400 {
			t.Errorf("%s: %d", what, rw.Code)
		}
		for _, path := range []string{"events/list", "steps/list"} {
			body, _ := json.Marshal(object{"runId": "wrun_1"})
			r := httptest.NewRequest("POST", "/v1/world/"+path, bytes.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			read := httptest.NewRecorder()
			if h.ServeHTTP(read, r); read.Code != 200 || !json.Valid(read.Body.Bytes()) {
				t.Errorf("%s was answered with %d: then %s is answered with %d: %.100s", what, rw.Code, path, read.Code, read.Body)
			}
		}
	}
}

// A stream that is read from its end is answered with the index at which that was, before there is a chunk: who is cut then goes on
// there.
func TestAStreamIsReadFromItsEnd(t *testing.T) {
	for what, in := range map[string]string{
		"of a run":  `{"runId":"wrun_1","name":"words","startIndex":-1}`,
		"by a name": `{"name":"words","startIndex":-1}`,
	} {
		t.Run(what, func(t *testing.T) {
			h, _ := serveStreams(t)
			c := &client{t: t, h: h, spec: 5}
			c.begin("wrun_1", 1)
			server := httptest.NewServer(h)
			defer server.Close()
			ctx, end := context.WithTimeout(t.Context(), time.Minute)
			defer end()
			read := func(want string) io.ReadCloser {
				t.Helper()
				answer := readStream(ctx, t, server, in)
				if got := answer.Header.Get("Weft-Start-Index"); got != want {
					t.Errorf("the answer begins at %q, want %s", got, want)
				}
				return answer.Body
			}
			first := func(body io.Reader) string {
				t.Helper()
				var item [2]any
				if err := cbor.NewDecoder(body).Decode(&item); err != nil {
					t.Fatal(err)
				}
				return fmt.Sprintf("%v %s", item[0], item[1])
			}
			early := read("0")
			defer early.Close()
			c.ok("streams/write", object{"runId": "wrun_1", "name": "words", "chunks": []any{"a", "b", "c"}})
			late := read("2")
			defer late.Close()
			c.same("the first chunks", []any{first(early), first(late)}, []any{"0 a", "2 c"})
		})
	}
}

// A stream is answered as it is written: the head of the answer before there is a chunk, and each chunk at once. A client that
// goes ends its reader. A stream that is cut has no end.
func TestAStreamIsAnsweredAsItIsWritten(t *testing.T) {
	h, streams := serveStreams(t)
	c := &client{t: t, h: h, spec: 5}
	c.begin("wrun_1", 1)
	read := func(ctx context.Context, server *httptest.Server) *http.Response {
		t.Helper()
		return readStream(ctx, t, server, `{"runId":"wrun_1","name":"words"}`)
	}
	inTime, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	ctx, gone := context.WithCancel(inTime)
	defer gone()
	one, two := httptest.NewServer(h), httptest.NewServer(h)
	defer two.Close()
	goes, stays := read(ctx, one), read(inTime, two)
	defer stays.Body.Close()
	gone()
	goes.Body.Close()
	one.Close() // waits for its readers
	items := cbor.NewDecoder(stays.Body)
	for i := range 3 {
		c.ok("streams/write", object{"runId": "wrun_1", "name": "words", "chunks": []any{fmt.Sprint(i)}})
		var item [2]any
		if err := items.Decode(&item); err != nil || fmt.Sprintf("%v %s", item[0], item[1]) != fmt.Sprint(i, " ", i) {
			t.Fatalf("got %v, %v", item, err)
		}
	}
	streams.Close() // the server stops
	var item [2]any
	if err := items.Decode(&item); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a stream that was cut ends with %v, %v", item, err)
	}
	c.same("code", c.not(503, "shutting down", "streams/write", object{"runId": "wrun_1", "name": "words", "chunks": []any{"x"}})["code"], "closed")
	c.same("code of a reader", c.not(503, "shutting down", "streams/read", object{"runId": "wrun_1", "name": "words"})["code"], "closed")
}
