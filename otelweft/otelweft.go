// Package otelweft turns the events of a Weft engine into OpenTelemetry metrics and traces.
//
//	observer, err := otelweft.New(otelweft.Options{})
//	if err != nil {
//		return err
//	}
//	config := engine.Config{Storage: store, Workflows: workflows}
//	observer.Instrument(&config)
//	eng, err := engine.New(config)
//
// With no Options it uses the global providers of package otel. It exports nothing by itself
// and starts no goroutine: set up the exporters of the OpenTelemetry SDK, for OTLP, Prometheus
// or another system.
//
// # Metrics
//
// Durations are histograms in seconds. Their numbers of values are the numbers of what ended.
//
//	weft.run.starts           counter    workflow, queue
//	weft.run.duration         histogram  workflow, queue, status
//	weft.run.removed          counter    workflow, status, cause
//	weft.queue.wait           histogram  workflow, queue
//	weft.execution.active     up-down    workflow
//	weft.execution.duration   histogram  workflow, exit
//	weft.replay.duration      histogram  workflow
//	weft.replay.events        histogram  workflow
//	weft.attempt.active       up-down    workflow, kind, activity, phase
//	weft.attempt.duration     histogram  workflow, kind, activity, phase, outcome
//	weft.attempt.retries      counter    workflow, kind, activity
//	weft.attention.raised     counter    workflow, reason
//	weft.attention.cleared    counter    workflow, reason
//	weft.signal.accepted      counter    duplicate
//	weft.signal.received      counter    workflow
//	weft.commit.duration      histogram  outcome
//	weft.commit.size          histogram  outcome
//	weft.commit.group         histogram  outcome
//	weft.claim.takeovers      counter
//	weft.claim.lost_races     counter
//	weft.commit.fenced        counter
//	weft.replay.input_changes counter
//	weft.lease.lost           counter
//
// The names of attributes begin with "weft.": weft.workflow is the name of the workflow, and
// weft.activity that of the activity. A step has no name here, because a program may compute
// it. No attribute of a metric is an id.
//
// # Traces
//
// A start has the span "start NAME", below the span in its context. It is the first span of the
// run. The first execution of the run is the span "run NAME" below that. Each later execution,
// after the run was parked or its engine died, is a span "run NAME" of a trace of its own, with a
// link to the start. An operation that calls a function is a span "activity NAME" or "step NAME" below
// the execution. Its attempts are spans "attempt NAME", "verify NAME" and "compensate NAME" below
// that, and are in the context of the function that is called. The start of a child is below the
// execution of its parent.
//
// A span is recorded when it ends, that of an operation which has failed at the latest with its
// execution. If the process dies, the spans that it had begun are lost. Later executions still have
// their link, and an operation that they continue has another span.
package otelweft

import (
	"context"
	"fmt"
	"maps"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/weft-go/weft/engine"
)

// scope is the name of the instrumentation.
const scope = "github.com/weft-go/weft/otelweft"

// Options are the parts of an Observer. The zero value is right for most programs.
type Options struct {
	// TracerProvider makes the spans. The default is the global one.
	TracerProvider trace.TracerProvider

	// MeterProvider makes the instruments. The default is the global one.
	MeterProvider metric.MeterProvider

	// Propagator says what of the context of a start is stored with the run, in plain text.
	// The default is propagation.TraceContext: the W3C headers traceparent and tracestate.
	// It does not include baggage, which may contain what is not to be stored.
	Propagator propagation.TextMapPropagator
}

// An Observer observes engines. It is safe for concurrent use by several of them.
type Observer struct {
	instruments
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
}

// New returns an observer. The error is that of an instrument which the MeterProvider refuses.
func New(o Options) (*Observer, error) {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.Propagator == nil {
		o.Propagator = propagation.TraceContext{}
	}
	ob := &Observer{tracer: o.TracerProvider.Tracer(scope), propagator: o.Propagator}
	if err := ob.instruments.make(o.MeterProvider.Meter(scope)); err != nil {
		return nil, fmt.Errorf("otelweft: %w", err)
	}
	return ob, nil
}

// Instrument adds o's callbacks to c.Events and its propagator to c.Propagator. What c has
// already stays, and is called first. Call it once for each Config, before engine.New.
func (o *Observer) Instrument(c *engine.Config) {
	c.Propagator = propagators{c.Propagator, o}
	e := &c.Events
	e.Starting = begin(e.Starting, o.starting)
	e.Started = after(e.Started, o.started)
	e.Admitted = after(e.Admitted, o.admitted)
	e.ExecutionBegan = begin(e.ExecutionBegan, o.executionBegan)
	e.Replayed = after(e.Replayed, o.replayed)
	e.ExecutionEnded = end(e.ExecutionEnded, o.executionEnded)
	e.Ended = after(e.Ended, o.ended)
	e.Removed = after(e.Removed, o.removed)
	e.AttemptBegan = begin(e.AttemptBegan, o.attemptBegan)
	e.AttemptEnded = end(e.AttemptEnded, o.attemptEnded)
	e.RetryScheduled = after(e.RetryScheduled, o.retryScheduled)
	e.AttentionRaised = after(e.AttentionRaised, o.attentionRaised)
	e.AttentionCleared = after(e.AttentionCleared, o.attentionCleared)
	e.SignalAccepted = after(e.SignalAccepted, o.signalAccepted)
	e.SignalReceived = after(e.SignalReceived, o.signalReceived)
	e.Committed = after(e.Committed, o.committed)
	e.Takeover = after(e.Takeover, count[engine.TakeoverEvent](o.takeovers))
	e.LostRace = after(e.LostRace, count[engine.LostRaceEvent](o.lostRaces))
	e.Fenced = after(e.Fenced, count[engine.FencedEvent](o.fenced))
	e.InputChanged = after(e.InputChanged, count[engine.InputChangedEvent](o.inputChanges))
	e.Deposed = after(e.Deposed, count[engine.DeposedEvent](o.leasesLost))
}

// after returns f after first, which may be nil.
func after[E any](first, f func(E)) func(E) {
	if first == nil {
		return f
	}
	return func(e E) {
		first(e)
		f(e)
	}
}

// begin is after for callbacks that return a context.
func begin[E any](first, f func(context.Context, E) context.Context) func(context.Context, E) context.Context {
	if first == nil {
		return f
	}
	return func(ctx context.Context, e E) context.Context {
		if with := first(ctx, e); with != nil {
			ctx = with
		}
		return f(ctx, e)
	}
}

// end is after for callbacks that get a context.
func end[E any](first, f func(context.Context, E)) func(context.Context, E) {
	if first == nil {
		return f
	}
	return func(ctx context.Context, e E) {
		first(ctx, e)
		f(ctx, e)
	}
}

// propagators are the engine's own propagator, which may be nil, and the observer's.
type propagators struct {
	own engine.Propagator
	*Observer
}

func (p propagators) Inject(ctx context.Context) map[string]string {
	headers := map[string]string{}
	if p.own != nil {
		maps.Copy(headers, p.own.Inject(ctx))
	}
	p.propagator.Inject(ctx, propagation.MapCarrier(headers))
	return headers
}

func (p propagators) Extract(ctx context.Context, headers map[string]string) context.Context {
	if p.own != nil {
		if with := p.own.Extract(ctx, headers); with != nil {
			ctx = with
		}
	}
	return p.propagator.Extract(ctx, propagation.MapCarrier(headers))
}
