package storagetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// on returns a decide function that injects f into calls of one method.
func on(method string, f Fault) func(Call) Fault {
	return func(c Call) Fault {
		if c.Method == method {
			return f
		}
		return None
	}
}

func TestFaultsOfCommit(t *testing.T) {
	for _, c := range []struct {
		fault   Fault
		want    error // of the call
		applied bool
		next    error // of the next call
	}{
		{None, nil, true, nil},
		{ErrorBefore, ErrInjected, false, nil},
		{ErrorAfter, ErrInjected, true, nil},
		{CancelMiddle, nil, true, nil}, // a memory.Store checks its context only once
		{CrashBefore, ErrCrashed, false, ErrCrashed},
		{CrashAfter, ErrCrashed, true, ErrCrashed},
	} {
		t.Run(fmt.Sprint("fault ", c.fault), func(t *testing.T) {
			inner := new(memory.Store)
			f := NewFaulty(inner, on("Commit", c.fault))
			if err := f.Commit(t.Context(), batch(put("a", "1"))); !errors.Is(err, c.want) {
				t.Errorf("Commit: got %v, want %v", err, c.want)
			}
			if _, err := inner.Get(t.Context(), []byte("a")); (err == nil) != c.applied {
				t.Errorf("applied: got %v, want %v", err == nil, c.applied)
			}
			if _, err := f.Scan(t.Context(), storage.Range{}); !errors.Is(err, c.next) {
				t.Errorf("Scan after it: got %v, want %v", err, c.next)
			}
		})
	}
}

func TestFaultsOfReads(t *testing.T) {
	for fault, want := range map[Fault]error{
		None: nil, ErrorBefore: ErrInjected, ErrorAfter: ErrInjected, CancelMiddle: nil, CrashBefore: ErrCrashed, CrashAfter: ErrCrashed,
	} {
		inner := new(memory.Store)
		if err := inner.Commit(t.Context(), batch(put("a", "1"))); err != nil {
			t.Fatal(err)
		}
		v, err := NewFaulty(inner, on("Get", fault)).Get(t.Context(), []byte("a"))
		if !errors.Is(err, want) || (string(v) == "1") != (want == nil) {
			t.Errorf("Get with fault %d: got %q and error %v, want error %v", fault, v, err, want)
		}
		page, err := NewFaulty(inner, on("Scan", fault)).Scan(t.Context(), storage.Range{})
		if !errors.Is(err, want) || (len(page) == 1) != (want == nil) {
			t.Errorf("Scan with fault %d: got %d entries and error %v, want error %v", fault, len(page), err, want)
		}
	}
}

func TestFaultHidesConflict(t *testing.T) {
	f := NewFaulty(new(memory.Store), on("Commit", ErrorAfter))
	err := f.Commit(t.Context(), when(present("missing")))
	if !errors.Is(err, ErrInjected) || errors.Is(err, storage.ErrConflict) {
		t.Errorf("Commit: got %v, want only ErrInjected: the outcome is unknown", err)
	}
}

// A lookTwice store checks its context before and after its work.
type lookTwice struct{ storage.Storage }

func (s lookTwice) Commit(ctx context.Context, b storage.Batch) error {
	if err := ctx.Err(); err != nil {
		return errors.New("never began")
	}
	if err := s.Storage.Commit(context.WithoutCancel(ctx), b); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestCancelMiddleComesAfterTheFirstLook(t *testing.T) {
	f := NewFaulty(lookTwice{new(memory.Store)}, on("Commit", CancelMiddle))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := f.Commit(ctx, batch(put("a", "1"))); !errors.Is(err, context.Canceled) {
		t.Errorf("Commit: got %v, want context.Canceled", err)
	}
	if ctx.Err() != nil {
		t.Errorf("the caller's context: got %v, want it alive", ctx.Err())
	}
	if _, err := f.Get(t.Context(), []byte("a")); err != nil {
		t.Errorf("Get: got %v, want it written", err)
	}
}

// A derive store waits for a context derived from its caller's.
type derive struct{ storage.Storage }

func (s derive) Commit(ctx context.Context, b storage.Batch) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	<-ctx.Done()
	return ctx.Err()
}

func TestCancelMiddleReachesDerivedContexts(t *testing.T) {
	f := NewFaulty(derive{new(memory.Store)}, on("Commit", CancelMiddle))
	if err := f.Commit(t.Context(), batch(put("a", "1"))); !errors.Is(err, context.Canceled) {
		t.Errorf("Commit: got %v, want context.Canceled", err)
	}
}

func TestDecideSeesCallsInOrder(t *testing.T) {
	var calls []Call
	f := NewFaulty(new(memory.Store), func(c Call) Fault {
		calls = append(calls, c)
		return None
	})
	b := batch(put("a", "1"))
	r := storage.Prefix([]byte("a"))
	f.Commit(t.Context(), b)
	f.Get(t.Context(), []byte("a"))
	f.Scan(t.Context(), r)
	want := []Call{
		{N: 1, Method: "Commit", Batch: b},
		{N: 2, Method: "Get", Key: []byte("a")},
		{N: 3, Method: "Scan", Range: r},
	}
	if d := cmp.Diff(want, calls); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
	if f.Calls() != 3 {
		t.Errorf("Calls: got %d, want 3", f.Calls())
	}
}

func TestDecideIsCalledOneAtATime(t *testing.T) {
	decided := 0 // not locked: the race detector would report concurrent calls
	f := NewFaulty(new(memory.Store), func(c Call) Fault {
		decided++
		if c.N != decided {
			t.Errorf("N: got %d, want %d", c.N, decided)
		}
		return None
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				f.Get(t.Context(), []byte("a"))
			}
		})
	}
	wg.Wait()
	if decided != 400 || f.Calls() != 400 {
		t.Errorf("calls: got %d decided and %d counted, want 400", decided, f.Calls())
	}
}

// A slow store returns when it is told to.
type slow struct {
	storage.Storage
	reached, answer chan struct{}
}

func (s slow) Commit(ctx context.Context, b storage.Batch) error {
	err := s.Storage.Commit(ctx, b)
	close(s.reached)
	<-s.answer
	return err
}

func TestCrashReachesCallsUnderWay(t *testing.T) {
	inner := new(memory.Store)
	s := slow{inner, make(chan struct{}), make(chan struct{})}
	f := NewFaulty(s, nil)
	got := make(chan error)
	go func() { got <- f.Commit(t.Context(), batch(put("a", "1"))) }()
	<-s.reached
	f.Crash()
	<-f.Crashed()
	f.Crash()
	close(s.answer)
	if err := <-got; !errors.Is(err, ErrCrashed) {
		t.Errorf("Commit under way in a crash: got %v, want ErrCrashed", err)
	}
	if _, err := inner.Get(t.Context(), []byte("a")); err != nil {
		t.Errorf("Get of the inner store: got %v, want what was written", err)
	}
}

func TestEachFaultyIsOneLife(t *testing.T) {
	inner := new(memory.Store)
	first := NewFaulty(inner, on("Commit", CrashAfter))
	if err := first.Commit(t.Context(), batch(put("a", "1"))); !errors.Is(err, ErrCrashed) {
		t.Fatalf("Commit: got %v, want ErrCrashed", err)
	}
	second := NewFaulty(inner, nil)
	if _, err := second.Get(t.Context(), []byte("a")); err != nil {
		t.Errorf("Get in the next life: got %v, want what was written", err)
	}
	if first.Opening() == "" || first.Opening() == second.Opening() || first.Opening() == inner.Opening() {
		t.Errorf("Openings: got %q and %q over %q, want three", first.Opening(), second.Opening(), inner.Opening())
	}
	if err := second.Close(); err != nil {
		t.Errorf("Close: got %v, want nil", err)
	}
	if _, err := second.Get(t.Context(), []byte("a")); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Get after Close: got %v, want ErrClosed", err)
	}
	if _, err := inner.Get(t.Context(), []byte("a")); err != nil {
		t.Errorf("Get of the inner store after Close: got %v, want it open", err)
	}
}

func TestFaultyHasNoOpeningAroundSharedStores(t *testing.T) {
	shared := struct{ storage.Storage }{new(memory.Store)}
	if got := NewFaulty(NewFaulty(shared, nil), nil).Opening(); got != "" {
		t.Errorf("Opening: got %q, want none", got)
	}
}

func TestWrappersAreSeenThrough(t *testing.T) {
	inner := new(memory.Store)
	s := NoConditions(NewFaulty(inner, nil))
	if got, ok := storage.As[*memory.Store](s); !ok || got != inner {
		t.Errorf("As: got %v, %v, want the inner store", got, ok)
	}
	if got := storage.Adapter(s); got != "*memory.Store" {
		t.Errorf("Adapter: got %q, want *memory.Store", got)
	}
	want := inner.Capabilities()
	if got := NewFaulty(inner, nil).Capabilities(); got != want {
		t.Errorf("Capabilities of a Faulty: got %+v, want %+v", got, want)
	}
	want.ConditionalBatch = false
	if got := s.Capabilities(); got != want {
		t.Errorf("Capabilities without conditions: got %+v, want %+v", got, want)
	}
}

// decide may keep a batch: its slices are not those of the caller, who may use them again.
func TestDecideMayKeepABatch(t *testing.T) {
	var seen storage.Batch
	f := NewFaulty(new(memory.Store), func(c Call) Fault {
		seen = c.Batch
		return None
	})
	key := []byte("key")
	b := storage.Batch{If: []storage.Condition{storage.Absent(key)}, Ops: []storage.Op{storage.Put(key, nil)}}
	if err := f.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	clear(b.If)
	clear(b.Ops)
	if len(seen.If) != 1 || seen.If[0].Kind != storage.IsAbsent || len(seen.Ops) != 1 || string(seen.Ops[0].Key) != "key" {
		t.Errorf("got %+v", seen)
	}
}
