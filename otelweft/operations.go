package otelweft

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
)

// operations are the spans of operations, by the id of the workflow and by operation. An operation
// ends when its function has completed. After a failure it is not known whether another attempt
// follows, so its span is recorded with the execution, and ends when its last attempt did.
type operations struct {
	mu   sync.Mutex
	runs map[string]map[string]*operation
}

type operation struct {
	span    trace.Span
	going   int       // its attempts in progress
	left    bool      // it has completed, or its execution has ended: no attempt follows
	last    time.Time // when its last attempt ended
	outcome engine.AttemptOutcome
	failure string // of the last attempt
}

// operationOf is the key of the *operation in the context of an attempt.
type operationOf struct{}

// enter returns a context with the span of the operation of an attempt, and begins it if this is
// its first attempt in this execution. In ctx is the span of the execution.
func (o *operations) enter(ctx context.Context, tracer trace.Tracer, e engine.AttemptBeganEvent) context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	op := o.runs[e.WorkflowID][e.Operation]
	if op == nil {
		if o.runs == nil {
			o.runs = map[string]map[string]*operation{}
		}
		if o.runs[e.WorkflowID] == nil {
			o.runs[e.WorkflowID] = map[string]*operation{}
		}
		op = new(operation)
		o.runs[e.WorkflowID][e.Operation] = op
		_, op.span = tracer.Start(ctx, e.Kind+" "+e.Name, trace.WithAttributes(
			named(e.Workflow, e.Kind, e.Name, idKey.String(e.WorkflowID), operationKey.String(e.Operation), nameKey.String(e.Name))...))
	}
	op.going++
	return context.WithValue(trace.ContextWithSpan(ctx, op.span), operationOf{}, op)
}

// attempted notes that an attempt has ended, whose context is ctx.
func (o *operations) attempted(ctx context.Context, e engine.AttemptEndedEvent) {
	op, ok := ctx.Value(operationOf{}).(*operation)
	if !ok {
		return // a callback of the host has replaced the context
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	op.going--
	op.last, op.outcome, op.failure = time.Now(), e.Outcome, e.Error
	switch {
	case op.left:
		op.end()
	case e.Outcome == engine.AttemptCompleted && e.Phase != activity.PhaseVerify:
		op.left = true // if another attempt is in progress, the operation ends with that
		op.end()
		delete(o.runs[e.WorkflowID], e.Operation)
	}
}

// leave ends the spans of the operations of an execution that ends. One that is attempted still, ends
// with that attempt.
func (o *operations) leave(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, op := range o.runs[id] {
		op.left = true
		op.end()
	}
	delete(o.runs, id)
}

// end ends the span if no attempt is in progress.
func (op *operation) end() {
	if op.going == 0 {
		conclude(op.span, op.outcome, op.failure)
		op.span.End(trace.WithTimestamp(op.last))
	}
}

// conclude notes on a span how an attempt has ended.
func conclude(span trace.Span, outcome engine.AttemptOutcome, failure string) {
	span.SetAttributes(outcomeKey.String(string(outcome)))
	switch outcome {
	case engine.AttemptFailed, engine.AttemptTimedOut, engine.AttemptPanicked:
		span.SetStatus(codes.Error, failure)
	}
}
