package world

import (
	"context"
	"fmt"
	"time"

	"github.com/weft-go/weft/storage"
)

// An Event is an event of a run, as its client gets it.
type Event struct {
	EventID       string     `json:"eventId"`
	RunID         string     `json:"runId"`
	EventType     EventType  `json:"eventType"`
	CorrelationID string     `json:"correlationId,omitempty"`
	SpecVersion   int        `json:"specVersion,omitempty"`
	CreatedAt     time.Time  `json:"createdAt"`
	OccurredAt    *time.Time `json:"occurredAt,omitempty"`
	ResumeID      string     `json:"resumeId,omitempty"`
	EventData     Value      `json:"eventData,omitempty"`
}

// A Run is a run, as its client gets it.
type Run struct {
	RunID            string            `json:"runId"`
	Status           Status            `json:"status"`
	DeploymentID     string            `json:"deploymentId"`
	WorkflowName     string            `json:"workflowName"`
	SpecVersion      int               `json:"specVersion"`
	ExecutionContext Value             `json:"executionContext,omitempty"`
	Input            Value             `json:"input,omitempty"`
	Output           Value             `json:"output,omitempty"`
	Error            Value             `json:"error,omitempty"`
	ErrorCode        string            `json:"errorCode,omitempty"`
	Attributes       map[string]string `json:"attributes"`
	CreatedAt        time.Time         `json:"createdAt"`
	UpdatedAt        time.Time         `json:"updatedAt"`
	StartedAt        *time.Time        `json:"startedAt,omitempty"`
	CompletedAt      *time.Time        `json:"completedAt,omitempty"`
}

// A Step is a step of a run, as its client gets it.
type Step struct {
	RunID       string     `json:"runId"`
	StepID      string     `json:"stepId"`
	StepName    string     `json:"stepName"`
	Status      Status     `json:"status"`
	Attempt     int        `json:"attempt"`
	SpecVersion int        `json:"specVersion"`
	Input       Value      `json:"input,omitempty"`
	Output      Value      `json:"output,omitempty"`
	Error       Value      `json:"error,omitempty"`
	CreatedAt   time.Time  `json:"createdAt"`
	UpdatedAt   time.Time  `json:"updatedAt"`
	StartedAt   *time.Time `json:"startedAt,omitempty"`
	CompletedAt *time.Time `json:"completedAt,omitempty"`
	RetryAfter  *time.Time `json:"retryAfter,omitempty"`
}

// A Hook is a hook of a run, as its client gets it. A world has one owner, project and environment.
type Hook struct {
	RunID       string    `json:"runId"`
	HookID      string    `json:"hookId"`
	Token       string    `json:"token"`
	OwnerID     string    `json:"ownerId"`
	ProjectID   string    `json:"projectId"`
	Environment string    `json:"environment"`
	Metadata    Value     `json:"metadata,omitempty"`
	CreatedAt   time.Time `json:"createdAt"`
	SpecVersion int       `json:"specVersion"`
	IsWebhook   bool      `json:"isWebhook"` // always told: a runtime takes nothing for true
	IsSystem    bool      `json:"isSystem"`
}

// A Wait is a wait of a run, as its client gets it.
type Wait struct {
	WaitID      string     `json:"waitId"`
	RunID       string     `json:"runId"`
	Status      Status     `json:"status"`
	ResumeAt    *time.Time `json:"resumeAt,omitempty"`
	CompletedAt *time.Time `json:"completedAt,omitempty"`
	CreatedAt   time.Time  `json:"createdAt"`
	UpdatedAt   time.Time  `json:"updatedAt"`
	SpecVersion int        `json:"specVersion"`
}

// noInput is the input of what is read without data: an empty list.
var noInput = []byte{0x80}

// A view makes of records what a client gets.
type view struct {
	w       *World
	resolve Resolve
	spec    int               // of the client; 0: any
	known   map[uint64]*event // of the run, that need not be read
}

func (v view) event(e *event) (*Event, error) {
	out := &Event{
		EventID: e.id(), RunID: e.run, EventType: e.Type, CorrelationID: e.Correlation, SpecVersion: e.Spec,
		CreatedAt: at(e.Created), OccurredAt: atOrNone(e.Occurred), ResumeID: e.Resume,
	}
	switch v.resolve {
	case ResolveNone:
	case ResolveMeta:
		fields, err := openData(e.Data)
		if err != nil {
			return nil, fmt.Errorf("%w: event %d of run %q: %w", storage.ErrCorrupt, e.n, e.run, err)
		}
		out.EventData = fields.without(payloadOf(e.Type))
	default:
		out.EventData = e.Data
	}
	return out, nil
}

// fields returns the fields of event n, and the event; none of number 0.
func (v view) fields(ctx context.Context, h *head, n uint64) (data, *event, error) {
	if n == 0 {
		return nil, &event{}, nil
	}
	e := v.known[n]
	if e == nil {
		var err error
		if e, err = v.w.eventAt(ctx, h, n); err != nil {
			return nil, nil, err
		}
	}
	d, err := openData(e.Data)
	if err != nil {
		err = fmt.Errorf("%w: event %d of run %q: %w", storage.ErrCorrupt, n, h.run, err)
	}
	return d, e, err
}

// failure returns the error in an event, as the client reads it.
func (v view) failure(d data, e *event) (Value, error) {
	if structured := decodeError(e.Error); structured != nil {
		return encoder.Marshal(structured)
	}
	return d.get("error"), nil
}

func (v view) run(ctx context.Context, h *head) (*Run, error) {
	r := &Run{
		RunID: h.run, Status: h.Status, DeploymentID: h.Deployment, WorkflowName: h.Name, SpecVersion: h.Spec, Attributes: map[string]string{},
		CreatedAt: at(h.Created), UpdatedAt: at(h.Updated), StartedAt: atOrNone(h.Started), CompletedAt: atOrNone(h.Ended),
	}
	attrs, err := v.w.attributesOf(ctx, h.run)
	if err != nil {
		return nil, err
	}
	if attrs != nil && attrs.All != nil {
		r.Attributes = attrs.All
	}
	first, _, err := v.fields(ctx, h, h.Input)
	if err != nil {
		return nil, err
	}
	r.ExecutionContext = first.get("executionContext")
	var outcome data
	if h.Status == Failed || h.Status == Completed && v.all() {
		var e *event
		if outcome, e, err = v.fields(ctx, h, h.Outcome); err != nil {
			return nil, err
		}
		if h.Status == Failed {
			if r.ErrorCode, err = outcome.text("errorCode"); err != nil {
				r.ErrorCode = "" // it is no text
			}
			if r.Error, err = v.failure(outcome, e); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case v.resolve == ResolveNone:
		r.Input = noInput
	case v.all():
		r.Input, r.Output = first.get("input"), outcome.get("output")
	}
	return r, nil
}

func (v view) all() bool { return v.resolve == "" || v.resolve == ResolveAll }

func (v view) step(ctx context.Context, h *head, s *step) (*Step, error) {
	out := &Step{
		RunID: h.run, StepID: s.id, StepName: s.Name, Status: s.Status, Attempt: s.Attempt, SpecVersion: h.Spec,
		CreatedAt: at(s.Created), UpdatedAt: at(s.Updated), StartedAt: atOrNone(s.Started), CompletedAt: atOrNone(s.Ended), RetryAfter: atOrNone(s.RetryAfter),
	}
	failed, e, err := v.fields(ctx, h, s.Failure)
	if err != nil {
		return nil, err
	}
	if s.Failure > 0 {
		if out.Error, err = v.failure(failed, e); err != nil {
			return nil, err
		}
	}
	switch {
	case v.resolve == ResolveNone:
		out.Input = noInput
	case v.all():
		input, _, err := v.fields(ctx, h, s.Input)
		if err != nil {
			return nil, err
		}
		output, _, err := v.fields(ctx, h, s.Output)
		if err != nil {
			return nil, err
		}
		out.Input, out.Output = input.get("input"), output.get("result")
	}
	return out, nil
}

func (v view) hook(ctx context.Context, h *head, k *hook) (*Hook, error) {
	out := &Hook{RunID: h.run, HookID: k.id, Token: k.Token, CreatedAt: at(k.Created), SpecVersion: h.Spec, IsWebhook: k.Webhook, IsSystem: k.System}
	if v.all() {
		created, _, err := v.fields(ctx, h, k.Event)
		if err != nil {
			return nil, err
		}
		out.Metadata = created.get("metadata")
	}
	return out, nil
}

func (v view) wait(h *head, w *wait) *Wait {
	return &Wait{WaitID: w.id, RunID: h.run, Status: w.Status, ResumeAt: atOrNone(w.Resume), CompletedAt: atOrNone(w.Ended), CreatedAt: at(w.Created), UpdatedAt: at(w.Updated), SpecVersion: h.Spec}
}

// sizeOf returns the size of what the client has stored in a *Run, *Step, *Hook or *Event.
func sizeOf[T any](x T) int {
	switch x := any(x).(type) {
	case *Run:
		return len(x.ExecutionContext) + len(x.Input) + len(x.Output) + len(x.Error)
	case *Step:
		return len(x.Input) + len(x.Output) + len(x.Error)
	case *Hook:
		if x != nil {
			return len(x.Metadata)
		}
	case *Event:
		if x != nil {
			return len(x.EventData)
		}
	}
	return 0
}

// at returns a time of a record.
func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// atOrNone is at, but nil for no time.
func atOrNone(ms int64) *time.Time {
	if ms == 0 {
		return nil
	}
	t := at(ms)
	return &t
}
