package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

const noneActive = "No active deployment. Activate a deployment before triggering runs."

// deploy records a deployment with a manifest of its id and more members.
func (s *site) deploy(id, more string) reply {
	s.t.Helper()
	return s.call(home, "POST", "/v1/deployments", fmt.Sprintf(`{"manifest":{"deploymentId":%q%s}}`, id, more))
}

func (s *site) activate(id, body string) reply {
	s.t.Helper()
	return s.call(home, "POST", "/v1/deployments/"+id+"/activate", body)
}

// statuses returns the status of each deployment, by id.
func (s *site) statuses() map[string]string {
	all := map[string]string{}
	for _, d := range s.call(home, "GET", "/v1/deployments", nil).data() {
		all[fmt.Sprint(d["deploymentId"])] = fmt.Sprint(d["status"])
	}
	return all
}

// HTTP-25, HTTP-26, HTTP-27: while none is active, those who ask are told so.
func TestNoActiveDeployment(t *testing.T) {
	s := idle(t, nil)
	for _, path := range []string{"/v1/deployments/active", "/v1/world/deployment-id"} {
		if r := s.call(home, "GET", path, nil).is(t, 409, "no_active_deployment"); r.text("message") != noneActive {
			t.Errorf("%s: message %q", path, r.text("message"))
		}
	}
}

// HTTP-28: with RequireDeployment a start needs an active deployment, or one of its own. Without it,
// the run is bound to none.
func TestRequireDeployment(t *testing.T) {
	s := idle(t, nil, func(c *Config, _ *engine.Config) { c.RequireDeployment = true })
	key := fresh()
	body := `{"workflowName":"echo"}`
	if r := s.call(home, "POST", "/v1/runs", body, "Idempotency-Key", key).is(t, 409, "no_active_deployment"); r.text("message") != noneActive {
		t.Errorf("message %q", r.text("message"))
	}
	s.call(home, "POST", at("x", "signals", "go"), `{"start":{"workflowName":"wait"}}`).is(t, 409, "no_active_deployment")
	s.deploy("v1", "").is(t, 201, "")
	s.call(home, "POST", "/v1/runs", `{"workflowName":"echo","deploymentId":"v1"}`, "Idempotency-Key", fresh()).is(t, 201, "")
	s.activate("v1", "").is(t, 200, "")
	if r := s.call(home, "POST", "/v1/runs", body, "Idempotency-Key", key).is(t, 201, ""); r.text("deploymentId") != "v1" {
		t.Errorf("got %s", r.raw)
	}
	free := idle(t, nil)
	if r := free.start(home, "echo", "", nil); r.text("deploymentId") != "" {
		t.Errorf("got %s", r.raw)
	}
}

// HTTP-19, HTTP-20, HTTP-22, HTTP-23, HTTP-30, HTTP-31, HTTP-34, HTTP-35, HTTP-36, HTTP-39, HTTP-44: a
// deployment is created, activated, replaced by another one and activated again. New runs begin on
// the active one.
func TestDeploymentsAreActivated(t *testing.T) {
	EachStore(t, func(t *testing.T, store storage.Storage) {
		s := idle(t, store)
		r := s.deploy("v1", `,"workflows":[{"name":"echo"},{"name":"wait","queue":"slow"}],"n":1.0`).is(t, 201, "")
		if r.text("status") != "created" || r.text("createdBy") != "root" || r.body["activatedAt"] != nil || r.header.Get("Location") != "/v1/deployments/v1" {
			t.Errorf("got %s", r.raw)
		}
		s.call(home, "GET", "/v1/deployments/active", nil).is(t, 409, "no_active_deployment")
		s.deploy("v2", "").is(t, 201, "")
		r = s.activate("v1", `{"reason":"first release"}`).is(t, 200, "")
		if r.body["changed"] != true || r.text("deploymentId") != "v1" || r.body["liveEngines"] != 0.0 {
			t.Errorf("got %s", r.raw)
		}
		first := s.call(home, "GET", "/v1/deployments/active", nil).is(t, 200, "")
		if first.text("deploymentId") != "v1" || first.body["previous"] != nil || first.text("activatedAt") != r.text("activatedAt") {
			t.Errorf("got %s, activated %s", first.raw, r.raw)
		}
		started := s.start(acme, "wait", "", nil)
		if run := s.call(acme, "GET", at(started.text("runId")), nil); started.text("deploymentId") != "v1" || run.text("deploymentId") != "v1" || run.text("queue") != "slow" {
			t.Errorf("got %s, %s", started.raw, run.raw)
		}
		s.activate("v2", `{"expectedActive":"v1"}`).is(t, 200, "")
		if got := fmt.Sprint(s.statuses()); got != "map[v1:inactive v2:active]" {
			t.Errorf("statuses %s", got)
		}
		if w := s.call(home, "GET", "/v1/world/deployment-id", nil).is(t, 200, ""); w.text("deploymentId") != "v2" || w.text("previous") != "v1" {
			t.Errorf("got %s", w.raw)
		}
		if r := s.start(home, "echo", "", nil); r.text("deploymentId") != "v2" {
			t.Errorf("got %s", r.raw)
		}
		s.activate("v1", "").is(t, 200, "") // back
		if got := s.call(acme, "GET", "/v1/deployments/active", nil).is(t, 200, "").text("deploymentId"); got != "v1" {
			t.Errorf("%q is active", got)
		}
		row := s.call(home, "GET", "/v1/deployments/v1", nil).is(t, 200, "")
		if row.text("status") != "active" || row.text("activatedAt") == "" || row.text("activatedAt") == first.text("activatedAt") {
			t.Errorf("got %s", row.raw)
		}
		s.call(home, "GET", "/v1/deployments/v9", nil).is(t, 404, "not_found")
		s.activate("v9", "").is(t, 404, "not_found")
	})
}

// HTTP-24: the pointer survives a restart.
func TestThePointerSurvivesARestart(t *testing.T) {
	store := new(memory.Store)
	s := idle(t, store)
	s.deploy("v1", "").is(t, 201, "")
	s.activate("v1", "").is(t, 200, "")
	s.plane.Close()
	s.engine.Close()
	if got := idle(t, store).call(home, "GET", "/v1/deployments/active", nil).text("deploymentId"); got != "v1" {
		t.Errorf("%q is active", got)
	}
}

// HTTP-35, OP-38: the same deployment again is answered with 200, another one with its id is a conflict.
func TestADeploymentIsCreatedOnce(t *testing.T) {
	s := idle(t, nil)
	const sum = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	create := func(body string) reply { return s.call(home, "POST", "/v1/deployments", body) }
	first := create(`{"manifest":{"deploymentId":"v1","a":1,"b":2},"artifact":{"sha256":"`+sum+`","size":7,"path":"../../etc/passwd"}}`).is(t, 201, "")
	if a, _ := first.body["artifact"].(map[string]any); a["path"] != "../../etc/passwd" || a["sha256"] != sum || a["size"] != 7.0 || first.text("deploymentId") != "v1" || fmt.Sprint(first.body["manifest"]) != "map[a:1 b:2 deploymentId:v1]" {
		t.Errorf("got %s", first.raw)
	}
	again := create(`{"manifest":{"b":2,"deploymentId":"v1","a":1.0},"artifact":{"sha256":"`+sum+`","size":7}}`).is(t, 200, "")
	if !bytes.Equal(first.raw, again.raw) {
		t.Errorf("got %s, first %s", again.raw, first.raw)
	}
	for _, body := range []string{
		`{"manifest":{"deploymentId":"v1","a":1}}`,
		`{"manifest":{"deploymentId":"v1","a":1,"b":2}}`,
		`{"manifest":{"deploymentId":"v1","a":1,"b":3},"artifact":{"sha256":"` + sum + `","size":7}}`,
		`{"manifest":{"deploymentId":"v1","a":1,"b":2},"artifact":{"sha256":"` + sum + `","size":8}}`,
	} {
		create(body).is(t, 409, "deployment_exists")
	}
	create(`{"manifest":{"deploymentId":"../v1"}}`).is(t, 400, "invalid_deployment_id")
	create(`{"manifest":[]}`).is(t, 400, "invalid_manifest")
	create(`{"manifest":{"deploymentId":"v3"},"artifact":{"sha256":"XX","size":-1}}`).is(t, 400, "invalid_request")
	create(`{}`).is(t, 400, "invalid_request")
	if n := recordsOf(t, s.store, "dep:"); n != 1 {
		t.Errorf("%d records, want 1", n)
	}
	// Its bytes were never here, and its path is never opened.
	s.call(home, "GET", "/v1/deployments/v1/artifact", nil).is(t, 501, "not_configured")
}

// HTTP-31: with expectedActive, only what is expected is replaced. OP-38: to activate the active one changes nothing,
// whatever is expected.
func TestExpectedActive(t *testing.T) {
	s := idle(t, nil)
	for _, id := range []string{"v1", "v2"} {
		s.deploy(id, "").is(t, 201, "")
	}
	if d := s.activate("v1", `{"expectedActive":"v2"}`).is(t, 409, "active_changed").details(); d["deploymentId"] != nil {
		t.Errorf("details %v", d)
	}
	first := s.activate("v1", `{"expectedActive":null}`).is(t, 200, "")
	again := s.activate("v1", `{"expectedActive":"v2"}`).is(t, 200, "")
	if again.body["changed"] != false || again.text("activatedAt") != first.text("activatedAt") {
		t.Errorf("got %s, first %s", again.raw, first.raw)
	}
	if d := s.activate("v2", `{"expectedActive":null}`).is(t, 409, "active_changed").details(); d["deploymentId"] != "v1" {
		t.Errorf("details %v", d)
	}
	for _, bad := range []string{`{"expectedActive":7}`, `{"expectedActive":["v1"]}`} {
		s.activate("v2", bad).is(t, 400, "invalid_request")
	}
}

// HTTP-29: a start that names a deployment needs its record, and no pointer.
func TestAStartThatNamesADeployment(t *testing.T) {
	s := idle(t, nil)
	s.call(home, "POST", "/v1/runs", `{"workflowName":"echo","deploymentId":"v1"}`, "Idempotency-Key", fresh()).is(t, 404, "not_found")
	s.deploy("v1", `,"workflows":[{"name":"echo","queue":"q1"}]`).is(t, 201, "")
	s.call(home, "POST", "/v1/runs", `{"workflowName":"wait","deploymentId":"v1"}`, "Idempotency-Key", fresh()).is(t, 400, "unknown_workflow")
	r := s.call(home, "POST", "/v1/runs", `{"workflowName":"echo","deploymentId":"v1"}`, "Idempotency-Key", fresh()).is(t, 201, "")
	if run := s.call(home, "GET", at(r.text("runId")), nil); run.text("deploymentId") != "v1" || run.text("queue") != "q1" {
		t.Errorf("got %s", run.raw)
	}
	r = s.call(home, "POST", "/v1/runs", `{"workflowName":"echo","deploymentId":"v1","queue":"q2"}`, "Idempotency-Key", fresh()).is(t, 201, "")
	if run := s.call(home, "GET", at(r.text("runId")), nil); run.text("queue") != "q2" {
		t.Errorf("got %s", run.raw)
	}
	for _, body := range []string{`{"workflowName":"echo","deploymentId":"v1"}`, `{"workflowName":"echo","queue":"q2"}`} {
		s.call(acme, "POST", "/v1/runs", body, "Idempotency-Key", fresh()).is(t, 403, "missing_scope")
	}
}

// HTTP-32: runs stay on their deployment, with their children, when another one is activated.
func TestRunsStayOnTheirDeployment(t *testing.T) {
	s := open(t, nil, func(_ *Config, e *engine.Config) { e.Deployment = "v1" })
	s.deploy("v1", "").is(t, 201, "")
	s.deploy("v2", "").is(t, 201, "")
	if r := s.activate("v1", "").is(t, 200, ""); r.body["liveEngines"] != 1.0 {
		t.Errorf("got %s", r.raw)
	}
	s.start(acme, "wait", "first", nil)
	s.start(acme, "parent", "p", "kid")
	s.activate("v2", "").is(t, 200, "")
	s.awaitStatus(acme, "kid", checkpoint.StatusRunning)
	for _, id := range []string{"first", "p", "kid"} {
		if r := s.call(acme, "GET", at(id), nil); r.text("deploymentId") != "v1" {
			t.Errorf("%s: %s", id, r.raw)
		}
	}
	if n := len(s.call(acme, "GET", "/v1/runs?deployment=v1", nil).data()); n != 3 {
		t.Errorf("%d runs of v1, want 3", n)
	}
}

// HTTP-20, HTTP-33: a start that is committed after an activation is on the new deployment. The activation
// comes between the decision of the start and its commit.
func TestAStartDependsOnThePointer(t *testing.T) {
	for _, c := range []string{"", "v1"} {
		t.Run("from "+c, func(t *testing.T) {
			b := &before{Storage: new(memory.Store)}
			s := idle(t, b)
			for _, id := range []string{"v1", "v2"} {
				s.deploy(id, "").is(t, 201, "")
			}
			if c != "" {
				s.activate(c, "").is(t, 200, "")
			}
			s.call(home, "GET", "/v1/runs", nil).is(t, 200, "") // takes permits, so that the next commit is the start
			b.once("wf:", func() { s.activate("v2", "").is(t, 200, "") })
			if r := s.start(home, "echo", "", nil); r.text("deploymentId") != "v2" {
				t.Errorf("got %s", r.raw)
			}
			b.done(t)
		})
	}
}

// A start by a manifest depends on it: what it decides by is what holds when it is committed. An
// activation rewrites the record, and the start is decided anew.
func TestAStartDependsOnTheRecord(t *testing.T) {
	b := &before{Storage: new(memory.Store)}
	s := idle(t, b)
	s.deploy("v1", "").is(t, 201, "")
	conditions := ""
	b.look("wf:", func(batch storage.Batch) {
		for _, c := range batch.If {
			conditions += fmt.Sprintf("%s ", c.Key)
		}
	})
	s.call(home, "POST", "/v1/runs", `{"workflowName":"echo","deploymentId":"v1"}`, "Idempotency-Key", fresh()).is(t, 201, "")
	if !strings.Contains(conditions, "dep:v1 ") || strings.Contains(conditions, "meta:deployment ") {
		t.Errorf("conditions on %s", conditions)
	}
	conditions = ""
	s.start(home, "echo", "", nil)
	if !strings.Contains(conditions, "meta:deployment ") {
		t.Errorf("conditions on %s", conditions)
	}
}

// before has something happen before the commit of a batch with a key of a family.
type before struct {
	storage.Storage
	mu     sync.Mutex
	family string
	then   func()
	seen   func(storage.Batch)
}

func (s *before) Unwrap() storage.Storage { return s.Storage }

func (s *before) once(family string, then func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.family, s.then = family, then
}

func (s *before) look(family string, seen func(storage.Batch)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.family, s.seen = family, seen
}

func (s *before) done(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.then != nil {
		t.Errorf("there was no commit of %s", s.family)
	}
}

func (s *before) Commit(ctx context.Context, b storage.Batch) error {
	s.mu.Lock()
	var then func()
	for _, o := range b.Ops {
		if s.family != "" && strings.HasPrefix(string(o.Key), s.family) {
			if s.seen != nil {
				s.seen(b)
			}
			then, s.then = s.then, nil
			break
		}
	}
	s.mu.Unlock()
	if then != nil {
		then()
	}
	return s.Storage.Commit(ctx, b)
}

// 64 activations at once: at each read at most one deployment is active, and in the end the one of
// the pointer.
func TestActivationsAtOnce(t *testing.T) {
	EachStore(t, func(t *testing.T, store storage.Storage) {
		s := idle(t, store)
		ids := []string{"a", "b", "c", "d"}
		for _, id := range ids {
			s.deploy(id, "").is(t, 201, "")
		}
		s.call(home, "POST", "/v1/deployments/a/activate", nil).is(t, 200, "")
		stop := make(chan struct{})
		var readers, writers sync.WaitGroup
		var activated atomic.Int32
		for range 2 {
			readers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					r, err := s.try(home, "GET", "/v1/deployments", nil)
					active := 0
					for _, d := range r.data() {
						if d["status"] == "active" {
							active++
						}
					}
					if err != nil || r.status != 200 || active != 1 || len(r.data()) != len(ids) {
						t.Errorf("got %d %s, %v", r.status, r.raw, err)
						return
					}
				}
			})
		}
		for i := range 64 {
			writers.Go(func() {
				r, err := s.try(home, "POST", "/v1/deployments/"+ids[i%len(ids)]+"/activate", nil)
				for err == nil && (r.code() == "outcome_unknown" || r.code() == "store_unavailable") { // on a machine whose disk takes seconds
					r, err = s.try(home, "POST", "/v1/deployments/"+ids[i%len(ids)]+"/activate", nil)
				}
				if err != nil || r.status != 200 && r.code() != "busy" {
					t.Errorf("got %d %s, %v", r.status, r.raw, err)
				} else if r.status == 200 {
					activated.Add(1)
				}
			})
		}
		writers.Wait()
		close(stop)
		readers.Wait()
		if activated.Load() == 0 {
			t.Error("none of 64 activations took effect")
		}
		active := s.call(home, "GET", "/v1/deployments/active", nil).is(t, 200, "")
		row := s.call(home, "GET", "/v1/deployments/"+active.text("deploymentId"), nil).is(t, 200, "")
		if row.text("status") != "active" || row.text("activatedAt") != active.text("activatedAt") {
			t.Errorf("the pointer is %s, the record %s", active.raw, row.raw)
		}
	})
}

// Deployments are listed by the time of their creation, a page at a time.
func TestListDeployments(t *testing.T) {
	s := idle(t, nil)
	for _, id := range []string{"z", "a", "m", "b"} {
		s.deploy(id, "").is(t, 201, "")
	}
	for order, want := range map[string]string{"desc": "b m a z", "asc": "z a m b"} {
		var got []string
		cursor := ""
		for {
			r := s.call(home, "GET", "/v1/deployments?limit=3&sortOrder="+order+"&cursor="+cursor, nil).is(t, 200, "")
			for _, d := range r.data() {
				got = append(got, fmt.Sprint(d["deploymentId"]))
			}
			if r.body["hasMore"] != true {
				break
			}
			cursor = r.text("cursor")
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, want %s", order, got, want)
		}
	}
	next := s.call(home, "GET", "/v1/deployments?limit=1", nil).text("cursor")
	s.call(home, "GET", "/v1/deployments?sortOrder=asc&cursor="+next, nil).is(t, 400, "invalid_request")
	s.call(home, "GET", "/v1/deployments?cursor=x", nil).is(t, 400, "invalid_request")
}

// upload posts parts in their order: pairs of a name and content. The files have hostile names.
func (s *site) upload(parts ...string) reply {
	s.t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := 0; i < len(parts); i += 2 {
		p, err := w.CreateFormFile(parts[i], "../../../etc/passwd")
		if err != nil {
			s.t.Fatal(err)
		}
		io.WriteString(p, parts[i+1])
	}
	w.Close()
	return s.call(home, "POST", "/v1/deployments", b.String(), "Content-Type", w.FormDataContentType())
}

// The bytes of an artifact come with the deployment, and are kept by their digest. No name of the
// client is opened.
func TestArtifacts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kept")
	store, err := Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	s := idle(t, nil, func(c *Config, _ *engine.Config) { c.Artifacts = store })
	bytesOf := strings.Repeat("\x00\r\nbinary", 20_000)
	r := s.upload("manifest", `{"deploymentId":"v1"}`, "artifact", bytesOf).is(t, 201, "")
	a, _ := r.body["artifact"].(map[string]any)
	if a["size"] != float64(len(bytesOf)) || a["path"] != nil {
		t.Errorf("got %s", r.raw)
	}
	got := s.call(home, "GET", "/v1/deployments/v1/artifact", nil).is(t, 200, "")
	if string(got.raw) != bytesOf || got.header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("got %d bytes, %v", len(got.raw), got.header)
	}
	s.upload("manifest", `{"deploymentId":"v1"}`, "artifact", bytesOf).is(t, 200, "")
	s.upload("manifest", `{"deploymentId":"v1"}`, "artifact", "others").is(t, 409, "deployment_exists")
	s.upload("artifact", "x", "manifest", `{"deploymentId":"v2"}`).is(t, 400, "invalid_request") // of a large one, the rest is waited for a second
	s.upload("manifest", `{"deploymentId":"v2"}`).is(t, 400, "invalid_request")
	s.upload("manifest", `{"deploymentId":"v2"}`, "artifact", "x", "artifact", "y").is(t, 400, "invalid_request")
	s.upload("manifest", `{"deploymentId":"v2"}`, "more", "x").is(t, 400, "invalid_request")
	s.upload("manifest", `{"deploymentId":"../v2"}`, "artifact", "x").is(t, 400, "invalid_deployment_id")
	s.upload("manifest", `{"deploymentId":"v2","deploymentId":"v3"}`, "artifact", "x").is(t, 400, "invalid_request")
	s.upload().is(t, 400, "invalid_request")
	s.call(home, "POST", "/v1/deployments", "no parts", "Content-Type", "multipart/form-data; boundary=b").is(t, 400, "invalid_request")
	s.call(home, "POST", "/v1/deployments", "--b", "Content-Type", "multipart/form-data").is(t, 400, "invalid_request")
	s.deploy("v4", "").is(t, 201, "")
	s.call(home, "GET", "/v1/deployments/v4/artifact", nil).is(t, 404, "not_found")
	s.call(acme, "GET", "/v1/deployments/v1/artifact", nil).is(t, 403, "missing_scope")

	// A deployment that names an old artifact has it count as new.
	if err := os.Chtimes(filepath.Join(path, fmt.Sprint(a["sha256"])), time.Now(), time.Now().Add(-25*time.Hour)); err != nil {
		t.Fatal(err)
	}
	s.call(home, "POST", "/v1/deployments", map[string]any{"manifest": map[string]any{"deploymentId": "v5"}, "artifact": map[string]any{"sha256": a["sha256"], "size": a["size"]}}).is(t, 201, "")
	if info, err := os.Stat(filepath.Join(path, fmt.Sprint(a["sha256"]))); err != nil || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("the artifact of a new deployment may be swept: %v", err)
	}

	// What no deployment has goes after a day.
	names, err := os.ReadDir(path)
	if err != nil || len(names) < 2 {
		t.Fatal(names, err)
	}
	for _, n := range names {
		f := filepath.Join(path, n.Name())
		if err := os.Chtimes(f, time.Now(), time.Now().Add(-25*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.plane.deployments.Sweep(t.Context(), s.plane.env.Store); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(path); err != nil || len(left) != 1 || left[0].Name() != fmt.Sprint(a["sha256"]) {
		t.Errorf("left are %v, %v", left, err)
	}
}

// An upload and a request that names the same bytes are the same request.
func TestAnUploadHasAKey(t *testing.T) {
	store, err := Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := idle(t, nil, func(c *Config, _ *engine.Config) { c.Artifacts = store })
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	w.WriteField("manifest", `{ "deploymentId": "v1" }`)
	w.WriteField("artifact", "bytes")
	w.Close()
	first := s.call(home, "POST", "/v1/deployments", b.String(), "Content-Type", w.FormDataContentType(), "Idempotency-Key", "k").is(t, 201, "")
	artifact, err := json.Marshal(first.body["artifact"])
	if err != nil {
		t.Fatal(err)
	}
	again := s.call(home, "POST", "/v1/deployments", `{"manifest":{"deploymentId":"v1"},"artifact":`+string(artifact)+`}`, "Idempotency-Key", "k").is(t, 201, "")
	if !bytes.Equal(first.raw, again.raw) || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %s, first %s", again.raw, first.raw)
	}
}

// Without Config.Artifacts there is no place for bytes.
func TestUploadsThatEndEarly(t *testing.T) {
	s := idle(t, nil)
	s.upload("manifest", `{"deploymentId":"v1"}`, "artifact", "x").is(t, 501, "not_configured")
}
