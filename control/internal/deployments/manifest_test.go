package deployments

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// HTTP-37, HTTP-38: the id of a deployment has letters, digits, _ and - only, at most 100, and is
// not active.
func TestDeploymentIDs(t *testing.T) {
	for id, want := range map[string]bool{
		"v1": true, "A-b_9": true, strings.Repeat("a", 100): true, "Active": true,
		"": false, "active": false, strings.Repeat("a", 101): false, "a b": false, "a/b": false, "..": false, ".": false,
		"a\n": false, "é": false, "a%2Fb": false, "a\\b": false,
	} {
		if got := IsID(id); got != want {
			t.Errorf("%q: %v, want %v", id, got, want)
		}
		_, err := readManifest(fmt.Appendf(nil, `{"deploymentId":%q}`, id))
		if want != (err == nil) {
			t.Errorf("manifest of %q: %v, want ok: %v", id, err, want)
		}
		if bad := (*manifestError)(nil); !want && errors.As(err, &bad) {
			if bad.code != "invalid_deployment_id" || bad.problem != "deploymentId must match ^[A-Za-z0-9_-]+$ and cannot contain path separators." {
				t.Errorf("%q: %s %q", id, bad.code, bad.problem)
			}
		}
	}
}

func TestManifests(t *testing.T) {
	for _, c := range []struct{ raw, code string }{
		{`{"deploymentId":"v1"}`, ""},
		{`{"deploymentId":"v1","workflows":null}`, ""},
		{`{"deploymentId":"v1","workflows":[]}`, ""},
		{`{"deploymentId":"v1","workflows":[{"name":"a","queue":"q","more":1},{"name":"b"}],"other":{"x":1}}`, ""},
		{`{}`, "invalid_deployment_id"},
		{`{"deploymentId":7}`, "invalid_deployment_id"},
		{`{"deploymentId":null}`, "invalid_deployment_id"},
		{`{"DeploymentId":"v1"}`, "invalid_deployment_id"},
		{`{"deploymentId":"v1","deploymentId":"v2"}`, "invalid_manifest"},
		{`[]`, "invalid_manifest"},
		{`null`, "invalid_manifest"},
		{``, "invalid_manifest"},
		{`{"deploymentId":"v1"} {}`, "invalid_manifest"},
		{`{"deploymentId":"v1","workflows":{}}`, "invalid_manifest"},
		{`{"deploymentId":"v1","workflows":["a"]}`, "invalid_manifest"},
		{`{"deploymentId":"v1","workflows":[{}]}`, "invalid_manifest"},
		{`{"deploymentId":"v1","workflows":[null]}`, "invalid_manifest"},
		{`{"deploymentId":"v1","workflows":[{"name":""}]}`, "invalid_manifest"},
		{`{"deploymentId":"v1","workflows":[{"name":"a"},{"name":"a"}]}`, "invalid_manifest"},
		{`{"deploymentId":"v1","workflows":[{"name":"a","queue":1}]}`, "invalid_manifest"},
		{`{"deploymentId":"v1","workflows":[{"name":"` + strings.Repeat("a", 101) + `"}]}`, "invalid_manifest"},
		{`{"deploymentId":"v1","workflows":[{"name":"a","queue":"` + strings.Repeat("a", 101) + `"}]}`, "invalid_manifest"},
		{`{"deploymentId":"v1","x":"` + strings.Repeat("a", maxManifest) + `"}`, "invalid_manifest"},
	} {
		_, err := readManifest([]byte(c.raw))
		code := ""
		if bad := (*manifestError)(nil); errors.As(err, &bad) {
			code = bad.code
		} else if err != nil {
			t.Errorf("%.80s: %v is no *manifestError", c.raw, err)
		}
		if code != c.code {
			t.Errorf("%.80s: %q, want %q", c.raw, code, c.code)
		}
	}
}

// OP-38: manifests are the same if they are equal as JSON, in any order of members.
func TestManifestDigest(t *testing.T) {
	digest := func(raw string) string {
		m, err := readManifest([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		return m.digest
	}
	a := digest(`{"deploymentId":"v1","n":1.0}`)
	if b := digest(`{ "n":1, "deploymentId":"v1" }`); a != b {
		t.Error("another order of members is another manifest")
	}
	if b := digest(`{"deploymentId":"v1","n":2}`); a == b {
		t.Error("another value is the same manifest")
	}
}

func TestWorkflowsOfAManifest(t *testing.T) {
	m, err := readManifest([]byte(`{"deploymentId":"v1","workflows":[{"name":"a","queue":"q"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if w, known := m.workflow("a"); !known || w.Queue != "q" {
		t.Errorf("a: %v, %v", w, known)
	}
	if _, known := m.workflow("b"); known {
		t.Error("b is known")
	}
	none := &manifest{}
	if _, known := none.workflow("b"); !known {
		t.Error("a manifest without a list knows no workflow")
	}
}
