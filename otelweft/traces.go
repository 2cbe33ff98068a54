package otelweft

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
)

// The attributes of spans that metrics must not have.
const (
	idKey        = attribute.Key("weft.workflow.id")
	parentKey    = attribute.Key("weft.parent.id")
	operationKey = attribute.Key("weft.operation")
	nameKey      = attribute.Key("weft.name")
	attemptKey   = attribute.Key("weft.attempt")
	firstKey     = attribute.Key("weft.first")
)

// starting makes the first span of a run. It has no duration: the start may be one of many in a
// commit.
func (o *Observer) starting(ctx context.Context, e engine.StartingEvent) context.Context {
	a := queued(e.Workflow, e.Queue, idKey.String(e.WorkflowID))
	if e.Parent != "" {
		a = append(a, parentKey.String(e.Parent))
	}
	ctx, span := o.tracer.Start(ctx, "start "+e.Workflow, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(a...))
	span.End()
	return ctx
}

// executionBegan begins the span of an execution. In ctx is the span of the start, from the
// headers that were stored with the run. A later execution links to it.
func (o *Observer) executionBegan(ctx context.Context, e engine.ExecutionBeganEvent) context.Context {
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(queued(e.Workflow, e.Queue, idKey.String(e.WorkflowID), firstKey.Bool(e.First))...),
	}
	if !e.First {
		options = append(options, trace.WithNewRoot())
		if started := trace.SpanContextFromContext(ctx); started.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: started}))
		}
	}
	ctx, _ = o.tracer.Start(ctx, "run "+e.Workflow, options...)
	o.began(ctx, e.Workflow)
	return context.WithValue(ctx, executionOf{}, &execution{operations: map[string]*operation{}})
}

func (o *Observer) executionEnded(ctx context.Context, e engine.ExecutionEndedEvent) {
	leave(ctx)
	span := trace.SpanFromContext(ctx)
	span.SetAttributes(exitKey.String(string(e.Exit)))
	if e.Exit == engine.ExitEnded {
		span.SetAttributes(statusKey.String(string(e.Status)))
	}
	switch {
	case e.Exit == engine.ExitHeld:
		span.SetStatus(codes.Error, "the run needs an operator")
	case e.Status == checkpoint.StatusFailed:
		span.SetStatus(codes.Error, e.Error)
	}
	span.End()
	o.left(ctx, e)
}

func (o *Observer) attemptBegan(ctx context.Context, e engine.AttemptBeganEvent) context.Context {
	ctx = enter(ctx, o.tracer, e)
	what := "attempt"
	if e.Phase != activity.PhaseRun {
		what = string(e.Phase)
	}
	a := named(e.Workflow, e.Kind, e.Name, idKey.String(e.WorkflowID), operationKey.String(e.Operation),
		nameKey.String(e.Name), phaseKey.String(string(e.Phase)), attemptKey.Int(e.Attempt))
	ctx, _ = o.tracer.Start(ctx, what+" "+e.Name, trace.WithAttributes(a...))
	o.attempted(ctx, 1, e)
	return ctx
}

func (o *Observer) attemptEnded(ctx context.Context, e engine.AttemptEndedEvent) {
	span := trace.SpanFromContext(ctx)
	conclude(span, e.Outcome, e.Error)
	span.End()
	attempted(ctx, e)
	o.attempted(ctx, -1, e.AttemptBeganEvent)
	o.attemptTook(ctx, e)
}
