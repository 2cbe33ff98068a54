package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/exampletest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

const orders = 60

// serve runs the dashboard of an engine that has executed what it can of the orders.
func serve(t *testing.T) (*engine.Engine, browser) {
	t.Helper()
	eng, err := engine.New(engine.Config{Storage: new(memory.Store), Workflows: []engine.Definition{order, parcel}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- eng.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		eng.Close()
	})
	if err := startOrders(t.Context(), eng, orders); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		f    engine.Filter
		want int
	}{
		{engine.Filter{Workflow: "order", Status: checkpoint.StatusCompleted}, orders * 2 / 5},
		{engine.Filter{Workflow: "order", Status: checkpoint.StatusFailed}, orders / 5},
		{engine.Filter{Attention: true}, orders / 5},
		{engine.Filter{Workflow: "order", Status: checkpoint.StatusRunning}, orders * 2 / 5},
	} {
		for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			n, all, err := eng.Count(t.Context(), c.f, 1000)
			if err == nil && all && n == c.want {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%+v: %d, %v, want %d", c.f, n, err, c.want)
			}
		}
	}
	server := httptest.NewServer(newDashboard(eng))
	t.Cleanup(server.Close)
	return eng, browser{t, server.URL}
}

// A browser asks the dashboard, over TCP.
type browser struct {
	t   *testing.T
	url string
}

func (b browser) get(path string, want int) string {
	b.t.Helper()
	r, err := http.Get(b.url + path)
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != want {
		b.t.Fatalf("%s: %s, %v: %s", path, r.Status, err, body)
	}
	return string(body)
}

// A reply is what a program in another language sees of a page.
type reply struct {
	Data []struct {
		ID     string
		Status string
		Labels map[string]string
	}
	Cursor  *string
	HasMore bool
	Tail    string
}

func (b browser) page(q url.Values) (p reply) {
	b.t.Helper()
	if err := json.Unmarshal([]byte(b.get("/workflows?"+q.Encode(), http.StatusOK)), &p); err != nil {
		b.t.Fatal(err)
	}
	return p
}

// pages follows the cursor to the end, and returns the ids.
func (b browser) pages(q url.Values, limit int) (ids []string) {
	b.t.Helper()
	q = clone(q)
	q.Set("limit", fmt.Sprint(limit))
	for {
		p := b.page(q)
		if len(p.Data) > limit || p.HasMore != (p.Cursor != nil) {
			b.t.Fatalf("%v: %+v", q, p)
		}
		for _, i := range p.Data {
			ids = append(ids, i.ID)
		}
		if p.Cursor == nil {
			return ids
		}
		q.Set("cursor", *p.Cursor)
	}
}

func clone(q url.Values) url.Values {
	c := url.Values{}
	for name, values := range q {
		c[name] = slices.Clone(values)
	}
	return c
}

// Whatever the size of a page, the cursor leads through the whole list, and the count is the
// number of its workflows.
func TestPagesThroughTheCursor(t *testing.T) {
	_, b := serve(t)
	for _, c := range []struct {
		q    string
		want int
	}{
		{"", orders + orders*2/5},
		{"top=1", orders},
		{"workflow=order", orders},
		{"workflow=order&order=oldest", orders},
		{"workflow=parcel&status=completed", orders * 2 / 5},
		{"status=failed", orders / 5},
		{"label=region%3Dnorth", orders / 2},
		{"label=region%3Dnorth&label=size%3Dhuge", orders / 6},
		{"label=region%3Dnorth&label=size%3Dhuge&status=completed", orders / 15},
		{"attention=1", orders / 5},
		{"prefix=order-00", 10},
		{"parent=order-000", 1},
		{"since=2020-01-01T00:00:00Z&status=failed", orders / 5},
		{"until=2020-01-01T00:00:00Z", 0},
	} {
		q, err := url.ParseQuery(c.q)
		if err != nil {
			t.Fatal(err)
		}
		all := b.pages(q, 1000)
		if ids := slices.Compact(slices.Sorted(slices.Values(all))); len(all) != c.want || len(ids) != c.want {
			t.Errorf("%q: %d workflows, %d different ones, want %d", c.q, len(all), len(ids), c.want)
		}
		for _, limit := range []int{1, 7} {
			if paged := b.pages(q, limit); !slices.Equal(paged, all) {
				t.Errorf("%q by %d: %q, want %q", c.q, limit, paged, all)
			}
		}
		if got, want := b.get("/workflows/count?"+c.q, http.StatusOK), fmt.Sprintf(`{"all":true,"count":%d}`, c.want); strings.TrimSpace(got) != want {
			t.Errorf("%q: count %s, want %s", c.q, got, want)
		}
	}
}

// What a call has done is in the next page.
func TestAStartIsInTheNextPage(t *testing.T) {
	eng, b := serve(t)
	for i := range 20 {
		id := fmt.Sprint("late ", i)
		if _, err := order.With(engine.StartOptions{Labels: map[string]string{"region": "east & west"}}).Start(t.Context(), eng, id, Order{Ends: "later"}); err != nil {
			t.Fatal(err)
		}
		if p := b.page(url.Values{"label": {"region=east & west"}, "limit": {"1"}}); len(p.Data) != 1 || p.Data[0].ID != id {
			t.Errorf("after the start of %q: %+v", id, p)
		}
	}
}

// Those who read page by page meet nobody twice while orders start and end.
func TestPagesWhileOrdersStart(t *testing.T) {
	eng, b := serve(t)
	q := url.Values{"workflow": {"order"}, "limit": {"7"}}
	before := b.pages(q, 1000)
	var seen []string
	for n := 0; ; n++ {
		p := b.page(q)
		for _, i := range p.Data {
			seen = append(seen, i.ID)
		}
		if p.Cursor == nil {
			break
		}
		q.Set("cursor", *p.Cursor)
		if _, err := order.Start(t.Context(), eng, fmt.Sprint("meanwhile-", n), Order{Number: 1000 + n, Ends: "well"}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(seen, before) {
		t.Errorf("%q, want %q", seen, before)
	}
}

// What is no filter, no page and no cursor of the list is the client's mistake.
func TestBadRequests(t *testing.T) {
	_, b := serve(t)
	first := b.page(url.Values{"status": {"failed"}, "limit": {"2"}})
	if first.Cursor == nil {
		t.Fatalf("%+v", first)
	}
	for _, q := range []string{
		"status=done", "label=north", "label=region%3D", "since=yesterday", "limit=x", "limit=1001", "limit=-1", "cursor=x",
		"cursor=" + *first.Cursor, // of another filter
		"status=failed&order=oldest&cursor=" + *first.Cursor,
	} {
		b.get("/workflows?"+q, http.StatusBadRequest)
	}
	b.get("/workflows/count?status=done", http.StatusBadRequest)
	b.get("/?status=done", http.StatusBadRequest)
	b.get("/nothing", http.StatusNotFound)
	b.get("/workflows?status=failed&cursor="+*first.Cursor, http.StatusOK) // it needs no escaping
}

// The links of the page for people lead through the list. Ids are text, not HTML.
func TestPageForPeople(t *testing.T) {
	eng, b := serve(t)
	if _, err := order.Start(t.Context(), eng, "<script>alert(1)</script>", Order{Ends: "later"}); err != nil {
		t.Fatal(err)
	}
	if text := b.get("/?limit=1", http.StatusOK); strings.Contains(text, "<script>") || !strings.Contains(text, "&lt;script&gt;") {
		t.Errorf("an id is not escaped: %s", text)
	}
	next, row := regexp.MustCompile(`<a href="([^"]+)">Next page`), regexp.MustCompile(`<tr><td>(order-\d+)<td>`)
	var seen []string
	for at := "?status=running&prefix=order-"; ; {
		text := b.get("/"+at, http.StatusOK)
		if !strings.Contains(text, fmt.Sprintf("%d workflows.", orders*2/5)) {
			t.Fatalf("%s does not say how many there are:\n%s", at, text)
		}
		for _, m := range row.FindAllStringSubmatch(text, -1) {
			seen = append(seen, m[1])
		}
		m := next.FindStringSubmatch(text)
		if m == nil {
			break
		}
		at = html.UnescapeString(m[1])
	}
	if !slices.IsSorted(seen) || len(slices.Compact(seen)) != orders*2/5 {
		t.Errorf("%d rows: %q", len(seen), seen)
	}
}

// The program serves the dashboard until it is killed, and again with the same store.
func TestDashboardRuns(t *testing.T) {
	program, db := exampletest.Build(t), filepath.Join(t.TempDir(), "dashboard.db")
	for range 2 {
		p := exampletest.Start(t, program, "-db", db, "-address", "127.0.0.1:0")
		said := p.Until("The dashboard is at http://")
		url := regexp.MustCompile(`http://[\d.:]*\d`).FindString(said)
		if got := (browser{t, url}).get("/workflows/count?top=1", http.StatusOK); strings.TrimSpace(got) != fmt.Sprintf(`{"all":true,"count":%d}`, orders) {
			t.Errorf("count: %s", got)
		}
		p.Kill()
	}
}

// A dashboard whose engine cannot go on does not stay up.
func TestEngineEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, db := l.Addr().String(), filepath.Join(t.TempDir(), "dashboard.db")
	l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, db, address, 0) }()
	for {
		if a, err := http.Get("http://" + address + "/workflows"); err == nil {
			a.Body.Close()
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := os.Rename(db, db+".moved"); err != nil {
		t.Fatal(err)
	}
	select {
	case err = <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the dashboard stays up")
		cancel()
		err = <-ended
	}
	if !errors.Is(err, storage.ErrMoved) {
		t.Errorf("the dashboard ended with %v, want ErrMoved", err)
	}
}
