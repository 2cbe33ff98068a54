package otelweft_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/otelweft"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// A process is an engine with an observer and what that has recorded.
type process struct {
	*engine.Engine
	tracer trace.Tracer
	spans  *tracetest.InMemoryExporter
	reader *sdkmetric.ManualReader
	stop   func()
}

// boot starts an engine on s.
func boot(t *testing.T, s storage.Storage, change func(*engine.Config), workflows ...engine.Definition) *process {
	t.Helper()
	p := &process{spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(p.spans))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(p.reader))
	p.tracer = tracers.Tracer("host")
	observer, err := otelweft.New(otelweft.Options{TracerProvider: tracers, MeterProvider: meters})
	if err != nil {
		t.Fatal(err)
	}
	p.Engine, p.stop = run(t, s, observer, change, workflows...)
	t.Cleanup(func() {
		p.stop()
		if err := errors.Join(tracers.Shutdown(context.Background()), meters.Shutdown(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return p
}

// run starts an engine on s that o observes. The engine executes what is started after that.
func run(t *testing.T, s storage.Storage, o *otelweft.Observer, change func(*engine.Config), workflows ...engine.Definition) (*engine.Engine, func()) {
	t.Helper()
	c := engine.Config{Storage: s, Workflows: workflows, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), PollInterval: 10 * time.Millisecond}
	if change != nil {
		change(&c)
	}
	o.Instrument(&c)
	eng, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- eng.Run(ctx) }()
	return eng, sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		eng.Close()
	})
}

// ended waits for spans with these names and returns them, by name. Two with one name have "#2"
// and so on after it, in the order in which they ended.
func (p *process) ended(t *testing.T, names ...string) map[string]tracetest.SpanStub {
	t.Helper()
	found := map[string]tracetest.SpanStub{}
	eventually(t, func() bool {
		clear(found)
		for _, s := range p.spans.GetSpans() {
			name := s.Name
			for n := 2; ; n++ {
				if _, taken := found[name]; !taken {
					break
				}
				name = fmt.Sprintf("%s#%d", s.Name, n)
			}
			found[name] = s
		}
		return len(found) >= len(names)
	}, func() string { return fmt.Sprintf("spans %v, want %v", slices.Sorted(maps.Keys(found)), names) })
	slices.Sort(names)
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, names) {
		t.Fatalf("spans %v, want %v", got, names)
	}
	return found
}

func eventually(t *testing.T, ok func() bool, or func() string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(or())
		}
	}
}

// metrics returns the values of the counters and the counts of the histograms, by name, unit and
// attributes.
func (p *process) metrics(t *testing.T) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := p.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	values := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			add := func(set attribute.Set, v int64) {
				name := m.Name + " " + m.Unit
				for _, a := range set.ToSlice() {
					short, ours := strings.CutPrefix(string(a.Key), "weft.")
					if !ours || short == "workflow.id" || a.Value.String() == "o-1" {
						t.Errorf("%s has the attribute %s=%s", m.Name, a.Key, a.Value.String())
					}
					name += " " + short + "=" + a.Value.String()
				}
				values[name] = v
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Histogram[int64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, int64(p.Count))
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, int64(p.Count))
				}
			default:
				t.Errorf("%s is a %T", m.Name, d)
			}
		}
	}
	return values
}

// expect waits until the metrics have these values. Others are not compared.
func (p *process) expect(t *testing.T, want map[string]int64) {
	t.Helper()
	var got map[string]int64
	eventually(t, func() bool {
		got = p.metrics(t)
		for name, v := range want {
			if got[name] != v {
				return false
			}
		}
		return true
	}, func() string {
		var lines []string
		for _, name := range slices.Sorted(maps.Keys(got)) {
			lines = append(lines, fmt.Sprintf("%q: %d,", name, got[name]))
		}
		return fmt.Sprintf("metrics:\n%s\nwant %v", strings.Join(lines, "\n"), want)
	})
}

// below checks that child is a child span of parent.
func below(t *testing.T, child, parent tracetest.SpanStub) {
	t.Helper()
	if child.Parent.SpanID() != parent.SpanContext.SpanID() || child.SpanContext.TraceID() != parent.SpanContext.TraceID() {
		t.Errorf("%q is not below %q", child.Name, parent.Name)
	}
}

// has checks attributes of a span, without "weft." in their names.
func has(t *testing.T, s tracetest.SpanStub, want ...string) {
	t.Helper()
	var got []string
	for _, a := range s.Attributes {
		got = append(got, strings.TrimPrefix(string(a.Key), "weft.")+"="+a.Value.String())
	}
	for _, a := range want {
		if !slices.Contains(got, a) {
			t.Errorf("%q has the attributes %v, and not %s", s.Name, got, a)
		}
	}
}

var errDeclined = errors.New("card declined")

var approved = &signal.Signal[string]{Name: "approved"}

// charging is an activity that fails as often as failures says, and notes the spans in which it was
// called.
func charging(failures int, spans *[]trace.SpanContext) *activity.Activity[string, string] {
	return &activity.Activity[string, string]{
		Name:  "charge",
		Retry: activity.Retry{MaxAttempts: 2, Backoff: time.Millisecond},
		Run: func(ctx context.Context, _ string) (string, error) {
			*spans = append(*spans, trace.SpanContextFromContext(ctx))
			if len(*spans) <= failures {
				return "", errDeclined
			}
			return "paid", nil
		},
	}
}

// A run that is attempted again: the host's span, the start, the run and its attempts are one
// trace, and an attempt's span is in the context of its function.
func TestRun(t *testing.T) {
	var in []trace.SpanContext
	charge := charging(1, &in)
	order := &engine.Workflow[string, string]{Name: "order", Defaults: engine.StartOptions{Queue: "shop"}, Func: func(run *engine.Run, _ string) (string, error) {
		s, err := charge.Do(run, "")
		_, err2 := engine.Step(run, "note", func(context.Context) (string, error) { return "", nil })
		return s, errors.Join(err, err2)
	}}
	p := boot(t, new(memory.Store), func(c *engine.Config) { c.Queues = []engine.Queue{{Name: "shop"}} }, order)
	ctx, request := p.tracer.Start(t.Context(), "request")
	h, err := order.Start(ctx, p, "o-1", "")
	if err != nil {
		t.Fatal(err)
	}
	request.End()
	if _, err := h.Result(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := p.ended(t, "request", "start order", "run order", "activity charge", "attempt charge", "attempt charge#2", "step note", "attempt note")
	below(t, s["start order"], s["request"])
	below(t, s["run order"], s["start order"])
	below(t, s["activity charge"], s["run order"])
	below(t, s["attempt charge"], s["activity charge"])
	below(t, s["attempt charge#2"], s["activity charge"])
	below(t, s["step note"], s["run order"])
	below(t, s["attempt note"], s["step note"])
	has(t, s["start order"], "workflow=order", "workflow.id=o-1", "queue=shop")
	has(t, s["run order"], "workflow=order", "workflow.id=o-1", "queue=shop", "first=true", "exit=ended", "status=completed")
	has(t, s["activity charge"], "workflow.id=o-1", "operation=1", "outcome=completed", "activity=charge")
	has(t, s["attempt charge"], "workflow.id=o-1", "operation=1", "attempt=1", "outcome=failed", "activity=charge", "phase=run")
	has(t, s["attempt charge#2"], "attempt=2", "outcome=completed")
	has(t, s["step note"], "kind=step", "name=note", "outcome=completed")
	if op := s["activity charge"]; op.Status.Code != codes.Unset || op.StartTime.After(s["attempt charge"].StartTime) || op.EndTime.Before(s["attempt charge#2"].EndTime) {
		t.Errorf("the operation took from %v to %v, with %+v", op.StartTime, op.EndTime, op.Status)
	}
	if first := s["attempt charge"]; first.Status.Code != codes.Error || first.Status.Description != "card declined" || len(s["run order"].Links) != 0 {
		t.Errorf("first attempt: %+v; links of the run: %v", first.Status, s["run order"].Links)
	}
	for i, name := range []string{"attempt charge", "attempt charge#2"} {
		if in[i].SpanID() != s[name].SpanContext.SpanID() {
			t.Errorf("%s was called in the span %v", name, in[i])
		}
	}
	p.expect(t, map[string]int64{
		"weft.run.starts {run} queue=shop workflow=order":                                                  1,
		"weft.queue.wait s queue=shop workflow=order":                                                      1,
		"weft.run.duration s queue=shop status=completed workflow=order":                                   1,
		"weft.execution.active {execution} workflow=order":                                                 0,
		"weft.execution.duration s exit=ended workflow=order":                                              1,
		"weft.attempt.active {attempt} activity=charge kind=activity phase=run workflow=order":             0,
		"weft.attempt.duration s activity=charge kind=activity outcome=failed phase=run workflow=order":    1,
		"weft.attempt.duration s activity=charge kind=activity outcome=completed phase=run workflow=order": 1,
		"weft.attempt.duration s kind=step outcome=completed phase=run workflow=order":                     1,
		"weft.attempt.retries {attempt} activity=charge kind=activity workflow=order":                      1,
	})
	m := p.metrics(t)
	if m["weft.commit.duration s outcome=applied"] < 5 || m["weft.commit.duration s outcome=applied"] != m["weft.commit.size By outcome=applied"] ||
		m["weft.commit.duration s outcome=applied"] != m["weft.commit.group {batch} outcome=applied"] {
		t.Errorf("commits: %v", m)
	}
}

// A parked run that another engine continues has a span of a trace of its own, which links to the
// run's first span. The signal is counted by the engine that has accepted it.
func TestContinuedElsewhere(t *testing.T) {
	var in []trace.SpanContext
	charge := charging(0, &in)
	order := &engine.Workflow[string, string]{Name: "order", Func: func(run *engine.Run, _ string) (string, error) {
		_, err := approved.Receive(run)
		_, err2 := charge.Do(run, "")
		return "", errors.Join(err, err2)
	}}
	store := new(memory.Store)
	first := boot(t, store, func(c *engine.Config) { c.ParkAfter = -1 }, order)
	if _, err := order.Start(t.Context(), first, "o-1", ""); err != nil {
		t.Fatal(err)
	}
	s := first.ended(t, "start order", "run order")
	below(t, s["run order"], s["start order"])
	has(t, s["run order"], "exit=parked", "first=true")
	first.expect(t, map[string]int64{
		"weft.execution.active {execution} workflow=order":     0,
		"weft.execution.duration s exit=parked workflow=order": 1,
	})
	first.stop()

	second := boot(t, store, nil, order)
	for range 2 {
		if _, err := approved.Send(t.Context(), second, "o-1", "ann", &signal.Options{ID: "s-1"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := order.Handle(second, "o-1").Result(t.Context()); err != nil {
		t.Fatal(err)
	}
	then := second.ended(t, "run order", "activity charge", "attempt charge")
	below(t, then["activity charge"], then["run order"])
	has(t, then["run order"], "workflow.id=o-1", "exit=ended", "first=false")
	started := s["start order"].SpanContext
	if links := then["run order"].Links; len(links) != 1 || links[0].SpanContext.SpanID() != started.SpanID() || links[0].SpanContext.TraceID() != started.TraceID() {
		t.Errorf("links %v, want one to %v", links, started)
	}
	if then["run order"].Parent.IsValid() || then["run order"].SpanContext.TraceID() == started.TraceID() {
		t.Error("the second execution is in the trace of the first")
	}
	second.expect(t, map[string]int64{
		"weft.signal.accepted {signal} duplicate=false":       1,
		"weft.signal.accepted {signal} duplicate=true":        1,
		"weft.signal.received {signal} workflow=order":        1,
		"weft.replay.duration s workflow=order":               1,
		"weft.replay.events {event} workflow=order":           1,
		"weft.run.duration s status=completed workflow=order": 1,
		"weft.run.starts {run} workflow=order":                0,
	})
}

// A run that fails, and one that needs an operator, have spans with an error.
func TestFailedAndHeld(t *testing.T) {
	fails := &engine.Workflow[string, string]{Name: "fails", Func: func(*engine.Run, string) (string, error) { return "", errDeclined }}
	asks := &engine.Workflow[string, string]{Name: "asks", Func: func(run *engine.Run, _ string) (string, error) {
		return (&activity.Activity[chan int, string]{Name: "wrong", Idempotent: true, IdempotencyKey: func(chan int) string { return "" },
			Run: func(context.Context, chan int) (string, error) { return "", nil }}).Do(run, nil)
	}}
	p := boot(t, new(memory.Store), nil, fails, asks)
	h, err := fails.Start(t.Context(), p, "o-1", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Result(t.Context()); err == nil {
		t.Error("no error")
	}
	run := p.ended(t, "start fails", "run fails")["run fails"]
	if has(t, run, "status=failed"); run.Status.Code != codes.Error || run.Status.Description != "card declined" {
		t.Errorf("%+v", run.Status)
	}
	p.expect(t, map[string]int64{"weft.run.duration s status=failed workflow=fails": 1})

	p.spans.Reset()
	if _, err := asks.Start(t.Context(), p, "o-2", ""); err != nil {
		t.Fatal(err)
	}
	run = p.ended(t, "start asks", "run asks")["run asks"]
	if has(t, run, "exit=held"); run.Status.Code != codes.Error {
		t.Errorf("%+v", run.Status)
	}
	p.expect(t, map[string]int64{"weft.attention.raised {reason} reason=bad-definition workflow=asks": 1})
	if err := p.Terminate(t.Context(), "o-2", engine.Actor{Name: "ann", Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	p.expect(t, map[string]int64{
		"weft.attention.cleared {reason} reason=bad-definition workflow=asks": 1,
		"weft.run.duration s status=cancelled workflow=asks":                  1,
	})
	for id, remove := range map[string]func(context.Context, string, engine.Actor) error{"o-1": p.Purge, "o-2": p.Delete} {
		if err := remove(t.Context(), id, engine.Actor{Name: "ann", Reason: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	p.expect(t, map[string]int64{
		"weft.run.removed {run} cause=purge status=failed workflow=fails":    1,
		"weft.run.removed {run} cause=delete status=cancelled workflow=asks": 1,
	})
}

// An operation that has failed ends when its last attempt did, although the run goes on.
func TestFailedOperation(t *testing.T) {
	var in []trace.SpanContext
	charge := charging(9, &in)
	charge.Retry = activity.Retry{MaxAttempts: 2, Backoff: time.Millisecond}
	order := &engine.Workflow[string, string]{Name: "order", Func: func(run *engine.Run, _ string) (string, error) {
		if _, err := charge.Do(run, ""); err == nil {
			return "", errors.New("it did not fail")
		}
		return "", run.Sleep(100 * time.Millisecond)
	}}
	p := boot(t, new(memory.Store), func(c *engine.Config) { c.ParkAfter = time.Hour }, order)
	h, err := order.Start(t.Context(), p, "o-1", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Result(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := p.ended(t, "start order", "run order", "activity charge", "attempt charge", "attempt charge#2")
	op := s["activity charge"]
	has(t, op, "outcome=failed")
	if op.Status.Code != codes.Error || op.Status.Description != "card declined" {
		t.Errorf("the operation: %+v", op.Status)
	}
	if late := op.EndTime.Sub(s["attempt charge#2"].EndTime); late < 0 || s["run order"].EndTime.Sub(op.EndTime) < 100*time.Millisecond {
		t.Errorf("the operation ended %v after its last attempt, and %v before the run", late, s["run order"].EndTime.Sub(op.EndTime))
	}
}

// An attempt may begin when its execution has ended, or while another engine executes the run: each operation is that of its own
// execution, and ends.
func TestAttemptsOfTwoExecutions(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	observer, err := otelweft.New(otelweft.Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))})
	if err != nil {
		t.Fatal(err)
	}
	var c engine.Config
	observer.Instrument(&c)
	began := func(name string) context.Context {
		return c.Events.ExecutionBegan(t.Context(), engine.ExecutionBeganEvent{WorkflowID: "r", Workflow: name, First: true})
	}
	attempt := engine.AttemptBeganEvent{WorkflowID: "r", Operation: "1", Kind: "step", Name: "s", Phase: activity.PhaseRun}
	fail := func(ctx context.Context) {
		c.Events.AttemptEnded(ctx, engine.AttemptEndedEvent{AttemptBeganEvent: attempt, Outcome: engine.AttemptFailed})
	}
	one, two := began("one"), began("two")
	fail(c.Events.AttemptBegan(two, attempt))
	fail(c.Events.AttemptBegan(one, attempt))
	c.Events.ExecutionEnded(one, engine.ExecutionEndedEvent{WorkflowID: "r", Workflow: "one"})
	c.Events.ExecutionEnded(two, engine.ExecutionEndedEvent{WorkflowID: "r", Workflow: "two"})
	fail(c.Events.AttemptBegan(one, attempt))
	executions, below := map[trace.SpanID]string{}, map[string]int{}
	for _, s := range spans.GetSpans() {
		executions[s.SpanContext.SpanID()] = s.Name
	}
	for _, s := range spans.GetSpans() {
		if s.Name == "step s" {
			below[executions[s.Parent.SpanID()]]++
		}
	}
	if want := map[string]int{"run one": 2, "run two": 1}; !maps.Equal(below, want) {
		t.Errorf("operations have ended below %v, want %v", below, want)
	}
}

// An attempt that is cut off is no error.
func TestCancelledAttempt(t *testing.T) {
	began := make(chan struct{})
	hangs := &engine.Workflow[string, string]{Name: "hangs", Func: func(run *engine.Run, _ string) (string, error) {
		return engine.Step(run, "hang", func(ctx context.Context) (string, error) {
			close(began)
			<-ctx.Done()
			return "", ctx.Err()
		})
	}}
	p := boot(t, new(memory.Store), nil, hangs)
	if _, err := hangs.Start(t.Context(), p, "o-1", ""); err != nil {
		t.Fatal(err)
	}
	<-began
	if err := p.Terminate(t.Context(), "o-1", engine.Actor{Name: "ann", Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	s := p.ended(t, "start hangs", "step hang", "attempt hang", "run hangs")
	has(t, s["attempt hang"], "outcome=cancelled")
	has(t, s["step hang"], "outcome=cancelled")
	has(t, s["run hangs"], "exit=released")
	for _, name := range []string{"attempt hang", "step hang", "run hangs"} {
		if s[name].Status.Code != codes.Unset {
			t.Errorf("%s: %+v", name, s[name].Status)
		}
	}
}

// The start of a child is below the execution of its parent, and its run below that.
func TestChild(t *testing.T) {
	child := &engine.Workflow[string, string]{Name: "child", Func: func(*engine.Run, string) (string, error) { return "", nil }}
	parent := &engine.Workflow[string, string]{Name: "parent", Func: func(run *engine.Run, _ string) (string, error) { return child.Do(run, "") }}
	p := boot(t, new(memory.Store), nil, parent, child)
	h, err := parent.Start(t.Context(), p, "o-1", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Result(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := p.ended(t, "start parent", "run parent", "start child", "run child")
	below(t, s["start child"], s["run parent"])
	below(t, s["run child"], s["start child"])
	has(t, s["start child"], "parent.id=o-1")
}

// What the host has set stays: its callbacks, what they add to contexts, and its propagator.
func TestOwnCallbacksStay(t *testing.T) {
	type key struct{}
	var mu sync.Mutex
	var told []string
	note := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, s)
	}
	step := &engine.Workflow[string, string]{Name: "order", Func: func(run *engine.Run, _ string) (string, error) {
		return engine.Step(run, "s", func(ctx context.Context) (string, error) {
			return fmt.Sprint(ctx.Value(key{}), ctx.Value(tenant{})), nil
		})
	}}
	p := boot(t, new(memory.Store), func(c *engine.Config) {
		c.Propagator = tenant{}
		c.Events.Started = func(e engine.StartedEvent) { note("started " + e.WorkflowID) }
		c.Events.AttemptBegan = func(ctx context.Context, e engine.AttemptBeganEvent) context.Context {
			note("began " + e.Name)
			return context.WithValue(ctx, key{}, "kept ")
		}
		c.Events.AttemptEnded = func(ctx context.Context, e engine.AttemptEndedEvent) { note("ended " + e.Name) }
	}, step)
	h, err := step.Start(context.WithValue(t.Context(), tenant{}, "acme"), p, "o-1", "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.Result(t.Context()); got != "kept acme" || err != nil {
		t.Errorf("the step saw %q, %v", got, err)
	}
	s := p.ended(t, "start order", "run order", "step s", "attempt s")
	below(t, s["step s"], s["run order"])
	below(t, s["run order"], s["start order"])
	mu.Lock()
	defer mu.Unlock()
	// Who starts the run and who executes it are two goroutines.
	others := slices.DeleteFunc(slices.Clone(told), func(s string) bool { return s == "started o-1" })
	if want := []string{"began s", "ended s"}; !slices.Equal(others, want) || len(told) != 3 {
		t.Errorf("told %v, want started o-1 once, and %v in this order", told, want)
	}
}

// A tenant is a propagator of a value of the host.
type tenant struct{}

func (tenant) Inject(ctx context.Context) map[string]string {
	return map[string]string{"tenant": fmt.Sprint(ctx.Value(tenant{}))}
}

func (tenant) Extract(ctx context.Context, h map[string]string) context.Context {
	return context.WithValue(ctx, tenant{}, h["tenant"])
}

// New returns the error of an instrument.
func TestNew(t *testing.T) {
	if _, err := otelweft.New(otelweft.Options{}); err != nil {
		t.Errorf("with the global providers: %v", err)
	}
	if o, err := otelweft.New(otelweft.Options{MeterProvider: refusing{}}); !errors.Is(err, errDeclined) || o != nil {
		t.Errorf("with a provider that refuses: %v, %v", o, err)
	}
}

type refusing struct{ noop.MeterProvider }

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ noop.Meter }

func (refusingMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return noop.Int64Counter{}, errDeclined
}

// The guide lists each instrument with its type and unit, and the package comment names it.
func TestGuide(t *testing.T) {
	m := &listing{made: map[string]bool{}}
	if _, err := otelweft.New(otelweft.Options{MeterProvider: m}); err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../docs/guides/metrics-and-traces.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(weft\\.[a-z._]+)` \\| ([a-z -]+) \\| `([^`]+)` \\|").FindAllStringSubmatch(string(guide), -1) {
		listed[row[1]+" "+row[2]+" "+row[3]] = true
	}
	if !maps.Equal(m.made, listed) {
		t.Errorf("instruments:\n%s\nin the guide:\n%s", strings.Join(slices.Sorted(maps.Keys(m.made)), "\n"), strings.Join(slices.Sorted(maps.Keys(listed)), "\n"))
	}
	source, err := os.ReadFile("otelweft.go")
	if err != nil {
		t.Fatal(err)
	}
	for made := range m.made {
		if name, _, _ := strings.Cut(made, " "); !strings.Contains(string(source), "//\t"+name+" ") {
			t.Errorf("the package comment does not list %s", name)
		}
	}
}

// A listing is a meter that notes the names, types and units of instruments.
type listing struct {
	noop.MeterProvider
	made map[string]bool
}

func (l *listing) Meter(string, ...metric.MeterOption) metric.Meter {
	return listingMeter{made: l.made}
}

type listingMeter struct {
	noop.Meter
	made map[string]bool
}

func (l listingMeter) Int64Counter(name string, o ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	c := metric.NewInt64CounterConfig(o...)
	l.made[name+" counter "+c.Unit()] = true
	return l.Meter.Int64Counter(name, o...)
}

func (l listingMeter) Int64UpDownCounter(name string, o ...metric.Int64UpDownCounterOption) (metric.Int64UpDownCounter, error) {
	c := metric.NewInt64UpDownCounterConfig(o...)
	l.made[name+" up-down counter "+c.Unit()] = true
	return l.Meter.Int64UpDownCounter(name, o...)
}

func (l listingMeter) Int64Histogram(name string, o ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	c := metric.NewInt64HistogramConfig(o...)
	l.made[name+" histogram "+c.Unit()] = true
	return l.Meter.Int64Histogram(name, o...)
}

func (l listingMeter) Float64Histogram(name string, o ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	c := metric.NewFloat64HistogramConfig(o...)
	l.made[name+" histogram "+c.Unit()] = true
	return l.Meter.Float64Histogram(name, o...)
}
