package apitest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/webhook"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

func TestDeployments(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		none := s.get("/v1/deployments/active", 409)
		s.refusal(none, 409, "no_active_deployment") // HTTP-26
		s.refusal(s.get("/v1/world/deployment-id", 409), 409, "no_active_deployment")
		manifest := members{"deploymentId": "shop-7", "workflows": []members{{"name": "echo"}}, "commit": "abc"}
		created := s.post("/v1/deployments", "d1", members{"manifest": manifest}, 201)
		if got := decode[wire.Deployment](t, created); got.DeploymentID != "shop-7" || got.Status != "created" || got.CreatedBy != "admin" {
			t.Errorf("created %+v", got)
		}
		if a := s.post("/v1/deployments", "d1", members{"manifest": manifest}, 201); a.header.Get("Idempotent-Replayed") != "true" || string(a.body) != string(created.body) {
			t.Errorf("the repetition was answered %v %s", a.header, a.body)
		}
		s.post("/v1/deployments", "", members{"manifest": manifest}, 200) // OP-38
		s.refusal(s.post("/v1/deployments", "", members{"manifest": members{"deploymentId": "shop-7"}}, 409), 409, "deployment_exists")
		s.refusal(s.post("/v1/deployments", "", members{"manifest": members{"deploymentId": "../x"}}, 400), 400, "invalid_deployment_id")
		s.refusal(s.post("/v1/deployments", "", members{"manifest": members{"deploymentId": "x", "workflows": 1}}, 400), 400, "invalid_manifest")

		s.post("/v1/deployments", "", members{"manifest": members{"deploymentId": "shop-8"}}, 201)
		activate := "/v1/deployments/shop-7/activate"
		s.refusal(s.post(activate, "", members{"expectedActive": "shop-8"}, 409), 409, "active_changed")
		if got := decode[wire.Activation](t, s.post(activate, "a1", members{"expectedActive": nil, "reason": "release 7"}, 200)); !got.Changed || got.DeploymentID != "shop-7" {
			t.Errorf("activated %+v", got)
		}
		if a := s.post(activate, "a1", members{"expectedActive": nil, "reason": "release 7"}, 200); a.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("the repetition was answered %v %s", a.header, a.body)
		}
		if got := decode[wire.Activation](t, s.post(activate, "", nil, 200)); got.Changed {
			t.Errorf("activated again %+v", got)
		}
		s.refusal(s.post("/v1/deployments/none/activate", "", nil, 404), 404, "not_found")
		for _, path := range []string{"/v1/deployments/active", "/v1/world/deployment-id"} {
			if got := decode[wire.ActiveDeployment](t, s.get(path, 200)); got.DeploymentID != "shop-7" {
				t.Errorf("%s is %+v", path, got)
			}
		}
		page := decode[wire.DeploymentPage](t, s.get("/v1/deployments?limit=1", 200))
		if len(page.Data) != 1 || page.Data[0].DeploymentID != "shop-8" || !page.HasMore {
			t.Errorf("the first page is %+v", page)
		}
		if got := decode[wire.Deployment](t, s.get("/v1/deployments/shop-7", 200)); got.Status != "active" || got.ActivatedAt.IsZero() {
			t.Errorf("the deployment is %+v", got)
		}
		s.refusal(s.get("/v1/deployments/none", 404), 404, "not_found")
		s.refusal(s.post("/v1/runs", "k1", members{"workflowName": "checkout"}, 400), 400, "unknown_workflow") // not in the manifest
		if got := decode[wire.RunCreated](t, s.post("/v1/runs", "k2", members{"workflowName": "echo"}, 201)); got.DeploymentID != "shop-7" {
			t.Errorf("started %+v", got)
		}
		s.get("/v1/deployments/shop-7/artifact", 501)
		s.must(upload(t, "shop-9", "bytes"), 501)
	})
}

// upload is a multipart request for a deployment with an artifact.
func upload(t testing.TB, id, artifact string) request {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	manifest, err := json.Marshal(members{"deploymentId": id})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []struct{ name, disposition, media, text string }{
		{"manifest", `form-data; name="manifest"`, "application/json", string(manifest)},
		{"artifact", `form-data; name="artifact"; filename="../../app.tgz"`, "application/octet-stream", artifact},
	} {
		p, err := w.CreatePart(map[string][]string{"Content-Disposition": {part.disposition}, "Content-Type": {part.media}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Write([]byte(part.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return request{method: "POST", path: "/v1/deployments", secret: admin, body: b.String(), header: map[string]string{"Content-Type": w.FormDataContentType()}}
}

func TestArtifacts(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		folder := t.TempDir()
		artifacts, err := control.Dir(folder)
		if err != nil {
			t.Fatal(err)
		}
		s := serve(t, store, func(c *control.Config) { c.Artifacts = artifacts })
		const text = "the bytes of a build"
		created := decode[wire.Deployment](t, s.must(upload(t, "shop-7", text), 201))
		sum := sha256.Sum256([]byte(text))
		if a := created.Artifact; a == nil || a.Sha256 != hex.EncodeToString(sum[:]) || a.Size != int64(len(text)) {
			t.Errorf("the artifact is %+v", a)
		}
		s.must(upload(t, "shop-7", text), 200)
		s.refusal(s.must(upload(t, "shop-7", "others"), 409), 409, "deployment_exists")
		if got := s.get("/v1/deployments/shop-7/artifact", 200); string(got.body) != text {
			t.Errorf("the bytes are %q", got.body)
		}
		s.post("/v1/deployments", "", members{"manifest": members{"deploymentId": "bare"}}, 201)
		s.refusal(s.get("/v1/deployments/bare/artifact", 404), 404, "not_found")
		if _, err := os.Stat(folder + "/../../app.tgz"); err == nil {
			t.Error("a client has chosen a path")
		}
	})
}

func TestKeys(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		created := decode[wire.KeySecret](t, s.post("/v1/keys", "", members{"keyId": "shop", "scopes": []string{"runs:read"}}, 201))
		if created.KeyID != "shop" || !strings.HasPrefix(created.Secret, "weft_sk_") {
			t.Errorf("created %+v", created)
		}
		s.must(request{method: "GET", path: "/v1/runs", secret: created.Secret}, 200)
		s.refusal(s.post("/v1/keys", "", members{"keyId": "shop", "scopes": []string{"runs:read"}}, 409), 409, "key_exists")
		s.refusal(s.post("/v1/keys", "", members{"keyId": "shop2", "scopes": []string{"everything"}}, 400), 400, "invalid_request")
		rotated := decode[wire.KeySecret](t, s.post("/v1/keys/shop/rotate", "", members{"graceSeconds": 0}, 200))
		if rotated.Secret == created.Secret {
			t.Error("rotated: the secret is the same")
		}
		s.must(request{method: "GET", path: "/v1/runs", secret: created.Secret}, 401)
		s.must(request{method: "GET", path: "/v1/runs", secret: rotated.Secret}, 200)
		s.post("/v1/keys/shop/rotate", "", nil, 200)
		s.refusal(s.post("/v1/keys/none/rotate", "", nil, 404), 404, "not_found")
		s.post("/v1/keys", "", members{"keyId": "theirs", "project": "acme", "environment": "prod", "scopes": []string{"runs:read"}}, 201)
		if got := decode[wire.KeyPage](t, s.get("/v1/keys?project=acme&environment=prod", 200)); len(got.Data) != 2 {
			t.Errorf("the keys of acme are %+v", got)
		}
		page := decode[wire.KeyPage](t, s.get("/v1/keys?limit=1&sortOrder=asc", 200))
		if len(page.Data) != 1 || !page.HasMore {
			t.Errorf("the first page is %+v", page)
		}
		s.must(request{method: "DELETE", path: "/v1/keys/shop", secret: admin}, 204)
		s.must(request{method: "GET", path: "/v1/runs", secret: rotated.Secret}, 401)
		s.refusal(s.must(request{method: "DELETE", path: "/v1/keys/none", secret: admin}, 404), 404, "not_found")
	})
}

func TestOperators(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		run := s.start("echo", nil)
		s.ended(run)
		s.refusal(s.get("/v1/runs/none", 404), 404, "not_found")
		eventually(t, "the rows are there", func() bool {
			page := decode[wire.AuditPage](t, s.get("/v1/audit?runId="+run+"&action=runs.create", 200))
			return len(page.Data) == 1 && page.Data[0].Result == "success" && page.Data[0].KeyID == "admin" && page.Data[0].Metadata.RunID == run
		})
		eventually(t, "the failure is there", func() bool {
			page := decode[wire.AuditPage](t, s.get("/v1/audit?result=failure&keyId=admin&limit=1", 200))
			return len(page.Data) == 1 && page.Data[0].Action == "runs.get" && page.Data[0].Resource == "/v1/runs/none"
		})
		engines := decode[wire.EnginePage](t, s.get("/v1/engines", 200))
		if len(engines.Data) != 1 || !engines.Data[0].Alive {
			t.Errorf("the engines are %+v", engines)
		}
		if got := decode[wire.Ownership](t, s.get("/v1/diagnostics/ownership", 200)); got.Status != "pass" {
			t.Errorf("the state of the guard is %+v", got)
		}
		s.must(request{method: "GET", path: "/v1/health"}, 200)
		eventually(t, "the store answers", func() bool { return s.send(request{method: "GET", path: "/v1/ready"}).status == 200 })
		s.must(request{method: "GET", path: "/v1/openapi.json"}, 200)
	})
}

// The document that the service answers is the one that its answers are compared with.
func TestDocumentIsServed(t *testing.T) {
	s := serve(t, new(memory.Store))
	want, err := os.ReadFile(jsonFile)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.must(request{method: "GET", path: "/v1/openapi.json"}, 200); strings.TrimSpace(string(got.body)) != strings.TrimSpace(string(want)) {
		t.Error("another document is served")
	}
}

// ready is 503 while the store does not answer, and health is 200.
func TestReadyAsksTheStore(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		s := serve(t, store)
		eventually(t, "the store answers", func() bool { return s.send(request{method: "GET", path: "/v1/ready"}).status == 200 })
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the store is missed", func() bool { return s.send(request{method: "GET", path: "/v1/ready"}).status == 503 })
		s.must(request{method: "GET", path: "/v1/health"}, 200)
		s.refusal(s.send(request{method: "GET", path: "/v1/runs", secret: admin}), 503, "store_unavailable")
	})
}

func TestWebhooks(t *testing.T) {
	store := new(memory.Store)
	ledger, err := idempotency.New(idempotency.Config{Storage: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ledger.Close() })
	type paid struct{ ID, Data string }
	hook, err := webhook.New(webhook.Config[paid, string]{
		Ledger: ledger, Provider: "acme", Logger: slog.New(slog.DiscardHandler),
		Signature: func(h http.Header, _ []byte) (http.Header, error) {
			if h.Get("X-Signature") != "good" {
				return nil, errors.New("wrong")
			}
			return h, nil
		},
		Event: func(_ http.Header, body []byte) (webhook.Event, paid, error) {
			var p paid
			if err := json.Unmarshal(body, &p); err != nil || p.ID == "" {
				return webhook.Event{}, p, errors.New("no event")
			}
			return webhook.Event{ID: p.ID, Version: "1", Action: "paid"}, p, nil
		},
		Effect: &idempotency.Effect[paid, string]{Name: "paid", Run: func(_ context.Context, p paid) (string, error) {
			if p.Data == "later" {
				return "", activity.NoEffect(errors.New("the books are closed"))
			}
			return p.ID, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, store, func(c *control.Config) { c.Webhooks = map[string]http.Handler{"acme": hook} })
	deliver := func(provider, signature string, body any) reply {
		return s.send(request{method: "POST", path: "/v1/webhooks/" + provider, body: body, header: map[string]string{"X-Signature": signature}})
	}
	for _, c := range []struct {
		provider, signature string
		body                any
		want                int
	}{
		{"acme", "good", members{"ID": "e1", "Data": "a"}, 200},
		{"acme", "good", members{"ID": "e1", "Data": "a"}, 200},
		{"acme", "good", members{"ID": "e1", "Data": "b"}, 409},
		{"acme", "good", members{"ID": "e2", "Data": "later"}, 503},
		{"acme", "bad", members{"ID": "e1", "Data": "a"}, 401},
		{"acme", "good", "{}", 400},
		{"acme", "good", strings.Repeat("x", 2<<20), 413},
		{"nobody", "good", "{}", 404},
	} {
		if a := deliver(c.provider, c.signature, c.body); a.status != c.want {
			t.Errorf("%s, %s, %.40v was answered %d %s, want %d", c.provider, c.signature, c.body, a.status, a.body, c.want)
		}
	}
	t.Run("none", func(t *testing.T) {
		serve(t, new(memory.Store)).must(request{method: "POST", path: "/v1/webhooks/acme", body: "{}"}, 501)
	})
}
