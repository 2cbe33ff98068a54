package main

import (
	"encoding/json"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
)

// What --json prints. Names and meanings stay; later releases may add fields. What is zero is
// left out.

type workflowJSON struct {
	ID         string            `json:"id"`
	Workflow   string            `json:"workflow,omitempty"`
	Status     string            `json:"status,omitempty"`
	Attention  []attentionJSON   `json:"attention,omitempty"`
	Waiting    []string          `json:"waiting,omitempty"`
	Cancel     *cancelJSON       `json:"cancel,omitempty"`
	Protected  *protectedJSON    `json:"protected,omitempty"`
	Parent     string            `json:"parent,omitempty"`
	Queue      string            `json:"queue,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Owner      string            `json:"owner,omitempty"`
	Deployment string            `json:"deployment,omitempty"`
	Epoch      uint64            `json:"epoch,omitempty"`
	Created    time.Time         `json:"created,omitzero"`
	Started    time.Time         `json:"started,omitzero"`
	Life       int               `json:"life,omitempty"`
	LifeAt     time.Time         `json:"lifeAt,omitzero"`
	Ended      time.Time         `json:"ended,omitzero"`
	Error      string            `json:"error,omitempty"` // why it failed, or, in a list, why it cannot be read
}

type attentionJSON struct {
	Reason    string    `json:"reason"`
	Operation string    `json:"operation,omitempty"`
	Name      string    `json:"name,omitempty"`
	Detail    string    `json:"detail,omitempty"`
	Since     time.Time `json:"since,omitzero"`
}

type cancelJSON struct {
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"`

	Terminated bool `json:"terminated,omitempty"`
}

type protectedJSON struct {
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at,omitzero"`
}

type descriptionJSON struct {
	workflowJSON
	Input      json.RawMessage `json:"input,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	Operations []operationJSON `json:"operations,omitempty"`
	Signals    []signalJSON    `json:"signals,omitempty"` // that it has not received
	Children   []childJSON     `json:"children,omitempty"`
}

type operationJSON struct {
	Operation string    `json:"operation"`
	Of        string    `json:"of,omitempty"`
	Name      string    `json:"name,omitempty"`
	State     string    `json:"state"`
	Attempts  int       `json:"attempts,omitempty"`
	Key       string    `json:"key,omitempty"`
	Child     string    `json:"child,omitempty"`
	SignalID  string    `json:"signalId,omitempty"`
	Time      time.Time `json:"time,omitzero"` // of its last event
	Next      time.Time `json:"next,omitzero"` // when it is attempted again
	payloadJSON
	Error string `json:"error,omitempty"`
}

type signalJSON struct {
	Name          string    `json:"name"`
	ID            string    `json:"id"`
	Accepted      time.Time `json:"accepted,omitzero"`
	Bytes         int       `json:"bytes"`
	Indeterminate bool      `json:"indeterminate,omitempty"`
}

type childJSON struct {
	ID        string `json:"id"`
	Operation string `json:"operation"`
	Workflow  string `json:"workflow,omitempty"`
	Status    string `json:"status,omitempty"` // empty: it is not there any more
}

// A payloadJSON is a payload: JSON, or the bytes of another codec.
type payloadJSON struct {
	Result json.RawMessage `json:"result,omitempty"`
	Data   []byte          `json:"data,omitempty"`
	Codec  string          `json:"codec,omitempty"`
}

type eventJSON struct {
	ID         string    `json:"id,omitempty"`
	Checkpoint uint64    `json:"checkpoint"`
	Time       time.Time `json:"time,omitzero"`
	Kind       string    `json:"kind"`
	Operation  string    `json:"operation,omitempty"`
	Of         string    `json:"of,omitempty"`
	Name       string    `json:"name,omitempty"`
	Attempt    int       `json:"attempt,omitempty"`
	payloadJSON
	Error    string    `json:"error,omitempty"`
	Category string    `json:"category,omitempty"`
	Other    string    `json:"other,omitempty"`
	Stack    string    `json:"stack,omitempty"`
	Next     time.Time `json:"next,omitzero"`
	SignalID string    `json:"signalId,omitempty"`
	By       string    `json:"by,omitempty"`
	Why      string    `json:"why,omitempty"`
	Child    string    `json:"child,omitempty"`
	Key      string    `json:"key,omitempty"`
	Branch   string    `json:"branch,omitempty"`
	Which    string    `json:"which,omitempty"`
	Owner    string    `json:"owner,omitempty"`
	Epoch    uint64    `json:"epoch,omitempty"`
}

type engineJSON struct {
	Incarnation string    `json:"incarnation"`
	Name        string    `json:"name,omitempty"`
	State       string    `json:"state"` // seen, alive, stopped, dead or unknown
	Deployment  string    `json:"deployment,omitempty"`
	Workflows   []string  `json:"workflows,omitempty"`
	Queues      []string  `json:"queues,omitempty"`
	LeaseTTL    string    `json:"leaseTTL,omitempty"`
	Runs        int       `json:"runs"`
	Since       time.Time `json:"since,omitzero"`
	Stopped     time.Time `json:"stopped,omitzero"`
	Renewed     time.Time `json:"renewed,omitzero"`
	Takeovers   uint64    `json:"takeovers"`
	LostRaces   uint64    `json:"lostRaces"`
	Fenced      uint64    `json:"fenced"`
	Unknown     uint64    `json:"unknown"`
}

type queueJSON struct {
	Queue    string `json:"queue"`
	Engines  int    `json:"engines"`  // that are alive and serve it
	Waiting  int    `json:"waiting"`  // to be admitted
	Admitted int    `json:"admitted"` // and not ended
}

type valueJSON struct {
	Name  string          `json:"name"`
	Set   time.Time       `json:"set,omitzero"`
	Value json.RawMessage `json:"value,omitempty"`
	Data  []byte          `json:"data,omitempty"` // of another codec than JSON
	Codec string          `json:"codec,omitempty"`
}

type chunkJSON struct {
	Index     int64           `json:"index"`
	ID        string          `json:"id"`
	Time      time.Time       `json:"time"`
	Operation string          `json:"operation"`
	Attempt   int             `json:"attempt"`
	Value     json.RawMessage `json:"value,omitempty"`
	Data      []byte          `json:"data,omitempty"` // of another codec than JSON
	Codec     string          `json:"codec,omitempty"`
}

type countJSON struct {
	Count int  `json:"count"`
	All   bool `json:"all"` // false: there may be more
}

func workflowOf(i weft.Info) workflowJSON {
	w := workflowJSON{
		ID: i.ID, Workflow: i.Workflow, Status: string(i.Status), Waiting: i.Waiting, Parent: i.Parent, Queue: i.Queue, Labels: i.Labels,
		Owner: i.Owner, Deployment: i.Deployment, Epoch: i.Epoch,
		Created: i.CreatedAt.UTC(), Started: i.StartedAt.UTC(), Life: i.Life, LifeAt: i.LifeAt.UTC(), Ended: i.EndedAt.UTC(),
	}
	for _, a := range i.Attention {
		w.Attention = append(w.Attention, attentionJSON{string(a.Reason), a.Operation, a.Name, a.Detail, a.Since.UTC()})
	}
	if c := i.Cancel; c != nil {
		w.Cancel = &cancelJSON{c.By, c.Reason, c.At.UTC(), c.Terminated}
	}
	if p := i.Protected; p != nil {
		w.Protected = &protectedJSON{p.By, p.Reason, p.At.UTC()}
	}
	return w
}

func payloadOf(data []byte, codec string) payloadJSON {
	switch {
	case data == nil:
		return payloadJSON{}
	case (codec == "" || codec == weft.JSON.Name()) && json.Valid(data):
		return payloadJSON{Result: data}
	}
	return payloadJSON{Data: data, Codec: codec}
}

func eventOf(c checkpoint.Checkpoint, e checkpoint.Event) eventJSON {
	j := eventJSON{
		Checkpoint: c.Number, Time: c.Time.UTC(), Kind: string(e.Kind), Operation: e.Operation, Of: e.Of, Name: e.Name, Attempt: e.Attempt,
		payloadJSON: payloadOf(e.Result, e.Codec), Error: e.Error, Category: e.Category, Other: e.Other, Stack: e.Stack,
		SignalID: e.SignalID, By: e.By, Why: e.Why, Child: e.Child, Key: e.Key, Branch: e.Branch, Which: e.Which, Owner: c.Owner, Epoch: c.Epoch,
	}
	if e.Due != 0 {
		j.Next = time.UnixMicro(e.Due).UTC()
	}
	return j
}
