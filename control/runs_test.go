package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// HTTP-40: a start without an idempotency key is refused.
func TestAStartNeedsAnIdempotencyKey(t *testing.T) {
	s := idle(t, nil)
	r := s.call(home, "POST", "/v1/runs", `{"workflowName":"echo"}`).is(t, 400, "idempotency_required")
	if got, want := r.text("message"), "Idempotency-Key header is required"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	s.call(home, "POST", "/v1/runs", `{"workflowName":"echo"}`, "Idempotency-Key", "a b").is(t, 400, "idempotency_key_invalid")
	if n := recordsOf(t, s.store, "wf:"); n != 0 {
		t.Errorf("%d records of runs were written", n)
	}
}

// HTTP-43, HTTP-45: the answer to a start, whatever the run does by then.
func TestAStartIsAnswered(t *testing.T) {
	s := open(t, nil)
	r := s.start(home, "echo", "", map[string]any{"cents": 4900})
	id := r.text("runId")
	if !regexp.MustCompile(`^wrun_[0-9A-HJKMNP-TV-Z]{26}$`).MatchString(id) {
		t.Errorf("runId %q is no wrun_ and a ULID", id)
	}
	if got, want := string(r.raw), fmt.Sprintf(`{"deploymentId":"","runId":%q,"status":"pending"}`, id); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := r.header.Get("Location"), "/v1/runs/"+id; got != want {
		t.Errorf("Location %q, want %q", got, want)
	}
	s.awaitStatus(home, id, checkpoint.StatusCompleted)
	result := s.call(home, "GET", r.header.Get("Location")+"/result", nil).is(t, 200, "")
	if got := fmt.Sprint(result.body["result"]); got != "map[cents:4900]" {
		t.Errorf("result %s", got)
	}
}

// HTTP-42: fields of a start that cannot be are refused, and nothing is written.
func TestFieldsOfAStart(t *testing.T) {
	s := idle(t, nil)
	for _, c := range []struct{ body, path string }{
		{`{}`, "/workflowName"},
		{`{"workflowName":""}`, "/workflowName"},
		{`{"workflowName":7}`, "/workflowName"},
		{`{"workflowName":null}`, "/workflowName"},
		{`{"workflowName":"` + strings.Repeat("n", 101) + `"}`, "/workflowName"},
		{`{"WorkflowName":"echo"}`, "/WorkflowName"},
		{`{"workflowName":"echo","runid":"x"}`, "/runid"},
		{`{"workflowName":"echo","more":1}`, "/more"},
		{`{"workflowName":"echo","workflowName":"echo"}`, ""},
		{`{"workflowName":"echo","runId":""}`, "/runId"},
		{`{"workflowName":"echo","runId":"@acme/prod/x"}`, "/runId"},
		{`{"workflowName":"echo","runId":".."}`, "/runId"},
		{`{"workflowName":"echo","runId":"` + strings.Repeat("x", 129) + `"}`, "/runId"},
		{`{"workflowName":"echo","runId":null}`, "/runId"},
		{`{"workflowName":"echo","specVersion":0}`, "/specVersion"},
		{`{"workflowName":"echo","specVersion":8}`, "/specVersion"},
		{`{"workflowName":"echo","specVersion":1.5}`, "/specVersion"},
		{`{"workflowName":"echo","deploymentId":"a/b"}`, "/deploymentId"},
		{`{"workflowName":"echo","queue":""}`, "/queue"},
		{`{"workflowName":"echo","labels":{"":"v"}}`, "/labels"},
		{`{"workflowName":"echo","labels":{"weft.namespace":"acme/prod"}}`, "/labels"},
		{`{"workflowName":"echo","labels":{"a":1}}`, "/labels/a"},
		{`[]`, ""},
	} {
		r := s.call(home, "POST", "/v1/runs", c.body, "Idempotency-Key", fresh())
		if r.status != 400 || r.code() != "invalid_request" {
			t.Errorf("%s: got %d %s", c.body, r.status, r.raw)
			continue
		}
		issues, _ := r.details()["issues"].([]any)
		if len(issues) == 0 {
			t.Errorf("%s: no issues: %s", c.body, r.raw)
		} else if got := fmt.Sprint(issues[0].(map[string]any)["path"]); c.path != "" && got != c.path {
			t.Errorf("%s: path %q, want %q", c.body, got, c.path)
		}
	}
	if n := recordsOf(t, s.store, "wf:") + recordsOf(t, s.store, "idem:"); n != 0 {
		t.Errorf("%d records were written", n)
	}
}

// HTTP-41, HTTP-46, HTTP-48, HTTP-58: an equal request with the same key gets the first answer,
// byte for byte, also when the run has ended.
func TestAnEqualStartIsARepetition(t *testing.T) {
	EachStore(t, func(t *testing.T, store storage.Storage) {
		s := open(t, store)
		key := fresh()
		first := s.call(home, "POST", "/v1/runs", `{"workflowName":"echo","input":{"a":1,"b":[1,2]},"labels":{"x":"y"}}`, "Idempotency-Key", key).is(t, 201, "")
		if first.header.Get("Idempotent-Replayed") != "" {
			t.Error("the first answer says that it is a repetition")
		}
		s.awaitStatus(home, first.text("runId"), checkpoint.StatusCompleted)
		again := s.call(home, "POST", "/v1/runs", `{ "labels":{"x":"y"}, "input":{"b":[1,2.0],"a":1e0}, "workflowName":"echo" }`, "Idempotency-Key", key).is(t, 201, "")
		if !bytes.Equal(first.raw, again.raw) || again.header.Get("Location") != first.header.Get("Location") {
			t.Errorf("got %s, first %s", again.raw, first.raw)
		}
		if again.header.Get("Idempotent-Replayed") != "true" {
			t.Error("the repetition does not say that it is one")
		}
		if n := len(s.call(home, "GET", "/v1/runs", nil).data()); n != 1 {
			t.Errorf("%d runs, want 1", n)
		}
	})
}

// HTTP-47, HTTP-48: another request with the same key is a conflict. What is compared is what was
// sent: what it stands for does not matter.
func TestAnotherStartIsAConflict(t *testing.T) {
	s := idle(t, nil)
	key := fresh()
	s.call(home, "POST", "/v1/runs", `{"workflowName":"echo","input":1}`, "Idempotency-Key", key).is(t, 201, "")
	for _, body := range []string{
		`{"workflowName":"echo","input":2}`,
		`{"workflowName":"wait","input":1}`,
		`{"workflowName":"echo","input":1,"runId":"x"}`,
		`{"workflowName":"echo","input":1,"specVersion":1}`,
		`{"workflowName":"echo"}`,
		`{"workflowName":"echo","input":9007199254740993}`,
	} {
		r := s.call(home, "POST", "/v1/runs", body, "Idempotency-Key", key).is(t, 409, "idempotency_conflict")
		if r.text("retry") != "new-key" {
			t.Errorf("retry %q", r.text("retry"))
		}
	}
	null := fresh()
	s.call(home, "POST", "/v1/runs", `{"workflowName":"echo","input":null}`, "Idempotency-Key", null).is(t, 201, "")
	s.call(home, "POST", "/v1/runs", `{"workflowName":"echo"}`, "Idempotency-Key", null).is(t, 409, "idempotency_conflict")
}

// HTTP-49, HTTP-50, HTTP-57: of 64 equal requests at once to two planes, all get the same answer, and
// there is one run. Only answers that are complete are in the ledger.
func Test64StartsAtOnceAreOne(t *testing.T) {
	EachStore(t, func(t *testing.T, store storage.Storage) {
		planes := []*site{open(t, store), idle(t, store)}
		const n = 64
		replies, errs := make([]reply, n), make([]error, n)
		var all sync.WaitGroup
		begin := make(chan struct{})
		for i := range n {
			all.Go(func() {
				<-begin
				replies[i], errs[i] = planes[i%2].try(acme, "POST", "/v1/runs", `{"workflowName":"echo","input":[1,2,3]}`, "Idempotency-Key", "one")
			})
		}
		close(begin)
		all.Wait()
		for i, r := range replies {
			if errs[i] != nil || r.status != 201 || !bytes.Equal(r.raw, replies[0].raw) {
				t.Fatalf("reply %d: %d %s, %v; the first is %s", i, r.status, r.raw, errs[i], replies[0].raw)
			}
		}
		// A list may miss a run whose status changes meanwhile.
		planes[0].awaitStatus(acme, replies[0].text("runId"), checkpoint.StatusCompleted)
		if n := len(planes[0].call(acme, "GET", "/v1/runs", nil).data()); n != 1 {
			t.Errorf("%d runs, want 1", n)
		}
		if n := recordsOf(t, store, "idem:"); n != 1 {
			t.Errorf("%d records of the ledger, want 1", n)
		}
	})
}

// HTTP-52, HTTP-53, HTTP-54: a key counts for its project, environment and endpoint.
func TestKeysOfOthersAreOthers(t *testing.T) {
	s := idle(t, nil)
	seen := map[string]bool{}
	for _, who := range []string{home, acme, acmeTest, other} {
		r := s.call(who, "POST", "/v1/runs", `{"workflowName":"echo"}`, "Idempotency-Key", "k").is(t, 201, "")
		if seen[r.text("runId")] || r.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("the start of another namespace was answered with %s", r.raw)
		}
		seen[r.text("runId")] = true
	}
	id := s.start(home, "wait", "w", nil).text("runId")
	s.call(home, "POST", at(id, "cancel"), `{}`, "Idempotency-Key", "k").is(t, 202, "")
}

// All that is wrong with the parameters is answered at once, each parameter once: what is missing and what breaks a rule.
func TestAllIssuesAreTold(t *testing.T) {
	s := idle(t, nil)
	for _, c := range []struct {
		path, body string
		want       []string
	}{
		{"/v1/runs", `{"runId":"@x","specVersion":99,"queue":""}`, []string{"/workflowName is required", "/runId begins with @", "/specVersion must be 1 to 7", "/queue must have 1 to 100 bytes of UTF-8"}},
		{at("w", "operations", "1", "resolve"), `{"answer":"perhaps","result":1,"error":"e"}`, []string{"/reason is required", "/answer must be completed, not-completed, result-unavailable or failed"}},
		{at("w", "operations", "1", "resolve"), `{"reason":"r","result":1}`, []string{"/answer is required"}},
		{at("w", "operations", "1", "resolve"), `{"reason":"r","answer":"not-completed","result":1,"error":"e"}`, []string{"/result is for the answer completed only", "/error is for the answer failed only"}},
		{"/v1/bulks/b", `{"reason":"r","filter":{"workflow":"w"},"before":"1","signal":{"name":"s"}}`, []string{"/do is required"}},
		{"/v1/bulks/b", `{"reason":"r","filter":{"workflow":"w"},"do":"purge","before":"1","signal":{"name":"s"}}`, []string{"/before is for reset only", "/signal is for signal only"}},
	} {
		d := s.call(home, "POST", c.path, c.body, "Idempotency-Key", fresh()).is(t, 400, "invalid_request").details()
		var got []string
		for _, i := range d["issues"].([]any) {
			m := i.(map[string]any)
			got = append(got, fmt.Sprint(m["path"], " ", m["problem"]))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s %s: (-want +got)\n%s", c.path, c.body, diff)
		}
	}
}

// HTTP-44, HTTP-56: a key that was forgotten is new: a runId that is in use is taken then.
func TestATakenRunID(t *testing.T) {
	s := idle(t, nil)
	body := `{"workflowName":"wait","runId":"order-42","input":{"a":1,"b":2}}`
	s.call(home, "POST", "/v1/runs", body, "Idempotency-Key", fresh()).is(t, 201, "")
	for _, c := range []struct {
		body string
		same bool
	}{
		{body, true},
		{`{"workflowName":"wait","runId":"order-42","input":{"b":2,"a":1}}`, true},
		{`{"workflowName":"wait","runId":"order-42","input":1}`, false},
		{`{"workflowName":"echo","runId":"order-42","input":{"a":1,"b":2}}`, false},
	} {
		key := fresh()
		for range 2 { // a refusal is not stored
			d := s.call(home, "POST", "/v1/runs", c.body, "Idempotency-Key", key).is(t, 409, "run_exists").details()
			if d["runId"] != "order-42" || d["status"] != "pending" || d["same"] != c.same {
				t.Errorf("%s: details %v, want same: %v", c.body, d, c.same)
			}
			s.call(home, "POST", "/v1/runs", c.body, "Idempotency-Key", key).says(t, `The runId "order-42" is taken: that run is pending.`)
		}
	}
	s.call(acme, "POST", "/v1/runs", body, "Idempotency-Key", fresh()).is(t, 201, "") // it is free there
}

// Names are judged by the workflows of the engines that live. While none lives, they are not.
func TestUnknownWorkflow(t *testing.T) {
	s := idle(t, nil)
	s.call(home, "POST", "/v1/runs", `{"workflowName":"nobody has it"}`, "Idempotency-Key", fresh()).is(t, 201, "")
	s = open(t, nil)
	key := fresh()
	s.call(home, "POST", "/v1/runs", `{"workflowName":"nobody has it"}`, "Idempotency-Key", key).is(t, 400, "unknown_workflow")
	s.call(home, "POST", at("x", "signals", "go"), `{"start":{"workflowName":"nobody has it"}}`).is(t, 400, "unknown_workflow")
	if n := recordsOf(t, s.store, "idem:") + recordsOf(t, s.store, "wf:"); n != 0 {
		t.Errorf("%d records were written", n)
	}
	s.call(home, "POST", "/v1/runs", `{"workflowName":"echo"}`, "Idempotency-Key", key).is(t, 201, "") // the key is still free
}

// HTTP-50: a create is one commit, and one for its permit: no claim in progress is ever stored. So is a create with
// an id of the client.
func TestCommitsOfACreate(t *testing.T) {
	var commits counter
	s := idle(t, &counting{Storage: new(memory.Store), count: &commits}, func(c *Config, _ *engine.Config) { c.RateLimit = 1000 })
	for _, body := range []string{`{"workflowName":"echo","input":1}`, `{"workflowName":"echo","input":1,"runId":"x"}`} {
		before := commits.load()
		s.call(home, "POST", "/v1/runs", body, "Idempotency-Key", fresh()).is(t, 201, "")
		if n := commits.load() - before; n != 2 {
			t.Errorf("%s: %d commits, want 1 for the create and 1 for the permit", body, n)
		}
	}
}

// HTTP-33: a create reads its key, whether its run is there if the client has chosen its id, and, while none lives, which
// engines there are: each read adds to the time of every create. Its commit judges all else that it rests on. Creates change no row that another one needs, so that none
// waits for another.
func TestWhatACreateTouches(t *testing.T) {
	seen := &watched{Storage: new(memory.Store)}
	s := idle(t, seen, func(c *Config, _ *engine.Config) { c.RateLimit = 1_000_000 })
	create := func(more string) {
		s.call(home, "POST", "/v1/runs", `{"workflowName":"echo","input":1`+more+`}`, "Idempotency-Key", fresh()).is(t, 201, "")
	}
	create("") // it stores that no deployment is active
	writes := []string{"scan eng", "scan held", "write ctl", "write idem", "write idemexp", "write ix", "write ls", "write todo", "write wf", "write wf"}
	for chosen, reads := range map[bool][]string{false: {"read ctl"}, true: {"read ctl", "read wf", "read wf"}} {
		var got []string
		inOneMinute(func() {
			more := ""
			if chosen {
				more = `,"runId":"` + fresh() + `"`
			}
			create("") // it takes permits, and the next one presumes what this one has read
			seen.take()
			create(more)
			got = seen.take()
		})
		if diff := cmp.Diff(append(reads, writes...), got); diff != "" {
			t.Errorf("a create reads and writes otherwise (-want +got):\n%s", diff)
		}
	}
	s.deploy("v1", "").is(t, 201, "")
	s.activate("v1", "").is(t, 200, "") // the record that says that none is active is no obstacle
	if r := s.start(home, "echo", "", nil); r.text("deploymentId") != "v1" {
		t.Errorf("after an activation: %s", r.raw)
	}
}

// A watched store records which families of keys are read and written. meta keys are named whole.
type watched struct {
	storage.Storage
	mu   sync.Mutex
	seen []string
}

func (s *watched) Unwrap() storage.Storage { return s.Storage }

func (s *watched) saw(what string, key []byte) {
	family, _, _ := strings.Cut(string(key), ":")
	if family == "meta" {
		family = string(key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, what+" "+family)
}

// take returns what was seen, sorted, and forgets it.
func (s *watched) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.seen = nil
	slices.Sort(seen)
	return seen
}

func (s *watched) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.saw("read", key)
	return s.Storage.Get(ctx, key)
}

func (s *watched) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	s.saw("scan", r.Start)
	return s.Storage.Scan(ctx, r)
}

func (s *watched) Commit(ctx context.Context, b storage.Batch) error {
	for _, o := range b.Ops {
		s.saw("write", o.Key)
	}
	return s.Storage.Commit(ctx, b)
}

type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) load() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// counting counts the commits of a store.
type counting struct {
	storage.Storage
	count *counter
}

func (s *counting) Unwrap() storage.Storage { return s.Storage }

func (s *counting) Commit(ctx context.Context, b storage.Batch) error {
	s.count.mu.Lock()
	s.count.n++
	s.count.mu.Unlock()
	return s.Storage.Commit(ctx, b)
}

// What a run is, and what the engine says of it, as a client sees it.
func TestGetRun(t *testing.T) {
	s := open(t, nil)
	s.call(acme, "POST", "/v1/runs", `{"workflowName":"parent","runId":"p","input":"kid","labels":{"customer":"ann"}}`, "Idempotency-Key", fresh()).is(t, 201, "")
	s.await("the child", func() bool { return s.call(acme, "GET", at("kid"), nil).status == 200 })
	kid := s.call(acme, "GET", at("kid"), nil).is(t, 200, "")
	if kid.text("parent") != "p" || kid.text("runId") != "kid" || kid.text("workflowName") != "wait" {
		t.Errorf("the child is %s", kid.raw)
	}
	s.await("the parent to wait", func() bool {
		r := s.call(acme, "GET", at("p"), nil)
		return strings.Contains(string(r.raw), `"waiting":["`)
	})
	p := s.call(acme, "GET", at("p"), nil).is(t, 200, "")
	if bytes.Contains(p.raw, []byte("@acme")) || bytes.Contains(p.raw, []byte("weft.")) || bytes.Contains(kid.raw, []byte("@acme")) {
		t.Errorf("the namespace shows: %s %s", p.raw, kid.raw)
	}
	if fmt.Sprint(p.body["labels"]) != "map[customer:ann]" || p.body["input"] != "kid" {
		t.Errorf("got %s", p.raw)
	}
	for _, data := range []string{"meta", "none"} {
		if r := s.call(acme, "GET", at("p")+"?resolveData="+data, nil).is(t, 200, ""); r.body["input"] != nil {
			t.Errorf("%s: got %s", data, r.raw)
		}
	}
	s.call(acme, "GET", at("p")+"?resolveData=some", nil).is(t, 400, "invalid_request")
	s.call(acme, "POST", at("kid", "signals", "go"), `{"payload":[7]}`).is(t, 200, "")
	s.awaitStatus(acme, "p", checkpoint.StatusCompleted)
	if r := s.call(acme, "GET", at("p"), nil); fmt.Sprint(r.body["output"]) != "[7]" {
		t.Errorf("got %s", r.raw)
	}
}

// A run that failed says why: the error that the workflow declared is its code.
func TestFailedRun(t *testing.T) {
	s := open(t, nil)
	id := s.start(home, "fail", "", nil).text("runId")
	r := s.call(home, "GET", at(id, "result")+"?wait=20", nil).is(t, 200, "")
	if e, _ := r.body["error"].(map[string]any); r.text("status") != "failed" || e["code"] != errRefused.Error() || !strings.Contains(fmt.Sprint(e["message"]), "charge") {
		t.Errorf("got %s", r.raw)
	}
}

// Wherever a run is shown, it has the text of its failure as GET of it has, with ids as the key knows them. Only that GET
// has more of it.
func TestFailuresAreShown(t *testing.T) {
	store := new(memory.Store)
	s := open(t, store)
	for _, key := range []string{home, acme} {
		s.start(key, "fail", "f", nil)
		s.start(key, "wait", "c", nil)
		s.call(key, "POST", at("c", "cancel"), `{"reason":"why not"}`).is(t, 202, "")
		for id, status := range map[string]checkpoint.Status{"f": checkpoint.StatusFailed, "c": checkpoint.StatusCancelled} {
			s.awaitStatus(key, id, status)
			want, _ := s.call(key, "GET", at(id), nil).is(t, 200, "").body["error"].(map[string]any)
			if want["message"] == nil || want["message"] == "" || strings.Contains(fmt.Sprint(want), "@") {
				t.Fatalf("%s: got %v", id, want)
			}
			shown := []map[string]any{s.call(key, "GET", at(id)+"?resolveData=none", nil).is(t, 200, "").body}
			shown = append(shown, s.call(key, "GET", "/v1/runs?status="+string(status), nil).is(t, 200, "").data()...)
			if len(shown) != 2 {
				t.Fatalf("%d runs are listed", len(shown)-1)
			}
			for _, r := range shown {
				if diff := cmp.Diff(map[string]any{"message": want["message"]}, r["error"]); diff != "" {
					t.Errorf("%s: (-want +got)\n%s", id, diff)
				}
			}
		}
	}
	// What is wrong with a record names keys of the store. GET of a run does not show that either.
	for _, id := range []string{"f", "c"} {
		if err := store.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(keys.Output("@acme/prod/"+id), []byte("damaged"))}}); err != nil {
			t.Fatal(err)
		}
		s.call(acme, "GET", at(id), nil).is(t, 500, "damaged")
		r := s.call(acme, "GET", at(id)+"?resolveData=none", nil).is(t, 200, "")
		if e, _ := r.body["error"].(map[string]any); e["message"] != "the record of its failure cannot be read" {
			t.Errorf("%s: got %s", id, r.raw)
		}
	}
}

// A result is waited for as long as the client asks: by wait, or by Prefer.
func TestWaitForAResult(t *testing.T) {
	s := open(t, nil)
	id := s.start(home, "wait", "", nil).text("runId")
	if r := s.call(home, "GET", at(id, "result"), nil).is(t, 202, ""); string(r.raw) != fmt.Sprintf(`{"runId":%q,"status":%q}`, id, r.text("status")) {
		t.Errorf("got %s", r.raw)
	}
	begun := time.Now()
	s.call(home, "GET", at(id, "result")+"?wait=1", nil).is(t, 202, "")
	s.call(home, "GET", at(id, "result"), nil, "Prefer", "wait=1").is(t, 202, "")
	if took := time.Since(begun); took < 2*time.Second {
		t.Errorf("two waits of 1 s took %v", took)
	}
	s.call(home, "GET", at(id, "result")+"?wait=0", nil, "Prefer", "wait=60").is(t, 202, "") // wait goes first
	for _, bad := range []string{"61", "-1", "1.5", "x"} {
		s.call(home, "GET", at(id, "result")+"?wait="+bad, nil).is(t, 400, "invalid_request")
	}
	got := make(chan reply, 2)
	for _, header := range []string{"", "wait=60"} {
		query := "?wait=60"
		if header != "" {
			query = ""
		}
		go func() {
			r, _ := s.try(home, "GET", at(id, "result")+query, nil, "Prefer", header)
			got <- r
		}()
	}
	s.await("both to wait", func() bool {
		return s.plane.env.Polls.Count() == 2
	})
	s.call(home, "POST", at(id, "signals", "go"), `{"payload":"done"}`).is(t, 200, "")
	for range 2 {
		if r := (<-got).is(t, 200, ""); r.body["result"] != "done" {
			t.Errorf("got %s", r.raw)
		}
	}
}

// Close ends long polls with what is known.
func TestCloseEndsWaits(t *testing.T) {
	s := open(t, nil)
	id := s.start(home, "wait", "", nil).text("runId")
	got := make(chan reply, 1)
	go func() {
		r, _ := s.try(home, "GET", at(id, "result")+"?wait=60", nil)
		got <- r
	}()
	s.await("the poll", func() bool {
		return s.plane.env.Polls.Count() == 1
	})
	s.plane.Close()
	(<-got).is(t, 202, "")
	s.call(home, "GET", at(id), nil).is(t, 503, "closing")
}

// runs.cancel asks a run to stop; of one that was cancelled it says so.
func TestCancel(t *testing.T) {
	s := open(t, nil)
	id := s.start(acme, "wait", "", nil).text("runId")
	r := s.call(acme, "POST", at(id, "cancel"), `{"reason":"the customer called"}`).is(t, 202, "")
	if r.body["accepted"] != true {
		t.Errorf("got %s", r.raw)
	}
	s.awaitStatus(acme, id, checkpoint.StatusCancelled)
	if r := s.call(acme, "POST", at(id, "cancel"), nil).is(t, 200, ""); string(r.raw) != `{"accepted":true,"status":"cancelled"}` {
		t.Errorf("got %s", r.raw)
	}
	run := s.call(acme, "GET", at(id), nil)
	if c, _ := run.body["cancel"].(map[string]any); c["by"] != "shop" || c["reason"] != "the customer called" {
		t.Errorf("got %s", run.raw)
	}
	done := s.start(acme, "echo", "", nil).text("runId")
	s.awaitStatus(acme, done, checkpoint.StatusCompleted)
	if d := s.call(acme, "POST", at(done, "cancel"), `{}`).is(t, 409, "run_terminal").details(); d["status"] != "completed" {
		t.Errorf("details %v", d)
	}
	s.call(acme, "POST", at("nobody", "cancel"), `{}`).is(t, 404, "not_found")
	s.call(acme, "POST", at(id, "cancel"), map[string]any{"reason": strings.Repeat("x", 1025)}).is(t, 400, "invalid_request")
}

// A run that is held does not react to its cancellation. The answer says why it is held, and who looks at the run sees the request.
func TestCancelOfARunThatIsHeld(t *testing.T) {
	EachStore(t, func(t *testing.T, store storage.Storage) {
		s := open(t, store)
		s.start(acme, "paying", "held", "no number")
		s.awaitAttention(acme, "held", engine.ReasonUndecodable)
		if r := s.call(acme, "GET", at("held"), nil); r.body["cancel"] != nil {
			t.Errorf("it was asked by nobody: %s", r.raw)
		}
		first := s.call(acme, "POST", at("held", "cancel"), `{"reason":"wrong input"}`, "Idempotency-Key", "k").is(t, 202, "")
		if first.attention() != "undecodable" || first.text("status") != "running" || strings.Contains(string(first.raw), "@acme") {
			t.Errorf("got %s", first.raw)
		}
		run := s.call(acme, "GET", at("held"), nil)
		if got, want := fmt.Sprint(first.body["attention"]), fmt.Sprint(run.body["attention"]); got != want {
			t.Errorf("the answer has %s, and the run %s", got, want)
		}
		for _, r := range append(s.call(acme, "GET", "/v1/runs?attention=true", nil).data(), run.body) {
			if c, _ := r["cancel"].(map[string]any); c["by"] != "shop" || c["reason"] != "wrong input" || r["status"] != "running" {
				t.Errorf("it does not show the request: %v", r)
			}
		}
		if again := s.call(acme, "POST", at("held", "cancel"), `{"reason":"wrong input"}`, "Idempotency-Key", "k"); string(again.raw) != string(first.raw) {
			t.Errorf("got %s, and before %s", again.raw, first.raw)
		}
		id := s.start(acme, "wait", "", nil).text("runId")
		s.awaitStatus(acme, id, checkpoint.StatusRunning)
		if r := s.call(acme, "POST", at(id, "cancel"), nil).is(t, 202, ""); strings.Contains(string(r.raw), "attention") {
			t.Errorf("of a run that needs nobody: %s", r.raw)
		}
	})
}

// runs.terminate ends a run that is held, and the audit trail and the history say who did it and why.
func TestTerminate(t *testing.T) {
	EachStore(t, func(t *testing.T, store storage.Storage) {
		s := open(t, store)
		terminate := func(key, id string, body any, more ...string) reply {
			t.Helper()
			return s.call(key, "POST", at(id, "terminate"), body, more...)
		}
		s.start(acme, "paying", "held", "no number")
		s.awaitAttention(acme, "held", engine.ReasonUndecodable)
		before := recordOf(t, store, "@acme/prod/held")
		for _, bad := range []any{nil, `{}`, `{"reason":""}`, `{"reason":" \n"}`, `{"reason":null}`, `{"reason":1}`, `{"reason":"r","before":""}`, map[string]any{"reason": strings.Repeat("r", 1025)}} {
			terminate(acme, "held", bad).is(t, 400, "invalid_request")
		}
		for _, blank := range []string{`{}`, `{"reason":""}`, `{"reason":" \n"}`} {
			if r := terminate(acme, "held", blank); !strings.Contains(string(r.raw), `"path":"/reason"`) {
				t.Errorf("%s: it is not told what is missing: %s", blank, r.raw)
			}
		}
		const body = `{"reason":"wrong input"}`
		for _, key := range []string{home, acmeTest, other} {
			terminate(key, "held", body).is(t, 404, "not_found")
		}
		terminate(acme, "nobody", body).is(t, 404, "not_found")
		if now := recordOf(t, store, "@acme/prod/held"); now != before {
			t.Errorf("what was refused has changed the run: %s, and before %s", now, before)
		}

		first := terminate(acme, "held", body, "Idempotency-Key", "k").is(t, 200, "")
		if string(first.raw) != `{"accepted":true,"status":"cancelled"}` {
			t.Errorf("got %s", first.raw)
		}
		run := s.call(acme, "GET", at("held"), nil)
		if c, _ := run.body["cancel"].(map[string]any); run.text("status") != "cancelled" || c["terminated"] != true || c["by"] != "shop" || c["reason"] != "wrong input" {
			t.Errorf("the run is %s", run.raw)
		}
		if again := terminate(acme, "held", body, "Idempotency-Key", "k").is(t, 200, ""); string(again.raw) != string(first.raw) || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("again: %v %s", again.header, again.raw)
		}
		terminate(acme, "held", `{"reason":"another"}`, "Idempotency-Key", "k").is(t, 409, "idempotency_conflict")
		if d := terminate(acme, "held", body).is(t, 409, "run_terminal").details(); d["status"] != "cancelled" {
			t.Errorf("details %v", d)
		}
		if events := string(s.call(acme, "GET", at("held", "events"), nil).raw); !strings.Contains(events, `"name":"terminate"`) || !strings.Contains(events, `"reason":"wrong input"`) {
			t.Errorf("the history is %s", events)
		}
		s.plane.env.Auditor.Flush(t.Context())
		var fresh []map[string]any
		for _, row := range s.call(acme, "GET", "/v1/audit?action=runs.terminate&result=success", nil).data() {
			if m := row["metadata"].(map[string]any); m["deduped"] != true {
				fresh = append(fresh, row)
			}
		}
		if len(fresh) != 1 || fresh[0]["keyId"] != "shop" || fresh[0]["resource"] != "/v1/runs/held/terminate" || fresh[0]["metadata"].(map[string]any)["reason"] != "wrong input" {
			t.Errorf("the audit trail has %v", fresh)
		}

		if r := s.call(acme, "GET", at("held", "result"), nil).is(t, 200, ""); !strings.Contains(string(r.raw), "wrong input") || strings.Contains(string(r.raw), "@acme") {
			t.Errorf("the result is %s", r.raw)
		}

		s.start(acme, "wait", "waits", nil)
		s.awaitStatus(acme, "waits", checkpoint.StatusRunning)
		if got := s.rpc(acme, "1", "runs.terminate", `{"runId":"waits","reason":"r"}`).result(t); got != string(first.raw) {
			t.Errorf("by JSON-RPC: %s", got)
		}
		if r := s.call(acme, "GET", at("waits", "result")+"?wait=20", nil).is(t, 200, ""); r.text("status") != "cancelled" {
			t.Errorf("got %s", r.raw)
		}
		terminate(acme, "waits", body).is(t, 409, "run_terminal")
	})
}

// recordOf returns the record of a run, by the id that the engine has.
func recordOf(t *testing.T, s storage.Storage, id string) string {
	t.Helper()
	data, err := s.Get(t.Context(), keys.Workflow(id))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// An attempt in progress ends with the run, and a child is asked to stop.
func TestTerminateOfARunInProgress(t *testing.T) {
	EachStore(t, func(t *testing.T, store storage.Storage) {
		began, ended := make(chan struct{}), make(chan error, 1)
		busy := &engine.Workflow[json.RawMessage, int]{Name: "busy", Func: func(run *engine.Run, _ json.RawMessage) (int, error) {
			return engine.Step(run, "work", func(ctx context.Context) (int, error) {
				close(began)
				<-ctx.Done()
				ended <- context.Cause(ctx)
				return 0, ctx.Err()
			})
		}}
		s := open(t, store, func(_ *Config, ec *engine.Config) { ec.Workflows = append(ec.Workflows, busy) })
		s.start(acme, "busy", "busy", nil)
		<-began
		s.call(acme, "POST", at("busy", "terminate"), `{"reason":"it takes too long"}`).is(t, 200, "")
		if cause := <-ended; !errors.Is(cause, activity.ErrTerminated) {
			t.Errorf("the attempt ended with %v", cause)
		}
		if r := s.call(acme, "GET", at("busy", "result")+"?wait=20", nil).is(t, 200, ""); r.text("status") != "cancelled" || !strings.Contains(string(r.raw), "it takes too long") {
			t.Errorf("got %s", r.raw)
		}
		s.start(acme, "parent", "parent", "kid")
		s.await("the child", func() bool { return s.call(acme, "GET", at("kid"), nil).text("status") == "running" })
		s.call(acme, "POST", at("parent", "terminate"), `{"reason":"r"}`).is(t, 200, "")
		s.awaitStatus(acme, "kid", checkpoint.StatusCancelled)
	})
}

// HTTP-59, HTTP-60: resume retries a run that failed, and has the engine look at one that runs. An
// engine's run takes no payload.
func TestResume(t *testing.T) {
	s := open(t, nil)
	failed := s.start(home, "fail", "", nil).text("runId")
	s.awaitStatus(home, failed, checkpoint.StatusFailed)
	resume := func(body string) reply { return s.call(home, "POST", "/v1/runs/resume", body) }
	if r := resume(fmt.Sprintf(`{"runId":%q,"reason":"the card is good now"}`, failed)).is(t, 200, ""); string(r.raw) != `{"accepted":true}` {
		t.Errorf("got %s", r.raw)
	}
	s.await("the retry in the history", func() bool {
		return strings.Contains(string(s.call(home, "GET", at(failed, "events"), nil).raw), `"reason":"the card is good now"`)
	})
	waiting := s.start(home, "wait", "", nil).text("runId")
	resume(fmt.Sprintf(`{"runId":%q}`, waiting)).is(t, 200, "")
	resume(fmt.Sprintf(`{"runId":%q,"payload":{"a":1}}`, waiting)).is(t, 409, "not_applicable")
	resume(fmt.Sprintf(`{"runId":%q,"payload":null}`, waiting)).is(t, 409, "not_applicable")
	done := s.start(home, "echo", "", nil).text("runId")
	s.awaitStatus(home, done, checkpoint.StatusCompleted)
	if d := resume(fmt.Sprintf(`{"runId":%q}`, done)).is(t, 409, "run_terminal").details(); d["status"] != "completed" {
		t.Errorf("details %v", d)
	}
	resume(`{"runId":"nobody"}`).is(t, 404, "not_found")
	resume(`{"runId":""}`).is(t, 400, "invalid_request")
	resume(`{}`).is(t, 400, "invalid_request")
	// HTTP-61, HTTP-62: limits of reason and payload.
	resume(fmt.Sprintf(`{"runId":%q,"reason":%q}`, waiting, strings.Repeat("r", 1025))).is(t, 400, "invalid_request")
	resume(fmt.Sprintf(`{"runId":%q,"payload":%q}`, waiting, strings.Repeat("p", 8<<10))).is(t, 400, "invalid_request")
}

// OPS-2, OPS-8: runs.reset takes a run back, whatever it is doing. Without a point it is refused.
func TestReset(t *testing.T) {
	s := open(t, nil)
	id := s.start(acme, "wait", "", nil).text("runId")
	s.call(acme, "POST", at(id, "signals", "go"), `{"payload":"first"}`).is(t, 200, "")
	s.awaitStatus(acme, id, checkpoint.StatusCompleted)
	reset := func(id, body string) reply { return s.call(acme, "POST", at(id, "reset"), body) }
	for _, bad := range []string{`{}`, `{"before":1}`, `{"before":null}`, `{"before":"","reason":"` + strings.Repeat("r", 1025) + `"}`, `{"before":"` + strings.Repeat("1", 500) + `"}`} {
		reset(id, bad).is(t, 400, "invalid_request")
	}
	reset(id, `{"before":"77"}`).is(t, 404, "not_found").says(t, fmt.Sprintf(`Operation "77" of run %q not found`, id))
	reset("nobody", `{"before":""}`).is(t, 404, "not_found").says(t, `Run "nobody" not found`)
	before := s.call(acme, "GET", at(id), nil).body["startedAt"]
	if r := reset(id, `{"before":"1","reason":"it received what was for another"}`).is(t, 200, ""); string(r.raw) != `{"accepted":true}` {
		t.Errorf("got %s", r.raw)
	}
	if r := s.call(acme, "GET", at(id, "result")+"?wait=20", nil).is(t, 200, ""); r.body["result"] != "first" {
		t.Errorf("got %s", r.raw)
	}
	events := string(s.call(acme, "GET", at(id, "events"), nil).raw)
	if !strings.Contains(events, `"reason":"it received what was for another"`) || !strings.Contains(events, `"operation":"1~1"`) {
		t.Errorf("the history is %s", events)
	}
	if now := s.call(acme, "GET", at(id), nil).body["startedAt"]; now != before {
		t.Errorf("it started at %v, and before at %v", now, before)
	}
	idle := idle(t, nil)
	id = idle.start(acme, "wait", "", nil).text("runId")
	idle.call(acme, "POST", at(id, "reset"), `{"before":""}`).is(t, 409, "not_applicable").says(t, fmt.Sprintf(`reset %q: it has not begun`, id))
}

// runs.resolve sets the outcome of an operation that nobody else knows.
func TestResolve(t *testing.T) {
	s := open(t, nil)
	op := ""
	begin := func(n int) string {
		id := s.start(acme, "paying", "", n).text("runId")
		s.await("the run to need an operator", func() bool {
			list, _ := s.call(acme, "GET", at(id), nil).body["attention"].([]any)
			for _, a := range list {
				if m := a.(map[string]any); m["reason"] == "indeterminate" {
					op = fmt.Sprint(m["operation"])
				}
			}
			return len(list) > 0
		})
		return id
	}
	id := begin(1)
	resolve := func(id string, body string) reply {
		return s.call(acme, "POST", at(id, "operations", op, "resolve"), body)
	}
	for _, bad := range []string{`{}`, `{"answer":"completed"}`, `{"answer":"perhaps","reason":"r"}`, `{"answer":"failed","result":1,"reason":"r"}`,
		`{"answer":"completed","error":"e","reason":"r"}`, `{"answer":"completed","reason":" "}`} {
		resolve(id, bad).is(t, 400, "invalid_request")
	}
	resolve(id, `{"answer":"completed","result":7,"reason":"not a string"}`).is(t, 400, "invalid_request")
	if r := resolve(id, `{"answer":"completed","result":"paid","reason":"seen at the bank"}`).is(t, 200, ""); string(r.raw) != `{"accepted":true}` {
		t.Errorf("got %s", r.raw)
	}
	if r := s.call(acme, "GET", at(id, "result")+"?wait=20", nil).is(t, 200, ""); r.body["result"] != "paid" {
		t.Errorf("got %s", r.raw)
	}
	resolve(id, `{"answer":"completed","result":"paid","reason":"again"}`).is(t, 409, "run_terminal")
	id = begin(2)
	s.call(acme, "POST", at(id, "operations", "99", "resolve"), `{"answer":"failed","reason":"r"}`).is(t, 409, "not_applicable").
		says(t, fmt.Sprintf(`resolve %q: operation "99" has no idempotency key, or has not started`, id))
	resolve(id, `{"answer":"failed","error":"the bank says no","reason":"asked the bank"}`).is(t, 200, "")
	if r := s.call(acme, "GET", at(id, "result")+"?wait=20", nil).is(t, 200, ""); !strings.Contains(string(r.raw), "the bank says no") {
		t.Errorf("got %s", r.raw)
	}
	resolve("nobody", `{"answer":"failed","reason":"r"}`).is(t, 404, "not_found")
}

// runs.purge removes a run that has ended. Then its runId is free.
func TestPurge(t *testing.T) {
	s := open(t, nil)
	s.start(acme, "wait", "p", nil)
	s.call(acme, "DELETE", at("p"), nil).is(t, 409, "not_applicable").says(t, `purge "p": it has not ended: Cancel or Terminate it first, or Delete it`)
	s.call(acme, "POST", at("p", "cancel"), nil).is(t, 202, "")
	s.awaitStatus(acme, "p", checkpoint.StatusCancelled)
	s.call(other, "DELETE", at("p"), nil).is(t, 404, "not_found")
	if r := s.call(acme, "DELETE", at("p")+"?reason=done", nil).is(t, 204, ""); len(r.raw) != 0 {
		t.Errorf("got %s", r.raw)
	}
	s.call(acme, "GET", at("p"), nil).is(t, 404, "not_found").says(t, `Run "p" not found`)
	s.call(acme, "DELETE", at("nobody"), nil).is(t, 404, "not_found").says(t, `Run "nobody" not found`)
	s.start(acme, "echo", "p", nil)
}

// A run that the archive does not take stays, which the answer says. The client is told nothing of the archive; the log has it.
func TestPurgeThatTheArchiveRefuses(t *testing.T) {
	var log bytes.Buffer
	refuses := true
	s := open(t, nil, func(c *Config, ec *engine.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		ec.Archive = func(context.Context, engine.Info, io.Reader) error {
			if refuses {
				return fmt.Errorf("the bucket: %w", engine.ErrNotFound)
			}
			return nil
		}
	})
	s.start(acme, "echo", "p", nil)
	s.awaitStatus(acme, "p", checkpoint.StatusCompleted)
	if r := s.call(acme, "DELETE", at("p"), nil).is(t, 409, "not_applicable"); !strings.Contains(r.text("message"), "Nothing was removed") || r.text("retry") != "same-key" || strings.Contains(string(r.raw), "bucket") {
		t.Errorf("got %s", r.raw)
	}
	s.call(acme, "GET", at("p"), nil).is(t, 200, "")
	refuses = false
	s.call(acme, "DELETE", at("p"), nil).is(t, 204, "")
	s.plane.Close()
	if !strings.Contains(log.String(), "the bucket") {
		t.Errorf("the log is %s", log.String())
	}
}

// Ids of runs are data: none is a path, a header or a key of another record.
func TestOddRunIDs(t *testing.T) {
	s := open(t, nil)
	for _, who := range []string{home, acme} {
		for _, id := range []string{"a b", "ä/ö", "x%2Fy", "a:b", "a\r\nSet-Cookie: x", "...", "x@acme/prod/y", "?q#f", "a\\b", "resume2", strings.Repeat("ü", 64)} {
			r := s.call(who, "POST", "/v1/runs", map[string]any{"workflowName": "echo", "runId": id, "input": id}, "Idempotency-Key", fresh()).is(t, 201, "")
			location := r.header.Get("Location")
			if r.text("runId") != id || location != "/v1/runs/"+url.PathEscape(id) || r.header.Get("Set-Cookie") != "" {
				t.Errorf("%q: %s, %q", id, r.raw, location)
			}
			if r := s.call(who, "GET", location+"/result?wait=20", nil).is(t, 200, ""); r.body["result"] != id {
				t.Errorf("%q: %s", id, r.raw)
			}
		}
	}
	s.call(home, "POST", "/v1/runs", `{"workflowName":"echo","runId":"a\u0000b"}`, "Idempotency-Key", fresh()).is(t, 400, "invalid_request")
	for _, path := range []string{"/v1/runs/..", "/v1/runs/%2e%2e", "/v1/runs/a/../b", "/v1/runs//result", "/v1/runs/a%00b", "/v1/runs/" + strings.Repeat("a", 129), "/v1/runs/@acme%2Fprod%2Fx"} {
		s.call(home, "GET", path, nil).is(t, 404, "not_found")
	}
}
