package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/signal"
)

// A Client is the untyped interface for transports, tools and dashboards. An *Engine and a
// *Tx implement it. Later releases may add methods, so an implementation in another package
// embeds UnimplementedClient.
type Client interface {
	signal.Sender

	// StartWorkflow starts the workflow that r describes. See Workflow.Start.
	StartWorkflow(ctx context.Context, r *StartRequest) (Info, error)

	// Result waits for the end of a workflow and decodes its result into result,
	// a pointer or nil. An empty workflow name stands for any.
	Result(ctx context.Context, id, workflow string, result any) error

	// Cancel requests the cancellation of a workflow. See Engine.Cancel.
	Cancel(ctx context.Context, id string, by Actor) error

	// Describe returns the state of a workflow.
	Describe(ctx context.Context, id string) (Info, error)

	embedsUnimplementedClient()
}

var (
	_ Client = (*Engine)(nil)
	_ Client = UnimplementedClient{}
)

// UnimplementedClient is embedded in implementations of Client in other packages. Its methods
// are those that the implementation does not have. Each of them returns an error that wraps
// errors.ErrUnsupported.
type UnimplementedClient struct{}

// StartWorkflow returns an error that wraps errors.ErrUnsupported.
func (UnimplementedClient) StartWorkflow(context.Context, *StartRequest) (Info, error) {
	return Info{}, unimplemented("StartWorkflow")
}

// SendSignal returns an error that wraps errors.ErrUnsupported.
func (UnimplementedClient) SendSignal(context.Context, signal.Message) (signal.Accepted, error) {
	return signal.Accepted{}, unimplemented("SendSignal")
}

// Result returns an error that wraps errors.ErrUnsupported.
func (UnimplementedClient) Result(context.Context, string, string, any) error {
	return unimplemented("Result")
}

// Cancel returns an error that wraps errors.ErrUnsupported.
func (UnimplementedClient) Cancel(context.Context, string, Actor) error {
	return unimplemented("Cancel")
}

// Describe returns an error that wraps errors.ErrUnsupported.
func (UnimplementedClient) Describe(context.Context, string) (Info, error) {
	return Info{}, unimplemented("Describe")
}

func (UnimplementedClient) embedsUnimplementedClient() {}
func (*Engine) embedsUnimplementedClient()             {}
func (*Tx) embedsUnimplementedClient()                 {}

func unimplemented(method string) error {
	return fmt.Errorf("engine: this client does not implement %s: %w", method, errors.ErrUnsupported)
}

// A StartRequest describes a start.
type StartRequest struct {
	Workflow string
	ID       string // empty: the engine generates one
	Input    any    // may be json.RawMessage
	Options  StartOptions
}

// StartID returns the id of the workflow. It makes r a signal.Start.
func (r *StartRequest) StartID() string { return r.ID }

// Info is the state of a workflow.
type Info struct {
	ID, Workflow                  string
	Status                        checkpoint.Status
	Attention                     []Attention // why it needs an operator
	Cancel                        *Cancellation
	Waiting                       []string // what it waits for; only of a run that is parked, waits in a queue, or is executed by this engine
	Parent                        string   // the id of its parent; "": none
	Queue                         string   // in which it waits, or waited, to be admitted
	Owner                         string   // the incarnation that owns it
	Deployment                    string   // the one it is pinned to; "": none
	Epoch                         uint64   // rises whenever the owner changes
	CreatedAt, StartedAt, EndedAt time.Time
}

// An Attention is a reason why a running workflow needs an operator.
type Attention struct {
	Reason                  Reason
	Operation, Name, Detail string
	Since                   time.Time
}

// A Reason is the kind of an Attention.
type Reason string

const (
	// ReasonNonDeterminism: the current code does not do what the history has recorded.
	ReasonNonDeterminism Reason = "non-determinism"

	// ReasonUnregistered: no engine that this one knows of has the workflow, or none that
	// is alive belongs to the deployment on which the run stays or will start.
	ReasonUnregistered Reason = "unregistered"

	// ReasonNoProgress: the process died each time this run was executed, ten times or more,
	// and at least the last three times no other quarantined run was executed with it.
	// After Engine.Resume it is executed again.
	ReasonNoProgress Reason = "no-progress"

	// ReasonStuck: the function has not called the engine for 30 s. It blocks on something
	// outside the engine, or computes for long. The reason is removed when the
	// function calls the engine again.
	ReasonStuck Reason = "stuck"

	// ReasonUnresponsive: an attempt of an activity is unresponsive. It has not returned, although
	// its timeout and then Settle have passed. It still counts toward MaxActivities,
	// and no other attempt of the call starts. The rest of the run continues. The
	// reason is removed when the attempt returns.
	ReasonUnresponsive Reason = "unresponsive"

	// ReasonDamaged: a record of the run is corrupt.
	ReasonDamaged Reason = "damaged"

	// ReasonBadDefinition: an activity that the workflow uses has an invalid definition.
	ReasonBadDefinition Reason = "bad-definition"

	// ReasonUndecodable: the current code cannot decode something that is stored for the run:
	// its input, a result or a signal. The workflow's function has not seen it. The run
	// continues with code that can decode it: an engine that starts with such code tries by
	// itself, and after Engine.Resume it is tried at once. Engine.ClearSignal can remove a signal
	// that was not received yet. If a Compensate needs the result, Engine.Resolve decides
	// what follows. A result that was set by Engine.Resolve is decoded before it becomes
	// the outcome; if that fails, the reason is ReasonIndeterminate.
	ReasonUndecodable Reason = "undecodable"

	// ReasonIndeterminate: the outcome of an activity that has AwaitOperator cannot be determined, or
	// the result that Engine.Resolve set cannot be decoded as the activity's result
	// type. The rest of the run continues. Engine.Resolve sets the outcome.
	ReasonIndeterminate Reason = "indeterminate"

	// ReasonUncompensated: the workflow ends without success, and one of its Compensate
	// functions has failed permanently. Earlier calls are not undone until
	// Engine.Resolve decides what follows. For the call "3", the Operation is "3.undo".
	ReasonUncompensated Reason = "uncompensated"
)

// A Cancellation is a request to cancel a workflow.
type Cancellation struct {
	By     string // who requested it; "" if the request did not say, or the parent ended
	Reason string
	At     time.Time
}

func infoOf(wf *checkpoint.Workflow) Info {
	i := Info{
		ID:         wf.ID,
		Workflow:   wf.Type,
		Status:     wf.Status,
		Queue:      wf.Queue,
		Owner:      wf.Owner,
		Deployment: wf.Deployment,
		Epoch:      wf.Claim,
		CreatedAt:  checkpoint.Time(wf.CreatedAt),
		StartedAt:  checkpoint.Time(wf.StartedAt),
		EndedAt:    checkpoint.Time(wf.EndedAt),
	}
	for _, a := range wf.Attention {
		i.Attention = append(i.Attention, Attention{Reason(a.Reason), a.Operation, a.Name, a.Detail, checkpoint.Time(a.Since)})
	}
	i.Waiting = wf.Facing
	if wf.Waits {
		i.Waiting = []string{fmt.Sprintf("admission to queue %q", wf.Queue)}
	}
	if wf.Parent != nil {
		i.Parent = wf.Parent.ID
	}
	if c := wf.Cancel; c != nil {
		i.Cancel = &Cancellation{c.By, c.Reason, checkpoint.Time(c.At)}
	}
	return i
}
