package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage/memory"
)

const (
	decisionsName = "weft_idempotency_decisions_total"
	sealName      = "weft_idempotency_seal_seconds"
	diffName      = "weft_idempotency_conflict_diff_bytes"
)

// Config.Observe takes it.
var _ = idempotency.Config{Observe: new(idempotency.Metrics).Observe}

// FEN-56: calls are counted by decision, source type and tenant, and the tenant is what Tenant makes of it.
func TestMetricsDecisions(t *testing.T) {
	plans := map[string]string{"ann": "free", "bob": "paid", "cat": "paid"}
	m := &idempotency.Metrics{Tenant: func(tenant string) string { return plans[tenant] }}
	for _, r := range []struct {
		tenant, sourceType string
		decision           idempotency.Decision
	}{
		{"ann", "acme", idempotency.DecidedNew}, {"bob", "acme", idempotency.DecidedNew}, {"cat", "acme", idempotency.DecidedNew},
		{"ann", "acme", idempotency.DecidedDuplicate}, {"ann", "POST /refunds", idempotency.DecidedNew}, {"eve", "acme", idempotency.DecidedNew},
	} {
		m.Observe(t.Context(), idempotency.Report{Key: idempotency.Key{Tenant: r.tenant, SourceType: r.sourceType}, Decision: r.decision})
	}
	want := map[string]float64{
		sample("decision", "duplicate", "source_type", "acme", "tenant", "free"):    1,
		sample("decision", "new", "source_type", "POST /refunds", "tenant", "free"): 1,
		sample("decision", "new", "source_type", "acme", "tenant", ""):              1,
		sample("decision", "new", "source_type", "acme", "tenant", "free"):          1,
		sample("decision", "new", "source_type", "acme", "tenant", "paid"):          2,
	}
	if diff := cmp.Diff(want, scrape(t, m)[decisionsName].samples); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
}

// FEN-55 to FEN-58: what a Ledger reports is counted: a seal with the time since the key was first seen, which an attempt
// without effect has begun.
func TestMetricsOfALedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &idempotency.Metrics{Tenant: func(string) string { return "all" }}
		l, err := idempotency.New(idempotency.Config{Storage: new(memory.Store), Observe: m.Observe, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		busy := errors.New("busy")
		attempt := 0
		e := &idempotency.Effect[string, string]{Name: "refund", Run: func(context.Context, string) (string, error) {
			time.Sleep(2 * time.Second)
			if attempt++; attempt == 1 {
				return "", activity.NoEffect(busy)
			}
			return "paid", nil
		}}
		do := func(in string, want error) {
			t.Helper()
			if _, err := e.Do(t.Context(), l, idempotency.Key{Tenant: "ann", SourceType: "acme", SourceID: "7"}, in); !errors.Is(err, want) {
				t.Fatalf("%v, want %v", err, want)
			}
		}
		do("5 EUR", busy)
		do("5 EUR", nil)
		do("5 EUR", nil)
		do("6 EUR", idempotency.ErrConflict)
		got := scrape(t, m)
		want := map[string]float64{}
		for _, d := range []string{"released", "new", "duplicate", "conflict"} {
			want[sample("decision", d, "source_type", "acme", "tenant", "all")] = 1
		}
		if diff := cmp.Diff(want, got[decisionsName].samples); diff != "" {
			t.Errorf("decisions (-want +got):\n%s", diff)
		}
		if seals := got[sealName].samples; seals["_count"] != 1 || seals["_sum"] != 4 {
			t.Errorf("%v seals took %v s, want 1 and 4 s", seals["_count"], seals["_sum"])
		}
		if diffs := got[diffName].samples; diffs["_count"] != 1 || diffs["_sum"] == 0 {
			t.Errorf("%v conflicts have %v bytes, want 1 and some", diffs["_count"], diffs["_sum"])
		}
	})
}

// FEN-56: without Tenant the label is empty: no tenant's name appears.
func TestMetricsWithoutTenant(t *testing.T) {
	var m idempotency.Metrics
	for _, tenant := range []string{"ann", "bob"} {
		m.Observe(t.Context(), idempotency.Report{Key: idempotency.Key{Tenant: tenant, SourceType: "acme"}, Decision: idempotency.DecidedStale})
	}
	want := map[string]float64{sample("decision", "stale", "source_type", "acme", "tenant", ""): 2}
	if diff := cmp.Diff(want, scrape(t, &m)[decisionsName].samples); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
}

// FEN-57: the calls that have sealed count in seconds from first seen to seal, and no others.
func TestMetricsSealSeconds(t *testing.T) {
	var m idempotency.Metrics
	for _, d := range []time.Duration{0, -time.Second, time.Millisecond, time.Millisecond + 1, 2 * time.Second, time.Minute, 36 * time.Hour} {
		m.Observe(t.Context(), idempotency.Report{Decision: idempotency.DecidedNew, ToSeal: d})
	}
	for _, d := range []idempotency.Decision{idempotency.DecidedDuplicate, idempotency.DecidedConflict, idempotency.DecidedReleased, idempotency.DecidedFenceLost} {
		m.Observe(t.Context(), idempotency.Report{Decision: d, ToSeal: time.Second, DiffBytes: 5})
	}
	got := scrape(t, &m)[sealName]
	wantCounts(t, got, map[string]float64{"0.001": 3, "0.0025": 4, "1": 4, "2.5": 5, "30": 5, "60": 6, "86400": 6, "+Inf": 7})
	if want := 0.002000001 + 2 + 60 + 36*3600; math.Abs(got.samples["_sum"]-want) > 1e-6 {
		t.Errorf("the sum is %v, want %v", got.samples["_sum"], want)
	}
}

// FEN-58: conflicts are counted with the sizes of their diffs, and nothing else is.
func TestMetricsConflictDiffBytes(t *testing.T) {
	var m idempotency.Metrics
	for _, n := range []int{0, 64, 65, 8192, 2 << 20} {
		m.Observe(t.Context(), idempotency.Report{Decision: idempotency.DecidedConflict, DiffBytes: n})
	}
	m.Observe(t.Context(), idempotency.Report{Decision: idempotency.DecidedDuplicate, DiffBytes: 7})
	got := scrape(t, &m)[diffName]
	wantCounts(t, got, map[string]float64{"64": 2, "256": 3, "4096": 3, "16384": 4, "1.048576e+06": 4, "+Inf": 5})
	if want := float64(64 + 65 + 8192 + 2<<20); got.samples["_sum"] != want {
		t.Errorf("the sum is %v, want %v", got.samples["_sum"], want)
	}
}

func wantCounts(t *testing.T, f family, want map[string]float64) {
	t.Helper()
	for le, n := range want {
		got, exists := f.samples["_bucket"+sample("le", le)]
		if !exists || got != n {
			t.Errorf("the bucket up to %s has %v (exists: %t), want %v", le, got, exists, n)
		}
	}
}

// FEN-56 to FEN-58: before the first call the histograms are zero, and the exposition is complete.
func TestMetricsZero(t *testing.T) {
	families := scrape(t, new(idempotency.Metrics))
	got := map[string]string{}
	for name, f := range families {
		got[name] = f.kind
	}
	want := map[string]string{decisionsName: "counter", sealName: "histogram", diffName: "histogram"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics and their types (-want +got):\n%s", diff)
	}
	if n := len(families[decisionsName].samples); n != 0 {
		t.Errorf("%d decisions before the first call", n)
	}
	for _, name := range []string{sealName, diffName} {
		for s, value := range families[name].samples {
			if value != 0 {
				t.Errorf("%s%s is %v before the first call", name, s, value)
			}
		}
	}
}

// FEN-56: every value of a label is written so that a parser reads it back; invalid UTF-8 becomes U+FFFD.
func TestMetricsEscapeLabels(t *testing.T) {
	hostile := []string{`"`, `\`, "\n", `\n`, `"} 1`, "a\"b\\c\nd", "{}=,", " ", "é", "\x01", "\r", "\u2028", "# HELP x y"}
	m := &idempotency.Metrics{Tenant: func(tenant string) string { return tenant }}
	want := map[string]float64{}
	for _, s := range hostile {
		m.Observe(t.Context(), idempotency.Report{Key: idempotency.Key{Tenant: s, SourceType: s}, Decision: idempotency.DecidedNew})
		want[sample("decision", "new", "source_type", s, "tenant", s)] = 1
	}
	for _, s := range []string{"a\xff", "a\xfe"} {
		m.Observe(t.Context(), idempotency.Report{Key: idempotency.Key{Tenant: s, SourceType: s}, Decision: idempotency.DecidedNew})
		want[sample("decision", "new", "source_type", "a\uFFFD", "tenant", "a\uFFFD")]++
	}
	if diff := cmp.Diff(want, scrape(t, m)[decisionsName].samples); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
}

// FEN-56: whatever labels come, their number is bounded, and no call is lost from the counts.
func TestMetricsCardinality(t *testing.T) {
	const calls = 3000
	m := &idempotency.Metrics{Tenant: func(tenant string) string { return tenant }}
	observe := func(i int, d idempotency.Decision) {
		m.Observe(t.Context(), idempotency.Report{Key: idempotency.Key{Tenant: strconv.Itoa(i), SourceType: "/" + strconv.Itoa(i)}, Decision: d})
	}
	for i := range calls {
		observe(i, idempotency.DecidedNew)
	}
	observe(calls, idempotency.DecidedDuplicate)
	observe(0, idempotency.DecidedNew) // a series that is known still counts
	samples := scrape(t, m)[decisionsName].samples
	total := 0.0
	for _, n := range samples {
		total += n
	}
	if len(samples) != 1002 || total != calls+2 {
		t.Errorf("%d series with %v calls, want 1,002 with %d", len(samples), total, calls+2)
	}
	for labels, want := range map[string]float64{
		sample("decision", "new", "source_type", "_other", "tenant", "_other"):       calls - 1000,
		sample("decision", "duplicate", "source_type", "_other", "tenant", "_other"): 1,
		sample("decision", "new", "source_type", "/0", "tenant", "0"):                2,
	} {
		if samples[labels] != want {
			t.Errorf("%s is %v, want %v", labels, samples[labels], want)
		}
	}
}

// FEN-56: the order is always the same, whatever was observed first.
func TestMetricsOrder(t *testing.T) {
	reports := []idempotency.Report{}
	for _, d := range []idempotency.Decision{idempotency.DecidedNew, idempotency.DecidedConflict, idempotency.DecidedFailed} {
		for _, source := range []string{"acme", "beta", "acme\n"} {
			reports = append(reports, idempotency.Report{Key: idempotency.Key{SourceType: source}, Decision: d, ToSeal: time.Second, DiffBytes: 10})
		}
	}
	text := func(reports []idempotency.Report) string {
		var m idempotency.Metrics
		for _, r := range reports {
			m.Observe(t.Context(), r)
		}
		return exposition(t, &m)
	}
	want := text(reports)
	slices.Reverse(reports)
	if diff := cmp.Diff(want, text(reports)); diff != "" {
		t.Errorf("in the other order (-want +got):\n%s", diff)
	}
	var lines []string
	for line := range strings.Lines(want) {
		if strings.HasPrefix(line, decisionsName) {
			lines = append(lines, line)
		}
	}
	if len(lines) != len(reports) || !slices.IsSorted(lines) {
		t.Errorf("not in order:\n%s", strings.Join(lines, ""))
	}
}

// FEN-56 to FEN-58: calls are observed while others are, and while metrics are read; none is lost.
func TestMetricsAreSafeForConcurrentUse(t *testing.T) {
	const goroutines, calls = 8, 200
	m := &idempotency.Metrics{Tenant: func(tenant string) string { return tenant }}
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range calls {
				m.Observe(t.Context(), idempotency.Report{Key: idempotency.Key{Tenant: strconv.Itoa(i % 3), SourceType: strconv.Itoa(g % 2)}, Decision: idempotency.DecidedNew})
				m.Observe(t.Context(), idempotency.Report{Decision: idempotency.DecidedConflict, DiffBytes: i})
			}
		})
		wg.Go(func() {
			for range 20 {
				scrape(t, m)
			}
		})
	}
	wg.Wait()
	families := scrape(t, m)
	total := 0.0
	for _, n := range families[decisionsName].samples {
		total += n
	}
	if want := float64(goroutines * calls * 2); total != want {
		t.Errorf("%v calls were counted, want %v", total, want)
	}
	for _, name := range []string{sealName, diffName} {
		if got := families[name].samples["_count"]; got != goroutines*calls {
			t.Errorf("%s has %v, want %v", name, got, goroutines*calls)
		}
	}
}

// WriteTo reports how much it has written, and the writer's error.
func TestMetricsWriteTo(t *testing.T) {
	var b bytes.Buffer
	n, err := new(idempotency.Metrics).WriteTo(&b)
	if n != int64(b.Len()) || n == 0 || err != nil {
		t.Errorf("WriteTo is %d, %v, and has written %d bytes", n, err, b.Len())
	}
	full := errors.New("disk full")
	if n, err := new(idempotency.Metrics).WriteTo(brokenWriter{full}); n != 3 || !errors.Is(err, full) {
		t.Errorf("WriteTo is %d, %v; want 3, %v", n, err, full)
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 3, w.err }

// FEN-56 to FEN-58: Metrics can be mounted at /metrics.
func TestMetricsServeHTTP(t *testing.T) {
	var m idempotency.Metrics
	m.Observe(t.Context(), idempotency.Report{Key: idempotency.Key{SourceType: "acme"}, Decision: idempotency.DecidedNew})
	server := httptest.NewServer(&m)
	defer server.Close()
	for method, want := range map[string]int{"GET": 200, "HEAD": 200, "POST": 405} {
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var body bytes.Buffer
		_, err = body.ReadFrom(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want || err != nil {
			t.Errorf("%s: %s, %v; want %d", method, resp.Status, err, want)
		}
		if want != 200 {
			continue
		}
		if got := resp.Header.Get("Content-Type"); got != "text/plain; version=0.0.4; charset=utf-8" {
			t.Errorf("%s: Content-Type is %q", method, got)
		}
		if text := exposition(t, &m); method == "GET" && body.String() != text || resp.ContentLength != int64(len(text)) {
			t.Errorf("%s: %d bytes, %q, want %q", method, resp.ContentLength, body.String(), text)
		}
	}
	server.Client().CloseIdleConnections()
}

func exposition(t *testing.T, m *idempotency.Metrics) string {
	t.Helper()
	var b strings.Builder
	if _, err := m.WriteTo(&b); err != nil {
		t.Error(err)
	}
	return b.String()
}

func scrape(t *testing.T, m *idempotency.Metrics) map[string]family {
	t.Helper()
	text := exposition(t, m)
	families, err := parse(text)
	if err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	return families
}

// A family is one metric as a scraper understands it. Samples are known by what follows the metric's name: a suffix,
// and the labels as sample writes them.
type family struct {
	kind    string
	samples map[string]float64
}

// sample is how a family's samples are known: names and values of labels, by turns.
func sample(labels ...string) string { return fmt.Sprintf("%q", labels) }

var (
	headLine    = regexp.MustCompile(`^# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)$`)
	sampleLine  = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.+)\})? ([^ ]+)$`)
	labelInLine = regexp.MustCompile(`^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\["\\n])*)"(,|$)`)
)

// parse reads the text format of Prometheus, version 0.0.4, as strictly as it is written: each metric is one block with
// HELP, TYPE and its samples; none occurs twice; and the buckets of a histogram rise up to its count.
func parse(text string) (map[string]family, error) {
	families := map[string]family{}
	name := ""
	for line := range strings.Lines(text) {
		line, ended := strings.CutSuffix(line, "\n")
		if !ended {
			return nil, fmt.Errorf("the last line does not end: %q", line)
		}
		if head := headLine.FindStringSubmatch(line); head != nil {
			f, exists := families[head[2]]
			switch {
			case head[1] == "HELP" && !exists:
				name = head[2]
				families[name] = family{samples: map[string]float64{}}
			case head[1] == "TYPE" && head[2] == name && f.kind == "" && len(f.samples) == 0:
				families[name] = family{head[3], f.samples}
			default:
				return nil, fmt.Errorf("out of place: %q", line)
			}
			continue
		}
		parts := sampleLine.FindStringSubmatch(line)
		if parts == nil {
			return nil, fmt.Errorf("not a line of the format: %q", line)
		}
		suffix, ours := strings.CutPrefix(parts[1], name)
		f := families[name]
		if !ours || !slices.Contains(map[string][]string{"counter": {""}, "histogram": {"_bucket", "_sum", "_count"}}[f.kind], suffix) {
			return nil, fmt.Errorf("not of the metric %s, a %q: %q", name, f.kind, line)
		}
		labels, err := parseLabels(parts[2])
		if err != nil {
			return nil, fmt.Errorf("%w: %q", err, line)
		}
		if len(labels) > 0 {
			suffix += sample(labels...)
		}
		if _, twice := f.samples[suffix]; twice {
			return nil, fmt.Errorf("a series occurs twice: %q", line)
		}
		if f.samples[suffix], err = strconv.ParseFloat(parts[3], 64); err != nil {
			return nil, err
		}
	}
	for name, f := range families {
		if f.kind == "histogram" {
			if err := checkHistogram(f); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return families, nil
}

// parseLabels returns names and values by turns.
func parseLabels(text string) (labels []string, err error) {
	seen := map[string]bool{}
	for text != "" {
		m := labelInLine.FindStringSubmatch(text)
		if m == nil || seen[m[1]] || m[3] == "," && len(m[0]) == len(text) {
			return nil, fmt.Errorf("not labels: %q", text)
		}
		seen[m[1]] = true
		labels = append(labels, m[1], strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n").Replace(m[2]))
		text = text[len(m[0]):]
	}
	return labels, nil
}

func checkHistogram(f family) error {
	counts := map[float64]float64{}
	for s, n := range f.samples {
		if quoted, ok := strings.CutPrefix(s, `_bucket["le" "`); ok {
			le, err := strconv.ParseFloat(strings.TrimSuffix(quoted, `"]`), 64)
			if err != nil {
				return err
			}
			counts[le] = n
		}
	}
	bounds := slices.Sorted(maps.Keys(counts))
	if len(bounds) < 2 || !math.IsInf(bounds[len(bounds)-1], 1) {
		return fmt.Errorf("the bounds are %v", bounds)
	}
	for i := 1; i < len(bounds); i++ {
		if counts[bounds[i-1]] > counts[bounds[i]] {
			return fmt.Errorf("fewer values are up to %v than up to %v", bounds[i], bounds[i-1])
		}
	}
	count, counted := f.samples["_count"]
	if _, summed := f.samples["_sum"]; !counted || !summed || count != counts[math.Inf(1)] {
		return fmt.Errorf("the count is %v, and %v values are in the buckets", count, counts[math.Inf(1)])
	}
	if len(f.samples) != len(counts)+2 {
		return errors.New("there are further samples")
	}
	return nil
}

// The parser is strict: it refuses what a scraper could misunderstand.
func TestParseRefuses(t *testing.T) {
	const head = "# HELP a b\n# TYPE a counter\n"
	if _, err := parse(head + "a{b=\"c\"} 1\na 2\n"); err != nil {
		t.Error(err)
	}
	for _, text := range []string{
		"a 1\n", head + "a 1", head + "\n", head + "a 1\na 2\n", head + "b 1\n", head + "a_sum 1\n", head + "a x\n", head + "a  1\n",
		head + "a{} 1\n", head + "a{b=\"c\",} 1\n", head + "a{b=\"c\",b=\"d\"} 1\n", head + "a{b=\"\\x\"} 1\n", head + "a{b=\"\"\"} 1\n", head + "a{b=c} 1\n",
		head + head, "# TYPE a counter\n", "# HELP a b\na 1\n", head + "# HELP c d\n# TYPE c counter\na 1\n",
		"# HELP a b\n# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n",
		"# HELP a b\n# TYPE a histogram\na_bucket{le=\"1\"} 1\na_sum 1\na_count 1\n",
		"# HELP a b\n# TYPE a histogram\na_bucket{le=\"1\"} 1\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 2\n",
	} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
