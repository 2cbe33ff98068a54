package group_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/internal/group"
	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/storage"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var max = storage.Size{Ops: 100, Bytes: 16 << 20}

func put(key string) storage.Batch {
	return storage.Batch{Ops: []storage.Op{storage.Put([]byte(key), []byte(key))}}
}

func deleteRange(key string) storage.Batch {
	return storage.Batch{Ops: []storage.Op{storage.DeleteRange(storage.Prefix([]byte(key)))}}
}

func urgent(key string) storage.Batch {
	b := put(key)
	b.Urgent = true
	return b
}

// A disk is an Apply that records the keys of each group. The first group blocks until it is
// released.
type disk struct {
	groups  [][]string
	release chan struct{}
	fail    func(keys []string) error
}

func newDisk() *disk { return &disk{release: make(chan struct{})} }

func (d *disk) apply(batches []storage.Batch, verdicts []error) error {
	var keys []string
	for _, b := range batches {
		key := string(b.Ops[0].Key)
		if b.HasDeleteRange() {
			key = "range " + string(b.Ops[0].Range.Start)
		}
		keys = append(keys, key)
	}
	if d.groups = append(d.groups, keys); len(d.groups) == 1 {
		<-d.release
	}
	if d.fail == nil {
		return nil
	}
	return d.fail(keys)
}

// line is a queue whose first group blocks, so that later batches wait in the order of their
// arrival.
type line struct {
	t    *testing.T
	q    *group.Queue
	disk *disk
	wg   sync.WaitGroup
	errs sync.Map
}

func newLine(t *testing.T) *line {
	l := &line{t: t, disk: newDisk()}
	l.q = group.New(max, l.disk.apply)
	l.add(t.Context(), put("first"))
	return l
}

func (l *line) add(ctx context.Context, b storage.Batch) {
	l.wg.Go(func() { l.errs.Store(string(b.Ops[0].Key), l.q.Commit(ctx, b)) })
	synctest.Wait()
}

func (l *line) run() {
	close(l.disk.release)
	l.wg.Wait()
}

func (l *line) groups(want ...[]string) {
	l.t.Helper()
	if !slices.EqualFunc(l.disk.groups, want, slices.Equal) {
		l.t.Errorf("got groups %q, want %q", l.disk.groups, want)
	}
}

func (l *line) answer(key string, want error) {
	l.t.Helper()
	if got, _ := l.errs.Load(key); !errors.Is(errorOf(got), want) || want == nil && got != nil {
		l.t.Errorf("%s: got %v, want %v", key, got, want)
	}
}

func errorOf(v any) error {
	err, _ := v.(error)
	return err
}

func TestOnesWhoWaitShareAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		sizes := make([]int, 3)
		for i, k := range []string{"a", "b", "c"} {
			b := put(k)
			b.Group = &sizes[i]
			l.add(t.Context(), b)
		}
		l.run()
		l.groups([]string{"first"}, []string{"a", "b", "c"})
		if !slices.Equal(sizes, []int{3, 3, 3}) {
			t.Errorf("told to be groups of %v", sizes)
		}
	})
}

func TestDeleteRangeIsAppliedAloneInItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		for _, b := range []storage.Batch{put("a"), put("b"), deleteRange("r"), put("c"), put("d")} {
			l.add(t.Context(), b)
		}
		l.run()
		l.groups([]string{"first"}, []string{"a", "b"}, []string{"range r"}, []string{"c", "d"})
	})
}

func TestUrgentGoesFirstAndAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		for _, b := range []storage.Batch{put("a"), put("b"), urgent("u"), urgent("v")} {
			l.add(t.Context(), b)
		}
		l.run()
		l.groups([]string{"first"}, []string{"u"}, []string{"v"}, []string{"a", "b"})
	})
}

func TestGroupsAreBounded(t *testing.T) {
	large := func(key string) storage.Batch {
		return storage.Batch{Ops: []storage.Op{storage.Put([]byte(key), make([]byte, 5<<20))}}
	}
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		for _, b := range []storage.Batch{put("a"), large("l"), put("b"), large("m"), put("c")} {
			l.add(t.Context(), b)
		}
		l.run()
		l.groups([]string{"first"}, []string{"a", "l", "b"}, []string{"m", "c"})
	})
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		for i := range 1001 {
			l.add(t.Context(), put(strconv.Itoa(i)))
		}
		l.run()
		if n := len(l.disk.groups); n != 3 || len(l.disk.groups[1]) != 1000 {
			t.Errorf("got %d groups, the second of %d, want 3 and 1000", n, len(l.disk.groups[1]))
		}
	})
}

func TestCancelledInLineIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		ctx, cancel := context.WithCancel(t.Context())
		l.add(t.Context(), put("a"))
		l.add(ctx, put("b"))
		l.add(ctx, urgent("u"))
		l.add(t.Context(), put("c"))
		cancel()
		synctest.Wait()
		l.answer("b", context.Canceled) // at once: "first" is still being applied
		l.answer("u", context.Canceled)
		l.run()
		l.groups([]string{"first"}, []string{"a", "c"})
	})
}

// A context that ends when it is asked for Done, and after late has returned.
type endsLate struct {
	context.Context
	late  func()
	ended bool
}

func (c *endsLate) Done() <-chan struct{} {
	if !c.ended {
		c.late()
		c.ended = true
	}
	done := make(chan struct{})
	close(done)
	return done
}

func (c *endsLate) Err() error {
	if c.ended {
		return context.Canceled
	}
	return nil
}

// A caller can give up just when it is to lead the next group. The next batch that waits is not
// taken for written because of that.
func TestWithdrawnLeaderIsNotAnswered(t *testing.T) {
	met := 0
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			l := newLine(t)
			again := make(chan struct{})
			l.disk.fail = func(keys []string) error {
				if keys[0] == "second" {
					<-again
				}
				return nil
			}
			err := l.q.Commit(&endsLate{Context: t.Context(), late: l.run}, put("a"))
			if _, withdrawn := errors.AsType[*storage.WithdrawnError](err); withdrawn {
				met++
			}
			l.add(t.Context(), put("second"))
			l.add(t.Context(), put("b"))
			if err, answered := l.errs.Load("b"); answered {
				t.Errorf("b was answered with %v before it was applied", err)
			}
			close(again)
			l.wg.Wait()
			if last := l.disk.groups[len(l.disk.groups)-1]; !slices.Equal(last, []string{"b"}) {
				t.Errorf("the last group was %q, want b", last)
			}
		})
	}
	if met < 10 || met > 90 {
		t.Errorf("%d of 100 callers gave up when they were to lead, want about half", met)
	}
}

func TestCancelledWhileAppliedIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		q := group.New(max, d.apply)
		ctx, cancel := context.WithCancel(t.Context())
		answer := make(chan error, 1)
		go func() { answer <- q.Commit(ctx, put("a")) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case err := <-answer:
			t.Fatalf("got %v before the batch was applied", err)
		default:
		}
		close(d.release)
		if err := <-answer; err != nil {
			t.Errorf("got %v, want nil: it was written", err)
		}
	})
}

// The error of a withdrawn batch says that nothing was written, and has the last group's error.
func TestWithdrawnTellsWhatOthersMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		broken := errors.New("broken")
		l.disk.fail = func(keys []string) error {
			if keys[0] == "first" {
				return broken
			}
			time.Sleep(time.Hour)
			return nil
		}
		l.add(t.Context(), put("a"))
		ctx, cancel := context.WithCancel(t.Context())
		l.add(ctx, deleteRange("b"))
		close(l.disk.release)
		synctest.Wait() // a is being applied
		cancel()
		l.wg.Wait()
		l.withdrawn("", broken)
		l.answer("a", nil)
		err := l.q.Commit(ctx, put("c"))
		if w, ok := errors.AsType[*storage.WithdrawnError](err); !ok || w.Ended != context.Canceled || w.Last != nil {
			t.Errorf("a context that had ended: %v, want a WithdrawnError without a cause: a was written", err)
		}
	})
}

func (l *line) withdrawn(key string, last error) {
	l.t.Helper()
	got, _ := l.errs.Load(key)
	if w, ok := errors.AsType[*storage.WithdrawnError](errorOf(got)); !ok || w.Ended != context.Canceled || w.Last != last {
		l.t.Errorf("%q: got %v, want a WithdrawnError with %v", key, got, last)
	}
}

// Batches whose group cannot begin are tried again until their callers give up, but only for
// a limited time.
func TestGroupThatDoesNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locked := errors.New("locked")
		var free atomic.Bool
		var tries atomic.Int32
		q := group.New(max, func([]storage.Batch, []error) error {
			tries.Add(1)
			if free.Load() {
				return nil
			}
			time.Sleep(time.Second)
			return group.NotBegun(locked)
		})
		l := &line{t: t, q: q}
		ctx, cancel := context.WithCancel(t.Context())
		l.add(ctx, put("a"))
		l.add(t.Context(), put("b"))
		time.Sleep(3500 * time.Millisecond)
		cancel()
		time.Sleep(time.Second)
		l.withdrawn("a", locked)
		free.Store(true)
		l.wg.Wait()
		l.answer("b", nil)
		free.Store(false)
		tries.Store(0)
		if err := q.Commit(t.Context(), put("c")); err != locked || tries.Load() != 50 {
			t.Errorf("got %v after %d tries, want %v after 50", err, tries.Load(), locked)
		}
	})
}

func TestOneBadBatchFailsAloneAndAtOnce(t *testing.T) {
	bad := errors.New("bad")
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		l.disk.fail = func(keys []string) error {
			if slices.Contains(keys, "key 77") {
				return group.Undone(bad)
			}
			return nil
		}
		for i := range 200 {
			l.add(t.Context(), put(fmt.Sprint("key ", i)))
		}
		l.run()
		for i := range 200 {
			var want error
			if i == 77 {
				want = bad
			}
			l.answer(fmt.Sprint("key ", i), want)
		}
		if n := len(l.disk.groups); n > 20 {
			t.Errorf("got %d transactions, want at most 20", n)
		}
		var order []string
		for _, g := range l.disk.groups[1:] {
			if !slices.Contains(g, "key 77") {
				order = append(order, g...)
			}
		}
		if !slices.IsSortedFunc(order, func(a, b string) int { return number(a) - number(b) }) {
			t.Errorf("got the order %q, want first come first served", order)
		}
	})
}

func number(key string) int {
	n, _ := strconv.Atoi(key[len("key "):])
	return n
}

func TestUnknownIsNotTriedAgain(t *testing.T) {
	lost := errors.New("lost")
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		l.disk.fail = func(keys []string) error {
			if len(keys) > 1 {
				return lost
			}
			return nil
		}
		l.add(t.Context(), put("a"))
		l.add(t.Context(), put("b"))
		l.run()
		l.groups([]string{"first"}, []string{"a", "b"})
		l.answer("a", lost)
		l.answer("b", lost)
	})
}

func TestPanicIsAnAnswerAndTheQueueGoesOn(t *testing.T) {
	for name, leave := range map[string]func(){
		"panic":  func() { panic("bug") },
		"goexit": runtime.Goexit,
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLine(t)
			l.disk.fail = func(keys []string) error {
				if slices.Contains(keys, "a") {
					leave()
				}
				return nil
			}
			l.add(t.Context(), put("a"))
			l.add(t.Context(), put("b"))
			l.add(t.Context(), deleteRange("r"))
			l.add(t.Context(), put("c"))
			l.run()
			if v, _ := l.errs.Load("b"); v == nil {
				t.Errorf("%s: got nil for the neighbour, want an error", name)
			} else if _, ok := errors.AsType[*group.Panic](v.(error)); !ok {
				t.Errorf("%s: got %v for the neighbour, want a *Panic", name, v)
			}
			l.answer("c", nil)
		})
	}
}

func TestCloseAnswersAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		l.add(t.Context(), put("a"))
		l.add(t.Context(), urgent("u"))
		closed := make(chan struct{})
		go func() {
			l.q.Close()
			close(closed)
		}()
		synctest.Wait()
		l.answer("a", storage.ErrClosed)
		l.answer("u", storage.ErrClosed)
		select {
		case <-closed:
			t.Error("Close returned while a group was being applied")
		default:
		}
		l.run()
		<-closed
		l.answer("first", nil)
		l.groups([]string{"first"})
		if err := l.q.Commit(t.Context(), put("b")); !errors.Is(err, storage.ErrClosed) {
			t.Errorf("got %v after Close, want ErrClosed", err)
		}
		l.q.Close()
	})
}

func TestInvalidBatchDoesNotJoin(t *testing.T) {
	q := group.New(max, func([]storage.Batch, []error) error {
		t.Error("applied")
		return nil
	})
	if err := q.Commit(t.Context(), storage.Batch{Ops: []storage.Op{{}}}); !errors.Is(err, storage.ErrInvalidBatch) {
		t.Errorf("got %v, want ErrInvalidBatch", err)
	}
}

// TestRandomly has many goroutines commit, give up, fail and close at random, and compares
// their results with what was applied.
func TestRandomly(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("WEFT_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("WEFT_SEED=%d", seed)
	rounds := 300
	if testing.Short() {
		rounds = 30
	}
	for round := range rounds {
		randomRound(t, rand.New(rand.NewPCG(seed, uint64(round))))
	}
}

var (
	errBad  = errors.New("bad")
	errLost = errors.New("lost")
)

func randomRound(t *testing.T, r *rand.Rand) {
	const workers, each = 20, 20
	var (
		applied = map[string]int{} // used by the leader only
		busy    sync.Mutex
		lose    = r.IntN(10)
	)
	q := group.New(max, func(batches []storage.Batch, verdicts []error) error {
		if !busy.TryLock() {
			t.Error("two groups at once")
		}
		defer busy.Unlock()
		for _, b := range batches {
			if b.Ops[0].Key[0] == 'x' {
				return group.Undone(errBad)
			}
		}
		for i, b := range batches {
			if (b.Urgent || b.HasDeleteRange()) && len(batches) > 1 {
				t.Error("one that must be alone is not")
			}
			if b.Ops[0].Key[0] == 'c' {
				verdicts[i] = storage.ErrConflict
				continue
			}
			applied[string(b.Ops[0].Key)]++
		}
		if lose--; lose == 0 {
			return errLost
		}
		if len(batches) == 7 {
			panic("seven")
		}
		return nil
	})
	type outcome struct {
		key string
		err error
	}
	var answers [workers][]outcome
	var wg sync.WaitGroup
	for w := range workers {
		mine := rand.New(rand.NewPCG(r.Uint64(), uint64(w)))
		wg.Go(func() {
			for i := range each {
				key := fmt.Sprintf("%c%d.%d", "oooooxc"[mine.IntN(7)], w, i)
				b := put(key)
				b.Urgent = mine.IntN(20) == 0
				if mine.IntN(20) == 0 {
					b.Ops = append(b.Ops, deleteRange("r").Ops...)
				}
				ctx, cancel := context.WithCancel(context.Background())
				if soon := mine.IntN(50); mine.IntN(4) == 0 {
					go func() {
						for range soon {
							runtime.Gosched()
						}
						cancel()
					}()
				}
				err := q.Commit(ctx, b)
				clear(b.Ops[0].Key[1:]) // the race detector would report it if the queue still read the key
				cancel()
				answers[w] = append(answers[w], outcome{key, err})
			}
		})
	}
	if r.IntN(3) == 0 {
		q.Close()
	}
	wg.Wait()
	q.Close()
	for _, outcomes := range answers {
		for _, o := range outcomes {
			n, want := applied[o.key], -1 // -1: either
			_, panicked := errors.AsType[*group.Panic](o.err)
			switch {
			case o.err == nil:
				want = 1
			case errors.Is(o.err, errLost), panicked:
			case errors.Is(o.err, storage.ErrConflict) && o.key[0] == 'c', errors.Is(o.err, errBad) && o.key[0] == 'x',
				errors.Is(o.err, context.Canceled), errors.Is(o.err, storage.ErrClosed):
				want = 0
			default:
				t.Errorf("%s: got %v", o.key, o.err)
			}
			if n > 1 || want >= 0 && n != want {
				t.Errorf("%s: answered %v and applied %d times", o.key, o.err, n)
			}
		}
	}
}
