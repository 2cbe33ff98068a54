package main

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/torture"
)

// HTTP-49, HTTP-57, HTTP-58, HTTP-74: whenever "weft serve" is killed, each order is started once, each
// answer stays the same, also after an activation, and each acknowledged write has an audit row. WEFT_KILLS kills per store.
func TestRestarts(t *testing.T) {
	torture.Slow(t)
	kills, err := strconv.Atoi(cmp.Or(os.Getenv("WEFT_KILLS"), "6"))
	if err != nil {
		t.Fatal("WEFT_KILLS:", err)
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("WEFT_SEED"), strconv.FormatUint(rand.Uint64(), 10)), 10, 64)
	if err != nil {
		t.Fatal("WEFT_SEED:", err)
	}
	for _, store := range []string{"sqlite", "postgres"} {
		t.Run(store, func(t *testing.T) {
			o := options{kills: kills, store: store, clients: 8, span: 400 * time.Millisecond, pause: 20 * time.Millisecond, seed: seed}
			if err := run(t.Context(), o, t.Output()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Each violation is found: the books of an order that is as it should be are changed, one thing at
// a time.
func TestWrong(t *testing.T) {
	good := func() ([]*order, view) {
		return []*order{{key: "k", approves: true, run: "r", deployment: served}}, view{
			runs:    map[string][]weft.Info{"k": {{ID: "r", Status: checkpoint.StatusCompleted, Deployment: served}}},
			left:    map[string]int{"r": 0},
			output:  map[string]string{"r": "k"},
			created: map[string]int{"k": 1, "a": 1},
			sent:    map[string]int{"r": 1},
			active:  served,
		}
	}
	for _, c := range []struct {
		name   string
		change func(o *order, v *view)
		want   string
	}{
		{"nothing", func(*order, *view) {}, ""},
		{"two runs", func(_ *order, v *view) {
			v.runs["k"] = append(v.runs["k"], weft.Info{ID: "s", Status: checkpoint.StatusCompleted})
		}, "1 duplicates"},
		{"a run of nobody", func(_ *order, v *view) { v.runs["x"] = []weft.Info{{}} }, "1 duplicates"},
		{"another run", func(o *order, _ *view) { o.run = "s" }, "lost"},
		{"no run", func(_ *order, v *view) { delete(v.runs, "k") }, "1 lost"},
		{"it failed", func(_ *order, v *view) { v.runs["k"][0].Status = checkpoint.StatusFailed }, "1 lost"},
		{"no approval", func(_ *order, v *view) { v.output["r"] = "" }, "1 lost"},
		{"two approvals", func(_ *order, v *view) { v.left["r"] = 1 }, "1 duplicates"},
		{"no audit row of the start", func(_ *order, v *view) { v.created["k"] = 0 }, "1 writes without an audit row"},
		{"two audit rows of the start", func(_ *order, v *view) { v.created["k"] = 2 }, "1 duplicates"},
		{"it waits on the other deployment", func(o *order, v *view) {
			o.deployment = unserved
			v.runs["k"][0].Deployment, v.runs["k"][0].Status = unserved, checkpoint.StatusPending
		}, ""},
		{"it is on another deployment", func(_ *order, v *view) { v.runs["k"][0].Deployment = unserved }, "1 lost"},
		{"another deployment is active", func(_ *order, v *view) { v.active = unserved }, "1 lost"},
		{"no audit row of the activation", func(_ *order, v *view) { v.created["a"] = 0 }, "1 writes without an audit row"},
		{"two audit rows of the activation", func(_ *order, v *view) { v.created["a"] = 2 }, "1 duplicates"},
		{"no audit row of the approval", func(_ *order, v *view) { v.sent["r"] = 0 }, "1 writes without an audit row"},
	} {
		orders, v := good()
		c.change(orders[0], &v)
		b := newBooks()
		b.orders, b.count.lost, b.count.replays = orders, 1, 1
		b.found = examine(orders, []string{"a"}, served, v)
		err := b.verdict()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// A second answer to the same write that differs from the first is found.
func TestChangedAnswers(t *testing.T) {
	b := newBooks()
	for _, x := range []struct{ id, body string }{{"k", "201 a"}, {"k", "201 a"}, {"l", "201 b"}} {
		b.answered(x.id, []byte(x.body), x.id == "k")
	}
	if len(b.changed) != 0 || b.count.answers != 3 || b.count.replays != 2 {
		t.Errorf("%s", b)
	}
	b.answered("l", []byte("201 c"), true)
	if len(b.changed) != 1 || b.verdict() == nil {
		t.Errorf("%s", b)
	}
	if err := newBooks().verdict(); err == nil {
		t.Error("nothing has happened, and all is well")
	}
}

// What two requests have in common that must be answered alike.
func TestWriteOf(t *testing.T) {
	for _, c := range []struct{ method, path, key, want string }{
		{"POST", "/v1/runs", "k", "k"},
		{"POST", "/v1/runs/r/signals/approved", "", "/v1/runs/r/signals/approved"},
		{"GET", "/v1/runs/r/signals", "", ""},
		{"GET", "/v1/runs/r", "", ""},
	} {
		q, err := http.NewRequest(c.method, "http://localhost"+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.key != "" {
			q.Header.Set("Idempotency-Key", c.key)
		}
		if got := writeOf(q); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.method, c.path, got, c.want)
		}
	}
}
