package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/signal"
)

// A Client does without types: for transports, tools and dashboards. An *Engine
// is one.
type Client interface {
	signal.Sender

	// StartWorkflow starts what r says. See Workflow.Start.
	StartWorkflow(ctx context.Context, r *StartRequest) (Info, error)

	// Result waits for the end of a workflow and decodes its result into result,
	// a pointer, or nil. The workflow's name may be empty: any.
	Result(ctx context.Context, workflow, id string, result any) error

	Cancel(ctx context.Context, id, reason string) error
	Describe(ctx context.Context, id string) (Info, error)
}

var _ Client = (*Engine)(nil)

// A StartRequest is a start as a value.
type StartRequest struct {
	Workflow string
	ID       string // empty mints one
	Input    any    // may be json.RawMessage
	Options  StartOptions
}

// StartID is the id of the workflow. It makes r a signal.Start.
func (r *StartRequest) StartID() string { return r.ID }

// Info tells how a workflow stands.
type Info struct {
	ID, Workflow                  string
	Status                        checkpoint.Status
	Attention                     []Attention // why a person is needed
	Cancel                        *Cancellation
	Waiting                       []string // for what, in words; of a run that is parked, waits in a queue, or is driven by this engine
	Parent                        string   // the id of the workflow whose child it is
	Queue                         string   // where it waited, or waits, to be driven
	Owner                         string   // the engine that drives it
	Deployment                    string   // on which it stays; "": any
	Epoch                         uint64   // rises whenever it changes hands
	CreatedAt, StartedAt, EndedAt time.Time
}

// An Attention is a reason why a running workflow needs a person.
type Attention struct {
	Reason                  Reason
	Operation, Name, Detail string
	Since                   time.Time
}

// A Reason says why a run is held.
type Reason string

const (
	// NonDeterminism: today's code does not do what the history tells.
	NonDeterminism Reason = "non-determinism"

	// Unregistered: no engine that this one knows of runs such a workflow, or none that
	// lives is of the deployment on which the run stays, or is to begin.
	Unregistered Reason = "unregistered"

	// NoProgress: the process died whenever this run was driven, ten times or more, and
	// in the last three of them at least no other suspect was. Engine.Retry has it
	// driven again.
	NoProgress Reason = "no-progress"

	// Stuck: the function has not come back to the engine for 30 s. It blocks
	// on something that is not the engine's, or computes for long. The reason
	// goes when the function comes back.
	Stuck Reason = "stuck"

	// Deaf: an attempt of an activity has not returned, though its time was up and
	// Settle has passed since. It heeds nothing that its context tells, and keeps its
	// place among MaxActivities; no other attempt begins, and the rest of the run
	// goes on. The reason goes when it returns.
	Deaf Reason = "deaf"

	// Damaged: a record of the run is not what was written.
	Damaged Reason = "damaged"

	// BadDefinition: an activity that the workflow uses is not well defined.
	BadDefinition Reason = "bad-definition"

	// Undecodable: today's code cannot decode something that is stored for the run: its
	// input, a result or a signal. The workflow's function has not seen it. The run goes
	// on with code that can: an engine that is started with it tries by itself, and
	// Engine.Retry has it tried at once. A signal that was not received yet may also be
	// taken away by Engine.ClearSignal. Of a result that a Compensate needs,
	// Engine.Resolve says what follows. A result that Engine.Resolve gave is no cause: it
	// is decoded before it is the outcome, and the reason is Indeterminate.
	Undecodable Reason = "undecodable"

	// Indeterminate: nobody can tell what became of an activity that has Park, or the
	// result that Engine.Resolve gave cannot be decoded as the activity's. The rest of
	// the run goes on; Engine.Resolve settles it.
	Indeterminate Reason = "indeterminate"

	// Uncompensated: the workflow ends without success, and a Compensate of it has
	// failed for good. Nothing before it is undone until Engine.Resolve says what
	// follows. The Operation is "3.undo", of the call "3".
	Uncompensated Reason = "uncompensated"
)

// A Cancellation is a request to stop.
type Cancellation struct {
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
		i.Cancel = &Cancellation{c.Reason, checkpoint.Time(c.At)}
	}
	return i
}
