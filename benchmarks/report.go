package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// A value is a line of the file that -json names.
type value struct {
	Peer     string  `json:"peer"`
	Store    string  `json:"store"`
	Mode     string  `json:"mode"`
	Workload string  `json:"workload"`
	Metric   string  `json:"metric"`
	Value    float64 `json:"value"`
	Run      int     `json:"run"` // the round, from 1
}

// A ratio is a row of the table: a metric against a limit of the same store, in
// pairs: the limit of a round is the mean of before and after. A limit is raw, or
// what the same peer does in another workload.
type ratio struct {
	workload, metric string
	limit            *Workload
	limitMetric      string
	label            string
}

var ratios = []ratio{
	{"w1c1", "steps/s", rawOne, "rows/s", "of raw, one row"},
	{"w1c200", "steps/s", rawGrouped, "steps/s", "of grouped raw"},
	{"w1uuid", "steps/s", stepsMany, "steps/s", "of W1 c200 with rising ids"},
	{"l1c1", "effects/s", rawOne, "rows/s", "of raw, one row"},
	{"l1c200", "effects/s", rawEffects, "effects/s", "of grouped raw"},
	{"l1c200", "effects/s", rawCommits, "effects/s", "of grouped raw, claims first"},
	{"l1uuid", "effects/s", rawEffects, "effects/s", "of grouped raw"},
	{"l1uuid", "effects/s", rawCommits, "effects/s", "of grouped raw, claims first"},
	{"w13", "chunks/s, 100 at once", rawHundred, "rows/s", "chunks, 100 at once, of raw, 100 rows"},
	{"w13", "chunks/s, 1 at once", rawOne, "rows/s", "chunks, one by one, of raw, one row"},
	{"w14", "messages/s, published one at a time", rawOne, "rows/s", "published one at a time, of raw, one row"},
	{"w14", "messages/s, published 200 at once", rawHundred, "rows/s", "published 200 at once, of raw, 100 rows"},
	{"w14", "messages/s, published to acknowledged, 1 receiving", rawHundred, "rows/s", "published to acknowledged, of raw, 100 rows"},
	{"w15", "creates/s", rawOne, "rows/s", "creates of one run, of raw, one row"},
	{"w15", "creates/s, from two servers", rawOne, "rows/s", "creates from two servers, of raw, one row"},
	{"w15", "creates/s, over HTTP", rawOne, "rows/s", "creates over HTTP, of raw, one row"},
}

// A report is what was measured, and how it is printed.
type report struct {
	plan   *plan
	lines  *json.Encoder // nil: not asked for
	values []value
}

func newReport(p *plan) *report { return &report{plan: p} }

func (r *report) add(v value) {
	r.values = append(r.values, v)
	if r.lines != nil {
		if err := r.lines.Encode(v); err != nil {
			r.plan.failed = append(r.plan.failed, "writing the JSON lines: "+err.Error())
			r.lines = nil
		}
	}
}

// A column is a peer on a store.
type column struct{ peer, store, mode string }

// A section is a workload as rows of cells, the first of which is a label.
type section struct {
	title string
	rows  [][]string
}

// table is the columns of peers, and a section for each workload. Raw limits
// are the first section, under the columns of their stores.
func (r *report) table() (columns []column, sections []section) {
	var titles []*Workload
	for _, p := range peers {
		for _, s := range p.Stores {
			c := column{p.Name, s.Name, s.Mode}
			if slices.ContainsFunc(r.values, func(v value) bool { return v.Peer == c.peer && v.Store == c.store }) {
				columns = append(columns, c)
			}
		}
		for _, w := range p.Workloads {
			if !slices.Contains(titles, w) {
				titles = append(titles, w)
			}
		}
	}
	for _, w := range titles {
		s := section{title: w.Title}
		for _, m := range r.metrics(w.Name) {
			row := []string{m}
			for _, c := range columns {
				row = append(row, cell(r.of(c, w.Name, m)))
			}
			s.rows = append(s.rows, row)
			s.rows = append(s.rows, r.ratios(w.Name, m, columns)...)
		}
		if len(s.rows) > 0 {
			sections = append(sections, s)
		}
	}
	return columns, sections
}

// metrics are those of a workload, in the order in which they were measured.
func (r *report) metrics(workload string) (ms []string) {
	for _, v := range r.values {
		if v.Workload == workload && !slices.Contains(ms, v.Metric) {
			ms = append(ms, v.Metric)
		}
	}
	return ms
}

func (r *report) of(c column, workload, metric string) (vs []float64) {
	for _, v := range r.values {
		if v.Peer == c.peer && v.Store == c.store && v.Workload == workload && v.Metric == metric {
			vs = append(vs, v.Value)
		}
	}
	return vs
}

func (r *report) ratios(workload, metric string, columns []column) (rows [][]string) {
	for _, q := range ratios {
		if q.workload != workload || q.metric != metric {
			continue
		}
		row, some := []string{q.label}, false
		for _, c := range columns {
			pairs := r.pairs(c, q)
			some = some || len(pairs) > 0
			row = append(row, cell(pairs))
		}
		if some {
			rows = append(rows, row)
		}
	}
	return rows
}

// pairs are the ratios of the rounds.
func (r *report) pairs(c column, q ratio) (pairs []float64) {
	for _, v := range r.values {
		if v.Peer != c.peer || v.Store != c.store || v.Workload != q.workload || v.Metric != q.metric {
			continue
		}
		sum, n := 0.0, 0.0
		for _, l := range r.values {
			if (l.Peer == rawPeer.Name || l.Peer == v.Peer) && l.Store == v.Store && l.Workload == q.limit.Name && l.Metric == q.limitMetric && l.Run == v.Run {
				sum, n = sum+l.Value, n+1
			}
		}
		if sum > 0 {
			pairs = append(pairs, v.Value/(sum/n))
		}
	}
	return pairs
}

// cell is the median and, of several values, the extent.
func cell(vs []float64) string {
	if len(vs) == 0 {
		return "–"
	}
	s := number(median(vs))
	if low, high := number(slices.Min(vs)), number(slices.Max(vs)); low != high {
		s += " (" + low + "–" + high + ")"
	}
	return s
}

func median(vs []float64) float64 {
	vs = slices.Sorted(slices.Values(vs))
	if n := len(vs); n%2 == 0 {
		return (vs[n/2-1] + vs[n/2]) / 2
	}
	return vs[len(vs)/2]
}

// number is v with three digits that count, or all before the point.
func number(v float64) string {
	switch a := math.Abs(v); {
	case v == math.Trunc(v) && a < 1000:
		return fmt.Sprintf("%.0f", v)
	case a < 10:
		return fmt.Sprintf("%.2f", v)
	case a < 100:
		return fmt.Sprintf("%.1f", v)
	}
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func (r *report) writeText(w io.Writer) error {
	columns, sections := r.table()
	fmt.Fprintln(w, strings.Join(r.notes(), "\n"))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range sections {
		fmt.Fprintf(t, "\n%s\n", s.title)
		used := usedColumns(s, columns)
		head := []string{""}
		for _, i := range used {
			head = append(head, columns[i].String())
		}
		fmt.Fprintln(t, strings.Join(head, "\t"))
		for _, row := range s.rows {
			cells := []string{"  " + row[0]}
			for _, i := range used {
				cells = append(cells, row[i+1])
			}
			fmt.Fprintln(t, strings.Join(cells, "\t"))
		}
		t.Flush() // a section has the widths that it needs
	}
	return r.writeFailed(w, "\nnot measured: %s\n")
}

func (r *report) writeMarkdown(w io.Writer) error {
	columns, sections := r.table()
	fmt.Fprintln(w, strings.Join(r.notes(), "\\\n"))
	for _, s := range sections {
		used := usedColumns(s, columns)
		fmt.Fprintf(w, "\n**%s**\n\n| |", s.title)
		for _, i := range used {
			fmt.Fprintf(w, " %s |", columns[i])
		}
		fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---|", len(used)))
		for _, row := range s.rows {
			fmt.Fprintf(w, "| %s |", row[0])
			for _, i := range used {
				fmt.Fprintf(w, " %s |", row[i+1])
			}
			fmt.Fprintln(w)
		}
	}
	return r.writeFailed(w, "\nNot measured: %s\n")
}

func (r *report) writeFailed(w io.Writer, format string) error {
	for _, f := range r.plan.failed {
		if _, err := fmt.Fprintf(w, format, f); err != nil {
			return err
		}
	}
	return nil
}

// usedColumns are those in which a section has anything.
func usedColumns(s section, columns []column) (used []int) {
	for i := range columns {
		if slices.ContainsFunc(s.rows, func(row []string) bool { return row[i+1] != "–" }) {
			used = append(used, i)
		}
	}
	return used
}

func (c column) String() string {
	if c.mode == "" {
		return c.peer + " " + c.store
	}
	return c.peer + " " + c.store + ", " + c.mode
}
