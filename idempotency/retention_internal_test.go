package idempotency

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency/internal/clock"
	"github.com/weft-go/weft/idempotency/internal/entry"
	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A watched store tells of its commits. It is shared.
type watched struct {
	storage.Storage
	most storage.Size // zero: what Storage says

	mu     sync.Mutex
	commit func(b storage.Batch, apply func() error) error // nil: apply
}

func (w *watched) Commit(ctx context.Context, b storage.Batch) error {
	w.mu.Lock()
	commit := w.commit
	w.mu.Unlock()
	apply := func() error { return w.Storage.Commit(ctx, b) }
	if commit != nil {
		return commit(b, apply)
	}
	return apply()
}

func (w *watched) onCommit(f func(b storage.Batch, apply func() error) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commit = f
}

func (w *watched) Capabilities() storage.Capabilities {
	c := w.Storage.Capabilities()
	c.Shared = true
	if w.most != (storage.Size{}) {
		c.MaxBatch = w.most
	}
	return c
}

// texts are the texts of what was logged.
type texts struct {
	mu  sync.Mutex
	all []string
}

func (l *texts) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(p))
	return len(p), nil
}

func (l *texts) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		if strings.Contains(s, text) {
			n++
		}
	}
	return n
}

func newWatched() *watched { return &watched{Storage: new(memory.Store)} }

// opens returns a Ledger whose wall clock is off by what wrong returns.
func opens(t *testing.T, s storage.Storage, log io.Writer, wrong func() time.Duration) *Ledger {
	t.Helper()
	if log == nil {
		log = io.Discard
	}
	l, err := New(Config{Storage: s, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if wrong != nil {
		l.clock.Wall = func() time.Time { return time.Now().Add(wrong()) }
	}
	return l
}

func keyNumber(n int) Key {
	return Key{Tenant: "t", SourceType: "job", SourceID: fmt.Sprintf("%06d", n), Action: "pay"}
}

func ended(err error) *Effect[int, string] {
	return &Effect[int, string]{Name: "pay", Wait: -1, Retention: 2 * time.Hour, Run: func(context.Context, int) (string, error) { return "done", err }}
}

// count returns how many keys begin with a prefix.
func count(t *testing.T, s storage.Storage, prefix string) (n int) {
	t.Helper()
	for _, err := range storage.All(t.Context(), s, storage.Prefix([]byte(prefix))) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

var errNo = errors.New("no")

// Section 3, Forgetting, FEN-12: Retention counts from the seal, not from when the key was first seen; until the sweep, once a minute, what is due is answered;
// then the key is new, and nothing is left of it.
func TestRetentionCountsFromTheSeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatched()
		l := opens(t, s, nil, nil)
		e := ended(nil)
		e.Timeout = 10 * time.Hour
		runs := 0
		e.Run = func(context.Context, int) (string, error) {
			runs++
			time.Sleep(5 * time.Hour) // longer than the Retention
			return "done", nil
		}
		first, err := e.Do(t.Context(), l, keyNumber(1), 1)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*time.Hour - time.Millisecond)
		if r, err := e.Do(t.Context(), l, keyNumber(1), 1); err != nil || r.EffectID != first.EffectID {
			t.Errorf("before its time: %+v, %v", r, err)
		}
		time.Sleep(2 * time.Millisecond) // due, but not swept (the sweep is a minute or more away, or has just been)
		if count(t, s, "idem:") == 1 {
			if r, err := e.Do(t.Context(), l, keyNumber(1), 1); err != nil || r.EffectID != first.EffectID {
				t.Errorf("due: %+v, %v", r, err)
			}
		}
		time.Sleep(2 * time.Minute)
		if n, m := count(t, s, "idem:"), count(t, s, "idemexp:"); n+m != 0 {
			t.Errorf("%d records and %d entries are left", n, m)
		}
		if r, err := e.Do(t.Context(), l, keyNumber(1), 1); err != nil || r.Decision != DecidedNew || r.EffectID == first.EffectID || runs != 2 {
			t.Errorf("after it: %+v, %v", r, err)
		}
	})
}

// Section 3: sealed, released and failed keys are forgotten; in progress and indeterminate ones never. A key that was resolved is forgotten
// as long after that as its definition said.
func TestWhatIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatched()
		l := opens(t, s, nil, nil)
		for i, err := range []error{nil, activity.NoEffect(errNo), activity.NoEffect(activity.Permanent(errNo)), errNo, errNo} {
			ended(err).Do(t.Context(), l, keyNumber(i), 1)
		}
		e := ended(nil)
		e.Timeout = 400 * time.Hour
		e.Run = func(context.Context, int) (string, error) { time.Sleep(300 * time.Hour); return "", nil }
		go e.Do(t.Context(), l, keyNumber(5), 1)
		time.Sleep(2*time.Hour - time.Minute)
		if n := count(t, s, "idem:"); n != 6 {
			t.Errorf("%d records before the time", n)
		}
		time.Sleep(3 * time.Minute)
		if n := count(t, s, "idem:"); n != 3 {
			t.Errorf("%d records after it", n)
		}
		time.Sleep(150 * time.Hour)
		if n, m := count(t, s, "idem:"), count(t, s, "idemexp:"); n != 3 || m != 0 {
			t.Errorf("%d records, %d entries long after it", n, m)
		}
		if err := l.Resolve(t.Context(), keyNumber(3), 0, activity.NotCompleted[string](), Actor{Name: "ann", Reason: "asked"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*time.Hour - time.Minute)
		if n := count(t, s, "idem:"); n != 3 {
			t.Errorf("%d records after Resolve", n)
		}
		time.Sleep(3 * time.Minute)
		if n := count(t, s, "idem:"); n != 2 {
			t.Errorf("%d records when the resolved one was due", n)
		}
		time.Sleep(150 * time.Hour) // the Run ends
	})
}

// Section 3: a released key that runs again is not forgotten at the time of its release.
func TestOldExpiryGoesWithTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatched()
		l := opens(t, s, nil, nil)
		ended(activity.NoEffect(errNo)).Do(t.Context(), l, keyNumber(1), 1)
		time.Sleep(time.Hour)
		if _, err := ended(nil).Do(t.Context(), l, keyNumber(1), 1); err != nil {
			t.Fatal(err)
		}
		if n := count(t, s, "idemexp:"); n != 1 {
			t.Errorf("%d entries", n)
		}
		time.Sleep(time.Hour + 30*time.Minute)
		if r, err := ended(nil).Do(t.Context(), l, keyNumber(1), 1); err != nil || r.Decision != DecidedDuplicate {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// Section 3: the sweep judges each record by its own expires: a stray entry removes nothing but itself.
func TestSweepJudgesTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatched()
		l := opens(t, s, nil, nil)
		for i, err := range []error{nil, errNo} { // sealed, indeterminate
			ended(err).Do(t.Context(), l, keyNumber(i), 1)
		}
		var ops []storage.Op
		for i := range 3 { // the third has no record
			k := keyNumber(i)
			ops = append(ops, storage.Put(keys.ExpiringClaim(time.Now().Add(-time.Hour), k.Tenant, k.SourceType, k.SourceID, k.Hash()), nil))
		}
		if err := s.Commit(t.Context(), storage.Batch{Ops: ops}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		if n, m := count(t, s, "idem:"), count(t, s, "idemexp:"); n != 2 || m != 1 {
			t.Errorf("%d records, %d entries", n, m)
		}
	})
}

// Section 3: at most 100 in a commit; all of them.
func TestSweepInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatched()
		l := opens(t, s, nil, nil)
		for i := range 250 {
			if _, err := ended(nil).Do(t.Context(), l, keyNumber(i), 1); err != nil {
				t.Fatal(err)
			}
		}
		var sizes []int
		s.onCommit(func(b storage.Batch, apply func() error) error {
			if n := removals(b); n > 0 {
				sizes = append(sizes, n)
				if len(b.If) < n {
					t.Errorf("%d removals under %d conditions", n, len(b.If))
				}
			}
			return apply()
		})
		time.Sleep(2*time.Hour + 2*time.Minute)
		synctest.Wait()
		if !slices.Equal(sizes, []int{100, 100, 50}) || count(t, s, "idem") != 1 { // the lease is left
			t.Errorf("commits of %v, %d left", sizes, count(t, s, "idem"))
		}
		s.onCommit(nil)
	})
}

// A sweep puts no more into a commit than the store takes.
func TestSweepOfASmallStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatched()
		s.most = storage.Size{Ops: 1000, Bytes: 20_000}
		l := opens(t, s, nil, nil)
		for i := range 100 {
			if _, err := ended(nil).Do(t.Context(), l, keyNumber(i), 1); err != nil {
				t.Fatal(err)
			}
		}
		commits, removed := 0, 0
		s.onCommit(func(b storage.Batch, apply func() error) error {
			if n := removals(b); n > 0 {
				commits, removed = commits+1, removed+n
				if size := b.Size(); size.Bytes > s.most.Bytes {
					t.Errorf("a commit of %d bytes", size.Bytes)
				}
			}
			return apply()
		})
		time.Sleep(2*time.Hour + 2*time.Minute)
		synctest.Wait()
		if removed != 100 || commits < 2 || commits > 20 || count(t, s, "idem") != 1 { // the lease is left
			t.Errorf("%d removed in %d commits, %d left", removed, commits, count(t, s, "idem"))
		}
		s.onCommit(nil)
	})
}

func removals(b storage.Batch) (n int) {
	for _, o := range b.Ops {
		if o.Kind == storage.DeleteOp && strings.HasPrefix(string(o.Key), "idem:") {
			n++
		}
	}
	return n
}

// Section 3: "one by one if refused": a record that has changed meanwhile stays, the others go. It holds under Equal.
func TestSweepOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatched()
		l := opens(t, s, nil, nil)
		for i := range 10 {
			ended(activity.NoEffect(errNo)).Do(t.Context(), l, keyNumber(i), 1)
		}
		var sizes []int
		e := ended(nil)
		s.onCommit(func(b storage.Batch, apply func() error) error {
			n := removals(b)
			if n == 0 {
				return apply()
			}
			if sizes = append(sizes, n); len(sizes) == 1 { // somebody claims one between the sweep's read and its commit
				if _, err := e.Do(t.Context(), l, keyNumber(7), 1); err != nil {
					t.Error(err)
				}
			}
			return apply()
		})
		time.Sleep(2*time.Hour + 2*time.Minute)
		synctest.Wait()
		if !slices.Equal(sizes, []int{10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}) {
			t.Errorf("commits of %v", sizes)
		}
		if r, err := e.Do(t.Context(), l, keyNumber(7), 1); err != nil || r.Decision != DecidedDuplicate || count(t, s, "idem:") != 1 {
			t.Errorf("%+v, %v; %d left", r, err, count(t, s, "idem:"))
		}
		s.onCommit(nil)
	})
}

// A sweep that the store fails is tried again; a record that is damaged is told and left, and does not stop the others.
func TestSweepGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := newWatched(), new(texts)
		l := opens(t, s, log, nil)
		for i := range 5 {
			ended(nil).Do(t.Context(), l, keyNumber(i), 1)
		}
		k := keyNumber(2)
		if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(entry.Key(k).Place(k.Hash()), []byte("damaged"))}}); err != nil {
			t.Fatal(err)
		}
		var fails atomic.Bool
		fails.Store(true)
		s.onCommit(func(b storage.Batch, apply func() error) error {
			if removals(b) > 0 && fails.Load() {
				return errNo
			}
			return apply()
		})
		time.Sleep(2*time.Hour + 5*time.Minute)
		if n := count(t, s, "idem:"); n != 5 || log.count("sweep failed") == 0 {
			t.Errorf("%d left while the store fails", n)
		}
		fails.Store(false)
		time.Sleep(2 * time.Minute)
		if n := count(t, s, "idem:"); n != 1 || log.count("a key that is due cannot be forgotten") == 0 {
			t.Errorf("%d left", n)
		}
		s.onCommit(nil)
	})
}

// A claim that the store cannot read, and a lease that it does not remove, keep no others from being forgotten.
func TestSweepPassesOverWhatTheStoreCannotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := newWatched(), new(texts)
		k := keyNumber(1)
		claim := string(entry.Key(k).Place(k.Hash()))
		var bad atomic.Bool
		l := opens(t, &spoiled{s, func(key []byte) bool { return bad.Load() && string(key) == claim }}, log, nil)
		for i := range 5 {
			ended(nil).Do(t.Context(), l, keyNumber(i), 1)
		}
		gone := opens(t, s, nil, nil)
		ended(nil).Do(t.Context(), gone, keyNumber(9), 1)
		s.onCommit(func(b storage.Batch, apply func() error) error {
			if bad.Load() && len(b.Ops) > 0 && strings.HasPrefix(string(b.Ops[0].Key), string(keys.Holders().Start)) && b.Ops[0].Kind == storage.DeleteOp {
				return errNo
			}
			return apply()
		})
		time.Sleep(5 * time.Minute) // their clocks are compared
		bad.Store(true)
		gone.Close()
		time.Sleep(2*time.Hour + 5*time.Minute)
		if n := count(t, s, "idem:"); n != 1 || log.count("sweep failed") == 0 {
			t.Errorf("%d left, want the one that cannot be read; told %d times", n, log.count("sweep failed"))
		}
		bad.Store(false)
		time.Sleep(2 * time.Minute)
		if n := count(t, s, "idem:"); n != 0 {
			t.Errorf("%d left", n)
		}
		s.onCommit(nil)
	})
}

// Several keys in a row that the store cannot read end a sweep, and the next one goes on behind them.
func TestSweepGoesOnBehindWhatTheStoreCannotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatched()
		claims := map[string]bool{}
		for i := range 4 {
			k := keyNumber(i)
			claims[string(entry.Key(k).Place(k.Hash()))] = true
		}
		var bad atomic.Bool
		l := opens(t, &spoiled{s, func(key []byte) bool { return bad.Load() && claims[string(key)] }}, nil, nil)
		for i := range 7 {
			ended(nil).Do(t.Context(), l, keyNumber(i), 1)
			time.Sleep(time.Second)
		}
		bad.Store(true)
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if n := count(t, s, "idem:"); n != 4 {
			t.Errorf("%d left, want the four that cannot be read", n)
		}
	})
}

// A spoiled store cannot read some keys.
type spoiled struct {
	*watched
	bad func(key []byte) bool
}

func (s *spoiled) Get(ctx context.Context, key []byte) ([]byte, error) {
	if s.bad(key) {
		return nil, errNo
	}
	return s.watched.Get(ctx, key)
}

// A muted store does not answer a Get once it is mute.
type muted struct {
	*watched
	mute  atomic.Bool
	asked atomic.Int64 // while mute
}

func (m *muted) Get(ctx context.Context, key []byte) ([]byte, error) {
	if !m.mute.Load() {
		return m.watched.Get(ctx, key)
	}
	m.asked.Add(1)
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// A sweep that is cut off by the end of the ledger says of no key that it cannot be forgotten.
func TestSweepIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := &muted{watched: newWatched()}, new(texts)
		l := opens(t, s, log, nil)
		for i := range 2 * sweepReads {
			ended(nil).Do(t.Context(), l, keyNumber(i), 1)
		}
		s.mute.Store(true)
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		l.Close()
		if n := log.count("cannot be forgotten"); n > 0 || s.asked.Load() < sweepReads {
			t.Errorf("told of %d keys, after %d reads", n, s.asked.Load())
		}
	})
}

// Section 3, section 7: the clock jumps by 1 h, 1 d, to 1970, to 2200, in the first minute or later: nothing is forgotten, an error is logged, and no
// live claim is lost. What is sealed meanwhile is not forgotten when the clock is right again.
func TestClockJumps(t *testing.T) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of virtual time
	for name, jump := range map[string]time.Duration{
		"1 h": time.Hour, "1 d": 24 * time.Hour, "back 1 h": -time.Hour, "back 1 d": -24 * time.Hour,
		"to 1970": time.Unix(1, 0).Sub(start), "before 1970": time.Unix(-1e6, 0).Sub(start), "to 2200": time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC).Sub(start),
	} {
		for _, after := range []time.Duration{time.Second, 90 * time.Minute} {
			t.Run(fmt.Sprintf("%s after %v", name, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, log := newWatched(), new(texts)
					var wrong atomic.Int64
					l := opens(t, s, log, func() time.Duration { return time.Duration(wrong.Load()) })
					other := opens(t, s, nil, nil)
					e := ended(nil)
					e.Retention = 3 * time.Hour
					do := func(n int) Receipt[string] {
						t.Helper()
						r, err := e.Do(t.Context(), l, keyNumber(n), 1)
						if err != nil {
							t.Errorf("key %d: %v", n, err)
						}
						return r
					}
					do(1)
					release := make(chan bool)
					slow := ended(nil)
					slow.Timeout = 100 * time.Hour
					slow.Run = func(ctx context.Context, _ int) (string, error) { <-release; return "slow", ctx.Err() }
					done := make(chan error, 1)
					go func() { _, err := slow.Do(t.Context(), l, keyNumber(2), 1); done <- err }()
					time.Sleep(after)
					wrong.Store(int64(jump))
					do(3)
					time.Sleep(50 * time.Minute)
					if n := count(t, s, "idem:"); n != 3 {
						t.Errorf("%d records, want 3", n)
					}
					if log.count("the wall clock cannot be trusted") == 0 {
						t.Error("no error is logged")
					}
					for _, n := range []int{1, 3} {
						if r := do(n); r.Decision != DecidedDuplicate {
							t.Errorf("key %d: %+v", n, r)
						}
					}
					wrong.Store(0)
					time.Sleep(70 * time.Minute)
					if r := do(3); r.Decision != DecidedDuplicate { // sealed 2 h ago, kept for 3
						t.Errorf("sealed by the wrong clock: %+v", r)
					}
					if _, err := slow.Do(t.Context(), other, keyNumber(2), 1); !errors.Is(err, ErrInProgress) {
						t.Errorf("the live claim: %v", err)
					}
					close(release)
					if err := <-done; err != nil {
						t.Errorf("the live claim: %v", err)
					}
					time.Sleep(10 * time.Hour)
					if n := count(t, s, "idem:"); n != 0 {
						t.Errorf("%d records are left when the clock was right for long", n)
					}
				})
			})
		}
	}
}

// Section 3: "or from that in a lease which it sees renewed": of two, one is wrong from its start: neither forgets, whichever sweeps first, while both live.
func TestClockThatIsWrongFromTheStart(t *testing.T) {
	for name, off := range map[string]time.Duration{"ahead": 100 * time.Hour, "behind": -100 * time.Hour, "by minutes": 3 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, logs := newWatched(), [2]*texts{new(texts), new(texts)}
				right := opens(t, s, logs[0], nil)
				for i := range 3 {
					if _, err := ended(nil).Do(t.Context(), right, keyNumber(i), 1); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(30 * time.Minute)
				wrong := opens(t, s, logs[1], nil)
				wrong.clock.Wall = func() time.Time { return time.Now().Add(off) }
				*wrong.clock = clock.Clock{Wall: wrong.clock.Wall} // as if it had been so from the start
				wrong.time()
				if _, err := ended(nil).Do(t.Context(), wrong, keyNumber(3), 1); err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Hour)
				if n := count(t, s, "idem:"); n != 4 {
					t.Errorf("%d records, want 4", n)
				}
				for i, log := range logs {
					if log.count("the wall clock cannot be trusted") == 0 {
						t.Errorf("ledger %d logs no error", i)
					}
				}
			})
		})
	}
}

// Section 3: clocks that differ by less than a minute do no harm.
func TestClocksThatDifferALittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatched()
		for i, off := range []time.Duration{0, 50 * time.Second} {
			l := opens(t, s, nil, nil)
			l.clock.Wall = func() time.Time { return time.Now().Add(off) }
			if _, err := ended(nil).Do(t.Context(), l, keyNumber(i), 1); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2*time.Hour + 5*time.Minute)
		if n := count(t, s, "idem:"); n != 0 {
			t.Errorf("%d records are left", n)
		}
	})
}

// Section 3, Order: the sweep removes the order with the record that it names, unless another event is under way.
func TestSweepRemovesTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatched()
		l := opens(t, s, nil, nil)
		release, stop := make(chan bool), error(nil)
		e := ended(nil)
		e.Order = &Order[int]{Source: func(int) string { return "a" }, Version: func(n int) string { return fmt.Sprint(n) }, Compare: CompareInt}
		e.Timeout = 100 * time.Hour
		e.Run = func(_ context.Context, n int) (string, error) {
			if n == 3 {
				<-release
				return "", stop
			}
			return "done", nil
		}
		do := func(n int) error { _, err := e.Do(t.Context(), l, keyNumber(n), n); return err }
		for _, n := range []int{1, 2} {
			if err := do(n); err != nil {
				t.Fatal(err)
			}
		}
		stop = activity.NoEffect(errNo)
		done := make(chan error, 1)
		go func() { done <- do(3) }()
		time.Sleep(3 * time.Hour)
		if n, m := count(t, s, "idemver:"), count(t, s, "idem:"); n != 1 || m != 2 {
			t.Errorf("while another is under way: %d orders, %d records", n, m)
		}
		if err := do(1); !errors.Is(err, ErrStale) {
			t.Errorf("an older one: %v", err)
		}
		close(release)
		<-done
		time.Sleep(3 * time.Hour)
		if n, m, x := count(t, s, "idemver:"), count(t, s, "idem:"), count(t, s, "idemexp:"); n+m+x != 0 {
			t.Errorf("then: %d orders, %d records, %d entries", n, m, x)
		}
		if err := do(1); err != nil {
			t.Errorf("forgotten: %v", err)
		}
	})
}

// Section 3, Epoch: over forgotten records tokens rise with the clock.
func TestTokensRiseOverForgottenRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := opens(t, newWatched(), nil, nil)
		var last uint64
		e := ended(nil)
		e.Run = func(ctx context.Context, _ int) (string, error) {
			token := activity.InfoFrom(ctx).FencingToken
			if token <= last {
				t.Errorf("token %d after %d", token, last)
			}
			last = token
			return "done", nil
		}
		for range 5 {
			if r, err := e.Do(t.Context(), l, keyNumber(1), 1); err != nil || r.Decision != DecidedNew {
				t.Errorf("%+v, %v", r, err)
			}
			time.Sleep(3 * time.Hour)
		}
	})
}

// Section 5: a fingerprint with an older tag is made again from the stored request.
func TestOlderFingerprint(t *testing.T) {
	for _, again := range []bool{true, false} {
		s := newWatched()
		l := opens(t, s, nil, nil)
		e, k := ended(nil), keyNumber(1)
		if _, err := e.Do(t.Context(), l, k, 1); err != nil {
			t.Fatal(err)
		}
		was, err := l.get(t.Context(), k, k.Hash())
		if err != nil {
			t.Fatal(err)
		}
		old := *was
		old.Updated++
		old.Fingerprint = "c14n0:md5:0123"
		if !again {
			old.Request = nil // it was too large
		}
		c, err := entry.Changing(entry.Key(k), k.Hash(), was, &old)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(t.Context(), c.Batch); err != nil {
			t.Fatal(err)
		}
		if r, err := e.Do(t.Context(), l, k, 1); again != (err == nil) || again && r.Decision != DecidedDuplicate || !again && !errors.Is(err, ErrConflict) {
			t.Errorf("the same request: %+v, %v", r, err)
		}
		if _, err := e.Do(t.Context(), l, k, 2); !errors.Is(err, ErrConflict) {
			t.Errorf("another request: %v", err)
		}
	}
}

// Section 3: fields of a newer release of the same version survive what this one writes.
func TestUnknownFieldsOfARecordSurvive(t *testing.T) {
	s := newWatched()
	l := opens(t, s, nil, nil)
	k := keyNumber(1)
	ended(activity.NoEffect(errNo)).Do(t.Context(), l, k, 1)
	raw, err := s.Get(t.Context(), entry.Key(k).Place(k.Hash()))
	if err != nil {
		t.Fatal(err)
	}
	body := slices.Clone(raw[7:]) // a map of less than 24 pairs: one more, 99: "x"
	if body[0] < 0xa0 || body[0] >= 0xb6 {
		t.Fatalf("%x", body[0])
	}
	body[0]++
	body = append(body, 0x18, 0x63, 0x61, 'x')
	at := entry.Key(k).Place(k.Hash())
	if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(at, golden.Envelope(at, 1, body))}}); err != nil {
		t.Fatal(err)
	}
	if _, err := ended(nil).Do(t.Context(), l, k, 1); err != nil {
		t.Fatal(err)
	}
	e, err := l.get(t.Context(), k, k.Hash())
	if err != nil || e.State != entry.Sealed || len(e.UnknownFields) != 1 {
		t.Errorf("%+v, %v", e, err)
	}
}
