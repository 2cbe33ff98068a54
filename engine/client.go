package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft/signal"
)

// A Client is the untyped interface for transports, tools and dashboards. An *Engine and a
// *Tx implement it. Later releases may add methods, so an implementation in another package
// embeds UnimplementedClient. If its errors are those of the engine, a Handle and a
// signal.Signal work with it as with an engine.
type Client interface {
	signal.Sender

	// StartWorkflow starts the workflow that r describes. See Workflow.Start.
	StartWorkflow(ctx context.Context, r *StartRequest) (Info, error)

	// Result waits for the end of a workflow and decodes its result into result,
	// a pointer or nil. An empty workflow name stands for any. The error of a workflow that
	// failed is a new *WorkflowError. If the client does not have the workflow, Sentinel is nil,
	// and Handle.Result sets it to the one of Workflow.Errors whose text is SentinelText.
	Result(ctx context.Context, id, workflow string, result any) error

	// Cancel requests the cancellation of a workflow. See Engine.Cancel.
	Cancel(ctx context.Context, id string, by Actor) error

	// Describe returns the state of a workflow.
	Describe(ctx context.Context, id string) (Info, error)

	// ReadValue decodes a value that a workflow has published into value, a pointer. See
	// Value.Read.
	ReadValue(ctx context.Context, id, name string, value any) error

	// AwaitValue calls enough with a value, and again with later ones, until it returns true or an
	// error. The argument of enough decodes the value into a pointer. See Value.Await.
	AwaitValue(ctx context.Context, id, name string, enough func(decode func(value any) error) (bool, error)) error

	// CallUpdate calls an update, waits for the answer and decodes it into result, a pointer or nil.
	// The Sentinel of a *RejectedError or an *UpdateError may be nil: Update.Call sets it to the one of
	// Update.Errors whose text is SentinelText. See Update.Call.
	CallUpdate(ctx context.Context, r *UpdateRequest, result any) error

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

// ReadValue returns an error that wraps errors.ErrUnsupported.
func (UnimplementedClient) ReadValue(context.Context, string, string, any) error {
	return unimplemented("ReadValue")
}

// AwaitValue returns an error that wraps errors.ErrUnsupported.
func (UnimplementedClient) AwaitValue(context.Context, string, string, func(func(any) error) (bool, error)) error {
	return unimplemented("AwaitValue")
}

// CallUpdate returns an error that wraps errors.ErrUnsupported.
func (UnimplementedClient) CallUpdate(context.Context, *UpdateRequest, any) error {
	return unimplemented("CallUpdate")
}

func (UnimplementedClient) embedsUnimplementedClient() {}
func (*Engine) embedsUnimplementedClient()             {}
func (*Tx) embedsUnimplementedClient()                 {}

func unimplemented(method string) error {
	return fmt.Errorf("engine: this client does not implement %s: %w", method, errors.ErrUnsupported)
}

// StartWorkflow starts the workflow that r describes. See Workflow.Start.
func (e *Engine) StartWorkflow(ctx context.Context, r *StartRequest) (Info, error) {
	return e.intake.StartWorkflow(ctx, r)
}

// SendSignal sends a signal to a workflow. See signal.Signal.Send.
func (e *Engine) SendSignal(ctx context.Context, m signal.Message) (signal.Accepted, error) {
	return e.intake.SendSignal(ctx, m)
}

// Result waits for the end of a workflow and decodes its result into result, a
// pointer or nil. An empty workflow name stands for any. See Handle.Result.
func (e *Engine) Result(ctx context.Context, id, workflow string, result any) error {
	return e.reader.Result(ctx, id, workflow, result)
}

// Cancel requests the cancellation of a workflow. A nil error means that the request is
// durable, not that the workflow will end cancelled: its function may already have
// returned, or may still return a result. Result returns how the workflow ended. Describe
// returns the request in Info.Cancel, also if the workflow completed. A second request
// changes nothing, and its error is nil too. Both fields of by may be empty.
//
// If the workflow is held, the request is durable and the error is a *HeldError: its
// function reacts when it continues, or Terminate ends it.
//
// If a request and the end of the workflow race, the one that is committed first counts.
// If that is the end, the error is a *TerminalError, and Info.Cancel stays nil. Other
// errors: ErrNotFound, ErrInvalid, ErrClosed, the store's.
func (e *Engine) Cancel(ctx context.Context, id string, by Actor) error {
	return e.admin.Cancel(ctx, id, by)
}

// Payloads returns the input and the outcome of a workflow as they are stored, without decoding
// them, and the state to which they belong. It does not wait for the end of the workflow. Errors:
// ErrNotFound, ErrInvalid, ErrClosed, storage.ErrCorrupt if one of them is damaged, the store's.
func (e *Engine) Payloads(ctx context.Context, id string) (Payloads, error) {
	return e.reader.Payloads(ctx, id)
}

// Describe returns the state of a workflow. Errors: ErrNotFound, ErrInvalid,
// ErrClosed, the store's.
func (e *Engine) Describe(ctx context.Context, id string) (Info, error) {
	return e.reader.Describe(ctx, id)
}
