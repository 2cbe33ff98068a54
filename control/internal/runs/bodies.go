package runs

import (
	"encoding/json"
	"strings"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
)

// runOf returns a run as k sees it. The run is one that k may see, with this runId.
func runOf(k *operation.Principal, runID string, i *engine.Info) wire.Run {
	b := wire.Run{
		RunID: runID, WorkflowName: i.Workflow, Status: string(i.Status), DeploymentID: i.Deployment, Queue: i.Queue,
		Attention: attentionOf(k, i.Attention), Waiting: []string{}, Labels: map[string]string{},
		CreatedAt: i.CreatedAt.UTC(), StartedAt: i.StartedAt.UTC(), Life: i.Life, LifeAt: i.LifeAt.UTC(), EndedAt: i.EndedAt.UTC(),
	}
	for _, w := range i.Waiting {
		b.Waiting = append(b.Waiting, k.Visible(w))
	}
	for name, value := range i.Labels {
		if !strings.HasPrefix(name, reservedLabels) {
			b.Labels[name] = value
		}
	}
	if c := i.Cancel; c != nil {
		b.Cancel = &wire.Cancellation{By: c.By, Reason: k.Visible(c.Reason), At: c.At.UTC(), Terminated: c.Terminated}
	}
	if parent, ok := k.RunID(i.Parent); ok { // another namespace's is left out
		b.Parent = parent
	}
	if i.Damaged != "" {
		b.Damaged = "the record of the run cannot be read"
	}
	b.Error = errorOf(k, i)
	return b
}

// errorOf returns why a run has failed, or that it was cancelled, as k sees it. It is nil of another one.
func errorOf(k *operation.Principal, i *engine.Info) *wire.StructuredError {
	if i.Failure == "" {
		return nil
	}
	message, known := i.Failure, strings.HasPrefix(i.Failure, weft.ErrCancelled.Error())
	if i.Status == checkpoint.StatusFailed {
		message, known = strings.CutPrefix(i.Failure, (&weft.WorkflowError{WorkflowID: i.ID, Workflow: i.Workflow}).Error())
	}
	if !known { // it is damage, whose text names keys of the store
		message = "the record of its failure cannot be read"
	}
	return &wire.StructuredError{Message: k.Visible(message)}
}

// attentionOf returns why a run needs an operator. It is not nil.
func attentionOf(k *operation.Principal, all []engine.Attention) []wire.Attention {
	shown := []wire.Attention{}
	for _, a := range all {
		shown = append(shown, wire.Attention{
			Reason: string(a.Reason), Operation: a.Operation, Name: a.Name, Detail: k.Visible(a.Detail), Since: a.Since.UTC(),
		})
	}
	return shown
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
