package otelweft_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/otelweft"
	"github.com/weft-go/weft/storage/memory"
)

var hello = &engine.Workflow[string, string]{Name: "hello", Func: func(run *engine.Run, _ string) (string, error) {
	return "hello", run.Sleep(time.Millisecond)
}}

// A collector receives traces and metrics by OTLP over HTTP.
type collector struct {
	mu      sync.Mutex
	spans   map[string]*tracepb.Span // by name
	metrics map[string]string        // units, by name
	wrong   []string
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer, err := c.receive(r)
	if err != nil {
		c.wrong = append(c.wrong, err.Error())
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.Write(answer)
}

// receive notes what r brings, and returns the encoded answer.
func (c *collector) receive(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	switch r.Method + " " + r.URL.Path {
	case "POST /v1/traces":
		var request collectortrace.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &request); err != nil {
			return nil, err
		}
		for _, resource := range request.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				for _, s := range scope.Spans {
					c.spans[s.Name] = s
				}
			}
		}
		return proto.Marshal(&collectortrace.ExportTraceServiceResponse{})
	case "POST /v1/metrics":
		var request collectormetrics.ExportMetricsServiceRequest
		if err := proto.Unmarshal(body, &request); err != nil {
			return nil, err
		}
		for _, resource := range request.ResourceMetrics {
			for _, scope := range resource.ScopeMetrics {
				for _, m := range scope.Metrics {
					c.metrics[m.Name] = m.Unit
				}
			}
		}
		return proto.Marshal(&collectormetrics.ExportMetricsServiceResponse{})
	}
	return nil, fmt.Errorf("%s %s", r.Method, r.URL)
}

// The exporters of the SDK bring spans and metrics to a collector.
func TestOTLP(t *testing.T) {
	c := &collector{spans: map[string]*tracepb.Span{}, metrics: map[string]string{}}
	server := httptest.NewServer(c)
	defer server.Close()
	spans, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(server.URL+"/v1/traces"))
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := otlpmetrichttp.New(t.Context(), otlpmetrichttp.WithEndpointURL(server.URL+"/v1/metrics"))
	if err != nil {
		t.Fatal(err)
	}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(metrics)))
	observer, err := otelweft.New(otelweft.Options{TracerProvider: tracers, MeterProvider: meters})
	if err != nil {
		t.Fatal(err)
	}
	runHello(t, observer)
	if err := tracers.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := meters.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.wrong) > 0 {
		t.Errorf("the collector refused: %v", c.wrong)
	}
	started, ran := c.spans["start hello"], c.spans["run hello"]
	switch {
	case started == nil || ran == nil:
		t.Errorf("spans: %v", c.spans)
	case string(ran.ParentSpanId) != string(started.SpanId) || string(ran.TraceId) != string(started.TraceId):
		t.Errorf("the run is not below its start: %v, %v", ran, started)
	}
	for name, unit := range map[string]string{"weft.run.starts": "{run}", "weft.run.duration": "s", "weft.commit.size": "By", "weft.execution.active": "{execution}"} {
		if got, there := c.metrics[name]; !there || got != unit {
			t.Errorf("metric %s has the unit %q (%v), want %q", name, got, there, unit)
		}
	}
}

// runHello has an engine that observer observes run a workflow to its end.
func runHello(t *testing.T, observer *otelweft.Observer) {
	t.Helper()
	eng, stop := run(t, new(memory.Store), observer, nil, hello)
	h, err := hello.Start(t.Context(), eng, "h", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Result(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
}

// Prometheus scrapes the metrics from the SDK's exporter, under the names of the guide.
func TestPrometheus(t *testing.T) {
	registry := client.NewRegistry()
	exporter, err := prometheus.New(prometheus.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	defer meters.Shutdown(t.Context())
	observer, err := otelweft.New(otelweft.Options{MeterProvider: meters})
	if err != nil {
		t.Fatal(err)
	}
	runHello(t, observer)
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	lines := strings.Split(page.Body.String(), "\n")
	for _, want := range []string{"weft_run_starts_total{", "weft_run_duration_seconds_bucket{", "weft_execution_active{", "weft_commit_duration_seconds_count{"} {
		i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, want) })
		if i < 0 {
			t.Errorf("no line begins with %s:\n%s", want, page.Body)
		} else if strings.HasPrefix(want, "weft_run") && !strings.Contains(lines[i], `weft_workflow="hello"`) {
			t.Errorf("without the workflow: %s", lines[i])
		}
	}
}
