package idempotency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency/internal/entry"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/storage/storagetest"
)

// A request asks for an effect. The keys of those of one ID are equal.
type request struct {
	ID      string
	Cents   int
	Version string // with an Order
}

func (r request) key() Key {
	return Key{Tenant: "shop:1", SourceType: "job%", SourceID: r.ID, Action: "pay"}
}

// A scenario is something that is done with ledgers, while calls to their store fail.
type scenario struct {
	name    string
	policy  Abandoned
	change  func(w *world, e *Effect[request, string]) // of the definition
	fate    func(n int, in request) (happens bool, err error)
	answer  func(n int) *activity.Verification[string] // of the n-th question to Verify; nil: the truth
	prepare func(w *world)                             // before, without faults
	act     func(w *world, p *process)
	asks    []request           // that are repeated until they are answered
	ends    map[string][]string // what the answers are, by ID; "sealed" where nothing is said
	finish  func(w *world, p *process) bool
	effects map[string][2]int // least and most, by ID, where the policy does not say
	forgets bool
	resolve activity.Answer // what an operator says of what is held; nil: the truth
	virtual bool            // only in virtual time
}

var errBoom = errors.New("boom")

var (
	first  = request{ID: "a:1", Cents: 100}
	other  = request{ID: "a:1", Cents: 200}
	older  = request{ID: "v1", Version: "1"}
	newer  = request{ID: "v2", Version: "2"}
	newest = request{ID: "v3", Version: "3"}
)

func do(in ...request) func(w *world, p *process) {
	return func(w *world, p *process) {
		for _, r := range in {
			w.do(p, p.l, r)
		}
	}
}

// lapsing leaves a claim whose holder died in Run.
func lapsing(in request) func(w *world) {
	return func(w *world) {
		w.dies = true
		p := w.boot(nil)
		w.do(p, p.l, in)
		w.end(p)
		w.dies = false
	}
}

func prepared(in ...request) func(w *world) {
	return func(w *world) {
		p := w.boot(nil)
		for _, r := range in {
			w.do(p, p.l, r)
		}
		w.end(p)
	}
}

func once(err error) func(n int, in request) (bool, error) {
	return func(n int, in request) (bool, error) {
		if n == 1 {
			return !activity.IsNoEffect(err), err
		}
		return true, nil
	}
}

func never(n int, in request) (bool, error) {
	if n == 1 {
		return false, errBoom
	}
	return true, nil
}

func answers(vs ...activity.Verification[string]) func(n int) *activity.Verification[string] {
	return func(n int) *activity.Verification[string] {
		if n > len(vs) {
			return nil
		}
		return &vs[n-1]
	}
}

func withoutVerify(w *world, e *Effect[request, string]) { e.Verify, e.VerifyFences = nil, false }

func ordered(w *world, e *Effect[request, string]) {
	e.Order = &Order[request]{
		Source:  func(request) string { return "account:7" },
		Version: func(r request) string { return r.Version },
		Compare: CompareInt,
	}
}

func reserving(w *world, e *Effect[request, string]) {
	e.Reserve = func(ctx context.Context, in request) (Reservation, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.reserved++
		return Reservation{EffectID: fmt.Sprint("run", w.reserved), Data: fmt.Append(nil, "data of ", w.reserved)}, nil
	}
	e.EffectID = func(in request, out string) string { return "final " + out }
}

var operator = Actor{Name: "ann", Reason: "asked the bank"}

func resolving(a activity.Answer) func(w *world, p *process) {
	return func(w *world, p *process) { p.l.Resolve(p.ctx, first.key(), 0, a, operator) }
}

var scenarios = []scenario{
	{name: "new", policy: Hold, act: do(first)},
	{name: "duplicate", policy: Hold, prepare: prepared(first), act: do(first)},
	{name: "conflict", policy: Hold, prepare: prepared(first), act: do(other), asks: []request{first, other}, ends: map[string][]string{"a:1/200": {"conflict"}}},
	{name: "no effect", policy: Hold, fate: once(activity.NoEffect(errBoom)), act: do(first, first)},
	{name: "permanent", policy: Hold, fate: func(int, request) (bool, error) { return false, activity.NoEffect(activity.Permanent(errBoom)) },
		act: do(first), ends: map[string][]string{"a:1": {"failed"}}},
	{name: "released, then another request", policy: Hold, fate: once(activity.NoEffect(errBoom)), prepare: prepared(first), act: do(other), asks: []request{other}},
	{name: "unknown, without Verify", change: withoutVerify, fate: once(errBoom), act: do(first)},
	{name: "unknown, it happened", fate: once(errBoom), act: do(first)},
	{name: "unknown, it did not happen", fate: never, act: do(first)},
	{name: "unknown, its result is lost", fate: once(errBoom), answer: func(int) *activity.Verification[string] {
		v := activity.CompletedResultUnavailable[string]()
		return &v
	}, act: do(first), ends: map[string][]string{"a:1": {"unavailable"}}},
	{name: "unknown, Verify does not know yet", fate: once(errBoom), answer: answers(activity.Indeterminate[string]("not yet")), act: do(first)},
	{name: "unknown, Verify gives no answer", fate: never, answer: answers(activity.Verification[string]{}), act: do(first)},
	{name: "unknown, TakeOver", policy: TakeOver, change: withoutVerify, fate: once(errBoom), act: do(first, first)},
	{name: "lapsed, TakeOver", policy: TakeOver, prepare: lapsing(first), act: do(first)},
	{name: "lapsed, it happened", prepare: lapsing(first), act: do(first)},
	{name: "lapsed, it did not happen", prepare: lapsing(first), fate: func(n int, _ request) (bool, error) { return n > 1, nil }, act: do(first)},
	{name: "lapsed, Hold", policy: Hold, prepare: lapsing(first), act: do(first)},
	{name: "resolved as completed", policy: Hold, prepare: lapsing(first), act: resolving(activity.CompletedWithResult("found"))},
	{name: "resolved as not completed", policy: Hold, prepare: lapsing(first), fate: func(n int, _ request) (bool, error) { return n > 1, nil },
		act: resolving(activity.NotCompleted[string]())},
	{name: "resolved as failed", policy: Hold, prepare: lapsing(first), fate: func(n int, _ request) (bool, error) { return false, nil },
		act: resolving(activity.Failed("refused")), resolve: activity.Failed("refused"), ends: map[string][]string{"a:1": {"failed"}}},
	{name: "resolved, its result is lost", policy: Hold, prepare: lapsing(first),
		act: resolving(activity.CompletedResultUnavailable[string]()), resolve: activity.CompletedResultUnavailable[string](), ends: map[string][]string{"a:1": {"unavailable"}}},
	{name: "forgotten", policy: Hold, prepare: prepared(first), forgets: true, effects: map[string][2]int{"a:1": {1, 2}},
		act: func(w *world, p *process) { p.l.Forget(p.ctx, first.key(), operator) }},
	{name: "forgotten in its slot", policy: Hold, change: ordered, prepare: lapsing(older), forgets: true, effects: map[string][2]int{"v1": {0, 2}},
		act:  func(w *world, p *process) { p.l.Forget(p.ctx, older.key(), operator); w.do(p, p.l, newer) },
		asks: []request{older, newer}, ends: map[string][]string{"v1": {"sealed", "stale"}}},
	{name: "in order", change: ordered, act: do(older, newer), asks: []request{older, newer}, ends: map[string][]string{"v1": {"sealed", "stale"}}},
	{name: "stale", change: ordered, prepare: prepared(newer), act: do(older), asks: []request{older}, ends: map[string][]string{"v1": {"stale"}}},
	{name: "released in its slot", change: ordered, fate: once(activity.NoEffect(errBoom)), act: do(older, newer), asks: []request{older, newer}, ends: map[string][]string{"v1": {"sealed", "stale"}}},
	{name: "evicted", policy: TakeOver, change: ordered, prepare: lapsing(older), act: do(newer), asks: []request{newer, older}, ends: map[string][]string{"v1": {"sealed", "stale"}}},
	{name: "lapsed in its slot", change: ordered, prepare: lapsing(older), act: do(newer, older), asks: []request{older, newer}},
	{name: "reserved", change: reserving, fate: never, prepare: func(w *world) {}, act: do(first)},
	{name: "reserved, lapsed", policy: TakeOver, change: reserving, prepare: lapsing(first), act: do(first)},
	{name: "swept", policy: Hold, virtual: true, forgets: true, change: brief, prepare: sweepable(first), effects: map[string][2]int{"a:1": {1, 1}},
		act: func(w *world, p *process) { p.l.sweep(p.ctx) }, finish: swept},
	{name: "swept with its order", policy: Hold, virtual: true, forgets: true, change: func(w *world, e *Effect[request, string]) { ordered(w, e); brief(w, e) },
		prepare: sweepable(older, newer, newest), effects: map[string][2]int{"v1": {1, 1}, "v2": {1, 1}, "v3": {1, 1}},
		act: func(w *world, p *process) { p.l.sweep(p.ctx) }, finish: swept},
	{name: "two ledgers", act: func(w *world, p *process) {
		var both sync.WaitGroup
		both.Go(func() { w.do(p, p.l, first) })
		both.Go(func() { w.do(p, p.second, first) })
		both.Wait()
	}},
}

func brief(w *world, e *Effect[request, string]) { e.Retention = time.Minute }

func sweepable(in ...request) func(w *world) {
	return func(w *world) {
		prepared(in...)(w)
		time.Sleep(2 * time.Minute)
	}
}

// swept sweeps, and says whether nothing is left but leases.
func swept(w *world, p *process) bool {
	if _, err := p.l.sweep(p.ctx); err != nil {
		return false
	}
	for _, family := range []string{"idem:", "idemexp:", "idemver:"} {
		page, err := w.laws.Scan(context.Background(), storage.Prefix([]byte(family)))
		if err != nil || len(page) > 0 {
			return false
		}
	}
	return true
}

// A world is one play of a scenario.
type world struct {
	t *testing.T
	*scenario
	laws    *laws
	store   storage.Storage // laws, or alone
	virtual bool
	def     *Effect[request, string]

	mu       sync.Mutex // guards the fields below
	at       *process
	dies     bool // Run ends its process
	runs     map[string]int
	asked    int
	reserved int
	effects  map[string]int
	results  map[string]string // of what happened first
	tokens   map[string]uint64
	ids      map[request]string
	receipts map[string]Receipt[string]
}

// A process has two ledgers on one opening of the store.
type process struct {
	f         *storagetest.Faulty
	l, second *Ledger
	ctx       context.Context // ends when the process dies
	cancel    context.CancelFunc
	watching  sync.WaitGroup
}

const faultLease = 3 * time.Second

func newWorld(t *testing.T, s *scenario, inner storage.Storage, shared, virtual bool) *world {
	w := &world{
		t: t, scenario: s, laws: newLaws(inner), virtual: virtual,
		runs: map[string]int{}, effects: map[string]int{}, results: map[string]string{}, tokens: map[string]uint64{}, ids: map[request]string{}, receipts: map[string]Receipt[string]{},
	}
	w.laws.forgets = s.forgets
	w.store = w.laws
	if !shared {
		w.store = alone{w.laws}
	}
	w.def = &Effect[request, string]{
		Name: "pay", OnAbandoned: s.policy, Run: w.run, Verify: w.verify, Errors: []error{errBoom},
		Timeout: time.Second, Settle: time.Second, Wait: 10 * time.Second, VerifyFences: !virtual,
	}
	if s.change != nil {
		s.change(w, w.def)
	}
	return w
}

func (w *world) wrong(format string, args ...any) { w.t.Errorf(format, args...) }

// boot begins a process.
func (w *world) boot(decide func(storagetest.Call) storagetest.Fault) *process {
	p := &process{f: storagetest.NewFaulty(w.store, decide)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.watching.Go(func() {
		select {
		case <-p.f.Crashed():
			p.cancel()
		case <-p.ctx.Done():
		}
	})
	for _, l := range []**Ledger{&p.l, &p.second} {
		var err error
		if *l, err = New(Config{Storage: p.f, Lease: faultLease, Logger: slog.New(slog.DiscardHandler)}); err != nil {
			w.t.Fatal(err)
		}
	}
	w.mu.Lock()
	w.at = p
	w.mu.Unlock()
	return p
}

func (p *process) dead() bool {
	select {
	case <-p.f.Crashed():
		return true
	default:
		return false
	}
}

// end ends a process. If it has crashed, nothing of it reaches the store any more.
func (w *world) end(p *process) {
	if p.dead() {
		p.f.Close() // what it still owes cannot reach the store: so it need not try
	}
	p.l.Close()
	p.second.Close()
	p.cancel()
	p.watching.Wait()
}

func (w *world) run(ctx context.Context, in request) (string, error) {
	a, info := AttemptFrom(ctx), activity.InfoFrom(ctx)
	stored := w.entry(in)
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.Hash != in.key().Hash() || a.Key != in.key() || info.IdempotencyKey != a.Hash {
		w.wrong("Run was told of another key: %+v, %+v", a, info)
	}
	if stored == nil || stored.State != entry.InProgress || stored.Epoch != info.FencingToken {
		w.wrong("FEN-11: Run was called, and its claim is not stored: %+v", stored)
	}
	if info.FencingToken <= w.tokens[a.Hash] && !w.forgets {
		w.wrong("the fencing token does not rise: %d, then %d", w.tokens[a.Hash], info.FencingToken)
	}
	w.tokens[a.Hash] = info.FencingToken
	if id := w.ids[in]; id != "" && id != a.EffectID && !w.forgets {
		w.wrong("another reservation: %q, then %q", id, a.EffectID)
	}
	for asked, id := range w.ids {
		if asked.ID == in.ID && asked != in && id == a.EffectID {
			w.wrong("another request has the reservation of %+v", asked)
		}
	}
	w.ids[in] = a.EffectID
	w.runs[in.ID]++
	n := w.runs[in.ID]
	happens, err := true, error(nil)
	if w.fate != nil {
		happens, err = w.fate(n, in)
	}
	out := fmt.Sprintf("%s/%d", in.ID, n)
	if happens {
		w.effects[in.ID]++
		if w.results[in.ID] == "" {
			w.results[in.ID] = out
		}
	}
	if w.dies {
		w.at.f.Crash()
	}
	return out, err
}

func (w *world) verify(ctx context.Context, in request) (activity.Verification[string], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if w.answer != nil {
		if v := w.answer(w.asked); v != nil {
			return *v, nil
		}
	}
	if w.effects[in.ID] > 0 {
		return activity.CompletedWithResult(w.results[in.ID]), nil
	}
	return activity.NotCompleted[string](), nil
}

// entry returns what is stored for a request.
func (w *world) entry(in request) *entry.Entry {
	at := entry.Key(in.key()).Place(in.key().Hash())
	raw, err := w.laws.Get(context.Background(), at)
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if err != nil {
		w.wrong("%v", err)
		return nil
	}
	e, err := decode(at, raw)
	if err != nil {
		w.wrong("%v", err)
	}
	return e
}

// do makes one call, and judges its answer.
func (w *world) do(p *process, l *Ledger, in request) string {
	r, err := w.def.Do(p.ctx, l, in.key(), in)
	if p.dead() {
		return "dead" // nobody hears what it says
	}
	return w.judge(in, r, err)
}

func (w *world) judge(in request, r Receipt[string], err error) string {
	switch {
	case err == nil, errors.Is(err, ErrResultUnavailable):
		e := w.entry(in)
		if e == nil || e.State != entry.Sealed || e.EffectID != r.EffectID || !entry.Time(e.SealedAt).Equal(r.SealedAt) {
			w.wrong("FEN-44: an answer without a seal: %+v, stored is %+v", r, e)
		}
		if r.Decision != DecidedNew && r.Decision != DecidedDuplicate {
			w.wrong("an answer is called %q", r.Decision)
		}
		r.Decision = ""
		w.mu.Lock()
		defer w.mu.Unlock()
		if before, ok := w.receipts[in.ID]; ok && before != r && !w.forgets {
			w.wrong("FEN-15: the answers differ: %+v, %+v", before, r)
		}
		w.receipts[in.ID] = r
		if err != nil {
			return "unavailable"
		}
		return "sealed"
	case errors.Is(err, ErrFailed):
		if e := w.entry(in); e == nil || e.State != entry.Failed {
			w.wrong("a failure that is not stored: %v, stored is %+v", err, e)
		}
		if errors.Is(err, errBoom) != (w.resolve == nil) {
			w.wrong("the failure %v does not match its sentinel", err)
		}
		return "failed"
	case errors.Is(err, ErrConflict):
		return "conflict"
	case errors.Is(err, ErrStale):
		return "stale"
	case errors.Is(err, ErrIndeterminate):
		return "held"
	case errors.Is(err, ErrInProgress):
		return "busy"
	case errors.Is(err, ErrFenceLost):
		return "fence lost"
	case errors.Is(err, storagetest.ErrInjected), errors.Is(err, errBoom), errors.Is(err, context.Canceled):
		return "error"
	}
	w.wrong("got %v", err)
	return "error"
}

// ask repeats requests until each has an answer, and returns those. An operator resolves what is held.
func (w *world) ask(p *process, all []request) map[request]string {
	answers := map[request]string{}
	for begun := time.Now(); ; {
		for _, in := range all {
			if answers[in] != "" {
				continue
			}
			switch got := w.do(p, p.l, in); got {
			case "sealed", "unavailable", "failed", "conflict", "stale":
				answers[in] = got
			case "dead":
				return nil
			case "held":
				if w.def.OnAbandoned == Hold || w.def.Verify == nil && w.def.OnAbandoned != TakeOver {
					w.operate(p, all)
				}
			}
		}
		if len(answers) == len(all) {
			return answers
		}
		if limit := time.Minute; time.Since(begun) > limit {
			w.wrong("of %+v, only %+v is answered after %v:\n%s", all, answers, limit, w.dump())
			return nil
		}
		if w.virtual {
			time.Sleep(time.Second)
		} else {
			time.Sleep(time.Millisecond)
		}
	}
}

// operate resolves those of all that are held: the operator knows the truth.
func (w *world) operate(p *process, all []request) {
	for _, in := range all {
		if e := w.entry(in); e == nil || e.State != entry.InProgress && e.State != entry.Indeterminate {
			continue
		}
		a := w.resolve
		if a == nil {
			w.mu.Lock()
			a = activity.NotCompleted[string]()
			if w.effects[in.ID] > 0 {
				a = activity.CompletedWithResult(w.results[in.ID])
			}
			w.mu.Unlock()
		}
		err := p.l.Resolve(p.ctx, in.key(), 0, a, operator)
		if err != nil && !errors.Is(err, ErrInProgress) && !errors.Is(err, storagetest.ErrInjected) && !p.dead() {
			w.wrong("Resolve: %v", err)
		}
	}
}

// settled finishes the scenario in a process whose store does not fail.
func (w *world) settled(p *process) {
	if w.finish != nil {
		for begun := time.Now(); !w.finish(w, p) && !p.dead(); time.Sleep(time.Second) {
			if time.Since(begun) > 5*time.Minute {
				w.wrong("the scenario does not end:\n%s", w.dump())
				return
			}
		}
		return
	}
	asks := w.asks
	if asks == nil {
		asks = []request{first}
	}
	for in, got := range w.ask(p, asks) {
		want, ok := w.ends[fmt.Sprintf("%s/%d", in.ID, in.Cents)]
		if !ok {
			want, ok = w.ends[in.ID]
		}
		if !ok {
			want = []string{"sealed"}
		}
		if !slices.Contains(want, got) {
			w.wrong("%+v is %s, want %v", in, got, want)
		}
	}
}

func (w *world) dump() string {
	var b strings.Builder
	for e, err := range storage.All(context.Background(), w.laws.Storage, storage.Range{}) {
		fmt.Fprintf(&b, "%s %q %v\n", e.Key, e.Value, err)
	}
	return b.String()
}

// play plays the scenario with faults, and returns how many calls its process made.
func (w *world) play(decide func(storagetest.Call) storagetest.Fault, stay bool) (calls int) {
	if w.prepare != nil {
		w.prepare(w)
	}
	p := w.boot(decide)
	w.act(w, p)
	if stay && !p.dead() {
		w.settled(p)
	}
	calls = p.f.Calls()
	w.end(p)
	for range 2 { // in the next process, and in one that finds everything answered
		p = w.boot(nil)
		w.settled(p)
		w.end(p)
	}
	p = w.boot(nil)
	if w.virtual {
		time.Sleep(faultLease + time.Second)
		p.l.sweep(p.ctx)
		time.Sleep(faultLease + time.Second)
	}
	if _, err := p.l.sweep(p.ctx); err != nil {
		w.wrong("sweep: %v", err)
	}
	wrong, leases := inconsistencies(w.laws.Storage)
	for _, x := range wrong {
		w.wrong("%s", x)
	}
	if leases > 0 {
		w.wrong("%d leases of nobody are left", leases)
	}
	w.end(p)
	if err := w.laws.kept(); err != nil {
		w.wrong("%v", err)
	}
	w.count()
	return calls
}

// count judges how often the effects happened.
func (w *world) count() {
	for id := range w.runs {
		least, most := 0, 1
		sealed := w.receipts[id] != Receipt[string]{}
		switch {
		case w.scenario.effects != nil && w.scenario.effects[id] != [2]int{}:
			least, most = w.scenario.effects[id][0], w.scenario.effects[id][1]
		case sealed && w.policy == TakeOver:
			least, most = 1, 5
		case sealed:
			least = 1
		}
		if n := w.effects[id]; n < least || n > most {
			w.wrong("FEN-27: %d effects of %s, want %d to %d", n, id, least, most)
		}
	}
	if !w.forgets {
		for at, n := range w.laws.seals {
			if n > 1 {
				w.wrong("%d seals of %s", n, at)
			}
		}
	}
}

var faults = []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter, storagetest.CancelMiddle, storagetest.CrashBefore, storagetest.CrashAfter}

// inject returns what injects faults into some calls, by their numbers.
func inject(at map[int]storagetest.Fault) func(storagetest.Call) storagetest.Fault {
	return func(c storagetest.Call) storagetest.Fault { return at[c.N] }
}

// In each scenario each call of the store fails, in each of five ways, and so do pairs of calls. After that the
// process goes on, or another one begins; the request is repeated until it is answered. FEN-15, FEN-27, FEN-44:
// it happens as often as its policy allows, is sealed once, has one receipt, and none before the seal; the
// records fit together. WEFT_TORTURE makes more pairs.
func TestFaults(t *testing.T) {
	pairs := torture.Rounds(1000, 30, 2)
	cases := 0
	for i := range scenarios {
		s := &scenarios[i]
		t.Run(s.name, func(t *testing.T) {
			for _, shared := range []bool{false, true} {
				play := func(at map[int]storagetest.Fault, stay bool) (calls int) {
					cases++
					synctest.Test(t, func(t *testing.T) {
						calls = newWorld(t, s, new(memory.Store), shared, true).play(inject(at), stay)
					})
					if t.Failed() {
						t.Fatalf("on a shared store: %v; faults %v; the process goes on: %v", shared, at, stay)
					}
					return calls
				}
				calls := max(play(nil, false), 1)
				play(nil, true)
				step := 1
				switch {
				case os.Getenv("WEFT_TORTURE") != "":
				case torture.Raced():
					step = max(2, calls/5)
				case calls > 40:
					step = calls / 20 // it waits for a lease: most calls are alike
				}
				for n := 1 + i%step; n <= calls; n += step {
					for _, f := range faults {
						play(map[int]storagetest.Fault{n: f}, false)
						if f < storagetest.CrashBefore {
							play(map[int]storagetest.Fault{n: f}, true)
						}
					}
				}
				dice := rand.New(rand.NewPCG(uint64(i), 1))
				for range pairs {
					n := 1 + dice.IntN(calls)
					play(map[int]storagetest.Fault{
						n:                        faults[dice.IntN(3)],
						n + 1 + dice.IntN(calls): faults[dice.IntN(len(faults))],
					}, dice.IntN(2) == 0)
				}
			}
		})
	}
	t.Logf("%d cases", cases)
}

// The same on the other stores, of each call one fault.
func TestFaultsOnRealStores(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (storage.Storage, error){
		"sqlite": func(t *testing.T) (storage.Storage, error) {
			return sqlite.Open(filepath.Join(t.TempDir(), "ledger.db"), nil)
		},
		"bolt": func(t *testing.T) (storage.Storage, error) {
			return bolt.Open(filepath.Join(t.TempDir(), "ledger.bolt"), nil)
		},
		"postgres": func(t *testing.T) (storage.Storage, error) {
			return postgres.Open(t.Context(), pgtest.URL(t), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inner, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			defer inner.Close()
			every := torture.Rounds(1, 12, 72)
			turn, cases := len(name), 0 // not the same cases on each store
			for i := range scenarios {
				s := &scenarios[i]
				if s.virtual {
					continue
				}
				play := func(at map[int]storagetest.Fault) (calls int) {
					cases++
					if err := inner.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.DeleteRange(storage.Prefix([]byte("idem")))}}); err != nil {
						t.Fatal(err)
					}
					calls = newWorld(t, s, inner, false, false).play(inject(at), false)
					if t.Failed() {
						t.Fatalf("%s: faults %v", s.name, at)
					}
					return calls
				}
				calls := play(nil)
				for n := 1; n <= calls; n++ {
					for _, f := range faults {
						if turn++; turn%every == 0 {
							play(map[int]storagetest.Fault{n: f})
						}
					}
				}
			}
			t.Logf("%d cases", cases)
		})
	}
}
