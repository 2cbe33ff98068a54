package idempotency

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Metrics counts what calls of Do found, and writes the counts in the text format of Prometheus. Set
// Config.Observe to its Observe, and serve it at /metrics. The zero Metrics is ready to use. Its methods are
// safe for concurrent use. Do not copy it.
//
//	weft_idempotency_decisions_total{decision,source_type,tenant}  counter: calls, by what they found
//	weft_idempotency_seal_seconds                                  histogram: from first seen to sealed
//	weft_idempotency_conflict_diff_bytes                           histogram: sizes of the diffs of conflicts
//
// The counter keeps 1,000 combinations of labels. Calls with further ones are counted with the labels
// source_type="_other" and tenant="_other". One whose Run was cut off may be counted again later, by what became of it.
type Metrics struct {
	// Tenant returns the label of a tenant, such as its plan. It should return few different labels, and must be
	// safe for concurrent use. If it is nil, the label is empty.
	Tenant func(tenant string) string

	mu        sync.Mutex // guards what follows
	decisions map[series]uint64
	seals     histogram
	diffs     histogram
}

// A series is what one line of the counter is about.
type series struct {
	decision           Decision
	sourceType, tenant string
}

const (
	maxSeries   = 1000
	otherLabels = "_other"
)

// Upper bounds of the buckets.
var (
	sealBounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 21600, 86400}
	diffBounds = []float64{64, 256, 1024, 4096, 16384, 65536, 262144, 1048576}
)

// Observe counts r. It fits Config.Observe.
func (m *Metrics) Observe(_ context.Context, r Report) {
	s := series{decision: r.Decision, sourceType: valid(r.Key.SourceType)}
	if m.Tenant != nil {
		s.tenant = valid(m.Tenant(r.Key.Tenant))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.decisions == nil {
		m.decisions = map[series]uint64{}
	}
	if _, known := m.decisions[s]; !known && len(m.decisions) >= maxSeries {
		s.sourceType, s.tenant = otherLabels, otherLabels
	}
	m.decisions[s]++
	switch r.Decision {
	case DecidedNew:
		m.seals.observe(sealBounds, max(r.ToSeal, 0).Seconds())
	case DecidedConflict:
		m.diffs.observe(diffBounds, float64(r.DiffBytes))
	}
}

// WriteTo writes all metrics in the text format of Prometheus, version 0.0.4, always in the same order.
func (m *Metrics) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(m.text())
	return int64(n), err
}

// ServeHTTP answers a scrape.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	text := m.text()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text) // it fails if the client has left
}

// text is the whole exposition: a slow reader does not keep Observe waiting.
func (m *Metrics) text() []byte {
	m.mu.Lock()
	decisions, seals, diffs := maps.Clone(m.decisions), m.seals.clone(), m.diffs.clone()
	m.mu.Unlock()
	var b bytes.Buffer
	head(&b, "weft_idempotency_decisions_total", "counter", "Calls for an effect, by what they found.")
	for _, s := range slices.SortedFunc(maps.Keys(decisions), series.compare) {
		fmt.Fprintf(&b, "weft_idempotency_decisions_total{decision=%s,source_type=%s,tenant=%s} %d\n",
			label(string(s.decision)), label(s.sourceType), label(s.tenant), decisions[s])
	}
	head(&b, "weft_idempotency_seal_seconds", "histogram", "Seconds from when a key was first seen until it was sealed.")
	seals.write(&b, "weft_idempotency_seal_seconds", sealBounds)
	head(&b, "weft_idempotency_conflict_diff_bytes", "histogram", "Sizes of the differences of conflicting requests, in bytes of JSON.")
	diffs.write(&b, "weft_idempotency_conflict_diff_bytes", diffBounds)
	return b.Bytes()
}

func (s series) compare(t series) int {
	return cmp.Or(cmp.Compare(s.decision, t.decision), cmp.Compare(s.sourceType, t.sourceType), cmp.Compare(s.tenant, t.tenant))
}

func head(b *bytes.Buffer, name, kind, help string) {
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

var escapeLabel = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// label quotes the value of a label.
func label(s string) string { return `"` + escapeLabel.Replace(s) + `"` }

// valid is s in UTF-8, which the format needs.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// A histogram counts values.
type histogram struct {
	counts []uint64 // by bucket; the last one is for values above all bounds
	sum    float64
}

func (h *histogram) observe(bounds []float64, value float64) {
	if h.counts == nil {
		h.counts = make([]uint64, len(bounds)+1)
	}
	i, _ := slices.BinarySearch(bounds, value) // a value belongs to the bucket whose bound it equals
	h.counts[i]++
	h.sum += value
}

func (h *histogram) clone() histogram { return histogram{slices.Clone(h.counts), h.sum} }

func (h *histogram) write(b *bytes.Buffer, name string, bounds []float64) {
	var total uint64
	for i := range len(bounds) + 1 {
		if h.counts != nil {
			total += h.counts[i]
		}
		bound := "+Inf"
		if i < len(bounds) {
			bound = number(bounds[i])
		}
		fmt.Fprintf(b, "%s_bucket{le=\"%s\"} %d\n", name, bound, total)
	}
	fmt.Fprintf(b, "%s_sum %s\n%s_count %d\n", name, number(h.sum), name, total)
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
