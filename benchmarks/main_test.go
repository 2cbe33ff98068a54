package main

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain is also the process that measures.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		main()
		return
	}
	os.Exit(m.Run())
}

var tiny = Size{Warm: time.Millisecond, Load: 4 * time.Millisecond, Idle: time.Millisecond, Bursts: 1, Samples: 3, Repeat: 1, Steps: 20, Parked: 5, Woken: 3, Recorded: 20}

// TestMeasured runs every workload on memory, and one with a restart on SQLite,
// and looks for each in the lines and in both tables.
func TestMeasured(t *testing.T) {
	t.Setenv("GORACE", "atexit_sleep_ms=0") // of the processes that measure: a second each
	p := &plan{size: tiny, rounds: 1, only: []string{"weft/memory", "weft/sqlite/w1c*", "weft/sqlite/l1*", "weft/sqlite/w5", "weft/sqlite/w7", "weft/postgres/w8", "weft/postgres/w13", "weft/postgres/w14", "weft/postgres/w15", "weft/etcd/w1c200"}}
	r := newReport(p)
	var lines bytes.Buffer
	r.lines = json.NewEncoder(&lines)
	if err := p.run(t.Context(), r.add); err != nil {
		t.Fatal(err)
	}
	for _, f := range p.failed {
		t.Errorf("not measured: %s", f)
	}

	runs := map[string][]int{}
	for d := json.NewDecoder(&lines); d.More(); {
		var v value
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		if v.Metric == "" || v.Value < 0 {
			t.Errorf("the line %+v says nothing", v)
		}
		name := strings.Join([]string{v.Peer, v.Store, v.Mode, v.Workload}, "/")
		runs[name] = append(runs[name], v.Run)
	}
	want := []string{"raw/sqlite/FULL/one", "raw/sqlite/FULL/hundred", "raw/sqlite/FULL/grouped", "raw/sqlite/FULL/effects", "raw/sqlite/FULL/claims", "weft/sqlite/FULL/w1c1", "weft/sqlite/FULL/w1c200", "weft/sqlite/FULL/l1c1", "weft/sqlite/FULL/l1c200", "weft/sqlite/FULL/l1uuid", "weft/sqlite/FULL/w5", "weft/sqlite/FULL/w7", "weft/postgres//w8", "weft/postgres//w13", "weft/postgres//w14", "weft/postgres//w15", "weft/etcd/3 members/w1c200", "raw/postgres//one", "raw/postgres//hundred", "raw/postgres//grouped", "raw/postgres//effects", "raw/postgres//claims"}
	for _, w := range slices.Concat(workloads, []*Workload{stepsUUID, retained, bursts, sizes}, ledgerWorkloads) {
		want = append(want, "weft/memory/not durable/"+w.Name)
	}
	for _, name := range want {
		if got := slices.Compact(slices.Sorted(slices.Values(runs[name]))); !slices.Equal(got, []int{1}) {
			t.Errorf("%s has lines of the rounds %v, want 1", name, got)
		}
	}
	if len(runs) != len(want) {
		t.Errorf("lines of %d workloads, want %d: %v", len(runs), len(want), runs)
	}

	// What a ratio compares was measured, on one store.
	for _, q := range ratios {
		if !slices.ContainsFunc(r.values, func(v value) bool { return len(r.pairs(column{peer: v.Peer, store: v.Store}, q)) > 0 }) {
			t.Errorf("the ratio %q of %s is of nothing: %s and %s of %s were not measured on one store", q.label, q.workload, q.metric, q.limitMetric, q.limit.Name)
		}
	}

	var text, markdown strings.Builder
	if err := r.writeText(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.writeMarkdown(&markdown); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{rawOne.Title, latency.Title, "weft sqlite, FULL", "of grouped raw", "signal to done p99, ms", "signals/s after restart"} {
		if !strings.Contains(text.String(), part) || !strings.Contains(markdown.String(), part) {
			t.Errorf("a table has no %q:\n%s\n%s", part, &text, &markdown)
		}
	}
}

// TestRatioOfPairs compares a value with the limits of its own round.
func TestRatioOfPairs(t *testing.T) {
	r := newReport(new(plan))
	for _, v := range []value{
		{Peer: "raw", Store: "bolt", Workload: "one", Metric: "rows/s", Value: 900, Run: 1},
		{Peer: "raw", Store: "bolt", Workload: "one", Metric: "rows/s", Value: 1100, Run: 1},
		{Peer: "raw", Store: "bolt", Workload: "one", Metric: "rows/s", Value: 100, Run: 2},
		{Peer: "raw", Store: "sqlite", Workload: "one", Metric: "rows/s", Value: 7, Run: 1},
		{Peer: "weft", Store: "bolt", Workload: "w1c1", Metric: "steps/s", Value: 500, Run: 1},
		{Peer: "weft", Store: "bolt", Workload: "w1c1", Metric: "steps/s", Value: 70, Run: 2},
		{Peer: "weft", Store: "bolt", Workload: "w1c1", Metric: "steps/s", Value: 70, Run: 3},
	} {
		r.add(v)
	}
	if got, want := r.pairs(column{peer: "weft", store: "bolt"}, ratios[0]), []float64{0.5, 0.7}; !slices.Equal(got, want) {
		t.Errorf("pairs are %v, want %v", got, want)
	}
}

// TestNumber writes what is large in full and what is small in three digits.
func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 0.123: "0.12", 9.876: "9.88", 54.32: "54.3", 999.6: "1,000", 1234.5: "1,234", 1234567: "1,234,567", -1234: "-1,234",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) is %q, want %q", v, got, want)
		}
	}
}

// TestOnly takes what any of the patterns matches.
func TestOnly(t *testing.T) {
	for filter, want := range map[string]int{
		"weft/memory/w1c1": 1, "*/*/w1c1": 4, "WEFT/sqlite": len(workloads) + 1, "raw/bolt": 3, "raw/pebble": 3, "weft/oracle": 0, "weft/memory/w1c1/x": 0,
	} {
		p := &plan{only: []string{filter}}
		if got := p.tasks(); len(got) < want || want == 0 && len(got) > 0 {
			t.Errorf("-only %s takes %v, want %d", filter, got, want)
		}
	}
}
