package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/namespace"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// naming is a workflow that starts a child, one with a derived id, one without a parent, and sends a
// signal: by these ids. Its result says what came of each. It does so after a signal.
func naming(child, detached, to string) *engine.Workflow[string, string] {
	kid := flow("kid", func(run *engine.Run) (string, error) { return run.ID(), nil })
	return flow("naming", func(run *engine.Run) (string, error) {
		var told []string
		tell := func(what, got string, err error) {
			switch {
			case errors.Is(err, engine.ErrInvalid):
				got = "invalid"
			case errors.Is(err, engine.ErrNotFound):
				got = "not found"
			case err != nil:
				got = err.Error()
			}
			told = append(told, what+" "+got)
		}
		id, err := kid.AsChild(engine.ChildOptions{ID: child}).Do(run, "")
		tell("child", id, err)
		id, err = kid.Do(run, "")
		tell("derived", id[:min(len(id), strings.LastIndex(id, "_")+1)], err)
		id, err = kid.Detach(run, detached, "")
		tell("detached", id, err)
		tell("signal", "sent", approved.SendFrom(run, to, "from "+run.ID()))
		by, err := yes.Receive(run)
		tell("by", by, err)
		return strings.Join(told, ", "), nil
	})
}

func kids() *engine.Workflow[string, string] {
	return flow("kid", func(run *engine.Run) (string, error) { return run.ID(), nil })
}

// replayed waits until a naming run waits for its signal, with an engine that dies there, and returns its
// result: of a replay.
func replayed(t *testing.T, s storage.Storage, wf *engine.Workflow[string, string], id string) string {
	t.Helper()
	p := boot(t, s, wf, kids())
	eventually(t, "the run waits", func() bool {
		i := describe(t, p, id)
		return len(i.Waiting) == 1 && strings.Contains(i.Waiting[0], "yes")
	})
	p.kill()
	p = boot(t, s, wf, kids())
	tell(t, yes, p, id, "ann")
	got := result(t, wf.Handle(p, id))
	p.stop(t)
	return got
}

// The ids that a run of a namespace names, and those that are derived for it, are of its
// namespace, also after a replay. Workflows with these ids in other namespaces, and of the host, are not reached.
func TestRunStaysInItsNamespace(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		receives := flow("receives", func(run *engine.Run) (string, error) { return approved.Receive(run) })
		client := made(t, s)
		defer client.Close()
		for _, id := range []string{"to", "@acme/test/to", "@other/prod/to", "@acme/prod/to"} {
			start(t, receives, client, id, "")
		}
		wf := naming("c", "d", "to")
		start(t, wf, client, "@acme/prod/run", "")
		want := "child @acme/prod/c, derived @acme/prod/wrun_, detached @acme/prod/d, signal sent, by ann"
		if got := replayed(t, s, wf, "@acme/prod/run"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		for _, id := range []string{"c", "d"} {
			if _, err := client.Describe(ctx, id); !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("%q of the host: got %v, want ErrNotFound", id, err)
			}
			if i := describe(t, client, "@acme/prod/"+id); i.Labels[namespace.Label] != "acme/prod" {
				t.Errorf("labels of %q: %v, want its namespace", i.ID, i.Labels)
			}
		}
		p := boot(t, s, receives)
		if got := result(t, receives.Handle(p, "@acme/prod/to")); got != "from @acme/prod/run" {
			t.Errorf("the signal: got %q", got)
		}
		for _, id := range []string{"to", "@acme/test/to", "@other/prod/to"} {
			if i := describe(t, p, id); i.Status.Terminal() {
				t.Errorf("%q got the signal", id)
			}
		}
	})
}

// An id in the run's own namespace may also be named in full.
func TestOwnNamespaceMayBeNamed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{new(memory.Store)}
		client := made(t, s)
		defer client.Close()
		start(t, kids(), client, "@acme/prod/to", "")
		wf := naming("@acme/prod/c", "@acme/prod/d", "@acme/prod/to")
		start(t, wf, client, "@acme/prod/run", "")
		want := "child @acme/prod/c, derived @acme/prod/wrun_, detached @acme/prod/d, signal sent, by ann"
		if got := replayed(t, s, wf, "@acme/prod/run"); !strings.HasPrefix(got, want[:strings.Index(want, ", signal")]) || strings.Contains(got, "invalid") {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A run cannot reach another namespace, and a run of the host none: the id may be in its input.
// The error is the same after a replay, and nothing is started.
func TestAnotherNamespaceIsInvalid(t *testing.T) {
	for run, ids := range map[string][]string{
		"@acme/prod/run": {"@acme/test/x", "@other/prod/x", "@acme/prod", "@acme/prod/", "@alice", "@", "@acme/production/x"},
		"run":            {"@acme/prod/x", "@a/b/c"},
	} {
		for _, id := range ids {
			t.Run(run+" "+id, func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					s := sharing{new(memory.Store)}
					client := made(t, s)
					defer client.Close()
					receives := flow("receives", func(run *engine.Run) (string, error) { return approved.Receive(run) })
					start(t, receives, client, id, "")
					wf := naming(id, id, id)
					start(t, wf, client, run, "")
					got := replayed(t, s, wf, run)
					if !strings.HasPrefix(got, "child invalid, derived ") || !strings.HasSuffix(got, ", detached invalid, signal invalid, by ann") {
						t.Errorf("got %q, want ErrInvalid of all but the derived id", got)
					}
					for _, err := range client.Signals(ctx, id) {
						t.Errorf("a signal arrived (%v)", err)
					}
					if i := describe(t, client, id); i.Workflow != "receives" || i.Parent != "" {
						t.Errorf("got %+v", i)
					}
				})
			})
		}
	}
}

// What begins with '@' and is of no namespace is the host's, as before.
func TestOtherIDsAreTheHosts(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{new(memory.Store)}
		client := made(t, s)
		defer client.Close()
		wf := naming("@bob", "@acme/prod", "@alice")
		start(t, kids(), client, "@alice", "")
		start(t, wf, client, "@run", "")
		if got := replayed(t, s, wf, "@run"); !strings.HasPrefix(got, "child @bob, derived wrun_, detached @acme/prod, ") || strings.Contains(got, "invalid") {
			t.Errorf("got %q", got)
		}
		for _, id := range []string{"@run", "@bob", "@acme/prod"} {
			wf, err := journal.Load(ctx, s, id)
			if err != nil || len(wf.Needs)+len(wf.Labels) > 0 {
				t.Errorf("%q: needs %v, labels %v, %v, want none", id, wf.Needs, wf.Labels, err)
			}
		}
	})
}

// UPG-1, UPG-5: the release before would run the code of a namespace's run with other ids. So such
// a run needs an engine that knows namespaces, and no other run does.
func TestOnlyRunsOfANamespaceNeedIt(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		client := made(t, s)
		defer client.Close()
		for id, want := range map[string][]string{"run": nil, "@run": nil, "@acme/prod/run": {namespace.Need}} {
			start(t, kids(), client, id, "")
			wf, err := journal.Load(ctx, s, id)
			if err != nil || !slices.Equal(wf.Needs, want) {
				t.Errorf("%q: needs %v, %v, want %v", id, wf.Needs, err, want)
			}
		}
	})
}

// A run that an earlier release started with such an id, and that needs nothing, goes on as it
// would there: the ids that it names are as its code says, whatever they are.
func TestRunOfAnEarlierReleaseHasNoNamespace(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{new(memory.Store)}
		client := made(t, s)
		defer client.Close()
		start(t, kids(), client, "@acme/test/to", "")
		wf := naming("c", "@other/prod/d", "@acme/test/to")
		start(t, wf, client, "@acme/prod/run", "")
		was, err := journal.Load(ctx, s, "@acme/prod/run")
		if err != nil {
			t.Fatal(err)
		}
		next := *was
		next.Needs, next.Labels = nil, nil
		ops, err := journal.Replace(nil, was, &next)
		if err == nil {
			err = s.Commit(ctx, storage.Batch{If: []storage.Condition{was.Unchanged()}, Ops: ops})
		}
		if err != nil {
			t.Fatal(err)
		}
		got := replayed(t, s, wf, "@acme/prod/run")
		if !strings.HasPrefix(got, "child c, derived wrun_, detached @other/prod/d, ") || strings.Contains(got, "invalid") {
			t.Errorf("got %q", got)
		}
	})
}

// The label of a namespace is Weft's own: it is there beside as many labels as a workflow may have,
// which can be changed, and nobody else sets it or removes it.
func TestLabelOfANamespace(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{new(memory.Store)}
		labels := map[string]string{}
		for i := range 16 {
			labels[fmt.Sprintf("label-%02d", i)] = "x"
		}
		wf := flow("w", func(run *engine.Run) (string, error) {
			if err := run.SetLabel(namespace.Label, "other/prod"); !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("set by the run: got %v, want ErrInvalid", err)
			}
			if err := run.SetLabel("label-01", "by the run"); err != nil {
				t.Error(err)
			}
			return yes.Receive(run)
		})
		p := boot(t, s, wf)
		h := start(t, wf.With(engine.StartOptions{Labels: labels}), p, "@acme/prod/run", "")
		time.Sleep(time.Second)
		if err := p.Label(ctx, "@acme/prod/run", map[string]string{"label-00": "by an operator"}, audit); err != nil {
			t.Error(err)
		}
		want := maps.Clone(labels)
		want["label-00"], want["label-01"], want[namespace.Label] = "by an operator", "by the run", "acme/prod"
		if got := describe(t, p, "@acme/prod/run").Labels; !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		for what, err := range map[string]error{
			"changed": p.Label(ctx, "@acme/prod/run", map[string]string{namespace.Label: "other/prod"}, audit),
			"removed": p.Label(ctx, "@acme/prod/run", map[string]string{namespace.Label: ""}, audit),
			"started": func() error {
				_, err := wf.With(engine.StartOptions{Labels: map[string]string{namespace.Label: "acme/prod"}}).Start(ctx, p, "o", "")
				return err
			}(),
		} {
			if !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("%s: got %v, want ErrInvalid", what, err)
			}
		}
		tell(t, yes, p, "@acme/prod/run", "ann")
		result(t, h)
	})
}

// The history of a run of a namespace can be replayed from a file: the file says what the run needs.
func TestReplayOfARunOfANamespace(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{new(memory.Store)}
		client := made(t, s)
		defer client.Close()
		wf := naming("c", "d", "nobody")
		start(t, wf, client, "@acme/prod/run", "")
		replayed(t, s, wf, "@acme/prod/run")
		var file bytes.Buffer
		if err := client.Export(ctx, "@acme/prod/run", &file); err != nil {
			t.Fatal(err)
		}
		reader := made(t, s, wf, kids())
		defer reader.Close()
		if err := reader.Replay(ctx, &file); err != nil {
			t.Error(err)
		}
	})
}

// HTTP-36, HTTP-52: a page of a namespace, of the host's own workflows, and of a deployment has
// these and no others, on each store.
func TestPageOfNamespacesAndDeployments(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		pinned := pinned("pinned", func(run *engine.Run) (string, error) { return "", nil })
		p := boot(t, s, pinned, kids(), on("blue"))
		activate(t, p.Engine, "blue")
		for _, id := range []string{"a", "@alice", "@acme/prod/a", "@acme/prod/b", "@acme/test/a", "@other/prod/a"} {
			result(t, start(t, kids(), p, id, ""))
			time.Sleep(time.Second)
		}
		for _, id := range []string{"p", "@acme/prod/p"} {
			result(t, start(t, pinned.With(engine.StartOptions{Labels: map[string]string{"a": "b"}}), p, id, ""))
			time.Sleep(time.Second)
		}
		of := func(name string) map[string]string { return map[string]string{namespace.Label: name} }
		for _, c := range []struct {
			f    engine.Filter
			want string
		}{
			{engine.Filter{NoNamespace: true}, "p @alice a"},
			{engine.Filter{NoNamespace: true, Workflow: "kid"}, "@alice a"},
			{engine.Filter{NoNamespace: true, Status: checkpoint.StatusCompleted}, "p @alice a"},
			{engine.Filter{NoNamespace: true, Labels: map[string]string{"a": "b"}}, "p"},
			{engine.Filter{NoNamespace: true, IDPrefix: "@"}, "@alice"},
			{engine.Filter{Labels: of("acme/prod")}, "@acme/prod/p @acme/prod/b @acme/prod/a"},
			{engine.Filter{Labels: map[string]string{namespace.Label: "acme/prod", "a": "b"}}, "@acme/prod/p"},
			{engine.Filter{Labels: of("acme/test"), Workflow: "kid"}, "@acme/test/a"},
			{engine.Filter{Deployment: "blue"}, "@acme/prod/p p"},
			{engine.Filter{Deployment: "blue", NoNamespace: true}, "p"},
			{engine.Filter{Deployment: "blue", Labels: of("acme/prod")}, "@acme/prod/p"},
			{engine.Filter{Deployment: "green"}, ""},
		} {
			want := strings.Fields(c.want)
			for _, limit := range []int{1, 100} {
				if got := idsOf(paged(t, p.Engine, c.f, limit, false)); !slices.Equal(got, want) {
					t.Errorf("%+v by %d: got %q, want %q", c.f, limit, got, want)
				}
			}
			ascending := idsOf(paged(t, p.Engine, c.f, 2, true))
			if slices.Reverse(ascending); c.f.IDPrefix == "" && !slices.Equal(ascending, want) {
				t.Errorf("%+v, ascending: got %q", c.f, ascending)
			}
			var listed []string
			for i, err := range p.List(ctx, c.f) {
				if err != nil {
					t.Fatal(err)
				}
				listed = append(listed, i.ID)
			}
			if n, all, err := p.Count(ctx, c.f, 100); n != len(want) || !all || err != nil || !slices.Equal(listed, want) {
				t.Errorf("%+v: listed %q, count %d, %v, %v", c.f, listed, n, all, err)
			}
		}
		for _, f := range []engine.Filter{
			{NoNamespace: true, Labels: of("acme/prod")},
			{Deployment: strings.Repeat("d", 101)},
			{Deployment: "\xff"},
		} {
			if _, err := p.Page(ctx, f, engine.PageRequest{}); !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("%+v: got %v, want ErrInvalid", f, err)
			}
		}
		first, err := p.Page(ctx, engine.Filter{}, engine.PageRequest{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []engine.Filter{{NoNamespace: true}, {Deployment: "blue"}} {
			if _, err := p.Page(ctx, f, engine.PageRequest{Cursor: first.Next}); !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("%+v with the cursor of another filter: got %v, want ErrInvalid", f, err)
			}
		}
	})
}

// A page of a namespace reads what the namespace has, however much others have.
func TestPageOfANamespaceCostsWhatItHolds(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		client := made(t, s)
		for i := range 200 {
			start(t, kids().With(engine.StartOptions{Labels: map[string]string{"a": "b"}}), client, fmt.Sprintf("@other/prod/%d", i), "")
		}
		start(t, kids().With(engine.StartOptions{Labels: map[string]string{"a": "b"}}), client, "@acme/prod/a", "")
		client.Close()
		meter := &readMeter{Storage: s}
		counted := made(t, meter)
		defer counted.Close()
		for _, labels := range []map[string]string{{namespace.Label: "acme/prod"}, {namespace.Label: "acme/prod", "a": "b"}} {
			before := meter.read.Load()
			page, err := counted.Page(ctx, engine.Filter{Labels: labels}, engine.PageRequest{})
			if err != nil || len(page.Data) != 1 || page.HasMore {
				t.Fatalf("%v: %d, %v, %v", labels, len(page.Data), page.HasMore, err)
			}
			if n := meter.read.Load() - before; n > 15 {
				t.Errorf("%v: %d reads for a page of one", labels, n)
			}
		}
	})
}
