package deployments

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/weft-go/weft/internal/canon"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
)

// maxManifest is the largest manifest in bytes, in its canonical form.
const maxManifest = 256 << 10

// maxDeploymentID is the length of the longest id of a deployment, in bytes.
const maxDeploymentID = 100

// deploymentIDs is HTTP-37.
var deploymentIDs = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// badDeploymentID is the message of HTTP-38.
const badDeploymentID = "deploymentId must match ^[A-Za-z0-9_-]+$ and cannot contain path separators."

// IsID reports whether a deployment can have this id. "active" is the name of a route.
func IsID(id string) bool {
	return len(id) <= maxDeploymentID && deploymentIDs.MatchString(id) && id != "active"
}

// A manifest is what is said about a deployment when it is created. It may have more members than
// these, which are kept.
type manifest struct {
	deploymentID string
	workflows    []manifestWorkflow // nil: it does not say
	canonical    []byte             // canonical JSON
	digest       string             // of canonical
}

// A manifestWorkflow is a workflow that a deployment has.
type manifestWorkflow struct {
	Name  string `json:"name"`
	Queue string `json:"queue"` // in which it waits if a start names none; "": none
}

// A manifestError says what is wrong with a manifest. Its code is that of the answer.
type manifestError struct{ code, problem string }

func (e *manifestError) Error() string { return e.problem }

// readManifest reads a manifest. The error is a *manifestError.
func readManifest(raw []byte) (*manifest, error) {
	bad := func(format string, args ...any) (*manifest, error) {
		return nil, &manifestError{"invalid_manifest", fmt.Sprintf(format, args...)}
	}
	canonical, err := canon.JSON(raw)
	if err != nil {
		return bad("The manifest is not JSON.")
	}
	if len(canonical) > maxManifest {
		return bad("The manifest has %d bytes, at most %d are allowed.", len(canonical), maxManifest)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(canonical, &members); err != nil || members == nil {
		return bad("The manifest must be a JSON object.")
	}
	m := &manifest{canonical: canonical, digest: canon.Fingerprint(canonical)}
	if id, ok := members["deploymentId"]; !ok || json.Unmarshal(id, &m.deploymentID) != nil || !IsID(m.deploymentID) {
		return nil, &manifestError{"invalid_deployment_id", badDeploymentID}
	}
	listed, ok := members["workflows"]
	if !ok || bytes.Equal(listed, []byte("null")) {
		return m, nil
	}
	if problem := m.readWorkflows(listed); problem != "" {
		return bad("%s", problem)
	}
	return m, nil
}

// readWorkflows reads the list of workflows. It returns what is wrong with it, or "".
func (m *manifest) readWorkflows(raw []byte) string {
	const shape = `The member "workflows" of the manifest must be an array of objects {"name": string, "queue"?: string}.`
	var list []map[string]json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return shape
	}
	m.workflows = make([]manifestWorkflow, len(list))
	seen := map[string]bool{}
	for i, members := range list {
		w := &m.workflows[i]
		if json.Unmarshal(members["name"], &w.Name) != nil {
			return shape
		}
		if q, ok := members["queue"]; ok && json.Unmarshal(q, &w.Queue) != nil {
			return shape
		}
		if err := payload.CheckName("workflow name", w.Name, keys.MaxName); err != nil {
			return fmt.Sprintf("The name of workflow %d must have 1 to %d bytes of UTF-8.", i+1, keys.MaxName)
		}
		if len(w.Queue) > keys.MaxName {
			return fmt.Sprintf("The queue of workflow %d must have at most %d bytes of UTF-8.", i+1, keys.MaxName)
		}
		if seen[w.Name] {
			return fmt.Sprintf("The manifest has workflow %.100q twice.", w.Name)
		}
		seen[w.Name] = true
	}
	return ""
}

// workflow returns the entry of a workflow. known is false if the manifest lists workflows, and
// not this one.
func (m *manifest) workflow(name string) (w manifestWorkflow, known bool) {
	for _, w := range m.workflows {
		if w.Name == name {
			return w, true
		}
	}
	return manifestWorkflow{}, m.workflows == nil
}
