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

// An execution has the spans of its operations. An operation ends when its function has completed. After a failure it is not
// known whether another attempt follows, so its span is kept in the execution, and ends when its last attempt did.
type execution struct {
	mu         sync.Mutex
	left       bool                  // it has ended
	operations map[string]*operation // that may be attempted again
}

// executionOf is the key of the *execution in its context.
type executionOf struct{}

type operation struct {
	of      *execution
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
// its first attempt in this execution. In ctx are the execution and its span. An attempt may begin when the execution
// has ended; then its operation ends with it.
func enter(ctx context.Context, tracer trace.Tracer, e engine.AttemptBeganEvent) context.Context {
	x, ok := ctx.Value(executionOf{}).(*execution)
	if !ok {
		x = &execution{left: true} // a callback of the host has replaced the context
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	op := x.operations[e.Operation]
	if op == nil {
		op = &operation{of: x, left: x.left}
		if !x.left {
			x.operations[e.Operation] = op
		}
		_, op.span = tracer.Start(ctx, e.Kind+" "+e.Name, trace.WithAttributes(
			named(e.Workflow, e.Kind, e.Name, idKey.String(e.WorkflowID), operationKey.String(e.Operation), nameKey.String(e.Name))...))
	}
	op.going++
	return context.WithValue(trace.ContextWithSpan(ctx, op.span), operationOf{}, op)
}

// attempted notes that an attempt has ended, whose context is ctx.
func attempted(ctx context.Context, e engine.AttemptEndedEvent) {
	op, ok := ctx.Value(operationOf{}).(*operation)
	if !ok {
		return // a callback of the host has replaced the context
	}
	op.of.mu.Lock()
	defer op.of.mu.Unlock()
	op.going--
	op.last, op.outcome, op.failure = time.Now(), e.Outcome, e.Error
	switch {
	case op.left:
		op.end()
	case e.Outcome == engine.AttemptCompleted && e.Phase != activity.PhaseVerify:
		op.left = true // if another attempt is in progress, the operation ends with that
		op.end()
		delete(op.of.operations, e.Operation)
	}
}

// leave ends the spans of the operations of an execution that ends, whose context is ctx. One that is attempted still, ends
// with that attempt.
func leave(ctx context.Context) {
	x, ok := ctx.Value(executionOf{}).(*execution)
	if !ok {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, op := range x.operations {
		op.left = true
		op.end()
	}
	x.left, x.operations = true, nil
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
