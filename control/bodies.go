package control

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/engine"
)

// runBody is a run as a client sees it.
type runBody struct {
	RunID        string            `json:"runId"`
	WorkflowName string            `json:"workflowName"`
	Status       string            `json:"status"`
	DeploymentID string            `json:"deploymentId"`
	Attention    []attentionBody   `json:"attention"`
	Waiting      []string          `json:"waiting"`
	Labels       map[string]string `json:"labels"`
	Cancel       *cancelBody       `json:"cancel,omitempty"`
	Queue        string            `json:"queue,omitempty"`
	Parent       string            `json:"parent,omitempty"`
	CreatedAt    time.Time         `json:"createdAt"`
	StartedAt    time.Time         `json:"startedAt,omitzero"`
	EndedAt      time.Time         `json:"endedAt,omitzero"`
	Input        json.RawMessage   `json:"input,omitempty"`
	Output       json.RawMessage   `json:"output,omitempty"`
	Error        *failureBody      `json:"error,omitempty"`
	Damaged      string            `json:"damaged,omitempty"`
}

type attentionBody struct {
	Reason    string    `json:"reason"`
	Operation string    `json:"operation,omitempty"`
	Name      string    `json:"name,omitempty"`
	Detail    string    `json:"detail,omitempty"`
	Since     time.Time `json:"since,omitzero"`
}

type cancelBody struct {
	By         string    `json:"by,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	At         time.Time `json:"at,omitzero"`
	Terminated bool      `json:"terminated,omitempty"`
}

// failureBody is why a run has no result.
type failureBody struct {
	Message string `json:"message"`
	Code    string `json:"code,omitempty"`  // the text of the workflow's own error that it was
	Stack   string `json:"stack,omitempty"` // of a panic; for ops:read only
}

// runOf returns a run as k sees it. The run is one that k may see, with this runId.
func runOf(k *principal, runID string, i *engine.Info) runBody {
	b := runBody{
		RunID: runID, WorkflowName: i.Workflow, Status: string(i.Status), DeploymentID: i.Deployment, Queue: i.Queue,
		Attention: []attentionBody{}, Waiting: []string{}, Labels: map[string]string{},
		CreatedAt: i.CreatedAt, StartedAt: i.StartedAt, EndedAt: i.EndedAt,
	}
	for _, a := range i.Attention {
		b.Attention = append(b.Attention, attentionBody{string(a.Reason), a.Operation, a.Name, k.visible(a.Detail), a.Since})
	}
	for _, w := range i.Waiting {
		b.Waiting = append(b.Waiting, k.visible(w))
	}
	for name, value := range i.Labels {
		if !strings.HasPrefix(name, reservedLabels) {
			b.Labels[name] = value
		}
	}
	if c := i.Cancel; c != nil {
		b.Cancel = &cancelBody{c.By, c.Reason, c.At, c.Terminated}
	}
	if parent, ok := k.runID(i.Parent); ok {
		b.Parent = parent
	}
	if i.Damaged != "" {
		b.Damaged = "the record of the run cannot be read"
	}
	return b
}

// reservedLabels is how the names of labels begin that only Weft sets.
const reservedLabels = "weft."

// jsonOf returns a payload as JSON: as it is, or, of another codec, as an object of its name and
// its bytes in base64.
func jsonOf(codec string, data []byte) json.RawMessage {
	if data == nil {
		return nil
	}
	if (codec == "" || codec == weft.JSON.Name()) && json.Valid(data) {
		return data
	}
	b, err := json.Marshal(struct {
		Codec  string `json:"codec"`
		Base64 []byte `json:"base64"`
	}{codec, data})
	if err != nil { // neither field allows it
		panic(err)
	}
	return b
}
