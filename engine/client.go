package engine

import (
	"context"
	"errors"
	"fmt"

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
		i.Attention = append(i.Attention, Attention{Reason: Reason(a.Reason), Operation: a.Operation, Name: a.Name, Detail: a.Detail, Since: checkpoint.Time(a.Since)})
	}
	i.Waiting = wf.Facing
	if wf.Waits {
		i.Waiting = []string{fmt.Sprintf("admission to queue %q", wf.Queue)}
	}
	if wf.Parent != nil {
		i.Parent = wf.Parent.ID
	}
	if c := wf.Cancel; c != nil {
		i.Cancel = &Cancellation{By: c.By, Reason: c.Reason, At: checkpoint.Time(c.At)}
	}
	return i
}
