package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A hookRace is two things that happen to a hook at once. It has two engines.
type hookRace struct {
	t     *testing.T
	s     storage.Storage
	p, q  *process
	wf    *engine.Workflow[raced, string]
	id    string // of the run, and of its token
	found string // what the race has met
}

// raced is what the run does after it has opened its hook and was told to go on.
type raced struct {
	Then  string
	Token string
	Life  int
}

// goOn is the signal that such a run waits for.
var goOn = &signal.Signal[string]{Name: "go on"}

var racer = &engine.Workflow[raced, string]{Name: "racer", Func: func(run *engine.Run, in raced) (string, error) {
	h, err := paid.Open(run, &signal.HookOptions{Token: in.Token})
	if err != nil {
		return "", err
	}
	var got []string
	receive := func(n int) {
		for range n {
			var v string
			if v, err = h.Receive(run); err != nil {
				return
			}
			got = append(got, v)
		}
	}
	switch {
	case in.Then == "receive", in.Life > 0:
		receive(1)
	case in.Then == "receive twice":
		receive(2)
	case in.Then == "go on":
		if _, err = goOn.Receive(run); err == nil {
			receive(1)
		}
	case in.Then == "dispose":
		if _, err = goOn.Receive(run); err == nil {
			err = h.Dispose(run)
		}
		var ok bool
		if err == nil {
			var v string
			if v, ok, err = h.ReceiveWithin(run, time.Microsecond); ok {
				got = append(got, v)
			}
		}
	case in.Then == "dispose then wait":
		if _, err = goOn.Receive(run); err == nil {
			err = h.Dispose(run)
		}
		if err == nil {
			_, err = goOn.Receive(run)
		}
	case in.Then == "end":
		_, err = goOn.Receive(run)
	case in.Then == "continue":
		if _, err = goOn.Receive(run); err == nil {
			in.Life++
			err = engine.ContinueAsNew(run, in)
		}
	}
	return strings.Join(got, ","), err
}}

// begin starts a run, and waits until its hook is open.
func (r *hookRace) begin(id, then string) *engine.Handle[string] {
	h := r.start(id, then)
	r.taken(true)
	return h
}

func (r *hookRace) start(id, then string) *engine.Handle[string] {
	h, err := r.wf.Start(ctx, r.p, id, raced{Then: then, Token: r.id})
	if err != nil {
		r.t.Errorf("start %q: %v", id, err)
	}
	return h
}

// taken waits until the token is taken, or free.
func (r *hookRace) taken(want bool) {
	for range 100_000 {
		if _, err := r.s.Get(ctx, keys.HookAddress(keys.TokenHash(r.id))); (err == nil) == want {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
	r.t.Errorf("%s: the token is taken: %v", r.id, !want)
}

func (r *hookRace) resume(to signal.Sender, v, id string) (signal.Accepted, error) {
	return paid.Resume(ctx, to, r.id, v, &signal.Options{ID: id})
}

func (r *hookRace) must(err error) {
	if err != nil {
		r.t.Errorf("%s: %v", r.id, err)
	}
}

// ends returns the result of a run.
func (r *hookRace) ends(h *engine.Handle[string]) string {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	got, err := h.Result(ctx)
	r.must(err)
	return got
}

// both does two things at once: now one, now the other begins a little earlier.
func both(one, other func()) {
	late := time.Duration(1) * time.Microsecond << rand.IntN(16)
	if rand.IntN(2) == 0 {
		one, other = other, one
	}
	var wg sync.WaitGroup
	wg.Go(one)
	wg.Go(func() { time.Sleep(late); other() })
	wg.Wait()
}

// hookRaces are the races, each with what it may meet. All of that must come.
var hookRaces = map[string]struct {
	meets []string
	run   func(r *hookRace)
}{
	"two resumes with one ID": {[]string{"the first is the first", "the second is the first"}, func(r *hookRace) {
		h := r.begin(r.id, "receive")
		var a, b signal.Accepted
		var errA, errB error
		both(func() { a, errA = r.resume(r.p, "v", "x") }, func() { b, errB = r.resume(r.q, "v", "x") })
		if errA != nil || errB != nil || canonical(a) != canonical(b) || a.Repeated == b.Repeated {
			r.t.Errorf("%s: answered %+v, %v and %+v, %v", r.id, a, errA, b, errB)
		}
		if r.found = "the first is the first"; a.Repeated {
			r.found = "the second is the first"
		}
		if got := r.ends(h); got != "v" {
			r.t.Errorf("%s: received %q", r.id, got)
		}
	}},
	"two resumes with one ID and other values": {[]string{"the first is accepted", "the second is accepted"}, func(r *hookRace) {
		h := r.begin(r.id, "receive")
		var errA, errB error
		both(func() { _, errA = r.resume(r.p, "a", "x") }, func() { _, errB = r.resume(r.q, "b", "x") })
		want := "a"
		if r.found = "the first is accepted"; errA != nil {
			r.found, want, errA, errB = "the second is accepted", "b", errB, errA
		}
		if errA != nil || !errors.Is(errB, signal.ErrConflict) {
			r.t.Errorf("%s: answered %v and %v", r.id, errA, errB)
		}
		if got := r.ends(h); got != want {
			r.t.Errorf("%s: received %q, want %q", r.id, got, want)
		}
	}},
	"two resumes of a parked run": {[]string{"the first is received first", "the second is received first"}, func(r *hookRace) {
		h := r.begin(r.id, "receive twice")
		time.Sleep(2 * time.Millisecond) // it may be parked by now
		both(func() { _, err := r.resume(r.p, "a", "a"); r.must(err) }, func() { _, err := r.resume(r.q, "b", "b"); r.must(err) })
		switch got := r.ends(h); got {
		case "a,b":
			r.found = "the first is received first"
		case "b,a":
			r.found = "the second is received first"
		default:
			r.t.Errorf("%s: received %q", r.id, got)
		}
	}},
	"two runs open one token": {[]string{"the first has it", "the second has it"}, func(r *hookRace) {
		var a, b *engine.Handle[string]
		second := r.id + " too"
		both(func() { a = r.start(r.id, "receive") }, func() { b = r.start(second, "receive") })
		r.taken(true)
		to, err := r.resume(r.p, "v", "x")
		r.must(err)
		if r.found = "the first has it"; to.WorkflowID == second {
			r.found, a, b = "the second has it", b, a
		}
		if got := r.ends(a); got != "v" {
			r.t.Errorf("%s: received %q: %s", r.id, got, r.found)
		}
		for end := time.Now().Add(time.Minute); time.Now().Before(end); { // the other one was refused, or came after the end
			ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			_, err := b.Result(ctx)
			cancel()
			if err == nil || strings.Contains(err.Error(), signal.ErrTokenTaken.Error()) {
				return
			}
			_, _ = r.resume(r.q, "w", "y")
		}
		r.t.Errorf("%s: the other one does not end", r.id)
	}},
	"disposal": {[]string{"accepted", "no open hook"}, func(r *hookRace) {
		h := r.begin(r.id, "dispose")
		var err error
		both(func() { _, err = r.resume(r.q, "v", "x") }, func() { _, err := goOn.Send(ctx, r.p, r.id, "", nil); r.must(err) })
		want := r.accepted(err, "v", "")
		if got := r.ends(h); got != want {
			r.t.Errorf("%s: received %q, want %q: %s", r.id, got, want, r.found)
		}
		if again, err := r.resume(r.p, "v", "x"); (err == nil) != (want != "") || err == nil && !again.Repeated {
			r.t.Errorf("%s: %s, and again %+v, %v", r.id, r.found, again, err)
		}
	}},
	"end": {[]string{"accepted", "no open hook"}, func(r *hookRace) {
		r.againstEnd(func() error { _, err := goOn.Send(ctx, r.p, r.id, "", nil); return err })
	}},
	"termination":  {[]string{"accepted", "no open hook"}, func(r *hookRace) { r.againstEnd(func() error { return r.p.Terminate(ctx, r.id, audit) }) }},
	"cancellation": {[]string{"accepted", "no open hook"}, func(r *hookRace) { r.againstEnd(func() error { return r.p.Cancel(ctx, r.id, audit) }) }},
	"claim": {[]string{"claimed by one engine", "claimed by both"}, func(r *hookRace) {
		h := r.begin(r.id, "go on")
		time.Sleep(2 * time.Millisecond) // it may be parked by now
		var err error
		both(func() { _, err = r.resume(r.q, "v", "x") }, func() { _, err := goOn.Send(ctx, r.p, r.id, "", nil); r.must(err) })
		r.must(err)
		if got := r.ends(h); got != "v" {
			r.t.Errorf("%s: received %q", r.id, got)
		}
		owners := map[string]bool{}
		for c, err := range r.p.History(ctx, r.id) {
			r.must(err)
			for _, e := range c.Events {
				if e.Kind == checkpoint.KindClaimed {
					owners[e.By] = true
				}
			}
		}
		if r.found = "claimed by one engine"; len(owners) > 1 {
			r.found = "claimed by both"
		}
	}},
	"continue-as-new": {[]string{"accepted"}, func(r *hookRace) {
		h := r.begin(r.id, "continue")
		var err error
		both(func() { _, err = r.resume(r.q, "v", "x") }, func() { _, err := goOn.Send(ctx, r.p, r.id, "", nil); r.must(err) })
		r.accepted(err, "v", "")
		if got := r.ends(h); got != "v" {
			r.t.Errorf("%s: received %q", r.id, got)
		}
	}},
	"purge": {[]string{"answered as before"}, func(r *hookRace) {
		h := r.begin(r.id, "receive")
		first, err := r.resume(r.p, "v", "x")
		r.must(err)
		r.ends(h)
		both(func() {
			again, err := r.resume(r.q, "v", "x")
			if r.found = "answered as before"; err != nil || canonical(again) != canonical(first) || !again.Repeated {
				r.t.Errorf("%s: answered %+v, %v, want %+v", r.id, again, err, first)
			}
		}, func() { r.must(r.p.Purge(ctx, r.id, audit)) })
	}},
	"the next run with the token": {[]string{"accepted by the first", "accepted by the second", "no open hook"}, func(r *hookRace) {
		h := r.begin(r.id, "dispose")
		second := r.id + " next"
		var next *engine.Handle[string]
		var a signal.Accepted
		var err error
		both(func() { a, err = r.resume(r.q, "v", "x") }, func() {
			_, err := goOn.Send(ctx, r.p, r.id, "", nil)
			r.must(err)
			r.taken(false)
			next = r.start(second, "receive")
		})
		first := r.ends(h)
		r.accepted(err, "", "")
		if err == nil {
			r.found = "accepted by the " + map[string]string{r.id: "first", second: "second"}[a.WorkflowID]
		}
		if (first == "v") != (a.WorkflowID == r.id) {
			r.t.Errorf("%s: the first has received %q: %s", r.id, first, r.found)
		}
		if a.WorkflowID != second {
			r.taken(true)
			_, err := r.resume(r.p, "w", "y")
			r.must(err)
		}
		if got := r.ends(next); (got == "v") != (a.WorkflowID == second) {
			r.t.Errorf("%s: the second has received %q: %s", r.id, got, r.found)
		}
	}},
}

// accepted notes what a resume was answered: it was accepted, or no open hook had the token.
func (r *hookRace) accepted(err error, yes, no string) string {
	switch {
	case err == nil:
		r.found = "accepted"
		return yes
	case errors.Is(err, engine.ErrNotFound):
		r.found = "no open hook"
	default:
		r.t.Errorf("%s: %v, want it accepted or ErrNotFound", r.id, err)
	}
	return no
}

// againstEnd has a run end while its hook is resumed. What was accepted is in the inbox.
func (r *hookRace) againstEnd(end func() error) {
	h := r.begin(r.id, "end")
	var a signal.Accepted
	var err error
	both(func() { a, err = r.resume(r.q, "v", "x") }, func() { r.must(end()) })
	r.accepted(err, "", "")
	if _, err := outcome(h); errors.Is(err, context.DeadlineExceeded) {
		r.t.Errorf("%s: it does not end", r.id)
	}
	_, there := r.s.Get(ctx, keys.Signal(r.id, a.SignalName, "x"))
	if (there == nil) != (err == nil) {
		r.t.Errorf("%s: %s, and its payload: %v", r.id, r.found, there)
	}
	if _, err := r.s.Get(ctx, keys.HookAddress(keys.TokenHash(r.id))); !errors.Is(err, storage.ErrNotFound) {
		r.t.Errorf("%s: it has ended, and its token is taken: %v", r.id, err)
	}
	if again, err := r.resume(r.p, "v", "x"); (err == nil) != (there == nil) || err == nil && canonical(again) != canonical(a) {
		r.t.Errorf("%s: %s, and again %+v, %v", r.id, r.found, again, err)
	}
}

// What happens to a hook just after a resume has read which hook has the token.
func TestResumeThatComesTooLate(t *testing.T) {
	accepted := func(id string, repeated bool) func(signal.Accepted, error) bool {
		return func(a signal.Accepted, err error) bool {
			return err == nil && a.WorkflowID == id && a.Repeated == repeated
		}
	}
	failed := func(with error) func(signal.Accepted, error) bool {
		return func(_ signal.Accepted, err error) bool { return errors.Is(err, with) }
	}
	on := func(r *hookRace) { _, err := goOn.Send(ctx, r.p, r.id, "", nil); r.must(err) }
	for name, c := range map[string]struct {
		then  string
		event func(r *hookRace, h *engine.Handle[string])
		want  func(signal.Accepted, error) bool
	}{
		"nothing":             {"receive", func(*hookRace, *engine.Handle[string]) {}, accepted("o", false)},
		"disposed":            {"dispose", func(r *hookRace, _ *engine.Handle[string]) { on(r); r.taken(false) }, failed(engine.ErrNotFound)},
		"ended":               {"end", func(r *hookRace, h *engine.Handle[string]) { on(r); r.ends(h) }, failed(engine.ErrNotFound)},
		"terminated":          {"end", func(r *hookRace, h *engine.Handle[string]) { r.must(r.p.Terminate(ctx, "o", audit)) }, failed(engine.ErrNotFound)},
		"continued":           {"continue", func(r *hookRace, h *engine.Handle[string]) { on(r); time.Sleep(time.Second) }, accepted("o", false)},
		"resumed and ended":   {"receive", func(r *hookRace, h *engine.Handle[string]) { _, err := r.resume(r.p, "v", "x"); r.must(err); r.ends(h) }, accepted("o", true)},
		"resumed otherwise":   {"receive", func(r *hookRace, h *engine.Handle[string]) { _, err := r.resume(r.p, "w", "x"); r.must(err); r.ends(h) }, failed(signal.ErrConflict)},
		"ended and purged":    {"end", func(r *hookRace, h *engine.Handle[string]) { on(r); r.ends(h); r.must(r.p.Purge(ctx, "o", audit)) }, failed(engine.ErrNotFound)},
		"another run's":       {"end", func(r *hookRace, h *engine.Handle[string]) { on(r); r.ends(h); r.begin("next", "receive") }, accepted("next", false)},
		"another run's, live": {"dispose then wait", func(r *hookRace, h *engine.Handle[string]) { on(r); r.taken(false); r.begin("next", "receive") }, accepted("next", false)},
	} {
		t.Run(name, func(t *testing.T) {
			onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
				s := store.Open(t)
				defer s.Close()
				p := boot(t, s, racer, parking)
				r := &hookRace{t: t, s: s, p: p, wf: racer, id: "o"}
				h := r.begin("o", c.then)
				time.Sleep(time.Second)
				happened := false
				late := made(t, &hooked{Storage: s, afterGet: func(key []byte) {
					if k := string(key); !happened && (strings.HasPrefix(k, "hook:") || strings.HasPrefix(k, "hres:")) {
						happened = true
						c.event(r, h)
					}
				}}, racer)
				defer late.Close()
				if a, err := r.resume(late, "v", "x"); !happened || !c.want(a, err) {
					t.Errorf("answered %+v, %v", a, err)
				}
				time.Sleep(time.Second)
				intact(t, s)
				p.stop(t)
			})
		})
	}
}

// Two branches of one run open one token at once: one has it. So it is in a replay.
func TestTwoOpensOfOneToken(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		wf := flow("wf", func(run *engine.Run) (string, error) {
			var fs []*future.Future[string]
			for range 2 {
				fs = append(fs, engine.Go(run, "open", func(run *engine.Run) (string, error) {
					h, err := paid.Open(run, &signal.HookOptions{Token: "token"})
					if errors.Is(err, signal.ErrTokenTaken) {
						return "taken", nil
					}
					if err != nil {
						return "", err
					}
					return h.Receive(run)
				}))
			}
			got, err := engine.All(run, fs...)
			slices.Sort(got)
			return strings.Join(got, ","), err
		})
		p := boot(t, s, wf, parking)
		start(t, wf, p, "o", "")
		time.Sleep(time.Minute)
		p.kill()
		if store.Reopen != nil {
			s = store.Reopen(t, s)
		}
		p = boot(t, s, wf, parking)
		time.Sleep(time.Minute)
		resume(t, p, "token", "v", "x")
		got, err := outcome(wf.Handle(p, "o"))
		if err != nil || got != "taken,v" {
			t.Errorf("result %q, %v", got, err)
		}
		opened := 0
		for _, k := range kinds(historyOf(t, p.Engine, "o")) {
			if k == checkpoint.KindOpened {
				opened++
			}
		}
		if opened != 1 {
			t.Errorf("opened %d times", opened)
		}
		intact(t, s)
		p.stop(t)
	})
}

// Many resumes at once, of a store whose batches hold only some of them. How many conditions a batch has depends on how many of
// its resumes are of one hook, so there are several rounds.
func TestResumesInSmallBatches(t *testing.T) {
	for range 8 {
		t.Run("", testResumesInSmallBatches)
	}
}

func testResumesInSmallBatches(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const many, hooks = 64, 4
		s := &hooked{Storage: fresh(t), max: storage.Size{Ops: 96, Bytes: 1 << 20}}
		wf := flow("wf", func(run *engine.Run) (string, error) {
			var fs []*future.Future[int]
			for i := range hooks {
				h, err := paid.Open(run, &signal.HookOptions{Token: fmt.Sprint(i)})
				if err != nil {
					return "", err
				}
				fs = append(fs, engine.Go(run, "receive", func(run *engine.Run) (n int, _ error) {
					for ; n < many/hooks; n++ {
						if _, err := h.Receive(run); err != nil {
							return n, err
						}
					}
					return n, nil
				}))
			}
			got, err := engine.All(run, fs...)
			return fmt.Sprint(got), err
		})
		p := boot(t, s, wf, parking)
		client := made(t, s)
		defer client.Close()
		h := start(t, wf, p, "o", "")
		eventually(t, "all are open", func() bool { return len(entries(t, s, "hook:")) == hooks })
		time.Sleep(time.Minute)
		var wg sync.WaitGroup
		for i := range many {
			wg.Go(func() { resume(t, client, fmt.Sprint(i%hooks), "v", fmt.Sprint(i)) })
		}
		wg.Wait()
		if got := result(t, h); got != "[16 16 16 16]" {
			t.Errorf("received %q", got)
		}
		intact(t, s)
		p.stop(t)
	})
}

// A resume of a hook against all that may happen to the hook: it is accepted before that, and then
// received, or no open hook has the token.
func TestHookRaces(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		_, fast := s.(*memory.Store)
		for name, race := range hookRaces {
			t.Run(name, func(t *testing.T) {
				// At least so many rounds, and more until all has been met. On slow stores there may be too
				// few rounds for that.
				rounds := torture.Rounds(1000, 100, 5)
				most := rounds
				if fast {
					rounds, most = torture.Rounds(1000, 500, 100), 20_000
				}
				quick := func(c *engine.Config) {
					c.PollInterval, c.LeaseTTL, c.ParkAfter = 20*time.Millisecond, time.Minute, time.Millisecond
				}
				p, q := boot(t, s, racer, quick), boot(t, s, racer, quick, func(c *engine.Config) { c.Name = "other" })
				met := map[string]int{}
				var mu sync.Mutex
				var wg sync.WaitGroup
				played := 0
				next := func() (round int, more bool) {
					mu.Lock()
					defer mu.Unlock()
					missing := slices.ContainsFunc(race.meets, func(what string) bool { return met[what] == 0 })
					if played >= rounds && (played >= most || !missing || t.Failed()) {
						return 0, false
					}
					played++
					return played, true
				}
				for range 8 {
					wg.Go(func() {
						for i, more := next(); more; i, more = next() {
							r := &hookRace{t: t, s: s, p: p, q: q, wf: racer, id: fmt.Sprintf("%s %d", name, i)}
							race.run(r)
							mu.Lock()
							met[r.found]++
							mu.Unlock()
						}
					})
				}
				wg.Wait()
				t.Logf("met %v in %d rounds", met, played)
				for _, what := range race.meets {
					if met[what] == 0 && fast {
						t.Errorf("met %v, and not %q", met, what)
					}
					delete(met, what)
				}
				if len(met) > 0 {
					t.Errorf("met %v, want only %q", met, race.meets)
				}
				p.stop(t)
				q.stop(t)
			})
		}
		intact(t, s)
	})
}

// A lateStore does not report what becomes of the first commit of such a key. It is written later.
type lateStore struct {
	storage.Storage
	of      string
	refused bool
	before  string                // the first read of such a key after that
	land    func(b storage.Batch) // before it
	first   *storage.Batch
}

func (l *lateStore) Unwrap() storage.Storage { return l.Storage }

func (l *lateStore) Commit(ctx context.Context, b storage.Batch) error {
	if !l.refused && touches(b, l.of) {
		b = kept(b)
		l.refused, l.first = true, &b
		return errBroke
	}
	return l.Storage.Commit(ctx, b)
}

func (l *lateStore) Get(ctx context.Context, key []byte) ([]byte, error) {
	if b := l.first; b != nil && strings.HasPrefix(string(key), l.before) {
		l.first = nil
		l.land(*b)
	}
	return l.Storage.Get(ctx, key)
}

// A signal without an ID takes effect after its sender has looked for it, and ends the run. The sender
// does not say that it came too late.
func TestResumeThatLandsLate(t *testing.T) {
	for name, c := range map[string]struct {
		before string
		send   func(to signal.Sender) (signal.Accepted, error)
	}{
		"before the token is read":   {"hook:", func(to signal.Sender) (signal.Accepted, error) { return paid.Resume(ctx, to, "token", "x", nil) }},
		"before the run is read":     {"wf:", func(to signal.Sender) (signal.Accepted, error) { return paid.Resume(ctx, to, "token", "x", nil) }},
		"a signal that is no resume": {"wf:", func(to signal.Sender) (signal.Accepted, error) { return approved.Send(ctx, to, "o", "x", nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
				s := store.Open(t)
				defer s.Close()
				wf := flow("wf", func(run *engine.Run) (string, error) {
					h, err := paid.Open(run, &signal.HookOptions{Token: "token"})
					if err != nil {
						return "", err
					}
					resumed, signalled := h.Next(run), approved.Next(run)
					c, err := engine.Select(run, resumed, signalled)
					if err != nil {
						return "", err
					}
					if c == resumed {
						return resumed.Get(run)
					}
					return signalled.Get(run)
				})
				p := boot(t, s, wf)
				h := start(t, wf, p, "o", "")
				time.Sleep(time.Minute)
				landed := false
				late := made(t, &lateStore{Storage: s, of: "sigres:", before: c.before, land: func(b storage.Batch) {
					if err := s.Commit(ctx, b); err != nil {
						t.Errorf("late: %v", err)
					}
					landed = result(t, h) == "x"
				}})
				defer late.Close()
				if a, err := c.send(late); err != nil || a.WorkflowID != "o" || !landed {
					t.Errorf("answered %+v, %v, want o; landed: %v", a, err, landed)
				}
				intact(t, s)
				p.stop(t)
			})
		})
	}
}
