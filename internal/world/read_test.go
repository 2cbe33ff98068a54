package world_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/world"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// lists returns a function for each list, which returns the ids of a page.
func (c *client) lists() map[string]func(p world.Page) ([]string, *string, bool, string, error) {
	return map[string]func(p world.Page) ([]string, *string, bool, string, error){
		"events": func(p world.Page) ([]string, *string, bool, string, error) {
			l, err := c.Events(c.ctx, "wrun_1", p, "")
			return parts(l, err, func(e world.Event) string { return e.EventID })
		},
		"steps": func(p world.Page) ([]string, *string, bool, string, error) {
			l, err := c.Steps(c.ctx, "wrun_1", p, "")
			return parts(l, err, func(s *world.Step) string { return s.StepID })
		},
		"hooks": func(p world.Page) ([]string, *string, bool, string, error) {
			l, err := c.Hooks(c.ctx, "wrun_1", p, "")
			return parts(l, err, func(h *world.Hook) string { return h.HookID })
		},
		"hooks of all runs": func(p world.Page) ([]string, *string, bool, string, error) {
			l, err := c.Hooks(c.ctx, "", p, "")
			return parts(l, err, func(h *world.Hook) string { return h.HookID })
		},
		"runs": func(p world.Page) ([]string, *string, bool, string, error) {
			l, err := c.Runs(c.ctx, world.RunFilter{}, p, "")
			return parts(l, err, func(r *world.Run) string { return r.RunID })
		},
		"runs by name": func(p world.Page) ([]string, *string, bool, string, error) {
			l, err := c.Runs(c.ctx, world.RunFilter{WorkflowName: "order"}, p, "")
			return parts(l, err, func(r *world.Run) string { return r.RunID })
		},
		"runs by status": func(p world.Page) ([]string, *string, bool, string, error) {
			l, err := c.Runs(c.ctx, world.RunFilter{Status: world.Running}, p, "")
			return parts(l, err, func(r *world.Run) string { return r.RunID })
		},
		"runs by name and status": func(p world.Page) ([]string, *string, bool, string, error) {
			l, err := c.Runs(c.ctx, world.RunFilter{WorkflowName: "order", Status: world.Running}, p, "")
			return parts(l, err, func(r *world.Run) string { return r.RunID })
		},
		"events of a correlation": func(p world.Page) ([]string, *string, bool, string, error) {
			l, err := c.Correlated(c.ctx, "step_000", "wrun_1", p, "")
			return parts(l, err, func(e *world.Event) string { return e.EventID })
		},
		"events of a correlation of all runs": func(p world.Page) ([]string, *string, bool, string, error) {
			l, err := c.Correlated(c.ctx, "step_000", "", p, "")
			return parts(l, err, func(e *world.Event) string { return e.RunID + "/" + e.EventID })
		},
	}
}

func parts[T any](l *world.Listed[T], err error, id func(T) string) (ids []string, cursor *string, more bool, tail string, _ error) {
	if err != nil {
		return nil, nil, false, "", err
	}
	for _, item := range l.Data {
		ids = append(ids, id(item))
	}
	return ids, l.Cursor, l.HasMore, l.Tail, nil
}

// fill makes lists of 11 items or more: of runs, steps, hooks, events.
func (c *client) fill() {
	c.begin("wrun_1")
	for i := range 11 {
		c.must("wrun_1", world.StepCreated, fmt.Sprintf("step_%03d", i), fields{"stepName": "pay", "input": 1})
		c.must("wrun_1", world.HookCreated, fmt.Sprintf("hook_%03d", i), fields{"token": fmt.Sprint(i)})
		c.begin(fmt.Sprintf("wrun_2%03d", i))
		c.must("wrun_1", world.StepStarted, "step_000", nil)
	}
	c.must("wrun_2003", world.StepCreated, "step_000", fields{"stepName": "pay", "input": 1})
	c.must("wrun_2003", world.RunCompleted, "", fields{"output": 1})
	c.must("wrun_other", world.RunCreated, "", fields{"workflowName": "other", "deploymentId": "blue", "input": 1})
}

// WLD-20 to WLD-28: the pages of each list, in both orders.
func TestPages(t *testing.T) {
	onAllStores(t, func(t *testing.T, _, c *client) {
		c.fill()
		for name, list := range c.lists() {
			whole, cursor, more, _, err := list(world.Page{Limit: 1000, Order: world.Ascending})
			if err != nil || more || cursor != nil || len(whole) < 11 || !slices.IsSorted(whole) {
				t.Errorf("%s: %v, %v, %v: not all in order", name, whole, more, err)
				continue
			}
			down, _, _, _, _ := list(world.Page{Limit: 1000})
			slices.Reverse(down)
			if !slices.Equal(down, whole) {
				t.Errorf("%s: not descending by default: %v", name, down)
			}
			for _, order := range []world.Order{world.Ascending, world.Descending} {
				var got []string
				p := world.Page{Limit: 4, Order: order}
				for pages := 0; ; pages++ {
					ids, cursor, more, tail, err := list(p)
					if err != nil || len(ids) > 4 || more != (cursor != nil) || more && (*cursor != tail || len(ids) != 4) || len(ids) > 0 && tail != ids[len(ids)-1] || pages > 30 {
						t.Fatalf("%s, %s: page %d has %v, cursor %v, %v, tail %s, %v", name, order, pages, ids, cursor, more, tail, err)
					}
					got = append(got, ids...)
					if !more {
						// behind the last item, with the tail as cursor
						ids, cursor, more, after, err := list(world.Page{Limit: 4, Order: order, Cursor: tail})
						if err != nil || len(ids) > 0 || cursor != nil || more || after != tail {
							t.Errorf("%s, %s: behind the end: %v, %v, %v, tail %s, %v", name, order, ids, cursor, more, after, err)
						}
						break
					}
					p.Cursor = *cursor
				}
				if order == world.Descending {
					slices.Reverse(got)
				}
				if !slices.Equal(got, whole) {
					t.Errorf("%s, %s: pages have %v, want %v", name, order, got, whole)
				}
			}
			if whole, _, more, _, _ := list(world.Page{Limit: len(whole)}); more || len(whole) < 11 {
				t.Errorf("%s: a page that has all says that there is more", name)
			}
		}
	})
}

// WLD-20, WLD-21, WLD-27: a list takes a limit of 1 to 1,000, by default 100, and is one scan of one more entry. That of the log may be several
// scans, since events may be large.
func TestListsAreOneScan(t *testing.T) {
	var scans []storage.Range
	s := storagetest.NewFaulty(new(memory.Store), func(call storagetest.Call) storagetest.Fault {
		if call.Method == "Scan" {
			scans = append(scans, call.Range)
		}
		return storagetest.None
	})
	c := open(t, s)
	c.fill()
	for name, list := range c.lists() {
		for limit, want := range map[int]int{0: 101, 1: 2, 10: 11, 1000: 1001} {
			scans = nil
			_, _, _, _, err := list(world.Page{Limit: limit})
			if name == "events" {
				read := 0
				for i, r := range scans {
					if r.Limit != min(4<<i, 64, want-read) {
						t.Errorf("%s with the limit %d: scan %d is of %d events, behind %d", name, limit, i, r.Limit, read)
					}
					read += r.Limit
				}
				scans = []storage.Range{{Limit: want}}
			}
			if err != nil || len(scans) == 0 || scans[0].Limit != want || len(scans) > 1 && name != "runs by name and status" {
				t.Errorf("%s with the limit %d: scans %v, %v, want one of %d", name, limit, scans, err, want)
			}
		}
		for _, p := range []world.Page{{Limit: -1}, {Limit: 1001}, {Order: "up"}} {
			_, _, _, _, err := list(p)
			refused(t, err, 400, "limit")
		}
	}
	for _, name := range []string{"events", "events of a correlation", "events of a correlation of all runs"} {
		_, _, _, _, err := c.lists()[name](world.Page{Cursor: "evnt_x"})
		refused(t, err, 400, "evnt_x")
	}
	_, err := c.Correlated(c.ctx, "", "wrun_1", world.Page{}, "")
	refused(t, err, 400, "correlationId")
}

// A page of the runs of a name and a status ends, and says that more may follow, although it was not filled.
func TestPagesOfANameAndAStatusEnd(t *testing.T) {
	const all = 150
	calls := 0
	s := storagetest.NewFaulty(new(memory.Store), func(storagetest.Call) storagetest.Fault { calls++; return storagetest.None })
	c := open(t, s)
	for i := range all {
		run := fmt.Sprintf("wrun_%03d", i)
		c.begin(run)
		if i > 0 {
			c.must(run, world.RunCompleted, "", fields{"output": 1})
		}
	}
	var pages, found int
	for p := (world.Page{Limit: 1}); ; pages++ {
		calls = 0
		l, err := c.Runs(c.ctx, world.RunFilter{WorkflowName: "order", Status: world.Running}, p, world.ResolveNone)
		if err != nil {
			t.Fatal(err)
		}
		if calls > 210 { // 100 lists of one run, with their heads
			t.Errorf("%d reads for one page", calls)
		}
		found += len(l.Data)
		if !l.HasMore {
			break
		}
		if l.Cursor == nil || *l.Cursor == p.Cursor {
			t.Fatalf("a page behind %q ends at %v", p.Cursor, l.Cursor)
		}
		p.Cursor = *l.Cursor
	}
	if found != 1 || pages != 1 {
		t.Errorf("%d runs in %d more pages, want one and one", found, pages)
	}
}

// In a log of 10,000 events, the first and the last events cost the store the same when they are created, and each page costs
// the same wherever it is, in both orders.
func TestALongLogCostsTheSameEverywhere(t *testing.T) {
	const all, step, size = 10_000, 20, 50
	c, s := counted(t)
	c.begin("wrun_1")
	n := 2 // events
	create := func() {
		c.must("wrun_1", world.StepCreated, fmt.Sprintf("step_%05d", n), fields{"stepName": "pay", "input": "in"})
		n++
	}
	createSome := func() {
		for range step {
			create()
		}
	}
	first := s.cost(createSome)
	same(t, "the first events", first, fmt.Sprintf("0 reads of 0 rows, %d commits of %d", step, 6*step)) // four rows, and two conditions
	for n < all-step {
		create()
	}
	same(t, "the last events", s.cost(createSome), first)

	ids := make([]string, 0, all)
	for p := (world.Page{Limit: 1000, Order: world.Ascending}); ; {
		l, err := c.Events(c.ctx, "wrun_1", p, world.ResolveNone)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range l.Data {
			ids = append(ids, e.EventID)
		}
		if p.Cursor = l.Tail; !l.HasMore {
			break
		}
	}
	if len(ids) != all {
		t.Fatalf("the log has %d events, want %d", len(ids), all)
	}
	for _, order := range []world.Order{world.Ascending, world.Descending} {
		for behind, cursor := range map[string]string{"": "", "the middle": ids[all/2], "all but a page": ids[all-size-2], "the first page": ids[size+1]} {
			got := s.cost(func() {
				l, err := c.Events(c.ctx, "wrun_1", world.Page{Limit: size, Cursor: cursor, Order: order}, world.ResolveAll)
				if err != nil || len(l.Data) != size {
					t.Errorf("%s behind %q: %v, %v", order, behind, l, err)
				}
			})
			same(t, fmt.Sprintf("a page %s behind %q", order, behind), got, fmt.Sprintf("5 reads of %d rows, 0 commits of 0", size+1)) // the head, and four of the log
		}
	}
}

// WLD-15: what is unknown is a 404 that names it.
func TestWhatIsUnknownIsNotFound(t *testing.T) {
	c := open(t, new(memory.Store))
	c.begin("wrun_1")
	for want, err := range map[string]error{
		"Run not found: wrun_0":                            second(c.Run(c.ctx, "wrun_0", "")),
		"Run not found: wrun_s":                            second(c.Step(c.ctx, "wrun_s", "step_0", "")),
		"Run not found: wrun_e":                            second(c.Events(c.ctx, "wrun_e", world.Page{}, "")),
		"Run not found: wrun_h":                            second(c.Hooks(c.ctx, "wrun_h", world.Page{}, "")),
		"Step not found: step_0":                           second(c.Step(c.ctx, "wrun_1", "step_0", "")),
		"Hook not found: hook_0":                           second(c.Hook(c.ctx, "hook_0", "")),
		"Hook with token not found: t":                     second(c.HookByToken(c.ctx, "t", "")),
		"Event not found: evnt_0":                          second(c.Event(c.ctx, "wrun_1", "evnt_0", "")),
		"Event not found: evnt_01M8ADJQ4J0000000020000000": second(c.Event(c.ctx, "wrun_1", "evnt_01M8ADJQ4J0000000020000000", "")),
	} {
		refused(t, err, 404, want)
	}
}

func second[T any](_ T, err error) error { return err }

// WLD-47 to WLD-50: what is left out of a run, a step, a hook and an event, in get and in list.
func TestResolveData(t *testing.T) {
	c := open(t, new(memory.Store))
	c.begin("wrun_1")
	c.must("wrun_1", world.StepStarted, "step_1", fields{"stepName": "pay", "input": []byte("a")})
	c.must("wrun_1", world.StepCompleted, "step_1", fields{"stepName": "pay", "result": []byte("b")})
	c.must("wrun_1", world.HookCreated, "hook_1", fields{"token": "t", "metadata": []byte("m")})
	c.must("wrun_2", world.RunStarted, "", order)
	c.must("wrun_2", world.RunCompleted, "", fields{"output": []byte("out")})
	for resolve, want := range map[world.Resolve][4]string{
		"":                {"4161/4162", "416d", "42696e/436f7574", "a265746f6b656e6174686d65746164617461416d"},
		world.ResolveAll:  {"4161/4162", "416d", "42696e/436f7574", "a265746f6b656e6174686d65746164617461416d"},
		world.ResolveMeta: {"/", "", "/", "a165746f6b656e6174"},
		world.ResolveNone: {"80/", "", "80/", ""},
	} {
		s, err := c.Step(c.ctx, "wrun_1", "step_1", resolve)
		steps, err2 := c.Steps(c.ctx, "wrun_1", world.Page{}, resolve)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		same(t, "step", fmt.Sprintf("%x/%x", []byte(s.Input), []byte(s.Output)), want[0])
		same(t, "steps", *steps.Data[0], *s)
		h, err := c.Hook(c.ctx, "hook_1", resolve)
		byToken, err2 := c.HookByToken(c.ctx, "t", resolve)
		hooks, err3 := c.Hooks(c.ctx, "wrun_1", world.Page{}, resolve)
		if err := errors.Join(err, err2, err3); err != nil {
			t.Fatal(err)
		}
		same(t, "hook", fmt.Sprintf("%x", []byte(h.Metadata)), want[1])
		same(t, "hook by token", *byToken, *h)
		same(t, "hooks", *hooks.Data[0], *h)
		r, err := c.Run(c.ctx, "wrun_2", resolve)
		runs, err2 := c.Runs(c.ctx, world.RunFilter{Status: world.Completed}, world.Page{}, resolve)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		same(t, "run", fmt.Sprintf("%x/%x", []byte(r.Input), []byte(r.Output)), want[2])
		same(t, "runs", fmt.Sprintf("%x/%x", []byte(runs.Data[0].Input), []byte(runs.Data[0].Output)), want[2])
		l, err := c.Events(c.ctx, "wrun_1", world.Page{Limit: 1}, resolve)
		if err != nil {
			t.Fatal(err)
		}
		e, err := c.Event(c.ctx, "wrun_1", l.Data[0].EventID, resolve)
		correlated, err2 := c.Correlated(c.ctx, "hook_1", "", world.Page{}, resolve)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		same(t, "event", fmt.Sprintf("%x", []byte(e.EventData)), want[3])
		same(t, "events", l.Data[0], *e)
		same(t, "events of a correlation", *correlated.Data[0], *e)
		a := c.must("wrun_1", world.HookCreated, "hook_1", fields{"token": "t", "metadata": []byte("m")}, func(r *world.Request) { r.Resolve = resolve })
		same(t, "the event in an answer", *a.Event, *e)
		_, err = c.Run(c.ctx, "wrun_2", resolve+"x")
		refused(t, err, 400, "resolveData")
	}
}

// WLD-42, WLD-43, WLD-45, WLD-46: what was returned may be changed. Nothing that is stored changes.
func TestWhatIsReturnedIsACopy(t *testing.T) {
	c := open(t, new(memory.Store))
	c.fill()
	c.must("wrun_1", world.AttrSet, "", fields{"changes": []map[string]any{{"key": "a", "value": "1"}}, "writer": map[string]string{"type": "workflow"}})
	in := value(t, fields{"stepName": "pay", "input": []byte("input")})
	mine := bytes.Clone(in)
	a, err := c.Create(c.ctx, world.Request{RunID: "wrun_1", Type: world.StepCreated, Correlation: "step_c", Spec: 5, Data: mine})
	if err != nil {
		t.Fatal(err)
	}
	read := func() string {
		run := c.run("wrun_1")
		runs, err := c.Runs(c.ctx, world.RunFilter{}, world.Page{}, "")
		steps, err2 := c.Steps(c.ctx, "wrun_1", world.Page{}, "")
		hooks, err3 := c.Hooks(c.ctx, "wrun_1", world.Page{}, "")
		events, err4 := c.Events(c.ctx, "wrun_1", world.Page{Limit: 200}, "")
		if err := errors.Join(err, err2, err3, err4); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%+v", *run)
		for _, r := range runs.Data {
			fmt.Fprintf(&b, "%+v", *r)
			clear(r.Input)
			r.Status, r.Attributes["a"] = "spoilt", "spoilt"
		}
		for _, s := range steps.Data {
			fmt.Fprintf(&b, "%s %s %x", s.StepID, s.Status, []byte(s.Input))
			clear(s.Input)
		}
		for _, h := range hooks.Data {
			fmt.Fprintf(&b, "%+v", *h)
			h.Token = "spoilt"
		}
		for _, e := range events.Data {
			fmt.Fprintf(&b, "%+v", e)
			clear(e.EventData)
		}
		clear(run.Input)
		run.Attributes["a"] = "spoilt"
		return b.String()
	}
	first := read()
	clear(mine)
	clear(a.Event.EventData)
	clear(a.Step.Input)
	if again := read(); again != first {
		t.Errorf("what was returned was changed, and then is stored: %s, want %s", again, first)
	}
	s := c.step("wrun_1", "step_c")
	same(t, "the input", fmt.Sprintf("%x", []byte(s.Input)), "45696e707574")
}

// WLD-44, WLD-62, WLD-63, WLD-66: a payload is returned byte for byte, whatever CBOR it is.
func TestPayloadsStayAsTheyCame(t *testing.T) {
	c := open(t, new(memory.Store))
	c.begin("wrun_1")
	nested := bytes.Repeat([]byte{0x81}, 200)
	for i, payload := range [][]byte{
		{0xf7},                 // undefined
		{0xf6},                 // null
		{0xf4}, {0x00}, {0x60}, // false, 0, ""
		{0xc1, 0xfb, 0x41, 0xda, 0x55, 0xb2, 0x80, 0x1f, 0x7c, 0xee}, // a date
		{0xd9, 0x01, 0x02, 0x82, 0x01, 0x02},                         // a set
		{0xd9, 0x01, 0x03, 0xb9, 0x00, 0x01, 0x01, 0x61, 0x61},       // a map whose keys are numbers, with a size that is too long
		{0xb9, 0x00, 0x02, 0x61, 0x62, 0x01, 0x61, 0x61, 0x02},       // an object whose keys are in no order
		{0xbf, 0x61, 0x61, 0x9f, 0x01, 0xff, 0xff},                   // of no stated size
		{0x43, 0x00, 0xff, 0x00},                                     // bytes
		{0xd8, 0x40, 0x42, 0x00, 0x01},                               // an array of bytes
		append(nested, 0x00),
	} {
		id := fmt.Sprint("step_", i)
		raw := append([]byte{0xb9, 0x00, 0x02, 0x68}, "stepNamecpay"...)
		raw = append(append(append(raw, 0x65), "input"...), payload...)
		a, err := c.Create(c.ctx, world.Request{RunID: "wrun_1", Type: world.StepCreated, Correlation: id, Spec: 5, Data: raw})
		if err != nil {
			t.Fatalf("%x: %v", payload, err)
		}
		s := c.step("wrun_1", id)
		e, err := c.Event(c.ctx, "wrun_1", a.Event.EventID, "")
		if err != nil || !bytes.Equal(s.Input, payload) || !bytes.Equal(a.Step.Input, payload) || !bytes.Equal(e.EventData, raw) {
			t.Errorf("%x: got %x and %x, %v", payload, []byte(s.Input), []byte(e.EventData), err)
		}
	}
}

// A page of events ends before it has more than the memory should hold, in both orders, and so does what a start of a run
// tells.
func TestPagesOfLargeEvents(t *testing.T) {
	c := open(t, new(memory.Store))
	c.begin("wrun_1")
	large := make([]byte, 1<<20)
	for i := range 200 {
		c.must("wrun_1", world.StepCreated, fmt.Sprintf("step_%03d", i), fields{"stepName": "pay", "input": large})
	}
	size := func(all []world.Event) (n int) {
		for _, e := range all {
			n += len(e.EventData)
		}
		return n
	}
	for order, want := range map[world.Order]string{world.Ascending: "202 24", world.Descending: "202 25"} {
		n, pages := 0, 0
		for p := (world.Page{Limit: 1000, Order: order}); ; pages++ {
			l, err := c.Events(c.ctx, "wrun_1", p, world.ResolveAll)
			if err != nil {
				t.Fatal(err)
			}
			if size(l.Data) > 9<<20 || len(l.Data) == 0 || pages > 200 {
				t.Fatalf("%s: page %d has %d events of %d bytes", order, pages, len(l.Data), size(l.Data))
			}
			if n, p.Cursor = n+len(l.Data), l.Tail; !l.HasMore {
				break
			}
		}
		same(t, string(order)+": events, and pages before the last", fmt.Sprint(n, " ", pages), want)
	}
	a := c.must("wrun_1", world.RunStarted, "", nil)
	if n := size(a.Events); n > 9<<20 || n < 8<<20 || !*a.HasMore || *a.Cursor != a.Events[len(a.Events)-1].EventID {
		t.Errorf("a start tells %d events of %d bytes; more: %v", len(a.Events), n, *a.HasMore)
	}
	if l, err := c.Events(c.ctx, "wrun_1", world.Page{Limit: 1000}, world.ResolveNone); err != nil || len(l.Data) != 202 || l.HasMore {
		t.Errorf("a page without data: %d events, %v, %v", len(l.Data), l.HasMore, err)
	}
}

// A page of any list ends before it has more than the memory should hold, and its cursor goes on behind its last item.
func TestPagesOfLargeItems(t *testing.T) {
	const all = 20
	c := open(t, new(memory.Store))
	large := make([]byte, 1<<20)
	for i := range all {
		run := fmt.Sprint("wrun_", i+1)
		c.must(run, world.RunCreated, "", fields{"workflowName": "order", "deploymentId": "blue", "input": large})
		c.must(run, world.RunStarted, "", nil)
	}
	for i := range all {
		c.must("wrun_1", world.StepCreated, fmt.Sprintf("step_%03d", i), fields{"stepName": "pay", "input": large})
		c.must("wrun_1", world.HookCreated, fmt.Sprint("hook_", i), fields{"token": fmt.Sprint(i), "metadata": large})
		c.must("wrun_1", world.StepStarted, "step_000", nil)
		c.must("wrun_1", world.StepRetrying, "step_000", fields{"error": large})
	}
	for name, list := range c.lists() {
		for _, order := range []world.Order{world.Ascending, world.Descending} {
			seen, pages := map[string]bool{}, 1
			for p := (world.Page{Limit: 1000, Order: order}); ; pages++ {
				ids, cursor, more, _, err := list(p)
				if err != nil || pages > 100 {
					t.Fatalf("%s, %s: page %d: %v", name, order, pages, err)
				}
				for _, id := range ids {
					if seen[id] {
						t.Errorf("%s, %s: %s is there twice", name, order, id)
					}
					seen[id] = true
				}
				if !more {
					break
				}
				p.Cursor = *cursor
			}
			want := all
			if strings.HasPrefix(name, "events of a correlation") {
				want = 1 + 2*all
			}
			if pages == 1 || len(seen) != want && name != "events" {
				t.Errorf("%s, %s: %d items in %d pages, want %d in several", name, order, len(seen), pages, want)
			}
		}
	}
}

// Large events behind small ones are not read all at once.
func TestLargeEventsBehindSmallOnes(t *testing.T) {
	s := new(memory.Store)
	c := open(t, s)
	c.begin("wrun_1")
	for i := range 300 {
		input := make([]byte, 10)
		if i >= 40 {
			input = make([]byte, 1<<20)
		}
		c.must("wrun_1", world.StepCreated, fmt.Sprintf("step_%03d", i), fields{"stepName": "pay", "input": input})
	}
	most := 0
	c = open(t, scanned{s, func(page []storage.Entry) {
		n := 0
		for _, e := range page {
			n += len(e.Value)
		}
		most = max(most, n)
	}})
	for _, r := range []world.Resolve{world.ResolveAll, world.ResolveNone} {
		l, err := c.Events(c.ctx, "wrun_1", world.Page{Limit: 1000, Order: world.Ascending}, r)
		if err != nil || len(l.Data) < 42 {
			t.Fatalf("%s: %v, %v", r, l, err)
		}
	}
	c.must("wrun_1", world.RunStarted, "", nil)
	if most > 65<<20 {
		t.Errorf("%d bytes of a log were read at once", most)
	}
	most = 0
	if l, err := c.Events(c.ctx, "wrun_1", world.Page{Limit: 1000}, ""); err != nil || len(l.Data) < 8 || most > 5<<20 {
		t.Errorf("%d bytes of a log were read at once, whose first events are large: %v", most, err)
	}
}

// A log that lacks an event is damaged: no page leaves one out. Pages that have nothing to do with it are answered.
func TestALogWithoutAnEvent(t *testing.T) {
	onAllStores(t, func(t *testing.T, c, _ *client) {
		const run = "wrun_1"
		c.begin(run)
		for i := range 98 {
			c.must(run, world.StepCreated, fmt.Sprintf("step_%03d", i), fields{"stepName": "pay", "input": i})
		}
		whole, err := c.Events(c.ctx, run, world.Page{Limit: 100, Order: world.Ascending}, "")
		if err != nil || len(whole.Data) != 100 {
			t.Fatal(whole, err)
		}
		middle := whole.Data[60].EventID
		do := func(op storage.Op) {
			t.Helper()
			if err := c.store.Commit(c.ctx, storage.Batch{Ops: []storage.Op{op}}); err != nil {
				t.Fatal(err)
			}
		}
		for _, lost := range []uint64{1, 2, 32, 33, 50, 99, 100} {
			key := keys.WorldEvent(run, lost)
			raw, err := c.store.Get(c.ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			do(storage.Delete(key))
			for _, p := range []world.Page{
				{Limit: 1000, Order: world.Ascending}, {Limit: 1000}, {Limit: 100, Order: world.Ascending}, {Limit: 100},
				{Limit: 30, Order: world.Ascending}, {Limit: 30},
				{Limit: 40, Order: world.Ascending, Cursor: middle}, {Limit: 40, Cursor: middle},
			} {
				after := uint64(0)
				if p.Cursor != "" {
					after = 61
				}
				first, last := after+1, min(after+uint64(p.Limit), 100)
				if p.Order == "" {
					if after == 0 {
						after = 101
					}
					first, last = after-min(uint64(p.Limit), after-1), after-1
				}
				l, err := c.Events(c.ctx, run, p, "")
				if first <= lost && lost <= last {
					if !errors.Is(err, storage.ErrCorrupt) {
						t.Errorf("%+v without event %d: %+v, %v", p, lost, l, err)
					}
				} else if err != nil || len(l.Data) != int(last-first)+1 {
					t.Errorf("%+v, which does not have event %d: %v", p, lost, err)
				}
			}
			_, err = c.create(run, world.RunStarted, "", nil)
			if !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("a start without event %d: %v", lost, err)
			}
			do(storage.Put(key, raw))
		}
	})
}

// A run that is removed while its log is read is not found. No part of it is answered as if that were all.
func TestALogThatIsRemovedMeanwhile(t *testing.T) {
	for _, order := range []world.Order{world.Ascending, world.Descending} {
		s := new(memory.Store)
		now := time.Now().UnixMilli()
		keeper := open(t, s, clock(&now), func(o *world.Options) { o.Retention = day })
		keeper.begin("wrun_1")
		for i := range 500 {
			keeper.must("wrun_1", world.StepCreated, fmt.Sprintf("step_%03d", i), fields{"stepName": "pay", "input": i})
		}
		keeper.must("wrun_1", world.RunCompleted, "", fields{"output": 1})
		now += 2 * day.Milliseconds()
		c := open(t, scanned{s, func([]storage.Entry) {
			if _, err := keeper.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
		}})
		_, err := c.Events(c.ctx, "wrun_1", world.Page{Limit: 1000, Order: order}, "")
		refused(t, err, 404, "Run not found: wrun_1")
	}
}

// A scanned store tells of each page that was read.
type scanned struct {
	storage.Storage
	tell func([]storage.Entry)
}

func (s scanned) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	page, err := s.Storage.Scan(ctx, r)
	s.tell(page)
	return page, err
}

// A run may have as many hooks as its end can dispose in one batch, also if that is limited by bytes.
func TestHooksOfAStoreWithSmallBatches(t *testing.T) {
	s := &small{new(memory.Store), storage.Size{Ops: 10_000, Bytes: 256 << 10}}
	c := open(t, s)
	c.begin("wrun_1")
	n := 0
	for ; ; n++ {
		_, err := c.create("wrun_1", world.HookCreated, fmt.Sprintf("hook_%0195d", n), fields{"token": fmt.Sprintf("%0250d", n)})
		if err != nil {
			refused(t, err, 409, "open hooks")
			break
		}
	}
	if n < 32 {
		t.Errorf("a run may have %d hooks", n)
	}
	c.must("wrun_1", world.RunCompleted, "", fields{"output": 1})
}
