package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// SG1, TM4: three engines whose clocks differ by hours work on one store, in real time.
// In each round one or two of them are killed or stopped, while their runs wait for
// signals or for timers, and the others take over. Signals are sent again and again,
// through any of the engines, and some workflows are purged. The clocks differ by more
// than the time for which accepted signals and purged ids are remembered.
//
// Each signal is received once, and has one answer. All runs end within a minute, so that
// nothing waits for as long as the clocks differ. 120 rounds on each store under
// WEFT_TORTURE.
func TestSharedStoreUnderClocksThatDiffer(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) func() (storage.Storage, error){
		"sqlite": func(t *testing.T) func() (storage.Storage, error) {
			path := filepath.Join(t.TempDir(), "store")
			return func() (storage.Storage, error) {
				return stored(sqlite.Open(path, &sqlite.Options{Shared: true}))
			}
		},
		"postgres": func(t *testing.T) func() (storage.Storage, error) {
			url := pgtest.URL(t)
			return func() (storage.Storage, error) { return stored(postgres.Open(ctx, url, nil)) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rounds := 3
			want := []string{"takeovers by another clock", "timers fired", "attempts failed", "signals received", "signals sent again", "ids purged"}
			if os.Getenv("WEFT_TORTURE") != "" {
				rounds = 120
				want = append(want, "timers fired under another clock", "activities settled under another clock",
					"signals received under another clock", "takeovers by ahead from behind", "takeovers by behind from ahead",
					"takeovers by right from ahead", "takeovers by right from behind", "only ahead lives", "only behind lives")
			}
			s := newSkew(t, open(t))
			for n := 0; n < rounds && !t.Failed(); n++ {
				s.round(n)
			}
			s.audit()
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Logf("%d rounds; met %v; the slowest run took %v", rounds, s.met, s.slowest.Round(time.Millisecond))
			for _, what := range want {
				if s.met[what] == 0 && !t.Failed() {
					t.Errorf("met no %q in %d rounds", what, rounds)
				}
			}
		})
	}
}

const (
	skewRuns   = 6                      // begin in a round
	skewNap    = 400 * time.Millisecond // is what a timer lasts
	skewPause  = 200 * time.Millisecond // is before an attempt that is made again
	skewLease  = 500 * time.Millisecond
	skewMemory = time.Hour // of signals and of purged ids
)

// A skew is three engines on one store whose clocks differ.
type skew struct {
	t       *testing.T
	open    func() (storage.Storage, error)
	work    *engine.Workflow[string, string]
	word    *signal.Signal[string]
	names   [3]string
	clocks  [3]wall
	boots   [3]int
	answers map[string]signal.Accepted // by workflow and signal
	began   map[string]time.Time       // workflows
	purged  map[string]bool
	slowest time.Duration

	mu    sync.Mutex // guards what follows
	seats [3]*seat   // nil: nobody
	naps  map[string]*shortSleep
	met   map[string]int
}

// A seat has an engine, and its own opening of the store.
type seat struct {
	*process
	own storage.Storage
}

// A shortSleep is the sleep of a workflow, in the time of the test.
type shortSleep struct {
	began time.Time
	over  bool
}

func newSkew(t *testing.T, open func() (storage.Storage, error)) *skew {
	s := &skew{
		t: t, open: open, names: [3]string{"right", "behind", "ahead"}, word: &signal.Signal[string]{Name: "word"},
		answers: map[string]signal.Accepted{}, began: map[string]time.Time{}, purged: map[string]bool{},
		naps: map[string]*shortSleep{}, met: map[string]int{},
	}
	behind, ahead := 2*time.Hour+rand.N(28*time.Hour), 2*time.Hour+rand.N(28*time.Hour)
	t.Logf("one clock is %v behind, one %v ahead", behind, ahead)
	s.clocks[1].jump(-behind)
	s.clocks[2].jump(ahead)
	never := &signal.Signal[string]{Name: "never"}
	flaky := &activity.Activity[string, string]{
		Name:  "flaky",
		Retry: activity.Retry{MaxAttempts: 20, Backoff: skewPause, MaxBackoff: skewPause}, // a death counts as one
		Run: func(ctx context.Context, v string) (string, error) {
			if activity.InfoFrom(ctx).Attempt == 1 {
				return "", errBroke
			}
			return v, nil
		},
	}
	s.work = &engine.Workflow[string, string]{Name: "work", Func: func(run *engine.Run, id string) (string, error) {
		began, said := run.Now(), ""
		if _, err := flaky.Do(run, id); err != nil {
			return "", err
		}
		for range 3 {
			v, err := s.word.Receive(run)
			if err != nil {
				return "", err
			}
			said += v
		}
		s.sleeps(id)
		if err := run.Sleep(skewNap); err != nil {
			return "", err
		}
		s.wakes(id)
		if v, ok, err := never.ReceiveWithin(run, skewNap); ok || err != nil {
			return "", fmt.Errorf("received %q, which nobody sent: %w", v, err)
		}
		if _, err := flaky.Do(run, id); err != nil {
			return "", err
		}
		if took := run.Now().Sub(began); took < 2*skewNap {
			return "", fmt.Errorf("by its own time it took %v, want at least %v", took, 2*skewNap)
		}
		return said, nil
	}}
	for i := range s.seats {
		s.sit(i)
	}
	t.Cleanup(func() {
		for i := range s.seats {
			s.leave(i, true)
		}
	})
	return s
}

func (s *skew) count(what string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.met[what] += n
}

// sleeps and wakes note the first time of each, and not what replays repeat.
func (s *skew) sleeps(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.naps[id] == nil {
		s.naps[id] = &shortSleep{began: time.Now()}
	}
}

func (s *skew) wakes(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.naps[id]
	if !n.over && time.Since(n.began) < skewNap*9/10 {
		s.met["naps cut short"]++
	}
	n.over = true
}

// sit has an engine begin in a seat, under the clock of the seat.
func (s *skew) sit(i int) {
	s.t.Helper()
	own, err := s.open()
	if err != nil {
		s.t.Fatal(err)
	}
	s.boots[i]++
	parkAfter := 10 * time.Second
	if s.boots[i]%2 == 0 {
		parkAfter = time.Millisecond
	}
	p := bootAt(s.t, own, &s.clocks[i], s.work, func(c *engine.Config) {
		c.Name, c.PollInterval, c.LeaseTTL, c.ParkAfter = s.names[i], 50*time.Millisecond, skewLease, parkAfter
		c.SignalIDRetention, c.TombstoneRetention = skewMemory, skewMemory
		c.Events.Takeover = func(e engine.TakeoverEvent) {
			if from, to := clockOf(e.From), clockOf(e.To); from != to {
				s.count("takeovers by another clock", 1)
				s.count("takeovers by "+to+" from "+from, 1)
			}
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seats[i] = &seat{p, own}
}

// clockOf is the name of the clock of an incarnation.
func clockOf(incarnation string) string {
	name, _, _ := strings.Cut(incarnation, "-")
	return name
}

// leave kills the engine of a seat, or stops it.
func (s *skew) leave(i int, kill bool) {
	s.mu.Lock()
	p := s.seats[i]
	s.seats[i] = nil
	s.mu.Unlock()
	switch {
	case p == nil:
		return
	case kill:
		s.count("kills", 1)
		p.kill()
	default:
		s.count("stops", 1)
		p.once.Do(func() {
			p.end()
			if err := <-p.done; err != nil {
				s.t.Errorf("Run of %s, told to stop: %v", s.names[i], err)
			}
			p.Close()
		})
	}
	if err := p.own.Close(); err != nil {
		s.t.Errorf("close the store of %s: %v", s.names[i], err)
	}
}

// anyone is an engine that lives.
func (s *skew) anyone() *seat {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if p := s.seats[rand.IntN(len(s.seats))]; p != nil {
			return p
		}
	}
}

// try has f succeed with any engine: one that is asked may be killed meanwhile.
func (s *skew) try(what string, f func(*seat) error) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := f(s.anyone())
		if err == nil {
			return
		}
		if time.Now().After(end) {
			s.t.Errorf("%s: %v", what, err)
			return
		}
	}
}

// send sends signal n of a workflow. However often it is sent, it has one answer.
func (s *skew) send(id string, n int) {
	s.t.Helper()
	what := fmt.Sprintf("%s: signal %d", id, n)
	s.try(what, func(p *seat) error {
		a, err := s.word.Send(ctx, p, id, fmt.Sprint(n), &signal.Options{ID: fmt.Sprint(n)})
		if err != nil {
			return err
		}
		a = canonical(a)
		if first, again := s.answers[what]; again {
			s.count("signals sent again", 1)
			if a != first {
				s.t.Errorf("%s: got %+v, want the first answer %+v", what, a, first)
			}
		}
		s.answers[what] = a
		return nil
	})
}

func (s *skew) round(n int) {
	s.t.Helper()
	var ids []string
	for i := range skewRuns {
		id := fmt.Sprintf("%d.%d", n, i)
		ids, s.began[id] = append(ids, id), time.Now()
		start(s.t, s.work, s.seats[i%len(s.seats)], id, id)
	}
	each := func(signals ...int) {
		s.t.Helper()
		for _, id := range ids {
			for _, v := range signals {
				s.send(id, v)
				s.send(id, v)
			}
		}
	}
	each(0)
	early := []int{} // else who is killed may be within a timer
	late := []int{1, 2}
	if n%2 == 1 {
		early, late = late, []int{0}
	}
	each(early...)
	time.Sleep(rand.N(2 * skewNap))
	gone := []int{n % 3}
	if n/3%2 == 1 {
		gone = append(gone, (n+1)%3)
	}
	var leaving sync.WaitGroup
	for _, i := range gone {
		leaving.Go(func() {
			time.Sleep(rand.N(20 * time.Millisecond))
			s.leave(i, n%4 != 3)
		})
	}
	each(late...)
	leaving.Wait()
	if len(gone) == 2 {
		s.count("only "+s.names[(n+2)%3]+" lives", 1)
	}
	time.Sleep(rand.N(4 * skewLease))
	each(0, 1)
	back := func() {
		for _, i := range gone {
			s.sit(i)
		}
	}
	alone := n/6%2 == 1 // those who are left do all that is to be done
	if !alone {
		back()
	}
	for _, id := range ids {
		s.ends(id)
	}
	if alone {
		back()
	}
	if err := s.anyone().Purge(ctx, ids[0], audit); err != nil {
		s.t.Errorf("%s: purge: %v", ids[0], err)
	}
	s.purged[ids[0]] = true
	s.count("ids purged", 1)
}

// ends waits until a workflow ends, and looks at what it has received and at its history.
// A minute is more than it takes on a slow machine, and less than clocks differ by.
func (s *skew) ends(id string) {
	s.t.Helper()
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	p := s.anyone()
	if out, err := s.work.Handle(p, id).Result(waiting); err != nil || out != "012" {
		s.t.Errorf("%s: got %q and error %v, want each signal once: %+v; %q", id, out, err, describe(s.t, p, id), entries(s.t, p.own, "todo:"))
		return
	}
	s.slowest = max(s.slowest, time.Since(s.began[id]))
	names := map[checkpoint.Kind]string{
		checkpoint.KindSettled: "activities settled", checkpoint.KindFired: "timers fired", checkpoint.KindReceived: "signals received",
		checkpoint.KindMissed: "signals not received in time", checkpoint.KindAttempted: "attempts failed",
	}
	var owner, before string // the clocks under which this and the last of these events were
	var last time.Time
	outcomes := map[string]int{}
	for _, c := range historyOf(s.t, p.Engine, id) {
		if c.Time.Before(last) {
			s.t.Errorf("%s: checkpoint %d is of %v, the one before of %v", id, c.Number, c.Time, last)
		}
		last = c.Time
		for _, e := range c.Events {
			if e.Kind == checkpoint.KindClaimed {
				owner = clockOf(e.By)
			}
			what, ok := names[e.Kind]
			if !ok {
				continue
			}
			if s.count(what, 1); before != owner && before != "" {
				s.count(what+" under another clock", 1)
			}
			before = owner
			if e.Kind != checkpoint.KindAttempted {
				outcomes[e.Operation]++
			}
		}
	}
	for operation, n := range outcomes {
		if n != 1 {
			s.t.Errorf("%s: operation %s has %d outcomes", id, operation, n)
		}
	}
	if len(outcomes) != 7 {
		s.t.Errorf("%s: the outcomes are %v, want 7", id, outcomes)
	}
}

// audit sends all signals again, and looks at what is left in the store.
func (s *skew) audit() {
	s.t.Helper()
	p := s.anyone()
	for id := range s.began {
		if s.purged[id] {
			if _, err := p.own.Get(ctx, keys.Workflow(id)); err != nil {
				s.t.Errorf("%s was purged: its tombstone: %v", id, err)
			}
			continue
		}
		for n := range 3 {
			s.send(id, n)
		}
	}
	for _, family := range []string{"held:", "todo:", "sig:", "inbox:"} {
		if left := entries(s.t, p.own, family); len(left) > 0 {
			s.t.Errorf("left over: %q", left)
		}
	}
}
