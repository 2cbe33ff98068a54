package engine_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// What repeats itself in a simulation does not do so at the same moments as other things: Go
// fires the timers of one moment in a random order. So simTTL is no sum of the others.
const (
	simTick = 25 * time.Millisecond
	simTTL  = 307*time.Millisecond + 7919*time.Nanosecond
	simPoll = 97 * time.Millisecond
	simRest = 53 * time.Millisecond
	simCalm = 30 * time.Second // within which everything must end when the faults do
)

// T1: two to four engines share a store. Each call to it waits until a scheduler, for
// which a seed decides, lets it go on: one at a time, when nothing else moves. Meanwhile
// engines die, stop, stand still and are replaced, clocks jump, wake-ups are lost, and
// calls fail before, after and long before they are done. After every commit the laws
// hold (OW, CK, AC, SG, TM); when the faults stop, everything comes to its right end
// (LV1). Bulks act once on what they select, and count what they did (OPS-10). Streams
// have each word once, in the order of its writer, and none of a former owner; readers get each
// once (WLD-70). Engines whose builds of a workflow differ leave alone what newer ones have chosen (VER-6), and
// no engine begins a delayed run before its time (STA-1).
//
// Interleavings 4, 5, 15, 19, 20 and 34 are among what the seeds meet.
func TestSimulation(t *testing.T) {
	// One answer may wake several goroutines. Which of them goes first is Go's to say: on
	// one processor it is always the same one, unless the race detector shuffles them.
	if !torture.Raced() {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	first, n := uint64(0), 500
	seed, chosen := seedToPlay(t)
	switch {
	case chosen:
		s := simulate(t, seed)
		t.Logf("seed %d: %v\n%s", seed, s.met, strings.Join(s.trace, "\n"))
		return
	case os.Getenv("WEFT_TRACES") != "":
		writeTraces(t, os.Getenv("WEFT_TRACES"), 200)
		return
	case os.Getenv("WEFT_TORTURE") != "":
		first, n = seed>>1, 50_000
	case torture.Raced(): // others than without
		first, n = 10_000, 50
	case testing.Short():
		first, n = 10_000, 100
	}
	met, replays := map[string]int{}, 0
	for seed := first; seed < first+uint64(n); seed++ {
		s := simulate(t, seed)
		for what, times := range s.met {
			met[what] += times
		}
		if torture.Raced() || seed%10 != 0 {
			continue
		}
		replays++
		if again := simulate(t, seed); again.sum.Sum64() != s.sum.Sum64() {
			met["played otherwise"]++
			t.Logf("seed %d is played otherwise the second time:\n%s", seed, firstDifference(s.trace, again.trace))
		}
	}
	t.Logf("%d seeds: %v", n, met)
	// The Go scheduler preempts a goroutine that seems to have run for 10 ms, also when the whole process had to wait
	// for a processor. Then another goroutine goes first. What depends on chance differs in many seeds.
	if most := 1 + replays/200; met["played otherwise"] > most {
		t.Errorf("of %d seeds that were played twice, %d are played otherwise the second time, want %d at most", replays, met["played otherwise"], most)
	}
	for what, perHundred := range simMeets {
		least := max(n*perHundred/100, 1)
		switch { // their few seeds may meet less, and with the race detector not always the same
		case torture.Raced():
			least /= 2
		case testing.Short():
			least = max(least/2, 1)
		}
		if met[what] < least {
			t.Errorf("%s: %d in %d seeds, want %d at least: too few to mean anything", what, met[what], n, least)
		}
	}
}

// writeTraces writes the traces of the first n seeds to a file: every call to the store,
// with its keys, in their order. A change that moves code and does nothing else leaves the
// file as it was.
func writeTraces(t *testing.T, file string, n uint64) {
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range n {
		fmt.Fprintf(f, "seed %d\n%s\n", seed, strings.Join(simulate(t, seed).trace, "\n"))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// firstDifference is where two traces part, with what came before.
func firstDifference(a, b []string) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	turn := func(trace []string) string {
		if i < len(trace) {
			return trace[i]
		}
		return "nothing"
	}
	return fmt.Sprintf("%s\nthen     %s\nand then %s", strings.Join(a[max(0, i-20):i], "\n"), turn(a), turn(b))
}

// simMeets is what a hundred seeds must meet at least: about half of what they do.
var simMeets = map[string]int{
	"killed": 25, "paused": 50, "stopped": 25, "clock jumps": 25, "dead engines whose clock was ahead": 3, "wake-ups dropped": 80,
	"error before": 200, "error after": 50, "answer late": 200, "lands late": 40, "landed late": 15, "refused late": 30, "withdrawn": 25,
	"takeovers": 25, "leases lost": 40, "lost races": 3, "unknown outcomes": 150, "stale commits refused": 2,
	"verifiers asked": 50, "effects repeated": 10, "stale tokens refused": 1, "completed": 80, "cancelled": 8, "terminated": 4, "labelled": 20, "on a deployment": 30, "continued": 20,
	"updates answered": 90, "updates refused": 25, "updates cut": 2, "values stored": 35,
	"reset": 45, "reset after the end": 25, "reset of a child": 1, "resets refused": 3, "hooks resumed": 150,
	"in a store of an earlier release": 10, "delayed starts": 10, "changed by a newer build": 1,
	"removed by retention": 15, "removed by an operator": 25, "protected": 15,
	"words stored": 65, "words read": 80, "words after a close refused": 5, "closed": 5, "opened again": 1,
	"words held up until a takeover": 4, "words of another owner refused": 1,
	"bulks ended": 10, "bulks stopped": 2, "pages of bulks": 10, "resumed": 5, "removed by a bulk": 1, "acts of bulks: reset": 2, "acts of bulks: terminate": 1,
}

// A simulation is the play of one seed.
type simulation struct {
	seed  uint64
	store storage.Storage
	laws  *laws

	ledger ledger // guarded by laws.mu

	// The scheduler's.
	dice      *rand.Rand
	stormy    bool
	odds      int           // one call in so many goes wrong in a storm
	late      []*turn       // commits that were answered, and may still land
	furthest  time.Duration // that a clock was ahead
	chores    map[string][]chore
	asked     map[string]bool    // runs that were asked to stop
	reset     map[string]bool    // runs that are reset
	flock     map[string][]chore // of runs that bulks act on
	spoke     map[string][]chore // of runs that write to streams
	seized    *seizure           // nil: none
	mended    atomic.Bool        // nothing breaks any more
	rolledOut bool               // each process that begins has the last build
	began     time.Time
	trace     []string
	sum       hash.Hash64 // of the trace

	ctx     context.Context // of the clients
	clients sync.WaitGroup

	mu      sync.Mutex // guards what follows
	parked  []*turn
	hosts   []*host          // also those that are dead
	waiting map[string]error // clients that are not content, and what they were told last
	resets  map[string]int   // that are to come, by run
	coming  map[string]int   // what clients are to do to a run that bulks act on
	going   int              // bulks that have not ended
	met     map[string]int
}

func oneOfThese[T any](dice *rand.Rand, from ...T) T { return from[dice.IntN(len(from))] }

func makeULID(at time.Time, seed uint64, host, n int) string {
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(at))
	h := fnv.New64a()
	fmt.Fprint(h, seed, host)
	binary.BigEndian.PutUint64(id[6:], h.Sum64())
	binary.BigEndian.PutUint16(id[14:], uint16(n))
	return id.String()
}

func (s *simulation) meet(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.met[what]++
}

// note writes down what the scheduler did.
func (s *simulation) note(how, what string) {
	line := fmt.Sprintf("%9v %s: %s", time.Since(s.began), how, what)
	fmt.Fprintln(s.sum, line)
	s.trace = append(s.trace, line)
}

// simulate plays a seed on a store in memory.
func simulate(t *testing.T, seed uint64) *simulation { return simulateOn(t, seed, nil) }

// simulateOn plays a seed on a store that open returns, beside one in memory, with which everything that it answers is
// compared.
func simulateOn(t *testing.T, seed uint64, open func(testing.TB) storage.Storage) *simulation {
	model := new(memory.Store)
	s := &simulation{
		seed: seed, dice: rand.New(rand.NewPCG(seed, 1)), store: model, met: map[string]int{}, waiting: map[string]error{},
		sum: fnv.New64a(), asked: map[string]bool{}, reset: map[string]bool{}, resets: map[string]int{}, chores: map[string][]chore{}, flock: map[string][]chore{}, spoke: map[string][]chore{}, coming: map[string]int{},
		ledger: ledger{done: map[string]bool{}, seen: map[string]uint64{}, asked: map[string]int{}},
	}
	s.laws = newLaws(model, simTTL)
	s.laws.builds = s.builds()
	s.laws.vouched = func(key string) bool { return s.ledger.done[key] }
	s.laws.met = s.meet
	virtual(t, func(t *testing.T) {
		var both *compared
		if open != nil {
			both = &compared{Storage: open(t), model: model}
			defer both.Close()
			s.store = both
		}
		if seed%7 == 3 {
			madeEarlier(t, s.store)
			s.meet("in a store of an earlier release")
		}
		err := s.play(t)
		if both != nil {
			err = cmp.Or(both.equal(), err)
			s.met["calls compared"] = both.calls
		}
		if err != nil {
			t.Fatalf("%v\n\nWEFT_SEED=%d go test -v -run '%s$' ./engine repeats this. The last turns were:\n%s", err, seed, t.Name(), strings.Join(s.trace[max(0, len(s.trace)-60):], "\n"))
		}
	})
	return s
}

// simDeployment is that of all engines.
const simDeployment = "sim"

// boot begins a process.
func (s *simulation) boot(t *testing.T, name string) *host {
	h := &host{opening: &opening{simulation: s, name: name, n: len(s.hosts), build: s.draws(len(s.hosts)), free: true}, over: make(chan struct{})}
	_, ws := s.definitions(h)
	if s.retains() {
		ws = append(ws, s.brief(h))
	}
	if s.schedules() {
		ws = append(ws, s.tick(h))
	}
	if s.bulks() {
		ws = append(ws, s.many(h))
	}
	if s.streams() {
		ws = append(ws, s.talk(h))
	}
	draw := s.dice.IntN
	h.eng = made(t, h.opening, func(c *engine.Config) {
		c.Workflows = ws
		c.Name, c.Logger, c.Deployment = name, slog.New(slog.DiscardHandler), simDeployment
		c.LeaseTTL, c.PollInterval, c.StopTimeout = simTTL, simPoll, time.Second
		c.ParkAfter = []time.Duration{-1, simRest, time.Hour}[draw(3)]
		c.MaxRunsInMemory = []int{0, 0, 2}[draw(3)]
		c.SignalIDRetention = 100 * 365 * 24 * time.Hour
		c.Events = engine.Events{
			Takeover: func(engine.TakeoverEvent) { s.meet("takeovers") },
			LostRace: func(engine.LostRaceEvent) { s.meet("lost races") },
			Fenced:   func(engine.FencedEvent) { s.meet("fenced commits") },
			Unknown:  func(engine.UnknownEvent) { s.meet("unknown outcomes") },
			Deposed:  func(engine.DeposedEvent) { s.meet("leases lost") },
		}
	})
	engine.SetNow(h.eng, h.wall)
	engine.SetIDs(h.eng, h.newID)
	engine.SetBase(h.eng, backoff.Even(context.Background()))
	engine.SetBulks(h.eng, s.mostPage(), simPause)
	engine.SetStreams(h.eng, simLook)
	ctx, cancel := context.WithCancel(backoff.Even(context.Background()))
	s.mu.Lock()
	h.end, h.free = cancel, false
	s.hosts = append(s.hosts, h)
	s.mu.Unlock()
	go func() {
		defer close(h.over)
		for ctx.Err() == nil {
			if err := h.eng.Run(ctx); errors.Is(err, engine.ErrClosed) {
				return
			}
		}
		h.eng.Close()
	}()
	return h
}

// living are the hosts that nobody has ended.
func (s *simulation) living() (hs []*host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.hosts {
		if !h.dead && !h.leaving {
			hs = append(hs, h)
		}
	}
	return hs
}

// kill ends a process without a word.
func (s *simulation) kill(h *host) {
	s.mu.Lock()
	h.dead = true
	s.mu.Unlock()
	h.end()
	synctest.Wait()
	go h.eng.Close()
	synctest.Wait()
	s.cut(h.opening)
}

// client does f through one engine after the other until it is done.
func (s *simulation) client(name string, after time.Duration, f func(context.Context, *engine.Engine) error) {
	told := func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiting[name] = err
	}
	told(nil)
	s.clients.Go(func() {
		if nap(s.ctx, after+time.Duration(s.hash(1_000_000, name))) != nil {
			return
		}
		for i := 0; s.ctx.Err() == nil; i++ {
			if hs := s.living(); len(hs) > 0 {
				ctx, cancel := context.WithTimeout(context.WithValue(s.ctx, callerKey{}, name), 20*time.Millisecond+time.Duration(s.hash(300_000_000, name, i)))
				err := f(ctx, hs[s.hash(len(hs), name, i, "by")].eng)
				cancel()
				if err == nil || errors.Is(err, engine.ErrTerminal) {
					break
				}
				told(err)
			}
			if nap(s.ctx, 20*time.Millisecond+time.Duration(s.hash(1_000_000, name, i, "again"))) != nil {
				return
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiting, name)
	})
}

// employ has clients start, tell and stop workflows.
func (s *simulation) employ() {
	v := 0
	work, _ := s.definitions(nil)
	for i := range 1 + s.dice.IntN(3) {
		id := fmt.Sprint("run", i)
		cs := drawChores(s.dice, &v, 5, choreKinds)
		s.chores[id] = cs
		after := time.Duration(s.dice.IntN(300)) * time.Millisecond
		s.client(id+" start", after, func(ctx context.Context, e *engine.Engine) error {
			o := engine.StartOptions{Labels: map[string]string{"team": "blue", "run": id}}
			placed := s.hash(2, id, "deployment") == 0
			if placed { // its children stay there, as integrity.Check says
				o.Deployment = simDeployment
			}
			if s.hash(4, id, "delay") == 0 {
				o.StartAt = s.began.Add(after + time.Duration(1+s.hash(1_500_000, id, "until"))*time.Microsecond)
			}
			_, err := work.With(o).Start(ctx, e, id, shift{Chores: cs})
			if err == nil && placed {
				s.meet("on a deployment")
			}
			return err
		})
		if s.dice.IntN(3) == 0 { // by an operator
			s.client(id+" label", after+time.Duration(s.dice.IntN(800))*time.Millisecond, func(ctx context.Context, e *engine.Engine) error {
				if err := e.Label(ctx, id, map[string]string{"team": "red", "seen": "yes"}, audit); err != nil {
					return err
				}
				s.meet("labelled")
				return nil
			})
		}
		for n := range s.hears(cs) {
			var first signal.Accepted
			for again := range 1 + s.dice.IntN(2) {
				s.client(fmt.Sprint(id, " word ", n, again), after+time.Duration(s.dice.IntN(800))*time.Millisecond, func(ctx context.Context, e *engine.Engine) error {
					a, err := word.Send(ctx, e, id, fmt.Sprint("heard ", n), &signal.Options{ID: fmt.Sprint(n)})
					if errors.Is(err, engine.ErrTerminal) && !s.hasEnded(id) {
						return errLater
					}
					if err != nil {
						return err
					}
					s.laws.mu.Lock()
					defer s.laws.mu.Unlock()
					if first == (signal.Accepted{}) {
						first = canonical(a)
					}
					if canonical(a) != first {
						s.laws.wrong("SG1: answered %+v and then %+v", first, a)
					}
					return nil
				})
			}
		}
		for _, c := range cs {
			if c.Do == "hook" {
				s.pay(id, c.V, after+time.Duration(s.dice.IntN(800))*time.Millisecond)
			}
		}
		if s.dice.IntN(3) == 0 {
			s.reset[id], s.resets[id] = true, 1+s.dice.IntN(2)
			for n := range s.resets[id] {
				s.goBack(id, fmt.Sprint(id, " reset ", n), after+time.Duration(s.dice.IntN(2500))*time.Millisecond)
			}
		}
		for n := range s.dice.IntN(3) {
			s.inquire(id, 10_000*(i+1)+n, after+time.Duration(s.dice.IntN(800))*time.Millisecond)
		}
		if s.dice.IntN(4) == 0 {
			s.asked[id] = true
			ended := s.hash(2, id, "terminate") == 0
			s.client(id+" cancel", after+time.Duration(s.dice.IntN(1500))*time.Millisecond, func(ctx context.Context, e *engine.Engine) error {
				if ended {
					err := e.Terminate(ctx, id, audit)
					if err == nil {
						s.meet("terminated")
					}
					return err
				}
				return work.Handle(e, id).Cancel(ctx, engine.Actor{Reason: "enough"})
			})
		}
	}
}

// inquire has two clients call one update of a run. Both get the same answer, if the run does not end
// before.
func (s *simulation) inquire(id string, v int, after time.Duration) {
	var first string
	for again := range 2 {
		s.client(fmt.Sprint(id, " ask ", v, again), after, func(ctx context.Context, e *engine.Engine) error {
			got, err := ask.Call(ctx, e, id, v, &engine.UpdateOptions{ID: fmt.Sprint(v)})
			answer := fmt.Sprint("answered ", got)
			var failed *engine.UpdateError
			switch {
			case err == nil:
			case errors.Is(err, errRefused):
				answer = "refused"
			case errors.As(err, &failed):
				answer = "cut off"
			default:
				return err // also if it ended before
			}
			s.meet("updates " + strings.Fields(answer)[0])
			s.laws.mu.Lock()
			defer s.laws.mu.Unlock()
			want := fmt.Sprint("answered ", v)
			if refuse(v) != nil {
				want = "refused"
			}
			switch {
			case first == "", s.reset[id] && first == "cut off":
				first = answer
			case first != answer && !(s.reset[id] && answer == "cut off"):
				s.laws.wrong("UPD-1: update %d of %s: %s, and then %s", v, id, first, answer)
			}
			if answer != want && !(answer == "cut off" && s.asked[id]) {
				s.laws.wrong("UPD-1: update %d of %s: %s, want %s", v, id, answer, want)
			}
			return nil
		})
	}
}

// pay has two clients resume a hook of a run, with one ID. They get the same answer. A reset of the run closes the
// hook with what it got, so they go on with other IDs until such a run has ended.
func (s *simulation) pay(id string, v int, after time.Duration) {
	answers := map[string]signal.Accepted{} // by ID
	for again := range 2 {
		tries := 0
		s.client(fmt.Sprint(id, " pay ", v, again), after, func(ctx context.Context, e *engine.Engine) error {
			signalID := fmt.Sprint("payment ", tries)
			a, err := invoices.Resume(ctx, e, invoice(v), paidFor(v), &signal.Options{ID: signalID})
			if err != nil {
				if (errors.Is(err, engine.ErrNotFound) || errors.Is(err, engine.ErrTerminal)) && s.hasEnded(id) {
					return nil
				}
				return fmt.Errorf("%v", err) // it may be open later
			}
			s.meet("hooks resumed")
			ended := s.hasEnded(id)
			s.laws.mu.Lock()
			defer s.laws.mu.Unlock()
			if first, repeated := answers[signalID]; repeated && canonical(a) != first {
				s.laws.wrong("WLD-H5: a resume of %s is answered %+v and then %+v", invoice(v), first, a)
			}
			answers[signalID] = canonical(a)
			if s.reset[id] && !ended {
				tries++
				return errLater
			}
			return nil
		})
	}
}

// hasEnded reports whether a run has come to its last end: no reset may follow.
func (s *simulation) hasEnded(id string) bool {
	s.mu.Lock()
	resets := s.resets[id]
	s.mu.Unlock()
	s.laws.mu.Lock()
	defer s.laws.mu.Unlock()
	run := s.laws.runs[id]
	return resets == 0 && run != nil && run.ended != ""
}

// goBack has an operator reset a run, or a child of it, to before one of its operations.
func (s *simulation) goBack(id, name string, after time.Duration) {
	s.client(name, after, func(ctx context.Context, e *engine.Engine) error {
		at := s.hash(1000, name)
		operations, err := s.begun(ctx, e, id)
		if err != nil {
			return err
		}
		of, before := id, operations[at%len(operations)].id
		if i := slices.IndexFunc(operations, func(o begunOperation) bool { return o.child != "" }); i >= 0 && at%2 == 0 {
			of, before = operations[i].child, "" // told or not
		} else if i := slices.IndexFunc(operations, func(o begunOperation) bool { return o.closes }); i >= 0 && at%2 == 1 {
			before = operations[i].id // which opens the stream again
		}
		switch err = e.Reset(ctx, of, before, audit); {
		case errors.Is(err, engine.ErrNotApplicable), errors.Is(err, engine.ErrNotFound): // it was passed over, or is of an earlier life
			s.meet("resets refused")
		case err != nil:
			return err
		case of != id:
			s.meet("reset of a child")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.resets[id]--
		return nil
	})
}

var errLater = errors.New("later")

// A begunOperation is one that an operator sees in a history.
type begunOperation struct {
	id, child string
	closes    bool // a stream
}

// begun returns the operations in the history of a run. The first of them stands for all.
func (s *simulation) begun(ctx context.Context, e *engine.Engine, id string) (all []begunOperation, err error) {
	all = []begunOperation{{}}
	for c, err := range e.History(ctx, id) {
		if err != nil {
			return nil, err
		}
		for _, ev := range c.Events {
			if ev.Operation != "" && (ev.Child != "" || !slices.ContainsFunc(all, func(o begunOperation) bool { return o.id == ev.Operation })) {
				all = append(all, begunOperation{ev.Operation, ev.Child, ev.Kind == checkpoint.KindClosed})
			}
		}
	}
	return all, nil
}

// play is the whole of it: a storm, and a calm in which everything ends.
func (s *simulation) play(t *testing.T) (err error) {
	ctx, cancel := context.WithCancel(backoff.Even(context.Background()))
	s.ctx, s.began = ctx, time.Now()
	defer func() {
		cancel()
		for _, h := range s.hosts {
			s.kill(h)
		}
		for _, h := range s.hosts {
			<-h.over
		}
		s.clients.Wait()
		if err == nil {
			err = s.laws.kept() // also by what was on its way
		}
	}()
	for i := range 2 + s.dice.IntN(3) {
		s.boot(t, fmt.Sprint("host", i))
	}
	s.employ()
	if s.retains() {
		s.dispose()
	}
	if s.schedules() {
		s.repeat()
	}
	if s.bulks() {
		s.actOnMany()
	}
	if s.streams() {
		s.converse()
	}
	s.stormy, s.odds = true, oneOfThese(s.dice, 5, 20, 100)
	for end := time.Now().Add(time.Duration(500+s.dice.IntN(1500)) * time.Millisecond); time.Now().Before(end); {
		synctest.Wait()
		s.upset(t)
		s.seizes()
		s.turn()
		if err := s.laws.kept(); err != nil {
			return err
		}
		if s.settled() {
			return s.ended(t)
		}
	}
	s.clear(t)
	for end := time.Now().Add(simCalm); ; {
		s.turn()
		if err := s.laws.kept(); err != nil {
			return err
		}
		if s.settled() {
			return s.ended(t)
		}
		if time.Now().After(end) {
			return fmt.Errorf("LV1: %v after the faults, not everything has ended:\n%s", simCalm, s.unended(t))
		}
	}
}

// turn lets one call go on, or time.
func (s *simulation) turn() {
	ready := s.ready()
	switch {
	case len(ready) == 0 || s.stormy && s.dice.IntN(12) == 0:
		time.Sleep(simTick)
	case s.stormy && len(s.late) > 0 && s.dice.IntN(20) == 0:
		s.land(s.dice.IntN(len(s.late)))
	case s.stormy:
		if t := ready[s.dice.IntN(len(ready))]; !s.seize(t) {
			s.release(t)
		}
	default:
		s.release(ready[0])
	}
}

// upset has something happen to a host, now and then.
func (s *simulation) upset(t *testing.T) {
	if s.dice.IntN(60) > 0 {
		return
	}
	hs := s.living()
	if len(hs) < 2 {
		name := fmt.Sprint("host", s.dice.IntN(4))
		s.boot(t, name)
		s.note("boots", name)
		return
	}
	h := oneOfThese(s.dice, hs...)
	how := oneOfThese(s.dice, "killed", "paused", "paused", "stopped", "clock jumps", "boots")
	switch how {
	case "killed":
		s.kill(h)
	case "paused":
		h.paused = time.Now().Add(simTTL*12/10 + time.Duration(s.dice.Int64N(int64(simTTL*18/10))))
	case "stopped":
		s.mu.Lock()
		h.leaving = true
		s.mu.Unlock()
		h.end()
	case "clock jumps":
		by := oneOfThese(s.dice, -time.Hour, -time.Second, -simTTL, simTTL, time.Second, time.Hour, 26*time.Hour)
		h.setSkew(by)
		s.furthest = max(s.furthest, by)
	case "boots":
		if len(hs) > 4 {
			return
		}
		s.boot(t, h.name)
	}
	s.meet(how)
	s.note(how, h.name)
}

// clear ends the storm. All clocks are then as the furthest was, or, in every other seed,
// right: what one of them had put far into the future takes no longer for that.
func (s *simulation) clear(t *testing.T) {
	s.stormy, s.seized = false, nil
	if s.seed%2 == 0 {
		s.furthest = 0
	}
	for len(s.late) > 0 {
		s.land(0)
	}
	for _, h := range s.hosts {
		h.paused = time.Time{}
		h.setSkew(s.furthest)
	}
	s.rolledOut = true
	if !slices.ContainsFunc(s.living(), func(h *host) bool { return h.build == lastBuild }) {
		s.boot(t, "last").setSkew(s.furthest)
	}
	s.note("calm", "")
}

// settled says that all clients are content and all runs have ended.
func (s *simulation) settled() bool {
	synctest.Wait()
	s.mu.Lock()
	waiting := len(s.waiting)
	s.mu.Unlock()
	if waiting > 0 {
		return false
	}
	s.laws.mu.Lock()
	defer s.laws.mu.Unlock()
	for _, run := range s.laws.runs {
		if run.ended == "" && !run.gone {
			return false
		}
	}
	return s.ticked()
}

// unended says of each run that has not ended what it waits for, and what may wake it; and which clients are not content.
func (s *simulation) unended(t *testing.T) string {
	reader := made(t, sharing{s.store})
	defer reader.Close()
	var said strings.Builder
	for _, id := range slices.Sorted(maps.Keys(s.laws.runs)) {
		if run := s.laws.runs[id]; run.ended != "" || run.gone {
			continue
		}
		info, err := reader.Describe(context.Background(), id)
		fmt.Fprintf(&said, "%+v, %v\n", info, err)
	}
	s.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(s.waiting)) {
		fmt.Fprintf(&said, "client %q waits: %v\n", name, s.waiting[name])
	}
	s.mu.Unlock()
	for _, id := range s.due() {
		if s.laws.runs[id] == nil {
			fmt.Fprintf(&said, "%s was not started by its schedule\n", id)
		}
	}
	for _, prefix := range []string{"todo:", "wake:"} {
		entries, err := s.store.Scan(context.Background(), storage.Prefix([]byte(prefix)))
		if err != nil {
			fmt.Fprintf(&said, "%s %v\n", prefix, err)
		}
		for _, e := range entries {
			fmt.Fprintf(&said, "%s\n", e.Key)
		}
	}
	return said.String()
}

// ended judges what everything has come to.
func (s *simulation) ended(t *testing.T) error {
	var ids []string
	for id, run := range s.laws.runs {
		if !run.gone {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	problems := sweep.Inspect(context.Background(), s.store, ids, []string{"held:"})
	work, _ := s.definitions(nil)
	reader := made(t, sharing{s.store})
	defer reader.Close()
	problems = append(append(append(problems, s.unscheduled(reader)...), s.unlike(reader)...), s.unspoken(reader)...)
	for id, cs := range s.chores {
		got, err := work.Handle(reader, id).Result(context.Background())
		switch run := s.laws.runs[id]; {
		case run == nil:
			problems = append(problems, id+" was not started")
		case run.ended == string(checkpoint.StatusCancelled) && s.asked[id]:
			s.meet("cancelled")
		case s.asked[id] && s.reset[id] && err != nil && strings.HasSuffix(err.Error(), engine.ErrCancelled.Error()):
			s.meet("told that a child was cancelled") // with the run, which was reset to behind its start
		case err != nil:
			problems = append(problems, fmt.Sprintf("%s: %v", id, err))
		case !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(promised(cs)))): // signals come in any order
			problems = append(problems, fmt.Sprintf("%s: %q, want %q", id, got, promised(cs)))
		default:
			s.meet("completed")
		}
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "\n    "))
	}
	return nil
}
