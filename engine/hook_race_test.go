package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
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
	_, _ = h.Result(ctx)
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

// A resume of a hook against all that may happen to the hook: it is accepted before that, and then
// received, or no open hook has the token.
func TestHookRaces(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		_, fast := s.(*memory.Store)
		for name, race := range hookRaces {
			t.Run(name, func(t *testing.T) {
				rounds := torture.Rounds(1000, 100, 20)
				if fast {
					rounds = 1000
				}
				quick := func(c *engine.Config) {
					c.PollInterval, c.LeaseTTL, c.ParkAfter = 20*time.Millisecond, time.Minute, time.Millisecond
				}
				p, q := boot(t, s, racer, quick), boot(t, s, racer, quick, func(c *engine.Config) { c.Name = "other" })
				met := map[string]int{}
				var mu sync.Mutex
				var wg sync.WaitGroup
				turns := make(chan int, rounds)
				for i := range rounds {
					turns <- i
				}
				close(turns)
				for range 8 {
					wg.Go(func() {
						for i := range turns {
							r := &hookRace{t: t, s: s, p: p, q: q, wf: racer, id: fmt.Sprintf("%s %d", name, i)}
							race.run(r)
							mu.Lock()
							met[r.found]++
							mu.Unlock()
						}
					})
				}
				wg.Wait()
				t.Logf("met %v", met)
				for _, what := range race.meets {
					if met[what] == 0 && fast { // on others there may be too few rounds
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
