package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/deployment"
	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// A fate is what becomes of a record in its time.
type fate uint8

const (
	noValue   fate = iota // it is its key
	bareValue             // its value is no record: nobody looks into it
	rewritten             // what was read is written again, changed
	written               // once; then it is deleted, if anything
	replaced              // by another of which nothing else is true
)

// recordKinds is every kind of record that there is, and what becomes of it.
var recordKinds = map[string]fate{
	"wf":              rewritten,
	"wf in":           replaced, // by that of the next life
	"wf out":          replaced, // by that of the next end, if the failure was taken back
	"log":             written,
	"wf pub":          replaced, // by the next value
	"sig":             written,
	"inbox":           written,
	"sigres":          rewritten,
	"sigseq":          rewritten,
	"upd":             written,
	"upr":             replaced, // by the answer
	"act":             rewritten,
	"beat":            rewritten,
	"kid":             rewritten,
	"eng":             rewritten,
	"hook":            written,
	"hk":              rewritten,
	"hres":            written,
	"stream":          rewritten,
	"chunk":           written,
	"held":            noValue,
	"todo":            noValue,
	"op":              noValue,
	"slot":            written,
	"rate":            rewritten,
	"wake":            noValue,
	"ix":              written,
	"ls":              written,
	"ll":              written,
	"lp":              written,
	"la":              written,
	"exp":             noValue,
	"dep":             rewritten,
	"sch":             rewritten,
	"due":             bareValue,
	"bulk":            rewritten,
	"bref":            written,
	"meta store":      written,
	"meta deployment": rewritten,
	"meta floor":      rewritten,
	"meta lists":      rewritten,
}

// kindOf is the kind of the record under a key.
func kindOf(t testing.TB, key []byte) string {
	parts, err := storage.SplitKey(key)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case parts[0] == "meta":
		return "meta " + parts[1]
	case parts[0] == "wf" && len(parts) > 2:
		return "wf " + parts[2]
	}
	return parts[0]
}

// recordKinds has all that package keys makes, and no more.
func TestTableOfKinds(t *testing.T) {
	known := map[string]bool{}
	read := func(glob, pattern, prefix string) {
		files, err := filepath.Glob(glob)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", glob, files, err)
		}
		for _, f := range files {
			src, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(src, -1) {
				known[prefix+string(m[1])] = true
			}
		}
	}
	read("../internal/keys/keys.go", `"([a-z]+):"`, "")
	read("../internal/keys/keys.go", `key\("wf:", id\), ":([a-z]+):?"`, "wf ")
	read("../internal/*/*.go", `keys\.Meta\("([a-z]+)"\)`, "meta ")
	delete(known, "meta") // has kinds of its own
	want, got := slices.Sorted(maps.Keys(known)), slices.Sorted(maps.Keys(recordKinds))
	if !slices.Equal(want, got) {
		t.Errorf("recordKinds has %v,\nthe code %v: add what is new to recordKinds in this file, and have a scenario of "+
			"TestWhatALaterReleaseWroteIsKept write it", got, want)
	}
}

// A laterStore is one on which a later release works in turn with this one: whenever a
// process dies, every record comes to hold fields that this release does not know.
// Each commit is looked at: what it writes again keeps them.
type laterStore struct {
	storage.Storage
	t testing.TB

	mu    sync.Mutex
	turns int
	met   map[string]bool // kinds of which a record was given such fields
	kept  map[string]bool // and of which one was written again, with them
}

func (s *laterStore) Capabilities() storage.Capabilities {
	c := s.Storage.Capabilities()
	c.Shared = true
	return c
}

func (s *laterStore) Commit(ctx context.Context, b storage.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := map[string][]byte{}
	for _, o := range b.Ops {
		raw, err := s.Get(ctx, o.Key)
		if err == nil && o.Kind == storage.PutOp {
			before[string(o.Key)] = raw
		} else if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return err
		}
	}
	if err := s.Storage.Commit(ctx, b); err != nil {
		return err
	}
	for _, o := range b.Ops {
		if was := before[string(o.Key)]; was != nil && o.Kind == storage.PutOp && string(was) != string(o.Value) {
			s.judge(o.Key, was, o.Value)
		}
	}
	return nil
}

// judge looks at a record that was written in the place of another.
func (s *laterStore) judge(key, was, is []byte) {
	kind := kindOf(s.t, key)
	if kind == "wf" && s.generation(key, was) != s.generation(key, is) {
		return // of a workflow that has the id of a purged one
	}
	switch recordKinds[kind] {
	case replaced:
	case rewritten:
		lost, err := golden.Kept(key, was, is, journal.Version)
		if err != nil || lost != "" {
			s.t.Errorf("%s is written without what this release does not know of it (give record.Seal what record.Open returned): %s%v", key, lost, err)
		}
		s.kept[kind] = true
	default:
		s.t.Errorf("%s is written again; recordKinds says that such a record is not", key)
	}
}

func (s *laterStore) generation(key, raw []byte) string {
	id, err := keys.Last(key)
	if err != nil {
		s.t.Fatal(err)
	}
	wf, err := journal.OpenWorkflow(id, raw)
	if err != nil {
		s.t.Fatal(err)
	}
	return wf.Generation
}

// turn is that of the later release.
func (s *laterStore) turn(ctx context.Context) {
	s.turns++
	for e, err := range storage.All(ctx, s.Storage, storage.Range{}) {
		if err != nil {
			s.t.Fatal(err)
		}
		kind := kindOf(s.t, e.Key)
		what, ok := recordKinds[kind]
		switch {
		case !ok:
			s.t.Errorf("%s is of no kind in recordKinds", e.Key)
		case what == noValue && len(e.Value) > 0:
			s.t.Errorf("%s has a value", e.Key)
		case what == noValue || what == bareValue:
			s.met[kind] = true
		default:
			later, err := golden.Later(e.Key, e.Value, journal.Version, fmt.Sprintf("%s/%d", e.Key, s.turns))
			if err != nil {
				s.t.Fatalf("%s: %v", e.Key, err)
			}
			if err := s.Storage.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(e.Key, later)}}); err != nil {
				s.t.Fatal(err)
			}
			s.met[kind] = true
		}
	}
}

// FMT-9, FMT-11, FMT-12, UPG-3: this release works on a store where a later one has been, and
// loses nothing of what that has added to records, or to structs in them. The scenarios
// of the sweep are played with crashes; the later release's turn is before each life.
func TestWhatALaterReleaseWroteIsKept(t *testing.T) {
	met, kept := map[string]bool{}, map[string]bool{}
	played := maps.Clone(scenarios)
	played["progress"], played["activation"] = telling, activating
	stride := 11
	switch {
	case os.Getenv("WEFT_TORTURE") != "":
		stride = 1
	case torture.Raced():
		stride = 41
	}
	for name, scenario := range played {
		t.Run(name, func(t *testing.T) {
			store := sweep.Store{
				Open: func(t testing.TB) storage.Storage {
					return &laterStore{Storage: new(memory.Store), t: t, met: met, kept: kept}
				},
				Reopen: func(t testing.TB, s storage.Storage) storage.Storage {
					s.(*laterStore).turn(ctx)
					return s
				},
			}
			sweep.Every(t, store, stride, scenario, storagetest.CrashAfter)
		})
	}
	t.Run("restores", func(t *testing.T) { // while no engine runs: that is no scenario
		virtual(t, func(t *testing.T) {
			s := &laterStore{Storage: new(memory.Store), t: t, met: met, kept: kept}
			e := made(t, s)
			defer e.Close()
			for above := range uint64(3) {
				if err := e.Restored(ctx, 1<<60+above, audit); err != nil {
					t.Fatal(err)
				}
				s.turn(ctx)
			}
		})
	})
	t.Run("attention", func(t *testing.T) { // while an operator is asked
		virtual(t, func(t *testing.T) {
			s := &laterStore{Storage: new(memory.Store), t: t, met: met, kept: kept}
			a, _ := expiring(1, nil)
			a.OnIndeterminate = activity.AwaitOperator
			wf := flow("wf", func(run *engine.Run) (string, error) { return a.Do(run, "42") })
			p := boot(t, s, wf)
			start(t, wf, p, "o", "")
			time.Sleep(time.Minute)
			p.stop(t)
			s.turn(ctx)
		})
	})
	t.Run("hooks", func(t *testing.T) { // while one is open
		virtual(t, func(t *testing.T) {
			s := &laterStore{Storage: new(memory.Store), t: t, met: met, kept: kept}
			wf := flow("wf", func(run *engine.Run) (string, error) {
				h, err := paid.Open(run, &signal.HookOptions{Token: "invoice"})
				if err != nil {
					return "", err
				}
				return h.Receive(run)
			})
			p := boot(t, s, wf)
			start(t, wf, p, "o", "")
			time.Sleep(time.Minute)
			p.stop(t)
			s.turn(ctx)
			q := boot(t, s, wf)
			if _, err := paid.Resume(ctx, q, "invoice", "yes", nil); err != nil {
				t.Fatal(err)
			}
			if got := result(t, wf.Handle(q, "o")); got != "yes" {
				t.Errorf("got %q", got)
			}
			q.stop(t)
			s.turn(ctx)
		})
	})
	t.Run("lists", func(t *testing.T) { // a release that kept none of them has left its mark
		virtual(t, func(t *testing.T) {
			s := &laterStore{Storage: new(memory.Store), t: t, met: met, kept: kept}
			wf := flow("wf", nil2).With(engine.StartOptions{Labels: map[string]string{"team": "blue"}})
			p := boot(t, s, wf)
			result(t, start(t, wf, p, "o", ""))
			p.stop(t)
			key := keys.Meta("lists")
			raw, err := record.Seal(key, journal.Version, &struct{}{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			put(t, s, key, raw)
			s.turn(ctx)
			q := boot(t, s, wf)
			time.Sleep(time.Minute)
			q.stop(t)
		})
	})
	if stride > 11 {
		return // so few crashes leave some kinds only by chance: the gate asks for all of them without the race detector
	}
	for kind, what := range recordKinds {
		if what != noValue && !met[kind] {
			t.Errorf("no scenario has left a record of kind %q: add one here that does", kind)
		}
		if what == rewritten && !kept[kind] {
			t.Errorf("no scenario has written a record of kind %q again: add one here that does", kind)
		}
	}
}

// telling: an activity tells how far it has come, fails, and goes on from there.
func telling(w *sweep.World) sweep.Scenario {
	act := &activity.Activity[int, int]{
		Name:  "import",
		Retry: activity.Retry{MaxAttempts: 100, Backoff: time.Minute},
		Run: func(ctx context.Context, rows int) (int, error) {
			row, _ := activity.Progress[int](ctx)
			if row == rows {
				return row, nil
			}
			if err := activity.Heartbeat(ctx, row+1); err != nil {
				return 0, err
			}
			return 0, errBroke
		},
	}
	wf := &engine.Workflow[int, int]{Name: "import", Func: func(run *engine.Run, rows int) (int, error) { return act.Do(run, rows) }}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"import"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "import", 4)
			if err != nil {
				return "", err
			}
			n, err := h.Result(ctx)
			return fmt.Sprint(n), err
		},
	}
}

// activating: one deployment after the other becomes the active one. Each is activated twice, and
// has a record of its own.
func activating(*sweep.World) sweep.Scenario {
	return sweep.Scenario{Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
		for i := range 4 {
			b, err := (&deployment.Record{ID: fmt.Sprintf("build-%d", i%2), CreatedBy: "ann"}).Create()
			if err == nil {
				err = eng.Store().Commit(ctx, b)
			}
			if err != nil && !errors.Is(err, storage.ErrConflict) {
				return "", err
			}
			if err := eng.Activate(ctx, fmt.Sprintf("build-%d", i%2), audit); err != nil {
				return "", err
			}
		}
		return eng.ActiveDeployment(ctx)
	}}
}

// FMT-11, FMT-12, FMT-24: beside each family of records a later release has one of its own, of a
// similar name. None of them is met by a scan of this release, or changed.
func TestFamiliesOfALaterReleaseAreLeftAlone(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{new(memory.Store)}
		theirs := map[string]string{}
		for kind := range recordKinds {
			family, _, _ := strings.Cut(kind, " ")
			for _, key := range []string{family + "-later:o", family + "2:0:o:x:y", family + "~:o"} {
				theirs[key] = "of a later release: " + key
				put(t, s, []byte(key), []byte(theirs[key]))
			}
		}
		act := counting(new(tally), "act")
		wf := flow("w", func(run *engine.Run) (string, error) {
			if _, err := act.Do(run, ""); err != nil {
				return "", err
			}
			if err := run.Sleep(time.Minute); err != nil {
				return "", err
			}
			return approved.Receive(run)
		})
		soon := func(c *engine.Config) { c.SignalIDRetention, c.TombstoneRetention = time.Hour, time.Hour }
		p := boot(t, s, wf, soon)
		start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		p.kill()
		p = boot(t, s, wf, soon)
		send(t, approved, p, "o", "v", "x")
		if got := result(t, wf.Handle(p, "o")); got != "v" {
			t.Errorf("result %q", got)
		}
		if es, err := p.Engines(ctx); err != nil || len(es) != 2 {
			t.Errorf("%d engines, %v, want 2", len(es), err)
		}
		for i, err := range p.List(ctx, engine.Filter{}) {
			if err != nil || i.ID != "o" {
				t.Errorf("listed %q, %v, want o alone", i.ID, err)
			}
		}
		if err := p.Purge(ctx, "o", audit); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Hour) // until everything of it is forgotten
		kept := contents(t, s)
		maps.DeleteFunc(kept, func(key, _ string) bool { return theirs[key] == "" })
		if !maps.Equal(kept, theirs) {
			t.Errorf("of a later release's records there are %d, some of them changed; want all %d unchanged", len(kept), len(theirs))
		}
	})
}
