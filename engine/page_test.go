package engine_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
)

// many starts workflows of several types in all statuses, with labels, children and reasons for
// Attention, and returns their ids in the order of creation. Every one comes into its status at
// another time.
func many(t *testing.T, s storage.Storage) (*process, []string) {
	t.Helper()
	quick := flow("quick", nil2)
	failing := flow("failing", func(*engine.Run) (string, error) { return "", errBroke })
	waits := flow("waits", func(run *engine.Run) (string, error) { return "", run.Sleep(24 * time.Hour) })
	held := flow("held:a%b", func(run *engine.Run) (string, error) { return new(activity.Activity[string, string]).Do(run, "") })
	parent := flow("parent", func(run *engine.Run) (string, error) {
		quick.AsChild(engine.ChildOptions{ID: "child-1"}).Go(run, "")
		waits.AsChild(engine.ChildOptions{ID: "child-2"}).Go(run, "")
		return "", run.Sleep(24 * time.Hour)
	})
	p := boot(t, s, quick, failing, waits, held, parent)
	time.Sleep(time.Second)
	var ids []string
	begin := func(w *engine.Workflow[string, string], o engine.StartOptions) {
		id := sprint(w.Name[:1], "-", len(ids))
		time.Sleep(2 * time.Millisecond)
		start(t, w.With(o), p, id, "")
		ids = append(ids, id)
	}
	for i := range 4 {
		team := map[string]string{"team": []string{"blue", "r:d"}[i%2], "rank": sprint(i)}
		begin(quick, engine.StartOptions{Labels: team})
		begin(failing, engine.StartOptions{Labels: team})
		begin(waits, engine.StartOptions{Labels: team})
		begin(waits, engine.StartOptions{Queue: "nobody", Labels: map[string]string{"team": "blue"}})
		begin(held, engine.StartOptions{})
	}
	begin(parent, engine.StartOptions{})
	time.Sleep(time.Second)
	ids = append(ids, "child-1", "child-2")
	if err := p.Cancel(ctx, ids[2], engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	unknown := flow("unknown", nil2)
	begin(unknown, engine.StartOptions{})
	time.Sleep(time.Second)
	return p, ids
}

// filters is one of each kind.
func filters(from, to time.Time) []engine.Filter {
	blue := map[string]string{"team": "blue"}
	return []engine.Filter{
		{},
		{Workflow: "quick"},
		{Workflow: "held:a%b"},
		{Workflow: "nothing"},
		{Status: checkpoint.StatusRunning},
		{Status: checkpoint.StatusCompleted},
		{Status: checkpoint.StatusCancelled},
		{Status: checkpoint.StatusPending},
		{Workflow: "waits", Status: checkpoint.StatusRunning},
		{Labels: blue},
		{Labels: map[string]string{"team": "r:d"}, Status: checkpoint.StatusFailed},
		{Labels: map[string]string{"team": "blue", "rank": "2"}},
		{Labels: blue, Workflow: "waits"},
		{Labels: map[string]string{"team": ""}}, // refused
		{Parent: "p-20"},
		{Parent: "p-20", Status: checkpoint.StatusRunning},
		{TopLevel: true, Workflow: "waits"},
		{Attention: true},
		{Attention: true, Workflow: "held:a%b"},
		{IDPrefix: "q-"},
		{IDPrefix: "w-1", Status: checkpoint.StatusPending},
		{IDPrefix: "c"},
		{After: from, Before: to},
		{Status: checkpoint.StatusFailed, After: from, Before: to},
		{Labels: blue, After: from},
		{Parent: "p-20", Before: from},
	}
}

// paged reads a list page by page.
func paged(t testing.TB, e *engine.Engine, f engine.Filter, limit int, ascending bool) (all []engine.Info) {
	t.Helper()
	r := engine.PageRequest{Limit: limit, Ascending: ascending}
	for range 1000 {
		p, err := e.Page(ctx, f, r)
		if err != nil {
			t.Fatalf("%+v: %v", f, err)
		}
		if len(p.Data) > limit {
			t.Fatalf("%+v: a page of %d, at most %d", f, len(p.Data), limit)
		}
		all = append(all, p.Data...)
		if !p.HasMore {
			return all
		}
		if p.Next == r.Cursor {
			t.Fatalf("%+v: the cursor stays, and there is more", f)
		}
		r.Cursor = p.Next
	}
	t.Fatalf("%+v: no end", f)
	return nil
}

// expected returns what f selects of all workflows, by their descriptions, newest first.
func expected(all []engine.Info, f engine.Filter) (ids []string) {
	byStatus := f.IDPrefix == "" && f.Parent == "" && !f.Attention && (f.Workflow != "" || f.Status != "" || len(f.Labels) > 0)
	at := func(i engine.Info) time.Time {
		if !byStatus {
			return i.CreatedAt.Truncate(time.Millisecond)
		}
		for _, t := range []time.Time{i.EndedAt, i.StartedAt} {
			if !t.IsZero() {
				return t
			}
		}
		return i.CreatedAt
	}
	var found []engine.Info
	for _, i := range slices.Backward(all) { // of one time, that which was created last
		labelled := true
		for name, value := range f.Labels {
			labelled = labelled && i.Labels[name] == value
		}
		if labelled && (f.Workflow == "" || f.Workflow == i.Workflow) && (f.Status == "" || f.Status == i.Status) &&
			(f.Parent == "" || f.Parent == i.Parent) && (!f.TopLevel || i.Parent == "") && strings.HasPrefix(i.ID, f.IDPrefix) &&
			(!f.Attention || len(i.Attention) > 0) &&
			(f.After.IsZero() || !at(i).Before(f.After)) && (f.Before.IsZero() || at(i).Before(f.Before)) {
			found = append(found, i)
		}
	}
	slices.SortStableFunc(found, func(a, b engine.Info) int {
		if f.IDPrefix != "" {
			return strings.Compare(a.ID, b.ID)
		}
		if f.Attention { // first those with one in their records
			if x, y := heldFor(a, engine.ReasonUnregistered), heldFor(b, engine.ReasonUnregistered); x != y {
				if x {
					return 1
				}
				return -1
			}
		}
		return at(b).Compare(at(a))
	})
	for _, i := range found {
		ids = append(ids, i.ID)
	}
	return ids
}

func idsOf(infos []engine.Info) (ids []string) {
	for _, i := range infos {
		ids = append(ids, i.ID)
	}
	return ids
}

// LST-1, LST-2, LST-3, LST-6, LST-9: a page has what the filter selects, each once, in its order,
// whatever its size, on each store; List and Count agree with it. A page says of each workflow what Describe does.
func TestPage(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		p, ids := many(t, s)
		var all []engine.Info
		for _, id := range ids {
			all = append(all, describe(t, p, id))
		}
		from, to := all[5].CreatedAt.Truncate(time.Millisecond), all[15].CreatedAt
		for _, f := range every(torture.Rounds(1, 1, 3), filters(from, to)) {
			if f.Labels != nil && f.Labels["team"] == "" {
				continue
			}
			want := expected(all, f)
			for _, limit := range []int{1, 3, 100} {
				got := paged(t, p.Engine, f, limit, false)
				if !slices.Equal(idsOf(got), want) {
					t.Errorf("%+v by %d: %q, want %q", f, limit, idsOf(got), want)
				}
				for _, i := range got {
					d := describe(t, p, i.ID)
					d.Unreceived = nil
					a, err := json.Marshal(i)
					if err != nil {
						t.Fatal(err)
					}
					b, err := json.Marshal(d)
					if err != nil || string(a) != string(b) {
						t.Errorf("%+v: listed as %s, described as %s, %v", f, a, b, err)
					}
				}
				if up := idsOf(paged(t, p.Engine, f, limit, true)); f.IDPrefix == "" && !f.Attention {
					slices.Reverse(up)
					if !slices.Equal(up, want) {
						t.Errorf("%+v ascending by %d, reversed: %q, want %q", f, limit, up, want)
					}
				}
			}
			var listed []string
			for i, err := range p.List(ctx, f) {
				if err != nil {
					t.Fatal(err)
				}
				listed = append(listed, i.ID)
			}
			if !slices.Equal(listed, want) {
				t.Errorf("%+v: List has %q, want %q", f, listed, want)
			}
			if n, whole, err := p.Count(ctx, f, 1000); n != len(want) || !whole || err != nil {
				t.Errorf("%+v: Count is %d, %v, %v, want %d", f, n, whole, err, len(want))
			}
			if len(want) > 1 {
				if n, whole, err := p.Count(ctx, f, len(want)-1); n != len(want)-1 || whole || err != nil {
					t.Errorf("%+v: Count up to %d is %d, %v, %v", f, len(want)-1, n, whole, err)
				}
			}
		}
		p.stop(t)
	})
}

// LST-4, LST-8: what is no filter, no page, no cursor and no label is refused.
func TestPageRefuses(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", nil2)
		p := boot(t, s, wf)
		for i := range 3 {
			start(t, wf, p, sprint("o", i), "")
		}
		time.Sleep(time.Second)
		f := engine.Filter{Workflow: "wf"}
		page, err := p.Page(ctx, f, engine.PageRequest{Limit: 1})
		if err != nil || !page.HasMore {
			t.Fatalf("%+v, %v", page, err)
		}
		raw, err := base64.RawURLEncoding.DecodeString(page.Next)
		if err != nil {
			t.Fatal(err)
		}
		raw[len(raw)-1]++
		for what, c := range map[string]struct {
			f engine.Filter
			r engine.PageRequest
		}{
			"a cursor of another filter": {engine.Filter{Status: checkpoint.StatusCompleted}, engine.PageRequest{Cursor: page.Next}},
			"a cursor of another order":  {f, engine.PageRequest{Cursor: page.Next, Ascending: true}},
			"a changed cursor":           {f, engine.PageRequest{Cursor: base64.RawURLEncoding.EncodeToString(raw)}},
			"no cursor":                  {f, engine.PageRequest{Cursor: "x"}},
			"a text":                     {f, engine.PageRequest{Cursor: "!\x00\xff"}},
			"a negative limit":           {f, engine.PageRequest{Limit: -1}},
			"too large a limit":          {f, engine.PageRequest{Limit: 1001}},
			"an unknown status":          {engine.Filter{Status: "done"}, engine.PageRequest{}},
			"a name that is not UTF-8":   {engine.Filter{Workflow: "\xff"}, engine.PageRequest{}},
			"a long name":                {engine.Filter{Workflow: strings.Repeat("x", 101)}, engine.PageRequest{}},
			"a long parent":              {engine.Filter{Parent: strings.Repeat("x", 201)}, engine.PageRequest{}},
			"a long prefix":              {engine.Filter{IDPrefix: strings.Repeat("x", 201)}, engine.PageRequest{}},
			"a label without a value":    {engine.Filter{Labels: map[string]string{"team": ""}}, engine.PageRequest{}},
			"a label without a name":     {engine.Filter{Labels: map[string]string{"": "x"}}, engine.PageRequest{}},
		} {
			if _, err := p.Page(ctx, c.f, c.r); !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", what, err)
			}
		}
		if _, _, err := p.Count(ctx, f, 0); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("count up to 0: %v, want ErrInvalid", err)
		}
		before := len(recordsOfRuns(t, s))
		for what, labels := range map[string]map[string]string{
			"no name":          {"": "x"},
			"no value":         {"x": ""},
			"a long name":      {strings.Repeat("n", 65): "x"},
			"a long value":     {"x": strings.Repeat("v", 129)},
			"a reserved name":  {"weft.x": "y"},
			"no UTF-8":         {"x": "\xff"},
			"too many":         numbered(17, "v"),
			"too many bytes":   numbered(16, strings.Repeat("v", 63)),
			"a name not UTF-8": {"\xff": "x"},
		} {
			if _, err := wf.With(engine.StartOptions{Labels: labels}).Start(ctx, p, "labelled", ""); !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", what, err)
			}
		}
		if after := len(recordsOfRuns(t, s)); after != before {
			t.Errorf("%d records were written", after-before)
		}
		most := numbered(16, strings.Repeat("v", 62))
		start(t, wf.With(engine.StartOptions{Labels: most}), p, "most", "")
		time.Sleep(time.Second)
		if got := describe(t, p, "most").Labels; !maps.Equal(got, most) {
			t.Errorf("labels %v, want %v", got, most)
		}
		p.stop(t)
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Page(ctx, f, engine.PageRequest{}); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("page of a closed engine: %v", err)
		}
		if _, _, err := p.Count(ctx, f, 1); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("count of a closed engine: %v", err)
		}
	})
}

// numbered returns n labels with names of two bytes and a value.
func numbered(n int, value string) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels[fmt.Sprintf("%02d", i)] = value
	}
	return labels
}

// LST-3: while workflows start and end, no list has a workflow twice, and each has all that stay
// as they are.
func TestPagesWhileWorkflowsChange(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		waits := flow("waits", func(run *engine.Run) (string, error) { return "", run.Sleep(1000 * time.Hour) })
		quick := flow("quick", nil2)
		failing := flow("failing", func(*engine.Run) (string, error) { return "", errBroke })
		p := boot(t, s, waits, quick, failing)
		time.Sleep(time.Second)
		labels := engine.StartOptions{Labels: map[string]string{"team": "blue"}}
		var stay, change []string
		for i := range 20 {
			time.Sleep(2 * time.Millisecond)
			stay = append(stay, start(t, waits.With(labels), p, sprint("s", i), "").ID())
			change = append(change, start(t, waits.With(labels), p, sprint("c", i), "").ID())
			start(t, failing.With(labels), p, sprint("f", i), "")
		}
		time.Sleep(time.Second)
		all := []engine.Filter{{}, {Workflow: "waits"}, {Labels: labels.Labels}, {Status: checkpoint.StatusRunning}, {Status: checkpoint.StatusFailed}, {IDPrefix: "s"}}
		for _, f := range every(torture.Rounds(1, 1, 3), all) {
			for _, ascending := range []bool{false, true} {
				seen := map[string]int{}
				r := engine.PageRequest{Limit: 3, Ascending: ascending}
				for n := 0; ; n++ {
					page, err := p.Page(ctx, f, r)
					if err != nil {
						t.Fatal(err)
					}
					for _, i := range page.Data {
						seen[i.ID]++
					}
					if !page.HasMore {
						break
					}
					r.Cursor = page.Next
					time.Sleep(2 * time.Millisecond)
					if n < len(change) {
						start(t, quick.With(labels), p, "", "")
						if err := p.Cancel(ctx, change[n], engine.Actor{}); err != nil && !errors.Is(err, engine.ErrTerminal) {
							t.Fatal(err)
						}
						if err := p.Resume(ctx, sprint("f", n), audit); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(2 * time.Second)
				}
				for id, n := range seen {
					if n > 1 {
						t.Errorf("%+v, ascending %v: %q is there %d times", f, ascending, id, n)
					}
				}
				for _, id := range stay {
					if f.Status != checkpoint.StatusFailed && seen[id] != 1 {
						t.Errorf("%+v, ascending %v: %q is there %d times, and stayed as it was", f, ascending, id, seen[id])
					}
				}
			}
		}
		p.stop(t)
	})
}

// LST-5: an entry of a list that does not follow from the workflow's record is passed over and
// removed, and a damaged entry or record is an item that says so.
func TestPagePassesOverWhatIsOutdated(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", nil2)
		p := boot(t, s, wf)
		for i := range 4 {
			time.Sleep(2 * time.Millisecond)
			start(t, wf, p, sprint("o", i), "")
		}
		time.Sleep(time.Second)
		plant := func(id, of string) []byte {
			row, err := journal.PutRow(keys.Listed("wf", "failed", time.Now(), of), id)
			if err != nil {
				t.Fatal(err)
			}
			put(t, s, row.Key, row.Value)
			return row.Key
		}
		outdated, orphan := plant("o1", "G"), plant("nobody", "H")
		failed := engine.Filter{Status: checkpoint.StatusFailed}
		if n, all, err := p.Count(ctx, engine.Filter{Status: checkpoint.StatusFailed, TopLevel: true}, 10); n != 0 || !all || err != nil {
			t.Errorf("count of outdated entries: %d, %v, %v", n, all, err)
		}
		if got := paged(t, p.Engine, failed, 10, false); len(got) > 0 {
			t.Errorf("outdated entries: %+v", got)
		}
		for _, key := range [][]byte{outdated, orphan} {
			if _, err := s.Get(ctx, key); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("%s is still there: %v", key, err)
			}
		}
		put(t, s, keys.Workflow("o2"), []byte("damaged"))
		row := keys.Listed("wf", "completed", time.Now(), "G")
		put(t, s, row, []byte("damaged"))
		got := paged(t, p.Engine, engine.Filter{Workflow: "wf"}, 2, false)
		if want := []string{"", "o3", "o2", "o1", "o0"}; !slices.Equal(idsOf(got), want) {
			t.Fatalf("%q, want %q", idsOf(got), want)
		}
		for i, g := range got {
			if damaged := i == 0 || i == 2; (g.Damaged != "") != damaged || damaged && g.Status != "" {
				t.Errorf("%d: %+v", i, g)
			}
		}
		n := 0
		for i, err := range p.List(ctx, engine.Filter{IDPrefix: "o"}) {
			if (i.ID == "o2") != errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("%+v, %v", i, err)
			}
			n++
		}
		if n != 4 {
			t.Errorf("by ids: %d, want 4", n)
		}
		p.kill()
	})
}

// LST-7: a start adds its entries, an end moves them, and nothing else changes one.
func TestWhatChangesLists(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		wf := flow("wf", func(run *engine.Run) (string, error) {
			for range 3 {
				if err := run.Sleep(time.Hour); err != nil {
					return "", err
				}
			}
			return approved.Receive(run)
		})
		p := boot(t, s, wf, parking)
		time.Sleep(time.Second)
		lists := func() (all []string) {
			for _, family := range []string{"ix:", "ls:", "ll:", "lp:", "la:"} {
				all = append(all, entries(t, s, family)...)
			}
			return all
		}
		start(t, wf.With(engine.StartOptions{Labels: map[string]string{"a": "1", "b": "2"}}), p, "o", "")
		started := lists()
		if len(started) != 4 {
			t.Errorf("a start has added %q", started)
		}
		time.Sleep(2*time.Hour + time.Minute)
		send(t, approved, p, "o", "v", "x")
		if got := lists(); !slices.Equal(got, started) {
			t.Errorf("steps, parks and a signal have changed %q to %q", started, got)
		}
		result(t, wf.Handle(p, "o"))
		ended := lists()
		if len(ended) != 4 || slices.Equal(ended, started) {
			t.Errorf("the end has changed %q to %q", started, ended)
		}
		if err := p.Purge(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		if got := lists(); len(got) > 0 {
			t.Errorf("left after a purge: %q", got)
		}
		p.stop(t)
	})
}

// A page in JSON has a cursor if there is more, and always a tail.
func TestPageInJSON(t *testing.T) {
	for _, c := range []struct {
		p    engine.Page[int]
		want string
	}{
		{engine.Page[int]{}, `{"data":[],"cursor":null,"hasMore":false,"tail":""}`},
		{engine.Page[int]{Data: []int{1}, Next: "x"}, `{"data":[1],"cursor":null,"hasMore":false,"tail":"x"}`},
		{engine.Page[int]{Data: []int{1}, Next: "x", HasMore: true}, `{"data":[1],"cursor":"x","hasMore":true,"tail":"x"}`},
	} {
		if got, err := json.Marshal(c.p); string(got) != c.want || err != nil {
			t.Errorf("%s, %v, want %s", got, err, c.want)
		}
	}
}

// LST-10: in a store of a release without these lists, lists are answered by reading all
// workflows until an engine has added what is missing, beside what goes on and through crashes.
func TestListsAreCompleted(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		p, ids := many(t, s)
		p.kill()
		time.Sleep(time.Minute)
		for _, family := range []string{"ls:", "ll:", "lp:", "la:", "meta:lists"} {
			for _, key := range entries(t, s, family) {
				if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Delete([]byte(key))}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		client := made(t, s)
		defer client.Close()
		asked := describe(t, client, ids[2]) // cancelled a second after it was created
		late := engine.Filter{Status: checkpoint.StatusCancelled, After: asked.EndedAt, Before: asked.EndedAt.Add(time.Microsecond)}
		if got := idsOf(paged(t, client, late, 3, false)); !slices.Equal(got, ids[2:3]) {
			t.Errorf("before: ended at %v, created at %v: %q, want %q", asked.EndedAt, asked.CreatedAt, got, ids[2:3])
		}
		if n, all, err := client.Count(ctx, late, 10); n != 1 || !all || err != nil {
			t.Errorf("before: ended at %v: count %d, %v, %v", asked.EndedAt, n, all, err)
		}
		for _, f := range []engine.Filter{{}, {Status: checkpoint.StatusCompleted}, {Labels: map[string]string{"team": "blue"}}} {
			want := 0
			for _, id := range ids {
				i := describe(t, client, id)
				if (f.Status == "" || i.Status == f.Status) && (f.Labels == nil || i.Labels["team"] == "blue") {
					want++
				}
			}
			if got := paged(t, client, f, 3, false); len(got) != want || want == 0 {
				t.Errorf("before: %+v: %q, want %d", f, idsOf(got), want)
			}
		}
		waits := flow("waits", func(run *engine.Run) (string, error) { return "", run.Sleep(24 * time.Hour) })
		q := boot(t, s, flow("quick", nil2), waits)
		eventually(t, "lists complete", func() bool {
			time.Sleep(time.Second)
			raw, err := s.Get(ctx, keys.Meta("lists"))
			return err == nil && len(raw) > 0
		})
		time.Sleep(time.Minute)
		for _, id := range ids {
			wf, err := journal.Load(ctx, s, id)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range wf.Rows() {
				if _, err := s.Get(ctx, row); err != nil {
					t.Errorf("%s: %s: %v", id, row, err)
				}
			}
		}
		q.stop(t)
	})
}
