package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/inturn"
	"github.com/weft-go/weft/storage"
)

func capabilitiesNeverChange(t *trial) {
	want := t.caps
	check := func(when string) {
		if got := t.store.Capabilities(); got != want {
			t.Errorf("Capabilities %s: got %+v, want %+v", when, got, want)
		}
	}
	t.put("a=1")
	check("after a batch")
	t.refused(batch(put("", "")), storage.ErrInvalidBatch)
	check("after an error")
	t.store.Close()
	check("after Close")
}

// The capabilities of the adapter in the published table (CAP-10).
func capabilitiesAreAsPublished(t *trial) {
	if t.adapter.Want == nil {
		t.Skip("Adapter.Want is nil")
	}
	if t.caps != *t.adapter.Want {
		t.Errorf("Capabilities: got %+v, want %+v", t.caps, *t.adapter.Want)
	}
}

func closedIsClosed(t *trial) {
	t.put("a=1")
	if err := t.store.Close(); err != nil {
		t.Errorf("Close: got %v, want nil", err)
	}
	for range 2 {
		if v, err := t.store.Get(t.Context(), []byte("a")); !errors.Is(err, storage.ErrClosed) {
			t.Errorf("Get: got %q and error %v, want ErrClosed", v, err)
		}
		if page, err := t.store.Scan(t.Context(), storage.Range{}); !errors.Is(err, storage.ErrClosed) {
			t.Errorf("Scan: got %d entries and error %v, want ErrClosed", len(page), err)
		}
		t.refused(batch(put("a", "2")), storage.ErrClosed)
		t.refused(batch(storage.DeleteRange(storage.Range{})), storage.ErrClosed)
		t.refused(storage.Batch{Ops: []storage.Op{put("a", "2")}, Urgent: true}, storage.ErrClosed)
		t.refused(storage.Batch{}, storage.ErrClosed)
		if t.caps.ConditionalBatch {
			t.refused(when(present("a")), storage.ErrClosed)
		}
		if err := t.store.Close(); err != nil && !errors.Is(err, storage.ErrClosed) {
			t.Errorf("second Close: got %v, want nil or ErrClosed", err)
		}
	}
}

func closeAnswersCommits(t *trial) {
	var commits atomic.Int32
	enough := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(enough) })
	var closing, closed atomic.Bool
	var mu sync.Mutex
	var acknowledged []string
	t.together(17, func(i int) error {
		if i == 16 {
			<-enough
			closing.Store(true)
			err := t.store.Close()
			closed.Store(true)
			return err
		}
		defer goOn()
		for n := 0; ; n++ {
			key := fmt.Sprintf("%02d:%05d", i, n)
			late := closed.Load()
			err := t.store.Commit(t.Context(), batch(put(key, "1")))
			switch {
			case errors.Is(err, storage.ErrConflict):
				return errors.New("Commit without conditions during Close: got ErrConflict, want nil or ErrClosed")
			case late && !errors.Is(err, storage.ErrClosed):
				return fmt.Errorf("Commit after Close: got %v, want ErrClosed", err)
			case err != nil && !closing.Load():
				return fmt.Errorf("Commit among 15 others, before Close: got %w, want nil", err)
			}
			if commits.Add(1) == 100 {
				goOn()
			}
			if err != nil {
				return nil
			}
			mu.Lock()
			acknowledged = append(acknowledged, key)
			mu.Unlock()
			runtime.Gosched()
		}
	})
	t.refused(batch(put("late", "1")), storage.ErrClosed)
	t.reopen()
	there := t.all()
	for _, key := range acknowledged {
		if _, found := slices.BinarySearch(there, key+"=1"); !found {
			t.Fatalf("acknowledged before Close, after it: got nothing, want %q", key)
		}
	}
}

// Goroutines inherit the pprof label of the goroutine that starts them. This
// distinguishes the store's goroutines from others.
func closeStopsGoroutines(t *trial) {
	mark := fmt.Sprintf("%p", t)
	pprof.Do(t.Context(), pprof.Labels("storagetest", mark), func(context.Context) {
		s := t.adapter.Open(t.TB)
		used := *t
		used.store = s
		used.put("a=1")
		used.together(4, func(i int) error { return s.Commit(t.Context(), batch(put(fmt.Sprint(i), "1"))) })
		used.page(storage.Range{Limit: 1}, "0=1")
		if err := s.Close(); err != nil {
			t.Errorf("Close: got %v, want nil", err)
		}
	})
	end := time.Now().Add(time.Minute) // some end when a peer has answered
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
		late, stacks := time.Now().After(end), goroutines(mark)
		if len(stacks) == 0 {
			return
		}
		if late {
			t.Errorf("a minute after Close: got %d stacks of goroutines, want none\n%s", len(stacks), strings.Join(stacks, "\n"))
			return
		}
		time.Sleep(wait)
	}
}

// goroutines returns the stacks of goroutines that have a label with the value mark.
func goroutines(mark string) []string {
	var profile bytes.Buffer
	pprof.Lookup("goroutine").WriteTo(&profile, 1)
	return slices.DeleteFunc(strings.Split(profile.String(), "\n\n"), func(stack string) bool {
		return !strings.Contains(stack, mark)
	})
}

func reopenKeeps(t *trial) {
	value := strings.Repeat("v", large)
	t.put("a=1", "gone=1", "large="+value, "changed=1")
	t.do(put("\x00\xff", "\xff\x00"), put("empty", ""), del("gone"), put("changed", "2"))
	t.do(storage.DeleteRange(between("m", "z")), put("n", "3"))
	want := []string{"\x00\xff=\xff\x00", "a=1", "changed=2", "empty=", "large=" + value, "n=3"}
	t.holds(want...)
	for range 2 {
		t.reopen()
		t.holds(want...)
		t.missing("gone")
		if got := t.store.Capabilities(); got != t.caps {
			t.Errorf("Capabilities of the store opened again: got %+v, want %+v", got, t.caps)
		}
	}
	// The last batch before Close is kept, also if all that it does is to delete.
	for _, last := range []struct {
		op   storage.Op
		left []string
	}{
		{put("a", "2"), []string{"\x00\xff=\xff\x00", "a=2", "changed=2", "empty=", "large=" + value, "n=3"}},
		{del("a"), []string{"\x00\xff=\xff\x00", "changed=2", "empty=", "large=" + value, "n=3"}},
		{storage.DeleteRange(between("b", "m")), []string{"\x00\xff=\xff\x00", "n=3"}},
	} {
		t.do(last.op)
		t.reopen()
		t.holds(last.left...)
	}
}

func openingIsUnique(t *trial) {
	if t.caps.Shared {
		if x, ok := storage.As[storage.Exclusive](t.store); ok && x.Opening() != "" {
			t.Errorf("Opening of a store that is Shared: got %q, want none", x.Opening())
		}
		return
	}
	opening := func(s storage.Storage) string {
		x, ok := storage.As[storage.Exclusive](s)
		if !ok {
			t.Fatalf("got a store that is neither Shared nor storage.Exclusive, want one of them")
		}
		id := x.Opening()
		if id == "" || id != x.Opening() {
			t.Errorf("Opening: got %q and then %q, want one that is not empty", id, x.Opening())
		}
		return id
	}
	first := opening(t.store)
	other := t.adapter.Open(t.TB)
	defer other.Close()
	if id := opening(other); id == first {
		t.Errorf("Opening of another store: got %q, which the first has too, want its own", id)
	}
	t.reopen()
	if id := opening(t.store); id == first {
		t.Errorf("Opening of the store opened again: got %q, which it had before, want a new one", id)
	}
}

func secondOpeningIsRefused(t *trial) {
	if t.caps.Shared {
		t.Skip("the store is Shared")
	}
	if t.adapter.Reopen == nil {
		t.Skip("not persistent: the Adapter has no Reopen")
	}
	t.put("a=1")
	for range 2 { // what refuses the first opener may let the next one in
		second, told := t.tryReopen()
		switch {
		case second != nil:
			second.Close()
			t.Fatalf("Reopen of a store that is open: got a second store, want storage.ErrInUse from what opens it")
		case !strings.Contains(told, storage.ErrInUse.Error()):
			t.Errorf("Reopen of a store that is open: got %q, want an error that wraps storage.ErrInUse, and Reopen to fail its test with it", told)
		}
		t.do(put("b", "2"))
		t.holds("a=1", "b=2")
	}
	t.reopen()
	t.holds("a=1", "b=2")
}

// tryReopen calls Reopen while the store is open. It returns no store, and what Reopen said, if
// Reopen failed the test that it was given.
func (t *trial) tryReopen() (storage.Storage, string) {
	attempt := &attempt{TB: t.TB}
	var second storage.Storage
	done := make(chan struct{})
	go func() {
		defer close(done)
		second = t.adapter.Reopen(attempt, t.store)
	}()
	<-done
	if attempt.failed.Load() && second != nil {
		second.Close()
		second = nil
	}
	return second, attempt.said()
}

// An attempt is a test that may fail without failing the one around it.
type attempt struct {
	testing.TB
	failed atomic.Bool
	mu     sync.Mutex // guards told
	told   []string
}

func (a *attempt) said() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.told, "\n")
}

func (a *attempt) Log(args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told = append(a.told, strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}

func (a *attempt) Helper()                           {}
func (a *attempt) Logf(format string, args ...any)   { a.Log(fmt.Sprintf(format, args...)) }
func (a *attempt) Fail()                             { a.failed.Store(true) }
func (a *attempt) FailNow()                          { a.Fail(); runtime.Goexit() }
func (a *attempt) Failed() bool                      { return a.failed.Load() }
func (a *attempt) Error(args ...any)                 { a.Log(args...); a.Fail() }
func (a *attempt) Errorf(format string, args ...any) { a.Logf(format, args...); a.Fail() }
func (a *attempt) Fatal(args ...any)                 { a.Log(args...); a.FailNow() }
func (a *attempt) Fatalf(format string, args ...any) { a.Logf(format, args...); a.FailNow() }

// onTwoOpenings returns the check on two openings of a Shared store, between which the calls alternate.
func onTwoOpenings(check func(*trial)) func(*trial) {
	return func(t *trial) {
		if !t.caps.Shared {
			t.Skip("the store is not Shared")
		}
		if t.adapter.Reopen == nil {
			t.Skip("not persistent: the Adapter has no Reopen")
		}
		second := t.adapter.Reopen(t.TB, t.store)
		t.Cleanup(func() { second.Close() })
		t.store = inturn.New("", t.store, second)
		check(t)
	}
}

func openingsShare(t *trial) {
	if !t.caps.Shared {
		t.Skip("the store is not Shared")
	}
	if t.adapter.Reopen == nil {
		t.Skip("not persistent: the Adapter has no Reopen")
	}
	t.put("a=1")
	second := t.adapter.Reopen(t.TB, t.store)
	t.Cleanup(func() { second.Close() })
	first, other := t, *t
	other.store = second
	for i, s := range []*trial{&other, first, &other} {
		s.got("a", fmt.Sprint(i+1))
		if t.caps.ConditionalBatch {
			s.conflict(then(when(equal("a", fmt.Sprint(i))), put("a", "lost")))
			s.commit(then(when(equal("a", fmt.Sprint(i+1))), put("a", fmt.Sprint(i+2))))
		} else {
			s.put(fmt.Sprintf("a=%d", i+2))
		}
	}
	first.holds("a=4")
	if err := second.Close(); err != nil {
		t.Errorf("Close of one of two openings: got %v, want nil", err)
	}
	first.put("b=1")
	first.holds("a=4", "b=1")
}
