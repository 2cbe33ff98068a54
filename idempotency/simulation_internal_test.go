package idempotency

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency/internal/clock"
	"github.com/weft-go/weft/idempotency/internal/entry"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

const (
	simTick      = 100 * time.Millisecond
	simLease     = 3*time.Second + 7919*time.Nanosecond
	simTimeout   = 4 * time.Second // with simSettle it is longer than the lease
	simSettle    = 3 * time.Second
	simRetention = 10 * time.Minute
	simCalm      = 10 * time.Minute // within which everything is answered when the faults have ended
)

// Two to four processes with a ledger each share a store. Each call to it waits until a scheduler, for which a seed
// decides, lets it go on: one at a time, when nothing else moves. Meanwhile processes die, stand still for longer
// than the lease and are replaced, wall clocks jump by an hour, a day, to 1970 and to 2200, callers leave, and calls
// fail before, after and long before they are done.
//
// After every commit the laws hold. Of each key: at most one seal, one receipt in all answers, no answer without a seal;
// as many effects as its policy allows; rising fencing tokens. Nothing sealed is forgotten before its time. When the
// faults end, everything is answered in simCalm, and what is due is swept. FEN-11, FEN-15, FEN-27, FEN-29, FEN-38.
//
// A request that was sent in an attempt may take effect until Settle after the attempt's Timeout, also if its sender is dead.
//
// WEFT_SEED repeats a seed, WEFT_TORTURE plays 20,000.
func TestSimulation(t *testing.T) {
	// One answer may wake several goroutines. Which of them goes first is Go's to say: on one processor it is
	// always the same one, unless the race detector shuffles them.
	if !torture.Raced() {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	first, n := uint64(0), 2000
	switch seed := os.Getenv("WEFT_SEED"); {
	case seed != "":
		one, err := strconv.ParseUint(seed, 10, 64)
		if err != nil {
			t.Fatal("WEFT_SEED:", err)
		}
		s := simulate(t, one)
		t.Logf("seed %d: %v\n%s", one, s.met, strings.Join(s.trace, "\n"))
		return
	case os.Getenv("WEFT_TORTURE") != "":
		first, n = rand.Uint64()>>1, 20_000
	case torture.Raced(): // others than without
		first, n = 10_000, 100
	case testing.Short():
		first, n = 10_000, 200
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
			// Callers that one answer wakes go on in any order.
			met["played otherwise"]++
			t.Logf("seed %d is played otherwise the second time:\n%s", seed, parting(s.trace, again.trace))
		}
	}
	t.Logf("%d seeds: %v", n, met)
	if met["played otherwise"]*10 > replays {
		t.Errorf("of %d seeds that were played twice, %d are played otherwise the second time", replays, met["played otherwise"])
	}
	for what, perHundred := range simMeets {
		// An eighth of what is usual: chance stays within that.
		if met[what]*800 < n*perHundred {
			t.Errorf("%s: %d in %d seeds, want %d at least: too few to mean anything", what, met[what], n, n*perHundred/800)
		}
	}
}

// simMeets is what a hundred seeds must meet at least: about half of what they do.
var simMeets = map[string]int{
	"killed": 150, "paused": 100, "clock jumps": 200, "error before": 150, "error after": 150, "late": 300, "answered late": 150, "landed after its caller left": 50,
	"landed late": 20, "timed out": 30, "took long": 25, "panicked": 10, "no effect": 10, "permanent": 8, "unknown, it happened": 10,
	"unknown, it did not happen": 10, "verifiers asked": 100, "effects repeated": 8, "answer new": 100, "answer duplicate": 300, "conflict": 150, "stale": 80,
	"in_progress to in_progress": 15, "in_progress to indeterminate": 70, "in_progress to released": 20, "in_progress to failed": 8, "in_progress to sealed": 120,
	"indeterminate to in_progress": 50, "indeterminate to released": 7, "indeterminate to sealed": 15, "released to in_progress": 20, "sealed to none": 120,
	"failed to none": 8, "released to none": 2, "resolved": 25,
}

// parting is where two traces part.
func parting(a, b []string) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	at := func(trace []string) string {
		if i < len(trace) {
			return trace[i]
		}
		return "nothing"
	}
	return fmt.Sprintf("%s\nthen     %s\nand then %s", strings.Join(a[max(0, i-10):i], "\n"), at(a), at(b))
}

// A simulation is the play of one seed.
type simulation struct {
	seed  uint64
	laws  *laws
	jobs  []*simJob
	dice  *rand.Rand // the scheduler's
	odds  int        // one call in so many goes wrong in a storm
	began time.Time
	trace []string
	sum   hash.Hash64 // of trace

	ctx     context.Context // of the clients
	clients sync.WaitGroup
	stormy  atomic.Bool

	mu      sync.Mutex // guards what follows
	parked  []*turn
	hosts   []*simHost // also those that are dead
	waiting int        // clients without an answer
	wire    []letter   // requests that may still take effect
	met     map[string]int
	wrongs  []string
}

// A simJob is a key, how it is asked for, and what the outer world knows of it.
type simJob struct {
	name     string
	key      Key
	def      Effect[simInput, string]
	liar     bool // its verifier may say what is not so
	ignorant bool // its verifier never knows

	effects  int // guarded by simulation.mu, as what follows
	result   string
	active   int // Runs
	runs     int
	asked    int
	token    uint64
	receipts map[simInput]Receipt[string]
}

type simInput struct{ Name, Version, Variant string }

// A letter is a request on its way.
type letter struct {
	job    *simJob
	lands  time.Time
	result string
}

// A simHost is a process.
type simHost struct {
	*simulation
	n      int
	l      *Ledger
	skew   atomic.Int64 // of its wall clock
	ctx    context.Context
	cancel context.CancelFunc
	closed chan struct{}

	free   bool // its calls do not wait; guarded by simulation.mu, as what follows
	dead   bool
	paused time.Time // until when none of its calls is released
}

// A turn is a call to the store that waits to be released.
type turn struct {
	h      *simHost
	ctx    context.Context
	call   storagetest.Call
	place  string // what it is about: the same in every play of a seed
	answer chan turnAnswer
	after  time.Time   // not before
	done   *turnAnswer // it has been done, and its answer is on the way
	gone   bool        // its caller has left
}

type turnAnswer struct {
	value []byte
	page  []storage.Entry
	err   error
}

func (h *simHost) Get(ctx context.Context, key []byte) ([]byte, error) {
	r := h.await(ctx, storagetest.Call{Method: "Get", Key: key})
	return r.value, r.err
}

func (h *simHost) Scan(ctx context.Context, in storage.Range) ([]storage.Entry, error) {
	r := h.await(ctx, storagetest.Call{Method: "Scan", Range: in})
	return r.page, r.err
}

func (h *simHost) Commit(ctx context.Context, b storage.Batch) error {
	return h.await(ctx, storagetest.Call{Method: "Commit", Batch: b}).err
}

func (h *simHost) Capabilities() storage.Capabilities { return h.laws.Capabilities() }
func (h *simHost) Close() error                       { return nil }

// simCaller is the key of the name of a caller in its context.
type simCaller struct{}

// await has a call wait for its turn.
func (h *simHost) await(ctx context.Context, c storagetest.Call) turnAnswer {
	if err := ctx.Err(); err != nil {
		return turnAnswer{err: err}
	}
	t := &turn{h: h, ctx: ctx, call: c, answer: make(chan turnAnswer, 1)}
	t.place = t.about()
	h.mu.Lock()
	switch {
	case h.dead:
		h.mu.Unlock()
		return turnAnswer{err: storage.ErrClosed}
	case h.free:
		h.mu.Unlock()
		return t.apply()
	}
	h.parked = append(h.parked, t)
	h.mu.Unlock()
	select {
	case a := <-t.answer:
		return a
	case <-ctx.Done():
		h.mu.Lock()
		t.gone = true
		h.mu.Unlock()
		return turnAnswer{err: ctx.Err()}
	}
}

// about names what a call is about, without what is random.
func (t *turn) about() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%02d %s", t.h.n, t.call.Method)
	if caller := t.ctx.Value(simCaller{}); caller != nil {
		fmt.Fprintf(&b, " by %s", caller)
	}
	name := func(key []byte) {
		if bytes.HasPrefix(key, []byte("idemown:")) {
			key = key[:8]
		}
		fmt.Fprintf(&b, " %.50s", key)
	}
	name(t.call.Key)
	name(t.call.Range.Start)
	for _, o := range t.call.Batch.Ops {
		name(o.Key)
	}
	return b.String()
}

func (t *turn) apply() (a turnAnswer) {
	ctx := context.Background()
	switch t.call.Method {
	case "Get":
		a.value, a.err = t.h.laws.Get(ctx, t.call.Key)
	case "Scan":
		a.page, a.err = t.h.laws.Scan(ctx, t.call.Range)
	default:
		a.err = t.h.laws.Commit(ctx, t.call.Batch)
	}
	return a
}

func (s *simulation) meet(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.met[what]++
}

func (s *simulation) wrong(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrongs = append(s.wrongs, fmt.Sprintf(format, args...))
}

// note writes down what the scheduler did.
func (s *simulation) note(how, what string) {
	line := fmt.Sprintf("%9v %s: %s", time.Since(s.began), how, what)
	fmt.Fprintln(s.sum, line)
	s.trace = append(s.trace, line)
}

// draw draws a number below n for what is named, whoever asks first.
func (s *simulation) draw(n int, what ...any) int {
	h := fnv.New64a()
	fmt.Fprint(h, s.seed, what)
	return int(rand.New(rand.NewPCG(h.Sum64(), 7)).Uint64() % uint64(n))
}

func simulate(t *testing.T, seed uint64) *simulation {
	s := &simulation{seed: seed, dice: rand.New(rand.NewPCG(seed, 1)), met: map[string]int{}, sum: fnv.New64a()}
	synctest.Test(t, func(t *testing.T) {
		s.laws = newLaws(new(memory.Store))
		s.laws.forgets = true
		s.laws.due = func(e *entry.Entry, sealed time.Duration) string {
			if age := time.Since(s.began) - sealed; age < simRetention-2*clock.MostDrift {
				return fmt.Sprintf("it is forgotten %v after its seal", age)
			}
			return ""
		}
		s.laws.buried = func(id string) {
			for _, h := range s.hosts {
				if holder := h.l.holders.Current(); !h.dead && holder != nil && holder.ID == id && !holder.IsLost() {
					s.wrong("a holder is found dead, and trusts its lease: %d", h.n)
				}
			}
		}
		s.began = time.Now()
		if err := s.play(t); err != nil {
			t.Fatalf("%v\n\nWEFT_SEED=%d go test -v -run TestSimulation ./idempotency repeats this. The last turns were:\n%s", err, seed, strings.Join(s.trace[max(0, len(s.trace)-60):], "\n"))
		}
	})
	for what, times := range s.laws.changed {
		s.met[what] += times
	}
	return s
}

// boot begins a process. Its clock is right at first.
func (s *simulation) boot(t *testing.T) *simHost {
	h := &simHost{simulation: s, n: len(s.hosts), closed: make(chan struct{}), free: true}
	now := func() time.Time { return time.Now().Add(time.Duration(h.skew.Load())) }
	h.l = evenLedger(t, Config{Storage: h, Lease: simLease, Logger: slog.New(slog.DiscardHandler)}, now)
	h.ctx, h.cancel = context.WithCancel(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	h.free = false
	s.hosts = append(s.hosts, h)
	return h
}

// evenLedger is New with a wall clock, and pauses that are not random.
func evenLedger(t *testing.T, c Config, now func() time.Time) *Ledger {
	l, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return start(backoff.Even(context.Background()), l.config, l.codecs, now)
}

func (s *simulation) living() (hs []*simHost) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.hosts {
		if !h.dead {
			hs = append(hs, h)
		}
	}
	return hs
}

// kill ends a process without a word.
func (s *simulation) kill(h *simHost) {
	s.mu.Lock()
	h.dead = true
	left := s.parked[:0]
	for _, t := range s.parked {
		if t.h == h {
			t.answer <- turnAnswer{err: storage.ErrClosed}
			continue
		}
		left = append(left, t)
	}
	s.parked = left
	s.mu.Unlock()
	h.cancel()
	go func() {
		defer close(h.closed)
		h.l.Close()
	}()
}

// run makes a request to the outer world.
func (s *simulation) run(j *simJob) func(ctx context.Context, in simInput) (string, error) {
	return func(ctx context.Context, in simInput) (string, error) {
		a, info := AttemptFrom(ctx), activity.InfoFrom(ctx)
		h, _ := ctx.Value(hostKey{}).(*simHost)
		if holder := h.l.holders.Current(); ctx.Err() != nil || holder.IsLost() {
			s.wrong("%s: Run begins, although its caller has left or its lease is lost: %v", j.name, context.Cause(ctx))
		} else if e := s.stored(j); e == nil || e.State != entry.InProgress || e.Epoch != info.FencingToken || e.Holder != holder.ID {
			s.wrong("FEN-11: %s: Run begins, and its claim is not what is stored: %+v", j.name, e)
		}
		s.mu.Lock()
		j.runs++
		j.active++
		n := j.runs
		if a.Hash != j.key.Hash() {
			s.wrongs = append(s.wrongs, "Run was told of another key")
		}
		if info.FencingToken <= j.token {
			s.wrongs = append(s.wrongs, fmt.Sprintf("%s: the fencing token does not rise: %d, then %d", j.name, j.token, info.FencingToken))
		}
		j.token = info.FencingToken
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			j.active--
			s.mu.Unlock()
		}()
		fate := s.draw(20, j.name, n, "fate")
		out := fmt.Sprintf("%s/%s/%d", j.name, in.Variant, n)
		if nap := time.Duration(s.draw(1500, j.name, n, "nap")) * time.Millisecond; fate >= 11 && !backoff.Sleep(ctx, nap) {
			return "", fmt.Errorf("before it was sent: %w", context.Cause(ctx))
		}
		send := func(after time.Duration) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if h.dead || ctx.Err() != nil {
				return
			}
			if after == 0 {
				j.happens(out)
			} else {
				s.wire = append(s.wire, letter{j, time.Now().Add(after), out})
			}
		}
		switch {
		case fate == 0:
			s.meet("no effect")
			return "", activity.NoEffect(errBoom)
		case fate == 1 && j.name != "v1" && j.name != "v2":
			s.meet("permanent")
			return "", activity.NoEffect(activity.Permanent(errBoom))
		case fate == 2:
			s.meet("unknown, it happened")
			send(0)
			return "", errBoom
		case fate == 3:
			s.meet("unknown, it did not happen")
			return "", errBoom
		case fate == 4:
			s.meet("panicked")
			send(0)
			panic("boom")
		case fate <= 7: // the answer does not come: the request lands after Run's end
			s.meet("timed out")
			last := time.Now().Add(simTimeout + simSettle - 2*simTick)
			if !backoff.Sleep(ctx, time.Duration(s.draw(1500, j.name, n, "sent"))*time.Millisecond) {
				return "", context.Cause(ctx)
			}
			send(max(time.Until(last)*time.Duration(1+s.draw(10, j.name, n, "lands"))/10, 1))
			<-ctx.Done()
			return "", context.Cause(ctx)
		}
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		send(0)
		if fate <= 10 { // it does not heed its context
			s.meet("took long")
			time.Sleep(time.Duration(s.draw(int(4*simLease/time.Millisecond), j.name, n, "takes")) * time.Millisecond)
		}
		return out, nil
	}
}

// happens must be called with simulation.mu held.
func (j *simJob) happens(result string) {
	j.effects++
	if j.result == "" {
		j.result = result
	}
}

func (s *simulation) verify(j *simJob) func(ctx context.Context, in simInput) (activity.Verification[string], error) {
	return func(ctx context.Context, in simInput) (activity.Verification[string], error) {
		s.meet("verifiers asked")
		s.mu.Lock()
		j.asked++
		n := j.asked
		s.mu.Unlock()
		backoff.Sleep(ctx, time.Duration(s.draw(500, j.name, n, "asked"))*time.Millisecond)
		s.mu.Lock()
		defer s.mu.Unlock()
		fate := s.draw(8, j.name, n, "answer")
		switch {
		case j.ignorant || fate == 0:
			return activity.Indeterminate[string]("not yet"), nil
		case fate == 1:
			return activity.Verification[string]{}, errBoom
		case fate == 2:
			panic("the verifier")
		case j.liar && fate == 3:
			return activity.NotCompleted[string](), nil
		case j.liar && fate == 4:
			return activity.CompletedWithResult("lie"), nil
		case j.effects > 0:
			return activity.CompletedWithResult(j.result), nil
		}
		return activity.NotCompleted[string](), nil
	}
}

type hostKey struct{}

// define draws the keys and their effects.
func (s *simulation) define() {
	ordered := s.dice.IntN(2) == 0
	for i := range 2 + s.dice.IntN(2) {
		s.addJob(fmt.Sprint("k", i), Abandoned(s.dice.IntN(3)), nil)
	}
	if ordered {
		policy := Abandoned(s.dice.IntN(3))
		for i := range 3 {
			s.addJob(fmt.Sprint("v", i+1), policy, &Order[simInput]{
				Source:  func(simInput) string { return "account" },
				Version: func(in simInput) string { return in.Version },
				Compare: CompareInt,
			})
		}
	}
}

func (s *simulation) addJob(name string, policy Abandoned, order *Order[simInput]) {
	j := &simJob{name: name, key: Key{Tenant: "t", SourceType: "job", SourceID: name, Action: "pay"}, receipts: map[simInput]Receipt[string]{}}
	j.liar, j.ignorant = s.dice.IntN(10) == 0, s.dice.IntN(10) == 0
	j.def = Effect[simInput, string]{
		Name: "pay", OnAbandoned: policy, Run: s.run(j), Verify: s.verify(j), Errors: []error{errBoom},
		Timeout: simTimeout, Settle: simSettle, VerifyTimeout: time.Second, Wait: []time.Duration{-1, time.Second, 20 * time.Second}[s.dice.IntN(3)],
		Retention: simRetention, Order: order,
	}
	s.jobs = append(s.jobs, j)
}

// employ begins the clients.
func (s *simulation) employ() {
	for _, j := range s.jobs {
		for c := range 1 + s.dice.IntN(4) {
			in := simInput{Name: j.name, Version: strings.TrimLeft(j.name, "kv"), Variant: "a"}
			if s.dice.IntN(6) == 0 {
				in.Variant = "b"
			}
			s.waiting++
			s.clients.Go(func() { s.client(fmt.Sprint(j.name, "-", c), j, in) })
		}
	}
}

// client asks one process after the other until it has its answer twice.
func (s *simulation) client(name string, j *simJob, in simInput) {
	nap := func(d time.Duration, i int, what string) bool {
		return backoff.Sleep(s.ctx, d+time.Duration(s.draw(1_000_000, name, i, what)))
	}
	nap(time.Duration(s.draw(10_000, name, "begins"))*time.Millisecond, 0, "begins")
	for i, answers := 0, 0; answers < 2 && s.ctx.Err() == nil; i++ {
		if hs := s.living(); len(hs) > 0 {
			h := hs[s.draw(len(hs), name, i, "by")]
			ctx := context.WithValue(context.WithValue(h.ctx, simCaller{}, name), hostKey{}, h)
			patience := time.Minute
			if s.draw(3, name, i, "leaves") == 0 {
				patience = time.Duration(s.draw(5000, name, i, "patience"))*time.Millisecond + time.Microsecond
			}
			ctx, cancel := context.WithTimeout(backoff.Even(ctx), patience)
			r, err := j.def.Do(ctx, h.l, j.key, in)
			cancel()
			s.mu.Lock()
			dead := h.dead
			s.mu.Unlock()
			if !dead && s.judge(j, in, r, err) {
				answers++
			}
		}
		if !nap(time.Duration(min(i+1, 8))*500*time.Millisecond, i, "again") {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
}

// stored returns what is stored for a key, or nil.
func (s *simulation) stored(j *simJob) *entry.Entry {
	at := entry.Key(j.key).Place(j.key.Hash())
	raw, err := s.laws.Get(context.Background(), at)
	if err != nil {
		return nil
	}
	e, err := decode(at, raw)
	if err != nil {
		s.wrong("%v", err)
	}
	return e
}

// judge judges an answer, and says whether it is final.
func (s *simulation) judge(j *simJob, in simInput, r Receipt[string], err error) bool {
	var kind string
	stored := s.stored(j)
	if stored == nil {
		stored = new(entry.Entry)
	}
	switch {
	case err == nil:
		kind = "sealed"
		if stored.State != entry.Sealed || stored.EffectID != r.EffectID {
			s.wrong("FEN-44: %s: an answer without a seal: %+v, stored is %+v", j.name, r, stored)
		}
		s.meet("answer " + string(r.Decision))
		r.Decision = ""
		s.mu.Lock()
		for other, before := range j.receipts {
			if before != r || other != in {
				s.wrongs = append(s.wrongs, fmt.Sprintf("FEN-15: %s: the answers differ: %+v to %+v, %+v to %+v", j.name, before, other, r, in))
			}
		}
		j.receipts[in] = r
		s.mu.Unlock()
		return true
	case errors.Is(err, ErrFailed):
		kind = "failed"
		if stored.State != entry.Failed {
			s.wrong("%s: a failure that is not stored: %+v", j.name, stored)
		}
	case errors.Is(err, ErrConflict):
		kind = "conflict"
	case errors.Is(err, ErrStale):
		kind = "stale"
	case errors.Is(err, ErrIndeterminate):
		s.meet("held")
		return false
	case errors.Is(err, ErrInProgress):
		s.meet("busy")
		return false
	case errors.Is(err, ErrFenceLost):
		s.meet("fence lost")
		return false
	case errors.Is(err, ErrResultUnavailable):
		s.wrong("%v", err)
		return true
	case activity.IsNoEffect(err), errors.Is(err, errBoom):
		s.meet("released")
		return false
	default: // the store's, or of the context
		return false
	}
	s.meet(kind)
	// A conflict is not the last word as long as the key may be released.
	return kind != "conflict" || stored.State == entry.Sealed || stored.State == entry.Failed
}

// operator lists what lapsed or is indeterminate, examines it when no request of it is on its way and no Run is, and
// resolves the attempt that it has examined.
func (s *simulation) operator() {
	for i := 0; backoff.Sleep(s.ctx, 5*time.Second+time.Duration(s.draw(1_000_000, i, "operator"))); i++ {
		hs := s.living()
		if len(hs) == 0 || s.stormy.Load() && s.draw(2, i, "operates") == 0 {
			continue
		}
		h := hs[s.draw(len(hs), i, "operator of")]
		ctx, cancel := context.WithTimeout(context.WithValue(backoff.Even(h.ctx), simCaller{}, "operator"), time.Minute)
		for info, err := range h.l.List(ctx, Filter{}) {
			j := s.job(info.Key)
			if err != nil || j == nil || info.State != StateIndeterminate && !info.Lapsed || j.def.OnAbandoned != Hold && !j.ignorant {
				continue
			}
			if a := s.examine(j); a != nil && h.l.Resolve(ctx, j.key, info.Attempt, a, operator) == nil {
				s.meet("resolved")
			}
		}
		cancel()
	}
}

func (s *simulation) job(k Key) *simJob {
	for _, j := range s.jobs {
		if j.key == k {
			return j
		}
	}
	return nil
}

// examine finds out what became of a key; nil: it cannot be told yet.
func (s *simulation) examine(j *simJob) activity.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case j.active > 0 || slices.ContainsFunc(s.wire, func(l letter) bool { return l.job == j }):
		return nil
	case j.effects > 0:
		return activity.CompletedWithResult(j.result)
	}
	return activity.NotCompleted[string]()
}

// land has the requests arrive whose time has come.
func (s *simulation) land() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wire = slices.DeleteFunc(s.wire, func(l letter) bool {
		if l.lands.After(time.Now()) {
			return false
		}
		l.job.happens(l.result)
		s.met["landed late"]++
		return true
	})
}

// upset has something go wrong with a process.
func (s *simulation) upset(t *testing.T) {
	hs := s.living()
	if s.dice.IntN(60) != 0 || len(hs) == 0 {
		return
	}
	h := hs[s.dice.IntN(len(hs))]
	switch s.dice.IntN(5) {
	case 0:
		s.note("killed", fmt.Sprint(h.n))
		s.meet("killed")
		s.kill(h)
	case 1:
		d := time.Duration(s.dice.Int64N(int64(3 * simLease)))
		s.note("paused", fmt.Sprint(h.n, " ", d))
		s.meet("paused")
		s.mu.Lock()
		h.paused = time.Now().Add(d)
		s.mu.Unlock()
	case 2, 3:
		to := []time.Duration{0, time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour, time.Until(time.Unix(0, 0)), time.Until(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC))}[s.dice.IntN(7)]
		s.note("clock", fmt.Sprint(h.n, " ", to))
		s.meet("clock jumps")
		h.skew.Store(int64(to))
	case 4:
		if len(hs) < 4 {
			s.note("booted", fmt.Sprint(len(s.hosts)))
			s.boot(t)
		}
	}
	if len(s.living()) == 0 {
		s.boot(t)
	}
}

// turn releases one call, or lets time pass if there is none.
func (s *simulation) turn() {
	synctest.Wait()
	s.land()
	now := time.Now()
	s.mu.Lock()
	slices.SortStableFunc(s.parked, func(a, b *turn) int { return cmp.Compare(a.place, b.place) })
	var ready []*turn
	s.parked = slices.DeleteFunc(s.parked, func(t *turn) bool { return t.gone && t.call.Method != "Commit" })
	for _, t := range s.parked {
		if !t.h.paused.After(now) && !t.after.After(now) {
			ready = append(ready, t)
		}
	}
	if len(ready) == 0 {
		s.mu.Unlock()
		time.Sleep(simTick)
		return
	}
	t := ready[s.dice.IntN(len(ready))]
	fault := 0
	if t.done != nil {
		s.parked = slices.DeleteFunc(s.parked, func(other *turn) bool { return other == t })
		s.mu.Unlock()
		s.note("answered", t.place)
		t.answer <- *t.done
		return
	}
	if s.stormy.Load() && s.dice.IntN(s.odds) == 0 {
		fault = 1 + s.dice.IntN(4)
		if s.dice.IntN(10) == 0 {
			fault = 5 + s.dice.IntN(2)
		}
	}
	if fault == 3 || fault == 4 { // it stays on its way
		t.after = now.Add(time.Duration(s.dice.Int64N(int64(2 * simLease))))
		s.met["late"]++
		s.mu.Unlock()
		s.note("late", t.place)
		if fault == 4 {
			s.meet("answered late")
			a := t.apply()
			t.done = &a
		}
		return
	}
	s.parked = slices.DeleteFunc(s.parked, func(other *turn) bool { return other == t })
	s.mu.Unlock()
	if t.gone {
		s.meet("landed after its caller left")
	}
	switch fault {
	case 1:
		s.meet("error before")
		s.note("error before", t.place)
		t.answer <- turnAnswer{err: storagetest.ErrInjected}
	case 2:
		s.meet("error after")
		s.note("error after", t.place)
		t.apply()
		t.answer <- turnAnswer{err: storagetest.ErrInjected}
	case 5:
		s.meet("killed")
		s.note("killed before", t.place)
		t.answer <- turnAnswer{err: storage.ErrClosed}
		s.kill(t.h)
	case 6:
		s.meet("killed")
		s.note("killed after", t.place)
		t.apply()
		t.answer <- turnAnswer{err: storage.ErrClosed}
		s.kill(t.h)
	default:
		s.note("done", t.place)
		t.answer <- t.apply()
	}
}

// settled says whether all clients have their answers.
func (s *simulation) settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting == 0 && len(s.wire) == 0
}

func (s *simulation) kept() error {
	if err := s.laws.kept(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.wrongs) > 0 {
		return errors.New(strings.Join(s.wrongs, "\n"))
	}
	return nil
}

// play is the whole of it: a storm, and a calm in which everything is answered.
func (s *simulation) play(t *testing.T) (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	s.ctx = ctx
	for range 2 + s.dice.IntN(3) {
		s.boot(t)
	}
	s.define()
	s.employ()
	s.clients.Go(s.operator)
	err = s.weather(t)
	cancel()
	for _, h := range s.hosts {
		if !h.dead {
			s.kill(h)
		}
	}
	s.clients.Wait()
	for _, h := range s.hosts {
		<-h.closed
	}
	if err != nil {
		return err
	}
	return s.aftermath(t)
}

func (s *simulation) weather(t *testing.T) error {
	s.odds = []int{5, 20, 100}[s.dice.IntN(3)]
	s.stormy.Store(true)
	long := 5 + s.dice.IntN(40)
	if s.dice.IntN(4) == 0 {
		long += 120 // so that ledgers sweep
	}
	for end := time.Now().Add(time.Duration(long) * time.Second); time.Now().Before(end); {
		s.turn()
		s.upset(t)
		if len(s.living()) == 0 {
			s.boot(t)
		}
		if err := s.kept(); err != nil {
			return err
		}
	}
	s.stormy.Store(false)
	s.mu.Lock()
	for _, h := range s.hosts {
		h.paused = time.Time{}
	}
	s.mu.Unlock()
	for end := time.Now().Add(simCalm); !s.settled(); {
		s.turn()
		if err := s.kept(); err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%v after the faults, %d clients have no answer:\n%s", simCalm, s.waiting, s.dump())
		}
	}
	return nil
}

func (s *simulation) dump() string {
	var b strings.Builder
	for e, err := range storage.All(context.Background(), s.laws.Storage, storage.Range{}) {
		fmt.Fprintf(&b, "%s", e.Key)
		if bytes.HasPrefix(e.Key, []byte("idem:")) {
			d, err := decode(e.Key, e.Value)
			if err == nil {
				d.Raw, d.Request = nil, nil
			}
			fmt.Fprintf(&b, " %+v", d)
		}
		fmt.Fprintln(&b, err)
	}
	return b.String()
}

// aftermath judges what is left when everybody has gone, and what is left of that when it is due.
func (s *simulation) aftermath(t *testing.T) error {
	if err := s.kept(); err != nil {
		return err
	}
	if wrong, _ := inconsistencies(s.laws.Storage); len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	for _, j := range s.jobs {
		at := entry.Key(j.key).Place(j.key.Hash())
		if n := s.laws.seals[string(at)]; n > 1 && s.laws.forgotten[string(at)] == 0 {
			return fmt.Errorf("%s: %d seals", j.name, n)
		}
		sealed := len(j.receipts) > 0
		truthful := !j.liar
		switch n := j.effects; {
		case j.def.OnAbandoned == TakeOver || !truthful || s.laws.forgotten[string(at)] > 0:
			if sealed && n == 0 && truthful {
				return fmt.Errorf("FEN-27: %s is answered and has not happened", j.name)
			}
		case sealed && n != 1, n > 1:
			return fmt.Errorf("FEN-27: %s has happened %d times (%v)", j.name, n, j.def.OnAbandoned)
		}
		if j.effects > 1 {
			s.met["effects repeated"]++
		}
	}
	s.ctx = context.Background()
	h := s.boot(t)
	s.mu.Lock()
	h.free = true
	s.mu.Unlock()
	time.Sleep(2*time.Hour + simRetention)
	left, leases := 0, 0
	for e := range storage.All(context.Background(), s.laws.Storage, storage.Range{}) {
		switch {
		case bytes.HasPrefix(e.Key, []byte("idemown:")):
			leases++
		default:
			left++
		}
	}
	dump := s.dump()
	h.cancel()
	h.l.Close()
	if held := s.held(); left > held || leases > 0 {
		return fmt.Errorf("%d records and %d leases are left that nobody sweeps, of which %d are in doubt:\n%s", left, leases, held, dump)
	}
	return s.kept()
}

// held is how many records may stay for ever: those of keys in doubt, and of their order.
func (s *simulation) held() (n int) {
	for e := range storage.All(context.Background(), s.laws.Storage, storage.Prefix([]byte("idem:"))) {
		d, err := decode(e.Key, e.Value)
		if err == nil && (d.State == entry.InProgress || d.State == entry.Indeterminate) {
			n += 4 // itself, its order, and the newest of that with its time
		}
	}
	return n
}
