package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
	"github.com/weft-go/weft/world"
)

// withWorld gives a plane a world on its store.
func withWorld(t testing.TB) func(*control.Config) {
	return func(c *control.Config) {
		w, err := world.Open(c.Engine.Store(), &world.Options{Deployment: c.Engine.ActiveDeployment, Logger: c.Logger})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		c.World = w
	}
}

func (x *site) publish(body string) *reply {
	x.t.Helper()
	return x.do("POST", "/v1/queue/publish", adminSecret, body)
}

// received takes the messages of a deployment, and returns their ids and bodies.
func (x *site) received(deployment string) (ids, bodies []string) {
	x.t.Helper()
	var a struct {
		Messages []struct {
			MessageID string
			QueueName string
			Message   json.RawMessage
		}
	}
	r := x.do("POST", "/v1/world/queue/receive", adminSecret, fmt.Sprintf(`{"deploymentId":%q,"max":100}`, deployment)).is(200)
	if err := json.Unmarshal(r.body, &a); err != nil {
		x.t.Fatal(err)
	}
	for _, m := range a.Messages {
		ids, bodies = append(ids, m.MessageID), append(bodies, m.QueueName+string(m.Message))
	}
	return ids, bodies
}

// HTTP-21, HTTP-27, HTTP-64 to HTTP-69: a message goes to the deployment that it names, or to the active one. Only its
// idempotencyKey makes two calls the same.
func TestPublish(t *testing.T) {
	control.EachStore(t, func(t *testing.T, s storage.Storage) {
		x := planeOn(t, s, withWorld(t))
		const message = `"queueName":"__wkf_workflow_order","message":{"runId":"wrun_1","n":[1,null]}`
		x.publish(`{`+message+`}`).fails(409, "no_active_deployment")
		x.do("POST", "/v1/world/queue/publish", adminSecret, `{`+message+`}`).is(409)
		for _, id := range []string{"blue", "green"} {
			x.do("POST", "/v1/deployments", adminSecret, fmt.Sprintf(`{"manifest":{"deploymentId":%q}}`, id)).is(201)
		}
		x.do("POST", "/v1/deployments/blue/activate", adminSecret, nil).is(200)
		id := func(r *reply) string { return fmt.Sprint(r.is(200).object()["messageId"]) }
		first := id(x.publish(`{` + message + `,"opts":{"idempotencyKey":"k"}}`))
		var same sync.WaitGroup
		for range 10 {
			same.Go(func() {
				if again := id(x.publish(`{"opts":{"idempotencyKey":"k"},` + message + `}`)); again != first {
					t.Errorf("with the same key: %s, and first %s", again, first)
				}
			})
		}
		same.Wait()
		x.publish(`{"queueName":"q","message":1,"opts":{"idempotencyKey":"k"}}`).fails(409, "idempotency_conflict")
		ids := []string{first, id(x.publish(`{` + message + `,"opts":{"idempotencyKey":"k2"}}`)), id(x.publish(`{` + message + `}`)), id(x.publish(`{` + message + `}`))}
		green := id(x.publish(`{"queueName":"q","message":null,"opts":{"deploymentId":"green"}}`))
		got, bodies := x.received("blue")
		if len(got) != 4 {
			t.Errorf("blue has %v, want %v", got, ids)
		}
		for i, b := range bodies {
			if b != `__wkf_workflow_order{"runId":"wrun_1","n":[1,null]}` {
				t.Errorf("message %d is %s", i, b)
			}
		}
		if got, bodies := x.received("green"); len(got) != 1 || got[0] != green || bodies[0] != "qnull" {
			t.Errorf("green has %v %v", got, bodies)
		}
		x.publish(`{"message":1}`).fails(400, "invalid_request")
		x.publish(`{"queueName":"q"}`).fails(400, "invalid_request")
		x.publish(`{"queueName":"q","message":1,"opts":{"idempotencyKey":""}}`).fails(400, "invalid_request")
		if r := x.publish(`{"queueName":"q","message":1,"opts":{"idempotencyKey":"a\u0000b"}}`).fails(400, "invalid_request"); !bytes.Contains(r.body, []byte("/opts/idempotencyKey")) {
			t.Errorf("a NUL in the key: %s", r.body)
		}
		x.publish(`{"queueName":"`+strings.Repeat("q", 2000)+`","message":1}`).fails(400, "invalid_request")
		x.do("POST", "/v1/queue/publish", otherSecret, `{`+message+`}`).is(403)
	})
}

// HTTP-65, HTTP-69: whatever becomes of a call to the store, a keyed publication that is made again until it is answered is one
// message. So is a resumption.
func TestAPublicationIsMadeAgain(t *testing.T) {
	t.Run("publish", func(t *testing.T) {
		madeAgain(t, func(x *site) *reply {
			return x.publish(`{"queueName":"q","message":1,"opts":{"deploymentId":"blue","idempotencyKey":"k"}}`)
		})
	})
	t.Run("resume", func(t *testing.T) {
		madeAgain(t, func(x *site) *reply {
			return x.do("POST", "/v1/runs/resume", adminSecret, `{"runId":"wrun_1"}`, "Idempotency-Key", "k")
		})
	})
}

func madeAgain(t *testing.T, publish func(x *site) *reply) {
	faults := 0
	for _, fault := range []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter} {
		for call := 1; ; call++ {
			inner := new(memory.Store)
			calls, armed := 0, false
			s := storagetest.NewFaulty(inner, func(storagetest.Call) storagetest.Fault {
				if armed {
					calls++
				}
				if armed && calls == call {
					return fault
				}
				return storagetest.None
			})
			x := planeOn(t, s, withWorld(t))
			x.inWorld("run_created", `{"workflowName":"order","deploymentId":"blue","input":1}`)
			armed = true
			var r *reply
			for range 5 {
				if r = publish(x); r.status == 200 {
					break
				}
			}
			armed = false
			r.is(200)
			if ids, _ := x.received("blue"); len(ids) != 1 || r.object()["messageId"] != nil && ids[0] != r.object()["messageId"] {
				t.Fatalf("call %d, fault %d: %v, answered %s", call, fault, ids, r.body)
			}
			if calls < call {
				break
			}
			faults++
		}
	}
	if faults < 6 {
		t.Errorf("%d faults were met, want 6 or more", faults)
	}
}

// resumed takes the messages of deployment blue, and returns their queues, bodies and headers.
func (x *site) resumed() (messages []string) {
	x.t.Helper()
	var a struct {
		Messages []struct {
			QueueName string
			Message   json.RawMessage
			Headers   map[string]string
		}
	}
	r := x.do("POST", "/v1/world/queue/receive", adminSecret, `{"deploymentId":"blue","max":100}`).is(200)
	if err := json.Unmarshal(r.body, &a); err != nil {
		x.t.Fatal(err)
	}
	for _, m := range a.Messages {
		messages = append(messages, fmt.Sprint(m.QueueName, string(m.Message), m.Headers))
	}
	return messages
}

func (x *site) inWorld(event, data string) {
	x.t.Helper()
	x.do("POST", "/v1/world/events/create", adminSecret, fmt.Sprintf(`{"runId":"wrun_1","data":{"eventType":%q,"specVersion":3,"eventData":%s}}`, event, data)).is(200)
}

// HTTP-61 to HTTP-63: a run of the world that is resumed gets a message with the reason and the payload.
func TestResumeOfARunOfTheWorld(t *testing.T) {
	control.EachStore(t, func(t *testing.T, s storage.Storage) {
		x := planeOn(t, s, withWorld(t))
		resume := func(secret, rest string, header ...string) *reply {
			return x.do("POST", "/v1/runs/resume", secret, `{"runId":"wrun_1"`+rest+`}`, header...)
		}
		resume(adminSecret, "").fails(404, "not_found")
		x.inWorld("run_created", `{"workflowName":"order","deploymentId":"blue","input":1}`)
		resume(readerSecret, "").is(403)
		resume(otherSecret, "").fails(404, "not_found")
		for _, c := range []struct{ asked, headers string }{
			{``, `map[]`},
			{`,"reason":"ops-7","payload":null`, `map[x-workflow-resume-payload:null x-workflow-resume-reason:ops-7]`},
			{`,"reason":"é 100%\n"`, `map[x-workflow-resume-reason:%C3%A9%20100%25%0A]`},
			{`,"payload": {"a": ["é 1%", "😀", "\u00e9\n"]}`, `map[x-workflow-resume-payload:{"a":["\u00e9 1%","\ud83d\ude00","\u00e9\n"]}]`},
		} {
			resume(adminSecret, c.asked).is(200)
			if got, want := x.resumed(), []string{`__wkf_workflow_order{"runId":"wrun_1"}` + c.headers}; !slices.Equal(got, want) {
				t.Errorf("resumed with %q: %q, want %q", c.asked, got, want)
			}
		}
		for range 2 {
			resume(adminSecret, `,"reason":"r"`, "Idempotency-Key", "k").is(200)
		}
		if got := x.resumed(); len(got) != 1 {
			t.Errorf("resumed twice with one key: %q, want one message", got)
		}
		long := func(n int) string {
			return `,"reason":"` + strings.Repeat("é", 512) + `","payload":"` + strings.Repeat("é", n) + `"`
		}
		resume(adminSecret, long(8<<10/6-1)).is(200)
		resume(adminSecret, long(8<<10/6+1)).fails(400, "invalid_request")
		if got := x.resumed(); len(got) != 1 {
			t.Errorf("%d messages with the longest payload, want 1", len(got))
		}
		x.inWorld("run_started", `{}`)
		x.inWorld("run_failed", `{"error":"no"}`)
		resume(adminSecret, "").fails(409, "run_terminal")
		if got := x.resumed(); len(got) != 0 {
			t.Errorf("a run that has ended got %q", got)
		}
	})
	x := serve(t, new(memory.Store)) // and without a world
	x.do("POST", "/v1/runs/resume", adminSecret, `{"runId":"wrun_1"}`).fails(404, "not_found")
}

// HTTP-70 to HTTP-73: a run that is created twice is one run. The world answers its calls itself, and Close ends those that
// wait.
func TestWorldCalls(t *testing.T) {
	x := serve(t, new(memory.Store), withWorld(t))
	create := func(run, input string) string {
		return fmt.Sprintf(`{"runId":%s,"data":{"eventType":"run_created","specVersion":3,"eventData":{"workflowName":"order","deploymentId":"blue","input":%s}}}`, run, input)
	}
	eventOf := func(r *reply) string {
		return fmt.Sprint(r.is(200).object()["event"].(map[string]any)["eventId"])
	}
	first := eventOf(x.do("POST", "/v1/world/events/create", adminSecret, create(`"wrun_1"`, "1")))
	if again := eventOf(x.do("POST", "/v1/world/events/create", adminSecret, create(`"wrun_1"`, "1"))); again != first {
		t.Errorf("created again: event %s, and first %s", again, first)
	}
	r := x.do("POST", "/v1/world/events/create", adminSecret, create(`"wrun_1"`, "2")).is(409)
	if r.object()["code"] != "conflict" || r.header.Get("Content-Type") != "application/json" {
		t.Errorf("another run of the same id: %s", r.body)
	}
	x.do("POST", "/v1/world/events/create", adminSecret, create("null", "1")).is(200)
	x.do("POST", "/v1/world/events/create", adminSecret, create("null", "1")).is(200)
	if n := len(x.do("POST", "/v1/world/runs/list", adminSecret, `{}`).is(200).object()["data"].([]any)); n != 3 {
		t.Errorf("%d runs, want 3: one of them was created twice, and two have no id of their own", n)
	}
	x.do("POST", "/v1/world/runs/get", otherSecret, `{"id":"wrun_1"}`).is(403)
	x.do("POST", "/v1/world/runs/get", readerSecret, `{"id":"wrun_1"}`).is(403)
	x.do("POST", "/v1/world/runs/get", adminSecret, strings.Repeat(" ", 2<<20)).is(413)
	x.do("POST", "/v1/world/runs/none", adminSecret, `{}`).is(404)

	q, err := http.NewRequestWithContext(context.Background(), "POST", x.url+"/v1/world/streams/read", strings.NewReader(`{"runId":"wrun_1","name":"words"}`))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+adminSecret)
	q.Header.Set("Content-Type", "application/json")
	a, err := x.client.Do(q) // the head of the answer comes before there is a chunk
	if err != nil || a.StatusCode != 200 {
		t.Fatalf("%+v, %v", a, err)
	}
	defer a.Body.Close()
	if err := x.plane.Close(); err != nil {
		t.Error(err)
	}
	if rest, _ := io.ReadAll(a.Body); len(rest) > 0 {
		t.Errorf("a reader at the end got %x", rest)
	}
}

// §8: what waits for the world ends within 10 s of the revocation of its key, and takes no message then.
func TestRevokedWhileItWaitsForTheWorld(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/world/queue/receive": `{"deploymentId":"blue","max":1,"waitSeconds":3600}`,
		"/v1/world/streams/read":  `{"runId":"wrun_1","name":"words"}`,
	} {
		t.Run(path, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				x := planeOn(t, new(memory.Store), withWorld(t))
				x.inWorld("run_created", `{"workflowName":"order","deploymentId":"blue","input":1}`)
				secret := x.do("POST", "/v1/keys", adminSecret, map[string]any{"keyId": "worker", "scopes": []string{"world:proxy"}}).is(201).object()["secret"].(string)
				ctx, end := context.WithCancel(t.Context())
				defer end()
				q := httptest.NewRequestWithContext(ctx, "POST", path, strings.NewReader(body))
				q.Header.Set("Authorization", "Bearer "+secret)
				q.Header.Set("Content-Type", "application/json")
				ended := make(chan *reply, 1)
				go func() { ended <- x.send(q) }()
				time.Sleep(12 * time.Second)
				select {
				case r := <-ended:
					t.Fatalf("it does not wait: got %d %s", r.status, r.body)
				default:
				}
				x.do("DELETE", "/v1/keys/worker", adminSecret, nil).is(204)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				x.publish(`{"queueName":"q","message":1,"opts":{"deploymentId":"blue"}}`).is(200)
				if got, _ := x.received("blue"); len(got) != 1 {
					t.Errorf("another consumer gets %d messages, want 1", len(got))
				}
				x.do("POST", "/v1/world/streams/write", adminSecret, `{"runId":"wrun_1","name":"words","chunks":["secret"]}`).is(200)
				select {
				case r := <-ended:
					if strings.Contains(string(r.body), "secret") {
						t.Errorf("got %q", r.body)
					}
				default:
					t.Error("10 s after the revocation it still waits")
				}
			})
		})
	}
}

// A call waits for messages for a minute at most.
func TestReceiveWaitsAMinute(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := planeOn(t, new(memory.Store), withWorld(t))
		began := time.Now()
		x.do("POST", "/v1/world/queue/receive", adminSecret, `{"deploymentId":"blue","max":1,"waitSeconds":3600}`).is(200)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it waited for %v, want a minute", took)
		}
	})
}
